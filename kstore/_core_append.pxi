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

    def info(self, *, int64_t log_append_time_ms, int64_t log_start_offset):
        """Return the fields of a LogAppendInfo of these batches."""
        return self.info_fields(log_append_time_ms, log_start_offset)

    cdef tuple info_fields(self, int64_t log_append_time_ms, int64_t log_start_offset):
        return (self.f.first_offset, self.f.last_offset, self.f.max_timestamp, log_append_time_ms, log_start_offset,
                self.f.size, False)


def survey_replicated(records, *, int64_t max_batch_bytes=INT32_MAX, path=None):
    """Check batches that keep their offsets, and return the AppendSurvey of the whole ones.

    An incomplete batch at the end is left out; there may be none at all.
    Raises: CorruptRecordError for a wrong CRC, size or field of a header; UnsupportedMagicError, InvalidRecordError.
    Threads: the GIL is released.  Cost: O(bytes) for the CRC; looks at no record.
    """
    cdef AppendSurvey survey = AppendSurvey.__new__(AppendSurvey)
    cdef const uint8_t[::1] content = records
    cdef const uint8_t* start = start_of(content)
    cdef int64_t size = content.shape[0]
    cdef Status status
    cdef Problem problem
    start_facts(&survey.f)
    with nogil:
        status = walk_replicated(start, size, max_batch_bytes, &survey.f, &problem)
    if status != OK:
        raise error_of(&problem, path)
    survey.records = records if survey.f.size == size else memoryview(records)[:survey.f.size]
    return survey


@cython.final
cdef class LeaderAssigner:
    """What a leader does to the appends that need no more than new header fields, by the rules of one topic.

    Args: as those of kstore.record.validation.RecordRules of that name; max_message_bytes: of one batch.
    Threads: immutable, safe.
    """

    cdef LeaderRules rules

    def __cinit__(self, *, int64_t max_message_bytes, int64_t timestamp_before_max_ms, int64_t timestamp_after_max_ms,
                  bint is_compacted, bint is_log_append_time):
        self.rules = LeaderRules(max_message_bytes, timestamp_before_max_ms, timestamp_after_max_ms, is_compacted,
                                 is_log_append_time)

    def assign(self, const uint8_t[::1] records, *, int64_t base_offset, int32_t partition_leader_epoch, int64_t now_ms):
        """Return the AppendSurvey of a copy with the offsets from base_offset on, None if these records ask for more.

        They are one whole V2 batch of a client, not compressed, with nothing that a leader refuses; for all others, and
        for what is wrong with them, there is validate_and_assign_offsets.
        Threads: the GIL is released.  Cost: O(bytes), no object per record.
        """
        cdef AppendSurvey survey
        cdef Survey found
        cdef Header h
        cdef const uint8_t* start = start_of(records)
        cdef uint8_t* target
        cdef int64_t size = records.shape[0]
        cdef bint is_fit
        if size < BATCH_HEADER_SIZE or base_offset < 0 or now_ms < 0:
            return None
        survey = AppendSurvey.__new__(AppendSurvey)
        survey.records = PyBytes_FromStringAndSize(NULL, size)
        target = <uint8_t*>PyBytes_AS_STRING(survey.records)
        with nogil:
            # The copy is what is checked: the buffer given may change meanwhile.
            memcpy(target, start, <size_t>size)
            is_fit = is_plain_append(target, size, now_ms, &self.rules, &h, &found) \
                and h.last_offset_delta < INT64_MAX - base_offset
            if is_fit:
                put_base_offset(target, base_offset, partition_leader_epoch)
                put_max_timestamp(target, &h, now_ms if self.rules.is_log_append_time else found.greatest_timestamp,
                                  TIMESTAMP_TYPE_MASK if self.rules.is_log_append_time else 0)
                h.base_offset = base_offset
                h.leader_epoch = partition_leader_epoch
                start_facts(&survey.f)
                note_batch(&survey.f, &h)
        return survey if is_fit else None


cdef enum:
    ENTRIES_PER_WRITE = 512


@cython.final
cdef class SegmentAppender:
    """What the segment that takes appends counts from one to the next; it keeps the entries of its indexes.

    Attributes: size_in_bytes, max_timestamp_ms and offset_of_max_timestamp (the last offset of its batch; -1 without a
    timestamp), bytes_since_last_index_entry, first_timestamp_ms (the largest of the first append, from which the age of
    the segment counts; -1 without one).
    Args: write: called with the bytes of an append; write_index_pages: called when many entries were added;
        segment_bytes, max_age_ms: beyond these a segment is rolled; created_ms: from which one without timestamps ages.
    Threads: one.  Source: Kafka LogSegment.
    """

    cdef OffsetIndexEntries offset_entries
    cdef TimeIndexEntries time_entries
    cdef object write
    cdef object write_index_pages
    cdef int64_t written_entry_count
    cdef int64_t index_interval_bytes
    cdef int64_t segment_bytes
    cdef int64_t max_age_ms
    cdef int64_t created_ms
    cdef readonly int64_t size_in_bytes
    cdef public int64_t first_timestamp_ms
    cdef readonly int64_t bytes_since_last_index_entry
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int64_t offset_of_max_timestamp

    def __cinit__(self, OffsetIndexEntries offset_entries, TimeIndexEntries time_entries, *, write, write_index_pages,
                  int64_t index_interval_bytes, int64_t segment_bytes, int64_t max_age_ms, int64_t created_ms,
                  int64_t size_in_bytes=0, int64_t first_timestamp_ms=-1, int64_t max_timestamp_ms=-1,
                  int64_t offset_of_max_timestamp=-1):
        if offset_entries is None or time_entries is None:
            raise TypeError("expected entries of both indexes, got None")
        self.offset_entries = offset_entries
        self.time_entries = time_entries
        self.write = write
        self.write_index_pages = write_index_pages
        self.written_entry_count = offset_entries.entry_count
        self.index_interval_bytes = index_interval_bytes
        self.segment_bytes = segment_bytes
        self.max_age_ms = max_age_ms
        self.created_ms = created_ms
        self.size_in_bytes = size_in_bytes
        self.first_timestamp_ms = first_timestamp_ms
        self.max_timestamp_ms = max_timestamp_ms
        self.offset_of_max_timestamp = offset_of_max_timestamp

    def should_roll(self, AppendSurvey survey not None, *, int64_t now_ms):
        """Tell whether an append has to go into another segment: for its size, the time, a full index, its offsets.

        Source: Kafka LogSegment.shouldRoll.
        """
        return self.is_outgrown(&survey.f, now_ms)

    cdef bint is_outgrown(self, const AppendFacts* f, int64_t now_ms) noexcept:
        if self.size_in_bytes > self.segment_bytes - f.size or f.last_offset - self.offset_entries.base_offset > INT32_MAX:
            return True
        if self.size_in_bytes == 0:
            return False
        if self.offset_entries.entry_count >= self.offset_entries.max_entries \
                or self.time_entries.entry_count >= self.time_entries.max_entries - 1:
            return True
        if self.first_timestamp_ms >= 0:
            return f.max_timestamp > self.first_timestamp_ms and f.max_timestamp - self.first_timestamp_ms > self.max_age_ms
        return now_ms - self.created_ms > self.max_age_ms

    # Returns: whether nothing more has to be known of the batches than the survey says, and the segment has room.
    cdef bint takes(self, const AppendFacts* f, int64_t log_end_offset, int32_t leader_epoch) noexcept:
        if f.batch_count == 0 or f.has_producers or f.has_messages or f.leader_epoch != leader_epoch \
                or not f.is_one_epoch or f.disorder_position >= 0 or f.first_offset < log_end_offset:
            return False
        return not (self.size_in_bytes and self.first_timestamp_ms < 0 or self.is_outgrown(f, 0))

    cpdef append(self, AppendSurvey survey):
        """Write the batches behind those before, and count them.

        Each batch before which more than the interval lies since the last index entry gets one. An index that is full
        gets no more; the next append rolls the segment then.
        Raises: what write raises, with nothing counted.
        """
        if survey is None:
            raise TypeError("expected an AppendSurvey, got None")
        self.write(survey.records)
        self.note(survey)
        if self.offset_entries.entry_count - self.written_entry_count >= ENTRIES_PER_WRITE:
            self.written_entry_count = self.offset_entries.entry_count
            self.write_index_pages()

    cdef int note(self, AppendSurvey survey) except -1:
        cdef const uint8_t[::1] records
        cdef const uint8_t* p
        cdef Header h
        cdef Problem problem
        cdef bint whole
        cdef int64_t at = 0
        if self.size_in_bytes == 0:
            self.first_timestamp_ms = survey.f.max_timestamp
        if survey.f.batch_count == 1:
            self.note_one(self.size_in_bytes, survey.f.size, survey.f.last_offset, survey.f.max_timestamp)
        elif survey.f.batch_count > 1:
            records = survey.records
            p = start_of(records)
            # The buffer may have changed since: what it says of sizes is looked at anew.
            while next_batch(p + at, records.shape[0] - at, INT32_MAX, &h, &whole, &problem) == OK and whole:
                self.note_one(self.size_in_bytes + at, h.size, h.base_offset + h.last_offset_delta, h.max_timestamp)
                at += h.size
        self.size_in_bytes += survey.f.size
        return 0

    cdef int note_one(self, int64_t position, int64_t size, int64_t last_offset, int64_t max_timestamp) except -1:
        if max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self.bytes_since_last_index_entry > self.index_interval_bytes:
            if self.offset_entries.entry_count < self.offset_entries.max_entries:
                self.offset_entries.add(last_offset, position)
                if self.max_timestamp_ms >= 0 and self.time_entries.entry_count < self.time_entries.max_entries - 1:
                    self.time_entries.add(self.max_timestamp_ms, self.offset_of_max_timestamp, False)
            self.bytes_since_last_index_entry = 0
        self.bytes_since_last_index_entry += size
        return 0


@cython.final
cdef class LogAppender:
    """The end of a log that takes appends: the common one in one call, and what readers see of it.

    Attributes: published ((sealed segments, active segment, its size, the log's end), replaced in one step),
    log_end_offset, log_start_offset, leader_epoch (of the last batch).
    Args: make_info: called with a type and the fields of one of it, as tuple.__new__ is; info_type.
    Threads: one appends and changes; `published` may be read by any.
    """

    cdef SegmentAppender segment
    cdef object sealed
    cdef object active
    cdef object make_info
    cdef object info_type
    cdef readonly object published
    cdef readonly int64_t log_end_offset
    cdef public int64_t log_start_offset
    cdef public int32_t leader_epoch

    def __cinit__(self, make_info, info_type, *, int64_t log_start_offset, int32_t leader_epoch):
        self.make_info = make_info
        self.info_type = info_type
        self.log_start_offset = log_start_offset
        self.leader_epoch = leader_epoch

    def publish(self, sealed, active, SegmentAppender segment not None, *, int64_t log_end_offset):
        """Go on with these segments, and let readers see them."""
        self.segment = segment
        self.sealed = sealed
        self.active = active
        self.log_end_offset = log_end_offset
        self.published = (sealed, active, segment.size_in_bytes, log_end_offset)

    def append(self, AppendSurvey survey not None, int64_t log_append_time_ms):
        """Append batches, let readers see them and return what was done; None, with nothing done, if more has to be known.

        More has to be known of batches of a producer, of another leader epoch, of magic 0 or 1, out of order or below
        the log's end, larger than a segment, or that ask for another one.
        Raises: what the segment's write raises, with nothing changed; ValueError before anything was published.
        """
        if self.segment is None:
            raise ValueError("no segment was published")
        if not self.segment.takes(&survey.f, self.log_end_offset, self.leader_epoch):
            return None
        self.segment.append(survey)
        self.log_end_offset = survey.f.last_offset + 1
        self.published = (self.sealed, self.active, self.segment.size_in_bytes, self.log_end_offset)
        return self.make_info(self.info_type, survey.info_fields(log_append_time_ms, self.log_start_offset))
