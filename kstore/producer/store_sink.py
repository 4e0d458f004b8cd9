"""StoreSink: batches go to the logs of a store in this process, which leads all its partitions. Layer 5."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from errno import EDQUOT, ENOSPC
from itertools import groupby
from typing import TYPE_CHECKING

from kstore.errors import (
    KStoreError,
    LogFailedError,
    LogNotFoundError,
    OutOfOrderSequenceError,
    RecordValidationError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from kstore.producer.cluster import Cluster, Node, PartitionInfo
from kstore.producer.coordinator import TransactionCoordinator
from kstore.producer.producer_ids import ProducerIdAndEpoch
from kstore.producer.producer_store import Ack, PartitionLog, ProducerStore
from kstore.producer.sequences import is_sequence_behind
from kstore.producer.sink import ProduceResponse
from kstore.types import NO_SEQUENCE, TopicPartition

if TYPE_CHECKING:
    from kstore.producer.batch import ProducerBatch

# Of a write that left nothing behind, after which the log goes on.
_NO_SPACE = (ENOSPC, EDQUOT)
_NO_OFFSET = -1


class StoreSink:
    """Appends to a store's logs, in the Sender's thread.

    A batch of an idempotent producer that is in the log already counts as appended, also where the log has forgotten
    its offsets (-1 then): the sequences of an epoch have no gap, so what is not behind the last one is there. If a
    batch has to be tried again, the later ones of its partition are not tried before it. With ack "flushed" the batches
    of one call share one fdatasync for each log. A log that failed stays so until its store is opened anew.
    Args: coordinator: refuses transactional batches that come too late for their transaction; needed for no others.
        node: what stands for the leader of every partition.
    Threads: safe.
    """

    def __init__(
        self, store: ProducerStore, *, coordinator: TransactionCoordinator | None = None, node: Node | None = None
    ) -> None:
        self.coordinator = coordinator
        self._store = store
        self._node = Node(0) if node is None else node
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._cluster: tuple[tuple[TopicPartition, ...], Cluster] = ((), Cluster())

    def cluster(self) -> Cluster:
        """Return the store's partitions as they are now, each led by this sink's node."""
        partitions = self._store.partitions
        known, cluster = self._cluster
        if known != partitions:
            cluster = Cluster([PartitionInfo(*one, self._node) for one in partitions], nodes=[self._node])
            self._cluster = partitions, cluster
        return cluster

    def send(self, node: Node, batches: Sequence[ProducerBatch], *, ack: Ack) -> Sequence[ProduceResponse]:
        """Append each batch; see Sink.send.

        Raises: ValueError for another node than its own.
        """
        if node != self._node:
            raise ValueError(f"node of the batches: expected {self._node}, got {node}")
        coordinator = self.coordinator
        if coordinator is None or not any(batch.is_transactional for batch in batches):
            return self._append(batches, ack=ack)
        responses: list[ProduceResponse] = []
        for (is_transactional, producer), ones in groupby(batches, _producer_of):
            group = list(ones)
            if not is_transactional:
                responses += self._append(group, ack=ack)
                continue
            try:
                with coordinator.appending(producer, {batch.topic_partition for batch in group}):
                    responses += self._append(group, ack=ack)
            except KStoreError as error:
                responses += [ProduceResponse(_NO_OFFSET, error=error)] * len(group)
        return responses

    def _append(self, batches: Iterable[ProducerBatch], *, ack: Ack) -> list[ProduceResponse]:
        responses = []
        # Partitions with a batch that has to be tried again, before any later one.
        blocked: dict[TopicPartition, ProduceResponse] = {}
        unflushed: dict[TopicPartition, list[int]] = {}
        for index, batch in enumerate(batches):
            topic_partition = batch.topic_partition
            response = blocked.get(topic_partition)
            if response is None:
                try:
                    info = self._log(topic_partition).append(batch.records())
                    response = ProduceResponse(info.base_offset, info.log_append_time_ms)
                except KStoreError as error:
                    response = self._refusal(batch, error)
                if response.is_retriable:
                    blocked[topic_partition] = response
                elif response.error is None:
                    unflushed.setdefault(topic_partition, []).append(index)
            responses.append(response)
        if ack == "flushed":
            self._flush(unflushed, responses)
        return responses

    def _flush(self, unflushed: dict[TopicPartition, list[int]], responses: list[ProduceResponse]) -> None:
        for topic_partition, indexes in unflushed.items():
            try:
                self._log(topic_partition).flush()
            except KStoreError as error:
                for index in indexes:
                    responses[index] = ProduceResponse(_NO_OFFSET, error=error)

    def _log(self, topic_partition: TopicPartition) -> PartitionLog:
        log = self._logs.get(topic_partition)
        if log is None or log.is_closed:
            log = self._logs[topic_partition] = self._store.log(*topic_partition)
        return log

    def _refusal(self, batch: ProducerBatch, error: KStoreError) -> ProduceResponse:
        if isinstance(error, OutOfOrderSequenceError) and self._is_known(batch):
            return ProduceResponse(_NO_OFFSET)
        if isinstance(error, LogNotFoundError):
            unknown = UnknownTopicOrPartitionError(f"the store has no partition {batch.topic_partition}")
            unknown.__cause__ = error
            return ProduceResponse(_NO_OFFSET, error=unknown)
        if isinstance(error, RecordValidationError):
            refused = {
                one.record_index: type(error)(one.message, errors=(one,), path=error.path) for one in error.errors
            }
            return ProduceResponse(_NO_OFFSET, error=error, record_errors=refused)
        return ProduceResponse(_NO_OFFSET, error=error, is_retriable=_is_without_space(error))

    def _is_known(self, batch: ProducerBatch) -> bool:
        """Tell whether the log has a batch of an idempotent producer, or had it before it was compacted or cut."""
        entry = self._log(batch.topic_partition).producer_state.active_producers.get(batch.producer_id)
        if entry is None or entry.producer_epoch != batch.producer_epoch or entry.last_sequence == NO_SEQUENCE:
            return False
        return not is_sequence_behind(batch.last_sequence, other=entry.last_sequence)


def _is_without_space(error: KStoreError) -> bool:
    return isinstance(error, StorageError) and error.errno in _NO_SPACE and not isinstance(error, LogFailedError)


def _producer_of(batch: ProducerBatch) -> tuple[bool, ProducerIdAndEpoch]:
    return batch.is_transactional, ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
