"""What tests of pools and batches share: a clock that stands still, locks that say when they are waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kstore.producer import BufferPool, CompressionRatioEstimator, ProducerBatch
from kstore.types import TopicPartition

TOPIC_PARTITION = TopicPartition("orders", 3)
BATCH_SIZE = 1024
PATIENCE_S = 30


class ManualClock:
    """Milliseconds that pass only when a test says so."""

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_clock_ms(self) -> int:
        return self.now_ms


class ExpiringLock:
    """A waiter's lock that nobody releases: a wait with a timeout passes it on the clock at once."""

    def __init__(self, clock: ManualClock, meanwhile: Callable[[], object] | None = None) -> None:
        self._clock = clock
        self._meanwhile = meanwhile

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not blocking or timeout < 0:
            return True
        if self._meanwhile is not None:
            self._meanwhile()
        self._clock.now_ms += round(timeout * 1000)
        return False

    def release(self) -> None:
        pass


class NotedLock:
    """A waiter's lock that says by `waits` that somebody waits for it."""

    def __init__(self, waits: threading.Semaphore) -> None:
        self._lock = threading.Lock()
        self._waits = waits

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if timeout >= 0:
            self._waits.release()
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        self._lock.release()


class Waits:
    """Tells a test that one more thread waits for memory of a pool."""

    def __init__(self, pool: BufferPool) -> None:
        self._semaphore = threading.Semaphore(0)
        pool.make_lock = lambda: NotedLock(self._semaphore)

    def expect_one(self) -> None:
        assert self._semaphore.acquire(timeout=PATIENCE_S)


def open_batch(
    pool: BufferPool | None = None,
    *,
    size: int = BATCH_SIZE,
    now_ms: int = 0,
    estimator: CompressionRatioEstimator | None = None,
    **settings: Any,
) -> ProducerBatch:
    """Open a batch in a buffer of a pool, one of its own if none is given."""
    pool = BufferPool(1 << 20, BATCH_SIZE) if pool is None else pool
    buffer = pool.allocate(size, max_time_to_block_ms=0)
    return ProducerBatch.open(TOPIC_PARTITION, pool, buffer, now_ms=now_ms, estimator=estimator, **settings)
