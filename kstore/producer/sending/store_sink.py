"""StoreSink: writes batches to the logs of a store in this process, which leads all its partitions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from kstore._core import records_of_batches
from kstore.coordinator.producer_ids import ProducerIdAndEpoch
from kstore.coordinator.store import Dependent
from kstore.coordinator.transaction.coordinator import TransactionCoordinator
from kstore.errors import (
    KStoreError,
    LogNotFoundError,
    OutOfOrderSequenceError,
    RecordValidationError,
    UnknownTopicOrPartitionError,
)
from kstore.producer.batches.sequences import is_sequence_after
from kstore.producer.cluster import Cluster, Node, PartitionInfo
from kstore.producer.sink import ProduceResponse
from kstore.producer.store import AppendInfo, ProducerLog, ProducerStore, is_retriable
from kstore.types import NO_OFFSET, NO_SEQUENCE, Ack, SinkAck, TopicPartition

if TYPE_CHECKING:
    from kstore.producer.batches.batch import ProducerBatch
    from kstore.record.batches import MemoryRecords

_NOT_TRIED = ProduceResponse(NO_OFFSET)


class StoreSink:
    """Appends batches to a store's logs, in the Sender's thread.

    An idempotent producer's batch that is already in the log counts as appended, even if the log no longer knows its
    offset (-1 then): the sequences of an epoch have no gap, so every batch not after the last sequence is there. If a
    batch must be retried, the later ones of its partition are not tried before it. This holds for any number of
    batches, so a call may have up to batches_per_partition of one partition. With ack "flushed" the batches of one call
    share one fdatasync per log. A failed log stays failed until its store is reopened.
    Args: coordinator: refuses transactional batches that arrive after their transaction ended; needed only for these.
        node: represents the leader of every partition.
    Threads: safe.
    """

    batches_per_partition = 256

    def __init__(
        self, store: ProducerStore, *, coordinator: TransactionCoordinator | None = None, node: Node | None = None
    ) -> None:
        self.coordinator = coordinator
        self._store = store
        self._node = Node(0) if node is None else node
        self._logs: dict[TopicPartition, ProducerLog] = {}
        self._cluster: tuple[tuple[TopicPartition, ...], Cluster] = ((), Cluster())

    def add_dependent(self, dependent: Dependent) -> None:
        """Have the store end this first when it is closed.  Raises: LogClosedError if it was."""
        self._store.add_dependent(dependent)

    def cluster(self) -> Cluster:
        """Return the store's current partitions, each led by this sink's node."""
        partitions = self._store.partitions
        known, cluster = self._cluster
        if known is not partitions and known != partitions:
            cluster = Cluster([PartitionInfo(*partition, self._node) for partition in partitions], nodes=[self._node])
            self._cluster = partitions, cluster
        return cluster

    def send(self, node: Node, batches: Sequence[ProducerBatch], *, ack: SinkAck) -> Sequence[ProduceResponse]:
        """Append each batch; see Sink.send.

        Raises: ValueError if `node` is not this sink's.
        """
        if node != self._node:
            raise ValueError(f"node of the batches: expected {self._node}, got {node}")
        coordinator = self.coordinator
        if coordinator is None or not any(batch.is_transactional for batch in batches):
            return self._append(batches, ack=ack)
        responses: list[ProduceResponse] = []
        for (is_transactional, producer), run in groupby(batches, _producer_of):
            group = list(run)
            if not is_transactional:
                responses += self._append(group, ack=ack)
                continue
            try:
                with coordinator.appending(producer, {batch.topic_partition for batch in group}):
                    responses += self._append(group, ack=ack)
            except KStoreError as error:
                responses += [ProduceResponse(NO_OFFSET, error=error)] * len(group)
        return responses

    def append_alone(self, topic_partition: TopicPartition, records: MemoryRecords, *, ack: Ack) -> AppendInfo | None:
        """Append a batch of an idempotent producer.

        Returns: None, with nothing done, if send() has to: its log is not open yet, or has more to do than to append.
        Raises: the error of the log, such as LogClosedError of one that send() opens again.
        """
        log = self._logs.get(topic_partition)
        return None if log is None else log.append_alone(records, ack=ack)

    def _append(self, batches: Sequence[ProducerBatch], *, ack: SinkAck) -> list[ProduceResponse]:
        """Append the batches of each partition together; return one response per batch, in their order."""
        by_partition: dict[TopicPartition, list[int]] = {}
        for index, batch in enumerate(batches):
            by_partition.setdefault(batch.topic_partition, []).append(index)
        responses = [_NOT_TRIED] * len(batches)
        for topic_partition, indexes in by_partition.items():
            done = self._append_to(topic_partition, [batches[index] for index in indexes])
            for index, response in zip(indexes, done, strict=True):
                responses[index] = response
        if ack == "flushed":
            self._flush(by_partition, responses)
        return responses

    def _append_to(self, topic_partition: TopicPartition, batches: list[ProducerBatch]) -> list[ProduceResponse]:
        try:
            log = self._log(topic_partition)
            done = log.append_batches(records_of_batches(batches))
        except KStoreError as error:
            return [self._refusal(batch, error) for batch in batches]
        return [
            self._refusal(batch, info)
            if isinstance(info, KStoreError)
            else ProduceResponse(info.base_offset, info.log_append_time_ms)
            for batch, info in zip(batches, done, strict=True)
        ]

    def _flush(self, by_partition: dict[TopicPartition, list[int]], responses: list[ProduceResponse]) -> None:
        for topic_partition, indexes in by_partition.items():
            appended = [index for index in indexes if responses[index].error is None]
            if not appended:
                continue
            try:
                self._log(topic_partition).flush()
            except KStoreError as error:
                for index in appended:
                    responses[index] = ProduceResponse(NO_OFFSET, error=error)

    def _log(self, topic_partition: TopicPartition) -> ProducerLog:
        log = self._logs.get(topic_partition)
        if log is None or log.is_closed:
            log = self._logs[topic_partition] = self._store.log(*topic_partition)
        return log

    @staticmethod
    def _refusal(batch: ProducerBatch, error: KStoreError) -> ProduceResponse:
        if isinstance(error, OutOfOrderSequenceError) and _is_known(batch, error):
            return ProduceResponse(NO_OFFSET)
        if isinstance(error, LogNotFoundError):
            unknown = UnknownTopicOrPartitionError(f"the store has no partition {batch.topic_partition}")
            unknown.__cause__ = error
            return ProduceResponse(NO_OFFSET, error=unknown)
        if isinstance(error, RecordValidationError):
            refused = {
                record.record_index: type(error)(record.message, errors=(record,), path=error.path)
                for record in error.errors
            }
            return ProduceResponse(NO_OFFSET, error=error, record_errors=refused)
        return ProduceResponse(NO_OFFSET, error=error, is_retriable=is_retriable(error))


def _is_known(batch: ProducerBatch, error: OutOfOrderSequenceError) -> bool:
    """Return whether a refused batch is in the log, or was until compaction or deletion removed it."""
    if error.last_sequence == NO_SEQUENCE:
        return False
    return not is_sequence_after(batch.last_sequence, other=error.last_sequence)


def _producer_of(batch: ProducerBatch) -> tuple[bool, ProducerIdAndEpoch]:
    return batch.is_transactional, ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
