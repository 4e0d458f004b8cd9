"""One Arrow type for JSON values of many schemas: with the fields of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import pyarrow as pa

from kstore.errors import InvalidSchemaError
from kstore.values.json_format.columns import TEXT


class TypedVersion(NamedTuple):
    """The type that values of a schema have. origin: which schema, for errors."""

    type: pa.DataType
    origin: str


def union_type(versions: Sequence[TypedVersion]) -> pa.DataType:
    """Return the type as which values of all versions can be read.

    Fields are merged by name, in the order of the first version, then those that only later ones have. Numbers become
    the wider type, an integer and a double a double; what one version has as text of JSON, all have.
    Args: versions: newest first, at least one.
    Raises: InvalidSchemaError for types that have no common one, with both and where they come from.
    """
    return _merged(versions, ())


def _merged(versions: Sequence[TypedVersion], path: tuple[str, ...]) -> pa.DataType:
    some = [each for each in versions if not pa.types.is_null(each.type)]
    if not some or any(each.type == TEXT for each in some):
        return TEXT if some else pa.null()
    first = some[0]
    for kind in (pa.types.is_struct, pa.types.is_map, pa.types.is_list):
        if kind(first.type):
            other = next((each for each in some if not kind(each.type)), None)
            if other is not None:
                raise _different(first, other, path)
            return _nested(some, path)
    return reduce(lambda one, other: _common(one, other, path), some).type


def _nested(versions: Sequence[TypedVersion], path: tuple[str, ...]) -> pa.DataType:
    first = versions[0].type
    if pa.types.is_map(first):
        values = [TypedVersion(each.type.item_type, each.origin) for each in versions]
        return pa.map_(first.key_type, pa.field("value", _merged(values, (*path, "value"))))
    if pa.types.is_list(first):
        items = [TypedVersion(each.type.value_type, each.origin) for each in versions]
        return pa.list_(pa.field("element", _merged(items, (*path, "element"))))
    fields: dict[str, list[TypedVersion]] = {}
    for version in versions:
        for each in version.type:
            fields.setdefault(each.name, []).append(TypedVersion(each.type, version.origin))
    return pa.struct([pa.field(name, _merged(found, (*path, name))) for name, found in fields.items()])


def _common(one: TypedVersion, other: TypedVersion, path: tuple[str, ...]) -> TypedVersion:
    """Return the type that holds the values of two types without fields or items."""
    if one.type == other.type:
        return one
    integers = [pa.types.is_integer(each.type) for each in (one, other)]
    numbers = [
        is_integer or pa.types.is_floating(each.type) for is_integer, each in zip(integers, (one, other), strict=True)
    ]
    if not all(numbers):
        raise _different(one, other, path)
    if all(integers) or not any(integers):
        return one if one.type.bit_width >= other.type.bit_width else other
    return TypedVersion(pa.float64(), one.origin)


def _different(one: TypedVersion, other: TypedVersion, path: tuple[str, ...]) -> InvalidSchemaError:
    where = f"field {'.'.join(path)!r}" if path else "the value"
    return InvalidSchemaError(
        f"the JSON Schemas have no union: {where} is {_shown(one.type)} in {one.origin}, and {_shown(other.type)} in "
        f"{other.origin}: choose one by schema= or schema_id="
    )


def _shown(arrow_type: pa.DataType) -> str:
    """Return the name of a type, without the types in it."""
    if pa.types.is_struct(arrow_type):
        return "an object"
    if pa.types.is_map(arrow_type):
        return "a map"
    return "an array" if pa.types.is_list(arrow_type) else str(arrow_type)
