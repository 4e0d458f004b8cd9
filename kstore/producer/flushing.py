"""Flushes: who waits until all that was appended before is done. Layer 5."""

from __future__ import annotations

from collections.abc import Callable

from kstore.environment import Clock
from kstore.producer.incomplete import IncompleteBatches

_MS_PER_S = 1000


class Flushes:
    """Know the flushes under way, and wait for what is incomplete.

    Threads: safe; a flush that is interrupted is under way no more.
    Source: Kafka RecordAccumulator.awaitFlushCompletion, without its early return after a split (KAFKA-19479).
    """

    def __init__(self, incomplete: IncompleteBatches, *, clock: Clock) -> None:
        self._incomplete = incomplete
        self._clock = clock
        self._under_way: set[object] = set()

    @property
    def in_progress(self) -> bool:
        return bool(self._under_way)

    def run(self, timeout_s: float | None, *, wake: Callable[[], object]) -> bool:
        """Wait until what is incomplete now is done; say whether it is.

        Args: wake: called behind the beginning.
        """
        flush = object()
        try:
            self._under_way.add(flush)
            wake()
            return self._await_completion(timeout_s)
        finally:
            self._under_way.discard(flush)

    def _await_completion(self, timeout_s: float | None) -> bool:
        deadline_s = None if timeout_s is None else self._monotonic_s() + timeout_s
        # The newest first: when it is done, most of the others are.
        for batch in reversed(self._incomplete.copy_all()):
            result = batch.result
            if result.is_done and not result.pieces:
                continue
            left_s = None if deadline_s is None else max(deadline_s - self._monotonic_s(), 0.0)
            if not result.await_(left_s):
                return False
        return True

    def _monotonic_s(self) -> float:
        return self._clock.monotonic_ms() / _MS_PER_S
