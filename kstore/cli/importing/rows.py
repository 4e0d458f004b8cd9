"""The records of files of lines: JSON of `kstore cat`, JSON of kcat -J, CSV, and plain lines with or without keys."""

from __future__ import annotations

import base64
import binascii
import codecs
import csv
import json
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kstore.cli.arguments import WrongUseError
from kstore.env import DEFAULT_ENV, lines_of, open_foreign
from kstore.types import MAX_OFFSET, MAX_PARTITION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kstore.cli.output import Progress

STANDARD_INPUT = "-"
_Line = TypeVar("_Line")
_MOST_SHOWN = 60
_MOST_LINE_BYTES = 1 << 30
_MOST_FIELD_CHARACTERS = 1 << 30


class Row(NamedTuple):
    """One record of a line. number: of the line, from 1; place: names it in error messages."""

    number: int
    place: str
    topic: str | None
    partition: int | None
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class TextOptions(NamedTuple):
    """How lines of text become records. The columns are those of CSV, by name, or by number from 1 without a heading.

    key_separator: between key and value of a line, None for lines without keys; null_text: what stands for null.
    """

    key_column: str | None = None
    value_column: str | None = None
    timestamp_column: str | None = None
    topic_column: str | None = None
    partition_column: str | None = None
    offset_column: str | None = None
    delimiter: str | None = None
    has_no_header: bool = False
    key_separator: str | None = None
    null_text: str | None = None


AS_IT_IS = TextOptions()


class _BadLineError(Exception):
    """A line that is no record; the message says what was found and what was expected."""


def read_rows(path: str, kind: str, text: TextOptions, *, progress: Progress, from_line: int) -> Iterator[Row]:
    """Yield the records of a file of lines, or of standard input, without control records.

    Args: kind: json, kcat, csv or lines; from_line: the first line that is read, from 1.
    Raises: WrongUseError that names the line; StorageError.
    """
    if path == STANDARD_INPUT and sys.stdin is None:
        raise WrongUseError("standard input is closed")
    opened = nullcontext(sys.stdin.buffer) if path == STANDARD_INPUT else open_foreign(path)
    with opened as file:
        lines = _counted(lines_of(file, path, most_bytes=_MOST_LINE_BYTES + 1), progress, path)
        if kind == "csv":
            yield from _csv_rows(lines, path, text, from_line=from_line)
            return
        parse = _line_parser(text) if kind == "lines" else _json_row
        for number, line in enumerate(lines, start=1):
            if number < from_line:
                continue
            place = f"line {number} of {path}"
            row = _parsed(parse, line, number, place)
            if row is not None:
                yield row


def _counted(lines: Iterable[bytes], progress: Progress, path: str) -> Iterator[bytes]:
    """Yield lines.  Raises: WrongUseError for one that is larger than a batch can be."""
    for number, line in enumerate(lines, start=1):
        if len(line) > _MOST_LINE_BYTES:
            raise WrongUseError(
                f"line {number} of {path} is not a record: expected the end of the line after at most "
                f"{_MOST_LINE_BYTES} bytes"
            )
        progress.done_bytes += len(line)
        yield line


def _parsed(parse: Callable[[_Line, int, str], Row | None], line: _Line, number: int, place: str) -> Row | None:
    try:
        return parse(line, number, place)
    except _BadLineError as error:
        raise WrongUseError(f"{place} is not a record: {error}") from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


# JSON of `kstore cat`, and of kcat


def _json_row(line: bytes, number: int, place: str) -> Row | None:
    """Return the record of a line of JSON, None for a control record."""
    # kcat writes bytes that are not UTF-8 as they are.
    text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        found = (
            _shown(text[error.pos : error.pos + _MOST_SHOWN].rstrip("\n"))
            if text[error.pos :].strip()
            else "the end of the line"
        )
        raise _BadLineError(f"expected JSON, found {found} at character {error.pos + 1}") from error
    except (RecursionError, ValueError) as error:
        raise _BadLineError(
            "expected JSON, found values that are nested too deep, or a number that is too long"
        ) from error
    if not isinstance(fields, dict):
        raise _BadLineError(f"expected an object, found {_shown(fields)}")
    if "controlType" in fields:
        return None
    topic, partition = fields.get("topic"), fields.get("partition")
    if topic is not None and not isinstance(topic, str):
        raise _BadLineError(f"topic must be a string, found {_shown(topic)}")
    if partition is not None:
        _number(partition, name="partition", limit=MAX_PARTITION)
    offset = _number(fields.get("offset", 0), name="offset", limit=MAX_OFFSET - 1)
    common = number, place, topic, partition, offset
    if "payload" in fields or "tstype" in fields:
        return _kcat_row(fields, common)
    if "timestamp" not in fields:
        raise _BadLineError("missing field 'timestamp'")
    timestamp_ms = _number(fields["timestamp"], name="timestamp", limit=MAX_OFFSET, least=-1)
    headers = tuple((_header_key(key), _base64(value)) for key, value in _pairs(fields.get("headers") or ()))
    return Row(*common, timestamp_ms, _base64(fields.get("key")), _base64(fields.get("value")), headers)


def _pairs(headers: Any) -> Iterator[tuple[object, object]]:
    if not isinstance(headers, list | tuple):
        raise _BadLineError(f"headers must be pairs of key and value, found {_shown(headers)}")
    for pair in headers:
        if not isinstance(pair, list) or len(pair) != 2:
            raise _BadLineError(f"headers must be pairs of key and value, found {_shown(pair)}")
        yield pair[0], pair[1]


def _header_key(key: object) -> str:
    if not isinstance(key, str):
        raise _BadLineError(f"a header's key must be a string, found {_shown(key)}")
    return key


def _number(value: object, *, name: str, limit: int, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= limit:
        raise _BadLineError(f"{name} must be a number from {least} to {limit}, found {_shown(value)}")
    return value


def _base64(text: object) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise _BadLineError(f"keys and values must be base64 text or null, found {_shown(text)}")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _BadLineError(f"keys and values must be base64 text or null, found {_shown(text)}") from error


def _kcat_row(fields: dict[str, Any], common: tuple[int, str, str | None, int | None, int]) -> Row:
    """Return the record of a line of kcat -J: its text is that of the record, in bytes."""
    for name in ("key", "payload"):
        schema = "key_schema_id" if name == "key" else "value_schema_id"
        if schema in fields or f"{name}_error" in fields:
            raise _BadLineError(f"{name} was decoded from Avro by kcat, so that its bytes are not known: leave out -s")
    timestamp_ms = _number(fields.get("ts", -1), name="ts", limit=MAX_OFFSET, least=-1)
    headers = fields.get("headers") or []
    pairs: list[tuple[object, object]]
    if isinstance(headers, dict):
        pairs = [(name, value) for name, values in headers.items() for value in _listed(values)]
    elif isinstance(headers, list) and len(headers) % 2 == 0:
        pairs = list(zip(headers[::2], headers[1::2], strict=True))
    else:
        raise _BadLineError(f"headers must be keys and values in turn, found {_shown(headers)}")
    return Row(
        *common,
        timestamp_ms,
        _kcat_bytes(fields.get("key"), "key"),
        _kcat_bytes(fields.get("payload"), "payload"),
        tuple((_header_key(key), _kcat_bytes(value, "a header")) for key, value in pairs),
    )


def _listed(values: object) -> list[object]:
    if not isinstance(values, list):
        raise _BadLineError(f"the values of a header must be in a list, found {_shown(values)}")
    return values


def _kcat_bytes(text: object, name: str) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise _BadLineError(f"{name} must be a string or null, found {_shown(text)}")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise _BadLineError(f"{name} has half of a UTF-16 pair, which is no text: {_shown(text)}") from error


# Lines, as kafka-console-producer reads them


def _line_parser(options: TextOptions) -> Callable[[bytes, int, str], Row]:
    now_ms = DEFAULT_ENV.wall_clock_ms()
    separator = None if options.key_separator is None else options.key_separator.encode()
    null = None if options.null_text is None else options.null_text.encode()

    def parse(line: bytes, number: int, place: str) -> Row:
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        key: bytes | None = None
        if separator is not None:
            key, found, text = text.partition(separator)
            if not found:
                raise _BadLineError(f"expected a key, {options.key_separator!r} and a value, found {_shown(key)}")
        value = None if text == null else text
        return Row(number, place, None, None, 0, now_ms, None if key == null else key, value, ())

    return parse


# CSV


def _csv_rows(lines: Iterator[bytes], path: str, options: TextOptions, *, from_line: int) -> Iterator[Row]:
    csv.field_size_limit(_MOST_FIELD_CHARACTERS)
    delimiter = options.delimiter or ("\t" if path.endswith(".tsv") else ",")
    table = csv.reader(_decoded(lines), delimiter=delimiter, strict=True)
    columns: _Columns | None = _Columns(None, options, path) if options.has_no_header else None
    while True:
        number = table.line_num + 1
        place = f"line {number} of {path}"
        try:
            fields = next(table, None)
        except csv.Error as error:
            raise WrongUseError(
                f"{place} is not a record: expected fields separated by {delimiter!r}, with quotes around those that "
                "have one of it, a quote or a line end, and quotes in them doubled"
            ) from error
        if fields is None:
            return
        if columns is None:
            columns = _Columns(fields, options, path)
        elif fields and number >= from_line:
            row = _parsed(columns.row, fields, number, place)
            if row is not None:
                yield row


def _decoded(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield lines as text, without the mark with which spreadsheets begin a file."""
    mark = codecs.BOM_UTF8
    for line in lines:
        yield line.removeprefix(mark).decode("utf-8", "surrogateescape")
        mark = b""


class _Columns:
    """Where the parts of a record are among the fields of a line.

    Raises: WrongUseError for a column that is not there.
    """

    def __init__(self, heading: list[str] | None, options: TextOptions, path: str) -> None:
        self._null = options.null_text
        self._now_ms = DEFAULT_ENV.wall_clock_ms()
        self._width = None if heading is None else len(heading)
        names = {
            "key": options.key_column,
            "value": options.value_column,
            "timestamp": options.timestamp_column,
            "topic": options.topic_column,
            "partition": options.partition_column,
            "offset": options.offset_column,
        }
        self._at: dict[str, int] = {}
        for part, name in names.items():
            if name is not None:
                self._at[part] = _place_of(name, heading, part, path)
        if "value" not in self._at:
            taken = set(self._at.values())
            free = [] if heading is None else [at for at in range(len(heading)) if at not in taken]
            if len(free) != 1:
                raise WrongUseError(f"{path} has several columns that may be the value: name it with --value-column")
            self._at["value"] = free[0]

    def row(self, fields: list[str], number: int, place: str) -> Row:
        """Return the record of a line.  Raises: _BadLineError."""
        if self._width is not None and len(fields) != self._width:
            raise _BadLineError(f"expected {self._width} fields, found {len(fields)}")
        if len(fields) <= max(self._at.values()):
            raise _BadLineError(f"expected at least {max(self._at.values()) + 1} fields, found {len(fields)}")
        parts = {part: fields[at] for part, at in self._at.items()}
        partition = parts.get("partition")
        return Row(
            number,
            place,
            parts.get("topic"),
            None if partition is None else _integer(partition, name="partition", limit=MAX_PARTITION),
            _integer(parts.get("offset", "0"), name="offset", limit=MAX_OFFSET - 1),
            self._now_ms
            if "timestamp" not in parts
            else _integer(parts["timestamp"], name="timestamp", limit=MAX_OFFSET, least=-1),
            self._bytes(parts.get("key")),
            self._bytes(parts["value"]),
            (),
        )

    def _bytes(self, text: str | None) -> bytes | None:
        return None if text is None or text == self._null else text.encode("utf-8", "surrogateescape")


def _place_of(name: str, heading: list[str] | None, part: str, path: str) -> int:
    if heading is None:
        if not name.isascii() or not name.isdigit() or int(name) < 1:
            raise WrongUseError(f"--{part}-column must be a number from 1 with --no-header, got {name!r}")
        return int(name) - 1
    if heading.count(name) != 1:
        listed = ", ".join(heading)
        raise WrongUseError(f"--{part}-column {name}: {path} has {heading.count(name)} columns of that name: {listed}")
    return heading.index(name)


def _integer(text: str, *, name: str, limit: int, least: int = 0) -> int:
    digits = text.strip().removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < _MOST_SHOWN
    return _number(int(text) if is_number else text, name=name, limit=limit, least=least)
