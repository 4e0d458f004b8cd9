"""Columns made and read by struct alone, and the batches that must come of them, by the reference codec."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kstore.record.packing import BinaryColumn, HeadersColumn, Int64Column, RecordColumns
from tests.reference import codec as reference


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


class TooShortError(Exception):
    """A buffer is too short for the rows, or a number of the table is out of range."""


class WrongRowError(Exception):
    """A row of the columns is no record."""


class _Index(NamedTuple):
    """The indexes and bits of a column from its start on."""

    ends: tuple[int, ...]
    is_valid: tuple[bool, ...]

    def span(self, row: int, *, size: int) -> range | None:
        """What row `row` holds of `size` elements, None for null."""
        if not self.is_valid[row]:
            return None
        first, end = self.ends[row : row + 2]
        if not 0 <= first <= end <= size:
            raise WrongRowError("index")
        return range(first, end)


def read_columns(columns: RecordColumns, *, base_offset: int = 0) -> tuple[list[reference.Record], int | None]:
    """The records up to the first wrong row, and that row. Raises: TooShortError."""
    count = columns.row_count
    if count < 0 or columns.units_per_ms < 1:
        raise TooShortError("row_count, units_per_ms")
    stamps = _numbers(columns.timestamp, count=count) if isinstance(columns.timestamp, Int64Column) else None
    offsets = None if columns.offset is None else _numbers(columns.offset, count=count)
    key = None if columns.key is None else _index_of(columns.key, count=count)
    value = None if columns.value is None else _index_of(columns.value, count=count)
    lists = None if columns.headers is None else _index_of(columns.headers, count=count)
    inner = None if columns.headers is None else (_index_of(columns.headers.keys), _index_of(columns.headers.values))
    records: list[reference.Record] = []
    least = base_offset
    for row in range(count):
        try:
            stamp = columns.timestamp if stamps is None else stamps[row]
            timestamp_ms = -1 if stamp is None else stamp // columns.units_per_ms
            offset = least if offsets is None else offsets[row]
            if timestamp_ms < -1 or offset is None or not least <= offset < 2**63 - 1:
                raise WrongRowError("number")
            cells = [
                None if index is None or column is None else _cell(column, index, row)
                for column, index in ((columns.key, key), (columns.value, value))
            ]
            headers = []
            if columns.headers is not None and lists is not None and inner is not None:
                size = min(len(index.is_valid) for index in inner)
                for number in lists.span(row, size=size) or ():
                    headers.append(_header(columns.headers, inner, number))
        except WrongRowError:
            return records, row
        records.append(reference.Record(offset, timestamp_ms, reference.CREATE_TIME, *cells, tuple(headers)))
        least = offset + 1
    return records, None


def _bits_of(validity: Any, *, start: int, count: int) -> tuple[bool, ...]:
    if validity is None:
        return (True,) * count
    if start + count > 8 * len(validity):
        raise TooShortError("validity")
    return tuple(bool(validity[n >> 3] >> (n & 7) & 1) for n in range(start, start + count))


def _numbers(column: Int64Column, *, count: int) -> list[int | None]:
    data = bytes(column.data)
    if column.start < 0 or column.start + count > len(data) // 8:
        raise TooShortError("numbers")
    stored = struct.unpack_from(f"={count}q", data, 8 * column.start)
    is_valid = _bits_of(column.validity, start=column.start, count=count)
    return [number if valid else None for number, valid in zip(stored, is_valid, strict=True)]


def _index_of(column: BinaryColumn | HeadersColumn, *, count: int | None = None) -> _Index:
    """count: None for all that the indexes and the validity are for."""
    data, start = bytes(column.offsets), column.start
    if column.offset_bytes not in (4, 8):
        raise TooShortError("offset_bytes")
    elements = max(len(data) // column.offset_bytes - 1, 0)
    if not 0 <= start <= elements or (count or 0) > elements - start:
        raise TooShortError("offsets")
    if count is None:
        known = elements if column.validity is None else min(elements, 8 * len(bytes(column.validity)))
        count = max(known - start, 0)
    kind = "i" if column.offset_bytes == 4 else "q"
    stored = struct.unpack_from(f"={len(data) // column.offset_bytes}{kind}", data)
    return _Index(stored[start : start + count + 1], _bits_of(column.validity, start=start, count=count))


def _cell(column: BinaryColumn, index: _Index, row: int) -> bytes | None:
    span = index.span(row, size=len(bytes(column.data)))
    return None if span is None else bytes(column.data)[span.start : span.stop]


def _header(headers: HeadersColumn, inner: tuple[_Index, _Index], number: int) -> tuple[bytes, bytes | None]:
    key = _cell(headers.keys, inner[0], number)
    if key is None:
        raise WrongRowError("null header key")
    try:
        key.decode()
    except UnicodeDecodeError:
        raise WrongRowError("header key") from None
    return key, _cell(headers.values, inner[1], number)
