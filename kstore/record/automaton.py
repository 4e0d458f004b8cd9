"""The automaton of a regular expression on bytes: a table by which the core finds whether there is a match.

Only what is a regular language in the strict sense has one: characters, classes, repeats, groups and alternatives.
Where a match starts or ends does not matter, so that greedy and lazy repeats are the same.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, TypeAlias

# The parser of the module re, which no other module offers, under the names that it had before Python 3.11 and since.
_IS_IN_RE = sys.version_info >= (3, 11)
codes = import_module("re._constants" if _IS_IN_RE else "sre_constants")
parser = import_module("re._parser" if _IS_IN_RE else "sre_parse")

# Above these, the table would not fit a cache, or take longer to make than a search.
MOST_STATES = 255
MOST_POSITIONS = 400
_BYTES = 256
_ALL = (1 << _BYTES) - 1
_CASES = sum(1 << byte for byte in range(_BYTES) if bytes((byte,)).isalpha())
# Classes of bytes are those of ASCII.
_CATEGORIES = {
    codes.CATEGORY_DIGIT: rb"\d",
    codes.CATEGORY_NOT_DIGIT: rb"\D",
    codes.CATEGORY_SPACE: rb"\s",
    codes.CATEGORY_NOT_SPACE: rb"\S",
    codes.CATEGORY_WORD: rb"\w",
    codes.CATEGORY_NOT_WORD: rb"\W",
}
_KNOWN_FLAGS = re.IGNORECASE | re.DOTALL | re.MULTILINE | re.VERBOSE

# A class of bytes, as bits.
_Class: TypeAlias = int


class _NotRegularError(Exception):
    """The expression has something that an automaton does not know, or is too large."""


class _Net:
    """Positions, each of which is left by a byte of a class or by nothing, to other positions (McNaughton-Yamada)."""

    def __init__(self) -> None:
        self.classes: list[_Class] = []
        self.targets: list[int] = []
        self.free: list[list[int]] = []

    def added(self) -> int:
        """Return a new position."""
        if len(self.free) >= MOST_POSITIONS:
            raise _NotRegularError
        self.classes.append(0)
        self.targets.append(-1)
        self.free.append([])
        return len(self.free) - 1

    def put(self, items: Iterable[tuple[Any, Any]], start: int, *, flags: int) -> int:
        """Add a sequence from a position, and return the one after it."""
        for code, argument in items:
            start = self._put_one(code, argument, start, flags=flags)
        return start

    def _put_one(self, code: Any, argument: Any, start: int, *, flags: int) -> int:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, repeated = argument
            return self._put_repeat(repeated, start, least=least, most=most, flags=flags)
        if code is codes.SUBPATTERN:
            _, added, removed, items = argument
            return self.put(items, start, flags=(flags | added) & ~removed)
        if code is codes.BRANCH:
            end = self.added()
            for items in argument[1]:
                first = self.added()
                self.free[start].append(first)
                self.free[self.put(items, first, flags=flags)].append(end)
            return end
        self.classes[start] |= _class_of(code, argument, flags)
        self.targets[start] = end = self.added()
        return end

    def _put_repeat(self, items: Sequence[tuple[Any, Any]], start: int, *, least: int, most: Any, flags: int) -> int:
        if least > MOST_POSITIONS or (most is not codes.MAXREPEAT and most > MOST_POSITIONS):
            raise _NotRegularError
        for _ in range(least):
            start = self.put(items, start, flags=flags)
        if most is codes.MAXREPEAT:
            first = self.added()
            self.free[start].append(first)
            self.free[self.put(items, first, flags=flags)].append(first)
            start = self.added()
            self.free[first].append(start)
            return start
        end = self.added()
        for _ in range(most - least):
            self.free[start].append(end)
            first = self.added()
            self.free[start].append(first)
            start = self.put(items, first, flags=flags)
        self.free[start].append(end)
        return end

    def after(self, positions: Iterable[int], byte: int) -> list[int]:
        """Return the positions after a byte."""
        return [self.targets[position] for position in positions if self.classes[position] >> byte & 1]

    def closed(self, positions: Iterable[int]) -> frozenset[int]:
        """Return the positions with those that are reached from them by nothing."""
        reached: set[int] = set()
        waiting = list(positions)
        while waiting:
            position = waiting.pop()
            if position not in reached:
                reached.add(position)
                waiting += self.free[position]
        return frozenset(reached)


def _class_of(code: Any, argument: Any, flags: int) -> _Class:
    """Return the bytes of one character of an expression."""
    if code is codes.ANY:
        return _ALL if flags & re.DOTALL else _ALL & ~(1 << ord("\n"))
    if code is codes.LITERAL:
        return _cased(1 << argument, flags)
    if code is codes.NOT_LITERAL:
        return _ALL & ~_cased(1 << argument, flags)
    if code is not codes.IN:
        raise _NotRegularError
    items = list(argument)
    is_negated = items[0][0] is codes.NEGATE
    found = 0
    for kind, what in items[is_negated:]:
        if kind is codes.LITERAL:
            found |= 1 << what
        elif kind is codes.RANGE:
            low, high = what
            found |= (1 << (high + 1)) - (1 << low)
        elif kind is codes.CATEGORY and what in _CATEGORIES:
            matches = re.compile(_CATEGORIES[what]).match
            found |= sum(1 << byte for byte in range(_BYTES) if matches(bytes((byte,))))
        else:
            raise _NotRegularError
    found = _cased(found, flags)
    return _ALL & ~found if is_negated else found


def _cased(found: _Class, flags: int) -> _Class:
    if not flags & re.IGNORECASE:
        return found
    return found | sum(1 << (letter ^ 0x20) for letter in _bits(found & _CASES))


def _bits(found: _Class) -> Iterator[int]:
    while found:
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest


def table_of(expression: bytes) -> bytes | None:
    """Return the table of the automaton that finds a match anywhere in bytes, None if the expression has none.

    That of an expression that matches the empty bytes has no use, and is not made.

    Returns: 256 bytes for each state: the next state after each byte. It starts in state 1; state 0 has found a match
        and is never left.
    Raises: re.error for what is no regular expression.
    """
    parsed = parser.parse(expression)
    if parsed.state.flags & ~_KNOWN_FLAGS:
        return None
    net = _Net()
    try:
        start = net.added()
        end = net.put(parsed, start, flags=parsed.state.flags)
        return _table(net, start, end=end)
    except _NotRegularError:
        return None


def _table(net: _Net, start: int, *, end: int) -> bytes:
    """Return the table by the construction of subsets, a match of which may start at each byte."""
    kinds = _kinds(net.classes)
    first = net.closed([start])
    if end in first:
        raise _NotRegularError
    numbers = {first: 1}
    waiting, rows = [first], [bytes(_BYTES)]
    while waiting:
        positions = waiting.pop(0)
        row = bytearray(_BYTES)
        for kind in kinds:
            reached = net.closed([start, *net.after(positions, kind[0])])
            number = 0 if end in reached else numbers.get(reached)
            if number is None:
                numbers[reached] = number = len(numbers) + 1
                waiting.append(reached)
                if number > MOST_STATES:
                    raise _NotRegularError
            for byte in kind:
                row[byte] = number
        rows.append(bytes(row))
    return b"".join(rows)


def _kinds(classes: Iterable[_Class]) -> list[list[int]]:
    """Return the bytes by kind: those of one are in the same classes."""
    kinds = [_ALL]
    for one in set(classes):
        kinds = [part for kind in kinds for part in (kind & one, kind & ~one) if part]
    return [list(_bits(kind)) for kind in kinds]
