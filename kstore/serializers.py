"""Kafka's built-in serializers and deserializers, and JSON, between values and the bytes of a key or value.

Each is a callable for one key or value. None becomes None, as null in Kafka. Numbers are big-endian. Invalid text
raises an error, where Java substitutes a replacement character.
Source: Kafka org.apache.kafka.common.serialization.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload
from uuid import UUID

from kstore.errors import SerializationError

if TYPE_CHECKING:
    from typing_extensions import Buffer
    from typing_extensions import TypeVar as DefaultedTypeVar

    # The types of keys and values, as (de)serializers make them; Any where a name or nothing says them.
    Key = DefaultedTypeVar("Key", default=Any)
    Value = DefaultedTypeVar("Value", default=Any)
else:
    Key, Value = TypeVar("Key"), TypeVar("Value")

Number = TypeVar("Number", int, float)

Deserializer: TypeAlias = Callable[[bytes], Any]
Serializer: TypeAlias = Callable[[Any], bytes | None]

_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_CLASS_NAME = re.compile(r"(?:org\.apache\.kafka\.common\.serialization\.)?([A-Za-z]+?)(De)?[Ss]erializer")
_LIST_NAME = re.compile(r"list<(.+)>")
_INT32 = struct.Struct(">i")
_NULL_ENTRY = -1
_SINGLE = struct.Struct("=f")
# The digits of a float of four bytes that are always exact, and those that always tell it from others.
_EXACT_DIGITS, _MOST_DIGITS = 6, 9
# Below it floats have fewer digits.
_LEAST_NORMAL = 2.0**-126
_MOST_SHOWN_BITS = 256
_CONSTANT_SIZE = 0
_VARIABLE_SIZE = 1


class StringSerializer:
    """Encodes a str (serializer.encoding).

    Raises: SerializationError for characters without an encoding, such as lone surrogates, where Java writes
        "?".
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = codecs.lookup(encoding).name

    def __call__(self, value: str | None) -> bytes | None:
        if value is None:
            return None
        _check_type(value, str, self)
        try:
            return value.encode(self.encoding)
        except UnicodeEncodeError as error:
            found = error.object[error.start : error.end]
            reason = f"expected text that {self.encoding} can hold, found {found!r} at character {error.start}"
            raise SerializationError(f"{_name(self)}: {reason}") from error


class StringDeserializer:
    """Decodes bytes to a str (deserializer.encoding).

    Raises: SerializationError for bytes that are invalid in the encoding.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = codecs.lookup(encoding).name

    @overload
    def __call__(self, data: None) -> None: ...

    @overload
    def __call__(self, data: Buffer) -> str: ...

    def __call__(self, data: Buffer | None) -> str | None:
        if data is None:
            return None
        try:
            return str(data, self.encoding)
        except UnicodeDecodeError as error:
            reason = f"expected {self.encoding}, found {error.reason} at position {error.start}"
            raise SerializationError(f"{_name(self)}: {reason}") from error


class ByteArraySerializer:
    """Passes bytes through; accepts every bytes-like object."""

    def __call__(self, value: Buffer | None) -> bytes | None:
        if value is None:
            return None
        _check_type(value, (bytes, bytearray, memoryview), self)
        return bytes(value)


class ByteArrayDeserializer:
    """Passes bytes through."""

    @overload
    def __call__(self, data: None) -> None: ...

    @overload
    def __call__(self, data: Buffer) -> bytes: ...

    def __call__(self, data: Buffer | None) -> bytes | None:
        return None if data is None else bytes(data)


class BytesSerializer(ByteArraySerializer):
    """Passes bytes through (Kafka's Bytes is a comparable byte array)."""


class BytesDeserializer(ByteArrayDeserializer):
    """Passes bytes through."""


class ByteBufferSerializer(ByteArraySerializer):
    """Copies the bytes of a buffer."""


class ByteBufferDeserializer:
    """Returns the bytes as a memoryview, without a copy."""

    @overload
    def __call__(self, data: None) -> None: ...

    @overload
    def __call__(self, data: Buffer) -> memoryview: ...

    def __call__(self, data: Buffer | None) -> memoryview | None:
        return None if data is None else memoryview(data)


class _NumberSerializer(Generic[Number]):
    """Writes a number of a fixed size, big-endian.

    Raises: SerializationError for another type or a number out of range.
    """

    _format: struct.Struct
    _kind: type[Number]

    def __call__(self, value: Number | None) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, self._kind)):
            raise SerializationError(f"{_name(self)}: expected {self._kind.__name__}, found {type(value).__name__}")
        try:
            return self._format.pack(value)
        except (struct.error, OverflowError) as error:
            bits = 8 * self._format.size
            reason = f"expected a number of {bits} bits, found {_number_text(value)}"
            raise SerializationError(f"{_name(self)}: {reason}") from error


def _number_text(value: object) -> str:
    # Python refuses to write very long ints.
    if isinstance(value, int) and value.bit_length() > _MOST_SHOWN_BITS:
        return f"one of {value.bit_length()}"
    return str(value)


class _NumberDeserializer(Generic[Number]):
    """Reads a number of a fixed size, big-endian.

    Raises: SerializationError for another size.
    """

    _format: struct.Struct

    @overload
    def __call__(self, data: None) -> None: ...

    @overload
    def __call__(self, data: Buffer) -> Number: ...

    def __call__(self, data: Buffer | None) -> Number | None:
        if data is None:
            return None
        view = memoryview(data)
        if view.nbytes != self._format.size:
            raise SerializationError(f"{_name(self)}: expected {self._format.size} bytes, found {view.nbytes}")
        number: Number = self._format.unpack(view)[0]
        return number


class ShortSerializer(_NumberSerializer[int]):
    """int16, 2 bytes."""

    _format, _kind = struct.Struct(">h"), int


class ShortDeserializer(_NumberDeserializer[int]):
    """int16, 2 bytes."""

    _format = struct.Struct(">h")


class IntegerSerializer(_NumberSerializer[int]):
    """int32, 4 bytes."""

    _format, _kind = _INT32, int


class IntegerDeserializer(_NumberDeserializer[int]):
    """int32, 4 bytes."""

    _format = _INT32


class LongSerializer(_NumberSerializer[int]):
    """int64, 8 bytes."""

    _format, _kind = struct.Struct(">q"), int


class LongDeserializer(_NumberDeserializer[int]):
    """int64, 8 bytes."""

    _format = struct.Struct(">q")


class FloatSerializer(_NumberSerializer[float]):
    """Single-precision IEEE 754, 4 bytes."""

    _format, _kind = struct.Struct(">f"), float


class FloatDeserializer(_NumberDeserializer[float]):
    """Single-precision IEEE 754, 4 bytes."""

    _format = struct.Struct(">f")


class DoubleSerializer(_NumberSerializer[float]):
    """Double-precision IEEE 754, 8 bytes."""

    _format, _kind = struct.Struct(">d"), float


class DoubleDeserializer(_NumberDeserializer[float]):
    """Double-precision IEEE 754, 8 bytes."""

    _format = struct.Struct(">d")


class UUIDSerializer:
    """Writes a UUID as its 36 characters."""

    def __call__(self, value: UUID | None) -> bytes | None:
        if value is None:
            return None
        _check_type(value, UUID, self)
        return str(value).encode("ascii")


class UUIDDeserializer:
    """Reads a UUID from its 36 characters.

    Raises: SerializationError for any other text; Java also accepts shorter groups of digits.
    """

    @overload
    def __call__(self, data: None) -> None: ...

    @overload
    def __call__(self, data: Buffer) -> UUID: ...

    def __call__(self, data: Buffer | None) -> UUID | None:
        if data is None:
            return None
        text = bytes(data).decode("latin-1")
        if _UUID.fullmatch(text) is None:
            raise SerializationError(f"{_name(self)}: expected the 36 characters of a UUID, found {text[:40]!r}")
        return UUID(text)


class BooleanSerializer:
    """Writes True as the byte 1 and False as 0."""

    def __call__(self, value: object) -> bytes | None:
        if value is None:
            return None
        _check_type(value, bool, self)
        return b"\x01" if value else b"\x00"


class BooleanDeserializer:
    """Reads the byte 1 as True and 0 as False.

    Raises: SerializationError for anything else.
    """

    @overload
    def __call__(self, data: None) -> None: ...

    @overload
    def __call__(self, data: Buffer) -> bool: ...

    def __call__(self, data: Buffer | None) -> bool | None:
        if data is None:
            return None
        content = bytes(data)
        if content not in (b"\x00", b"\x01"):
            raise SerializationError(
                f"{_name(self)}: expected the byte 00 or 01, found {content[:8].hex(' ') or 'none'}"
            )
        return content == b"\x01"


class VoidSerializer:
    """Accepts only None."""

    def __call__(self, value: None) -> None:
        _check_type(value, type(None), self)


class VoidDeserializer:
    """Accepts only None.

    Raises: SerializationError for any bytes, even an empty string.
    """

    def __call__(self, data: Buffer | None) -> None:
        if data is not None:
            raise SerializationError(f"{_name(self)}: expected null, found {memoryview(data).nbytes} bytes")


# The types whose entries a list stores without their sizes.
_ENTRY_SIZES: dict[type[object], int] = {
    ShortSerializer: 2,
    ShortDeserializer: 2,
    IntegerSerializer: 4,
    IntegerDeserializer: 4,
    FloatSerializer: 4,
    FloatDeserializer: 4,
    LongSerializer: 8,
    LongDeserializer: 8,
    DoubleSerializer: 8,
    DoubleDeserializer: 8,
    UUIDSerializer: 36,
    UUIDDeserializer: 36,
}


class ListSerializer:
    """Writes a list, with its entries serialized by `inner`; None is allowed among them (KIP-466).

    Layout: a strategy, 0 for fixed-size entries (numbers and UUID), 1 for others. With 0: the count and the indexes of
    the nulls, the count of entries, and the entries. With 1: the count of entries, and each entry after its size (-1:
    null).
    """

    def __init__(self, inner: Serializer) -> None:
        self.inner = inner
        self._has_constant_size = type(inner) in _ENTRY_SIZES

    def __call__(self, value: list[Any] | tuple[Any, ...] | None) -> bytes | None:
        if value is None:
            return None
        _check_type(value, (list, tuple), self)
        entries = [None if entry is None else self.inner(entry) for entry in value]
        if self._has_constant_size:
            nulls = [slot for slot, entry in enumerate(entries) if entry is None]
            parts = [bytes([_CONSTANT_SIZE]), *map(_INT32.pack, (len(nulls), *nulls, len(entries)))]
            parts += [entry for entry in entries if entry is not None]
            return b"".join(parts)
        parts = [bytes([_VARIABLE_SIZE]), _INT32.pack(len(entries))]
        for entry in entries:
            parts.append(_INT32.pack(_NULL_ENTRY if entry is None else len(entry)))
            parts.append(entry or b"")
        return b"".join(parts)


class ListDeserializer:
    """Reads a list that ListSerializer wrote, with its entries deserialized by `inner`.

    Raises: SerializationError for a count or size that exceeds the bytes, an entry that `inner` rejects, and bytes
        after the last entry, which Java ignores.
    """

    def __init__(self, inner: Deserializer) -> None:
        self.inner = inner
        self._entry_size = _ENTRY_SIZES.get(type(inner))

    def __call__(self, data: Buffer | None) -> list[Any] | None:
        if data is None:
            return None
        source = _ListBytes(self, memoryview(data).cast("B"))
        strategy = source.take(1, "strategy")[0]
        if strategy == _CONSTANT_SIZE:
            if self._entry_size is None:
                raise source.error("strategy", expected="1 (entries with their sizes)", found=strategy)
            entries = self._entries_of_one_size(source, self._entry_size)
        elif strategy == _VARIABLE_SIZE:
            entries = [
                self._entry(source) for _ in range(source.count("count of entries", least_entry_size=_INT32.size))
            ]
        else:
            raise source.error("strategy", expected="0 or 1", found=strategy)
        source.check_end()
        return entries

    def _entries_of_one_size(self, source: _ListBytes, entry_size: int) -> list[Any]:
        null_count = source.count("count of nulls", least_entry_size=_INT32.size)
        nulls = {source.int32("slot of a null") for _ in range(null_count)}
        count = source.count("count of entries", least_entry_size=entry_size, of_no_size=null_count)
        return [None if slot in nulls else self.inner(bytes(source.take(entry_size, "entry"))) for slot in range(count)]

    def _entry(self, source: _ListBytes) -> Any:
        size = source.int32("size of an entry")
        if size == _NULL_ENTRY:
            return None
        if size < 0:
            raise source.error("size of an entry", expected="at least -1", found=size)
        return self.inner(bytes(source.take(size, "entry")))


class _ListBytes:
    """A cursor over the bytes of a list. A count or size is checked against the remaining bytes before it is used."""

    def __init__(self, deserializer: ListDeserializer, data: memoryview) -> None:
        self._deserializer = deserializer
        self._data = data
        self._position = 0

    def take(self, size: int, what: str) -> memoryview:
        left = len(self._data) - self._position
        if size > left:
            raise self.error(what, expected=f"{size} bytes", found=left)
        self._position += size
        return self._data[self._position - size : self._position]

    def int32(self, what: str) -> int:
        number: int = _INT32.unpack(self.take(_INT32.size, what))[0]
        return number

    def count(self, what: str, *, least_entry_size: int, of_no_size: int = 0) -> int:
        count = self.int32(what)
        most = (len(self._data) - self._position) // least_entry_size + of_no_size
        if not 0 <= count <= most:
            raise self.error(what, expected=f"0 to {most}", found=count)
        return count

    def check_end(self) -> None:
        if self._position != len(self._data):
            raise self.error("end of the list", expected=self._position, found=len(self._data))

    def error(self, what: str, *, expected: object, found: object) -> SerializationError:
        place = f"{what} at position {self._position}"
        return SerializationError(f"{_name(self._deserializer)}: {place}: expected {expected}, found {found}")


class JSONSerializer:
    """Encodes what the json module takes as UTF-8, without spaces, as a JsonSerializer of Kafka Connect does.

    None becomes null of Kafka, not of JSON.
    Raises: SerializationError for other values, and for numbers that JSON has not (NaN, infinities).
    """

    def __call__(self, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"{_name(self)}: {error}") from error


class JSONDeserializer:
    """Decodes UTF-8 JSON to what the json module makes of it.

    Raises: SerializationError for bytes that are no JSON in UTF-8, with the position.
    """

    def __call__(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return json.loads(bytes(data).decode())
        except (ValueError, RecursionError) as error:
            raise SerializationError(f"{_name(self)}: expected JSON in UTF-8, found {_why(error)}") from error


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"something else at character {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return f"an invalid byte at position {error.start}"
    return "too many levels" if isinstance(error, RecursionError) else f"a number that is too long: {error}"


_SERIALIZERS: dict[str, Callable[[], Serializer]] = {
    "string": StringSerializer,
    "bytes": BytesSerializer,
    "bytearray": ByteArraySerializer,
    "bytebuffer": ByteBufferSerializer,
    "short": ShortSerializer,
    "integer": IntegerSerializer,
    "long": LongSerializer,
    "float": FloatSerializer,
    "double": DoubleSerializer,
    "uuid": UUIDSerializer,
    "boolean": BooleanSerializer,
    "void": VoidSerializer,
    "json": JSONSerializer,
}
_DESERIALIZERS: dict[str, Callable[[], Deserializer]] = {
    "string": StringDeserializer,
    "bytes": BytesDeserializer,
    "bytearray": ByteArrayDeserializer,
    "bytebuffer": ByteBufferDeserializer,
    "short": ShortDeserializer,
    "integer": IntegerDeserializer,
    "long": LongDeserializer,
    "float": FloatDeserializer,
    "double": DoubleDeserializer,
    "uuid": UUIDDeserializer,
    "boolean": BooleanDeserializer,
    "void": VoidDeserializer,
    "json": JSONDeserializer,
}
NAMES = (*_DESERIALIZERS, "list<NAME>")


def serializer(name: str) -> Serializer:
    """Return a serializer by one of NAMES ("string", "list<long>"), or by the name of Kafka's class.

    Raises: ValueError for another name.
    """
    list_name = _LIST_NAME.fullmatch(name)
    return ListSerializer(serializer(list_name[1])) if list_name is not None else _by_name(name, _SERIALIZERS)()


def deserializer(name: str) -> Deserializer:
    """Return a deserializer by one of NAMES ("string", "list<long>"), or by the name of Kafka's class.

    Raises: ValueError for another name.
    """
    list_name = _LIST_NAME.fullmatch(name)
    return ListDeserializer(deserializer(list_name[1])) if list_name is not None else _by_name(name, _DESERIALIZERS)()


Made = TypeVar("Made")


def _by_name(name: str, table: dict[str, Made]) -> Made:
    class_name = _CLASS_NAME.fullmatch(name)
    plain = name if class_name is None else class_name[1].lower()
    plain = {"int": "integer", "byte_array": "bytearray", "byte_buffer": "bytebuffer"}.get(plain, plain)
    if plain not in table:
        raise ValueError(f"expected one of {', '.join(NAMES)}, or the name of Kafka's class, got {name!r}")
    return table[plain]


def _name(converter: object) -> str:
    return type(converter).__name__


def _check_type(value: object, kind: type[object] | tuple[type[object], ...], converter: object) -> None:
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        expected = " or ".join(each.__name__ for each in kinds)
        raise SerializationError(f"{_name(converter)}: expected {expected}, found {type(value).__name__}")


def plain_number(value: float) -> float | str:
    """Return a number as JSON can hold it: NaN and infinities as the texts of Protobuf's JSON, such as "-Infinity"."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def plain_single(value: float) -> float | str:
    """Return a number of four bytes as plain_number, with as few digits as tell it from all others: 0.1 stays 0.1."""
    if not math.isfinite(value):
        return plain_number(value)
    for digits in range(_EXACT_DIGITS if abs(value) >= _LEAST_NORMAL else 1, _MOST_DIGITS):
        short = float(f"{value:.{digits}g}")
        if _SINGLE.unpack(_SINGLE.pack(short)) == (value,):
            return short
    return float(f"{value:.{_MOST_DIGITS}g}")
