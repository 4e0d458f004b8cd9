"""A search for records: by key, headers, producer and regular expressions, over whole batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from kstore import _core
from kstore.config import MIB
from kstore.errors import checked_int
from kstore.record.automaton import table_of
from kstore.types import MAGIC_V2

if TYPE_CHECKING:
    from kstore._core import Record
    from kstore.record.batches import RecordBatch

# Bounds on Records held at once.
_MOST_RECORDS = 65536
_MOST_BYTES = 32 * MIB
# What ends a run of literal characters in a regular expression, and what makes the character before it optional.
_SPECIAL = frozenset("\\.^$*+?{}[]|()")
_QUANTIFIERS = frozenset("*?{")
# What a brace opens, if it is not a literal character.
_REPEAT = re.compile(r"\{(?:[0-9]+|[0-9]*,[0-9]*)\}")
# Escaped letters and digits are classes, assertions, references and control characters.
_ESCAPED_LITERALS = frozenset("\\.^$*+?{}[]|()-/ #&~\"'=:;,<>@!%`_")


class Passing(NamedTuple):
    """What a reader of a file passes over: batches that cannot hold a match of a search, by their bytes.

    on_pass: called with the size in bytes of what was passed over; threads: how many look, with the caller's.
    """

    matcher: _core.RecordMatcher
    on_pass: Callable[[int], object]
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class RecordSearch:
    """Conditions on a record, all of which it must meet.

    Args: key: the whole key; key_regex, value_regex: a regular expression of Python's `re` that has a match in the key
        or value, as bytes if the expression is ASCII, else as text (UTF-8); headers: keys of headers with their values,
        None for any value, or pairs of them; producer_id: of its batch, -1 for a batch without a producer. A null key
        or value matches no condition.
    Raises: ValueError for an expression that is wrong, or a producer_id out of int64.  Threads: safe to share.
    """

    key: bytes | None = None
    key_regex: str | None = None
    value_regex: str | None = None
    headers: Mapping[str, bytes | None] | Sequence[tuple[str, bytes | None]] = ()
    producer_id: int | None = None

    def __post_init__(self) -> None:
        _ = self._matcher

    def records(self, batch: RecordBatch) -> Iterator[list[Record]]:
        """Yield the records of a batch that match, in non-empty lists of bounded size. The CRC is checked.

        Only records that match become objects, and a batch whose bytes cannot hold one is not decoded.
        Raises: as RecordBatch.records().
        """
        if batch.magic < MAGIC_V2 and self.headers:
            return
        records = batch.records()
        while part := _core.find_records(records, self._matcher, most_records=_MOST_RECORDS, most_bytes=_MOST_BYTES):
            yield part

    def found_in(self, batches: Iterable[RecordBatch], *, start_offset: int, end_offset: int) -> Iterator[Record]:
        """Yield the records of [start_offset, end_offset) that match, without those of control batches.

        Raises: as records().
        """
        for batch in batches:
            if batch.is_control:
                continue
            for part in self.records(batch):
                for record in part:
                    # A record after the last offset of its batch is where that is.
                    if start_offset <= record.offset and (record.offset < end_offset or batch.last_offset < end_offset):
                        yield record

    def passing(self, on_pass: Callable[[int], object] = int, *, threads: int = 1) -> Passing:
        """Return what lets a reader pass over batches without a match.  Args: as of Passing."""
        return Passing(self._matcher, on_pass, threads)

    @cached_property
    def _matcher(self) -> _core.RecordMatcher:
        pairs = self.headers.items() if isinstance(self.headers, Mapping) else self.headers
        key_table, key_test = _expression(self.key_regex, "key_regex")
        value_table, value_test = _expression(self.value_regex, "value_regex")
        return _core.RecordMatcher(
            key=self.key,
            key_part=required_bytes(self.key_regex),
            value_part=required_bytes(self.value_regex),
            headers=[(name.encode("utf-8", "surrogateescape"), value) for name, value in pairs],
            key_table=key_table,
            value_table=value_table,
            key_test=key_test,
            value_test=value_test,
            producer_id=None if self.producer_id is None else checked_int("producer_id", self.producer_id, least=-1),
        )


class _Expression(NamedTuple):
    """How an expression is looked for beyond required_bytes: by the table of an automaton, or by a call for each
    candidate; neither if required_bytes says all.
    """

    table: bytes | None = None
    test: Callable[[bytes], object] | None = None


def _expression(expression: str | None, name: str) -> _Expression:
    """Return how an expression is looked for.  Raises: ValueError."""
    if expression is None:
        return _Expression()
    is_known = required_bytes(expression) is not None and is_literal(expression)
    try:
        if expression.isascii():
            search = re.compile(expression.encode()).search
            table = None if is_known else table_of(expression.encode())
            return _Expression(table, None if is_known or table is not None else search)
        search_text = re.compile(expression).search
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{name} is no regular expression: {error}") from error
    if is_known:
        return _Expression()
    return _Expression(test=lambda data: search_text(data.decode("utf-8", "surrogateescape")))


def is_literal(expression: str) -> bool:
    """Whether an expression has no special characters, so that it is found where its bytes are."""
    return _SPECIAL.isdisjoint(expression)


def required_bytes(expression: str | None) -> bytes | None:
    """Return the longest bytes that are in all that an expression matches, None if none are known.

    Only characters outside of groups and classes count, so that what is returned is safe; with alternatives none do.
    """
    if expression is None or "|" in expression or "(?" in expression:
        return None
    runs, run, depth, at = [], "", 0, 0
    while at < len(expression):
        character = expression[at]
        at += 1
        literal = ""
        if character == "\\":
            escaped = expression[at : at + 1]
            literal = escaped if escaped in _ESCAPED_LITERALS else ""
            # The digits of \x41 and \u0041 belong to the escape.
            at += 1 + {"x": 2, "u": 4, "U": 8}.get(escaped, 0)
            if escaped == "N" or escaped.isdigit():
                return None
        elif character == "[":
            # A bracket right after the opening, or after ^, belongs to the class.
            at += expression[at : at + 1] == "^"
            at += expression[at : at + 1] == "]"
            while at < len(expression) and expression[at] != "]":
                at += 2 if expression[at] == "\\" else 1
            at += 1
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character not in _SPECIAL:
            literal = character
        if literal and depth == 0 and expression[at : at + 1] not in _QUANTIFIERS:
            run += literal
        if not literal or depth or expression[at : at + 1] in _QUANTIFIERS:
            runs.append(run)
            run = ""
        if character == "{":
            repeat = _REPEAT.match(expression, at - 1)
            at = at if repeat is None else repeat.end()
        elif literal and expression[at : at + 1] == "+":
            runs.append(run)
            run = ""
    longest = max((*runs, run), key=len)
    return longest.encode("utf-8", "surrogateescape") or None
