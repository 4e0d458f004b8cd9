"""Goal: in whatever order threads run, the producer's memory adds up, nobody waits for ever, no record is lost.
Method: the schedule explorer over BufferPool and RecordAccumulator, a seed for each order, and faults it must find."""

from __future__ import annotations

from typing import Any

import pytest

from kstore.producer.batches.batch import ProducerBatch
from tests.fakes.producers import Scenario, WatchedAccumulator, WatchedPool
from tests.fakes.schedules import DeadlockError, Schedule, ScheduledLock

pytestmark = pytest.mark.traces

LINE_CHANCE = 0.03


def run_all(seeds: range, **options: Any) -> None:
    """Run these schedules; every third one switches between lines too."""
    for seed in seeds:
        Scenario(seed, line_chance=LINE_CHANCE if seed % 3 == 0 else 0.0, **options)


def test_memory_adds_up_and_nobody_waits_for_ever() -> None:
    run_all(range(300))


@pytest.mark.long
def test_memory_adds_up_and_nobody_waits_for_ever_in_10000_schedules() -> None:
    run_all(range(10_000))


def test_schedule_is_repeated_by_its_seed() -> None:
    orders = [Scenario(seed, line_chance=LINE_CHANCE).schedule.order for seed in (3, 3, 4)]
    assert orders[0] == orders[1] != orders[2]


class PoolThatForgetsASignal(WatchedPool):
    """Every fourth signal to a waiting thread is lost."""

    def __init__(self, schedule: Schedule, **settings: Any) -> None:
        super().__init__(schedule, **settings)
        signals = iter(range(1_000_000))

        class Lossy(ScheduledLock):
            def release(self) -> None:
                if next(signals) % 4 != 3:
                    super().release()

        self.make_lock = lambda: Lossy(schedule)


def test_lost_signal_is_found() -> None:
    with pytest.raises(DeadlockError, match="nobody can run"):
        run_all(range(300), pool_type=PoolThatForgetsASignal)


class AccumulatorThatForgetsABuffer(WatchedAccumulator):
    """A batch that was completed is dropped, its memory with it."""

    def deallocate(self, batch: ProducerBatch) -> None:
        self.incomplete.discard(batch)
        self.batches.discard(batch)


def test_memory_that_does_not_come_back_is_found() -> None:
    with pytest.raises(AssertionError, match="available"):
        run_all(range(10), accumulator_type=AccumulatorThatForgetsABuffer)


def test_threads_that_wait_for_each_other_are_found() -> None:
    def take(schedule: Schedule, one: ScheduledLock, other: ScheduledLock) -> None:
        with one, other:
            schedule.switch()

    def run(seed: int) -> None:
        schedule = Schedule(seed)
        first, second = schedule.lock(), schedule.lock()
        schedule.spawn("a", lambda: take(schedule, first, second))
        schedule.spawn("b", lambda: take(schedule, second, first))
        schedule.run()

    def run_many() -> None:
        for seed in range(50):
            run(seed)

    with pytest.raises(DeadlockError, match=r"nobody can run: \['a', 'b'\]"):
        run_many()
