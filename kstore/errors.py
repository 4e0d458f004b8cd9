"""The exception tree: are the bytes bad, is the call bad, is the disk bad, or has the log moved on?

Layer 0: imports nothing of kstore. Misuse of a function (wrong type, negative size) is plain
TypeError or ValueError; checked_int raises them for a number. Every message says what, where, expected, found.
"""

from __future__ import annotations

import sys
from enum import Enum
from errno import EDQUOT, ENOSPC
from operator import index
from typing import NamedTuple, SupportsIndex

LEAST_INT64 = -(2**63)
GREATEST_INT64 = 2**63 - 1


def checked_index(name: str, value: object) -> int:
    """Return a number that a caller passed as a plain int; NumPy's integers count, bool does not.

    Raises: TypeError for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} must be an int, got {value!r} ({type(value).__name__})")
    return int(index(value))


def checked_int(name: str, value: object, *, least: int = LEAST_INT64, greatest: int = GREATEST_INT64) -> int:
    """Return a number that a caller passed as a plain int from least to greatest.

    Raises: TypeError as checked_index; ValueError outside of these bounds.
    """
    number = checked_index(name, value)
    if not least <= number <= greatest:
        raise ValueError(f"{name} must be from {least} to {greatest}, got {number}")
    return number


class KStoreError(Exception):
    """Base of every error that kstore raises about data, offsets or storage.

    Attributes: path (file or directory, None if in memory), base_offset (of the batch concerned,
    None if unknown).
    """

    def __init__(self, message: str, *, path: str | None = None, base_offset: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.base_offset = base_offset

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[KStoreError], args: tuple[object, ...], state: dict[str, object]) -> KStoreError:
    error = cls.__new__(cls)
    error.args = args
    for name, value in state.items():
        setattr(error, name, value)
    return error


class CorruptionError(KStoreError):
    """The bytes are bad.

    Attributes: position (byte place of the damaged batch, entry or file start; None if unknown),
    reason (one clause without the place), expected and found (None where there is no such pair).
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        base_offset: int | None = None,
        position: int | None = None,
        reason: str | None = None,
        expected: object = None,
        found: object = None,
    ) -> None:
        super().__init__(message, path=path, base_offset=base_offset)
        self.position = position
        self.reason = message if reason is None else reason
        self.expected = expected
        self.found = found


class CorruptRecordError(CorruptionError):
    """CRC, size or framing of a batch is wrong (Kafka: CorruptRecordException)."""


class InvalidRecordError(CorruptionError):
    """The CRC is right but the content contradicts itself (Kafka: InvalidRecordException)."""


class DecompressionError(InvalidRecordError):
    """The compressed payload of a batch can't be decompressed, or would exceed the output limit."""


class CorruptIndexError(CorruptionError):
    """An index file is wrong; rebuilding it cures it (Kafka: CorruptIndexException)."""


class CorruptSnapshotError(CorruptionError):
    """A producer state snapshot is wrong; the state can be rebuilt from the log (Kafka: CorruptSnapshotException)."""


class CorruptLogError(CorruptionError):
    """Bytes that were durable are damaged, so that strict recovery refuses the log; nothing was changed."""


class CorruptCheckpointError(CorruptionError):
    """A checkpoint file is malformed; it can be dropped at the cost of time."""


class LogReplacedError(KStoreError):
    """A file of the log is no longer what was listed: removed, replaced or truncated since, by who writes the log.

    Retention, compaction, a truncation and a topic that is deleted and made again do this. No byte is bad: open the
    log again and read on from an offset.
    Attributes: expected and found (what was listed and what is there, as text; None where there is no such pair).
    """

    def __init__(
        self, message: str, *, path: str | None = None, expected: str | None = None, found: str | None = None
    ) -> None:
        super().__init__(message, path=path)
        self.expected = expected
        self.found = found


class OffsetError(KStoreError):
    """The asked offset does not fit the log.

    Attributes: offset, log_start_offset, log_end_offset (None if unknown).
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        log_start_offset: int | None = None,
        log_end_offset: int | None = None,
    ) -> None:
        super().__init__(message, path=path)
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class OffsetOutOfRangeError(OffsetError):
    """The offset is below the log start or above the log end (Kafka: OffsetOutOfRangeException)."""


class OffsetsOutOfOrderError(OffsetError):
    """The batches of an append do not rise in their offsets (Kafka: OffsetsOutOfOrderException)."""


class UnexpectedAppendOffsetError(OffsetError):
    """A replicated append starts below the log end (Kafka: UnexpectedAppendOffsetException)."""


class AppendError(KStoreError):
    """The records are refused, and nothing of them is written."""


class RecordErrorReason(Enum):
    """Kafka's error code of a refused record."""

    INVALID_RECORD = "INVALID_RECORD"
    INVALID_TIMESTAMP = "INVALID_TIMESTAMP"


class RecordError(NamedTuple):
    """Why a record was refused; record_index counts all records of the append from 0."""

    record_index: int
    reason: RecordErrorReason
    message: str


class RecordValidationError(AppendError):
    """Records that the topic refuses (Kafka: RecordValidationException).

    Attribute: errors, one for each of the first 10,000 of them.
    """

    def __init__(self, message: str, *, errors: tuple[RecordError, ...], path: str | None = None) -> None:
        super().__init__(message, path=path)
        self.errors = errors


class InvalidTimestampError(RecordValidationError):
    """At least one of the refused records has a timestamp out of bounds (Kafka: InvalidTimestampException)."""


class RecordTooLargeError(AppendError):
    """A batch is larger than max_message_bytes (Kafka: RecordTooLargeException)."""


class RecordBatchTooLargeError(AppendError):
    """The records of one append are larger than a segment (Kafka: RecordBatchTooLargeException)."""


class ProducerStateError(AppendError):
    """The batch does not follow what the log knows of its producer.

    Attributes: producer_id, producer_epoch (of the batch).
    """

    def __init__(self, message: str, *, producer_id: int, producer_epoch: int, path: str | None = None) -> None:
        super().__init__(message, path=path)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch


class OutOfOrderSequenceError(ProducerStateError):
    """The sequence does not follow the producer's last one (Kafka: OutOfOrderSequenceException).

    Attributes: last_sequence (the last one that the log knows of this epoch, -1 if it knows none).
    """

    def __init__(
        self, message: str, *, producer_id: int, producer_epoch: int, last_sequence: int = -1, path: str | None = None
    ) -> None:
        super().__init__(message, producer_id=producer_id, producer_epoch=producer_epoch, path=path)
        self.last_sequence = last_sequence


class InvalidProducerEpochError(ProducerStateError):
    """The epoch is below the producer's current one (Kafka: InvalidProducerEpochException)."""


class InvalidTxnStateError(ProducerStateError):
    """The batch does not fit the producer's transaction (Kafka: InvalidTxnStateException)."""


class TransactionCoordinatorFencedError(ProducerStateError):
    """The marker comes from a coordinator that was replaced (Kafka: TransactionCoordinatorFencedException)."""


if sys.version_info >= (3, 11):

    class _FutureTimeoutError(KStoreError, TimeoutError):
        """What those catch who wait for a future, by either name."""

else:
    from concurrent import futures

    class _FutureTimeoutError(KStoreError, TimeoutError, futures.TimeoutError):
        """What those catch who wait for a future, by either name: two classes before Python 3.11."""


class ProducerTimeoutError(_FutureTimeoutError):
    """Something took longer than the producer was told to wait (Kafka: TimeoutException)."""


class BufferExhaustedError(ProducerTimeoutError):
    """No memory of the producer's buffer came free in time (Kafka: BufferExhaustedException)."""


class ProducerClosedError(KStoreError):
    """The producer was closed before the call, or before the record was sent."""


class ProducerFencedError(KStoreError):
    """Another producer has begun with the same transactional id (Kafka: ProducerFencedException)."""


class TransactionAbortedError(KStoreError):
    """The record belongs to a transaction that was aborted before it was sent (Kafka: TransactionAbortedException)."""


class TransactionStateError(KStoreError):
    """The call does not fit the state of the producer's transaction (Kafka: IllegalStateException)."""


class SinkResponseError(KStoreError):
    """A sink answered what no sink may; what became of the batches it was given is not known."""


class UnknownTopicOrPartitionError(KStoreError):
    """The sink has no such topic or partition (Kafka: UnknownTopicOrPartitionException)."""


class SerializationError(KStoreError):
    """A serializer or deserializer refuses a value or bytes (Kafka: SerializationException)."""


class RecordDeserializationError(SerializationError):
    """The key or value of a record can't be decoded (Kafka: RecordDeserializationException); the cause is kept.

    Attributes: topic, partition, offset, timestamp_ms, origin ("key" or "value").
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        origin: str,
        path: str | None = None,
    ) -> None:
        super().__init__(message, path=path)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.origin = origin


class UnsupportedError(KStoreError):
    """What is asked for may be right, but this version of kstore does not read or write it."""

    def __init__(
        self, message: str, *, path: str | None = None, base_offset: int | None = None, position: int | None = None
    ) -> None:
        super().__init__(message, path=path, base_offset=base_offset)
        self.position = position


class MemoryLimitError(UnsupportedError):
    """The bytes may be right, but one record would take more memory than a limit of the configuration allows.

    Attributes: offset (of the record, None if unknown), option (of LogConfig, which can be raised; None if there is
    none), limit and found (bytes).
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        base_offset: int | None = None,
        position: int | None = None,
        offset: int | None = None,
        option: str | None = None,
        limit: int,
        found: int,
    ) -> None:
        super().__init__(message, path=path, base_offset=base_offset, position=position)
        self.offset = offset
        self.option = option
        self.limit = limit
        self.found = found


class UnsupportedMagicError(UnsupportedError):
    """The batch has a magic byte that is not read or written. Attribute: magic."""

    magic: int | None = None


class UnsupportedCompressionTypeError(UnsupportedError):
    """The batch names a compression codec that Kafka does not define. Attribute: codec_id."""

    codec_id: int | None = None


class UnsupportedForMessageFormatError(UnsupportedError):
    """The magic asked for has no room for these records (Kafka: UnsupportedForMessageFormatException)."""


class SegmentTooLargeError(UnsupportedError):
    """A file has, or would get, more bytes than a position of a segment can count (2147483647)."""


class StorageError(KStoreError, OSError):
    """The disk or the file system failed. Attribute: errno, as in OSError."""

    def __init__(self, message: str, *, path: str | None = None, errno: int | None = None) -> None:
        KStoreError.__init__(self, message, path=path)
        self.errno = errno

    @property
    def is_out_of_space(self) -> bool:
        """Whether there was no space, or no quota: a write that left nothing behind may be tried again."""
        return self.errno in (ENOSPC, EDQUOT)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, {**self.__dict__, "errno": self.errno})


class LogNotFoundError(StorageError):
    """There is no log at that path: missing, not a directory, or neither a partition nor a root."""


class LogFailedError(StorageError):
    """An earlier write or sync failed, so that the file takes no more; what was written before can be read."""


class LogLockedError(StorageError):
    """Another writer holds the lock of the directory: a broker, a process, or another Log of this process."""


class LogClosedError(StorageError):
    """The log was closed before the call."""
