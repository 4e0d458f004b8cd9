"""Flushes and rolls: GroupCommit shares one write and one flush among waiting threads, Durability keeps the recovery
point.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence

from kstore._lazy import lazy_logger
from kstore.config import MAX_INT64, LogConfig
from kstore.env import Env
from kstore.errors import KStoreError, StorageError
from kstore.log.files.durable_point import DurablePoint
from kstore.log.segment.writable_segment import WritableSegment
from kstore.log.state.producer_state import ProducerStateManager
from kstore.log.write.local_log import LocalLog
from kstore.log.write.ownership import WriteGate, WriterFiles
from kstore.log.write.rules import LogAppendInfo
from kstore.record.batches import MemoryRecords
from kstore.types import Ack

_logger = lazy_logger("kstore.log")
# How long a flush is delayed at most, so that threads that waited for the previous flush can join it.
GATHER_SECONDS = 0.001
# In how many steps; a step in which no thread arrives is the last one.
_GATHER_STEPS = 4
# The offset that a thread waits for whose records have none yet.
_NOT_APPENDED = MAX_INT64


class _Waiter:
    """A waiting thread. Its `turn` lock is released when it has a result or an error, or when it must lead the next
    flush; it then wakes `next`.

    While `is_leader` is set, this thread owes a result to the others: those in `group`, and those that arrived since.
    A thread with `records` has not appended them: the leader of its group tries that, once. `handed` are those whose
    records this leader tries, itself included, and `done` has the results of the first ones of them.
    """

    __slots__ = (
        "done",
        "error",
        "flushed_offset",
        "group",
        "handed",
        "info",
        "is_gone",
        "is_leader",
        "is_woken",
        "next",
        "offset",
        "records",
        "turn",
    )

    def __init__(self, offset: int, records: MemoryRecords | None = None) -> None:
        self.offset = offset
        self.records = records
        self.info: LogAppendInfo | None = None
        self.group: list[_Waiter] = []
        self.handed: list[_Waiter] = []
        self.done: list[LogAppendInfo] = []
        self.flushed_offset = offset
        self.error: KStoreError | None = None
        self.is_leader = False
        self.is_woken = False
        self.is_gone = False
        self.next: _Waiter | None = None
        self.turn = threading.Lock()
        self.turn.acquire()


class GroupCommit:
    """Runs one flush at a time for all waiting threads. Threads that arrive during a flush wait for the next one.

    One of the waiting threads leads the next flush. If several threads were waiting at the previous flush, the leader
    waits up to GATHER_SECONDS for as many to arrive; a thread that is alone never waits. Batches that the threads have
    not written yet are written by the leader, together: a write by each of them would cost more in hand-overs of the
    interpreter's lock than the write itself.
    Args: flush: makes the log durable and returns the offset up to which it is durable (exclusive). append(batches,
        done): appends the first batches, as many as it can, and adds their results to `done` in the step that publishes
        them. Both are called without a lock held.
    Threads: thread-safe.
    """

    def __init__(
        self, flush: Callable[[], int], append: Callable[[list[MemoryRecords], list[LogAppendInfo]], object]
    ) -> None:
        self._flush = flush
        self._append = append
        self._lock = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._is_led = False
        self._gathering: threading.Lock | None = None
        self._busy_threads = 1
        self._flushed_offset = 0
        self._truncations = 0

    def wait_until(self, offset: int) -> int:
        """Wait until every record below `offset` is durable.

        Returns: the offset up to which records are durable (exclusive); less than `offset` only if a truncation went
            below it.
        Raises: whatever the flush raised, in each thread that waited for it.
        """
        if self._flushed_offset >= offset:
            return self._flushed_offset
        waiter = _Waiter(offset)
        self._wait(waiter)
        return waiter.flushed_offset

    def append(self, records: MemoryRecords) -> LogAppendInfo | None:
        """Have the leader of the next flush append a batch, and wait until it is durable.

        Returns: None if the batch was not appended: no flush runs that a thread could wait for, or the leader could not
            append it. The caller then appends it itself, and gets the error if there is one.
        Raises: as wait_until.
        """
        if not self._is_led and self._busy_threads == 1:
            return None
        waiter = _Waiter(_NOT_APPENDED, records)
        self._wait(waiter)
        return waiter.info

    def _wait(self, waiter: _Waiter) -> None:
        """Join the threads that wait for the next flush, or lead it."""
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
                self._lead(waiter)
        except BaseException:
            self._abandon(waiter)
            raise
        if waiter.error is not None:
            raise _copy_of(waiter.error)

    def lower(self, offset: int) -> None:
        """Declare records from `offset` on not durable, before a truncated log reuses their offsets."""
        with self._lock:
            self._flushed_offset = min(self._flushed_offset, offset)
            self._truncations += 1

    def _lead(self, leader: _Waiter) -> None:
        truncations = -1
        flushed_offset = None
        error = None
        try:
            if self._busy_threads > 1:
                self._gather()
            with self._lock:
                leader.group, self._waiters = self._waiters, []
                truncations = self._truncations
            leader.handed = [
                waiter
                for waiter in (leader, *leader.group)
                if waiter.records is not None and waiter.info is None and not waiter.is_gone
            ]
            if leader.handed:
                self._append([waiter.records for waiter in leader.handed if waiter.records is not None], leader.done)
            leader.flushed_offset = flushed_offset = self._flush()
        except KStoreError as failure:
            error = failure
            raise
        finally:
            with self._lock:
                self._settle(leader, flushed_offset, error, is_truncated=truncations != self._truncations)

    def _gather(self) -> None:
        """Wait until as many threads have arrived as waited at the previous flush, at most GATHER_SECONDS, and only
        while threads still arrive.
        """
        gathering = threading.Lock()
        gathering.acquire()
        with self._lock:
            arrived = len(self._waiters)
            if arrived + 1 >= self._busy_threads:
                return
            self._gathering = gathering
        for _ in range(_GATHER_STEPS):
            if gathering.acquire(timeout=GATHER_SECONDS / _GATHER_STEPS) or len(self._waiters) == arrived:
                break
            arrived = len(self._waiters)
        with self._lock:
            self._gathering = None

    def _settle(
        self, leader: _Waiter, flushed_offset: int | None, error: KStoreError | None, *, is_truncated: bool
    ) -> None:
        """Hand out the result of a flush, choose the leader of the next one, and start waking the threads. Requires the
        lock.

        A thread whose records the leader tried in vain is woken without a result, however the flush ended.
        Everything is prepared before any state changes: an interrupt leaves either the old state, to be settled again,
        or the complete new one.
        """
        for waiter, info in zip(leader.handed, leader.done, strict=False):
            waiter.info, waiter.offset = info, info.last_offset + 1
        durable_offset = -1
        if flushed_offset is not None and not is_truncated:
            durable_offset = flushed_offset
            self._flushed_offset = max(self._flushed_offset, flushed_offset)
        in_vain = set(map(id, leader.handed[len(leader.done) :]))
        answered: list[_Waiter] = []
        waiting: list[_Waiter] = []
        for waiter in leader.group:
            is_answered = error is not None or durable_offset >= 0 or id(waiter) in in_vain
            (answered if is_answered else waiting).append(waiter)
        for waiter in self._waiters:
            is_answered = error is not None or waiter.offset <= durable_offset
            (answered if is_answered else waiting).append(waiter)
        answered = [waiter for waiter in answered if not waiter.is_gone]
        waiting = [waiter for waiter in waiting if not waiter.is_gone]
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
        busy_threads = 1 + len(answered) + len(waiting)
        # No calls from here on except the last one, which wakes: an interrupt can only arrive at a call.
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
        """Wake one thread, which wakes the next one: many at once would only compete for the GIL."""
        if waiter.next is None:
            return
        with self._lock:
            self._wake_after(waiter)

    def _wake_after(self, waiter: _Waiter) -> None:
        """Wake the next thread that has not given up. Requires the lock."""
        following = waiter.next
        while following is not None and following.is_gone:
            following = following.next
        # No calls between these assignments either, see _settle.
        waiter.next = None
        if following is not None:
            following.is_woken = True
            following.turn.release()

    def _abandon(self, waiter: _Waiter) -> None:
        """Give up without a result: pass on a wake-up that was received, and hand leadership to another thread."""
        with self._lock:
            waiter.is_gone = True
        if waiter.is_woken:
            self._wake_next(waiter)
        with self._lock:
            if waiter.is_leader:
                self._settle(waiter, None, None, is_truncated=False)


def _copy_of(error: KStoreError) -> KStoreError:
    """Return a copy for one thread to raise, since raising an exception adds a traceback to it."""
    copied = copy.copy(error)
    copied.__cause__ = error
    return copied


class FlushTimes:
    """How many flushes of a log there were, and how long they took: all together and the longest, in milliseconds."""

    __slots__ = ("count", "max_ms", "total_ms")

    def __init__(self) -> None:
        self.count = self.total_ms = self.max_ms = 0

    def note(self, took_ms: int) -> None:
        """Count one flush."""
        self.count += 1
        self.total_ms += took_ms
        self.max_ms = max(self.max_ms, took_ms)


class Durability:
    """The recovery point of one log, and the flushes and rolls that advance it.

    Attributes: flushed_offset (every record below it survives a power cut), flushes, needs_no_flush (true if an append
        with ack "written" has nothing to wait for).
    Threads: thread-safe, except methods documented as requiring the append lock or both locks (flush lock and append
        lock).
    """

    def __init__(
        self,
        local: LocalLog,
        *,
        gate: WriteGate,
        files: WriterFiles,
        flushed_offset: int,
        producers: ProducerStateManager,
        tell: Callable[[], object],
        config: LogConfig,
        env: Env,
    ) -> None:
        self._local = local
        self._gate = gate
        self._files = files
        self._env = env
        self._durable_point = files.durable_point
        self._group = GroupCommit(self._sync, self._append_together)
        self.flushed_offset = flushed_offset
        self._producers = producers
        self._tell = tell
        self._flushed_ms = env.monotonic_ms()
        self._rolled_offset: int | None = None
        self.flushes = FlushTimes()
        self.change_config(config)

    def change_config(self, config: LogConfig) -> None:
        """Take over flush_messages and flush_ms. Requires the append lock, once the log is in use."""
        self._config = config
        self._flushes_by_itself = (config.flush_messages, config.flush_ms) != (MAX_INT64, MAX_INT64)
        self.needs_no_flush = not self._flushes_by_itself and self._rolled_offset is None

    @property
    def recovery_point(self) -> int:
        """The offset that the root's checkpoint should hold.

        Not above flushed_offset, the last batch, or the first segment with an index that is not written: a broker
        rebuilds no index of a segment before that point.
        """
        point = min(self.flushed_offset, self._local.written_end_offset)
        return min([point, *(segment.base_offset for segment in self._local.unflushed)])

    def flush(self) -> int:
        """Wait until everything appended is durable, and return the offset up to which it is durable (exclusive)."""
        gate, end = self._gate, self._local.log_end_offset
        gate.check()
        if self.flushed_offset >= end:
            # No flush will run, so nothing else checks that the lock and the files are still in place.
            with gate.flush_lock:
                gate.check()
                gate.check_lock_and_file(self._local.active.records)
        return self._group.wait_until(end)

    def flush_if_due(self) -> bool:
        """Flush if flush_ms milliseconds have passed since the last flush and there is something to flush; return
        whether it did.
        """
        if self._local.log_end_offset <= self.flushed_offset:
            return False
        if self._env.monotonic_ms() - self._flushed_ms < self._config.flush_ms:
            return False
        self.flush()
        return True

    def append_with_others(self, records: MemoryRecords) -> LogAppendInfo | None:
        """Append a client's batch in one write with those of other threads, and return its result once it is durable.

        Returns: None, with nothing done, if the caller has to append it: no other thread flushes now, the batch is not
            a small one that one compiled call appends, or it met an error, which the caller will then meet.
        Raises: as flush; then the batch may be in the log.
        """
        self._gate.check()
        if not self._local.appender.is_small_and_plain(records.buffer):
            return None
        return self._group.append(records)

    def _append_together(self, batches: list[MemoryRecords], done: list[LogAppendInfo]) -> None:
        """Append the first batches, as many as one compiled call each would append; none after a failed write.

        Raises: StorageError only if the log has failed, so that any batch may be in it.
        """
        local, gate = self._local, self._gate
        with gate.append_lock:
            now_ms = self._env.wall_clock_ms()
            try:
                while gate.is_open and local.appender.append_all_as_leader(batches, done, now_ms=now_ms):
                    pass
            except BaseException as error:
                gate.fail_unless_undone(error, local)
                if not isinstance(error, StorageError) or not gate.is_open:
                    raise
        self._tell()

    def flush_for_ack(self, last_offset: int, ack: Ack) -> None:
        """Flush what an append up to `last_offset` (inclusive) has to wait for."""
        rolled_offset = None if self._rolled_offset is None else self._take_rolled_offset()
        if ack == "flushed" or last_offset + 1 - self.flushed_offset >= self._config.flush_messages:
            self._group.wait_until(last_offset + 1)
        elif rolled_offset is not None:
            self._flush_rolled_to(rolled_offset)
        self.flush_if_due()

    def flush_rolled(self) -> None:
        """Flush the segment that was rolled last, unless another thread has taken care of it."""
        rolled_offset = self._take_rolled_offset()
        if rolled_offset is not None:
            self._flush_rolled_to(rolled_offset)

    def _flush_rolled_to(self, offset: int) -> None:
        self._group.wait_until(offset)
        if self._local.unflushed:
            # All its records were durable already, so that no flush has closed its files, or an index was not written.
            self._sync()

    def roll(self) -> int:
        """Start a new segment, unless an empty one begins at the log end; flush the old one. Return its base offset."""
        local = self._local
        with self._gate.append_lock:
            self._gate.check()
            if local.active.size_in_bytes or local.active.base_offset < local.log_end_offset:
                self.roll_at(local.log_end_offset)
            base_offset = local.active.base_offset
        self.flush_rolled()
        return base_offset

    def roll_at(self, base_offset: int) -> None:
        """Start a new segment. The old one's records are durable then; its indexes are flushed by the next
        flush_for_ack or flush_rolled. Requires the append lock.

        Without that sync, a power cut could leave records of the new segment without the last ones of the old.
        """
        local, producers = self._local, self._producers
        written_end = local.written_end_offset
        self._gate.check_lock_and_file(local.active.records)
        with self._gate.failing_unless_undone(local):
            local.roll(base_offset)
            self._rolled_offset = local.log_end_offset
            self.needs_no_flush = False
            local.publish(local.log_end_offset)
            # If offsets are missing before the new segment, a snapshot in that gap would describe a segment that is
            # lost.
            producers.delete_snapshots_between(written_end, end_offset=base_offset)
            producers.update_map_end_offset(base_offset)
            producers.take_snapshot()
        _logger.info("rolled %s: the new segment begins at offset %d", self._gate.path, base_offset)

    def lower(self, point: DurablePoint) -> None:
        """Durably lower the recovery point to `point`, before the log is truncated to it. Requires both locks.

        Raises: StorageError; the log must not be truncated then.
        """
        self.flushed_offset = min(self.flushed_offset, point.offset)
        self._files.lower_recovery_point(point.offset)
        self._durable_point.lower(point)

    def follow_truncation(self) -> None:
        """Stop earlier flushes from vouching for offsets >= the log end offset, which are reused. Requires both
        locks.
        """
        self._group.lower(self._local.log_end_offset)

    def follow_restart(self) -> None:
        """Take over the end of a log that restarted with one durable, empty segment. Requires both locks."""
        self.follow_truncation()
        self.flushed_offset = self._local.log_end_offset

    def close(self) -> None:
        """Make all records durable and close the segments that are active or not flushed yet. Requires both locks.

        Raises: StorageError.
        """
        for segment in (*self._local.unflushed, self._local.active):
            segment.close()
        self._local.drop_flushed(self._local.unflushed)
        self.flushed_offset = self._local.log_end_offset

    def _close_sealed(self, segments: Sequence[WritableSegment]) -> None:
        """Flush and close sealed segments. Requires the flush lock.

        An interrupt of this leaves files closed that were not flushed, so that the log must be opened again.
        """
        with self._gate.failing():
            closed = [segment for segment in segments if segment.close_sealed()]
            with self._gate.append_lock:
                self._local.drop_flushed(closed)

    def _take_rolled_offset(self) -> int | None:
        """Return the log end offset of the last roll, or None if another thread has taken care of its flush."""
        with self._gate.append_lock:
            rolled_offset, self._rolled_offset = self._rolled_offset, None
            self.needs_no_flush = not self._flushes_by_itself
        return rolled_offset

    def _sync(self) -> int:
        local, gate, started_ms = self._local, self._gate, self._env.monotonic_ms()
        with gate.flush_lock:
            with gate.append_lock:
                gate.check()
                end, active, older = local.log_end_offset, local.active, local.unflushed
                point = DurablePoint(local.written_end_offset, active.base_offset, active.size_in_bytes)
                if not older:
                    active.appender.expect_flush()
            gate.check_lock_and_file(active.records)
            if older:
                self._close_sealed(older)
            try:
                active.flush()
            except StorageError as error:
                gate.fail(error)
                raise
            self.flushed_offset, self._flushed_ms = end, self._env.monotonic_ms()
            self.flushes.note(self._flushed_ms - started_ms)
            self._durable_point.advance(point)
        self._tell()
        return end
