"""Columns as values that JSON can hold."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from kstore.serializers import plain_number
from kstore.values.decoded import Unions

_kinds = pa.types
# What numpy calls the lowest number.
_NO_TIME = "NaT"
# The digits of a part of a second.
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DATE_BEFORE_TIME = len("1970-01-01T")
# Within what Python's json takes.
_MOST_NESTED = 400


def plain_values(array: pa.Array, unions: Unions = frozenset(), path: tuple[str, ...] = ()) -> list[Any]:
    """Return the values of a column of a format as JSON has them.

    Bytes are base64; decimals text with all their digits; dates and times ISO 8601, with Z if they are in UTC;
    durations their seconds, with the digits of their unit and an s, as in the JSON of Protobuf; floats of four bytes
    their shortest digits; NaN and infinities text; the text of JSON what it says, if it is not nested hundreds deep; a
    map an object, of whose equal keys the last one counts; a union the member that it has.
    Args: unions: which structs are unions, as of ColumnFormat.unions; path: the fields that lead to the column.
    Cost: a Python object for each value, and each list, map and struct.
    """
    kind = array.type
    if _kinds.is_struct(kind):
        values = _structs(array, unions, path)
    elif _kinds.is_map(kind):
        values = [dict(pairs) for pairs in _lists(array, lambda part: _pairs(part, unions, path))]
    elif _kinds.is_list(kind) or _kinds.is_large_list(kind):
        values = _lists(array, lambda part: plain_values(part, unions, (*path, "element")))
    elif _kinds.is_timestamp(kind) or _kinds.is_date(kind) or _kinds.is_time(kind):
        values = _times(array)
    elif _kinds.is_duration(kind):
        values = _durations(array)
    elif _kinds.is_float32(kind):
        # As kstore.serializers.plain_single, by Arrow.
        texts = array.cast(pa.string()).to_pylist()
        return [None if text is None else plain_number(float(text)) for text in texts]
    else:
        convert = _conversion_of(kind)
        values = array.to_pylist()
        return values if convert is None else [None if value is None else convert(value) for value in values]
    if array.null_count:
        values = [
            value if is_valid else None for value, is_valid in zip(values, array.is_valid().to_pylist(), strict=True)
        ]
    return values


def is_bytes(kind: pa.DataType) -> bool:
    """Whether the values of a type are bytes."""
    return bool(_kinds.is_binary(kind) or _kinds.is_fixed_size_binary(kind) or _kinds.is_large_binary(kind))


def _conversion_of(kind: pa.DataType) -> Callable[[Any], Any] | None:
    if is_bytes(kind):
        return lambda value: b64encode(value).decode("ascii")
    if _kinds.is_decimal(kind):
        return lambda value: format(value, "f")
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json":
        return _parsed
    return plain_number if _kinds.is_floating(kind) else None


def _parsed(text: str) -> Any:
    if text.count("[") + text.count("{") > _MOST_NESTED:
        return text
    try:
        return json.loads(text, parse_float=lambda number: plain_number(float(number)))
    except ValueError:
        # An integer of more digits than Python reads.
        return text


def _structs(array: pa.StructArray, unions: Unions, path: tuple[str, ...]) -> list[Any]:
    names = [field.name for field in array.type]
    columns = [plain_values(column, unions, (*path, name)) for name, column in zip(names, array.flatten(), strict=True)]
    rows = zip(*columns, strict=True) if columns else ((),) * len(array)
    if path in unions:
        return [_member(names, row) for row in rows]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _member(names: list[str], row: tuple[Any, ...]) -> Any:
    members = [value for value in row if value is not None]
    return dict(zip(names, row, strict=True)) if len(members) > 1 else members[0] if members else None


def _pairs(array: pa.StructArray, unions: Unions, path: tuple[str, ...]) -> Iterable[tuple[Any, Any]]:
    keys, items = array.flatten()
    return zip(plain_values(keys, unions, (*path, "key")), plain_values(items, unions, (*path, "value")), strict=True)


def _lists(array: pa.ListArray, items_of: Callable[[pa.Array], Any]) -> list[Any]:
    offsets = array.offsets.to_pylist()
    first = offsets[0]
    items = list(items_of(array.values.slice(first, offsets[-1] - first)))
    return [items[start - first : end - first] for start, end in pairwise(offsets)]


def _times(array: pa.Array) -> list[Any]:
    """Return times as ISO 8601, with as many digits as their unit has; numbers that no calendar has stay numbers."""
    kind = array.type
    unit: Any = "D" if kind == pa.date32() else "ms" if kind == pa.date64() else kind.unit
    numbers = _numbers(array)
    texts: list[str] = np.datetime_as_string(numbers.view(f"datetime64[{unit}]"), unit=unit).tolist()
    start = _DATE_BEFORE_TIME if _kinds.is_time(kind) else 0
    ending = "Z" if _kinds.is_timestamp(kind) and kind.tz is not None else ""
    return [
        number if text == _NO_TIME else f"{text[start:]}{ending}"
        for text, number in zip(texts, numbers.tolist(), strict=True)
    ]


def _durations(array: pa.DurationArray) -> list[str]:
    digits = _DIGITS[array.type.unit]
    return [_seconds(number, digits=digits) for number in _numbers(array).tolist()]


def _seconds(number: int, *, digits: int) -> str:
    """Return a number of units of 10**-digits seconds as text."""
    whole, part = divmod(abs(number), 10**digits)
    fraction = f".{part:0{digits}}" if digits else ""
    return f"{'-' if number < 0 else ''}{whole}{fraction}s"


def _numbers(array: pa.Array) -> np.ndarray[Any, Any]:
    """Return the numbers that times are, 0 for null."""
    numbers = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64()).fill_null(0)
    result: np.ndarray[Any, Any] = numbers.to_numpy().astype(np.int64)
    return result
