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
from tests.fakes.interrupts import Tracer, first_visits, traced


class Disk:
    """A log end that counts as durable at a flush; each flush waits until the test lets it go."""

    def __init__(self) -> None:
        self.log_end_offset = 0
        self.flushes = 0
        self.started = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.error: Exception | None = None

    def flush(self) -> int:
        offset = self.log_end_offset
        self.flushes += 1
        self.started.release()
        assert self.gate.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        return offset


class Waiter(threading.Thread):
    """Waits for an offset in a thread; result is what it got, an offset or an error."""

    def __init__(self, commit: GroupCommit, offset: int) -> None:
        super().__init__(daemon=True)
        self.commit = commit
        self.offset = offset
        self.result: int | StorageError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.commit.wait_until(self.offset)
        except StorageError as error:
            self.result = error

    def ended(self) -> int | StorageError | None:
        self.join(timeout=60)
        assert not self.is_alive()
        return self.result


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def commit(disk: Disk) -> GroupCommit:
    return GroupCommit(disk.flush)


def until(condition: Callable[[], bool]) -> None:
    """Turn until another thread has come as far."""
    barrier = threading.Event()
    for _ in range(60_000):
        if condition():
            return
        barrier.wait(0.001)
    raise AssertionError("the other thread did not come as far")


def waiting(commit: GroupCommit) -> int:
    return len(commit._waiters)


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
    until(lambda: waiting(commit) == 15)
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
    until(lambda: waiting(commit) == 3)
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

    commit = GroupCommit(interrupted)
    disk.log_end_offset = 3
    other: list[Waiter] = []

    def join_then_go_on() -> None:
        assert disk.started.acquire(timeout=60)
        other.append(Waiter(commit, 3))
        until(lambda: waiting(commit) == 1)
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
    until(lambda: waiting(commit) == 1)
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
        until(lambda: waiting(commit) == 1)
        monkeypatch.undo()
        others.append(Waiter(commit, 3))
        until(lambda: waiting(commit) == 2)
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
    until(lambda: waiting(commit) == 2)
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
    until(lambda: waiting(commit) == 1)
    disk.log_end_offset = 2
    disk.gate.release(2)
    assert [first.ended(), second.ended()] == [1, 2]
    monkeypatch.setattr(group_commit, "GATHER_SECONDS", 60)
    disk.gate.release(2)
    for offset in (3, 4):
        disk.log_end_offset = offset
        assert commit.wait_until(offset) == offset
    assert disk.flushes == 4


def test_thread_that_a_signal_interrupts_anywhere_leaves_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_commit, "GATHER_SECONDS", 0)

    def run(tracer: Tracer) -> None:
        disk = Disk()
        disk.log_end_offset = 5
        commit = GroupCommit(disk.flush)
        others: list[Waiter] = []

        def flush_while_others_wait() -> int:
            commit._flush = lambda: 5
            others.extend(Waiter(commit, offset) for offset in (1, 2, 5))
            until(lambda: waiting(commit) == 3)
            return 2

        commit._flush = flush_while_others_wait
        traced(lambda: commit.wait_until(1), tracer)
        # Where it came before the flush, nobody waits yet.
        commit._flush = lambda: 5
        assert {other.ended() for other in others} <= {2, 5}
        assert Waiter(commit, 5).ended() == 5

    tracer = Tracer(watched=("/kstore/log/",))
    run(tracer)
    for place in first_visits(tracer):
        run(Tracer(place, watched=("/kstore/log/",)))
