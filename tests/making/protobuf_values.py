"""Random schemas of Protobuf with messages of them, and what columns should hold of a message.

What a message has is read by its ListFields, which kstore does not use.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from kstore.values.protobuf.known import known_files

F = FieldDescriptorProto
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    F.TYPE_DOUBLE: st.floats(allow_nan=False),
    F.TYPE_FLOAT: st.floats(width=32, allow_nan=False),
    F.TYPE_INT32: _INT32,
    F.TYPE_SINT32: _INT32,
    F.TYPE_SFIXED32: _INT32,
    F.TYPE_INT64: _INT64,
    F.TYPE_SINT64: _INT64,
    F.TYPE_SFIXED64: _INT64,
    F.TYPE_UINT32: st.integers(0, 2**32 - 1),
    F.TYPE_FIXED32: st.integers(0, 2**32 - 1),
    F.TYPE_UINT64: st.integers(0, 2**64 - 1),
    F.TYPE_FIXED64: st.integers(0, 2**64 - 1),
    F.TYPE_BOOL: st.booleans(),
    F.TYPE_STRING: _TEXT,
    F.TYPE_BYTES: st.binary(max_size=8),
}
_KEYS = [each for each in SCALARS if each not in (F.TYPE_DOUBLE, F.TYPE_FLOAT, F.TYPE_BYTES)]
WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_KNOWN: dict[str, Callable[[Message], Any]] = {
    "google.protobuf.Timestamp": lambda value: (value.seconds * 10**9 + value.nanos) // 1000,
    "google.protobuf.Duration": lambda value: timedelta(seconds=value.seconds, microseconds=int(value.nanos / 1000)),
    **dict.fromkeys(
        ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"),
        lambda value: json.loads(MessageToJson(value)),
    ),
    **{f"google.protobuf.{name}Value": lambda value: value.value for name in WRAPPERS},
}
_KNOWN_FILES = [f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "struct", "wrappers")]


class Made(NamedTuple):
    """A schema: its file and the descriptor of the message M. values: random messages of it."""

    file: FileDescriptorProto
    descriptor: Descriptor
    values: st.SearchStrategy[Message]


def message_of(file: FileDescriptorProto, name: str) -> Descriptor:
    """Return the descriptor of a message of a file."""
    pool = DescriptorPool()
    for known in _KNOWN_FILES:
        pool.Add(known_files()[known])
    pool.Add(file)
    return pool.FindMessageTypeByName(name)


@st.composite
def schemas(draw: st.DrawFn) -> Made:
    """A schema in which all can be that a column can hold."""
    syntax = draw(st.sampled_from(["proto2", "proto3"]))
    file = FileDescriptorProto(name="m.proto", package="p", syntax=syntax, dependency=_KNOWN_FILES)
    enum = file.enum_type.add(name="E")
    for number, symbol in ((0, "NONE"), (1, "ONE"), (-7, "LESS")):
        enum.value.add(name=symbol, number=number)
    _add_fields(draw, file.message_type.add(name="M"), ".p.M", depth=2, syntax=syntax)
    descriptor = message_of(file, "p.M")
    return Made(file, descriptor, messages_of(descriptor))


def _add_fields(draw: st.DrawFn, message: DescriptorProto, path: str, *, depth: int, syntax: str) -> None:
    numbers = draw(st.lists(st.integers(1, 3000), unique=True, max_size=6))
    for place, number in enumerate(numbers):
        field = message.field.add(name=f"f{place}", number=number, label=F.LABEL_OPTIONAL)
        shape = draw(st.sampled_from(["single", "single", "repeated", "map", "oneof", "optional"]))
        kinds = ["scalar", "scalar", "enum", "known", *(["message", "message"] if depth else [])]
        kind = draw(st.sampled_from(kinds))
        target = field
        if shape == "map":
            target = _add_map(draw, message, field, path)
        if kind == "scalar":
            target.type = draw(st.sampled_from(sorted(SCALARS)))
        elif kind == "enum":
            target.type, target.type_name = F.TYPE_ENUM, ".p.E"
        elif kind == "known":
            target.type, target.type_name = F.TYPE_MESSAGE, f".{draw(st.sampled_from(sorted(_KNOWN)))}"
        else:
            inner = message.nested_type.add(name=f"M{place}")
            is_group = syntax == "proto2" and shape in ("single", "repeated") and draw(st.booleans())
            target.type = F.TYPE_GROUP if is_group else F.TYPE_MESSAGE
            target.type_name = f"{path}.M{place}"
            _add_fields(draw, inner, f"{path}.M{place}", depth=depth - 1, syntax=syntax)
        if shape == "repeated":
            field.label = F.LABEL_REPEATED
            if field.type not in (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE, F.TYPE_GROUP):
                field.options.packed = draw(st.booleans())
        elif shape == "oneof" and not any(each.name == "o" for each in message.oneof_decl):
            message.oneof_decl.add(name="o")
            field.oneof_index = 0
        elif shape == "oneof":
            field.oneof_index = 0
    if syntax == "proto3":
        for field in message.field:
            is_single = field.label == F.LABEL_OPTIONAL and not field.HasField("oneof_index")
            if is_single and field.type != F.TYPE_MESSAGE and draw(st.booleans()):
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")


def _add_map(draw: st.DrawFn, message: DescriptorProto, field: FieldDescriptorProto, path: str) -> FieldDescriptorProto:
    """Make a field a map; return the field of its values."""
    entry = message.nested_type.add(name=f"F{field.name[1:]}Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=draw(st.sampled_from(_KEYS)))
    field.label, field.type, field.type_name = F.LABEL_REPEATED, F.TYPE_MESSAGE, f"{path}.{entry.name}"
    return entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL)


def messages_of(descriptor: Descriptor) -> st.SearchStrategy[Message]:
    """Return random messages."""

    @st.composite
    def messages(draw: st.DrawFn) -> Message:
        message = GetMessageClass(descriptor)()
        _fill(draw, message)
        return message

    return messages()


def _fill(draw: st.DrawFn, message: Message) -> None:
    for field in message.DESCRIPTOR.fields:
        if not draw(st.booleans()):
            continue
        if is_map(field):
            key_type, value_type = (field.message_type.fields_by_number[number] for number in (1, 2))
            for key in draw(st.lists(SCALARS[key_type.type], max_size=3)):
                entries = getattr(message, field.name)
                if value_type.message_type is not None:
                    _fill_message(draw, entries[key])
                else:
                    entries[key] = draw(_scalars(value_type))
        elif field.is_repeated:
            items = getattr(message, field.name)
            for _ in range(draw(st.integers(0, 3))):
                if field.message_type is not None:
                    _fill_message(draw, items.add())
                else:
                    items.append(draw(_scalars(field)))
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            _fill_message(draw, inner)
        else:
            setattr(message, field.name, draw(_scalars(field)))


def _fill_message(draw: st.DrawFn, message: Message) -> None:
    match message.DESCRIPTOR.full_name:
        case "google.protobuf.Timestamp":
            message.seconds = draw(st.integers(-62_135_596_800, 253_402_300_799))
            message.nanos = draw(st.integers(0, 999_999_999))
        case "google.protobuf.Duration":
            message.seconds = draw(st.integers(0, 10**9))
            message.nanos = draw(st.integers(0, 999_999_999))
        case "google.protobuf.Value":
            message.string_value = draw(_TEXT)
        case "google.protobuf.ListValue":
            message.extend(draw(st.lists(_TEXT, max_size=3)))
        case "google.protobuf.Struct":
            values = st.none() | st.booleans() | _TEXT | st.lists(_TEXT)
            message.update(draw(st.dictionaries(_TEXT, values, max_size=3)))
        case _:
            _fill(draw, message)


def _scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type == F.TYPE_ENUM:
        return st.sampled_from([0, 1, -7])
    return SCALARS[field.type]


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def shown(message: Message, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what columns hold of a message.  Args: names: the fields that are read, None for all."""
    written = {field.name: value for field, value in message.ListFields()}
    return {
        field.name: _shown_field(field, written, None if names is None else names[field.name])
        for field in message.DESCRIPTOR.fields
        if names is None or field.name in names
    }


def _shown_field(field: FieldDescriptor, written: dict[str, Any], names: dict[str, Any] | None) -> Any:
    if is_map(field):
        value_type = field.message_type.fields_by_number[2]
        entries = written.get(field.name, {})
        return [(key, _shown(entries[key], value_type, names)) for key in sorted(entries)]
    if field.is_repeated:
        return [_shown(item, field, names) for item in written.get(field.name, [])]
    if field.name in written:
        return _shown(written[field.name], field, names)
    if field.has_presence and not field.has_default_value:
        return None
    return _shown(field.default_value, field, names)


def _shown(value: Any, field: FieldDescriptor, names: dict[str, Any] | None) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type is None:
        return value
    known = _KNOWN.get(field.message_type.full_name)
    if known is None:
        return shown(value, names) if field.message_type.fields else True
    return known(value)


def plain(scalar: pa.Scalar) -> Any:
    """Return a value of a column in the form of shown()."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {each.name: plain(scalar[each.name]) for each in kind}
    if pa.types.is_map(kind):
        return [(pair["key"].as_py(), plain(pair["value"])) for pair in scalar.values]
    if pa.types.is_list(kind):
        return [plain(item) for item in scalar.values]
    return scalar.value if pa.types.is_timestamp(kind) else scalar.as_py()


def encoded(value: Any) -> Any:
    """Return a value of shown() as JSON can hold it."""
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, timedelta):
        return {"us": value // timedelta(microseconds=1)}
    if isinstance(value, dict):
        return {"fields": {name: encoded(each) for name, each in value.items()}}
    if isinstance(value, (list, tuple)):
        return [encoded(each) for each in value]
    return value


def like(found: Any, expected: Any) -> Any:
    """Return a value of a column in the form of shown(), with JSON parsed where a message has some."""
    if isinstance(found, str) and found != expected and expected is not None:
        return json.loads(found)
    if isinstance(expected, dict) and isinstance(found, dict):
        return {name: like(found[name], expected.get(name)) for name in found}
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)) and len(expected) == len(found):
        return type(found)(like(each, other) for each, other in zip(found, expected, strict=True))
    return found


def descriptor_set(*files: FileDescriptorProto) -> bytes:
    """Return files as protoc writes them."""
    return descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()
