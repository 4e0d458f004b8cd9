# The first record of a batch at or after a timestamp, in a part of the batch: from its start on, or from a mark on, which
# an earlier search has set where a record starts.

cdef enum:
    # A record's size, attributes, timestamp and offset, if no varint has more than 2 bytes.
    SHORT_START_BYTES = 7
    RECORD_MARKS = 14
    # To read a header by itself takes as long as to read on for this many bytes.
    LEAST_SKIPPED_BYTES = 4096


# Where some records start in a checked batch of less than 64 KiB, in bytes from its start, rising, one in each of equal
# parts (0: no more); none of the records before has a later timestamp. crc: that in the header of the batch.
cdef struct BatchMarks:
    uint32_t crc
    uint16_t places[RECORD_MARKS]


# The batch that is all of the interval after an index entry.
cdef struct LoneBatch:
    int64_t position
    int64_t size
    int64_t last_offset


# Requires: the whole plain batch of h at data, with a right CRC. Marks records of it, up to the first one that is not
# valid or has an earlier timestamp than one before it.
cdef void mark_records(const uint8_t* data, const Header* h, BatchMarks* marks) noexcept nogil:
    cdef RawRecord raw
    cdef Problem problem
    cdef const uint8_t* at = data + BATCH_HEADER_SIZE
    cdef int64_t latest = INT64_MIN, timestamp
    cdef int32_t i, mark = 0
    memset(marks, 0, sizeof(BatchMarks))
    marks.crc = h.crc
    start_problem(&problem, 0)
    if h.size > UINT16_MAX:
        return
    for i in range(h.record_count):
        if parse_record(at, data + h.size, &raw, &problem) != OK:
            return
        timestamp = timestamp_of(h, raw.timestamp_delta)
        if timestamp < latest:
            return
        if mark < RECORD_MARKS and at - data >= (mark + 1) * h.size // (RECORD_MARKS + 1):
            marks.places[mark] = <uint16_t>(at - data)
            mark += 1
        latest = timestamp
        at = raw.end


# Returns: the last mark at or before a place, 0 if there is none or too few bytes precede it.
cdef int64_t mark_before(const BatchMarks* marks, double place) noexcept nogil:
    cdef int i
    cdef int64_t last = 0
    for i in range(RECORD_MARKS):
        if marks.places[i] == 0 or marks.places[i] > place:
            break
        last = marks.places[i]
    return last if last >= LEAST_SKIPPED_BYTES else 0


# Fast path: skips records with short varints before the first one at or after a timestamp. place, least_delta: the
# position and least offset delta of the next record. Returns: the number skipped; find_in_part examines the record that
# stopped it.
cdef int32_t pass_earlier(const uint8_t* data, int64_t read_size, const Header* h, int64_t timestamp_ms, int64_t start_offset,
                          int64_t* place, int64_t* least_delta) noexcept nogil:
    cdef bint appended = h.attributes & TIMESTAMP_TYPE_MASK != 0
    cdef int64_t base_timestamp = h.max_timestamp if appended else h.base_timestamp
    cdef int64_t delta_mask = 0 if appended else -1
    cdef int64_t at = place[0], least = least_delta[0], offset_delta, next_at
    cdef const uint8_t* p
    cdef uint32_t size_code, timestamp_code, offset_code
    cdef int32_t passed = 0
    if not INT16_MAX <= base_timestamp <= INT64_MAX - INT16_MAX:
        return 0
    while passed < h.record_count and read_size - at >= SHORT_START_BYTES:
        p = data + at
        size_code = short_varint(&p)
        next_at = (p - data) + (size_code >> 1)
        p += 1
        timestamp_code = short_varint(&p)
        offset_code = short_varint(&p)
        offset_delta = offset_code >> 1
        if (size_code | offset_code) & (LONG_VARINT | 1) or timestamp_code & LONG_VARINT or p - data > next_at \
                or next_at > h.size or offset_delta < least or offset_delta > h.last_offset_delta \
                or (base_timestamp + (unzigzag32(timestamp_code) & delta_mask) >= timestamp_ms
                    and h.base_offset + offset_delta >= start_offset):
            break
        at = next_at
        least = offset_delta + 1
        passed += 1
    place[0] = at
    least_delta[0] = least
    return passed


# Returns: whether the plain batch of an index interval starts with these bytes, and may have a record at or after a
# timestamp; fills h.
cdef bint is_lone_batch(const uint8_t* data, int64_t read_size, const LoneBatch* batch, int64_t timestamp_ms,
                        int64_t max_batch_bytes, Header* h) noexcept nogil:
    cdef Problem problem
    start_problem(&problem, 0)
    if read_size < BATCH_HEADER_SIZE or check_frame(data, max_batch_bytes, &problem) != OK:
        return False
    load_header(data, h)
    return h.magic >= MAGIC_V2 and not h.attributes & CODEC_MASK and h.size == batch.size \
        and h.max_timestamp >= timestamp_ms and h.base_offset + h.last_offset_delta == batch.last_offset \
        and check_offsets(h, &problem) == OK and check_counts(h, h.size - BATCH_HEADER_SIZE, &problem) == OK


# Requires: the start of a record of the batch of h at data + place. Returns: whether the first record at or after both
# bounds is in [place, read_size). is_after_mark: the records before the place are known to be earlier only if the first
# one here is.
cdef bint find_in_part(const uint8_t* data, int64_t read_size, const Header* h, int64_t place, bint is_after_mark,
                       int64_t timestamp_ms, int64_t start_offset, OffsetAndTimestamp* found) noexcept nogil:
    cdef Problem problem
    cdef const uint8_t* at
    cdef int64_t body, timestamp_delta
    cdef int64_t least_delta = 0
    cdef int32_t i, record_size, offset_delta
    cdef int32_t passed = pass_earlier(data, read_size, h, timestamp_ms, start_offset, &place, &least_delta)
    start_problem(&problem, 0)
    if is_after_mark and passed == 0:
        return False
    for i in range(passed, h.record_count):
        at = data + place
        if place >= read_size or read_varint(&at, data + read_size, &record_size) != OK:
            return False
        body = at - data
        if body >= read_size or record_size < 1 or record_size > h.size - body:
            return False
        place = body + record_size
        at += 1
        if read_varlong(&at, data + min(place, read_size), &timestamp_delta) != OK \
                or read_varint(&at, data + min(place, read_size), &offset_delta) != OK \
                or check_offset_delta(h, offset_delta, &least_delta, &problem) != OK:
            return False
        found.offset = h.base_offset + offset_delta
        found.timestamp = timestamp_of(h, timestamp_delta)
        if found.timestamp >= timestamp_ms and found.offset >= start_offset:
            return True
    return False


# Returns: whether the first record at or after both bounds is in these bytes, the start of a batch.
cdef bint is_found_in(const uint8_t* data, int64_t read_size, const LoneBatch* batch, int64_t timestamp_ms,
                      int64_t start_offset, int64_t max_batch_bytes, OffsetAndTimestamp* found) noexcept nogil:
    cdef Header h
    return is_lone_batch(data, read_size, batch, timestamp_ms, max_batch_bytes, &h) \
        and find_in_part(data, read_size, &h, BATCH_HEADER_SIZE, False, timestamp_ms, start_offset, found)
