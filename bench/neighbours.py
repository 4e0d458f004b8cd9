"""Neighbours: whether others use the processors too, and waiting until they stop.

A processor core that a guest of the same machine shares does a half to two thirds of the work, for a second or for
minutes, and nothing in the figures themselves tells that from a slower program. So a short piece of work that is always
the same is timed on every processor before and after each round: a round beside a neighbour is measured again while
there is patience left, whatever its figures are, and what could not be had is counted.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable
from random import Random
from typing import TypeVar

Result = TypeVar("Result")

# Above what two runs of the same work differ by on a machine without neighbours, below what one makes of them.
_MOST_SLOWNESS = 1.15
_FIRST_PROBES = 100
# The least of so many is what a processor takes: to get the interpreter's lock back from another thread takes as long
# as the work itself, and a neighbour slows all of them.
_PROBES = 8
_PAUSE_SECONDS = 0.05
# Of the patience of a workload, for one round: one that is never quiet leaves some to the next.
_MOST_FOR_ROUND = 0.1
_TEXT = bytes(Random(1).choices(b"abcdefghijklmnopqrstuvwxyz 0123456789", k=8192))


def _probe_seconds() -> float:
    start = time.perf_counter()
    zlib.compress(_TEXT, 6)
    return time.perf_counter() - start


def _processors() -> list[int | None]:
    """Return the processors that this process may use; one without a name where they have none."""
    return [*os.sched_getaffinity(0)] if hasattr(os, "sched_getaffinity") else [None]


class Neighbours:
    """Waits for the end of what slows the machine, for `patience_s` seconds in all; with 0 nothing is looked for.

    Attributes: rounds: how many were watched and kept; disturbed_rounds: those of them that began or ended beside a
        neighbour; repeated_rounds: how many were measured again.
    """

    def __init__(self, patience_s: float = 0.0) -> None:
        self.rounds = self.disturbed_rounds = self.repeated_rounds = 0
        self._left_s = patience_s
        self._most_for_round_s = patience_s * _MOST_FOR_ROUND
        self._best_s = float("inf")
        self._is_looking = patience_s > 0
        if self._is_looking:
            for _ in range(_FIRST_PROBES):
                self._slowness()

    def told(self) -> dict[str, int]:
        """Return the attributes, for the results."""
        return {
            "rounds": self.rounds,
            "disturbed_rounds": self.disturbed_rounds,
            "repeated_rounds": self.repeated_rounds,
        }

    def measured(self, run_round: Callable[[], Result]) -> Result:
        """Return what a round gives that begins and ends beside no neighbour, or any round when no patience is left for
        it to be measured again.
        """
        if not self._is_looking:
            return run_round()
        least_s = max(self._left_s - self._most_for_round_s, 0)
        while True:
            is_quiet = self._waited(least_s)
            start = time.perf_counter()
            found = run_round()
            seconds = time.perf_counter() - start
            is_quiet = is_quiet and self._is_quiet()
            if is_quiet or self._left_s - seconds < least_s:
                self.rounds += 1
                self.disturbed_rounds += not is_quiet
                return found
            self.repeated_rounds += 1
            self._left_s -= seconds

    def _waited(self, least_s: float) -> bool:
        """Wait until no neighbour is seen, or `least_s` of the patience is left; return whether none is seen."""
        while not (is_quiet := self._is_quiet()) and self._left_s > least_s:
            time.sleep(_PAUSE_SECONDS)
            self._left_s -= _PAUSE_SECONDS
        return is_quiet

    def _is_quiet(self) -> bool:
        # Twice: one look may have been interrupted by this process itself.
        return min(self._slowness(), self._slowness()) <= _MOST_SLOWNESS

    def _slowness(self) -> float:
        """Return how many times as long as ever the slowest processor takes, all of them at work."""
        seconds: list[float] = []

        def look(processor: int | None) -> None:
            if processor is not None:
                os.sched_setaffinity(0, {processor})
            seconds.append(min(_probe_seconds() for _ in range(_PROBES)))

        threads = [threading.Thread(target=look, args=(processor,)) for processor in _processors()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._best_s = min(self._best_s, *seconds)
        return max(seconds) / self._best_s
