"""The Arrow type of JSON values that are known from a sample."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NoReturn

import pyarrow as pa

from kstore.values.decoded import MOST_COLUMN_DEPTH
from kstore.values.json_format.columns import TEXT

# An object with more fields in a sample is a map, whose names are data.
_MOST_FIELDS = 1000
_INT64 = range(-(1 << 63), 1 << 63)
_JSON_NAMES = {pa.string(): "string", pa.bool_(): "boolean", pa.int64(): "integer", pa.float64(): "number"}
# Which UTF-8 does not have.
_SURROGATE = re.compile("[\ud800-\udfff]")


def inferred_type(values: Iterable[bytes]) -> pa.DataType | None:
    """Return the type of values, None if none of them has one. A value that is not JSON has none.

    Numbers are int64, or double if one has a fraction or an exponent. Where a sample has only nulls or empty arrays, or
    values of several types, the type is that of the text of JSON, which every value has.
    """
    shape = _Shape()
    for data in values:
        try:
            value = json.loads(data.decode("utf-8-sig"), parse_constant=_refuse, object_pairs_hook=_Object)
        except (ValueError, RecursionError):
            continue
        shape.add(value, 1)
    return shape.type() if shape.has_any else None


class _Object(list[tuple[str, Any]]):
    """An object, with all fields of a name that it repeats, since each has to be of the type."""


def json_schema_of(arrow_type: pa.DataType) -> dict[str, Any]:
    """Return the JSON Schema of an inferred type, from which type_of_json_schema makes the same."""
    kinds = pa.types
    if kinds.is_struct(arrow_type):
        return {"type": "object", "properties": {field.name: json_schema_of(field.type) for field in arrow_type}}
    if kinds.is_list(arrow_type):
        return {"type": "array", "items": json_schema_of(arrow_type.value_type)}
    if kinds.is_map(arrow_type):
        return {"type": "object", "additionalProperties": json_schema_of(arrow_type.item_type)}
    return {"type": _JSON_NAMES[arrow_type]} if arrow_type in _JSON_NAMES else {}


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


class _Shape:
    """What the values of one place have in common. has_any: whether there was one, and not only nulls."""

    def __init__(self) -> None:
        self.has_any = False
        self._kinds: set[str] = set()
        self._fields: dict[str, _Shape] = {}
        self._item: _Shape | None = None

    def add(self, value: Any, depth: int) -> None:
        if value is None:
            return
        self.has_any = True
        if isinstance(value, _Object) and depth < MOST_COLUMN_DEPTH // 2:
            self._kinds.add("object")
            for written, each in value:
                name = _SURROGATE.sub("\ufffd", written)
                if name not in self._fields:
                    self._fields[name] = _Shape()
                self._fields[name].add(each, depth + 1)
        elif isinstance(value, list) and not isinstance(value, _Object) and depth < MOST_COLUMN_DEPTH // 2:
            self._kinds.add("array")
            self._item = self._item or _Shape()
            for each in value:
                self._item.add(each, depth + 1)
        else:
            self._kinds.add(_kind(value))

    def type(self) -> pa.DataType:
        kinds = self._kinds
        if kinds == {"object"}:
            return self._object()
        if kinds == {"array"} and self._item is not None:
            return pa.list_(pa.field("element", self._item.type()))
        if kinds == {"integer", "double"}:
            return pa.float64()
        simple = {"string": pa.string(), "boolean": pa.bool_(), "integer": pa.int64(), "double": pa.float64()}
        return simple.get(next(iter(kinds)), TEXT) if len(kinds) == 1 else TEXT

    def _object(self) -> pa.DataType:
        fields = {name: shape.type() for name, shape in self._fields.items()}
        if not fields:
            return TEXT
        if len(fields) <= _MOST_FIELDS:
            return pa.struct(list(fields.items()))
        types = set(fields.values())
        return pa.map_(pa.string(), pa.field("value", types.pop() if len(types) == 1 else TEXT))


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if value in _INT64 else "text"
    return "double" if isinstance(value, float) else "text"
