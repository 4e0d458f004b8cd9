"""Batches that are not done yet: IncompleteBatches tracks them, Flushes waits for them.

A forced close fails every batch that is tracked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kstore.env.process import Clock

if TYPE_CHECKING:
    from kstore.producer.batches.batch import ProducerBatch


class IncompleteBatches:
    """The batches that are not completed yet, oldest first.

    When the outcome of a batch is known before that of an earlier batch of its partition, its completion is held, so
    that callbacks run in record order.
    Attributes: batches: a dict used as an ordered set, oldest batch first.
    Threads: safe; each held batch is completed by one thread.
    Source: Kafka IncompleteBatches, which never holds a completion.
    """

    def __init__(self) -> None:
        self.batches: dict[ProducerBatch, None] = {}
        self._ends: dict[ProducerBatch, Callable[[], object]] = {}
        self._followers: dict[ProducerBatch, list[ProducerBatch]] = {}

    def __len__(self) -> int:
        return len(self.batches)

    def __contains__(self, batch: object) -> bool:
        return batch in self.batches

    def add(self, batch: ProducerBatch) -> None:
        """Track a new batch."""
        self.batches[batch] = None

    def discard(self, batch: ProducerBatch) -> None:
        """Stop tracking a batch, if it is tracked."""
        self.batches.pop(batch, None)

    def hold(self, batch: ProducerBatch, end: Callable[[], object], *, after: ProducerBatch) -> None:
        """Defer `end`, the call that completes `batch`, until the batch `after` has completed."""
        self._ends[batch] = end
        self._followers.setdefault(after, []).append(batch)

    @property
    def has_held(self) -> bool:
        """Whether any batch's completion is held until an earlier batch completes."""
        return bool(self._ends)

    def is_held(self, batch: ProducerBatch) -> bool:
        """Return whether the completion of a batch is held until an earlier batch completes."""
        return batch in self._ends

    def pass_followers(self, batch: ProducerBatch, *, to: ProducerBatch) -> None:
        """Make the batches held by `batch` wait for `to` instead: the last piece of a split batch."""
        if batch in self._followers:
            self._followers[to] = self._followers.pop(batch)

    def released_by(self, batch: ProducerBatch) -> Iterator[tuple[ProducerBatch, Callable[[], object]]]:
        """Yield each batch that was held by a completed batch, in order, with the call that completes it.

        The caller makes each call before it asks for the next item; batches held by the one just completed come right
        after it.
        """
        waiting = self._followers.pop(batch, [])
        while waiting:
            follower = waiting.pop(0)
            end = self._ends.pop(follower, None)
            if end is not None:
                yield follower, end
            waiting[:0] = self._followers.pop(follower, ())

    def completed_with_followers(self) -> list[ProducerBatch]:
        """Return the batches that have completed but still hold others."""
        return [batch for batch in list(self._followers) if batch.is_done]

    def copy_all(self) -> list[ProducerBatch]:
        """Return the tracked batches as a new list, oldest first."""
        return list(self.batches)


_MS_PER_S = 1000


class Flushes:
    """Tracks the flushes in progress and waits for incomplete batches.

    Threads: safe; an interrupted flush no longer counts as in progress.
    Source: Kafka RecordAccumulator.awaitFlushCompletion, without its early return after a split (KAFKA-19479).
    """

    def __init__(self, incomplete: IncompleteBatches, *, clock: Clock) -> None:
        self._incomplete = incomplete
        self._clock = clock
        self._under_way: set[object] = set()

    @property
    def in_progress(self) -> bool:
        """Whether any flush is running."""
        return bool(self._under_way)

    def run(self, timeout_s: float | None, *, wake: Callable[[], object]) -> bool:
        """Wait until every batch that is incomplete now is done; return False if the timeout expires first.

        Args: timeout_s: in seconds, None to wait without limit; wake: called after the flush counts as in progress.
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
        # Newest first: by the time it is done, most of the others are done too, and their waits return at once.
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
