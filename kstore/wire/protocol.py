"""Kafka's message encoding, plain and flexible (KIP-482): readers and writers of the primitive types.

kstore.wire.schema encodes whole messages by their schemas.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from kstore.errors import InvalidRecordError, MemoryLimitError

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
UINT16 = struct.Struct(">H")
UUID_SIZE = 16
ZERO_UUID = UUID(int=0)
MOST_STRING_BYTES = 2**15 - 1  # in the flexible encoding too, as in Kafka
MAX_UNSIGNED_VARINT = 2**32 - 1
_MAX_VARINT_SHIFT = 28
# Limit of the Python objects for the elements of one message's arrays, without the content of strings and bytes. An
# element of one byte may take a hundred times that.
MOST_ELEMENTS_BYTES = 64 << 20
# The size of an element that is an object with a few fields.
OBJECT_SIZE = 512
TAGGED_FIELD_SIZE = 192


class TaggedField(NamedTuple):
    """A tagged field that the reader does not know, with its raw bytes."""

    tag: int
    data: bytes


class ProtocolReader:
    """Reads one message from bytes, field by field.

    Args: what: the message's name, for errors; is_flexible: whether lengths are varints and tagged fields follow.
    Raises: InvalidRecordError from every method if the bytes end too early or contradict a length; MemoryLimitError if
        the message's arrays have too many elements.
    """

    __slots__ = ("_at", "_data", "_elements_bytes", "_what", "is_flexible")

    def __init__(self, data: bytes, *, what: str, is_flexible: bool) -> None:
        self._data = data
        self._at = 0
        self._elements_bytes = [0]  # shared with inner readers
        self._what = what
        self.is_flexible = is_flexible

    @property
    def remaining(self) -> int:
        return len(self._data) - self._at

    def error(self, field: str, *, expected: object, found: object) -> InvalidRecordError:
        """Return an error for the field at the current position."""
        text = f"{self._what}: {field} at byte {self._at} of {len(self._data)}: expected {expected}, found {found}"
        return InvalidRecordError(text, expected=expected, found=found)

    def inner(self, data: bytes, field: str) -> ProtocolReader:
        """Return a reader of the bytes of one field; it counts elements together with this reader."""
        reader = ProtocolReader(data, what=f"{self._what}: {field}", is_flexible=self.is_flexible)
        reader._elements_bytes = self._elements_bytes
        return reader

    def count_elements(self, field: str, count: int, *, each_bytes: int) -> None:
        """Count the elements of an array, before they are read, towards the message's MOST_ELEMENTS_BYTES."""
        self._elements_bytes[0] += count * each_bytes
        found = self._elements_bytes[0]
        if found > MOST_ELEMENTS_BYTES:
            raise MemoryLimitError(
                f"{self._what}: {field} at byte {self._at} of {len(self._data)} takes too much memory: "
                f"expected at most {MOST_ELEMENTS_BYTES} bytes for arrays, found {found} with these {count} elements",
                limit=MOST_ELEMENTS_BYTES,
                found=found,
            )

    def take(self, field: str, *, size: int) -> bytes:
        """Read `size` bytes."""
        if size > self.remaining:
            raise self.error(field, expected=f"{size} bytes", found=self.remaining)
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, field: str, layout: struct.Struct) -> int:
        """Read an integer of a fixed size."""
        number: int
        (number,) = layout.unpack(self.take(field, size=layout.size))
        return number

    def int16(self, field: str) -> int:
        return self.number(field, INT16)

    def int32(self, field: str) -> int:
        return self.number(field, INT32)

    def int64(self, field: str) -> int:
        return self.number(field, INT64)

    def uint16(self, field: str) -> int:
        return self.number(field, UINT16)

    def uuid(self, field: str) -> UUID:
        return UUID(bytes=self.take(field, size=UUID_SIZE))

    def unsigned_varint(self, field: str) -> int:
        """Read an unsigned varint of at most 32 bits."""
        at = self._at
        if at < len(self._data) and self._data[at] < 0x80:
            self._at = at + 1
            return self._data[at]
        value, shift = 0, 0
        while True:
            byte = self.take(field, size=1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            if shift == _MAX_VARINT_SHIFT:
                raise self.error(field, expected="a varint of at most 5 bytes", found="a sixth")
            shift += 7
        if value > MAX_UNSIGNED_VARINT:
            raise self.error(field, expected="a varint of at most 32 bits", found=value)
        return value

    def nullable_length(self, field: str, layout: struct.Struct, *, is_inflexible: bool = False) -> int | None:
        """Read the length of a string, bytes or array; None for null. An element has at least one byte.

        Args: layout: that of the length in a message that is not flexible; is_inflexible: whether this length has it in
            any message.
        """
        is_varint = self.is_flexible and not is_inflexible
        length = self.unsigned_varint(field) - 1 if is_varint else self.number(field, layout)
        if length == -1:
            return None
        if not 0 <= length <= self.remaining:
            raise self.error(field, expected=f"a length from 0 to {self.remaining}, -1 for null", found=length)
        return length

    def nullable_string(self, field: str, *, is_inflexible: bool = False) -> str | None:
        """Read a string; invalid UTF-8 becomes surrogate escapes."""
        length = self.nullable_length(field, INT16, is_inflexible=is_inflexible)
        if length is not None and length > MOST_STRING_BYTES:
            raise self.error(field, expected=f"a string of at most {MOST_STRING_BYTES} bytes", found=length)
        return None if length is None else self.take(field, size=length).decode("utf-8", "surrogateescape")

    def string(self, field: str) -> str:
        text = self.nullable_string(field)
        if text is None:
            raise self.error(field, expected="a string", found=None)
        return text

    def nullable_bytes(self, field: str) -> bytes | None:
        length = self.nullable_length(field, INT32)
        return None if length is None else self.take(field, size=length)

    def array_length(self, field: str, *, each_bytes: int = OBJECT_SIZE) -> int:
        """Read the number of elements of a non-null array; each element takes each_bytes as an object."""
        length = self.nullable_length(field, INT32)
        if length is None:
            raise self.error(field, expected="an array", found=None)
        self.count_elements(field, length, each_bytes=each_bytes)
        return length

    def tagged_fields(self) -> tuple[TaggedField, ...]:
        """Read the tagged fields at the end of a struct, by rising tag; none if the message is not flexible."""
        if not self.is_flexible:
            return ()
        count = self.unsigned_varint("tagged fields")
        if count > self.remaining // 2:
            raise self.error("tagged fields", expected=f"at most {self.remaining // 2}", found=count)
        self.count_elements("tagged fields", count, each_bytes=TAGGED_FIELD_SIZE)
        fields: list[TaggedField] = []
        for _ in range(count):
            tag = self.unsigned_varint("tag")
            if fields and tag <= fields[-1].tag:
                raise self.error("tag", expected=f"one above {fields[-1].tag}", found=tag)
            size = self.unsigned_varint(f"size of tag {tag}")
            fields.append(TaggedField(tag, self.take(f"tag {tag}", size=size)))
        return tuple(fields)

    def end(self) -> None:
        """Check that all bytes were read."""
        if self.remaining:
            raise self.error("end", expected="no more bytes", found=self.remaining)


class ProtocolWriter:
    """Writes the fields of one message.

    Args: is_flexible: whether lengths are varints and tagged fields follow.
    Raises: ValueError for a number out of range for its type.
    """

    __slots__ = ("_parts", "is_flexible")

    def __init__(self, *, is_flexible: bool = True) -> None:
        self._parts: list[bytes] = []
        self.is_flexible = is_flexible

    def number(self, field: str, layout: struct.Struct, value: int) -> None:
        """Write an integer of a fixed size."""
        try:
            self._parts.append(layout.pack(value))
        except struct.error as error:
            raise ValueError(f"{field}: {value} does not fit {layout.size} bytes: {error}") from None

    def int16(self, field: str, value: int) -> None:
        self.number(field, INT16, value)

    def int32(self, field: str, value: int) -> None:
        self.number(field, INT32, value)

    def int64(self, field: str, value: int) -> None:
        self.number(field, INT64, value)

    def uint16(self, field: str, value: int) -> None:
        self.number(field, UINT16, value)

    def uuid(self, value: UUID) -> None:
        self._parts.append(value.bytes)

    def unsigned_varint(self, value: int) -> None:
        self._parts.append(unsigned_varint(value))

    def raw(self, data: bytes) -> None:
        """Write bytes without their length."""
        self._parts.append(data)

    def length(self, field: str, layout: struct.Struct, length: int, *, is_inflexible: bool = False) -> None:
        """Write the length of a string, bytes or array, -1 for null.

        Args: layout: that of the length in a message that is not flexible; is_inflexible: whether this length has it in
            any message.
        """
        if self.is_flexible and not is_inflexible:
            self.unsigned_varint(length + 1)
        else:
            self.number(field, layout, length)

    def string(self, text: str, *, field: str = "string", is_inflexible: bool = False) -> None:
        """Write a string; surrogate escapes become the bytes that they stand for.

        Raises: ValueError if it has more than MOST_STRING_BYTES bytes.
        """
        data = text.encode("utf-8", "surrogateescape")
        if len(data) > MOST_STRING_BYTES:
            raise ValueError(f"{field}: expected a string of at most {MOST_STRING_BYTES} bytes, found {len(data)}")
        self.length(field, INT16, len(data), is_inflexible=is_inflexible)
        self._parts.append(data)

    def array_length(self, length: int, *, field: str = "array") -> None:
        self.length(field, INT32, length)

    def tagged_fields(self, fields: tuple[TaggedField, ...]) -> None:
        """Write the tagged fields at the end of a struct; none if the message is not flexible.

        Raises: ValueError unless their tags rise from 0.
        """
        if not self.is_flexible:
            return
        self.unsigned_varint(len(fields))
        last = -1
        for tag, data in fields:
            if tag <= last:
                raise ValueError(f"tags must increase from 0, got {tag} after {last}")
            last = tag
            self.unsigned_varint(tag)
            self.unsigned_varint(len(data))
            self._parts.append(data)

    def getvalue(self) -> bytes:
        return b"".join(self._parts)


def unsigned_varint(value: int) -> bytes:
    """Return the shortest varint of a number from 0 to 2^32 - 1.

    Raises: ValueError for another number.
    """
    if not 0 <= value <= MAX_UNSIGNED_VARINT:
        raise ValueError(f"an unsigned varint must be from 0 to {MAX_UNSIGNED_VARINT}, got {value}")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
