"""The batch that spans the end of a restore, rebuilt so that its records end exactly there."""

from __future__ import annotations

import struct
from typing import NamedTuple

from kstore._core import (
    ATTRIBUTES_POSITION,
    CODEC_BITS,
    CRC_POSITION,
    MAX_TIMESTAMP_POSITION,
    RECORD_BATCH_OVERHEAD,
    Record,
    crc32c,
)
from kstore.compression import compress, decompress
from kstore.config import LogConfig
from kstore.record.batches import RecordBatch
from kstore.record.builder import MemoryRecordsBuilder
from kstore.types import MAGIC_V2, NO_TIMESTAMP, TimestampType

_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
# Fields of the header of a V2 batch, see docs/format.md.
_LENGTH_POSITION, _LAST_OFFSET_DELTA_POSITION, _BASE_TIMESTAMP_POSITION, _COUNT_POSITION = 8, 23, 27, 57
_LENGTH_STARTS_AT = 12


class CutBatch(NamedTuple):
    """What is left of a batch below an offset. content: empty if nothing is; record_count: of its records."""

    content: bytes
    record_count: int


def batch_below(offset: int, batch: RecordBatch, *, config: LogConfig) -> CutBatch:
    """Return a batch without its records from `offset` on.

    Of a V2 batch everything else is as it was: base offset, producer and its sequence, leader epoch, attributes, the
    bytes of each record; its last offset is offset - 1, also if that record was compacted away. Only the largest
    timestamp, the count and the CRC are new, and what a codec made of the records. A compressed V0 or V1 message is
    built again with the records below the offset.
    Args: offset: above the batch's base offset, and not above its last offset.
    Raises: CorruptRecordError, InvalidRecordError, DecompressionError, UnsupportedError.
    Cost: decompresses, decodes and compresses the batch once.
    """
    kept = [record for record in batch.records() if record.offset < offset]
    if batch.magic >= MAGIC_V2:
        return CutBatch(_cut(bytes(batch), batch, kept, offset=offset, config=config), len(kept))
    return CutBatch(_messages_of(batch, kept), len(kept))


def _cut(data: bytes, batch: RecordBatch, kept: list[Record], *, offset: int, config: LogConfig) -> bytes:
    payload: bytes | bytearray | memoryview = memoryview(data)[RECORD_BATCH_OVERHEAD:]
    cut = bytearray(data[:RECORD_BATCH_OVERHEAD])
    codec = batch.header.codec
    if not kept:
        # As a cleaner leaves a batch without records: nothing to decompress, and no base timestamp.
        cut[ATTRIBUTES_POSITION + 1] &= ~CODEC_BITS
        _INT64.pack_into(cut, _BASE_TIMESTAMP_POSITION, NO_TIMESTAMP)
        codec = 0
    if codec:
        payload = decompress(codec, payload, config.max_decompressed_bytes)
    payload = memoryview(payload)[: _end_of_records(payload, len(kept))]
    if codec:
        payload = compress(codec, payload)
    cut += payload
    max_timestamp_ms = max((record.timestamp_ms for record in kept), default=batch.max_timestamp_ms)
    if batch.timestamp_type == TimestampType.LOG_APPEND_TIME:
        max_timestamp_ms = batch.max_timestamp_ms
    _INT32.pack_into(cut, _LENGTH_POSITION, len(cut) - _LENGTH_STARTS_AT)
    _INT32.pack_into(cut, _LAST_OFFSET_DELTA_POSITION, offset - 1 - batch.base_offset)
    _INT64.pack_into(cut, MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    _INT32.pack_into(cut, _COUNT_POSITION, len(kept))
    _UINT32.pack_into(cut, CRC_POSITION, crc32c(memoryview(cut)[ATTRIBUTES_POSITION:]))
    return bytes(cut)


def _end_of_records(payload: bytes | bytearray | memoryview, count: int) -> int:
    """Return the position after the first `count` records; each begins with its size as a varint (zigzag)."""
    position = 0
    for _ in range(count):
        size, shift = 0, 0
        while True:
            byte = payload[position]
            position += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        position += (size >> 1) ^ -(size & 1)
    return position


def _messages_of(batch: RecordBatch, kept: list[Record]) -> bytes:
    if not kept:
        return b""
    timestamp_type = batch.timestamp_type if batch.magic else TimestampType.CREATE_TIME
    is_append_time = timestamp_type == TimestampType.LOG_APPEND_TIME
    builder = MemoryRecordsBuilder(
        magic=batch.magic,
        compression=batch.compression,
        timestamp_type=timestamp_type,
        base_offset=kept[0].offset,
        log_append_time_ms=batch.max_timestamp_ms if is_append_time else -1,
    )
    for record in kept:
        builder.append(record)
    return bytes(builder.build().buffer)
