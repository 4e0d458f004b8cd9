# Memory for columns and read chunks: ColumnBuffer, a malloc'ed block that Arrow and NumPy use by the buffer protocol,
# and the cache of freed blocks that new ones are taken from.

cdef extern from "Python.h":
    Py_ssize_t reference_count "Py_REFCNT"(PyObject* it) noexcept
    unsigned long this_thread "PyThread_get_thread_ident"() noexcept

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void** data, size_t alignment, size_t size)

cdef enum:
    PADDING = 64
    MOST_KEPT = 256
    LEAST_KEPT_SIZE = 16384
    MOST_KEPT_BYTES = 67108864

cdef struct Block:
    uint8_t* data
    int64_t capacity
    unsigned long thread          # which took it last

# Freed blocks, oldest first; guarded by the GIL. They are kept because the page faults of a fresh block of a few MiB
# cost more than decoding into it.
cdef Block kept_blocks[MOST_KEPT]
cdef int kept_count = 0
cdef int64_t kept_bytes = 0


cdef void take_kept(int number, Block* block) noexcept:
    global kept_count, kept_bytes
    block[0] = kept_blocks[number]
    kept_count -= 1
    kept_bytes -= block.capacity
    for number in range(number, kept_count):
        kept_blocks[number] = kept_blocks[number + 1]


# Blocks that are kept begin at a cache line, as Arrow advises; the kernel copies up to 12 % faster to them.
cdef void* allocated(int64_t capacity) noexcept:
    cdef void* data = NULL
    if capacity < LEAST_KEPT_SIZE:
        return malloc(<size_t>(capacity + PADDING))
    return data if posix_memalign(&data, CACHE_LINE, <size_t>(capacity + PADDING)) == 0 else NULL


# Returns: the number of the kept block to use, the newest one that the thread had before any other, whose bytes would come
# from the cache of another processor core; -1 if none fits.
cdef int kept_for(int64_t capacity, unsigned long thread) noexcept:
    cdef int number, newest = -1
    for number in range(kept_count - 1, -1, -1):
        if capacity <= kept_blocks[number].capacity and kept_blocks[number].capacity // 2 <= capacity:
            if kept_blocks[number].thread == thread:
                return number
            if newest < 0:
                newest = number
    return newest


cdef int take_block(int64_t capacity, Block* block) except -1:
    cdef unsigned long thread = this_thread()
    cdef int number = kept_for(capacity, thread)
    if number >= 0:
        take_kept(number, block)
    else:
        block.data = <uint8_t*>allocated(capacity)
        block.capacity = capacity
    if block.data == NULL:
        raise MemoryError(f"no memory for a buffer of {capacity} bytes")
    block.thread = thread
    return 0


cdef void give_back(Block* block) noexcept:
    global kept_count, kept_bytes
    cdef Block oldest
    if not LEAST_KEPT_SIZE <= block.capacity <= MOST_KEPT_BYTES:
        free(block.data)
        return
    while kept_count == MOST_KEPT or kept_bytes > MOST_KEPT_BYTES - block.capacity:
        take_kept(0, &oldest)
        free(oldest.data)
    kept_blocks[kept_count] = block[0]
    kept_count += 1
    kept_bytes += block.capacity


# What a BufferPool stores in a buffer: the next buffer of the free list; the owner that its memory is charged to (NULL:
# none); the pool; and the bytes charged (-1: the buffer is in the free list).
cdef struct PoolSlot:
    PoolSlot* next
    void* owner
    const void* pool
    int64_t counted_bytes

# Facts that an encoder records about the one uncompressed batch in a buffer when it seals it; size is 0 if there are
# none. The bytes cannot change afterwards. least_timestamp is -1 if no record has a timestamp. If crc_shift is not 0,
# records_crc is the CRC of the records and crc_shift is crc32c_shift_of their size.
cdef struct SealedBatch:
    int64_t size
    int64_t least_timestamp
    uint32_t records_crc
    uint32_t crc_shift
    bint has_null_key


@cython.final
@cython.freelist(16)
cdef class ColumnBuffer:
    """A writable block of `capacity` bytes with the buffer protocol; Arrow and NumPy may keep views of it.

    The memory is uninitialized. It is freed with its last view, or kept for reuse (at most 64 MiB in all).
    Raises: ValueError for a negative capacity; MemoryError.
    Lifetime: a view keeps the buffer alive.  Threads: safe, except that callers must synchronize writes to the bytes.
    """

    cdef Block block
    cdef int64_t size
    cdef PoolSlot slot
    cdef SealedBatch sealed
    cdef int32_t export_count     # live views
    cdef bint is_read_only
    cdef bint was_writable        # a writable view was handed out since an encoder began to fill the buffer

    def __init__(self, int64_t capacity):
        if capacity < 0:
            raise ValueError(f"capacity must not be negative, got {capacity}")
        if self.block.data != NULL:
            raise ValueError("the buffer has its memory already")
        self.take(capacity)

    cdef int take(self, int64_t capacity) except -1:
        take_block(capacity, &self.block)
        self.size = capacity
        return 0

    # Requires: no view is live.
    cdef int grow(self, int64_t least) except -1:
        cdef int64_t capacity = max(least, 2 * self.block.capacity)
        cdef uint8_t* data = <uint8_t*>realloc(self.block.data, <size_t>(capacity + PADDING))
        if data == NULL:
            raise MemoryError(f"no memory for a buffer of {capacity} bytes")
        self.block.data = data
        self.block.capacity = capacity
        return 0

    def __dealloc__(self):
        if self.block.data != NULL:
            give_back(&self.block)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.block.data, self.size, self.is_read_only, flags)
        self.export_count += 1
        self.was_writable |= not self.is_read_only

    def __releasebuffer__(self, Py_buffer* view):
        self.export_count -= 1

    def __len__(self):
        return self.size


# ColumnBuffer(capacity) without the Python call and its argument objects.
cdef ColumnBuffer new_buffer(int64_t capacity):
    cdef ColumnBuffer buffer = ColumnBuffer.__new__(ColumnBuffer)
    buffer.take(capacity)
    return buffer


# Requires: `size` bytes in both; the new buffer is at least as large as the one that it replaces.
cdef void copy_content(ColumnBuffer longer, ColumnBuffer other, int64_t size) noexcept:
    memcpy(longer.block.data, other.block.data, <size_t>size)
    longer.was_writable |= other.was_writable


# A read-only view of a buffer's bytes from `first` to the end.
@cython.final
@cython.freelist(256)
cdef class _BufferPart:
    cdef ColumnBuffer whole
    cdef int64_t first

    def __getbuffer__(self, Py_buffer* view, int flags):
        if self.whole is None:
            raise BufferError("the part has no buffer")
        PyBuffer_FillInfo(view, self, self.whole.block.data + self.first, self.whole.size - self.first, True, flags)


# Requires: `first` is at most the buffer's size; the buffer does not change while the view lives.
cdef _BufferPart part_of(ColumnBuffer whole, int64_t first):
    cdef _BufferPart part = _BufferPart.__new__(_BufferPart)
    part.whole = whole
    part.first = first
    return part


# Whether the object has a reference besides the caller's; a view of it counts as one.
cdef inline bint is_shared(PyObject* it) noexcept:
    return reference_count(it) > 1
