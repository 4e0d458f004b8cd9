# What validation asks of all records of a batch, without an object per record.

# The timestamps are NO_TIMESTAMP where no record has another; is_contiguous: the offset deltas are 0, 1, 2...
cdef struct Survey:
    int64_t record_count
    int64_t null_key_count
    int64_t least_timestamp
    int64_t greatest_timestamp
    bint is_contiguous

cdef enum:
    NO_TIMESTAMP = -1


cdef inline void note_record(Survey* s, int64_t timestamp, int32_t key_size) noexcept nogil:
    s.record_count += 1
    s.null_key_count += key_size < 0
    if timestamp == NO_TIMESTAMP:
        return
    if s.least_timestamp == NO_TIMESTAMP or timestamp < s.least_timestamp:
        s.least_timestamp = timestamp
    if s.greatest_timestamp == NO_TIMESTAMP or timestamp > s.greatest_timestamp:
        s.greatest_timestamp = timestamp


# Requires: at <= end, the header checked. Returns: OK with the records of [at, end) noted, every one of them right.
cdef Status survey_batch(const uint8_t* at, const uint8_t* end, const Header* h, Survey* s,
                         Problem* problem) noexcept nogil:
    cdef RawRecord raw
    cdef int64_t least_delta = 0
    cdef int32_t i
    for i in range(h.record_count):
        problem.record = i
        if parse_record(at, end, &raw, problem) != OK \
                or check_offset_delta(h, raw.offset_delta, &least_delta, problem) != OK:
            return problem.status
        if raw.offset_delta != i:
            s.is_contiguous = False
        note_record(s, timestamp_of(h, raw.timestamp_delta), raw.key_size)
        at = raw.end
    return OK if at == end else fail(problem, TRAILING_BYTES, 0, end - at)


def survey_records(RecordIterator records):
    """Return (record count, null keys, least and greatest timestamp, are the deltas 0, 1, 2...) of a fresh iterator.

    The records are checked as iterating checks them, but made into no objects; the iterator can be used afterwards.
    A timestamp (ms) is -1 where no record has another.
    Raises: InvalidRecordError.  Threads: the GIL is released.  Cost: O(records).
    """
    cdef Survey survey
    cdef Status status
    cdef const uint8_t* start = start_of(records.payload)
    cdef const uint8_t* end = start + records.payload.shape[0]
    cdef Problem problem = records.problem
    memset(&survey, 0, sizeof(Survey))
    survey.least_timestamp = survey.greatest_timestamp = NO_TIMESTAMP
    survey.is_contiguous = True
    with nogil:
        status = survey_batch(start, end, &records.h, &survey, &problem)
    if status != OK:
        raise error_of(&problem, records.path)
    return (survey.record_count, survey.null_key_count, survey.least_timestamp, survey.greatest_timestamp,
            bool(survey.is_contiguous))
