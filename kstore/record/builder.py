"""MemoryRecordsBuilder, and functions that make MemoryRecords in one call (Kafka: MemoryRecords.withRecords)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from kstore._core import (
    CODEC_BITS,
    TIMESTAMP_TYPE_BIT,
    MemoryRecordsBuilderCore,
    Record,
    append_of_builder,
)
from kstore.compression import CompressionType, Payload, compress, level_of
from kstore.record.batches import MemoryRecords, set_max_timestamp
from kstore.record.control import EndTransactionMarker, control_record_key, end_transaction_marker_value
from kstore.types import (
    MAGIC_V1,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    ControlRecordType,
    TimestampType,
)

if TYPE_CHECKING:
    from kstore.record.kraft import KRaftControlRecord, LeaderChangeMessage


class RecordsInfo(NamedTuple):
    """The largest timestamp of a batch (ms), and the offset for it in a time index; -1 if there is none."""

    max_timestamp_ms: int
    shallow_offset_of_max_timestamp: int


class MemoryRecordsBuilder(MemoryRecordsBuilderCore):
    """Builds one record batch: append() records, then build() MemoryRecords; see MemoryRecordsBuilderCore.append.

    Args:
        magic: 2; or 1 or 0, where records become a run of messages, or one compressed wrapper. These support no
            headers, producer fields, control records, delete horizon or codec of a higher least_magic; the leader epoch
            is ignored, and in magic 0 the timestamps too.
        compression: a CompressionType or its name; level: None for Kafka's default.
        log_append_time_ms: with TimestampType.LOG_APPEND_TIME, the timestamp of all records.
        producer_id, producer_epoch, base_sequence: those of an idempotent producer; without an id the others mean
            nothing.
        delete_horizon_ms: the time from which compaction may drop tombstones (KIP-534).
        write_limit_bytes: the size at which the batch counts as full. has_room_for and is_full respect it; append does
            not.
    Attributes: of the batch's header, as it would be now: attributes, base_offset, last_offset (None without records),
        next_offset (the least that the next record may have), record_count, base_timestamp_ms, max_timestamp_ms,
        partition_leader_epoch, is_transactional, is_control. offset_of_max_timestamp; records_size_in_bytes
        (uncompressed, without the header); estimated_compression_ratio (that of a batch that is not closed; may be
        set); is_open (it takes records); records_type (what build() makes).
    Raises: ValueError if the arguments contradict each other.
    Threads: not safe.
    Source: Kafka MemoryRecordsBuilder.
    """

    __slots__ = ()
    records_type = MemoryRecords

    if TYPE_CHECKING:

        def build(self) -> MemoryRecords: ...

    else:
        append = append_of_builder  # as in MemoryRecordsBuilderCore, for calls by name

    def codec_id_of(self, compression: str | int, level: int | None) -> int:
        """Return the id of a codec and check its level; called by the constructor.

        Raises: ValueError for an unknown name or a level out of range.
        """
        codec = compression if isinstance(compression, CompressionType) else CompressionType.for_name(str(compression))
        if level is not None:
            level_of(codec, level)
        return codec

    @property
    def compression(self) -> CompressionType:
        return CompressionType(self.attributes & CODEC_BITS)

    @property
    def timestamp_type(self) -> TimestampType:
        """Where the timestamps of the records come from."""
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        is_append_time = self.attributes & TIMESTAMP_TYPE_BIT
        return TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME

    @property
    def info(self) -> RecordsInfo:
        """The largest timestamp, and the offset that a time index gives for it.

        For a V2 batch or a wrapper this is the last offset. For plain V1 messages it is the offset of the message with
        that timestamp, or with LOG_APPEND_TIME the base offset.
        """
        last_offset = self.last_offset
        is_append_time = self.timestamp_type == TimestampType.LOG_APPEND_TIME
        max_timestamp_ms = self.log_append_time_ms if is_append_time else self.max_timestamp_ms
        if last_offset is None or max_timestamp_ms == NO_TIMESTAMP:
            return RecordsInfo(max_timestamp_ms, -1)
        if self.magic == MAGIC_V2 or self.compression != CompressionType.NONE:
            return RecordsInfo(max_timestamp_ms, last_offset)
        return RecordsInfo(max_timestamp_ms, self.base_offset if is_append_time else self.offset_of_max_timestamp)

    def append_control_record(
        self, control_type: ControlRecordType, value: bytes | None, *, timestamp_ms: int
    ) -> MemoryRecordsBuilder:
        """Append a control record at the next offset and return self.

        Raises: ValueError as append, and for ControlRecordType.UNKNOWN.
        """
        key = control_record_key(control_type)
        record = Record(offset=self.next_offset, timestamp_ms=timestamp_ms, key=key, value=value, is_control=True)
        return self.append(record)

    def append_end_transaction_marker(
        self, control_type: ControlRecordType, *, timestamp_ms: int, coordinator_epoch: int
    ) -> MemoryRecordsBuilder:
        """Append the marker that ends a transaction, ABORT or COMMIT, and return self.

        Raises: ValueError as append, for another type, or if the batch has no producer id or is not transactional.
        """
        if self.producer_id == NO_PRODUCER_ID:
            raise ValueError("an end transaction marker needs a producer id")
        if not self.is_transactional:
            raise ValueError("an end transaction marker needs a transactional batch")
        value = end_transaction_marker_value(control_type, coordinator_epoch=coordinator_epoch)
        return self.append_control_record(control_type, value, timestamp_ms=timestamp_ms)

    def close_for_record_appends(self) -> None:
        """Take no more records, and compress them; producer fields can still be set."""
        self.end_appends(self.compress_records)

    def close(self) -> None:
        """Finish the batch; without records it has no bytes. A second call does nothing.

        Raises: ValueError if it was aborted or its producer fields contradict each other.
        """
        self.build()

    def compress_records(self, codec_id: int, records: memoryview, level: int | None) -> Payload:
        """Return the records compressed by a codec, with the framing for the batch's magic."""
        return compress(codec_id, records, level, magic=self.magic)


def with_records(
    records: Iterable[Record],
    *,
    magic: int = MAGIC_V2,
    base_offset: int = 0,
    offsets: Iterable[int] | None = None,
    compression: str | CompressionType = "none",
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int = NO_TIMESTAMP,
    wrapper_timestamp_ms: int | None = None,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> MemoryRecords:
    """Return the records as one batch, a wrapper (magic 0 and 1 with a codec) or plain messages; empty for no records.

    Args:
        base_offset: the offset of the first record; the others follow. The records' own offsets are ignored.
        offsets: rising offsets to use instead, one for each record: for example the records' own (`(r.offset for r in
            records)`), or an iterator shared by several calls (`itertools.count`). Exactly one is taken per record.
        wrapper_timestamp_ms: the timestamp of a wrapper of magic 1; None for the largest of its records.
        The others are those of MemoryRecordsBuilder.
    Raises: ValueError as MemoryRecordsBuilder, if there are fewer offsets than records, or for a wrapper timestamp
        without a wrapper of magic 1 and CREATE_TIME; TypeError.
    """
    pairs = _with_offsets(records, offsets)
    first = next(pairs, None)
    builder = MemoryRecordsBuilder(
        magic=magic,
        base_offset=base_offset if first is None or first[1] is None else first[1],
        compression=compression,
        level=level,
        timestamp_type=timestamp_type,
        log_append_time_ms=log_append_time_ms,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )
    is_wrapper = magic == MAGIC_V1 and builder.compression != CompressionType.NONE
    if wrapper_timestamp_ms is not None and (not is_wrapper or timestamp_type != TimestampType.CREATE_TIME):
        raise ValueError("wrapper_timestamp_ms is for a compressed batch of magic 1 with CREATE_TIME")
    while first is not None:
        record, offset = first
        builder.append(record, offset=builder.next_offset if offset is None else offset)
        first = next(pairs, None)
    built = builder.build()
    if wrapper_timestamp_ms is None or not len(built):
        return built
    wrapper = bytearray(bytes(built))
    set_max_timestamp(wrapper, max_timestamp_ms=wrapper_timestamp_ms)
    return MemoryRecords(wrapper)


def _with_offsets(records: Iterable[Record], offsets: Iterable[int] | None) -> Iterator[tuple[Record, int | None]]:
    """Yield each record with its offset, or None for the next one; take no more offsets than records."""
    given = None if offsets is None else iter(offsets)
    for number, record in enumerate(records):
        if given is None:
            yield record, None
            continue
        offset = next(given, None)
        if offset is None:
            raise ValueError(f"expected an offset for each record, got {number}")
        yield record, offset


def with_idempotent_records(
    records: Iterable[Record],
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    base_offset: int = 0,
    compression: str | CompressionType = "none",
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> MemoryRecords:
    """Return the records as one batch of an idempotent producer; see with_records."""
    return with_records(
        records,
        base_offset=base_offset,
        compression=compression,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def with_transactional_records(
    records: Iterable[Record],
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    base_offset: int = 0,
    compression: str | CompressionType = "none",
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> MemoryRecords:
    """Return the records as one batch of a transaction; see with_records."""
    return with_records(
        records,
        base_offset=base_offset,
        compression=compression,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=True,
    )


def with_end_transaction_marker(
    marker: EndTransactionMarker,
    *,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> MemoryRecords:
    """Return a batch with only a marker, which ends a transaction.

    Raises: ValueError without a producer id and epoch, or for a timestamp or offset that no record can have.
    """
    builder = MemoryRecordsBuilder(
        base_offset=offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )
    builder.append_control_record(marker.control_type, marker.to_bytes(), timestamp_ms=timestamp_ms)
    return builder.build()


def with_kraft_control_record(
    value: KRaftControlRecord, *, timestamp_ms: int, partition_leader_epoch: int, offset: int = 0
) -> MemoryRecords:
    """Return a batch with one control record of a KRaft log: snapshot header or footer, KRaft version, voters, leader.

    Raises: ValueError for a leader change without a leader epoch, and as MemoryRecordsBuilder.
    """
    if value.control_type is ControlRecordType.LEADER_CHANGE and partition_leader_epoch == NO_PARTITION_LEADER_EPOCH:
        raise ValueError("a leader change message needs a partition leader epoch")
    builder = MemoryRecordsBuilder(base_offset=offset, partition_leader_epoch=partition_leader_epoch, is_control=True)
    builder.append_control_record(value.control_type, value.to_bytes(), timestamp_ms=timestamp_ms)
    return builder.build()


def with_leader_change_message(
    message: LeaderChangeMessage, *, timestamp_ms: int, partition_leader_epoch: int, offset: int = 0
) -> MemoryRecords:
    """Return the batch that starts the epoch of a KRaft leader; see with_kraft_control_record."""
    return with_kraft_control_record(
        message, timestamp_ms=timestamp_ms, partition_leader_epoch=partition_leader_epoch, offset=offset
    )
