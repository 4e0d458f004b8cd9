"""Assembly: parsed messages to the columns of a reader.

Fields are those of the same number, and values are those that were written, as far as the reader's type has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from kstore.values.protobuf.columns import FieldColumn, ValueColumn, described, is_map, kind_of

_F = FieldDescriptor
_Convert: TypeAlias = Callable[[Sequence[Any]], pa.Array]
_VARINT, _FIXED64, _BYTES, _GROUP, _FIXED32 = 0, 1, 2, 3, 5
_WIRE_NAMES = {_VARINT: "a varint", _FIXED64: "8 bytes", _BYTES: "bytes", _GROUP: "a group", _FIXED32: "4 bytes"}
_WIRE_TYPES = {
    **dict.fromkeys((_F.TYPE_DOUBLE, _F.TYPE_FIXED64, _F.TYPE_SFIXED64), _FIXED64),
    **dict.fromkeys((_F.TYPE_FLOAT, _F.TYPE_FIXED32, _F.TYPE_SFIXED32), _FIXED32),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE), _BYTES),
    _F.TYPE_GROUP: _GROUP,
}
_OFFSET_BYTES = 4
# Those of the years 1 to 9999, and of ten thousand years.
_LEAST_SECONDS, _MOST_SECONDS = -62_135_596_800, 253_402_300_799
_MOST_DURATION_SECONDS = 315_576_000_000
_NANOS = 1_000_000_000


class UnfitValueError(ValueError):
    """A value has no place in its column; the message is a phrase."""


class TooLargeError(Exception):
    """Columns take more memory than they may."""


class Budget:
    """The bytes that columns may still take."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._left = most_bytes

    def reset(self) -> None:
        """Begin new columns."""
        self._left = self._most

    def take(self, count: int, *, width: int) -> None:
        """Take memory for `count` values of `width` bytes.  Raises: TooLargeError."""
        self.check(count, width=width)
        self._left -= count * width

    def check(self, count: int, *, width: int) -> None:
        """Raise TooLargeError if values take more memory than is left."""
        if count * width > self._left:
            raise TooLargeError


class _Access(NamedTuple):
    """Returns the column of a field for messages. number: that of the field."""

    number: int
    column: Callable[[Sequence[Message]], pa.Array]


class Assembly:
    """Makes columns of messages of one writer.

    Args: reader: what is wanted; writer: the type of the messages; budget: of the columns.
    Threads: not thread-safe.
    """

    def __init__(self, reader: ValueColumn, writer: Descriptor, budget: Budget) -> None:
        self._budget = budget
        self._convert = self._message(reader, writer, "")

    def column(self, messages: Sequence[Message]) -> pa.Array:
        """Return the column of messages.

        Raises: UnfitValueError if one has no place in it; TooLargeError.
        """
        return self._convert(messages)

    # Messages

    def _message(self, reader: ValueColumn, writer: Descriptor, path: str) -> _Convert:
        by_number: Mapping[int, FieldDescriptor] = writer.fields_by_number
        fields = [self._field(each, by_number.get(each.number), path) for each in reader.fields]
        names = [pa.field(each.name, each.arrow_type) for each in reader.fields]
        wire_types = {number: _wire_types(each) for number, each in by_number.items()}
        width = sum(_width(each.arrow_type) for each in reader.fields if not pa.types.is_struct(each.arrow_type))

        def convert(messages: Sequence[Message | None]) -> pa.Array:
            present = [message for message in messages if message is not None]
            _check_wire_types(present, wire_types, by_number, path)
            self._budget.take(len(messages), width=1)
            # Before the columns are made one by one.
            self._budget.check(len(present), width=width)
            if not fields:
                whole = pa.array([{}] * len(present), reader.arrow_type)
            else:
                whole = pa.StructArray.from_arrays([each(present) for each in fields], fields=names)
            if len(present) == len(messages):
                return whole
            index = (place - 1 if message is not None else None for message, place in _numbered(messages))
            return whole.take(pa.array(index, pa.int64()))

        return convert

    def _field(
        self, reader: FieldColumn, writer: FieldDescriptor | None, path: str
    ) -> Callable[[Sequence[Message]], pa.Array]:
        path = f"{path}.{reader.name}" if path else reader.name
        if writer is None:
            return lambda messages: self._absent(reader, len(messages))
        if reader.shape == "map" or is_map(writer):
            return self._map(reader, writer, path)
        convert = self._value(reader.value, writer, path)
        if reader.shape == "list":
            return self._list(reader, writer, convert)
        values = _values_of(reader, writer)
        default = None if reader.absent is None else pa.scalar(reader.absent, reader.arrow_type)

        def single(messages: Sequence[Message]) -> pa.Array:
            column = convert(values(messages))
            return column if default is None or not column.null_count else pc.fill_null(column, default)

        return single

    def _absent(self, reader: FieldColumn, count: int) -> pa.Array:
        """Return the column of a field that no message has."""
        self._budget.take(count, width=_width(reader.arrow_type))
        if reader.shape != "single":
            return pa.array([[]] * count, reader.arrow_type)
        if reader.absent is None:
            return pa.nulls(count, reader.arrow_type)
        return pa.array([reader.absent] * count, reader.arrow_type)

    def _list(
        self, reader: FieldColumn, writer: FieldDescriptor, convert: _Convert
    ) -> Callable[[Sequence[Message]], pa.Array]:
        name, is_repeated = writer.name, writer.is_repeated

        def lists(messages: Sequence[Message]) -> pa.Array:
            if is_repeated:
                parts = [getattr(message, name) for message in messages]
            else:
                parts = [[getattr(message, name)] if _has(message, writer) else [] for message in messages]
            offsets = self._offsets(parts)
            values = convert([item for part in parts for item in part])
            return pa.ListArray.from_arrays(offsets, values, type=reader.arrow_type)

        return lists

    def _map(self, reader: FieldColumn, writer: FieldDescriptor, path: str) -> Callable[[Sequence[Message]], pa.Array]:
        name = writer.name
        if reader.shape != "map" or not is_map(writer) or reader.key is None:
            return self._refused(reader, writer, path)
        key, value = (writer.message_type.fields_by_number[number] for number in (1, 2))
        keys, values = self._value(reader.key, key, path), self._value(reader.value, value, path)

        def maps(messages: Sequence[Message]) -> pa.Array:
            found = [getattr(message, name) for message in messages]
            parts = [sorted(each) if each else () for each in found]
            offsets = self._offsets(parts)
            all_values = [each[entry] for each, part in zip(found, parts, strict=True) for entry in part]
            made = keys(list(chain.from_iterable(parts))), values(all_values)
            return pa.MapArray.from_arrays(offsets, *made, type=reader.arrow_type)

        return maps

    def _refused(
        self, reader: FieldColumn, writer: FieldDescriptor, path: str
    ) -> Callable[[Sequence[Message]], pa.Array]:
        """Return what makes a column as long as no message has items of a field."""

        def column(messages: Sequence[Message]) -> pa.Array:
            has_some = any(
                len(getattr(message, writer.name)) if writer.is_repeated else _has(message, writer)
                for message in messages
            )
            if has_some:
                raise UnfitValueError(f"field {path} was written as {described(writer)}, expected {reader.arrow_type}")
            return self._absent(reader, len(messages))

        return column

    def _offsets(self, parts: Sequence[Sequence[Any]]) -> pa.Array:
        self._budget.take(len(parts) + 1, width=_OFFSET_BYTES)
        return pa.array(accumulate(map(len, parts), initial=0), pa.int32())

    # Values

    def _value(self, reader: ValueColumn, writer: FieldDescriptor, path: str) -> _Convert:
        """Return what makes a column of values as Python has them, None for null."""
        kind = kind_of(writer)
        if reader.kind == kind == "message":
            return self._message(reader, writer.message_type, path)
        if reader.kind == kind == "wrapper" and reader.inner is not None:
            inner = self._value(reader.inner, writer.message_type.fields_by_number[1], path)
            return lambda values: inner([None if value is None else value.value for value in values])
        change = _change(reader, writer, kind)
        if change is None:
            return self._unlike(reader, writer, path)
        width = _width(reader.arrow_type)

        def convert(values: Sequence[Any]) -> pa.Array:
            self._budget.take(len(values), width=width)
            try:
                return _array(change(values), reader.arrow_type)
            except OverflowError as error:
                raise UnfitValueError(f"field {path}: a number does not fit {reader.arrow_type}") from error
            except UnicodeDecodeError as error:
                raise UnfitValueError(f"field {path}: bytes that are no UTF-8 from byte {error.start} on") from error
            except (ValueError, JsonError, pa.ArrowException) as error:
                raise UnfitValueError(f"field {path}: {str(error)[:200]}") from error

        return convert

    def _unlike(self, reader: ValueColumn, writer: FieldDescriptor, path: str) -> _Convert:
        def convert(values: Sequence[Any]) -> pa.Array:
            if any(value is not None for value in values):
                raise UnfitValueError(
                    f"field {path} was written as {described(writer)}, expected {reader.name or reader.arrow_type}"
                )
            self._budget.take(len(values), width=_width(reader.arrow_type))
            return pa.nulls(len(values), reader.arrow_type)

        return convert


def _array(values: Iterable[Any], arrow_type: pa.DataType) -> pa.Array:
    return pa.array(values if isinstance(values, list) else list(values), arrow_type)


def _width(arrow_type: pa.DataType) -> int:
    """Return the bytes that a value takes in the columns of a type, without text, bytes and items."""
    if pa.types.is_struct(arrow_type):
        return 1 + sum(_width(each.type) for each in arrow_type)
    try:
        bits: int = arrow_type.bit_width
    except ValueError:
        return _OFFSET_BYTES
    return max(bits // 8, 1)


def _numbered(messages: Sequence[Message | None]) -> Iterable[tuple[Message | None, int]]:
    """Return messages with how many there are up to each, itself included."""
    return zip(messages, accumulate(message is not None for message in messages), strict=True)


# Fields of messages as values


def _values_of(reader: FieldColumn, writer: FieldDescriptor) -> Callable[[Sequence[Message]], list[Any]]:
    """Return what returns the values of a field that the reader has once, None where it was not written."""
    name = writer.name
    if writer.is_repeated:
        return lambda messages: [_last(getattr(message, name)) for message in messages]
    if writer.has_presence:
        # Of the class, as a field may have this name.
        has_field = GetMessageClass(writer.containing_type).HasField
        return lambda messages: [getattr(message, name) if has_field(message, name) else None for message in messages]
    zero = reader.value.symbols.get(0, "0") if reader.value.kind == "enum" else not reader.absent and reader.absent
    if reader.absent is not None and reader.absent == zero and reader.value.kind == kind_of(writer):
        # What was not written is zero for both.
        return lambda messages: [getattr(message, name) for message in messages]
    return lambda messages: [getattr(message, name) if _has(message, writer) else None for message in messages]


def _has(message: Message, writer: FieldDescriptor) -> bool:
    """Whether a field that is not repeated was written."""
    if writer.has_presence:
        return bool(type(message).HasField(message, writer.name))
    value = getattr(message, writer.name)
    return bool(value) or str(value) == "-0.0"


def _last(items: Sequence[Any]) -> Any:
    """Return what a parser makes of a field that is written several times: the last one, or all messages as one."""
    if not len(items):
        return None
    if not isinstance(items[-1], Message):
        return items[-1]
    merged = type(items[-1])()
    for item in items:
        type(merged).MergeFrom(merged, item)
    return merged


def _wire_types(each: FieldDescriptor) -> frozenset[int]:
    own = _WIRE_TYPES.get(each.type, _VARINT)
    return frozenset((own, _BYTES) if each.is_repeated and own not in (_BYTES, _GROUP) else (own,))


def _check_wire_types(
    messages: Sequence[Message],
    expected: Mapping[int, frozenset[int]],
    fields: Mapping[int, FieldDescriptor],
    path: str,
) -> None:
    """Refuse a field that was written in another form than its type has, which parsers take for an unknown one."""
    for message in messages:
        unknown = UnknownFieldSet(message)
        if not len(unknown):
            continue
        for each in unknown:
            known = expected.get(each.field_number)
            if known is not None and each.wire_type not in known:
                name = fields[each.field_number].name
                raise UnfitValueError(
                    f"field {f'{path}.{name}' if path else name} was written as {_WIRE_NAMES.get(each.wire_type)}, "
                    f"expected {' or '.join(_WIRE_NAMES[wire] for wire in sorted(known))}"
                )


# Values as those of the reader's type


def _change(reader: ValueColumn, writer: FieldDescriptor, kind: str) -> Callable[[Sequence[Any]], Iterable[Any]] | None:
    """Return what makes values of a reader's kind of those of a writer's; None if they are not alike."""
    expected = reader.kind
    if expected == "empty":
        return _each(lambda _: True) if kind == "message" else None
    if expected == "enum":
        symbols = reader.symbols
        return _each(lambda value: symbols.get(value, str(int(value)))) if kind in ("enum", "int", "bool") else None
    if kind in ("timestamp", "duration", "json"):
        is_same = expected == kind and reader.name == writer.message_type.full_name
        return _each({"timestamp": _timestamp, "duration": _duration, "json": _json}[kind]) if is_same else None
    if kind == expected == "string":
        return _texts
    if kind == expected or (expected, kind) in (("double", "float"), ("int", "enum")):
        return _same
    if (expected, kind) == ("string", "bytes"):
        return _each(lambda value: value.decode("utf-8"))
    if (expected, kind) == ("bytes", "string"):
        return _each(lambda value: value if isinstance(value, bytes) else value.encode())
    if (expected, kind) == ("int", "bool"):
        return _each(int)
    if expected == "bool" and kind in ("int", "enum"):
        return _each(bool)
    return None


def _same(values: Sequence[Any]) -> Sequence[Any]:
    return values


def _texts(values: Sequence[Any]) -> Sequence[Any]:
    """Return texts; of proto2 with the replacement character for bytes that are none."""
    if bytes not in set(map(type, values)):
        return values
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values]


def _each(change: Callable[[Any], Any]) -> Callable[[Sequence[Any]], list[Any]]:
    return lambda values: [None if value is None else change(value) for value in values]


def _timestamp(message: Any) -> int:
    seconds, nanos = message.seconds, message.nanos
    if not _LEAST_SECONDS <= seconds <= _MOST_SECONDS or not 0 <= nanos < _NANOS:
        raise UnfitValueError(f"a timestamp of {seconds} s and {nanos} ns is not in the years 1 to 9999")
    return int(seconds * 1_000_000 + nanos // 1000)


def _duration(message: Any) -> int:
    seconds, nanos = message.seconds, message.nanos
    if abs(seconds) > _MOST_DURATION_SECONDS or abs(nanos) >= _NANOS or seconds * nanos < 0:
        raise UnfitValueError(
            f"a duration of {seconds} s and {nanos} ns is longer than 10,000 years, or its parts have different signs"
        )
    return int(seconds * 1_000_000 + (nanos // 1000 if nanos > 0 else -(-nanos // 1000)))


def _json(message: Message) -> str:
    return str(MessageToJson(message, indent=None, sort_keys=True, ensure_ascii=False))
