"""Goal: any sequence of writes, reservations, prefixes and bodies that raise leaves exactly the model's bytes.

Method: Hypothesis draws a tree of steps and a segment size; a bytearray that knows no segments takes the same steps.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.compression import CompressionType
from kstore.record import BufferingOutputStream, MessageWriter, ReservedOutput, write_entry
from tests.making import strategies
from tests.making.messages import decompressed, packed_entry

segment_sizes = st.one_of(st.integers(1, 9), st.integers(10, 5000))
chunks = st.binary(max_size=40)
leaves = st.one_of(
    st.tuples(st.sampled_from(["write", "read"]), chunks),
    st.tuples(st.just("reserve"), st.integers(0, 30)),
    st.tuples(st.just("fill"), st.integers(0, 1000), chunks),
)
bodies = st.recursive(
    leaves,
    lambda inner: st.tuples(st.sampled_from(["length", "crc", "failing"]), st.lists(inner, max_size=5)),
    max_leaves=20,
)
messages = st.lists(st.tuples(strategies.payloads, strategies.payloads, st.integers(-1, 2**63 - 1)), max_size=6)


class BodyError(Exception):
    """What a drawn body raises."""


class Pair:
    """A MessageWriter and a bytearray that take the same steps.

    Each reservation is its output and [position, end] in the bytearray; None once its body has raised.
    """

    def __init__(self, segment_size: int) -> None:
        self.writer = MessageWriter(segment_size)
        self.data = bytearray()
        self.reserved: list[tuple[ReservedOutput, list[int] | None]] = []

    def take(self, steps: list[Any]) -> None:
        for name, *arguments in steps:
            getattr(self, name)(*arguments)
            assert self.writer.size == len(self.data)

    def write(self, data: bytes) -> None:
        assert self.writer.write(data) == len(data)
        self.data += data

    def read(self, data: bytes) -> None:
        assert self.writer.write(io.BytesIO(data)) == len(data)
        self.data += data

    def reserve(self, size: int) -> None:
        self.reserved.append((self.writer.reserve(size), [len(self.data), len(self.data) + size]))
        self.data += bytes(size)

    def fill(self, choice: int, data: bytes) -> None:
        if not self.reserved:
            return
        output, place = self.reserved[choice % len(self.reserved)]
        if place is None or len(data) > place[1] - place[0]:
            with pytest.raises(ValueError, match="reserved output"):
                output.write(data)
            return
        assert output.write(data) == len(data)
        self.data[place[0] : place[0] + len(data)] = data
        place[0] += len(data)
        assert (output.position, output.remaining) == (place[0], place[1] - place[0])

    def length(self, steps: list[Any]) -> None:
        at = len(self.data)
        with self.writer.with_length_prefix():
            self.data += bytes(4)
            self.take(steps)
        self.data[at : at + 4] = struct.pack(">i", len(self.data) - at - 4)

    def crc(self, steps: list[Any]) -> None:
        at = len(self.data)
        with self.writer.with_crc32_prefix():
            self.data += bytes(4)
            self.take(steps)
        self.data[at : at + 4] = struct.pack(">I", zlib.crc32(self.data[at + 4 :]))

    def failing(self, steps: list[Any]) -> None:
        at, count = len(self.data), len(self.reserved)
        with pytest.raises(BodyError):
            self.fail_after(steps)
        del self.data[at:]
        self.reserved[count:] = [(output, None) for output, _ in self.reserved[count:]]

    def fail_after(self, steps: list[Any]) -> None:
        with self.writer.with_crc32_prefix():
            self.data += bytes(4)
            self.take(steps)
            raise BodyError


@given(segment_size=segment_sizes, steps=st.lists(bodies, max_size=8))
def test_writer_holds_what_the_model_holds(segment_size: int, steps: list[Any]) -> None:
    pair = Pair(segment_size)
    pair.take(steps)
    assert bytes(pair.writer) == pair.data
    assert b"".join(pair.writer.segments()) == pair.data
    copied, written, gathered = bytearray(len(pair.data)), io.BytesIO(), bytearray()

    def writev(group: list[memoryview]) -> int:
        gathered.extend(b"".join(group))
        return sum(map(len, group))

    pair.writer.write_to(copied)
    pair.writer.write_to(written)
    pair.writer.gather_to(writev)
    assert copied == written.getvalue() == gathered == pair.data


@given(data=chunks, segment_size=segment_sizes, other_size=segment_sizes)
def test_segments_of_one_writer_are_input_of_another(data: bytes, segment_size: int, other_size: int) -> None:
    first, second = BufferingOutputStream(segment_size), BufferingOutputStream(other_size)
    first.write(data)
    first.write_to(second)
    for view in first.segments():
        first.write(view)
    assert bytes(second) == data
    assert bytes(first) == data * 2


@given(segment_size=segment_sizes, drawn=messages, magic=st.integers(0, 1), codec=st.integers(0, 3))
def test_message_sets_are_the_fields_of_their_messages(
    segment_size: int, drawn: list[tuple[bytes | None, bytes | None, int]], magic: int, codec: int
) -> None:
    def write_set(output: Any) -> None:
        for offset, (key, value, timestamp_ms) in enumerate(drawn):
            stamp = timestamp_ms if magic else -1
            write_entry(output, value, offset=offset, magic=magic, timestamp_ms=stamp, key=key)

    expected = b"".join(
        packed_entry(value, key, offset=offset, magic=magic, timestamp_ms=timestamp_ms)
        for offset, (key, value, timestamp_ms) in enumerate(drawn)
    )
    writer = MessageWriter(segment_size)
    writer.write_entry(write_set, offset=9, magic=magic, compression=CompressionType(codec))
    data = bytes(writer)
    payload = data[26 + 8 * magic :]
    assert data == packed_entry(payload, None, offset=9, magic=magic, timestamp_ms=-1, attributes=codec)
    assert decompressed(payload, magic=magic, codec=codec) == expected
