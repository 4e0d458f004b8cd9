"""The default of a field, which a schema has as JSON, as an encoded Avro value."""

from __future__ import annotations

import struct
from typing import Any

from kstore.errors import InvalidSchemaError
from kstore.values.avro.schema import (
    NO_DEFAULT,
    ArrayType,
    AvroType,
    EnumType,
    Fixed,
    MapType,
    Primitive,
    RecordType,
    UnionType,
    type_name,
)

_INT_BITS = {"int": 32, "long": 64}
_MOST_BYTES = 1 << 20


def encoded_default(avro_type: AvroType, default: Any) -> bytes:
    """Return a default as a value of its type.

    Raises: InvalidSchemaError for a default that is no value of the type, or that has more than a million parts and
        bytes: defaults of records in records multiply.
    """
    return _Encoder().encoded(avro_type, default)


class _Encoder:
    """Encodes one default, within a bound."""

    def __init__(self) -> None:
        self._room = _MOST_BYTES

    def encoded(self, avro_type: AvroType, default: Any) -> bytes:
        match avro_type, default:
            case UnionType(), _:
                return self._of_union(avro_type, default)
            case ArrayType(), list():
                return _blocks(b"".join(self.encoded(avro_type.items, item) for item in default), len(default))
            case MapType(), dict():
                entries = (
                    self._counted(_sized(key.encode("utf-8", "replace"))) + self.encoded(avro_type.values, each)
                    for key, each in default.items()
                )
                return _blocks(b"".join(entries), len(default))
            case RecordType(), dict():
                self._counted(b"")
                return b"".join(
                    self.encoded(each.type, default.get(each.name, each.default)) for each in avro_type.fields
                )
            case Primitive(), _:
                return self._counted(_of_primitive(avro_type, default))
            case Fixed(), str() if len(default) == avro_type.size and _is_latin(default):
                return self._counted(default.encode("latin-1"))
            case EnumType(), str() if default in avro_type.symbols:
                return self._counted(_varint(avro_type.symbols.index(default)))
        raise _invalid(avro_type, default)

    def _of_union(self, union: UnionType, default: Any) -> bytes:
        for number, branch in enumerate(union.branches):
            try:
                return _varint(number) + self.encoded(branch, default)
            except InvalidSchemaError:
                continue
        raise _invalid(union, default)

    def _counted(self, data: bytes) -> bytes:
        self._room -= 1 + len(data)
        if self._room < 0:
            raise InvalidSchemaError(f"a default of the Avro schema has more than {_MOST_BYTES} parts and bytes")
        return data


def _of_primitive(avro_type: Primitive, default: Any) -> bytes:
    match avro_type.name, default:
        case "null", None:
            return b""
        case "boolean", bool():
            return b"\x01" if default else b"\x00"
        case "int" | "long" as name, int() if type(default) is int and -1 << _INT_BITS[name] - 1 <= default < 1 << (
            _INT_BITS[name] - 1
        ):
            return _varint(default)
        case "float" | "double" as name, int() | float() if not isinstance(default, bool):
            try:
                return struct.pack("<f" if name == "float" else "<d", default)
            except (OverflowError, struct.error) as error:
                raise _invalid(avro_type, default) from error
        case "bytes", str() if _is_latin(default):
            return _sized(default.encode("latin-1"))
        case "string", str():
            return _sized(default.encode("utf-8", "replace"))
    raise _invalid(avro_type, default)


def _is_latin(text: str) -> bool:
    """Whether a text stands for bytes, as Avro writes those in JSON."""
    return all(ord(character) < 256 for character in text)


def _varint(value: int) -> bytes:
    left = value << 1 if value >= 0 else ~(value << 1)
    encoded = bytearray()
    while left >= 0x80:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _blocks(items: bytes, count: int) -> bytes:
    return (_varint(count) + items if count else b"") + b"\x00"


def _invalid(avro_type: AvroType, default: Any) -> InvalidSchemaError:
    found = "nothing" if default is NO_DEFAULT else repr(default)[:80]
    return InvalidSchemaError(f"the default of a field of type {type_name(avro_type)} is {found}")
