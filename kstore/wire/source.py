"""The text of a function that is compiled for one message and version, and which of its lines read or write what."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from kstore.wire.schema import NUMBERS, STRUCT, Field

# What struct.Struct calls them.
CODES = {**{kind: layout.format[1:] for kind, layout in NUMBERS.items()}, "bool": "?", "uuid": "16s"}
SIZES = {**{kind: layout.size for kind, layout in NUMBERS.items()}, "bool": 1, "uuid": 16}
LENGTH_CODES = {"string": "h", "bytes": "i", "records": "i", "array": "i", STRUCT: "b"}
CODE_SIZES = {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}
# One byte of a varint has 7 bits of the number.
MOST_OF_ONE_BYTE = 127
# Arrays of so many numbers have a struct.Struct ready.
MOST_OF_LAYOUTS = 8

# What a line reads or writes: a field, or fields one after another, each with its size in bytes.
Place = str | tuple[tuple[int, str], ...]


class RefusedError(Exception):
    """What a check of a compiled function found. It becomes the error of the field whose line raised it."""

    def __init__(self, *, expected: object, found: object) -> None:
        super().__init__(expected, found)
        self.expected = expected
        self.found = found


class Item(NamedTuple):
    """A number of fixed size that is read or written together with its neighbours."""

    code: str
    text: str
    label: str


class Source:
    """The lines of one function, its global names, and the place of each line that can fail.

    Not thread-safe.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.places: dict[int, Place] = {}
        self._lines: list[str] = []
        self._indent = ""
        self._counted = 0

    def add(self, text: str, place: Place = "") -> None:
        self._lines.append(self._indent + text)
        if place:
            self.places[len(self._lines)] = place

    @contextmanager
    def block(self, head: str, place: Place = "") -> Iterator[None]:
        """Add a line, and indent what the body adds under it."""
        self.add(head, place)
        self._indent += " "
        yield
        self._indent = self._indent[:-1]

    def fresh(self, stem: str) -> str:
        """Return a new local name."""
        self._counted += 1
        return f"{stem}{self._counted}"

    def named(self, stem: str, value: object) -> str:
        """Return a new global name for a value."""
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def layout(self, method: str, codes: str) -> str:
        """Return the global name of a method of the struct.Struct with these codes."""
        name = f"{method}_{codes.replace('?', 'z')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(f">{codes}"), method)
        return name

    def array_layouts(self, method: str, code: str) -> str:
        """Return the global name of a method of the struct.Structs of up to MOST_OF_LAYOUTS numbers of a code."""
        name = f"{method}_array_{code.replace('?', 'z')}"
        if name not in self.names:
            self.names[name] = _array_layouts(method, code)
        return name

    def function(self, name: str, *, file_name: str) -> Callable[..., Any]:
        """Compile the lines; return the function that they define."""
        exec(compile("\n".join(self._lines), f"<{file_name}>", "exec"), self.names)
        function: Callable[..., Any] = self.names[name]
        return function


@cache
def _array_layouts(method: str, code: str) -> tuple[Callable[..., Any], ...]:
    return tuple(getattr(struct.Struct(f">{count}{code}"), method) for count in range(MOST_OF_LAYOUTS + 1))


def place_of(items: list[Item]) -> Place:
    """Return the place of a line that reads or writes these items."""
    return tuple((CODE_SIZES[item.code], item.label) for item in items)


def constant(field: Field) -> str:
    """Return the text of a default that is not a struct, with ZERO for the UUID of zeros."""
    if field.default == ():
        return "[]" if field.is_array else "None"
    return "ZERO" if isinstance(field.default, UUID) else repr(field.default)
