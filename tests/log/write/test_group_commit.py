"""Goal: threads that wait for a flush share one, none returns before its own records are durable, and errors reach all.
Method: flushes that stop at gates the test opens, so that each interleaving is made, not hoped for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from kstore.errors import LogFailedError, StorageError
from kstore.log.write import durability as group_commit
from kstore.log.write.durability import GroupCommit
from kstore.log.write.rules import LogAppendInfo
from kstore.record import MemoryRecords
from tests.fakes.interrupts import Tracer, first_visits, traced
from tests.making.batches import batch


class Disk:
    """A log end that counts as durable at a flush; each flush waits until the test lets it go."""

    def __init__(self) -> None:
        self.log_end_offset = 0
        self.flushes = 0
        self.started = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.error: Exception | None = None
        self.appended: list[list[MemoryRecords]] = []
        # How many batches of the next group are appended.
        self.most = 1_000_000

    def append(self, batches: list[MemoryRecords], done: list[LogAppendInfo]) -> None:
        self.appended.append(batches)
        for _ in batches[: self.most]:
            done.append(LogAppendInfo(self.log_end_offset, self.log_end_offset, -1, -1, 0, 1))
            self.log_end_offset += 1

    def flush(self) -> int:
        offset = self.log_end_offset
        self.flushes += 1
        self.started.release()
        assert self.gate.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        return offset


class Ending(threading.Thread):
    """A thread whose call has a result."""

    result: Any = None

    def ended(self) -> Any:
        """Wait for the end of the call; return its result."""
        self.join(timeout=60)
        assert not self.is_alive()
        return self.result


class Waiter(Ending):
    """Waits for an offset in a thread; result is what it got, an offset or an error."""

    def __init__(self, commit: GroupCommit, offset: int) -> None:
        super().__init__(daemon=True)
        self.commit = commit
        self.offset = offset
        self.start()

    def run(self) -> None:
        try:
            self.result = self.commit.wait_until(self.offset)
        except StorageError as error:
            self.result = error


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def commit(disk: Disk) -> GroupCommit:
    return GroupCommit(disk.flush, disk.append)


def until(condition: Callable[[], bool]) -> None:
    """Turn until another thread has come as far."""
    barrier = threading.Event()
    for _ in range(60_000):
        if condition():
            return
        barrier.wait(0.001)
    raise AssertionError("the other thread did not come as far")


def until_waiting(commit: GroupCommit, count: int) -> None:
    until(lambda: waiting(commit) == count)


def waiting(commit: GroupCommit) -> int:
    return len(commit._waiters)


class Appender(Ending):
    """Appends a batch in a thread; result is its offset, None if it was not appended, or an error."""

    def __init__(self, commit: GroupCommit) -> None:
        super().__init__(daemon=True)
        self.commit = commit
        self.records = MemoryRecords(batch(0, 1, value_bytes=10))
        self.start()

    def run(self) -> None:
        try:
            info = self.commit.append(self.records)
            self.result = None if info is None else info.base_offset
        except StorageError as error:
            self.result = error
        except Stopped:
            self.result = -1


def appenders_during_a_flush(disk: Disk, commit: GroupCommit, count: int) -> list[Appender]:
    """Return threads that wait for the flush after the one that runs; the running one is ended by disk.gate."""
    disk.log_end_offset = 1
    Waiter(commit, 1)
    assert disk.started.acquire(timeout=60)
    appenders = []
    for number in range(count):
        appenders.append(Appender(commit))
        until_waiting(commit, number + 1)
    return appenders


def test_what_was_flushed_before_takes_no_flush(disk: Disk, commit: GroupCommit) -> None:
    disk.log_end_offset = 8
    disk.gate.release()
    assert commit.wait_until(5) == 8
    assert [commit.wait_until(offset) for offset in (0, 5, 8)] == [8, 8, 8]
    assert disk.flushes == 1


def test_threads_that_come_during_a_flush_share_the_next_one(disk: Disk, commit: GroupCommit) -> None:
    disk.log_end_offset = 1
    first = Waiter(commit, 1)
    assert disk.started.acquire(timeout=60)
    disk.log_end_offset = 16
    others = [Waiter(commit, offset) for offset in range(2, 17)]
    until_waiting(commit, 15)
    disk.gate.release()
    assert first.ended() == 1
    assert disk.started.acquire(timeout=60)
    assert all(other.result is None for other in others)
    disk.gate.release()
    assert [other.ended() for other in others] == [16] * 15
    assert disk.flushes == 2


def test_error_reaches_every_thread_that_waits_and_those_after_ask_the_log(disk: Disk, commit: GroupCommit) -> None:
    disk.log_end_offset = 4
    first = Waiter(commit, 1)
    assert disk.started.acquire(timeout=60)
    others = [Waiter(commit, 4) for _ in range(3)]
    until_waiting(commit, 3)
    disk.error = LogFailedError("sync failed", path="/t-0/0.log", errno=5)
    disk.gate.release()
    results = [waiter.ended() for waiter in (first, *others)]
    assert disk.flushes == 1
    for result in results:
        assert isinstance(result, LogFailedError)
        assert (str(result), result.path, result.errno) == ("sync failed", "/t-0/0.log", 5)
    assert len(set(map(id, results))) == 4
    disk.gate.release()
    with pytest.raises(LogFailedError):
        commit.wait_until(1)
    assert disk.flushes == 2


def test_interrupted_flush_leaves_it_to_another_thread(disk: Disk, commit: GroupCommit) -> None:
    class Interrupted(BaseException):
        pass

    def interrupted() -> int:
        if disk.flushes == 0:
            disk.flush()
            raise Interrupted
        return disk.flush()

    commit = GroupCommit(interrupted, disk.append)
    disk.log_end_offset = 3
    other: list[Waiter] = []

    def join_then_go_on() -> None:
        assert disk.started.acquire(timeout=60)
        other.append(Waiter(commit, 3))
        until_waiting(commit, 1)
        disk.gate.release(2)

    helper = threading.Thread(target=join_then_go_on)
    helper.start()
    with pytest.raises(Interrupted):
        commit.wait_until(3)
    helper.join()
    assert other[0].ended() == 3
    assert disk.flushes == 2


def test_thread_interrupted_at_any_line_leaves_nobody_waiting(disk: Disk, commit: GroupCommit) -> None:
    class Interrupted(BaseException):
        pass

    def interrupted_at(line: int) -> bool:
        seen: list[tuple[FrameType, int]] = []

        def trace(frame: FrameType, event: str, _argument: object) -> Callable[..., object] | None:
            if frame.f_code not in (GroupCommit.wait_until.__code__, GroupCommit._lead.__code__):
                return None
            # Not at the end of a `with`, where a line comes a second time: no signal is looked for there.
            if event == "line" and (frame, frame.f_lineno) not in seen:
                seen.append((frame, frame.f_lineno))
                if len(seen) > line:
                    raise Interrupted
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            commit.wait_until(disk.log_end_offset)
        except Interrupted:
            return True
        finally:
            sys.settrace(before)
        return False

    line = 0
    disk.gate.release(1000)
    while True:
        disk.log_end_offset += 1
        is_interrupted = interrupted_at(line)
        disk.log_end_offset += 1
        assert Waiter(commit, disk.log_end_offset).ended() == disk.log_end_offset
        if not is_interrupted:
            break
        line += 1
    assert line > 10


def test_offsets_used_again_after_a_cut_are_flushed_again(disk: Disk, commit: GroupCommit) -> None:
    disk.log_end_offset = 10
    disk.gate.release(2)
    commit.wait_until(10)
    commit.lower(4)
    assert commit.wait_until(4) == 4
    assert commit.wait_until(7) == 10
    assert disk.flushes == 2


def test_flush_that_began_before_a_cut_proves_nothing_about_what_follows(disk: Disk, commit: GroupCommit) -> None:
    disk.log_end_offset = 10
    first = Waiter(commit, 10)
    assert disk.started.acquire(timeout=60)
    commit.lower(4)
    disk.log_end_offset = 8
    second = Waiter(commit, 8)
    until_waiting(commit, 1)
    disk.gate.release()
    assert first.ended() == 10
    assert disk.started.acquire(timeout=60)
    disk.gate.release()
    assert second.ended() == 8


def test_record_that_was_cut_off_while_it_waited_is_told_by_the_offset(disk: Disk, commit: GroupCommit) -> None:
    disk.log_end_offset = 4
    disk.gate.release()
    assert commit.wait_until(6) == 4


class Stopped(BaseException):
    """As an interrupt is, which no thread expects."""


class StoppedLock:
    """The lock of a waiter whose thread is interrupted while it waits, or at the moment it was woken."""

    def __init__(self, *, waits: bool) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.waits = waits

    def acquire(self) -> bool:
        if self.waits:
            assert self.lock.acquire(timeout=60)
        raise Stopped

    def release(self) -> None:
        self.lock.release()


@pytest.mark.parametrize("was_woken", [False, True], ids=["while-it-waits", "when-it-was-to-lead"])
def test_interrupted_thread_leaves_the_next_flush_to_another(
    disk: Disk, commit: GroupCommit, monkeypatch: pytest.MonkeyPatch, was_woken: bool
) -> None:
    class StoppedWaiter(group_commit._Waiter):
        def __init__(self, offset: int) -> None:
            super().__init__(offset)
            stopped: Any = StoppedLock(waits=was_woken)
            self.turn = stopped

    disk.log_end_offset = 1
    first = Waiter(commit, 1)
    assert disk.started.acquire(timeout=60)
    disk.log_end_offset = 3
    others: list[Waiter] = []

    def join_and_go_on() -> None:
        until_waiting(commit, 1)
        monkeypatch.undo()
        others.append(Waiter(commit, 3))
        until_waiting(commit, 2)
        disk.gate.release(2)

    helper = threading.Thread(target=join_and_go_on)
    monkeypatch.setattr(group_commit, "_Waiter", StoppedWaiter)
    helper.start()
    with pytest.raises(Stopped):
        commit.wait_until(2)
    helper.join()
    assert [first.ended(), others[0].ended()] == [1, 3]
    assert disk.flushes == 2


def test_flush_waits_for_the_threads_that_were_seen_with_the_last_one(
    disk: Disk, commit: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "GATHER_SECONDS", 0)
    disk.log_end_offset = 1
    seen = [Waiter(commit, 1)]
    assert disk.started.acquire(timeout=60)
    disk.log_end_offset = 3
    seen += [Waiter(commit, offset) for offset in (2, 3)]
    until_waiting(commit, 2)
    disk.gate.release(2)
    assert [one.ended() for one in seen] == [1, 3, 3]
    monkeypatch.setattr(group_commit, "GATHER_SECONDS", 60)
    disk.log_end_offset = 6
    first = Waiter(commit, 4)
    until(lambda: commit._gathering is not None)
    assert disk.flushes == 2
    second = Waiter(commit, 5)
    disk.gate.release()
    assert [first.ended(), second.ended()] == [6, 6]
    assert disk.flushes == 3


def test_thread_that_is_alone_again_puts_a_flush_off_once_and_no_more(
    disk: Disk, commit: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "GATHER_SECONDS", 0)
    disk.log_end_offset = 1
    first = Waiter(commit, 1)
    assert disk.started.acquire(timeout=60)
    second = Waiter(commit, 2)
    until_waiting(commit, 1)
    disk.log_end_offset = 2
    disk.gate.release(2)
    assert [first.ended(), second.ended()] == [1, 2]
    monkeypatch.setattr(group_commit, "GATHER_SECONDS", 60)
    disk.gate.release(2)
    for offset in (3, 4):
        disk.log_end_offset = offset
        assert commit.wait_until(offset) == offset
    assert disk.flushes == 4


def test_batch_of_a_thread_that_is_alone_is_left_to_it(disk: Disk, commit: GroupCommit) -> None:
    disk.gate.release()
    assert commit.append(MemoryRecords(batch(0, 1))) is None
    assert (disk.appended, disk.flushes) == ([], 0)


def test_batches_of_threads_that_wait_are_appended_together_and_each_gets_its_own_result(
    disk: Disk, commit: GroupCommit
) -> None:
    appenders = appenders_during_a_flush(disk, commit, 5)
    assert disk.appended == []
    disk.gate.release()
    assert disk.started.acquire(timeout=60)
    assert all(appender.result is None and appender.is_alive() for appender in appenders)
    disk.gate.release()
    assert [appender.ended() for appender in appenders] == [1, 2, 3, 4, 5]
    assert disk.appended == [[appender.records for appender in appenders]]
    assert disk.flushes == 2


def test_batches_that_the_leader_cannot_append_are_left_to_their_threads(disk: Disk, commit: GroupCommit) -> None:
    appenders = appenders_during_a_flush(disk, commit, 4)
    disk.most = 2
    disk.gate.release(2)
    assert [appender.ended() for appender in appenders] == [1, 2, None, None]
    assert len(disk.appended) == 1


def test_failed_flush_after_batches_were_appended_reaches_each_of_their_threads(
    disk: Disk, commit: GroupCommit
) -> None:
    appenders = appenders_during_a_flush(disk, commit, 3)
    disk.gate.release()
    assert disk.started.acquire(timeout=60)
    late = Appender(commit)
    until_waiting(commit, 1)
    disk.error = LogFailedError("sync failed", path="/t-0/0.log", errno=5)
    disk.gate.release()
    results = [appender.ended() for appender in (*appenders, late)]
    assert all(isinstance(result, LogFailedError) for result in results)
    assert len(set(map(id, results))) == 4
    assert len(disk.appended) == 1


def test_batch_of_a_thread_that_gave_up_is_not_appended(disk: Disk, commit: GroupCommit) -> None:
    gone = group_commit._Waiter(1, MemoryRecords(batch(0, 1)))
    gone.is_gone = True
    commit._waiters.append(gone)
    commit._busy_threads = 2
    own = MemoryRecords(batch(0, 1))
    disk.gate.release()
    info = commit.append(own)
    assert info is not None
    assert disk.appended == [[own]]


def test_batches_that_an_interrupted_leader_tried_are_not_tried_again(disk: Disk, commit: GroupCommit) -> None:
    appenders = appenders_during_a_flush(disk, commit, 3)
    leaders: list[threading.Thread] = []

    def stopped_once() -> int:
        leaders.append(threading.current_thread())
        if len(leaders) == 1:
            raise Stopped
        return disk.log_end_offset

    commit._flush = stopped_once
    disk.most = 2
    disk.gate.release()
    results = [appender.ended() for appender in appenders]
    assert len(leaders) == 2
    assert results == [-1, 2, None]
    assert len(disk.appended) == 1


def at_each_place(run: Callable[[Tracer], None]) -> None:
    """Run without an interrupt, then with one at each line of the log that was passed."""
    tracer = Tracer(watched=("/kstore/log/",))
    run(tracer)
    for place in first_visits(tracer):
        run(Tracer(place, watched=("/kstore/log/",)))


@pytest.mark.traces
def test_thread_that_a_signal_interrupts_anywhere_leaves_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "GATHER_SECONDS", 0)

    def run(tracer: Tracer) -> None:
        disk = Disk()
        disk.log_end_offset = 5
        commit = GroupCommit(disk.flush, disk.append)
        others: list[Waiter] = []

        def flush_while_others_wait() -> int:
            commit._flush = lambda: 5
            others.extend(Waiter(commit, offset) for offset in (1, 2, 5))
            until_waiting(commit, 3)
            return 2

        commit._flush = flush_while_others_wait
        traced(lambda: commit.wait_until(1), tracer)
        # Where it came before the flush, nobody waits yet.
        commit._flush = lambda: 5
        assert {other.ended() for other in others} <= {2, 5}
        assert Waiter(commit, 5).ended() == 5

    at_each_place(run)


@pytest.mark.traces
def test_signal_anywhere_in_a_thread_that_appends_for_others_leaves_each_batch_appended_at_most_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "GATHER_SECONDS", 0)

    def run(tracer: Tracer) -> None:
        disk = Disk()
        disk.gate.release(1000)
        commit = GroupCommit(disk.flush, disk.append)
        commit._busy_threads = 2
        own = MemoryRecords(batch(0, 1))
        others: list[Appender] = []

        def append_while_others_wait(batches: list[MemoryRecords], done: list[LogAppendInfo]) -> None:
            commit._append = disk.append
            others.extend(Appender(commit) for _ in range(3))
            until_waiting(commit, 3)
            disk.append(batches, done)

        commit._append = append_while_others_wait
        traced(lambda: commit.append(own), tracer)
        commit._append = disk.append
        # None: the batch is left to its thread, which the test does not let append it.
        assert all(isinstance(other.ended(), int | None) for other in others)
        appended = [id(records) for group in disk.appended for records in group]
        assert len(appended) == len(set(appended))
        assert {id(other.records) for other in others if other.result is not None} <= set(appended)

    at_each_place(run)
