"""Arrow data as record batches of Kafka, without a Python object per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from kstore.record.batches import MemoryRecords
from kstore.record.packing import BinaryColumn, HeadersColumn, Int64Column, RecordColumns, pack_columns


def pack_record_batch(batch: pa.RecordBatch, **options: Any) -> Iterator[MemoryRecords]:
    """Pack an Arrow record batch into Kafka record batches, without a Python object per record.

    Args: batch: columns as for record_columns; options: those of kstore.record.pack_columns.
    Returns: an iterator of MemoryRecords with one or more record batches each.
    Raises: as record_columns and pack_columns.
    Cost: one pass over Arrow's buffers; key, value and header columns that are not (large) binary or string are first
        copied into such a layout.
    """
    return pack_columns(record_columns(batch), **options)


def to_record_batches(data: Any) -> Iterable[pa.RecordBatch]:
    """Return the record batches of a record batch, table, reader or any other object with __arrow_c_stream__.

    Raises: TypeError for anything else.
    """
    if isinstance(data, pa.RecordBatch):
        return (data,)
    if isinstance(data, pa.Table):
        batches: list[pa.RecordBatch] = data.to_batches()
        return batches
    if hasattr(data, "__arrow_c_stream__"):
        reader: Iterable[pa.RecordBatch] = pa.RecordBatchReader.from_stream(data)
        return reader
    raise TypeError(f"expected Arrow data, got {type(data).__name__}")


def record_columns(batch: pa.RecordBatch, *, timestamp_ms: int | None = None) -> RecordColumns:
    """Return the columns of an Arrow record batch in the form that pack_columns takes.

    timestamp (a timestamp of any unit, or int64 ms) is required unless timestamp_ms is given for all rows. key and
    value (binary or string of any layout), headers (list of struct of key and value) and offset (any integer type) are
    optional. Other columns are refused.
    Raises: ValueError for missing, unknown or repeated columns, wrong types, or a null header; TypeError if batch is
        not a pyarrow.RecordBatch.
    Lifetime: the result references the buffers of the batch.
    """
    if not isinstance(batch, pa.RecordBatch):
        raise TypeError(f"expected a pyarrow.RecordBatch, got {type(batch).__name__}")
    names = list(batch.schema.names)
    has_timestamp = "timestamp" in names
    if len(set(names)) != len(names) or not set(names) <= _PACKED or not (has_timestamp or timestamp_ms is not None):
        raise ValueError(f"expected timestamp and some of {', '.join(sorted(_PACKED))}, each once; got {names}")
    arrays = dict(zip(names, batch.columns, strict=True))
    timestamp: Int64Column | int = 0 if timestamp_ms is None else timestamp_ms
    units_per_ms = 1
    if has_timestamp:
        numbers, units_per_ms = _timestamps(arrays["timestamp"])
        timestamp = _numbers(numbers)
    return RecordColumns(
        row_count=batch.num_rows,
        timestamp=timestamp,
        key=_binary(arrays["key"]) if "key" in arrays else None,
        value=_binary(arrays["value"]) if "value" in arrays else None,
        headers=_header_lists(arrays["headers"]) if "headers" in arrays else None,
        offset=_offsets(arrays["offset"]) if "offset" in arrays else None,
        units_per_ms=units_per_ms,
    )


_PACKED = {"timestamp", "key", "value", "headers", "offset"}
_UNITS_PER_MS = {"ms": 1, "us": 1000, "ns": 1_000_000}


def _timestamps(array: pa.Array) -> tuple[pa.Array, int]:
    """Return the timestamps as an int64 or timestamp array, and the number of their units per millisecond."""
    if pa.types.is_int64(array.type):
        return array, 1
    if not pa.types.is_timestamp(array.type):
        raise ValueError(f"timestamp must be a timestamp or int64 column, got {array.type}")
    if array.type.unit == "s":
        array = array.cast(pa.timestamp("ms", array.type.tz))
    return array, _UNITS_PER_MS[array.type.unit]


def _offsets(array: pa.Array) -> Int64Column:
    if not pa.types.is_integer(array.type):
        raise ValueError(f"offset must be a column of integers, got {array.type}")
    return _numbers(array.cast(pa.int64()))


def _numbers(array: pa.Array) -> Int64Column:
    validity, data = array.buffers()
    return Int64Column(b"" if data is None else data, validity, array.offset)


def _binary(array: pa.Array) -> BinaryColumn:
    kind = array.type
    is_large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not _is_taken_as_it_is(kind):
        try:
            array, is_large = array.cast(pa.large_binary()), True
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise ValueError(f"expected a binary or string column, got {kind}") from error
    validity, offsets, data = array.buffers()
    return BinaryColumn(
        offsets=b"" if offsets is None else offsets,
        data=b"" if data is None else data,
        validity=validity,
        start=array.offset,
        offset_bytes=8 if is_large else 4,
    )


def _is_taken_as_it_is(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
    )


def _header_lists(array: pa.Array) -> HeadersColumn:
    kind = array.type
    is_large = pa.types.is_large_list(kind)
    if not (is_large or pa.types.is_list(kind)) or not pa.types.is_struct(kind.value_type):
        raise ValueError(f"headers must be a list of structs of key and value, got {kind}")
    names = [kind.value_type.field(number).name for number in range(kind.value_type.num_fields)]
    if names != ["key", "value"]:
        raise ValueError(f"headers must be a list of structs of key and value, got {kind}")
    if not all(_is_taken_as_it_is(kind.value_type.field(number).type) for number in range(2)):
        # The cast below copies all headers of the parent array. Concatenating first copies those of this slice only.
        array = pa.concat_arrays([array])
    structs = array.values
    if structs.null_count and array.flatten().null_count:
        raise ValueError("a header is null: expected a struct with a key")
    validity, offsets = array.buffers()[:2]
    return HeadersColumn(
        offsets=b"" if offsets is None else offsets,
        keys=_binary(structs.field(0)),
        values=_binary(structs.field(1)),
        validity=validity,
        start=array.offset,
        offset_bytes=8 if is_large else 4,
    )
