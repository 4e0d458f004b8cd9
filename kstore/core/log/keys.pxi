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
    """
    void ks_siphash(const uint8_t* p, size_t n, uint64_t k0, uint64_t k1, uint64_t* low, uint64_t* high) nogil
    int64_t ks_scaled(uint64_t hash, int64_t count) nogil
    void* ks_map_zeros(size_t size) nogil
    void ks_unmap(void* memory, size_t size) nogil

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


@cython.final
cdef class OffsetMap:
    """The newest offset of each key, by a hash of 16 bytes: the keys themselves are not kept.

    The hash is SipHash-2-4 with a secret of its own, so that nobody who chooses keys can make two of them collide.
    Args: memory_bytes: of the map, 24 for an entry; load_factor: the part of it that may be used; secret: 16 bytes.
    Attributes: entry_count, most_entries, latest_offset (every record up to this offset is in the map, -1 for none).
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

    def pass_to(self, int64_t offset):
        """Raise latest_offset: there is no key that is not in the map up to `offset`."""
        self.latest_offset = max(self.latest_offset, offset)


def siphash128(const uint8_t[::1] data, const uint8_t[::1] key):
    """Return the SipHash-2-4 of 16 bytes, under a key of 16 bytes; for tests of OffsetMap."""
    cdef uint64_t low, high
    if key.shape[0] != 16:
        raise ValueError(f"expected a key of 16 bytes, got {key.shape[0]}")
    ks_siphash(start_of(data), <size_t>data.shape[0], <uint64_t>int.from_bytes(bytes(key[:8]), "little"),
               <uint64_t>int.from_bytes(bytes(key[8:]), "little"), &low, &high)
    return int(low).to_bytes(8, "little") + int(high).to_bytes(8, "little")
