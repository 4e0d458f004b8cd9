"""Avro schemas: JSON text, with the schemas that it refers to, as a tree of types."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kstore.errors import InvalidSchemaError, json_fault

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_MOST_DEPTH = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
# The digits that decimal256 of Arrow has.
_MOST_DIGITS = 76
# A fixed of so many bytes holds as many digits.
_BYTES_OF_MOST_DIGITS = 33
_DECIMAL, _UUID, _DURATION = "decimal", "uuid", "duration"
UUID_BYTES, DURATION_BYTES = 16, 12
_LOGICAL_OF = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
}

# What a field without a default has in its place, since null is a default.
NO_DEFAULT: Final = object()


@dataclass(frozen=True, slots=True)
class Logical:
    """A logical type, with the precision and scale of a decimal."""

    name: str
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    """A primitive type."""

    name: str
    logical: Logical | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """Bytes of a fixed size."""

    name: str
    aliases: tuple[str, ...]
    size: int
    logical: Logical | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EnumType:
    """An enum. default: the symbol for one that is not known, None without."""

    name: str
    aliases: tuple[str, ...]
    symbols: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True, eq=False)
class ArrayType:
    """An array."""

    items: AvroType


@dataclass(frozen=True, slots=True, eq=False)
class MapType:
    """A map, with keys of type string."""

    values: AvroType


@dataclass(frozen=True, slots=True, eq=False)
class UnionType:
    """A union."""

    branches: tuple[AvroType, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of a record."""

    name: str
    aliases: tuple[str, ...]
    type: AvroType
    default: Any = NO_DEFAULT


@dataclass(frozen=True, slots=True, eq=False)
class RecordType:
    """A record. Its fields are added after it was made, since they may refer to it."""

    name: str
    aliases: tuple[str, ...]
    fields: list[Field] = field(default_factory=list)


AvroType: TypeAlias = Primitive | Fixed | EnumType | ArrayType | MapType | UnionType | RecordType


def parse_avro_schema(text: str, references: Sequence[str] = ()) -> AvroType:
    """Return the type that a schema describes.

    A logical type that does not fit its type is ignored, as Avro's specification says. Aliases are those of a reader.
    Args: references: the texts of schemas that it names, each after those that it names itself.
    Raises: InvalidSchemaError.
    """
    names: dict[str, AvroType] = {}
    for reference in references:
        _Parser(names).parse(reference)
    return _Parser(names).parse(text)


def type_name(avro_type: AvroType) -> str:
    """Return what an error calls a type: "int", "record Address", "union of null and string"."""
    match avro_type:
        case Primitive():
            return avro_type.name if avro_type.logical is None else f"{avro_type.name} ({avro_type.logical.name})"
        case RecordType():
            return f"record {avro_type.name}"
        case EnumType():
            return f"enum {avro_type.name}"
        case Fixed():
            return f"fixed {avro_type.name} of {avro_type.size} bytes"
        case ArrayType():
            return f"array of {type_name(avro_type.items)}"
        case MapType():
            return f"map of {type_name(avro_type.values)}"
    return "union of " + " and ".join(map(type_name, avro_type.branches))


class _Parser:
    """Parses one schema.  Args: names: the types that have names, by full name; those of the schema are added."""

    def __init__(self, names: dict[str, AvroType]) -> None:
        self._names = names

    def parse(self, text: str) -> AvroType:
        try:
            schema = json.loads(text)
        except (ValueError, RecursionError) as error:
            # A type may be given by its bare name.
            if not _NAME.fullmatch(text):
                raise InvalidSchemaError(
                    f"an Avro schema must be JSON: {json_fault(error)}; got {text[:60]!r}"
                ) from error
            schema = text
        return self._type(schema, "", 0)

    def _type(self, schema: Any, namespace: str, depth: int) -> AvroType:
        if depth > _MOST_DEPTH:
            raise InvalidSchemaError(f"an Avro schema may be nested {_MOST_DEPTH} deep, this one is deeper")
        match schema:
            case str():
                return self._named(schema, namespace)
            case list():
                return self._union(schema, namespace, depth)
            case {"type": "array", "items": items}:
                return ArrayType(self._type(items, namespace, depth + 1))
            case {"type": "map", "values": values}:
                return MapType(self._type(values, namespace, depth + 1))
            case {"type": "record" | "error"}:
                return self._record(schema, namespace, depth)
            case {"type": "enum"}:
                return self._enum(schema, namespace)
            case {"type": "fixed"}:
                return self._fixed(schema, namespace)
            case {"type": str(name)} if name in PRIMITIVES:
                return Primitive(name, _logical(schema, name))
            case {"type": str() | dict() | list() as inner}:
                return self._type(inner, namespace, depth + 1)
        raise InvalidSchemaError(f"expected an Avro type, found {_shown(schema)}")

    def _named(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        known = self._names.get(full) or self._names.get(name)
        if known is None:
            raise InvalidSchemaError(f"the Avro schema names the type {full!r}, which neither it nor a reference has")
        return known

    def _union(self, schema: Sequence[object], namespace: str, depth: int) -> AvroType:
        branches = tuple(self._type(branch, namespace, depth + 1) for branch in schema)
        if not branches:
            raise InvalidSchemaError("a union of the Avro schema has no branches")
        if any(isinstance(branch, UnionType) for branch in branches):
            raise InvalidSchemaError("a union of the Avro schema has a union as a branch")
        kinds = [branch_key(branch) for branch in branches]
        if len(set(kinds)) != len(kinds):
            raise InvalidSchemaError(f"a union of the Avro schema has a branch twice: {', '.join(kinds)}")
        return UnionType(branches)

    def _record(self, schema: Mapping[str, Any], namespace: str, depth: int) -> AvroType:
        name, inner = _full_name(schema, namespace)
        record = RecordType(name, _aliases(schema, inner))
        self._add(record)
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchemaError(f"record {name} of the Avro schema has no list of fields")
        for item in fields:
            if not isinstance(item, dict) or not _is_name(item.get("name")) or "type" not in item:
                raise InvalidSchemaError(f"record {name} of the Avro schema has an invalid field: {_shown(item)}")
            try:
                # Some writers put the logical type of a field beside its name, where it has no meaning.
                field_type = self._type(item["type"], inner, depth + 1)
            except InvalidSchemaError as error:
                raise InvalidSchemaError(f"field {item['name']!r} of {name}: {error}") from error
            record.fields.append(Field(item["name"], _aliases(item, ""), field_type, item.get("default", NO_DEFAULT)))
        if len({each.name for each in record.fields}) != len(record.fields):
            raise InvalidSchemaError(f"record {name} of the Avro schema has two fields of one name")
        return record

    def _enum(self, schema: Mapping[str, Any], namespace: str) -> AvroType:
        name, inner = _full_name(schema, namespace)
        symbols, default = schema.get("symbols"), schema.get("default")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise InvalidSchemaError(f"enum {name} of the Avro schema has no list of symbols")
        return self._add(
            EnumType(name, _aliases(schema, inner), tuple(symbols), default if default in symbols else None)
        )

    def _fixed(self, schema: Mapping[str, Any], namespace: str) -> AvroType:
        name, inner = _full_name(schema, namespace)
        size = schema.get("size")
        if type(size) is not int or size < 0 or size > 1 << 30:
            raise InvalidSchemaError(f"fixed {name} of the Avro schema has the size {_shown(size)}")
        return self._add(Fixed(name, _aliases(schema, inner), size, _logical(schema, "fixed", size)))

    def _add(self, named: RecordType | EnumType | Fixed) -> AvroType:
        if named.name in self._names:
            raise InvalidSchemaError(f"the Avro schema defines {named.name!r} twice")
        self._names[named.name] = named
        return named


def branch_key(branch: AvroType) -> str:
    """Return what tells the branches of a union apart: the type, or the name of a named one."""
    match branch:
        case Primitive() | RecordType() | EnumType() | Fixed():
            return branch.name
        case ArrayType():
            return "array"
    return "map"


def _full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return the full name of a named type, and the namespace of the names in it."""
    name, own = schema.get("name"), schema.get("namespace")
    if not isinstance(name, str) or not _is_name(name):
        raise InvalidSchemaError(f"a named type of the Avro schema has no name: {_shown(schema)}")
    if "." in name:
        return name, name.rpartition(".")[0]
    inner = own if isinstance(own, str) else namespace
    return (f"{inner}.{name}" if inner else name), inner


def _aliases(schema: Mapping[str, Any], namespace: str) -> tuple[str, ...]:
    aliases = schema.get("aliases")
    return tuple(
        alias if "." in alias or not namespace else f"{namespace}.{alias}"
        for alias in (aliases if isinstance(aliases, list) else ())
        if isinstance(alias, str)
    )


def _is_name(name: object) -> bool:
    """Whether a name can be that of a column. Names that Avro does not allow are taken, as some writers have them."""
    if not isinstance(name, str) or not name:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _logical(schema: Mapping[str, Any], name: str, size: int = 0) -> Logical | None:
    logical = schema.get("logicalType")
    if not isinstance(logical, str):
        return None
    if _LOGICAL_OF.get(logical) == name:
        return Logical(logical)
    if logical == _UUID and (name == "string" or (name == "fixed" and size == UUID_BYTES)):
        return Logical(_UUID)
    if logical == _DURATION and name == "fixed" and size == DURATION_BYTES:
        return Logical(_DURATION)
    if logical == _DECIMAL and name in ("bytes", "fixed"):
        return _decimal(schema, None if name == "bytes" else size)
    return None


def _decimal(schema: Mapping[str, Any], size: int | None) -> Logical | None:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or precision < 1:
        return None
    # A fixed of `size` bytes holds all numbers of this many digits.
    bits = 8 * min(_BYTES_OF_MOST_DIGITS if size is None else size, _BYTES_OF_MOST_DIGITS) - 1
    held = len(str(1 << max(bits, 0))) - 1
    return Logical(_DECIMAL, precision, scale) if precision <= min(held, _MOST_DIGITS) else None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
