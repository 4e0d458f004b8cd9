"""Goal: BufferPool keeps its bound, its order of waiters and its books whatever happens (BufferPoolTest's claims).
Method: real threads that say when they wait, a clock that stands still, locks that time out at once; no sleeping."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kstore._core import ColumnBuffer
from kstore.errors import BufferExhaustedError, ProducerClosedError, ProducerTimeoutError
from kstore.producer import BufferPool
from tests.fakes.pooling import PATIENCE_S, ExpiringLock, ManualClock, Waits

SIZE = 1024
MEMORY = 64 * SIZE
LONG_MS = 600_000


def allocate(pool: BufferPool, size: int = SIZE, *, wait_ms: int = 0) -> ColumnBuffer:
    return pool.allocate(size, max_time_to_block_ms=wait_ms)


def test_memory_is_taken_and_comes_back_pooled_or_not() -> None:
    pool = BufferPool(MEMORY, SIZE)
    buffer = allocate(pool)
    assert (len(buffer), pool.available_memory, pool.unallocated_memory) == (SIZE, MEMORY - SIZE, MEMORY - SIZE)
    memoryview(buffer)[0] = 1
    pool.deallocate(buffer)
    assert (pool.available_memory, pool.unallocated_memory) == (MEMORY, MEMORY - SIZE)
    again = allocate(pool)
    assert again is buffer
    assert memoryview(again)[0] == 1  # not cleared
    pool.deallocate(again)
    other = allocate(pool, 2 * SIZE)
    assert (len(other), pool.available_memory, pool.unallocated_memory) == (
        2 * SIZE,
        MEMORY - 2 * SIZE,
        MEMORY - 3 * SIZE,
    )
    pool.deallocate(other)
    assert (pool.available_memory, pool.unallocated_memory) == (MEMORY, MEMORY - SIZE)


@pytest.mark.parametrize(("size", "memory"), [(1025, 1024), (-1, 1024), (1, 0)], ids=["more", "negative", "of-nothing"])
def test_size_that_can_never_be_had_is_refused_at_once(size: int, memory: int) -> None:
    pool = BufferPool(memory, 512)
    with pytest.raises(ValueError, match=f"size must be from 0 to the {memory} bytes"):
        allocate(pool, size, wait_ms=LONG_MS)
    assert pool.available_memory == memory


@pytest.mark.parametrize(("memory", "poolable"), [(-1, 1), (1, 0), (2**62, 1), (1, 2**62)])
def test_pool_of_impossible_sizes_is_refused(memory: int, poolable: int) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        BufferPool(memory, poolable)


def test_free_buffers_are_dropped_for_a_larger_one() -> None:
    pool = BufferPool(4 * SIZE, SIZE)
    for buffer in [allocate(pool) for _ in range(4)]:
        pool.deallocate(buffer)
    assert pool.unallocated_memory == 0
    assert len(allocate(pool, 3 * SIZE)) == 3 * SIZE
    assert (pool.available_memory, pool.unallocated_memory) == (SIZE, 0)


@pytest.mark.parametrize("size", [SIZE, 2 * SIZE, 100], ids=["poolable", "larger", "smaller"])
def test_waiter_gets_memory_as_soon_as_it_comes_back(size: int) -> None:
    pool = BufferPool(2 * SIZE, SIZE)
    held = [allocate(pool), allocate(pool)]
    waits = Waits(pool)
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(allocate, pool, size, wait_ms=LONG_MS)
        waits.expect_one()
        assert pool.queued == 1
        for buffer in held:
            pool.deallocate(buffer)
        assert len(future.result(PATIENCE_S)) == size
    assert (pool.queued, pool.available_memory) == (0, 2 * SIZE - size)


def test_waiters_are_served_in_the_order_of_asking() -> None:
    pool = BufferPool(2 * SIZE, SIZE)
    first, second = allocate(pool), allocate(pool)
    waits = Waits(pool)
    with ThreadPoolExecutor(2) as executor:
        large = executor.submit(allocate, pool, 2 * SIZE, wait_ms=LONG_MS)
        waits.expect_one()
        small = executor.submit(allocate, pool, SIZE, wait_ms=LONG_MS)
        waits.expect_one()
        pool.deallocate(first)
        waits.expect_one()  # the large one, with a part of what it needs
        assert not small.done()
        pool.deallocate(second)
        buffer = large.result(PATIENCE_S)
        assert not small.done()
        pool.deallocate(buffer)
        assert len(small.result(PATIENCE_S)) == SIZE


def test_newcomer_does_not_pass_those_who_wait() -> None:
    clock = ManualClock()
    pool = BufferPool(2 * SIZE, SIZE, clock=clock)
    held = allocate(pool)
    seen: list[object] = []

    def come_meanwhile() -> None:
        pool.make_lock = lambda: ExpiringLock(clock)
        seen.append(pool.try_reserve(1))
        with pytest.raises(BufferExhaustedError):
            allocate(pool)

    pool.make_lock = lambda: ExpiringLock(clock, come_meanwhile)
    with pytest.raises(BufferExhaustedError):
        allocate(pool, 2 * SIZE, wait_ms=5)
    assert seen == [False]
    assert len(allocate(pool)) == SIZE
    pool.deallocate(held)


def test_memory_that_comes_back_is_for_who_waits_and_for_no_newcomer() -> None:
    clock = ManualClock()
    pool = BufferPool(2 * SIZE, SIZE, clock=clock)
    held = allocate(pool)
    seen: list[object] = []

    def come_meanwhile() -> None:
        pool.make_lock = lambda: ExpiringLock(clock)
        pool.deallocate(held)
        seen.append(pool.try_reserve(1))
        for size in (SIZE, 100):
            with pytest.raises(BufferExhaustedError):
                allocate(pool, size)

    pool.make_lock = lambda: ExpiringLock(clock, come_meanwhile)
    assert len(allocate(pool, 2 * SIZE, wait_ms=5)) == 2 * SIZE
    assert seen == [False]


def test_wait_ends_when_the_time_is_over_and_nothing_stays_taken() -> None:
    clock = ManualClock(1000)
    pool = BufferPool(3 * SIZE, SIZE, clock=clock)
    held = allocate(pool)
    pool.make_lock = lambda: ExpiringLock(clock)
    with pytest.raises(BufferExhaustedError, match="250 ms: expected 3072 bytes of 3072, available 2048") as caught:
        allocate(pool, 3 * SIZE, wait_ms=250)
    assert isinstance(caught.value, ProducerTimeoutError)
    assert (pool.queued, pool.available_memory, pool.buffer_exhausted_count) == (0, 2 * SIZE, 1)
    assert (clock.now_ms, pool.wait_time_ns) == (1250, 250_000_000)
    pool.deallocate(held)
    assert len(allocate(pool, 3 * SIZE)) == 3 * SIZE


@pytest.mark.parametrize("wait_ms", [0, -5])
def test_without_time_to_wait_nobody_waits(wait_ms: int) -> None:
    pool = BufferPool(SIZE, SIZE)
    held = allocate(pool)
    with pytest.raises(BufferExhaustedError):
        allocate(pool, wait_ms=wait_ms)
    pool.deallocate(held)
    assert (pool.queued, pool.available_memory) == (0, SIZE)


def test_waiter_that_gives_up_passes_its_part_on() -> None:
    pool = BufferPool(2 * SIZE, SIZE)
    first, second = allocate(pool), allocate(pool)
    waits = Waits(pool)
    stop = threading.Event()

    class Interrupted(Exception):
        pass

    class GivingUp:
        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            if blocking and timeout >= 0:
                assert stop.wait(PATIENCE_S)
                raise Interrupted
            return True

        def release(self) -> None:
            pass

    noted = pool.make_lock
    with ThreadPoolExecutor(2) as executor:
        pool.make_lock = lambda: (setattr(pool, "make_lock", noted), GivingUp())[1]
        large = executor.submit(allocate, pool, 2 * SIZE, wait_ms=LONG_MS)
        while pool.queued == 0:
            threading.Event().wait(0)
        small = executor.submit(allocate, pool, SIZE, wait_ms=LONG_MS)
        waits.expect_one()
        pool.deallocate(first)
        stop.set()
        with pytest.raises(Interrupted):
            large.result(PATIENCE_S)
        assert len(small.result(PATIENCE_S)) == SIZE
    pool.deallocate(second)
    assert (pool.queued, pool.available_memory) == (0, SIZE)


def test_interrupt_while_waiting_leaves_nothing_behind() -> None:
    clock = ManualClock()
    pool = BufferPool(2 * SIZE, SIZE, clock=clock)
    held = allocate(pool)
    pool.make_lock = lambda: ExpiringLock(clock, lambda: signal.raise_signal(signal.SIGINT))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            allocate(pool, 2 * SIZE, wait_ms=LONG_MS)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert (pool.queued, pool.available_memory) == (0, SIZE)
    pool.deallocate(held)
    assert len(allocate(pool, 2 * SIZE)) == 2 * SIZE


def test_memory_that_the_machine_does_not_have_is_given_back() -> None:
    most = (2**63 - 1) // 4
    pool = BufferPool(most, SIZE)
    with pytest.raises(MemoryError):
        allocate(pool, most)
    assert (pool.queued, pool.available_memory) == (0, most)
    assert len(allocate(pool)) == SIZE


def test_more_than_two_gigabytes_of_free_buffers_are_counted_right() -> None:
    poolable = 2**30
    pool = BufferPool(2**40, poolable)
    buffers = [allocate(pool, poolable) for _ in range(4)]
    for buffer in buffers:
        pool.deallocate(buffer)
    assert (pool.available_memory, pool.unallocated_memory) == (2**40, 2**40 - 4 * poolable)


def test_closed_pool_refuses_and_still_takes_buffers_back() -> None:
    pool = BufferPool(10 * SIZE, SIZE)
    buffer = allocate(pool)
    pool.close()
    pool.deallocate(buffer)
    assert (pool.is_closed, pool.available_memory) == (True, 10 * SIZE)
    with pytest.raises(ProducerClosedError):
        allocate(pool)
    assert not pool.try_reserve(1)


def test_close_ends_the_wait_of_everybody() -> None:
    pool = BufferPool(SIZE, SIZE)
    held = allocate(pool)
    waits = Waits(pool)
    with ThreadPoolExecutor(4) as executor:
        futures = [executor.submit(allocate, pool, wait_ms=LONG_MS) for _ in range(4)]
        for _ in futures:
            waits.expect_one()
        pool.close()
        assert {type(future.exception(PATIENCE_S)) for future in futures} == {ProducerClosedError}
    pool.deallocate(held)
    assert (pool.queued, pool.available_memory) == (0, SIZE)


def test_many_threads_leave_the_pool_whole() -> None:
    pool = BufferPool(10 * SIZE, SIZE)

    def work(seed: int) -> None:
        for number in range(300):
            size = SIZE if (seed + number) % 3 else 1 + (seed * 7919 + number * 104729) % (10 * SIZE)
            buffer = allocate(pool, size, wait_ms=LONG_MS)
            memoryview(buffer)[0] = seed
            pool.deallocate(buffer)

    with ThreadPoolExecutor(8) as executor:
        for future in [executor.submit(work, seed) for seed in range(8)]:
            future.result(PATIENCE_S)
    assert (pool.queued, pool.available_memory) == (0, 10 * SIZE)


def test_buffer_that_is_still_looked_at_is_not_used_again() -> None:
    pool = BufferPool(4 * SIZE, SIZE)
    buffer = allocate(pool)
    view = memoryview(buffer)
    view[0] = 7
    pool.deallocate(buffer)
    assert (pool.available_memory, pool.unallocated_memory) == (4 * SIZE, 4 * SIZE)
    other = allocate(pool)
    assert other is not buffer
    memoryview(other)[0] = 8
    assert view[0] == 7


def test_buffer_whose_views_are_gone_is_used_again() -> None:
    pool = BufferPool(4 * SIZE, SIZE)
    buffer = allocate(pool)
    with memoryview(buffer) as view, view[1:] as part:
        part[0] = 1
    pool.deallocate(buffer)
    assert allocate(pool) is buffer


def test_buffer_is_given_back_once_and_to_its_own_pool() -> None:
    pool, other = BufferPool(4 * SIZE, SIZE), BufferPool(4 * SIZE, SIZE)
    buffer = allocate(pool)
    for stranger in (allocate(other), ColumnBuffer(SIZE)):
        with pytest.raises(ValueError, match="not held from this pool"):
            pool.deallocate(stranger)
    pool.deallocate(buffer)
    with pytest.raises(ValueError, match="not held from this pool"):
        pool.deallocate(buffer)
    assert pool.available_memory == 4 * SIZE


def test_growth_counts_and_is_refused_rather_than_waited_for() -> None:
    pool = BufferPool(4 * SIZE, SIZE)
    allocate(pool)
    assert pool.try_reserve(3 * SIZE)
    assert not pool.try_reserve(1)
    assert pool.available_memory == 0
    pool.release(3 * SIZE)
    assert pool.available_memory == 3 * SIZE
    with pytest.raises(ValueError, match="number of bytes held, got"):
        pool.release(2 * SIZE)
    with pytest.raises(ValueError, match="not be negative"):
        pool.try_reserve(-1)


def test_release_wakes_who_waits() -> None:
    pool = BufferPool(SIZE, SIZE)
    assert pool.try_reserve(SIZE)
    waits = Waits(pool)
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(allocate, pool, wait_ms=LONG_MS)
        waits.expect_one()
        pool.release(SIZE)
        assert len(future.result(PATIENCE_S)) == SIZE


def test_what_cannot_wait_may_hold_more_than_there_is() -> None:
    pool = BufferPool(SIZE, SIZE)
    held = [allocate(pool), pool.allocate_anyway(2 * SIZE)]
    assert pool.available_memory == -2 * SIZE
    with pytest.raises(BufferExhaustedError):
        allocate(pool, 1)
    for buffer in held:
        pool.deallocate(buffer)
    assert pool.available_memory == SIZE


def test_compiled_cycle_takes_and_gives_without_the_interpreter() -> None:
    pool = BufferPool(2 * SIZE, SIZE)
    assert pool.cycle(10) == 0
    pool.deallocate(allocate(pool))
    assert pool.cycle(10) == 10
    assert (pool.available_memory, pool.unallocated_memory) == (2 * SIZE, SIZE)


def test_pool_is_made_once() -> None:
    pool = BufferPool(SIZE, SIZE)
    with pytest.raises(ValueError, match="already"):
        BufferPool.__init__(pool, SIZE, SIZE)


def test_free_buffer_stays_while_more_is_held_than_there_is() -> None:
    pool = BufferPool(2 * SIZE, SIZE)
    free, anyway = allocate(pool), pool.allocate_anyway(3 * SIZE)
    pool.deallocate(free)
    with pytest.raises(BufferExhaustedError):
        allocate(pool)
    pool.deallocate(anyway)
    assert allocate(pool) is free
