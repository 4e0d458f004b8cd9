"""Scans as tables of Polars and DuckDB that read only the columns and the offsets that a query asks for.

A query's filter is turned into Bounds, which leave out files and parts of files; the filter itself is then applied to
each row, so that bounds may be wider than the filter, and what cannot be understood bounds nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kstore.types import MAX_OFFSET

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as ds


class Bounds(NamedTuple):
    """What rows can be left out: those of other topics and partitions, and those with other offsets than start_offset
    <= offset < end_offset or timestamps before since_ms; None for no bound.
    """

    topic: str | None = None
    partition: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    since_ms: int | None = None

    def both(self, other: Bounds) -> Bounds:
        """Return bounds for rows that satisfy both conditions."""
        return Bounds(
            self.topic if other.topic is None else other.topic,
            self.partition if other.partition is None else other.partition,
            _of_both(max, self.start_offset, other.start_offset),
            _of_both(min, self.end_offset, other.end_offset),
            _of_both(max, self.since_ms, other.since_ms),
        )

    def may_have(self, topic: str, partition: int) -> bool:
        """Whether rows of a partition are within these bounds."""
        return self.topic in (None, topic) and self.partition in (None, partition)


NO_BOUNDS = Bounds()


class Narrowing(Protocol):
    """A scan that can be narrowed: kstore.arrow.Scan."""

    @property
    def schema(self) -> pa.Schema: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def _narrowed(self, columns: Sequence[str], bounds: Bounds, *, copies: bool) -> Narrowing: ...


# Polars


def lazy_frame(scan: Narrowing) -> pl.LazyFrame:
    """Return a polars.LazyFrame that scans when it is collected."""
    import polars as pl
    from polars.io.plugins import register_io_source

    schema = pl.DataFrame(scan.schema.empty_table()).schema
    # Not pure: files may change between two collections.
    return register_io_source(partial(_frames, scan), schema=schema, validate_schema=True, is_pure=False)


def _frames(
    scan: Narrowing,
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    batch_size: int | None,
) -> Iterator[pl.DataFrame]:
    """Yield the rows that Polars asks for. n_rows counts rows before the predicate; batch_size is a hint."""
    import polars as pl

    del batch_size
    names = scan.schema.names if with_columns is None else with_columns
    bounds = NO_BOUNDS if predicate is None or n_rows is not None else bounds_of_polars(predicate)
    left = n_rows
    for batch in scan._narrowed(names, bounds, copies=False):
        frame = pl.DataFrame(batch) if left is None else pl.DataFrame(batch).head(left)
        if left is not None:
            left -= frame.height
        yield frame if predicate is None else frame.filter(predicate)
        if left == 0:
            return


def bounds_of_polars(predicate: pl.Expr) -> Bounds:
    """Return the bounds of the rows for which a Polars expression can be true."""
    import polars as pl

    try:
        return _of_node(json.loads(predicate.meta.serialize(format="json")))
    except (pl.exceptions.PolarsError, ValueError):
        # An expression with a Python function in it, for example, cannot be serialized.
        return NO_BOUNDS


def _of_node(node: object) -> Bounds:
    match node:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            return _of_node(left).both(_of_node(right))
        case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": {"Literal": literal}}}:
            return _of_comparison(name, _POLARS_OPERATORS.get(op), _value_of(literal))
        case {"BinaryExpr": {"left": {"Literal": literal}, "op": op, "right": {"Column": name}}}:
            return _of_comparison(name, _MIRRORED.get(_POLARS_OPERATORS.get(op, "")), _value_of(literal))
        case {"Function": {"function": {"Boolean": {"IsBetween": _}}, "input": [column, least, most]}}:
            ends = zip(("GtEq", "LtEq"), (least, most), strict=True)
            parts = [_of_node({"BinaryExpr": {"left": column, "op": op, "right": end}}) for op, end in ends]
            return parts[0].both(parts[1])
    return NO_BOUNDS


_POLARS_OPERATORS = {"Eq": "==", "Gt": ">", "GtEq": ">=", "Lt": "<", "LtEq": "<="}
_MIRRORED = {"==": "==", ">": "<", ">=": "<=", "<": ">", "<=": ">="}
_PER_MILLISECOND = {"Milliseconds": 1, "Microseconds": 1000, "Nanoseconds": 1_000_000}


def _value_of(literal: object) -> int | str | datetime | None:
    """Return an integer, a text or a time of a serialized literal, None for anything else."""
    match literal:
        case {"Scalar": {"Datetime": [int(ticks), str(unit), *_]}} if unit in _PER_MILLISECOND:
            return _time_of(ticks // _PER_MILLISECOND[unit])
        case {"Scalar": {"String": str(text)}}:
            return text
        case {"Scalar": {**typed}} | {"Dyn": {**typed}}:
            value = next(iter(typed.values()), None)
            return value if type(value) is int else None
    return None


# DuckDB


class _Rows:
    """Has what DuckDB calls of a dataset's scanner: to_reader.

    Not a pyarrow Scanner, which reads ahead in threads: one that a query has not read to its end would call Python
    while the interpreter ends.
    """

    def __init__(self, part: Narrowing, columns: list[str] | None, condition: Any) -> None:
        self._part = part
        self._columns = part.schema.names if columns is None else columns
        self._condition = condition

    def to_reader(self) -> pa.RecordBatchReader:
        import pyarrow as pa

        schema = pa.schema([self._part.schema.field(name) for name in self._columns])
        return pa.RecordBatchReader.from_batches(schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in self._part:
            if self._condition is None:
                yield batch.select(self._columns)
            else:
                rows = pa.Table.from_batches([batch]).filter(self._condition)
                yield from rows.select(self._columns).to_batches()


def dataset(scan: Narrowing) -> ds.Dataset:
    """Return a pyarrow Dataset that scans each time a query asks for rows; DuckDB passes it columns and filter."""
    import pyarrow.dataset as ds

    class ScanDataset(ds.Dataset):  # type: ignore[misc]
        """Has what DuckDB calls of a dataset: schema and scanner."""

        def __init__(self) -> None:
            """Not as a Dataset does, which only pyarrow can make."""

        @property
        def schema(self) -> pa.Schema:
            return scan.schema

        def scanner(self, columns: list[str] | None = None, **options: Any) -> _Rows:
            condition = options.get("filter")
            text = "" if condition is None else str(condition)
            wanted = scan.schema.names if columns is None else columns
            names = [name for name in scan.schema.names if name in wanted or name in text]
            # A filter of pyarrow takes no view columns.
            return _Rows(scan._narrowed(names, bounds_of_arrow(text), copies=True), columns, condition)

    return ScanDataset()


_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_COMPARISON = re.compile(r"(\w+) (==|>=|>|<=|<) (.+)")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")


def bounds_of_arrow(text: str) -> Bounds:
    """Return the bounds of the rows for which a pyarrow expression, given as its text, can be true."""
    texts: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        texts.append(match[1])
        return f"#{len(texts) - 1}"

    plain = _TEXT.sub(numbered, text)
    return NO_BOUNDS if '"' in plain else _of_text(plain, texts)


def _of_text(text: str, texts: list[str]) -> Bounds:
    text = _without_parentheses(text)
    parts = _parts_of(text, " and ")
    if len(parts) > 1:
        return reduce(Bounds.both, (_of_text(part, texts) for part in parts))
    comparison = _COMPARISON.fullmatch(text)
    if comparison is None:
        return NO_BOUNDS
    name, operator, literal = comparison.groups()
    return _of_comparison(name, operator, _value_of_text(literal, texts))


def _without_parentheses(text: str) -> str:
    while text.startswith("(") and _end_of_parentheses(text) == len(text):
        text = text[1:-1]
    return text


def _end_of_parentheses(text: str) -> int:
    depth = 0
    for at, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return at + 1
    return -1


def _parts_of(text: str, separator: str) -> list[str]:
    """Return the parts of a text between separators that are in no parentheses."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and text.startswith(separator, at):
            parts.append(text[start:at])
            start = at + len(separator)
    return [*parts, text[start:]]


def _value_of_text(literal: str, texts: list[str]) -> int | str | datetime | None:
    if re.fullmatch(r"#\d+", literal):
        value = texts[int(literal[1:])]
        return None if "\\" in value else value
    if re.fullmatch(r"-?\d+", literal):
        return int(literal)
    time = _TIME.fullmatch(literal)
    return None if time is None else datetime.fromisoformat(f"{time[1]}+00:00")


# Both

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _time_of(milliseconds: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def _of_comparison(name: str, operator: str | None, value: int | str | datetime | None) -> Bounds:
    """Return the bounds of `name operator value`; None for an operator or a value that bounds nothing."""
    if isinstance(value, datetime):
        is_least = name == "timestamp" and operator in ("==", ">", ">=")
        since_ms = (value - _EPOCH) // timedelta(milliseconds=1)
        return Bounds(since_ms=since_ms) if is_least and since_ms >= 0 else NO_BOUNDS
    if isinstance(value, str):
        return Bounds(topic=value) if (name, operator) == ("topic", "==") else NO_BOUNDS
    if value is None or operator is None:
        return NO_BOUNDS
    if name == "partition" and operator == "==":
        return Bounds(partition=value)
    if name != "offset":
        return NO_BOUNDS
    start = {"==": value, ">=": value, ">": value + 1}.get(operator)
    end = {"==": value + 1, "<=": value + 1, "<": value}.get(operator)
    return Bounds(start_offset=_clamped(start), end_offset=_clamped(end))


def _clamped(offset: int | None) -> int | None:
    return None if offset is None else min(max(offset, 0), MAX_OFFSET)


def _of_both(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return choose(one, other) if one is not None and other is not None else one if other is None else other
