"""Drive kstore._core.ColumnDecoder over bytes in memory and read its buffers back, without Arrow.

The buffers are taken apart with struct, so that what a test sees is the layout itself.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kstore import _core
from kstore.compression import decompress
from tests.reference import codec as reference
from tests.reference.codec import Batch, Record

MOST_TIMESTAMP_MS = (2**63 - 1) // 1000
VIEW = struct.Struct("<i4sii")
INLINE_VIEW = struct.Struct("<i12s")


class Row(NamedTuple):
    """One row; None where the column was not asked for too. Header keys are str, as in Arrow."""

    offset: int | None = None
    timestamp_us: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The columns to decode and how."""

    offset: bool = True
    timestamp: bool = True
    key: str | None = "copy"
    value: str | None = "copy"
    headers: bool = True
    batch_bytes: int = 1 << 16
    chunk_bytes: int = 1 << 16
    start_offset: int = 0
    end_offset: int | None = None
    max_decompressed_bytes: int = 64 << 20
    max_batch_bytes: int = reference.MAX_BATCH_BYTES
    verify_crc: bool = True


ALL = Wanted()


@dataclass
class Table:
    """Rows of all tables that one run gave, and per row the line of Columns.batches that covers it."""

    rows: list[Row] = field(default_factory=list)
    batches: list[dict[str, int]] = field(default_factory=list)
    table_sizes: list[int] = field(default_factory=list)


def decode_table(data: bytes, wanted: Wanted = ALL, *, position: int = 0, base_offset: int = 0) -> Table:
    """Decode data[position:] to its end, fed in chunks no larger than needed or chunk_bytes."""
    modes: dict[str, Any] = {"key": wanted.key, "value": wanted.value}
    decoder = _core.ColumnDecoder(
        **modes,
        offset=wanted.offset,
        timestamp=wanted.timestamp,
        headers=wanted.headers,
        batch_bytes=wanted.batch_bytes,
        max_batch_bytes=wanted.max_batch_bytes,
        max_decompressed_bytes=wanted.max_decompressed_bytes,
        decompress=decompress,
        start_offset=wanted.start_offset,
        end_offset=wanted.end_offset,
        verify_crc=wanted.verify_crc,
    )
    table = Table()
    decoder.start_file(position=position, end_position=len(data), base_offset=base_offset, path="x.log")
    while (progress := decoder.run()) != "done":
        if progress == "full":
            add_columns(table, decoder.take(), wanted)
        else:
            at = decoder.position
            size = max(decoder.needed, wanted.chunk_bytes)
            decoder.feed(data[at : at + size], at)
    add_columns(table, decoder.take(), wanted)
    return table


def add_columns(table: Table, columns: _core.Columns, wanted: Wanted) -> None:
    rows = columns.row_count
    parts: list[Sequence[Any]] = [
        int64s(columns.offset, rows),
        timestamps(columns, rows),
        byte_strings(columns.key, rows, is_view=wanted.key == "view"),
        byte_strings(columns.value, rows, is_view=wanted.value == "view"),
        header_lists(columns.headers, rows),
    ]
    table.rows += [Row(*row) for row in zip(*parts, strict=True)]
    table.table_sizes.append(rows)
    width = len(_core.BATCH_ROW_FIELDS)
    for values in struct.iter_unpack(f"={width}q", bytes(columns.batches)):
        line = dict(zip(_core.BATCH_ROW_FIELDS, values, strict=True))
        table.batches += [line] * line.pop("row_count")
    assert len(table.batches) == len(table.rows)


def int64s(buffer: Any, rows: int) -> Sequence[int | None]:
    if buffer is None:
        return [None] * rows
    return struct.unpack(f"={rows}q", bytes(buffer))


def timestamps(columns: _core.Columns, rows: int) -> list[int | None]:
    flags = null_flags(columns.timestamp_null_count, columns.timestamp_validity, rows)
    stamps = int64s(columns.timestamp, rows)
    assert all(stamps[row] == 0 for row in range(rows) if flags[row])
    lost = columns.lost_timestamp
    assert lost is None or (any(flags) and not -MOST_TIMESTAMP_MS <= lost[1] <= MOST_TIMESTAMP_MS)
    return [None if flags[row] else stamps[row] for row in range(rows)]


def null_flags(null_count: int, validity: Any, rows: int) -> list[bool]:
    if validity is None:
        assert null_count == 0
        return [False] * rows
    bits = bytes(validity)
    assert len(bits) == (rows + 7) // 8
    flags = [not bits[row >> 3] >> (row & 7) & 1 for row in range(rows)]
    assert sum(flags) == null_count > 0
    return flags


def byte_strings(column: Any, rows: int, *, is_view: bool = False) -> list[bytes | None]:
    if column is None:
        return [None] * rows
    null_count, validity, index, buffers = column
    flags = null_flags(null_count, validity, rows)
    if is_view:
        values = view_values(bytes(index), buffers)
    else:
        [data] = map(bytes, buffers)
        bounds = struct.unpack(f"={rows + 1}i", bytes(index))
        assert bounds[0] == 0
        assert bounds[-1] == len(data)
        assert sorted(bounds) == list(bounds)
        values = [data[bounds[n] : bounds[n + 1]] for n in range(rows)]
    assert len(values) == rows
    assert all(values[n] == b"" for n in range(rows) if flags[n])
    return [None if flags[n] else values[n] for n in range(rows)]


def view_values(index: bytes, buffers: Sequence[Any]) -> list[bytes]:
    values = []
    for at in range(0, len(index), VIEW.size):
        size, prefix, number, start = VIEW.unpack_from(index, at)
        if size <= 12:
            _, inline = INLINE_VIEW.unpack_from(index, at)
            assert not any(inline[size:]), "inline views are padded with zeros"
            values.append(inline[:size])
        else:
            value = bytes(memoryview(buffers[number])[start : start + size])
            assert len(value) == size
            assert value[:4] == prefix
            values.append(value)
    return values


def header_lists(column: Any, rows: int) -> list[tuple[tuple[str, bytes | None], ...] | None]:
    if column is None:
        return [None] * rows
    null_count, validity, index, count, keys, values = column
    flags = null_flags(null_count, validity, rows)
    bounds = struct.unpack(f"={rows + 1}i", bytes(index))
    assert (bounds[0], bounds[-1]) == (0, count)
    names = [name.decode() for name in byte_strings(keys, count) if name is not None]
    pairs = list(zip(names, byte_strings(values, count), strict=True))
    return [None if flags[n] else tuple(pairs[bounds[n] : bounds[n + 1]]) for n in range(rows)]


def expected_rows(records: Sequence[Record], wanted: Wanted = ALL) -> list[Row]:
    """The rows that records give; control records and those outside the offsets are left out."""
    end_offset = 2**63 if wanted.end_offset is None else wanted.end_offset
    return [
        expected_row(record, wanted)
        for record in records
        if not record.is_control and wanted.start_offset <= record.offset < end_offset
    ]


def expected_row(record: Record, wanted: Wanted) -> Row:
    headers = tuple((key.decode("utf-8", "replace"), value) for key, value in record.headers)
    return Row(
        offset=record.offset if wanted.offset else None,
        timestamp_us=expected_microseconds(record.timestamp_ms) if wanted.timestamp else None,
        key=expected_bytes(record.key, wanted.key),
        value=expected_bytes(record.value, wanted.value),
        headers=(headers or None) if wanted.headers else None,
    )


def expected_bytes(data: bytes | None, mode: str | None) -> bytes | None:
    if mode is None or data is None:
        return None
    return data.decode("utf-8", "replace").encode() if mode == "string" else data


def expected_microseconds(timestamp_ms: int) -> int | None:
    """The timestamp of a row, None for no timestamp (-1 ms) and where int64 microseconds can't hold it."""
    is_null = timestamp_ms == -1 or not -MOST_TIMESTAMP_MS <= timestamp_ms <= MOST_TIMESTAMP_MS
    return None if is_null else timestamp_ms * 1000


def expected_batch_line(batch: Batch) -> dict[str, int]:
    """The line of Columns.batches for a batch, without its row count."""
    header = batch.header
    return {
        "position": batch.position,
        "base_offset": header.base_offset,
        "attributes": header.attributes,
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "magic": header.magic,
        "timestamp_type": header.timestamp_type,
    }
