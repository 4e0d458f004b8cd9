# The entries of an index that is appended to, in memory. Views of them stay as they were: memory that a view may show is
# added to behind its end, and replaced where entries go.

cdef enum:
    LEAST_ENTRIES_SIZE = 4096


cdef class IndexEntries:
    """The entries of one index file in memory, to which the subclasses append.

    Attributes: base_offset, entry_count, max_entries (at least entry_count), entry_size (bytes), cut_count (how often
        entries were removed).
    Threads: one that changes it, beside any number that take `content`; under the GIL.
    """

    cdef ColumnBuffer memory
    cdef readonly int64_t base_offset
    cdef readonly int64_t entry_count
    cdef readonly int64_t max_entries
    cdef readonly int64_t cut_count
    cdef readonly int entry_size

    def __cinit__(self, const uint8_t[::1] content, *, int64_t base_offset, int64_t max_bytes):
        self.entry_size = OFFSET_ENTRY_SIZE if isinstance(self, OffsetIndexEntries) else TIME_ENTRY_SIZE
        self.base_offset = base_offset
        self.replace_memory(max(content.shape[0], LEAST_ENTRIES_SIZE))
        self.max_entries = max_bytes // self.entry_size
        self.extend(content)

    # The entries there are move to fresh memory of at least `size` bytes, which no view shows.
    cdef int replace_memory(self, int64_t size) except -1:
        cdef ColumnBuffer memory = ColumnBuffer(size)
        memory.is_read_only = True
        if self.entry_count:
            memcpy(memory.block.data, self.memory.block.data, <size_t>(self.entry_count * self.entry_size))
        self.memory = memory
        return 0

    # Returns: the start of all entries, with room for `count` more.
    cdef uint8_t* reserve(self, int64_t count) except NULL:
        cdef int64_t size = (self.entry_count + count) * self.entry_size
        if size > self.memory.size:
            self.replace_memory(2 * size)
        return self.memory.block.data

    # Returns: the place of the next entry, with room for it; the caller counts it.
    cdef inline uint8_t* next_entry(self) except NULL:
        cdef int64_t size = self.entry_count * self.entry_size
        if self.memory.size - size < self.entry_size:
            self.reserve(1)
        return self.memory.block.data + size

    cdef int64_t relative(self, int64_t offset) except -1:
        if offset < self.base_offset or offset - self.base_offset > INT32_MAX:
            raise ValueError(f"offset must be from {self.base_offset} to {self.base_offset + INT32_MAX}, got {offset}")
        return offset - self.base_offset

    @property
    def content(self):
        """The bytes of the entries there are now, read-only; what comes later does not change it."""
        return memoryview(self.memory)[:self.entry_count * self.entry_size]

    def extend(self, const uint8_t[::1] content):
        """Append encoded entries; their order is not checked, and max_entries gives way (also to a closing time entry).

        Raises: ValueError if they are no whole number of entries.
        """
        cdef int64_t size = content.shape[0]
        cdef int64_t old_size = self.entry_count * self.entry_size
        if size % self.entry_size:
            raise ValueError(f"size of entries must be a multiple of {self.entry_size}, got {size}")
        if size == 0:
            return
        self.reserve(size // self.entry_size)
        memcpy(self.memory.block.data + old_size, &content[0], <size_t>size)
        self.entry_count += size // self.entry_size
        self.max_entries = max(self.max_entries, self.entry_count + (self.entry_size == TIME_ENTRY_SIZE))

    def keep(self, int64_t entry_count):
        """Remove all but the first `entry_count` entries."""
        if not 0 <= entry_count <= self.entry_count:
            raise ValueError(f"entry_count must be from 0 to {self.entry_count}, got {entry_count}")
        self.cut_count += 1
        self.entry_count = entry_count
        self.replace_memory(max(entry_count * self.entry_size, LEAST_ENTRIES_SIZE))


@cython.final
cdef class OffsetIndexEntries(IndexEntries):
    """Entries of an .index file.  Source: Kafka OffsetIndex."""

    cdef int add(self, int64_t offset, int64_t position) except -1:
        cdef int64_t relative_offset = self.relative(offset)
        cdef uint8_t* entry
        if self.entry_count >= self.max_entries:
            raise ValueError(f"the offset index is full: at most {self.max_entries} entries")
        if not 0 <= position <= INT32_MAX:
            raise ValueError(f"position must be from 0 to {INT32_MAX}, got {position}")
        entry = self.next_entry()
        if self.entry_count and relative_offset <= <int32_t>ks_get32(entry - OFFSET_ENTRY_SIZE):
            raise ValueError(f"offset must be above {self.last_offset}, that of the last entry, got {offset}")
        ks_put32(entry, <uint32_t>relative_offset)
        ks_put32(entry + 4, <uint32_t>position)
        self.entry_count += 1
        return 0

    def append(self, *, int64_t offset, int64_t position):
        """Add an entry; see OffsetIndexFile.append."""
        self.add(offset, position)

    @property
    def last_offset(self):
        """The offset of the last entry, base_offset if there is none."""
        if self.entry_count == 0:
            return self.base_offset
        return self.base_offset + <int32_t>ks_get32(self.memory.block.data + (self.entry_count - 1) * OFFSET_ENTRY_SIZE)


@cython.final
cdef class TimeIndexEntries(IndexEntries):
    """Entries of a .timeindex file.  Source: Kafka TimeIndex."""

    # Returns: 1 if there is an entry more, 0 if the timestamp is that of the last entry.
    cdef int add(self, int64_t timestamp, int64_t offset, bint skip_full_check) except -1:
        cdef int64_t relative_offset = self.relative(offset)
        cdef int64_t last_timestamp = -1
        cdef uint8_t* entry = self.next_entry()
        if self.entry_count:
            last_timestamp = <int64_t>ks_get64(entry - TIME_ENTRY_SIZE)
            if relative_offset < <int32_t>ks_get32(entry - 4):
                raise ValueError(f"offset must be at least {self.last_entry[1]}, that of the last entry, got {offset}")
            if timestamp < last_timestamp:
                raise ValueError(f"timestamp_ms must be at least {last_timestamp}, that of the last entry, got {timestamp}")
        if skip_full_check and timestamp <= last_timestamp:
            return 0    # closed before
        if self.entry_count >= self.max_entries - (not skip_full_check):
            raise ValueError(f"the time index is full: at most {self.max_entries} entries, the last one for its closing")
        if timestamp <= last_timestamp:
            return 0
        ks_put64(entry, <uint64_t>timestamp)
        ks_put32(entry + 8, <uint32_t>relative_offset)
        self.entry_count += 1
        return 1

    def maybe_append(self, *, int64_t timestamp_ms, int64_t offset, bint skip_full_check=False):
        """Add an entry and return whether it was added; see TimeIndexFile.maybe_append."""
        return self.add(timestamp_ms, offset, skip_full_check) == 1

    @property
    def last_entry(self):
        """(timestamp_ms, offset) of the last entry, (-1, base_offset) if there is none."""
        cdef const uint8_t* entry
        if self.entry_count == 0:
            return -1, self.base_offset
        entry = self.memory.block.data + (self.entry_count - 1) * TIME_ENTRY_SIZE
        return <int64_t>ks_get64(entry), self.base_offset + <int32_t>ks_get32(entry + 8)


# Returns: the slot of the first entry that is not above the one before it in both numbers, or has a negative offset or
# position; -1 if all rise.
cdef int64_t find_disorder(const uint8_t* entries, int entry_size, int64_t count) noexcept nogil:
    cdef int64_t slot
    cdef int64_t key, other
    cdef int64_t last_key = INT64_MIN
    cdef int64_t last_other = -1
    if entry_size == OFFSET_ENTRY_SIZE:
        last_key = -1
    for slot in range(count):
        key = key_at(entries, entry_size, slot)
        other = <int32_t>ks_get32(entries + (slot + 1) * entry_size - 4)
        if key <= last_key or other <= last_other:
            return slot
        last_key, last_other = key, other
    return -1


def first_disordered_slot(const uint8_t[::1] entries, int entry_size):
    """Return the first slot whose entry does not rise above the one before it in both numbers, -1 if all do.

    A negative relative offset or position does not rise either.  Cost: O(entries); the GIL is released.
    """
    cdef int64_t slot
    cdef const uint8_t* start = start_of(entries)
    check_entry_size(entry_size)
    with nogil:
        slot = find_disorder(start, entry_size, entries.shape[0] // entry_size)
    return slot
