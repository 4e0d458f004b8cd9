"""Checks and changes of records before an append writes a byte: LeaderRules for a leader, functions for both roles.

The common append, one V2 batch that needs only new header fields, is a single compiled call. Everything else goes
through kstore.record.validation, which also names what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, get_args

from kstore._core import AppendSurvey, LeaderAssigner, Record, survey_replicated
from kstore._deprecated import is_old_value
from kstore.compression import CompressionType, decompress
from kstore.config import MAX_INT32, LogConfig
from kstore.errors import (
    InvalidRecordError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
)
from kstore.log.state.leader_epochs import LeaderEpochCache
from kstore.record.batches import MemoryRecords, RecordBatch, set_last_offset
from kstore.record.builder import with_records
from kstore.record.validation import AppendOrigin, RecordRules, ValidationResult, validate_and_assign_offsets
from kstore.types import MAGIC_V2, NO_OFFSET, NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP, Ack, TimestampType

_ACKS = get_args(Ack)
_UNCOMPRESSED = ("uncompressed", "none")
_ANY_CODEC = -1


class LogAppendInfo(NamedTuple):
    """The result of an append.

    size_in_bytes: of what was written. max_timestamp_ms: the greatest one of its records. log_start_offset: of the log.
    base_offset and last_offset are the offsets of its records, -1 if there were none. For wrapper messages of magic 0
    and 1 appended by a follower, base_offset is the last offset of the first wrapper. log_append_time_ms is -1 unless
    the topic uses LogAppendTime. is_duplicate: an idempotent producer sent the records before; the offsets are those of
    the first time, and nothing was appended.  Source: Kafka LogAppendInfo.
    """

    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    log_append_time_ms: int
    log_start_offset: int
    size_in_bytes: int
    is_duplicate: bool = False


class LeaderRules:
    """What a leader checks and changes in records of one log before it assigns offsets; made from the log's config.

    Attributes: is_append_time (message.timestamp.type is LogAppendTime), assigner (the compiled common append, None if
        the message format is older than V2).
    """

    def __init__(self, config: LogConfig) -> None:
        self._config = config
        self.is_append_time = config.message_timestamp_type == "LogAppendTime"
        self._rules = RecordRules(
            magic=config.message_format_magic,
            compression=_target_of(config),
            timestamp_type=TimestampType.LOG_APPEND_TIME if self.is_append_time else TimestampType.CREATE_TIME,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            is_compacted=config.is_compacted,
        )
        self.assigner: LeaderAssigner | None = None
        if config.message_format_magic >= MAGIC_V2:
            self.assigner = LeaderAssigner(
                max_message_bytes=config.max_message_bytes,
                timestamp_before_max_ms=config.message_timestamp_before_max_ms,
                timestamp_after_max_ms=config.message_timestamp_after_max_ms,
                is_compacted=config.is_compacted,
                is_log_append_time=self.is_append_time,
                codec_id=_ANY_CODEC if self._rules.compression is None else self._rules.compression,
                max_decompressed_bytes=config.max_decompressed_bytes,
                decompress=decompress,
            )

    def packed(
        self, records: RecordBatch | Record | Iterable[Record], *, now_ms: int, atomic: bool
    ) -> list[MemoryRecords]:
        """Return a batch, or Records packed into one, or unless `atomic` into several if one would be too large.

        Args: now_ms: the timestamp of Records that have neither an offset nor a timestamp.
        Raises: as pack(); if they are divided, what survey() raises for one of them.
        """
        if atomic or isinstance(records, RecordBatch | Record):
            return [self.pack(records, now_ms=now_ms)]
        # An iterator is read once.
        records = records if isinstance(records, Sequence) else _as_list(records)
        whole, most = self.pack(records, now_ms=now_ms), self._config.max_message_bytes
        if whole.size_in_bytes <= most:
            return [whole]
        # Before any part is written, and by the numbers that the records have here.
        self._validate(whole, base_offset=0, leader_epoch=0, now_ms=now_ms, origin=AppendOrigin.CLIENT)
        todo: list[tuple[Sequence[Record], MemoryRecords]] = [(records, whole)]
        packed = []
        while todo:
            part, batch = todo.pop()
            if batch.size_in_bytes <= most or len(part) == 1:
                self._check_sizes(batch)
                packed.append(batch)
                continue
            step = -(-len(part) // min(len(part), batch.size_in_bytes // most + 1))
            pieces = [part[at : at + step] for at in range(0, len(part), step)]
            todo += reversed([(piece, self.pack(piece, now_ms=now_ms)) for piece in pieces])
        return packed

    def pack(self, records: RecordBatch | Record | Iterable[Record], *, now_ms: int) -> MemoryRecords:
        """Return a batch, or Record objects packed into one batch with the log's codec, as a producer would send them.

        Args: now_ms: the timestamp of Records that have neither an offset nor a timestamp.
        Raises: ValueError for no record, or for records that do not fit one batch; TypeError for anything else.
        """
        if isinstance(records, Record):
            records = [records]
        if isinstance(records, (str, bytes, bytearray, memoryview)) or not isinstance(records, Iterable):
            raise TypeError(f"expected MemoryRecords, a RecordBatch or Records, got {type(records).__name__}")
        if isinstance(records, RecordBatch):
            sent = bytearray(bytes(records))
            if records.magic >= MAGIC_V2:
                set_last_offset(sent, last_offset=records.last_offset - records.base_offset)
            return MemoryRecords(sent)
        codec = self._rules.compression or CompressionType.NONE
        packed = with_records(_new_records(records, now_ms), magic=self._rules.magic, compression=codec)
        if not len(packed):
            raise ValueError("expected at least one record to append, got none")
        return packed

    def survey(
        self,
        records: MemoryRecords,
        *,
        base_offset: int,
        partition_leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin,
    ) -> AppendSurvey:
        """Check records, assign offsets from base_offset on, and return the result.

        Raises: as validate_and_assign_offsets; RecordTooLargeError; InvalidRecordError for a client's batch whose base
            offset is not 0, or a Raft leader's batch with another leader epoch.
        """
        self._check_sent(records, partition_leader_epoch=partition_leader_epoch, origin=origin)
        result = self._validate(
            records, base_offset=base_offset, leader_epoch=partition_leader_epoch, now_ms=now_ms, origin=origin
        )
        if result.is_rebuilt:
            self._check_sizes(result.records)
        return survey_replicated(result.records.buffer)

    def _validate(
        self, records: MemoryRecords, *, base_offset: int, leader_epoch: int, now_ms: int, origin: AppendOrigin
    ) -> ValidationResult:
        return validate_and_assign_offsets(
            records,
            rules=self._rules,
            base_offset=base_offset,
            now_ms=now_ms,
            partition_leader_epoch=leader_epoch if self._rules.magic >= MAGIC_V2 else NO_PARTITION_LEADER_EPOCH,
            origin=origin,
        )

    def _check_sent(self, records: MemoryRecords, *, partition_leader_epoch: int, origin: AppendOrigin) -> None:
        for batch in records.batches():
            if origin is AppendOrigin.RAFT_LEADER and batch.partition_leader_epoch != partition_leader_epoch:
                found = batch.partition_leader_epoch
                raise _invalid(batch.position, "leader epoch", expected=partition_leader_epoch, found=found)
            if origin is AppendOrigin.CLIENT and batch.magic >= MAGIC_V2 and batch.base_offset != 0:
                raise _invalid(batch.position, "base offset from a client", expected=0, found=batch.base_offset)
        self._check_sizes(records)

    def _check_sizes(self, records: MemoryRecords) -> None:
        most = self._config.max_message_bytes
        for batch in records.batches():
            if batch.size_in_bytes > most:
                raise RecordTooLargeError(
                    f"size of the batch at position {batch.position}: expected at most {most} bytes "
                    f"(max_message_bytes), found {batch.size_in_bytes}"
                )


def _new_records(records: Iterable[Record], now_ms: int) -> Iterator[Record]:
    """Yield the records; one without offset and timestamp, which was not read from a log, gets the current time."""
    for number, record in enumerate(records):
        if not isinstance(record, Record):
            raise TypeError(f"record {number} of an append must be a kstore.Record, got {type(record).__name__}")
        if record.offset == NO_OFFSET and record.timestamp_ms == NO_TIMESTAMP:
            yield Record(
                timestamp_ms=now_ms,
                key=record.key,
                value=record.value,
                headers=record.headers,
                is_control=record.is_control,
            )
        else:
            yield record


def joined(first: LogAppendInfo, later: LogAppendInfo) -> LogAppendInfo:
    """Return the result of two appends that follow each other as that of one."""
    return later._replace(
        base_offset=first.base_offset,
        max_timestamp_ms=max(first.max_timestamp_ms, later.max_timestamp_ms),
        size_in_bytes=first.size_in_bytes + later.size_in_bytes,
    )


def _as_list(records: object) -> list[Record]:
    if not isinstance(records, Iterable):
        raise TypeError(f"expected MemoryRecords, a RecordBatch or Records, got {type(records).__name__}")
    return list(records)


def check_ack(ack: str) -> None:
    """Raise ValueError for an unknown acknowledgement."""
    if ack not in _ACKS and not is_old_value("ack", ack):
        raise ValueError(f"ack must be one of {', '.join(_ACKS)}, got {ack!r}")


def check_fits_segment(survey: AppendSurvey, config: LogConfig) -> None:
    """Raise RecordBatchTooLargeError for an append larger than a segment may be."""
    if survey.size_in_bytes > config.segment_bytes:
        raise RecordBatchTooLargeError(
            f"size of the append: expected at most {config.segment_bytes} bytes (segment_bytes), "
            f"found {survey.size_in_bytes}"
        )


def check_offsets_fit_segment(survey: AppendSurvey, *, base_offset: int) -> None:
    """Raise RecordBatchTooLargeError for an append whose offsets exceed the 32-bit relative offsets of an index."""
    if survey.first_offset < base_offset or survey.last_offset - base_offset > MAX_INT32:
        raise RecordBatchTooLargeError(
            f"offsets of the append: expected from {base_offset} to {base_offset + MAX_INT32}, "
            f"found from {survey.first_offset} to {survey.last_offset}"
        )


def follow_epochs(epochs: LeaderEpochCache, survey: AppendSurvey, *, config: LogConfig) -> None:
    """Durably assign the leader epochs of an append before it is written; messages of magic 0 and 1 have none.

    Raises: StorageError.
    """
    if survey.has_messages:
        epochs.clear()
    elif survey.is_one_epoch:
        if survey.leader_epoch >= 0:
            epochs.assign(survey.leader_epoch, start_offset=survey.first_offset)
    else:
        for batch in MemoryRecords(survey.records, config=config).batches():
            if batch.partition_leader_epoch >= 0:
                epochs.assign(batch.partition_leader_epoch, start_offset=batch.base_offset)


def next_base_offset(survey: AppendSurvey, *, log_end_offset: int) -> int:
    """Return the base offset of a segment that starts with these batches; wrapper messages do not state their first
    offset, so that one is a lower bound.
    """
    first_offset = survey.last_offset - MAX_INT32 if survey.has_messages else survey.first_offset
    return max(log_end_offset, first_offset)


def check_memory_records(records: object) -> None:
    """Raise TypeError for anything but MemoryRecords."""
    if not isinstance(records, MemoryRecords):
        raise TypeError(f"expected MemoryRecords, got {type(records).__name__}")


def _target_of(config: LogConfig) -> CompressionType | None:
    if config.compression_type == "producer":
        return None
    if config.compression_type in _UNCOMPRESSED:
        return CompressionType.NONE
    return CompressionType.for_name(config.compression_type)


def _invalid(position: int, what: str, *, expected: int, found: int) -> InvalidRecordError:
    reason = f"{what}: expected {expected}, found {found}"
    return InvalidRecordError(
        f"{reason} in batch at position {position}", position=position, reason=reason, expected=expected, found=found
    )
