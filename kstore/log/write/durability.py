"""GroupCommit: threads that wait for a flush share one. Layer 5."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

from kstore.config import MAX_INT64, LogConfig
from kstore.errors import KStoreError, StorageError
from kstore.log.env import Env
from kstore.log.files.durable_point import DurablePoint
from kstore.log.write.local_log import LocalLog
from kstore.log.write.ownership import WriteGate, WriterFiles
from kstore.log.write.rules import Ack

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


class Durability:
    """The recovery point of one log, and who waits for it.

    Attributes: flushed_offset (the recovery point: all below it survives a power cut), needs_no_flush (whether an
    append with ack "written" has nothing to wait for).
    Threads: safe; what says so asks for the append lock, or for both.
    """

    def __init__(
        self,
        local: LocalLog,
        *,
        gate: WriteGate,
        files: WriterFiles,
        flushed_offset: int,
        config: LogConfig,
        env: Env,
    ) -> None:
        self._local = local
        self._gate = gate
        self._files = files
        self._config = config
        self._env = env
        self._durable_point = files.durable_point
        self._group = GroupCommit(self._sync)
        self.flushed_offset = flushed_offset
        self._flushed_ms = env.monotonic_ms()
        self._rolled_offset: int | None = None
        self._flushes_by_itself = (config.flush_messages, config.flush_ms) != (MAX_INT64, MAX_INT64)
        self.needs_no_flush = not self._flushes_by_itself

    def flush(self) -> int:
        """Wait until all that was appended is durable, and return the offset up to which it is."""
        gate, end = self._gate, self._local.log_end_offset
        gate.check()
        if self.flushed_offset >= end:
            # No sync will look.
            with gate.flush_lock:
                gate.check()
                gate.check_place(self._local.active.records)
        return self._group.wait_until(end)

    def flush_if_due(self) -> bool:
        """Flush if flush_ms has passed since the last flush and there is something to flush; return whether it did."""
        if self._local.log_end_offset <= self.flushed_offset:
            return False
        if self._env.monotonic_ms() - self._flushed_ms < self._config.flush_ms:
            return False
        self.flush()
        return True

    def flush_behind(self, last_offset: int, ack: Ack) -> None:
        """Flush what an append up to last_offset has to wait for."""
        rolled_offset = None if self._rolled_offset is None else self._take_rolled_offset()
        if ack == "flushed" or last_offset + 1 - self.flushed_offset >= self._config.flush_messages:
            self._group.wait_until(last_offset + 1)
        elif rolled_offset is not None:
            self._flush_rolled_to(rolled_offset)
        self.flush_if_due()

    def flush_rolled(self) -> None:
        """Flush the segment that was rolled last, unless that was seen to."""
        rolled_offset = self._take_rolled_offset()
        if rolled_offset is not None:
            self._flush_rolled_to(rolled_offset)

    def _flush_rolled_to(self, offset: int) -> None:
        self._group.wait_until(offset)
        if self._local.unflushed:
            # All its records were durable already: no flush has closed its files.
            self._sync()

    def note_roll(self) -> None:
        """Under the append lock, leave it to the next flush_behind or flush_rolled to flush what lies there now."""
        self._rolled_offset = self._local.log_end_offset
        self.needs_no_flush = False

    def lower(self, point: DurablePoint) -> None:
        """Under both locks, take back all above a point, durably, before the log is cut to it.

        Raises: StorageError; the log must not be cut then.
        """
        self.flushed_offset = min(self.flushed_offset, point.offset)
        self._files.lower_recovery_point(point.offset)
        self._durable_point.lower(point)

    def follow_cut(self) -> None:
        """Under both locks, let no flush of before answer for offsets behind the log's end, which are used again."""
        self._group.lower(self._local.log_end_offset)

    def follow_restart(self) -> None:
        """Under both locks, follow a log that begins anew with a segment that is durable."""
        self.follow_cut()
        self.flushed_offset = self._local.log_end_offset

    def close(self) -> None:
        """Under both locks, close the segments that take appends or were not flushed, with all that is in them durable.

        Raises: StorageError.
        """
        for segment in (*self._local.unflushed, self._local.active):
            segment.close()
        self.flushed_offset = self._local.log_end_offset

    def _take_rolled_offset(self) -> int | None:
        """Return where the log was rolled, if nobody has seen to its flush since."""
        with self._gate.append_lock:
            rolled_offset, self._rolled_offset = self._rolled_offset, None
            self.needs_no_flush = not self._flushes_by_itself
        return rolled_offset

    def _sync(self) -> int:
        local, gate = self._local, self._gate
        with gate.flush_lock:
            with gate.append_lock:
                gate.check()
                end, active, older = local.log_end_offset, local.active, local.unflushed
                point = DurablePoint(local.written_end_offset, active.base_offset, active.size_in_bytes)
                if not older:
                    active.appender.expect_flush()
            gate.check_place(active.records)
            try:
                for segment in older:
                    segment.close()
                active.flush()
            except StorageError as error:
                gate.fail(error)
                raise
            if older:
                with gate.append_lock:
                    local.drop_flushed(older)
            self.flushed_offset, self._flushed_ms = end, self._env.monotonic_ms()
            self._durable_point.advance(point)
        return end
