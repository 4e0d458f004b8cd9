"""MemoryRecords made of records at once: a batch, a wrapper or plain messages (Kafka: MemoryRecords.withRecords)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kstore._core import Record
from kstore.compression import CompressionType
from kstore.record.builder import MemoryRecordsBuilder
from kstore.record.control import (
    EndTransactionMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kstore.record.memory_records import MemoryRecords
from kstore.record.rewriting import set_max_timestamp
from kstore.types import (
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TimestampType,
)

_MAGIC_V1, _MAGIC_V2 = 1, 2

KRaftControlRecord = (
    LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord
)


def with_records(
    records: Iterable[Record],
    *,
    magic: int = _MAGIC_V2,
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
    """Return the records as one batch, one wrapper (magic 0 and 1 with a codec) or plain messages; none give no bytes.

    Args:
        base_offset: offset of the first record, the others are counted on; the records' own offsets say nothing.
        offsets: one for each record in place of that, rising: those of the records (`(r.offset for r in records)`), or
            assigned by an iterator that several calls share (`itertools.count`): as many are taken as there are
            records.
        wrapper_timestamp_ms: of a wrapper of magic 1; None for the largest of its records.
        The others are those of MemoryRecordsBuilder.
    Raises: ValueError as MemoryRecordsBuilder, for offsets that end too soon, or a wrapper timestamp without a wrapper
        of magic 1 and CREATE_TIME; TypeError.
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
    is_wrapper = magic == _MAGIC_V1 and builder.compression != CompressionType.NONE
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
    """Give each record its offset, None where they are counted; take no offset too many from a shared iterator."""
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
    """Return the batch that ends a transaction: a marker alone.

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

    Raises: ValueError for a leader change without a leader epoch, or as MemoryRecordsBuilder.
    """
    if isinstance(value, LeaderChangeMessage) and partition_leader_epoch == NO_PARTITION_LEADER_EPOCH:
        raise ValueError("a leader change message needs a partition leader epoch")
    builder = MemoryRecordsBuilder(base_offset=offset, partition_leader_epoch=partition_leader_epoch, is_control=True)
    builder.append_control_record(value.control_type, value.to_bytes(), timestamp_ms=timestamp_ms)
    return builder.build()


def with_leader_change_message(
    message: LeaderChangeMessage, *, timestamp_ms: int, partition_leader_epoch: int, offset: int = 0
) -> MemoryRecords:
    """Return the batch that opens the epoch of a KRaft leader; see with_kraft_control_record."""
    return with_kraft_control_record(
        message, timestamp_ms=timestamp_ms, partition_leader_epoch=partition_leader_epoch, offset=offset
    )
