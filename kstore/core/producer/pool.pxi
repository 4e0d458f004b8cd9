# The producer's memory (BufferPoolCore): a bounded number of bytes, free buffers of one size for reuse, and the threads
# that wait for memory, in FIFO order.

cdef extern from "_core_cpu.h" nogil:
    ctypedef struct ks_lock:
        pass
    void ks_acquire(ks_lock* lock) noexcept
    void ks_release(ks_lock* lock) noexcept

cdef enum:
    POOL_SLACK = 64               # room past a buffer's size, because an encoder reserves the longest varint
    MOST_POOL_WAIT_MS = 3600000
    MS_PER_SECOND = 1000
    NS_PER_MS = 1000000

# `lock` guards the other fields. The free list owns references to ColumnBuffers.
cdef struct PoolState:
    ks_lock lock
    PoolSlot* free_slots
    int64_t free_count
    int64_t memory
    int64_t poolable_size
    int64_t unallocated           # negative while more is held than the pool has
    int64_t waiter_count
    bint is_closed


# Returns: the buffer that was given back last, with its reference, or NULL. Gives none to newcomers while others wait.
cdef PoolSlot* take_pooled(PoolState* pool, bint is_first_waiter) noexcept nogil:
    cdef PoolSlot* slot = NULL
    ks_acquire(&pool.lock)
    if pool.free_slots != NULL and not pool.is_closed and (is_first_waiter or pool.waiter_count == 0) \
            and pool.unallocated + (pool.free_count - 1) * pool.poolable_size >= 0:
        slot = pool.free_slots
        pool.free_slots = slot.next
        pool.free_count -= 1
        slot.counted_bytes = pool.poolable_size
    ks_release(&pool.lock)
    return slot


# Requires: the slot's buffer is accounted with poolable_size bytes. Moves its reference to the free list. Returns:
# whether a thread waits.
cdef bint give_pooled(PoolState* pool, PoolSlot* slot) noexcept nogil:
    cdef bint is_awaited
    ks_acquire(&pool.lock)
    slot.counted_bytes = -1
    slot.next = pool.free_slots
    pool.free_slots = slot
    pool.free_count += 1
    is_awaited = pool.waiter_count > 0
    ks_release(&pool.lock)
    return is_awaited


# Takes up to `most` bytes, dropping free buffers if necessary. Returns: the number taken, or -1 if fewer than `least`
# are available. dropped: those buffers; the caller has to drop their references.
cdef int64_t take_bytes(PoolState* pool, int64_t least, int64_t most, bint is_first_waiter,
                        PoolSlot** dropped) noexcept nogil:
    cdef PoolSlot* slot
    cdef int64_t taken = -1
    dropped[0] = NULL
    ks_acquire(&pool.lock)
    cdef int64_t available = pool.unallocated + pool.free_count * pool.poolable_size
    if available >= least and (is_first_waiter or pool.waiter_count == 0):
        taken = min(most, max(available, 0))
        while taken and pool.unallocated < taken:
            slot = pool.free_slots
            pool.free_slots = slot.next
            pool.free_count -= 1
            pool.unallocated += pool.poolable_size
            slot.next = dropped[0]
            dropped[0] = slot
        pool.unallocated -= taken
    ks_release(&pool.lock)
    return taken


# Returns: whether a thread waits.
cdef bint give_bytes(PoolState* pool, int64_t size) noexcept nogil:
    cdef bint is_awaited
    ks_acquire(&pool.lock)
    pool.unallocated += size
    is_awaited = pool.waiter_count > 0
    ks_release(&pool.lock)
    return is_awaited


cdef int64_t available_bytes(PoolState* pool) noexcept nogil:
    cdef int64_t available
    ks_acquire(&pool.lock)
    available = pool.unallocated + pool.free_count * pool.poolable_size
    ks_release(&pool.lock)
    return available


cdef void count_waiters(PoolState* pool, int64_t change) noexcept nogil:
    ks_acquire(&pool.lock)
    pool.waiter_count += change
    ks_release(&pool.lock)


# Moves the free list's reference to the caller.
cdef inline ColumnBuffer claimed(PoolSlot* slot):
    cdef ColumnBuffer buffer = <ColumnBuffer>slot.owner
    Py_DECREF(buffer)
    return buffer


cdef void drop_slots(PoolSlot* slot) noexcept:
    cdef PoolSlot* following
    while slot != NULL:
        following = slot.next
        slot.pool = NULL
        claimed(slot)
        slot = following


# A buffer of exactly that size plus POOL_SLACK, uninitialized. Does not use the memory cache, whose blocks may be
# larger.
cdef ColumnBuffer new_exact_buffer(int64_t size):
    cdef ColumnBuffer buffer = ColumnBuffer.__new__(ColumnBuffer)
    buffer.block.data = <uint8_t*>malloc(<size_t>(size + POOL_SLACK + PADDING))
    if buffer.block.data == NULL:
        raise MemoryError(f"no memory for a buffer of {size} bytes")
    buffer.block.capacity = size + POOL_SLACK
    buffer.size = size
    return buffer


@cython.final
cdef class _PoolWaiter:
    cdef object lock              # held until the waiter is signalled
    cdef bint is_signalled
    cdef int64_t gathered


cdef class BufferPoolCore:
    """The compiled base class of BufferPool.

    Attributes: make_lock: makes the lock of each waiting thread, an object with acquire(blocking, timeout in s) and
        release().
    Threads: safe.
    """

    cdef PoolState state
    cdef list waiters             # _PoolWaiters in FIFO order; changed only with the GIL held
    cdef object clock
    cdef public object make_lock
    cdef int64_t waited_ms
    cdef readonly int64_t buffer_exhausted_count

    def __init__(self, int64_t memory, int64_t poolable_size, *, clock):
        if self.waiters is not None:
            raise ValueError("the pool is initialized already")
        if not 0 <= memory <= INT64_MAX // 4 or not 1 <= poolable_size <= INT64_MAX // 4:
            raise ValueError(f"memory must not be negative and poolable_size at least 1, both at most {INT64_MAX // 4}: "
                             f"got {memory} and {poolable_size}")
        self.state.memory = self.state.unallocated = memory
        self.state.poolable_size = poolable_size
        self.clock = clock
        self.make_lock = allocate_lock
        self.waiters = []

    def __dealloc__(self):
        drop_slots(self.state.free_slots)

    @property
    def memory(self): return self.state.memory
    @property
    def poolable_size(self): return self.state.poolable_size
    @property
    def is_closed(self): return self.state.is_closed

    @property
    def available_memory(self):
        """Bytes that are not held; negative while a split holds more than the pool has."""
        return available_bytes(&self.state)

    @property
    def unallocated_memory(self):
        """The available bytes that are not in free buffers."""
        return self.state.unallocated

    @property
    def queued(self):
        """The number of waiting threads."""
        return len(self.waiters)

    @property
    def gathered_memory(self):
        """Bytes that the waiting threads have got so far."""
        return sum([(<_PoolWaiter>waiter).gathered for waiter in self.waiters])

    @property
    def wait_time_ns(self):
        """The total time that calls have waited, in ns, with the resolution of the clock (ms)."""
        return self.waited_ms * NS_PER_MS

    def allocate(self, int64_t size, *, int64_t max_time_to_block_ms):
        """Return a writable, uninitialized buffer of `size` bytes; wait for memory for at most max_time_to_block_ms.

        Raises: ValueError if size is negative or exceeds the pool's memory; BufferExhaustedError at the timeout;
            ProducerClosedError; MemoryError if malloc fails. In these cases, and at an interrupt, no bytes stay taken.
        Threads: safe; waiting threads are served in FIFO order.
        """
        return self.take(size, max_time_to_block_ms)

    def allocate_into(self, list held not None, int64_t size, *, int64_t max_time_to_block_ms):
        """Call allocate() and append the buffer to a list in the same step, so that an interrupt cannot lose it."""
        held.append(self.take(size, max_time_to_block_ms))

    @cython.final
    cdef ColumnBuffer take(self, int64_t size, int64_t max_time_to_block_ms):
        cdef PoolSlot* slot
        if size == self.state.poolable_size:
            slot = take_pooled(&self.state, False)
            if slot != NULL:
                return claimed(slot)
        if size < 0 or size > self.state.memory:
            raise ValueError(f"size must be from 0 to the {self.state.memory} bytes of the pool, got {size}")
        self.require_open()
        if self.reserve(size):
            return self.counted(size)
        return self.wait(size, max_time_to_block_ms)

    cdef int require_open(self) except -1:
        if self.state.is_closed:
            raise ProducerClosedError("the producer was closed while memory was allocated")
        return 0

    # Returns: whether the bytes were taken, without waiting.
    @cython.final
    cdef bint reserve(self, int64_t size) noexcept:
        cdef PoolSlot* dropped
        cdef int64_t taken = take_bytes(&self.state, size, size, False, &dropped)
        drop_slots(dropped)
        return taken == size

    # Requires: the bytes are taken. Gives them back if malloc fails.
    @cython.final
    cdef ColumnBuffer counted(self, int64_t size):
        cdef ColumnBuffer buffer
        try:
            buffer = new_exact_buffer(size)
        except MemoryError:
            self.give(size)
            raise
        self.count(buffer, size)
        return buffer

    # As counted, but takes the bytes even if they are not available.
    @cython.final
    cdef ColumnBuffer counted_anyway(self, int64_t size):
        cdef PoolSlot* slot = NULL
        if size == self.state.poolable_size:
            slot = take_pooled(&self.state, True)
        if slot != NULL:
            return claimed(slot)
        give_bytes(&self.state, -size)
        return self.counted(size)

    @cython.final
    cdef void count(self, ColumnBuffer buffer, int64_t counted_bytes) noexcept:
        buffer.slot.owner = <void*>buffer
        buffer.slot.pool = &self.state
        buffer.slot.counted_bytes = counted_bytes

    # No Python code runs here except for the clock and the lock, so signal handlers run only during these.
    @cython.final
    cdef ColumnBuffer wait(self, int64_t size, int64_t max_time_to_block_ms):
        cdef _PoolWaiter waiter = _PoolWaiter()
        waiter.lock = self.make_lock()
        waiter.lock.acquire()
        cdef int64_t start_ms = self.clock.monotonic_ms()
        self.waiters.append(waiter)
        count_waiters(&self.state, 1)
        try:
            return self.gather(waiter, size, start_ms, max(max_time_to_block_ms, 0))
        finally:
            self.leave(waiter)

    cdef ColumnBuffer gather(self, _PoolWaiter waiter, int64_t size, int64_t start_ms, int64_t max_time_to_block_ms):
        cdef PoolSlot* slot
        cdef int64_t now_ms, waited_ms = 0
        while True:
            self.require_open()
            if self.waiters[0] is waiter:
                if waiter.gathered == 0 and size == self.state.poolable_size:
                    slot = take_pooled(&self.state, True)
                    if slot != NULL:
                        return claimed(slot)
                if self.gather_more(waiter, size) == size:
                    waiter.gathered = 0
                    return self.counted(size)
            if waited_ms >= max_time_to_block_ms:
                self.buffer_exhausted_count += 1
                raise BufferExhaustedError(
                    f"no memory came free within {max_time_to_block_ms} ms: expected {size} bytes of {self.state.memory}, "
                    f"available {available_bytes(&self.state) + waiter.gathered}")
            least_ms = min(max_time_to_block_ms - waited_ms, <int64_t>MOST_POOL_WAIT_MS)
            try:
                if waiter.lock.acquire(True, least_ms / <double>MS_PER_SECOND):
                    waiter.is_signalled = False
            finally:
                now_ms = self.clock.monotonic_ms()
                self.waited_ms += now_ms - start_ms - waited_ms
                waited_ms = now_ms - start_ms

    # Requires: the waiter is the first in the queue.
    @cython.final
    cdef int64_t gather_more(self, _PoolWaiter waiter, int64_t size) noexcept:
        cdef PoolSlot* dropped
        cdef int64_t taken = take_bytes(&self.state, INT64_MIN, size - waiter.gathered, True, &dropped)
        drop_slots(dropped)
        waiter.gathered += taken
        return waiter.gathered

    @cython.final
    cdef int leave(self, _PoolWaiter waiter) except -1:
        cdef Py_ssize_t number
        for number in range(len(self.waiters)):
            if self.waiters[number] is waiter:
                del self.waiters[number]
                break
        count_waiters(&self.state, -1)
        if waiter.gathered:
            give_bytes(&self.state, waiter.gathered)
        return self.signal_first()

    @cython.final
    cdef int signal_first(self) except -1:
        if self.waiters:
            return signal_waiter(<_PoolWaiter>self.waiters[0])
        return 0

    @cython.final
    cdef int give(self, int64_t size) except -1:
        if give_bytes(&self.state, size):
            self.signal_first()
        return 0

    # Requires: the buffer is accounted here. A buffer that something else still refers to is dropped; its bytes become
    # free.
    @cython.final
    cdef int return_buffer(self, ColumnBuffer buffer, bint is_reusable) except -1:
        cdef int64_t counted_bytes = buffer.slot.counted_bytes
        cdef int64_t capacity = self.state.poolable_size + POOL_SLACK
        if is_reusable and counted_bytes == self.state.poolable_size and buffer.block.capacity == capacity:
            buffer.size = counted_bytes
            buffer.is_read_only = False
            buffer.sealed.size = 0
            Py_INCREF(buffer)
            if give_pooled(&self.state, &buffer.slot):
                self.signal_first()
            return 0
        buffer.slot.pool = NULL
        return self.give(counted_bytes)

    def deallocate(self, ColumnBuffer buffer not None):
        """Give back a buffer from allocate(), with all the bytes that it is accounted for.

        One of poolable_size is reused, unless there is still a view of it.
        Raises: ValueError if it is not from this pool, or was given back before.
        """
        if buffer.slot.pool != &self.state or buffer.slot.counted_bytes < 0:
            raise ValueError("the buffer is not held from this pool: expected one from allocate(), not given back before")
        self.return_buffer(buffer, buffer.export_count == 0)

    def deallocate_all(self, list held not None):
        """Give back all buffers of a list as deallocate() does, and empty the list."""
        while held:
            self.deallocate(held.pop())

    def try_reserve(self, int64_t size):
        """Take bytes for memory outside of the pool, if available and no thread waits; return whether it took them."""
        if size < 0:
            raise ValueError(f"size must not be negative, got {size}")
        return not self.state.is_closed and self.reserve(size)

    def release(self, int64_t size):
        """Give back bytes from try_reserve().

        Raises: ValueError if fewer are held.
        """
        if not 0 <= size <= self.state.memory - available_bytes(&self.state):
            raise ValueError(f"size must be from 0 to the number of bytes held, got {size}")
        self.give(size)

    def allocate_anyway(self, int64_t size):
        """Return a buffer without waiting, even if that makes available_memory negative.

        For calls that must not wait: the pieces of a split batch, whose bytes are in a buffer that will be given back
        soon.
        Raises: ValueError, MemoryError.
        """
        if not 0 <= size <= INT64_MAX // 4:
            raise ValueError(f"size must be from 0 to {INT64_MAX // 4}, got {size}")
        return self.counted_anyway(size)

    def close(self):
        """Refuse later and waiting calls with ProducerClosedError; buffers can still be given back."""
        self.state.is_closed = True
        for waiter in self.waiters:
            signal_waiter(<_PoolWaiter>waiter)

    def cycle(self, int64_t count):
        """Take and give back a free buffer `count` times without the GIL; return how often there was one. For tests."""
        cdef PoolSlot* slot
        cdef int64_t found = 0
        cdef bint is_awaited = False
        with nogil:
            for _ in range(count):
                slot = take_pooled(&self.state, False)
                if slot != NULL:
                    found += 1
                    is_awaited |= give_pooled(&self.state, slot)
        if is_awaited:
            self.signal_first()
        return found


# Returns: a buffer if memory is available and no thread waits, else None. Runs no other Python code.
cdef ColumnBuffer try_allocate(BufferPoolCore pool, int64_t size):
    cdef PoolSlot* slot
    if size == pool.state.poolable_size:
        slot = take_pooled(&pool.state, False)
        if slot != NULL:
            return claimed(slot)
    if pool.state.is_closed or size < 0 or not pool.reserve(size):
        return None
    return pool.counted(size)


cdef int signal_waiter(_PoolWaiter waiter) except -1:
    if not waiter.is_signalled:
        waiter.is_signalled = True
        waiter.lock.release()
    return 0
