"""Which batches can be sent now: ReadyCheck finds the nodes, RetryBackoff delays retries, Drain takes the batches."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from itertools import zip_longest
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kstore._core import DrainRequest
from kstore.producer.cluster import Cluster, Node
from kstore.types import NO_SEQUENCE, TopicPartition

if TYPE_CHECKING:
    from kstore._core import OpenTransaction, PartitionQueue, TopicQueues
    from kstore.producer.batches.batch import ProducerBatch

NO_READY_CHECK_MS = 2**63 - 1


class ReadyCheckResult(NamedTuple):
    """Nodes to drain; milliseconds until the next check; topics with records for a partition without a leader.

    The delay is NO_READY_CHECK_MS (2^63 - 1) if no batch becomes ready by time alone.
    """

    ready_nodes: AbstractSet[Node]
    next_ready_check_delay_ms: int
    unknown_leader_topics: AbstractSet[str]


class NodeLatencyStats:
    """When a node last had batches ready, and when some could last be drained; monotonic ms (KIP-794)."""

    __slots__ = ("drain_time_ms", "ready_time_ms")

    def __init__(self, now_ms: int) -> None:
        self.drain_time_ms = now_ms
        self.ready_time_ms = now_ms


class ReadyCheck:
    """Checks the first batch of every queue that is not empty; idle partitions cost nothing.

    Args: active: the queues that are not empty; topics: all queues by topic.
    Threads: one thread, concurrent with appends.  Source: Kafka RecordAccumulator.ready.
    """

    def __init__(
        self,
        active: dict[PartitionQueue, None],
        topics: dict[str, TopicQueues],
        *,
        backoff: RetryBackoff,
        linger_ms: int,
        adaptive_partitioning: bool,
        partition_availability_timeout_ms: int,
    ) -> None:
        self._active = active
        self._topics = topics
        self._backoff = backoff
        self._linger_ms = linger_ms
        self._adaptive_partitioning = adaptive_partitioning
        self._partition_availability_timeout_ms = partition_availability_timeout_ms
        self._node_stats: dict[int, NodeLatencyStats] = {}
        self._weighted_topics: set[str] = set()

    def run(self, cluster: Cluster, now_ms: int, *, is_urgent: bool) -> ReadyCheckResult:
        """Check all queues.

        Args: is_urgent: whether every batch that is not backing off counts as ready.
        """
        ready_nodes: set[Node] = set()
        unknown_leader_topics: set[str] = set()
        waiting_topics: set[str] = set()
        delay_ms = NO_READY_CHECK_MS
        for queue in list(self._active):
            topic_partition = queue.topic_partition
            leader = cluster.leader_for(topic_partition)
            if leader is None:
                if len(queue):
                    unknown_leader_topics.add(topic_partition.topic)
                continue
            waiting_topics.add(topic_partition.topic)
            if leader in ready_nodes or queue.is_muted:
                continue
            time_left_ms = self._time_left_ms(queue, cluster, now_ms, is_urgent=is_urgent)
            if time_left_ms == 0:
                ready_nodes.add(leader)
            elif time_left_ms is not None:
                delay_ms = min(delay_ms, time_left_ms)
        if self._adaptive_partitioning:
            self._update_load_stats(cluster, waiting_topics)
        return ReadyCheckResult(ready_nodes, delay_ms, unknown_leader_topics)

    def _time_left_ms(self, queue: PartitionQueue, cluster: Cluster, now_ms: int, *, is_urgent: bool) -> int | None:
        """Return the milliseconds until the first batch of a queue is ready, None if the queue is empty."""
        with queue:
            batch: ProducerBatch | None = queue.first
            if batch is None:
                return None
            batch.maybe_update_leader_epoch(cluster.leader_epoch_for(queue.topic_partition))
            if self._backoff.is_backing_off(batch, now_ms):
                return max(self._backoff.of_batch_ms(batch) - batch.waited_ms(now_ms), 1)
            if is_urgent or queue.is_first_due:
                return 0
            return max(self._linger_ms - batch.waited_ms(now_ms), 0)

    def update_node_latency_stats(self, node_id: int, *, now_ms: int, can_drain: bool) -> None:
        """Record that a node had batches ready, and whether any could be drained."""
        if self._partition_availability_timeout_ms <= 0:
            return
        stats = self._node_stats.setdefault(node_id, NodeLatencyStats(now_ms))
        if can_drain:
            stats.drain_time_ms = now_ms
        stats.ready_time_ms = now_ms

    def _is_available(self, leader: Node) -> bool:
        stats = self._node_stats.get(leader.id)
        timeout_ms = self._partition_availability_timeout_ms
        return timeout_ms <= 0 or stats is None or stats.ready_time_ms - stats.drain_time_ms <= timeout_ms

    def _update_load_stats(self, cluster: Cluster, waiting_topics: set[str]) -> None:
        """Pass the queue lengths to the partitioners of topics whose sticky partition is in use."""
        for topic in waiting_topics | self._weighted_topics:
            queues = self._topics[topic]
            partitioner = queues.partitioner
            if not queues.is_sticky_used:
                continue
            infos = cluster.partitions_for_topic(topic)
            # The weights would exclude a partition that has no queue yet.
            if len(queues) < len(infos):
                continue
            sizes = {
                info.partition: queues.size_of(info.partition)
                for info in infos
                if info.leader is not None and self._is_available(info.leader)
            }
            partitioner.update_partition_load_stats(sizes, partition_count=len(infos))
            if topic in waiting_topics:
                self._weighted_topics.add(topic)
            else:
                self._weighted_topics.discard(topic)


_BASE = 2
_JITTER = 0.2


class RetryBackoff:
    """Backoff times that double from initial_ms up to max_ms, with 20 % jitter either way.

    Each attempt of a batch has one random backoff; Kafka draws a new one at every check.
    Threads: safe.  Source: Kafka ExponentialBackoff, KIP-580.
    """

    def __init__(self, *, initial_ms: int, max_ms: int, random: Random) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._most_doublings = math.log(max_ms / max(self._initial_ms, 1), _BASE) if self._initial_ms > 0 else 0.0
        self._random = random
        self._drawn: dict[ProducerBatch, tuple[int, int]] = {}

    def draw_ms(self, failures: int) -> int:
        """Return a random backoff in milliseconds after that many earlier failures, 0 for the first failure."""
        if self._most_doublings == 0:
            return self._initial_ms
        term = self._initial_ms * _BASE ** min(failures, self._most_doublings)
        return int(min(self._random.uniform(1 - _JITTER, 1 + _JITTER) * term, self._max_ms))

    def of_batch_ms(self, batch: ProducerBatch) -> int:
        """Return the backoff of a batch after its last attempt, in milliseconds."""
        drawn = self._drawn.get(batch)
        if drawn is None or drawn[0] != batch.attempts:
            drawn = batch.attempts, self.draw_ms(max(batch.attempts - 1, 0))
            self._drawn[batch] = drawn
        return drawn[1]

    def is_backing_off(self, batch: ProducerBatch, now_ms: int) -> bool:
        """Return whether a failed batch must still wait; with a new leader it need not (KAFKA-15415)."""
        if batch.attempts == 0 or batch.has_leader_changed_for_the_ongoing_retry:
            return False
        return batch.waited_ms(now_ms) < self.of_batch_ms(batch)

    def forget(self, batch: ProducerBatch) -> None:
        """Discard the backoff of a batch."""
        self._drawn.pop(batch, None)


class ProducerIdentity(Protocol):
    """A producer id and epoch."""

    @property
    def is_valid(self) -> bool: ...


class SequenceManager(Protocol):
    """The methods of TransactionManager that an accumulator calls."""

    @property
    def is_transactional(self) -> bool: ...

    @property
    def is_completing(self) -> bool: ...

    @property
    def open_transaction(self) -> OpenTransaction: ...

    @property
    def producer_id_and_epoch(self) -> ProducerIdentity: ...

    def is_send_to_partition_allowed(self, topic_partition: TopicPartition, /) -> bool: ...

    def has_unresolved_sequence(self, topic_partition: TopicPartition, /) -> bool: ...

    def has_stale_producer_id_and_epoch(self, topic_partition: TopicPartition, /) -> bool: ...

    def has_in_flight_batches(self, topic_partition: TopicPartition, /) -> bool: ...

    def first_in_flight_sequence(self, topic_partition: TopicPartition, /) -> int: ...

    def is_retrying(self, topic_partition: TopicPartition, /) -> bool: ...

    def batch_before(self, batch: ProducerBatch, /) -> ProducerBatch | None: ...

    def assign_sequences(self, batches: list[ProducerBatch], /) -> object: ...

    def add_in_flight_batch(self, batch: ProducerBatch, /) -> object: ...


class Drain:
    """Takes batches out of the queues, for one request to each node, by the rule of DrainRequest.

    A partition that may not send is skipped, where Kafka ends the node's turn. To prevent starvation each node has its
    own starting point: the partition after the first one of its last request, or the one whose batch did not fit.
    Args: release: deallocates an aborted batch.
    Threads: one thread, concurrent with appends and aborts.  Source: Kafka RecordAccumulator.drain.
    """

    def __init__(
        self,
        active: dict[PartitionQueue, None],
        *,
        backoff: RetryBackoff,
        linger_ms: int,
        transaction_manager: SequenceManager | None,
        release: Callable[[ProducerBatch], None],
    ) -> None:
        self._active = active
        self._backoff = backoff
        self._linger_ms = linger_ms
        self._transaction_manager = transaction_manager
        self._release = release
        self._next_of_node: dict[int, tuple[str, int]] = {}

    def run(
        self,
        cluster: Cluster,
        nodes: Iterable[Node],
        *,
        max_size: int,
        batches_per_partition: int,
        now_ms: int,
        is_urgent: bool,
    ) -> dict[int, list[ProducerBatch]]:
        """Return the batches for each node; a request has at most max_size bytes, or a single larger batch.

        Args: batches_per_partition: the most batches of one partition; those after the first are taken only if they are
            ready, in round-robin order over the partitions, while there is room. is_urgent: whether all count as ready.
        """
        queues_of: dict[int, list[PartitionQueue]] = {node.id: [] for node in nodes}
        for queue in list(self._active):
            leader = cluster.leader_for(queue.topic_partition)
            if leader is not None and leader.id in queues_of and not queue.is_muted:
                queues_of[leader.id].append(queue)
        drained = {}
        for node_id, queues in queues_of.items():
            request = DrainRequest(max_size=max_size, now_ms=now_ms, linger_ms=0 if is_urgent else self._linger_ms)
            turn = self._first_turn(node_id, request, self._in_turn(node_id, queues), cluster)
            self._more_turns(request, turn, cluster, most=batches_per_partition - 1)
            drained[node_id] = request.batches
        return drained

    def _in_turn(self, node_id: int, queues: list[PartitionQueue]) -> list[PartitionQueue]:
        if len(queues) < 2:
            return queues
        queues.sort(key=_place_of)
        start = bisect_left(queues, self._next_of_node.get(node_id, ("", 0)), key=_place_of)
        return queues[start:] + queues[:start]

    def _first_turn(
        self, node_id: int, request: DrainRequest, queues: list[PartitionQueue], cluster: Cluster
    ) -> list[PartitionQueue]:
        """Take one batch of each partition; return the queues that had one.

        Sets where the node's next request starts.
        """
        taken: list[PartitionQueue] = []
        next_place: tuple[str, int] | None = None
        for queue in queues:
            if self._take(request, queue, cluster, is_first=True):
                taken.append(queue)
            if next_place is None and request.was_changed:
                topic, partition = _place_of(queue)
                next_place = topic, partition + 1
            if request.is_full:
                next_place = _place_of(queue)
                break
        if next_place is not None:
            self._next_of_node[node_id] = next_place
        return taken

    def _more_turns(self, request: DrainRequest, turn: list[PartitionQueue], cluster: Cluster, *, most: int) -> None:
        """Take up to `most` more batches of each partition, round by round, until one does not fit."""
        if self._transaction_manager is not None:
            turn = [queue for queue in turn if self._may_continue(request, queue, cluster)]
        if not turn or request.is_full or most == 0:
            return
        counts = request.plain_rounds(turn, most=most)
        done = max(counts)
        self._take_rounds(request, turn, counts, cluster)
        turn = [queue for queue, count in zip(turn, counts, strict=True) if count == done]
        for _ in range(most - done):
            if not turn or request.is_full:
                break
            turn = [queue for queue in turn if self._take(request, queue, cluster, is_first=False)]

    def _may_continue(self, request: DrainRequest, queue: PartitionQueue, cluster: Cluster) -> bool:
        """Return whether the next batch may be sent too; the one taken may be a retry of an older epoch."""
        with queue:
            batch = queue.first
            return batch is not None and self._may_send(batch, queue, cluster, request.now_ms)

    def _take_rounds(
        self, request: DrainRequest, turn: list[PartitionQueue], counts: list[int], cluster: Cluster
    ) -> None:
        """Fast path: move `counts` plain batches of the queues into a request, in round-robin order."""
        taken = [
            self._take_plain(request, queue, count, cluster) for queue, count in zip(turn, counts, strict=True) if count
        ]
        if len(taken) == 1:
            request.batches.extend(taken[0])
        else:
            request.batches.extend(
                batch for round_of_batches in zip_longest(*taken) for batch in round_of_batches if batch is not None
            )

    def _take_plain(
        self, request: DrainRequest, queue: PartitionQueue, count: int, cluster: Cluster
    ) -> list[ProducerBatch]:
        with queue:
            batches = request.take_plain(queue, count, cluster.leader_epoch_for(queue.topic_partition))
            if self._transaction_manager is not None and batches:
                self._transaction_manager.assign_sequences(batches)
        return self._close(request, batches)

    def _take(self, request: DrainRequest, queue: PartitionQueue, cluster: Cluster, *, is_first: bool) -> bool:
        """Move the first batch of a queue into a request if it is due, may be sent and fits; return whether it was."""
        manager = self._transaction_manager
        with queue:
            batch: ProducerBatch | None = request.due(queue, is_first=is_first)
            if batch is None or not self._may_send(batch, queue, cluster, request.now_ms) or not request.admits(batch):
                return False
            batches = request.take(queue)
            if manager is not None and not batch.has_sequence:
                manager.assign_sequences(batches)
        self._backoff.forget(batch)
        closed = self._close(request, batches)
        request.batches.extend(closed)
        return bool(closed)

    def _close(self, request: DrainRequest, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        """Close batches that were taken; release those that another thread aborted, and return the others."""
        closed = request.close(batches)
        if len(closed) < len(batches):
            for batch in batches:
                if batch not in closed:
                    self._release(batch)
        return closed

    def _may_send(self, batch: ProducerBatch, queue: PartitionQueue, cluster: Cluster, now_ms: int) -> bool:
        """Return whether the first batch of a queue may be sent now.

        It must not be backing off, and the producer's state must allow it.
        """
        topic_partition = queue.topic_partition
        batch.maybe_update_leader_epoch(cluster.leader_epoch_for(topic_partition))
        if batch.attempts and self._backoff.is_backing_off(batch, now_ms):
            return False
        manager = self._transaction_manager
        if manager is None:
            return True
        if not manager.is_send_to_partition_allowed(topic_partition) or not manager.producer_id_and_epoch.is_valid:
            return False
        if not batch.has_sequence:
            # A log remembers five batches of a producer. Kafka lets four new batches overtake one in retry; if the
            # answer to that one is lost again, the log no longer recognizes it.
            if manager.is_retrying(topic_partition):
                return False
            # A new epoch starts at sequence 0 and must not overtake batches in flight of the old epoch.
            is_stale = manager.has_in_flight_batches(topic_partition) and manager.has_stale_producer_id_and_epoch(
                topic_partition
            )
            return not is_stale and not manager.has_unresolved_sequence(topic_partition)
        first = manager.first_in_flight_sequence(topic_partition)
        return first == NO_SEQUENCE or batch.base_sequence == first


def _place_of(queue: PartitionQueue) -> tuple[str, int]:
    topic, partition = queue.topic_partition
    return topic, partition
