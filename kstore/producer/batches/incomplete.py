"""Batches that are not done yet: what a flush waits for and what a forced close gives up. Layer 5."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kstore.environment import Clock

if TYPE_CHECKING:
    from kstore.producer.batches.batch import ProducerBatch


class IncompleteBatches:
    """The batches from their creation until they are completed, and those held until an earlier one is.

    A batch whose outcome is known before that of an earlier batch of its partition is held, so that callbacks run in
    the order of the records.
    Attribute: batches: the keys of a dict, the oldest first.
    Threads: safe; a batch that is held ends in one thread.
    Source: Kafka IncompleteBatches, which holds none.
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
        self.batches[batch] = None

    def discard(self, batch: ProducerBatch) -> None:
        """Forget a batch if it is there."""
        self.batches.pop(batch, None)

    def hold(self, batch: ProducerBatch, end: Callable[[], object], *, after: ProducerBatch) -> None:
        """Put off a call that ends a batch until another batch has ended."""
        self._ends[batch] = end
        self._followers.setdefault(after, []).append(batch)

    @property
    def has_held(self) -> bool:
        """Whether any batch waits for the end of an earlier one."""
        return bool(self._ends)

    def is_held(self, batch: ProducerBatch) -> bool:
        """Tell whether a batch waits for the end of an earlier one."""
        return batch in self._ends

    def pass_followers(self, batch: ProducerBatch, *, to: ProducerBatch) -> None:
        """Let the batches that wait for one wait for another one: the last piece of a batch that was split."""
        if batch in self._followers:
            self._followers[to] = self._followers.pop(batch)

    def released_by(self, batch: ProducerBatch) -> Iterator[tuple[ProducerBatch, Callable[[], object]]]:
        """Yield the batches that waited for one that has ended, each with the call that ends it, in their order.

        The caller makes the call before it asks for the next one; those that wait for the batch that it ended follow.
        """
        waiting = self._followers.pop(batch, [])
        while waiting:
            one = waiting.pop(0)
            end = self._ends.pop(one, None)
            if end is not None:
                yield one, end
            waiting[:0] = self._followers.pop(one, ())

    def ended_but_awaited(self) -> list[ProducerBatch]:
        """Return the batches that have ended and that others still wait for."""
        return [batch for batch in list(self._followers) if batch.is_done]

    def copy_all(self) -> list[ProducerBatch]:
        """Return the batches of now, the oldest first."""
        return list(self.batches)


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
