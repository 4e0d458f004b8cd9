"""What kstore.spark.scan reads: a schema from the names of columns, and a Constraint from conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TypeAlias

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import DataType, StructField, StructType

from kstore.spark.pushdown import Constraint
from kstore.spark.schema import COLUMN_TYPES

# (column, operator, value), as in filters of pyarrow and pandas.
Condition: TypeAlias = tuple[str, str, Any]

_COMPARISONS: dict[str, Any] = {
    "=": EqualTo,
    "==": EqualTo,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
    "<": LessThan,
    "<=": LessThanOrEqual,
}


def projected(columns: Iterable[str], source: StructType) -> StructType:
    """Return the schema of some columns, in their order; "value.NAME" is a struct with this field of a value.

    Args: source: the schema of the source, with the types of keys and values.
    Raises: ValueError for an unknown column or field, or no column.
    """
    names = [columns] if isinstance(columns, str) else list(columns)
    types: dict[str, DataType] = {**COLUMN_TYPES, **{field.name: field.dataType for field in source.fields}}
    paths: dict[str, list[tuple[str, ...]]] = {}
    for name in names:
        column, *fields = name.split(".")
        if column not in types:
            raise ValueError(f"columns must be some of {', '.join(types)}, or fields of a value; got {name!r}")
        paths.setdefault(column, []).append(tuple(fields))
    if not names or len(set(names)) < len(names):
        raise ValueError(f"columns must be at least one, each once; got {names}")
    return StructType([StructField(name, _narrowed(types[name], paths[name], name)) for name in paths])


def _narrowed(data_type: DataType, paths: Sequence[tuple[str, ...]], place: str) -> DataType:
    """Return a type with the fields that paths lead to; an empty path is the whole."""
    if not all(paths):
        return data_type
    if not isinstance(data_type, StructType):
        raise ValueError(f"columns: {place} is {data_type.simpleString()}, which has no field {'.'.join(paths[0])!r}")
    inner: dict[str, list[tuple[str, ...]]] = {}
    for name, *rest in paths:
        if name not in data_type.names:
            raise ValueError(f"columns: {place} has no field {name!r}, but {', '.join(data_type.names)}")
        inner.setdefault(name, []).append(tuple(rest))
    return StructType(
        [StructField(name, _narrowed(data_type[name].dataType, inner[name], f"{place}.{name}")) for name in inner]
    )


def constraint_where(conditions: Iterable[Condition]) -> Constraint:
    """Return what records have to be that meet all conditions.

    Raises: ValueError for one that the reader cannot answer.
    """
    constraint = Constraint()
    for condition in conditions:
        column, operator, value = condition
        narrowed = constraint.narrowed(_filter(column, operator, value)) if _is_of(column, operator, value) else None
        if narrowed is None:
            raise ValueError(
                "where must have conditions such as ('topic', '=', 'orders'), ('partition', 'in', [0, 1]), "
                f"('offset', '>=', 100), ('timestamp', '<', datetime); got {condition!r}"
            )
        constraint = narrowed
    return constraint


_TYPES: Mapping[str, type] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}


def _is_of(column: str, operator: str, value: Any) -> bool:
    """Whether a condition has a known operator, and a value of the type of its column."""
    expected = _TYPES.get(column)
    if expected is None or (operator != "in" and operator not in _COMPARISONS):
        return False
    values = value if operator == "in" else [value]
    if isinstance(values, str) or not isinstance(values, Iterable):
        return False
    return all(isinstance(each, expected) and not isinstance(each, bool) for each in values)


def _filter(column: str, operator: str, value: Any) -> Filter:
    if operator == "in":
        return In((column,), tuple(value))
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=timezone.utc)
    made: Filter = _COMPARISONS[operator]((column,), value)
    return made
