"""ProducerMetrics: a producer's counters, rates and averages under the names of Kafka's metrics."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kstore._core import OwnedLock, sums_of_request
from kstore.env.process import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from kstore._core import RequestSums
    from kstore.producer.batches.batch import ProducerBatch

_WINDOW_MS = 30_000
# The values that sums_of_request() returns, in its order.
_OF_REQUEST = ("batch-size", "record-size", "record-queue-time", "compression-rate")


class _Sampled:
    """Sum, count and maximum of recent values, over one to two windows of 30 s, as Kafka samples."""

    def __init__(self) -> None:
        # Each window: [start in ms, count, sum, maximum].
        self._windows: deque[list[float]] = deque(maxlen=2)

    def record(self, value: float, now_ms: int) -> None:
        self.record_all(1, value, maximum=value, now_ms=now_ms)

    def record_all(self, count: int, total: float, *, maximum: float, now_ms: int) -> None:
        """Record `count` values of one moment, at least 1, by their total and maximum."""
        windows = self._windows
        if not windows or now_ms - windows[-1][0] >= _WINDOW_MS:
            windows.append([now_ms, 0, 0.0, maximum])
        window = windows[-1]
        window[1] += count
        window[2] += total
        window[3] = max(window[3], maximum)

    def _recent(self, now_ms: int) -> list[list[float]]:
        return [window for window in self._windows if now_ms - window[0] < 2 * _WINDOW_MS]

    def average(self, now_ms: int) -> float:
        recent = self._recent(now_ms)
        count = sum(window[1] for window in recent)
        return sum(window[2] for window in recent) / count if count else float("nan")

    def maximum(self, now_ms: int) -> float:
        return max((window[3] for window in self._recent(now_ms)), default=float("nan"))

    def rate(self, now_ms: int) -> float:
        """Return the sum per second, 0 without values.

        Less than a full window counts as a full one, so that the rate has no peak at the start.
        """
        recent = self._recent(now_ms)
        if not recent:
            return 0.0
        elapsed_ms = max(now_ms - recent[0][0], _WINDOW_MS)
        return sum(window[2] for window in recent) * 1000 / elapsed_ms


class ProducerMetrics:
    """Totals, rates, averages and maxima of one producer; all but the totals cover the last 30 to 60 seconds.

    Threads: safe.  Source: Kafka SenderMetricsRegistry, KafkaProducerMetrics, BufferPool.
    """

    _TOTALS = ("record-send", "record-error", "record-retry", "batch-split", "outgoing-byte")
    _AVERAGES = (
        "batch-size",
        "record-size",
        "record-queue-time",
        "request-latency",
        "records-per-request",
        "compression-rate",
    )
    _TIMES = ("flush", "txn-init", "txn-begin", "txn-send-offsets", "txn-commit", "txn-abort")

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = OwnedLock(threading.Lock())
        self._totals = dict.fromkeys(self._TOTALS, 0)
        self._rates = {name: _Sampled() for name in self._TOTALS}
        self._averages = {name: _Sampled() for name in self._AVERAGES}
        self._times_ns = dict.fromkeys(self._TIMES, 0)
        self._gauges: dict[str, Callable[[], float]] = {}

    @property
    def is_held_here(self) -> bool:
        """Whether the calling thread holds the lock that other threads need."""
        return self._lock.is_held_here

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a total, such as "record-send"."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            self._totals[name] += amount
            self._rates[name].record(amount, now_ms)

    def record(self, name: str, value: float) -> None:
        """Record a value for an average and maximum, such as "request-latency"."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            self._averages[name].record(value, now_ms)

    def note_request(self, batches: Sequence[ProducerBatch]) -> None:
        """Count the batches of one request to a node."""
        self._note(sums_of_request(list(batches)), requests=1, now_ms=self._clock.monotonic_ms())

    def note_direct_sends(self, sums: RequestSums) -> None:
        """Count requests of one batch each, which took as long as the sums say."""
        self._note(sums, requests=sums.batches, now_ms=sums.last_ms)
        with self._lock:
            self._averages["request-latency"].record_all(
                sums.batches, sums.latency_ms, maximum=sums.greatest_latency_ms, now_ms=sums.last_ms
            )

    def _note(self, sums: RequestSums, *, requests: int, now_ms: int) -> None:
        values = sums.values()
        with self._lock:
            if sums.batches:
                for name, (total, largest) in zip(_OF_REQUEST, values, strict=True):
                    self._averages[name].record_all(sums.batches, total, maximum=largest, now_ms=now_ms)
            self._averages["records-per-request"].record_all(
                requests, sums.records, maximum=sums.records, now_ms=now_ms
            )
            for name, amount in (("record-send", sums.records), ("outgoing-byte", int(values[0][0]))):
                self._totals[name] += amount
                self._rates[name].record(amount, now_ms)

    def add_time_ns(self, name: str, elapsed_ns: int) -> None:
        """Add nanoseconds to the total time of an operation, such as "flush"."""
        with self._lock:
            self._times_ns[name] += elapsed_ns

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Register a metric that is computed by `read` in each snapshot."""
        with self._lock:
            self._gauges[name] = read

    def snapshot(self) -> dict[str, float]:
        """Return all metrics by Kafka's names; the average or maximum of no values is NaN."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            values: dict[str, float] = {}
            for name, total in self._totals.items():
                values[f"{name}-total"] = total
                values[f"{name}-rate"] = self._rates[name].rate(now_ms)
            for name, sampled in self._averages.items():
                values[f"{name}-avg"] = sampled.average(now_ms)
                values[f"{name}-max"] = sampled.maximum(now_ms)
            del values["records-per-request-max"], values["compression-rate-max"]
            values |= {f"{name}-time-ns-total": time_ns for name, time_ns in self._times_ns.items()}
            gauges = dict(self._gauges)
        return values | {name: read() for name, read in gauges.items()}
