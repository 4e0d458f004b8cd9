"""Assembler: decoded columns as Arrow record batches, without a copy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from kstore._core import BATCH_ROW_FIELDS, CODEC_BITS, CONTROL_BIT, TRANSACTIONAL_BIT, Columns, ExportedBatch
from kstore.arrow.columns import TYPES
from kstore.compression import CompressionType
from kstore.config import MAX_INT32
from kstore.log.files.columns import ColumnSelection, Mode

_logger = logging.getLogger("kstore.arrow")

_MODES: dict[int, Mode] = {pa.string().id: "string", pa.binary_view().id: "view"}
_DECODED = frozenset({"offset", "timestamp", "key", "value", "headers"})
_FIELD = {name: number for number, name in enumerate(BATCH_ROW_FIELDS)}
# Above so many rows, a repeated value has no spare ones.
_MOST_SPARE_ROWS = 1 << 20
_PER_BATCH: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "timestampType": ("timestamp_type", lambda timestamp_type: timestamp_type),
    "magic": ("magic", lambda magic: magic),
    "leaderEpoch": ("leader_epoch", lambda epoch: epoch),
    "producerId": ("producer_id", lambda producer_id: producer_id),
    "producerEpoch": ("producer_epoch", lambda epoch: epoch),
    "isTransactional": ("attributes", lambda attributes: attributes & TRANSACTIONAL_BIT != 0),
    "isControl": ("attributes", lambda attributes: attributes & CONTROL_BIT != 0),
    "position": ("position", lambda position: position),
}


class Projection:
    """The columns that the decoder must produce for a schema, and whether the scan logged its warning. Thread-safe."""

    def __init__(self, arrow_schema: pa.Schema, *, verify_crc: bool) -> None:
        names = set(arrow_schema.names)
        self._has_warned = False
        self.schema = arrow_schema
        decoded = {"key", "value", "timestamp", "headers"} & names
        self.selection = ColumnSelection(
            key=_mode(arrow_schema, "key"),
            value=_mode(arrow_schema, "value"),
            offset=bool({"offset", "sequence"} & names) or not decoded,
            timestamp="timestamp" in names,
            headers="headers" in names,
            verify_crc=verify_crc,
        )

    def warn_of_null(self, *, offset: int, timestamp_ms: int, partition: Mapping[str, object]) -> None:
        """Log a warning about the first timestamp of the scan that is null because it does not fit microseconds."""
        if self._has_warned:
            return
        self._has_warned = True
        where = "a batch in memory" if partition["topic"] is None else "{topic}-{partition}".format(**partition)
        _logger.warning(
            "timestamp %d ms of the record at offset %d of %s does not fit a column of microseconds: it is read "
            "as null, and so are later ones, without a warning; to read no timestamps, leave the column out of the "
            "schema or of columns",
            timestamp_ms,
            offset,
            where,
        )


def _mode(arrow_schema: pa.Schema, name: str) -> Mode | None:
    at = arrow_schema.get_field_index(name)
    return None if at < 0 else _MODES.get(arrow_schema.field(at).type.id, "copy")


# An array in the form that ExportedBatch takes: (length, null_count, buffers, children).
_Exported: TypeAlias = tuple[int, int, Sequence[Any], Sequence[Any]]


class Assembler:
    """Makes record batches from the Columns of one partition, without a copy. Not thread-safe.

    Constant columns are built once and shared by the batches.
    """

    def __init__(self, projection: Projection, *, topic: str | None = None, partition: int | None = None) -> None:
        self._projection = projection
        self._schema = projection.schema
        self._names: list[str] = projection.schema.names
        self._is_decoded = _DECODED.issuperset(self._names)
        self._constants = {"topic": topic, "partition": partition}
        self._repeated: dict[str, tuple[object, _Exported]] = {}

    def record_batch(self, columns: Columns) -> pa.RecordBatch:
        if columns.lost_timestamp is not None:
            offset, timestamp_ms = columns.lost_timestamp
            self._projection.warn_of_null(offset=offset, timestamp_ms=timestamp_ms, partition=self._constants)
        column = columns.exported if self._is_decoded else partial(self._column, columns)
        exported = ExportedBatch(list(map(column, self._names)), row_count=columns.row_count)
        batch = pa.RecordBatch._import_from_c(exported.address, self._schema)
        count = columns.end - columns.start
        return batch if count == columns.row_count else batch.slice(columns.start, count)

    def _column(self, columns: Columns, name: str) -> _Exported:
        if name in _DECODED:
            return columns.exported(name)
        if name in self._constants:
            return self._constant(name, self._constants[name], columns.row_count)
        return self._per_batch(name, columns)

    def _per_batch(self, name: str, columns: Any) -> _Exported:
        table = np.frombuffer(memoryview(columns.batches), np.int64).reshape(-1, len(BATCH_ROW_FIELDS))
        if name == "sequence":
            return _exported(_numbers(_sequences(columns, table), TYPES[name]))
        if name == "codec":
            codecs = _spread(table, table[:, _FIELD["attributes"]] & CODEC_BITS)
            return _exported(_strings([codec.label for codec in CompressionType]).take(_numbers(codecs, pa.int64())))
        source, of = _PER_BATCH[name]
        per_batch = of(table[:, _FIELD[source]])
        if len(per_batch) and (per_batch == per_batch[0]).all():
            return self._constant(name, per_batch[0].item(), columns.row_count)
        return _exported(_numbers(_spread(table, per_batch), TYPES[name]))

    def _constant(self, name: str, value: object, rows: int) -> _Exported:
        kept_value, kept = self._repeated.get(name, (None, None))
        if kept is None or kept_value != value or kept[0] < rows:
            # The next batch may have a few rows more.
            most = max(rows, min(rows + rows // 8, _MOST_SPARE_ROWS))
            repeated = _repeated(value, TYPES[name], most)
            kept = most, repeated.null_count, repeated.buffers(), ()
            self._repeated[name] = value, kept
        _, null_count, buffers, children = kept
        return rows, rows if null_count else 0, buffers, children


# pa.array and pa.scalar import pandas where it is installed, which takes longer than a short scan.


@lru_cache(maxsize=256)
def _one(value: Any, arrow_type: pa.DataType) -> pa.Array:
    """Return an array of one value: None, a string, a number or a bool."""
    if value is None:
        return pa.nulls(1, arrow_type)
    return _strings([value]) if isinstance(value, str) else _numbers(np.array([value]), arrow_type)


def _repeated(value: Any, arrow_type: pa.DataType, rows: int) -> pa.Array:
    """Return an array of one value.  Cost: of a string ten times less than that of pa.repeat."""
    if not isinstance(value, str) or rows * len(encoded := value.encode()) > MAX_INT32:
        return pa.repeat(_one(value, arrow_type)[0], rows)
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.StringArray.from_buffers(rows, pa.py_buffer(ends), pa.py_buffer(encoded * rows))


def _strings(values: Sequence[str]) -> pa.Array:
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def _numbers(values: Any, arrow_type: pa.DataType) -> pa.Array:
    """Return an array of numbers, or of bools, without nulls."""
    # All of TYPES are signed; to_pandas_dtype() of pyarrow 25 and older fails where pandas is not installed.
    is_bits = pa.types.is_boolean(arrow_type)
    data = np.packbits(values, bitorder="little") if is_bits else values.astype(f"i{arrow_type.bit_width // 8}")
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(data)])


def _spread(table: Any, per_batch: Any) -> Any:
    return np.repeat(per_batch, table[:, _FIELD["row_count"]])


def _sequences(columns: Any, table: Any) -> Any:
    """Return the sequence of each row: base sequence plus offset delta modulo 2^31, or -1 without a base sequence."""
    base = _spread(table, table[:, _FIELD["base_sequence"]])
    delta = np.frombuffer(columns.offset, np.int64) - _spread(table, table[:, _FIELD["base_offset"]])
    return np.where(base < 0, -1, (base + delta) & 0x7FFFFFFF)


def _exported(array: pa.Array) -> _Exported:
    """Return an array without children in exported form; it shares the buffers."""
    return len(array), array.null_count, array.buffers(), ()
