"""Goal: the columnar decoder fills each column right, costs nothing for the others, and says what it needs next.

Method: small logs with one property each, decoded through tests/making/columns.py, which takes the buffers apart; the
protocol (chunks, tables, files, misuse) by hand. Arbitrary logs are compared in tests/property.
"""

from __future__ import annotations

import dataclasses
import gc
import struct
from typing import Any

import pytest

from kstore import _core
from kstore.compression import decompress
from kstore.errors import CorruptRecordError, DecompressionError, InvalidRecordError
from tests.making import batches as builders
from tests.making.batches import FIRST_TIMESTAMP_MS, record
from tests.making.columns import MOST_TIMESTAMP_MS, Row, Wanted, byte_strings, decode_table, expected_rows
from tests.reference import codec as reference
from tests.reference import codecs as codecs

NOTHING = Wanted(offset=False, timestamp=False, key=None, value=None, headers=False)
RECORDS = [
    record(0, b"value", b"key", headers=[(b"h", b"1"), (b"n", None), (b"", b"")]),
    record(1, None, b""),
    record(2, b"", None),
    record(5, b"v" * 70, b"k" * 13, headers=[(b"\xff", b"x")]),
]
LOG = reference.write_batch(RECORDS[:2]) + reference.write_batch(RECORDS[2:], codec=codecs.LZ4)
FIRST_SIZE = reference.Header.unpack(LOG).size


def decoder(**options: Any) -> _core.ColumnDecoder:
    defaults: dict[str, Any] = {
        "batch_bytes": 1 << 16,
        "max_batch_bytes": 1 << 20,
        "max_decompressed_bytes": 1 << 20,
        "decompress": decompress,
    }
    return _core.ColumnDecoder(**defaults | options)


COLUMNS = {
    "offset": {"offset": True},
    "timestamp": {"timestamp": True},
    "key": {"key": "copy"},
    "key as view": {"key": "view"},
    "key as string": {"key": "string"},
    "value": {"value": "copy"},
    "value as view": {"value": "view"},
    "value as string": {"value": "string"},
    "headers": {"headers": True},
    "offset and timestamp": {"offset": True, "timestamp": True},
    "none": {},
    "all": {"offset": True, "timestamp": True, "key": "copy", "value": "view", "headers": True},
}


@pytest.mark.parametrize("names", COLUMNS.values(), ids=list(COLUMNS))
def test_each_column_is_filled_alone_and_the_others_are_absent(names: dict[str, Any]) -> None:
    wanted = Wanted(**NOTHING.__dict__ | names)
    assert decode_table(LOG, wanted).rows == expected_rows(RECORDS, wanted)


def test_records_of_one_size_in_two_batches_are_read_each_by_its_own_fields() -> None:
    """What is a size in the records of the first batch is a byte of the values in those of the second."""
    size = 40
    first = [record(offset, b"v" * size, b"key%02d" % offset) for offset in range(10)]
    other = b"four" + bytes([2 * size]) + b"w" * size
    later = [record(offset, other, None) for offset in range(10, 20)]
    for batches in ((first, later), (later, first)):
        records = [one._replace(offset=at) for at, one in enumerate([*batches[0], *batches[1]])]
        log = reference.write_batch(records[:10]) + reference.write_batch(records[10:])
        assert len({reference.Header.unpack(log).size, len(log) // 2}) == 1
        wanted = Wanted(headers=False)
        assert decode_table(log, wanted).rows == expected_rows(records, wanted)


def test_bytes_after_the_last_record_of_a_batch_are_found() -> None:
    whole = reference.write_batch([record(offset, b"v" * 40, b"key") for offset in range(10)])
    longer = bytearray(builders.patch_header(whole, batch_length=len(whole) - 12 + 3, repair_crc=False) + bytes(3))
    builders.fix_crc(longer)
    read = decoder(value="copy")
    read.start_file(position=0, end_position=len(longer))
    read.feed(longer, 0)
    with pytest.raises(InvalidRecordError, match="3"):
        read.run()


def test_columns_not_asked_for_are_none() -> None:
    read = decoder(offset=True)
    read.start_file(position=0, end_position=0)
    columns = read.take()
    assert (columns.timestamp, columns.key, columns.value, columns.headers) == (None, None, None, None)
    assert columns.offset is not None


@pytest.mark.parametrize("name", ["offset", "timestamp", "key", "value", "headers"])
def test_only_a_requested_column_is_exported(name: str) -> None:
    for wanted in ({}, {name: "view" if name in ("key", "value") else True}):
        read = decoder(**wanted)
        read.start_file(position=0, end_position=len(LOG))
        read.feed(LOG, 0)
        assert read.run() == "done"
        exported = read.take().exported(name)
        assert (exported is None) == (not wanted)
        if exported is not None:
            assert exported[0] == len(RECORDS)


def test_a_column_that_is_none_of_the_decoder_s_is_not_exported() -> None:
    read = decoder(offset=True)
    read.start_file(position=0, end_position=0)
    with pytest.raises(ValueError, match="'topic'"):
        read.take().exported("topic")


@pytest.mark.parametrize("mode", ["view", "copy"])
def test_the_sizes_of_view_buffers_are_exported_after_them(mode: str) -> None:
    read = decoder(value=mode, key="view")
    read.start_file(position=0, end_position=len(LOG))
    read.feed(LOG[:FIRST_SIZE], 0)
    assert read.run() == "more"
    read.feed(LOG[FIRST_SIZE:], FIRST_SIZE)
    assert read.run() == "done"
    table = read.take()
    _, _, buffers, children = table.exported("key")
    _, _, *viewed, sizes = buffers
    assert memoryview(sizes).cast("B").cast("q").tolist() == [len(buffer) for buffer in viewed]
    assert len(viewed) == 3
    assert children == ()
    assert len(table.exported("value")[2]) == (6 if mode == "view" else 3)


@pytest.mark.parametrize("mode", ["copy", "view", "string"])
def test_null_and_empty_differ_in_every_mode(mode: str) -> None:
    rows = decode_table(LOG, Wanted(key=mode, value=mode)).rows
    assert [row.key for row in rows[:3]] == [b"key", b"", None]
    assert [row.value for row in rows[:3]] == [b"value", None, b""]


def test_no_headers_are_null_and_a_null_header_value_is_not_an_empty_one() -> None:
    rows = decode_table(LOG).rows
    assert rows[1].headers is None
    assert rows[0].headers == (("h", b"1"), ("n", None), ("", b""))


def test_column_without_nulls_has_no_validity_buffer() -> None:
    read = decoder(key="copy")
    data = reference.write_batch([record(n, key=b"k") for n in range(9)])
    read.start_file(position=0, end_position=len(data))
    read.feed(data, 0)
    assert read.run() == "done"
    columns = read.take()
    assert columns.key is not None
    assert columns.key[:2] == (0, None)


@pytest.mark.parametrize("size", [0, 1, 4, 7, 8, 9, 11, 12, 13, 16, 100])
def test_view_is_inline_up_to_twelve_bytes(size: int) -> None:
    value = bytes(range(100, 100 + size))
    assert [row.value for row in decode_table(two_values(value), Wanted(value="view")).rows] == [value, b"x"]


def two_values(value: bytes) -> bytes:
    return reference.write_batch([record(0, value), record(1, b"x")])


# offsets 8 bytes a row, rows + 1 ends of 4, a batch row of 10 numbers; headers b"h" b"1" b"n" b"" and "\ufffd" b"x".
SIZES = {
    "offset": ({"offset": True}, 4 * 8),
    "timestamp": ({"timestamp": True}, 4 * 8),
    "key": ({"key": "copy"}, 1 + 5 * 4 + 16),
    "value": ({"value": "copy"}, 1 + 5 * 4 + 75),
    "headers": ({"headers": True}, 1 + 5 * 4 + 5 * 4 + (2 + 3) + 1 + 5 * 4 + 2),
    "value as view": ({"value": "view"}, 1 + 4 * 16 + len(LOG[:FIRST_SIZE])),
}


@pytest.mark.parametrize("column", SIZES)
def test_columns_tell_the_bytes_of_all_their_buffers(column: str) -> None:
    options, size = SIZES[column]
    second = reference.write_batch(RECORDS[2:])
    log = LOG[:FIRST_SIZE] + second
    read = decoder(**options)
    read.start_file(position=0, end_position=len(log))
    read.feed(log, 0)
    assert read.run() == "done"
    viewed = len(second) if "view" in options.values() else 0
    assert read.take().size_in_bytes == size + viewed + 2 * 8 * len(_core.BATCH_ROW_FIELDS)


def test_views_point_into_the_chunk_without_a_copy() -> None:
    chunk = bytearray(reference.write_batch([record(0, b"v" * 40)]))
    read = decoder(value="view")
    read.start_file(position=0, end_position=len(chunk))
    read.feed(chunk, 0)
    assert read.run() == "done"
    columns = read.take()
    assert columns.value is not None
    at = chunk.index(b"v" * 40)
    chunk[at : at + 40] = b"w" * 40
    size, prefix, number, start = struct.unpack("<i4sii", bytes(columns.value[2]))
    assert (size, prefix, start) == (40, b"vvvv", at)
    assert bytes(memoryview(columns.value[3][number])[start : start + size]) == b"w" * 40


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.LZ4], ids=["chunk", "decompressed"])
def test_views_keep_what_they_point_into(codec: int) -> None:
    data = reference.write_batch([record(0, b"v" * 40)], codec=codec)
    read = decoder(value="view")
    read.start_file(position=0, end_position=len(data))
    read.feed(bytearray(data), 0)
    assert read.run() == "done"
    columns = read.take()
    del read
    gc.collect()
    assert columns.value is not None
    size, _, number, start = struct.unpack("<i4sii", bytes(columns.value[2]))
    assert bytes(memoryview(columns.value[3][number])[start : start + size]) == b"v" * 40


def test_columns_stay_as_they_were_while_the_decoder_goes_on() -> None:
    data = b"".join(builders.batches(0, 50, records_per_batch=3, value_bytes=30))
    read = decoder(value="copy", key="view", offset=True, batch_bytes=200)
    read.start_file(position=0, end_position=len(data))
    kept = []
    while (progress := read.run()) != "done":
        if progress == "full":
            columns = read.take()
            kept.append((columns, snapshot(columns)))
        else:
            read.feed(data[read.position : read.position + 500], read.position)
    assert len(kept) > 10
    for columns, before in kept:
        assert snapshot(columns) == before


def snapshot(columns: _core.Columns) -> list[bytes]:
    assert columns.key is not None
    assert columns.value is not None
    buffers = [columns.offset, columns.key[2], *columns.key[3], columns.value[2], *columns.value[3], columns.batches]
    return [bytes(buffer) for buffer in buffers if buffer is not None]


TEXTS = {
    "ASCII of 8 and more": b"plain text, long enough for whole words",
    "two bytes": "äöü".encode(),
    "three bytes": "€ and ࠀ".encode(),
    "four bytes": "😀𐀀\U0010ffff".encode(),
    "NUL": b"a\0b",
    "lone continuation": b"a\x80b",
    "two continuations": b"\x80\xbf",
    "lead without continuation": b"\xc3",
    "lead before ASCII": b"\xc3(",
    "three bytes cut to two": b"\xe2\x82",
    "three bytes cut to two, then text": b"\xe2\x82x",
    "four bytes cut to three": b"\xf0\x9f\x98",
    "four bytes cut to two, then text": b"\xf0\x9fx",
    "overlong slash": b"\xc0\xaf",
    "overlong of three bytes": b"\xe0\x80\xaf",
    "overlong of four bytes": b"\xf0\x80\x80\xaf",
    "surrogate": b"\xed\xa0\x80",
    "beyond U+10FFFF": b"\xf4\x90\x80\x80",
    "bytes that never occur": b"\xf5\xfe\xff",
    "invalid in the eighth byte": b"1234567\xff9",
    "invalid behind a whole word": b"12345678\xe2\x82",
    "every byte value": bytes(range(256)),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_string_column_replaces_what_is_not_utf8_as_python_does(text: bytes) -> None:
    data = reference.write_batch([record(0, text, text, headers=[(text, text)]), record(1, b"end")])
    expected = text.decode("utf-8", "replace")
    first = decode_table(data, Wanted(key="string", value="string")).rows[0]
    assert first.key == first.value == expected.encode()
    assert first.headers == ((expected, text),)


@pytest.mark.parametrize("mode", ["copy", "view", "string"])
def test_value_larger_than_a_table_is_one_row_of_its_own_table(mode: str) -> None:
    written = [record(0, b"a"), record(1, b"\xffb" * 300_000), record(2, b"c")]
    wanted = Wanted(value=mode, batch_bytes=100)
    table = decode_table(reference.write_batch(written), wanted)
    assert table.rows == expected_rows(written, wanted)
    assert max(table.table_sizes) <= 2


def test_headers_grow_in_number_and_size() -> None:
    written = [
        record(0, headers=[(b"h%d" % n, b"v%d" % n) for n in range(5000)]),
        record(1, headers=[(b"k" * 200_000, b"v" * 300_000), (b"n", None)]),
        record(2),
    ]
    assert decode_table(reference.write_batch(written), Wanted(batch_bytes=1 << 20)).rows == expected_rows(written)


@pytest.mark.parametrize("stamp", [MOST_TIMESTAMP_MS, -MOST_TIMESTAMP_MS, -2, 0])
@pytest.mark.parametrize("is_append_time", [False, True])
def test_timestamps_are_microseconds_up_to_the_last_that_fits(stamp: int, is_append_time: bool) -> None:
    data = reference.write_batch([record(0, timestamp_ms=stamp)], log_append_time_ms=stamp if is_append_time else None)
    assert [row.timestamp_us for row in decode_table(data).rows] == [stamp * 1000]


@pytest.mark.parametrize("is_append_time", [False, True])
@pytest.mark.parametrize("stamps", [(-1, 5), (5, -1), (8190, -1), (8191, -1), (8192, -1), (9000, -1), (-1, -1)])
@pytest.mark.parametrize("more", [0, 20])
def test_record_without_a_timestamp_has_null_whatever_the_timestamp_of_its_batch(
    stamps: tuple[int, ...], more: int, is_append_time: bool
) -> None:
    """Up to 8191 ms a delta of two bytes leads from the timestamp of the batch to -1; the fast loop leaves out the last
    records of a batch.
    """
    stamps += stamps[:1] * more
    appended = {"log_append_time_ms": stamps[1]} if is_append_time else {}
    data = reference.write_batch([record(n, timestamp_ms=stamp) for n, stamp in enumerate(stamps)], **appended)
    found = [stamps[1]] * len(stamps) if is_append_time else list(stamps)
    for wanted in (Wanted(), Wanted(key=None, value=None, headers=False)):
        rows = decode_table(data, wanted).rows
        assert [row.timestamp_us for row in rows] == [None if stamp == -1 else stamp * 1000 for stamp in found]
    read = decoder(offset=True, timestamp=True)
    read.start_file(position=0, end_position=len(data))
    read.feed(data, 0)
    assert read.run() == "done"
    assert read.take().lost_timestamp is None


BEYOND = [MOST_TIMESTAMP_MS + 1, -MOST_TIMESTAMP_MS - 1, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("is_append_time", [False, True])
@pytest.mark.parametrize("mode", ["copy", "view", "string", None])
def test_timestamp_beyond_microseconds_is_null_and_the_first_is_told(mode: str | None, is_append_time: bool) -> None:
    """Each way that timestamps are filled: record by record, without bodies, from the header alone."""
    stamps = [7, *BEYOND, 8]
    written = [record(offset, timestamp_ms=stamp) for offset, stamp in enumerate(stamps)]
    data = reference.write_batch([record(offset) for offset in range(3)]) if is_append_time else b""
    if is_append_time:
        data = reference.write_batch(written[:2], log_append_time_ms=BEYOND[0])
        data += reference.write_batch(written[2:], log_append_time_ms=9)
    else:
        data = reference.write_batch(written)
    for batch_bytes in (1, 50, 1 << 16):
        wanted = Wanted(key=mode, value=mode, headers=mode == "copy", batch_bytes=batch_bytes)
        rows = decode_table(data, wanted).rows
        assert rows == expected_rows(reference.read_records(data), wanted)
        assert [row.timestamp_us is None for row in rows] == (
            [True, True, False, False, False, False] if is_append_time else [False, True, True, True, True, False]
        )
    read = decoder(offset=True, timestamp=True)
    read.start_file(position=0, end_position=len(data))
    read.feed(data, 0)
    assert read.run() == "done"
    assert read.take().lost_timestamp == ((0, BEYOND[0]) if is_append_time else (1, BEYOND[0]))
    assert read.take().lost_timestamp is None


def test_offset_column_alone_is_filled_without_the_records() -> None:
    def refuse(codec_id: int, payload: object, limit: int) -> bytes:
        raise AssertionError("decompressed for an offset column")

    data = builders.batch(7, 1000, codec=codecs.GZIP)
    read = decoder(offset=True, decompress=refuse)
    read.start_file(position=0, end_position=len(data))
    read.feed(data, 0)
    assert read.run() == "done"
    assert list(memoryview(bytes(read.take().offset or b"")).cast("q")) == list(range(7, 1007))


def test_record_count_that_no_payload_can_hold_is_refused_unseen() -> None:
    """Only the header would be read, and 2^31 rows made of it."""
    batch = reference.write_batch([record(0)], codec=codecs.LZ4)
    lying = builders.patch_header(batch, record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    with pytest.raises(InvalidRecordError, match="record count does not fit"):
        decode_table(lying, dataclasses.replace(NOTHING, offset=True))


def test_rows_are_counted_without_any_column() -> None:
    table = decode_table(builders.batch(7, 1000), NOTHING)
    assert table.rows == [Row()] * 1000


def test_offset_column_of_a_compacted_batch_follows_the_deltas() -> None:
    data = reference.write_batch([record(3), record(9)], base_offset=0, last_offset=12, codec=codecs.ZSTD)
    wanted = Wanted(**NOTHING.__dict__ | {"offset": True})
    assert [row.offset for row in decode_table(data, wanted).rows] == [3, 9]


def test_control_batches_are_skipped_but_checked() -> None:
    marker = reference.write_end_transaction_marker(1, timestamp_ms=0, producer_id=1, producer_epoch=0, commit=True)
    data = builders.batch(0) + marker + builders.batch(2)
    assert [row.offset for row in decode_table(data).rows] == [0, 2]
    damaged = bytearray(data)
    builders.flip_bit(damaged, len(builders.batch(0)) + len(marker) - 1, bit=0)
    with pytest.raises(CorruptRecordError) as caught:
        decode_table(bytes(damaged))
    assert caught.value.position == len(builders.batch(0))


def test_emptied_batches_give_no_rows() -> None:
    empty = reference.write_empty_batch(1, last_offset=9, max_timestamp_ms=5)
    assert [row.offset for row in decode_table(builders.batch(0) + empty + builders.batch(10)).rows] == [0, 10]


RANGES = {
    "from the middle of a batch": (2, None, [2, 3, 4, 5, 6, 7, 8]),
    "to the middle of a batch": (0, 5, [0, 1, 2, 3, 4]),
    "inside one batch": (4, 5, [4]),
    "on batch borders": (3, 6, [3, 4, 5]),
    "nothing": (4, 4, []),
    "behind the log": (9, 99, []),
}


@pytest.mark.parametrize(("start", "end", "expected"), RANGES.values(), ids=list(RANGES))
@pytest.mark.parametrize("key", [None, "copy"])
def test_offset_range_is_half_open(start: int, end: int | None, expected: list[int], key: str | None) -> None:
    data = b"".join(builders.batches(0, 3, records_per_batch=3))
    wanted = Wanted(**NOTHING.__dict__ | {"offset": True, "key": key, "start_offset": start, "end_offset": end})
    assert [row.offset for row in decode_table(data, wanted).rows] == expected


def test_wrong_crc_is_seen_unless_not_asked_for() -> None:
    data = bytearray(builders.batch(0))
    builders.set_bytes(data, reference.CRC_AT, b"\1\2\3\4")
    with pytest.raises(CorruptRecordError) as caught:
        decode_table(bytes(data))
    assert (caught.value.expected, caught.value.found) == (0x01020304, reference.Header.unpack(builders.batch(0)).crc)
    assert len(decode_table(bytes(data), Wanted(verify_crc=False)).rows) == 1


def test_batch_is_not_passed_over_by_a_last_offset_that_its_crc_refutes() -> None:
    batch = builders.patch_header(builders.batch(0, 10), repair_crc=False, last_offset_delta=3)
    with pytest.raises(CorruptRecordError, match="CRC mismatch"):
        decode_table(batch, Wanted(start_offset=5))


def test_errors_tell_path_position_and_base_offset() -> None:
    bad = reference.seal(reference.Header(base_offset=900, attributes=codecs.GZIP, record_count=1), b"no gzip")
    data = builders.batch(0) + bad
    with pytest.raises(DecompressionError) as caught:
        decode_table(data)
    error = caught.value
    assert (error.path, error.position, error.base_offset) == ("x.log", len(data) - len(bad), 900)


def test_decoder_asks_for_the_bytes_it_needs() -> None:
    data = builders.batch(0, value_bytes=5000)
    read = decoder(value="copy")
    read.start_file(position=0, end_position=len(data))
    assert (read.run(), read.position, read.needed) == ("more", 0, 61)
    read.feed(data[:60], 0)
    assert (read.run(), read.needed) == ("more", 61)
    read.feed(data[:100], 0)
    assert (read.run(), read.needed) == ("more", len(data))
    read.feed(data, 0)
    assert (read.run(), read.position, read.row_count) == ("done", len(data), 1)


def test_range_may_start_and_end_at_any_batch_and_chunks_may_reach_behind_it() -> None:
    log = builders.batches(0, 4)
    starts = [sum(map(len, log[:n])) for n in range(5)]
    read = decoder(offset=True)
    read.start_file(position=starts[1], end_position=starts[3])
    read.feed(b"".join(log)[starts[1] :], starts[1])
    assert (read.run(), read.position) == ("done", starts[3])
    assert list(memoryview(bytes(read.take().offset or b"")).cast("q")) == [1, 2]


@pytest.mark.parametrize("mode", ["copy", "view"])
def test_one_table_may_span_files(mode: str) -> None:
    read = decoder(value=mode)
    for first in (0, 10):
        data = builders.batch(first, 3, value_bytes=40)
        read.start_file(position=0, end_position=len(data), base_offset=first)
        read.feed(data, 0)
        assert read.run() == "done"
    assert read.row_count == 6
    columns = read.take()
    values = columns_values(columns, is_view=mode == "view")
    assert [value[: value.index(b".")] for value in values] == [b"v0", b"v1", b"v2", b"v10", b"v11", b"v12"]
    assert (read.row_count, read.take().row_count) == (0, 0)


def columns_values(columns: _core.Columns, *, is_view: bool) -> list[bytes]:
    return [value for value in byte_strings(columns.value, columns.row_count, is_view=is_view) if value is not None]


def test_full_table_stays_full_until_it_is_taken() -> None:
    data = builders.batch(0, 100)
    read = decoder(value="copy", batch_bytes=50)
    read.start_file(position=0, end_position=len(data))
    read.feed(data, 0)
    assert [read.run(), read.run()] == ["full", "full"]
    rows = read.row_count
    assert read.take().row_count == rows > 0
    assert read.run() == "full"


def test_batch_below_the_base_offset_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError):
        decode_table(builders.batch(4), base_offset=5)


@pytest.mark.parametrize(("next_base_offset", "is_corrupt"), [(5, True), (6, False), (None, False)])
def test_batch_that_runs_into_the_next_segment_is_corrupt(next_base_offset: int | None, is_corrupt: bool) -> None:
    read = decoder(offset=True)
    read.start_file(position=0, end_position=len(LOG), next_base_offset=next_base_offset)
    read.feed(LOG, 0)
    if not is_corrupt:
        assert read.run() == "done"
        return
    with pytest.raises(CorruptRecordError, match="offsets run into the next segment") as caught:
        read.run()
    assert (caught.value.position, caught.value.expected, caught.value.found) == (FIRST_SIZE, 5, 5)


def test_batch_above_the_size_limit_is_corrupt() -> None:
    data = builders.batch(0)
    assert len(decode_table(data, Wanted(max_batch_bytes=len(data))).rows) == 1
    with pytest.raises(CorruptRecordError):
        decode_table(data, Wanted(max_batch_bytes=len(data) - 1))


def test_feeding_another_place_than_asked_for_is_misuse() -> None:
    read = decoder(offset=True)
    read.start_file(position=10, end_position=500)
    with pytest.raises(ValueError, match="position 10"):
        read.feed(builders.batch(0), 0)


def test_starting_a_file_inside_a_batch_is_misuse() -> None:
    data = builders.batch(0, 100)
    read = decoder(value="copy", batch_bytes=50)
    read.start_file(position=0, end_position=len(data))
    read.feed(data, 0)
    assert read.run() == "full"
    with pytest.raises(ValueError, match="start_file"):
        read.start_file(position=0, end_position=len(data))


@pytest.mark.parametrize("batch_bytes", [0, -1, 2**30 + 1])
def test_table_size_out_of_range_is_misuse(batch_bytes: int) -> None:
    with pytest.raises(ValueError, match="batch_bytes"):
        decoder(offset=True, batch_bytes=batch_bytes)


@pytest.mark.parametrize(("position", "end_position"), [(-1, 5), (6, 5)])
def test_range_that_is_none_is_misuse(position: int, end_position: int) -> None:
    with pytest.raises(ValueError, match="position"):
        decoder(offset=True).start_file(position=position, end_position=end_position)


def test_timestamps_of_the_builders_are_the_ones_read() -> None:
    rows = decode_table(builders.batch(0, 2)).rows
    assert [row.timestamp_us for row in rows] == [FIRST_TIMESTAMP_MS * 1000, (FIRST_TIMESTAMP_MS + 1) * 1000]
