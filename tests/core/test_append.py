# Goal: the compiled append takes exactly what a log may take without more ado, and counts what it took.
# Method: batches of the reference codec, whole, cut, patched and damaged, given to an appender whose file is a list.

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kstore import _core
from kstore.errors import CorruptRecordError, InvalidRecordError, KStoreError, UnsupportedMagicError
from kstore.log.write.rules import LogAppendInfo
from kstore.record import MemoryRecords
from tests.making import batches as builders
from tests.making.batches import FIRST_TIMESTAMP_MS, record
from tests.reference import codec as reference

MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1
BEFORE_MAX_MS, AFTER_MAX_MS = 1000, 500
NOW_MS = FIRST_TIMESTAMP_MS
ONE = builders.batch(0)
LARGE = builders.batch(0, value_bytes=128 * 1024)
MOST_WRITE_BACK_BYTES = 64 * 1024 * 1024
PAIR = [builders.batch(0, 2), builders.batch(2, 3)]


class Log:
    """An appender over a list in place of a file."""

    def __init__(self, *, log_end_offset: int = 0, leader_epoch: int = 0, **rules: Any) -> None:
        self.written: list[bytes] = []
        self.begun: list[tuple[int, int]] = []
        self.write_back_error: OSError | None = None
        self.error: OSError | None = None
        entries = {"base_offset": 0, "max_bytes": rules.pop("index_bytes", 12_000)}
        self.offset_entries = _core.OffsetIndexEntries(b"", **entries)
        self.time_entries = _core.TimeIndexEntries(b"", **entries)
        self.segment = _core.SegmentAppender(
            self.offset_entries,
            self.time_entries,
            write=self.write,
            write_parts=lambda parts, _: self.write(b"".join(parts)),
            write_index_pages=lambda: None,
            start_write_back=self.start_write_back,
            index_interval_bytes=rules.pop("index_interval_bytes", 4096),
            segment_bytes=rules.pop("segment_bytes", MAX_INT32),
            max_age_ms=MAX_INT64,
            created_ms=0,
        )
        self.appender = _core.LogAppender(
            LogAppendInfo,
            assigner=_core.LeaderAssigner(
                max_message_bytes=rules.pop("max_message_bytes", 1 << 20),
                timestamp_before_max_ms=BEFORE_MAX_MS,
                timestamp_after_max_ms=AFTER_MAX_MS,
                is_compacted=rules.pop("is_compacted", False),
                is_log_append_time=rules.pop("is_log_append_time", False),
            ),
            max_batch_bytes=rules.pop("max_batch_bytes", MAX_INT32),
            log_start_offset=0,
            leader_epoch=leader_epoch,
            producers=rules.pop("producers", None),
        )
        self.appender.publish((), self, self.segment, log_end_offset=log_end_offset)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.error is not None:
            raise self.error
        self.written.append(bytes(data))

    def start_write_back(self, position: int) -> None:
        if self.write_back_error is not None:
            raise self.write_back_error
        self.begun.append((position, sum(map(len, self.written))))

    def send(self, data: bytes, *, leader_epoch: int | None = None) -> Any:
        return self.appender.append_as_leader(data, leader_epoch=leader_epoch, now_ms=NOW_MS)

    def state(self) -> tuple[object, ...]:
        return self.written, self.segment.size_in_bytes, self.appender.log_end_offset, self.appender.published


def sent(*records: reference.Record, **options: Any) -> bytes:
    return reference.write_batch(records, **options)


def at(delta_ms: int, *, offset: int = 0, **fields: Any) -> reference.Record:
    return record(offset, b"v", b"k", timestamp_ms=NOW_MS + delta_ms, **fields)


# Whole batches, as a leader sent them


@pytest.mark.parametrize("size", [0, 1, 16, 17, 60, 61, len(PAIR[1]) - 1], ids=str)
def test_incomplete_last_batch_is_left_out(size: int) -> None:
    log = Log()
    info = log.appender.append_as_follower(PAIR[0] + PAIR[1][:size])
    assert info == LogAppendInfo(0, 1, FIRST_TIMESTAMP_MS + 1, -1, 0, len(PAIR[0]))
    assert log.written == [PAIR[0]]


@pytest.mark.parametrize("left", range(12, 17))
def test_run_that_ends_in_an_impossible_size_is_refused(left: int) -> None:
    """As in Kafka's ByteBufferLogInputStream, although the magic byte is missing."""
    end = (bytes(8) + b"\x00\x00\x00\x0d" + bytes(4))[:left]
    reason = "batch smaller than its header: expected at least 26 bytes, found 25"
    reads: list[Callable[[bytes], object]] = [
        Log().appender.append_as_follower,
        lambda data: list(MemoryRecords(data).batches()),
        lambda data: list(MemoryRecords(data)),
    ]
    for read in reads:
        with pytest.raises(CorruptRecordError) as caught:
            read(ONE + end)
        assert (caught.value.reason, caught.value.position) == (reason, len(ONE))


def test_incomplete_first_batch_is_none() -> None:
    log = Log()
    survey = log.appender.append_as_follower(ONE[:-1])
    assert (survey.batch_count, survey.size_in_bytes, survey.first_offset, survey.last_offset) == (0, 0, -1, -1)
    assert bytes(survey.records) == b""
    assert log.written == []


MAGIC, SMALL = (
    "unsupported magic: expected 0 to 2, found {}",
    "batch smaller than its header: expected at least 61 bytes",
)
LARGE_SIZE = f"batch larger than the limit: expected at most {MAX_INT32} bytes"
CRC = f"CRC mismatch: stored 0x{reference.Header.unpack(ONE).crc:08x}, computed 0x"
WRONG = [
    pytest.param({16: b"\x03"}, UnsupportedMagicError, MAGIC.format(3), id="magic-3"),
    pytest.param({16: b"\xff"}, UnsupportedMagicError, MAGIC.format(-1), id="magic-minus-1"),
    pytest.param({8: b"\x00\x00\x00\x30"}, CorruptRecordError, f"{SMALL}, found 60", id="length-below-a-header"),
    pytest.param({8: b"\xff\xff\xff\xff"}, CorruptRecordError, f"{SMALL}, found 11", id="length-minus-1"),
    pytest.param({8: b"\x80\x00\x00\x00"}, CorruptRecordError, f"{SMALL}, found {12 - 2**31}", id="least-length"),
    pytest.param(
        {8: b"\x7f\xff\xff\xff"}, CorruptRecordError, f"{LARGE_SIZE}, found {2**31 + 11}", id="greatest-length"
    ),
    pytest.param(
        {8: b"\x7f\xff\xff\xf4"}, CorruptRecordError, f"{LARGE_SIZE}, found {2**31}", id="one-byte-more-than-int32"
    ),
    pytest.param({17: b"\x00\x00\x00\x00"}, CorruptRecordError, "CRC mismatch: stored 0x00000000, computed", id="crc"),
    pytest.param({61: b"\x55"}, CorruptRecordError, CRC, id="first-byte-of-a-record"),
    pytest.param({len(ONE) - 1: b"\x55"}, CorruptRecordError, CRC, id="last-byte"),
    pytest.param(
        {0: b"\xff"},
        CorruptRecordError,
        f"base offset out of range: expected at least 0, found {-(2**56)}",
        id="negative-base-offset",
    ),
]


@pytest.mark.parametrize(("patches", "error", "reason"), WRONG)
def test_wrong_batch_is_refused_and_nothing_written(
    patches: dict[int, bytes], error: type[KStoreError], reason: str
) -> None:
    log = Log()
    before = log.state()
    damaged = bytearray(PAIR[0] + ONE)
    for position, new in patches.items():
        builders.set_bytes(damaged, len(PAIR[0]) + position, new)
    with pytest.raises(error) as caught:
        log.appender.append_as_follower(bytes(damaged))
    assert (type(caught.value), caught.value.position) == (error, len(PAIR[0]))
    # The CRC that was computed is left out.
    assert caught.value.reason.startswith(reason)
    assert caught.value.reason == reason or "CRC" in reason
    assert log.state() == before


def test_length_up_to_the_limit_is_a_batch_that_is_not_there_yet() -> None:
    data = bytearray(ONE)
    builders.set_bytes(data, 8, (MAX_INT32 - 12).to_bytes(4, "big"))
    assert Log().appender.append_as_follower(data).batch_count == 0


def test_batch_of_exactly_max_batch_bytes_is_taken_and_one_more_refused() -> None:
    assert Log(max_batch_bytes=len(ONE)).appender.append_as_follower(ONE).size_in_bytes == len(ONE)
    with pytest.raises(CorruptRecordError) as caught:
        Log(max_batch_bytes=len(ONE) - 1).appender.append_as_follower(ONE)
    expected = f"batch larger than the limit: expected at most {len(ONE) - 1} bytes, found {len(ONE)}"
    assert (caught.value.reason, caught.value.position) == (expected, 0)


LEAST_OFFSET, MOST_OFFSET, DELTA = (
    "base offset out of range: expected at least 0, found",
    "base offset out of range: expected at most",
    "last offset delta does not fit: expected at least 0",
)
LIMITS = [
    pytest.param(MAX_INT64 - 1, 0, None, id="last-offset-there-is"),
    pytest.param(
        MAX_INT64,
        0,
        (CorruptRecordError, f"{MOST_OFFSET} {MAX_INT64 - 1}, found {MAX_INT64}"),
        id="no-offset-behind-it",
    ),
    pytest.param(MAX_INT64 - 1 - MAX_INT32, MAX_INT32, None, id="greatest-delta"),
    pytest.param(
        MAX_INT64 - MAX_INT32,
        MAX_INT32,
        (CorruptRecordError, f"{MOST_OFFSET} {MAX_INT64 - 1 - MAX_INT32}, found {MAX_INT64 - MAX_INT32}"),
        id="greatest-delta-beyond",
    ),
    pytest.param(0, MAX_INT32, None, id="greatest-delta-from-0"),
    pytest.param(0, -1, (InvalidRecordError, f"{DELTA}, found -1"), id="negative-delta"),
]


@pytest.mark.parametrize(("base_offset", "last_offset_delta", "refusal"), LIMITS)
def test_offsets_end_below_the_greatest_int64(
    base_offset: int, last_offset_delta: int, refusal: tuple[type[KStoreError], str] | None
) -> None:
    data = builders.patch_header(ONE, base_offset=base_offset, last_offset_delta=last_offset_delta)
    if refusal is None:
        survey = _core.survey_replicated(data)
        assert (survey.first_offset, survey.last_offset) == (base_offset, base_offset + last_offset_delta)
    else:
        with pytest.raises(refusal[0]) as caught:
            _core.survey_replicated(data, position=77)
        assert (type(caught.value), caught.value.reason, caught.value.position) == (*refusal, 77)


DISORDER = [
    pytest.param(PAIR, -1, id="rising"),
    pytest.param([PAIR[0], builders.batch(9)], -1, id="gap"),
    pytest.param([PAIR[0], builders.batch(1, 3)], len(PAIR[0]), id="overlap"),
    pytest.param([PAIR[0], PAIR[0]], len(PAIR[0]), id="twice"),
    pytest.param([*PAIR, ONE], len(PAIR[0] + PAIR[1]), id="back-to-the-start"),
]


@pytest.mark.parametrize(("batches", "position"), DISORDER)
def test_first_batch_that_does_not_rise_is_told(batches: Sequence[bytes], position: int) -> None:
    log = Log()
    data = b"".join(batches)
    assert _core.survey_replicated(data).disorder_position == position
    done = log.appender.append_as_follower(data)
    assert isinstance(done, LogAppendInfo) == (position < 0) == (log.written == [data])


MORE = [
    pytest.param(ONE, {"log_end_offset": 1}, id="below-the-end"),
    pytest.param(ONE, {"leader_epoch": 1}, id="another-epoch"),
    pytest.param(sent(at(0), producer_id=5, producer_epoch=0, base_sequence=0), {}, id="producer"),
    pytest.param(ONE, {"segment_bytes": len(ONE) - 1}, id="larger-than-a-segment"),
    pytest.param(builders.patch_header(ONE, base_offset=MAX_INT32 + 1), {}, id="offset-beyond-the-segment"),
    pytest.param(PAIR[0] + builders.patch_header(PAIR[1], partition_leader_epoch=1), {}, id="two-epochs"),
]


@pytest.mark.parametrize(("data", "options"), MORE)
def test_append_of_which_more_has_to_be_known_gives_its_survey(data: bytes, options: dict[str, int]) -> None:
    log = Log(**options)
    before = log.state()
    survey = log.appender.append_as_follower(data)
    assert isinstance(survey, _core.AppendSurvey)
    assert bytes(survey.records) == data
    assert log.appender.append(survey, log_append_time_ms=-1) is survey
    assert log.state() == before


def follow(log: Log, *timestamps_ms: int) -> list[bool]:
    """Append a batch of one record by each call, and tell of each whether the segment took it."""
    return [
        isinstance(log.appender.append_as_follower(builders.patch_header(sent(at(delta_ms)), base_offset=n)), tuple)
        for n, delta_ms in enumerate(timestamps_ms, start=log.appender.log_end_offset)
    ]


def test_segment_takes_appends_up_to_exactly_segment_bytes() -> None:
    assert follow(Log(segment_bytes=2 * len(sent(at(0)))), 0, 0, 0) == [True, True, False]
    assert follow(Log(segment_bytes=2 * len(sent(at(0))) - 1), 0, 0) == [True, False]


def test_segment_takes_an_offset_of_exactly_int32_above_its_base() -> None:
    log = Log()
    info = log.appender.append_as_follower(builders.patch_header(ONE, base_offset=MAX_INT32))
    assert isinstance(info, LogAppendInfo)
    assert info.last_offset == MAX_INT32


# Three slots of a time index, the last one for the entry that closes it, and four of an offset index.
SMALL_INDEXES = {"index_bytes": 36, "index_interval_bytes": 0}


def test_segment_takes_no_append_once_its_time_index_has_only_the_slot_for_closing() -> None:
    log = Log(**SMALL_INDEXES)
    assert follow(log, 0, 1, 2, 3) == [True, True, True, False]
    assert (log.time_entries.entry_count, log.offset_entries.entry_count) == (2, 2)


def test_segment_takes_no_append_once_its_offset_index_is_full() -> None:
    log = Log(**SMALL_INDEXES)
    assert follow(log, 0, 0, 0, 0, 0, 0) == [True] * 5 + [False]
    assert (log.time_entries.entry_count, log.offset_entries.entry_count) == (1, 4)


def test_batches_of_one_call_fill_a_segment_no_further_than_single_appends() -> None:
    log, done = Log(**SMALL_INDEXES), []
    batches = [sent(at(n)) for n in range(6)]
    while log.appender.append_all_as_leader(batches, done, now_ms=NOW_MS):
        pass
    assert len(done) == sum(follow(Log(**SMALL_INDEXES), *range(6))) == 3


def test_append_of_more_batches_than_a_time_index_has_slots_leaves_the_one_for_closing() -> None:
    log = Log(**SMALL_INDEXES)
    log.appender.append_as_follower(b"".join(builders.patch_header(sent(at(n)), base_offset=n) for n in range(9)))
    assert (log.time_entries.entry_count, log.offset_entries.entry_count) == (2, 4)


def test_index_entry_comes_with_more_bytes_than_the_interval_not_with_as_many() -> None:
    size = len(sent(at(0)))
    for interval, entries in ((size - 1, 2), (size, 1), (2 * size - 1, 1), (2 * size, 0)):
        log = Log(index_interval_bytes=interval)
        follow(log, 0, 1, 2)
        assert log.offset_entries.entry_count == entries, interval


def test_first_batch_of_the_largest_timestamp_is_the_one_that_counts() -> None:
    data = b"".join(builders.patch_header(sent(at(delta)), base_offset=n) for n, delta in enumerate((1, 3, 3, 2, 3)))
    survey = _core.survey_replicated(data)
    assert (survey.max_timestamp_ms, survey.offset_of_max_timestamp) == (NOW_MS + 3, 1)
    together, one_by_one = Log(), Log()
    together.appender.append_as_follower(data)
    follow(one_by_one, 1, 3, 3, 2, 3)
    for log in (together, one_by_one):
        assert (log.segment.max_timestamp_ms, log.segment.offset_of_max_timestamp) == (NOW_MS + 3, 1)


def test_time_entry_has_the_first_offset_of_its_timestamp_though_a_later_batch_brought_it() -> None:
    log = Log(index_interval_bytes=len(sent(at(0))))
    follow(log, 1, 3, 3)
    assert log.offset_entries.last_offset == 2
    assert log.time_entries.last_entry == (NOW_MS + 3, 1)


# Batches of a producer that the log knows

KNOWN_PRODUCER = {"producer_epoch": 0, "last_timestamp_ms": NOW_MS}


def table_of(entry: _core.ProducerStateEntryCore) -> _core.ProducerTable:
    table = _core.ProducerTable()
    table.entries[entry.producer_id] = entry
    return table


def idempotent(sequence: int) -> bytes:
    return sent(at(0), producer_id=5, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize(
    ("last_sequence", "sequence", "is_taken"),
    [(0, 1, True), (0, 2, False), (MAX_INT32 - 1, MAX_INT32, True), (MAX_INT32, 0, True), (MAX_INT32, 1, False)],
)
def test_batch_that_follows_its_producers_last_one_needs_no_more_checks(
    last_sequence: int, sequence: int, is_taken: bool
) -> None:
    entry = _core.ProducerStateEntryCore(5, **KNOWN_PRODUCER, batches=[(last_sequence, 0, 0, NOW_MS)])
    log = Log(log_end_offset=1, producers=table_of(entry))
    assert isinstance(log.send(idempotent(sequence)), LogAppendInfo) == is_taken
    assert log.appender.append_all_as_leader([idempotent(sequence)], [], now_ms=NOW_MS) == 0


def test_state_of_a_producer_that_a_reader_holds_stays_as_it_was() -> None:
    entry = _core.ProducerStateEntryCore(5, **KNOWN_PRODUCER, batches=[(0, 0, 0, NOW_MS)])
    producers = table_of(entry)
    log = Log(log_end_offset=1, producers=producers)
    log.send(idempotent(1))
    held = producers.entries[5]
    log.appender.append_all_as_leader([idempotent(2), idempotent(3)], [], now_ms=NOW_MS)
    assert [one.last_sequence for one in (entry, held, producers.entries[5])] == [0, 1, 3]


def test_failed_write_changes_nothing() -> None:
    log = Log()
    log.send(ONE)
    before = log.state()
    log.error = OSError(5, "no")
    with pytest.raises(OSError, match="no"):
        log.send(ONE)
    with pytest.raises(OSError, match="no"):
        log.appender.append_as_follower(PAIR[1])
    done: list[Any] = []
    with pytest.raises(OSError, match="no"):
        log.appender.append_all_as_leader([ONE, ONE], done, now_ms=NOW_MS)
    assert done == []
    assert log.state() == before
    log.error = None
    assert log.send(ONE).base_offset == 1


# One batch of a client


def test_batch_of_a_client_gets_the_next_offsets_and_the_epoch() -> None:
    log = Log(log_end_offset=40)
    info = log.send(PAIR[0], leader_epoch=0)
    assert info == LogAppendInfo(40, 41, FIRST_TIMESTAMP_MS + 1, -1, 0, len(PAIR[0]))
    assert type(info) is LogAppendInfo
    assert log.written == [builders.patch_header(PAIR[0], base_offset=40)]
    assert log.appender.published == ((), log, len(PAIR[0]), 42)


def test_append_time_is_put_into_the_header() -> None:
    log = Log(is_log_append_time=True)
    info = log.send(PAIR[0])
    assert (info.max_timestamp_ms, info.log_append_time_ms) == (NOW_MS, NOW_MS)
    [batch] = MemoryRecords(log.written[0]).batches()
    assert [one.timestamp_ms for one in batch] == [NOW_MS, NOW_MS]


NOT_PLAIN = [
    pytest.param(ONE[:60], id="less-than-a-header"),
    pytest.param(ONE[:-1], id="cut"),
    pytest.param(ONE + b"\x00", id="a-byte-more"),
    pytest.param(PAIR[0] + PAIR[1], id="two-batches"),
    pytest.param(builders.patch_header(ONE, base_offset=1), id="base-offset"),
    pytest.param(builders.patch_header(ONE, repair_crc=False, crc=1), id="crc"),
    pytest.param(builders.patch_header(PAIR[0], record_count=1), id="fewer-records"),
    pytest.param(builders.patch_header(PAIR[0], record_count=3, last_offset_delta=2), id="more-records"),
    pytest.param(
        builders.patch_header(ONE, record_count=MAX_INT32, last_offset_delta=MAX_INT32 - 1), id="int32-records"
    ),
    pytest.param(builders.patch_header(ONE, last_offset_delta=1), id="last-offset-delta"),
    pytest.param(sent(at(0), at(0, offset=2)), id="gap-of-offsets"),
    pytest.param(sent(at(0), is_control=True), id="control"),
    pytest.param(sent(at(0), codec=1), id="compressed"),
    pytest.param(sent(at(0), log_append_time_ms=NOW_MS), id="append-time"),
    pytest.param(sent(at(0), producer_id=5), id="producer-without-sequence"),
    pytest.param(sent(at(0), producer_id=0, producer_epoch=0), id="producer-0-without-sequence"),
    pytest.param(sent(at(-BEFORE_MAX_MS - 1)), id="too-old"),
    pytest.param(sent(at(AFTER_MAX_MS + 1)), id="too-new"),
    pytest.param(sent(at(0), at(AFTER_MAX_MS + 1, offset=1), at(0, offset=2)), id="one-too-new"),
    pytest.param(sent(at(0), record(1, b"v", b"k", timestamp_ms=-2)), id="timestamp-minus-2"),
]


@pytest.mark.parametrize("data", NOT_PLAIN)
def test_all_else_is_left_to_validation(data: bytes) -> None:
    log = Log()
    before = log.state()
    assert log.send(data) is None
    assert log.state() == before


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(sent(at(0), base_sequence=0), id="sequence-without-producer"),
        pytest.param(sent(at(0), producer_epoch=0), id="epoch-without-producer"),
        pytest.param(sent(at(0), is_transactional=True), id="transaction-without-producer"),
        pytest.param(sent(at(0), producer_id=0, base_sequence=0), id="producer-0-without-epoch"),
        pytest.param(sent(at(0), producer_id=-2, producer_epoch=0, base_sequence=0), id="producer-minus-2"),
    ],
)
def test_producer_fields_that_a_broker_takes_need_no_validation(data: bytes) -> None:
    assert Log().send(data) is not None


@pytest.mark.parametrize("delta_ms", [-BEFORE_MAX_MS, 0, AFTER_MAX_MS], ids=str)
def test_timestamps_up_to_the_bounds_are_taken(delta_ms: int) -> None:
    assert Log().send(sent(at(0), at(delta_ms, offset=1))).max_timestamp_ms == NOW_MS + max(delta_ms, 0)


@pytest.mark.parametrize("is_compacted", [False, True], ids=["all-keys", "compacted"])
@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "middle", "last"])
def test_null_key_is_for_validation_only_where_the_topic_is_compacted(place: int, is_compacted: bool) -> None:
    keys = [None if number == place else b"k" for number in range(3)]
    data = sent(*(record(n, b"value of a record", key, timestamp_ms=NOW_MS) for n, key in enumerate(keys)))
    assert (Log(is_compacted=is_compacted).send(data) is None) == is_compacted


SIZES = [None, 0, 1, 62, 63, 64, 65, 8190, 8191, 8192]
SHAPES: list[Callable[[int], reference.Record]] = [
    *(lambda n, size=size: record(n, b"v", None if size is None else bytes(size)) for size in SIZES),
    *(lambda n, size=size: record(n, None if size is None else bytes(size), b"k") for size in SIZES),
    lambda n: record(n, b"v", b"k", headers=[(b"h", b"x"), (b"", None)]),
    lambda n: at(-BEFORE_MAX_MS, offset=n),
    lambda n: at(AFTER_MAX_MS, offset=n),
    lambda n: record(n, None, None),
    lambda n: record(n, b"", b""),
]
SHAPE_IDS = [
    *(f"key-{size}" for size in SIZES),
    *(f"value-{size}" for size in SIZES),
    "headers",
    "oldest",
    "newest",
    "nulls",
    "empty",
]


@pytest.mark.parametrize("shape", SHAPES, ids=SHAPE_IDS)
def test_record_of_any_shape_is_taken_wherever_it_stands(shape: Callable[[int], reference.Record]) -> None:
    for places in ({0}, {1}, {65}, {127, 128}, set(range(130))):
        records = [shape(n) if n in places else at(0, offset=n) for n in range(130)]
        info = Log(max_message_bytes=MAX_INT32).send(sent(*records))
        assert (info.base_offset, info.last_offset) == (0, 129), places
        assert info.max_timestamp_ms == max(one.timestamp_ms for one in records)


def is_readable(data: bytes) -> bool:
    try:
        return [one.offset for one in MemoryRecords(data)] == [0, 1, 2]
    except KStoreError:
        return False


def test_no_byte_of_a_record_makes_the_fast_way_take_what_reading_refuses() -> None:
    # Near enough to now that no timestamp of two bytes is out of bounds, and long enough for the fast way to look at.
    data = sent(*(record(n, b"value", b"key", timestamp_ms=NOW_MS) for n in range(3)))
    taken = refused = 0
    for position in range(61, len(data)):
        for value in (0, 1, 2, 3, 5, 0x0C, 0x7F, 0x80, 0x81, 0xFE, 0xFF):
            damaged = bytearray(data)
            builders.set_byte(damaged, position, value=value)
            builders.fix_crc(damaged)
            info = Log().send(bytes(damaged))
            if info is None:
                refused += 1
            else:
                assert is_readable(bytes(damaged)), (position, value)
                taken += 1
    assert taken > 100
    assert refused > 100


# Ahead of a flush


def append_large(log: Log, numbers: range) -> None:
    for number in numbers:
        log.appender.append_as_follower(number.to_bytes(8, "big") + LARGE[8:])


def test_segment_that_nobody_flushes_is_left_to_the_system() -> None:
    log = Log()
    append_large(log, range(9))
    assert log.begun == []


def test_segment_that_is_flushed_now_and_then_is_written_back_by_half_mebibytes() -> None:
    log, size = Log(), len(LARGE)
    append_large(log, range(2))
    log.segment.expect_flush()
    append_large(log, range(2, 11))
    assert log.begun == [(2 * size, 6 * size), (6 * size, 10 * size)]
    log.segment.expect_flush()
    append_large(log, range(11, 15))
    assert log.begun[2:] == [(11 * size, 15 * size)]


def test_write_back_ends_where_no_flush_follows() -> None:
    log = Log()
    log.segment.expect_flush()
    append_large(log, range(MOST_WRITE_BACK_BYTES // len(LARGE) + 8))
    assert log.begun[-1][1] <= MOST_WRITE_BACK_BYTES < log.begun[-1][1] + 4 * len(LARGE)


def test_append_behind_which_write_back_fails_is_not_shown() -> None:
    log = Log()
    log.segment.expect_flush()
    append_large(log, range(3))
    published = log.appender.published
    log.write_back_error = OSError("planted")
    with pytest.raises(OSError, match="planted"):
        append_large(log, range(3, 4))
    assert log.appender.published is published


# Memory of the caller


@pytest.mark.parametrize("form", [bytearray, lambda data: memoryview(bytearray(data))], ids=["bytearray", "a view"])
def test_memory_that_changes_after_its_check_is_not_what_is_written(form: Callable[[bytes], Any]) -> None:
    data = sent(at(0), at(1, offset=1))
    given = form(data)

    class ChangingLog(Log):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            given[70] ^= 1
            super().write(data)

    log = ChangingLog()
    log.send(given)
    assert given[70] != data[70]
    assert log.written[0][17:] == data[17:]
