"""Goal: after an interrupt, or a lack of memory, in a roll, an append or a closing, a log goes on only if the disk
shows that nothing is left; every acknowledged record is read after reopening; a second close() does the rest.
Method: exceptions at chosen calls; `tests/crash/test_interrupted_calls.py` tries all other places."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV, LockFile
from kstore.errors import LogClosedError, LogFailedError
from kstore.log.files.indexes import TimeIndexFile
from kstore.log.files.lock import PartitionLock
from kstore.log.files.transaction_index import TransactionIndexFile
from kstore.log.segment.file_records import FileRecords
from kstore.log.segment.writable_segment import WritableSegment
from kstore.log.write.durability import Durability
from kstore.log.write.open_writers import OpenWriters
from kstore.log.write.truncations import Truncations
from kstore.log.write.writable_log import WritableLog
from kstore.record import Record
from kstore.store.opening import open_log
from kstore.store.store import WritableStore, open_store
from tests.fakes.disk import SimulatedDisk
from tests.fakes.interrupts import Tracer, bounded, first_visits, traced

SMALL = LogConfig(segment_bytes=600)
ERRORS = (KeyboardInterrupt, MemoryError, SystemExit)


def append(log: WritableLog, *, size: int = 100) -> int:
    return log.append([Record(offset=0, timestamp_ms=1, value=b"v" * size)], ack="flushed").base_offset


def offsets(log: Any) -> list[int]:
    return [record.offset for record in log.read()]


@contextmanager
def failing_once(owner: Any, name: str, error: type[BaseException], *, after: bool = False) -> Iterator[None]:
    """Have the next call of a function raise an error, in place of the call or after it."""
    real = owner.__dict__[name]
    function = real.__func__ if isinstance(real, classmethod) else real

    def fail(*arguments: Any, **named: Any) -> Any:
        setattr(owner, name, real)
        if after:
            function(*arguments, **named)
        raise error

    setattr(owner, name, classmethod(fail) if isinstance(real, classmethod) else fail)
    try:
        yield
    finally:
        setattr(owner, name, real)


def rolls(log: WritableLog) -> list[Callable[[], object]]:
    return [log.roll, lambda: [append(log) for _ in range(10)]]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("number", [0, 1], ids=["roll", "append"])
def test_log_of_which_a_roll_left_files_takes_no_append_and_opens_with_all_records(
    tmp_path: Path, error: type[BaseException], number: int
) -> None:
    log = open_log(tmp_path / "t-0", "a", SMALL)
    for _ in range(3):
        append(log)
    with failing_once(WritableSegment, "open", error, after=True), pytest.raises(error):
        rolls(log)[number]()
    acknowledged = log.log_end_offset
    assert len(list((tmp_path / "t-0").glob("*.log"))) == 2
    assert log.has_failed
    with pytest.raises(LogFailedError):
        append(log)
    with open_log(tmp_path / "t-0") as reader:
        assert offsets(reader) == list(range(acknowledged))
    log.close()
    with open_log(tmp_path / "t-0", "a", SMALL) as again:
        assert offsets(again) == list(range(acknowledged))
        assert append(again) == acknowledged


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("owner", [FileRecords, TimeIndexFile], ids=["first file", "third file"])
def test_log_goes_on_after_a_roll_of_which_nothing_is_left(
    tmp_path: Path, error: type[BaseException], owner: type
) -> None:
    log = open_log(tmp_path / "t-0", "a", SMALL)
    for _ in range(3):
        append(log)
    kind = owner if owner is FileRecords else TimeIndexFile.__mro__[1]
    with failing_once(kind, "open", error), pytest.raises(error):
        log.roll()
    assert not log.has_failed
    for _ in range(4):
        append(log)
    log.close()
    with open_log(tmp_path / "t-0", "a", SMALL) as again:
        assert offsets(again) == list(range(7))


def test_crash_brings_no_file_of_an_undone_roll_back_into_a_log_that_has_grown() -> None:
    for seed in range(40):
        disk = SimulatedDisk(now_ms=1000)
        disk.make_directory("/root")
        log = open_log("/root/t-0", "a", SMALL, env=disk)
        for _ in range(3):
            append(log)
        with failing_once(TimeIndexFile.__mro__[1], "open", KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            log.roll()
        assert append(log, size=10) == 3
        left = disk.after_cut(random.Random(seed))
        with open_log("/root/t-0", "a", SMALL, env=left) as again:
            assert offsets(again) == [0, 1, 2, 3]


def test_log_whose_append_could_not_be_undone_takes_no_more() -> None:
    disk = SimulatedDisk(now_ms=1000)
    disk.make_directory("/root")
    log = open_log("/root/t-0", "a", SMALL, env=disk)
    append(log)
    file = type(log._local.active.records._writer)
    with (
        failing_once(file, "pwrite", KeyboardInterrupt, after=True),
        failing_once(file, "truncate", KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        append(log)
    assert log.has_failed
    log.close()
    with open_log("/root/t-0", "a", SMALL, env=disk) as again:
        assert offsets(again)[0] == 0


@pytest.fixture
def store(tmp_path: Path) -> WritableStore:
    store = open_store(tmp_path / "root", "a", SMALL)
    store.create_topic("t", 3)
    for partition in range(3):
        append(store.log("t", partition))
    return store


def is_locked(store: WritableStore) -> bool:
    return DEFAULT_ENV.is_locked(f"{store.root}/.lock")


@pytest.mark.parametrize("after", [False, True], ids=["before a log", "after a log"])
def test_second_close_of_a_store_finishes_an_interrupted_one(store: WritableStore, after: bool) -> None:
    with failing_once(WritableLog, "close", KeyboardInterrupt, after=after), pytest.raises(KeyboardInterrupt):
        store.close()
    assert (store.is_closed, is_locked(store)) == (False, True)
    with pytest.raises(LogClosedError):
        store.log("t")
    store.close()
    assert (store.is_closed, is_locked(store)) == (True, False)
    with open_store(store.root, "a", SMALL) as again:
        assert not again.recovery_reports
        assert [offsets(again.log("t", partition)) for partition in range(3)] == [[0]] * 3


def test_log_whose_closing_was_interrupted_is_recovered_and_its_store_is_not_marked_as_closed(
    store: WritableStore,
) -> None:
    with failing_once(WritableSegment, "close", KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        store.close()
    store.close()
    assert not is_locked(store)
    with open_store(store.root, "a", SMALL) as again:
        assert len(again.recovery_reports) == 3
        assert [offsets(again.log("t", partition)) for partition in range(3)] == [[0]] * 3


def test_close_from_a_handler_within_close_returns_at_once(store: WritableStore) -> None:
    real, depth = WritableLog.close, []

    def close(log: WritableLog) -> None:
        depth.append(1)
        store.close()
        real(log)

    WritableLog.close = close  # type: ignore[method-assign]
    try:
        assert bounded(store.close) is None
    finally:
        WritableLog.close = real  # type: ignore[method-assign]
    assert (store.is_closed, len(depth), is_locked(store)) == (True, 3, False)


@pytest.mark.parametrize("after", [False, True])
def test_second_release_of_a_lock_finishes_an_interrupted_one(tmp_path: Path, after: bool) -> None:
    lock = PartitionLock.acquire(str(tmp_path), None)
    with failing_once(LockFile, "close", KeyboardInterrupt, after=after), pytest.raises(KeyboardInterrupt):
        lock.release()
    lock.release()
    assert not DEFAULT_ENV.is_locked(str(tmp_path / ".lock"))
    directory = DEFAULT_ENV.lock_directory(str(tmp_path))
    assert directory is not None
    directory.close()


def test_root_whose_release_was_interrupted_is_locked_afresh(tmp_path: Path) -> None:
    lock = PartitionLock.acquire(str(tmp_path), None)
    with failing_once(LockFile, "close", KeyboardInterrupt, after=True), pytest.raises(KeyboardInterrupt):
        lock.release()
    following = PartitionLock.acquire(str(tmp_path), None)
    following.check_held()
    assert DEFAULT_ENV.is_locked(str(tmp_path / ".lock"))
    following.release()


# An interrupt within a finalizer is reported, and goes no further.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.traces
def test_lock_whose_taking_is_interrupted_anywhere_is_held_by_nobody(tmp_path: Path) -> None:
    def take() -> None:
        PartitionLock.acquire(str(tmp_path), "t-0").release()

    tracer = Tracer(watched=("/kstore/log/files/lock.py", "/kstore/env/"))
    traced(take, tracer)
    for place in first_visits(tracer):
        traced(take, Tracer(place, watched=("/kstore/log/files/lock.py", "/kstore/env/")))
        lock = PartitionLock.acquire(str(tmp_path), None)
        lock.release()
        assert not DEFAULT_ENV.is_locked(str(tmp_path / ".lock")), place


@pytest.mark.traces
def test_interrupt_anywhere_as_a_log_gives_its_descriptor_up_blocks_no_append(store: WritableStore) -> None:
    log = store.log("t", 0)
    append(log)
    slot = next(slot for slot in store._logs.writers._slots if slot._local() is log._local)
    watched = ("/kstore/log/write/open_writers.py",)
    tracer = Tracer(watched=watched)
    traced(slot.try_park, tracer)
    for place in first_visits(tracer):
        append(log)
        traced(slot.try_park, Tracer(place, watched=watched))
        assert bounded(lambda: append(log)) is None, place
    assert isinstance(store._logs.writers, OpenWriters)
    store.close()


def test_log_of_which_a_flush_left_a_segment_closed_takes_no_append(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", "a", SMALL)
    log.append([Record(offset=0, timestamp_ms=1, value=b"v" * 100)])
    with failing_once(Durability, "flush_rolled", KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        log.roll()
    with failing_once(TransactionIndexFile, "close", KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        log.flush()
    with pytest.raises(LogFailedError):
        append(log)
    log.close()
    with open_log(tmp_path / "t-0", "a", SMALL) as again:
        assert offsets(again) == [0]


def test_readers_see_the_end_of_a_truncation_that_an_interrupt_ended() -> None:
    truncations = Truncations()
    with (
        failing_once(Truncations, "note", KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
        truncations.running(3),
    ):
        raise AssertionError("not begun")
    assert not truncations.is_running
    assert truncations.may_have_changed(0)
