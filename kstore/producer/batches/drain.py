"""Which batches go to a node now: at most one of each partition, by turns. Layer 5."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from itertools import zip_longest
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kstore._core import close_batches, rounds_of, take_batches
from kstore.config import MAX_INT64
from kstore.producer.cluster import Cluster, Node
from kstore.types import NO_SEQUENCE, TopicPartition

if TYPE_CHECKING:
    from kstore._core import OpenTransaction, PartitionQueue, TopicQueues
    from kstore.producer.batches.batch import ProducerBatch

NO_READY_CHECK_MS = 2**63 - 1


class ReadyCheckResult(NamedTuple):
    """Nodes to drain; when to ask again, NO_READY_CHECK_MS (2^63 - 1) if nothing waits for a time; topics with records
    for a partition that nobody leads."""

    ready_nodes: AbstractSet[Node]
    next_ready_check_delay_ms: int
    unknown_leader_topics: AbstractSet[str]


class NodeLatencyStats:
    """When a node could last be sent to, and when it last had something to be sent (KIP-794)."""

    __slots__ = ("drain_time_ms", "ready_time_ms")

    def __init__(self, now_ms: int) -> None:
        self.drain_time_ms = now_ms
        self.ready_time_ms = now_ms


class ReadyCheck:
    """Look at the head of every queue that is not empty; idle partitions cost nothing.

    Args: active: the queues that are not empty; topics: all queues by topic.
    Threads: one at a time, beside appends.  Source: Kafka RecordAccumulator.ready.
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

        Args: is_urgent: whether everything is to be sent that is not backing off.
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
        """Return how long the head of a queue waits still, None if there is none."""
        with queue:
            batch: ProducerBatch | None = queue.first
            if batch is None:
                return None
            batch.maybe_update_leader_epoch(cluster.leader_epoch_for(queue.topic_partition))
            if self._backoff.is_backing_off(batch, now_ms):
                return max(self._backoff.of_batch_ms(batch) - batch.waited_ms(now_ms), 1)
            if is_urgent or len(queue) > 1 or batch.is_full:
                return 0
            return max(self._linger_ms - batch.waited_ms(now_ms), 0)

    def update_node_latency_stats(self, node_id: int, *, now_ms: int, can_drain: bool) -> None:
        """Note that a node had something to be sent, and whether any of it could go."""
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
        """Tell the partitioners that choose by themselves how long the queues are."""
        for topic in waiting_topics | self._weighted_topics:
            queues = self._topics[topic]
            partitioner = queues.partitioner
            if not queues.is_sticky_used:
                continue
            infos = cluster.partitions_for_topic(topic)
            # a partition without a queue would never be drawn
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
    """Waiting times that double from initial_ms up to max_ms, each spread by a fifth to both sides.

    A batch keeps the time that was drawn for an attempt, where Kafka draws anew at every look.
    Threads: safe.  Source: Kafka ExponentialBackoff, KIP-580.
    """

    def __init__(self, *, initial_ms: int, max_ms: int, random: Random) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._most_doublings = math.log(max_ms / max(self._initial_ms, 1), _BASE) if self._initial_ms > 0 else 0.0
        self._random = random
        self._drawn: dict[ProducerBatch, tuple[int, int]] = {}

    def draw_ms(self, failures: int) -> int:
        """Return a waiting time after so many failures, the first being 0."""
        if self._most_doublings == 0:
            return self._initial_ms
        term = self._initial_ms * _BASE ** min(failures, self._most_doublings)
        return int(min(self._random.uniform(1 - _JITTER, 1 + _JITTER) * term, self._max_ms))

    def of_batch_ms(self, batch: ProducerBatch) -> int:
        """Return how long a batch waits after its last attempt."""
        drawn = self._drawn.get(batch)
        if drawn is None or drawn[0] != batch.attempts:
            drawn = batch.attempts, self.draw_ms(max(batch.attempts - 1, 0))
            self._drawn[batch] = drawn
        return drawn[1]

    def is_backing_off(self, batch: ProducerBatch, now_ms: int) -> bool:
        """Whether a batch that failed has to wait still; a new leader is tried at once (KAFKA-15415)."""
        if batch.attempts == 0 or batch.has_leader_changed_for_the_ongoing_retry:
            return False
        return batch.waited_ms(now_ms) < self.of_batch_ms(batch)

    def forget(self, batch: ProducerBatch) -> None:
        """Let go of a batch that waits no more."""
        self._drawn.pop(batch, None)


class ProducerIdentity(Protocol):
    """A producer id and its epoch."""

    @property
    def is_valid(self) -> bool: ...


class SequenceManager(Protocol):
    """What an accumulator asks of a TransactionManager."""

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

    def give_sequences(self, batches: list[ProducerBatch], /) -> object: ...

    def add_in_flight_batch(self, batch: ProducerBatch, /) -> object: ...


class _Request:
    """What goes to one node together; is_full: a batch found no room, was_changed: one was taken out of its queue.

    Args: lingered_ms: how long a batch that is not full must have waited to go behind another one.
    """

    __slots__ = ("batches", "cluster", "is_full", "lingered_ms", "max_size", "now_ms", "size", "was_changed")

    def __init__(self, cluster: Cluster, *, max_size: int, now_ms: int, lingered_ms: int) -> None:
        self.lingered_ms = lingered_ms
        self.cluster = cluster
        self.max_size = max_size
        self.now_ms = now_ms
        self.batches: list[ProducerBatch] = []
        self.size = 0
        self.is_full = self.was_changed = False


class Drain:
    """Take batches out of the queues, for one request to each node.

    A partition that may not send is passed over, where Kafka ends the node's turn. Every node has a place of its own
    at which it goes on, so that no partition starves: behind the first one of the last request, or at the one for which
    the request had no room.
    Args: release: gives the memory of an aborted batch back.
    Threads: one at a time, beside appends and aborts.  Source: Kafka RecordAccumulator.drain.
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
        """Return the batches for each of the nodes; a request takes max_size bytes, or one batch that is larger.

        Args: batches_per_partition: how many there may be of one; behind its first one come only those that are ready
            themselves, by turns with the other partitions' as long as there is room. is_urgent: whether all are.
        """
        queues_of: dict[int, list[PartitionQueue]] = {node.id: [] for node in nodes}
        for queue in list(self._active):
            leader = cluster.leader_for(queue.topic_partition)
            if leader is not None and leader.id in queues_of and not queue.is_muted:
                queues_of[leader.id].append(queue)
        drained = {}
        for node_id, queues in queues_of.items():
            lingered_ms = 0 if is_urgent else self._linger_ms
            request = _Request(cluster, max_size=max_size, now_ms=now_ms, lingered_ms=lingered_ms)
            turn = self._first_turn(node_id, request, self._in_turn(node_id, queues))
            done = self._take_rounds(request, turn, batches_per_partition - 1)
            for _ in range(batches_per_partition - 1 - done):
                if not turn or request.is_full:
                    break
                turn = [queue for queue in turn if self._take(request, queue, is_first=False)]
            drained[node_id] = request.batches
        return drained

    def _in_turn(self, node_id: int, queues: list[PartitionQueue]) -> list[PartitionQueue]:
        if len(queues) < 2:
            return queues
        queues.sort(key=_place_of)
        start = bisect_left(queues, self._next_of_node.get(node_id, ("", 0)), key=_place_of)
        return queues[start:] + queues[:start]

    def _first_turn(self, node_id: int, request: _Request, queues: list[PartitionQueue]) -> list[PartitionQueue]:
        """Take one batch of each partition, and note where the node's next request begins; return who had one."""
        taken: list[PartitionQueue] = []
        next_place: tuple[str, int] | None = None
        for queue in queues:
            if self._take(request, queue, is_first=True):
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

    def _take_rounds(self, request: _Request, turn: list[PartitionQueue], most: int) -> int:
        """Do whole rounds of turns for which no batch needs a closer look; return how many, and leave who has more."""
        if self._transaction_manager is not None:
            turn[:] = [queue for queue in turn if self._may_go_on(request, queue)]
        if not turn or request.is_full or most == 0:
            return 0
        counts = rounds_of(
            turn,
            most=most,
            room=request.max_size - request.size,
            lingered_since_ms=request.now_ms - request.lingered_ms if request.lingered_ms else MAX_INT64,
        )
        taken = [self._take_run(request, queue, count) for queue, count in zip(turn, counts, strict=True) if count]
        if len(taken) == 1:
            request.batches += taken[0]
        else:
            request.batches += [one for ones in zip_longest(*taken) for one in ones if one is not None]
        done = max(counts)
        turn[:] = [queue for queue, count in zip(turn, counts, strict=True) if count == done]
        return done

    def _may_go_on(self, request: _Request, queue: PartitionQueue) -> bool:
        """Say whether a batch may follow the one taken, which may be an older producer's, sent again."""
        with queue:
            batch = queue.first
            return batch is not None and self._may_send(batch, queue, request.cluster, request.now_ms)

    def _take_run(self, request: _Request, queue: PartitionQueue, count: int) -> list[ProducerBatch]:
        manager = self._transaction_manager
        with queue:
            batches: list[ProducerBatch] = take_batches(
                queue,
                count,
                request.cluster.leader_epoch_for(queue.topic_partition),
                room=request.max_size - request.size,
            )
            if manager is not None and batches:
                manager.give_sequences(batches)
        request.size += close_batches(batches, request.now_ms)
        gone = [batch for batch in batches if batch.is_done]
        if not gone:
            return batches
        # aborted by another thread while they were closed here
        for batch in gone:
            self._release(batch)
        return [batch for batch in batches if not batch.is_done]

    def _take(self, request: _Request, queue: PartitionQueue, *, is_first: bool) -> bool:
        """Take the head of a queue into a request if it may go now and finds room; return whether it did."""
        with queue:
            batch = queue.first
            if batch is None:
                return False
            if not (
                is_first or len(queue) > 1 or batch.is_full or batch.waited_ms(request.now_ms) >= request.lingered_ms
            ):
                return False
            if not self._may_send(batch, queue, request.cluster, request.now_ms):
                return False
            if request.batches and request.size + batch.estimated_size_in_bytes > request.max_size:
                request.is_full = True
                return False
            queue.pop_first()
            self._prepare(batch)
        request.was_changed = True
        self._backoff.forget(batch)
        batch.close()
        if batch.is_done:
            # aborted by another thread while it was closed here
            self._release(batch)
            return False
        request.size += batch.estimated_size_in_bytes
        batch.drained(request.now_ms)
        request.batches.append(batch)
        return True

    def _may_send(self, batch: ProducerBatch, queue: PartitionQueue, cluster: Cluster, now_ms: int) -> bool:
        """Say whether the head of a queue may go now: it backs off no more and fits the producer's state."""
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
            # Kafka lets four new batches pass one in retry. A log remembers five batches of a producer: it would then
            # not know a batch whose answer is lost a second time.
            if manager.is_retrying(topic_partition):
                return False
            # a new epoch begins at sequence 0, which must not pass what is under way with the old one
            is_stale = manager.has_in_flight_batches(topic_partition) and manager.has_stale_producer_id_and_epoch(
                topic_partition
            )
            return not is_stale and not manager.has_unresolved_sequence(topic_partition)
        first = manager.first_in_flight_sequence(topic_partition)
        return first == NO_SEQUENCE or batch.base_sequence == first

    def _prepare(self, batch: ProducerBatch) -> None:
        """Give a batch its sequence, the first time that it is sent. The queue is held."""
        batch.is_inflight = True
        manager = self._transaction_manager
        if manager is None or batch.has_sequence:
            return
        manager.give_sequences([batch])


def _place_of(queue: PartitionQueue) -> tuple[str, int]:
    topic, partition = queue.topic_partition
    return topic, partition
