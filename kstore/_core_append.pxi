# One walk over the batches of an append: what a log has to know of them, without an object for each.

# The timestamps, offsets and positions are -1 where no batch has one; first_offset is, for a wrapper, that of its last
# record; disorder_position is that of the first batch that does not lie behind the one before it.
cdef struct AppendFacts:
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

# What a topic asks of records that a producer sends.
cdef struct LeaderRules:
    int64_t max_message_bytes
    int64_t before_max_ms
    int64_t after_max_ms
    bint is_compacted
    bint is_log_append_time


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
cdef Status walk_replicated(const uint8_t* p, int64_t size, int64_t max_batch_bytes, AppendFacts* f,
                            Problem* problem) noexcept nogil:
    cdef Header h
    cdef bint whole = True
    while True:
        start_problem(problem, f.size)
        if next_batch(p + f.size, size - f.size, max_batch_bytes, &h, &whole, problem) != OK:
            return problem.status
        if not whole:
            return OK
        if check_offsets(&h, problem) != OK or check_counts(&h, payload_size_of(&h), problem) != OK \
                or check_stored_crc(p + f.size, &h, problem) != OK:
            return problem.status
        note_batch(f, &h)


# Requires: attributes without bits but the transactional one. The state that a client's batch gives is whole.
cdef inline bint has_right_producer(const Header* h) noexcept nogil:
    if h.producer_id == -1:
        return h.producer_epoch == -1 and h.base_sequence == -1 and not h.attributes & TRANSACTIONAL_MASK
    return h.producer_id >= 0 and h.producer_epoch >= 0 and h.base_sequence >= 0


cdef inline bint is_near(int64_t timestamp, int64_t now_ms, const LeaderRules* rules) noexcept nogil:
    return timestamp >= 0 and -rules.after_max_ms <= now_ms - timestamp <= rules.before_max_ms


# Requires: 61 bytes at p. Returns: whether the buffer is one plain V2 batch of a client that may be appended with no more
# than new header fields; everything else, and every fault, is for the slower way to tell.
cdef bint is_plain_append(const uint8_t* p, int64_t size, int64_t now_ms, const LeaderRules* rules, Header* h,
                          Survey* survey) noexcept nogil:
    cdef Problem problem
    start_problem(&problem, 0)
    if check_frame(p, rules.max_message_bytes, &problem) != OK or p[MAGIC_AT] != MAGIC_V2:
        return False
    load_header(p, h)
    if h.size != size or h.base_offset != 0 or h.attributes & ~TRANSACTIONAL_MASK or h.record_count < 1 \
            or h.record_count - 1 != h.last_offset_delta or not has_right_producer(h):
        return False
    if check_counts(h, size - BATCH_HEADER_SIZE, &problem) != OK or check_batch_crc(p, h, &problem) != OK:
        return False
    memset(survey, 0, sizeof(Survey))
    survey.least_timestamp = survey.greatest_timestamp = NO_TIMESTAMP
    survey.is_contiguous = True
    if survey_batch(p + BATCH_HEADER_SIZE, p + size, h, survey, &problem) != OK or not survey.is_contiguous:
        return False
    if rules.is_compacted and survey.null_key_count:
        return False
    if rules.is_log_append_time or survey.greatest_timestamp == NO_TIMESTAMP:
        return survey.least_timestamp >= NO_TIMESTAMP
    return is_near(survey.least_timestamp, now_ms, rules) and is_near(survey.greatest_timestamp, now_ms, rules)


# Requires: the whole V2 batch of h at p. Sets timestamp type and largest timestamp, and the CRC if one of them changes.
cdef void put_max_timestamp(uint8_t* p, Header* h, int64_t timestamp, int type_bit) noexcept nogil:
    if h.max_timestamp == timestamp and h.attributes & TIMESTAMP_TYPE_MASK == type_bit:
        return
    h.max_timestamp = timestamp
    h.attributes = (h.attributes & ~TIMESTAMP_TYPE_MASK) | type_bit
    ks_put16(p + ATTRIBUTES_AT, <uint16_t>h.attributes)
    ks_put64(p + MAX_TIMESTAMP_AT, <uint64_t>timestamp)
    h.crc = ks_crc32c_by(BEST_PATH, 0, p + ATTRIBUTES_AT, <size_t>(h.size - ATTRIBUTES_AT))
    ks_put32(p + CRC_AT, h.crc)


# Requires: room for `size` bytes at `target`, at least 61; base_offset and now_ms not negative. Copies the records before
# they are checked, since the buffer given may change meanwhile. Returns: whether they may be appended as they are at
# `target` now; if not, f is as it was.
cdef bint put_assigned(uint8_t* target, const uint8_t* records, int64_t size, int64_t base_offset, int32_t leader_epoch,
                       int64_t now_ms, const LeaderRules* rules, AppendFacts* f) noexcept nogil:
    cdef Survey found
    cdef Header h
    bring(records, min(size, GIL_RELEASE_SIZE))    # all at once: a copy alone waits for memory line by line
    memcpy(target, records, <size_t>size)
    if not is_plain_append(target, size, now_ms, rules, &h, &found) or h.last_offset_delta >= INT64_MAX - base_offset:
        return False
    put_base_offset(target, base_offset, leader_epoch)
    if rules.is_log_append_time:
        put_max_timestamp(target, &h, now_ms, TIMESTAMP_TYPE_MASK)
    else:
        put_max_timestamp(target, &h, found.greatest_timestamp, 0)
    h.base_offset = base_offset
    h.leader_epoch = leader_epoch
    start_facts(f)
    note_batch(f, &h)
    return True


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
cdef object surveyed(object records, int64_t max_batch_bytes, AppendFacts* f, object path):
    cdef Py_buffer view
    cdef Status status
    cdef Problem problem
    start_facts(f)
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    if view.len < GIL_RELEASE_SIZE:
        status = walk_replicated(<const uint8_t*>view.buf, view.len, max_batch_bytes, f, &problem)
    else:
        with nogil:
            status = walk_replicated(<const uint8_t*>view.buf, view.len, max_batch_bytes, f, &problem)
    cdef bint is_whole = f.size == view.len
    PyBuffer_Release(&view)
    if status != OK:
        raise error_of(&problem, path)
    return records if is_whole else memoryview(records)[:f.size]


def survey_replicated(records, *, int64_t max_batch_bytes=INT32_MAX, path=None):
    """Check batches that keep their offsets, and return the AppendSurvey of the whole ones.

    An incomplete batch at the end is left out; there may be none at all.
    Raises: CorruptRecordError for a wrong CRC, size or field of a header; UnsupportedMagicError, InvalidRecordError.
    Threads: the GIL is released for 64 KiB and more.  Cost: O(bytes) for the CRC; looks at no record.
    """
    cdef AppendFacts f
    content = surveyed(records, max_batch_bytes, &f, path)
    return survey_of(&f, content)


@cython.final
cdef class LeaderAssigner:
    """What a leader does to the appends that need no more than new header fields, by the rules of one topic.

    For all others, and for what is wrong with them, there is validate_and_assign_offsets.
    Args: as those of kstore.record.validation.RecordRules of that name; max_message_bytes: of one batch.
    Threads: immutable, safe.
    """

    cdef LeaderRules rules

    def __cinit__(self, *, int64_t max_message_bytes, int64_t timestamp_before_max_ms, int64_t timestamp_after_max_ms,
                  bint is_compacted, bint is_log_append_time):
        self.rules = LeaderRules(max_message_bytes, timestamp_before_max_ms, timestamp_after_max_ms, is_compacted,
                                 is_log_append_time)

    # Fills f with what has to be known of a copy of the records with the offsets from base_offset on. Returns: the copy;
    # None if they are anything but one whole V2 batch of a client, not compressed, with nothing that a leader refuses.
    cdef object assigned(self, object records, int64_t base_offset, int32_t leader_epoch, int64_t now_ms, AppendFacts* f):
        cdef Py_buffer view
        cdef bytes copy
        cdef uint8_t* target
        cdef bint is_fit = False
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        if view.len < BATCH_HEADER_SIZE or base_offset < 0 or now_ms < 0:
            PyBuffer_Release(&view)
            return None
        try:
            copy = PyBytes_FromStringAndSize(NULL, view.len)
            target = <uint8_t*>PyBytes_AS_STRING(copy)
            if view.len < GIL_RELEASE_SIZE:
                is_fit = put_assigned(target, <const uint8_t*>view.buf, view.len, base_offset, leader_epoch, now_ms,
                                      &self.rules, f)
            else:
                with nogil:
                    is_fit = put_assigned(target, <const uint8_t*>view.buf, view.len, base_offset, leader_epoch, now_ms,
                                          &self.rules, f)
        finally:
            PyBuffer_Release(&view)
        return copy if is_fit else None
