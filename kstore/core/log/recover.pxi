# Recovery of a segment: one walk over its batches that checks each CRC, rebuilds the index entries, and collects the
# headers from which producer state and leader epochs are rebuilt.

cdef struct Noted:
    int64_t position
    Header h

# `is_inside`: the header h is valid, and the CRC of its batch is computed up to crc_position, possibly over several
# chunks.
cdef struct Recovery:
    Walk w
    Header h
    bint is_inside
    int64_t crc_position
    uint32_t crc
    int64_t base_offset
    int32_t leader_epoch
    Noted* noted
    int64_t noted_count
    int64_t noted_capacity
    bint makes_entries
    int64_t index_interval
    int64_t bytes_since_last_entry
    uint8_t* offset_entries
    int64_t offset_count
    int64_t offset_capacity
    uint8_t* time_entries
    int64_t time_count
    int64_t time_capacity
    int64_t last_time


# Returns: True if the header is valid and its offsets belong to this segment.
cdef bint check_start(Recovery* r, const uint8_t* p, Problem* problem) noexcept nogil:
    if not check_next(&r.w, p, &r.h, problem):
        return False
    r.is_inside = True
    r.crc = 0
    r.crc_position = r.w.position + (MAGIC_AT if r.h.magic < MAGIC_V2 else ATTRIBUTES_AT)
    return True


# Returns: True if the whole batch was seen and is valid.
cdef bint check_content(Recovery* r, const uint8_t* chunk, int64_t chunk_size, int64_t chunk_position,
                        Problem* problem) noexcept nogil:
    cdef int64_t at = r.crc_position - chunk_position
    cdef int64_t end = r.w.position + r.h.size - chunk_position
    cdef int64_t size = (end if end < chunk_size else chunk_size) - at
    if at < 0 or size < 0:
        return False
    if r.h.magic < MAGIC_V2:
        r.crc = ks_crc32_by(BEST_PATH, r.crc, chunk + at, <size_t>size)
    else:
        r.crc = ks_crc32c_by(BEST_PATH, r.crc, chunk + at, <size_t>size)
    r.crc_position += size
    if at + size < end:
        return False
    r.is_inside = False
    if r.crc != r.h.crc:
        fail(problem, BAD_CRC, r.h.crc, r.crc)
        r.w.state = SCAN_CORRUPT
        return False
    if r.h.base_offset + r.h.last_offset_delta - r.base_offset > INT32_MAX:
        fail(problem, OFFSET_OVERFLOW, r.base_offset + INT32_MAX, r.h.base_offset + r.h.last_offset_delta)
        r.w.state = SCAN_OVERFLOW
        return False
    return True


# Requires: pass_batch was called for this batch, which starts at `position`. A full index gets no entry.
cdef void make_entries(Recovery* r, int64_t position) noexcept nogil:
    if not takes_index_entry(&r.bytes_since_last_entry, r.index_interval, r.h.size) \
            or r.offset_count >= r.offset_capacity or position > INT32_MAX:
        return
    put_offset_entry(r.offset_entries + r.offset_count * OFFSET_ENTRY_SIZE, r.w.last_offset - r.base_offset, position)
    r.offset_count += 1
    if r.w.max_timestamp <= r.last_time or r.time_count >= r.time_capacity:
        return
    put_time_entry(r.time_entries + r.time_count * TIME_ENTRY_SIZE, r.w.max_timestamp,
                   r.w.offset_of_max_timestamp - r.base_offset)
    r.time_count += 1
    r.last_time = r.w.max_timestamp


# Requires: room for one header.
cdef void note_header(Recovery* r) noexcept nogil:
    if r.h.producer_id >= 0 or r.h.attributes & CONTROL_MASK or r.h.leader_epoch != r.leader_epoch:
        r.noted[r.noted_count].position = r.w.position
        r.noted[r.noted_count].h = r.h
        r.noted_count += 1
    r.leader_epoch = r.h.leader_epoch


# Returns when the chunk is used up, the walk has ended, or there is no room for another header.
cdef void recover_chunk(Recovery* r, const uint8_t* chunk, int64_t chunk_size, int64_t chunk_position,
                        Problem* problem) noexcept nogil:
    cdef int64_t at, needed, position
    while r.w.state == SCAN_MORE and r.noted_count < r.noted_capacity:
        if not r.is_inside:
            at = r.w.position - chunk_position
            needed = r.w.end_position - r.w.position
            if needed > BATCH_HEADER_SIZE:
                needed = BATCH_HEADER_SIZE
            if at < 0 or at > chunk_size or chunk_size - at < needed or not check_start(r, chunk + at, problem):
                return
        if not check_content(r, chunk, chunk_size, chunk_position, problem):
            return
        position = r.w.position
        note_header(r)
        pass_batch(&r.w, &r.h)
        if r.makes_entries:
            make_entries(r, position)


@cython.final
cdef class RecoveryWalk:
    """A walk over the batches of [0, end_position) of one .log file, fed chunk by chunk, that checks each CRC.

    Stops as HeaderScan does, and in addition at a wrong CRC or offsets that reach next_base_offset ("corrupt"), and at
    a valid batch more than 2147483647 offsets above base_offset ("overflow"). position is then the end of the valid
    batches; the other properties describe these, and leader_epoch is that of the last one.

    Args: offset_entries, time_entries: both or neither; they get the entries that Kafka's recovery writes: one for each
        batch that starts more than index_interval_bytes after that of the last entry (or the start), until the index is
        full. The caller appends the closing entry of the time index.
    Threads: not safe; feed releases the GIL, and nothing else may use the entries during it.
    Cost: O(bytes); memory only for noted headers.  Source: Kafka LogSegment.recover.
    """

    cdef Recovery r
    cdef Problem problem
    cdef object path
    cdef OffsetIndexEntries offset_entries
    cdef TimeIndexEntries time_entries

    def __cinit__(self, *, int64_t end_position, int64_t base_offset, next_base_offset=None,
                  int64_t max_batch_bytes=INT32_MAX, path=None, int64_t index_interval_bytes=4096,
                  OffsetIndexEntries offset_entries=None, TimeIndexEntries time_entries=None):
        if end_position < 0:
            raise ValueError(f"end_position must not be negative, got {end_position}")
        if (offset_entries is None) != (time_entries is None):
            raise ValueError("offset_entries and time_entries must both be given, or neither")
        memset(&self.r, 0, sizeof(Recovery))
        self.path = path
        self.offset_entries, self.time_entries = offset_entries, time_entries
        start_walk(&self.r.w, 0, end_position, max(base_offset, 0),
                   INT64_MAX if next_base_offset is None else next_base_offset, max_batch_bytes)
        self.r.base_offset = base_offset
        self.r.leader_epoch = -1
        self.r.index_interval = index_interval_bytes

    def __dealloc__(self):
        free(self.r.noted)

    cdef int grow_noted(self) except -1:
        cdef int64_t capacity = max(64, 2 * self.r.noted_capacity)
        cdef Noted* noted = <Noted*>realloc(self.r.noted, <size_t>capacity * sizeof(Noted))
        if noted == NULL:
            raise MemoryError(f"no memory for {capacity} batch headers")
        self.r.noted = noted
        self.r.noted_capacity = capacity
        return 0

    # Reserves the most entries that a chunk can need.
    cdef int lend_entries(self, int64_t chunk_size) except -1:
        cdef int64_t most = chunk_size // max(self.r.index_interval, MIN_MESSAGE_V0_SIZE) + 2
        if self.offset_entries is None:
            return 0
        self.r.makes_entries = True
        self.r.offset_entries = self.offset_entries.reserve(most)
        self.r.offset_count = self.offset_entries.entry_count
        self.r.offset_capacity = min(self.offset_entries.max_entries, self.r.offset_count + most)
        self.r.time_entries = self.time_entries.reserve(most)
        self.r.time_count = self.time_entries.entry_count
        self.r.time_capacity = min(self.time_entries.max_entries - 1, self.r.time_count + most)
        self.r.last_time = self.time_entries.last_entry[0]
        return 0

    def feed(self, const uint8_t[::1] chunk, int64_t position):
        """Continue the walk through chunk, whose first byte is at `position` of the file.

        Returns: the position to read next, inside a batch or at a header. While status is "more", feed a chunk that
            starts there and holds at least 61 bytes (or everything up to end_position).
        Raises: MemoryError.
        """
        cdef const uint8_t* start = start_of(chunk)
        cdef int64_t size = chunk.shape[0]
        self.lend_entries(size)
        while True:
            if self.r.noted_count == self.r.noted_capacity:
                self.grow_noted()
            with nogil:
                recover_chunk(&self.r, start, size, position, &self.problem)
            if self.r.w.state != SCAN_MORE or self.r.noted_count < self.r.noted_capacity:
                break
        if self.r.makes_entries:
            self.offset_entries.entry_count = self.r.offset_count
            self.time_entries.entry_count = self.r.time_count
        return self.next_position

    def take_headers(self):
        """Return the headers noted since the last call, in order, as BatchHeaders.

        These are batches with a producer id, control batches, and those whose leader epoch differs from the previous
        batch.
        """
        cdef int64_t i
        cdef BatchHeader header
        cdef list headers = []
        for i in range(self.r.noted_count):
            header = BatchHeader.__new__(BatchHeader)
            header.h = self.r.noted[i].h
            header.position = self.r.noted[i].position
            headers.append(header)
        self.r.noted_count = 0
        return headers

    @property
    def next_position(self):
        """The position at which the next chunk has to start."""
        return self.r.crc_position if self.r.is_inside else self.r.w.position

    @property
    def status(self): return _SCAN_STATUS[self.r.w.state]
    @property
    def position(self): return self.r.w.position
    @property
    def end_position(self): return self.r.w.end_position
    @property
    def batch_count(self): return self.r.w.batch_count
    @property
    def record_count(self): return self.r.w.record_count
    @property
    def last_offset(self): return self.r.w.last_offset
    @property
    def max_timestamp_ms(self): return self.r.w.max_timestamp
    @property
    def offset_of_max_timestamp(self): return self.r.w.offset_of_max_timestamp
    @property
    def leader_epoch(self): return self.r.leader_epoch

    @property
    def error(self):
        """The KStoreError for a stop before the end, else None."""
        return None if self.r.w.state in (SCAN_MORE, SCAN_END) else error_of(&self.problem, self.path)
