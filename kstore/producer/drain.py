"""Which batches go to a node now: at most one of each partition, by turns. Layer 5."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

from kstore._core import close_batches, rounds_of, take_batches
from kstore.config import MAX_INT64
from kstore.producer.cluster import Cluster, Node
from kstore.types import NO_SEQUENCE, TopicPartition

if TYPE_CHECKING:
    from kstore._core import OpenTransaction, PartitionQueue
    from kstore.producer.batch import ProducerBatch
    from kstore.producer.retry_backoff import RetryBackoff


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
