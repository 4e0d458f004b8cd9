"""Compiles the function that encodes one version of a message.

Its text is one line per step: numbers next to each other are packed at once, with the length that follows them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn
from uuid import UUID

from kstore.wire.classes import UNKNOWN_TAGS, Message, attribute
from kstore.wire.protocol import MOST_STRING_BYTES, TaggedField, unsigned_varint
from kstore.wire.schema import STRUCT, Field, Schema
from kstore.wire.source import (
    CODES,
    LENGTH_CODES,
    MOST_OF_LAYOUTS,
    MOST_OF_ONE_BYTE,
    Item,
    RefusedError,
    Source,
    constant,
    place_of,
)

Part = Any  # bytes, a memoryview of bytes, or what a server sends in another way and whose len() is its size
# Records of more bytes are a part of their own.
MOST_JOINED_BYTES = 1024
_ONE_BYTE = tuple(bytes((value,)) for value in range(MOST_OF_ONE_BYTE + 1))
_TWO_BYTES, _THREE_BYTES = struct.Struct("BB").pack, struct.Struct("BBB").pack


def compile_encoder(schema: Schema, cls: type[Message], *, version: int) -> Callable[[Any], list[Part]]:
    """Return `encode(message) -> parts` for one version of a schema.

    The parts in their order are the message. Records of more than MOST_JOINED_BYTES, and records that are not bytes or
    a memoryview, are parts of their own, the same objects; all between them is joined. The function raises ValueError
    for a field that does not fit its type, is null where that may not be, or says something that this version can't.
    """
    names: dict[str, Any] = {
        "ERRORS": (RefusedError, struct.error, AttributeError, TypeError, UnicodeEncodeError),
        "ZERO": UUID(int=0),
        "BYTES": frozenset({bytes, bytearray, memoryview}),
        "ONE_BYTE": _ONE_BYTE,
        "TaggedField": TaggedField,
        "varint": _long_varint,
        "string_size": _string_size,
        "not_in_version": _not_in_version,
        "says_more": _says_more,
        "tags": _tags,
        "unfit": _unfit,
        "pack": struct.pack,
        "joined": _joined,
    }
    what = f"{schema.name} v{version}"
    writer = _EncoderWriter(Source(names), version=version, is_flexible=version in schema.flexible)
    source = writer.source
    names |= {"WHAT": what, "PLACES": source.places}
    with source.block("def encode(message):"):
        source.add("parts = []")
        source.add("bodies = []")
        source.add("write = parts.append")
        with source.block("try:"):
            writer.struct(cls, "message", path="")
            source.add('return joined(parts, bodies) if bodies else [b"".join(parts)]')
        with source.block("except ERRORS as error:"):
            source.add("raise unfit(WHAT, PLACES, error) from None")
    return source.function("encode", file_name=f"encode {what}")


class _EncoderWriter:
    """Writes the lines that encode structs.

    `_pending` are numbers of fixed size that were not packed yet, in the order of the bytes.
    """

    def __init__(self, source: Source, *, version: int, is_flexible: bool) -> None:
        self.source = source
        self._version = version
        self._is_flexible = is_flexible
        self._pending: list[Item] = []
        self._write = "write"

    def struct(self, cls: type[Message], target: str, *, path: str) -> None:
        """Encode the struct in a local variable."""
        tagged: list[Field] = []
        for field in cls.fields:
            place = f"{target}.{attribute(field.name)}"
            if self._version not in field.versions:
                if not field.is_ignorable:
                    self.source.add(f"if {_says_something(field, place)}: not_in_version()", path + field.name)
            elif field.tag is None:
                self._value(cls, field, place, path=path)
            else:
                tagged.append(field)
        if self._is_flexible:
            self._tags(cls, tagged, target, path=path)
        else:
            self._flush()

    def _flush(self, *, with_byte: str = "") -> None:
        """Pack what is pending, followed by one unsigned byte or, for a code "x", by a zero."""
        items, self._pending = self._pending, []
        codes = "".join(item.code for item in items) + with_byte
        if codes == "x":
            self.source.add(f'{self._write}(b"\\0")')
        elif codes:
            values = ", ".join(item.text for item in items) + (", n" if with_byte == "B" else "")
            self.source.add(f"{self._write}({self.source.layout('pack', codes)}({values}))", place_of(items))

    def _length(self, kind: str, label: str, *, is_flexible: bool) -> None:
        """Write the length `n`, with what is pending; the flexible encoding has one more."""
        if not is_flexible:
            self._pending.append(Item(LENGTH_CODES[kind], "n", label))
            self._flush()
            return
        rest = f"{self._write}({'string_size' if kind == 'string' else 'varint'}(n))"
        if not self._pending:
            self.source.add(f"if n <= {MOST_OF_ONE_BYTE}: {self._write}(ONE_BYTE[n])")
            self.source.add(f"else: {rest}", label)
            return
        pending = list(self._pending)
        with self.source.block(f"if n <= {MOST_OF_ONE_BYTE}:"):
            self._flush(with_byte="B")
        self._pending = pending
        with self.source.block("else:"):
            self._flush()
            self.source.add(rest, label)

    def _value(self, cls: type[Message], field: Field, target: str, *, path: str) -> None:
        label = path + field.name
        if not field.is_array:
            self._one(cls, field, target, is_nullable=self._version in field.nullable, path=path)
            return
        add, extra = self.source.add, int(self._is_flexible)
        elements = self.source.fresh("elements")
        add(f"{elements} = {target}")
        if self._version in field.nullable:
            add(f"n = {extra - 1} if {elements} is None else len({elements}) + {extra}", label)
        else:
            add(f"n = len({elements}) + {extra}", label)
        self._length("array", label, is_flexible=self._is_flexible)
        if field.kind in CODES and field.kind != "uuid":
            self._numbers(field, elements, label=label)
            return
        element = self.source.fresh("element")
        with self.source.block(f"for {element} in {elements} or ():"):
            self._one(cls, field, element, is_nullable=False, path=path)
            self._flush()

    def _numbers(self, field: Field, elements: str, *, label: str) -> None:
        """Encode the elements of an array of numbers, whose length was written."""
        add, code = self.source.add, CODES[field.kind]
        with self.source.block(f"if {elements}:"):
            add(f"n = len({elements})")
            add(
                f"if n <= {MOST_OF_LAYOUTS}: {self._write}({self.source.array_layouts('pack', code)}[n](*{elements}))",
                label,
            )
            add(f'else: {self._write}(pack(f">{{n}}{code}", *{elements}))', label)

    def _one(self, cls: type[Message], field: Field, target: str, *, is_nullable: bool, path: str) -> None:
        label = path + field.name
        if field.kind in CODES:
            text = f"{target}.bytes" if field.kind == "uuid" else target
            self._pending.append(Item(CODES[field.kind], text, label))
        elif field.kind != STRUCT:
            self._sized(field, target, is_nullable=is_nullable, label=label)
        elif not is_nullable:
            self._struct_value(cls, field, target, path=label)
        else:
            self._flush()
            null, present = (r"\xff", r"\1") if field.tag is None else (r"\0", r"\1")
            with self.source.block(f"if {target} is None:"):
                self.source.add(f'{self._write}(b"{null}")')
            with self.source.block("else:"):
                self.source.add(f'{self._write}(b"{present}")')
                self._struct_value(cls, field, target, path=label)

    def _struct_value(self, cls: type[Message], field: Field, target: str, *, path: str) -> None:
        variable = target if target.isidentifier() else self.source.fresh("struct")
        if variable != target:
            self.source.add(f"{variable} = {target}")
        self.struct(cls.structs[field.name], variable, path=f"{path}.")

    def _sized(self, field: Field, target: str, *, is_nullable: bool, label: str) -> None:
        """Encode a string, bytes or records."""
        add = self.source.add
        is_flexible = self._is_flexible and not field.is_inflexible
        extra = int(is_flexible)
        value = f"{target}.encode()" if field.kind == "string" else target
        if is_nullable:
            with self.source.block(f"if {target} is None:"):
                add(f'content, n = b"", {extra - 1}')
            with self.source.block("else:"):
                add(f"content = {value}", label)
                add(f"n = len(content) + {extra}", label)
        else:
            add(f"content = {value}", label)
            add(f"n = len(content) + {extra}", label)
        self._length(field.kind, label, is_flexible=is_flexible)
        if field.kind == "records":
            with self.source.block(f"if n > {MOST_JOINED_BYTES + extra} or content.__class__ not in BYTES:"):
                add("bodies.append(len(parts))")
        add(f"{self._write}(content)")

    def _tags(self, cls: type[Message], fields: list[Field], target: str, *, path: str) -> None:
        """Encode the tagged fields at the end of a struct: each that says something, and the unknown ones."""
        places = [f"{target}.{attribute(field.name)}" for field in fields]
        written = [_says_something(field, place) for field, place in zip(fields, places, strict=True)]
        pending = list(self._pending)
        with self.source.block(f"if {' or '.join([f'{target}.{UNKNOWN_TAGS}', *written])}:", f"{path}tagged fields"):
            self._flush()
            found = self.source.fresh("tagged")
            self.source.add(f"{found} = list({target}.{UNKNOWN_TAGS})", f"{path}tagged fields")
            for field, place, condition in zip(fields, places, written, strict=True):
                with self.source.block(f"if {condition}:", path + field.name):
                    self._tag(cls, field, place, found=found, path=path)
            self.source.add(f"{self._write}(tags({found}))", f"{path}tagged fields")
        self._pending = pending
        with self.source.block("else:"):
            self._flush(with_byte="x")

    def _tag(self, cls: type[Message], field: Field, place: str, *, found: str, path: str) -> None:
        outer, inner = self._write, self.source.fresh("inner")
        self.source.add(f"{inner} = []")
        self._write = f"{inner}.append"
        self._value(cls, field, place, path=path)
        self._flush()
        self._write = outer
        self.source.add(f'{found}.append(TaggedField({field.tag}, b"".join({inner})))')


def _says_something(field: Field, place: str) -> str:
    """Return the text of the condition that a field is other than its default."""
    if field.default == () and not field.is_array:
        if field.nullable:
            return f"({place} is None or says_more({place}))"
        return f"({place} is not None and says_more({place}))"
    if field.default == ():
        return f"({place} is None or {place})" if field.nullable else place
    if field.default is None:
        return f"{place} is not None"
    return f"{place} != {constant(field)}"


def _says_more(message: Message) -> bool:
    """Whether a struct that may be left out is other than one of defaults."""
    return message != type(message)()


def _not_in_version() -> NoReturn:
    raise RefusedError(expected="the default, in a version without this field", found="another value")


def _string_size(size: int) -> bytes:
    """Return the varint of the length of a string and one more."""
    if size - 1 > MOST_STRING_BYTES:
        raise RefusedError(expected=f"a string of at most {MOST_STRING_BYTES} bytes", found=size - 1)
    return _long_varint(size)


def _long_varint(value: int) -> bytes:
    """Return a varint of two bytes or more."""
    if value < 1 << 14:
        return _TWO_BYTES(value & 0x7F | 0x80, value >> 7)
    if value < 1 << 21:
        return _THREE_BYTES(value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14)
    return unsigned_varint(value)


def _tags(fields: list[TaggedField]) -> bytes:
    """Return the bytes of tagged fields, by rising tag."""
    parts = [unsigned_varint(len(fields))]
    last = -1
    for tag, data in sorted(fields):
        if tag <= last:
            raise RefusedError(expected=f"a tag above {last}", found=tag)
        last = tag
        parts += (unsigned_varint(tag), unsigned_varint(len(data)), data)
    return b"".join(parts)


def _joined(parts: list[Part], bodies: list[int]) -> list[Part]:
    """Return parts with all joined but those at the positions `bodies`."""
    found: list[Part] = []
    start = 0
    for body in bodies:
        found += (b"".join(parts[start:body]), parts[body])
        start = body + 1
    if start < len(parts):
        found.append(b"".join(parts[start:]))
    return found


def _unfit(what: str, places: dict[int, Any], error: Exception) -> ValueError:
    """Return the error for a line of a compiled function that failed."""
    traceback = error.__traceback__
    place = places.get(traceback.tb_lineno, "message") if traceback is not None else "message"
    label = place if isinstance(place, str) else ", ".join(label for _, label in place)
    reason = f"expected {error.expected}, found {error.found}" if isinstance(error, RefusedError) else str(error)
    return ValueError(f"{what}: {label}: {reason}")
