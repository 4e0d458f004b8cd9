"""GroupCommit: threads that wait for a flush share one. Layer 5."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

from kstore.errors import KStoreError

# How long a flush is put off at most for the threads that waited for the last one or behind it.
GATHER_SECONDS = 0.001


class _Waiter:
    """A thread that waits for `turn`: for an answer, for an error, or to lead the next flush; then it wakes `next`.

    While is_leader is set, it is this thread that owes the others an answer: those of `group`, and who came since.
    """

    __slots__ = ("error", "flushed_offset", "group", "is_gone", "is_leader", "is_woken", "next", "offset", "turn")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.group: list[_Waiter] = []
        self.flushed_offset = offset
        self.error: KStoreError | None = None
        self.is_leader = False
        self.is_woken = False
        self.is_gone = False
        self.next: _Waiter | None = None
        self.turn = threading.Lock()
        self.turn.acquire()


class GroupCommit:
    """One flush at a time for all threads that wait; who comes while one runs waits for the next.

    A thread of those that wait leads the next flush. Where several were seen with the last one, it waits a moment for
    as many; a thread that is alone never does.
    flush: makes the log durable and returns the offset up to which it is; called without a lock held.
    Threads: safe.
    """

    def __init__(self, flush: Callable[[], int]) -> None:
        self._flush = flush
        self._lock = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._is_led = False
        self._gathering: threading.Lock | None = None
        self._busy_threads = 1
        self._flushed_offset = 0
        self._cuts = 0

    def wait_until(self, offset: int) -> int:
        """Return once every record below `offset` is durable, with the offset up to which they are.

        That is less than `offset` only if the log was cut below it meanwhile.
        Raises: what the flush raised, in each thread that waited for it.
        """
        if self._flushed_offset >= offset:
            return self._flushed_offset
        waiter = _Waiter(offset)
        try:
            with self._lock:
                if self._is_led:
                    self._waiters.append(waiter)
                    if self._gathering is not None and len(self._waiters) + 1 >= self._busy_threads:
                        gathering, self._gathering = self._gathering, None
                        gathering.release()
                else:
                    waiter.is_leader = self._is_led = True
            if not waiter.is_leader:
                waiter.turn.acquire()
                self._wake_next(waiter)
            if waiter.is_leader:
                return self._lead(waiter)
        except BaseException:
            self._abandon(waiter)
            raise
        if waiter.error is not None:
            raise _copy_of(waiter.error)
        return waiter.flushed_offset

    def lower(self, offset: int) -> None:
        """Take back that records from `offset` on are durable, before offsets of a log that was cut are used again."""
        with self._lock:
            self._flushed_offset = min(self._flushed_offset, offset)
            self._cuts += 1

    def _lead(self, leader: _Waiter) -> int:
        cuts = -1
        flushed_offset = None
        error = None
        try:
            if self._busy_threads > 1:
                self._gather()
            with self._lock:
                leader.group, self._waiters = self._waiters, []
                cuts = self._cuts
            flushed_offset = self._flush()
        except KStoreError as failure:
            error = failure
            raise
        finally:
            with self._lock:
                self._settle(leader, flushed_offset, error, is_cut=cuts != self._cuts)
        return flushed_offset

    def _gather(self) -> None:
        """Wait until as many threads have come as were seen with the last flush, or for a moment."""
        gathering = threading.Lock()
        gathering.acquire()
        with self._lock:
            if len(self._waiters) + 1 >= self._busy_threads:
                return
            self._gathering = gathering
        gathering.acquire(timeout=GATHER_SECONDS)
        with self._lock:
            self._gathering = None

    def _settle(self, leader: _Waiter, flushed_offset: int | None, error: KStoreError | None, *, is_cut: bool) -> None:
        """Under the lock, answer those that a flush was for, choose who leads the next one, and have all woken.

        All is prepared first: an interrupt leaves it as it was, to be settled again, or all done.
        """
        waiting = [waiter for waiter in (*leader.group, *self._waiters) if not waiter.is_gone]
        busy_threads = 1 + len(waiting)
        answered: list[_Waiter] = []
        if error is not None:
            answered, waiting = waiting, []
        elif flushed_offset is not None and not is_cut:
            served = {id(waiter) for waiter in leader.group}
            answered = [waiter for waiter in waiting if id(waiter) in served or waiter.offset <= flushed_offset]
            waiting = [waiter for waiter in waiting if waiter.offset > flushed_offset and id(waiter) not in served]
            self._flushed_offset = max(self._flushed_offset, flushed_offset)
        for waiter in answered:
            waiter.error = error
            waiter.flushed_offset = waiter.offset if flushed_offset is None else flushed_offset
        woken = waiting[:1] + answered
        for waiter in waiting:
            waiter.next = None
        followers: list[_Waiter | None] = [*woken[1:], None]
        for waiter, following in zip(woken, followers, strict=False):
            waiter.next = following
        heir = waiting[0] if waiting else None
        # No call from here on but the last, which wakes, so that no interrupt comes between.
        self._busy_threads = busy_threads
        self._waiters = waiting[1:]
        self._is_led = heir is not None
        leader.is_leader = False
        if heir is not None:
            heir.is_leader = True
        if woken:
            woken[0].is_woken = True
            woken[0].turn.release()

    def _wake_next(self, waiter: _Waiter) -> None:
        """Wake one thread after the other: many at once would only fight for the interpreter."""
        if waiter.next is None:
            return
        with self._lock:
            self._wake_behind(waiter)

    def _wake_behind(self, waiter: _Waiter) -> None:
        """Under the lock, wake the next one that is not gone."""
        following = waiter.next
        while following is not None and following.is_gone:
            following = following.next
        # As in _settle.
        waiter.next = None
        if following is not None:
            following.is_woken = True
            following.turn.release()

    def _abandon(self, waiter: _Waiter) -> None:
        """Go away without an answer: wake who is to be woken, and leave it to another thread to lead."""
        with self._lock:
            waiter.is_gone = True
        if waiter.is_woken:
            self._wake_next(waiter)
        with self._lock:
            if waiter.is_leader:
                self._settle(waiter, None, None, is_cut=False)


def _copy_of(error: KStoreError) -> KStoreError:
    """Return one object for each thread, since raising one adds a traceback to it."""
    copied = copy.copy(error)
    copied.__cause__ = error
    return copied
