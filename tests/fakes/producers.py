"""The scenario that the schedule explorer runs: appenders, a drainer, a completer, an aborter, a closer, a flush.

They work on one accumulator over a pool of three batches; where memory is, is known at every step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from kstore.errors import KStoreError, ProducerClosedError
from kstore.producer.append_columns import append_columns
from kstore.producer.batches import accumulator as accumulator_module
from kstore.producer.batches import batch as compression_ratio
from kstore.producer.batches import futures as result
from kstore.producer.batches.accumulator import BufferPool, RecordAccumulator
from kstore.producer.batches.batch import FinalState, ProducerBatch
from kstore.record.packing import BinaryColumn, RecordColumns
from tests.fakes.schedules import Schedule
from tests.making.producing import BATCH_BYTES, CLUSTER, FAR_MS, TOPIC

MEMORY = 3 * BATCH_BYTES
MODULES = (accumulator_module, compression_ratio, result)
RECORDS_PER_APPENDER = 12
ROWS = 30


class WatchedPool(BufferPool):
    """A pool that knows which buffers are on their way to a batch."""

    def __init__(self, schedule: Schedule, *, memory: int = MEMORY) -> None:
        super().__init__(memory, BATCH_BYTES, clock=schedule)
        self.make_lock = schedule.lock
        self.on_the_way: dict[int, int] = {}

    def allocate(self, size: int, *, max_time_to_block_ms: int) -> Any:
        buffer = super().allocate(size, max_time_to_block_ms=max_time_to_block_ms)
        self.on_the_way[id(buffer)] = size
        return buffer

    def allocate_into(self, held: list[Any], size: int, *, max_time_to_block_ms: int) -> None:
        held.append(self.allocate(size, max_time_to_block_ms=max_time_to_block_ms))

    def allocate_anyway(self, size: int) -> Any:
        buffer = super().allocate_anyway(size)
        self.on_the_way[id(buffer)] = size
        return buffer

    def deallocate_all(self, held: list[Any]) -> None:
        for buffer in held:
            self.on_the_way.pop(id(buffer))
        super().deallocate_all(held)


class WatchedBatch(ProducerBatch):
    """A batch that its accumulator knows; another thread may run while it is made."""

    __slots__ = ()
    accumulator: WatchedAccumulator

    def __new__(cls, *arguments: Any, **settings: Any) -> WatchedBatch:
        batch = super().__new__(cls, *arguments, **settings)
        # a piece of a split batch has its buffer from the beginning
        if not arguments:
            cls.accumulator.batches.add(batch)
            if not cls.accumulator.is_opening:
                cls.accumulator.schedule.switch()
        return batch

    @classmethod
    def open(cls, topic_partition: Any, pool: Any, buffer: Any, **settings: Any) -> ProducerBatch:
        batch = super().open(topic_partition, pool, buffer, **settings)
        cls.accumulator.batches.add(batch)
        cls.accumulator.pool.on_the_way.pop(id(buffer))
        return batch


class WatchedAccumulator(RecordAccumulator):
    """An accumulator that knows all batches that may hold memory."""

    pool: WatchedPool

    def __init__(self, schedule: Schedule, **settings: Any) -> None:
        self.schedule = schedule
        self.batches: set[ProducerBatch] = set()
        self.is_opening = False
        self.batch_type = type("WatchedBatch", (WatchedBatch,), {"__slots__": (), "accumulator": self})
        super().__init__(clock=schedule, **settings)

    def append_first(self, queue: Any, held: list[Any], *record: Any, now_ms: int) -> Any:
        with self.opening(held[0]):
            return super().append_first(queue, held, *record, now_ms=now_ms)

    def open_batches(
        self, batches: list[ProducerBatch], topic_partition: Any, held: list[Any], now_ms: int, *, most: int
    ) -> None:
        with self.opening(held[0]):
            super().open_batches(batches, topic_partition, held, now_ms, most=most)

    @contextmanager
    def opening(self, buffer: Any) -> Iterator[None]:
        self.pool.on_the_way.pop(id(buffer))
        self.is_opening = True
        yield
        self.is_opening = False


class Scenario:
    """One run.

    Args: pool_type, accumulator_type: what is watched, or has a fault planted in it.
    """

    def __init__(
        self,
        seed: int,
        *,
        line_chance: float = 0.0,
        pool_type: type[WatchedPool] = WatchedPool,
        accumulator_type: type[WatchedAccumulator] = WatchedAccumulator,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.schedule = Schedule(seed, line_chance=line_chance)
        with self.schedule.in_place_of_threading(*MODULES):
            self._set_up(pool_type, accumulator_type)
            self.schedule.check = self.check
            self.schedule.run()
        self.check_end()

    def _set_up(self, pool_type: type[WatchedPool], accumulator_type: type[WatchedAccumulator]) -> None:
        self.pool = pool_type(self.schedule)
        self.accumulator = accumulator_type(
            self.schedule, batch_size=BATCH_BYTES, pool=self.pool, random=self.random, retry_backoff_ms=1
        )
        self.heard: Counter[bytes] = Counter()
        self.succeeded: set[bytes] = set()
        self.appended: set[bytes] = set()
        self.delivered: Counter[bytes] = Counter()
        self.in_flight: list[ProducerBatch] = []
        self.is_woken = self.is_in_hand = False
        self.columns: list[Any] = []
        self.appenders_left = 2
        for number in range(self.appenders_left):
            self.schedule.spawn(f"appender {number}", lambda number=number: self.append(number))
        self.schedule.spawn("drainer", self.drain)
        self.schedule.spawn("completer", self.complete)
        extra = self.random.choice([self.flush, self.abort, self.close, self.append_columns])
        if extra == self.append_columns:
            self.appenders_left += 1
        self.schedule.spawn(extra.__name__, extra)

    # what holds at every step

    def check(self) -> None:
        held = sum(batch.counted_bytes for batch in self.accumulator.batches)
        held += sum(self.pool.on_the_way.values()) + self.pool.gathered_memory
        available = self.pool.available_memory
        assert available + held == self.pool.memory, f"{available} available, {held} held, seed {self.seed}"

    def check_end(self) -> None:
        assert self.pool.available_memory == self.pool.memory
        assert self.pool.queued == 0
        assert not self.accumulator.has_incomplete
        assert not self.accumulator.has_undrained
        assert not self.accumulator.flush_in_progress
        assert set(self.heard) == self.appended
        assert set(self.heard.values()) <= {1}
        assert set(self.delivered.values()) <= {1}
        rows = {value for value in self.delivered if value.startswith(b"row")}
        assert self.succeeded == set(self.delivered) - rows
        for future in self.columns:
            assert future.done()
            if future.exception() is None:
                assert len(rows) == ROWS == sum(batch.record_count for batch in future.result())

    # threads

    def append(self, number: int) -> None:
        try:
            for index in range(RECORDS_PER_APPENDER):
                value = b"%d-%d" % (number, index)
                if self.random.random() < 0.1:
                    value = value.ljust(BATCH_BYTES, b".")
                partition = self.random.choice([0, 1, 2, None])
                self.append_one(partition, value)
        except ProducerClosedError:
            pass
        finally:
            self.appenders_left -= 1
            self.is_woken = True

    def append_one(self, partition: int | None, value: bytes) -> None:
        def callback(metadata: Any, error: KStoreError | None) -> None:
            self.heard[value] += 1
            if error is None:
                self.succeeded.add(value)

        result = self.accumulator.append(
            TOPIC,
            partition,
            0,
            None,
            value,
            (),
            callback,
            max_time_to_block_ms=FAR_MS,
            now_ms=self.schedule.monotonic_ms(),
            cluster=CLUSTER,
        )
        self.appended.add(value)
        if result.batch_is_full or result.new_batch_created:
            self.is_woken = True

    def append_columns(self) -> None:
        values = [b"row %02d" % number for number in range(ROWS)]
        offsets = b"".join((6 * number).to_bytes(4, "little") for number in range(ROWS + 1))
        column = BinaryColumn(offsets, b"".join(values))
        columns = RecordColumns(ROWS, 0, key=self.random.choice([None, column]), value=column)
        try:
            future = append_columns(
                self.accumulator,
                TOPIC,
                columns,
                partition=self.random.choice([None, 1]),
                max_time_to_block_ms=FAR_MS,
                cluster=CLUSTER,
                on_new_batch=lambda _: self.wake(),
            )
            self.columns.append(future)
        finally:
            self.appenders_left -= 1
            self.is_woken = True

    def wake(self) -> None:
        self.is_woken = True

    @property
    def is_over(self) -> bool:
        return self.appenders_left == 0 and not self.accumulator.has_incomplete

    def drain(self) -> None:
        """Do as a sender: drain what is ready, sleep until something may be."""
        while not self.is_over:
            self.is_woken = False
            now_ms = self.schedule.monotonic_ms()
            ready = self.accumulator.ready(CLUSTER, now_ms)
            if not ready.ready_nodes:
                delay_s = ready.next_ready_check_delay_ms / 1000
                self.schedule.block(lambda: self.is_woken or self.is_over, delay_s)
                continue
            # Sorted: the order of a set of nodes differs between processes.
            drained = self.accumulator.drain(
                CLUSTER, sorted(ready.ready_nodes), 3 * BATCH_BYTES, now_ms=now_ms, batches_per_partition=3
            )
            for batches in drained.values():
                for batch in batches:
                    if not batch.is_done:
                        batch.begin_send()
                    self.in_flight.append(batch)
            self.schedule.switch()

    def complete(self) -> None:
        """Answer what was drained: most of it is written, some is tried again, some is too large."""
        while True:
            self.schedule.block(lambda: bool(self.in_flight) or self.is_over)
            if not self.in_flight:
                return
            batch = self.in_flight.pop(0)
            self.answer(batch)
            self.is_woken = True
            self.schedule.switch()

    def answer(self, batch: ProducerBatch) -> None:
        if batch.is_done:
            if batch.send_count:
                batch.end_send()
            self.accumulator.deallocate(batch)
            return
        lot = self.random.random()
        now_ms = self.schedule.monotonic_ms()
        if lot < 0.1 and batch.attempts < 3:
            batch.end_send()
            self.accumulator.reenqueue(batch, now_ms)
        elif lot < 0.2 and batch.record_count > 1 and not batch.is_split_batch:
            self.split(batch)
            batch.end_send()
            self.accumulator.deallocate(batch)
        else:
            values = [bytes(record.value or b"") for record in batch.records()]
            if batch.complete(0):
                self.delivered.update(values)
            batch.end_send()
            self.accumulator.deallocate(batch)

    def split(self, batch: ProducerBatch) -> None:
        try:
            self.accumulator.split_and_reenqueue(batch)
        except ValueError:
            assert batch.final_state is FinalState.ABORTED

    def flush(self) -> None:
        batches = self.accumulator.incomplete.copy_all()
        assert self.accumulator.flush(wake=self.wake)
        assert all(batch.result.is_completed for batch in batches)

    def abort(self) -> None:
        for _ in range(self.random.randrange(40)):
            self.schedule.switch()
        kind = self.random.randrange(3)
        if kind == 0:
            self.accumulator.abort_incomplete_batches()
            self.pool.close()
        elif kind == 1:
            self.accumulator.abort_batches(ProducerClosedError("aborted"))
        else:
            self.accumulator.abort_undrained_batches(ProducerClosedError("aborted"))
        self.is_woken = True

    def close(self) -> None:
        for _ in range(self.random.randrange(40)):
            self.schedule.switch()
        self.accumulator.close()
        self.is_woken = True
