# Appends of batches. One walk over the batches of an append collects the facts that a log needs (AppendSurvey), without
# an object for each batch; LeaderAssigner gives the batches of a client their offsets, timestamp type and leader epoch,
# where nothing but header fields has to change.

# The facts of an AppendSurvey. last_batch is the header of the last batch, with its final fields.
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


cdef inline int64_t payload_size_of(const Header* h) noexcept nogil:
    return -1 if h.attributes & CODEC_MASK else h.size - BATCH_HEADER_SIZE


# Collects the facts of all complete batches in [p, p + size); checks header and CRC of each.
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
    """The complete batches of one append, and the facts of them that a log needs.

    records are the bytes to write. Offsets and timestamps are -1 if there are none. first_offset of a wrapper of magic
    0 or 1 is that of its last record. max_timestamp_ms is the largest of all batches, offset_of_max_timestamp the last
    offset of the first batch that has it. leader_epoch is that of the first batch; is_one_epoch: all batches have it.
    disorder_position is that of the first batch whose offsets do not follow those of the batch before (-1: none).
    has_messages: some have magic 0 or 1; has_producers: some have a producer id.
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


# Fills f with the facts of the complete batches of a buffer. Returns: the bytes of these batches.
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
    """Check batches that keep their offsets, and return the AppendSurvey of the complete ones.

    An incomplete batch at the end is left out; the result may have no batch at all.
    Args: path, position: those of the records, for errors.
    Raises: CorruptRecordError for a wrong CRC, size or header field; UnsupportedMagicError, InvalidRecordError.
    Threads: the GIL is released for 64 KiB and more.  Cost: O(bytes) for the CRC; reads no record.
    """
    cdef AppendFacts f
    content = surveyed(records, max_batch_bytes, &f, path, position)
    return survey_of(&f, content)


# The leader's append of batches of clients that need nothing but new header fields.

cdef enum:
    MOST_KEPT_CONTENT = 1048576
    ASSIGNED_SIZE = 17            # size of a header from base offset to magic: the fields that the log assigns

# The result for a batch: left to the slow path; offsets assigned; or its content needs a codec from a Python package.
cdef enum Assigned:
    NOT_ASSIGNED
    IS_ASSIGNED
    NEEDS_CODEC

# The rules of LeaderAssigner for records of producers. codec is the one that records must have, -1 for any.
cdef struct AssignerRules:
    int64_t max_message_bytes
    int64_t before_max_ms
    int64_t after_max_ms
    int64_t max_decompressed_bytes
    int codec
    bint is_compacted
    bint is_log_append_time

# The fields to assign to a batch.
cdef struct Assignment:
    int64_t base_offset
    int64_t now_ms
    int32_t leader_epoch

# Memory for the content of one compressed batch, reused for the next.
cdef struct ContentRoom:
    uint8_t* data
    int64_t capacity


# Returns: whether the producer fields are those of a batch without a producer id, whose other producer fields mean
# nothing, or of an idempotent one. The epoch is left to the producer state.
cdef inline bint has_right_producer(const Header* h) noexcept nogil:
    return h.producer_id < 0 or h.base_sequence >= 0


cdef inline bint is_near(int64_t timestamp, int64_t now_ms, const AssignerRules* rules) noexcept nogil:
    return timestamp >= 0 and -rules.after_max_ms <= now_ms - timestamp <= rules.before_max_ms


# Requires: 61 bytes at p. Returns: whether the buffer is one V2 batch of a client whose header allows an append with
# nothing but new header fields. Everything else, and every error, is left to the slow path.
cdef bint is_plain_header(const uint8_t* p, int64_t size, const AssignerRules* rules, Header* h) noexcept nogil:
    cdef Problem problem
    start_problem(&problem, 0)
    if check_frame(p, rules.max_message_bytes, &problem) != OK or p[MAGIC_AT] != MAGIC_V2:
        return False
    load_header(p, h)
    if h.size != size or h.base_offset != 0 or h.attributes & ~(TRANSACTIONAL_MASK | CODEC_MASK) or h.record_count < 1 \
            or h.record_count - 1 != h.last_offset_delta or not has_right_producer(h):
        return False
    if h.attributes & CODEC_MASK != rules.codec and rules.codec >= 0:
        return False
    return check_counts(h, payload_size_of(h), &problem) == OK


# As is_plain_header, with a right CRC.
cdef bint is_plain_append(const uint8_t* p, int64_t size, const AssignerRules* rules, Header* h) noexcept nogil:
    cdef Problem problem
    start_problem(&problem, 0)
    return is_plain_header(p, size, rules, h) and check_batch_crc(p, h, &problem) == OK


# Requires: a survey of all records, whose offsets are 0, 1, 2...; a timestamp is -1 if no record has one. Returns:
# whether the topic's rules accept the records.
cdef bint are_accepted(int64_t least_timestamp, int64_t greatest_timestamp, bint has_null_key, int64_t now_ms,
                       const AssignerRules* rules) noexcept nogil:
    if rules.is_compacted and has_null_key:
        return False
    if rules.is_log_append_time or greatest_timestamp == NO_TIMESTAMP:
        return least_timestamp >= NO_TIMESTAMP
    return is_near(least_timestamp, now_ms, rules) and is_near(greatest_timestamp, now_ms, rules)


# Requires: is_plain_append; the batch's decompressed content at p. Returns: whether the records are valid, have the
# offsets 0, 1, 2... and are all accepted by the topic's rules.
cdef bint is_plain_content(const uint8_t* p, int64_t size, int64_t now_ms, const AssignerRules* rules, const Header* h,
                           RecordSurvey* survey) noexcept nogil:
    cdef Problem problem
    start_problem(&problem, 0)
    memset(survey, 0, sizeof(RecordSurvey))
    survey.least_timestamp = survey.greatest_timestamp = NO_TIMESTAMP
    survey.is_contiguous = True
    if check_counts(h, size, &problem) != OK or survey_batch(p, p + size, h, survey, &problem) != OK \
            or not survey.is_contiguous:
        return False
    return are_accepted(survey.least_timestamp, survey.greatest_timestamp, survey.null_key_count > 0, now_ms, rules)


# Requires: the header of the V2 batch of h at p, its other bytes at rest. Sets timestamp type and largest timestamp, and the
# CRC if either changes.
cdef void put_max_timestamp(uint8_t* p, const uint8_t* rest, Header* h, int64_t timestamp, int type_bit) noexcept nogil:
    if h.max_timestamp == timestamp and h.attributes & TIMESTAMP_TYPE_MASK == type_bit:
        return
    h.max_timestamp = timestamp
    h.attributes = (h.attributes & ~TIMESTAMP_TYPE_MASK) | type_bit
    ks_put16(p + ATTRIBUTES_AT, <uint16_t>h.attributes)
    ks_put64(p + MAX_TIMESTAMP_AT, <uint64_t>timestamp)
    h.crc = ks_crc32c_by(BEST_PATH, 0, p + ATTRIBUTES_AT, BATCH_HEADER_SIZE - ATTRIBUTES_AT)
    h.crc = ks_crc32c_by(BEST_PATH, h.crc, rest, <size_t>(h.size - BATCH_HEADER_SIZE))
    ks_put32(p + CRC_AT, h.crc)


# Returns: IS_ASSIGNED with room for `size` bytes and BLOCK_MARGIN; NOT_ASSIGNED without memory.
cdef Assigned make_room(ContentRoom* room, int64_t size) noexcept nogil:
    cdef int64_t capacity = size + BLOCK_MARGIN
    if capacity > room.capacity:
        free(room.data)
        room.data = <uint8_t*>malloc(<size_t>capacity)
        room.capacity = capacity if room.data != NULL else 0
    return IS_ASSIGNED if room.data != NULL else NOT_ASSIGNED


cdef void free_if_large(ContentRoom* room) noexcept nogil:
    if room.capacity > MOST_KEPT_CONTENT:
        free(room.data)
        room.data = NULL
        room.capacity = 0


# Requires: is_plain_append, a codec. Returns: IS_ASSIGNED with the decompressed content in room, its size in size[0].
cdef Assigned decompress_content(const uint8_t* p, const Header* h, const AssignerRules* rules, ContentRoom* room,
                                 int64_t* size) noexcept nogil:
    cdef int codec = h.attributes & CODEC_MASK
    cdef const uint8_t* payload = p + BATCH_HEADER_SIZE
    cdef int64_t n = h.size - BATCH_HEADER_SIZE
    cdef int64_t limit = rules.max_decompressed_bytes
    cdef Frame frame
    if not copies_blocks(codec):
        return NEEDS_CODEC
    if check_blocks(codec, payload, n, MAGIC_V2, limit, &frame) != FRAME_OK or make_room(room, frame.room) != IS_ASSIGNED:
        return NOT_ASSIGNED
    if decompress_checked(codec, payload, n, limit, room.data, &frame) != FRAME_OK or frame.found > limit:
        return NOT_ASSIGNED
    size[0] = frame.found
    return IS_ASSIGNED


# Requires: the header of h at header, the other bytes of the batch at rest, its decompressed content at content. Assigns
# offsets to the header and fills f, if the content is valid and accepted; else f is unchanged.
cdef Assigned assign_content(uint8_t* header, const uint8_t* rest, Header* h, const uint8_t* content, int64_t size,
                             const Assignment* given, const AssignerRules* rules, AppendFacts* f) noexcept nogil:
    cdef RecordSurvey found
    if not is_plain_content(content, size, given.now_ms, rules, h, &found) \
            or h.last_offset_delta >= INT64_MAX - given.base_offset:
        return NOT_ASSIGNED
    put_base_offset(header, given.base_offset, given.leader_epoch)
    if rules.is_log_append_time:
        put_max_timestamp(header, rest, h, given.now_ms, TIMESTAMP_TYPE_MASK)
    else:
        put_max_timestamp(header, rest, h, found.greatest_timestamp, 0)
    h.base_offset = given.base_offset
    h.leader_epoch = given.leader_epoch
    start_facts(f)
    note_batch(f, h)
    return IS_ASSIGNED


# Requires: at least 61 bytes at p that do not change during the call; base_offset and now_ms not negative. Returns: IS_ASSIGNED
# if the batch is ready to append with the header that is then at `header`, which may be p; else f is unchanged.
cdef Assigned check_and_assign(const uint8_t* p, int64_t size, uint8_t* header, const Assignment* given,
                               const AssignerRules* rules, ContentRoom* room, AppendFacts* f) noexcept nogil:
    cdef Header h
    cdef Assigned outcome
    cdef const uint8_t* rest = p + BATCH_HEADER_SIZE
    cdef int64_t content_size = 0
    if not is_plain_append(p, size, rules, &h):
        return NOT_ASSIGNED
    if header != p:
        memcpy(header, p, BATCH_HEADER_SIZE)
    if not h.attributes & CODEC_MASK:
        return assign_content(header, rest, &h, rest, size - BATCH_HEADER_SIZE, given, rules, f)
    outcome = decompress_content(p, &h, rules, room, &content_size)
    if outcome == IS_ASSIGNED:
        outcome = assign_content(header, rest, &h, room.data, content_size, given, rules, f)
    free_if_large(room)
    return outcome


# As check_and_assign, for a copy of the records that begins at `target`: another thread may change the given buffer.
cdef Assigned copy_and_assign(uint8_t* target, const uint8_t* records, int64_t size, const Assignment* given,
                              const AssignerRules* rules, ContentRoom* room, AppendFacts* f) noexcept nogil:
    memcpy(target, records, <size_t>size)
    return check_and_assign(target, size, target, given, rules, room, f)


# As copy_and_assign for a sealed batch at p, whose bytes do not change: only f gets the assigned fields. Requires: no
# LogAppendTime.
cdef Assigned assign_sealed(const uint8_t* p, const SealedBatch* sealed, const Assignment* given,
                            const AssignerRules* rules, AppendFacts* f) noexcept nogil:
    cdef Header h
    if not is_plain_header(p, sealed.size, rules, &h) or h.last_offset_delta >= INT64_MAX - given.base_offset \
            or not are_accepted(sealed.least_timestamp, h.max_timestamp, sealed.has_null_key, given.now_ms, rules):
        return NOT_ASSIGNED
    h.base_offset = given.base_offset
    h.leader_epoch = given.leader_epoch
    start_facts(f)
    note_batch(f, &h)
    return IS_ASSIGNED

# One of several batches of a client that are appended together. sealed: NULL if its bytes have to be checked.
cdef struct SentBatch:
    Py_buffer view
    const SealedBatch* sealed
    AppendFacts f


# Requires: a batch that follows those of `all`, in the same epoch.
cdef void join_facts(AppendFacts* all, const AppendFacts* f) noexcept nogil:
    if all.batch_count == 0:
        all[0] = f[0]
    else:
        note_batch(all, &f.last_batch)


# Moves on to the batch after one with assigned offsets.
cdef inline void advance_past(const AppendFacts* f, int64_t* at, Py_ssize_t* done, Assignment* given) noexcept nogil:
    at[0] += f.size
    given.base_offset = f.last_offset + 1
    done[0] += 1


# Requires: room at data + at[0] for all views from done[0] on that are not sealed. Returns: IS_ASSIGNED if all of these
# are copied there with offsets (for sealed ones, f has the offsets); else the result for batch number done[0].
cdef Assigned assign_some(uint8_t* data, int64_t* at, SentBatch* sent, Py_ssize_t count, Py_ssize_t* done, Assignment* given,
                          const AssignerRules* rules, ContentRoom* room) noexcept nogil:
    cdef SentBatch* one
    cdef Assigned outcome
    while done[0] < count:
        one = &sent[done[0]]
        if one.view.len < BATCH_HEADER_SIZE:
            return NOT_ASSIGNED
        if one.sealed != NULL:
            outcome = assign_sealed(<const uint8_t*>one.view.buf, one.sealed, given, rules, &one.f)
        else:
            outcome = copy_and_assign(data + at[0], <const uint8_t*>one.view.buf, one.view.len, given, rules, room, &one.f)
        if outcome != IS_ASSIGNED:
            return outcome
        advance_past(&one.f, at, done, given)
    return IS_ASSIGNED


# Requires: sealed batches with assigned offsets. Returns: their bytes as buffers: a new one for the assigned fields, a
# view for the rest of each.
cdef list parts_of(SentBatch* sent, Py_ssize_t count):
    cdef list parts = []
    cdef bytes assigned
    cdef uint8_t* at
    cdef Py_ssize_t i
    for i in range(count):
        assigned = PyBytes_FromStringAndSize(<const char*>sent[i].view.buf, ASSIGNED_SIZE)
        at = <uint8_t*>PyBytes_AS_STRING(assigned)
        put_base_offset(at, sent[i].f.first_offset, sent[i].f.leader_epoch)
        parts.append(assigned)
        parts.append(part_of(<ColumnBuffer>sent[i].view.obj, ASSIGNED_SIZE))
    return parts


@cython.final
cdef class LeaderAssigner:
    """Assigns offsets to appends that need nothing but new header fields, by the rules of one topic.

    All other appends, and errors, are left to validate_and_assign_offsets.
    Args: those of kstore.record.validation.RecordRules with the same names; max_message_bytes: of one batch; codec_id:
        the codec that records must have, -1 for any; decompress(codec, payload, limit): for codecs of Python packages,
        None to leave these to the slow path; max_decompressed_bytes: the limit for decompress.
    Threads: immutable, safe.
    """

    cdef AssignerRules rules
    cdef object decompress

    def __cinit__(self, *, int64_t max_message_bytes, int64_t timestamp_before_max_ms, int64_t timestamp_after_max_ms,
                  bint is_compacted, bint is_log_append_time, int codec_id=0, int64_t max_decompressed_bytes=INT32_MAX,
                  decompress=None):
        self.rules = AssignerRules(max_message_bytes, timestamp_before_max_ms, timestamp_after_max_ms,
                                   max_decompressed_bytes, codec_id, is_compacted, is_log_append_time)
        self.decompress = decompress

    # Fills f with the facts of the records, with offsets assigned. Returns: what to write; None unless the records are one
    # complete V2 batch of a client that the rules accept and that needs no rebuild.
    cdef StampedBatch assigned(self, object records, const Assignment* given, ContentRoom* room, AppendFacts* f):
        cdef StampedBatch batch = StampedBatch.__new__(StampedBatch)
        cdef Assigned outcome
        cdef const uint8_t* p
        batch.take(records)
        if batch.size < BATCH_HEADER_SIZE or given.base_offset < 0 or given.now_ms < 0:
            return None
        p = batch.data
        if batch.size < GIL_RELEASE_SIZE:
            outcome = check_and_assign(p, batch.size, batch.header, given, &self.rules, room, f)
        else:
            with nogil:
                outcome = check_and_assign(p, batch.size, batch.header, given, &self.rules, room, f)
        if outcome == NEEDS_CODEC:
            outcome = self.assign_by_package(batch.rest_from(0), 0, batch.header, given, f)
        return batch if outcome == IS_ASSIGNED else None

    # Requires: check_and_assign returned NEEDS_CODEC for the batch at `at` in records, and has copied its header.
    cdef Assigned assign_by_package(self, object records, int64_t at, uint8_t* header, const Assignment* given,
                                    AppendFacts* f) except *:
        cdef Header h
        cdef const Py_buffer* content
        cdef const Py_buffer* rest
        cdef Assigned outcome
        if self.decompress is None:
            return NOT_ASSIGNED
        load_header(header, &h)
        payload = memoryview(records)[at + BATCH_HEADER_SIZE:at + h.size]
        try:
            decompressed = self.decompress(h.attributes & CODEC_MASK, payload, self.rules.max_decompressed_bytes)
        except (DecompressionError, UnsupportedCompressionTypeError):
            return NOT_ASSIGNED
        view = memoryview(decompressed)
        content = bytes_of(view)
        rest = bytes_of(payload)
        with nogil:
            outcome = assign_content(header, <const uint8_t*>rest.buf, &h, <const uint8_t*>content.buf, content.len,
                                     given, &self.rules, f)
        return outcome
