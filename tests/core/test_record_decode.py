"""Goal: the records of a batch come out exactly as written, and bytes that contradict themselves are refused.

Method: batches of the reference codec with one property each; hand-made record bytes with one wrong field each,
the CRC always right. The expected class is written out and the reference must agree.
"""

from __future__ import annotations

import inspect
import pickle

import pytest

from kstore import _core
from kstore.compression import decompress
from kstore.errors import CorruptRecordError, DecompressionError, InvalidRecordError, UnsupportedMagicError
from kstore.types import TimestampType, TopicPartition
from tests.making import batches as builders
from tests.making.batches import FIRST_TIMESTAMP_MS, record
from tests.making.collecting import over
from tests.making.messages import packed_entry
from tests.reference import codec as reference
from tests.reference import codecs as codecs
from tests.reference.codec import Header, encode_varint
from tests.reference.verdicts import Refused, as_reference, core_batch_verdict, reference_batch_verdict

LIMIT = 1 << 20
PARTITION = TopicPartition("t", 3)


def decode(data: bytes | bytearray, *, position: int = 0) -> list[_core.Record]:
    return list(
        _core.iterate_records(
            data,
            position=position,
            path="x.log",
            topic_partition=PARTITION,
            decompress=decompress,
            max_decompressed_bytes=LIMIT,
        )
    )


KEYS_AND_VALUES = {
    "both null": (None, None),
    "both empty": (b"", b""),
    "null key, empty value": (None, b""),
    "empty key, null value": (b"", None),
    "one byte each": (b"k", b"v"),
    "63 bytes, the last one-byte length": (b"k" * 63, b"v" * 63),
    "64 bytes, the first two-byte length": (b"k" * 64, b"v" * 64),
    "8191 and 8192 bytes": (b"k" * 8191, b"v" * 8192),
    "every byte value": (bytes(range(256)), bytes(reversed(range(256)))),
}


@pytest.mark.parametrize("codec", range(5), ids=codecs.CODEC_NAMES)
@pytest.mark.parametrize(("key", "value"), KEYS_AND_VALUES.values(), ids=KEYS_AND_VALUES)
def test_null_and_empty_stay_what_they_are(key: bytes | None, value: bytes | None, codec: int) -> None:
    written = [record(0, value, key), record(1, b"next", b"next")]
    read = decode(reference.write_batch(written, codec=codec))
    assert [(r.key, r.value) for r in read] == [(key, value), (b"next", b"next")]


HEADERS: dict[str, tuple[tuple[bytes, bytes | None], ...]] = {
    "none": (),
    "one": ((b"h", b"v"),),
    "null value": ((b"h", None),),
    "empty value": ((b"h", b""),),
    "empty key": ((b"", b"v"),),
    "empty key, null value": ((b"", None),),
    "the same key twice": ((b"h", b"1"), (b"h", b"2")),
    "not ASCII": (("Schlüssel €😀".encode(), b"v"),),
    "not UTF-8": ((b"\xff\xfe\x80abc", b"v"),),
    "a lone surrogate, encoded": ((b"\xed\xa0\x80", b"v"),),
    "NUL bytes": ((b"a\0b", b"\0"),),
    "seventy headers": tuple((b"h%d" % n, b"v%d" % n) for n in range(70)),
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
def test_headers_come_back_in_order_and_lossless(headers: tuple[tuple[bytes, bytes | None], ...]) -> None:
    [read] = decode(reference.write_batch([record(0, headers=headers)]))
    assert as_reference(read).headers == headers
    assert isinstance(read.headers, tuple)


def test_header_key_that_is_utf8_is_plain_text() -> None:
    [read] = decode(reference.write_batch([record(0, headers=[("é".encode(), b"v")])]))
    assert read.headers == (("é", b"v"),)


def test_offsets_count_from_the_base_with_gaps() -> None:
    written = [record(offset) for offset in (10**15, 10**15 + 1, 10**15 + 7, 10**15 + 2**31 - 2)]
    data = reference.write_batch(written, base_offset=10**15 - 1, last_offset=10**15 + 2**31 - 2)
    assert [r.offset for r in decode(data)] == [r.offset for r in written]


@pytest.mark.parametrize(
    "timestamps", [(5, 5), (-1, -1), (1000, 3), (0, 2**62), (2**63 - 1, 0), (3, -(2**63))], ids=str
)
def test_timestamps_count_from_the_base(timestamps: tuple[int, int]) -> None:
    written = [record(n, timestamp_ms=timestamp_ms) for n, timestamp_ms in enumerate(timestamps)]
    read = decode(reference.write_batch(written))
    assert [(r.timestamp_ms, r.timestamp_type) for r in read] == [(t, TimestampType.CREATE_TIME) for t in timestamps]


def test_timestamp_sum_wraps_like_an_int64() -> None:
    data = builders.patch_header(reference.write_batch([record(0, timestamp_ms=0), record(1, timestamp_ms=1)]))
    data = builders.patch_header(data, base_timestamp_ms=2**63 - 1)
    assert [r.timestamp_ms for r in decode(data)] == [2**63 - 1, -(2**63)]


def test_log_append_time_is_the_timestamp_of_every_record() -> None:
    read = decode(builders.batch(0, 3, log_append_time_ms=12345))
    assert [r.timestamp_ms for r in read] == [12345] * 3
    assert {r.timestamp_type for r in read} == {TimestampType.LOG_APPEND_TIME}


def test_delete_horizon_is_the_base_of_the_timestamps() -> None:
    read = decode(builders.batch(0, 3, delete_horizon_ms=FIRST_TIMESTAMP_MS + 10**9))
    assert [r.timestamp_ms for r in read] == [FIRST_TIMESTAMP_MS + n for n in range(3)]


@pytest.mark.parametrize(
    ("base_sequence", "expected"), [(-1, [-1, -1]), (0, [0, 1]), (2**31 - 1, [2**31 - 1, 0])], ids=str
)
def test_sequence_counts_on_from_the_base_and_wraps(base_sequence: int, expected: list[int]) -> None:
    read = decode(builders.batch(0, 2, producer_id=1, producer_epoch=0, base_sequence=base_sequence))
    assert [r.sequence for r in read] == expected


def test_control_records_are_marked() -> None:
    data = reference.write_end_transaction_marker(7, timestamp_ms=9, producer_id=1, producer_epoch=0, commit=True)
    [read] = decode(data)
    assert read.is_control
    assert read.key == b"\0\0\0\1"
    assert not decode(builders.batch(0))[0].is_control


def test_record_attributes_byte_is_ignored() -> None:
    written = builders.records(0, 2)
    assert core_batch_verdict(reference.write_batch(written, record_attributes=0xFF)) == written


@pytest.mark.parametrize("codec", range(5), ids=codecs.CODEC_NAMES)
def test_batch_emptied_by_compaction_has_no_records(codec: int) -> None:
    data = reference.write_empty_batch(50, last_offset=57, max_timestamp_ms=5, attributes=codec)
    assert decode(data) == []


def test_padded_varints_are_read() -> None:
    body = b"\0" + b"".join(encode_varint(value, size=5) for value in (0, 0, 1)) + b"k"
    body += encode_varint(1, size=4) + b"v" + encode_varint(0, size=3)
    data = reference.seal(Header(record_count=1), encode_varint(len(body), size=5) + body)
    assert [(r.key, r.value) for r in decode(data)] == [(b"k", b"v")]


def test_records_know_their_partition_and_are_values() -> None:
    [first] = decode(builders.batch(3))
    [second] = decode(builders.batch(3))
    assert first.topic_partition == PARTITION
    assert first == second
    assert hash(first) == hash(second)
    assert first != decode(builders.batch(4))[0]
    assert pickle.loads(pickle.dumps(first)) == first


@pytest.mark.parametrize("name", ["timestamp_type", "key", "value", "headers", "topic_partition"])
def test_object_of_a_record_is_read_without_a_call_and_never_set(name: str) -> None:
    [read] = decode(builders.batch(3))
    assert inspect.ismemberdescriptor(vars(_core.Record)[name])
    with pytest.raises(AttributeError):
        setattr(read, name, None)


def test_records_do_not_share_the_buffer() -> None:
    data = bytearray(builders.batch(3))
    [read] = decode(data)
    data[:] = bytes(len(data))
    assert (read.key, read.value) == (b"k3", b"v3")


# A well-formed record in parts, and one part at a time replaced. The parts: attributes, timestamp delta, offset
# delta, key length, key, value length, value, header count, headers.
PARTS = ("00", "00", "00", "02", "6b", "02", "76", "02", "02 68 02 78")
ATTRIBUTES, TIMESTAMP, OFFSET, KEY_SIZE, KEY, VALUE_SIZE, VALUE, HEADER_COUNT, HEADER = range(9)


def body(**parts: str) -> bytes:
    chosen = list(PARTS)
    for name, part in parts.items():
        chosen[globals()[name]] = part
    return bytes.fromhex("".join(chosen))


def sized(data: bytes, *, more: int = 0) -> bytes:
    return encode_varint(len(data) + more) + data


BAD_RECORDS = {
    "length -1": b"\x01" + body(),
    "length 0": b"\x00" + body(),
    "length one too large": sized(body(), more=1),
    "length one too small": sized(body(), more=-1),
    "length 2^31-1": encode_varint(2**31 - 1) + body(),
    "length -2^31": encode_varint(-(2**31)) + body(),
    "length of six bytes": b"\x9a\x80\x80\x80\x80\x00" + body(),
    "four bytes of a length": b"\x80" * 4,
    "timestamp delta of eleven bytes": sized(body(TIMESTAMP="80" * 10 + "00")),
    "timestamp delta cut off by the end of the record": sized(b"\0" + b"\x80" * 7),
    "offset delta of six bytes": sized(body(OFFSET="80" * 5 + "00")),
    "offset delta -1": sized(body(OFFSET="01")),
    "offset delta above the last": sized(body(OFFSET="02")),
    "offset delta 2^31-1": sized(body(OFFSET="feffffff0f")),
    "key length -2": sized(body(KEY_SIZE="03")),
    "key length -2^31": sized(body(KEY_SIZE="ffffffff0f")),
    "key length 2^31-1": sized(body(KEY_SIZE="feffffff0f")),
    "key length one past the record": sized(body()[:3] + encode_varint(len(body()) - 3) + body()[4:]),
    "key length swallows the value": sized(body(KEY_SIZE="04")),
    "value length -2": sized(body(VALUE_SIZE="03")),
    "value length -2^31": sized(body(VALUE_SIZE="ffffffff0f")),
    "value length 2^31-1": sized(body(VALUE_SIZE="feffffff0f")),
    "value length one past the record": sized(b"\0\0\0\x01\x0a" + b"v" * 4),
    "header count -1": sized(body(HEADER_COUNT="01", HEADER="")),
    "header count 2^31-1": sized(body(HEADER_COUNT="feffffff0f")),
    "header count -2^31": sized(body(HEADER_COUNT="ffffffff0f", HEADER="")),
    "header count 2 for one header": sized(body(HEADER_COUNT="04")),
    "header count 0 for one header": sized(body(HEADER_COUNT="00")),
    "header count missing": sized(body()[:7]),
    "header key length -1": sized(body(HEADER="01 02 78")),
    "header key length -2^31": sized(body(HEADER="ffffffff0f 02 78")),
    "header key length past the record": sized(body(HEADER="08 68 02 78")),
    "header key length 2^31-1": sized(body(HEADER="feffffff0f 02 78")),
    "header value length -2": sized(body(HEADER="02 68 03")),
    "header value length past the record": sized(body(HEADER="02 68 04 78")),
    "header value length 2^31-1": sized(body(HEADER="02 68 feffffff0f")),
    "header value missing": sized(body(HEADER="02 68")),
    "bytes left in the record": sized(body() + b"\0"),
    "attributes alone": sized(b"\0") + bytes(6),
    "bytes left after the record": sized(body()) + b"\0",
    "a whole record too many": sized(body()) + sized(body(OFFSET="02")),
    "no record at all": b"",
    "fewer bytes than the smallest record": sized(bytes(5)),
}


@pytest.mark.parametrize("codec", range(5), ids=codecs.CODEC_NAMES)
@over("name", list(BAD_RECORDS), by=lambda _: "records")
def test_record_that_contradicts_itself_is_invalid(name: str, codec: int) -> None:
    records = BAD_RECORDS[name]
    data = reference.seal(Header(attributes=codec, record_count=1), codecs.compress(codec, records))
    expected = Refused("InvalidRecordError", 4096)
    assert reference_batch_verdict(data, position=4096) == expected
    assert core_batch_verdict(data, position=4096) == expected


def test_unchanged_parts_are_a_good_record() -> None:
    data = reference.seal(Header(record_count=1), sized(body()))
    [read] = decode(data)
    assert (read.key, read.value, read.headers) == (b"k", b"v", (("h", b"x"),))


TWO = sized(body()) + sized(body(OFFSET="02"))
BAD_HEADERS = {
    "count -1": ({"record_count": -1}, "InvalidRecordError"),
    "count -2^31": ({"record_count": -(2**31)}, "InvalidRecordError"),
    "count 0 with bytes": ({"record_count": 0}, "InvalidRecordError"),
    "count one less": ({"record_count": 1}, "InvalidRecordError"),
    "count one more": ({"record_count": 3, "last_offset_delta": 2}, "InvalidRecordError"),
    "count 2^31-1": ({"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 1}, "InvalidRecordError"),
    "last offset delta below count - 1": ({"last_offset_delta": 0}, "InvalidRecordError"),
    "last offset delta -1": ({"last_offset_delta": -1}, "InvalidRecordError"),
    "last offset delta -2^31": ({"last_offset_delta": -(2**31)}, "InvalidRecordError"),
    "base offset -1": ({"base_offset": -1}, "CorruptRecordError"),
    "base offset 2^63-1": ({"base_offset": 2**63 - 1}, "CorruptRecordError"),
    "last offset 2^63-1": ({"base_offset": 2**63 - 2}, "CorruptRecordError"),
    "codec 5": ({"attributes": 5}, "UnsupportedCompressionTypeError"),
    "codec 6": ({"attributes": 6}, "UnsupportedCompressionTypeError"),
    "codec 7": ({"attributes": 7}, "UnsupportedCompressionTypeError"),
    "codec gzip on plain bytes": ({"attributes": codecs.GZIP}, "DecompressionError"),
    "codec snappy on plain bytes": ({"attributes": codecs.SNAPPY}, "DecompressionError"),
    "codec lz4 on plain bytes": ({"attributes": codecs.LZ4}, "DecompressionError"),
    "codec zstd on plain bytes": ({"attributes": codecs.ZSTD}, "DecompressionError"),
}


@pytest.mark.parametrize(("fields", "error"), BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_header_that_contradicts_the_records_is_refused(fields: dict[str, int], error: str) -> None:
    whole = reference.seal(Header(last_offset_delta=1, record_count=2), TWO)
    data = builders.with_fields(whole, fields)
    assert reference_batch_verdict(data, position=4096) == Refused(error, 4096)
    assert core_batch_verdict(data, position=4096) == Refused(error, 4096)


BAD_DELTAS = {"equal": (0, 0), "falling": (1, 0), "above the last": (0, 2), "first negative": (-1, 1)}


@pytest.mark.parametrize("deltas", BAD_DELTAS.values(), ids=BAD_DELTAS)
def test_offset_deltas_must_rise_inside_the_batch(deltas: tuple[int, int]) -> None:
    records = b"".join(sized(body(OFFSET=encode_varint(delta).hex())) for delta in deltas)
    data = reference.seal(Header(last_offset_delta=1, record_count=2), records)
    assert core_batch_verdict(data) == reference_batch_verdict(data) == Refused("InvalidRecordError", 0)


def test_last_record_is_not_returned_when_bytes_follow_it() -> None:
    data = reference.seal(Header(last_offset_delta=1, record_count=2), TWO + b"\0")
    records = _core.iterate_records(data, position=0, decompress=decompress, max_decompressed_bytes=LIMIT)
    assert next(records).offset == 0
    with pytest.raises(InvalidRecordError):
        next(records)


@pytest.mark.parametrize("data", [builders.batch(0)[:-1], builders.batch(0) + b"\0"], ids=["short", "long"])
def test_buffer_must_be_exactly_one_batch(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode(data)


def test_error_tells_place_record_and_numbers() -> None:
    records = sized(body()) + sized(body(OFFSET="02", KEY_SIZE="feffffff0f"))
    data = reference.seal(Header(base_offset=900, last_offset_delta=1, record_count=2), records)
    with pytest.raises(InvalidRecordError) as caught:
        decode(data, position=4096)
    error = caught.value
    assert (error.position, error.base_offset, error.path) == (4096, 900, "x.log")
    assert error.found == 2**31 - 1
    for part in ("record 1", "4096", "900", "x.log", str(2**31 - 1)):
        assert part in str(error)


def search(data: bytes, *, timestamp_ms: int = FIRST_TIMESTAMP_MS, start_offset: int = 0) -> tuple[int, int] | None:
    return _core.search_timestamp_in_batch(
        data, position=4096, path="x.log", timestamp_ms=timestamp_ms, start_offset=start_offset
    )


SEARCHED = builders.batch(5, 3)
UNSEARCHABLE: dict[str, tuple[bytes, type[Exception], str]] = {
    "no bytes": (b"", CorruptRecordError, "batch runs past the end: expected 61 bytes, found 0"),
    "less than a header": (SEARCHED[:60], CorruptRecordError, "batch runs past the end: expected 61 bytes, found 60"),
    "a byte short": (
        SEARCHED[:-1],
        CorruptRecordError,
        f"batch runs past the end: expected {len(SEARCHED)} bytes, found {len(SEARCHED) - 1}",
    ),
    "size of less than a header": (
        builders.patch_header(SEARCHED[:61], repair_crc=False, batch_length=48),
        CorruptRecordError,
        "batch smaller than its header: expected at least 61 bytes, found 60",
    ),
    "size above int32": (
        builders.patch_header(SEARCHED, repair_crc=False, batch_length=2**31 - 1),
        CorruptRecordError,
        f"batch larger than the limit: expected at most {2**31 - 1} bytes, found {2**31 + 11}",
    ),
    # The CRC covers neither the magic nor the base offset.
    "magic 3": (
        builders.patch_header(SEARCHED, magic=3),
        UnsupportedMagicError,
        "unsupported magic: expected 0 to 2, found 3",
    ),
    "magic -1": (
        builders.patch_header(SEARCHED, magic=-1),
        UnsupportedMagicError,
        "unsupported magic: expected 0 to 2, found -1",
    ),
    "negative base offset": (
        builders.patch_header(SEARCHED, base_offset=-1),
        CorruptRecordError,
        "base offset out of range: expected at least 0, found -1",
    ),
    "record count": (
        builders.patch_header(SEARCHED, record_count=4),
        InvalidRecordError,
        "record count does not fit: expected from 0 to 3, found 4",
    ),
}


@pytest.mark.parametrize(("data", "error", "reason"), UNSEARCHABLE.values(), ids=UNSEARCHABLE)
def test_batch_that_is_searched_by_time_is_checked_whole(data: bytes, error: type[Exception], reason: str) -> None:
    with pytest.raises(error) as caught:
        search(data)
    assert (type(caught.value), caught.value.reason) == (error, reason)
    assert (caught.value.position, caught.value.path) == (4096, "x.log")


def test_wrong_crc_of_a_batch_that_is_searched_by_time_is_told() -> None:
    damaged = bytearray(SEARCHED)
    builders.flip_bit(damaged, len(damaged) - 1, bit=0)
    with pytest.raises(CorruptRecordError, match="CRC mismatch") as caught:
        search(damaged)
    assert (caught.value.position, caught.value.base_offset) == (4096, 5)


def test_search_by_time_gives_the_first_record_at_or_after_both_bounds() -> None:
    first = FIRST_TIMESTAMP_MS + 5
    assert search(SEARCHED, timestamp_ms=first) == (5, first)
    assert search(SEARCHED, timestamp_ms=first + 1) == (6, first + 1)
    assert search(SEARCHED, timestamp_ms=0, start_offset=7) == (7, first + 2)
    assert search(SEARCHED, timestamp_ms=first + 3) is None
    for other in (builders.batch(0, codec=1), packed_entry(b"v" * 40, None, offset=0, magic=1)):
        with pytest.raises(ValueError, match="magic must be 2 without codec"):
            search(other)


@pytest.mark.parametrize("codec", range(1, 5), ids=codecs.CODEC_NAMES[1:])
def test_content_up_to_the_limit_is_read_and_one_byte_more_is_not(codec: int) -> None:
    header = Header(attributes=codec, record_count=1)
    value = bytes(100_000)
    records = sized(b"\0\0\0\x01" + encode_varint(len(value)) + value + b"\0")
    data = reference.seal(header, codecs.compress(codec, records))
    assert core_batch_verdict(data, limit=len(records)) == reference_batch_verdict(data)
    assert core_batch_verdict(data, limit=len(records) - 1) == Refused("DecompressionError", 0)


def test_decompression_error_carries_the_place_of_the_batch() -> None:
    data = reference.seal(Header(base_offset=5, attributes=codecs.LZ4, record_count=1), b"not a frame at all")
    with pytest.raises(DecompressionError) as caught:
        list(
            _core.iterate_records(data, position=77, path="x.log", decompress=decompress, max_decompressed_bytes=LIMIT)
        )
    assert (caught.value.position, caught.value.base_offset, caught.value.path) == (77, 5, "x.log")
