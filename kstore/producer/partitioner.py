"""Partitioners: the built-in sticky one for records without a key, round robin, and the protocol for custom ones."""

from __future__ import annotations

import random as random_module
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate, count
from typing import Any, NamedTuple, Protocol

from kstore._core import StickyPartitionInfo
from kstore.errors import UnknownTopicOrPartitionError
from kstore.producer.cluster import Cluster


class Partitioner(Protocol):
    """A custom choice of partitions (Kafka: Partitioner).

    If it also has `on_new_batch(topic, cluster, previous_partition)`, that is called before each new batch, and
    partition() is called again, as with Kafka's Partitioner.onNewBatch.
    """

    def partition(
        self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, cluster: Cluster, /
    ) -> int:
        """Return the number of the partition."""


class _PartitionLoad(NamedTuple):
    """Partitions with the running sum of their weights."""

    partitions: tuple[int, ...]
    cumulative_weights: tuple[int, ...]


class BuiltInPartitioner:
    """Chooses partitions of one topic for records that name none and are not placed by key.

    It keeps a partition until that has received sticky_batch_size bytes, so that batches fill up. The next one is
    chosen at random: uniformly, or weighted towards short queues after update_partition_load_stats().
    Args: random: the source of randomness.
    Raises: ValueError for a sticky_batch_size below 1.
    Threads: the caller holds a lock from reading the current partition to updating it.
    Source: Kafka BuiltInPartitioner (KIP-480, KIP-794).
    """

    def __init__(self, topic: str, *, sticky_batch_size: int, random: random_module.Random | None = None) -> None:
        if sticky_batch_size < 1:
            raise ValueError(f"sticky_batch_size must be at least 1, got {sticky_batch_size}")
        self.topic = topic
        self.sticky_batch_size = sticky_batch_size
        self._random = random_module.Random() if random is None else random
        self._load: _PartitionLoad | None = None
        self._current: StickyPartitionInfo | None = None

    @property
    def load_stats_range_end(self) -> int:
        """The sum of all weights, 0 while the choice is uniform."""
        return 0 if self._load is None else self._load.cumulative_weights[-1]

    def next_partition(self, cluster: Cluster) -> int:
        """Choose a partition at random, among those with a leader if there are any.

        Raises: UnknownTopicOrPartitionError if the topic has no partitions.
        """
        load = self._load
        if load is not None:
            drawn = self._random.randrange(load.cumulative_weights[-1])
            return load.partitions[bisect_right(load.cumulative_weights, drawn)]
        infos = cluster.available_partitions_for_topic(self.topic) or cluster.partitions_for_topic(self.topic)
        if not infos:
            raise UnknownTopicOrPartitionError(f"topic {self.topic!r} has no partitions")
        return infos[self._random.randrange(len(infos))].partition

    def peek_current_partition_info(self, cluster: Cluster) -> StickyPartitionInfo:
        """Return the current partition, to be passed to update_partition_info()."""
        if self._current is None:
            self._current = self._chosen_now(cluster)
        return self._current

    def _chosen_now(self, cluster: Cluster) -> StickyPartitionInfo:
        return StickyPartitionInfo(self.next_partition(cluster), sticky_batch_size=self.sticky_batch_size)

    def is_partition_changed(self, info: StickyPartitionInfo | None) -> bool:
        """Return whether another partition was chosen since `info` was returned.

        False for None, which stands for a partition that the record names.
        """
        return info is not None and info is not self._current

    def update_partition_info(
        self, info: StickyPartitionInfo | None, appended_bytes: int, cluster: Cluster, *, enable_switch: bool = True
    ) -> None:
        """Count bytes appended to the current partition, and switch to the next one if it has enough.

        Args: enable_switch: False while the last batch has room; the partition is then kept up to twice
            sticky_batch_size.
        """
        if info is None:
            return
        info.add(appended_bytes)
        if info.has_enough(has_room=not enable_switch):
            self._current = self._chosen_now(cluster)

    def update_partition_load_stats(self, queue_sizes: Mapping[int, int] | None, *, partition_count: int) -> None:
        """Choose partitions with shorter queues more often from now on.

        Args: queue_sizes: the number of queued batches of each partition that may be chosen; None for a uniform choice.
            partition_count: of the whole topic.
        """
        self._load = None
        if not queue_sizes or partition_count < 2:
            return
        most = max(queue_sizes.values())
        if most == min(queue_sizes.values()) and len(queue_sizes) == partition_count:
            return
        weights = (most + 1 - size for size in queue_sizes.values())
        self._load = _PartitionLoad(tuple(queue_sizes), tuple(accumulate(weights)))


class RoundRobinPartitioner:
    """Chooses partitions in turn, regardless of the key; among those with a leader if there are any.

    Threads: safe.  Source: Kafka RoundRobinPartitioner, without its skip of every other partition at a new batch
    (KAFKA-9965).
    """

    def __init__(self) -> None:
        self._turns: dict[str, count[int]] = {}

    def partition(
        self,
        topic: str,
        _key: Any,
        _key_bytes: bytes | None,
        _value: Any,
        _value_bytes: bytes | None,
        cluster: Cluster,
        /,
    ) -> int:
        infos = cluster.available_partitions_for_topic(topic) or cluster.partitions_for_topic(topic)
        if not infos:
            raise UnknownTopicOrPartitionError(f"topic {topic!r} has no partitions")
        return infos[next(self._turns.setdefault(topic, count())) % len(infos)].partition
