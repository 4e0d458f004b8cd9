"""Validation of records before an append and, on a leader, assignment of their offsets and timestamps.

Each step is a function of its own; validate_and_assign_offsets runs them all. Batches whose records can stay as they
are get new header fields in a copy of their bytes; all others are rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import NamedTuple

from kstore._core import AppendSurvey, Record, RecordIterator, batch_size_at, magics_of_records, survey_records
from kstore.compression import CompressionType
from kstore.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    OffsetError,
    OffsetsOutOfOrderError,
    RecordError,
    RecordErrorReason,
    RecordValidationError,
    UnexpectedAppendOffsetError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from kstore.record.batches import (
    MemoryRecords,
    RecordBatch,
    set_last_offset,
    set_max_timestamp,
    set_partition_leader_epoch,
)
from kstore.record.builder import MemoryRecordsBuilder, RecordsInfo
from kstore.types import (
    MAX_OFFSET,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TimestampType,
)

_NONE = CompressionType.NONE
_LAST_CODEC = max(CompressionType)
_CREATE_TIME = TimestampType.CREATE_TIME
_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
_SHOWN_ERRORS = 3
# A compressed batch of 1 MB can contain ten million records.
MOST_RECORD_ERRORS = 10_000


class AppendOrigin(Enum):
    """The source of an append; the rules for producers apply to CLIENT only (Kafka: AppendOrigin)."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"
    RAFT_LEADER = "raft leader"


@dataclass(frozen=True, kw_only=True)
class RecordRules:
    """A topic's rules for the records appended to it, under the names of its settings.

    Args:
        magic: the format of the log (message.format.version).
        compression: None for the producer's codec (compression.type=producer); level: for records that are
            recompressed, None for Kafka's default.
        timestamp_type: message.timestamp.type.
        timestamp_before_max_ms, timestamp_after_max_ms: how far a CreateTime may be from the leader's clock
            (message.timestamp.before.max.ms and after.max.ms).
        is_compacted: whether cleanup.policy includes compact, so that every record needs a key.
    Raises: ValueError for a magic other than 0, 1 and 2, or an invalid codec or timestamp type.
    """

    magic: int = 2
    compression: CompressionType | None = None
    level: int | None = None
    timestamp_type: TimestampType = _CREATE_TIME
    timestamp_before_max_ms: int = MAX_OFFSET
    timestamp_after_max_ms: int = MAX_OFFSET
    is_compacted: bool = False

    def __post_init__(self) -> None:
        if self.magic not in (0, 1, 2):
            raise ValueError(f"magic must be 0, 1 or 2, got {self.magic}")
        if self.timestamp_type not in (_CREATE_TIME, _LOG_APPEND_TIME):
            raise ValueError(f"timestamp_type must be CREATE_TIME or LOG_APPEND_TIME, got {self.timestamp_type!r}")
        if self.compression is not None and not isinstance(self.compression, CompressionType):
            raise ValueError(f"compression must be a CompressionType or None, got {self.compression!r}")


class RecordSurvey(NamedTuple):
    """The facts of all records of a batch that validation needs; see kstore._core.survey_records."""

    record_count: int
    null_key_count: int
    other_magic_count: int
    least_timestamp_ms: int
    max_timestamp_ms: int
    is_contiguous: bool


class ValidationResult(NamedTuple):
    """Records that can be appended, and facts of them for the log.

    is_rebuilt: whether they were rebuilt (so that sizes may differ) instead of given new header fields.
    converted_record_count: the number of records whose magic changed.
    """

    records: MemoryRecords
    info: RecordsInfo
    next_offset: int
    is_rebuilt: bool
    converted_record_count: int


def validate_and_assign_offsets(
    records: MemoryRecords,
    *,
    rules: RecordRules,
    base_offset: int,
    now_ms: int,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> ValidationResult:
    """Validate records sent to a leader; return them in the topic's format with offsets from base_offset on.

    now_ms, the leader's clock, becomes the timestamp of all records if the topic has LOG_APPEND_TIME. The given records
    are not changed.
    Raises: CorruptRecordError, InvalidRecordError, DecompressionError for invalid bytes; InvalidRecordError also for
        batches that cannot be appended together or by this origin; UnsupportedForMessageFormatError and
        UnsupportedCompressionTypeError for what the magic of the log cannot store; InvalidTimestampError or
        RecordValidationError, with the first 10,000 rejected records; OffsetError if an offset would exceed 2^63 - 2.
    Cost: no object per record unless the records are rebuilt.  Source: Kafka LogValidator.
    """
    batches = check_batches(records, rules=rules, origin=origin)
    source = source_compression(batches)
    target = target_compression(batches, source=source, rules=rules)
    surveys = [survey_batch(batch) for batch in batches]
    check_records(batches, surveys, rules=rules, now_ms=now_ms)
    check_offsets_left(surveys, base_offset=base_offset)
    if can_stay(batches, surveys, source=source, target=target, rules=rules):
        return assign_in_place(
            records,
            surveys,
            rules=rules,
            base_offset=base_offset,
            now_ms=now_ms,
            partition_leader_epoch=partition_leader_epoch,
        )
    return rebuild(
        batches,
        target=target,
        rules=rules,
        base_offset=base_offset,
        now_ms=now_ms,
        partition_leader_epoch=partition_leader_epoch,
    )


def validate_replicated(records: MemoryRecords, *, log_end_offset: int) -> ValidationResult:
    """Validate records that a follower fetched; return the complete batches, which keep the leader's offsets.

    Offsets may have gaps. An incomplete batch at the end is left out; the result may have no batch.
    Raises: as MemoryRecords.survey and check_replicated_offsets.
    Cost: reads no record.  Source: Kafka UnifiedLog.analyzeAndValidateRecords and append.
    """
    survey = records.survey()
    check_replicated_offsets(records, survey, log_end_offset=log_end_offset)
    return ValidationResult(
        MemoryRecords(survey.records),
        RecordsInfo(survey.max_timestamp_ms, survey.offset_of_max_timestamp),
        survey.last_offset + 1 if survey.batch_count else log_end_offset,
        is_rebuilt=False,
        converted_record_count=0,
    )


def check_replicated_offsets(records: MemoryRecords, survey: AppendSurvey, *, log_end_offset: int) -> None:
    """Check the offsets of batches that a follower fetched: they rise, and start at or above its log end offset.

    Args: survey: of these records.
    Raises: OffsetsOutOfOrderError, as in Kafka also if both are wrong; UnexpectedAppendOffsetError.
    Cost: none if they are right.  Source: Kafka UnifiedLog.append.
    """
    is_in_order = survey.disorder_position < 0
    if is_in_order and (survey.batch_count == 0 or survey.first_offset >= log_end_offset):
        return
    kind = UnexpectedAppendOffsetError if is_in_order else OffsetsOutOfOrderError
    last_offset = log_end_offset - 1 if is_in_order else -1
    for batch in records.batches():
        # Only the content of a V0 or V1 wrapper shows its first offset; Kafka uses its last one here too.
        first_offset = batch.header.base_offset
        if first_offset <= last_offset:
            raise kind(
                f"offset of the batch at position {batch.position}: expected more than {last_offset}, "
                f"found {first_offset}",
                path=batch.path,
                offset=first_offset,
                log_end_offset=log_end_offset,
            )
        last_offset = batch.last_offset


def check_batches(records: MemoryRecords, *, rules: RecordRules, origin: AppendOrigin) -> list[RecordBatch]:
    """Return the batches if they can be appended together, after a check of each CRC.

    Raises: InvalidRecordError, UnsupportedForMessageFormatError, CorruptRecordError; see validate_and_assign_offsets.
    """
    batches = list(records.batches())
    if not batches:
        raise InvalidRecordError("no batch to append: expected at least 1, found 0", position=0, expected=1, found=0)
    first = batches[0]
    for batch in batches:
        _check_codec(batch)
    is_alone = first.magic >= 2 or source_compression(batches) != _NONE
    if is_alone and len(batches) > 1:
        raise _invalid(batches[1], "batches of V2, or compressed ones, in one append", expected=1, found=len(batches))
    for batch in batches:
        if batch.magic != first.magic:
            raise _invalid(batch, "magic", expected=first.magic, found=batch.magic)
        if batch.magic >= 2:
            _check_header(batch, rules=rules, origin=origin)
        batch.verify()
    return batches


def _check_codec(batch: RecordBatch) -> None:
    if batch.header.codec > _LAST_CODEC:
        error = UnsupportedCompressionTypeError(
            f"codec of the batch at position {batch.position}: expected 0 to {_LAST_CODEC:d}, "
            f"found {batch.header.codec}",
            path=batch.path,
            position=batch.position,
        )
        error.codec_id = batch.header.codec
        raise error


def _check_header(batch: RecordBatch, *, rules: RecordRules, origin: AppendOrigin) -> None:
    """Check the header of a V2 batch; an empty batch is always rejected."""
    offset_count = batch.last_offset - batch.base_offset + 1
    record_count = batch.header.record_count
    if not record_count or record_count < 0:
        raise _invalid(batch, "record count", expected="at least 1", found=record_count)
    if origin == AppendOrigin.CLIENT:
        if record_count != offset_count:
            raise _invalid(batch, "record count", expected=offset_count, found=record_count)
        if batch.is_control:
            raise _invalid(batch, "batch from a client", expected="no control batch", found="a control batch")
    _check_producer(batch)
    if rules.magic < 2 and (batch.is_control or batch.is_transactional or batch.producer_id > NO_PRODUCER_ID):
        kind = "control" if batch.is_control else "transactional" if batch.is_transactional else "idempotent"
        raise UnsupportedForMessageFormatError(
            f"the {kind} batch at position {batch.position} can't go into a log of magic {rules.magic}",
            path=batch.path,
            position=batch.position,
        )


def _check_producer(batch: RecordBatch) -> None:
    """Check the sequence of a batch with a producer id. Without one, the other producer fields mean nothing.

    As in Kafka, any negative id is none, and the epoch is left to the producer state.
    """
    least = NO_SEQUENCE if batch.is_control else 0
    if batch.producer_id > NO_PRODUCER_ID and batch.base_sequence < least:
        raise _invalid(batch, "base sequence of a producer", expected=f"at least {least}", found=batch.base_sequence)


def source_compression(batches: Sequence[RecordBatch]) -> CompressionType:
    """Return the codec of the last compressed batch, or NONE."""
    return next((batch.compression for batch in reversed(batches) if batch.compression != _NONE), _NONE)


def target_compression(
    batches: Sequence[RecordBatch], *, source: CompressionType, rules: RecordRules
) -> CompressionType:
    """Return the codec in which the records are stored in the log; a control batch is not compressed there.

    Raises: UnsupportedCompressionTypeError for a log below the codec's least_magic.
    """
    target = source if rules.compression is None else rules.compression
    if source == _NONE and batches[0].is_control:
        target = _NONE
    if rules.magic < target.least_magic:
        error = UnsupportedCompressionTypeError(f"{target.label} can't go into a log of magic {rules.magic}")
        error.codec_id = target
        raise error
    return target


def records_of(batch: RecordBatch) -> RecordIterator:
    """Return the records of a verified batch; offsets that a client gave to messages in a wrapper are not checked."""
    return batch.records(verify=False, checks_offsets=False)


def _magics_of(batch: RecordBatch) -> bytes:
    return magics_of_records(records_of(batch))


def survey_batch(batch: RecordBatch) -> RecordSurvey:
    """Check the structure of all records of a batch, and return the facts that validation needs.

    Raises: InvalidRecordError, DecompressionError; CorruptRecordError for a message inside a wrapper.
    """
    return RecordSurvey._make(survey_records(records_of(batch)))


def check_records(
    batches: Sequence[RecordBatch], surveys: Sequence[RecordSurvey], *, rules: RecordRules, now_ms: int
) -> None:
    """Raise one error for all records that the topic's rules reject, if there are any.

    Raises: InvalidTimestampError if a timestamp is rejected, else RecordValidationError.
    """
    if all(
        _are_accepted(batch, survey, rules=rules, now_ms=now_ms) for batch, survey in zip(batches, surveys, strict=True)
    ):
        return
    errors: list[RecordError] = []
    count, is_timestamp = 0, False
    for error in errors_of(batches, rules=rules, now_ms=now_ms):
        count += 1
        is_timestamp = is_timestamp or error.reason == RecordErrorReason.INVALID_TIMESTAMP
        if count <= MOST_RECORD_ERRORS:
            errors.append(error)
    if not errors:
        return
    shown = "; ".join(error.message for error in errors[:_SHOWN_ERRORS])
    more = f"; and {count - _SHOWN_ERRORS} more" if count > _SHOWN_ERRORS else ""
    kind = InvalidTimestampError if is_timestamp else RecordValidationError
    raise kind(f"{count} records refused: {shown}{more}", errors=tuple(errors), path=batches[0].path)


def _are_accepted(batch: RecordBatch, survey: RecordSurvey, *, rules: RecordRules, now_ms: int) -> bool:
    """Return whether the rules accept all records of a batch, judging by the survey alone."""
    if survey.other_magic_count or (rules.is_compacted and survey.null_key_count):
        return False
    if batch.timestamp_type == _LOG_APPEND_TIME:
        return False
    if rules.timestamp_type == _LOG_APPEND_TIME or survey.max_timestamp_ms == NO_TIMESTAMP:
        return survey.least_timestamp_ms >= NO_TIMESTAMP
    return _is_near(survey.least_timestamp_ms, rules=rules, now_ms=now_ms) and _is_near(
        survey.max_timestamp_ms, rules=rules, now_ms=now_ms
    )


def errors_of(batches: Sequence[RecordBatch], *, rules: RecordRules, now_ms: int) -> Iterator[RecordError]:
    """Yield the first error of each rejected record: of its magic, else of its key, else of its timestamp."""
    rows = chain.from_iterable(
        ((batch, record, magic) for record, magic in zip(records_of(batch), _magics_of(batch), strict=True))
        for batch in batches
    )
    for index, (batch, record, magic) in enumerate(rows):
        if magic != batch.magic:
            message = f"record {index}: expected magic {batch.magic}, as its wrapper has, found {magic}"
            yield RecordError(index, RecordErrorReason.INVALID_RECORD, message)
        elif rules.is_compacted and record.key is None:
            message = f"record {index}: expected a key, as the topic is compacted, found none"
            yield RecordError(index, RecordErrorReason.INVALID_RECORD, message)
        elif (reason := _timestamp_error(batch, record, rules=rules, now_ms=now_ms)) is not None:
            yield RecordError(index, RecordErrorReason.INVALID_TIMESTAMP, f"record {index}: {reason}")


def _timestamp_error(batch: RecordBatch, record: Record, *, rules: RecordRules, now_ms: int) -> str | None:
    """Return the error of a timestamp, or of its type where, as in Kafka, only that is checked; else None."""
    if record.timestamp_ms < NO_TIMESTAMP:
        return f"timestamp {record.timestamp_ms}: expected at least {NO_TIMESTAMP}"
    if rules.timestamp_type == _CREATE_TIME and record.timestamp_ms != NO_TIMESTAMP:
        if _is_near(record.timestamp_ms, rules=rules, now_ms=now_ms):
            return None
        least, most = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
        return f"timestamp {record.timestamp_ms}: expected from {least} to {most}"
    if batch.timestamp_type == _LOG_APPEND_TIME:
        return "timestamp type: expected CreateTime from a producer, found LogAppendTime"
    return None


def _is_near(timestamp_ms: int, *, rules: RecordRules, now_ms: int) -> bool:
    return timestamp_ms >= 0 and (
        -rules.timestamp_after_max_ms <= now_ms - timestamp_ms <= rules.timestamp_before_max_ms
    )


def can_stay(
    batches: Sequence[RecordBatch],
    surveys: Sequence[RecordSurvey],
    *,
    source: CompressionType,
    target: CompressionType,
    rules: RecordRules,
) -> bool:
    """Return whether the records can keep their bytes: same magic and codec, and gapless offsets relative to the batch.

    A wrapper of magic 0 contains absolute offsets, so it is always rebuilt. A different level alone changes nothing. A
    batch that the producer marked LogAppendTime is rebuilt for CreateTime, because its record timestamps were not
    validated.
    """
    magic = rules.magic
    if source != target or batches[0].magic != magic or (magic == 0 and target != _NONE):
        return False
    if rules.timestamp_type == _CREATE_TIME and any(batch.timestamp_type == _LOG_APPEND_TIME for batch in batches):
        return False
    if magic >= 2 and surveys[0].record_count != batches[0].next_offset - batches[0].base_offset:
        return False
    return all(survey.is_contiguous for survey in surveys)


def check_offsets_left(surveys: Sequence[RecordSurvey], *, base_offset: int) -> None:
    """Raise OffsetError unless all records, and the log end offset, fit offsets from base_offset on."""
    last_offset = base_offset + sum(survey.record_count for survey in surveys) - 1
    if last_offset >= MAX_OFFSET:
        raise OffsetError(
            f"last offset of the records: expected at most {MAX_OFFSET - 1}, the highest that a log can hold, "
            f"found {last_offset}",
            offset=last_offset,
            log_end_offset=base_offset,
        )


def assign_in_place(
    records: MemoryRecords,
    surveys: Sequence[RecordSurvey],
    *,
    rules: RecordRules,
    base_offset: int,
    now_ms: int,
    partition_leader_epoch: int,
) -> ValidationResult:
    """Copy batches for which can_stay is true, without an incomplete one at the end, and set their header fields."""
    buffer = bytearray(records.buffer)
    next_offset, at = base_offset, 0
    info = RecordsInfo(NO_TIMESTAMP, -1)
    for survey in surveys:
        next_offset += survey.record_count
        set_last_offset(buffer, at, last_offset=next_offset - 1)
        if rules.magic >= 2:
            set_partition_leader_epoch(buffer, at, partition_leader_epoch=partition_leader_epoch)
        if rules.magic >= 1:
            max_timestamp_ms = set_timestamp(buffer, at, survey, rules=rules, now_ms=now_ms)
            if max_timestamp_ms > info.max_timestamp_ms:
                info = RecordsInfo(max_timestamp_ms, next_offset - 1)
        at += batch_size_at(buffer, at)
    del buffer[at:]
    return ValidationResult(MemoryRecords(buffer), info, next_offset, is_rebuilt=False, converted_record_count=0)


def set_timestamp(buffer: bytearray, at: int, survey: RecordSurvey, *, rules: RecordRules, now_ms: int) -> int:
    """Set timestamp type and largest timestamp of the batch at buffer[at]; return the timestamp."""
    is_append_time = rules.timestamp_type == _LOG_APPEND_TIME
    max_timestamp_ms = now_ms if is_append_time else survey.max_timestamp_ms
    set_max_timestamp(buffer, at, max_timestamp_ms=max_timestamp_ms, timestamp_type=rules.timestamp_type)
    return max_timestamp_ms


def rebuild(
    batches: Sequence[RecordBatch],
    *,
    target: CompressionType,
    rules: RecordRules,
    base_offset: int,
    now_ms: int,
    partition_leader_epoch: int,
) -> ValidationResult:
    """Rebuild the records of all batches as one batch (magic 0 and 1 without a codec: as one message each).

    Raises: InvalidRecordError for producer fields that no builder writes; UnsupportedForMessageFormatError for record
        headers in magic 0 or 1.
    """
    first = batches[0]
    _check_producer_can_be_rebuilt(first)
    builder = MemoryRecordsBuilder(
        magic=rules.magic,
        compression=target,
        level=rules.level,
        timestamp_type=rules.timestamp_type,
        base_offset=base_offset,
        log_append_time_ms=now_ms if rules.timestamp_type == _LOG_APPEND_TIME else NO_TIMESTAMP,
        producer_id=first.producer_id,
        producer_epoch=max(first.producer_epoch, NO_PRODUCER_EPOCH),
        base_sequence=max(first.base_sequence, NO_SEQUENCE),
        is_transactional=first.is_transactional,
        is_control=first.is_control,
        partition_leader_epoch=partition_leader_epoch,
    )
    for index, record in enumerate(chain.from_iterable(map(records_of, batches))):
        if rules.magic < 2 and record.headers:
            raise UnsupportedForMessageFormatError(
                f"record {index} has headers, which can't go into a log of magic {rules.magic}",
                path=first.path,
                position=first.position,
            )
        builder.append(record, offset=base_offset + index)
    count = builder.record_count
    converted = count if first.magic != rules.magic else 0
    return ValidationResult(
        builder.build(), builder.info, base_offset + count, is_rebuilt=True, converted_record_count=converted
    )


def _check_producer_can_be_rebuilt(batch: RecordBatch) -> None:
    """Kafka's builder, unlike its LogValidator, requires an epoch with a producer id, and an id with a transaction."""
    if batch.producer_id < NO_PRODUCER_ID:
        raise _invalid(batch, "producer id", expected=f"at least {NO_PRODUCER_ID}", found=batch.producer_id)
    if batch.producer_id == NO_PRODUCER_ID and batch.is_transactional:
        raise _invalid(batch, "producer id of a transactional batch", expected="at least 0", found=NO_PRODUCER_ID)
    if batch.producer_id != NO_PRODUCER_ID and batch.producer_epoch < 0:
        raise _invalid(batch, "epoch of a producer", expected="at least 0", found=batch.producer_epoch)


def _invalid(batch: RecordBatch, what: str, *, expected: object, found: object) -> InvalidRecordError:
    where = "memory" if batch.path is None else batch.path
    reason = f"{what}: expected {expected}, found {found}"
    return InvalidRecordError(
        f"{reason} in batch at position {batch.position} of {where} (base offset {batch.header.base_offset})",
        path=batch.path,
        position=batch.position,
        base_offset=batch.header.base_offset,
        reason=reason,
        expected=expected,
        found=found,
    )
