"""Messages written by their schema tables, for any version, and Hypothesis strategies for their fields."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from kstore.wire.schema import TAGGED_FIELDS, Field, Schema

LAYOUTS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}


def varint(value: int) -> bytes:
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def write_message(schema: Schema, fields: dict[str, Any], *, version: int) -> bytes:
    return _struct(schema.fields, fields, version=version, flexible=version in schema.flexible)


def _struct(fields: tuple[Field, ...], values: dict[str, Any], *, version: int, flexible: bool) -> bytes:
    present = [field for field in fields if version in field.versions]
    out = b"".join(_value(f, values[f.name], version=version, flexible=flexible) for f in present if f.tag is None)
    if not flexible:
        return out
    tagged = [
        (field.tag, _value(field, values[field.name], version=version, flexible=True))
        for field in present
        if field.tag is not None and field.name in values
    ]
    tagged = sorted(tagged + [(tag, data) for tag, data in values.get(TAGGED_FIELDS, ())])
    return out + varint(len(tagged)) + b"".join(varint(tag) + varint(len(data)) + data for tag, data in tagged)


def _value(field: Field, value: Any, *, version: int, flexible: bool) -> bytes:
    if not field.is_array:
        return _one(field, value, version=version, flexible=flexible)
    if value is None:
        return _length(-1, ">i", flexible=flexible)
    inner = b"".join(_one(field, item, version=version, flexible=flexible) for item in value)
    return _length(len(value), ">i", flexible=flexible) + inner


def _length(length: int, layout: str, *, flexible: bool) -> bytes:
    return varint(length + 1) if flexible else struct.pack(layout, length)


def _one(field: Field, value: Any, *, version: int, flexible: bool) -> bytes:
    if field.kind in LAYOUTS:
        return struct.pack(LAYOUTS[field.kind], value)
    if field.kind == "bool":
        return b"\1" if value else b"\0"
    if field.kind == "uuid":
        return value.bytes
    if field.kind == "struct":
        mark = b"" if field.is_array or version not in field.nullable else _mark(field, is_null=value is None)
        return mark + (b"" if value is None else _struct(field.fields, value, version=version, flexible=flexible))
    layout = ">h" if field.kind == "string" else ">i"
    if value is None:
        return _length(-1, layout, flexible=flexible)
    data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return _length(len(data), layout, flexible=flexible) + data


def _mark(field: Field, *, is_null: bool) -> bytes:
    """What tells a struct from null, which in a tagged field is a varint."""
    if field.tag is not None:
        return varint(0 if is_null else 1)
    return b"\xff" if is_null else b"\1"


VALUES = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16).map(lambda data: UUID(bytes=data)),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    "bytes": st.binary(max_size=12),
    "records": st.binary(max_size=12),
}


def message_fields(fields: tuple[Field, ...], *, version: int, flexible: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Any fields that a struct of that version can hold; of the tagged ones any part, and tags above all known ones."""
    present = [field for field in fields if version in field.versions]
    values = {field.name: _values(field, version=version, flexible=flexible) for field in present}
    optional = {field.name: values.pop(field.name) for field in present if field.tag is not None}
    if flexible:
        unknown = st.dictionaries(st.integers(100, 2**32 - 1), st.binary(max_size=9), min_size=1, max_size=2)
        optional[TAGGED_FIELDS] = unknown.map(lambda tags: sorted(tags.items()))
    return st.fixed_dictionaries(values, optional=optional)


def _values(field: Field, *, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    is_struct = field.kind == "struct"
    one = message_fields(field.fields, version=version, flexible=flexible) if is_struct else VALUES[field.kind]
    value = st.lists(one, max_size=2) if field.is_array else one
    return st.none() | value if version in field.nullable else value
