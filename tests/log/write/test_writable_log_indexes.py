"""Goal: what lies beside the records, indexes and snapshots, never keeps a log from going on or from being opened.
Method: full and wrong indexes, offsets that are missing between segments, and offsets too far apart for one."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.env import LocalEnv
from kstore.errors import LogFailedError, RecordBatchTooLargeError, StorageError
from kstore.log.files.transaction_index import AbortedTxn
from kstore.log.verify import verify
from kstore.log.write.writable_log import WritableLog
from kstore.record import MemoryRecords
from kstore.store.opening import open_log
from kstore.types import Ack
from tests.fakes.full_disk import FullEnv
from tests.making.batches import batch, batches, record
from tests.making.messages import packed_entry
from tests.reference.codec import write_batch

DATA = batches(0, 6, value_bytes=40)
# Two batches a segment.
SMALL = LogConfig(segment_bytes=2 * max(map(len, DATA)) + 10, index_interval_bytes=0)
# 15 offset entries and 10 time entries.
SMALL_INDEXES = LogConfig(segment_index_bytes=120, index_interval_bytes=0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


def append(log: WritableLog, *, timestamp_ms: int) -> None:
    log.append(MemoryRecords(write_batch([record(0, b"v", timestamp_ms=timestamp_ms)])))


def offsets(log: WritableLog) -> list[int]:
    return [one.offset for one in log.read()]


def abandon(log: WritableLog) -> None:
    """Leave a log as a process leaves it that is killed."""
    log._local.close_handlers()
    log._writer_files.release()
    super(WritableLog, log).close()


def snapshots(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.snapshot"))


# Full and wrong indexes


def test_segment_whose_time_index_its_closing_entry_fills_is_flushed(directory: Path) -> None:
    # Room for 4 time entries.
    with open_log(directory, "a", LogConfig(segment_index_bytes=48, index_interval_bytes=0)) as log:
        log.append_as_follower(MemoryRecords(b"".join(DATA)))
        assert (log.roll(), log.flush()) == (6, 6)
        times = log.segments[0].time_index
        assert times is not None
        assert [one.offset for one in times.entries()] == [1, 2, 3, 5]


def test_log_whose_indexes_are_larger_than_they_may_be_now_is_rolled(directory: Path) -> None:
    with open_log(directory, "a", LogConfig(index_interval_bytes=0)) as log:
        for number in range(30):
            append(log, timestamp_ms=number)
    with open_log(directory, "a", SMALL_INDEXES) as log:
        append(log, timestamp_ms=100)
        assert [segment.base_offset for segment in log.segments] == [0, 30]
        assert log.flush() == 31


@pytest.mark.parametrize(
    ("suffix", "entry"),
    [
        (".index", struct.pack(">ii", 1000, 9 * 70)),
        (".index", struct.pack(">ii", 10, 1 << 20)),
        (".index", struct.pack(">ii", 10, 9 * 70)),
        (".timeindex", struct.pack(">qi", 11, 1000)),
        (".timeindex", struct.pack(">qi", 1 << 60, 1000)),
    ],
    ids=[
        "offset behind the end",
        "position behind the end",
        "next offset",
        "offset of a time",
        "offset of a late time",
    ],
)
def test_index_entry_of_what_the_log_never_had_keeps_no_record_out(directory: Path, suffix: str, entry: bytes) -> None:
    config = LogConfig(index_interval_bytes=0)
    with open_log(directory, "a", config) as log:
        for number in range(10):
            append(log, timestamp_ms=number + 1)
    path = directory / f"{0:020d}{suffix}"
    path.write_bytes(path.read_bytes() + entry)
    with open_log(directory, "a", config) as log:
        for number in range(10, 20):
            append(log, timestamp_ms=number + 1)
        (segment,) = log.segments
        index, times = segment.offset_index, segment.time_index
        assert index is not None
        assert times is not None
        # The first batch of an opening gets no entry.
        indexed = [*range(1, 10), *range(11, 20)]
        assert [one.offset for one in index.entries()] == indexed
        assert [tuple(one) for one in times.entries()] == [(number + 1, number) for number in indexed]
        assert offsets(log) == list(range(20))


# Indexes for which there is no space

INDEX_SUFFIXES = (".index", ".timeindex")


def is_indexed(directory: Path, base_offset: int) -> bool:
    return all((directory / f"{base_offset:020d}{suffix}").stat().st_size for suffix in INDEX_SUFFIXES)


@pytest.mark.parametrize("ack", ["written", "flushed"])
@pytest.mark.parametrize("suffix", INDEX_SUFFIXES)
def test_index_of_a_rolled_segment_that_finds_no_space_fails_no_append(directory: Path, suffix: str, ack: Ack) -> None:
    env = FullEnv()
    with open_log(directory, "a", SMALL, env=env) as log:
        env.full = (suffix,)
        for number, data in enumerate(DATA):
            assert log.append_as_follower(MemoryRecords(data), ack=ack).last_offset == number
        assert (log.flush(), log.has_failed, offsets(log)) == (6, False, list(range(6)))
        assert not is_indexed(directory, 0)
        env.full = ()
        log.append_as_follower(MemoryRecords(batch(6, 1)), ack="flushed")
        assert [is_indexed(directory, base) for base in (0, 2, 4)] == [True] * 3
    with open_log(directory, "a", SMALL) as again:
        assert again.recovery_report.rebuilt == ()
        assert list(verify(again)) == []


@pytest.mark.parametrize("suffix", INDEX_SUFFIXES)
def test_log_with_an_index_that_never_found_space_is_recovered_when_it_is_next_opened(
    directory: Path, suffix: str
) -> None:
    env = FullEnv()
    log = open_log(directory, "a", SMALL, env=env)
    env.full = (suffix,)
    for data in DATA:
        log.append_as_follower(MemoryRecords(data))
    with pytest.raises(StorageError, match="no space"):
        log.close()
    assert not (directory.parent / ".kafka_cleanshutdown").exists()
    with open_log(directory, "a", SMALL) as again:
        assert f"{0:020d}{suffix}" in again.recovery_report.rebuilt
        assert offsets(again) == list(range(6))


def test_recovery_point_for_a_broker_stays_in_the_segment_whose_index_is_not_written(directory: Path) -> None:
    """A broker rebuilds no index of the segments before that point."""
    env = FullEnv()
    with open_log(directory, "a", SMALL, env=env) as log:
        env.full = INDEX_SUFFIXES
        for data in DATA:
            log.append_as_follower(MemoryRecords(data), ack="flushed")
        assert (log.flushed_offset, log.marks().recovery_point) == (6, 0)
        env.full = ()
        log.append_as_follower(MemoryRecords(batch(6, 1)), ack="flushed")
        assert (log.flushed_offset, log.marks().recovery_point) == (7, 7)
    assert log.marks().recovery_point == 7


def test_records_of_a_rolled_segment_that_find_no_space_fail_the_append(directory: Path) -> None:
    """Those are synced when a log is rolled, and their transaction index when the segment is closed."""
    env = FullEnv()
    with open_log(directory, "a", SMALL, env=env) as log:
        for data in DATA[:2]:
            log.append_as_follower(MemoryRecords(data))
        log._local.active.transaction_index.append(AbortedTxn(7, 0, 1, 2))
        env.full = (".txnindex",)
        with pytest.raises(StorageError, match="no space"):
            log.append_as_follower(MemoryRecords(DATA[2]))
        assert log.log_end_offset == 3
        with pytest.raises(LogFailedError):
            log.append_as_follower(MemoryRecords(DATA[3]))


# Missing offsets


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed before the gap"])
def test_log_with_offsets_missing_between_segments_is_opened_after_a_kill(directory: Path, is_closed: bool) -> None:
    log = open_log(directory, "a", SMALL)
    for data in DATA[:2]:
        log.append_as_follower(MemoryRecords(data))
    if is_closed:
        log.close()
        log = open_log(directory, "a", SMALL)
    log.append_as_follower(MemoryRecords(batch(100, 1, value_bytes=40)), ack="flushed")
    assert snapshots(directory) == [100]
    abandon(log)
    with open_log(directory, "a", SMALL) as again:
        assert offsets(again) == [0, 1, 100]
        assert again.recovery_report.is_unharmed


def test_log_cut_inside_a_batch_where_it_was_closed_before_is_opened_after_a_kill(directory: Path) -> None:
    with open_log(directory, "a") as log:
        log.append(MemoryRecords(batch(0, 2)))
    log = open_log(directory, "a")
    log.append(MemoryRecords(batch(0, 10)))
    log.truncate_to(5)
    log.roll()
    log.append(MemoryRecords(batch(0, 1)), ack="flushed")
    abandon(log)
    with open_log(directory, "a") as again:
        assert offsets(again) == [0, 1, 5]


class NotingEnv(LocalEnv):
    """Notes the names that files get."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def rename(self, source: str, target: str) -> None:
        self.names.append(Path(target).name)
        super().rename(source, target)


def test_recovery_leaves_no_snapshot_among_missing_offsets_at_any_moment(directory: Path) -> None:
    log = open_log(directory, "a", SMALL)
    for data in (*DATA[:2], batch(100, 1, value_bytes=40)):
        log.append_as_follower(MemoryRecords(data))
    abandon(log)
    env = NotingEnv()
    with open_log(directory, "a", SMALL, env=env):
        written = {int(name.split(".")[0]) for name in env.names if name.endswith(".snapshot")}
        assert written
        assert written <= {100, 101}


# Offsets too far apart


@pytest.mark.parametrize(
    "data",
    [
        [batch(0, 1), batch(2**31, 1)],
        [batch(50, 1), batch(50 + 2**31, 1)],
        [packed_entry(b"v", None, offset=offset, magic=1) for offset in (0, 2**31)],
    ],
    ids=["from the base on", "behind the base", "messages"],
)
def test_append_of_offsets_that_no_segment_holds_is_refused_and_changes_nothing(
    directory: Path, data: list[bytes]
) -> None:
    with open_log(directory, "a") as log:
        with pytest.raises(RecordBatchTooLargeError, match="offsets of the append"):
            log.append_as_follower(MemoryRecords(b"".join(data)))
        assert ([one.base_offset for one in log.segments], log.leader_epochs.entries) == ([0], ())
        for one in data:
            log.append_as_follower(MemoryRecords(one))
        assert len(log.segments) == 2
        assert len(offsets(log)) == 2


def test_batch_with_a_negative_producer_id_belongs_to_no_producer_after_recovery_either(directory: Path) -> None:
    log = open_log(directory, "a")
    log.append_as_follower(MemoryRecords(batch(0, 1, producer_id=-2, producer_epoch=0, base_sequence=0)))
    assert not log.producer_state.active_producers
    abandon(log)
    with open_log(directory, "a") as again:
        assert not again.producer_state.active_producers
