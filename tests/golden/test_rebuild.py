"""Goal: from the records that kstore reads in a broker's batches, its builder makes the same bytes again.

Method: every batch that a producer or broker built whole (not one that compaction or a LogAppendTime rewrite changed in
place): plain ones are compared byte for byte, compressed ones by all header bytes but size and CRC, and their content.
"""

from __future__ import annotations

import struct
from typing import Any

from kstore.record import MemoryRecords, MemoryRecordsBuilder, RecordBatch
from kstore.record import batches as rewriting
from kstore.types import TimestampType
from tests.golden.sets import MAIN_SETS, OLD_FORMAT_SETS, GoldenPartition, golden_partitions
from tests.making.collecting import over
from tests.making.messages import decompressed
from tests.reference import codecs as codecs

PARTITIONS = golden_partitions(*OLD_FORMAT_SETS, MAIN_SETS[0], MAIN_SETS[-1], trees=("data",))
APPEND_TIME = TimestampType.LOG_APPEND_TIME


def header_size(batch: RecordBatch) -> int:
    return 61 if batch.magic == 2 else 26 + 8 * batch.magic


def content_of(data: bytes, batch: RecordBatch) -> bytes:
    """What the payload of a compressed batch or wrapper holds."""
    payload = data[header_size(batch) :]
    if batch.magic == 2:
        return codecs.decompress(batch.compression, payload, limit=1 << 26)
    return decompressed(payload, magic=batch.magic, codec=batch.compression)


def last_inner_offset(content: bytes) -> int:
    at = last = 0
    while at < len(content):
        last, size = struct.unpack_from(">qi", content, at)
        at += 12 + size
    return last


def base_offset_of(batch: RecordBatch) -> int:
    """What the builder counted from: V1 wrappers hold offsets relative to it."""
    if batch.magic == 1 and batch.compression:
        return batch.last_offset - last_inner_offset(content_of(bytes(batch), batch))
    return batch.base_offset


def was_built_whole(batch: RecordBatch) -> bool:
    """Whether nothing in the batch was changed after it was built: its header is what its records say."""
    records = list(batch)
    if not records or (batch.timestamp_type == APPEND_TIME and (batch.magic == 2 or batch.compression)):
        return False
    if batch.magic == 2:
        first = batch.base_timestamp_ms == records[0].timestamp_ms or batch.delete_horizon_ms is not None
        largest = batch.max_timestamp_ms == max(record.timestamp_ms for record in records)
        return first and largest and batch.last_offset == records[-1].offset
    return batch.magic == 0 or batch.max_timestamp_ms == max(record.timestamp_ms for record in records)


def rebuilt(batch: RecordBatch) -> bytes:
    options: dict[str, Any] = {}
    if batch.magic == 2:
        options = {
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "is_transactional": batch.is_transactional,
            "is_control": batch.is_control,
            "partition_leader_epoch": batch.partition_leader_epoch,
            "delete_horizon_ms": batch.delete_horizon_ms,
        }
    if batch.timestamp_type == APPEND_TIME:
        options |= {"timestamp_type": APPEND_TIME, "log_append_time_ms": batch.max_timestamp_ms}
    builder = MemoryRecordsBuilder(
        magic=batch.magic, compression=batch.compression, base_offset=base_offset_of(batch), **options
    )
    for record in batch:
        builder.append(record)
    return bytes(builder.build())


def without_size_and_crc(data: bytes, batch: RecordBatch) -> bytes:
    crc_at = 17 if batch.magic == 2 else 12
    value_size = 0 if batch.magic == 2 else 4
    return data[:8] + data[12:crc_at] + data[crc_at + 4 : header_size(batch) - value_size]


@over("partition", PARTITIONS)
def test_builder_makes_the_batches_of_brokers_again(partition: GoldenPartition) -> None:
    for path in sorted(partition.directory.glob("*.log")):
        for batch in MemoryRecords(path.read_bytes(), path=str(path)).batches():
            if not was_built_whole(batch):
                continue
            data, again = bytes(batch), rebuilt(batch)
            place = (path.name, batch.position)
            if batch.compression:
                assert content_of(again, batch) == content_of(data, batch), place
                assert without_size_and_crc(again, batch) == without_size_and_crc(data, batch), place
            else:
                assert again == data, place


@over("partition", golden_partitions("v1-0.10.0.1", MAIN_SETS[-1], trees=("data",)))
def test_patching_there_and_back_gives_the_brokers_bytes(partition: GoldenPartition) -> None:
    for path in sorted(partition.directory.glob("*.log")):
        data = path.read_bytes()
        patched = bytearray(data)
        at = 0
        for batch in MemoryRecords(data).batches():
            if batch.magic and batch.header.attributes & 0xFF80 == 0:
                kind = TimestampType(1 - batch.timestamp_type)
                assert rewriting.set_max_timestamp(patched, at, max_timestamp_ms=5, timestamp_type=kind)
                rewriting.set_last_offset(patched, at, last_offset=batch.last_offset + 7)
                changed = RecordBatch(bytes(patched[at : at + batch.size_in_bytes]))
                changed.verify()
                assert (changed.max_timestamp_ms, changed.last_offset) == (5, batch.last_offset + 7), (path.name, at)
                rewriting.set_last_offset(patched, at, last_offset=batch.last_offset)
                rewriting.set_max_timestamp(
                    patched, at, max_timestamp_ms=batch.max_timestamp_ms, timestamp_type=batch.timestamp_type
                )
            at += batch.size_in_bytes
        assert patched == data, path.name
