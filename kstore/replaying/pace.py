"""Pace: how fast records are sent."""

from __future__ import annotations

from collections.abc import Callable

from kstore.env.process import Clock

# What may be sent at once, so that batches are not of one record.
_BURST_MS = 50


class Pace:
    """A bound on records and bytes per second, None for none: waits before what would exceed it.

    Args: wait: called with seconds to wait; it may return early.
    Threads: not thread-safe.
    """

    def __init__(
        self, *, records_per_s: float | None, bytes_per_s: float | None, clock: Clock, wait: Callable[[float], object]
    ) -> None:
        bounds = ((records_per_s, False), (bytes_per_s, True))
        self._bounds = [(rate, is_of_bytes) for rate, is_of_bytes in bounds if rate is not None]
        self._clock = clock
        self._wait = wait
        # By bound: when all that was sent is paid for.
        self._free_at_ms = [float(clock.monotonic_ms())] * len(self._bounds)

    @property
    def is_bounded(self) -> bool:
        return bool(self._bounds)

    def before(self, size: int) -> None:
        """Wait until a record of so many bytes may be sent."""
        while (ahead_ms := max(self._free_at_ms, default=0.0) - self._clock.monotonic_ms()) > _BURST_MS:
            self._wait((ahead_ms - _BURST_MS) / 1000)
        now_ms = self._clock.monotonic_ms()
        for i, (rate, is_of_bytes) in enumerate(self._bounds):
            self._free_at_ms[i] = max(self._free_at_ms[i], now_ms) + 1000 * (size if is_of_bytes else 1) / rate
