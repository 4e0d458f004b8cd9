# Offset and time index. Binary search over entries of .index (8 bytes) and .timeindex (12 bytes) files, in a buffer or
# a mapped file; the entries of an index under construction (IndexEntries); and the reads that show a batch by its offset
# or a record by its timestamp, once the log has proven the index entries.

cdef enum:
    WARM_BYTES = 8192
    LANES = 16
    EVEN_ENTRIES = 1024         # rise so evenly, most of the time, that a guess misses by at most NEAR_ENTRIES
    NEAR_ENTRIES = 16
    MOST_WRONG_GUESSES = 8


cdef inline int64_t offset_key(const uint8_t* entries, int64_t slot) noexcept nogil:
    return <int32_t>ks_get32(entries + slot * OFFSET_ENTRY_SIZE)


cdef inline int64_t time_key(const uint8_t* entries, int64_t slot) noexcept nogil:
    return <int64_t>ks_get64(entries + slot * TIME_ENTRY_SIZE)


cdef inline int64_t key_at(const uint8_t* entries, int entry_size, int64_t slot) noexcept nogil:
    return offset_key(entries, slot) if entry_size == OFFSET_ENTRY_SIZE else time_key(entries, slot)


# Returns: a slot in [low, low + count) with key <= target, the greatest one if the entries rise; low if there is none.
# Has no branch on the keys, because one with a random target would be mispredicted half of the time (so the choice below
# is a conditional move, which a product with the comparison is slower than); prefetches both entries that the next step
# may need.
cdef inline int64_t floor_in(const uint8_t* entries, int entry_size, int64_t low, int64_t count,
                             int64_t target) noexcept nogil:
    cdef int64_t half
    while count > 1:
        half = count >> 1
        ks_prefetch(entries + (low + (half >> 1)) * entry_size)
        ks_prefetch(entries + (low + half + (half >> 1)) * entry_size)
        low = low + half if key_at(entries, entry_size, low + half) <= target else low
        count -= half
    return low


# Returns: the slot in [low, end) that is nearest to a guess.
cdef inline int64_t nearest_slot(double guessed, int64_t low, int64_t end) noexcept nogil:
    if not guessed > low:
        return low
    return <int64_t>guessed if guessed < end else end - 1


# Requires: count > 0. Guesses the slot of the target as if keys were evenly spread, and improves the guess `corrections`
# times by the key that is there. Returns: whether the keys NEAR_ENTRIES before and after it enclose the target; [first,
# last) are the slots between, inside of [low, low + count] whatever the keys are.
cdef inline bint guess(const uint8_t* entries, int entry_size, int64_t low, int64_t count, int64_t target, int corrections,
                       int64_t* first, int64_t* last) noexcept nogil:
    cdef int64_t end = low + count
    cdef uint64_t key = <uint64_t>key_at(entries, entry_size, low)
    # Unsigned, since two timestamps may differ by more than an int64 holds; at least 1, also if the file changes now.
    cdef uint64_t span = max(<uint64_t>key_at(entries, entry_size, end) - key, <uint64_t>1)
    cdef double slots_per_key = count / <double>span
    cdef int64_t slot = nearest_slot(low + <double>(<uint64_t>target - key) * slots_per_key, low, end)
    cdef int correction
    for correction in range(corrections):
        slot = nearest_slot(slot + (<double>target - <double>key_at(entries, entry_size, slot)) * slots_per_key, low, end)
    first[0] = max(slot - NEAR_ENTRIES, low)
    last[0] = min(slot + NEAR_ENTRIES, end)
    return (key_at(entries, entry_size, first[0]) <= target) & (key_at(entries, entry_size, last[0]) > target)


# Requires: key(low) <= target < key(low + count), also of the entries to which it halves them. Returns: as floor_in.
# Guesses among EVEN_ENTRIES; the keys by which it gets there are so few that caches hold them, which those of the last
# steps are not in.
cdef inline int64_t floor_near(const uint8_t* entries, int entry_size, int64_t low, int64_t count,
                               int64_t target) noexcept nogil:
    cdef int64_t half, first, last
    cdef bint is_above
    while count > EVEN_ENTRIES:
        half = count >> 1
        ks_prefetch(entries + (low + (half >> 1)) * entry_size)
        ks_prefetch(entries + (low + half + (half >> 1)) * entry_size)
        is_above = key_at(entries, entry_size, low + half) > target
        count = half if is_above else count - half
        low = low if is_above else low + half
    if guess(entries, entry_size, low, count, target, 0, &first, &last):
        return floor_in(entries, entry_size, first, last - first, target)
    return floor_in(entries, entry_size, low, count, target)


# Returns: the slot of the greatest key <= target in [0, count), -1 if there is none. Tries the last WARM_BYTES first,
# so that lookups near the end only touch pages that stay in memory (KAFKA-6432). Then guesses among all entries, until
# that was wrong MOST_WRONG_GUESSES times more than it was right. Args: wrong_guesses: of the searches so far, from 0.
# Cost: O(log count), whatever the entries are.
cdef int64_t floor_slot(const uint8_t* entries, int entry_size, int64_t count, int64_t target,
                        int* wrong_guesses) noexcept nogil:
    cdef int64_t first_warm = count - 1 - WARM_BYTES // entry_size
    cdef int64_t first, last
    if count == 0 or key_at(entries, entry_size, 0) > target:
        return -1
    if first_warm <= 0:
        return floor_in(entries, entry_size, 0, count, target)
    if key_at(entries, entry_size, first_warm) <= target:
        return floor_in(entries, entry_size, first_warm, count - first_warm, target)
    if wrong_guesses[0] < MOST_WRONG_GUESSES:
        if guess(entries, entry_size, 0, first_warm, target, 1, &first, &last):
            wrong_guesses[0] -= wrong_guesses[0] > 0
            return floor_in(entries, entry_size, first, last - first, target)
        wrong_guesses[0] += 1
    return floor_near(entries, entry_size, 0, first_warm, target)


# As floor_slot for LANES targets at a time, whose loads overlap.
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
    """Return the number of complete entries before the trailing all-zero ones (preallocated space).

    Threads: the GIL is released.
    """
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
    """Return (relative_offset, position) of a slot of an offset index.  Raises: IndexError."""
    cdef const uint8_t* entry = entry_at(buffer, slot, OFFSET_ENTRY_SIZE)
    return <int32_t>ks_get32(entry), <int32_t>ks_get32(entry + 4)


def time_index_entry(const uint8_t[::1] buffer, int64_t slot):
    """Return (timestamp_ms, relative_offset) of a slot of a time index.  Raises: IndexError."""
    cdef const uint8_t* entry = entry_at(buffer, slot, TIME_ENTRY_SIZE)
    return <int64_t>ks_get64(entry), <int32_t>ks_get32(entry + 8)


# Returns: whether a batch of `size` bytes gets an index entry, because the batches from that of the last entry on (or
# from the start) take more than `interval` bytes. Adds the batch to these bytes.  Source: Kafka LogSegment.append.
cdef inline bint takes_index_entry(int64_t* bytes_since, int64_t interval, int64_t size) noexcept nogil:
    cdef bint is_due = bytes_since[0] > interval
    bytes_since[0] = size if is_due else bytes_since[0] + size
    return is_due


# Requires: 8 bytes at `entry`.
cdef inline void put_offset_entry(uint8_t* entry, int64_t relative_offset, int64_t position) noexcept nogil:
    ks_put32(entry, <uint32_t>relative_offset)
    ks_put32(entry + 4, <uint32_t>position)


# Requires: 12 bytes at `entry`.
cdef inline void put_time_entry(uint8_t* entry, int64_t timestamp, int64_t relative_offset) noexcept nogil:
    ks_put64(entry, <uint64_t>timestamp)
    ks_put32(entry + 8, <uint32_t>relative_offset)


# The entries of an index under construction, in memory. Views of them never change: memory that a view may show is only
# appended to, and replaced when entries are removed.

cdef enum:
    LEAST_ENTRIES_SIZE = 4096


cdef class IndexEntries:
    """The entries of one index file in memory; the subclasses append to it.

    Attributes: base_offset, entry_count, max_entries (at least entry_count), entry_size (bytes), truncation_count (the number
        of truncations).
    Threads: one that changes it, and any number that read `content`; all under the GIL.
    """

    cdef ColumnBuffer memory
    cdef readonly int64_t base_offset
    cdef readonly int64_t entry_count
    cdef readonly int64_t max_entries
    cdef readonly int64_t truncation_count
    cdef readonly int entry_size

    def __cinit__(self, const uint8_t[::1] content, *, int64_t base_offset, int64_t max_bytes):
        self.entry_size = OFFSET_ENTRY_SIZE if isinstance(self, OffsetIndexEntries) else TIME_ENTRY_SIZE
        self.base_offset = base_offset
        self.replace_memory(max(content.shape[0], LEAST_ENTRIES_SIZE))
        self.max_entries = max_bytes // self.entry_size
        self.extend(content)

    # Moves the entries to new memory of at least `size` bytes, which no view shows.
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

    # Returns: the address of the next entry, with room for it; the caller increments entry_count.
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
        """The bytes of the current entries as a read-only view, which later changes do not affect."""
        return memoryview(self.memory)[:self.entry_count * self.entry_size]

    def extend(self, const uint8_t[::1] content):
        """Append encoded entries; their order is not checked.

        Increases max_entries, if needed, to fit them and a closing time entry.
        Raises: ValueError if the size is not a multiple of entry_size.
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
        """Remove all but the first `entry_count` entries.  Raises: ValueError if there are fewer."""
        if not 0 <= entry_count <= self.entry_count:
            raise ValueError(f"entry_count must be from 0 to {self.entry_count}, got {entry_count}")
        self.truncation_count += 1
        self.entry_count = entry_count
        self.replace_memory(max(entry_count * self.entry_size, LEAST_ENTRIES_SIZE))


@cython.final
cdef class OffsetIndexEntries(IndexEntries):
    """The entries of an .index file.  Source: Kafka OffsetIndex."""

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
        put_offset_entry(entry, relative_offset, position)
        self.entry_count += 1
        return 0

    def append(self, *, int64_t offset, int64_t position):
        """Append an entry; see OffsetIndexFile.append."""
        self.add(offset, position)

    @property
    def last_offset(self):
        """The offset of the last entry, base_offset if there is none."""
        if self.entry_count == 0:
            return self.base_offset
        return self.base_offset + <int32_t>ks_get32(self.memory.block.data + (self.entry_count - 1) * OFFSET_ENTRY_SIZE)


@cython.final
cdef class TimeIndexEntries(IndexEntries):
    """The entries of a .timeindex file.  Source: Kafka TimeIndex."""

    # Returns: 1 if an entry was appended, 0 if the timestamp is not above that of the last entry.
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
            return 0    # the index is closed already
        if self.entry_count >= self.max_entries - (not skip_full_check):
            raise ValueError(f"the time index is full: at most {self.max_entries} entries, the last one reserved for the entry at close")
        if timestamp <= last_timestamp:
            return 0
        put_time_entry(entry, timestamp, relative_offset)
        self.entry_count += 1
        return 1

    def maybe_append(self, *, int64_t timestamp_ms, int64_t offset, bint skip_full_check=False):
        """Append an entry and return whether it was appended; see TimeIndexFile.maybe_append."""
        return self.add(timestamp_ms, offset, skip_full_check) == 1

    @property
    def last_entry(self):
        """(timestamp_ms, offset) of the last entry, (-1, base_offset) if there is none."""
        cdef const uint8_t* entry
        if self.entry_count == 0:
            return -1, self.base_offset
        entry = self.memory.block.data + (self.entry_count - 1) * TIME_ENTRY_SIZE
        return <int64_t>ks_get64(entry), self.base_offset + <int32_t>ks_get32(entry + 8)


# Returns: the slot of the first entry that does not exceed the one before it in both numbers, or has a negative offset
# or position; -1 if there is none.
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
    """Return the first slot whose entry does not exceed the one before it in both numbers, -1 if there is none.

    Entries with a negative relative offset or position count as such.  Cost: O(entries); the GIL is released.
    """
    cdef int64_t slot
    cdef const uint8_t* start = start_of(entries)
    check_entry_size(entry_size)
    with nogil:
        slot = find_disorder(start, entry_size, entries.shape[0] // entry_size)
    return slot


# Lookups of a batch by offset and of a record by timestamp with one read each: which bytes to read, whether they prove
# the index entry, and what they contain. In any unusual case the caller walks headers instead.

cdef enum:
    # The largest index interval in bytes that is read at once.
    MAX_INTERVAL_BYTES = 262144
    # Bytes to read past the expected position of a record, in addition to a fraction of the batch.
    EXTRA_BYTES = 256

cdef enum ProofState:
    UNPROVEN = 0
    PROVEN      # the entry's batch is valid, and headers lead from it to the next entry's position
    LONE     # also: it is the only batch up to there, and the entry has its last offset


cdef enum StepState:
    UNCONFIRMED = 0
    CONFIRMED   # the log agrees with the entry
    CHECKED     # also: the next batch was read whole, its CRC is right, and it has magic 2 and no codec


# The readable part of a .log file.
cdef struct Readable:
    int64_t end_position
    int64_t next_base_offset
    int64_t max_batch_bytes


# A read of a .log file, from the position of the entry in a slot (-1: from the start of the segment).
cdef struct ReadPlan:
    int64_t slot
    int64_t position
    int64_t size


# Requires: chunk holds [position, next_position). Walks over it. Returns: what these bytes prove about an entry.
cdef ProofState prove_interval(Walk* w, const uint8_t* chunk, int64_t position, int64_t next_position,
                               int64_t entry_offset, int64_t base_offset, int64_t next_base_offset,
                               int64_t max_batch_bytes) noexcept nogil:
    cdef Header h
    cdef Header first
    cdef Problem problem
    start_walk(w, position, next_position, base_offset, next_base_offset, max_batch_bytes)
    if position >= next_position or not check_next(w, chunk, &first, &problem) or is_wrapper(&first) \
            or first.base_offset > entry_offset or check_stored_crc(chunk, &first, &problem) != OK:
        return UNPROVEN
    pass_batch(w, &first)
    while w.state == SCAN_MORE:
        if not check_next(w, chunk + (w.position - position), &h, &problem):
            return UNPROVEN
        pass_batch(w, &h)
    if w.state != SCAN_END or w.last_offset < entry_offset:
        return UNPROVEN
    return LONE if w.batch_count == 1 and w.last_offset == entry_offset else PROVEN


# Requires: two entries of a time index. Returns: which part of a batch that lies between them, from 0 to 1, has the
# records before a timestamp; assumes evenly spread timestamps.
cdef double part_before(const uint8_t* entry, int64_t timestamp_ms) noexcept nogil:
    cdef double since = <double>time_key(entry, 0)
    cdef double span = <double>time_key(entry, 1) - since
    cdef double part = (<double>timestamp_ms - since) / span if span > 0 else 1
    return min(max(part, 0), 1)


# Requires: as part_before. Returns: how many bytes to read of a batch of `size` bytes to find its first record at or
# after a timestamp.
cdef int64_t bytes_up_to(const uint8_t* entry, int64_t timestamp_ms, int64_t size) noexcept nogil:
    cdef double wanted = size * part_before(entry, timestamp_ms) + size / 32 + EXTRA_BYTES
    return size if wanted >= size else <int64_t>wanted


cdef extern from *:
    """
    #define KS_ALLOC(type, count) (((PyTypeObject *)(type))->tp_alloc((PyTypeObject *)(type), count))
    """
    # A new instance of a tuple type with so many items, all NULL, as the type's own tp_new allocates it.
    object alloc_of "KS_ALLOC"(object type, Py_ssize_t count)
    void PyObject_GC_UnTrack(PyObject* made)


# Requires: a new tuple without that item, which no other code has seen.
cdef inline int set_number(object made, Py_ssize_t item, int64_t number) except -1:
    cdef object value = number
    Py_INCREF(value)
    PyTuple_SET_ITEM(made, item, value)
    return 0


# kstore.types.OffsetAndTimestamp._make without an intermediate tuple.
cdef object made_answer(const OffsetAndTimestamp* found):
    answer = alloc_of(_AnswerType, 2)
    set_number(answer, 0, found.offset)
    set_number(answer, 1, found.timestamp)
    PyObject_GC_UnTrack(<PyObject*>answer)    # numbers refer to nothing
    return answer


# Returns: states of `count` slots, copied from `earlier` except for its last one, which may have changed; the rest is
# `unknown`.
cdef ColumnBuffer states_from(ColumnBuffer earlier, int64_t count, uint8_t unknown):
    cdef ColumnBuffer states = ColumnBuffer(count)
    cdef int64_t known = 0 if earlier is None else min(max(earlier.size - 1, 0), count)
    memset(states.block.data, unknown, <size_t>count)
    if known:
        memcpy(states.block.data, earlier.block.data, <size_t>known)
    return states


@cython.final
cdef class TimeIndexSearch:
    """Searches in the entries of one time index, with a record of which entries the log has confirmed.

    Args: earlier: a search in a prefix of these entries, whose record is copied.
    Lifetime: keeps a view of the entries, which must not change.
    Threads: safe.  Source: Kafka TimeIndex.
    """

    cdef const uint8_t[::1] entries
    cdef const uint8_t* start
    cdef readonly int64_t entry_count
    cdef int64_t base_offset
    cdef ColumnBuffer states
    cdef ColumnBuffer marks       # BatchMarks of the batches after the first slots
    cdef int wrong_guesses
    cdef int wrong_marks
    cdef object __weakref__

    def __cinit__(self, const uint8_t[::1] entries, *, int64_t base_offset, TimeIndexSearch earlier=None):
        self.entries = entries
        self.start = start_of(entries)
        self.entry_count = entries.shape[0] // TIME_ENTRY_SIZE
        self.base_offset = base_offset
        if earlier is not None and earlier.states is not None:
            self.states = states_from(earlier.states, self.entry_count, UNCONFIRMED)
            self.marks = earlier.marks

    cdef inline int64_t floor(self, int64_t timestamp_ms) noexcept:
        return floor_slot(self.start, TIME_ENTRY_SIZE, self.entry_count, timestamp_ms, &self.wrong_guesses)

    cdef inline int64_t offset_at(self, int64_t slot) noexcept:
        return self.base_offset + <int32_t>ks_get32(self.start + slot * TIME_ENTRY_SIZE + 8)

    cdef uint8_t* state_of(self, int64_t slot) except NULL:
        if not 0 <= slot < self.entry_count:
            raise IndexError(f"slot must be from 0 to {self.entry_count - 1}, got {slot}")
        if self.states is None:
            self.states = states_from(None, self.entry_count, UNCONFIRMED)
        return self.states.block.data + slot

    # Returns: the last mark of the batch after a slot's entry that should be before the answer, with the CRC that the
    # batch then has; 0 if there is none.
    cdef int64_t mark_for(self, int64_t slot, const LoneBatch* batch, int64_t timestamp_ms, uint32_t* crc) noexcept:
        cdef const BatchMarks* marks
        if self.marks is None or slot >= self.marks.size // <int64_t>sizeof(BatchMarks) \
                or self.wrong_marks >= MOST_WRONG_GUESSES:
            return 0
        marks = <BatchMarks*>self.marks.block.data + slot
        crc[0] = marks.crc
        return mark_before(marks, batch.size * part_before(self.start + slot * TIME_ENTRY_SIZE, timestamp_ms - 1)
                           - batch.size / 64)

    # Requires: as mark_records, the batch after the slot's entry.
    cdef int mark(self, int64_t slot, const uint8_t* data, const Header* h) except -1:
        cdef int64_t size = (self.entry_count + self.entry_count // 2) * sizeof(BatchMarks)
        cdef ColumnBuffer marks = self.marks
        if marks is None or slot >= marks.size // <int64_t>sizeof(BatchMarks):
            marks = ColumnBuffer(size)
            memset(marks.block.data, 0, <size_t>size)
            if self.marks is not None:
                memcpy(marks.block.data, self.marks.block.data, <size_t>self.marks.size)
            self.marks = marks
        mark_records(data, h, <BatchMarks*>marks.block.data + slot)
        return 0

    # Requires: a batch after the slot's entry, which is checked. Returns: whether the first record at or after both bounds
    # is in the part of the batch that it should be in.
    cdef bint find_in_batch(self, int64_t slot, const LoneBatch* batch, int64_t timestamp_ms, int64_t start_offset, reader,
                            int64_t max_batch_bytes, OffsetAndTimestamp* found) except *:
        cdef uint8_t data[MOST_BYTES_WITH_GIL]
        cdef bytes large
        cdef Header h
        cdef uint32_t crc = 0
        cdef int64_t size = bytes_up_to(self.start + slot * TIME_ENTRY_SIZE, timestamp_ms, batch.size)
        # Where a read takes long, one is better than two.
        cdef int64_t mark = self.mark_for(slot, batch, timestamp_ms, &crc) if isinstance(reader, PositionedFile) else 0
        if size > MOST_BYTES_WITH_GIL:
            large = read_at(reader, size, batch.position)
            return is_found_in(<const uint8_t*>PyBytes_AS_STRING(large), PyBytes_GET_SIZE(large), batch, timestamp_ms,
                               start_offset, max_batch_bytes, found)
        if mark > 0:
            if fill_at(reader, data, BATCH_HEADER_SIZE, batch.position) == BATCH_HEADER_SIZE \
                    and fill_at(reader, data + mark, size - mark, batch.position + mark) == size - mark \
                    and is_lone_batch(data, size, batch, timestamp_ms, max_batch_bytes, &h) and h.crc == crc \
                    and find_in_part(data, size, &h, mark, True, timestamp_ms, start_offset, found):
                self.wrong_marks -= self.wrong_marks > 0
                return True
            self.wrong_marks += 1
        size = fill_at(reader, data, size, batch.position)
        return is_found_in(data, size, batch, timestamp_ms, start_offset, max_batch_bytes, found)

    def slot_of_timestamp(self, int64_t timestamp_ms):
        """Return the slot of the greatest entry with timestamp <= the given one (ms), -1 if there is none."""
        return self.floor(timestamp_ms)

    def confirm(self, int64_t slot):
        """Record that the log agrees with a slot's entry, so that later lookups skip the check.  Raises: IndexError."""
        cdef uint8_t* state = self.state_of(slot)
        if state[0] == UNCONFIRMED:
            state[0] = CONFIRMED


@cython.final
cdef class OffsetIndexSearch:
    """Searches in the entries of one offset index, with a record of which entries the log has proven.

    Args: earlier: a search in a prefix of these entries, whose record is copied.
    Lifetime: keeps a view of the entries, which must not change.
    Threads: safe.  Source: Kafka OffsetIndex, LogSegment.translateOffset.
    """

    cdef const uint8_t[::1] entries
    cdef const uint8_t* start
    cdef readonly int64_t entry_count
    cdef int64_t base_offset
    cdef ColumnBuffer proofs
    cdef int wrong_guesses
    cdef object __weakref__

    def __cinit__(self, const uint8_t[::1] entries, *, int64_t base_offset, OffsetIndexSearch earlier=None):
        self.entries = entries
        self.start = start_of(entries)
        self.entry_count = entries.shape[0] // OFFSET_ENTRY_SIZE
        self.base_offset = base_offset
        if earlier is not None and earlier.proofs is not None:
            self.proofs = self.proofs_from(earlier.proofs)

    cdef inline int64_t floor(self, int64_t offset) noexcept:
        if offset < self.base_offset:
            return -1
        return floor_slot(self.start, OFFSET_ENTRY_SIZE, self.entry_count, offset - self.base_offset, &self.wrong_guesses)

    cdef inline int64_t position_of(self, int64_t slot, int64_t end_position) noexcept:
        if slot < 0:
            return 0
        return end_position if slot >= self.entry_count else <int32_t>ks_get32(self.start + slot * OFFSET_ENTRY_SIZE + 4)

    # One ProofState for each slot from -1 on. Slot -1 needs no proof: the segment starts with a batch.
    cdef ColumnBuffer proofs_from(self, ColumnBuffer earlier):
        cdef ColumnBuffer proofs = states_from(earlier, self.entry_count + 1, UNPROVEN)
        proofs.block.data[0] = PROVEN
        return proofs

    cdef uint8_t* proof_of(self, int64_t slot) except NULL:
        if self.proofs is None:
            self.proofs = self.proofs_from(None)
        return self.proofs.block.data + slot + 1

    def slot_of_offset(self, int64_t offset):
        """Return the slot of the greatest entry with offset <= the given one, -1 if there is none."""
        return self.floor(offset)

    def slots_of_offsets(self, const int64_t[::1] offsets):
        """Return the slot of each offset, as slot_of_offset, in a buffer of int64.

        Cost: less than one call for each, because memory accesses of several searches overlap; the GIL is released.
        """
        cdef int64_t count = offsets.shape[0]
        cdef int64_t done = 0
        cdef int lane, lanes
        cdef int64_t targets[LANES]
        cdef int64_t found[LANES]
        cdef ColumnBuffer slots = ColumnBuffer(count * sizeof(int64_t))
        cdef int64_t* out = <int64_t*>slots.block.data
        cdef const int64_t* wanted = &offsets[0] if count else NULL
        with nogil:
            while done < count:
                lanes = <int>min(count - done, LANES)
                for lane in range(LANES):
                    targets[lane] = (wanted[done + lane] - self.base_offset
                                     if lane < lanes and wanted[done + lane] >= self.base_offset else -1)
                floor_slots(self.start, OFFSET_ENTRY_SIZE, self.entry_count, targets, found)
                memcpy(out + done, found, <size_t>lanes * sizeof(int64_t))
                done += lanes
        return slots

    def slot_of_position(self, int64_t position):
        """Return the slot of the greatest entry with position <= the given one, -1 if there is none.

        Where positions fall, as in a damaged index, it is an entry that is last or whose next one has a greater position.
        Cost: O(log entries).
        """
        cdef int64_t low = 0
        cdef int64_t high = self.entry_count
        cdef int64_t middle
        while low < high:
            middle = low + (high - low) // 2
            if self.position_of(middle, 0) <= position:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def last_batch_before(self, pread, *, int64_t end_position, int64_t max_batch_bytes):
        """Return the last batch before end_position, if one read from the last entry on shows that whole batches with
        rising offsets lead there, the first of them the entry's, with a right CRC.

        Args: pread: of the .log of the last segment.
        Returns: (position, last offset, its first 61 bytes or all of a shorter one); None if the read would be larger
            than 256 KiB, comes out short or does not show it.
        Raises: what pread raises.
        """
        cdef Walk w
        cdef bytes data
        cdef int64_t slot = min(self.slot_of_position(end_position - 1), self.floor(INT64_MAX))
        cdef int64_t position = self.position_of(slot, end_position)
        if slot < 0 or not 0 <= position < end_position or end_position - position > MAX_INTERVAL_BYTES:
            return None
        data = read_at(reader_of(pread), end_position - position, position)
        if PyBytes_GET_SIZE(data) != end_position - position \
                or prove_interval(&w, <const uint8_t*>PyBytes_AS_STRING(data), position, end_position,
                                  self.base_offset + offset_key(self.start, slot), self.base_offset, INT64_MAX,
                                  max_batch_bytes) == UNPROVEN:
            return None
        position = w.last_position - position
        return w.last_position, w.last_offset, data[position:position + BATCH_HEADER_SIZE]

    # Plans the read that shows the batch of an offset: from an entry's position to the end of the first header at the
    # next entry's position; or that header alone, if the entry is proven and the offset lies after its batch. Returns:
    # False if no entry helps.
    cdef bint plan_read(self, int64_t offset, int64_t end_position, ReadPlan* plan) except -1:
        cdef int64_t slot = self.floor(offset)
        cdef int64_t position, next_position
        if slot >= 0 and slot + 1 < self.entry_count and offset > self.base_offset + offset_key(self.start, slot) \
                and self.proof_of(slot)[0] == LONE:
            slot += 1
            position = next_position = self.position_of(slot, end_position)
        else:
            position = self.position_of(slot, end_position)
            next_position = self.position_of(slot + 1, end_position)
            if position >= next_position:
                return False
        if not 0 <= position <= next_position <= end_position or position == end_position:
            return False
        plan.slot = slot
        plan.position = position
        plan.size = min(next_position + BATCH_HEADER_SIZE, end_position) - position
        return plan.size <= MAX_INTERVAL_BYTES

    # Returns: the header of the first batch with last offset >= offset, from the bytes of a plan; None if they do not
    # prove the entry or contain no such batch, in which case the entry must not be used.
    cdef BatchHeader proven_batch(self, bytes data, int64_t offset, const ReadPlan* plan, const Readable* segment):
        cdef Walk w
        cdef Header h
        cdef Problem problem
        cdef ProofState proof
        cdef const uint8_t* chunk = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef int64_t size = PyBytes_GET_SIZE(data)
        cdef int64_t slot = plan.slot
        cdef int64_t at, next_position
        cdef uint8_t* state = self.proof_of(slot)
        if state[0] == UNPROVEN and (slot == 0 or size > BATCH_HEADER_SIZE or (state - 1)[0] != LONE):
            next_position = self.position_of(slot + 1, segment.end_position)
            if next_position - plan.position > size:
                return None
            proof = prove_interval(&w, chunk, plan.position, next_position,
                                   self.base_offset + offset_key(self.start, slot), self.base_offset,
                                   segment.next_base_offset, segment.max_batch_bytes)
            if proof == UNPROVEN:
                return None
            state[0] = proof
        start_walk(&w, plan.position, segment.end_position, self.base_offset, segment.next_base_offset,
                   segment.max_batch_bytes)
        w.stop_offset = offset
        while w.state == SCAN_MORE:
            at = w.position - plan.position
            if size - at < min(BATCH_HEADER_SIZE, w.end_position - w.position) \
                    or not walk_one(&w, chunk + at, &h, &problem):
                break
        if w.state != SCAN_FOUND:
            return None
        return new_header(chunk + (w.position - plan.position), w.position)

    cdef BatchHeader batch_for(self, int64_t offset, reader, const Readable* segment):
        cdef ReadPlan plan
        if not self.plan_read(offset, segment.end_position, &plan):
            return None
        return self.proven_batch(read_at(reader, plan.size, plan.position), offset, &plan, segment)

    # Reads by a plan, which it makes. Returns: (header of the batch that batch_for finds, the bytes from plan.position
    # on), or None; the end of the batch may be missing.
    cdef tuple read_chunk(self, int64_t offset, reader, const Readable* segment, ReadPlan* plan):
        cdef bytes chunk
        cdef BatchHeader header
        if not self.plan_read(offset, segment.end_position, plan):
            return None
        if plan.size <= BATCH_HEADER_SIZE:
            plan.size = self.position_of(plan.slot + 1, segment.end_position) - plan.position
            if not 0 < plan.size <= MAX_INTERVAL_BYTES:
                return None
        chunk = read_at(reader, plan.size, plan.position)
        header = self.proven_batch(chunk, offset, plan, segment)
        return None if header is None else (header, chunk)

    # Returns: (header, bytes) of the batch that batch_for finds; the end of the bytes may be missing.
    cdef tuple read_batch(self, int64_t offset, reader, const Readable* segment):
        cdef ReadPlan plan
        cdef BatchHeader header
        cdef bytes chunk
        cdef int64_t at
        cdef tuple found = self.read_chunk(offset, reader, segment, &plan)
        if found is None:
            return None
        header, chunk = found
        at = header.position - plan.position
        return header, chunk[at:at + header.h.size]

    # Returns: (header, bytes, where in them it starts) of the batch that batch_for finds, whole and with a right CRC, if
    # its magic is 2. Copies no bytes.
    cdef tuple read_sound_batch(self, int64_t offset, reader, const Readable* segment):
        cdef Problem problem
        cdef Status status
        cdef ReadPlan plan
        cdef bytes data, start
        cdef const uint8_t* first
        cdef int64_t at, size
        cdef BatchHeader header
        cdef tuple found = self.read_chunk(offset, reader, segment, &plan)
        if found is None:
            return None
        header, data = found
        if header.h.magic != MAGIC_V2:
            return None
        at, size = header.position - plan.position, header.h.size
        if PyBytes_GET_SIZE(data) - at < size:
            start, data, at = data[at:], read_at(reader, size, header.position), 0
            if not data.startswith(start):
                return None
        start_problem(&problem, header.position)
        first, size = <const uint8_t*>PyBytes_AS_STRING(data) + at, min(size, PyBytes_GET_SIZE(data) - at)
        with nogil:
            status = check_whole_batch(first, size, &problem)
        return (header, data, at) if status == OK else None

    # Returns: the slot of the time entry that leads to the batch with the first record at or after both bounds, if the
    # entry is checked and the batch has an index interval of its own, which is then in `batch`; else -1.
    cdef int64_t checked_step(self, TimeIndexSearch steps, int64_t timestamp_ms, int64_t start_offset,
                              int64_t end_position, LoneBatch* batch) except -2:
        cdef int64_t before, after, slot
        if timestamp_ms == INT64_MIN:
            return -1
        before = steps.floor(timestamp_ms - 1)
        if before < 0 or before + 1 >= steps.entry_count or steps.state_of(before)[0] != CHECKED:
            return -1
        after = steps.offset_at(before)
        # Usually both indexes have an entry for the same batches.
        if before < self.entry_count and self.base_offset + offset_key(self.start, before) == after:
            slot = before + 1
        else:
            slot = self.floor(after) + 1
        if after < start_offset - 1 or slot <= 0 or slot + 1 >= self.entry_count \
                or self.proof_of(slot)[0] != LONE or self.proof_of(slot - 1)[0] != LONE \
                or self.base_offset + offset_key(self.start, slot - 1) != after:
            return -1
        batch.position = self.position_of(slot, end_position)
        batch.size = self.position_of(slot + 1, end_position) - batch.position
        batch.last_offset = self.base_offset + offset_key(self.start, slot)
        if batch.position < 0 or not BATCH_HEADER_SIZE < batch.size <= MAX_INTERVAL_BYTES \
                or batch.size > end_position - batch.position:
            return -1
        return before

    # Returns: the first record at or after both bounds, if a checked time entry leads to a batch with an index interval
    # of its own; else None. Reads only as much of the batch as the record should need, judging by two entries of the
    # time index and by marks; therefore the CRC, which was checked once, is not computed again.
    cdef object find_record(self, TimeIndexSearch steps, int64_t timestamp_ms, int64_t start_offset, reader,
                            const Readable* segment):
        cdef LoneBatch batch
        cdef OffsetAndTimestamp found
        cdef int64_t step = self.checked_step(steps, timestamp_ms, start_offset, segment.end_position, &batch)
        if step >= 0 and steps.find_in_batch(step, &batch, timestamp_ms, start_offset, reader, segment.max_batch_bytes, &found):
            return made_answer(&found)
        return None
