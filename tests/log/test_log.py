"""Goal: a Log opens what a broker left, answers like a broker within its bounds, and says clearly what it can't do.
Method: built partitions and roots, every offset asked, checkpoints right and wrong, files cut, closed and shared."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest

from kstore.config import LogConfig
from kstore.env import OPEN_FILES_LIMIT, LocalEnv
from kstore.errors import (
    CorruptRecordError,
    LogClosedError,
    LogNotFoundError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    SegmentTooLargeError,
    StorageError,
    UnsupportedMagicError,
)
from kstore.log.log import Log
from kstore.log.source import FetchData
from kstore.record import MemoryRecords
from kstore.store.opening import open_log
from kstore.types import EARLIEST, LATEST, OffsetAndTimestamp, TimestampType, TopicPartition
from tests.fakes.counting import CountingEnv
from tests.making.batches import (
    FIRST_TIMESTAMP_MS,
    Layout,
    batch,
    batches,
    flip_bit,
    grow,
    record,
    set_byte,
    set_bytes,
    write_partition,
    write_root,
)
from tests.making.messages import packed_entry
from tests.reference.codec import Header, write_batch, write_end_transaction_marker

# Offsets 10..18, 20..28 and 40..45 in batches of three: the log starts at 10, a hole lies between the segments.
SEGMENTS = [
    batches(10, 3, records_per_batch=3, value_bytes=40),
    batches(20, 3, records_per_batch=3, value_bytes=40),
    batches(40, 2, records_per_batch=3, value_bytes=40),
]
HEADERS = [[Header.unpack(data) for data in segment] for segment in SEGMENTS]
OFFSETS = [*range(10, 19), *range(20, 29), *range(40, 46)]
END = 46


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_root(tmp_path / "data", {"t-0": SEGMENTS}, layout=Layout(index_interval_bytes=200))


@pytest.fixture
def directory(root: Path) -> Path:
    return root / "t-0"


def batch_holding(offset: int) -> tuple[int, int]:
    """Return (segment number, batch number) of the first batch that ends at or behind the offset."""
    return next(
        (number, at)
        for number, headers in enumerate(HEADERS)
        for at, header in enumerate(headers)
        if header.last_offset >= offset
    )


def test_log_describes_itself(directory: Path) -> None:
    with open_log(directory) as log:
        assert log.topic_partition == TopicPartition("t", 0)
        assert log.path == str(directory)
        assert [segment.base_offset for segment in log.segments] == [10, 20, 40]
        assert [segment.next_base_offset for segment in log.segments] == [20, 40, None]
        assert log.size_in_bytes == sum(len(data) for segment in SEGMENTS for data in segment)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (10, END, END)
        assert log.last_stable_offset is None
        assert "t-0" in repr(log)
        assert str(directory) in repr(log.segments[0])


@pytest.mark.parametrize("mode", ["w", "", "ra"])
def test_other_modes_are_refused(directory: Path, mode: str) -> None:
    with pytest.raises(ValueError, match="mode must be"):
        open_log(directory, mode)


def test_name_that_is_no_partition_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(LogNotFoundError, match="to create a partition, name it <topic>-<partition>, as orders-0"):
        open_log(tmp_path / "orders", "a")


def test_missing_directory_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(LogNotFoundError, match="no such directory"):
        open_log(tmp_path / "t-0")


def test_leftovers_of_a_broker_are_passed_over(directory: Path) -> None:
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000030.log.cleaned",
        "00000000000000000020.log.swap",
        "00000000000000000999.index",
        "00000000000000000046.snapshot",
        "leader-epoch-checkpoint.tmp",
        "99999999999999999999.log",
    ):
        (directory / name).write_bytes(b"left over")
    with open_log(directory) as log:
        assert [segment.base_offset for segment in log.segments] == [10, 20, 40]
        assert [r.offset for r in log.read()] == OFFSETS


def make_link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [make_link, os.mkfifo, Path.mkdir])
def test_segment_that_is_no_regular_file_is_refused(directory: Path, make: Callable[[Path], None]) -> None:
    path = directory / "00000000000000000060.log"
    make(path)
    with pytest.raises(StorageError, match="expected a regular file") as caught:
        open_log(directory)
    assert caught.value.path == str(path)


@pytest.mark.parametrize("mode", ["r", "a"])
def test_segment_larger_than_kafka_allows_is_refused(directory: Path, mode: Literal["r", "a"]) -> None:
    path = directory / "00000000000000000060.log"
    with path.open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(SegmentTooLargeError, match="expected at most 2147483647 bytes, found 2147483648") as caught:
        open_log(directory, mode)
    assert caught.value.path == str(path)


def test_segment_of_the_largest_size_is_opened(directory: Path) -> None:
    with (directory / "00000000000000000060.log").open("wb") as file:
        file.truncate(2**31 - 1)
    with open_log(directory) as log:
        assert (log.segments[-1].size_in_bytes, log.log_end_offset) == (2**31 - 1, 60)


def test_segment_deleted_between_listing_and_stat_is_gone(directory: Path) -> None:
    class RetentionEnv(LocalEnv):
        def listdir(self, path: str) -> list[str]:
            names = super().listdir(path)
            first = directory / "00000000000000000010.log"
            if first.exists() and path == str(directory):
                first.rename(first.with_suffix(".log.deleted"))
            return names

    with open_log(directory, env=RetentionEnv()) as log:
        assert (log.log_start_offset, len(log.segments)) == (20, 2)


def test_a_log_is_opened_with_one_listing_of_its_directory(directory: Path) -> None:
    listed = []

    class ListingEnv(LocalEnv):
        def listdir(self, path: str) -> list[str]:
            listed.append(path)
            return super().listdir(path)

    with open_log(directory, env=ListingEnv()) as log:
        assert len(log.segments) > 1
    assert listed == [str(directory)]


STARTS = [
    pytest.param(None, 10, END, id="no-checkpoint"),
    pytest.param({}, 10, END, id="not-in-the-checkpoint"),
    pytest.param({"t-0": 0}, 10, END, id="below-the-first-segment"),
    pytest.param({"t-0": 14}, 14, END, id="inside-a-batch"),
    pytest.param({"t-0": 25}, 25, END, id="in-the-second-segment"),
    pytest.param({"t-0": END}, END, END, id="at-the-end"),
    pytest.param({"t-0": 1000}, 1000, 1000, id="behind-the-end"),
]


@pytest.mark.parametrize(("checkpoint", "start", "end"), STARTS)
def test_log_start_is_the_checkpoint_or_the_first_segment(
    tmp_path: Path, checkpoint: dict[str, int] | None, start: int, end: int
) -> None:
    root = write_root(tmp_path / "data", {"t-0": SEGMENTS}, log_start_offsets=checkpoint)
    if checkpoint is None:
        (root / "log-start-offset-checkpoint").unlink()
    with open_log(root / "t-0") as log:
        assert (log.log_start_offset, log.log_end_offset) == (start, end)
        assert [r.offset for r in log.read()] == [offset for offset in OFFSETS if offset >= start]
        if start < end:
            assert log.offset_for_timestamp(0) == (start, FIRST_TIMESTAMP_MS + start)
        else:
            assert log.offset_for_timestamp(0) is None
        assert log.fetch(end, 1000) == FetchData(b"", log.high_watermark, start, end, None)
        for offset in (start - 1, end + 1):
            with pytest.raises(OffsetOutOfRangeError):
                log.fetch(offset, 1000)


@pytest.mark.parametrize("content", [b"garbage", b"0\n5\nt 0 14\n", b"\xff\xfe", b"9\n0\n"])
def test_malformed_checkpoint_is_passed_over_with_a_warning(
    root: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "log-start-offset-checkpoint").write_bytes(content)
    (root / "replication-offset-checkpoint").write_bytes(content)
    with caplog.at_level(logging.WARNING, logger="kstore.log"), open_log(root / "t-0") as log:
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (10, None, END)
    assert [str(root) in message for message in caplog.messages] == [True, True]


HIGH_WATERMARKS = [({}, None), ({"t-0": 41}, 41), ({"t-0": 0}, 10), ({"t-0": 5000}, END)]


@pytest.mark.parametrize(("checkpoint", "expected"), HIGH_WATERMARKS)
def test_high_watermark_is_the_checkpoint_within_the_log(
    tmp_path: Path, checkpoint: dict[str, int], expected: int | None
) -> None:
    root = write_root(tmp_path / "data", {"t-0": SEGMENTS}, high_watermarks=checkpoint)
    with open_log(root / "t-0") as log:
        assert log.high_watermark == expected
        assert log.fetch(10, 1).high_watermark == expected


@pytest.mark.parametrize(("checkpoint", "start"), [({}, 0), ({"t-0": 77}, 77)])
def test_directory_without_segments_is_an_empty_log(tmp_path: Path, checkpoint: dict[str, int], start: int) -> None:
    root = write_root(tmp_path / "data", {}, log_start_offsets=checkpoint)
    (root / "t-0").mkdir()
    with open_log(root / "t-0") as log:
        assert (log.log_start_offset, log.log_end_offset, log.size_in_bytes) == (start, start, 0)
        assert list(log.read()) == list(log.batches()) == log.plan() == []
        assert log.offset_for_timestamp(0) is None
        assert log.fetch(start, 1000).records == b""


def test_never_written_partition_is_empty(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, [[]])
    with open_log(directory) as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        assert list(log.read()) == log.plan() == []


def test_read_gives_records_whole(tmp_path: Path) -> None:
    records = [
        record(0, None, None),
        record(1, b"", b"", headers=[(b"h", None), (b"h", b""), (b"\xff", b"x")]),
        record(2, b"v", b"k", timestamp_ms=5),
    ]
    directory = write_partition(tmp_path, [[write_batch(records, codec=4)]])
    with open_log(directory) as log:
        found = list(log.read())
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in found] == [
        (r.offset, r.timestamp_ms, r.key, r.value) for r in records
    ]
    assert found[1].headers == (("h", None), ("h", b""), ("\udcff", b"x"))
    assert {r.topic_partition for r in found} == {TopicPartition("t", 0)}
    assert {r.timestamp_type for r in found} == {TimestampType.CREATE_TIME}


def test_every_pair_of_offsets_reads_what_lies_between(directory: Path) -> None:
    with open_log(directory) as log:
        for start in range(10, END + 1):
            for end in range(start, END + 3, 5):
                expected = [offset for offset in OFFSETS if start <= offset < end]
                assert [r.offset for r in log.read(start, end)] == expected
                batches_read = list(log.batches(start, end))
                wanted = [h for hs in HEADERS for h in hs if h.last_offset >= start and h.base_offset < end]
                assert [b.base_offset for b in batches_read] == ([h.base_offset for h in wanted] if start < end else [])


def test_batches_are_verbatim_and_know_their_place(directory: Path) -> None:
    with open_log(directory) as log:
        found = list(log.batches())
    assert [bytes(b) for b in found] == [data for segment in SEGMENTS for data in segment]
    assert found[4].position == len(SEGMENTS[1][0])
    assert found[4].path == str(directory / "00000000000000000020.log")
    assert found[4].topic_partition == TopicPartition("t", 0)


@pytest.mark.parametrize(("extra", "count"), [(-1, 3), (0, 4), (1, 4)])
def test_max_bytes_ends_batches_before_it_is_passed(directory: Path, extra: int, count: int) -> None:
    sizes = [len(data) for segment in SEGMENTS for data in segment]
    with open_log(directory) as log:
        assert len(list(log.batches(max_bytes=sum(sizes[:4]) + extra))) == count


def test_first_batch_comes_whatever_max_bytes_is(directory: Path) -> None:
    with open_log(directory) as log:
        assert [len(list(log.batches(max_bytes=limit))) for limit in (0, 1)] == [1, 1]
        with pytest.raises(ValueError, match="max_bytes must be from 0 to"):
            log.batches(max_bytes=-1)


def test_control_batches_are_skipped_by_read_alone(tmp_path: Path) -> None:
    marker = write_batch(
        [record(3, b"\x00\x00\x00\x00\x00\x00", b"\x00\x00\x00\x01")], is_control=True, is_transactional=True
    )
    directory = write_partition(tmp_path, [[batch(0, 3), marker, batch(4, 2)]])
    with open_log(directory) as log:
        assert [r.offset for r in log.read()] == [0, 1, 2, 4, 5]
        assert [b.is_control for b in log.batches()] == [False, True, False]
        assert log.offset_for_timestamp(FIRST_TIMESTAMP_MS + 3) == (3, FIRST_TIMESTAMP_MS + 3)


def committed_and_aborted(tmp_path: Path) -> tuple[Path, list[bytes]]:
    """A partition with an aborted transaction, a committed one, and one that is open."""
    producer = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    batches = [
        batch(0, 2, producer_id=1, **producer),
        batch(2, 2, producer_id=2, **producer),
        write_end_transaction_marker(4, timestamp_ms=5, commit=False, producer_id=1, producer_epoch=0),
        write_end_transaction_marker(5, timestamp_ms=5, commit=True, producer_id=2, producer_epoch=0),
        batch(6, 2, producer_id=3, **producer),
    ]
    return write_partition(tmp_path, [batches]), batches


def test_batches_of_committed_readers_are_neither_aborted_nor_undecided(tmp_path: Path) -> None:
    directory, batches = committed_and_aborted(tmp_path)
    with open_log(directory) as log:
        assert [bytes(one) for one in log.batches(isolation="read_committed")] == [batches[1], batches[3]]
        assert [one.base_offset for one in log.batches(1, 5, isolation="read_committed")] == [2]
        assert [bytes(one) for one in log.batches()] == batches
        with pytest.raises(ValueError, match="isolation must be"):
            log.batches(isolation="committed")  # type: ignore[arg-type]
        with pytest.raises(
            ValueError, match="one of read_uncommitted, high_watermark, read_committed, got 'committed'"
        ):
            log.fetch(0, 1, isolation="committed")  # type: ignore[arg-type]


def test_aborted_batch_that_is_left_out_counts_for_no_limit_and_is_checked(tmp_path: Path) -> None:
    directory, batches = committed_and_aborted(tmp_path)
    with open_log(directory) as log:
        limit = len(batches[1]) + len(batches[3])
        found = list(log.batches(max_bytes=limit, isolation="read_committed"))
        assert [bytes(one) for one in found] == [batches[1], batches[3]]
    flip_bit(directory / f"{0:020d}.log", 65, bit=0)
    with open_log(directory) as log, pytest.raises(CorruptRecordError, match="CRC"):
        list(log.batches(isolation="read_committed"))


def test_offsets_that_a_log_holds_are_never_out_of_range(tmp_path: Path) -> None:
    transactional = {"is_transactional": True, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    path = write_partition(tmp_path, [[*batches(4, 3, records_per_batch=2), batch(10, 2, **transactional)]])
    with open_log(path) as log:
        for skips in ({}, {"on_error": "skip"}):
            assert log._held_offsets(**skips) == log._held_offsets(0, 99, **skips) == (4, 12)
            assert log._held_offsets(5, 6, **skips) == (5, 6)
            assert log._held_offsets(20, 99, **skips)[0] == log._held_offsets(20, 99, **skips)[1]
            assert log._held_offsets(isolation="read_committed", **skips) == (4, 10)
            assert log._held_offsets(since_ms=FIRST_TIMESTAMP_MS + 7, **skips) == (7, 12)
            assert log._held_offsets(since_ms=FIRST_TIMESTAMP_MS + 20, **skips) == (12, 12)
            assert log._held_offsets(since_ms=-3, **skips) == (4, 12)


def test_decoders_are_called_with_what_is_not_null(tmp_path: Path) -> None:
    directory = write_partition(
        tmp_path, [[write_batch([record(0, b"1", None), record(1, None, b"2"), record(2, b"", b"")])]]
    )
    with open_log(directory) as log:
        found = list(log.read(key_deserializer=bytes.decode, value_deserializer=len))
        assert [(r.key, r.value) for r in found] == [(None, 1), ("2", None), ("", 0)]
        assert [r.offset for r in found] == [0, 1, 2]
        assert [r.value for r in log.read(key_deserializer=bytes.decode)] == [b"1", None, b""]


def test_built_in_decoders_are_known_by_name(tmp_path: Path) -> None:
    directory = write_partition(tmp_path, [[write_batch([record(0, bytes(7) + b"\x05", b"k")])]])
    with open_log(directory) as log:
        (found,) = log.read(
            key_deserializer="string", value_deserializer="org.apache.kafka.common.serialization.LongDeserializer"
        )
        assert (found.key, found.value) == ("k", 5)
        with pytest.raises(ValueError, match="expected one of string"):
            log.read(key_deserializer="xml")


@pytest.mark.parametrize("origin", ["key", "value"])
def test_failure_of_a_decoder_names_the_record(tmp_path: Path, origin: str) -> None:
    records = [record(offset, b"%d" % offset, b"%d" % offset) for offset in range(40, 42)]
    records.append(record(42, b"x" if origin == "value" else b"0", b"x" if origin == "key" else b"0"))
    directory = write_partition(tmp_path, [[write_batch(records)]])
    with open_log(directory) as log:
        found = log.read(key_deserializer=int, value_deserializer=int)
        assert [next(found).value for _ in range(2)] == [40, 41]
        with pytest.raises(RecordDeserializationError, match=f"{origin} of the record at offset 42 of") as caught:
            next(found)
    error = caught.value
    assert isinstance(error.__cause__, ValueError)
    assert (error.topic, error.partition, error.offset) == (*log.topic_partition, 42)
    assert (error.origin, error.timestamp_ms) == (origin, FIRST_TIMESTAMP_MS + 42)
    assert "invalid literal" in str(error)


def test_wrong_crc_is_met_by_default_and_passed_on_request(directory: Path) -> None:
    position = len(SEGMENTS[1][0])
    set_byte(directory / "00000000000000000020.log", position + 17, value=0x00)
    set_byte(directory / "00000000000000000020.log", position + 18, value=0x00)
    with open_log(directory) as log:
        assert [r.offset for r in log.read(verify="header")] == OFFSETS
        for iterator in (log.read(), log.batches()):
            with pytest.raises(CorruptRecordError, match="CRC mismatch") as caught:
                list(iterator)
            assert caught.value.path == str(directory / "00000000000000000020.log")
            assert (caught.value.position, caught.value.base_offset) == (position, 23)
        assert [r.offset for r in log.read(26)] == [offset for offset in OFFSETS if offset >= 26]
        with pytest.raises(ValueError, match="verify must be"):
            log.read(verify="none")


def test_offsets_that_overlap_the_next_segment_are_damage(directory: Path) -> None:
    """A base offset is outside the CRC: only its neighbours tell that it is wrong."""
    log_file = directory / "00000000000000000010.log"
    position = len(SEGMENTS[0][0]) + len(SEGMENTS[0][1])
    set_bytes(log_file, position, (30).to_bytes(8, "big"))
    with open_log(directory) as log, pytest.raises(CorruptRecordError, match="into the next segment") as caught:
        list(log.read())
    assert caught.value.position == position


def test_message_of_magic_0_behind_batches_of_magic_2_is_read_with_them(tmp_path: Path) -> None:
    message = bytes.fromhex("0000000000000003 00000010 1fecd70a 00 00 00000001 6b 00000001 76")
    directory = write_partition(tmp_path, [[batch(0, 3)]])
    grow(directory / "00000000000000000000.log", message)
    with open_log(directory) as log:
        assert log.log_end_offset == 4
        assert [(record.offset, record.key, record.timestamp_ms) for record in log.read(3)] == [(3, b"k", -1)]
        assert [found.magic for found in log.batches()] == [2, 0]
        assert log.fetch(3, 1).records == message


OUT_OF_RANGE = [-3, 0, 9, END + 1, 2**63 - 1]


def test_read_begins_at_the_start_and_the_end_by_name(directory: Path) -> None:
    with open_log(directory) as log:
        assert [record.offset for record in log.read(EARLIEST)] == [record.offset for record in log.read()]
        assert [record.offset for record in log.read(EARLIEST, 12)] == [record.offset for record in log.read(None, 12)]
        assert [*log.read(LATEST)] == [*log.read(LATEST, isolation="read_committed")] == [*log.batches(LATEST)] == []


@pytest.mark.parametrize("offset", OUT_OF_RANGE)
def test_offset_outside_the_log_is_refused_at_once(directory: Path, offset: int) -> None:
    with open_log(directory) as log:
        for ask in (
            log.read,
            log.batches,
            lambda at: log.fetch(at, 1),
            lambda at: log.plan(start_offset=at, max_bytes=1000),
        ):
            with pytest.raises(OffsetOutOfRangeError, match="expected 10 to 46") as caught:
                ask(offset)
            error = caught.value
            assert (error.offset, error.log_start_offset, error.log_end_offset) == (offset, 10, END)


def test_end_before_start_is_refused_at_once(directory: Path) -> None:
    with open_log(directory) as log:
        for ask in (log.read, log.batches):
            with pytest.raises(ValueError, match="end_offset must not be below start_offset 20, got 19"):
                ask(20, 19)


@pytest.mark.parametrize("min_one_batch", [True, False])
def test_fetch_starts_at_the_batch_and_stays_in_its_segment(directory: Path, min_one_batch: bool) -> None:
    with open_log(directory) as log:
        for offset in range(10, END):
            number, at = batch_holding(offset)
            rest = b"".join(SEGMENTS[number][at:])
            first = len(SEGMENTS[number][at])
            for max_bytes in (0, 1, first - 1, first, first + 1, 10**6):
                size = max(max_bytes, first) if min_one_batch else max_bytes
                data = log.fetch(offset, max_bytes, min_one_batch=min_one_batch)
                assert data.records == rest[:size], (offset, max_bytes)
                assert data.base_offset == (HEADERS[number][at].base_offset if data.records else None)
                assert (data.log_start_offset, data.log_end_offset) == (10, END)


def test_fetch_at_a_damaged_end_is_an_error_not_an_end(directory: Path) -> None:
    log_file = directory / "00000000000000000040.log"
    size = log_file.stat().st_size
    grow(log_file, b"\xaa" * 100)
    with open_log(directory) as log:
        assert log.log_end_offset == END
        assert log.fetch(40, 10**6).records == b"".join(SEGMENTS[2])
        with pytest.raises(UnsupportedMagicError) as caught:
            log.fetch(END, 1)
        assert caught.value.position == size


def test_negative_sizes_are_misuse(directory: Path) -> None:
    with open_log(directory) as log:
        with pytest.raises(ValueError, match="max_bytes must be from 0 to"):
            log.fetch(10, -1)
        with pytest.raises(ValueError, match="max_bytes must be from 1 to"):
            log.plan(max_bytes=0)


def test_time_lookup_goes_on_behind_a_segment_that_only_seems_to_hold_the_answer(tmp_path: Path) -> None:
    """Records below the log start do not count, even if their timestamps would."""
    segments = [
        [write_batch([record(0, timestamp_ms=9000), record(1, timestamp_ms=10)])],
        [write_batch([record(2, timestamp_ms=20), record(3, timestamp_ms=5000)])],
    ]
    root = write_root(tmp_path / "data", {"t-0": segments}, log_start_offsets={"t-0": 1})
    with open_log(root / "t-0") as log:
        assert log.offset_for_timestamp(4000) == OffsetAndTimestamp(3, 5000)
        assert log.offset_for_timestamp(5) == OffsetAndTimestamp(1, 10)
        assert log.offset_for_timestamp(9000) is None


def test_time_lookup_continues_after_a_segment_of_messages_without_times(tmp_path: Path) -> None:
    """A broker takes the time of the file for its largest timestamp, searches there only, and finds nothing."""
    with open_log(tmp_path / "t-0", "a") as log:
        log.append_as_follower(MemoryRecords(packed_entry(b"v", b"k", offset=0, magic=0)))
        log.roll()
        log.append_as_follower(MemoryRecords(write_batch([record(1, timestamp_ms=5000)])))
        assert log.offset_for_timestamp(4000) == OffsetAndTimestamp(1, 5000)
        assert log.offset_for_timestamp(6000) is None


def test_time_lookup_is_by_offset_order_not_by_nearest_time(directory: Path) -> None:
    with open_log(directory) as log:
        for offset in OFFSETS:
            assert log.offset_for_timestamp(FIRST_TIMESTAMP_MS + offset) == (offset, FIRST_TIMESTAMP_MS + offset)
        assert log.offset_for_timestamp(FIRST_TIMESTAMP_MS + 19) == (20, FIRST_TIMESTAMP_MS + 20)
        assert log.offset_for_timestamp(FIRST_TIMESTAMP_MS + END) is None


def test_closed_log_answers_nothing_more(directory: Path) -> None:
    log = open_log(directory)
    running = log.read()
    assert next(running).offset == 10
    log.close()
    log.close()
    for ask in (
        log.read,
        log.batches,
        log.plan,
        lambda: log.fetch(10, 1),
        lambda: log.offset_for_timestamp(0),
        lambda: log.log_end_offset,
        lambda: log.log_start_offset,
        lambda: log.high_watermark,
        lambda: list(running),
    ):
        with pytest.raises(LogClosedError, match="closed"):
            ask()


def test_log_is_a_snapshot_and_the_next_one_sees_more(directory: Path) -> None:
    log_file = directory / "00000000000000000040.log"
    with open_log(directory) as log:
        grow(log_file, batch(46, 3))
        assert (log.log_end_offset, [r.offset for r in log.read(40)]) == (46, [*range(40, 46)])
        with open_log(directory) as later:
            assert (later.log_end_offset, [r.offset for r in later.read(40)]) == (49, [*range(40, 49)])


def test_segment_deleted_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    segments = [batches(0, 40, value_bytes=4000), batches(40, 2)]
    directory = write_partition(tmp_path, segments)
    with open_log(directory, config=LogConfig(read_chunk_bytes=4096, time_index_proof_bytes=4096)) as log:
        records = log.read()
        assert next(records).offset == 0
        for name in ("00000000000000000000.log", "00000000000000000000.index"):
            (directory / name).unlink()
        assert [r.offset for r in records] == [*range(1, 42)]


def test_many_segments_and_logs_hold_few_files(tmp_path: Path) -> None:
    segments = [[batch(number)] for number in range(2 * OPEN_FILES_LIMIT)]
    directory = write_partition(tmp_path, segments)
    env = CountingEnv()
    logs = [open_log(directory, env=env) for _ in range(3)]
    assert env.open_names() == []
    for log in logs:
        assert [r.offset for r in log.read()] == [*range(len(segments))]
    assert 0 < len(env.open_names()) <= OPEN_FILES_LIMIT
    for log in logs:
        log.close()
    assert env.open_names() == []


def test_opening_opens_no_file_and_finding_the_end_only_the_last_segment(directory: Path) -> None:
    env = CountingEnv()
    with open_log(directory, env=env) as log:
        assert [file.path for file in env.opened] == []
        assert log.log_end_offset == END
        assert {Path(file.path).name[:20] for file in env.opened} - {"log-start-offset-che"} == {"0" * 18 + "40"}


def test_threads_may_share_a_log(directory: Path) -> None:
    failures: list[object] = []

    def work(log: Log) -> None:
        for offset in OFFSETS:
            number, at = batch_holding(offset)
            if log.fetch(offset, 1).records != SEGMENTS[number][at]:
                failures.append(offset)
        if [r.offset for r in log.read()] != OFFSETS:
            failures.append("read")
        if log.offset_for_timestamp(0) != (10, FIRST_TIMESTAMP_MS + 10):
            failures.append("time")

    with open_log(directory) as log:
        threads = [threading.Thread(target=work, args=(log,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_gaps_between_batches_are_bridged(directory: Path) -> None:
    with open_log(directory) as log:
        assert log.fetch(19, 1).base_offset == 20
        assert log.fetch(35, 1).base_offset == 40
        offsets = [r.offset for r in log.read(29)]
        assert offsets[0] == 40
        assert all(first < second for first, second in pairwise(offsets))
