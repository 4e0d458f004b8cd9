"""The exceptions of kstore, by cause: bad bytes, rejected appends, unsupported formats, a failed disk, a changed log.

Misuse of a function (wrong type, negative size) raises a plain TypeError or ValueError; checked_int does so for a
number. Every message states what, where, expected and found. This module imports nothing of kstore.
"""

from __future__ import annotations

import sys
from enum import Enum
from errno import EDQUOT, ENOSPC
from operator import index
from typing import Any, NamedTuple, SupportsIndex

LEAST_INT64 = -(2**63)
GREATEST_INT64 = 2**63 - 1


def checked_index(name: str, value: object) -> int:
    """Return an integer argument as a plain int. Accepts NumPy's integers, but not bool.

    Raises: TypeError for anything else.
    """
    if type(value) is int:  # the look at SupportsIndex takes 8 us before Python 3.12
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} must be an int, got {value!r} ({type(value).__name__})")
    return int(index(value))


def checked_int(name: str, value: object, *, least: int = LEAST_INT64, greatest: int = GREATEST_INT64) -> int:
    """Return an integer argument as a plain int, if it is from least to greatest.

    Raises: TypeError as checked_index; ValueError outside these bounds.
    """
    number = value if type(value) is int else checked_index(name, value)
    if not least <= number <= greatest:
        raise ValueError(f"{name} must be from {least} to {greatest}, got {number}")
    return number


def json_fault(error: Exception) -> str:
    """Return what is wrong with a text that json.loads refused, with `error`, for a message to a user."""
    place = getattr(error, "lineno", None), getattr(error, "colno", None)
    if None not in place:
        return f"what follows is no JSON at line {place[0]}, column {place[1]}"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return f"it is no UTF-8 at byte {error.start}"
    return "it has a number that JSON does not have, or one of too many digits"


class KStoreError(Exception):
    """Base of every error that kstore raises about data, offsets or storage. Can be pickled.

    Attributes: path (a file or directory, None if in memory), base_offset (that of the batch, None if unknown),
        kafka_code (the number that a broker answers in Kafka's protocol, of the class too; None if Kafka has none for
        it, where a broker answers UNKNOWN_SERVER_ERROR).
    """

    kafka_code: int | None = None

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
    """The bytes are invalid.

    Attributes: position (in bytes, of the damaged batch, entry or file start; None if unknown), reason (a phrase
    without the position), expected and found (None if there is no such pair).
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
    """A batch has a wrong CRC, size or framing (Kafka: CorruptRecordException)."""


class RemoteSegmentError(CorruptRecordError):
    """Records of a tiered log cannot be had: no finished segment has them, objects of their segment are missing, or it
    was written as an Iceberg table.

    Attributes: first_offset, last_offset (of these records).
    """

    def __init__(
        self, message: str, *, path: str | None = None, reason: str | None = None, first_offset: int, last_offset: int
    ) -> None:
        super().__init__(message, path=path, position=0, reason=reason)
        self.first_offset = first_offset
        self.last_offset = last_offset


class InvalidRecordError(CorruptionError):
    """The CRC is right, but the content is inconsistent (Kafka: InvalidRecordException)."""


class InvalidRequestError(CorruptionError):
    """The bytes of a request or an answer are not what its version says (Kafka: InvalidRequestException).

    Attributes: field (the path of the field in Kafka's names, as topicData.partitionData.records), position (in the
        bytes that were decoded).
    """

    def __init__(
        self, message: str, *, field: str, position: int | None = None, expected: object = None, found: object = None
    ) -> None:
        super().__init__(message, position=position, expected=expected, found=found)
        self.field = field


class DecompressionError(InvalidRecordError):
    """The compressed payload of a batch cannot be decompressed, or would exceed the output limit."""


class CorruptIndexError(CorruptionError):
    """An index file is invalid; it can be rebuilt from the log (Kafka: CorruptIndexException)."""


class CorruptSnapshotError(CorruptionError):
    """A producer state snapshot is invalid; the state can be rebuilt from the log (Kafka: CorruptSnapshotException)."""


class CorruptLogError(CorruptionError):
    """Durable bytes are damaged, so strict recovery refuses to open the log; nothing was changed.

    The modes point_in_time and salvage of a recovery open it (docs/durability.md).
    Attributes: base_offset and lost_end_offset: the offsets from the former up to, not including, the latter cannot be
        read; None if the damage does not show where they end.
    """

    lost_end_offset: int | None = None


class CorruptCheckpointError(CorruptionError):
    """A checkpoint file is malformed. It can be deleted; the next recovery then takes longer."""


class LogReplacedError(KStoreError):
    """A file of the log was removed, replaced or truncated by the log's writer since it was listed.

    Causes are retention, compaction, truncation, and a topic that was deleted and created again. No bytes are damaged:
    open the log again and continue from an offset.
    Attributes: expected and found (the listed and the actual state, as text; None if there is no such pair).
    """

    def __init__(
        self, message: str, *, path: str | None = None, expected: str | None = None, found: str | None = None
    ) -> None:
        super().__init__(message, path=path)
        self.expected = expected
        self.found = found


class CorruptManifestError(CorruptionError):
    """A manifest is malformed, or not of the objects beside it: that of an export, or a file of an unfinished run
    beside it; that of a segment in tiered storage.
    """


class TierKeyError(KStoreError):
    """An encrypted segment of tiered storage cannot be read: its private key was not given, cannot be read or is
    another one.

    Attributes: key_id (that of the key, None if it is not known).
    """

    def __init__(self, message: str, *, path: str | None = None, key_id: str | None = None) -> None:
        super().__init__(message, path=path)
        self.key_id = key_id


class TierEpochError(KStoreError, ValueError):
    """A tier cannot be read by a leader epoch: no segment of the partition has records of it, or its root says itself
    which epochs the log has.

    Attributes: epoch; known (those that the segments have).
    """

    def __init__(self, message: str, *, path: str | None = None, epoch: int = 0, known: tuple[int, ...] = ()) -> None:
        super().__init__(message, path=path)
        self.epoch = epoch
        self.known = known


class ExportError(KStoreError):
    """An export cannot start or continue. What it finished before is kept."""


class ExportOptionsError(ExportError):
    """The target holds an export with other options.

    Attributes: differences (by option name, its value in the target and the requested one).
    """

    def __init__(self, message: str, *, differences: dict[str, tuple[object, object]], path: str | None = None) -> None:
        super().__init__(message, path=path)
        self.differences = differences


class ExportConflictError(ExportError):
    """Another writer committed to the table first. Nothing was appended; the same call exports what is still new."""


class ExportTablesError(ExportError):
    """Some of the tables of an export, of which each topic has one, could not be written. The others were.

    Attributes: failures (by topic, the error of its table), summary (a TableSummary, of the tables that were written).
    """

    def __init__(self, message: str, *, failures: dict[str, Exception], summary: Any, path: str | None = None) -> None:
        super().__init__(message, path=path)
        self.failures = failures
        self.summary = summary


class RestoreError(KStoreError):
    """A restore cannot start, or ended early. What the target had before is as it was.

    Attributes: summary (a RestoreSummary: how far each partition came; None if nothing was changed). The error of the
    call that failed is __cause__.
    """

    def __init__(self, message: str, *, summary: Any = None, path: str | None = None) -> None:
        super().__init__(message, path=path)
        self.summary = summary


class AdoptionError(KStoreError):
    """A root cannot be made ready for a broker as it is; its message says what to do. Nothing was changed."""


class ClusterOwnedError(AdoptionError):
    """A root belongs to a cluster: it has the metadata of one, or the ids of another one."""


class UnknownSettingsError(AdoptionError):
    """The settings of topics are in no file of the root: a broker would delete their records by its own defaults.

    Attributes: topics (their names, sorted).
    """

    def __init__(self, message: str, *, topics: tuple[str, ...], path: str | None = None) -> None:
        super().__init__(message, path=path)
        self.topics = topics


class ReplayError(KStoreError):
    """A replay cannot start, or ended early. What the cluster has acknowledged stays there.

    Attributes: summary (a ReplaySummary: how far each partition came; None if nothing was sent); topic, partition,
    offset (the record of the source that the cluster refused, or that has no acknowledgement; None where it is not
    about one); kafka_code (that of the cluster's answer, so the class has none).
    """

    def __init__(
        self,
        message: str,
        *,
        summary: Any = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        kafka_code: int | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message, path=path)
        self.summary = summary
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.kafka_code = kafka_code


class ReplayStateError(ReplayError):
    """The state file of a replay is malformed, in use, or of another source or cluster; nothing was sent."""


class ExportSourceError(ExportError):
    """The source no longer holds the offset at which an export continues: it was deleted, truncated or replaced.

    Attributes: topic, partition, offset (where the export ended), log_start_offset, log_end_offset.
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str,
        partition: int,
        offset: int,
        log_start_offset: int,
        log_end_offset: int,
        path: str | None = None,
    ) -> None:
        super().__init__(message, path=path)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class ExportTransactionError(ExportError):
    """A transaction is open in an export, and the source, in which it was decided, has lost its marker: a cleaner
    removed it, or it was deleted.

    Attributes: topic, partition, offset (where the export ended), producer_id, first_offset of the transaction,
    marker_offset (-1 if the marker was not written yet when the export ended).
    """

    def __init__(
        self,
        message: str,
        *,
        topic: str,
        partition: int,
        offset: int,
        producer_id: int,
        first_offset: int,
        marker_offset: int,
        path: str | None = None,
    ) -> None:
        super().__init__(message, path=path)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.marker_offset = marker_offset


class OffsetError(KStoreError):
    """The requested offset does not fit the log.

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


class LogTruncationError(OffsetOutOfRangeError):
    """Records that a follower had returned were removed from the end of the log (Kafka: LogTruncationException).

    Attributes: truncated_to (the first offset at which the log differs from the returned records, None if unknown).
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        log_start_offset: int | None = None,
        log_end_offset: int | None = None,
        truncated_to: int | None = None,
    ) -> None:
        super().__init__(
            message, path=path, offset=offset, log_start_offset=log_start_offset, log_end_offset=log_end_offset
        )
        self.truncated_to = truncated_to


class OffsetsOutOfOrderError(OffsetError):
    """The offsets of an append do not rise from batch to batch (Kafka: OffsetsOutOfOrderException)."""


class NoOffsetForPartitionError(OffsetError):
    """The group has no committed offset, and auto_offset_reset is "none" (Kafka: NoOffsetForPartitionException).

    Attributes: topic, partition.
    """

    def __init__(self, message: str, *, topic: str, partition: int, path: str | None = None) -> None:
        super().__init__(message, path=path)
        self.topic = topic
        self.partition = partition


class UnexpectedAppendOffsetError(OffsetError):
    """An append expected the log to end elsewhere, or its key to have another newest record, or a replicated one starts
    below the log's end (Kafka: UnexpectedAppendOffsetException).

    Attributes: expected and found, the offsets of expected_end_offset or expected_key_offset (-1: no record), None of a
    replicated append; key, that of expected_key_offset, else None.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        log_start_offset: int | None = None,
        log_end_offset: int | None = None,
        key: bytes | None = None,
        expected: int | None = None,
        found: int | None = None,
    ) -> None:
        super().__init__(
            message, path=path, offset=offset, log_start_offset=log_start_offset, log_end_offset=log_end_offset
        )
        self.key = key
        self.expected = expected
        self.found = found


class AppendError(KStoreError):
    """The records are rejected, and none of them is written."""


class RecordErrorReason(Enum):
    """Kafka's error code of a rejected record: INVALID_RECORD or INVALID_TIMESTAMP."""

    INVALID_RECORD = "INVALID_RECORD"
    INVALID_TIMESTAMP = "INVALID_TIMESTAMP"


class RecordError(NamedTuple):
    """Why a record was rejected: reason, and message as text. record_index counts all records of the append from 0."""

    record_index: int
    reason: RecordErrorReason
    message: str


class RecordValidationError(AppendError):
    """The topic's rules reject records (Kafka: RecordValidationException).

    Attributes: errors (a RecordError for each of the first 10,000 rejected records).
    """

    def __init__(self, message: str, *, errors: tuple[RecordError, ...], path: str | None = None) -> None:
        super().__init__(message, path=path)
        self.errors = errors


class InvalidTimestampError(RecordValidationError):
    """At least one of the rejected records has a timestamp out of bounds (Kafka: InvalidTimestampException)."""


class RecordTooLargeError(AppendError):
    """A batch is larger than max_message_bytes (Kafka: RecordTooLargeException)."""


class RecordBatchTooLargeError(AppendError):
    """The records of one append are larger than a segment (Kafka: RecordBatchTooLargeException)."""


class ProducerStateError(AppendError):
    """The batch does not follow the log's state of its producer.

    Attributes: producer_id, producer_epoch (those of the batch).
    """

    def __init__(self, message: str, *, producer_id: int, producer_epoch: int, path: str | None = None) -> None:
        super().__init__(message, path=path)
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch


class OutOfOrderSequenceError(ProducerStateError):
    """The sequence number does not follow the producer's last one (Kafka: OutOfOrderSequenceException).

    Attributes: last_sequence (the last one in this epoch, -1 if the log has none).
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
        """A timeout that callers can catch as KStoreError or as TimeoutError."""

else:
    from concurrent import futures

    class _FutureTimeoutError(KStoreError, TimeoutError, futures.TimeoutError):
        """A timeout that callers can catch as KStoreError or as either TimeoutError (Python 3.10 has two)."""


class ProducerTimeoutError(_FutureTimeoutError):
    """An operation exceeded a timeout of the producer (Kafka: TimeoutException)."""


class BufferExhaustedError(ProducerTimeoutError):
    """No memory of the producer's buffer became free within the timeout (Kafka: BufferExhaustedException)."""


class ProducerClosedError(KStoreError):
    """The producer was closed before the call, or before the record was sent."""


class UnsentRecordsError(KStoreError):
    """Records that producers had accepted could not be written before their store, or staging sink, was closed.

    Their futures have their errors; __cause__ is the first of them.
    Attributes: record_count (how many).
    """

    def __init__(self, message: str, *, record_count: int, path: str | None = None) -> None:
        super().__init__(message, path=path)
        self.record_count = record_count


class ProducerFencedError(KStoreError):
    """Another producer started with the same transactional id (Kafka: ProducerFencedException)."""


class InvalidPidMappingError(ProducerFencedError):
    """The transactional id is not known, or has another producer id (Kafka: InvalidPidMappingException)."""


class UnstableOffsetCommitError(KStoreError):
    """An offset was committed in a transaction that is not decided (Kafka: UnstableOffsetCommitException).

    A consumer with isolation "read_committed" begins once it is.
    """


class ConsumerClosedError(KStoreError):
    """The consumer was closed before the call."""


class WakeupError(KStoreError):
    """Consumer.wakeup() ended a poll (Kafka: WakeupException)."""


class TransactionAbortedError(KStoreError):
    """The record's transaction was aborted before the record was sent (Kafka: TransactionAbortedException)."""


class TransactionStateError(KStoreError):
    """The producer's transaction is in a state that does not allow the call (Kafka: IllegalStateException)."""


class GroupStateError(KStoreError):
    """The group has members, does not exist, or is of a type that the call does not change (Kafka:
    GroupNotEmptyException, GroupIdNotFoundException).

    Attributes: kafka_code (that of the reason, so the class has none).
    """

    def __init__(self, message: str, *, kafka_code: int | None = None, path: str | None = None) -> None:
        super().__init__(message, path=path)
        self.kafka_code = kafka_code


class SinkResponseError(KStoreError):
    """A sink returned an invalid response; whether its batches were written is unknown."""


class UnknownTopicOrPartitionError(KStoreError):
    """The sink has no such topic or partition (Kafka: UnknownTopicOrPartitionException)."""


class KeylessRecordsError(KStoreError):
    """A compaction would remove records without a key; nothing was removed.

    Kafka accepts no such records in a compacted topic, so the topic may not be meant to be compacted, or was not
    compacted when they were written.
    Attributes: base_offset (the offset of the first of them), record_count (in the part that would be cleaned).
    """

    def __init__(
        self, message: str, *, record_count: int, path: str | None = None, base_offset: int | None = None
    ) -> None:
        super().__init__(message, path=path, base_offset=base_offset)
        self.record_count = record_count


class TopicExistsError(KStoreError, ValueError):
    """A topic of the name exists already.  Source: Kafka TopicExistsException."""


class InvalidTopicError(KStoreError, ValueError):
    """The name of a topic is not one that Kafka allows, or it is KRaft's own.  Source: Kafka InvalidTopicException."""


class TopicSettingsError(KStoreError, ValueError):
    """The settings that a root keeps of a topic do not fit the configuration of the store, or this kstore."""


class SerializationError(KStoreError):
    """A serializer or deserializer rejected its input (Kafka: SerializationException)."""


class RecordDeserializationError(SerializationError):
    """The key or value of a record cannot be deserialized (Kafka: RecordDeserializationException); see __cause__.

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
    """The data may be valid, but this version of kstore does not read or write it."""

    def __init__(
        self, message: str, *, path: str | None = None, base_offset: int | None = None, position: int | None = None
    ) -> None:
        super().__init__(message, path=path, base_offset=base_offset)
        self.position = position


class UnsupportedVersionError(KStoreError):
    """A request of an api or version that is not served (Kafka: UnsupportedVersionException).

    A broker closes the connection. Only an ApiVersions request of an unknown version is answered: in version 0.
    Attributes: api_key, version, correlation_id.
    """

    def __init__(self, message: str, *, api_key: int, version: int, correlation_id: int) -> None:
        super().__init__(message)
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id


class AuthenticationError(KStoreError):
    """A client of a server does not prove who it is, or asks for what it may not before, or without an answer (Kafka:
    AuthenticationException).
    """


class SecurityError(KStoreError, ValueError):
    """A server's settings of security contradict each other or leave it open, or its file of users is malformed."""


class SchemaError(KStoreError):
    """A schema of keys or values cannot be used."""


class InvalidSchemaError(SchemaError):
    """A schema is malformed, or has a type that no column can hold."""


class SchemaNotFoundError(SchemaError):
    """There is no schema of this id, subject or version, or no place where it could be looked up."""


class MemoryLimitError(UnsupportedError):
    """The bytes may be valid, but one record, or the keys of a table, would exceed a memory limit.

    Attributes: offset (that of the record, None if unknown), option (the name of the LogConfig setting to raise, or
    max_bytes of a table; None if there is none), limit and found (bytes).
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


class UnsupportedMagicError(UnsupportedError, CorruptionError):
    """The magic byte is not one of Kafka's, or contradicts the CRC. As in Kafka, this counts as corruption.

    It is also an UnsupportedError, because a later version of Kafka may define another magic.
    Attributes: magic (also in found).  Source: Kafka ByteBufferLogInputStream.nextMagic (CorruptRecordException).
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        base_offset: int | None = None,
        position: int | None = None,
        reason: str | None = None,
        expected: str | None = None,
        magic: int | None = None,
    ) -> None:
        CorruptionError.__init__(
            self,
            message,
            path=path,
            base_offset=base_offset,
            position=position,
            reason=reason,
            expected=expected,
            found=magic,
        )
        self.magic = magic


class UnsupportedCompressionTypeError(UnsupportedError):
    """The batch has a compression codec that Kafka does not define. Attributes: codec_id."""

    codec_id: int | None = None


class UnsupportedForMessageFormatError(UnsupportedError):
    """The requested magic cannot represent these records (Kafka: UnsupportedForMessageFormatException)."""


class SegmentTooLargeError(UnsupportedError):
    """A file has, or would get, more bytes than a position in a segment can express (2147483647)."""


class StorageError(KStoreError, OSError):
    """The disk or the file system failed.

    Attributes: errno, as in OSError; is_final (whether the log or file accepts no more changes until it is opened
    again).
    """

    is_final = False

    def __init__(self, message: str, *, path: str | None = None, errno: int | None = None) -> None:
        KStoreError.__init__(self, message, path=path)
        self.errno = errno

    @property
    def is_out_of_space(self) -> bool:
        """Whether there was no space, or no quota; is_retriable says whether the call can be made again."""
        return self.errno in (ENOSPC, EDQUOT)

    @property
    def is_retriable(self) -> bool:
        """Whether only space was missing and the log did not fail, so that the same call can be made again.

        An append that raised such an error left nothing in the log.
        """
        return self.is_out_of_space and not self.is_final

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, {**self.__dict__, "errno": self.errno})


class LogNotFoundError(StorageError):
    """There is no log at the path: it is missing, not a directory, or neither a partition nor a root."""


class LogFailedError(StorageError):
    """An earlier write or sync failed, so the file accepts no more writes; earlier records can still be read.

    errno is that of the earlier failure.
    """

    is_final = True


class LogLockedError(StorageError):
    """Another writer holds the lock of the directory: a broker, another process, or another Log in this process.

    Attributes: holder_pid, holder_name (the process that holds the lock, each None where it is unknown, and where it is
    this one).
    """

    holder_pid: int | None = None
    holder_name: str | None = None


class LogClosedError(StorageError):
    """The log was closed before the call."""


# The codes of Kafka's protocol (Kafka: Errors). A class that is not listed has the code of the class above it.
_KAFKA_CODES: dict[type[KStoreError], int] = {
    OffsetOutOfRangeError: 1,
    CorruptRecordError: 2,
    UnsupportedMagicError: 2,
    UnknownTopicOrPartitionError: 3,
    ProducerTimeoutError: 7,
    RecordTooLargeError: 10,
    InvalidTopicError: 17,
    RecordBatchTooLargeError: 18,
    InvalidTimestampError: 32,
    UnsupportedVersionError: 35,
    TopicExistsError: 36,
    TopicSettingsError: 40,
    InvalidRequestError: 42,
    UnsupportedForMessageFormatError: 43,
    OutOfOrderSequenceError: 45,
    InvalidProducerEpochError: 47,
    InvalidTxnStateError: 48,
    TransactionStateError: 48,
    InvalidPidMappingError: 49,
    TransactionCoordinatorFencedError: 52,
    StorageError: 56,
    UnsupportedCompressionTypeError: 76,
    InvalidRecordError: 87,
    RecordValidationError: 87,
    UnstableOffsetCommitError: 88,
    ProducerFencedError: 90,
}

for _kind, _code in _KAFKA_CODES.items():
    _kind.kafka_code = _code
