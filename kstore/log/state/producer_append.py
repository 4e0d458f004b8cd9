"""One producer's batches checked against what the log knows of it: epochs, sequences, transactions, markers.

Nothing here changes the state of a log: a ProducerAppendInfo works on copies, which ProducerStateManager takes over
once the batches are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kstore._core import BATCHES_KEPT as BATCHES_KEPT
from kstore._core import BatchHeader, ProducerStateEntryCore, increment_sequence, read_header
from kstore._lazy import lazy_logger
from kstore.config import LogConfig
from kstore.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from kstore.log.files.snapshots import ProducerSnapshotEntry
from kstore.log.segment.segment import LogSegment
from kstore.record.batches import RecordBatch
from kstore.record.control import EndTransactionMarker, control_record_value
from kstore.record.validation import AppendOrigin
from kstore.types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, ControlRecordType, TopicPartition

_ENTRY_FIELDS = (
    "batches",
    "coordinator_epoch",
    "current_txn_first_offset",
    "last_timestamp_ms",
    "producer_epoch",
    "producer_id",
)

# An enum member lookup would cost as much as the check that needs it.
_CLIENT = AppendOrigin.CLIENT
_logger = lazy_logger("kstore.log")


class VerificationGuard:
    """Proof that a producer's transaction was verified with its coordinator; compared by identity (KIP-890)."""

    __slots__ = ()


class VerificationStateEntry:
    """A verification in progress: its guard, and the lowest sequence seen since it started, in the newest epoch.

    Attributes: supports_epoch_bump (whether each transaction of the producer has an epoch of its own).
    Source: Kafka VerificationStateEntry.
    """

    __slots__ = ("guard", "lowest_sequence", "producer_epoch", "started_ms", "supports_epoch_bump")

    def __init__(
        self, *, producer_epoch: int, lowest_sequence: int, started_ms: int, supports_epoch_bump: bool = False
    ) -> None:
        self.guard = VerificationGuard()
        self.producer_epoch = producer_epoch
        self.lowest_sequence = lowest_sequence
        self.started_ms = started_ms
        self.supports_epoch_bump = supports_epoch_bump

    def note(self, *, producer_epoch: int, sequence: int) -> None:
        """Record the first sequence of another batch that waits for this verification."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class TransactionMarker(NamedTuple):
    """The record of a control batch that ends a transaction."""

    is_abort: bool
    coordinator_epoch: int
    timestamp_ms: int


class ProducerStateBatch(NamedTuple):
    """What producer state needs of a batch that has a producer id and its final offsets.

    marker: of a control batch; None if its records were compacted away or do not end a transaction.
    """

    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    is_transactional: bool = False
    is_control: bool = False
    marker: TransactionMarker | None = None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; -1 without sequences."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, count=self.last_offset - self.base_offset)


class BatchMetadata(NamedTuple):
    """A batch that a producer appended (Kafka: BatchMetadata)."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.last_sequence, count=-self.offset_delta)


class CompletedTransaction(NamedTuple):
    """A transaction with data, ended by a marker at last_offset (Kafka: CompletedTxn).

    last_stable_offset: where the first transaction that is still open starts, or the offset after the marker if there
    is none.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int = NO_OFFSET


class ProducerStateEntry(ProducerStateEntryCore):
    """What a log knows of one producer. LogAppender creates instances too, as copies of an entry."""

    __slots__ = ()

    @property
    def batches(self) -> tuple[BatchMetadata, ...]:
        """The last BATCHES_KEPT batches of the current epoch, oldest first."""
        return tuple(map(BatchMetadata._make, self.kept_batches))

    def find_duplicate(self, batch: ProducerStateBatch) -> BatchMetadata | None:
        """Return the kept batch with the same epoch and the same first and last sequence, or None."""
        base_sequence = batch.base_sequence
        if batch.producer_epoch != self.producer_epoch or base_sequence == NO_SEQUENCE:
            return None
        if base_sequence == increment_sequence(self.last_sequence, count=1):
            return None
        last_sequence = batch.last_sequence
        for kept in self.batches:
            if kept.last_sequence == last_sequence and kept.first_sequence == batch.base_sequence:
                return kept
        return None

    def snapshot_entry(self) -> ProducerSnapshotEntry:
        """Return the producer's snapshot entry."""
        last = next(reversed(self.batches), None)
        return ProducerSnapshotEntry(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            last_sequence=NO_SEQUENCE if last is None else last.last_sequence,
            last_offset=NO_OFFSET if last is None else last.last_offset,
            offset_delta=0 if last is None else last.offset_delta,
            timestamp_ms=self.last_timestamp_ms,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=self.current_txn_first_offset,
        )

    @classmethod
    def of_snapshot(cls, entry: ProducerSnapshotEntry) -> ProducerStateEntry:
        """Return the state of a producer from its snapshot entry."""
        last = BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms)
        return cls(
            entry.producer_id,
            producer_epoch=entry.producer_epoch,
            coordinator_epoch=entry.coordinator_epoch,
            last_timestamp_ms=entry.timestamp_ms,
            current_txn_first_offset=max(entry.current_txn_first_offset, NO_OFFSET),
            batches=(last,) if entry.last_offset >= 0 else (),
        )

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _ENTRY_FIELDS)
        return f"ProducerStateEntry({fields})"


class ProducerAppendInfo:
    """The batches of one producer in one append: checks them one by one and tracks the state after them.

    Attributes: entry (the state after the batches so far), started (first offsets of the transactions they open),
        ends_verification (whether the producer's verification ends once they are written).
    Args: current: what the log knows of the producer, None if nothing; verification: the one in progress, or None;
        refuses: False for a replay of batches that are in the log already, where violations are only logged.
    Source: Kafka ProducerAppendInfo.
    """

    __slots__ = (
        "_is_unknown",
        "_knows_batches",
        "_origin",
        "_refuses",
        "_topic_partition",
        "_verification",
        "ends_verification",
        "entry",
        "started",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        *,
        current: ProducerStateEntry | None,
        origin: AppendOrigin,
        verification: VerificationStateEntry | None = None,
        refuses: bool = True,
    ) -> None:
        self._topic_partition = topic_partition
        self._origin = origin
        self._refuses = refuses
        self._verification = verification
        self._is_unknown = current is None or current.producer_epoch == NO_PRODUCER_EPOCH
        self._knows_batches = current is not None and (verification is None or bool(current.kept_batches))
        self.ends_verification = False
        self.started: tuple[int, ...] = ()
        self.entry = ProducerStateEntry(producer_id) if current is None else current.copy()

    def append(self, batch: ProducerStateBatch) -> CompletedTransaction | None:
        """Check the next batch and update the state; return the transaction that its marker ended, or None.

        Raises: InvalidProducerEpochError, OutOfOrderSequenceError, InvalidTxnStateError,
            TransactionCoordinatorFencedError.
        """
        if batch.is_control:
            completed = None if batch.marker is None else self._end_transaction(batch, batch.marker)
            under_way = self._verification
            # If each transaction has its own epoch, a marker with the epoch being verified ended the transaction
            # before.
            if (
                under_way is None
                or not under_way.supports_epoch_bump
                or batch.producer_epoch != under_way.producer_epoch
            ):
                self.ends_verification = True
            return completed
        self._append_data(batch)
        return None

    def _append_data(self, batch: ProducerStateBatch) -> None:
        entry = self.entry
        _, epoch, base_sequence, base_offset, last_offset, timestamp_ms, is_transactional, _, _ = batch
        if epoch < entry.producer_epoch:
            self._refuse_epoch(batch)
        if self._origin is _CLIENT:
            self._check_sequence(batch)
        if is_transactional:
            self.ends_verification = True
            if entry.current_txn_first_offset == NO_OFFSET:
                entry.current_txn_first_offset = base_offset
                self.started = (*self.started, base_offset)
        elif entry.current_txn_first_offset != NO_OFFSET:
            self._refuse_mixture(batch)
        if epoch != entry.producer_epoch:
            self._take_epoch(epoch)
        entry.add_batch(
            base_sequence=base_sequence, base_offset=base_offset, last_offset=last_offset, timestamp_ms=timestamp_ms
        )

    def _check_sequence(self, batch: ProducerStateBatch) -> None:
        entry, first = self.entry, batch.base_sequence
        verification = self._verification
        if verification is not None:
            if verification.supports_epoch_bump and first != 0 and not self._knows_batches:
                raise self._out_of_order(batch, "0, because no batch of the producer is known")
            if first > verification.lowest_sequence:
                lowest = verification.lowest_sequence
                raise self._out_of_order(batch, f"at most {lowest}, the lowest that was verified")
        if batch.producer_epoch != entry.producer_epoch:
            if first != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
                raise self._out_of_order(batch, f"0 in a new epoch (the last one was {entry.producer_epoch})")
            return
        if self._is_unknown:
            return
        expected = increment_sequence(entry.last_sequence, count=1)
        if first != expected:
            raise self._out_of_order(batch, str(expected))

    def _end_transaction(self, batch: ProducerStateBatch, marker: TransactionMarker) -> CompletedTransaction | None:
        entry = self.entry
        if batch.producer_epoch < entry.producer_epoch:
            self._refuse_epoch(batch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            self._refuse_coordinator(batch, marker)
        completed = None
        if entry.current_txn_first_offset != NO_OFFSET:
            completed = CompletedTransaction(
                entry.producer_id, entry.current_txn_first_offset, batch.base_offset, marker.is_abort
            )
        self._take_epoch(batch.producer_epoch)
        entry.current_txn_first_offset = NO_OFFSET
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = marker.timestamp_ms
        return completed

    def _take_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.entry.producer_epoch:
            self.entry.producer_epoch = producer_epoch
            self.entry.forget_batches()

    def _refuse_epoch(self, batch: ProducerStateBatch) -> None:
        reason = f"expected an epoch of at least {self.entry.producer_epoch}, found {batch.producer_epoch}"
        message = self._message(batch, reason)
        if self._origin is not AppendOrigin.REPLICATION:
            raise InvalidProducerEpochError(message, producer_id=batch.producer_id, producer_epoch=batch.producer_epoch)
        _logger.warning("accepted, because the leader has accepted it: %s", message)

    def _refuse_coordinator(self, batch: ProducerStateBatch, marker: TransactionMarker) -> None:
        expected = f"a coordinator epoch of at least {self.entry.coordinator_epoch}"
        message = self._message(batch, f"expected {expected}, found {marker.coordinator_epoch}")
        if self._origin is not AppendOrigin.REPLICATION:
            raise TransactionCoordinatorFencedError(
                message, producer_id=batch.producer_id, producer_epoch=batch.producer_epoch
            )
        _logger.info("accepted, because the leader has accepted it: %s", message)

    def _refuse_mixture(self, batch: ProducerStateBatch) -> None:
        start = self.entry.current_txn_first_offset
        message = self._message(
            batch, f"expected transactional data in the transaction open since offset {start}, found other data"
        )
        if self._refuses:
            raise InvalidTxnStateError(message, producer_id=batch.producer_id, producer_epoch=batch.producer_epoch)
        _logger.warning("accepted, because it is in the log already: %s", message)

    def _out_of_order(self, batch: ProducerStateBatch, expected: str) -> OutOfOrderSequenceError:
        message = self._message(batch, f"expected sequence {expected}, found {batch.base_sequence}")
        entry = self.entry
        return OutOfOrderSequenceError(
            message,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            last_sequence=entry.last_sequence if entry.producer_epoch == batch.producer_epoch else NO_SEQUENCE,
        )

    def _message(self, batch: ProducerStateBatch, reason: str) -> str:
        place = f"at offset {batch.base_offset} of {self._topic_partition}"
        return f"producer {batch.producer_id}, epoch {batch.producer_epoch}, {place}: {reason}"


def producer_batches_in(records: bytes | bytearray | memoryview, *, config: LogConfig) -> list[ProducerStateBatch]:
    """Return the batches in memory that have a producer id, with the markers of control batches.

    Raises: CorruptRecordError, UnsupportedMagicError for an impossible header; as producer_batch.
    """
    producer_batches = []
    at, size = 0, len(records)
    while at < size:
        header = read_header(records, at, position=at, max_batch_bytes=config.max_batch_bytes)
        end = at + header.size_in_bytes
        if header.producer_id > NO_PRODUCER_ID:
            marker = None
            if header.is_control:
                marker = read_marker(RecordBatch(memoryview(records)[at:end], position=at, config=config))
            producer_batches.append(batch_of_header(header, marker))
        at = end
    return producer_batches


def producer_batches_of(segment: LogSegment, start_offset: int) -> Iterator[ProducerStateBatch]:
    """Yield the batches of producers in a segment, from the one that holds start_offset on.

    Raises: as producer_batch.
    """
    first = segment.translate_offset(start_offset)
    if first is None:
        return
    for header, data in segment.records.read_batches(position=first.position, end_position=segment.scan_end_position):
        if header.producer_id > NO_PRODUCER_ID:
            yield producer_batch(RecordBatch(data, position=header.position, path=segment.path))


def producer_batch(batch: RecordBatch) -> ProducerStateBatch:
    """Return what producer state needs of a batch; reads the marker of a control batch.

    Raises: CorruptRecordError, InvalidRecordError for a control batch that cannot be decoded.
    """
    return batch_of_header(batch.header, read_marker(batch) if batch.header.is_control else None)


def batch_of_header(header: BatchHeader, marker: TransactionMarker | None) -> ProducerStateBatch:
    """Return what producer state needs of a batch. Args: marker: of a control batch, or None."""
    return ProducerStateBatch(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.base_offset,
        header.last_offset,
        header.max_timestamp_ms,
        header.is_transactional,
        header.is_control,
        marker,
    )


def read_marker(batch: RecordBatch) -> TransactionMarker | None:
    """Return the transaction marker in the first record of a control batch, None if it has none."""
    record = next(batch.records(verify=False, headers=False), None)
    if record is None:
        return None
    content = control_record_value(record, batch)
    if not isinstance(content, EndTransactionMarker):
        return None
    is_abort = content.control_type is ControlRecordType.ABORT
    return TransactionMarker(is_abort, content.coordinator_epoch, record.timestamp_ms)
