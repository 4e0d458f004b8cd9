"""The columns that messages of Protobuf become."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from kstore.errors import InvalidSchemaError
from kstore.values.decoded import MOST_COLUMN_DEPTH, MOST_COLUMNS, Wanted
from kstore.values.protobuf.known import GOOGLE_FILES

_F = FieldDescriptor
_INTEGERS: dict[int, pa.DataType] = {
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_SINT32: pa.int32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_SINT64: pa.int64(),
    _F.TYPE_SFIXED64: pa.int64(),
    _F.TYPE_UINT32: pa.uint32(),
    _F.TYPE_FIXED32: pa.uint32(),
    _F.TYPE_UINT64: pa.uint64(),
    _F.TYPE_FIXED64: pa.uint64(),
}
_OTHERS: dict[int, tuple[str, pa.DataType]] = {
    _F.TYPE_FLOAT: ("float", pa.float32()),
    _F.TYPE_DOUBLE: ("double", pa.float64()),
    _F.TYPE_BOOL: ("bool", pa.bool_()),
    _F.TYPE_STRING: ("string", pa.string()),
    _F.TYPE_BYTES: ("bytes", pa.binary()),
}
_MESSAGES = (_F.TYPE_MESSAGE, _F.TYPE_GROUP)
# Messages that are one value.
_KNOWN: dict[str, tuple[str, pa.DataType]] = {
    "google.protobuf.Timestamp": ("timestamp", pa.timestamp("us", "UTC")),
    "google.protobuf.Duration": ("duration", pa.duration("us")),
    "google.protobuf.Struct": ("json", pa.string()),
    "google.protobuf.Value": ("json", pa.string()),
    "google.protobuf.ListValue": ("json", pa.string()),
}
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


@dataclass(slots=True, eq=False)
class ValueColumn:
    """What a value of a type becomes.

    kind: "int", "float", "double", "bool", "string", "bytes", "enum", "message", or that of a message that is one
    value: "timestamp", "duration", "json", "wrapper"; "empty" for one without fields, which is true. name: of a message
    or enum. fields: of a message. inner: of a wrapper. symbols: of an enum, by number.
    """

    kind: str
    arrow_type: pa.DataType
    name: str = ""
    fields: list[FieldColumn] = field(default_factory=list)
    inner: ValueColumn | None = None
    symbols: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class FieldColumn:
    """The column of a field.

    shape: "single", "list" or "map". value: of each value, item or entry; key: that of a map. absent: what a single
    value is that was not written.
    """

    number: int
    name: str
    shape: str
    value: ValueColumn
    key: ValueColumn | None
    absent: Any
    arrow_type: pa.DataType


def kind_of(each: FieldDescriptor) -> str:
    """Return the kind of a field's values, as of ValueColumn."""
    if each.type in _INTEGERS:
        return "int"
    if each.type in _MESSAGES:
        name = each.message_type.full_name
        if each.message_type.file.name not in GOOGLE_FILES:
            # Whatever its name is, its fields may be others.
            return "message"
        return _KNOWN[name][0] if name in _KNOWN else "wrapper" if name in _WRAPPERS else "message"
    return "enum" if each.type == _F.TYPE_ENUM else _OTHERS[each.type][0]


def is_map(each: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    return bool(each.type == _F.TYPE_MESSAGE and each.is_repeated and each.message_type.GetOptions().map_entry)


def described(each: FieldDescriptor) -> str:
    """Return the type of a field, for errors."""
    kind = kind_of(each)
    name = each.message_type.full_name if each.message_type is not None else kind
    return f"a map of {name}" if is_map(each) else f"repeated {name}" if each.is_repeated else name


def columns_of(message: Descriptor, wanted: Wanted = None) -> ValueColumn:
    """Return the columns of a message.

    Args: wanted: the fields that are read.
    Raises: InvalidSchemaError for a message that contains itself, where it is wanted.
    """
    return _Columns().message(message, wanted, "")


def symbols_of(enum: EnumDescriptor) -> dict[int, str]:
    """Return the names of an enum by their numbers: the first one of each."""
    return {each.number: each.name for each in reversed(enum.values)}


class _Columns:
    """Makes columns; knows the messages that it is in, to see one that contains itself."""

    def __init__(self) -> None:
        self._within: list[str] = []
        self._depth = 0
        self._count = 0

    def message(self, message: Descriptor, wanted: Wanted, path: str) -> ValueColumn:
        """Return the columns of a message.  Raises: InvalidSchemaError."""
        if message.full_name in self._within:
            raise InvalidSchemaError(
                f"field {path or 'value'!r} of the Protobuf schema has the type {message.full_name}, which contains "
                "itself, so that no column can hold it: leave it out by naming the fields to read"
            )
        self._within.append(message.full_name)
        fields = [each for each in message.fields if wanted is None or each.name in wanted]
        unknown = [] if wanted is None else sorted(wanted.keys() - {each.name for each in fields})
        if unknown:
            raise InvalidSchemaError(
                f"{message.full_name} of the Protobuf schema has no field {unknown[0]!r}; it has "
                f"{', '.join(each.name for each in message.fields)}"
            )
        children = [self._field(each, None if wanted is None else wanted[each.name], path) for each in fields]
        self._within.pop()
        arrow_type = pa.struct([pa.field(child.name, child.arrow_type) for child in children])
        return ValueColumn("message", arrow_type, message.full_name, children)

    def _field(self, each: FieldDescriptor, wanted: Wanted, path: str) -> FieldColumn:
        path = f"{path}.{each.name}" if path else each.name
        if is_map(each):
            key = self._value(each.message_type.fields_by_number[1], None, path, depth=1)
            value = self._value(each.message_type.fields_by_number[2], wanted, path, depth=2)
            arrow_type = pa.map_(key.arrow_type, pa.field("value", value.arrow_type))
            return FieldColumn(each.number, each.name, "map", value, key, None, arrow_type)
        if each.is_repeated:
            value = self._value(each, wanted, path, depth=1)
            arrow_type = pa.list_(pa.field("element", value.arrow_type))
            return FieldColumn(each.number, each.name, "list", value, None, None, arrow_type)
        value = self._value(each, wanted, path, depth=0)
        return FieldColumn(each.number, each.name, "single", value, None, _absent(each, value), value.arrow_type)

    def _value(self, each: FieldDescriptor, wanted: Wanted, path: str, *, depth: int) -> ValueColumn:
        """Return the column of a value.  Args: depth: how many columns it is in, besides those of messages."""
        self._count += 1
        self._depth += depth + 1
        if self._count > MOST_COLUMNS or self._depth > MOST_COLUMN_DEPTH:
            found = f"more than {MOST_COLUMNS} columns" if self._count > MOST_COLUMNS else "columns in columns"
            raise InvalidSchemaError(
                f"field {path!r} of the Protobuf schema: there may be {MOST_COLUMNS} columns, nested "
                f"{MOST_COLUMN_DEPTH} deep, and the schema has {found}: leave some out by naming the fields to read"
            )
        column = self._of(each, wanted, path)
        self._depth -= depth + 1
        return column

    def _of(self, each: FieldDescriptor, wanted: Wanted, path: str) -> ValueColumn:
        kind = kind_of(each)
        if kind == "int":
            return ValueColumn(kind, _INTEGERS[each.type])
        if kind == "enum":
            return ValueColumn(kind, pa.string(), each.enum_type.full_name, symbols=symbols_of(each.enum_type))
        if kind == "message" and not each.message_type.fields:
            # No file has structs without fields.
            return ValueColumn("empty", pa.bool_(), each.message_type.full_name)
        if kind == "message":
            return self.message(each.message_type, wanted, path)
        if kind == "wrapper":
            inner = self._of(each.message_type.fields_by_number[1], None, path)
            return ValueColumn(kind, inner.arrow_type, each.message_type.full_name, inner=inner)
        if kind in ("timestamp", "duration", "json"):
            return ValueColumn(kind, _KNOWN[each.message_type.full_name][1], each.message_type.full_name)
        return ValueColumn(kind, _OTHERS[each.type][1])


def _absent(each: FieldDescriptor, value: ValueColumn) -> Any:
    """Return what a column has where a field was not written: its default, null if it has none of its own."""
    if each.type in _MESSAGES or (each.has_presence and not each.has_default_value):
        return None
    default = each.default_value
    if value.kind == "string" and isinstance(default, bytes):
        return default.decode("utf-8", "replace")
    return value.symbols.get(default, str(default)) if value.kind == "enum" else default
