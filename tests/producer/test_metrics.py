"""Goal: a producer's metrics have Kafka's names and say what was counted lately.
Method: a clock that the test moves, and values whose sums, averages and rates are known."""

from __future__ import annotations

import math

from kstore.producer.metrics import ProducerMetrics


class StoppedClock:
    def __init__(self) -> None:
        self.now_ms = 1000

    def wall_clock_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


def test_every_metric_is_there_before_anything_happened() -> None:
    found = ProducerMetrics(StoppedClock()).snapshot()
    assert found["record-send-total"] == 0
    assert found["record-send-rate"] == 0
    assert math.isnan(found["batch-size-avg"])
    assert math.isnan(found["record-queue-time-max"])
    assert found["flush-time-ns-total"] == 0
    assert {"records-per-request-avg", "compression-rate-avg"} <= set(found)
    assert not {"records-per-request-max", "compression-rate-max"} & set(found)


def test_average_and_maximum_forget_what_is_older_than_two_windows() -> None:
    clock = StoppedClock()
    metrics = ProducerMetrics(clock)
    metrics.record("batch-size", 1000)
    clock.now_ms += 30_000
    metrics.record("batch-size", 10)
    metrics.record("batch-size", 30)
    both = metrics.snapshot()
    clock.now_ms += 30_000
    later = metrics.snapshot()
    clock.now_ms += 60_000
    last = metrics.snapshot()
    assert (both["batch-size-avg"], both["batch-size-max"]) == (1040 / 3, 1000)
    assert (later["batch-size-avg"], later["batch-size-max"]) == (20, 30)
    assert math.isnan(last["batch-size-avg"])


def test_total_goes_on_where_the_rate_falls() -> None:
    clock = StoppedClock()
    metrics = ProducerMetrics(clock)
    metrics.count("record-send", 600)
    clock.now_ms += 15_000
    early = metrics.snapshot()
    clock.now_ms += 25_000
    metrics.count("record-send", 200)
    both = metrics.snapshot()
    clock.now_ms += 100_000
    late = metrics.snapshot()
    assert [found["record-send-total"] for found in (early, both, late)] == [600, 800, 800]
    assert [found["record-send-rate"] for found in (early, both, late)] == [20, 20, 0]


def test_times_add_up_and_gauges_are_read_when_asked_for() -> None:
    metrics = ProducerMetrics(StoppedClock())
    level = [1.0]
    metrics.add_time_ns("flush", 5)
    metrics.add_time_ns("flush", 7)
    metrics.gauge("buffer-available-bytes", lambda: level[0])
    level[0] = 2.0
    found = metrics.snapshot()
    assert (found["flush-time-ns-total"], found["buffer-available-bytes"]) == (12, 2.0)
