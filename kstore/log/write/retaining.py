"""What an open log keeps beside its state: RetentionHold, a follower's place; TrustedClock, a clock without jumps;
CleanedBelow, for its readers; LogCounts, for metrics.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from kstore.config import MAX_INT64, LogConfig
from kstore.env.process import Clock
from kstore.errors import checked_int
from kstore.log.recovery.context import RecoveryContext

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

# How much further than the monotonic clock the wall clock may go, because it was adjusted, before it counts as wrong.
CLOCK_TOLERANCE_MS = 60 * 60 * 1000

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


class LogCounts(NamedTuple):
    """What happened to a log since it was opened: appended offsets and bytes, flushes and how long they took."""

    offsets_in: int
    bytes_in: int
    flushes: int
    flush_total_ms: int
    flush_max_ms: int


class CleanedBelow:
    """Returns the offset below which a cleaner has cleaned a log that is open, or may have by its configuration."""

    def __init__(self, context: RecoveryContext) -> None:
        self._context = context

    def note(self, config: LogConfig) -> None:
        """Heed a change of cleanup_policy. What was compacted once may have gaps as long as the log is open."""
        if config.is_compacted:
            self._context = replace(self._context, config=config)

    def __call__(self) -> int:
        return self._context.cleaned_below()
