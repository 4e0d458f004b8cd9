"""Which batches go to a node now: at most one of each partition, by turns. Layer 5."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from kstore.producer.cluster import Cluster, Node
from kstore.types import TopicPartition

if TYPE_CHECKING:
    from kstore._core import PartitionQueue
    from kstore.producer.batch import ProducerBatch
    from kstore.producer.retry_backoff import RetryBackoff

_NO_SEQUENCE = -1


class ProducerIdentity(Protocol):
    """A producer id and its epoch; iterating it gives both."""

    @property
    def is_valid(self) -> bool: ...

    def __iter__(self) -> Iterator[int]: ...


class SequenceManager(Protocol):
    """What an accumulator asks of a TransactionManager."""

    @property
    def is_transactional(self) -> bool: ...

    @property
    def is_completing(self) -> bool: ...

    @property
    def producer_id_and_epoch(self) -> ProducerIdentity: ...

    def is_send_to_partition_allowed(self, topic_partition: TopicPartition, /) -> bool: ...

    def maybe_update_producer_id_and_epoch(self, topic_partition: TopicPartition, /) -> object: ...

    def has_unresolved_sequence(self, topic_partition: TopicPartition, /) -> bool: ...

    def has_stale_producer_id_and_epoch(self, topic_partition: TopicPartition, /) -> bool: ...

    def has_in_flight_batches(self, topic_partition: TopicPartition, /) -> bool: ...

    def first_in_flight_sequence(self, topic_partition: TopicPartition, /) -> int: ...

    def sequence_number(self, topic_partition: TopicPartition, /) -> int: ...

    def increment_sequence_number(self, topic_partition: TopicPartition, count: int, /) -> object: ...

    def add_in_flight_batch(self, batch: ProducerBatch, /) -> object: ...


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
        transaction_manager: SequenceManager | None,
        release: Callable[[ProducerBatch], None],
    ) -> None:
        self._active = active
        self._backoff = backoff
        self._transaction_manager = transaction_manager
        self._release = release
        self._next_of_node: dict[int, tuple[str, int]] = {}

    def run(
        self, cluster: Cluster, nodes: Iterable[Node], *, max_size: int, now_ms: int
    ) -> dict[int, list[ProducerBatch]]:
        """Return the batches for each of the nodes; a request takes max_size bytes, or one batch that is larger."""
        queues_of: dict[int, list[PartitionQueue]] = {node.id: [] for node in nodes}
        for queue in list(self._active):
            leader = cluster.leader_for(queue.topic_partition)
            if leader is not None and leader.id in queues_of and not queue.is_muted:
                queues_of[leader.id].append(queue)
        return {
            node_id: self._drain_node(node_id, cluster, queues, max_size=max_size, now_ms=now_ms)
            for node_id, queues in queues_of.items()
        }

    def _in_turn(self, node_id: int, queues: list[PartitionQueue]) -> list[PartitionQueue]:
        if len(queues) < 2:
            return queues
        queues.sort(key=_place_of)
        start = bisect_left(queues, self._next_of_node.get(node_id, ("", 0)), key=_place_of)
        return queues[start:] + queues[:start]

    def _drain_node(
        self, node_id: int, cluster: Cluster, queues: list[PartitionQueue], *, max_size: int, now_ms: int
    ) -> list[ProducerBatch]:
        drained: list[ProducerBatch] = []
        size = 0
        next_place: tuple[str, int] | None = None
        for queue in self._in_turn(node_id, queues):
            with queue:
                batch = queue.first
                if batch is None or not self._may_send(batch, queue, cluster, now_ms):
                    continue
                if drained and size + batch.estimated_size_in_bytes > max_size:
                    next_place = _place_of(queue)
                    break
                queue.pop_first()
                self._prepare(batch)
            if next_place is None:
                topic, partition = _place_of(queue)
                next_place = topic, partition + 1
            self._backoff.forget(batch)
            batch.close()
            if batch.is_done:
                # aborted by another thread while it was closed here
                self._release(batch)
                continue
            size += batch.estimated_size_in_bytes
            batch.drained(now_ms)
            drained.append(batch)
        if next_place is not None:
            self._next_of_node[node_id] = next_place
        return drained

    def _may_send(self, batch: ProducerBatch, queue: PartitionQueue, cluster: Cluster, now_ms: int) -> bool:
        """Say whether the head of a queue may go now: it backs off no more and fits the producer's state."""
        topic_partition = queue.topic_partition
        batch.maybe_update_leader_epoch(cluster.leader_epoch_for(topic_partition))
        if self._backoff.is_backing_off(batch, now_ms):
            return False
        manager = self._transaction_manager
        if manager is None:
            return True
        if not manager.is_send_to_partition_allowed(topic_partition) or not manager.producer_id_and_epoch.is_valid:
            return False
        if not batch.has_sequence:
            # a new epoch begins at sequence 0, which must not pass what is under way with the old one
            is_stale = manager.has_in_flight_batches(topic_partition) and manager.has_stale_producer_id_and_epoch(
                topic_partition
            )
            return not is_stale and not manager.has_unresolved_sequence(topic_partition)
        first = manager.first_in_flight_sequence(topic_partition)
        return first == _NO_SEQUENCE or batch.base_sequence == first

    def _prepare(self, batch: ProducerBatch) -> None:
        """Give a batch its sequence, the first time that it is sent. The queue is held."""
        batch.is_inflight = True
        manager = self._transaction_manager
        if manager is None or batch.has_sequence:
            return
        topic_partition = batch.topic_partition
        manager.maybe_update_producer_id_and_epoch(topic_partition)
        producer_id, producer_epoch = manager.producer_id_and_epoch
        batch.set_producer_state(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=manager.sequence_number(topic_partition),
            is_transactional=manager.is_transactional,
        )
        manager.increment_sequence_number(topic_partition, batch.record_count)
        manager.add_in_flight_batch(batch)


def _place_of(queue: PartitionQueue) -> tuple[str, int]:
    topic, partition = queue.topic_partition
    return topic, partition
