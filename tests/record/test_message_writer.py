"""Goal: MessageWriter and its streams put each byte in its place, whatever the segment size, and refuse misuse whole.
Method: tables of boundary values against bytes joined or packed by hand; streams and files that misbehave."""

from __future__ import annotations

import io
import mmap
import os
import struct
import tracemalloc
import zlib
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kstore.compression import CompressionType
from kstore.errors import StorageError
from kstore.record import BufferingOutputStream, MessageWriter, ReservedOutput, message_writer, write_entry
from kstore.types import TimestampType
from tests.making.collecting import over
from tests.making.messages import packed, packed_entry

DATA = bytes(range(200)) * 3
segment_sizes = pytest.mark.parametrize("segment_size", [1, 2, 7, 199, 600, 601, 65536])
magic_parameter = pytest.mark.parametrize("magic", [0, 1], ids=["v0", "v1"])


def stream_of(data: bytes, segment_size: int = 7) -> BufferingOutputStream:
    stream = BufferingOutputStream(segment_size)
    stream.write(data)
    return stream


# Writing


@segment_sizes
def test_bytes_come_out_as_they_were_written(segment_size: int) -> None:
    stream = BufferingOutputStream(segment_size)
    for piece in (b"", DATA[:1], DATA[1:8], DATA[8:], b""):
        assert stream.write(piece) == len(piece)
    assert bytes(stream) == DATA
    assert stream.size == len(DATA)
    assert stream.segment_size == segment_size


def test_segments_are_full_but_the_last_and_never_empty() -> None:
    stream = BufferingOutputStream(3)
    assert stream.segments() == []
    stream.write(b"abc")
    assert stream.segments() == [b"abc"]
    stream.write(b"defg")
    assert stream.segments() == [b"abc", b"def", b"g"]
    assert all(view.readonly for view in stream.segments())


def test_growth_neither_moves_nor_copies_a_segment() -> None:
    stream = stream_of(b"abcd", 3)
    before = stream.segments()
    stream.write(DATA)
    after = stream.segments()
    assert [view.obj is other.obj for view, other in zip(before, after, strict=False)] == [True, True]


@pytest.mark.parametrize("segment_size", [0, -1, -(2**70), 2**31, 2**70])
def test_segment_size_that_no_message_can_fill_is_refused(segment_size: int) -> None:
    with pytest.raises(ValueError, match="segment_size: expected from 1 to 2147483647"):
        BufferingOutputStream(segment_size)


@pytest.mark.parametrize("size", [2**31, 2**70])
def test_reserved_output_larger_than_a_field_can_be_is_refused_before_memory_is_taken(size: int) -> None:
    stream = stream_of(b"abc")
    with pytest.raises(ValueError, match="size to reserve: expected from 0 to 2147483647"):
        stream.reserve(size)
    assert bytes(stream) == b"abc"


def test_codec_may_be_named() -> None:
    by_name, by_member = MessageWriter(64), MessageWriter(64)
    for writer, codec in ((by_name, "lz4"), (by_member, CompressionType.LZ4)):
        writer.write_entry(b"messages", offset=3, magic=1, compression=codec)
    assert bytes(by_name) == bytes(by_member)
    with pytest.raises(ValueError, match="unknown compression type"):
        by_name.write_message(b"", magic=1, compression="zip")


@pytest.mark.parametrize("segment_size", [1.0, "8", None])
def test_segment_size_that_is_no_integer_is_refused(segment_size: Any) -> None:
    with pytest.raises(TypeError):
        MessageWriter(segment_size)


BUFFERS: dict[str, tuple[Any, bytes]] = {
    "bytes": (b"abc", b"abc"),
    "bytearray": (bytearray(b"abc"), b"abc"),
    "slice": (memoryview(b"xabcx")[1:4], b"abc"),
    "signed bytes": (memoryview(b"\xff\x00").cast("b"), b"\xff\x00"),
    "array of shorts": (array("H", [1, 2]), array("H", [1, 2]).tobytes()),
    "big-endian int64": (np.array([1, -2], dtype=">i8"), struct.pack(">qq", 1, -2)),
    "structs": (np.array([(1, 2)], dtype=[("a", "<i4"), ("b", "u1")]), b"\x01\x00\x00\x00\x02"),
    "two dimensions": (np.arange(6, dtype=np.uint8).reshape(2, 3), bytes(range(6))),
    "no dimension": (np.uint16(0x0101), b"\x01\x01"),
    "empty": (b"", b""),
    "empty, two dimensions": (np.zeros((0, 3)), b""),
}


@pytest.mark.parametrize(("data", "expected"), BUFFERS.values(), ids=BUFFERS)
def test_any_contiguous_buffer_is_written(data: Any, expected: bytes) -> None:
    stream = BufferingOutputStream(2)
    assert stream.write(data) == len(expected)
    assert bytes(stream) == expected
    stream.reserve(len(expected)).write(data)
    assert bytes(stream) == expected * 2


def test_memory_map_is_written_as_a_buffer() -> None:
    with mmap.mmap(-1, 5) as mapped:
        mapped[:] = b"abcde"
        mapped.seek(3)
        assert stream_of(b"-").write(mapped) == 5


@pytest.mark.parametrize(
    "data",
    [memoryview(b"abcdef")[::2], memoryview(b"abc")[::-1], np.arange(6, dtype=np.uint8).reshape(2, 3).T],
    ids=["every second byte", "backwards", "Fortran order"],
)
def test_buffer_with_gaps_is_refused(data: Any) -> None:
    stream = stream_of(b"kept")
    with pytest.raises(ValueError, match="expected a C-contiguous buffer"):
        stream.write(data)
    assert bytes(stream) == b"kept"


@pytest.mark.parametrize(
    "source", ["text", 5, None, [1], io.StringIO("text")], ids=lambda source: type(source).__name__
)
def test_source_without_bytes_is_refused(source: Any) -> None:
    stream = stream_of(b"kept")
    with pytest.raises(TypeError, match="expected a buffer"):
        stream.write(source)
    assert bytes(stream) == b"kept"


# Readable streams


class Source:
    """A readable stream of given pieces, one a call; an exception among them is raised."""

    def __init__(self, *given: Any) -> None:
        self.given = list(given)
        self.asked: list[int] = []

    def read(self, size: int) -> Any:
        self.asked.append(size)
        piece = self.given.pop(0) if self.given else b""
        if isinstance(piece, BaseException):
            raise piece
        return piece


@segment_sizes
def test_stream_is_written_up_to_its_end(segment_size: int) -> None:
    stream = BufferingOutputStream(segment_size)
    assert stream.write(Source(b"a", b"bc", bytearray(DATA), b"", b"behind the end")) == 3 + len(DATA)
    assert bytes(stream) == b"abc" + DATA


def test_long_stream_is_read_in_bounded_pieces() -> None:
    data = bytes(300_000)
    sizes: list[int] = []

    class Counted(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            sizes.append(size or 0)
            return super().read(size)

    stream = BufferingOutputStream(1000)
    assert stream.write(Counted(data)) == len(data)
    assert bytes(stream) == data
    assert set(sizes) == {65536}


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (None, BlockingIOError),
        (OSError("disk"), OSError),
        ("text", TypeError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=["would block", "raises", "text", "interrupted"],
)
def test_stream_that_fails_on_the_way_leaves_nothing(last: Any, error: type[BaseException]) -> None:
    stream = stream_of(b"kept")
    with pytest.raises(error):
        stream.write(Source(b"lost", DATA, last))
    assert bytes(stream) == b"kept"
    stream.reserve(9)
    assert bytes(stream) == b"kept" + bytes(9)


# Reserved output


@segment_sizes
def test_reserved_output_is_filled_over_segment_ends(segment_size: int) -> None:
    stream = stream_of(b"head", segment_size)
    reserved = stream.reserve(20)
    stream.write(b"tail")
    assert bytes(stream) == b"head" + bytes(20) + b"tail"
    assert reserved.write(b"0123456") == 7
    assert (reserved.position, reserved.remaining) == (11, 13)
    assert bytes(stream) == b"head0123456" + bytes(13) + b"tail"
    reserved.write(b"7890123456789")
    assert (reserved.position, reserved.remaining) == (24, 0)
    assert bytes(stream) == b"head01234567890123456789tail"


def test_reservations_do_not_touch_each_other() -> None:
    stream = BufferingOutputStream(3)
    first, empty, second = stream.reserve(4), stream.reserve(0), stream.reserve(5)
    second.write(b"SECND")
    first.write(b"FRST")
    assert empty.write(b"") == 0
    assert bytes(stream) == b"FRSTSECND"


@pytest.mark.parametrize("written", [0, 1, 4], ids=["fresh", "begun", "full"])
def test_write_past_a_reservation_is_refused_whole(written: int) -> None:
    stream = BufferingOutputStream(3)
    reserved: ReservedOutput = stream.reserve(4)
    stream.write(b"tail")
    reserved.write(b"x" * written)
    before = bytes(stream)
    with pytest.raises(ValueError, match=f"expected at most {4 - written} bytes, found {5 - written}"):
        reserved.write(b"y" * (5 - written))
    assert bytes(stream) == before


def test_negative_reservation_is_refused() -> None:
    stream = BufferingOutputStream(3)
    with pytest.raises(ValueError, match="expected from 0 to 2147483647, found -1"):
        stream.reserve(-1)
    with pytest.raises(TypeError):
        stream.reserve(1.5)
    assert stream.size == 0


# Handing the bytes on


@segment_sizes
def test_bytes_are_copied_to_the_start_of_a_buffer(segment_size: int) -> None:
    target = bytearray(b"x" * (len(DATA) + 2))
    assert stream_of(DATA, segment_size).write_to(target) == len(DATA)
    assert target == DATA + b"xx"


def test_buffer_of_other_items_is_a_target() -> None:
    target = array("H", [0, 0])
    stream_of(b"abcd", 3).write_to(target)
    assert target.tobytes() == b"abcd"


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (bytearray(3), ValueError, "expected at least 4 bytes, found 3"),
        (memoryview(bytearray(8))[::2], ValueError, "C-contiguous"),
        (bytes(4), TypeError, "read-only bytes"),
        (5, TypeError, "binary file object, found int"),
        (io.StringIO(), TypeError, "memoryview"),
    ],
    ids=["small", "gaps", "read-only", "number", "text file"],
)
def test_target_that_can_not_take_the_bytes_is_refused(target: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        stream_of(b"abcd").write_to(target)
    if isinstance(target, bytearray):
        assert target == bytes(3)


class ShortWriter:
    """A raw file that takes at most `most` bytes a call."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = b""

    def write(self, data: memoryview) -> int:
        self.taken += bytes(data[: self.most])
        return min(len(data), self.most)

    def writev(self, group: list[memoryview]) -> int:
        assert len(group) <= 1024
        return self.write(memoryview(b"".join(group)))


@pytest.mark.parametrize("most", [1, 3, 7, 8, 100, 10000])
def test_short_writes_are_gone_on_with(most: int) -> None:
    stream = stream_of(DATA)
    by_write, by_gather = ShortWriter(most), ShortWriter(most)
    assert stream.write_to(by_write) == stream.gather_to(by_gather.writev) == len(DATA)
    assert by_write.taken == by_gather.taken == DATA


def test_files_take_all_segments(tmp_path: Path) -> None:
    stream = stream_of(DATA * 10, 1)
    buffered = io.BytesIO(b"")
    stream.write_to(buffered)
    assert buffered.getvalue() == DATA * 10
    path = tmp_path / "gathered"
    with path.open("wb", buffering=0) as file:
        assert stream.gather_to(partial(os.writev, file.fileno())) == len(DATA) * 10
        stream.write_to(file)
    assert path.read_bytes() == DATA * 20


class Broken:
    """A file whose write() does nothing but answer."""

    def __init__(self, answer: int | None) -> None:
        self.answer = answer

    def write(self, *_: Any) -> Any:
        return self.answer


@pytest.mark.parametrize("count", [None, 0, -1, 5])
def test_file_that_takes_no_or_too_many_bytes_is_a_storage_error(count: int | None) -> None:
    stream = stream_of(b"abcd")
    with pytest.raises(StorageError, match=f"from 1 to 4, found {count}"):
        stream.write_to(Broken(count))
    with pytest.raises(StorageError, match=f"from 1 to 4, found {count}"):
        stream.gather_to(Broken(count).write)


def test_empty_stream_writes_nothing() -> None:
    stream = BufferingOutputStream(4)
    assert stream.write_to(b"") == stream.write_to(ShortWriter(0)) == stream.gather_to(ShortWriter(0).writev) == 0
    assert bytes(stream) == b""


# Prefixes


@segment_sizes
@pytest.mark.parametrize("body", [b"", b"a", DATA], ids=["empty", "one byte", "long"])
def test_prefixes_hold_length_and_crc_of_their_body(segment_size: int, body: bytes) -> None:
    writer = MessageWriter(segment_size)
    writer.write(b"head")
    with writer.with_length_prefix():
        writer.write(body)
    with writer.with_crc32_prefix():
        writer.write(body)
    writer.write(b"tail")
    assert bytes(writer) == b"".join(
        (b"head", struct.pack(">i", len(body)), body, struct.pack(">I", zlib.crc32(body)), body, b"tail")
    )


@segment_sizes
def test_prefixes_nest(segment_size: int) -> None:
    writer = MessageWriter(segment_size)
    with writer.with_crc32_prefix(), writer.with_length_prefix():
        writer.write(b"a")
        with writer.with_length_prefix():
            reserved = writer.reserve(2)
        reserved.write(b"bc")
    inner = b"a" + struct.pack(">i", 2) + b"bc"
    body = struct.pack(">i", len(inner)) + inner
    assert bytes(writer) == struct.pack(">I", zlib.crc32(body)) + body


def write_and_raise(writer: MessageWriter, reserved: list[ReservedOutput], error: type[BaseException]) -> None:
    with writer.with_crc32_prefix(), writer.with_length_prefix():
        reserved.append(writer.reserve(2))
        writer.write(DATA)
        raise error


@segment_sizes
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, StopIteration])
def test_body_that_raises_is_taken_back(segment_size: int, error: type[BaseException]) -> None:
    writer = MessageWriter(segment_size)
    inside: list[ReservedOutput] = []
    with writer.with_length_prefix():
        before = writer.reserve(3)
        with pytest.raises(error):
            write_and_raise(writer, inside, error)
        assert writer.size == 7
        writer.reserve(5)
        writer.write(b"end")
    before.write(b"abc")
    with pytest.raises(ValueError, match="discarded because the body raised"):
        inside[0].write(b"x")
    assert bytes(writer) == struct.pack(">i", 11) + b"abc" + bytes(5) + b"end"


def test_bodies_that_raise_leave_nothing_behind_but_the_word_of_the_deepest_one() -> None:
    writer = MessageWriter(64)
    first = writer.reserve(4)
    tracemalloc.start()
    for _ in range(2000):
        with suppress(OSError):
            write_and_raise(writer, [], OSError)
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 16_000
    assert writer.size == 4
    assert first.write(b"abcd") == 4
    inside: list[ReservedOutput] = []
    for _ in range(2):
        with suppress(OSError), writer.with_length_prefix():
            inside.append(writer.reserve(2))
            with suppress(OSError):
                write_and_raise(writer, inside, OSError)
            inside.append(writer.reserve(2))
            raise OSError
    writer.write(bytes(100))
    assert len(inside) == 6
    for reserved in inside:
        with pytest.raises(ValueError, match="discarded because the body raised"):
            reserved.write(b"x")
    assert bytes(writer) == b"abcd" + bytes(100)


@pytest.mark.parametrize("head", [b"", b"head"], ids=["at-a-segments-start", "inside-a-segment"])
def test_body_that_raises_takes_no_memory_for_what_it_did_not_write(head: bytes) -> None:
    writer = MessageWriter(1 << 20)
    writer.write(head)
    for _ in range(2):
        tracemalloc.start()
        with suppress(OSError):
            write_and_raise(writer, [], OSError)
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most_bytes < 1 << 16
    writer.write(bytes(20))
    assert bytes(writer) == head + bytes(20)


def test_body_longer_than_an_int32_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_writer, "MAX_INT32", 9)
    writer = MessageWriter(4)
    with writer.with_length_prefix():
        writer.write(b"123456789")
    with pytest.raises(ValueError, match="length prefix: expected at most 9, found 10"), writer.with_length_prefix():
        writer.write(b"1234567890")
    assert bytes(writer) == b"\x00\x00\x00\x09123456789"


def test_key_or_value_longer_than_an_int32_is_refused() -> None:
    large = np.zeros(2**31, dtype=np.uint8)
    out = io.BytesIO()
    with pytest.raises(ValueError, match="bytes of the value: expected at most 2147483647, found 2147483648"):
        write_entry(out, large, offset=0, magic=0)
    with pytest.raises(ValueError, match="bytes of the message: expected at most 2147483647, found 2147483648"):
        write_entry(out, large[:-14], offset=0, magic=0)
    with pytest.raises(ValueError, match="bytes of the key"):
        write_entry(out, None, offset=0, magic=0, key=large)
    assert out.getvalue() == b""


# Messages


def test_message_of_nulls_has_the_smallest_size() -> None:
    writer = MessageWriter(64)
    assert writer.write_message(None, magic=0) == 14
    assert bytes(writer) == bytes.fromhex("a7ec6803 00 00 ffffffff ffffffff")
    assert MessageWriter(64).write_message(None, magic=1) == 22
    assert MessageWriter(64).write_entry(None, offset=0, magic=0) == 26


@segment_sizes
@magic_parameter
@over("key, value", list(product([None, b"", b"k", DATA], [None, b"", b"v", DATA])), by=lambda _: "keys and values")
def test_plain_message_has_its_fields_in_place(
    segment_size: int, magic: int, key: bytes | None, value: bytes | None
) -> None:
    timestamp_ms = 1_600_000_000_000 if magic else -1
    expected = packed(value, key, magic=magic, timestamp_ms=timestamp_ms)
    entry = packed_entry(value, key, offset=5, magic=magic, timestamp_ms=timestamp_ms)
    writer = MessageWriter(segment_size)
    assert writer.write_message(value, magic=magic, timestamp_ms=timestamp_ms, key=key) == len(expected)
    assert writer.write_entry(value, offset=5, magic=magic, timestamp_ms=timestamp_ms, key=key) == len(entry)
    assert write_entry(writer, value, offset=5, magic=magic, timestamp_ms=timestamp_ms, key=key) == len(entry)
    assert bytes(writer) == expected + entry + entry


@pytest.mark.parametrize("timestamp_ms", [-1, 0, 2**63 - 1])
@pytest.mark.parametrize(("kind", "attributes"), [("CREATE_TIME", 0), ("LOG_APPEND_TIME", 8)])
def test_timestamp_and_its_type_are_in_a_v1_message(timestamp_ms: int, kind: str, attributes: int) -> None:
    writer, out = MessageWriter(5), io.BytesIO()
    stamp: dict[str, Any] = {"magic": 1, "timestamp_ms": timestamp_ms, "timestamp_type": TimestampType[kind]}
    writer.write_message(b"v", **stamp)
    write_entry(out, b"v", offset=0, **stamp)
    expected = packed(b"v", None, magic=1, timestamp_ms=timestamp_ms, attributes=attributes)
    assert bytes(writer) == out.getvalue()[12:] == expected


@pytest.mark.parametrize("kind", list(TimestampType), ids=lambda kind: kind.label)
def test_v0_message_has_no_timestamp_type(kind: TimestampType) -> None:
    writer = MessageWriter(5)
    writer.write_message(b"v", magic=0, timestamp_type=kind)
    assert bytes(writer) == packed(b"v", None, magic=0)


def write_in_parts(output: Any) -> None:
    output.write(DATA[:10])
    output.write(io.BytesIO(DATA[10:]))


VALUES: dict[str, Callable[[], Any]] = {
    "stream": lambda: io.BytesIO(DATA),
    "function": lambda: write_in_parts,
    "buffer": lambda: bytearray(DATA),
}


@segment_sizes
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_value_of_unknown_size_is_written_behind_its_length(segment_size: int, value: Callable[[], Any]) -> None:
    writer = MessageWriter(segment_size)
    writer.write_message(value(), magic=1, timestamp_ms=5, key=b"key")
    assert bytes(writer) == packed(DATA, b"key", magic=1, timestamp_ms=5)


def test_function_that_writes_nothing_gives_an_empty_value() -> None:
    writer = MessageWriter(8)
    writer.write_message(lambda _: None, magic=0)
    assert bytes(writer) == packed(b"", None, magic=0)


def test_function_gets_the_writer_itself_for_a_plain_message() -> None:
    writer = MessageWriter(8)
    given: list[Any] = []
    writer.write_message(given.append, magic=0)
    assert given == [writer]


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "magic 2": ({"magic": 2}, ValueError, "magic of a message: expected 0 or 1, found 2"),
    "magic -1": ({"magic": -1}, ValueError, "expected 0 or 1"),
    "timestamp -2": ({"magic": 1, "timestamp_ms": -2}, ValueError, "timestamp_ms of a V1 message"),
    "timestamp 2^63": ({"magic": 1, "timestamp_ms": 2**63}, ValueError, "timestamp_ms of a V1 message"),
    "timestamp of V0": ({"magic": 0, "timestamp_ms": 0}, ValueError, "timestamp_ms of a V0 message: expected -1"),
    "float timestamp": ({"magic": 1, "timestamp_ms": 1.0}, TypeError, "float"),
    "no type in V1": ({"magic": 1, "timestamp_type": TimestampType.NO_TIMESTAMP_TYPE}, ValueError, "timestamp_type"),
    "text key": ({"magic": 1, "key": "k"}, TypeError, "expected a buffer, found str"),
    "key with gaps": ({"magic": 1, "key": memoryview(b"abc")[::2]}, ValueError, "C-contiguous"),
    "offset -1": ({"magic": 1, "offset": -1}, ValueError, "offset: expected 0 to"),
    "offset 2^63": ({"magic": 1, "offset": 2**63}, ValueError, "offset: expected 0 to"),
    "text value": ({"magic": 1, "value": "v"}, TypeError, "expected a buffer"),
    "number as value": ({"magic": 1, "value": 5}, TypeError, "expected a buffer"),
}


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_message_that_can_not_be_is_refused_whole(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments = {"offset": 0, "value": b"v", **arguments}
    writer = MessageWriter(4)
    writer.write(b"kept")
    with pytest.raises(error, match=message):
        writer.write_entry(**arguments)
    with pytest.raises(error, match=message):
        write_entry(writer, **arguments)
    assert bytes(writer) == b"kept"


@pytest.mark.parametrize("codec", [CompressionType.ZSTD, 5, -1, 7])
@magic_parameter
def test_codec_that_messages_do_not_have_is_refused(magic: int, codec: Any) -> None:
    writer = MessageWriter(4)
    with pytest.raises(ValueError, match=f"compression of a V{magic} message: expected one of none, gzip, snappy, lz4"):
        writer.write_message(b"", magic=magic, compression=codec)
    assert writer.size == 0
