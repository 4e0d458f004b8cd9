"""Goal: a follower gives each record once, in order, whatever the writer of the log does between two looks.
Method: a WritableLog that changes, followed in its own process and as a directory, as by another process; values tell
apart what was written at the same offset."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kstore import EARLIEST, LATEST, Record, open_log
from kstore.config import LogConfig
from kstore.env import FileStatus, LocalEnv
from kstore.env.process import SYSTEM_CLOCK
from kstore.errors import (
    CorruptRecordError,
    LogClosedError,
    LogReplacedError,
    LogTruncationError,
    OffsetOutOfRangeError,
)
from kstore.log.following import history
from kstore.log.following.follower import Follower
from kstore.log.following.tail import AutoOffsetReset
from kstore.log.log import Log
from kstore.log.write.writable_log import WritableLog
from kstore.record import AppendOrigin, ControlRecordType, EndTransactionMarker, with_end_transaction_marker
from kstore.record.builder import MemoryRecordsBuilder
from tests.fakes.waiting import wait_until
from tests.making.batches import set_byte

CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=200, file_delete_delay_ms=0)
COMPACT = LogConfig(cleanup_policy="compact", segment_bytes=4000, file_delete_delay_ms=0)


def append(log: WritableLog, *values: str, key: bytes | None = None) -> None:
    """Append one batch with a record of each value."""
    log.append([Record(offset=0, timestamp_ms=1000, key=key, value=value.encode()) for value in values])


def append_each(log: WritableLog, count: int, tag: str = "") -> None:
    for _ in range(count):
        append(log, f"{log.log_end_offset}{tag}")


def values(follower: Follower[Record]) -> list[str]:
    return [(record.value or b"").decode() for record in follower]


class UnchangedFiles(LocalEnv):
    """Files that are replaced, never written again, as the objects of a store."""

    is_mutable = False

    def __init__(self) -> None:
        self._calls = 0

    def stat(self, path: str, *, follow_symlinks: bool = True) -> FileStatus | None:
        self._calls += 1
        assert self._calls < 500
        return super().stat(path, follow_symlinks=follow_symlinks)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


@pytest.fixture
def log(path: Path) -> Iterator[WritableLog]:
    with open_log(path, "a", CONFIG) as opened:
        yield opened


@pytest.fixture(params=["live", "directory"])
def followed(request: pytest.FixtureRequest, log: WritableLog, path: Path) -> Iterator[Log]:
    """The log as its own process follows it, and as another one does."""
    if request.param == "live":
        yield log
    else:
        with open_log(path, config=CONFIG) as opened:
            yield opened


def test_records_are_given_once_as_they_come(log: WritableLog, followed: Log) -> None:
    append(log, "a", "b")
    follower = followed.follow(timeout=0)
    assert values(follower) == ["a", "b"]
    assert values(follower) == []
    append(log, "c")
    append(log, "d")
    assert values(follower) == ["c", "d"]
    assert follower.position == 4


def test_a_follower_leaves_the_snapshot_of_its_log_alone(log: WritableLog, path: Path) -> None:
    with open_log(path) as reader:
        follower = reader.follow(timeout=0)
        append(log, "a")
        assert values(follower) == ["a"]
        assert [*reader.read()] == []


@pytest.mark.parametrize(("from_offset", "given"), [(None, "abcd"), (EARLIEST, "abcd"), (1, "bcd"), (LATEST, "d")])
def test_following_begins_at_an_offset(log: WritableLog, followed: Log, from_offset: int | None, given: str) -> None:
    append(log, "a", "b", "c")
    with followed.follow(from_offset, timeout=0) as follower:
        append(log, "d")
        assert values(follower) == [*given]


def test_position_is_that_after_the_last_record_that_was_returned(log: WritableLog, followed: Log) -> None:
    append(log, "a", "b", "c")
    follower = followed.follow(1, timeout=0)
    assert follower.position == 1
    assert next(follower).value == b"b"
    assert follower.position == 2
    assert values(followed.follow(follower.position, timeout=0)) == ["c"]


def test_batches_are_given_whole_and_control_batches_too(log: WritableLog, followed: Log) -> None:
    append(log, "a", "b")
    append_marker(log, 7)
    batches = [*followed.follow(1, timeout=0).batches()]
    assert [(one.base_offset, one.last_offset, one.is_control) for one in batches] == [(0, 1, False), (2, 2, True)]


def test_arrow_batches_begin_at_the_offset_and_hold_what_there_is(log: WritableLog, followed: Log) -> None:
    append(log, "a", "b")
    append(log, "c")
    follower = followed.follow(1, timeout=0).to_arrow_batches(columns=["topic", "partition", "offset", "value"])
    (table,) = [*follower]
    assert table.to_pydict() == {"topic": ["t", "t"], "partition": [0, 0], "offset": [1, 2], "value": [b"b", b"c"]}
    assert [*follower] == []
    append(log, "d")
    assert [one["value"].to_pylist() for one in follower] == [[b"d"]]
    assert follower.position == 4


def test_another_form_is_refused_in_the_middle_of_a_batch(log: WritableLog, followed: Log) -> None:
    append(log, "a", "b")
    follower = followed.follow(timeout=0)
    next(follower)
    with pytest.raises(ValueError, match="take them first"):
        follower.batches()


def test_decoders_apply_as_in_read(log: WritableLog, followed: Log) -> None:
    append(log, "a", key=b"k")
    (record,) = followed.follow(timeout=0, key_deserializer="string", value_deserializer="string")
    assert (record.key, record.value) == ("k", "a")


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": -1},
        {"timeout": float("nan")},
        {"isolation": "read"},
        {"end_offsets": "all"},
        {"auto_offset_reset": "error"},
    ],
)
def test_wrong_arguments_are_refused(followed: Log, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        followed.follow(**wrong)


# Waiting


def run_later(change: Callable[[], object]) -> threading.Thread:
    thread = threading.Timer(0.05, change)
    thread.start()
    return thread


def test_a_waiting_follower_is_woken_by_an_append(log: WritableLog, followed: Log) -> None:
    follower = followed.follow(timeout=10)
    thread = run_later(lambda: append(log, "a"))
    assert next(follower).value == b"a"
    thread.join()


def test_the_iteration_ends_after_the_timeout_and_can_go_on(log: WritableLog, followed: Log) -> None:
    follower = followed.follow(timeout=0.02)
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    assert values(follower) == []
    assert SYSTEM_CLOCK.monotonic_ms() - began_ms >= 20
    append(log, "a")
    assert values(follower) == ["a"]


def test_close_ends_a_wait_in_another_thread(followed: Log) -> None:
    follower = followed.follow(timeout=10)
    thread = run_later(follower.close)
    assert values(follower) == []
    thread.join()
    assert values(follower) == []
    follower.close()


@pytest.mark.timeout(60)
def test_closing_the_log_ends_a_wait_with_an_error(followed: Log) -> None:
    follower = followed.follow(timeout=1000)
    thread = run_later(followed.close)
    with pytest.raises(LogClosedError):
        next(follower)
    thread.join()


def test_async_for_gives_the_records_and_ends_after_the_timeout(log: WritableLog, followed: Log) -> None:
    append(log, "a", "b")

    async def follow() -> list[bytes | None]:
        asyncio.get_running_loop().call_later(0.02, append, log, "c")
        return [record.value async for record in followed.follow(timeout=0.2)]

    assert asyncio.run(follow()) == [b"a", b"b", b"c"]


def test_a_cancelled_async_iteration_loses_nothing(log: WritableLog, followed: Log) -> None:
    async def follow() -> list[bytes | None]:
        follower = followed.follow(timeout=0.2)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(follower.__anext__(), 0.01)
        append(log, "a", "b")
        waiting = asyncio.ensure_future(follower.__anext__())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return [record.value async for record in follower]

    assert asyncio.run(follow()) == [b"a", b"b"]


def test_two_threads_that_iterate_at_once_are_refused(followed: Log) -> None:
    follower = followed.follow(timeout=10)
    thread = threading.Thread(target=lambda: next(follower, None))
    thread.start()
    try:
        wait_until(lambda: follower._feed._is_waiting)
        with pytest.raises(RuntimeError, match="one thread"):
            next(follower)
    finally:
        follower.close()
        thread.join()


# Where the records end


def append_marker(log: WritableLog, producer_id: int, kind: ControlRecordType = ControlRecordType.COMMIT) -> None:
    marker = EndTransactionMarker(control_type=kind, coordinator_epoch=0)
    log.append(
        with_end_transaction_marker(marker, timestamp_ms=1000, producer_id=producer_id, producer_epoch=0),
        origin=AppendOrigin.COORDINATOR,
    )


def append_in_transaction(log: WritableLog, producer_id: int, value: str) -> None:
    builder = MemoryRecordsBuilder(
        base_offset=0, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    builder.append(offset=0, timestamp_ms=1000, key=None, value=value.encode(), headers=())
    log.append(builder.build())


def test_read_committed_waits_at_the_last_stable_offset_and_goes_on(log: WritableLog, followed: Log) -> None:
    follower = followed.follow(timeout=0, isolation="read_committed")
    append(log, "a")
    append_in_transaction(log, 7, "b")
    append_in_transaction(log, 8, "c")
    append(log, "d")
    assert values(follower) == ["a"]
    append_marker(log, 7)
    assert values(follower) == ["b"]
    append_marker(log, 8, ControlRecordType.ABORT)
    assert values(follower) == ["d"]
    append(log, "e")
    assert values(follower) == ["e"]


def test_a_marker_wakes_a_follower_of_committed_records(log: WritableLog, followed: Log) -> None:
    append_in_transaction(log, 7, "a")
    follower = followed.follow(isolation="read_committed")
    thread = run_later(lambda: append_marker(log, 7))
    assert next(follower).value == b"a"
    thread.join()


def test_flushed_waits_for_the_flush(log: WritableLog, followed: Log) -> None:
    append(log, "a")
    follower = followed.follow(timeout=0, end_offsets="flushed")
    assert values(follower) == []
    log.flush()
    assert values(follower) == ["a"]
    append(log, "b")
    waiting = followed.follow(1, end_offsets="flushed")
    thread = run_later(log.flush)
    assert next(waiting).value == b"b"
    thread.join()


def test_high_watermark_waits_for_it(log: WritableLog) -> None:
    append_each(log, 4)
    log.update_high_watermark(2)
    follower = log.follow(end_offsets="high_watermark", timeout=0)
    assert values(follower) == ["0", "1"]
    thread = run_later(lambda: log.update_high_watermark(3))
    assert next(log.follow(2, end_offsets="high_watermark")).value == b"2"
    thread.join()
    assert values(follower) == ["2"]


def test_a_batch_across_the_high_watermark_is_given_when_all_of_it_may_be(log: WritableLog) -> None:
    append(log, "a", "b")
    log.update_high_watermark(1)
    follower = log.follow(end_offsets="high_watermark", timeout=0)
    assert values(follower) == []
    log.update_high_watermark(2)
    assert values(follower) == ["a", "b"]


# What a writer does meanwhile


def test_rolls_are_not_noticed(log: WritableLog, followed: Log) -> None:
    follower = followed.follow(timeout=0)
    given = []
    for number in range(5):
        append(log, f"{number}")
        log.roll()
        given += values(follower)
    assert given == ["0", "1", "2", "3", "4"]


def test_truncation_of_what_was_not_given_yet_is_not_noticed(log: WritableLog, followed: Log) -> None:
    append_each(log, 3)
    follower = followed.follow(timeout=0)
    assert values(follower) == ["0", "1", "2"]
    append_each(log, 3)
    log.truncate_to(4)
    append_each(log, 2, "new")
    assert values(follower) == ["3", "4new", "5new"]


def test_truncation_of_an_end_without_records_is_not_noticed(log: WritableLog, followed: Log) -> None:
    append_each(log, 3)
    append(log, "3", "4")
    log.truncate_to(4)
    log.roll()
    follower = followed.follow(timeout=0)
    assert values(follower) == ["0", "1", "2"]
    log.truncate_to(3)
    append_each(log, 3, "new")
    assert values(follower) == ["3new", "4new", "5new"]


@pytest.mark.parametrize("appended", [1, 3])
def test_log_that_began_again_without_records_is_followed_from_where_it_begins_then(
    log: WritableLog, followed: Log, appended: int
) -> None:
    follower = followed.follow(timeout=0, auto_offset_reset="earliest")
    log.truncate_fully_and_start_at(2)
    assert values(follower) == []
    log.truncate_fully_and_start_at(0)
    append_each(log, appended, "new")
    assert values(follower) == [f"{offset}new" for offset in range(appended)]


def test_truncation_of_what_was_left_out_is_not_noticed(log: WritableLog, followed: Log) -> None:
    append(log, "a")
    append_in_transaction(log, 7, "b")
    append_marker(log, 7, ControlRecordType.ABORT)
    follower = followed.follow(timeout=0, isolation="read_committed")
    assert values(follower) == ["a"]
    assert follower.position == 3
    log.truncate_to(1)
    append_each(log, 3, "new")
    assert values(follower) == ["1new", "2new", "3new"]


def test_truncation_below_what_was_given_raises(log: WritableLog, followed: Log) -> None:
    append_each(log, 5)
    follower = followed.follow(timeout=0)
    values(follower)
    log.truncate_to(3)
    append_each(log, 4, "new")
    for _ in range(2):
        with pytest.raises(LogTruncationError, match="truncated below offset 5") as caught:
            values(follower)
    assert (caught.value.offset, caught.value.truncated_to, caught.value.log_end_offset) == (5, 3, 7)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_with_a_reset_following_goes_on_where_the_log_differs(
    log: WritableLog, followed: Log, reset: AutoOffsetReset, caplog: pytest.LogCaptureFixture
) -> None:
    append_each(log, 5)
    follower = followed.follow(timeout=0, auto_offset_reset=reset)
    values(follower)
    log.truncate_to(3)
    append_each(log, 4, "new")
    with caplog.at_level(logging.WARNING, "kstore.log"):
        assert values(follower) == ["3new", "4new", "5new", "6new"]
    assert "following goes on at offset 3" in caplog.text


def test_truncation_is_noticed_before_anything_is_given(log: WritableLog, followed: Log) -> None:
    append_each(log, 5)
    follower = followed.follow(LATEST, timeout=0)
    log.truncate_to(2)
    append_each(log, 5, "new")
    with pytest.raises(LogTruncationError):
        values(follower)


def test_truncation_of_whole_segments_that_are_written_again_is_noticed(log: WritableLog, followed: Log) -> None:
    append_each(log, 2)
    log.roll()
    append_each(log, 3)
    follower = followed.follow(timeout=0, auto_offset_reset="earliest")
    values(follower)
    log.truncate_to(1)
    append_each(log, 1, "new")
    log.roll()
    append_each(log, 4, "new")
    assert values(follower) == ["1new", "2new", "3new", "4new", "5new"]


def test_a_truncation_deeper_than_what_is_remembered_resets(
    log: WritableLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "REMEMBERED_BATCHES", 2)
    append_each(log, 8)
    with open_log(path) as reader:
        earliest = reader.follow(timeout=0, auto_offset_reset="earliest")
        latest = reader.follow(timeout=0, auto_offset_reset="latest")
        assert values(earliest) == values(latest)
        log.truncate_to(3)
        append_each(log, 6, "new")
        assert values(earliest) == ["0", "1", "2", "3new", "4new", "5new", "6new", "7new", "8new"]
        assert values(latest) == []
        append_each(log, 1, "new")
        assert values(latest) == ["9new"]


def test_a_log_that_begins_again_is_a_truncation(log: WritableLog, followed: Log) -> None:
    append_each(log, 5)
    raising, going_on = followed.follow(timeout=0), followed.follow(timeout=0, auto_offset_reset="earliest")
    values(raising), values(going_on)
    log.truncate_fully_and_start_at(2)
    append_each(log, 2, "new")
    with pytest.raises(LogTruncationError):
        values(raising)
    assert values(going_on) == ["2new", "3new"]


def test_retention_of_what_was_given_is_not_noticed(log: WritableLog, followed: Log) -> None:
    append_each(log, 5)
    log.roll()
    follower = followed.follow(timeout=0)
    values(follower)
    log.delete_records(5)
    append_each(log, 1)
    assert values(follower) == ["5"]


@pytest.mark.parametrize("rolls", [True, False])
def test_retention_of_what_was_not_given_raises_or_resets(log: WritableLog, followed: Log, rolls: bool) -> None:
    append_each(log, 2)
    followers = {reset: followed.follow(timeout=0, auto_offset_reset=reset) for reset in ("none", "earliest", "latest")}
    for one in followers.values():
        values(one)
    append_each(log, 3)
    if rolls:
        log.roll()
    append_each(log, 2)
    log.delete_records(5)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        values(followers["none"])
    assert (type(caught.value), caught.value.offset, caught.value.log_start_offset) == (OffsetOutOfRangeError, 2, 5)
    assert values(followers["earliest"]) == ["5", "6"]
    assert values(followers["latest"]) == []
    append_each(log, 1)
    assert values(followers["latest"]) == ["7"]


def test_an_offset_out_of_range_raises_or_resets_at_once(log: WritableLog, followed: Log) -> None:
    append_each(log, 2)
    with pytest.raises(OffsetOutOfRangeError):
        followed.follow(3)
    assert values(followed.follow(3, timeout=0, auto_offset_reset="earliest")) == ["0", "1"]
    assert values(followed.follow(3, timeout=0, auto_offset_reset="latest")) == []


@pytest.mark.parametrize("looks_between", [True, False])
def test_compaction_of_what_was_given_is_not_noticed(path: Path, looks_between: bool) -> None:
    with open_log(path, "a", COMPACT) as log, open_log(path) as reader:
        followers = [log.follow(timeout=0), reader.follow(timeout=0)]
        for number in range(6):
            append(log, f"{number}", f"{number}x", key=b"k%d" % (number % 2))
        given = [values(one) for one in followers]
        log.roll()
        append(log, "a", key=b"k0")
        append(log, "b", key=b"k1")
        if looks_between:
            given = [one + values(follower) for one, follower in zip(given, followers, strict=True)]
        log.roll()
        assert log.compact(is_forced=True).replaced_segments
        append(log, "c", key=b"k0")
        given = [one + values(follower) for one, follower in zip(given, followers, strict=True)]
    expected = [f"{number}{tag}" for number in range(6) for tag in ("", "x")] + ["a", "b", "c"]
    assert given == [expected, expected]


def test_truncation_and_other_batches_are_told_from_compaction(path: Path) -> None:
    with open_log(path, "a", COMPACT) as log, open_log(path) as reader:
        append(log, "a", "b", "c", key=b"k")
        follower = reader.follow(timeout=0)
        values(follower)
        log.truncate_fully_and_start_at(0)
        append(log, "d", "e", key=b"k")
        append(log, "f", "g", key=b"k")
        log.roll()
        with pytest.raises(LogTruncationError):
            values(follower)


def test_offsets_that_no_batch_has_after_a_truncation_are_not_those_that_a_cleaner_removed(
    log: WritableLog, path: Path
) -> None:
    append_each(log, 2)
    log.roll()
    append_each(log, 3)
    with open_log(path) as reader:
        follower = reader.follow(timeout=0, auto_offset_reset="earliest")
        assert values(follower) == ["0", "1", "2", "3", "4"]
        log.truncate_to(1)
        append(log, "1new", "2new", "3new")
        append(log, "4new", "5new")
        log.truncate_to(5)
        append_each(log, 1, "new")
        assert values(follower) == ["1new", "2new", "3new", "5new"]


def test_a_round_that_gives_nothing_ends_where_batches_cannot_be_looked_for_again(log: WritableLog) -> None:
    append(log, "a")
    append_in_transaction(log, 7, "b")
    append_marker(log, 7, ControlRecordType.ABORT)
    with open_log(log.path, env=UnchangedFiles()) as reader:
        follower = reader.follow(timeout=0, isolation="read_committed")
        assert values(follower) == ["a"]
        append(log, "c")
        assert values(follower) == ["c"]


def test_a_directory_that_is_removed_or_created_again_raises(log: WritableLog, path: Path) -> None:
    append(log, "a")
    with open_log(path) as reader:
        follower = reader.follow(timeout=10)
        next(follower)
        log.close()
        gone = path.with_name("t-0.0123456789abcdef0123456789abcdef-delete")
        thread = run_later(lambda: path.rename(gone))
        with pytest.raises(LogReplacedError):
            next(follower)
        thread.join()
        with pytest.raises(LogReplacedError):
            reader.follow()
        shutil.copytree(gone, path)
        with pytest.raises(LogReplacedError):
            next(follower)
        with pytest.raises(LogReplacedError):
            reader.follow()


def test_a_reopened_log_is_followed_on(path: Path) -> None:
    with open_log(path, "a") as log:
        append(log, "a")
    with open_log(path) as reader:
        follower = reader.follow(timeout=0)
        assert values(follower) == ["a"]
        with open_log(path, "a") as log:
            append(log, "b")
        assert values(follower) == ["b"]


def test_damage_raises_where_it_is(log: WritableLog, path: Path) -> None:
    append_each(log, 3)
    with open_log(path) as reader:
        follower = reader.follow(timeout=0)
        values(follower)
        append_each(log, 2)
        size = log.segments[-1].size_in_bytes
        set_byte(path / f"{0:020d}.log", size - 2, value=0xFF)
        assert next(follower).value == b"3"
        with pytest.raises(CorruptRecordError):
            next(follower)
        assert follower.position == 4


def write_end(file: Path, data: bytes) -> None:
    """Replace the last bytes of a file in place: write_bytes would truncate it first."""
    with file.open("r+b") as opened:
        opened.seek(-len(data), os.SEEK_END)
        opened.write(data)


def test_a_half_visible_append_is_given_when_it_is_whole(log: WritableLog, path: Path) -> None:
    append_each(log, 2)
    file = path / f"{0:020d}.log"
    whole = file.read_bytes()
    torn = whole[:-4] + bytes(4)
    with open_log(path) as reader:
        file.write_bytes(torn)
        follower = reader.follow(timeout=10)
        assert next(follower).value == b"0"
        thread = run_later(lambda: write_end(file, whole[-4:]))
        assert next(follower).value == b"1"
        thread.join()
