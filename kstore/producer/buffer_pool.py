"""BufferPool: the memory of a producer, bounded, with a queue of those who wait for it. Layer 5."""

from __future__ import annotations

from kstore._core import PoolMemory
from kstore.environment import SYSTEM_CLOCK, Clock


class BufferPool(PoolMemory):
    """Buffers out of a bounded memory: those of `poolable_size` bytes are used again, others are made and dropped.

    Who waits gets memory in the order of asking, piece by piece, and whoever comes meanwhile waits behind; Kafka's pool
    lets a newcomer pass. All that is held counts, also what a batch grew by: available_memory and what is held are
    always `memory` together. The free buffer that came back last is the next one out, since it is in the cache.

    Raises: ValueError if memory is negative or poolable_size below 1.
    Threads: safe; code without the GIL may take and give buffers.  Source: Kafka BufferPool.
    """

    def __init__(self, memory: int, poolable_size: int, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(memory, poolable_size, clock=clock)
