"""Compiles the function that decodes one version of a message.

Its text is one line per step: numbers next to each other are unpacked at once, with the length or the count of tagged
fields that follows them. All structs of a message are inlined, so nothing in the bytes can make it recurse.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn
from uuid import UUID

from kstore.errors import InvalidRequestError
from kstore.wire.classes import UNKNOWN_TAGS, Message, attribute, is_struct_of_defaults
from kstore.wire.protocol import (
    MAX_UNSIGNED_VARINT,
    MOST_ELEMENTS_BYTES,
    MOST_STRING_BYTES,
    TAGGED_FIELD_SIZE,
    TaggedField,
)
from kstore.wire.schema import STRUCT, Field, Schema, object_size
from kstore.wire.source import (
    CODES,
    LENGTH_CODES,
    MOST_OF_LAYOUTS,
    MOST_OF_ONE_BYTE,
    SIZES,
    Item,
    Place,
    RefusedError,
    Source,
    constant,
    place_of,
)

Buffer = bytes | bytearray
# Topic ids are few, and making a UUID takes longer than the rest of a topic.
_uuid_of = lru_cache(maxsize=1024)(lambda data: UUID(bytes=data))
_MAX_VARINT_SHIFT = 28


def compile_decoder(schema: Schema, cls: type[Message], *, version: int) -> Callable[..., Any]:
    """Return `decode(data, pos=0) -> (message, position after it)` for one version of a schema.

    data is bytes or a bytearray, which can't be resized while the records of its messages live. The function raises
    InvalidRequestError if no such message is at the position; what follows it is not looked at.
    """
    names: dict[str, Any] = {
        "ERRORS": (RefusedError, struct.error, IndexError, UnicodeDecodeError),
        "ZERO": UUID(int=0),
        "TaggedField": TaggedField,
        "new": object.__new__,
        "refusal": _refusal,
        "uuid_of": _uuid_of,
        "varint": _varint_rest,
        "string_size": _string_size,
        "tag_at": _tag_at,
        "unknown_tags": _unknown_tags,
        "bad_length": _bad_length,
        "bad_tag_size": _bad_tag_size,
        "over_budget": _over_budget,
        "unpack_from": struct.unpack_from,
    }
    what = f"{schema.name} v{version}"
    writer = _DecoderWriter(Source(names), version=version, is_flexible=version in schema.flexible)
    source = writer.source
    names |= {"WHAT": what, "PLACES": source.places}
    with source.block("def decode(data, pos=0):"):
        source.add("end = len(data)")
        source.add(f"budget = {MOST_ELEMENTS_BYTES}")
        with source.block("try:"):
            if writer.has_records(schema.fields):
                source.add("view = memoryview(data)")
            writer.struct(cls, "message", end="end", path="")
            source.add("return message, pos")
        with source.block("except ERRORS as error:"):
            source.add("raise refusal(WHAT, PLACES, error, data, pos) from None")
    return source.function("decode", file_name=f"decode {what}")


class _DecoderWriter:
    """Writes the lines that decode structs.

    `_pending` are numbers of fixed size that were not unpacked yet: their targets in the order of the bytes.
    """

    def __init__(self, source: Source, *, version: int, is_flexible: bool) -> None:
        self.source = source
        self._version = version
        self._is_flexible = is_flexible
        self._pending: list[Item] = []

    def has_records(self, fields: tuple[Field, ...]) -> bool:
        return any(field.kind == "records" or self.has_records(field.fields) for field in fields)

    def struct(self, cls: type[Message], target: str, *, end: str, path: str) -> None:
        """Decode a struct, up to the position `end` at most, into a new local variable."""
        self._flush()
        name = self.source.named("Class", cls)
        self.source.add(f"{target} = new({name})")
        tagged: list[Field] = []
        for field in cls.fields:
            place = f"{target}.{attribute(field.name)}"
            is_present = self._version in field.versions
            if is_present and field.tag is None:
                self._value(cls, field, place, end=end, path=path)
                continue
            if is_present:
                tagged.append(field)
            if is_struct_of_defaults(field):
                self.source.add(f"{place} = {self.source.named('Class', cls.structs[field.name])}()")
            else:
                self.source.add(f"{place} = {constant(field)}")
        if self._is_flexible:
            self._tags(cls, tagged, target, end=end, path=path)
        else:
            self._flush()
            self.source.add(f"{target}.{UNKNOWN_TAGS} = ()")

    def _flush(self) -> None:
        """Unpack what is pending."""
        items, self._pending = self._pending, []
        if not items:
            return
        codes = "".join(item.code for item in items)
        size = sum(SIZES.get(item.code, 0) or struct.calcsize(f">{item.code}") for item in items)
        if codes == "B":
            self.source.add(f"{items[0].text} = data[pos]", place_of(items))
        else:
            targets = ", ".join(item.text for item in items)
            self.source.add(f"{targets}, = {self.source.layout('unpack_from', codes)}(data, pos)", place_of(items))
        self.source.add(f"pos += {size}")
        for item in items:
            if item.code == CODES["uuid"]:
                self.source.add(f"{item.text} = uuid_of({item.text})")

    def _length(self, kind: str, label: str, *, is_flexible: bool) -> str:
        """Read a length with what is pending; return the text that gives it, -1 for null."""
        self._pending.append(Item("B" if is_flexible else LENGTH_CODES[kind], "n", label))
        self._flush()
        if not is_flexible:
            return "n"
        function = "string_size" if kind == "string" else "varint"
        self.source.add(f"if n > {MOST_OF_ONE_BYTE}: n, pos = {function}(n, data, pos)", label)
        return "n - 1"

    def _value(self, cls: type[Message], field: Field, target: str, *, end: str, path: str) -> None:
        label = path + field.name
        is_nullable = self._version in field.nullable
        if not field.is_array:
            self._one(cls, field, target, is_nullable=is_nullable, end=end, path=path)
            return
        count = self._length("array", label, is_flexible=self._is_flexible)
        if not is_nullable:
            self._array(cls, field, target, count=count, end=end, path=path)
            return
        with self.source.block("if n == -1:" if count == "n" else "if not n:"):
            self.source.add(f"{target} = None")
        with self.source.block("else:"):
            self._array(cls, field, target, count=count, end=end, path=path)

    def _array(self, cls: type[Message], field: Field, target: str, *, count: str, end: str, path: str) -> None:
        """Decode the elements of an array, after their number was compared with the bytes that are left."""
        label = path + field.name
        add = self.source.add
        most = f"({end} - pos) // {self.least_size(field, of_element=True)}"
        add(f"if not 0 <= {count} <= {most}: bad_length({count}, most={most})", label)
        add(f"budget -= ({count}) * {object_size(field)}")
        add(f"if budget < 0: over_budget(budget, count={count})", label)
        if field.kind in CODES and field.kind != "uuid":
            self._numbers(field, target, count=count, label=label)
            return
        elements, element = self.source.fresh("elements"), self.source.fresh("element")
        add(f"{target} = {elements} = []")
        with self.source.block(f"for _ in range({count}):"):
            self._one(cls, field, element, is_nullable=False, end=end, path=path)
            self._flush()
            add(f"{elements}.append({element})")

    def _numbers(self, field: Field, target: str, *, count: str, label: str) -> None:
        """Decode an array of numbers, whose count was checked."""
        add, code = self.source.add, CODES[field.kind]
        if count != "n":
            add(f"n = {count}")
        layouts = self.source.array_layouts("unpack_from", code)
        add(f"if n <= {MOST_OF_LAYOUTS}: {target} = list({layouts}[n](data, pos))", label)
        add(f'else: {target} = list(unpack_from(f">{{n}}{code}", data, pos))', label)
        add(f"pos += n * {SIZES[field.kind]}")

    def _one(self, cls: type[Message], field: Field, target: str, *, is_nullable: bool, end: str, path: str) -> None:
        label = path + field.name
        if field.kind in CODES:
            self._pending.append(Item(CODES[field.kind], target, label))
        elif field.kind != STRUCT:
            self._sized(field, target, is_nullable=is_nullable, end=end, label=label)
        elif not is_nullable:
            self._struct_value(cls, field, target, end=end, path=label)
        else:
            null = self._null_struct(field, label)
            with self.source.block(f"if {null}:"):
                self.source.add(f"{target} = None")
            with self.source.block("else:"):
                self._struct_value(cls, field, target, end=end, path=label)

    def _null_struct(self, field: Field, label: str) -> str:
        """Read what distinguishes a struct from null; return the text that says whether it is null."""
        if field.tag is None:
            self._length(STRUCT, label, is_flexible=False)
            return "n < 0"
        self._length(STRUCT, label, is_flexible=True)
        return "n == 0"

    def _struct_value(self, cls: type[Message], field: Field, target: str, *, end: str, path: str) -> None:
        variable = target if target.isidentifier() else self.source.fresh("struct")
        self.struct(cls.structs[field.name], variable, end=end, path=f"{path}.")
        if variable != target:
            self.source.add(f"{target} = {variable}")

    def _sized(self, field: Field, target: str, *, is_nullable: bool, end: str, label: str) -> None:
        """Decode a string, bytes or records."""
        add = self.source.add
        count = self._length(field.kind, label, is_flexible=self._is_flexible and not field.is_inflexible)
        taken = {"string": "data[pos:stop].decode()", "bytes": "bytes(data[pos:stop])"}
        lines = [
            f"stop = pos + {count}",
            f"if not pos <= stop <= {end}: bad_length({count}, most={end} - pos)",
            f"{target} = {taken.get(field.kind, 'view[pos:stop]')}",
            "pos = stop",
        ]
        if not is_nullable:
            for line in lines:
                add(line, label)
            return
        with self.source.block("if n == -1:" if count == "n" else "if not n:"):
            add(f"{target} = None")
        with self.source.block("else:"):
            for line in lines:
                add(line, label)

    def _tags(self, cls: type[Message], fields: list[Field], target: str, *, end: str, path: str) -> None:
        """Decode the tagged fields at the end of a struct."""
        add, fresh = self.source.add, self.source.fresh
        place: Place = f"{path}tagged fields"
        self._pending.append(Item("B", "n", str(place)))
        self._flush()
        add(f"{target}.{UNKNOWN_TAGS} = ()")
        with self.source.block("if n:"):
            if not fields:
                unknown = f"{target}.{UNKNOWN_TAGS}"
                add(f"{unknown}, pos, budget = unknown_tags(n, data, pos, end={end}, budget=budget)", place)
                return
            add(f"if n > {MOST_OF_ONE_BYTE}: n, pos = varint(n, data, pos)", place)
            add(f"if n > ({end} - pos) // 2: bad_length(n, most=({end} - pos) // 2)", place)
            add(f"budget -= n * {TAGGED_FIELD_SIZE}")
            add("if budget < 0: over_budget(budget, count=n)", place)
            tag, stop, others = fresh("tag"), fresh("stop"), fresh("others")
            add(f"{others} = []")
            add(f"{tag} = -1")
            with self.source.block("for _ in range(n):"):
                add(f"{tag}, pos, {stop} = tag_at({tag}, data, pos, end={end})", place)
                for number, field in enumerate(fields):
                    with self.source.block(f"{'elif' if number else 'if'} {tag} == {field.tag}:"):
                        self._value(cls, field, f"{target}.{attribute(field.name)}", end=stop, path=path)
                        self._flush()
                        add(f"if pos != {stop}: bad_tag_size({stop} - pos)", path + field.name)
                with self.source.block("else:"):
                    add(f"{others}.append(TaggedField({tag}, bytes(data[pos:{stop}])))")
                    add(f"pos = {stop}")
            add(f"{target}.{UNKNOWN_TAGS} = tuple({others})")

    def least_size(self, field: Field, *, of_element: bool = False) -> int:
        """Return the fewest bytes that a field, or an element of an array, takes."""
        is_nullable = self._version in field.nullable and not of_element
        if field.is_array and not of_element:
            return 1 if self._is_flexible else 4
        if field.kind in CODES:
            return SIZES[field.kind]
        if field.kind != STRUCT:
            return 1 if self._is_flexible else struct.calcsize(LENGTH_CODES[field.kind])
        if is_nullable:
            return 1
        present = [each for each in field.fields if self._version in each.versions and each.tag is None]
        return max(1, sum(map(self.least_size, present)) + self._is_flexible)


def _refusal(what: str, places: dict[int, Place], error: Exception, data: Buffer, pos: int) -> InvalidRequestError:
    """Return the error for a line of a compiled function that failed at a position."""
    traceback = error.__traceback__
    place = places.get(traceback.tb_lineno, "message") if traceback is not None else "message"
    expected: object
    found: object
    if isinstance(error, RefusedError):
        expected, found = error.expected, error.found
    elif isinstance(error, UnicodeDecodeError):
        expected, found = "UTF-8", error.reason
        pos += error.start
    else:
        items = ((1, place),) if isinstance(place, str) else place
        for size, label in items:
            place, expected, found = label, f"{size} bytes", len(data) - pos
            if size > found:
                break
            pos += size
    text = f"{what}: {place} at byte {pos} of {len(data)}: expected {expected}, found {found}"
    return InvalidRequestError(text, field=str(place), position=pos, expected=expected, found=found)


def _varint_rest(first: int, data: Buffer, pos: int) -> tuple[int, int]:
    """Return a varint whose first byte was read and has others after it, and the position after them."""
    value, shift = first & 0x7F, 7
    while True:
        byte = _byte_at(data, pos)
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte <= MOST_OF_ONE_BYTE:
            break
        if shift == _MAX_VARINT_SHIFT:
            raise RefusedError(expected="a varint of at most 5 bytes", found="a sixth")
        shift += 7
    if value > MAX_UNSIGNED_VARINT:
        raise RefusedError(expected="a varint of at most 32 bits", found=value)
    return value, pos


def _byte_at(data: Buffer, pos: int) -> int:
    if pos >= len(data):
        raise RefusedError(expected="one more byte of a varint", found="the end")
    return data[pos]


def _varint_at(data: Buffer, pos: int) -> tuple[int, int]:
    first = _byte_at(data, pos)
    return (first, pos + 1) if first <= MOST_OF_ONE_BYTE else _varint_rest(first, data, pos + 1)


def _string_size(first: int, data: Buffer, pos: int) -> tuple[int, int]:
    """Return what _varint_rest does, for the length of a string."""
    size, pos = _varint_rest(first, data, pos)
    if size - 1 > MOST_STRING_BYTES:
        raise RefusedError(expected=f"a string of at most {MOST_STRING_BYTES} bytes", found=size - 1)
    return size, pos


def _tag_at(last: int, data: Buffer, pos: int, *, end: int) -> tuple[int, int, int]:
    """Return the tag at a position, which must be above the last one, and where its content begins and ends."""
    tag, pos = _varint_at(data, pos)
    if tag <= last:
        raise RefusedError(expected=f"a tag above {last}", found=tag)
    size, pos = _varint_at(data, pos)
    if size > end - pos:
        raise RefusedError(expected=f"{size} bytes of tag {tag}", found=end - pos)
    return tag, pos, pos + size


def _unknown_tags(
    first: int, data: Buffer, pos: int, *, end: int, budget: int
) -> tuple[tuple[TaggedField, ...], int, int]:
    """Return tagged fields of which none is known, the position after them, and the budget that is left."""
    count = first
    if count > MOST_OF_ONE_BYTE:
        count, pos = _varint_rest(first, data, pos)
    if count > (end - pos) // 2:
        _bad_length(count, most=(end - pos) // 2)
    budget -= count * TAGGED_FIELD_SIZE
    if budget < 0:
        _over_budget(budget, count=count)
    fields = []
    tag = -1
    for _ in range(count):
        tag, pos, stop = _tag_at(tag, data, pos, end=end)
        fields.append(TaggedField(tag, bytes(data[pos:stop])))
        pos = stop
    return tuple(fields), pos, budget


def _bad_length(length: int, *, most: int) -> NoReturn:
    if length == -1:
        raise RefusedError(expected="a value that is not null", found="null")
    raise RefusedError(expected=f"a length of at most {max(most, 0)}", found=length)


def _over_budget(budget: int, *, count: int) -> NoReturn:
    found = f"{MOST_ELEMENTS_BYTES - budget} with these {count} elements"
    raise RefusedError(expected=f"at most {MOST_ELEMENTS_BYTES} bytes of memory for all elements", found=found)


def _bad_tag_size(left: int) -> NoReturn:
    raise RefusedError(expected="a tagged field as long as it says", found=f"{left} bytes more")
