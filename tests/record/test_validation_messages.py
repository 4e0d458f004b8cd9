"""Goal: messages and wrappers of V0 and V1 are validated, given offsets and converted as Kafka's leader does it.
Method: messages and wrappers by the oracle; results compared byte by byte, or read back by the reference codec."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from kstore.compression import CompressionType
from kstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordErrorReason,
    RecordValidationError,
    UnexpectedAppendOffsetError,
    UnsupportedForMessageFormatError,
)
from kstore.record import MemoryRecords, RecordRules, ValidationResult, validate_and_assign_offsets, validate_replicated
from kstore.types import TimestampType
from tests.making.batches import FIRST_TIMESTAMP_MS, batch, record, set_byte
from tests.making.collecting import over
from tests.making.messages import packed_entry
from tests.reference import codecs as codecs
from tests.reference import messages as reference_messages
from tests.reference.codec import Record, write_batch

NOW_MS = FIRST_TIMESTAMP_MS + 1000
BASE = 1000
CODECS = [CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]
WRAPPED = CODECS[1:]
TYPES = [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]
INVALID_RECORD, INVALID_TIMESTAMP = RecordErrorReason.INVALID_RECORD, RecordErrorReason.INVALID_TIMESTAMP


def validated(data: bytes, **rules: Any) -> ValidationResult:
    return validate_and_assign_offsets(
        MemoryRecords(data), rules=RecordRules(**rules), base_offset=BASE, now_ms=NOW_MS, partition_leader_epoch=7
    )


def message(item: Record, *, magic: int, offset: int, attributes: int = 0) -> bytes:
    fields = {"timestamp_ms": item.timestamp_ms, "attributes": attributes} if magic else {}
    return packed_entry(item.value, item.key, offset=offset, magic=magic, **fields)


def messages(items: Sequence[Record], *, magic: int, offsets: Sequence[int], attributes: int = 0) -> bytes:
    return b"".join(
        message(item, magic=magic, offset=offset, attributes=attributes)
        for item, offset in zip(items, offsets, strict=True)
    )


def wrapper(
    content: bytes, *, magic: int, codec: int, offset: int, timestamp_ms: int = -1, attributes: int = 0
) -> bytes:
    fields = {"timestamp_ms": timestamp_ms} if magic else {}
    payload = codecs.compress(codec, content)
    return packed_entry(payload, None, offset=offset, magic=magic, attributes=codec | attributes, **fields)


def sent(items: Sequence[Record], *, magic: int, codec: int) -> bytes:
    """As a producer sends records: numbered from 0."""
    if magic == 2:
        return write_batch([item._replace(offset=n) for n, item in enumerate(items)], codec=codec)
    content = messages(items, magic=magic, offsets=range(len(items)))
    if codec == CompressionType.NONE:
        return content
    latest = max(item.timestamp_ms for item in items)
    return wrapper(content, magic=magic, codec=codec, offset=len(items) - 1, timestamp_ms=latest)


ITEMS = [
    record(0, b"a", b"k"),
    record(0, b"b", b"n", timestamp_ms=FIRST_TIMESTAMP_MS + 9),
    record(0, None, b"x"),
    record(0, b"", b""),
]
OFFSETS = range(BASE, BASE + len(ITEMS))


# In place


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_get_offsets_and_keep_the_rest(magic: int) -> None:
    result = validated(sent(ITEMS, magic=magic, codec=0), magic=magic)
    assert bytes(result.records) == messages(ITEMS, magic=magic, offsets=OFFSETS)
    assert result[1:] == ((FIRST_TIMESTAMP_MS + 9, BASE + 1) if magic else (-1, -1), BASE + 4, False, 0)


def test_plain_messages_get_the_append_time() -> None:
    result = validated(sent(ITEMS, magic=1, codec=0), magic=1, timestamp_type=TimestampType.LOG_APPEND_TIME)
    stamped = [item._replace(timestamp_ms=NOW_MS) for item in ITEMS]
    assert bytes(result.records) == messages(stamped, magic=1, offsets=OFFSETS, attributes=8)
    assert result[1:] == ((NOW_MS, BASE), BASE + 4, False, 0)


@pytest.mark.parametrize("codec", WRAPPED, ids=lambda codec: codec.label)
@pytest.mark.parametrize("wrapper_timestamp_ms", [-1, FIRST_TIMESTAMP_MS + 9], ids=["no-timestamp", "latest"])
def test_wrapper_of_v1_gets_the_last_offset_and_the_latest_timestamp(
    codec: CompressionType, wrapper_timestamp_ms: int
) -> None:
    content = messages(ITEMS, magic=1, offsets=range(4))
    data = wrapper(content, magic=1, codec=codec, offset=3, timestamp_ms=wrapper_timestamp_ms)
    result = validated(data, magic=1)
    latest = FIRST_TIMESTAMP_MS + 9
    assert bytes(result.records) == wrapper(content, magic=1, codec=codec, offset=BASE + 3, timestamp_ms=latest)
    assert result[1:] == ((latest, BASE + 3), BASE + 4, False, 0)
    appended = validated(data, magic=1, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert bytes(appended.records) == wrapper(
        content, magic=1, codec=codec, offset=BASE + 3, timestamp_ms=NOW_MS, attributes=8
    )
    assert appended[1:] == ((NOW_MS, BASE + 3), BASE + 4, False, 0)


# Built anew


def expected_of(items: Sequence[Record], *, source: int, magic: int, kind: TimestampType) -> list[Record]:
    out = []
    for offset, item in zip(OFFSETS, items, strict=True):
        timestamp_ms = -1 if source == 0 or magic == 0 else item.timestamp_ms
        timestamp_type = -1 if magic == 0 else int(kind)
        if magic and kind == TimestampType.LOG_APPEND_TIME:
            timestamp_ms = NOW_MS
        out.append(item._replace(offset=offset, timestamp_ms=timestamp_ms, timestamp_type=timestamp_type))
    return out


CONVERSIONS = [
    (source, magic, codec, target, kind)
    for source, magic in itertools.product((0, 1, 2), repeat=2)
    for codec in CODECS
    for target in CODECS
    for kind in TYPES
]


@over("source, magic, codec, target, kind", CONVERSIONS, by=lambda case: f"{case[0]} to {case[1]}")
def test_records_of_any_format_become_those_of_the_topics(
    source: int, magic: int, codec: CompressionType, target: CompressionType, kind: TimestampType
) -> None:
    data = sent(ITEMS, magic=source, codec=codec)
    result = validated(data, magic=magic, compression=target, timestamp_type=kind)
    expected = expected_of(ITEMS, source=source, magic=magic, kind=kind)
    assert reference_messages.read_all(bytes(result.records)) == expected
    stays = (source, codec) == (magic, target) and (magic > 0 or codec == CompressionType.NONE)
    assert (result.is_rebuilt, result.converted_record_count) == (not stays, 0 if source == magic else 4)
    assert result.next_offset == BASE + 4
    latest = max(item.timestamp_ms for item in expected)
    assert result.info.max_timestamp_ms == latest
    is_alone = magic == 2 or target != CompressionType.NONE
    assert len(list(result.records.batches())) == (1 if is_alone else 4)
    if latest == -1:
        assert result.info.shallow_offset_of_max_timestamp == -1
    elif is_alone:
        assert result.info.shallow_offset_of_max_timestamp == BASE + 3
    else:
        first = next(item.offset for item in expected if item.timestamp_ms == latest)
        assert result.info.shallow_offset_of_max_timestamp == first


@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        pytest.param((0, 0, 0, 0), 0, id="all-zero"),
        pytest.param((0, 0, 0, 0), 3, id="all-zero-in-a-counted-wrapper"),
        pytest.param((1, 2, 3, 4), 4, id="from-1"),
        pytest.param((0, 2, 4, 9), 9, id="gaps"),
        pytest.param((3, 2, 1, 0), 3, id="backwards"),
        pytest.param((70, 71, 72, 73), 73, id="absolute"),
    ],
)
@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_with_other_offsets_than_its_own_is_built_anew(inner: tuple[int, ...], outer: int, magic: int) -> None:
    """As some old clients send them."""
    content = messages(ITEMS, magic=magic, offsets=inner)
    result = validated(wrapper(content, magic=magic, codec=1, offset=outer), magic=magic)
    expected = expected_of(ITEMS, source=magic, magic=magic, kind=TimestampType.CREATE_TIME)
    assert reference_messages.read_all(bytes(result.records)) == expected
    assert result.is_rebuilt


def test_headers_do_not_fit_an_old_format() -> None:
    headed = [record(n, b"v", b"k", headers=[(b"h", b"x")] if n == 3 else ()) for n in range(4)]
    for magic in (0, 1):
        with pytest.raises(UnsupportedForMessageFormatError, match=f"record 3 has headers.*magic {magic}"):
            validated(write_batch(headed), magic=magic)


# Refused


def test_two_wrappers_are_not_appended_together() -> None:
    data = sent(ITEMS, magic=1, codec=1)
    with pytest.raises(InvalidRecordError, match="expected 1, found 2") as caught:
        validated(data + data, magic=1)
    assert caught.value.position == len(data)
    with pytest.raises(InvalidRecordError, match="expected 1, found 5"):
        validated(sent(ITEMS, magic=1, codec=0) + data, magic=1)


def test_messages_of_two_formats_are_not_appended_together() -> None:
    old, new = sent(ITEMS, magic=0, codec=0), sent(ITEMS, magic=1, codec=0)
    for data, place, expected, found in ((old + new, len(old), 0, 1), (new + old, len(new), 1, 0)):
        with pytest.raises(InvalidRecordError, match=f"magic: expected {expected}, found {found}") as caught:
            validated(data, magic=1)
        assert caught.value.position == place


def refusal_of(data: bytes, **rules: Any) -> tuple[type, list[tuple[int, RecordErrorReason]]]:
    with pytest.raises(RecordValidationError) as caught:
        validated(data, **rules)
    return type(caught.value), [(error.record_index, error.reason) for error in caught.value.errors]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
@pytest.mark.parametrize("magic", [0, 1])
def test_keyless_messages_are_counted_over_the_whole_append(codec: CompressionType, magic: int) -> None:
    items = [record(0, b"v", key) for key in (b"k", None, b"", None)]
    errors = refusal_of(sent(items, magic=magic, codec=codec), magic=magic, is_compacted=True)
    assert errors == (RecordValidationError, [(1, INVALID_RECORD), (3, INVALID_RECORD)])


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
def test_timestamps_out_of_bounds_are_counted_over_the_whole_append(codec: CompressionType) -> None:
    stamps = (NOW_MS - 11, NOW_MS - 10, -1, NOW_MS + 21)
    data = sent([record(0, b"v", None, timestamp_ms=stamp) for stamp in stamps], magic=1, codec=codec)
    errors = refusal_of(data, magic=1, timestamp_before_max_ms=10, timestamp_after_max_ms=20)
    assert errors == (InvalidTimestampError, [(0, INVALID_TIMESTAMP), (3, INVALID_TIMESTAMP)])
    assert validated(data, magic=0, timestamp_before_max_ms=50).next_offset == BASE + 4


@pytest.mark.parametrize("codec", [0, 1], ids=["plain", "wrapper"])
def test_append_time_from_a_producer_is_refused_where_the_topic_sets_it(codec: int) -> None:
    content = messages(ITEMS[:2], magic=1, offsets=range(2), attributes=8)
    data = wrapper(content, magic=1, codec=1, offset=1, timestamp_ms=5, attributes=8) if codec else content
    errors = refusal_of(data, magic=1, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert errors == (InvalidTimestampError, [(0, INVALID_TIMESTAMP), (1, INVALID_TIMESTAMP)])
    assert validated(data, magic=1).next_offset == BASE + 2


def test_inner_message_of_another_format_is_refused_before_its_key_is_looked_at() -> None:
    content = message(record(0, b"a", b"k"), magic=1, offset=0) + message(record(0, b"b"), magic=0, offset=1)
    content += message(record(0, b"c"), magic=1, offset=2)
    data = wrapper(content, magic=1, codec=1, offset=2)
    with pytest.raises(RecordValidationError, match="record 1: expected magic 1, as its wrapper has, found 0"):
        validated(data, magic=1)
    errors = refusal_of(data, magic=1, is_compacted=True)
    assert errors == (RecordValidationError, [(1, INVALID_RECORD), (2, INVALID_RECORD)])


def test_damaged_inner_message_is_corrupt() -> None:
    content = bytearray(messages(ITEMS, magic=1, offsets=range(4)))
    set_byte(content, len(content) - 10, value=content[-10] ^ 1)
    for magic in (0, 1, 2):
        with pytest.raises(CorruptRecordError, match="CRC mismatch"):
            validated(wrapper(bytes(content), magic=1, codec=1, offset=3), magic=magic)


def test_size_inside_an_inner_message_is_believed_only_behind_its_crc() -> None:
    content = bytearray(message(ITEMS[0], magic=1, offset=0))
    set_byte(content, 26, value=1)
    with pytest.raises(CorruptRecordError, match="CRC mismatch"):
        validated(wrapper(bytes(content), magic=1, codec=1, offset=0), magic=1)


def test_wrapper_behind_another_message_is_refused_without_a_look_inside() -> None:
    data = message(ITEMS[0], magic=1, offset=0) + packed_entry(b"no gzip", None, offset=5, magic=1, attributes=1)
    with pytest.raises(InvalidRecordError, match=r"in one append: expected 1, found 2 .*base offset 5") as caught:
        validated(data, magic=1)
    assert caught.value.base_offset == 5


def test_damaged_plain_message_is_corrupt() -> None:
    data = bytearray(sent(ITEMS, magic=1, codec=0))
    set_byte(data, len(data) - 1, value=1)
    with pytest.raises(CorruptRecordError, match="CRC mismatch"):
        validated(bytes(data), magic=1)


NESTED = wrapper(message(ITEMS[0], magic=1, offset=0), magic=1, codec=1, offset=0)
BAD_WRAPPERS = [
    pytest.param(wrapper(NESTED, magic=1, codec=1, offset=0), id="nested"),
    pytest.param(wrapper(b"", magic=1, codec=1, offset=0), id="empty"),
    pytest.param(packed_entry(None, None, offset=0, magic=1, attributes=1), id="null"),
    pytest.param(packed_entry(b"v", None, offset=0, magic=1, attributes=4), id="zstd"),
    pytest.param(packed_entry(b"v", None, offset=0, magic=1, attributes=1), id="no-gzip"),
    pytest.param(
        wrapper(messages(ITEMS, magic=1, offsets=range(5, 9)), magic=1, codec=1, offset=3), id="offset-too-low"
    ),
]


@pytest.mark.parametrize("data", BAD_WRAPPERS)
def test_bad_wrapper_is_invalid(data: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        validated(data, magic=1, compression=CompressionType.GZIP)


# Followers


def test_follower_takes_messages_and_batches_in_turn() -> None:
    data = messages(ITEMS, magic=0, offsets=range(100, 104))
    data += wrapper(messages(ITEMS, magic=1, offsets=range(4)), magic=1, codec=1, offset=110, timestamp_ms=7)
    data += batch(111, 2)
    result = validate_replicated(MemoryRecords(data), log_end_offset=100)
    assert (bytes(result.records), result.next_offset) == (data, 113)
    assert result.info == (FIRST_TIMESTAMP_MS + 112, 112)


def test_wrapper_is_known_by_its_last_offset() -> None:
    data = wrapper(messages(ITEMS, magic=1, offsets=range(4)), magic=1, codec=1, offset=110)
    assert validate_replicated(MemoryRecords(data), log_end_offset=110).next_offset == 111
    with pytest.raises(UnexpectedAppendOffsetError, match="expected more than 110, found 110"):
        validate_replicated(MemoryRecords(data), log_end_offset=111)
