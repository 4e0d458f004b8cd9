"""Goal: retention removes the segments that its settings name, and no other, whatever timestamps, indexes, file times
and clocks say. Method: small logs with a clock that the test sets; the segments that are left are looked at."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from kstore.config import LogConfig
from kstore.log.write.retention import CLOCK_TOLERANCE_MS
from kstore.log.write.writable_log import WritableLog
from kstore.record import ControlRecordType, EndTransactionMarker, Record
from kstore.record.builder import with_end_transaction_marker, with_transactional_records
from kstore.store.opening import open_log
from tests.golden.cleaning_cases import Clock, checkpointed, segment_bases
from tests.making.batches import flip_bit, zero
from tests.making.compacting import NOW_MS

DAY_MS = 24 * 60 * 60 * 1000
CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=0, retention_ms=DAY_MS, segment_ms=2**62)
OLD_MS = NOW_MS - 2 * DAY_MS


class Ticking(Clock):
    """A wall clock and a monotonic clock that the test sets."""

    monotonic = 0

    def monotonic_ms(self) -> int:
        return self.monotonic

    def set_wall(self, now_ms: int) -> None:
        self._now_ms = now_ms


def opened(path: Path, config: LogConfig = CONFIG, *, env: Clock | None = None) -> WritableLog:
    return open_log(path / "t-0", "a", config, env=env or Clock(NOW_MS))


def fill(log: WritableLog, *segments: int) -> None:
    """Write a segment of two records with each of these timestamps, and leave the last one active."""
    for number, timestamp_ms in enumerate(segments):
        if number:
            log.roll()
        for _ in range(2):
            log.append(Record(timestamp_ms=timestamp_ms, key=b"k", value=b"v" * 100))


def bases(log: WritableLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_old_segments_go_up_to_the_first_that_is_not(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, OLD_MS, OLD_MS, NOW_MS, OLD_MS, NOW_MS)
        assert [(one.base_offset, one.reason) for one in log.plan_retention()] == [(0, "time"), (2, "time")]
        assert [one.base_offset for one in log.delete_old_segments()] == [0, 2]
        assert bases(log) == [4, 6, 8]
        assert log.log_start_offset == 4
        assert checkpointed(tmp_path / "t-0", "log-start-offset-checkpoint") == 4
        assert log.delete_old_segments() == []


def test_records_that_took_the_place_of_old_ones_during_a_deletion_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as log:
        fill(log, OLD_MS, OLD_MS)
        flush = log._durability.flush

        def replace_then_flush() -> int:
            log.truncate_to(2)
            for _ in range(2):
                log.append(Record(timestamp_ms=NOW_MS, key=b"k", value=b"v" * 100))
            return flush()

        monkeypatch.setattr(log._durability, "flush", replace_then_flush)
        assert log.delete_old_segments() == []
        monkeypatch.undo()
        assert [one.base_offset for one in log.delete_old_segments()] == [0]
        assert [record.offset for record in log.read()] == [2, 3]


def test_a_segment_is_old_only_after_the_retention_time(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, NOW_MS - DAY_MS, NOW_MS)
        assert log.delete_old_segments(NOW_MS) == []
        assert len(log.delete_old_segments(NOW_MS + 1)) == 1


def test_a_log_that_is_all_old_is_rolled_and_emptied(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, OLD_MS, OLD_MS)
        assert len(log.delete_old_segments()) == 2
        assert bases(log) == [4]
        assert (log.log_start_offset, log.log_end_offset) == (4, 4)
        fill(log, NOW_MS)
    with opened(tmp_path) as log:
        assert [record.offset for record in log.read()] == [4, 5]


def test_size_keeps_at_least_retention_bytes(tmp_path: Path) -> None:
    with opened(tmp_path, replace(CONFIG, retention_ms=-1)) as log:
        fill(log, *[NOW_MS] * 4)
        size = log.segments[0].size_in_bytes
        total = sum(segment.size_in_bytes for segment in log.segments)
    for kept, first in ((total, 0), (total - size + 1, 0), (total - size, 2), (total - 2 * size, 4)):
        with opened(tmp_path, replace(CONFIG, retention_ms=-1, retention_bytes=kept)) as log:
            log.delete_old_segments()
            assert bases(log)[0] == first
            assert all(one.reason == "size" for one in log.plan_retention())


def test_without_the_delete_policy_only_the_log_start_counts(tmp_path: Path) -> None:
    with opened(tmp_path, replace(CONFIG, cleanup_policy="compact", retention_bytes=0)) as log:
        fill(log, OLD_MS, OLD_MS, NOW_MS)
        assert log.delete_old_segments() == []
        log.delete_records(3)
        assert bases(log) == [2, 4]


def test_no_limits_remove_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, replace(CONFIG, retention_ms=-1)) as log:
        fill(log, OLD_MS, OLD_MS, NOW_MS)
        assert log.delete_old_segments() == []


# What must not cause a deletion


def test_a_timestamp_in_the_future_keeps_its_segment(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, OLD_MS)
        log.append(Record(timestamp_ms=NOW_MS + 10 * DAY_MS, key=b"k", value=b"v"))
        log.append(Record(timestamp_ms=OLD_MS, key=b"k", value=b"v"))
        log.roll()
        fill(log, NOW_MS)
        assert log.delete_old_segments() == []


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_records_without_timestamps_do_not_go_by_the_time_of_their_file(magic: int, tmp_path: Path) -> None:
    with opened(tmp_path, replace(CONFIG, message_format_magic=magic)) as log:
        for _ in range(2):
            log.append(Record(offset=0, timestamp_ms=-1, key=b"k", value=b"v"))
            log.roll()
        for segment in log.segments:
            os.utime(segment.path, ns=(0, 0))
        assert log.delete_old_segments() == []


def test_records_without_timestamps_are_as_old_as_the_next_ones(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append(Record(offset=0, timestamp_ms=-1, key=b"k", value=b"v"))
        log.roll()
        fill(log, OLD_MS, NOW_MS)
        assert [one.base_offset for one in log.delete_old_segments()] == [0, 1]


@pytest.mark.parametrize("content", [b"", bytes(12), struct.pack(">qi", 1, 1)], ids=["empty", "zeros", "a lie"])
def test_a_wrong_time_index_removes_nothing(content: bytes, tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, NOW_MS, NOW_MS)
    for path in (tmp_path / "t-0").glob("*.timeindex"):
        path.write_bytes(content)
    with opened(tmp_path) as log:
        assert log.delete_old_segments() == []


def test_a_wrong_time_index_keeps_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, OLD_MS, NOW_MS)
    path = tmp_path / "t-0" / "00000000000000000000.timeindex"
    path.write_bytes(struct.pack(">qi", NOW_MS, 1))
    with opened(tmp_path) as log:
        assert len(log.delete_old_segments()) == 1


@pytest.mark.parametrize("bit", [0, 1], ids=["lower", "higher"])
@pytest.mark.parametrize("at_ms", [OLD_MS, NOW_MS], ids=["old", "new"])
def test_a_damaged_batch_keeps_its_segment(tmp_path: Path, at_ms: int, bit: int) -> None:
    with opened(tmp_path) as log:
        fill(log, at_ms, NOW_MS)
        # Of the largest timestamp: makes it years lower, or later than now.
        flip_bit(Path(log.segments[0].path), 35 + 2, bit=bit)
        assert log.delete_old_segments() == []
        assert bases(log) == [0, 2]


def test_zeros_that_hide_a_newer_batch_keep_their_segment(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for at_ms in (OLD_MS, OLD_MS, NOW_MS):
            log.append(Record(timestamp_ms=at_ms, key=b"k", value=b"v" * 100))
        log.roll()
        fill(log, NOW_MS)
    path = tmp_path / "t-0" / "00000000000000000000.log"
    size = path.stat().st_size // 3
    zero(path, size, size=size)
    path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", OLD_MS, 0))
    with opened(tmp_path) as log:
        assert log.delete_old_segments() == []


def test_a_clock_that_jumps_ahead_makes_nothing_older(tmp_path: Path) -> None:
    env = Ticking(NOW_MS)
    with opened(tmp_path, env=env) as log:
        fill(log, NOW_MS, NOW_MS)
        env.set_wall(NOW_MS + 365 * DAY_MS)
        assert log.delete_old_segments() == []
        env.monotonic += DAY_MS - CLOCK_TOLERANCE_MS
        assert log.delete_old_segments() == []
        env.monotonic += 1
        assert len(log.delete_old_segments()) == 2


def test_a_clock_that_jumps_back_makes_nothing_older(tmp_path: Path) -> None:
    env = Ticking(NOW_MS)
    with opened(tmp_path, env=env) as log:
        fill(log, NOW_MS, NOW_MS)
        env.set_wall(0)
        env.monotonic += 100 * DAY_MS
        assert log.delete_old_segments() == []


# What retention waits for


def test_nothing_goes_from_the_high_watermark_on(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, OLD_MS, OLD_MS, NOW_MS)
        log.update_high_watermark(3)
        assert [one.base_offset for one in log.delete_old_segments()] == [0]


def test_nothing_goes_from_the_start_of_an_open_transaction_on(tmp_path: Path) -> None:
    producer = {"producer_id": 7, "producer_epoch": 0}
    with opened(tmp_path) as log:
        fill(log, OLD_MS)
        log.roll()
        record = Record(offset=0, timestamp_ms=OLD_MS, key=b"k", value=b"v")
        log.append(with_transactional_records([record], **producer, base_sequence=0))
        log.roll()
        fill(log, OLD_MS, NOW_MS)
        assert [one.base_offset for one in log.delete_old_segments()] == [0]
        end = EndTransactionMarker(control_type=ControlRecordType.COMMIT, coordinator_epoch=0)
        marker = with_end_transaction_marker(end, **producer, timestamp_ms=OLD_MS, offset=log.log_end_offset)
        log.append_as_follower(marker)
        assert [one.base_offset for one in log.delete_old_segments()] == [2, 3]


def test_a_hold_keeps_what_a_follower_has_to_read(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, OLD_MS, OLD_MS, OLD_MS, NOW_MS)
        with log.hold_from(0) as hold, log.hold_from(5):
            assert log.plan_retention() == log.delete_old_segments() == []
            hold.advance(3)
            assert hold.offset == 3
            assert [one.base_offset for one in log.delete_old_segments()] == [0]
        assert [one.base_offset for one in log.delete_old_segments()] == [2, 4]
        hold.advance(1)
        assert log.plan_retention() == []
        with pytest.raises(ValueError, match="offset"):
            log.hold_from(-1)


def test_a_hold_that_was_released_keeps_nothing_whatever_it_is_told_later(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, OLD_MS, OLD_MS, NOW_MS)
        hold = log.hold_from(0)
        hold.release()
        hold.advance(0)
        assert hold.offset > log.log_end_offset
        assert [one.base_offset for one in log.delete_old_segments()] == [0, 2]


# Files


def test_files_have_deleted_names_until_the_delay_has_passed(tmp_path: Path) -> None:
    env = Ticking(NOW_MS)
    with opened(tmp_path, replace(CONFIG, file_delete_delay_ms=1000), env=env) as log:
        fill(log, OLD_MS, NOW_MS)
        log.delete_old_segments()
        names = sorted(path.name for path in (tmp_path / "t-0").glob("0000000000000000000*"))
        assert names[:3] == [f"{0:020d}{suffix}.deleted" for suffix in (".index", ".log", ".timeindex")]
        env.monotonic = 999
        log.delete_old_segments()
        assert list((tmp_path / "t-0").glob("*.deleted"))
        env.monotonic = 1000
        log.delete_old_segments()
        assert not list((tmp_path / "t-0").glob("*.deleted"))


def test_files_that_a_dead_process_left_go_with_the_next_opening(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, OLD_MS, NOW_MS)
    log.delete_old_segments()
    log._dropping()
    assert list((tmp_path / "t-0").glob("*.deleted"))
    with opened(tmp_path) as again:
        assert not list((tmp_path / "t-0").glob("*.deleted"))
        assert again.log_start_offset == 2
    assert segment_bases(tmp_path / "t-0") == [2]


def test_a_reader_goes_on_in_a_segment_that_is_deleted(tmp_path: Path) -> None:
    with opened(tmp_path, replace(CONFIG, file_delete_delay_ms=0)) as log:
        fill(log, OLD_MS, OLD_MS, NOW_MS)
        reader = log.read()
        assert next(reader).offset == 0
        log.delete_old_segments()
        assert [record.offset for record in reader] == [1, 2, 3, 4, 5]
