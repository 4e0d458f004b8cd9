"""The header-only walk over a .log, the slow way: what kstore._core.HeaderScan must find.

After docs/format.md, "Walking a log"; never imports kstore.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.reference import codec as reference
from tests.reference.codec import HEADER_BYTES, HEADER_BYTES_UP_TO_MAGIC, Header
from tests.reference.messages import ATTRIBUTES_AT, CODEC_MASK, OVERHEADS

TIMESTAMP_AT = 18
LEAST_BATCH_BYTES = {**OVERHEADS, 2: HEADER_BYTES}


@dataclass
class Walk:
    """Where a walk ended (see the table in docs/format.md) and what it passed."""

    status: str = "end"
    position: int = 0
    found: Header | None = None
    error: str | None = None
    batch_count: int = 0
    record_count: int = 0
    last_offset: int = -1
    max_timestamp_ms: int = -1
    offset_of_max_timestamp: int = -1


def walk(
    data: bytes,
    *,
    position: int = 0,
    base_offset: int = 0,
    previous_last_offset: int = -1,
    max_batch_bytes: int = reference.MAX_BATCH_BYTES,
    stop_offset: int | None = None,
    stop_timestamp_ms: int | None = None,
) -> Walk:
    """Walk data[position:], batch by batch."""
    out = Walk(position=position)
    least_offset = max(base_offset, previous_last_offset + 1)
    while out.position < len(data):
        left = len(data) - out.position
        if not any(data[out.position : out.position + HEADER_BYTES_UP_TO_MAGIC]):
            out.status, out.error = "zeros", "CorruptRecordError"
            return out
        if left < HEADER_BYTES_UP_TO_MAGIC:
            out.status, out.error = "torn", "CorruptRecordError"
            return out
        header = header_at(data, out.position)
        out.error = _frame_error(header, max_batch_bytes)
        if out.error is None and left >= LEAST_BATCH_BYTES[header.magic]:
            out.error = _offset_error(header, least_offset)
        if out.error is not None:
            out.status = "corrupt"
            return out
        if header.size > left:
            out.status, out.error = "torn", "CorruptRecordError"
            return out
        reaches_offset = stop_offset is not None and header.last_offset >= stop_offset
        if reaches_offset or (stop_timestamp_ms is not None and header.max_timestamp_ms >= stop_timestamp_ms):
            out.status = "found"
            out.found = header
            return out
        least_offset = header.last_offset + 1
        out.position += header.size
        out.batch_count += 1
        out.record_count += max(header.record_count, 0)
        out.last_offset = header.last_offset
        if header.max_timestamp_ms > out.max_timestamp_ms:
            out.max_timestamp_ms = header.max_timestamp_ms
            out.offset_of_max_timestamp = header.last_offset
    return out


def header_at(data: bytes, position: int) -> Header:
    """The header of the batch there; of a message its offset, size, magic, timestamp and, unless a wrapper, count 1."""
    header = Header.unpack(data[position : position + HEADER_BYTES].ljust(HEADER_BYTES, b"\0"))
    if header.magic not in OVERHEADS:
        return header
    attributes = data[position + ATTRIBUTES_AT] if position + ATTRIBUTES_AT < len(data) else 0
    stamp = data[position + TIMESTAMP_AT : position + TIMESTAMP_AT + 8]
    return Header(
        base_offset=header.base_offset,
        batch_length=header.batch_length,
        magic=header.magic,
        max_timestamp_ms=int.from_bytes(stamp, "big", signed=True) if header.magic else -1,
        record_count=0 if attributes & CODEC_MASK else 1,
    )


def _frame_error(header: Header, max_batch_bytes: int) -> str | None:
    if header.magic != 2 and header.magic not in OVERHEADS:
        return "UnsupportedMagicError"
    if not OVERHEADS.get(header.magic, HEADER_BYTES) <= header.size <= max_batch_bytes:
        return "CorruptRecordError"
    return None


def _offset_error(header: Header, least_offset: int) -> str | None:
    if header.base_offset < 0:
        return "CorruptRecordError"
    if header.last_offset_delta < 0:
        return "InvalidRecordError"
    if header.last_offset >= reference.MAX_INT64 or header.base_offset < least_offset:
        return "CorruptRecordError"
    return None
