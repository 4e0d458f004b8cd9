"""Goal: messages and wrappers of magic 0 and 1 are read as Kafka reads them, or refused with their class and place.

Method: entries written by their fields, read as Records, as columns and by the reference; one wrong thing at a time.
"""

from __future__ import annotations

import struct
import zlib
from itertools import product

import pytest

from kstore import _core
from kstore.compression import decompress
from kstore.errors import CorruptionError, UnsupportedError
from tests.making import batches as builders
from tests.making.columns import Wanted, decode_table, expected_rows
from tests.making.messages import packed_entry, write_wrapper
from tests.reference import codecs as codecs
from tests.reference import messages as reference_messages
from tests.reference.codec import CREATE_TIME, LOG_APPEND_TIME, Record
from tests.reference.messages import NO_TIMESTAMP_TYPE
from tests.reference.verdicts import Refused, as_reference, column_verdict, core_batch_verdict, reference_verdict

CODECS = {"gzip": codecs.GZIP, "snappy": codecs.SNAPPY, "lz4": codecs.LZ4}
wrapped = pytest.mark.parametrize(
    ("magic", "codec"),
    list(product((0, 1), CODECS.values())),
    ids=[f"magic-{magic}-{name}" for magic, name in product((0, 1), CODECS)],
)
POSITION = 4096
CONTENT = [(b"value", b"key"), (None, b""), (b"", None), (b"v" * 70, b"k" * 200)]


def entries(*, magic: int, offsets: list[int]) -> list[bytes]:
    return [
        packed_entry(value, key, offset=offset, magic=magic, timestamp_ms=1000 + number)
        for number, (offset, (value, key)) in enumerate(zip(offsets, CONTENT, strict=False))
    ]


def expected(
    *, offsets: list[int], magic: int, timestamp_type: int | None = None, timestamp_ms: int = -1
) -> list[Record]:
    kind = (CREATE_TIME if magic else NO_TIMESTAMP_TYPE) if timestamp_type is None else timestamp_type
    stamps = [timestamp_ms if timestamp_type is not None or not magic else 1000 + n for n in range(len(offsets))]
    rows = zip(offsets, stamps, CONTENT, strict=False)
    return [Record(offset, stamp, kind, key, value) for offset, stamp, (value, key) in rows]


def check(data: bytes, records: list[Record]) -> None:
    """All three readers of one entry give these records."""
    assert core_batch_verdict(data, position=POSITION) == records
    assert reference_messages.read_message(data).records == records
    assert decode_table(data).rows == expected_rows(records)


def check_refused(data: bytes, error: str) -> None:
    assert core_batch_verdict(data, position=POSITION) == Refused(error, POSITION)
    found = reference_verdict(lambda: reference_messages.read_message(data, position=POSITION).records)
    assert found == Refused(error, POSITION)
    assert column_verdict(data) == Refused(error, 0)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("number", range(len(CONTENT)))
def test_plain_message_is_one_record(magic: int, number: int) -> None:
    value, key = CONTENT[number]
    kind = CREATE_TIME if magic else NO_TIMESTAMP_TYPE
    data = packed_entry(value, key, offset=7, magic=magic, timestamp_ms=5)
    check(data, [Record(7, 5 if magic else -1, kind, key, value)])


def test_log_append_time_bit_of_a_plain_message_is_its_timestamp_type() -> None:
    check(
        packed_entry(b"v", None, offset=0, magic=1, timestamp_ms=9, attributes=8),
        [Record(0, 9, LOG_APPEND_TIME, None, b"v")],
    )


def test_unknown_attribute_bits_of_old_messages_mean_nothing() -> None:
    check(
        packed_entry(b"v", None, offset=3, magic=0, attributes=0xF8 - 256),
        [Record(3, -1, NO_TIMESTAMP_TYPE, None, b"v")],
    )
    check(
        packed_entry(b"v", None, offset=3, magic=1, attributes=0xF0 - 256, timestamp_ms=4),
        [Record(3, 4, CREATE_TIME, None, b"v")],
    )


@wrapped
def test_offsets_of_a_wrapper_are_absolute_in_v0_and_relative_to_the_last_in_v1(magic: int, codec: int) -> None:
    offsets = [100, 101, 102, 103]
    stored = offsets if magic == 0 else [0, 1, 2, 3]
    data = write_wrapper(entries(magic=magic, offsets=stored), magic=magic, codec=codec, offset=103, timestamp_ms=1003)
    check(data, expected(offsets=offsets, magic=magic))
    header = _core.read_header(data, position=0)
    assert (header.base_offset, header.last_offset, header.record_count, header.has_base_offset) == (
        103,
        103,
        None,
        False,
    )
    assert records_of(data).first_offset == 100


@wrapped
def test_gaps_that_compaction_left_stay(magic: int, codec: int) -> None:
    offsets = [100, 105, 106, 120]
    stored = offsets if magic == 0 else [0, 5, 6, 20]
    data = write_wrapper(entries(magic=magic, offsets=stored), magic=magic, codec=codec, offset=120)
    check(data, expected(offsets=offsets, magic=magic))


def test_wrapper_offset_0_leaves_relative_offsets_as_they_are() -> None:
    data = write_wrapper(entries(magic=1, offsets=[0, 1, 2]), magic=1, codec=codecs.GZIP, offset=0)
    check(data, expected(offsets=[0, 1, 2], magic=1))


def test_append_time_of_a_wrapper_is_that_of_all_its_records() -> None:
    data = write_wrapper(
        entries(magic=1, offsets=[0, 1]), magic=1, codec=codecs.GZIP, offset=8, timestamp_ms=5, appended=True
    )
    check(data, expected(offsets=[7, 8], magic=1, timestamp_type=LOG_APPEND_TIME, timestamp_ms=5))


@pytest.mark.parametrize(("outer", "inner"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("appended", [False, True])
def test_inner_messages_of_the_other_magic_are_read_as_kafka_reads_them(outer: int, inner: int, appended: bool) -> None:
    """V0 has no timestamp wherever it lies; V1 inside V0 keeps its own but gets the wrapper's type."""
    stored = [0, 1] if outer else [4, 5]
    messages = entries(magic=inner, offsets=stored)
    data = write_wrapper(messages, magic=outer, codec=codecs.GZIP, offset=5, timestamp_ms=77, appended=appended)
    stamps = [1000, 1001] if inner else [-1, -1]
    check(
        data,
        [
            r._replace(timestamp_ms=s, timestamp_type=-1)
            for r, s in zip(expected(offsets=[4, 5], magic=1), stamps, strict=True)
        ],
    )


def test_timestamp_type_may_change_inside_a_wrapper_and_each_row_knows_its_own() -> None:
    messages = [entries(magic=magic, offsets=[n])[0] for n, magic in enumerate((1, 0, 0, 1))]
    data = write_wrapper(messages, magic=1, codec=codecs.LZ4, offset=3)
    table = decode_table(data)
    assert [line["timestamp_type"] for line in table.batches] == [0, -1, -1, 0]
    assert [row.timestamp_us for row in table.rows] == [1_000_000, None, None, 1_000_000]


@pytest.mark.parametrize("cut", [1, 11, 12, 13, 30])
def test_incomplete_inner_tail_is_left_out_and_counted(cut: int) -> None:
    whole = entries(magic=1, offsets=[0, 1])
    tail = packed_entry(b"w" * 30, None, offset=2, magic=1)[:cut]
    data = write_wrapper([*whole, tail], magic=1, codec=codecs.SNAPPY, offset=1)
    check(data, expected(offsets=[0, 1], magic=1))
    assert records_of(data).incomplete_bytes == cut


def records_of(data: bytes, **options: bool) -> _core.RecordIterator:
    return _core.iterate_records(data, position=0, decompress=decompress, max_decompressed_bytes=1 << 20, **options)


def gzip_wrapper(messages: list[bytes], *, magic: int = 1, offset: int = 5) -> bytes:
    return write_wrapper(messages, magic=magic, codec=codecs.GZIP, offset=offset)


def resized(entry: bytes, size: int) -> bytes:
    """The entry with another size field, the message cut or filled up with zeros, its CRC right."""
    body = entry[16:].ljust(size - 4, b"\0")[: max(size - 4, 0)]
    return entry[:8] + struct.pack(">iI", size, zlib.crc32(body)) + body


PLAIN = packed_entry(b"value", b"key", offset=5, magic=1, timestamp_ms=1)
PLAIN_V0 = packed_entry(b"value", b"key", offset=5, magic=0)


def with_size_at(entry: bytes, at: int, size: int) -> bytes:
    changed = entry[:at] + struct.pack(">i", size) + entry[at + 4 :]
    return changed[:12] + struct.pack(">I", zlib.crc32(changed[16:])) + changed[16:]


NESTED = gzip_wrapper([gzip_wrapper(entries(magic=1, offsets=[0]), offset=0)])
BAD_CRC_INSIDE = entries(magic=1, offsets=[0, 1])
BAD_CRC_INSIDE[1] = BAD_CRC_INSIDE[1][:12] + b"XCRC" + BAD_CRC_INSIDE[1][16:]
REFUSED = {
    "wrong CRC": (PLAIN[:-1] + b"x", "CorruptRecordError"),
    "size 13": (PLAIN[:8] + struct.pack(">i", 13) + PLAIN[12:], "CorruptRecordError"),
    "V1 of size 14": (resized(PLAIN, 14), "CorruptRecordError"),
    "V1 of size 21": (resized(PLAIN, 21), "CorruptRecordError"),
    "negative size": (PLAIN[:8] + b"\xff" * 4 + PLAIN[12:], "CorruptRecordError"),
    "negative offset": (b"\xff" * 8 + PLAIN[8:], "CorruptRecordError"),
    "V1 key size -2": (with_size_at(PLAIN, 26, -2), "InvalidRecordError"),
    "V1 key size beyond": (with_size_at(PLAIN, 26, 9), "InvalidRecordError"),
    "V0 key size 2^31 - 1": (with_size_at(PLAIN_V0, 18, 2**31 - 1), "InvalidRecordError"),
    "V1 value size -2": (with_size_at(PLAIN, 33, -2), "InvalidRecordError"),
    "V1 value size beyond": (with_size_at(PLAIN, 33, 6), "InvalidRecordError"),
    "V1 value size short of the end": (with_size_at(PLAIN, 33, 4), "InvalidRecordError"),
    "V1 null value with bytes behind": (with_size_at(PLAIN, 33, -1), "InvalidRecordError"),
    "zstd": (packed_entry(b"v", None, offset=5, magic=1, attributes=4), "InvalidRecordError"),
    "zstd in V0": (packed_entry(b"v", None, offset=5, magic=0, attributes=4), "InvalidRecordError"),
    "codec 5": (packed_entry(b"v", None, offset=5, magic=1, attributes=5), "UnsupportedCompressionTypeError"),
    "wrapper without a value": (packed_entry(None, None, offset=5, magic=1, attributes=1), "InvalidRecordError"),
    "wrapper of no bytes": (packed_entry(b"", None, offset=5, magic=0, attributes=1), "DecompressionError"),
    "wrapper of no messages": (gzip_wrapper([]), "InvalidRecordError"),
    "wrapper of half a message": (gzip_wrapper([PLAIN[:20]]), "InvalidRecordError"),
    "wrapper of garbage": (
        packed_entry(b"gar\0age" + bytes(20), None, offset=5, magic=1, attributes=1),
        "DecompressionError",
    ),
    "wrapper inside a wrapper": (NESTED, "InvalidRecordError"),
    "inner size 13": (gzip_wrapper([PLAIN[:8] + struct.pack(">i", 13) + PLAIN[12:]]), "CorruptRecordError"),
    "inner V1 of size 21": (gzip_wrapper([resized(PLAIN, 21), PLAIN]), "CorruptRecordError"),
    "inner negative size": (gzip_wrapper([PLAIN[:8] + b"\xff" * 4 + PLAIN[12:]]), "CorruptRecordError"),
    "inner magic 2": (gzip_wrapper([builders.batch(0)]), "InvalidRecordError"),
    "inner wrong CRC": (gzip_wrapper(BAD_CRC_INSIDE), "CorruptRecordError"),
    "wrapper offset below the last inner one": (
        gzip_wrapper(entries(magic=1, offsets=[0, 6]), offset=5),
        "InvalidRecordError",
    ),
    "V0 inner offset above the wrapper's": (
        gzip_wrapper(entries(magic=0, offsets=[4, 6]), magic=0, offset=5),
        "InvalidRecordError",
    ),
    "inner offsets equal": (gzip_wrapper(entries(magic=1, offsets=[1, 1])), "InvalidRecordError"),
    "inner offsets fall": (gzip_wrapper(entries(magic=0, offsets=[5, 4]), magic=0), "InvalidRecordError"),
    "inner offset below 0": (gzip_wrapper(entries(magic=1, offsets=[-9, 0])), "CorruptRecordError"),
}


@pytest.mark.parametrize(("data", "error"), REFUSED.values(), ids=REFUSED)
def test_what_the_format_forbids_is_refused_with_its_class_and_place(data: bytes, error: str) -> None:
    check_refused(data, error)


def test_first_record_of_a_wrapper_below_the_batch_before_is_refused_where_the_log_is_read() -> None:
    before = packed_entry(b"v", None, offset=4, magic=1)
    data = before + gzip_wrapper(entries(magic=1, offsets=[0, 1, 2]))
    assert column_verdict(data) == Refused("CorruptRecordError", len(before))


def test_order_and_inner_crcs_may_be_left_unchecked_as_kafka_does() -> None:
    disorder = gzip_wrapper(entries(magic=0, offsets=[0, 0, 0]), magic=0, offset=0)
    assert [record.offset for record in records_of(disorder, checks_offsets=False)] == [0, 0, 0]
    assert len(list(records_of(gzip_wrapper(BAD_CRC_INSIDE), verify_crc=False))) == 2


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, *CODECS.values()], ids=["none", *CODECS])
def test_every_flipped_bit_is_refused_or_lies_in_the_offset(magic: int, codec: int) -> None:
    offsets = [5] if codec == codecs.NONE else [4, 5]
    messages = entries(magic=magic, offsets=offsets if magic == 0 or codec == codecs.NONE else [0, 1])
    data = messages[0] if codec == codecs.NONE else write_wrapper(messages, magic=magic, codec=codec, offset=5)
    for position, bit in product(range(8, len(data)), range(8)):
        damaged = bytearray(data)
        builders.flip_bit(damaged, position, bit=bit)
        for verdict in (core_batch_verdict(bytes(damaged)), column_verdict(bytes(damaged))):
            assert isinstance(verdict, Refused), (position, bit)
            assert verdict.position == 0
            assert verdict.error in ("CorruptRecordError", "UnsupportedMagicError"), (position, bit)


@pytest.mark.parametrize("chunk_bytes", [1, 26, 61, 100, 1 << 16])
@pytest.mark.parametrize("batch_bytes", [1, 50, 1000, 1 << 16])
def test_mixed_magics_in_one_file_give_one_sequence_of_rows(chunk_bytes: int, batch_bytes: int) -> None:
    parts = [
        packed_entry(b"plain", b"k", offset=0, magic=0),
        packed_entry(None, None, offset=1, magic=1, timestamp_ms=3),
        write_wrapper(entries(magic=0, offsets=[2, 3, 4]), magic=0, codec=codecs.LZ4, offset=4),
        builders.batch(5, 3),
        write_wrapper(entries(magic=1, offsets=[0, 1, 2, 3]), magic=1, codec=codecs.SNAPPY, offset=11),
        builders.batch(12, 2, codec=codecs.ZSTD),
        packed_entry(b"x" * 300, b"last", offset=14, magic=0),
    ]
    data = b"".join(parts)
    records = reference_messages.read_all(data)
    for mode in ("copy", "view", "string"):
        wanted = Wanted(key=mode, value=mode, chunk_bytes=chunk_bytes, batch_bytes=batch_bytes)
        table = decode_table(data, wanted)
        assert table.rows == expected_rows(records, wanted)
        assert [line["magic"] for line in table.batches] == [0, 1, 0, 0, 0, 2, 2, 2, 1, 1, 1, 1, 2, 2, 0]
    for first, last in product(range(16), range(16)):
        wanted = Wanted(start_offset=first, end_offset=last, batch_bytes=batch_bytes)
        assert decode_table(data, wanted).rows == expected_rows(records, wanted)


def test_long_columns_of_old_messages_grow() -> None:
    data = b"".join(packed_entry(b"\xff" * 9000, b"\xfe" * 9000, offset=n, magic=n % 2) for n in range(40))
    records = reference_messages.read_all(data)
    for mode in ("copy", "view", "string"):
        wanted = Wanted(key=mode, value=mode, batch_bytes=1 << 20)
        assert decode_table(data, wanted).rows == expected_rows(records, wanted)


def test_timestamp_beyond_microseconds_is_null_in_a_column_only() -> None:
    data = packed_entry(b"v", None, offset=0, magic=1, timestamp_ms=2**62)
    data += packed_entry(b"w", None, offset=1, magic=1, timestamp_ms=1)
    assert [row.timestamp_us for row in decode_table(data).rows] == [None, 1000]
    assert [as_reference(record).timestamp_ms for record in records_of(data[: len(data) // 2])] == [2**62]


def test_error_names_the_inner_message() -> None:
    with pytest.raises((CorruptionError, UnsupportedError), match=r"record 1 of the batch at position 0 of memory"):
        list(records_of(gzip_wrapper(BAD_CRC_INSIDE)))
