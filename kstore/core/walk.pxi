# The walk over batch headers of a .log file that finds the end of the log, an offset or a timestamp (HeaderScan), and
# the search for the next possible header after damaged bytes. Record bodies are not read.

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/types.h>
    #include <sys/uio.h>

    #if defined(RWF_NOWAIT) && defined(__linux__) && !defined(__GLIBC__)
    /* musl has it since 1.2.5, and wheels are for every musl 1.2. */
    extern __typeof__(preadv2) preadv2 __attribute__((weak));
    #define KS_HAS_PREADV2 (preadv2 != NULL)
    #else
    #define KS_HAS_PREADV2 1
    #endif

    /* Read from the page cache only, without waiting for the disk. Returns: the bytes read, or -1 and errno: EAGAIN if the
       first one is not there, ENOSYS where the system has no such call. */
    static ssize_t ks_pread_cached(int fd, void* to, size_t size, int64_t position) {
    #ifdef RWF_NOWAIT
        struct iovec part;
        if (!KS_HAS_PREADV2) { errno = ENOSYS; return -1; }
        part.iov_base = to;
        part.iov_len = size;
        return preadv2(fd, &part, 1, (off_t)position, RWF_NOWAIT);
    #else
        (void)fd, (void)to, (void)size, (void)position;
        errno = ENOSYS;
        return -1;
    #endif
    }
    """
    ssize_t ks_pread_cached(int fd, void* to, size_t size, int64_t position) nogil

cdef enum:
    # Reading one header from the page cache takes about as long as copying this many bytes.
    LEAST_BYTES_PER_HEADER_READ = 8192

cdef enum ScanState:
    SCAN_MORE
    SCAN_FOUND
    SCAN_END
    SCAN_TORN
    SCAN_ZEROS
    SCAN_CORRUPT
    SCAN_OVERFLOW

_SCAN_STATUS = {SCAN_MORE: "more", SCAN_FOUND: "found", SCAN_END: "end", SCAN_TORN: "torn", SCAN_ZEROS: "zeros",
                SCAN_CORRUPT: "corrupt", SCAN_OVERFLOW: "overflow"}

# `position` is that of the next header to read; everything before it has been walked.
cdef struct Walk:
    ScanState state
    int64_t start_position
    int64_t position
    int64_t end_position
    int64_t max_batch_bytes
    int64_t least_offset
    int64_t next_base_offset
    int64_t stop_offset
    int64_t stop_timestamp
    int32_t stop_attributes
    bint stops_by_timestamp
    int64_t batch_count
    int64_t record_count
    int64_t last_position
    int64_t last_offset
    int64_t max_timestamp
    int64_t offset_of_max_timestamp
    int32_t max_leader_epoch
    int64_t producer_ids_below
    int64_t max_producer_id
    # A bit for each magic and codec.
    uint32_t magics
    uint32_t codecs


# Starts a walk over [position, end_position) that stops only at the end and at what is no whole batch.
cdef void start_walk(Walk* w, int64_t position, int64_t end_position, int64_t least_offset, int64_t next_base_offset,
                     int64_t max_batch_bytes) noexcept nogil:
    memset(w, 0, sizeof(Walk))
    w.state = SCAN_END if position == end_position else SCAN_MORE
    w.start_position = w.position = position
    w.end_position = end_position
    w.least_offset = least_offset
    w.next_base_offset = next_base_offset
    w.max_batch_bytes = max_batch_bytes
    w.stop_offset = INT64_MAX
    w.producer_ids_below = INT64_MAX
    w.last_position = w.last_offset = w.max_timestamp = w.offset_of_max_timestamp = w.max_producer_id = -1
    w.max_leader_epoch = -1


# Requires: at least min(61, end_position - position) bytes at p. Returns: True if a batch that may be complete starts
# here, with its header loaded; else False with the reason in the state.
cdef bint check_next(Walk* w, const uint8_t* p, Header* h, Problem* problem) noexcept nogil:
    cdef int64_t left = w.end_position - w.position
    start_problem(problem, w.position)
    if left < HEADER_SIZE_UP_TO_MAGIC:
        w.state = SCAN_ZEROS if all_zero(p, left) else SCAN_TORN
        fail(problem, ZEROS_FOR_BATCH if w.state == SCAN_ZEROS else BATCH_INCOMPLETE, HEADER_SIZE_UP_TO_MAGIC, left)
        return False
    if check_frame(p, w.max_batch_bytes, problem) != OK:
        w.state = SCAN_ZEROS if problem.status == ZEROS_FOR_BATCH else SCAN_CORRUPT
        return False
    if left < least_batch_size(p[MAGIC_AT]):
        fail(problem, BATCH_INCOMPLETE, least_batch_size(p[MAGIC_AT]), left)
        w.state = SCAN_TORN
        return False
    load_header(p, h)
    if check_place(h, w.least_offset, w.next_base_offset, problem) != OK:
        w.state = SCAN_CORRUPT
        return False
    if h.size > left:
        fail(problem, BATCH_INCOMPLETE, h.size, left)
        w.state = SCAN_TORN
        return False
    return True


# Add the batch of this header to the totals and move past it.
cdef void pass_batch(Walk* w, const Header* h) noexcept nogil:
    cdef int64_t last_offset = h.base_offset + h.last_offset_delta
    w.batch_count += 1
    w.record_count += h.record_count if h.record_count > 0 else 0
    w.magics |= <uint32_t>1 << h.magic
    w.codecs |= <uint32_t>1 << (h.attributes & CODEC_MASK)
    w.last_position = w.position
    w.last_offset = last_offset
    w.least_offset = last_offset + 1
    if h.max_timestamp > w.max_timestamp:
        w.max_timestamp = h.max_timestamp
        w.offset_of_max_timestamp = last_offset
    if h.leader_epoch > w.max_leader_epoch:
        w.max_leader_epoch = h.leader_epoch
    if w.max_producer_id < h.producer_id < w.producer_ids_below:
        w.max_producer_id = h.producer_id
    w.position += h.size
    if w.position == w.end_position:
        w.state = SCAN_END


# Requires: as check_next. Returns: True if the walk continues after this batch.
cdef bint walk_one(Walk* w, const uint8_t* p, Header* h, Problem* problem) noexcept nogil:
    if not check_next(w, p, h, problem):
        return False
    if h.base_offset + h.last_offset_delta >= w.stop_offset or h.attributes & w.stop_attributes \
            or (w.stops_by_timestamp and h.max_timestamp >= w.stop_timestamp):
        w.state = SCAN_FOUND
        return False
    pass_batch(w, h)
    return w.state == SCAN_MORE


cdef void walk_chunk(Walk* w, const uint8_t* chunk, int64_t chunk_size, int64_t chunk_position, Header* h,
                     Problem* problem) noexcept nogil:
    cdef int64_t at, needed
    while w.state == SCAN_MORE:
        at = w.position - chunk_position
        needed = w.end_position - w.position
        if needed > BATCH_HEADER_SIZE:
            needed = BATCH_HEADER_SIZE
        if at < 0 or at > chunk_size or chunk_size - at < needed:
            return
        if not walk_one(w, chunk + at, h, problem):
            return


# Whether the batches so far are large enough that reading only their headers is cheaper than reading all bytes.
cdef inline bint has_large_batches(const Walk* w) noexcept nogil:
    return w.batch_count > 0 and w.position - w.start_position >= w.batch_count * LEAST_BYTES_PER_HEADER_READ


# Walks by one small read per header, as long as the batches are large and their headers are in the page cache.
cdef void walk_cached_headers(Walk* w, int fd, uint8_t* header, Header* h, Problem* problem) noexcept nogil:
    cdef int64_t needed
    while w.state == SCAN_MORE and has_large_batches(w):
        needed = min(w.end_position - w.position, <int64_t>BATCH_HEADER_SIZE)
        if ks_pread_cached(fd, header, <size_t>needed, w.position) < needed:
            return
        walk_one(w, header, h, problem)


# Requires: 26 bytes at p, frame checked, magic 0 or 1. Returns: whether the fields are consistent, as far as `size`
# bytes show.
cdef bint may_be_message(const uint8_t* p, int64_t size) noexcept nogil:
    cdef Message m
    cdef Problem problem
    cdef int64_t entry = entry_size_at(p)
    cdef int attributes = p[MESSAGE_ATTRIBUTES_AT]
    if attributes & ~(CODEC_MASK | TIMESTAMP_TYPE_MASK) or attributes & CODEC_MASK > MAX_LEGACY_CODEC_ID:
        return False
    return entry > size or parse_message(p, &m, &problem) == OK


# Returns: the first position in [at, size) where a header may start (base offset in [least_offset, most_offset],
# plausible counts), or -1.
cdef int64_t find_header(const uint8_t* p, int64_t size, int64_t at, int64_t least_offset, int64_t most_offset,
                         int64_t max_batch_bytes) noexcept nogil:
    cdef Header h
    cdef Problem problem
    while at <= size - MIN_MESSAGE_V0_SIZE:
        if p[at + MAGIC_AT] <= MAGIC_V2 and check_frame(p + at, max_batch_bytes, &problem) == OK \
                and (p[at + MAGIC_AT] < MAGIC_V2 or at <= size - BATCH_HEADER_SIZE):
            load_header(p + at, &h)
            if least_offset <= h.base_offset <= most_offset and h.last_offset_delta >= 0 \
                    and (may_be_message(p + at, size - at) if h.magic < MAGIC_V2 else h.record_count >= 0):
                return at
        at += 1
    return -1


def find_batch_header(const uint8_t[::1] buffer, Py_ssize_t at=0, *, int64_t least_offset, int64_t most_offset,
                      int64_t max_batch_bytes):
    """Return the first position from `at` on where a batch header may start, -1 if there is none.

    Finds the next batch after damaged bytes. Checks only what the header alone shows: size, magic, a base offset in
    [least_offset, most_offset], plausible counts. The caller has to check the CRC.
    Threads: the GIL is released.  Cost: O(bytes).
    """
    cdef int64_t found
    cdef const uint8_t* start = start_of(buffer)
    if at < 0:
        raise ValueError(f"at must not be negative, got {at}")
    with nogil:
        found = find_header(start, buffer.shape[0], at, least_offset, most_offset, max_batch_bytes)
    return found


cdef frozenset numbers_of(uint32_t bits):
    cdef int number
    return frozenset([number for number in range(32) if bits >> number & 1])


@cython.final
cdef class HeaderScan:
    """A walk over the batch headers in [position, end_position) of one .log file, fed chunk by chunk.

    CRCs and records are not checked. The walk stops, with this status,
    - "found": at the first batch with last_offset >= stop_offset, max_timestamp_ms >= stop_timestamp_ms or one of the
      bits of stop_attributes; `found` is then its BatchHeader;
    - "end": at end_position;
    - "torn": at a last batch that runs past end_position;
    - "zeros": at 17 zero bytes, as in preallocated space;
    - "corrupt": at an impossible header: bad size or magic, a base offset not above the last offset before it, or a
      last offset that reaches next_base_offset.
    batch_count, record_count (without the records inside wrappers of magic 0 and 1), last_position and last_offset (of
    the last batch, -1 if none), max_timestamp_ms and offset_of_max_timestamp (the last offset of the first batch that
    has it; both -1 if none), max_leader_epoch and max_producer_id (-1 if none), magics and codec_ids cover the complete
    batches before the stop, without the found one.

    Args: base_offset: the lowest valid base offset; previous_last_offset: the first base offset must be above it;
        next_base_offset: of the next segment, None for no bound; producer_ids_below: max_producer_id is the largest
        id below this one, None for all.
    Threads: not safe; feed releases the GIL.  Cost: O(headers); bodies outside a chunk are skipped.
    Source: Kafka FileLogInputStream, FileRecords.searchForOffsetWithSize.
    """

    cdef Walk w
    cdef Problem problem
    cdef object path
    cdef readonly object found

    def __cinit__(self, *, int64_t position, int64_t end_position, int64_t base_offset=0,
                  int64_t max_batch_bytes=INT32_MAX, path=None, int64_t previous_last_offset=-1,
                  next_base_offset=None, stop_offset=None, stop_timestamp_ms=None, int32_t stop_attributes=0,
                  producer_ids_below=None):
        if not 0 <= position <= end_position:
            raise ValueError(f"position must be from 0 to end_position, got {position} and {end_position}")
        start_walk(&self.w, position, end_position, max(base_offset, previous_last_offset + 1),
                   INT64_MAX if next_base_offset is None else next_base_offset, max_batch_bytes)
        self.path = path
        if stop_offset is not None:
            self.w.stop_offset = stop_offset
        self.w.stops_by_timestamp = stop_timestamp_ms is not None
        self.w.stop_timestamp = 0 if stop_timestamp_ms is None else stop_timestamp_ms
        self.w.stop_attributes = stop_attributes
        if producer_ids_below is not None:
            self.w.producer_ids_below = producer_ids_below

    def feed(self, const uint8_t[::1] chunk, int64_t position):
        """Continue the walk through chunk, whose first byte is at `position` of the file.

        Returns: the position of the next header to read. While status is "more", feed a chunk that starts there and
        holds at least 61 bytes (or everything up to end_position).
        """
        cdef Header h
        cdef const uint8_t* start = start_of(chunk)
        cdef int64_t size = chunk.shape[0]
        if self.w.state != SCAN_MORE:
            return self.w.position
        with nogil:
            walk_chunk(&self.w, start, size, position, &h, &self.problem)
        if self.w.state == SCAN_FOUND and self.found is None:
            self.found = new_header(start + (self.w.position - position), self.w.position)
        return self.w.position

    @property
    def status(self): return _SCAN_STATUS[self.w.state]
    @property
    def position(self): return self.w.position
    @property
    def batch_count(self): return self.w.batch_count
    @property
    def record_count(self): return self.w.record_count
    @property
    def last_position(self): return self.w.last_position
    @property
    def last_offset(self): return self.w.last_offset
    @property
    def magics(self): return numbers_of(self.w.magics)
    @property
    def codec_ids(self): return numbers_of(self.w.codecs)
    @property
    def max_timestamp_ms(self): return self.w.max_timestamp
    @property
    def offset_of_max_timestamp(self): return self.w.offset_of_max_timestamp
    @property
    def max_leader_epoch(self): return self.w.max_leader_epoch
    @property
    def max_producer_id(self): return self.w.max_producer_id

    @property
    def error(self):
        """The KStoreError for a stop at "corrupt", "torn" or "zeros", else None."""
        return error_of(&self.problem, self.path) if self.w.state in (SCAN_CORRUPT, SCAN_TORN, SCAN_ZEROS) else None
