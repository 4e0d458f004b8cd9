"""The formats of `kstore cat --format`: JSON, text, hexadecimal, CSV, and the letters of kcat's -f.

Each has two paths that print the same: fields for the core, which prints the records of whole batches, and a method for
Records that were searched for, decoded, or read from batches that the core does not print.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from kstore._core import RecordLines
from kstore.cli.arguments import WrongUseError
from kstore.cli.handed import place_text
from kstore.cli.render import (
    HEX_STEPS,
    JSON_STEPS,
    JSON_TEXT,
    TEXT_STEPS,
    bytes_text,
    control_content,
    control_type,
    hex_text,
    json_headers_text,
    json_records,
    record_parts,
)
from kstore.naming import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kstore._core import BatchHeader, Record
    from kstore.cli.output import Output
    from kstore.cli.printing.values import DecodedRecords
    from kstore.types import TopicPartition

NAMES = ("text", "json", "csv", "hex")
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,16})|(0[xX][0-9a-fA-F]{1,16}|0[0-7]{0,20}|[1-9][0-9]{0,18})|(.))", re.DOTALL
)
_QUOTED_IN_CSV = re.compile(r'[",\r\n]')
_CONTROL_ESCAPES = {"t": b"\t", "n": b"\n", "r": b"\r"}
_LETTERS = {
    "o": "offset",
    "k": "key",
    "K": "key_size",
    "s": "value",
    "S": "value_size",
    "R": "value_size_binary",
    "T": "timestamp",
    "h": "headers",
}


class Group(NamedTuple):
    """Records of one batch with one timestamp type."""

    records: list[Record]
    timestamp_type: int
    header: BatchHeader


class RecordFormat(ABC):
    """How records are printed.

    begins: what is printed before the first one. is_styled: whether a terminal shows the fields in styles, which the
    core does not print.
    """

    begins = b""
    is_styled = False

    def lines_of(self, topic_partition: TopicPartition) -> RecordLines:
        """Return what prints whole batches of a partition."""
        return RecordLines(self.steps(topic_partition))

    @abstractmethod
    def steps(self, topic_partition: TopicPartition) -> list[bytes | str]:
        """Return the fields of a record of a partition, and the bytes between them."""

    @abstractmethod
    def write(self, part: DecodedRecords, group: Group, topic_partition: TopicPartition, out: Output) -> None:
        """Print Records of a batch, whose decoded keys and values take the place of their bytes."""


class JsonFormat(RecordFormat):
    """One JSON object per line; decoded keys and values beside their bytes."""

    def steps(self, topic_partition: TopicPartition) -> list[bytes | str]:
        return [f"{{{self._prefix(topic_partition)}".encode("utf-8", "backslashreplace"), *JSON_STEPS, b"}\n"]

    def write(self, part: DecodedRecords, group: Group, topic_partition: TopicPartition, out: Output) -> None:
        lines = json_records(
            part.records,
            group.header,
            timestamp_type=group.timestamp_type,
            prefix=self._prefix(topic_partition),
            more=part.json_fields if part.columns else None,
        )
        if lines:
            out.line("\n".join(lines))

    def _prefix(self, topic_partition: TopicPartition) -> str:
        topic, partition = topic_partition
        return f'"topic":{JSON_TEXT(topic)},"partition":{partition},'


class TextFormat(RecordFormat):
    """One line per record, with tabs between its fields. is_hex: keys, values and headers in hexadecimal digits."""

    is_styled = True

    def __init__(self, *, is_hex: bool = False) -> None:
        self._is_hex = is_hex

    def steps(self, topic_partition: TopicPartition) -> list[bytes | str]:
        steps = HEX_STEPS if self._is_hex else TEXT_STEPS
        return [f"{place_text(topic_partition)}\t".encode(), *steps, b"\n"]

    def write(self, part: DecodedRecords, group: Group, topic_partition: TopicPartition, out: Output) -> None:
        for row, record in enumerate(part.records):
            out.styled(
                record_parts(
                    record,
                    prefix=f"{place_text(topic_partition)}\t",
                    is_control=group.header.is_control,
                    texts=(part.text(row, "key"), part.text(row, "value")),
                    shown=hex_text if self._is_hex else bytes_text,
                )
            )


class CsvFormat(RecordFormat):
    """RFC 4180, with a heading and line feeds. A null is an empty field, an empty key or value is "".

    with_control: whether there is a column for the type of control records.
    """

    def __init__(self, *, with_control: bool) -> None:
        self._with_control = with_control
        self.begins = b"topic,partition,offset,timestamp,key,value,headers" + b",controlType" * with_control + b"\n"

    def steps(self, topic_partition: TopicPartition) -> list[bytes | str]:
        topic, partition = topic_partition
        end = b",\n" if self._with_control else b"\n"
        start = f"{_csv_field(topic)},{partition},".encode("utf-8", "backslashreplace")
        return [start, "offset", b",", "timestamp", b",", "key_csv", b",", "value_csv", b",", "headers_csv", end]

    def write(self, part: DecodedRecords, group: Group, topic_partition: TopicPartition, out: Output) -> None:
        topic, partition = topic_partition
        is_control = group.header.is_control
        for row, record in enumerate(part.records):
            key, value = (
                _csv_text(part.plain(row, "key"), record.key),
                _csv_text(part.plain(row, "value"), record.value),
            )
            kind = control_type(record.key) if is_control else ""
            if is_control:
                key, value = None, control_content(record.key, record.value)
            headers = json_headers_text(record.headers) if record.headers else None
            fields = [_csv_field(topic), str(partition), str(record.offset), str(record.timestamp_ms)]
            fields += map(_csv_field, (key, value, headers))
            out.line(",".join(fields + [kind] * self._with_control))


class LetterFormat(RecordFormat):
    """The letters of kcat's -f, with its escapes and no line end of its own.

    Raises: WrongUseError.
    """

    def __init__(self, letters: str) -> None:
        self._letters = list(_letters_of(letters))

    def steps(self, topic_partition: TopicPartition) -> list[bytes | str]:
        topic, partition = topic_partition
        named = {"t": topic.encode("utf-8", "surrogateescape"), "p": str(partition).encode()}
        return [
            letter if isinstance(letter, bytes) else named.get(letter) or _LETTERS[letter] for letter in self._letters
        ]

    def write(self, part: DecodedRecords, _: Group, topic_partition: TopicPartition, out: Output) -> None:
        steps = self.steps(topic_partition)
        for row, record in enumerate(part.records):
            key, value = (
                _raw_bytes(part.plain(row, "key"), record.key),
                _raw_bytes(part.plain(row, "value"), record.value),
            )
            out.data(
                b"".join(
                    step if isinstance(step, bytes) else _FIELDS[step](_Shown(record, key, value)) for step in steps
                )
            )


class _Shown(NamedTuple):
    """A record with its key and value as they are printed."""

    record: Record
    key: bytes | None
    value: bytes | None


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _kcat_headers(record: Record) -> bytes:
    return b",".join(
        key.encode("utf-8", "surrogateescape") + b"=" + (b"NULL" if value is None else value)
        for key, value in record.headers
    )


_FIELDS: dict[str, Callable[[_Shown], bytes]] = {
    "offset": lambda shown: b"%d" % shown.record.offset,
    "timestamp": lambda shown: b"%d" % shown.record.timestamp_ms,
    "key": lambda shown: shown.key or b"",
    "key_size": lambda shown: b"%d" % _size(shown.key),
    "value": lambda shown: shown.value or b"",
    "value_size": lambda shown: b"%d" % _size(shown.value),
    "value_size_binary": lambda shown: _size(shown.value).to_bytes(4, "big", signed=True),
    "headers": lambda shown: _kcat_headers(shown.record),
}


def _raw_bytes(text: str | None, data: bytes | None) -> bytes | None:
    return data if text is None else text.encode("utf-8", "backslashreplace")


def _csv_text(text: str | None, data: bytes | None) -> str | None:
    return text if text is not None or data is None else data.decode("utf-8", "replace")


def _csv_field(text: str | None) -> str:
    """Return a field of CSV: nothing for null, quotes where they are needed and around no text."""
    if text is None:
        return ""
    if text and not _QUOTED_IN_CSV.search(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _letters_of(text: str) -> Iterator[bytes | str]:
    """Yield the letters after % and, as bytes, what is between them.

    Source: kcat fmt_parse.
    """
    at = 0
    while at < len(text):
        percent = text.find("%", at)
        if percent != at:
            yield _unescaped(text[at : percent if percent > 0 else len(text)])
            at = percent if percent > 0 else len(text)
            continue
        letter = text[at + 1 : at + 2]
        if letter == "%":
            yield b"%"
        elif letter in _LETTERS or letter in ("t", "p"):
            yield letter
        else:
            known = " ".join(f"%{known}" for known in ("t", "p", *_LETTERS, "%"))
            raise WrongUseError(f"--format has {'%' + letter!r}; expected one of {known}")
        at += 2


def _unescaped(text: str) -> bytes:
    """Return text with kcat's escapes as bytes: numbers are as C's strtoul reads them, without a base after `x`."""
    parts, at = [], 0
    for escape in _ESCAPE.finditer(text):
        parts.append(text[at : escape.start()].encode("utf-8", "surrogateescape"))
        digits, number, character = escape.groups()
        if character is None:
            parts.append(_byte(int(digits, 16) if number is None else _c_number(number)))
        elif character == "x":
            raise WrongUseError(f"--format has \\x without hexadecimal digits: {text!r}")
        else:
            parts.append(_CONTROL_ESCAPES.get(character) or character.encode("utf-8", "surrogateescape"))
        at = escape.end()
    return b"".join(parts) + text[at:].encode("utf-8", "surrogateescape")


def _c_number(digits: str) -> int:
    if digits[:2] in ("0x", "0X"):
        return int(digits, 16)
    return int(digits, 8 if digits.startswith("0") else 10)


def _byte(number: int) -> bytes:
    return bytes([number & 0xFF])


def format_of(name: str | None, *, is_json: bool, with_control: bool, is_decoded: bool) -> RecordFormat:
    """Return the format that --format and --json ask for; text if neither is given.

    Args: is_decoded: whether keys or values are.
    Raises: WrongUseError.
    """
    if is_json and name not in (None, "json"):
        raise WrongUseError(f"--json is --format json, and not --format {name}")
    if is_json or name == "json":
        return JsonFormat()
    if name is None or name == "text":
        return TextFormat()
    if name == "hex":
        if is_decoded:
            raise WrongUseError("--format hex shows bytes: leave out --key and --value")
        return TextFormat(is_hex=True)
    if name == "csv":
        return CsvFormat(with_control=with_control)
    if "%" in name or "\\" in name:
        return LetterFormat(name)
    raise WrongUseError(
        f"--format must be {', '.join(NAMES)} or have letters such as %k, got {name!r}{did_you_mean([name], NAMES)}"
    )
