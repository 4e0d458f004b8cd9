"""Columns made by struct alone, and the batches that must come of them, by the reference codec."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from kstore.record.packing import BinaryColumn, HeadersColumn, Int64Column, RecordColumns
from tests import reference


def bits(flags: Sequence[bool]) -> bytes:
    """Arrow's validity bitmap."""
    out = bytearray(-(-len(flags) // 8))
    for number, flag in enumerate(flags):
        out[number >> 3] |= flag << (number & 7)
    return bytes(out)


def int64_column(numbers: Sequence[int | None], *, padding: int = 0) -> Int64Column:
    """padding: foreign elements in front, which `start` skips."""
    stored = [77] * padding + [99 if number is None else number for number in numbers]
    validity = bits([True] * padding + [number is not None for number in numbers]) if None in numbers else None
    return Int64Column(struct.pack(f"={len(stored)}q", *stored), validity, padding)


def offsets_of(sizes: Sequence[int], *, offset_bytes: int) -> bytes:
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    return struct.pack(f"={len(ends)}{'i' if offset_bytes == 4 else 'q'}", *ends)


def binary_column(values: Sequence[bytes | None], *, padding: int = 0, offset_bytes: int = 4) -> BinaryColumn:
    stored = [b"foreign"] * padding + [value or b"" for value in values]
    validity = bits([True] * padding + [value is not None for value in values]) if None in values else None
    sizes = [len(value) for value in stored]
    return BinaryColumn(offsets_of(sizes, offset_bytes=offset_bytes), b"".join(stored), validity, padding, offset_bytes)


def headers_column(
    rows: Sequence[Sequence[tuple[bytes, bytes | None]] | None], *, padding: int = 0, offset_bytes: int = 4
) -> HeadersColumn:
    lists: list[Sequence[tuple[bytes, bytes | None]]] = [[(b"foreign", b"")]] * padding + [row or () for row in rows]
    flat = [header for row in lists for header in row]
    keys = binary_column([key for key, _ in flat], offset_bytes=offset_bytes)
    values = binary_column([value for _, value in flat], padding=padding, offset_bytes=offset_bytes)
    validity = bits([True] * padding + [row is not None for row in rows]) if None in rows else None
    index = offsets_of([len(row) for row in lists], offset_bytes=offset_bytes)
    return HeadersColumn(index, keys, values, validity, padding, offset_bytes)


def columns_of(
    records: Sequence[reference.Record], *, padding: int = 0, offset_bytes: int = 4, has_offsets: bool = True
) -> RecordColumns:
    """The columns of records, in ms."""
    shape = {"padding": padding, "offset_bytes": offset_bytes}
    return RecordColumns(
        row_count=len(records),
        timestamp=int64_column([record.timestamp_ms for record in records], padding=padding),
        key=binary_column([record.key for record in records], **shape),
        value=binary_column([record.value for record in records], **shape),
        headers=headers_column([record.headers for record in records], **shape),
        offset=int64_column([record.offset for record in records], padding=padding) if has_offsets else None,
    )


def cut(records: Sequence[reference.Record], *, batch_bytes: int) -> Iterator[list[reference.Record]]:
    """The records of each batch: a record that would take it above batch_bytes or 2^31 - 1 offsets starts the next."""
    batch: list[reference.Record] = []
    size = 0
    for record in records:
        first = batch[0] if batch else record
        header = reference.Header(base_offset=first.offset, base_timestamp_ms=first.timestamp_ms)
        is_near = record.offset - first.offset < 2**31
        added = len(reference.encode_record(record, header)) if is_near else 0
        if batch and (not is_near or size + added > batch_bytes):
            yield batch
            header = reference.Header(base_offset=record.offset, base_timestamp_ms=record.timestamp_ms)
            batch, size, added = [], 0, len(reference.encode_record(record, header))
        size = size + added if batch else reference.HEADER_BYTES + added
        batch.append(record)
    yield batch


def expected_batches(records: Sequence[reference.Record], *, batch_bytes: int, **options: Any) -> list[bytes]:
    """What pack_columns must give; options are those of reference.write_batch, base_sequence that of the first."""
    out = []
    for batch in cut(records, batch_bytes=batch_bytes):
        out.append(reference.write_batch(batch, **options))
        if options.get("base_sequence", -1) >= 0:
            span = batch[-1].offset - batch[0].offset + 1
            options["base_sequence"] = (options["base_sequence"] + span) % 2**31
    return out


def with_key(columns: RecordColumns, **fields: Any) -> RecordColumns:
    """The same columns with other fields in the key column."""
    assert columns.key is not None
    return columns._replace(key=columns.key._replace(**fields))
