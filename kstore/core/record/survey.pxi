# Walks over the records of a batch without an object for each: the survey, which is what validation needs to know of all
# records, and the search for a timestamp.

# As kstore.record.validation.RecordSurvey. The timestamps are NO_TIMESTAMP if no record has a timestamp. is_contiguous: the offsets stored in the batch are 0, 1,
# 2..., or it is a plain message.
cdef struct RecordSurvey:
    int64_t record_count
    int64_t null_key_count
    int64_t other_magic_count
    int64_t least_timestamp
    int64_t greatest_timestamp
    bint is_contiguous

cdef enum:
    NO_TIMESTAMP = -1

cdef struct OffsetAndTimestamp:
    int64_t offset
    int64_t timestamp


cdef inline void note_record(RecordSurvey* s, int64_t timestamp, int32_t key_size) noexcept nogil:
    s.record_count += 1
    s.null_key_count += key_size < 0
    if timestamp == NO_TIMESTAMP:
        return
    if s.least_timestamp == NO_TIMESTAMP or timestamp < s.least_timestamp:
        s.least_timestamp = timestamp
    if s.greatest_timestamp == NO_TIMESTAMP or timestamp > s.greatest_timestamp:
        s.greatest_timestamp = timestamp


# Fast path: surveys leading plain records, which have short varints, no headers, contiguous offsets and timestamps that
# must be positive. Any other record, valid or not, is left to parse_record. Returns: the number of records surveyed;
# at[0] is after them.
cdef int32_t survey_plain_records(const uint8_t** at, const uint8_t* end, const Header* h, RecordSurvey* s) noexcept nogil:
    cdef const uint8_t* start = at[0]
    cdef const uint8_t* p
    cdef const uint8_t* next
    cdef int64_t least = INT64_MAX, greatest = INT64_MIN, null_keys = 0, delta
    cdef uint32_t size_code, timestamp_code, offset_code, key_code, value_code
    cdef uint32_t wanted_code = 0
    cdef int32_t i = 0
    if h.attributes & TIMESTAMP_TYPE_MASK or not INT16_MAX <= h.base_timestamp <= INT64_MAX - INT16_MAX:
        return 0
    while i < h.record_count and end - start >= PLAIN_PREFIX_SIZE:
        p = start
        size_code = short_varint(&p)
        if size_code & (LONG_VARINT | 1) or size_code >> 1 > end - p:
            break
        next = p + (size_code >> 1)
        p += 1
        timestamp_code = short_varint(&p)
        offset_code = short_varint(&p)
        key_code = short_varint(&p)
        # Halving a code gives the size, for null (code 1) also: 0.
        if timestamp_code == LONG_VARINT or offset_code != wanted_code or key_code & (LONG_VARINT | 1) > 1 \
                or next - p - 2 < key_code >> 1:
            break
        p += key_code >> 1
        value_code = short_varint(&p)
        if (key_code & 1 and key_code != 1) or (value_code & 1 and value_code != 1) \
                or next - p - 1 != value_code >> 1 or (next - 1)[0] != 0:
            break
        delta = unzigzag32(timestamp_code)
        least = delta if delta < least else least
        greatest = delta if delta > greatest else greatest
        null_keys += key_code & 1
        wanted_code += 2
        start = next
        i += 1
    if i:
        s.record_count += i
        s.null_key_count += null_keys
        s.least_timestamp = h.base_timestamp + least
        s.greatest_timestamp = h.base_timestamp + greatest
    at[0] = start
    return i


# Passes plain records of a batch with offsets below `offset`, which iteration would accept. The last record is left to
# it, since it also checks what follows that. Requires: the iterator is at the first record of a batch of magic 2.
cdef int pass_plain_records(RecordIterator it, int64_t offset) except -1:
    cdef Header h = it.h
    cdef RecordSurvey unused
    cdef const uint8_t* start = start_of(it.payload)
    cdef const uint8_t* at = start
    memset(&unused, 0, sizeof(unused))
    h.record_count = <int32_t>max(min(offset - h.base_offset, h.record_count - 1), 0)
    it.done = survey_plain_records(&at, start + it.payload.shape[0], &h, &unused)
    it.least_delta = it.done
    it.at = at - start
    return 0


# Requires: at <= end, the header checked, an empty survey. Returns: OK if the records of [at, end) are valid; they are
# then in the survey.
cdef Status survey_batch(const uint8_t* at, const uint8_t* end, const Header* h, RecordSurvey* s,
                         Problem* problem) noexcept nogil:
    cdef RawRecord raw
    cdef int32_t plain_count = survey_plain_records(&at, end, h, s)
    cdef int64_t least_delta = plain_count
    cdef int32_t i
    if plain_count:
        problem.record = plain_count - 1
    for i in range(plain_count, h.record_count):
        problem.record = i
        if parse_record(at, end, &raw, problem) != OK \
                or check_offset_delta(h, raw.offset_delta, &least_delta, problem) != OK:
            return problem.status
        if raw.offset_delta != i:
            s.is_contiguous = False
        note_record(s, timestamp_of(h, raw.timestamp_delta), raw.key_size)
        at = raw.end
    return OK if at == end else fail(problem, TRAILING_BYTES, 0, end - at)


# Requires: find_messages found complete messages in [p, p + size), or it is one plain message. Offsets are not
# checked.
cdef Status survey_message_set(const uint8_t* p, int64_t size, const Header* h, RecordSurvey* s,
                               Problem* problem) noexcept nogil:
    cdef Message m
    cdef const uint8_t* end = p + size
    while p < end:
        problem.record = s.record_count if is_wrapper(h) else -1
        if check_message_frame(p, end - p, problem) != OK or check_legacy_crc(p, entry_size_at(p), problem) != OK \
                or parse_message(p, &m, problem) != OK:
            return problem.status
        if is_wrapper(h) and m.offset != s.record_count:
            s.is_contiguous = False
        s.other_magic_count += m.magic != h.magic
        note_record(s, message_timestamp(h, &m), m.key_size)
        p += m.size
    return OK


def survey_records(RecordIterator records not None):
    """Survey all records of a batch through a fresh iterator over them, which remains usable.

    Checks the records as iteration does, except for the offsets of messages, and makes no objects for them.
    Returns: (record count, null keys, records of another magic than the batch, least timestamp, greatest timestamp,
        whether the offsets stored in the batch are 0, 1, 2...). Timestamps are in ms, -1 if no record has one. The last
        one is True for a plain message.
    Raises: InvalidRecordError; CorruptRecordError for the CRC of a message.
    Threads: the GIL is released, except for a plain message.  Cost: O(records), for magic 0 and 1 O(bytes).
    """
    cdef RecordSurvey survey
    cdef Status status
    cdef const uint8_t* start = start_of(records.payload)
    cdef const uint8_t* end = start + records.payload.shape[0]
    cdef Problem problem = records.problem
    memset(&survey, 0, sizeof(RecordSurvey))
    survey.least_timestamp = survey.greatest_timestamp = NO_TIMESTAMP
    survey.is_contiguous = True
    if records.h.magic < MAGIC_V2 and not is_wrapper(&records.h):
        # The buffer belongs to the caller, and its sizes are read more than once: keep the GIL so that no other thread
        # changes it.
        status = survey_message_set(start, records.messages.size, &records.h, &survey, &problem)
    else:
        with nogil:
            if records.h.magic < MAGIC_V2:
                status = survey_message_set(start, records.messages.size, &records.h, &survey, &problem)
            else:
                status = survey_batch(start, end, &records.h, &survey, &problem)
    if status != OK:
        raise error_of(&problem, records.path)
    return (survey.record_count, survey.null_key_count, survey.other_magic_count, survey.least_timestamp,
            survey.greatest_timestamp, bool(survey.is_contiguous))


def magics_of_records(RecordIterator records not None):
    """Return the magic of each record of a batch as bytes, through a fresh iterator over them.

    Requires: survey_records did not raise.  Raises: CorruptRecordError, InvalidRecordError if the buffer changed since.
    """
    cdef const uint8_t* p = start_of(records.payload)
    cdef const uint8_t* end = p + records.messages.size
    cdef Problem problem = records.problem
    cdef bytearray magics = bytearray()
    if records.h.magic >= MAGIC_V2:
        return bytes([records.h.magic]) * records.h.record_count
    while p < end:
        if check_message_frame(p, end - p, &problem) != OK:
            raise error_of(&problem, records.path)
        magics.append(p[MAGIC_AT])
        p += entry_size_at(p)
    return bytes(magics)


# Requires: as survey_batch. Returns: OK with the first record that has timestamp >= least_timestamp and offset >=
# least_offset, and its number in problem.record; STOPPED if there is none.
cdef Status find_timestamp(const uint8_t* at, const uint8_t* end, const Header* h, int64_t least_timestamp,
                           int64_t least_offset, OffsetAndTimestamp* found, Problem* problem) noexcept nogil:
    cdef RawRecord raw
    cdef int64_t least_delta = 0
    cdef int32_t i
    for i in range(h.record_count):
        problem.record = i
        if parse_record(at, end, &raw, problem) != OK \
                or check_offset_delta(h, raw.offset_delta, &least_delta, problem) != OK:
            return problem.status
        found.offset = h.base_offset + raw.offset_delta
        found.timestamp = timestamp_of(h, raw.timestamp_delta)
        if found.timestamp >= least_timestamp and found.offset >= least_offset:
            return OK
        at = raw.end
    return STOPPED if at == end else fail(problem, TRAILING_BYTES, 0, end - at)


def search_timestamp(RecordIterator records, *, int64_t timestamp_ms, int64_t start_offset):
    """Return (offset, timestamp_ms) of a magic 2 batch's first record at or after both bounds, None if there is none.

    Args: records: a fresh iterator over the batch.
    Raises: InvalidRecordError for an invalid record up to that one; ValueError for another magic.
    Threads: the GIL is released.  Cost: O(records), no object for each.
    """
    cdef Status status
    cdef OffsetAndTimestamp found
    cdef const uint8_t* start = start_of(records.payload)
    cdef const uint8_t* end = start + records.payload.shape[0]
    cdef Problem problem = records.problem
    if records.h.magic < MAGIC_V2:
        raise ValueError(f"magic must be 2, got {records.h.magic}")
    with nogil:
        status = find_timestamp(start, end, &records.h, timestamp_ms, start_offset, &found, &problem)
    if status == OK:
        return found.offset, found.timestamp
    if status != STOPPED:
        raise error_of(&problem, records.path)
    return None


def search_timestamp_in_batch(const uint8_t[::1] buffer, *, int64_t position, int64_t timestamp_ms, int64_t start_offset,
                              path=None):
    """Return the result of search_timestamp for one uncompressed batch of magic 2 that fills the buffer; check its CRC.

    Raises: CorruptRecordError, InvalidRecordError; ValueError for another magic or a codec.
    Threads: the GIL is released.
    """
    cdef Problem problem
    cdef Header h
    cdef Status status = OK
    cdef OffsetAndTimestamp found
    cdef const uint8_t* start = start_of(buffer)
    cdef int64_t size = buffer.shape[0]
    start_problem(&problem, position)
    if size < BATCH_HEADER_SIZE:
        status = fail(&problem, BATCH_INCOMPLETE, BATCH_HEADER_SIZE, size)
    else:
        status = check_frame(start, INT32_MAX, &problem)
    if status == OK:
        load_header(start, &h)
        if h.magic < MAGIC_V2 or h.attributes & CODEC_MASK:
            raise ValueError(f"magic must be 2 without codec, got {h.magic}, {h.attributes & CODEC_MASK}")
        with nogil:
            status = check_offsets(&h, &problem)
            if status == OK and h.size != size:
                status = fail(&problem, BATCH_INCOMPLETE, h.size, size)
            if status == OK:
                status = check_batch_crc(start, &h, &problem)
            if status == OK:
                status = check_counts(&h, size - BATCH_HEADER_SIZE, &problem)
            if status == OK:
                status = find_timestamp(start + BATCH_HEADER_SIZE, start + size, &h, timestamp_ms, start_offset, &found,
                                        &problem)
                if status == OK:
                    problem.status = OK
    if status == STOPPED:
        return None
    if status != OK:
        raise error_of(&problem, path)
    return found.offset, found.timestamp
