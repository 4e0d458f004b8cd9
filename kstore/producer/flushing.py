"""Flushes: who waits until all that was appended before is done. Layer 5."""

from __future__ import annotations

import threading

from kstore.producer.environment import Clock
from kstore.producer.incomplete import IncompleteBatches

_MS_PER_S = 1000


class Flushes:
    """Count the flushes under way, and wait for what is incomplete.

    Threads: safe.  Source: Kafka RecordAccumulator.awaitFlushCompletion, without its early return after a split
    (KAFKA-19479).
    """

    def __init__(self, incomplete: IncompleteBatches, *, clock: Clock) -> None:
        self._incomplete = incomplete
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0

    @property
    def in_progress(self) -> bool:
        return self._count > 0

    def begin(self) -> None:
        """Begin a flush, which await_completion() ends."""
        with self._lock:
            self._count += 1

    def await_completion(self, timeout_s: float | None) -> bool:
        """Wait until what is incomplete now is done; say whether it is. The flush has ended in any case."""
        deadline_s = None if timeout_s is None else self._monotonic_s() + timeout_s
        try:
            # The newest first: when it is done, most of the others are.
            for batch in reversed(self._incomplete.copy_all()):
                result = batch.result
                if result.is_done and not result.pieces:
                    continue
                left_s = None if deadline_s is None else max(deadline_s - self._monotonic_s(), 0.0)
                if not result.await_(left_s):
                    return False
            return True
        finally:
            with self._lock:
                self._count -= 1

    def _monotonic_s(self) -> float:
        return self._clock.monotonic_ms() / _MS_PER_S
