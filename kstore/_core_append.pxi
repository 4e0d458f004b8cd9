# One walk over the batches of an append: what a log has to know of them, without an object for each.

# The timestamps, offsets and positions are -1 where no batch has one; first_offset is, for a wrapper, that of its last
# record; disorder_position is that of the first batch that does not lie behind the one before it. last_batch is the header
# of the last batch, with its final fields.
cdef struct AppendFacts:
    Header last_batch
    int64_t size
    int64_t batch_count
    int64_t first_offset
    int64_t last_offset
    int64_t max_timestamp
    int64_t offset_of_max_timestamp
    int64_t disorder_position
    int32_t leader_epoch
    bint is_one_epoch
    bint has_messages
    bint has_producers


cdef void note_batch(AppendFacts* f, const Header* h) noexcept nogil:
    cdef int64_t last_offset = h.base_offset + h.last_offset_delta
    if f.batch_count == 0:
        f.first_offset = h.base_offset
        f.leader_epoch = h.leader_epoch
    else:
        if f.leader_epoch != h.leader_epoch:
            f.is_one_epoch = False
        if h.base_offset <= f.last_offset and f.disorder_position < 0:
            f.disorder_position = f.size
    f.has_messages |= h.magic < MAGIC_V2
    f.has_producers |= h.producer_id >= 0
    f.last_offset = last_offset
    if h.max_timestamp > f.max_timestamp:
        f.max_timestamp = h.max_timestamp
        f.offset_of_max_timestamp = last_offset
    f.batch_count += 1
    f.size += h.size
    f.last_batch = h[0]


cdef void start_facts(AppendFacts* f) noexcept nogil:
    memset(f, 0, sizeof(AppendFacts))
    f.first_offset = f.last_offset = f.max_timestamp = f.offset_of_max_timestamp = f.disorder_position = -1
    f.leader_epoch = -1
    f.is_one_epoch = True


# Returns: OK with `whole` telling whether a batch lies whole at p, its header loaded; an incomplete last one is none.
cdef Status next_batch(const uint8_t* p, int64_t left, int64_t max_batch_bytes, Header* h, bint* whole,
                       Problem* problem) noexcept nogil:
    cdef int64_t size
    cdef int magic
    whole[0] = False
    if left < HEADER_SIZE_UP_TO_MAGIC:
        return OK
    magic = <int8_t>p[MAGIC_AT]
    size = <int64_t><int32_t>ks_get32(p + BATCH_LENGTH_AT) + LOG_OVERHEAD_SIZE
    if left < size <= max_batch_bytes and MAGIC_V0 <= magic <= MAGIC_V2:
        return OK
    if check_frame(p, max_batch_bytes, problem) != OK:
        return problem.status
    load_header(p, h)
    if h.size > left:
        return fail(problem, BATCH_INCOMPLETE, h.size, left)    # the size has changed since it was looked at
    whole[0] = True
    return OK


cdef inline int64_t payload_size_of(const Header* h) noexcept nogil:
    return -1 if h.attributes & CODEC_MASK else h.size - BATCH_HEADER_SIZE


# Notes every whole batch of [p, p + size), each with a right header and CRC.
cdef Status walk_replicated(const uint8_t* p, int64_t size, int64_t max_batch_bytes, int64_t position, AppendFacts* f,
                            Problem* problem) noexcept nogil:
    cdef Header h
    cdef bint whole = True
    while True:
        start_problem(problem, position + f.size)
        if next_batch(p + f.size, size - f.size, max_batch_bytes, &h, &whole, problem) != OK:
            return problem.status
        if not whole:
            return OK
        if check_offsets(&h, problem) != OK or check_counts(&h, payload_size_of(&h), problem) != OK \
                or check_stored_crc(p + f.size, &h, problem) != OK:
            return problem.status
        note_batch(f, &h)


@cython.final
cdef class AppendSurvey:
    """The whole batches of one append, and what a log has to know of them.

    records is what goes into the file. Offsets and timestamps are -1 where there are none. first_offset of a wrapper of
    magic 0 or 1 is that of its last record; max_timestamp_ms is the largest of the batches, offset_of_max_timestamp the
    last offset of the first batch that has it; leader_epoch is that of the first batch; disorder_position is where the
    first batch stands whose offsets do not lie behind those of the one before it.
    Threads: immutable, safe.
    """

    cdef AppendFacts f
    cdef readonly object records

    @property
    def size_in_bytes(self): return self.f.size
    @property
    def batch_count(self): return self.f.batch_count
    @property
    def first_offset(self): return self.f.first_offset
    @property
    def last_offset(self): return self.f.last_offset
    @property
    def max_timestamp_ms(self): return self.f.max_timestamp
    @property
    def offset_of_max_timestamp(self): return self.f.offset_of_max_timestamp
    @property
    def disorder_position(self): return self.f.disorder_position
    @property
    def leader_epoch(self): return self.f.leader_epoch
    @property
    def is_one_epoch(self): return bool(self.f.is_one_epoch)
    @property
    def has_messages(self): return bool(self.f.has_messages)
    @property
    def has_producers(self): return bool(self.f.has_producers)


cdef AppendSurvey survey_of(const AppendFacts* f, object records):
    cdef AppendSurvey survey = AppendSurvey.__new__(AppendSurvey)
    survey.f = f[0]
    survey.records = records
    return survey


# Fills f with what has to be known of the whole batches of a buffer. Returns: their bytes.
cdef object surveyed(object records, int64_t max_batch_bytes, AppendFacts* f, object path, int64_t position=0):
    cdef Py_buffer view
    cdef Status status
    cdef Problem problem
    start_facts(f)
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    if view.len < GIL_RELEASE_SIZE:
        status = walk_replicated(<const uint8_t*>view.buf, view.len, max_batch_bytes, position, f, &problem)
    else:
        with nogil:
            status = walk_replicated(<const uint8_t*>view.buf, view.len, max_batch_bytes, position, f, &problem)
    cdef bint is_whole = f.size == view.len
    PyBuffer_Release(&view)
    if status != OK:
        raise error_of(&problem, path)
    return records if is_whole else memoryview(records)[:f.size]


def survey_replicated(records, *, int64_t max_batch_bytes=INT32_MAX, path=None, int64_t position=0):
    """Check batches that keep their offsets, and return the AppendSurvey of the whole ones.

    An incomplete batch at the end is left out; there may be none at all.
    Args: path, position: of the records, for errors.
    Raises: CorruptRecordError for a wrong CRC, size or field of a header; UnsupportedMagicError, InvalidRecordError.
    Threads: the GIL is released for 64 KiB and more.  Cost: O(bytes) for the CRC; looks at no record.
    """
    cdef AppendFacts f
    content = surveyed(records, max_batch_bytes, &f, path, position)
    return survey_of(&f, content)
