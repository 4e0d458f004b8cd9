"""Goal: what is available and what is held are always the whole memory, whatever is asked of a BufferPool.
Method: Hypothesis runs sequences of calls on the pool and on a model that only adds up what is out."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kstore._core import ColumnBuffer
from kstore.errors import BufferExhaustedError
from kstore.producer import BufferPool
from tests.making.strategies import examples

MEMORY, POOLABLE = 1000, 100


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(MEMORY, POOLABLE)
        self.out: list[tuple[ColumnBuffer, int]] = []
        self.reserved = 0
        self.views: list[memoryview] = []

    def held(self) -> int:
        return self.reserved + sum(size for _, size in self.out)

    @rule(size=st.one_of(st.just(POOLABLE), st.integers(0, MEMORY)))
    def allocate(self, size: int) -> None:
        if size > max(MEMORY - self.held(), 0):
            with pytest.raises(BufferExhaustedError):
                self.pool.allocate(size, max_time_to_block_ms=0)
            return
        buffer = self.pool.allocate(size, max_time_to_block_ms=0)
        assert len(buffer) == size
        assert all(buffer is not other for other, _ in self.out)
        memoryview(buffer)[:] = bytes([len(self.out)]) * size
        self.out.append((buffer, size))

    @rule(size=st.integers(0, 2 * MEMORY))
    def allocate_anyway(self, size: int) -> None:
        self.out.append((self.pool.allocate_anyway(size), size))

    @rule(place=st.integers(0, 100), is_seen=st.booleans())
    def deallocate(self, place: int, is_seen: bool) -> None:
        if not self.out:
            return
        buffer, _ = self.out.pop(place % len(self.out))
        if is_seen:
            self.views.append(memoryview(buffer))
        self.pool.deallocate(buffer)

    @rule(size=st.integers(0, MEMORY))
    def try_reserve(self, size: int) -> None:
        fits = size <= MEMORY - self.held()
        assert self.pool.try_reserve(size) is fits
        self.reserved += size if fits else 0

    @rule()
    def release(self) -> None:
        if self.held() >= self.reserved:
            self.pool.release(self.reserved)
            self.reserved = 0

    @invariant()
    def available_and_held_are_the_whole_memory(self) -> None:
        assert self.pool.available_memory + self.held() == MEMORY
        assert (self.pool.available_memory - self.pool.unallocated_memory) % POOLABLE == 0
        assert self.pool.queued == 0


TestPoolModel = PoolMachine.TestCase
TestPoolModel.settings = examples(40, stateful_step_count=25)
