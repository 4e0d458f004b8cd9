"""The BufferPool case of the producer workload: allocate and deallocate a pooled buffer in one thread."""

from __future__ import annotations

from functools import partial

from bench.common import Case, Contestant, Settings, interleaved, without_result
from kstore.producer import BufferPool

POOLED_BYTES = 16384
MEMORY_BYTES = 32 * 1024 * 1024
PAIRS = 100_000
FROM_PYTHON = "kstore, BufferPool from Python"
COMPILED = "kstore, BufferPool from compiled code without the GIL"
TARGET_PAIRS_PER_SECOND = 3e6


def take_and_give(pool: BufferPool, count: int) -> None:
    """Allocate and deallocate a pooled buffer `count` times."""
    allocate, deallocate = pool.allocate, pool.deallocate
    for _ in range(count):
        deallocate(allocate(POOLED_BYTES, max_time_to_block_ms=0))


def pool_case(settings: Settings) -> Case:
    """Time allocate and deallocate on a pool that has one free buffer."""
    pool = BufferPool(MEMORY_BYTES, POOLED_BYTES)
    take_and_give(pool, 1)
    contestants = [
        Contestant(FROM_PYTHON, partial(take_and_give, pool, PAIRS), PAIRS),
        Contestant(COMPILED, without_result(partial(pool.cycle, PAIRS)), PAIRS),
    ]
    case = Case(title=f"BufferPool, {POOLED_BYTES} bytes: allocate + deallocate", unit="pair", bytes_per_unit=0)
    case.samples = interleaved(contestants, settings)
    case.add_ratio(COMPILED, FROM_PYTHON)
    median = case.samples[0].median
    verdict = "met" if median >= TARGET_PAIRS_PER_SECOND else "MISSED"
    case.notes.append(f"from Python: {median / 1e6:.2f} M pairs/s, target {TARGET_PAIRS_PER_SECOND / 1e6:g}: {verdict}")
    return case
