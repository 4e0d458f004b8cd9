"""One Avro schema for records of many: with the fields of all of them, so that nothing that was written is left out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from kstore.errors import InvalidSchemaError
from kstore.values.avro.schema import (
    NO_DEFAULT,
    ArrayType,
    AvroType,
    EnumType,
    Field,
    Fixed,
    Logical,
    MapType,
    Primitive,
    RecordType,
    UnionType,
    type_name,
)
from kstore.values.decoded import MOST_COLUMN_DEPTH

_INTEGERS, _FLOATS, _TEXTS = ("int", "long"), ("float", "double"), ("string", "bytes")
_KINDS: dict[type, str] = {RecordType: "record", ArrayType: "array", MapType: "map"}
_Named = (RecordType, EnumType, Fixed)
# Records that refer to each other in different ways would have more positions than there are types.
_MOST_POSITIONS = 1 << 16


class Variant(NamedTuple):
    """A type that values have. origin: which schema says so, for errors."""

    type: AvroType
    origin: str


def union_text(variants: Sequence[Variant]) -> str:
    """Return the text of a schema as which values of all variants can be read.

    Fields are merged by name, or by an alias that a newer variant has for them. They are in the order of the first
    variant, then those that only later ones have. A field that some lack has the first default that it has, else null.
    Numbers become the wider type, and long or int with float or double a double; bytes and string become bytes; enums
    have all symbols. A logical type has no common type with another one, or with none; a uuid is a string.
    Args: variants: newest first, at least one.
    Raises: InvalidSchemaError for types that have no common one, with both and where they come from.
    """
    merger = _Merger()
    schema = merger.merged(list(variants), ())
    merger.recode_defaults()
    return json.dumps(schema)


class _Merger:
    """Merges types; knows the named types that it has written."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], str] = {}
        self._names: set[str] = set()
        self._positions = 0
        self._records: dict[str, dict[str, Any]] = {}
        self._defaults: list[tuple[dict[str, Any], AvroType]] = []

    def recode_defaults(self) -> None:
        """Write the defaults of fields, which have the types of their versions, as values of the merged types."""
        for field, written in self._defaults:
            field["default"] = self._recoded(field["default"], written, field["type"])

    def merged(self, variants: Sequence[Variant], path: tuple[str, ...], *, is_optional: bool = False) -> Any:
        """Return the schema, as parsed JSON, of values that have these types at one place.

        Args: is_optional: whether they may be null, whatever the types say.
        """
        self._positions += 1
        if len(path) > MOST_COLUMN_DEPTH or self._positions > _MOST_POSITIONS:
            raise InvalidSchemaError("the Avro schemas have more types in types than a union of them may have")
        branches = [
            [Variant(branch, each.origin) for branch in _branches(each.type) if not _is_null(branch)]
            for each in variants
        ]
        groups = _groups(branches)
        is_optional = is_optional or any(_is_null(branch) for each in variants for branch in _branches(each.type))
        schemas = [self._of_group(group, path) for group in groups]
        if is_optional or not schemas:
            schemas = ["null", *schemas]
        return schemas[0] if len(schemas) == 1 else schemas

    def _of_group(self, group: list[Variant], path: tuple[str, ...]) -> Any:
        first = group[0].type
        same = [each for each in group if type(each.type) is type(first)]
        if len(same) < len(group) and not all(_is_decimal(each.type) for each in group):
            raise _different(group[0], next(each for each in group if type(each.type) is not type(first)), path)
        if isinstance(first, RecordType):
            return self._record(group, path)
        if isinstance(first, ArrayType):
            items = [Variant(each.type.items, each.origin) for each in group if isinstance(each.type, ArrayType)]
            return {"type": "array", "items": self.merged(items, (*path, "element"))}
        if isinstance(first, MapType):
            values = [Variant(each.type.values, each.origin) for each in group if isinstance(each.type, MapType)]
            return {"type": "map", "values": self.merged(values, (*path, "value"))}
        if isinstance(first, EnumType):
            return self._enum([each.type for each in group if isinstance(each.type, EnumType)])
        return self._scalar(group, path)

    def _scalar(self, group: list[Variant], path: tuple[str, ...]) -> Any:
        scalars = [(each.type, each) for each in group if isinstance(each.type, (Primitive, Fixed))]
        common = scalars[0][0]
        for scalar, variant in scalars[1:]:
            wider = _common(common, scalar)
            if wider is None:
                raise _different(Variant(common, group[0].origin), variant, path)
            common = wider
        if not isinstance(common, Fixed):
            return {"type": common.name} | _logical(common.logical)
        fixed = [each.type for each in group if isinstance(each.type, Fixed)]
        name, names = self._named(fixed)
        return name if names is None else {"type": "fixed", **names, "size": common.size} | _logical(common.logical)

    def _enum(self, enums: list[EnumType]) -> Any:
        name, names = self._named(enums)
        symbols = dict.fromkeys(symbol for each in enums for symbol in each.symbols)
        return name if names is None else {"type": "enum", **names, "symbols": list(symbols)}

    def _record(self, group: list[Variant], path: tuple[str, ...]) -> Any:
        records = list(dict.fromkeys(each.type for each in group if isinstance(each.type, RecordType)))
        name, names = self._named(records)
        if names is None:
            return name
        origins = {each.type: each.origin for each in reversed(group)}
        fields: dict[str, list[tuple[Field, str]]] = {}
        for record in records:
            written = {each.name for each in record.fields}
            for each in record.fields:
                name = _target(each.name, fields, written)
                fields.setdefault(name, []).append((each, origins[record]))
        schemas = [self._field(name, found, len(records), path) for name, found in fields.items()]
        self._records[name] = merged = {"type": "record", **names, "fields": schemas}
        return merged

    def _field(self, name: str, found: list[tuple[Field, str]], count: int, path: tuple[str, ...]) -> dict[str, Any]:
        default, of_type = next(
            ((each.default, each.type) for each, _ in found if each.default is not NO_DEFAULT), (NO_DEFAULT, None)
        )
        is_missing = len(found) < count and default is NO_DEFAULT
        variants = [Variant(each.type, origin) for each, origin in found]
        schema = self.merged(variants, (*path, name), is_optional=is_missing)
        aliases = dict.fromkeys(alias for each, _ in found for alias in (*each.aliases, each.name) if alias != name)
        field = {"name": name, "type": schema, "aliases": list(aliases)}
        if default is NO_DEFAULT:
            return field | ({"default": None} if is_missing else {})
        field["default"] = default
        if of_type is not None:
            self._defaults.append((field, of_type))
        return field

    def _recoded(self, default: Any, written: AvroType, schema: Any) -> Any:
        """Return a default of the type `written` as one of a merged type."""
        if isinstance(default, str) and _has_string(written) and _is_bytes(schema):
            # JSON has bytes as text of as many characters.
            return default.encode("utf-8", "replace").decode("latin-1")
        merged = [each for each in map(self._of_name, _schemas_of(schema)) if isinstance(each, dict)]
        for branch in _branches(written):
            into = next((each for each in merged if each["type"] == _KINDS.get(type(branch))), None)
            match branch, default:
                case ArrayType(), list() if into is not None:
                    return [self._recoded(each, branch.items, into["items"]) for each in default]
                case MapType(), dict() if into is not None:
                    return {key: self._recoded(each, branch.values, into["values"]) for key, each in default.items()}
                case RecordType(), dict() if into is not None:
                    return self._recoded_record(default, branch, into)
        return default

    def _recoded_record(self, default: dict[str, Any], written: RecordType, into: dict[str, Any]) -> dict[str, Any]:
        recoded = {}
        for each in written.fields:
            target = next((field for field in into["fields"] if each.name in (field["name"], *field["aliases"])), None)
            value = default.get(each.name, each.default)
            if target is not None and value is not NO_DEFAULT:
                recoded[target["name"]] = self._recoded(value, each.type, target["type"])
        return recoded

    def _of_name(self, schema: Any) -> Any:
        """Return the record that a name stands for, or the schema itself."""
        return self._records.get(schema, schema) if isinstance(schema, str) else schema

    def _named(self, types: Sequence[RecordType | EnumType | Fixed]) -> tuple[str, dict[str, Any] | None]:
        """Return the name that types have together, and, the first time that it is asked for, the names in its schema.

        No other type has the name. It has no namespace, so that it does not depend on where it stands.
        """
        key = tuple(sorted({id(each) for each in types}))
        known = self._known.get(key)
        if known is not None:
            return known, None
        plain = name = types[0].name.rpartition(".")[2]
        number = 1
        while name in self._names:
            number += 1
            name = f"{plain}_{number}"
        self._known[key] = name
        self._names.add(name)
        aliases = dict.fromkeys(alias for each in types for alias in (each.name, *each.aliases))
        return name, {"name": name, "namespace": "", "aliases": list(aliases)}


def _groups(branches: Sequence[Sequence[Variant]]) -> list[list[Variant]]:
    """Return the branches of all variants by what they become together: all of them, or each of those of a union.

    Two named types of one union are two in the merged one too; those of other variants belong to the one of their full
    name before another one of their short name.
    """
    if all(len(each) < 2 for each in branches):
        return [whole] if (whole := [branch for each in branches for branch in each]) else []
    groups: list[list[Variant]] = []
    for each in branches:
        taken: list[list[Variant]] = []
        for branch in each:
            alike = [group for group in groups if _is_alike(branch.type, group)]
            if isinstance(branch.type, _Named):
                alike = [group for group in alike if not any(group is other for other in taken)]
                alike.sort(key=lambda group: all(_name(other.type) != _name(branch.type) for other in group))
            if alike:
                group = alike[0]
                group.append(branch)
            else:
                group = [branch]
                groups.append(group)
            taken.append(group)
    return groups


def _name(avro_type: AvroType) -> str:
    return avro_type.name if isinstance(avro_type, _Named) else ""


def _target(name: str, fields: dict[str, list[tuple[Field, str]]], written: set[str]) -> str:
    """Return the merged field that one of a record belongs to: that of its name, or one that has it as an alias."""
    if name in fields:
        return name
    renamed = (
        target
        for target, found in fields.items()
        if target not in written and any(name in each.aliases for each, _ in found)
    )
    return next(renamed, name)


def _has_string(avro_type: AvroType | None) -> bool:
    branches = () if avro_type is None else _branches(avro_type)
    return any(isinstance(branch, Primitive) and branch.name == "string" for branch in branches)


def _is_bytes(schema: Any) -> bool:
    """Whether a merged type is bytes, or null."""
    return all(
        branch == "null" or (isinstance(branch, dict) and branch["type"] == "bytes") for branch in _schemas_of(schema)
    )


def _schemas_of(schema: Any) -> list[Any]:
    """Return the branches of a merged type."""
    return schema if isinstance(schema, list) else [schema]


def _branches(avro_type: AvroType) -> tuple[AvroType, ...]:
    return avro_type.branches if isinstance(avro_type, UnionType) else (avro_type,)


def _is_null(avro_type: AvroType) -> bool:
    return isinstance(avro_type, Primitive) and avro_type.name == "null"


def _is_decimal(avro_type: AvroType) -> bool:
    return (
        isinstance(avro_type, (Primitive, Fixed))
        and avro_type.logical is not None
        and avro_type.logical.name == "decimal"
    )


def _is_alike(branch: AvroType, group: Sequence[Variant]) -> bool:
    """Whether a branch of a union belongs to others, which become one branch."""
    other = group[0].type
    if isinstance(branch, Primitive) and isinstance(other, Primitive):
        kinds = (_INTEGERS, _FLOATS)
        is_wider = any(branch.name in kind and other.name in kind for kind in kinds)
        return branch.name == other.name or is_wider
    if isinstance(branch, _Named) and isinstance(other, _Named) and type(branch) is type(other):
        return branch.name.rpartition(".")[2] == other.name.rpartition(".")[2]
    return type(branch) is type(other)


def _common(one: Primitive | Fixed, other: Primitive | Fixed) -> Primitive | Fixed | None:
    """Return a type that holds the values of two scalars, None if there is none."""
    if one.logical is None or other.logical is None:
        one, other = _plain_text(one), _plain_text(other)
        if one.logical is not None or other.logical is not None:
            # The values of one would be read as what the other says that they mean.
            return None
    else:
        if (one.logical.name, one.logical.scale) != (other.logical.name, other.logical.scale):
            return None
        logical = replace(one.logical, precision=max(one.logical.precision, other.logical.precision))
        if logical.name == "decimal":
            return Primitive("bytes", logical)
    if isinstance(one, Fixed) or isinstance(other, Fixed):
        is_same = isinstance(one, Fixed) and isinstance(other, Fixed) and one.size == other.size
        return one if is_same else None
    if one.name == other.name:
        return one
    if one.name in _INTEGERS and other.name in _INTEGERS:
        return one if one.name == "long" else other
    if {one.name, other.name} <= {*_INTEGERS, *_FLOATS}:
        return Primitive("double")
    return Primitive("bytes") if {one.name, other.name} <= set(_TEXTS) else None


def _plain_text(scalar: Primitive | Fixed) -> Primitive | Fixed:
    """Return the string that a uuid of text is, any other type as it is."""
    is_text = isinstance(scalar, Primitive) and scalar.name == "string"
    return Primitive("string") if is_text and scalar.logical is not None else scalar


def _logical(logical: Logical | None) -> dict[str, Any]:
    if logical is None:
        return {}
    numbers = {"precision": logical.precision, "scale": logical.scale} if logical.name == "decimal" else {}
    return {"logicalType": logical.name, **numbers}


def _different(one: Variant, other: Variant, path: tuple[str, ...]) -> InvalidSchemaError:
    where = f"field {'.'.join(path)!r}" if path else "the value"
    return InvalidSchemaError(
        f"the Avro schemas have no union: {where} is {type_name(one.type)} in {one.origin}, and "
        f"{type_name(other.type)} in {other.origin}: choose one by schema= or schema_id="
    )
