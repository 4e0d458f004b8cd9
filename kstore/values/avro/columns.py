"""The columns that values of an Avro schema become: their Arrow types, and their layout for the core."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pyarrow as pa

from kstore._core import VALUE_LAYOUTS
from kstore.errors import InvalidSchemaError
from kstore.values.avro.schema import (
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
from kstore.values.decoded import MOST_COLUMN_DEPTH, MOST_COLUMNS, Unions, Wanted

_PRIMITIVE: dict[str, tuple[pa.DataType, str, int]] = {
    "null": (pa.null(), "null", 0),
    "boolean": (pa.bool_(), "bit", 0),
    "int": (pa.int32(), "fixed", 4),
    "long": (pa.int64(), "fixed", 8),
    "float": (pa.float32(), "fixed", 4),
    "double": (pa.float64(), "fixed", 8),
    "bytes": (pa.binary(), "variable", 0),
    "string": (pa.string(), "variable", 0),
}
_TIMES: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_MOST_DIGITS_OF_128_BITS = 38
_MOST_FIXED_BYTES = 65_536
# Unsigned in Avro, which Spark's tables have no type for.
DURATION_FIELDS = ("months", "days", "milliseconds")
_DURATION = pa.struct([(name, pa.int64()) for name in DURATION_FIELDS])


@dataclass(slots=True, eq=False)
class Column:
    """A column of a reader.

    avro_type: what is read, without the null of a union. branches: for a union of several types, that of each child.
    names: for a record, the field of each child. number: its place in the layout.
    """

    avro_type: AvroType
    arrow_type: pa.DataType
    layout: str
    width: int = 0
    children: list[Column] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    number: int = -1


def columns_of(avro_type: AvroType, wanted: Wanted = None) -> Column:
    """Return the root of the columns for a reader's schema, numbered.

    Args: wanted: the fields of the record that are read.
    Raises: InvalidSchemaError for a type that contains itself, where it is wanted.
    """
    root = _Columns().column(avro_type, wanted, "")
    _number(root)
    return root


def layout_of(root: Column) -> list[tuple[int, int, int, int]]:
    """Return the layout of ValueColumns for numbered columns."""
    return [
        (
            VALUE_LAYOUTS[column.layout],
            column.width,
            column.children[0].number if column.children else 0,
            len(column.children),
        )
        for column in _in_order(root)
    ]


def unions_in(root: Column) -> Unions:
    """Return where the columns of unions are."""
    unions = []
    waiting: list[tuple[Column, tuple[str, ...]]] = [(root, ())]
    while waiting:
        column, path = waiting.pop()
        if isinstance(column.avro_type, UnionType):
            unions.append(path)
        children, names = column.children, column.names
        if isinstance(column.avro_type, MapType):
            children, names = column.children[0].children, ["key", "value"]
        elif isinstance(column.avro_type, ArrayType):
            names = ["element"]
        waiting += [(child, (*path, name)) for child, name in zip(children, names, strict=True)]
    return frozenset(unions)


def _in_order(root: Column) -> list[Column]:
    """Return the columns in an order in which the children of each stand together, after it."""
    ordered, waiting = [], deque([root])
    while waiting:
        column = waiting.popleft()
        ordered.append(column)
        waiting.extend(column.children)
    return ordered


def _number(root: Column) -> None:
    for number, column in enumerate(_in_order(root)):
        column.number = number


class _Columns:
    """Makes columns; knows the records that it is in, to see one that contains itself."""

    def __init__(self) -> None:
        self._within: list[AvroType] = []
        self._depth = 0
        self._count = 0

    def column(self, avro_type: AvroType, wanted: Wanted, path: str) -> Column:
        """Return the column of a type, with those below it.  Raises: InvalidSchemaError."""
        self._count += 1
        if self._count > MOST_COLUMNS or self._depth > MOST_COLUMN_DEPTH:
            found = f"more than {MOST_COLUMNS} columns" if self._count > MOST_COLUMNS else "columns in columns"
            raise InvalidSchemaError(
                f"field {path or 'value'!r} of the Avro schema: there may be {MOST_COLUMNS} columns, nested "
                f"{MOST_COLUMN_DEPTH} deep, and the schema has {found}: leave some out by naming the fields to read"
            )
        self._depth += 2 if isinstance(avro_type, MapType) else not isinstance(avro_type, UnionType)
        column = self._of(avro_type, wanted, path)
        self._depth -= 2 if isinstance(avro_type, MapType) else not isinstance(avro_type, UnionType)
        return column

    def _of(self, avro_type: AvroType, wanted: Wanted, path: str) -> Column:
        match avro_type:
            case UnionType():
                return self._union(avro_type, wanted, path)
            case RecordType():
                return self._record(avro_type, wanted, path)
            case ArrayType():
                item = self.column(avro_type.items, wanted, path)
                return Column(avro_type, pa.list_(pa.field("element", item.arrow_type)), "list", children=[item])
            case MapType():
                return self._map(avro_type, wanted, path)
            case EnumType():
                return Column(avro_type, pa.string(), "variable")
            case Fixed(logical=None):
                if avro_type.size == 0:
                    return Column(avro_type, pa.binary(), "variable")
                if avro_type.size > _MOST_FIXED_BYTES:
                    raise InvalidSchemaError(
                        f"field {path or 'value'!r} of the Avro schema is a {type_name(avro_type)}; a column has at "
                        f"most {_MOST_FIXED_BYTES}: leave it out by naming the fields to read"
                    )
                return Column(avro_type, pa.binary(avro_type.size), "fixed", avro_type.size)
            case Primitive(logical=None):
                arrow_type, layout, width = _PRIMITIVE[avro_type.name]
                return Column(avro_type, arrow_type, layout, width)
            case Primitive(logical=Logical() as logical) | Fixed(logical=Logical() as logical):
                return _logical_column(avro_type, logical)
        raise InvalidSchemaError(f"no column can hold {type_name(avro_type)}")

    def _record(self, record: RecordType, wanted: Wanted, path: str) -> Column:
        if record in self._within:
            raise InvalidSchemaError(
                f"field {path or 'value'!r} of the Avro schema has the type {type_name(record)}, which contains "
                "itself, so that no column can hold it: leave it out by naming the fields to read"
            )
        self._within.append(record)
        fields = [each for each in record.fields if wanted is None or each.name in wanted]
        unknown = [] if wanted is None else sorted(wanted.keys() - {each.name for each in fields})
        if unknown:
            raise InvalidSchemaError(
                f"{type_name(record)} of the Avro schema has no field {unknown[0]!r}; it has "
                f"{', '.join(each.name for each in record.fields)}"
            )
        children = [self._field(each, wanted, path) for each in fields]
        self._within.pop()
        names = [each.name for each in fields]
        arrow_type = pa.struct([pa.field(name, child.arrow_type) for name, child in zip(names, children, strict=True)])
        return Column(record, arrow_type, "struct", children=children, names=names)

    def _field(self, each: Field, wanted: Wanted, path: str) -> Column:
        inner = None if wanted is None else wanted[each.name]
        return self.column(each.type, inner, f"{path}.{each.name}" if path else each.name)

    def _map(self, avro_type: MapType, wanted: Wanted, path: str) -> Column:
        key = Column(Primitive("string"), pa.string(), "variable")
        value = self.column(avro_type.values, wanted, path)
        pair = Column(avro_type, pa.struct([("key", pa.string()), ("value", value.arrow_type)]), "struct")
        pair.children = [key, value]
        arrow_type = pa.map_(pa.string(), pa.field("value", value.arrow_type))
        return Column(avro_type, arrow_type, "list", children=[pair])

    def _union(self, union: UnionType, wanted: Wanted, path: str) -> Column:
        branches = [branch for branch in union.branches if not _is_null(branch)]
        if not branches:
            return self.column(union.branches[0], None, path)
        if len(branches) == 1:
            return self.column(branches[0], wanted, path)
        plain = {branch.name for branch in branches if isinstance(branch, Primitive) and branch.logical is None}
        if len(plain) == len(branches):
            if plain == {"int", "long"}:
                return self.column(Primitive("long"), None, path)
            if plain == {"float", "double"}:
                return self.column(Primitive("double"), None, path)
        children = [self.column(branch, None, path) for branch in branches]
        names = [f"member{number}" for number in range(len(children))]
        arrow_type = pa.struct([pa.field(name, child.arrow_type) for name, child in zip(names, children, strict=True)])
        return Column(UnionType(tuple(branches)), arrow_type, "struct", children=children, names=names)


def _is_null(branch: AvroType) -> bool:
    return isinstance(branch, Primitive) and branch.name == "null"


def _logical_column(avro_type: Primitive | Fixed, logical: Logical) -> Column:
    if logical.name == "decimal":
        if logical.precision <= _MOST_DIGITS_OF_128_BITS:
            return Column(avro_type, pa.decimal128(logical.precision, logical.scale), "fixed", 16)
        return Column(avro_type, pa.decimal256(logical.precision, logical.scale), "fixed", 32)
    if logical.name == "uuid":
        return Column(avro_type, pa.string(), "variable")
    if logical.name == "duration":
        children = [Column(Primitive("long"), pa.int64(), "fixed", 8) for _ in DURATION_FIELDS]
        return Column(avro_type, _DURATION, "struct", children=children, names=list(DURATION_FIELDS))
    _, layout, width = _PRIMITIVE[avro_type.name]
    return Column(avro_type, _TIMES[logical.name], layout, width)
