"""Goal: compact removes what newer records replace, when it is due, and disturbs neither readers nor a later opening.
Method: small logs on disk with a clock that the test sets; offsets, files and checkpoints are what is looked at."""

from __future__ import annotations

import itertools
import os
import string
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import kstore
from kstore._core import CompactionPass, OffsetMap
from kstore.compression import decompress
from kstore.config import LogConfig
from kstore.errors import CorruptRecordError, KeylessRecordsError, KStoreError, LogReplacedError
from kstore.log.write.writable_log import WritableLog
from kstore.record import ControlRecordType, EndTransactionMarker, MemoryRecords, Record
from kstore.record.builder import MemoryRecordsBuilder, with_end_transaction_marker, with_transactional_records
from kstore.store.opening import open_log
from kstore.types import NO_TIMESTAMP, OffsetAndTimestamp
from tests.golden.cleaning_cases import Clock, checkpointed, segment_bases
from tests.making.batches import batch, flip_bit
from tests.making.compacting import NOW_MS

CONFIG = LogConfig(
    segment_bytes=2000,
    index_interval_bytes=200,
    segment_index_bytes=4096,
    cleanup_policy="compact",
    min_cleanable_dirty_ratio=0.5,
    file_delete_delay_ms=0,
)
DAY_MS = 24 * 60 * 60 * 1000


def opened(path: Path, config: LogConfig = CONFIG, *, now_ms: int = NOW_MS) -> WritableLog:
    return open_log(path / "t-0", "a", config, env=Clock(now_ms))


def put(log: WritableLog, keys: str, *, value: bytes | None = b"v" * 50, at_ms: int = NOW_MS) -> None:
    """Append one record for each letter, in a batch of its own."""
    for key in keys:
        log.append(Record(timestamp_ms=at_ms, key=key.encode(), value=value))


def offsets(log: object) -> list[int]:
    return [record.offset for record in log.read()]  # type: ignore[attr-defined]


def test_only_the_newest_record_of_a_key_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "abcabca")
        log.roll()
        report = log.compact()
        assert offsets(log) == [4, 5, 6]
        assert (report.first_dirty_offset, report.end_offset, report.rounds) == (0, 7, 1)
        assert (report.records_read, report.records_kept) == (7, 3)
        assert report.bytes_after < report.bytes_before
        assert log.log_end_offset == 7
    with opened(tmp_path) as log:
        assert offsets(log) == [4, 5, 6]


def test_the_active_segment_is_not_cleaned(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "aaa")
        assert log.compact(is_forced=True).rounds == 0
        log.roll()
        put(log, "aaa")
        log.compact(is_forced=True)
        assert offsets(log) == [2, 3, 4, 5]


def test_the_checkpoint_says_what_is_clean(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "aab")
        log.roll()
        put(log, "c")
        log.compact()
        assert checkpointed(tmp_path / "t-0", "cleaner-offset-checkpoint") == 3
        assert log.cleanable().cleanable_bytes == 0


def test_a_checkpoint_below_the_log_start_is_raised_though_nothing_is_due(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "aab")
        log.roll()
        put(log, "cc")
        log.compact()
        log.delete_records(4)
        log.compact()
        assert checkpointed(tmp_path / "t-0", "cleaner-offset-checkpoint") == 4


def keyless(offset: int) -> MemoryRecords:
    builder = MemoryRecordsBuilder(base_offset=offset)
    builder.append(offset=offset, timestamp_ms=NOW_MS, key=None, value=b"v")
    return builder.build()


def test_the_batch_that_ends_at_the_high_watermark_stays_without_its_records(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "a")
        log.append_as_follower(keyless(1))
        log.roll()
        log.compact(drops_keyless=True)
        assert [(one.base_offset, one.header.record_count) for one in log.batches()] == [(0, 1), (1, 0)]
        put(log, "b")
        log.roll()
        log.compact(is_forced=True)
        assert [one.base_offset for one in log.batches()] == [0, 2]


def test_a_batch_that_ends_below_the_high_watermark_goes_with_its_records(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "a")
        log.append_as_follower(keyless(1))
        log.roll()
        put(log, "b")
        log.compact(drops_keyless=True)
        assert [one.base_offset for one in log.batches()] == [0, 2]


def test_the_largest_timestamp_is_that_of_a_record_that_is_left(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append([Record(timestamp_ms=NOW_MS + at, key=key, value=b"") for key, at in ((b"x", 5), (b"y", 1))])
        builder = MemoryRecordsBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
        builder.append(timestamp_ms=NOW_MS + 9, key=b"a", value=b"")
        log.append(builder.build())
        put(log, "a", at_ms=NOW_MS)
        put(log, "bc", at_ms=NOW_MS + 2)
        log.roll()
        log.compact()
        emptied = next(log.batches(2)).header
        assert (emptied.record_count, emptied.max_timestamp_ms) == (0, NOW_MS + 9)
        assert log.offset_for_timestamp(kstore.MAX_TIMESTAMP) == OffsetAndTimestamp(0, NOW_MS + 5)
        log.delete_records(1)
        assert log.offset_for_timestamp(kstore.MAX_TIMESTAMP) == OffsetAndTimestamp(4, NOW_MS + 2)


def test_a_log_below_the_dirty_ratio_is_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "abcdefghij")
        log.roll()
        log.compact()
        put(log, "ab")
        log.roll()
        found = log.cleanable()
        assert 0 < found.dirty_ratio < 0.5
        assert log.compact().rounds == 0
        assert log.compact(is_forced=True).rounds == 1
        assert offsets(log) == [*range(2, 12)]


def test_max_compaction_lag_makes_a_log_due(tmp_path: Path) -> None:
    config = replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    with opened(tmp_path, config) as log:
        put(log, "aa", at_ms=NOW_MS - 1000)
        log.roll()
        assert log.compact(now_ms=NOW_MS).rounds == 0
        assert log.compact(now_ms=NOW_MS + 1).rounds == 1


@pytest.mark.parametrize("first_ms", [NO_TIMESTAMP, 0])
def test_segments_without_timestamps_are_not_overdue(tmp_path: Path, first_ms: int) -> None:
    config = replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    with opened(tmp_path, config) as log:
        put(log, "aa", at_ms=first_ms)
        log.roll()
        assert not log.cleanable(NOW_MS).is_overdue
        assert log.compact(now_ms=NOW_MS).rounds == 0
        put(log, "a", at_ms=1)
        log.roll()
        assert log.compact(now_ms=NOW_MS).rounds == 1


def test_segments_of_a_compacted_log_are_rolled_after_the_max_compaction_lag(tmp_path: Path) -> None:
    with opened(tmp_path, replace(CONFIG, max_compaction_lag_ms=1000)) as log:
        put(log, "a", at_ms=NOW_MS)
        put(log, "a", at_ms=NOW_MS + 1001)
        assert len(log.segments) == 2


def test_records_younger_than_the_min_compaction_lag_stay(tmp_path: Path) -> None:
    with opened(tmp_path, replace(CONFIG, min_compaction_lag_ms=1000)) as log:
        put(log, "aa", at_ms=NOW_MS - 2000)
        log.roll()
        put(log, "aa", at_ms=NOW_MS - 500)
        log.roll()
        log.compact(now_ms=NOW_MS)
        assert offsets(log) == [1, 2, 3]


def test_nothing_is_cleaned_from_the_high_watermark_on(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "aa")
        log.roll()
        put(log, "aa")
        log.roll()
        log.update_high_watermark(3)
        log.compact()
        assert offsets(log) == [1, 2, 3]


def test_a_tombstone_stays_until_its_horizon_has_passed(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "a")
        put(log, "a", value=None)
        log.roll()
        log.compact(now_ms=NOW_MS)
        assert offsets(log) == [1]
        header = next(log.batches()).header
        assert (header.has_delete_horizon, header.base_timestamp_ms) == (True, NOW_MS + DAY_MS)
        assert next(log.read()).timestamp_ms == NOW_MS
        put(log, "b" * 5)
        log.roll()
        log.compact(now_ms=NOW_MS + DAY_MS - 1)
        assert offsets(log) == [1, 6]
        put(log, "b" * 5)
        log.roll()
        log.compact(now_ms=NOW_MS + DAY_MS)
        assert offsets(log) == [11]


def test_old_tombstones_go_by_the_times_of_files(tmp_path: Path) -> None:
    """Magic 0 and 1 have no horizon: tombstones go if their file is much older than the last clean one."""
    config = replace(CONFIG, message_format_magic=1, delete_retention_ms=1000, segment_bytes=100)
    with opened(tmp_path, config) as log:
        put(log, "a", value=None)
        put(log, "bc")
        log.roll()
        log.compact()
        put(log, "bc")
        log.roll()
        first, last_clean = log.segments[0].path, log.segments[2].path
        for age_ms, stays in ((999, True), (1000, False)):
            os.utime(first, ns=(0, 10**15))
            os.utime(last_clean, ns=(0, 10**15 + age_ms * 10**6))
            log.compact(is_forced=True)
            assert (0 in offsets(log)) == stays
            put(log, "bc")
            log.roll()
            first = log.segments[0].path
            last_clean = [one.path for one in log.segments if one.base_offset < log.cleanable().first_dirty_offset][-1]


def test_small_segments_are_merged(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for keys in ("ab", "ab", "ab", "ab"):
            put(log, keys)
            log.roll()
        log.compact()
        assert offsets(log) == [6, 7]
        assert segment_bases(tmp_path / "t-0") == [0, 8]


def test_a_cleaned_segment_has_the_time_of_its_last_source(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for keys in ("ab", "ab"):
            put(log, keys)
            log.roll()
        for number, segment in enumerate(log.segments):
            os.utime(segment.path, ns=(0, (number + 1) * 10**15))
        log.compact()
        assert os.stat(log.segments[0].path).st_mtime_ns == 2 * 10**15


def test_files_of_cleaned_segments_are_deleted_after_the_delay(tmp_path: Path) -> None:
    with opened(tmp_path, replace(CONFIG, file_delete_delay_ms=10**9)) as log:
        put(log, "aa")
        log.roll()
        log.compact()
        assert [path.name for path in (tmp_path / "t-0").glob("*.deleted")]
    assert not list((tmp_path / "t-0").glob("*.deleted"))
    with opened(tmp_path) as log:
        put(log, "aa")
        log.roll()
        log.compact()
        assert not list((tmp_path / "t-0").glob("*.deleted"))


def test_a_map_that_is_too_small_takes_more_rounds(tmp_path: Path) -> None:
    keys = "".join(chr(ord("a") + number % 26) for number in range(52)) + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    with opened(tmp_path, replace(CONFIG, cleaner_dedupe_buffer_bytes=1024)) as log:
        put(log, keys)
        log.roll()
        report = log.compact(is_forced=True)
        assert report.rounds > 1
        assert offsets(log) == [*range(26, 78)]
        assert report.end_offset == 78
        put(log, keys[26:])
        log.roll()
        assert log.compact(is_forced=True).rounds > 1
        assert offsets(log) == [*range(78, 130)]


def test_a_record_without_a_key_is_found_before_anything_is_removed_whatever_fits_the_map(tmp_path: Path) -> None:
    keys = "".join(chr(ord("a") + number % 26) for number in range(52)) + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    with opened(tmp_path, replace(CONFIG, cleaner_dedupe_buffer_bytes=1024)) as log:
        put(log, keys)
        log.append_as_follower(keyless(len(keys)))
        log.append_as_follower(keyless(len(keys) + 1))
        log.roll()
        files = {path: path.read_bytes() for path in (tmp_path / "t-0").glob("*.log")}
        with pytest.raises(KeylessRecordsError) as caught:
            log.compact(is_forced=True)
        assert (caught.value.record_count, caught.value.base_offset) == (2, 78)
        assert {path: path.read_bytes() for path in (tmp_path / "t-0").glob("*.log*")} == files
        assert log.compact(is_forced=True, drops_keyless=True).rounds > 1
        assert offsets(log) == [*range(26, 78)]


def test_a_pass_that_only_looks_for_records_without_a_key_maps_nothing() -> None:
    offset_map = OffsetMap(memory_bytes=1024, load_factor=0.9, secret=bytes(16))
    looking = CompactionPass(
        offset_map,
        aborted=(),
        decompress=decompress,
        compress=lambda *_: b"",
        now_ms=NOW_MS,
        delete_retention_ms=0,
        start_offset=0,
        high_watermark=9,
        only_looks=True,
    )
    builder = MemoryRecordsBuilder()
    for offset, key in enumerate((b"a", None, b"b", None)):
        builder.append(offset=offset, timestamp_ms=NOW_MS, key=key, value=b"v")
    content = bytes(builder.build())
    latest = offset_map.latest_offset
    looking.start_segment(base_offset=0, next_base_offset=None, end_position=len(content))
    assert looking.map_keys(content, 0) == len(content)
    assert looking.keyless == (2, 1)
    assert (offset_map.entry_count, offset_map.latest_offset) == (0, latest)


def test_a_record_without_a_key_below_the_cleaners_checkpoint_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append_as_follower(keyless(0))
        put(log, "a")
        log.roll()
        log._writer_files.save_cleaned_offset(2)
        put(log, "aa")
        log.roll()
        with pytest.raises(KeylessRecordsError, match="would remove 1 records that have no key, the first at offset 0"):
            log.compact(is_forced=True)
        assert offsets(log) == [0, 1, 2, 3]
        assert not list((tmp_path / "t-0").glob("*.cleaned"))


@pytest.mark.parametrize("ends", ["abort", "commit"])
def test_records_without_a_key_count_unless_their_transaction_was_aborted(tmp_path: Path, ends: str) -> None:
    kind = ControlRecordType.ABORT if ends == "abort" else ControlRecordType.COMMIT
    marker = EndTransactionMarker(control_type=kind, coordinator_epoch=0)
    records = [Record(timestamp_ms=NOW_MS, value=b"v")]
    with opened(tmp_path) as log:
        log.append_as_follower(with_transactional_records(records, producer_id=0, producer_epoch=0, base_sequence=0))
        log.append_as_follower(
            with_end_transaction_marker(marker, offset=1, timestamp_ms=NOW_MS, producer_id=0, producer_epoch=0)
        )
        log.roll()
        if ends == "abort":
            assert log.compact(is_forced=True).records_kept == 1
        else:
            with pytest.raises(KeylessRecordsError):
                log.compact(is_forced=True)


def test_a_compaction_can_be_stopped_and_resumed(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "ab" * 60)
        log.roll()
        for most in range(1000):
            asked = itertools.count()
            report = log.compact(should_stop=lambda asked=asked, most=most: next(asked) >= most)  # type: ignore[misc]
            assert not list((tmp_path / "t-0").glob("*.cleaned"))
            assert offsets(log)[-2:] == [118, 119]
            if not report.is_stopped:
                break
            assert checkpointed(tmp_path / "t-0", "cleaner-offset-checkpoint") is None
        assert most > 3
        assert offsets(log) == [118, 119]


class SleepingClock(Clock):
    """A clock on which only sleep passes time."""

    slept_ms = 0.0

    def monotonic_ms(self) -> int:
        return round(self.slept_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        self.slept_ms += max(duration_ms, 1)


def test_a_throttled_compaction_takes_its_time(tmp_path: Path) -> None:
    env = SleepingClock(NOW_MS)
    with open_log(tmp_path / "t-0", "a", CONFIG, env=env) as log:
        put(log, "ab" * 40)
        log.roll()
        report = log.compact(max_bytes_per_second=10_000)
        moved = report.bytes_mapped + report.bytes_read + report.bytes_written
        assert env.slept_ms == pytest.approx(moved / 10, rel=0.2)
    with pytest.raises(ValueError, match="max_bytes_per_second"), opened(tmp_path) as log:
        log.compact(max_bytes_per_second=0)


def test_damage_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "ab" * 40)
        log.roll()
        damaged = Path(log.segments[1].path)
        flip_bit(damaged, damaged.stat().st_size - 5, bit=0)
        content = damaged.read_bytes()
        with pytest.raises(CorruptRecordError) as caught:
            log.compact()
        assert caught.value.path == str(damaged)
        assert damaged.read_bytes() == content
        assert not list((tmp_path / "t-0").glob("*.cleaned"))
        assert not log.has_failed
        put(log, "c")


def call_at(count: int, call: Callable[[], object]) -> Callable[[], bool]:
    """Return a should_stop that calls something once, when it is asked for the n-th time."""
    asked = itertools.count(1)

    def should_stop() -> bool:
        if next(asked) == count:
            call()
        return False

    return should_stop


@pytest.mark.parametrize("count", range(1, 40, 2))
def test_a_truncation_during_a_compaction_takes_no_record_that_it_left(tmp_path: Path, count: int) -> None:
    with opened(tmp_path) as log:
        put(log, string.ascii_letters * 4)
        left, is_truncated = set[bytes | None](), False

        def truncate() -> None:
            nonlocal is_truncated
            log.truncate_to(150)
            is_truncated = True
            left.update(record.key for record in log.read())
            put(log, "0123456789" * 10)

        report = log.compact(is_forced=True, should_stop=call_at(count, truncate))
        found = [record.key for record in log.read() if record.offset < 150]
        assert left <= set(found)
        assert report.is_stopped == is_truncated
        assert not list((tmp_path / "t-0").glob("*.cleaned"))
        log.compact(is_forced=True)
        assert {record.key for record in log.read()} >= left


@pytest.mark.parametrize("count", range(1, 40, 2))
def test_a_deletion_during_a_compaction_stops_it_without_an_error(tmp_path: Path, count: int) -> None:
    with opened(tmp_path) as log:
        put(log, "abcdefgh" * 20)
        log.compact(is_forced=True, should_stop=call_at(count, lambda: log.delete_records(60)))
        assert not log.has_failed
        assert not list((tmp_path / "t-0").glob("*.cleaned"))
        log.compact(is_forced=True)
        newest = [one for one in offsets(log) if one < log.segments[-1].base_offset]
        assert len(newest) <= 8 + 1


def test_a_compaction_by_its_own_should_stop_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "abcdefgh" * 20)
        with pytest.raises(RuntimeError, match="is being compacted by the caller"):
            log.compact(is_forced=True, should_stop=call_at(2, log.compact))
        assert not log.compact(is_forced=True).is_stopped


def test_a_truncation_makes_what_follows_dirty_again(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "abab")
        log.roll()
        put(log, "cc")
        log.compact()
        log.truncate_to(2)
        assert checkpointed(tmp_path / "t-0", "cleaner-offset-checkpoint") == 0
        put(log, "aab")
        log.roll()
        log.compact(is_forced=True)
        assert offsets(log) == [3, 4]


def test_readers_of_the_writers_process_go_on(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "ab" * 60)
        log.roll()
        readers = [log.read() for _ in range(3)]
        for reader in readers:
            assert next(reader).offset == 0
        scan = log.to_arrow_batches(batch_bytes=1024)
        first = next(scan)["offset"].to_pylist()
        log.compact()
        assert [[record.offset for record in reader] for reader in readers] == [[*range(1, 120)]] * 3
        rest = [offset for part in scan for offset in part["offset"].to_pylist()]
        assert [*first, *rest] == [*range(120)]
        assert offsets(log) == [118, 119]
        del readers, scan, reader
        put(log, "c")
        log.roll()
        log.compact(is_forced=True)


def test_a_reader_of_another_opening_is_told(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        put(log, "ab" * 60)
        log.roll()
        with open_log(tmp_path / "t-0") as other:
            reader = other.read()
            assert next(reader).offset == 0
            log.compact()
            with pytest.raises(LogReplacedError):
                list(reader)
            assert [record.offset for record in other.read()] == [118, 119]


def test_appends_and_reads_go_on_during_compactions(tmp_path: Path) -> None:
    config = replace(CONFIG, min_cleanable_dirty_ratio=0.0)
    stopped, failures = threading.Event(), []
    with opened(tmp_path, config) as log:

        def read() -> None:
            try:
                while not stopped.is_set():
                    found = offsets(log)
                    assert found == sorted(set(found))
                    newest = {record.key: record.value for record in log.read()}
                    assert all(int(newest[key]) % 5 == number for number, key in enumerate(sorted(newest)))
            except (AssertionError, KStoreError) as error:
                failures.append(error)

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(400):
            log.append(Record(timestamp_ms=NOW_MS, key=b"%d" % (number % 5), value=b"%d" % number))
            if number % 40 == 39:
                log.roll()
                log.compact()
        stopped.set()
        for thread in threads:
            thread.join()
        assert not failures
        assert offsets(log) == [395, 396, 397, 398, 399]


def test_gaps_and_batches_without_keys(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append_as_follower(MemoryRecords(batch(10, 3)))
        log.append_as_follower(MemoryRecords(batch(20, 3)))
        log.roll()
        assert log.compact().end_offset == 23
        assert offsets(log) == [10, 11, 12, 20, 21, 22]
