"""LogRetention: removal of records from the start of one open log, by retention, by delete_records; and what holds it.

Which segments retention removes is decided in cleaning/retention.py, without a lock; the removal takes both locks.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from kstore._lazy import lazy_logger
from kstore.config import MAX_INT64, LogConfig
from kstore.env import Env
from kstore.env.process import Clock
from kstore.errors import LogReplacedError, checked_int
from kstore.log.cleaning.retention import DueSegment, RetentionBounds, plan_retention
from kstore.log.source import out_of_range
from kstore.log.state.leader_epochs import LeaderEpochCache
from kstore.log.state.producer_state import ProducerStateManager
from kstore.log.write.durability import Durability
from kstore.log.write.live_source import LiveSource
from kstore.log.write.local_log import LocalLog
from kstore.log.write.ownership import WriteGate, WriterFiles

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

# How much further than the monotonic clock the wall clock may go, because it was adjusted, before it counts as wrong.
CLOCK_TOLERANCE_MS = 60 * 60 * 1000

_logger = lazy_logger("kstore.log")
_numbers = count()


class RetentionHold:
    """Keeps the record at an offset and all later ones from retention; a context manager that releases it.

    Args: holds: those of the log, by number.
    Threads: safe.
    """

    def __init__(self, holds: dict[int, int], offset: int) -> None:
        self._holds = holds
        self._number = next(_numbers)
        holds[self._number] = offset

    @property
    def offset(self) -> int:
        """The first offset that is kept; of a released hold, one that keeps nothing."""
        return self._holds.get(self._number, MAX_INT64)

    def advance(self, offset: int) -> None:
        """Keep only what is at or above `offset` from now on; nothing after release."""
        offset = checked_int("offset", offset, least=0)
        if self._number in self._holds:
            self._holds[self._number] = offset

    def release(self) -> None:
        """Keep nothing any more; a second call does nothing."""
        self._holds.pop(self._number, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class TrustedClock:
    """The wall clock, held back where it has gone further than the monotonic clock since the first look.

    A clock that jumps ahead would make every record old at once. One that jumps back makes nothing older.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ms = clock.wall_clock_ms()
        self._monotonic_ms = clock.monotonic_ms()

    def now_ms(self) -> int:
        """Return the milliseconds since 1970, at most CLOCK_TOLERANCE_MS after what the monotonic clock tells."""
        expected_ms = self._wall_ms + self._clock.monotonic_ms() - self._monotonic_ms
        return min(self._clock.wall_clock_ms(), expected_ms + CLOCK_TOLERANCE_MS)


class LogRetention:
    """Removes what lies at the start of one log; made by WritableLog, whose methods say what each of these does.

    Threads: thread-safe.  Source: Kafka UnifiedLog.deleteOldSegments, UnifiedLog.maybeIncrementLogStartOffset.
    """

    def __init__(
        self,
        local: LocalLog,
        *,
        live: LiveSource,
        gate: WriteGate,
        files: WriterFiles,
        durability: Durability,
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        config: LogConfig,
        env: Env,
    ) -> None:
        self._local = local
        self._live = live
        self._gate = gate
        self._files = files
        self._durability = durability
        self._epochs = epochs
        self._producers = producers
        self._config = config
        self._env = env
        self._clock = TrustedClock(env)
        self._holds: dict[int, int] = {}

    def change_config(self, config: LogConfig) -> None:
        """Take over retention_ms and retention_bytes for the next plan."""
        self._config = config

    def hold_from(self, offset: int) -> RetentionHold:
        """Return a hold on the records from `offset` on."""
        return RetentionHold(self._holds, checked_int("offset", offset, least=0))

    def plan(self, now_ms: int | None) -> list[DueSegment]:
        """Return what delete_old_segments would remove now."""
        now_ms = self._clock.now_ms() if now_ms is None else checked_int("now_ms", now_ms)
        self._gate.check()
        return plan_retention(self._local.segments, self._bounds(), now_ms=now_ms, config=self._config, env=self._env)

    def delete_old_segments(self, now_ms: int | None) -> list[DueSegment]:
        """Remove the segments that are due, and return them."""
        local, truncations = self._local, self._live.truncations
        known = truncations.count
        try:
            due = self.plan(now_ms)
        except LogReplacedError:
            if truncations.may_have_changed(known):
                return []
            raise
        if due:
            # What ended a transaction, or counts by its size, must not be lost where older records are removed for it.
            self._durability.flush()
        with self._gate.flush_lock, self._gate.append_lock:
            self._gate.check()
            local.deleted.remove_due()
            due = self._still_due(due)
            if not due or truncations.may_have_changed(known):
                return []
            self._gate.check_lock_and_file(local.active.records)
            if len(due) == len(local.segments):
                self._durability.roll_at(local.log_end_offset)
            for segment in due:
                _logger.info("deleting segment %d of %s: %s", segment.base_offset, self._gate.path, segment)
            self._raise_start(max(due[-1].end_offset, local.log_start_offset))
        self._durability.flush_rolled()
        return due

    def delete_records(self, before_offset: int) -> int:
        """Durably raise the log start offset to at least `before_offset`, and return it."""
        before_offset = checked_int("before_offset", before_offset, least=0)
        local = self._local
        if before_offset <= local.high_watermark:
            # A log start offset above the end that the files show after a power cut would call for their removal.
            if before_offset > local.written_end_offset:
                self._durability.roll()
            elif before_offset > self._durability.flushed_offset:
                self._durability.flush()
        with self._gate.flush_lock, self._gate.append_lock:
            self._gate.check()
            if before_offset > local.high_watermark:
                name = self._live.context.topic_partition
                bound = f"expected at most its high watermark {local.high_watermark}, found {before_offset}"
                raise out_of_range(self._live, before_offset, f"start of {name}: {bound}")
            return self._raise_start(before_offset)

    def _bounds(self) -> RetentionBounds:
        local = self._local
        needed = min([local.last_stable_offset, *self._holds.values()])
        return RetentionBounds(local.log_start_offset, local.log_end_offset, needed)

    def _still_due(self, due: list[DueSegment]) -> list[DueSegment]:
        """Return the segments of a plan, up to the first that has changed since, or is needed now."""
        bounds = self._bounds()
        kept = []
        for planned, segment in zip(due, self._local.segments, strict=False):
            end = bounds.log_end_offset if segment.next_base_offset is None else segment.next_base_offset
            if planned[:3] != (segment.base_offset, end, segment.size_in_bytes) or end > bounds.least_needed_offset:
                break
            kept.append(planned)
        return kept

    def _raise_start(self, offset: int) -> int:
        """Raise the log start offset to at least `offset`, remove what is below it, and return it."""
        local = self._local
        self._gate.check_lock_and_file(local.active.records)
        if offset > local.log_start_offset:
            self._files.save_log_start_offset(offset)
            local.move_start(offset)
        start = local.log_start_offset
        self._epochs.truncate_from_start(start)
        self._producers.on_log_start_offset_incremented(start)
        if local.ends_below(start):
            with self._live.truncating(MAX_INT64), self._gate.failing():
                self._producers.delete_snapshots_at(local.remove_below(start))
        return start
