"""Formats whose columns have other types: those that Spark and tables have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kstore.values.decoded import BadValue, ColumnFormat, DecodedValues, Unions, ValueReader, Wanted


@dataclass(frozen=True)
class ConvertedFormat:
    """A format whose columns are converted.

    Args: inner: the format; wanted: the fields that are decoded; target: the type that they become. Fields of a struct
        are those of the same name. Nanoseconds may be lost; a value that does not fit is a bad one.
    """

    inner: ColumnFormat
    wanted: Wanted
    target: pa.DataType

    @property
    def reads_headers(self) -> bool:
        return self.inner.reads_headers

    @property
    def reads_views(self) -> bool:
        return self.inner.reads_views

    def type(self, _wanted: Wanted) -> pa.DataType:
        return self.target

    def unions(self, _wanted: Wanted) -> Unions:
        return self.inner.unions(self.wanted)

    def reader(self, _wanted: Wanted, *, most_bytes: int) -> ValueReader:
        reader = self.inner.reader(self.wanted, most_bytes=most_bytes)
        return reader if self.inner.type(self.wanted) == self.target else _ConvertingReader(reader, self.target)


class _ConvertingReader:
    """Decodes as another reader does, and converts."""

    def __init__(self, reader: ValueReader, target: pa.DataType) -> None:
        self._reader = reader
        self._target = target
        self._options = pc.CastOptions(target, allow_time_truncate=True)

    def decode(self, array: pa.BinaryArray, headers: pa.ListArray | None = None) -> Iterator[DecodedValues]:
        for part in self._reader.decode(array, headers):
            try:
                yield part._replace(values=pc.cast(part.values, options=self._options))
            except pa.ArrowInvalid:
                yield self._row_by_row(part)

    def _row_by_row(self, part: DecodedValues) -> DecodedValues:
        rows, bad = [], list(part.bad)
        for row in range(len(part.values)):
            try:
                rows.append(pc.cast(part.values.slice(row, 1), options=self._options))
            except pa.ArrowInvalid as error:
                rows.append(pa.nulls(1, self._target))
                bad.append(BadValue(row, str(error)))
        return DecodedValues(part.start, pa.concat_arrays(rows), sorted(bad))


# As Spark's from_protobuf has them.
_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


_DOC, _JSON_TEXT = b"doc", b"JSON text"


def common_field(name: str, arrow_type: pa.DataType) -> pa.Field:
    """Return a field of the nearest type that Spark and tables have.

    Metadata says which fields have JSON as text: Delta Lake keeps it, Iceberg as the comment of the column.
    """
    return pa.field(name, common_type(arrow_type), metadata={_DOC: _JSON_TEXT} if _has_json(arrow_type) else None)


def is_json_text(field: pa.Field) -> bool:
    """Whether a field of a table has JSON as text, or lists or maps of it."""
    doc: bytes = (field.metadata or {}).get(_DOC, b"")
    return doc == _JSON_TEXT


def _has_json(arrow_type: pa.DataType) -> bool:
    """Whether a type has JSON outside of structs, whose fields have metadata themselves."""
    if pa.types.is_list(arrow_type):
        return _has_json(arrow_type.value_type)
    if pa.types.is_map(arrow_type):
        return _has_json(arrow_type.item_type)
    # Older versions of pyarrow have no class for it.
    return isinstance(arrow_type, pa.BaseExtensionType) and arrow_type.extension_name == "arrow.json"


def common_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the nearest type that Spark and tables have.

    They have no nanoseconds, times of day, durations, unsigned numbers, sizes of bytes, extensions, or null.
    """
    kinds = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        return common_type(arrow_type.storage_type)
    if kinds.is_timestamp(arrow_type):
        return pa.timestamp("us", arrow_type.tz)
    if kinds.is_time32(arrow_type):
        return pa.int32()
    if kinds.is_time64(arrow_type) or kinds.is_duration(arrow_type):
        return pa.int64()
    if kinds.is_decimal256(arrow_type) or kinds.is_null(arrow_type):
        return pa.string()
    if kinds.is_fixed_size_binary(arrow_type):
        return pa.binary()
    if kinds.is_struct(arrow_type):
        return pa.struct([common_field(field.name, field.type) for field in arrow_type])
    if kinds.is_list(arrow_type):
        return pa.list_(pa.field("element", common_type(arrow_type.value_type)))
    if kinds.is_map(arrow_type):
        return pa.map_(common_type(arrow_type.key_type), common_type(arrow_type.item_type))
    return _SIGNED.get(arrow_type, arrow_type)
