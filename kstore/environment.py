"""What logs and producers both ask of the operating system: clocks, and word of a fork. Layer 1."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol

_NS_PER_MS = 1_000_000


class Clock(Protocol):
    """Two clocks in milliseconds: one for the timestamps of records, one that never goes back for everything else."""

    def wall_clock_ms(self) -> int:
        """Return the milliseconds since 1970."""

    def monotonic_ms(self) -> int:
        """Return milliseconds that only rise, from any start."""


class SystemClock:
    """The clocks of the machine.  Threads: safe."""

    def wall_clock_ms(self) -> int:
        """Return milliseconds since 1970, which may jump."""
        return time.time_ns() // _NS_PER_MS

    def monotonic_ms(self) -> int:
        """Return milliseconds of a clock that never goes back."""
        return time.monotonic_ns() // _NS_PER_MS


SYSTEM_CLOCK = SystemClock()


def after_fork_in_child(callback: Callable[[], None]) -> None:
    """Have every child that Python's fork() makes call `callback` first."""
    os.register_at_fork(after_in_child=callback)
