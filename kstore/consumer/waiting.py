"""wait_for: how a consumer waits for new records. Only this module knows how."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Protocol

_SHORTEST_PAUSE_MS = 1
_LONGEST_PAUSE_MS = 50
_MS_PER_S = 1000


class MonotonicClock(Protocol):
    """The clock that a wait is measured by."""

    def monotonic_ms(self) -> int: ...


def wait_for(has_news: Callable[[], bool], *, timeout_ms: float, clock: MonotonicClock) -> bool:
    """Return whether has_news() became true within the timeout; it is asked at growing intervals of up to 50 ms."""
    end_ms = clock.monotonic_ms() + timeout_ms
    pause_ms: float = _SHORTEST_PAUSE_MS
    while not has_news():
        now_ms = clock.monotonic_ms()
        if now_ms >= end_ms:
            return False
        Event().wait(min(pause_ms, end_ms - now_ms) / _MS_PER_S)
        pause_ms = min(2 * pause_ms, _LONGEST_PAUSE_MS)
    return True
