"""Messages by their schemas: a table format in text, and one reader and one writer for all of them.

A table is a list of messages with one field per line; the fields of a struct are indented by two more spaces:

    NameOfMessage  api keys  versions  flexible versions
      field type [versions] [null=versions] [tag=number] [default=value] [ignorable] [inflexible]

Versions are `2`, `1-2`, `3+` or `-` (none); a field without versions is in all of them. A message without an api key
has `-`. An array type starts with `[]`; a type that is none of Kafka's is a struct, by that name. A field without a
default has that of its type, null included only where it is said. A version that does not have an `ignorable` field is
written without it, whatever its value; the length of an `inflexible` field is never a varint.

kstore.wire.compiler makes one function per message and version of a schema; the reader and writer here are slower, and
what those are compared with.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kstore.wire.protocol import INT16, INT32, INT64, UINT16, ProtocolReader, ProtocolWriter, TaggedField

TAGGED_FIELDS = "taggedFields"
NUMBERS = {
    "int8": struct.Struct(">b"),
    "int16": INT16,
    "uint16": UINT16,
    "int32": INT32,
    "uint32": struct.Struct(">I"),
    "int64": INT64,
    "float64": struct.Struct(">d"),
}
STRUCT = "struct"
_KINDS = {*NUMBERS, "bool", "uuid", "string", "bytes", "records"}
_INT8 = NUMBERS["int8"]
# Sizes of Python objects in bytes, with their slots in lists: a dict; an int or float; a str, bytes or UUID without its
# content.
_STRUCT_SIZE, _NUMBER_SIZE, _OBJECT_SIZE = 240, 40, 96
_LAST_VERSION = 2**15 - 1
_ALL = range(_LAST_VERSION + 1)
_NONE = range(0)
_ZEROS: dict[str, Any] = {"bool": False, "float64": 0.0, "string": "", "bytes": b"", "uuid": UUID(int=0)}


class Field(NamedTuple):
    """One field of a message. `fields` are those of a struct, or of the structs in an array; `struct` is its name.

    default: the value of a message that does not say one: None for null, () for an array without elements or a struct
    of defaults.
    """

    name: str
    kind: str
    struct: str = ""
    is_array: bool = False
    versions: range = _ALL
    nullable: range = _NONE
    tag: int | None = None
    default: Any = None
    is_ignorable: bool = False
    is_inflexible: bool = False
    fields: tuple[Field, ...] = ()


class Schema(NamedTuple):
    """A message: its versions, the versions in the flexible encoding, and the fields of all versions."""

    name: str
    api_keys: tuple[int, ...]
    versions: range
    flexible: range
    fields: tuple[Field, ...]


def parse_schemas(text: str) -> dict[int, Schema]:
    """Return the messages of a table by api key."""
    schemas = map(parse_schema, split_table(text).values())
    return {api_key: schema for schema in schemas for api_key in schema.api_keys}


def split_table(text: str) -> dict[str, str]:
    """Return the lines of each message of a table by its name."""
    blocks: dict[str, list[str]] = {}
    for line in filter(str.strip, text.splitlines()):
        if not line.startswith(" "):
            blocks[line.split()[0]] = lines = []
        lines.append(line)
    return {name: "\n".join(lines) for name, lines in blocks.items()}


def parse_schema(text: str) -> Schema:
    """Return the message of a table of one."""
    header, *lines = text.splitlines()
    name, api_keys, versions, flexible = header.split()
    return Schema(
        name=name,
        api_keys=() if api_keys == "-" else tuple(map(int, api_keys.split(","))),
        versions=_range(versions),
        flexible=_range(flexible),
        fields=_fields(lines),
    )


def _fields(lines: list[str]) -> tuple[Field, ...]:
    """Return the fields in lines, of which the first has the least indent."""
    groups: list[list[str]] = []
    for line in lines:
        if _indent(line) == _indent(lines[0]):
            groups.append([])
        groups[-1].append(line)
    return tuple(_field(first, inner) for first, *inner in groups)


def _field(line: str, inner: list[str]) -> Field:
    name, type_name, *rest = line.split()
    options = dict(word.split("=") for word in rest if "=" in word)
    words = {word for word in rest if "=" not in word}
    versions = words - {"ignorable", "inflexible"}
    kind = type_name.removeprefix("[]")
    is_array = type_name.startswith("[]")
    return Field(
        name=name,
        kind=kind if kind in _KINDS else STRUCT,
        struct="" if kind in _KINDS or kind == STRUCT else kind,
        is_array=is_array,
        versions=_range(versions.pop()) if versions else _ALL,
        nullable=_range(options.get("null", "-")),
        tag=int(options["tag"]) if "tag" in options else None,
        default=_default(kind, options.get("default"), is_array=is_array),
        is_ignorable="ignorable" in words,
        is_inflexible="inflexible" in words,
        fields=_fields(inner),
    )


def _default(kind: str, text: str | None, *, is_array: bool) -> Any:
    if text == "null":
        return None
    if is_array or kind not in _KINDS:
        return ()
    if text is None:
        return _ZEROS.get(kind, 0 if kind in NUMBERS else None)
    if kind == "bool":
        return text == "true"
    return float(text) if kind == "float64" else int(text)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _range(text: str) -> range:
    if text == "-":
        return _NONE
    if text.endswith("+"):
        return range(int(text[:-1]), _LAST_VERSION + 1)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def decode_message(schema: Schema, data: bytes, *, version: int) -> dict[str, Any]:
    """Return the fields of a message by Kafka's names, in the order of the schema.

    Values are int, float, bool, str, bytes, uuid.UUID, None, lists and dicts (for structs). A tagged field is present
    if it was written; unknown tagged fields are under TAGGED_FIELDS, in structs too. Invalid UTF-8 in strings becomes
    surrogate escapes.
    Raises: InvalidRecordError if the bytes are not exactly one such message; MemoryLimitError if the elements of arrays
        take more than 64 MiB as Python objects.
    """
    reader = ProtocolReader(data, what=f"{schema.name} v{version}", is_flexible=version in schema.flexible)
    fields = _read_struct(reader, schema.fields, version=version)
    reader.end()
    return fields


def _read_struct(reader: ProtocolReader, fields: tuple[Field, ...], *, version: int) -> dict[str, Any]:
    present = [field for field in fields if version in field.versions]
    values = {field.name: _read_value(reader, field, version=version) for field in present if field.tag is None}
    written = reader.tagged_fields()
    if not written:
        return values
    known = {field.tag: field for field in present if field.tag is not None}
    unknown: list[TaggedField] = []
    for tagged in written:
        field = known.get(tagged.tag)
        if field is None:
            unknown.append(tagged)
            continue
        inner = reader.inner(tagged.data, f"tag {tagged.tag}")
        values[field.name] = _read_value(inner, field, version=version)
        inner.end()
    values = {field.name: values[field.name] for field in present if field.name in values}
    return values | {TAGGED_FIELDS: unknown} if unknown else values


def _read_value(reader: ProtocolReader, field: Field, *, version: int) -> Any:
    is_nullable = version in field.nullable
    if not field.is_array:
        return _read_one(reader, field, is_nullable=is_nullable, version=version)
    count = reader.nullable_length(field.name, INT32)
    if count is None:
        if not is_nullable:
            raise reader.error(field.name, expected="an array", found=None)
        return None
    reader.count_elements(field.name, count, each_bytes=object_size(field))
    return [_read_one(reader, field, is_nullable=False, version=version) for _ in range(count)]


def object_size(field: Field) -> int:
    """Return an estimate of the most bytes that a field's value takes as Python objects, without string content."""
    if field.kind == STRUCT:
        return _STRUCT_SIZE + sum(map(object_size, field.fields))
    return _NUMBER_SIZE if field.kind in NUMBERS or field.kind == "bool" else _OBJECT_SIZE


def _read_one(reader: ProtocolReader, field: Field, *, is_nullable: bool, version: int) -> Any:
    layout = NUMBERS.get(field.kind)
    if layout is not None:
        return reader.number(field.name, layout)
    if field.kind == STRUCT:
        if is_nullable and _is_null_struct(reader, field):
            return None
        return _read_struct(reader, field.fields, version=version)
    if field.kind == "bool":
        return reader.number(field.name, _INT8) != 0
    if field.kind == "uuid":
        return reader.uuid(field.name)
    value: str | bytes | None
    if field.kind == "string":
        value = reader.nullable_string(field.name, is_inflexible=field.is_inflexible)
    else:
        value = reader.nullable_bytes(field.name)
    if value is None and not is_nullable:
        raise reader.error(field.name, expected=field.kind, found=None)
    return value


def _is_null_struct(reader: ProtocolReader, field: Field) -> bool:
    """Read the marker that distinguishes a struct from null: a varint in a tagged field, else a byte."""
    if field.tag is not None:
        return reader.unsigned_varint(field.name) == 0
    return reader.number(field.name, _INT8) < 0


def encode_message(schema: Schema, fields: Mapping[str, Any], *, version: int) -> bytes:
    """Return the bytes of a message with these fields, in the form that decode_message returns.

    Raises: ValueError for a version that the schema does not have, and for a field that is missing, null where null is
        not allowed, or out of range for its type.
    """
    if version not in schema.versions:
        raise ValueError(f"{schema.name} has versions {schema.versions[0]} to {schema.versions[-1]}, got {version}")
    out = ProtocolWriter(is_flexible=version in schema.flexible)
    _write_struct(out, schema.fields, fields, version=version)
    return out.getvalue()


def _write_struct(out: ProtocolWriter, fields: tuple[Field, ...], values: Mapping[str, Any], *, version: int) -> None:
    tagged: list[TaggedField] = list(values.get(TAGGED_FIELDS, ()))
    for field in fields:
        if version not in field.versions:
            continue
        if field.tag is None:
            if field.name not in values:
                raise ValueError(f"field {field.name} is missing")
            _write_value(out, field, values[field.name], version=version)
        elif field.name in values:
            inner = ProtocolWriter(is_flexible=out.is_flexible)
            _write_value(inner, field, values[field.name], version=version)
            tagged.append(TaggedField(field.tag, inner.getvalue()))
    out.tagged_fields(tuple(sorted(tagged)))


def _write_value(out: ProtocolWriter, field: Field, value: Any, *, version: int) -> None:
    if value is None and version not in field.nullable:
        raise ValueError(f"field {field.name} must not be null")
    if not field.is_array:
        _write_one(out, field, value, is_nullable=version in field.nullable, version=version)
    elif value is None:
        out.array_length(-1, field=field.name)
    else:
        out.array_length(len(value), field=field.name)
        for element in value:
            _write_one(out, field, element, is_nullable=False, version=version)


def _write_one(out: ProtocolWriter, field: Field, value: Any, *, is_nullable: bool, version: int) -> None:
    layout = NUMBERS.get(field.kind)
    if layout is not None:
        out.number(field.name, layout, value)
    elif field.kind == STRUCT:
        if is_nullable and field.tag is not None:
            out.unsigned_varint(int(value is not None))
        elif is_nullable:
            out.number(field.name, _INT8, -1 if value is None else 1)
        if value is not None:
            _write_struct(out, field.fields, value, version=version)
    elif field.kind == "bool":
        out.number(field.name, _INT8, int(value))
    elif field.kind == "uuid":
        out.uuid(value)
    elif value is None:
        layout = INT16 if field.kind == "string" else INT32
        out.length(field.name, layout, -1, is_inflexible=field.is_inflexible)
    elif field.kind == "string":
        out.string(value, field=field.name, is_inflexible=field.is_inflexible)
    else:
        out.length(field.name, INT32, len(value))
        out.raw(value)
