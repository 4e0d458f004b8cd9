# The map that compaction fills: from the hash of each key to its newest offset (OffsetMap).

cdef extern from *:
    """
    #include <sys/mman.h>

    /* SipHash-2-4 with 128 bits of output. Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012. */
    #define KS_ROTATED(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))
    #define KS_SIP_ROUND do { \\
        v0 += v1; v1 = KS_ROTATED(v1, 13); v1 ^= v0; v0 = KS_ROTATED(v0, 32); \\
        v2 += v3; v3 = KS_ROTATED(v3, 16); v3 ^= v2; \\
        v0 += v3; v3 = KS_ROTATED(v3, 21); v3 ^= v0; \\
        v2 += v1; v1 = KS_ROTATED(v1, 17); v1 ^= v2; v2 = KS_ROTATED(v2, 32); \\
    } while (0)

    static inline uint64_t ks_load_le(const uint8_t *p, size_t size) {
        uint64_t value = 0;
        size_t i;
        for (i = 0; i < size; i++)
            value |= (uint64_t)p[i] << (8 * i);
        return value;
    }

    static inline void ks_siphash(const uint8_t *p, size_t n, uint64_t k0, uint64_t k1, uint64_t *low, uint64_t *high) {
        uint64_t v0 = k0 ^ 0x736f6d6570736575u, v1 = k1 ^ 0x646f72616e646f6du ^ 0xee;
        uint64_t v2 = k0 ^ 0x6c7967656e657261u, v3 = k1 ^ 0x7465646279746573u;
        uint64_t word = 0;
        size_t left = n;
        while (left >= 8) {
            word = ks_load_le(p, 8);
            v3 ^= word;
            KS_SIP_ROUND;
            KS_SIP_ROUND;
            v0 ^= word;
            p += 8;
            left -= 8;
        }
        word = (uint64_t)n << 56 | ks_load_le(p, left);
        v3 ^= word;
        KS_SIP_ROUND;
        KS_SIP_ROUND;
        v0 ^= word;
        v2 ^= 0xee;
        KS_SIP_ROUND;
        KS_SIP_ROUND;
        KS_SIP_ROUND;
        KS_SIP_ROUND;
        *low = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd;
        KS_SIP_ROUND;
        KS_SIP_ROUND;
        KS_SIP_ROUND;
        KS_SIP_ROUND;
        *high = v0 ^ v1 ^ v2 ^ v3;
    }

    /* Returns: the slot of a hash among `count`; it does not fall as the hash rises. */
    static inline int64_t ks_scaled(uint64_t hash, int64_t count) {
        return (int64_t)(((unsigned __int128)hash * (uint64_t)count) >> 64);
    }

    /* Memory of zeros that costs nothing until it is used, in large pages where the system has them; NULL for none. */
    static void *ks_map_zeros(size_t size) {
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return NULL;
    #ifdef MADV_HUGEPAGE
        madvise(memory, size, MADV_HUGEPAGE);
    #endif
        return memory;
    }

    static void ks_unmap(void *memory, size_t size) { munmap(memory, size); }

    /* The same memory with zeros after it, perhaps elsewhere; NULL, with the memory as it was, if there is no more. */
    static void *ks_remap_zeros(void *memory, size_t size, size_t new_size) {
    #ifdef MREMAP_MAYMOVE
        void *moved = mremap(memory, size, new_size, MREMAP_MAYMOVE);
        if (moved == MAP_FAILED)
            return NULL;
    #ifdef MADV_HUGEPAGE
        madvise(moved, new_size, MADV_HUGEPAGE);
    #endif
    #else
        void *moved = ks_map_zeros(new_size);
        if (moved == NULL)
            return NULL;
        memcpy(moved, memory, size);
        munmap(memory, size);
    #endif
        return moved;
    }
    """
    void ks_siphash(const uint8_t* p, size_t n, uint64_t k0, uint64_t k1, uint64_t* low, uint64_t* high) nogil
    int64_t ks_scaled(uint64_t hash, int64_t count) nogil
    void* ks_map_zeros(size_t size) nogil
    void ks_unmap(void* memory, size_t size) nogil
    void* ks_remap_zeros(void* memory, size_t size, size_t new_size) nogil

cdef enum:
    # Slots after the last home slot, for runs of entries that reach beyond it.
    SPARE_SLOTS = 1024

# The entries are sorted by hash, each at or after the slot that its hash leads to, without a free slot in between: so a
# search ends at the first entry with a greater hash. low is 0 only in a free slot.
cdef struct KeySlot:
    uint64_t low
    uint64_t high
    int64_t offset

cdef struct KeyMap:
    KeySlot* slots
    int64_t slot_count        # without the spare ones
    int64_t entry_count
    int64_t most_entries
    uint64_t seed_low
    uint64_t seed_high


cdef inline void hash_key(const KeyMap* m, const uint8_t* key, int64_t size, uint64_t* low, uint64_t* high) noexcept nogil:
    ks_siphash(key, <size_t>size, m.seed_low, m.seed_high, low, high)
    low[0] += low[0] == 0


# Returns: the slot of the entry with this hash, or where it would be inserted.
cdef inline KeySlot* slot_of(const KeyMap* m, uint64_t low, uint64_t high) noexcept nogil:
    cdef KeySlot* slot = m.slots + ks_scaled(low, m.slot_count)
    while slot.low != 0 and (slot.low < low or (slot.low == low and slot.high < high)):
        slot += 1
    return slot


cdef inline int64_t offset_in(const KeyMap* m, uint64_t low, uint64_t high) noexcept nogil:
    cdef KeySlot* slot = slot_of(m, low, high)
    return slot.offset if slot.low == low and slot.high == high else -1


# Returns: whether there was room. The last slot stays free, so that every search ends.
cdef inline bint put_offset(KeyMap* m, uint64_t low, uint64_t high, int64_t offset) noexcept nogil:
    cdef KeySlot* slot = slot_of(m, low, high)
    cdef KeySlot* last = m.slots + m.slot_count + SPARE_SLOTS - 1
    cdef KeySlot* end = slot
    if slot.low == low and slot.high == high:
        slot.offset = offset
        return True
    if m.entry_count >= m.most_entries:
        return False
    while end.low != 0:
        end += 1
    if end >= last:
        return False
    while end > slot:
        end[0] = (end - 1)[0]
        end -= 1
    slot.low, slot.high, slot.offset = low, high, offset
    m.entry_count += 1
    return True


cdef inline KeySlot* home_of(const KeyMap* m, const KeySlot* entry) noexcept nogil:
    return m.slots + ks_scaled(entry.low, m.slot_count)


cdef inline KeySlot* later(KeySlot* one, KeySlot* other) noexcept nogil:
    return one if one > other else other


cdef inline void move_entry(KeySlot* entry, KeySlot* to) noexcept nogil:
    if to != entry:
        to[0] = entry[0]
        memset(entry, 0, sizeof(KeySlot))


# Returns: whether there was an entry. Those after it move back by a slot, up to one that is where its hash leads to.
cdef inline bint remove_offset(KeyMap* m, uint64_t low, uint64_t high) noexcept nogil:
    cdef KeySlot* slot = slot_of(m, low, high)
    cdef KeySlot* following = slot + 1
    if slot.low != low or slot.high != high:
        return False
    while following.low != 0 and following != home_of(m, following):
        slot[0] = following[0]
        slot = following
        following += 1
    memset(slot, 0, sizeof(KeySlot))
    m.entry_count -= 1
    return True


# Removes the entries below an offset; each of the others goes as far back as it may.
cdef void remove_entries_below(KeyMap* m, int64_t offset) noexcept nogil:
    cdef KeySlot* end = m.slots + m.slot_count + SPARE_SLOTS
    cdef KeySlot* slot = m.slots
    cdef KeySlot* least = m.slots
    cdef KeySlot* to
    while slot < end:
        if slot.low != 0 and slot.offset < offset:
            memset(slot, 0, sizeof(KeySlot))
            m.entry_count -= 1
        elif slot.low != 0:
            to = later(least, home_of(m, slot))
            move_entry(slot, to)
            least = to + 1
        slot += 1


# Requires: memory for `count` slots and the spare ones, not fewer than now, of zeros after the present ones. Returns:
# whether the entries fit; else nothing has changed. They are moved to the end first, so that none is overwritten: there
# are as many slots from where one comes to lie as from where it then is.
cdef bint spread_entries(KeyMap* m, int64_t count) noexcept nogil:
    cdef KeySlot* end = m.slots + m.slot_count + SPARE_SLOTS
    cdef KeySlot* last = m.slots + count + SPARE_SLOTS - 1
    cdef KeySlot* first = last
    cdef KeySlot* least = m.slots
    cdef KeySlot* slot
    slot = m.slots
    while slot < end:
        if slot.low != 0:
            least = later(least, m.slots + ks_scaled(slot.low, count)) + 1
        slot += 1
    if least > last:
        return False
    slot = end
    while slot > m.slots:
        slot -= 1
        if slot.low != 0:
            first -= 1
            move_entry(slot, first)
    least = m.slots
    m.slot_count = count
    while first < last:
        slot = later(least, home_of(m, first))
        move_entry(first, slot)
        least = slot + 1
        first += 1
    return True


@cython.final
cdef class OffsetMap:
    """The newest offset of each key, by a hash of 16 bytes: the keys themselves are not kept.

    The hash is SipHash-2-4 with a secret of its own, so that nobody who chooses keys can make two of them collide.
    Args: memory_bytes: of the map, 24 for an entry; load_factor: the part of it that may be used; secret: 16 bytes.
    Attributes: entry_count, most_entries, latest_offset (every record up to this offset is in the map, -1 for none),
        memory_bytes, size_in_bytes (with what the map has besides memory_bytes).
    Raises: MemoryError; ValueError for a map without room for an entry.
    Threads: not safe.  Cost: memory is used as entries are added.  Source: Kafka SkimpyOffsetMap.
    """

    cdef KeyMap m
    cdef size_t size
    cdef readonly int64_t latest_offset

    def __cinit__(self, *, int64_t memory_bytes, double load_factor, const uint8_t[::1] secret):
        cdef int64_t count = memory_bytes // <int64_t>sizeof(KeySlot)
        self.m.most_entries = <int64_t>(count * load_factor)
        if self.m.most_entries < 1 or secret.shape[0] != 16:
            raise ValueError(f"expected room for an entry and a secret of 16 bytes, got {memory_bytes} bytes")
        self.m.slot_count = count
        self.m.seed_low = ks_get64(&secret[0])
        self.m.seed_high = ks_get64(&secret[8])
        self.latest_offset = -1
        self.size = <size_t>((count + SPARE_SLOTS) * <int64_t>sizeof(KeySlot))
        self.m.slots = <KeySlot*>ks_map_zeros(self.size)
        if self.m.slots == NULL:
            raise MemoryError(f"no memory for a map of {memory_bytes} bytes")

    def __dealloc__(self):
        if self.m.slots != NULL:
            ks_unmap(self.m.slots, self.size)

    @property
    def entry_count(self): return self.m.entry_count
    @property
    def most_entries(self): return self.m.most_entries

    @property
    def memory_bytes(self): return self.m.slot_count * <int64_t>sizeof(KeySlot)
    @property
    def size_in_bytes(self): return self.size

    def grow(self, *, int64_t memory_bytes, double load_factor):
        """Give the map more memory, of which another part may be used; its entries stay.

        Raises: MemoryError, with the map as it was; ValueError for less memory.
        Cost: O(memory_bytes); no second copy, where the system can move memory.
        """
        cdef int64_t count = memory_bytes // <int64_t>sizeof(KeySlot)
        cdef size_t size = <size_t>((count + SPARE_SLOTS) * <int64_t>sizeof(KeySlot))
        cdef void* memory = self.m.slots
        cdef bint fits
        if count < self.m.slot_count:
            raise ValueError(f"expected at least {self.memory_bytes} bytes, which the map has, got {memory_bytes}")
        if size != self.size:
            with nogil:
                memory = ks_remap_zeros(self.m.slots, self.size, size)
            if memory == NULL:
                raise MemoryError(f"no memory for a map of {memory_bytes} bytes")
        self.m.slots, self.size = <KeySlot*>memory, size
        with nogil:
            fits = spread_entries(&self.m, count)
        if not fits:
            raise MemoryError(f"the keys of a map do not spread over {memory_bytes} bytes")
        self.m.most_entries = <int64_t>(count * load_factor)

    def put(self, const uint8_t[::1] key, int64_t offset):
        """Set the offset of a key; return whether there was room for it."""
        cdef uint64_t low, high
        hash_key(&self.m, start_of(key), key.shape[0], &low, &high)
        return put_offset(&self.m, low, high, offset)

    def get(self, const uint8_t[::1] key):
        """Return the offset of a key, -1 if there is none."""
        cdef uint64_t low, high
        hash_key(&self.m, start_of(key), key.shape[0], &low, &high)
        return offset_in(&self.m, low, high)

    def remove(self, const uint8_t[::1] key):
        """Remove a key; return whether it was there."""
        cdef uint64_t low, high
        hash_key(&self.m, start_of(key), key.shape[0], &low, &high)
        return remove_offset(&self.m, low, high)

    def remove_below(self, int64_t offset):
        """Remove the keys whose offset is below this one.  Cost: O(memory_bytes)."""
        with nogil:
            remove_entries_below(&self.m, offset)

    def pass_to(self, int64_t offset):
        """Raise latest_offset: there is no key that is not in the map up to `offset`."""
        self.latest_offset = max(self.latest_offset, offset)


cdef inline bint is_less(const KeySlot* one, const KeySlot* other) noexcept nogil:
    return one.low < other.low or (one.low == other.low and one.high < other.high)


# Requires: the slots at which the entries of `count` maps begin, and end.
cdef int64_t count_hashes(KeySlot** at, KeySlot** ends, int64_t count) noexcept nogil:
    cdef KeySlot* least
    cdef KeySlot found
    cdef int64_t i
    cdef int64_t hashes = 0
    while True:
        least = NULL
        for i in range(count):
            while at[i] < ends[i] and at[i].low == 0:
                at[i] += 1
            if at[i] < ends[i] and (least == NULL or is_less(at[i], least)):
                least = at[i]
        if least == NULL:
            return hashes
        found = least[0]
        hashes += 1
        for i in range(count):
            if at[i] < ends[i] and at[i].low == found.low and at[i].high == found.high:
                at[i] += 1


def count_keys(maps):
    """Return how many different keys maps with the same secret have together.

    Raises: ValueError for maps with different secrets; MemoryError.
    Cost: O(their slots, and their keys times the number of maps).
    """
    cdef list given = list(maps)
    cdef int64_t count = len(given)
    cdef int64_t hashes = 0
    cdef KeySlot** at
    cdef OffsetMap each
    if count < 2:
        return sum([each.entry_count for each in given])
    at = <KeySlot**>malloc(<size_t>(2 * count) * sizeof(void*))
    if at == NULL:
        raise MemoryError(f"no memory to count the keys of {count} maps")
    try:
        for i, each in enumerate(given):
            if each.m.seed_low != (<OffsetMap>given[0]).m.seed_low or each.m.seed_high != (<OffsetMap>given[0]).m.seed_high:
                raise ValueError("the maps have different secrets")
            at[<int64_t>i] = each.m.slots
            at[count + <int64_t>i] = each.m.slots + each.m.slot_count + SPARE_SLOTS
        with nogil:
            hashes = count_hashes(at, at + count, count)
    finally:
        free(at)
    return hashes


def siphash128(const uint8_t[::1] data, const uint8_t[::1] key):
    """Return the SipHash-2-4 of 16 bytes, under a key of 16 bytes; for tests of OffsetMap."""
    cdef uint64_t low, high
    if key.shape[0] != 16:
        raise ValueError(f"expected a key of 16 bytes, got {key.shape[0]}")
    ks_siphash(start_of(data), <size_t>data.shape[0], <uint64_t>int.from_bytes(bytes(key[:8]), "little"),
               <uint64_t>int.from_bytes(bytes(key[8:]), "little"), &low, &high)
    return int(low).to_bytes(8, "little") + int(high).to_bytes(8, "little")
