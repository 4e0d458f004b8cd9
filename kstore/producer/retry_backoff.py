"""How long a batch that failed waits before it is sent again. Layer 5."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.producer.batch import ProducerBatch

_BASE = 2
_JITTER = 0.2


class RetryBackoff:
    """Waiting times that double from initial_ms up to max_ms, each spread by a fifth to both sides.

    A batch keeps the time that was drawn for an attempt, where Kafka draws anew at every look.
    Threads: safe.  Source: Kafka ExponentialBackoff, KIP-580.
    """

    def __init__(self, *, initial_ms: int, max_ms: int, random: Random) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._most_doublings = math.log(max_ms / max(self._initial_ms, 1), _BASE) if self._initial_ms > 0 else 0.0
        self._random = random
        self._drawn: dict[ProducerBatch, tuple[int, int]] = {}

    def draw_ms(self, failures: int) -> int:
        """Return a waiting time after so many failures, the first being 0."""
        if self._most_doublings == 0:
            return self._initial_ms
        term = self._initial_ms * _BASE ** min(failures, self._most_doublings)
        return int(min(self._random.uniform(1 - _JITTER, 1 + _JITTER) * term, self._max_ms))

    def of_batch_ms(self, batch: ProducerBatch) -> int:
        """Return how long a batch waits after its last attempt."""
        drawn = self._drawn.get(batch)
        if drawn is None or drawn[0] != batch.attempts:
            drawn = batch.attempts, self.draw_ms(max(batch.attempts - 1, 0))
            self._drawn[batch] = drawn
        return drawn[1]

    def is_backing_off(self, batch: ProducerBatch, now_ms: int) -> bool:
        """Whether a batch that failed has to wait still; a new leader is tried at once (KAFKA-15415)."""
        if batch.attempts == 0 or batch.has_leader_changed_for_the_ongoing_retry:
            return False
        return batch.waited_ms(now_ms) < self.of_batch_ms(batch)

    def forget(self, batch: ProducerBatch) -> None:
        """Let go of a batch that waits no more."""
        self._drawn.pop(batch, None)
