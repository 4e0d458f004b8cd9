"""Kafka's built-in serializers and deserializers: values to the bytes of a key or value, and back.

Layer 1. Numbers are big-endian. Each is a callable for one key or value; None stays None, as null does in Kafka. Where
Java's would put a replacement character for bytes that are no text, these raise.
Source: Kafka org.apache.kafka.common.serialization.
"""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar
from uuid import UUID

from kstore.errors import SerializationError

if TYPE_CHECKING:
    from typing_extensions import Buffer

Number = TypeVar("Number", int, float)

Deserializer: TypeAlias = Callable[[bytes], Any]
Serializer: TypeAlias = Callable[[Any], bytes | None]

_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_CLASS_NAME = re.compile(r"(?:org\.apache\.kafka\.common\.serialization\.)?([A-Za-z]+?)(De)?[Ss]erializer")
_LIST_NAME = re.compile(r"list<(.+)>")
_INT32 = struct.Struct(">i")
_NULL_ENTRY = -1
_CONSTANT_SIZE = 0
_VARIABLE_SIZE = 1


class StringSerializer:
    """str to its bytes in an encoding (serializer.encoding).

    Raises: SerializationError for what the encoding has no bytes for (lone surrogates), where Java writes "?".
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
            raise SerializationError(f"{_name(self)}: {error}") from error


class StringDeserializer:
    """Bytes in an encoding (deserializer.encoding) to str.

    Raises: SerializationError for bytes that the encoding does not have.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = codecs.lookup(encoding).name

    def __call__(self, data: Buffer | None) -> str | None:
        if data is None:
            return None
        try:
            return str(data, self.encoding)
        except UnicodeDecodeError as error:
            reason = f"expected {self.encoding}, found {error.reason} at position {error.start}"
            raise SerializationError(f"{_name(self)}: {reason}") from error


class ByteArraySerializer:
    """Bytes as they are; every bytes-like object is taken."""

    def __call__(self, value: Buffer | None) -> bytes | None:
        if value is None:
            return None
        _check_type(value, (bytes, bytearray, memoryview), self)
        return bytes(value)


class ByteArrayDeserializer:
    """Bytes as they are."""

    def __call__(self, data: Buffer | None) -> bytes | None:
        return None if data is None else bytes(data)


class BytesSerializer(ByteArraySerializer):
    """Bytes as they are (Kafka's Bytes is a byte array that can be compared)."""


class BytesDeserializer(ByteArrayDeserializer):
    """Bytes as they are."""


class ByteBufferSerializer(ByteArraySerializer):
    """The bytes of a buffer."""


class ByteBufferDeserializer:
    """Bytes as a memoryview, not copied."""

    def __call__(self, data: Buffer | None) -> memoryview | None:
        return None if data is None else memoryview(data)


class _NumberSerializer(Generic[Number]):
    """A number in a fixed size, big-endian."""

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
            raise SerializationError(f"{_name(self)}: expected a number of {bits} bits, found {value}") from error


class _NumberDeserializer(Generic[Number]):
    """A number in a fixed size, big-endian.

    Raises: SerializationError for another size.
    """

    _format: struct.Struct

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
    """IEEE 754 of single precision, 4 bytes."""

    _format, _kind = struct.Struct(">f"), float


class FloatDeserializer(_NumberDeserializer[float]):
    """IEEE 754 of single precision, 4 bytes."""

    _format = struct.Struct(">f")


class DoubleSerializer(_NumberSerializer[float]):
    """IEEE 754 of double precision, 8 bytes."""

    _format, _kind = struct.Struct(">d"), float


class DoubleDeserializer(_NumberDeserializer[float]):
    """IEEE 754 of double precision, 8 bytes."""

    _format = struct.Struct(">d")


class UUIDSerializer:
    """A UUID as its 36 characters."""

    def __call__(self, value: UUID | None) -> bytes | None:
        if value is None:
            return None
        _check_type(value, UUID, self)
        return str(value).encode("ascii")


class UUIDDeserializer:
    """36 characters to a UUID.

    Raises: SerializationError for any other text; Java also takes shorter groups of digits.
    """

    def __call__(self, data: Buffer | None) -> UUID | None:
        if data is None:
            return None
        text = bytes(data).decode("latin-1")
        if _UUID.fullmatch(text) is None:
            raise SerializationError(f"{_name(self)}: expected the 36 characters of a UUID, found {text[:40]!r}")
        return UUID(text)


class BooleanSerializer:
    """True or False as the byte 1 or 0."""

    def __call__(self, value: object) -> bytes | None:
        if value is None:
            return None
        _check_type(value, bool, self)
        return b"\x01" if value else b"\x00"


class BooleanDeserializer:
    """The byte 1 or 0 to True or False.

    Raises: SerializationError for anything else.
    """

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
    """None and nothing else."""

    def __call__(self, value: None) -> None:
        _check_type(value, type(None), self)


class VoidDeserializer:
    """None and nothing else.

    Raises: SerializationError for any bytes, even none at all.
    """

    def __call__(self, data: Buffer | None) -> None:
        if data is not None:
            raise SerializationError(f"{_name(self)}: expected null, found {memoryview(data).nbytes} bytes")


# Those whose entries a list writes without their sizes.
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
    """A list, its entries by another serializer; None may be among them (KIP-466).

    The bytes: a strategy (0 for the numbers and UUID, 1 for others), with 0 the count and the slots of the nulls, then
    the count of entries, and the entries, with 1 each after its size (-1 for null).
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
    """The bytes of a ListSerializer to a list, its entries by another deserializer.

    Raises: SerializationError for a count or a size that the bytes can't hold, for an entry that the other one refuses,
        and for bytes behind the last one, which Java passes over.
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
    """The bytes of a list, taken from front to back; a count or size is held against what is left before it is used."""

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
}
NAMES = (*_DESERIALIZERS, "list<NAME>")


def serializer(name: str) -> Serializer:
    """Return a serializer by one of NAMES ("string", "list<long>"), or by the name of Kafka's class.

    Raises: ValueError for another name.
    """
    found = _LIST_NAME.fullmatch(name)
    return ListSerializer(serializer(found[1])) if found is not None else _by_name(name, _SERIALIZERS)()


def deserializer(name: str) -> Deserializer:
    """Return a deserializer by one of NAMES ("string", "list<long>"), or by the name of Kafka's class.

    Raises: ValueError for another name.
    """
    found = _LIST_NAME.fullmatch(name)
    return ListDeserializer(deserializer(found[1])) if found is not None else _by_name(name, _DESERIALIZERS)()


Made = TypeVar("Made")


def _by_name(name: str, table: dict[str, Made]) -> Made:
    class_name = _CLASS_NAME.fullmatch(name)
    plain = name if class_name is None else class_name[1].lower()
    plain = {"int": "integer", "byte_array": "bytearray", "byte_buffer": "bytebuffer"}.get(plain, plain)
    if plain not in table:
        raise ValueError(f"expected one of {', '.join(NAMES)}, or the name of Kafka's class, got {name!r}")
    return table[plain]


def _name(one: object) -> str:
    return type(one).__name__


def _check_type(value: object, kind: type[object] | tuple[type[object], ...], one: object) -> None:
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        expected = " or ".join(each.__name__ for each in kinds)
        raise SerializationError(f"{_name(one)}: expected {expected}, found {type(value).__name__}")
