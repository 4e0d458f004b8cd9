"""Messages as objects: one class for each struct of a schema, with Kafka's field names in snake_case as slots."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from kstore.wire.schema import STRUCT, Field, Schema

UNKNOWN_TAGS = "unknown_tagged_fields"
_NEXT_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Message:
    """A message or a struct in one. Each field is an attribute and a keyword of the constructor; one that is not given
    has Kafka's default.

    Values are int, float, bool, str, bytes, uuid.UUID, None, lists and Messages. `records` of a decoded message are a
    memoryview of the bytes it was decoded from; to be encoded, they are bytes, a memoryview of bytes, or any object
    whose len() is its size in bytes. A field that the decoded version does not have has its default, and so has a
    tagged field that was not written: a tagged struct that can't be null is then None, where Kafka has one of defaults.
    unknown_tagged_fields: those of later versions of Kafka, which are written again.

    Instances are compared by their fields and can't be hashed. Not thread-safe for changes.
    Source: Kafka's generated classes (ProduceRequestData).
    """

    __slots__: ClassVar[tuple[str, ...]] = ()
    # The fields of all versions, and the class of each field that is a struct.
    fields: ClassVar[tuple[Field, ...]] = ()
    structs: ClassVar[dict[str, type[Message]]] = {}
    schema: ClassVar[Schema | None] = None

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        type.__setattr__(cls, "__init__", _constructor(cls))
        self.__init__(**values)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self.__slots__ if hasattr(self, name))
        return f"{type(self).__qualname__}({fields})"


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, Message | str | int | float | list | tuple | UUID | None) else _size(value)


def _size(value: Any) -> str:
    return f"<{len(value)} bytes>"


def attribute(name: str) -> str:
    """Return the name of a field of Kafka in snake_case."""
    return _NEXT_WORD.sub("_", name).lower()


def message_class(schema: Schema, *, module: str) -> type[Message]:
    """Return a new class for the messages of a schema. The structs in it are attributes of it, by their names."""
    named: dict[str, type[Message]] = {}
    cls = _class(schema.name, schema.fields, named=named, module=module, outer="")
    cls.schema = schema
    for name, struct in named.items():
        setattr(cls, name, struct)
    return cls


def _class(
    name: str, fields: tuple[Field, ...], *, named: dict[str, type[Message]], module: str, outer: str
) -> type[Message]:
    structs: dict[str, type[Message]] = {}
    for field in fields:
        if field.kind == STRUCT:
            known = named.get(field.struct)
            if known is None:
                inner = field.struct or field.name[0].upper() + field.name[1:]
                known = _class(inner, field.fields, named=named, module=module, outer=outer or f"{name}.")
                if field.struct:
                    named[inner] = known
            structs[field.name] = known
    body = {
        "__slots__": (*(attribute(field.name) for field in fields), UNKNOWN_TAGS),
        "__module__": module,
        "__qualname__": outer + name,
        "fields": fields,
        "structs": structs,
    }
    return type(name, (Message,), body)


def _constructor(cls: type[Message]) -> Callable[..., None]:
    """Return the __init__ of a class, with a keyword for each field."""
    names: dict[str, Any] = {"UUID": UUID, "EMPTY": (), "ZERO": UUID(int=0)}
    arguments, lines = [], []
    for field in cls.fields:
        name = attribute(field.name)
        default, value = repr(field.default), name
        if field.kind == "uuid" and not field.is_array:
            default = "ZERO"
        elif field.is_array and field.default == ():
            default, value = "EMPTY", f"[] if {name} is EMPTY else {name}"
        elif is_struct_of_defaults(field):
            names[f"new_{name}"] = cls.structs[field.name]
            default, value = "EMPTY", f"new_{name}() if {name} is EMPTY else {name}"
        elif field.kind == STRUCT:
            default = "None"
        arguments.append(f"{name}={default}")
        lines.append(f" self.{name} = {value}")
    head = f"def __init__(self, *, {', '.join([*arguments, f'{UNKNOWN_TAGS}=EMPTY'])}):"
    text = "\n".join([head, *lines, f" self.{UNKNOWN_TAGS} = {UNKNOWN_TAGS}"])
    exec(compile(text, f"<{cls.__qualname__}>", "exec"), names)
    constructor: Callable[..., None] = names["__init__"]
    return constructor


def is_struct_of_defaults(field: Field) -> bool:
    """Whether a field that is not given is a struct of defaults. A tagged one that can't be null is None instead."""
    is_struct = field.kind == STRUCT and not field.is_array and field.default == ()
    return is_struct and (field.tag is None or bool(field.nullable))
