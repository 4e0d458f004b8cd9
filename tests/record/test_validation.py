"""Goal: a leader refuses what Kafka's refuses, in its order, and sets offsets and timestamps as Kafka does.
Method: a table of refused appends; accepted ones compared byte by byte with batches of the reference codec."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from kstore.compression import CompressionType
from kstore.errors import (
    CorruptionError,
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetError,
    OffsetsOutOfOrderError,
    RecordErrorReason,
    RecordValidationError,
    UnexpectedAppendOffsetError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from kstore.record import MemoryRecords
from kstore.record.validation import (
    MOST_RECORD_ERRORS,
    AppendOrigin,
    RecordRules,
    ValidationResult,
    validate_and_assign_offsets,
    validate_replicated,
)
from kstore.types import TimestampType
from tests.making.batches import FIRST_TIMESTAMP_MS, batch, batches, patch_header, record, set_byte
from tests.reference import codec as reference
from tests.reference.codec import write_batch

NOW_MS = FIRST_TIMESTAMP_MS + 1000
BASE = 1000
EPOCH = 7
INVALID_RECORD, INVALID_TIMESTAMP = RecordErrorReason.INVALID_RECORD, RecordErrorReason.INVALID_TIMESTAMP
CODECS = list(CompressionType)


def validated(data: bytes, *, origin: AppendOrigin = AppendOrigin.CLIENT, **rules: Any) -> ValidationResult:
    return validate_and_assign_offsets(
        MemoryRecords(data),
        rules=RecordRules(**rules),
        base_offset=BASE,
        now_ms=NOW_MS,
        partition_leader_epoch=EPOCH,
        origin=origin,
    )


# In place


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
def test_batch_in_the_topics_format_gets_offsets_and_epoch_and_keeps_its_bytes(codec: CompressionType) -> None:
    result = validated(batch(0, 5, codec=codec))
    assert bytes(result.records) == patch_header(
        batch(0, 5, codec=codec), base_offset=BASE, partition_leader_epoch=EPOCH, repair_crc=False
    )
    assert result[1:] == ((FIRST_TIMESTAMP_MS + 4, BASE + 4), BASE + 5, False, 0)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
def test_append_time_changes_the_header_alone(codec: CompressionType) -> None:
    result = validated(batch(0, 5, codec=codec), timestamp_type=TimestampType.LOG_APPEND_TIME)
    expected = batch(0, 5, codec=codec, log_append_time_ms=NOW_MS, partition_leader_epoch=EPOCH)
    assert bytes(result.records) == patch_header(expected, base_offset=BASE)
    assert result[1:] == ((NOW_MS, BASE + 4), BASE + 5, False, 0)


def test_largest_timestamp_of_the_header_is_set_right() -> None:
    data = patch_header(batch(0, 5), max_timestamp_ms=5)
    result = validated(data)
    assert bytes(result.records) == batch_at_base(0, 5)
    assert result.info == (FIRST_TIMESTAMP_MS + 4, BASE + 4)


def batch_at_base(first: int, count: int, **options: Any) -> bytes:
    return patch_header(batch(first, count, partition_leader_epoch=EPOCH, **options), base_offset=BASE)


def test_incomplete_batch_at_the_end_is_left_out() -> None:
    for codec in CODECS:
        data = batch(0, 5, codec=codec)
        assert bytes(validated(data + batch(5, 2)[:-1]).records) == bytes(validated(data).records)


def test_given_bytes_stay_as_they_are() -> None:
    data = bytearray(batch(0, 5))
    result = validate_and_assign_offsets(
        MemoryRecords(data),
        rules=RecordRules(timestamp_type=TimestampType.LOG_APPEND_TIME),
        base_offset=BASE,
        now_ms=NOW_MS,
    )
    assert data == batch(0, 5)
    data[:] = bytes(len(data))
    assert next(iter(result.records)).offset == BASE


def test_records_without_a_timestamp_leave_the_batch_without_one() -> None:
    data = write_batch([record(n, b"v", timestamp_ms=-1) for n in range(3)])
    result = validated(data, timestamp_before_max_ms=0, timestamp_after_max_ms=0)
    assert result.info == (-1, -1)
    assert [found.timestamp_ms for found in result.records] == [-1, -1, -1]


def test_producer_state_stays() -> None:
    data = batch(0, 5, producer_id=9, producer_epoch=2, base_sequence=2**31 - 3, is_transactional=True)
    (found,) = validated(data).records.batches()
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.is_transactional) == (
        9,
        2,
        2**31 - 3,
        True,
    )
    assert [item.sequence for item in found] == [2**31 - 3, 2**31 - 2, 2**31 - 1, 0, 1]


def test_producer_state_stays_in_a_batch_that_is_built_anew() -> None:
    data = batch(0, 5, producer_id=9, producer_epoch=2, base_sequence=2**31 - 3, is_transactional=True)
    result = validated(data, compression=CompressionType.LZ4)
    (found,) = result.records.batches()
    assert result.is_rebuilt
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (9, 2, 2**31 - 3)
    assert found.is_transactional


# Built anew


@pytest.mark.parametrize("source", CODECS, ids=lambda codec: codec.label)
@pytest.mark.parametrize("target", CODECS, ids=lambda codec: f"to-{codec.label}")
@pytest.mark.parametrize("append_time", [False, True], ids=["create-time", "append-time"])
def test_codec_of_the_topic_is_that_of_the_result(
    source: CompressionType, target: CompressionType, append_time: bool
) -> None:
    kind = TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
    options = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 0, "is_transactional": True}
    result = validated(batch(0, 9, codec=source, **options), compression=target, timestamp_type=kind)
    assert result.is_rebuilt == (source != target)
    (found,) = result.records.batches()
    assert (found.compression, found.timestamp_type, found.partition_leader_epoch) == (target, kind, EPOCH)
    expected = reference.read_records(
        patch_header(
            batch(0, 9, **options, **({"log_append_time_ms": NOW_MS} if append_time else {})), base_offset=BASE
        )
    )
    assert reference.read_records(bytes(result.records)) == expected
    assert result.info == (NOW_MS if append_time else FIRST_TIMESTAMP_MS + 8, BASE + 8)
    assert (result.next_offset, result.converted_record_count) == (BASE + 9, 0)


def test_difference_of_level_alone_compresses_nothing_anew() -> None:
    data = batch(0, 9, codec=CompressionType.GZIP)
    assert not validated(data, compression=CompressionType.GZIP, level=9).is_rebuilt


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
def test_offsets_with_gaps_are_closed(codec: CompressionType) -> None:
    """Not from a client, whose record count has to match."""
    data = write_batch([record(n, b"v%d" % n) for n in (0, 2, 5)], codec=codec)
    result = validated(data, origin=AppendOrigin.COORDINATOR)
    assert result.is_rebuilt
    assert [(found.offset, found.value) for found in result.records] == [(1000, b"v0"), (1001, b"v2"), (1002, b"v5")]
    assert result.next_offset == BASE + 3


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
def test_offsets_that_a_batch_spans_behind_its_last_record_are_closed(codec: CompressionType) -> None:
    """As a cleaner leaves a batch; kept, it would begin below the offset it is to have."""
    data = write_batch([record(n, b"v%d" % n) for n in range(3)], codec=codec, last_offset=9)
    result = validated(data, origin=AppendOrigin.COORDINATOR)
    (found,) = result.records.batches()
    assert (found.base_offset, found.last_offset, result.next_offset) == (BASE, BASE + 2, BASE + 3)
    assert [one.offset for one in found] == [BASE, BASE + 1, BASE + 2]


def test_control_batch_is_never_compressed() -> None:
    marker = reference.write_end_transaction_marker(0, timestamp_ms=5, producer_id=9, producer_epoch=1, commit=True)
    result = validated(marker, origin=AppendOrigin.COORDINATOR, compression=CompressionType.LZ4)
    assert bytes(result.records) == patch_header(
        marker, base_offset=BASE, partition_leader_epoch=EPOCH, repair_crc=False
    )
    assert not result.is_rebuilt


# Refused batches

IDEMPOTENT = {"producer_id": 9, "producer_epoch": 1}
REFUSED = [
    pytest.param(b"", "no batch to append", id="no-batch"),
    pytest.param(batch(0, 2)[:-1], "no batch to append", id="incomplete-batch"),
    pytest.param(b"".join(batches(0, 2)), "in one append: expected 1, found 2", id="two-batches"),
    pytest.param(patch_header(batch(0, 2), record_count=0), "record count: expected at least 1", id="count-0"),
    pytest.param(patch_header(batch(0, 2), record_count=-1), "record count: expected at least 1", id="count-negative"),
    pytest.param(batch(0, 2, last_offset=2), "record count: expected 3, found 2", id="last-offset-too-high"),
    pytest.param(patch_header(batch(0, 2), last_offset_delta=0), "expected 1, found 2", id="last-offset-too-low"),
    pytest.param(patch_header(batch(0, 2), last_offset_delta=-1), "expected 0, found 2", id="no-offset"),
    pytest.param(
        reference.write_end_transaction_marker(0, timestamp_ms=5, producer_id=9, producer_epoch=1, commit=True),
        "expected no control batch",
        id="control-batch",
    ),
    pytest.param(
        batch(0, 2, **IDEMPOTENT), "base sequence of a producer: expected at least 0, found -1", id="sequence"
    ),
]
# Kafka's LogValidator takes these as they are; its builder does not write them.
NOT_REBUILT = [
    pytest.param(
        batch(0, 2, producer_id=9, base_sequence=0), "epoch of a producer: expected at least 0, found -1", id="epoch"
    ),
    pytest.param(batch(0, 2, is_transactional=True), "transactional batch: expected at least 0, found -1", id="nobody"),
    pytest.param(batch(0, 2, **IDEMPOTENT | {"producer_id": -2}), "expected at least -1, found -2", id="negative-id"),
]


@pytest.mark.parametrize(("data", "match"), REFUSED)
def test_batch_that_no_client_may_send_is_refused(data: bytes, match: str) -> None:
    for compression in (None, CompressionType.LZ4):
        with pytest.raises((InvalidRecordError, CorruptRecordError), match=re.escape(match)):
            validated(data, compression=compression)


@pytest.mark.parametrize(("data", "match"), NOT_REBUILT)
def test_producer_fields_that_no_builder_writes_are_refused_only_if_the_batch_is_rebuilt(
    data: bytes, match: str
) -> None:
    expected = patch_header(data, base_offset=BASE, partition_leader_epoch=EPOCH, repair_crc=False)
    assert bytes(validated(data).records) == expected
    with pytest.raises(InvalidRecordError, match=re.escape(match)):
        validated(data, compression=CompressionType.LZ4)


@pytest.mark.parametrize(("epoch", "sequence"), [(0, 0), (-1, 0), (0, -1), (7, 9), (-3, -5)])
def test_without_a_producer_id_epoch_and_sequence_mean_nothing(epoch: int, sequence: int) -> None:
    data = patch_header(batch(0, 2), producer_epoch=epoch, base_sequence=sequence)
    expected = patch_header(data, base_offset=BASE, partition_leader_epoch=EPOCH, repair_crc=False)
    assert bytes(validated(data).records) == expected
    (found,) = validated(data, compression=CompressionType.LZ4).records.batches()
    fields = (found.producer_id, found.producer_epoch, found.base_sequence)
    assert fields == (-1, max(epoch, -1), max(sequence, -1))


@pytest.mark.parametrize("magic", [0, 1])
def test_without_a_producer_id_a_batch_fits_an_old_format(magic: int) -> None:
    data = write_batch([record(0, b"v")], base_sequence=0)
    assert validated(data, magic=magic).converted_record_count == 1


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
def test_damage_is_found_before_anything_is_given_an_offset(codec: CompressionType) -> None:
    data = bytearray(batch(0, 5, codec=codec))
    set_byte(data, len(data) - 1, value=data[-1] ^ 1)
    with pytest.raises(CorruptRecordError, match="CRC mismatch"):
        validated(bytes(data))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=f"expected 0 to 4, found {codec}") as caught:
        validated(patch_header(batch(0, 2), attributes=codec))
    assert caught.value.codec_id == codec


@pytest.mark.parametrize("options", [{}, {"is_transactional": True}], ids=["idempotent", "transactional"])
@pytest.mark.parametrize("magic", [0, 1])
def test_idempotent_batch_does_not_fit_an_old_format(options: dict[str, Any], magic: int) -> None:
    with pytest.raises(UnsupportedForMessageFormatError, match=f"log of magic {magic}"):
        validated(batch(0, 1, **IDEMPOTENT, base_sequence=0, **options), magic=magic)


@pytest.mark.parametrize("magic", [0, 1])
def test_control_batch_does_not_fit_an_old_format(magic: int) -> None:
    for options in ({}, {"producer_id": 9, "producer_epoch": 1}):
        data = batch(0, 1, is_control=True, **options)
        with pytest.raises(UnsupportedForMessageFormatError, match=f"control batch .*log of magic {magic}"):
            validated(data, magic=magic, origin=AppendOrigin.COORDINATOR)


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_does_not_fit_an_old_format(magic: int) -> None:
    for data, compression in ((batch(0, 1, codec=4), None), (batch(0, 1), CompressionType.ZSTD)):
        with pytest.raises(UnsupportedCompressionTypeError) as caught:
            validated(data, magic=magic, compression=compression)
        assert caught.value.codec_id == 4


@pytest.mark.parametrize(
    "fields",
    [{"magic": 3}, {"magic": -1}, {"timestamp_type": TimestampType.NO_TIMESTAMP_TYPE}, {"compression": "zstd"}],
    ids=["magic-3", "magic-negative", "no-timestamp-type", "codec-by-name"],
)
def test_rules_that_no_topic_has_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        RecordRules(**fields)


# Refused records


def refusal_of(items: list[reference.Record], *, options: dict[str, Any] | None = None, **rules: Any) -> list[Any]:
    with pytest.raises(RecordValidationError) as caught:
        validated(write_batch(items, **(options or {})), **rules)
    assert isinstance(caught.value, InvalidTimestampError) == any(
        error.reason == INVALID_TIMESTAMP for error in caught.value.errors
    )
    return [(error.record_index, error.reason) for error in caught.value.errors]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
def test_every_record_without_a_key_is_named_where_the_topic_is_compacted(codec: CompressionType) -> None:
    items = [record(n, b"v", key) for n, key in enumerate([b"", None, b"k", None])]
    errors = refusal_of(items, options={"codec": codec}, is_compacted=True)
    assert errors == [(1, INVALID_RECORD), (3, INVALID_RECORD)]
    assert validated(write_batch(items, codec=codec)).next_offset == BASE + 4


def test_one_record_without_a_key_is_refused_where_the_topic_is_compacted() -> None:
    items = [record(0, b"v", b"k"), record(1, b"v", None), record(2, b"v", b"k")]
    assert refusal_of(items, is_compacted=True) == [(1, INVALID_RECORD)]


BOUNDS = [
    pytest.param(NOW_MS, True, id="now"),
    pytest.param(NOW_MS - 10, True, id="oldest"),
    pytest.param(NOW_MS - 11, False, id="too-old"),
    pytest.param(NOW_MS + 20, True, id="newest"),
    pytest.param(NOW_MS + 21, False, id="too-new"),
    pytest.param(-1, True, id="none"),
    pytest.param(-2, False, id="negative"),
    pytest.param(0, False, id="zero"),
    pytest.param(2**63 - 1, False, id="largest"),
    pytest.param(-(2**63), False, id="least"),
]


@pytest.mark.parametrize(("timestamp_ms", "fits"), BOUNDS)
@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD], ids=lambda codec: codec.label)
def test_create_time_lies_within_the_topics_bounds(timestamp_ms: int, fits: bool, codec: CompressionType) -> None:
    items = [record(0, timestamp_ms=NOW_MS), record(1, timestamp_ms=timestamp_ms), record(2, timestamp_ms=NOW_MS)]
    bounds = {"timestamp_before_max_ms": 10, "timestamp_after_max_ms": 20}
    if fits:
        assert validated(write_batch(items, codec=codec), **bounds).info.max_timestamp_ms == max(timestamp_ms, NOW_MS)
    else:
        assert refusal_of(items, options={"codec": codec}, **bounds) == [(1, INVALID_TIMESTAMP)]
    if timestamp_ms >= -1:
        unbounded = validated(write_batch(items, codec=codec))
        appended = validated(write_batch(items, codec=codec), timestamp_type=TimestampType.LOG_APPEND_TIME, **bounds)
        assert [found.timestamp_ms for found in unbounded.records] == [NOW_MS, timestamp_ms, NOW_MS]
        assert [found.timestamp_ms for found in appended.records] == [NOW_MS, NOW_MS, NOW_MS]


def test_one_wrong_timestamp_makes_it_an_error_of_timestamps() -> None:
    items = [record(0, b"", None), record(1, b"", b"k", timestamp_ms=5), record(2, b"", None, timestamp_ms=5)]
    errors = refusal_of(items, is_compacted=True, timestamp_before_max_ms=10**6)
    assert errors == [(0, INVALID_RECORD), (1, INVALID_TIMESTAMP), (2, INVALID_RECORD)]


def test_message_shows_three_of_many_records() -> None:
    with pytest.raises(RecordValidationError, match=r"5 records refused: record 0: .*record 2: .*; and 2 more"):
        validated(write_batch([record(n) for n in range(5)]), is_compacted=True)


def test_errors_of_a_compressed_batch_of_many_records_are_bounded() -> None:
    items = [record(n, b"") for n in range(MOST_RECORD_ERRORS)]
    items.append(record(MOST_RECORD_ERRORS, b"", b"k", timestamp_ms=5))
    data = write_batch(items, codec=CompressionType.GZIP)
    shown = f"{len(items)} records refused: .*; and {len(items) - 3} more"
    with pytest.raises(InvalidTimestampError, match=shown) as caught:
        validated(data, is_compacted=True, timestamp_before_max_ms=10**6)
    assert [error.record_index for error in caught.value.errors] == list(range(MOST_RECORD_ERRORS))


@pytest.mark.parametrize(
    ("timestamp_ms", "topic_type", "fits"),
    [
        pytest.param(NOW_MS, TimestampType.CREATE_TIME, True, id="create-time-topic-looks-at-the-timestamp-alone"),
        pytest.param(-1, TimestampType.CREATE_TIME, False, id="create-time-topic-without-timestamp"),
        pytest.param(NOW_MS, TimestampType.LOG_APPEND_TIME, False, id="append-time-topic"),
        pytest.param(-1, TimestampType.LOG_APPEND_TIME, False, id="append-time-topic-without-timestamp"),
    ],
)
def test_append_time_from_a_producer(timestamp_ms: int, topic_type: TimestampType, fits: bool) -> None:
    items, options = [record(0), record(1)], {"log_append_time_ms": timestamp_ms}
    if fits:
        (found,) = validated(write_batch(items, **options), timestamp_type=topic_type).records.batches()
        assert (found.timestamp_type, found.max_timestamp_ms) == (TimestampType.CREATE_TIME, timestamp_ms)
    else:
        errors = refusal_of(items, options=options, timestamp_type=topic_type)
        assert errors == [(0, INVALID_TIMESTAMP), (1, INVALID_TIMESTAMP)]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.label)
def test_timestamps_hidden_by_a_producers_append_time_do_not_come_to_light(codec: CompressionType) -> None:
    """They lie beyond the topic's bounds, which the append time alone was held against."""
    items = [record(0, timestamp_ms=5), record(1, timestamp_ms=2**62)]
    data = write_batch(items, codec=codec, log_append_time_ms=NOW_MS)
    result = validated(data, timestamp_before_max_ms=1000, timestamp_after_max_ms=1000)
    (found,) = result.records.batches()
    assert [(one.timestamp_ms, one.timestamp_type) for one in found] == [(NOW_MS, TimestampType.CREATE_TIME)] * 2
    assert (found.max_timestamp_ms, found.compression) == (NOW_MS, codec)


def test_damaged_record_is_no_matter_of_the_topics_rules() -> None:
    header = reference.Header(record_count=1, base_timestamp_ms=5, max_timestamp_ms=5)
    data = reference.seal(header, b"\x0a" + bytes(5) + b"?")
    with pytest.raises(InvalidRecordError):
        validated(data, is_compacted=True)


# Followers


def test_follower_keeps_what_the_leader_gave() -> None:
    data = [*batches(100, 2, records_per_batch=3), batch(110, 2, codec=3)]
    result = validate_replicated(MemoryRecords(b"".join(data) + data[0][:70]), log_end_offset=100)
    assert bytes(result.records) == b"".join(data)
    assert result[1:] == ((FIRST_TIMESTAMP_MS + 111, 111), 112, False, 0)
    for end in (0, 99):
        assert validate_replicated(MemoryRecords(data[0]), log_end_offset=end).next_offset == 103


def test_follower_takes_an_incomplete_batch_for_none() -> None:
    result = validate_replicated(MemoryRecords(batch(100, 2)[:-1]), log_end_offset=100)
    assert (bytes(result.records), result[1:]) == (b"", ((-1, -1), 100, False, 0))


def test_follower_refuses_what_it_has_already() -> None:
    with pytest.raises(UnexpectedAppendOffsetError, match="expected more than 100, found 100") as caught:
        validate_replicated(MemoryRecords(batch(100, 2)), log_end_offset=101)
    assert (caught.value.offset, caught.value.log_end_offset) == (100, 101)


@pytest.mark.parametrize("second", [99, 100, 101])
def test_follower_refuses_offsets_that_do_not_rise(second: int) -> None:
    with pytest.raises(OffsetsOutOfOrderError, match=f"expected more than 101, found {second}"):
        validate_replicated(MemoryRecords(batch(100, 2) + batch(second, 3)), log_end_offset=50)


def test_follower_that_gets_old_offsets_in_disorder_is_told_of_the_disorder() -> None:
    """As in Kafka, which checks the order of an append first."""
    with pytest.raises(OffsetsOutOfOrderError, match="expected more than 101, found 101"):
        validate_replicated(MemoryRecords(batch(100, 2) + batch(101, 3)), log_end_offset=200)


def test_follower_checks_every_crc() -> None:
    data = bytearray(batch(100, 2) + batch(102, 2))
    set_byte(data, len(data) - 1, value=1)
    with pytest.raises(CorruptRecordError, match="CRC mismatch"):
        validate_replicated(MemoryRecords(data), log_end_offset=100)


IMPOSSIBLE_OFFSETS = [
    pytest.param({"last_offset_delta": -1}, InvalidRecordError, id="ends-before-it-starts"),
    pytest.param({"base_offset": -5}, CorruptRecordError, id="negative"),
    pytest.param({"base_offset": 2**63 - 2}, CorruptRecordError, id="beyond-int64"),
    pytest.param({"record_count": 4}, InvalidRecordError, id="more-records-than-offsets"),
]


@pytest.mark.parametrize(("fields", "error"), IMPOSSIBLE_OFFSETS)
def test_follower_refuses_a_batch_that_no_reader_takes(fields: dict[str, int], error: type[CorruptionError]) -> None:
    data = batch(100, 2)
    records = MemoryRecords(data + patch_header(batch(102, 3), **fields), position=5000, path="x.log")
    with pytest.raises(error, match=f"position {5000 + len(data)} of x.log") as caught:
        validate_replicated(records, log_end_offset=0)
    assert caught.value.position == 5000 + len(data)


def test_offsets_end_below_the_largest() -> None:
    rules = RecordRules()
    last = 2**63 - 2
    result = validate_and_assign_offsets(MemoryRecords(batch(0, 3)), rules=rules, base_offset=last - 2, now_ms=0)
    assert [found.offset for found in result.records] == [last - 2, last - 1, last]
    with pytest.raises(OffsetError, match=f"expected at most {last}, .*, found {last + 1}"):
        validate_and_assign_offsets(MemoryRecords(batch(0, 3)), rules=rules, base_offset=last - 1, now_ms=0)


def test_rules_are_values() -> None:
    assert replace(RecordRules(), magic=1) == RecordRules(magic=1)
