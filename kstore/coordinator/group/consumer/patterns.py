"""Pattern: regular expressions of clients, matched in time that is linear in the name, whatever the expression is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# Code points from and up to.
Ranges = tuple[tuple[int, int], ...]

_LAST_CODE_POINT = 0x10FFFF
_MOST_STATES = 2000
_MOST_NESTED = 100
# RE2's own limit of a repetition.
_MOST_REPEATED = 1000
_MOST_TRANSITIONS = 50_000
_DIGITS: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = ((9, 10), (12, 13), (32, 32))
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_NAMED: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "digit": _DIGITS,
    "lower": ((97, 122),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}


class PatternError(ValueError):
    """An expression that is none, or that kstore does not know."""


@dataclass(frozen=True, slots=True)
class _Chars:
    ranges: Ranges


@dataclass(frozen=True, slots=True)
class _Edge:
    """The start of the text, or its end."""

    is_end: bool


@dataclass(frozen=True, slots=True)
class _Repeat:
    part: _Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    parts: tuple[_Node, ...]


_Node = _Chars | _Edge | _Repeat | _Sequence | _Choice


@dataclass(slots=True)
class _State:
    """A state of the automaton; it takes a character of `ranges`, or none if it is None. The last one has no next.

    edge: None, or the edge of the text at which alone it is passed.
    """

    ranges: Ranges | None = None
    edge: bool | None = None
    following: tuple[int, ...] = ()


class Pattern:
    """A regular expression in RE2's syntax, without Unicode classes, word boundaries and flags other than i and s.

    Args: source: the expression.
    Raises: PatternError for a bad expression, and for one that is not known or would take more than 2,000 states.
    Threads: not safe.  Cost: of a match at most len(text) * states; most texts find steps that another one took.
    Source: RE2/J as Kafka's coordinator uses it; Thompson's construction.
    """

    def __init__(self, source: str) -> None:
        self._states: list[_State] = []
        self._steps_left = 10 * _MOST_STATES
        last = self._state(_State())
        self._start = self._build(_Parser(source).parsed(), last)
        self._last = last
        self._sets: dict[frozenset[int], frozenset[int]] = {}
        self._taken: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """Whether the expression matches the whole text."""
        now = self._reachable({self._start}, at_start=True, at_end=not text)
        for slot, char in enumerate(text, 1):
            now = self._step(now, char, at_end=slot == len(text))
            if not now:
                return False
        return self._last in now

    def _step(self, now: frozenset[int], char: str, *, at_end: bool) -> frozenset[int]:
        if at_end:
            return self._after(now, char, at_end=True)
        found = self._taken.get((now, char))
        if found is None:
            if len(self._taken) >= _MOST_TRANSITIONS:
                self._taken.clear()
            found = self._taken[now, char] = self._after(now, char, at_end=False)
        return found

    def _after(self, now: frozenset[int], char: str, *, at_end: bool) -> frozenset[int]:
        point = ord(char)
        passed: set[int] = set()
        for number in now:
            state = self._states[number]
            if state.ranges is not None and any(low <= point <= high for low, high in state.ranges):
                passed.update(state.following)
        return self._reachable(passed, at_start=False, at_end=at_end)

    def _reachable(self, numbers: set[int], *, at_start: bool, at_end: bool) -> frozenset[int]:
        """Return the states that are reached from some without another character."""
        reached, todo = set(numbers), list(numbers)
        while todo:
            state = self._states[todo.pop()]
            is_passed = state.edge is None or (at_end if state.edge else at_start)
            if state.ranges is None and is_passed:
                new = set(state.following) - reached
                reached |= new
                todo += new
        return frozenset(reached)

    def _state(self, state: _State) -> int:
        if len(self._states) >= _MOST_STATES:
            raise PatternError("expression is too large")
        self._states.append(state)
        return len(self._states) - 1

    def _build(self, node: _Node, then: int) -> int:
        """Add the states of a part before those of what follows it; return the first."""
        self._steps_left -= 1
        if self._steps_left < 0:
            raise PatternError("expression is too large")
        if isinstance(node, _Chars):
            return self._state(_State(ranges=node.ranges, following=(then,)))
        if isinstance(node, _Edge):
            return self._state(_State(edge=node.is_end, following=(then,)))
        if isinstance(node, _Sequence):
            for part in reversed(node.parts):
                then = self._build(part, then)
            return then
        if isinstance(node, _Choice):
            return self._state(_State(following=tuple(self._build(part, then) for part in node.parts)))
        if node.most is None:
            loop = self._state(_State())
            self._states[loop].following = (self._build(node.part, loop), then)
            then = loop
        else:
            end = then
            for _ in range(node.most - node.least):
                then = self._state(_State(following=(self._build(node.part, then), end)))
        for _ in range(node.least):
            then = self._build(node.part, then)
        return then


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._ignores_case = False
        self._dot_takes_all = False
        self._depth = 0

    def parsed(self) -> _Node:
        node = self._choice()
        if self._at < len(self._source):
            raise PatternError(f"unexpected ): `{self._source}`")
        return node

    def _next(self) -> str:
        """Return the next character, "" at the end."""
        return self._source[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        """Pass a text if it comes next."""
        is_next = self._source.startswith(text, self._at)
        self._at += len(text) * is_next
        return is_next

    def _taken(self) -> str:
        char = self._next()
        if not char:
            raise PatternError("the expression ends too early")
        self._at += 1
        return char

    def _choice(self) -> _Node:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Choice(tuple(parts))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._repeated(self._part()))
        return _Sequence(tuple(parts))

    def _repeated(self, part: _Node) -> _Node:
        is_repeated = False
        while True:
            start = self._at
            bounds = self._bounds()
            if bounds is None:
                return part
            if is_repeated:
                raise PatternError(f"invalid nested repetition operator: `{self._source[start : self._at]}`")
            is_repeated = True
            # Whether it is greedy does not matter to a match of the whole.
            self._take("?")
            part = _Repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """Pass a repetition; return its bounds, None if none comes next."""
        for operator, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(operator):
                return bounds
        start = self._at
        if not self._take("{"):
            return None
        least = self._number()
        most: int | None = least
        if least is not None and self._take(","):
            most = self._number()
        if least is None or not self._take("}"):
            # A brace that counts nothing stands for itself.
            self._at = start
            return None
        if max(least, most or 0) > _MOST_REPEATED or (most is not None and most < least):
            raise PatternError(f"invalid repeat count: `{self._source[start : self._at]}`")
        return least, most

    def _number(self) -> int | None:
        start = self._at
        while self._next() in _ASCII_DIGITS and self._at - start < 5:
            self._at += 1
        return int(self._source[start : self._at]) if self._at > start else None

    def _part(self) -> _Node:
        char = self._taken()
        if char in "*+?":
            raise PatternError(f"missing argument to repetition operator: `{char}`")
        if char == "(":
            return self._group()
        if char == "[":
            return _Chars(self._class())
        if char == ".":
            return _Chars(((0, _LAST_CODE_POINT),) if self._dot_takes_all else _without(((10, 10),)))
        if char in "^$":
            return _Edge(char == "$")
        if char == "\\":
            return self._escape()
        return _Chars(self._cased(((ord(char), ord(char)),)))

    def _group(self) -> _Node:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise PatternError("expression nests too deeply")
        flags = self._ignores_case, self._dot_takes_all
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                self._pass_name()
            elif self._pass_flags():
                self._depth -= 1
                return _Sequence(())
        node = self._choice()
        if not self._take(")"):
            raise PatternError(f"missing closing ): `{self._source}`")
        self._ignores_case, self._dot_takes_all = flags
        self._depth -= 1
        return node

    def _pass_name(self) -> None:
        start = self._at
        while (char := self._taken()) != ">":
            if not _is_in(_WORD, char):
                raise PatternError("invalid named capture")
        if self._at - 1 == start:
            raise PatternError("invalid named capture")

    def _pass_flags(self) -> bool:
        """Set the flags of a group; return whether it is nothing but flags."""
        is_set = True
        while (char := self._taken()) not in ":)":
            if char == "-" and is_set:
                is_set = False
            elif char == "i":
                self._ignores_case = is_set
            elif char == "s":
                self._dot_takes_all = is_set
            else:
                raise PatternError(f"invalid or unsupported Perl syntax: `(?{char}`")
        return char == ")"

    def _escape(self) -> _Node:
        if self._take("A") or self._take("z"):
            return _Edge(self._source[self._at - 1] == "z")
        if self._take("Q"):
            quoted, end, _ = self._source[self._at :].partition("\\E")
            self._at += len(quoted) + len(end)
            return _Sequence(tuple(_Chars(self._cased(((ord(char), ord(char)),))) for char in quoted))
        if self._take("C"):
            raise PatternError("invalid escape sequence: `\\C`")
        return _Chars(self._cased(self._escaped()))

    def _escaped(self) -> Ranges:
        """Return the characters that an escape stands for, after its backslash."""
        char = self._taken()
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return ranges if char.islower() else _without(ranges)
        if char == "x":
            point = self._hexadecimal()
        elif char in _CONTROLS:
            point = _CONTROLS[char]
        elif char.isascii() and not char.isalnum():
            point = ord(char)
        else:
            raise PatternError(f"invalid escape sequence: `\\{char}`")
        return ((point, point),)

    def _hexadecimal(self) -> int:
        if self._take("{"):
            digits, end, _ = self._source[self._at :].partition("}")
            self._at += len(digits) + len(end)
        else:
            digits, end = self._source[self._at : self._at + 2], "}"
            self._at += 2
        is_number = bool(end) and all(_is_in(_NAMED["xdigit"], char) for char in digits) and digits
        if not is_number or len(digits) > 6 or int(digits, 16) > _LAST_CODE_POINT:
            raise PatternError("invalid escape sequence: `\\x`")
        return int(digits, 16)

    def _class(self) -> Ranges:
        """Return the characters of a class in brackets, after the first."""
        is_negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        is_first = True
        while is_first or self._next() != "]":
            is_first = False
            ranges += self._of_class_or_range()
        self._at += 1
        found = self._cased(tuple(ranges))
        return _without(found) if is_negated else found

    def _of_class_or_range(self) -> Ranges:
        low = self._of_class()
        # A hyphen before the closing bracket stands for itself.
        if self._source.startswith("-]", self._at) or not (_is_one(low) and self._take("-")):
            return low
        high = self._of_class()
        if not _is_one(high) or high < low:
            raise PatternError("invalid character class range")
        return ((low[0][0], high[0][1]),)

    def _of_class(self) -> Ranges:
        if self._take("[:"):
            name, end, _ = self._source[self._at :].partition(":]")
            ranges = _NAMED.get(name.removeprefix("^"))
            if not end or ranges is None:
                raise PatternError("invalid character class")
            self._at += len(name) + len(end)
            return _without(ranges) if name.startswith("^") else ranges
        char = self._taken()
        return self._escaped() if char == "\\" else ((ord(char), ord(char)),)

    def _cased(self, ranges: Ranges) -> Ranges:
        """Return the characters with those of the other case, if the case does not count: of ASCII, as topics are."""
        if not self._ignores_case:
            return ranges
        others = []
        for first, last, shift in ((65, 90, 32), (97, 122, -32)):
            for low, high in ranges:
                if max(low, first) <= min(high, last):
                    others.append((max(low, first) + shift, min(high, last) + shift))
        return (*ranges, *others)


_ASCII_DIGITS = tuple("0123456789")


def _is_in(ranges: Ranges, char: str) -> bool:
    return any(low <= ord(char) <= high for low, high in ranges)


def _is_one(ranges: Ranges) -> bool:
    """Whether it is one character."""
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


def _without(ranges: Ranges) -> Ranges:
    """Return all other characters."""
    return tuple(_gaps(ranges))


def _gaps(ranges: Ranges) -> Iterator[tuple[int, int]]:
    start = 0
    for low, high in sorted(ranges):
        if start < low:
            yield start, low - 1
        start = max(start, high + 1)
    if start <= _LAST_CODE_POINT:
        yield start, _LAST_CODE_POINT
