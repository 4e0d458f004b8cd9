"""Goal: the common append, one compiled call, keeps the rules of any other: who may write, which clock, what follows.
Method: MemoryRecords appended without any option, next to the same append with one that changes nothing."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstore._core import AppendedFile, OffsetIndexEntries, SegmentAppender, TimeIndexEntries, survey_replicated
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV, LocalEnv
from kstore.errors import LogClosedError, LogFailedError, RecordValidationError, StorageError
from kstore.log.segment.file_records import FileRecords
from kstore.log.write.rules import LogAppendInfo
from kstore.log.write.writable_log import WritableLog
from kstore.record import AppendOrigin, MemoryRecords
from kstore.store.opening import open_log
from tests.fakes.full_disk import FullEnv
from tests.making.batches import FIRST_TIMESTAMP_MS, batch, record
from tests.reference.codec import write_batch

APPEND_TIME = LogConfig(message_timestamp_type="LogAppendTime")
SENT = batch(0, 2)
Append = Callable[[WritableLog], LogAppendInfo]

APPENDS: list[Any] = [
    pytest.param(lambda log: log.append(MemoryRecords(SENT)), id="alone"),
    pytest.param(lambda log: log.append(MemoryRecords(bytearray(SENT))), id="memory-that-changes"),
    pytest.param(lambda log: log.append(MemoryRecords(SENT), origin=AppendOrigin.CLIENT), id="with-an-option"),
]


class ClockEnv(LocalEnv):
    def wall_clock_ms(self) -> int:
        return FIRST_TIMESTAMP_MS + 7


@pytest.mark.parametrize("append", APPENDS)
def test_append_time_is_that_of_the_clock_of_the_log(tmp_path: Path, append: Append) -> None:
    with open_log(tmp_path / "t-0", "a", APPEND_TIME, env=ClockEnv()) as log:
        for _ in range(2):
            assert append(log).log_append_time_ms == FIRST_TIMESTAMP_MS + 7


@pytest.mark.parametrize("append", APPENDS)
def test_append_time_is_that_of_the_system(tmp_path: Path, append: Append) -> None:
    with open_log(tmp_path / "t-0", "a", APPEND_TIME) as log:
        for _ in range(2):
            before_ms = DEFAULT_ENV.wall_clock_ms()
            assert before_ms <= append(log).log_append_time_ms <= DEFAULT_ENV.wall_clock_ms()


@pytest.mark.parametrize("append", APPENDS)
def test_append_that_makes_a_flush_due_waits_for_it(tmp_path: Path, append: Append) -> None:
    with open_log(tmp_path / "t-0", "a", LogConfig(flush_messages=2)) as log:
        for count in (1, 2):
            append(log)
            assert log.counts.flushes == count


@pytest.mark.parametrize("append", APPENDS)
def test_append_that_does_not_fit_starts_a_segment(tmp_path: Path, append: Append) -> None:
    with open_log(tmp_path / "t-0", "a", LogConfig(segment_bytes=len(SENT) + 1)) as log:
        for count in (1, 2, 3):
            append(log)
            assert len(log.segments) == count


@pytest.mark.parametrize("append", APPENDS)
def test_followers_are_told_of_an_append(tmp_path: Path, append: Append) -> None:
    with open_log(tmp_path / "t-0", "a") as log, log.follow(0, timeout=30) as follower:
        append(log)
        assert next(follower).offset == 0
        waited: list[int] = []
        thread = threading.Thread(target=lambda: waited.extend(next(follower).offset for _ in range(2)))
        thread.start()
        append(log)
        thread.join()
        assert waited == [1, 2]


@pytest.mark.parametrize("append", APPENDS)
def test_an_append_tells_at_once(tmp_path: Path, append: Append, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    with open_log(tmp_path / "t-0", "a") as log, log.follow(0):
        monkeypatch.setattr(log._live, "tell", lambda: told.append(log.log_end_offset))
        append(log)
        append(log)
        assert told == [2, 4]


@pytest.mark.parametrize("append", APPENDS)
def test_closed_log_takes_no_append(tmp_path: Path, append: Append) -> None:
    with open_log(tmp_path / "t-0", "a") as log:
        append(log)
    for _ in range(2):
        with pytest.raises(LogClosedError):
            append(log)


@pytest.mark.parametrize("append", APPENDS)
def test_append_goes_on_after_one_without_space(tmp_path: Path, append: Append) -> None:
    with open_log(tmp_path / "t-0", "a", env=(env := FullEnv())) as log:
        append(log)
        env.full = (".log",)
        with pytest.raises(StorageError) as caught:
            append(log)
        env.full = ()
        assert not caught.value.is_final
        assert append(log).base_offset == 2


@pytest.mark.parametrize("append", APPENDS)
def test_append_that_was_not_undone_is_the_last_one(tmp_path: Path, append: Append) -> None:
    with open_log(tmp_path / "t-0", "a", env=(env := FullEnv())) as log:
        append(log)
        log.flush()
        env.calls, env.full = ("write back",), (".log",)
        with pytest.raises(StorageError) as caught:
            log.append(MemoryRecords(batch(0, 1, value_bytes=600_000)))
        assert caught.value.is_final
        with pytest.raises(LogFailedError):
            append(log)


@pytest.mark.parametrize("append", APPENDS)
def test_log_whose_file_is_no_longer_in_its_place_takes_no_append_after_a_flush(tmp_path: Path, append: Append) -> None:
    with open_log(tmp_path / "t-0", "a") as log:
        append(log)
        Path(log.segments[-1].path).rename(tmp_path / "elsewhere")
        with pytest.raises(StorageError):
            log.flush()
        for _ in range(2):
            with pytest.raises(LogFailedError):
                append(log)
        assert (tmp_path / "elsewhere").stat().st_size == len(SENT)


def test_refused_append_changes_nothing(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", "a", LogConfig(cleanup_policy="compact")) as log:
        for _ in range(2):
            with pytest.raises(RecordValidationError):
                log.append(MemoryRecords(write_batch([record(0, b"without a key")])))
        assert log.log_end_offset == 0


def test_results_are_nothing_for_the_garbage_collector(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-0", "a") as log:
        first, common = (log.append(MemoryRecords(SENT)) for _ in range(2))
    assert not gc.is_tracked(common)
    assert common == (2, 3, FIRST_TIMESTAMP_MS + 1, -1, 0, len(SENT), False)
    assert (first._replace(base_offset=2, last_offset=3), type(common)) == (common, LogAppendInfo)


class CountedRecords(FileRecords):
    """A file that does more than append."""

    calls = 0

    def append_bytes(self, batches: Any) -> int:
        self.calls += 1
        return super().append_bytes(batches)


@pytest.mark.parametrize("kind", [FileRecords, CountedRecords])
def test_own_append_of_a_file_is_called(tmp_path: Path, kind: type[FileRecords]) -> None:
    entries: Any = {"base_offset": 0, "max_bytes": 1200}
    with kind.open(tmp_path / "records.log") as records:
        segment = SegmentAppender(
            OffsetIndexEntries(b"", **entries),
            TimeIndexEntries(b"", **entries),
            write=records.append_bytes,
            write_parts=records.append_parts,
            write_index_pages=lambda: None,
            index_interval_bytes=4096,
            segment_bytes=2**20,
            max_age_ms=2**40,
            created_ms=0,
        )
        segment.append(survey_replicated(SENT))
        assert isinstance(records, AppendedFile)
        assert (records.size_in_bytes, getattr(records, "calls", 1)) == (len(SENT), 1)
