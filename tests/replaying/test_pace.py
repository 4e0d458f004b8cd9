"""Goal: no more records or bytes are sent in a time than a bound allows, and no fewer than it allows.
Method: Pace on a clock that only waiting moves."""

from __future__ import annotations

import pytest

from kstore.replaying.pace import Pace

BURST_MS = 50


class WaitedClock:
    """Time passes only by waiting."""

    def __init__(self) -> None:
        self.now_ms = 1000.0
        self.waits = 0

    def monotonic_ms(self) -> int:
        return int(self.now_ms)

    def wall_clock_ms(self) -> int:
        return int(self.now_ms)

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.waits += 1
        self.now_ms += max(seconds * 1000, 1)


def sent(count: int, size: int, clock: WaitedClock, pace: Pace) -> float:
    """Send records; return how long that took, in ms."""
    before = clock.now_ms
    for _ in range(count):
        pace.before(size)
    return clock.now_ms - before


@pytest.mark.parametrize(
    ("records_per_s", "bytes_per_s", "expected_ms"),
    [(100, None, 10_000), (None, 1000, 100_000), (100, 1000, 100_000), (10_000, None, 100), (0.5, None, 2_000_000)],
)
def test_sending_takes_as_long_as_the_narrower_bound_says(
    records_per_s: float | None, bytes_per_s: float | None, expected_ms: float
) -> None:
    clock = WaitedClock()
    pace = Pace(records_per_s=records_per_s, bytes_per_s=bytes_per_s, clock=clock, wait=clock.wait)
    took = sent(1000, 100, clock, pace)
    one_ms = expected_ms / 1000
    assert expected_ms - BURST_MS - 2 * one_ms <= took <= expected_ms + 2


def test_time_in_which_nothing_was_sent_is_not_saved_up() -> None:
    clock = WaitedClock()
    pace = Pace(records_per_s=1000, bytes_per_s=None, clock=clock, wait=clock.wait)
    clock.now_ms += 60_000
    assert sent(1000, 1, clock, pace) >= 1000 - BURST_MS - 2


def test_without_bounds_nothing_waits() -> None:
    clock = WaitedClock()
    pace = Pace(records_per_s=None, bytes_per_s=None, clock=clock, wait=clock.wait)
    assert not pace.is_bounded
    assert sent(1000, 1000, clock, pace) == clock.waits == 0
