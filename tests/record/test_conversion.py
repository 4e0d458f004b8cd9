"""Goal: records of one format become records of another with all that the other has room for, a batch at a time.
Method: batches of the reference codec converted; the messages that come out compared byte by byte with the oracle's."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from kstore.compression import CompressionType
from kstore.errors import CorruptRecordError, InvalidRecordError, UnsupportedCompressionTypeError
from kstore.log.segment.file_records import FileRecords
from kstore.record import MemoryRecords, RecordBatch
from kstore.record.conversion import (
    CONVERSION_CHUNK_BYTES,
    ConversionStats,
    convert,
    convert_message,
    down_convert,
    up_convert,
)
from tests.making.batches import FIRST_TIMESTAMP_MS, batch, batches, patch_header, record, records
from tests.making.messages import decompressed, packed_entry
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference.codec import write_batch

OLD_CODECS = [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]
WRAPPED = OLD_CODECS[1:]
APPEND_TIME_MS = FIRST_TIMESTAMP_MS + 12345
GAPS = [
    record(100, b"a", b"k"),
    record(102, None, b"n", timestamp_ms=5),
    record(200, b"", None, headers=[(b"h", b"v")]),
]


def batches_of(data: bytes) -> Iterator[RecordBatch]:
    return MemoryRecords(data).batches()


def down(data: bytes, *, magic: int, first_offset: int = 0) -> bytes:
    return b"".join(map(bytes, down_convert(batches_of(data), magic=magic, first_offset=first_offset)))


def message_set(
    items: list[reference.Record], *, magic: int, base: int = 0, append_time_ms: int | None = None
) -> bytes:
    """The entries of a message set by the oracle; offsets count from base."""
    attributes = 0 if append_time_ms is None or magic == 0 else 8
    parts = []
    for item in items:
        timestamp_ms = item.timestamp_ms if append_time_ms is None else append_time_ms
        fields = {"timestamp_ms": timestamp_ms, "attributes": attributes} if magic else {}
        parts.append(packed_entry(item.value, item.key, offset=item.offset - base, magic=magic, **fields))
    return b"".join(parts)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("append_time_ms", [None, APPEND_TIME_MS], ids=["create-time", "append-time"])
def test_plain_v2_batch_becomes_messages(magic: int, append_time_ms: int | None) -> None:
    data = write_batch(GAPS, log_append_time_ms=append_time_ms)
    assert down(data, magic=magic) == message_set(GAPS, magic=magic, append_time_ms=append_time_ms)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("append_time_ms", [None, APPEND_TIME_MS], ids=["create-time", "append-time"])
@pytest.mark.parametrize("codec", WRAPPED, ids=lambda codec: codec.label)
def test_compressed_v2_batch_becomes_one_wrapper(
    codec: CompressionType, magic: int, append_time_ms: int | None
) -> None:
    data = down(write_batch(GAPS, codec=codec, log_append_time_ms=append_time_ms), magic=magic)
    value_at = 12 + (22 if magic else 14)
    content = decompressed(data[value_at:], magic=magic, codec=codec)
    assert content == message_set(GAPS, magic=magic, base=100 if magic else 0, append_time_ms=append_time_ms)
    attributes = codec | (8 if magic and append_time_ms else 0)
    timestamp_ms = (append_time_ms or FIRST_TIMESTAMP_MS + 200) if magic else -1
    fields = {"magic": magic, "attributes": attributes, "timestamp_ms": timestamp_ms}
    assert data == packed_entry(data[value_at:], None, offset=200, **fields)


@pytest.mark.parametrize("magic", [0, 1])
def test_control_batches_are_left_out(magic: int) -> None:
    marker = reference.write_end_transaction_marker(3, timestamp_ms=5, producer_id=9, producer_epoch=1, commit=True)
    data = batch(0, 3) + marker + batch(4, 1)
    assert down(data, magic=magic) == message_set([*records(0, 3), *records(4, 1)], magic=magic)
    assert list(down_convert(batches_of(marker), magic=magic)) == []
    assert down(data, magic=2) == data


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_has_no_place_in_old_formats(magic: int) -> None:
    data = batch(0, 3) + batch(3, 3, codec=CompressionType.ZSTD)
    chunks = down_convert(batches_of(data), magic=magic, chunk_bytes=1)
    assert bytes(next(chunks)) == message_set(records(0, 3), magic=magic)
    with pytest.raises(UnsupportedCompressionTypeError, match=f"position {len(batch(0, 3))} of memory") as caught:
        next(chunks)
    assert (caught.value.codec_id, caught.value.position) == (4, len(batch(0, 3)))


@pytest.mark.parametrize(("first_offset", "kept"), [(0, 0), (100, 0), (101, 1), (103, 2), (200, 2), (201, 3)])
@pytest.mark.parametrize("magic", [0, 1])
def test_plain_records_below_the_first_offset_are_left_out(first_offset: int, kept: int, magic: int) -> None:
    assert down(write_batch(GAPS), magic=magic, first_offset=first_offset) == message_set(GAPS[kept:], magic=magic)


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_a_wrapper_are_kept_whatever_the_first_offset(magic: int) -> None:
    data = write_batch(GAPS, codec=CompressionType.GZIP)
    assert down(data, magic=magic, first_offset=201) == down(data, magic=magic)


def test_batch_that_compaction_emptied_is_left_out() -> None:
    data = reference.write_empty_batch(10, last_offset=20, max_timestamp_ms=5)
    assert down(data, magic=1) == b""
    assert down(data, magic=2) == data


def test_batches_that_fit_keep_their_bytes() -> None:
    data = batch(0, 3, codec=1) + patch_header(batch(3, 3), crc=1, repair_crc=False)
    assert down(data, magic=2) == data
    assert b"".join(map(bytes, up_convert(batches_of(data), magic=0))) == data
    assert b"".join(map(bytes, convert(batches_of(data), magic=2))) == data


def test_memory_records_are_taken_as_their_batches() -> None:
    assert b"".join(map(bytes, convert(MemoryRecords(batch(0, 3)), magic=1))) == down(batch(0, 3), magic=1)


@pytest.mark.parametrize("given", [b"bytes", [record(1, b"a")]], ids=["bytes", "records"])
def test_what_is_no_batch_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="expected MemoryRecords or their batches, found"):
        list(convert(given, magic=1))


@pytest.mark.parametrize(
    "fields", [{"crc": 1}, {"attributes": 0x20}, {"attributes": 4}], ids=["crc", "control", "zstd"]
)
def test_damaged_batch_is_neither_converted_nor_left_out(fields: dict[str, int]) -> None:
    with pytest.raises(CorruptRecordError, match="CRC mismatch"):
        down(patch_header(batch(3, 3), repair_crc=False, **fields), magic=1)


def test_unknown_codec_is_not_converted() -> None:
    with pytest.raises(UnsupportedCompressionTypeError):
        down(patch_header(batch(3, 3), attributes=5), magic=1)


def test_timestamp_that_no_client_can_send_is_dropped_or_refused() -> None:
    data = write_batch([record(0, b"v", timestamp_ms=-2)])
    assert down(data, magic=0) == message_set([record(0, b"v")], magic=0)
    with pytest.raises(InvalidRecordError, match="timestamp: expected at least -1, found -2"):
        down(data, magic=1)


def test_append_time_that_no_leader_can_set_is_dropped_or_refused() -> None:
    data = write_batch(GAPS, log_append_time_ms=-5)
    assert down(data, magic=0) == message_set(GAPS, magic=0)
    with pytest.raises(InvalidRecordError, match="timestamp: expected at least -1, found -5"):
        down(data, magic=1)


@pytest.mark.parametrize(("last", "fits"), [(2**31 - 1, True), (2**31, False)])
def test_wrapper_of_more_offsets_than_a_batch_can_span_is_not_converted(last: int, fits: bool) -> None:
    content = message_set([record(0, b"a"), record(last, b"b")], magic=1)
    data = packed_entry(codecs.compress(1, content), None, offset=last, magic=1, attributes=1)
    chunks = up_convert(batches_of(data), magic=2)
    if fits:
        assert [found.offset for chunk in chunks for found in chunk] == [0, last]
    else:
        with pytest.raises(InvalidRecordError, match="offset span: expected at most 2147483647, found 2147483648"):
            next(chunks)


# Streaming


def test_records_of_a_batch_are_not_gathered() -> None:
    data = write_batch([record(number, None) for number in range(8192)], codec=1)
    tracemalloc.start()
    (converted,) = down_convert(batches_of(data), magic=1)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(1 for _ in converted) == 8192
    assert most_bytes < 80 * 8192


def test_no_more_batches_are_read_than_are_asked_for() -> None:
    taken = 0

    def counted() -> Iterator[RecordBatch]:
        nonlocal taken
        for number in itertools.count():
            taken += 1
            yield RecordBatch(batch(number, 1, value_bytes=1000))

    chunks = down_convert(counted(), magic=1, chunk_bytes=10_000)
    sizes = [next(chunks).size_in_bytes for _ in range(3)]
    assert all(10_000 <= size < 12_000 for size in sizes)
    assert taken == sum(size // 1000 for size in sizes)


@pytest.mark.parametrize("chunk_bytes", [1, 100, CONVERSION_CHUNK_BYTES])
def test_chunks_join_to_the_same_records(chunk_bytes: int) -> None:
    data = b"".join(batches(0, 20, records_per_batch=3, value_bytes=50))
    stats = ConversionStats()
    chunks = list(down_convert(batches_of(data), magic=1, chunk_bytes=chunk_bytes, stats=stats))
    assert b"".join(map(bytes, chunks)) == message_set(records(0, 60, value_bytes=50), magic=1)
    assert all(chunk.size_in_bytes >= chunk_bytes for chunk in chunks[:-1])
    assert (stats.record_count, stats.size_in_bytes) == (60, sum(map(len, chunks)))
    assert stats.duration_ns > 0


def test_file_is_converted_by_pieces(tmp_path: object) -> None:
    data = b"".join(batches(0, 20, records_per_batch=3, value_bytes=50))
    with FileRecords.open(f"{tmp_path}/0.log") as file:
        file.append(MemoryRecords(data))
        converted = b"".join(map(bytes, file.to_format(1)))
        assert converted == message_set(records(0, 60, value_bytes=50), magic=1)
        place = file.search_for(39)
        assert place is not None
        part = file.slice(position=place.position, size=len(data))
        assert b"".join(map(bytes, part.to_format(1, first_offset=40))) == message_set(
            records(40, 20, value_bytes=50), magic=1
        )
        assert b"".join(map(bytes, file.to_format(2))) == data


@pytest.mark.parametrize("magic", [-1, 3])
def test_unknown_magic_is_refused_when_called(magic: int) -> None:
    for call in (down_convert, up_convert, convert):
        with pytest.raises(ValueError, match=f"magic must be 0, 1 or 2, got {magic}"):
            call([], magic=magic)


# Messages

MESSAGES = [
    pytest.param(b"value", b"key", id="both"),
    pytest.param(None, b"key", id="null-value"),
    pytest.param(b"", None, id="null-key"),
    pytest.param(None, None, id="neither"),
    pytest.param(bytes(100_000), b"", id="large"),
]


@pytest.mark.parametrize(("value", "key"), MESSAGES)
def test_message_of_v0_becomes_one_of_v1_and_back(value: bytes | None, key: bytes | None) -> None:
    old = packed_entry(value, key, offset=77, magic=0)
    new = packed_entry(value, key, offset=77, magic=1, timestamp_ms=-1)
    stamped = packed_entry(value, key, offset=77, magic=1, timestamp_ms=APPEND_TIME_MS, attributes=8)
    assert convert_message(old, magic=1) == new
    assert convert_message(old, magic=1, log_append_time_ms=APPEND_TIME_MS) == stamped
    assert {convert_message(new, magic=0), convert_message(stamped, magic=0)} == {old}
    assert (convert_message(old, magic=0), convert_message(new, magic=1)) == (old, new)


@pytest.mark.parametrize("append_time_ms", [-(2**63), -2, 2**63])
def test_append_time_that_no_message_can_have_is_refused(append_time_ms: int) -> None:
    with pytest.raises(ValueError, match=f"log_append_time_ms: expected -1 to {2**63 - 1}, found {append_time_ms}"):
        convert_message(packed_entry(b"v", None, offset=0, magic=0), magic=1, log_append_time_ms=append_time_ms)


NOT_CONVERTED = [
    pytest.param(packed_entry(b"v", None, offset=0, magic=0, attributes=1), 1, "wrapper", id="wrapper"),
    pytest.param(packed_entry(b"v", None, offset=0, magic=0)[:-1], 1, "size of an entry", id="cut"),
    pytest.param(packed_entry(b"v", None, offset=0, magic=0) + b"?", 1, "size of an entry", id="longer"),
    pytest.param(packed_entry(b"v", None, offset=0, magic=1)[:16], 0, "found -1", id="no-magic"),
    pytest.param(batch(0, 1), 1, "found 2", id="V2"),
    pytest.param(packed_entry(b"v", None, offset=0, magic=0), 2, "to be converted to 2", id="to-V2"),
    pytest.param(bytes(8) + (14).to_bytes(4, "big") + bytes(4) + b"\x01" + bytes(9), 0, "size of", id="V1-too-small"),
]


@pytest.mark.parametrize(("entry", "magic", "match"), NOT_CONVERTED)
def test_what_is_no_plain_message_is_refused(entry: bytes, magic: int, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        convert_message(entry, magic=magic)
