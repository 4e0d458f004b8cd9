"""Messages of kstore.wire as dicts by Kafka's names, in the form of its interpreter, and random ones."""

from __future__ import annotations

import random
from typing import Any, NamedTuple
from uuid import UUID

from kstore.errors import InvalidRecordError, InvalidRequestError, MemoryLimitError
from kstore.wire.classes import UNKNOWN_TAGS, Message, attribute
from kstore.wire.compiler import codec
from kstore.wire.protocol import ProtocolReader, TaggedField
from kstore.wire.schema import NUMBERS, STRUCT, Field, _read_struct


def as_dict(message: Message, *, version: int) -> dict[str, Any]:
    """Return the fields of a message that a version has by Kafka's names, as kstore.wire.schema.decode_message does of
    the message's bytes."""
    fields: dict[str, Any] = {}
    for field in message.fields:
        if version not in field.versions:
            continue
        value = getattr(message, attribute(field.name))
        if field.tag is None or not is_default(field, value):
            fields[field.name] = _plain(value, version=version)
    unknown = getattr(message, UNKNOWN_TAGS)
    return {**fields, "taggedFields": list(unknown)} if unknown else fields


def _plain(value: Any, *, version: int) -> Any:
    if isinstance(value, Message):
        return as_dict(value, version=version)
    if isinstance(value, list):
        return [_plain(element, version=version) for element in value]
    return bytes(value) if isinstance(value, memoryview) else value


def from_dict(cls: type[Message], fields: dict[str, Any]) -> Message:
    """Return the message of a class whose fields are given by Kafka's names."""
    values: dict[str, Any] = {}
    for field in cls.fields:
        if field.name in fields:
            value = fields[field.name]
            struct = cls.structs.get(field.name)
            if struct is not None and value is not None:
                value = [from_dict(struct, each) for each in value] if field.is_array else from_dict(struct, value)
            values[attribute(field.name)] = value
    tags = fields.get("taggedFields", ())
    return cls(**values, **{UNKNOWN_TAGS: tuple(TaggedField(*tag) for tag in tags)})


def is_default(field: Field, value: Any) -> bool:
    """Whether a value is the default of its field."""
    if field.default == () and not field.is_array:
        return value == type(value)() if value is not None else not field.nullable
    if field.default == ():
        return value is not None and len(value) == 0
    return bool(value == field.default)


class Read(NamedTuple):
    """A message that was read from bytes, as a dict, and where it ended."""

    fields: dict[str, Any]
    position: int


def interpreted(cls: type[Message], data: bytes, *, version: int) -> Read | None:
    """What the interpreter makes of bytes, None if it refuses them; so it does for strings that are not UTF-8."""
    schema = cls.schema
    reader = ProtocolReader(data, what=schema.name, is_flexible=version in schema.flexible)
    try:
        fields = _read_struct(reader, schema.fields, version=version)
    except (InvalidRecordError, MemoryLimitError):
        return None
    if has_escapes(fields):
        return None
    return Read(as_dict(from_dict(cls, fields), version=version), len(data) - reader.remaining)


def has_escapes(value: object) -> bool:
    """Whether a string stands for bytes that are not UTF-8."""
    if isinstance(value, str):
        return any("\ud800" <= letter <= "\udfff" for letter in value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(has_escapes, inner))


def compiled(cls: type[Message], data: bytes, *, version: int) -> Read | None:
    """What the compiled function makes of bytes, None if it refuses them as it should."""
    try:
        message, position = codec(cls, version=version).decode(data)
    except InvalidRequestError as error:
        if not (error.field and 0 <= error.position <= len(data) and str(error).startswith(cls.schema.name)):
            raise
        return None
    return Read(as_dict(message, version=version), position)


class Maker:
    """Makes random messages of one version. Values are often the least, the greatest, zero, empty or null."""

    def __init__(self, rng: random.Random, *, version: int, is_flexible: bool, most: int = 3) -> None:
        self.rng = rng
        self._version = version
        self._is_flexible = is_flexible
        self._most = most

    def message(self, cls: type[Message]) -> Message:
        rng = self.rng
        values = {
            attribute(field.name): self.value(cls, field)
            for field in cls.fields
            if self._version in field.versions and (field.tag is None or rng.random() < 0.6)
        }
        if self._is_flexible and rng.random() < 0.1:
            tags = sorted(rng.sample(range(100, 2**32), rng.randint(1, 2)))
            values[UNKNOWN_TAGS] = tuple(TaggedField(tag, rng.randbytes(rng.choice((0, 1, 130)))) for tag in tags)
        return cls(**values)

    def value(self, cls: type[Message], field: Field) -> Any:
        if self._version in field.nullable and self.rng.random() < 0.25:
            return None
        if field.is_array:
            return [self.one(cls, field) for _ in range(self.rng.choice((0, 1, 1, self._most)))]
        return self.one(cls, field)

    def one(self, cls: type[Message], field: Field) -> Any:
        rng = self.rng
        if field.kind == STRUCT:
            return self.message(cls.structs[field.name])
        if field.kind == "bool":
            return rng.random() < 0.5
        if field.kind == "uuid":
            return rng.choice((UUID(int=0), UUID(bytes=rng.randbytes(16)), UUID(bytes=rng.randbytes(16))))
        if field.kind == "string":
            return rng.choice(("", "t", "tópico", "名前", "x" * 126, "y" * 127, "z" * 130))
        if field.kind in NUMBERS:
            return self._number(field)
        return rng.randbytes(rng.choice((0, 1, 126, 127, 128, 1100)))

    def _number(self, field: Field) -> Any:
        if field.kind == "float64":
            return self.rng.choice((0.0, -1.5, self.rng.random()))
        bits = NUMBERS[field.kind].size * 8
        least, greatest = (0, 2**bits - 1) if field.kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return self.rng.choice((least, greatest, 0, self.rng.randint(least, greatest)))
