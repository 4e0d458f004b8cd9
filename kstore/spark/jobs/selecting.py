"""What kstore.spark.scan reads: a schema from the names of columns, and a Constraint from conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from kstore.values.decoded import Wanted, column_and_path, wanted_of

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
        column, path = column_and_path(name)
        if column not in types:
            raise ValueError(f"columns must be some of {', '.join(types)}, or fields of a value; got {name!r}")
        paths.setdefault(column, []).append(path)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"columns must be at least one, each once; got {names}")
    return StructType([StructField(name, _narrowed(types[name], wanted_of(paths[name]), name)) for name in paths])


def _narrowed(data_type: DataType, wanted: Wanted, place: str) -> DataType:
    """Return a type with the fields that are wanted."""
    if wanted is None:
        return data_type
    if not isinstance(data_type, StructType):
        raise ValueError(f"columns: {place} is {data_type.simpleString()}, which has no field {next(iter(wanted))!r}")
    for name in wanted:
        if name not in data_type.names:
            raise ValueError(f"columns: {place} has no field {name!r}, but {', '.join(data_type.names)}")
    return StructType(
        [
            StructField(name, _narrowed(data_type[name].dataType, inner, f"{place}.{name}"))
            for name, inner in wanted.items()
        ]
    )


def constraint_where(conditions: Iterable[Condition]) -> Constraint:
    """Return what records have to be that meet all conditions.

    Raises: ValueError for one that the reader cannot answer.
    """
    constraint = Constraint()
    for condition in conditions:
        made = _filter_of(condition)
        narrowed = None if made is None else constraint.narrowed(made)
        if narrowed is None:
            raise ValueError(
                "where must be a list of conditions such as ('topic', '=', 'orders'), ('partition', 'in', [0, 1]), "
                f"('offset', '>=', 100), ('timestamp', '<', datetime); got {condition!r}"
            )
        constraint = narrowed
    return constraint


_TYPES: Mapping[str, type] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}


def _filter_of(condition: object) -> Filter | None:
    """Return a condition as a filter, None without a known operator or a value of the type of its column."""
    if not isinstance(condition, (tuple, list)) or len(condition) != 3:
        return None
    column, operator, value = condition
    if not isinstance(column, str) or not isinstance(operator, str):
        return None
    is_in = operator == "in"
    if column not in _TYPES or (not is_in and operator not in _COMPARISONS):
        return None
    if is_in and (isinstance(value, str) or not isinstance(value, Iterable)):
        return None
    # Of an iterator too, which gives its values once.
    values = tuple(value) if is_in else (value,)
    if not all(isinstance(each, _TYPES[column]) and not isinstance(each, bool) for each in values):
        return None
    return In((column,), values) if is_in else _comparison(column, operator, value)


def _comparison(column: str, operator: str, value: Any) -> Filter:
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=timezone.utc)
    made: Filter = _COMPARISONS[operator]((column,), value)
    return made
