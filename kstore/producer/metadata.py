"""Metadata: the sink's partitions as a producer knows them, asked for again when they may have changed. Layer 5."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kstore.environment import Clock
from kstore.errors import UnknownTopicOrPartitionError
from kstore.producer.cluster import Cluster, PartitionInfo
from kstore.producer.responses import cluster_of

if TYPE_CHECKING:
    from kstore.producer.sink import Sink


class Metadata:
    """The last answer of a sink, kept for max_age_ms.

    What a sink says is so: a topic that it does not name is unknown at once, where a client of brokers waits.
    Attribute: on_update, called with each answer.
    Threads: safe; two that find the answer too old may both ask.  Source: Kafka ProducerMetadata.
    """

    def __init__(self, sink: Sink, *, max_age_ms: int, clock: Clock) -> None:
        self._sink = sink
        self._max_age_ms = max_age_ms
        self._clock = clock
        self._cluster = Cluster()
        self._asked_ms: int | None = None
        self.on_update: Callable[[Cluster], object] | None = None

    @property
    def cluster(self) -> Cluster:
        """The partitions, at most max_age_ms old."""
        if self._asked_ms is None or self.age_ms >= self._max_age_ms:
            return self.update()
        return self._cluster

    @property
    def age_ms(self) -> int:
        """How long ago the sink was asked, 0 if never."""
        return 0 if self._asked_ms is None else self._clock.monotonic_ms() - self._asked_ms

    def update(self) -> Cluster:
        """Ask the sink now.  Raises: SinkResponseError; what the sink raises."""
        cluster = cluster_of(self._sink)
        self._cluster, self._asked_ms = cluster, self._clock.monotonic_ms()
        if self.on_update is not None:
            self.on_update(cluster)
        return cluster

    def cluster_with(self, topic: str, partition: int | None = None) -> Cluster:
        """Return partitions among which the topic is, and this one of it.

        Raises: UnknownTopicOrPartitionError if the sink, asked again, does not know them.
        """
        cluster = self.cluster
        if not _has(cluster, topic, partition):
            cluster = self.update()
            if not _has(cluster, topic, partition):
                count = cluster.partition_count(topic)
                found = f"its {count} partitions" if count else f"the topics {', '.join(cluster.topics[:10]) or 'none'}"
                wanted = f"topic {topic!r}" if partition is None else f"partition {partition} of topic {topic!r}"
                raise UnknownTopicOrPartitionError(f"{wanted} is not among {found}")
        return cluster

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return the topic's partitions by number.  Raises: UnknownTopicOrPartitionError."""
        return self.cluster_with(topic).partitions_for_topic(topic)


def _has(cluster: Cluster, topic: str, partition: int | None) -> bool:
    return cluster.partition_count(topic) > 0 if partition is None else cluster.has_partition(topic, partition)
