"""ProtobufReader: a column of Protobuf values as an Arrow array of what a reader wants of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from kstore.errors import SchemaError
from kstore.values.decoded import CONFLUENT_FRAME_BYTES, UNFRAMED, BadValue, DecodedValues, Framing
from kstore.values.header_ids import HeaderIds, has_number
from kstore.values.protobuf.assembly import Assembly, Budget, TooLargeError, UnfitValueError
from kstore.values.protobuf.columns import ValueColumn
from kstore.values.protobuf.schema import ProtobufSchema, name_in_package
from kstore.values.protobuf.weights import Weights, varint

_MOST_REASON = 1000
# The rows that are parsed at once: Python has an object for each message in them.
_ROWS_AT_ONCE = 8192
_BYTES_AT_ONCE = 1 << 20
_MOST_INDEXES = 100
_MOST_INDEX_BYTES = 5
# Of a hostile topic, each value may name another message.
_MOST_KNOWN = 10_000
_NO_FRAME = "it does not begin with the magic byte, the id of a schema and the indexes of a message"


class _Writer:
    """A type of messages that were written. Args: assembly: makes columns of them."""

    def __init__(self, message: Descriptor, assembly: Assembly) -> None:
        self.parse: Callable[[bytes], Any] = GetMessageClass(message).FromString
        self.assembly = assembly
        self.weights = Weights(message)


class _Place(NamedTuple):
    """Which message a value is, and where it begins in it. indexes: of the message; None: the one that is expected,
    where no frame and no header has them.
    """

    schema_id: int
    indexes: tuple[int, ...] | None
    start: int


_UNFRAMED_PLACE = _Place(UNFRAMED, None, 0)


class _Group(NamedTuple):
    """Values of one type of messages, without frames, and their rows."""

    writer: _Writer
    schema_id: int
    rows: list[int]
    values: list[bytes]


class ProtobufReader:
    """Decodes arrays of Protobuf values.

    Args: reader: the columns that are wanted of a message; expected: that message; writer_of: returns the schema that
        values of an id were written with, or raises SchemaError; it is asked once for each id; framing: what values
        begin with; most_bytes, header_ids: as of SchemaProvider.reader.
    Threads: not thread-safe.
    """

    def __init__(
        self,
        reader: ValueColumn,
        expected: Descriptor,
        writer_of: Callable[[int], ProtobufSchema],
        *,
        framing: Framing,
        most_bytes: int,
        header_ids: HeaderIds | None,
    ) -> None:
        self._reader = reader
        self._expected = expected
        self._writer_of = writer_of
        self._is_framed = framing != "none"
        self._most_bytes = most_bytes
        self._header_ids = header_ids
        self._budget = Budget(most_bytes)
        self._schemas: dict[int, ProtobufSchema | str] = {}
        self._writers: dict[tuple[int, tuple[int, ...] | None], _Writer | str] = {}
        self._places: dict[bytes, _Place] = {}

    def decode(self, array: pa.BinaryArray, headers: pa.ListArray | None = None) -> Iterator[DecodedValues]:
        """Decode values, of which null ones stay null.

        Args: headers: those of the records, where a value without a frame has its schema id; None: none is read.
        Raises: MemoryError.
        """
        if self._header_ids is not None and self._header_ids.forgets():
            self._schemas.clear()
            self._writers.clear()
        numbers = None if headers is None or self._header_ids is None else self._header_ids.of(headers)
        ids = [UNFRAMED] * len(array) if numbers is None else numbers.tolist()
        if not len(array):
            yield DecodedValues(0, pa.array([], self._reader.arrow_type), [])
        start = 0
        while start < len(array):
            values = _some(array, start)
            yield from self._decoded(start, values, ids[start : start + len(values)])
            start += len(values)

    def _decoded(self, start: int, values: Sequence[bytes | None], ids: Sequence[int]) -> Iterator[DecodedValues]:
        """Yield rows in parts that take no more memory than they may."""
        try:
            self._budget.reset()
            column, bad = self._column(values, ids)
        except TooLargeError:
            if len(values) > 1:
                half = len(values) // 2
                yield from self._decoded(start, values[:half], ids[:half])
                yield from self._decoded(start + half, values[half:], ids[half:])
                return
            column = pa.nulls(1, self._reader.arrow_type)
            bad = [self._bad(0, "it takes too much memory as columns", self._schema_id(values[0], ids[0]))]
        yield DecodedValues(start, column, bad)

    def _column(self, values: Sequence[bytes | None], ids: Sequence[int]) -> tuple[pa.Array, list[BadValue]]:
        """Return the column of values, and the bad ones.  Raises: TooLargeError."""
        bad: list[BadValue] = []
        parts: list[pa.Array] = []
        order: list[int | None] = [None] * len(values)
        count = 0
        for group in self._grouped(values, ids, bad):
            for part, first in _assembled(group.writer.assembly, self._parsed(group, bad), 0):
                if isinstance(part, str):
                    bad.append(self._bad(group.rows[first], part, group.schema_id))
                    continue
                parts.append(part)
                for row in group.rows[first : first + len(part)]:
                    order[row] = count
                    count += 1
        if not parts:
            return pa.nulls(len(values), self._reader.arrow_type), sorted(bad)
        whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        if order == list(range(len(values))):
            return whole, sorted(bad)
        return whole.take(pa.array(order, pa.int64())), sorted(bad)

    def _parsed(self, group: _Group, bad: list[BadValue]) -> list[Any]:
        """Return the messages of a group; take out the rows that are none."""
        try:
            return list(map(group.writer.parse, group.values))
        except DecodeError:
            rows, messages = list(group.rows), []
        group.rows.clear()
        for row, value in zip(rows, group.values, strict=True):
            try:
                messages.append(group.writer.parse(value))
                group.rows.append(row)
            except DecodeError as error:
                bad.append(self._bad(row, f"it is no {self._expected.full_name}: {_detail(error)}", group.schema_id))
        return messages

    def _grouped(self, values: Sequence[bytes | None], ids: Sequence[int], bad: list[BadValue]) -> Iterable[_Group]:
        """Return the values of each type, without frames; add those without a type to `bad`.

        Raises: TooLargeError if they may take too much memory as messages.
        """
        groups: dict[tuple[int, tuple[int, ...] | None], _Group] = {}
        for row, (value, schema_id) in enumerate(zip(values, ids, strict=True)):
            if value is None:
                continue
            place = self._place(value, schema_id)
            group = None if place is None else groups.get(place[:2])
            if group is None:
                writer = _NO_FRAME if place is None else self._writer(place)
                if place is None or isinstance(writer, str):
                    bad.append(self._bad(row, str(writer), UNFRAMED if place is None else place.schema_id))
                    continue
                group = groups[place[:2]] = _Group(writer, place.schema_id, [], [])
            group.rows.append(row)
            group.values.append(value[place.start :] if place is not None and place.start else value)
        weight = sum(group.writer.weights.most(group.values) for group in groups.values())
        if weight > self._most_bytes and sum(len(group.rows) for group in groups.values()) == 1:
            (group,) = groups.values()
            weight = group.writer.weights.of(group.values[0], limit=self._most_bytes)
        if weight > self._most_bytes:
            raise TooLargeError
        return groups.values()

    def _place(self, value: bytes, schema_id: int) -> _Place | None:
        """Return which message a value is; None if it has no frame."""
        if schema_id != UNFRAMED and self._header_ids is not None:
            read = _indexes(self._header_ids.rest(schema_id), 0)
            return _Place(schema_id, None if read is None else read[0], 0)
        if not self._is_framed:
            return _UNFRAMED_PLACE
        # Most values are the first message of one schema or another.
        place = self._places.get(value[: CONFLUENT_FRAME_BYTES + 1])
        if place is not None or len(value) <= CONFLUENT_FRAME_BYTES or value[0] != 0:
            return place
        read = _indexes(value, CONFLUENT_FRAME_BYTES)
        if read is None:
            return None
        place = _Place(int.from_bytes(value[1:CONFLUENT_FRAME_BYTES], "big"), *read)
        if place.start == CONFLUENT_FRAME_BYTES + 1 and len(self._places) < _MOST_KNOWN:
            self._places[value[: place.start]] = place
        return place

    def _writer(self, place: _Place) -> _Writer | str:
        """Return the type of a value, or why it cannot be read."""
        key = place.schema_id, place.indexes
        if key not in self._writers:
            if len(self._writers) >= _MOST_KNOWN:
                self._writers.clear()
            self._writers[key] = self._new_writer(place)
        return self._writers[key]

    def _new_writer(self, place: _Place) -> _Writer | str:
        if place.schema_id not in self._schemas:
            if len(self._schemas) >= _MOST_KNOWN:
                self._schemas.clear()
            try:
                self._schemas[place.schema_id] = self._writer_of(place.schema_id)
            except (SchemaError, ModuleNotFoundError) as error:
                self._schemas[place.schema_id] = str(error)
        schema = self._schemas[place.schema_id]
        if isinstance(schema, str):
            return schema
        expected = name_in_package(self._expected)
        try:
            if place.indexes is None:
                message = self._expected if place.schema_id == UNFRAMED else schema.named(expected)
            else:
                message = schema.at(place.indexes, expected)
        except SchemaError as error:
            return str(error)
        if name_in_package(message) != expected:
            return f"it is a {message.full_name}, expected {self._expected.full_name}"
        return _Writer(message, Assembly(self._reader, message, self._budget))

    def _bad(self, row: int, reason: str, schema_id: int) -> BadValue:
        is_id = has_number(schema_id)
        of = f"of schema id {schema_id}, " if is_id else ""
        return BadValue(row, f"{of}{reason}"[:_MOST_REASON], schema_id if is_id else UNFRAMED)

    def _schema_id(self, value: bytes | None, schema_id: int) -> int:
        place = self._place(value or b"", schema_id)
        return UNFRAMED if place is None else place.schema_id


def _assembled(assembly: Assembly, messages: Sequence[Any], first: int) -> Iterator[tuple[pa.Array | str, int]]:
    """Yield columns of messages, and in the place of one that has none why; each with its number.

    Raises: TooLargeError.
    """
    try:
        yield assembly.column(messages), first
    except UnfitValueError as error:
        if len(messages) == 1:
            yield str(error), first
            return
        half = len(messages) // 2
        yield from _assembled(assembly, messages[:half], first)
        yield from _assembled(assembly, messages[half:], first + half)


def _some(array: pa.BinaryArray, start: int) -> list[bytes | None]:
    """Return values from `start` on, as many as are decoded at once.

    Cost: that of these values, whatever comes after them.
    """
    rows = array.slice(start, _ROWS_AT_ONCE)
    offsets = np.frombuffer(rows.buffers()[1], np.int32, len(rows) + 1, rows.offset * 4)
    # Null ones may take bytes too, which are none of their value's: they only end a part earlier.
    count = int(np.searchsorted(offsets, int(offsets[0]) + _BYTES_AT_ONCE, side="right")) - 1
    values: list[bytes | None] = rows.slice(0, max(count, 1)).to_pylist()
    return values


def _indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int] | None:
    """Return the indexes of a message, and where they end; None if they are none.

    A count and so many indexes, all as varints in zigzag; a count of 0 stands for the first message.
    """
    if data[at : at + 1] == b"\0":
        return (0,), at + 1
    read = varint(data, at, most_bytes=_MOST_INDEX_BYTES)
    if read is None or not 0 < (count := _from_zigzag(read[0])) <= _MOST_INDEXES:
        return None
    at = read[1]
    indexes = []
    for _ in range(count):
        read = varint(data, at, most_bytes=_MOST_INDEX_BYTES)
        if read is None:
            return None
        indexes.append(_from_zigzag(read[0]))
        at = read[1]
    return tuple(indexes), at


def _from_zigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _detail(error: DecodeError) -> str:
    """Return what a parser says without the name of the message."""
    return str(error).partition("': ")[2] or "it is malformed"
