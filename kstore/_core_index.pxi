# Binary search over the entries of .index (8 bytes) and .timeindex (12 bytes), in a buffer or a map.

cdef enum:
    WARM_BYTES = 8192
    LANES = 16


cdef inline int64_t offset_key(const uint8_t* entries, int64_t slot) noexcept nogil:
    return <int32_t>ks_get32(entries + slot * OFFSET_ENTRY_SIZE)


cdef inline int64_t time_key(const uint8_t* entries, int64_t slot) noexcept nogil:
    return <int64_t>ks_get64(entries + slot * TIME_ENTRY_SIZE)


cdef inline int64_t key_at(const uint8_t* entries, int entry_size, int64_t slot) noexcept nogil:
    return offset_key(entries, slot) if entry_size == OFFSET_ENTRY_SIZE else time_key(entries, slot)


# Returns: some slot in [low, low + count) with key <= target, in rising entries the greatest; low if there is none. Without
# a branch that can't be foreseen, since a random target would have the processor guess wrong at every second one; both
# entries that the next step may ask for are on their way meanwhile.
cdef inline int64_t floor_in(const uint8_t* entries, int entry_size, int64_t low, int64_t count,
                             int64_t target) noexcept nogil:
    cdef int64_t half
    while count > 1:
        half = count >> 1
        ks_prefetch(entries + (low + (half >> 1)) * entry_size)
        ks_prefetch(entries + (low + half + (half >> 1)) * entry_size)
        low += half * (key_at(entries, entry_size, low + half) <= target)
        count -= half
    return low


# Returns: the slot of the greatest key <= target in [0, count), -1 if there is none. The last WARM_BYTES are tried
# first, so that lookups near the end touch pages that stay in memory (KAFKA-6432).
cdef int64_t floor_slot(const uint8_t* entries, int entry_size, int64_t count, int64_t target) noexcept nogil:
    cdef int64_t first_warm = count - 1 - WARM_BYTES // entry_size
    if count == 0 or key_at(entries, entry_size, 0) > target:
        return -1
    if first_warm <= 0:
        return floor_in(entries, entry_size, 0, count, target)
    if key_at(entries, entry_size, first_warm) <= target:
        return floor_in(entries, entry_size, first_warm, count - first_warm, target)
    return floor_in(entries, entry_size, 0, first_warm, target)


# The same for LANES targets at a time, whose loads do not wait for each other.
cdef void floor_slots(const uint8_t* entries, int entry_size, int64_t count, const int64_t* targets,
                      int64_t* slots) noexcept nogil:
    cdef int64_t left = count
    cdef int64_t half
    cdef int lane
    for lane in range(LANES):
        slots[lane] = 0
    while left > 1:
        half = left >> 1
        for lane in range(LANES):
            slots[lane] += half * (key_at(entries, entry_size, slots[lane] + half) <= targets[lane])
        left -= half
    for lane in range(LANES):
        if count == 0 or key_at(entries, entry_size, slots[lane]) > targets[lane]:
            slots[lane] = -1


cdef int64_t count_entries(const uint8_t* entries, int entry_size, int64_t size) noexcept nogil:
    cdef int64_t count = size // entry_size
    while count > 0 and all_zero(entries + (count - 1) * entry_size, entry_size):
        count -= 1
    return count


cdef object check_entry_size(int entry_size):
    if entry_size != OFFSET_ENTRY_SIZE and entry_size != TIME_ENTRY_SIZE:
        raise ValueError(f"entry_size must be {OFFSET_ENTRY_SIZE} or {TIME_ENTRY_SIZE}, got {entry_size}")


def index_entry_count(const uint8_t[::1] buffer, int entry_size):
    """Return the number of whole entries before the trailing run of all-zero ones (preallocated space)."""
    cdef int64_t count
    cdef const uint8_t* start = start_of(buffer)
    check_entry_size(entry_size)
    with nogil:
        count = count_entries(start, entry_size, buffer.shape[0])
    return count


cdef const uint8_t* entry_at(const uint8_t[::1] buffer, int64_t slot, int entry_size) except NULL:
    if not 0 <= slot < buffer.shape[0] // entry_size:
        raise IndexError(f"slot must be from 0 to {buffer.shape[0] // entry_size - 1}, got {slot}")
    return &buffer[slot * entry_size]


def offset_index_entry(const uint8_t[::1] buffer, int64_t slot):
    """Return (relative_offset, position) of a slot of an offset index."""
    cdef const uint8_t* entry = entry_at(buffer, slot, OFFSET_ENTRY_SIZE)
    return <int32_t>ks_get32(entry), <int32_t>ks_get32(entry + 4)


def time_index_entry(const uint8_t[::1] buffer, int64_t slot):
    """Return (timestamp_ms, relative_offset) of a slot of a time index."""
    cdef const uint8_t* entry = entry_at(buffer, slot, TIME_ENTRY_SIZE)
    return <int64_t>ks_get64(entry), <int32_t>ks_get32(entry + 8)
