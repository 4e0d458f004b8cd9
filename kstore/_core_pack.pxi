# Columns in Arrow's layout in, V2 batches out: no Python object per record, every index and size checked before use.

cdef enum PackStatus:
    PACKED = 0
    PACK_FULL                # not an error: the output must have room for `found` bytes more
    PACK_BAD_INDEX
    PACK_BAD_TIMESTAMP
    PACK_BAD_OFFSET
    PACK_NULL_HEADER_KEY
    PACK_BAD_HEADER_KEY
    PACK_TOO_LARGE
    PACK_CHANGED

# Nullable byte strings, or lists of headers: element `start` belongs to row 0. data_size is what the indexes may reach.
cdef struct InColumn:
    const uint8_t* index     # NULL: every element is null
    const uint8_t* data
    const uint8_t* validity  # NULL: no element is null
    int64_t data_size
    int64_t start
    int32_t width            # bytes of an index: 4 or 8

cdef struct InNumbers:
    const uint8_t* data      # NULL: all are `constant`
    const uint8_t* validity
    int64_t start
    int64_t constant

cdef struct Packing:
    InNumbers timestamps
    InNumbers offsets        # data NULL: offsets are counted
    InColumn key
    InColumn value
    InColumn headers
    InColumn header_keys
    InColumn header_values
    int64_t units_per_ms
    const int64_t* rows      # which rows are packed, in this order; NULL: all
    int64_t row              # of those
    int64_t row_count
    int64_t next_offset
    int64_t batch_bytes
    Header h                 # of the batch that is being packed
    SealedBatch known        # of its records
    int64_t batch_used       # bytes of its records
    int64_t found            # what the message of an error shows

_PACK_ERRORS = {
    PACK_BAD_INDEX: "the indexes of a column run backwards or beyond its data at row {row}",
    PACK_BAD_TIMESTAMP: "timestamps must be -1 ms or not negative, got {found} at row {row}",
    PACK_BAD_OFFSET: "offsets must rise from base_offset on and end below 2^63 - 1, got {found} at row {row}",
    PACK_NULL_HEADER_KEY: "a header key is null at row {row}",
    PACK_BAD_HEADER_KEY: "a header key is not valid UTF-8 at row {row}",
    PACK_TOO_LARGE: "the record of row {row} is too large for a batch: {found} bytes",
    PACK_CHANGED: "the columns were changed while they were packed, at row {row}",
}


cdef inline int64_t load_signed(const uint8_t* p, int32_t width) noexcept nogil:
    cdef int32_t narrow
    cdef int64_t wide
    if width == 4:
        memcpy(&narrow, p, 4)
        return narrow
    memcpy(&wide, p, 8)
    return wide


cdef inline bint is_null(const uint8_t* validity, int64_t i) noexcept nogil:
    return validity != NULL and not validity[i >> 3] >> (i & 7) & 1


# Finds element i: its place and size, size -1 for null. Returns: whether its indexes fit.
cdef inline bint find_element(const InColumn* c, int64_t i, int64_t* first, int64_t* size) noexcept nogil:
    cdef int64_t end
    first[0] = 0
    size[0] = -1
    if c.index == NULL or is_null(c.validity, c.start + i):
        return True
    first[0] = load_signed(c.index + (c.start + i) * c.width, c.width)
    end = load_signed(c.index + (c.start + i + 1) * c.width, c.width)
    size[0] = <int64_t>(<uint64_t>end - <uint64_t>first[0])
    return 0 <= first[0] <= end <= c.data_size


cdef inline int64_t number_at(const InNumbers* n, int64_t i) noexcept nogil:
    if n.data == NULL or is_null(n.validity, n.start + i):
        return n.constant
    return load_signed(n.data + (n.start + i) * 8, 8)


cdef inline uint8_t* put_element(uint8_t* at, const InColumn* c, int64_t first, int64_t size) noexcept nogil:
    at = put_varint(at, zigzag(size))
    if size > 0:
        ks_copy(at, c.data + first, size, c.data + c.data_size)
        at += size
    return at


# Sets the size of the headers of a row behind their count.
cdef PackStatus measure_headers(const Packing* p, int64_t first, int64_t count, int64_t* total) noexcept nogil:
    cdef int64_t place = 0
    cdef int64_t size = 0
    cdef int64_t i
    total[0] = 0
    for i in range(first, first + count):
        if not find_element(&p.header_keys, i, &place, &size):
            return PACK_BAD_INDEX
        if size < 0:
            return PACK_NULL_HEADER_KEY
        if valid_utf8(p.header_keys.data + place, size) != size:
            return PACK_BAD_HEADER_KEY
        total[0] += sized_size(size)
        if not find_element(&p.header_values, i, &place, &size):
            return PACK_BAD_INDEX
        total[0] += sized_size(size)
        if total[0] > INT32_MAX:
            return PACK_TOO_LARGE
    return PACKED


# Requires: `total` bytes at `at`, as measure_headers found. Another thread may have changed the columns since.
cdef PackStatus put_headers_of(const Packing* p, uint8_t* at, int64_t first, int64_t count, int64_t total) noexcept nogil:
    cdef const InColumn* c
    cdef const uint8_t* end = at + total
    cdef int64_t place = 0
    cdef int64_t size = 0
    cdef int64_t i
    for i in range(2 * first, 2 * (first + count)):
        c = &p.header_values if i & 1 else &p.header_keys
        if not find_element(c, i >> 1, &place, &size) or sized_size(size) > end - at or size < 0 and not i & 1:
            return PACK_CHANGED
        at = put_varint(at, zigzag(size))
        if size > 0:
            memcpy(at, c.data + place, <size_t>size)
            at += size
    return PACKED if at == end else PACK_CHANGED


cdef inline PackStatus refuse(Packing* p, PackStatus status, int64_t found) noexcept nogil:
    p.found = found
    return status


# Requires: p.row < row_count.
cdef inline int64_t row_now(const Packing* p) noexcept nogil:
    return p.row if p.rows == NULL else p.rows[p.row]


# Sets offset and timestamp of a row, and those of the batch if it is the first in it.
cdef inline PackStatus take_numbers(Packing* p, int64_t row, int64_t* offset, int64_t* timestamp) noexcept nogil:
    cdef int64_t time = number_at(&p.timestamps, row)
    if p.units_per_ms != 1:
        time = time // p.units_per_ms - (time % p.units_per_ms < 0)
    timestamp[0] = time
    if time < -1:
        return refuse(p, PACK_BAD_TIMESTAMP, time)
    offset[0] = number_at(&p.offsets, row) if p.offsets.data != NULL else p.next_offset
    if offset[0] < p.next_offset or offset[0] == INT64_MAX:
        return refuse(p, PACK_BAD_OFFSET, offset[0])
    if p.h.record_count == 0:
        p.h.base_offset = offset[0]
        p.h.base_timestamp = p.h.max_timestamp = time
    return PACKED


# Requires: what pack_rows found: `size` is body_size and there is room for it and its length at `at`.
cdef inline uint8_t* put_row(uint8_t* at, int64_t size, const RecordFields* r, const InColumn* key, int64_t key_at,
                             const InColumn* value, int64_t value_at) noexcept nogil:
    at = put_varint(at, zigzag(size))
    at[0] = 0
    at = put_varint(at + 1, zigzag(r.timestamp_delta))
    at = put_varint(at, zigzag(r.offset_delta))
    at = put_element(at, key, key_at, r.key_size)
    at = put_element(at, value, value_at, r.value_size)
    return put_varint(at, zigzag(r.header_count))


# Packs records behind batch_used until the batch is full or no row is left. Requires: `out` has `capacity` bytes and
# WIDE_PAD more. Returns: PACKED when the batch is complete; PACK_FULL when a record does not fit `out`.
cdef PackStatus pack_rows(Packing* p, uint8_t* out, int64_t capacity) noexcept nogil:
    cdef Packing s = p[0]        # a copy that no store through `out` can change: it stays in registers
    cdef RecordFields r
    cdef PackStatus status = PACKED
    cdef uint8_t* at
    cdef int64_t timestamp = 0
    cdef int64_t offset = 0
    cdef int64_t key_at = 0
    cdef int64_t value_at = 0
    cdef int64_t headers_at = 0
    cdef int64_t row, size, total
    while s.row < s.row_count:
        row = row_now(&s)
        status = take_numbers(&s, row, &offset, &timestamp)
        if status != PACKED or offset - s.h.base_offset > INT32_MAX:
            break
        if not find_element(&s.key, row, &key_at, &r.key_size) \
                or not find_element(&s.value, row, &value_at, &r.value_size) \
                or not find_element(&s.headers, row, &headers_at, &r.header_count):
            status = PACK_BAD_INDEX
            break
        r.headers_size = 0
        if r.header_count < 0:
            r.header_count = 0
        elif r.header_count > 0:
            status = refuse(&s, measure_headers(p, headers_at, r.header_count, &r.headers_size), INT32_MAX)
        r.timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>s.h.base_timestamp)
        r.offset_delta = offset - s.h.base_offset
        size = body_size(&r)
        total = varint_size(zigzag(size)) + size
        if status != PACKED:
            break
        if total > s.batch_bytes - BATCH_HEADER_SIZE - s.batch_used and s.h.record_count:
            break
        if total > INT32_MAX - BATCH_HEADER_SIZE or total > capacity - s.batch_used:
            status = refuse(&s, PACK_TOO_LARGE if total > INT32_MAX - BATCH_HEADER_SIZE else PACK_FULL, total)
            break
        at = put_row(out + s.batch_used, size, &r, &s.key, key_at, &s.value, value_at)
        if r.header_count:
            status = put_headers_of(p, at, headers_at, r.header_count, r.headers_size)
            if status != PACKED:
                break
        s.batch_used += total
        s.h.last_offset_delta = <int32_t>r.offset_delta
        s.h.record_count += 1
        if timestamp > s.h.max_timestamp:
            s.h.max_timestamp = timestamp
        note_known(&s.known, timestamp, r.key_size)
        s.next_offset = offset + 1
        s.row += 1
    p[0] = s
    return status


cdef void start_batch(Packing* p) noexcept nogil:
    p.batch_used = 0
    p.h.record_count = 0
    p.known = SealedBatch(0, -1, 0, 0, False)


# Returns: where the values of the next rows stand, which no check has passed yet; NULL if that is not known.
cdef inline const uint8_t* next_value(const Packing* p) noexcept nogil:
    cdef int64_t first = 0
    cdef int64_t size = 0
    if p.row < p.row_count and find_element(&p.value, row_now(p), &first, &size) and size > 0:
        return p.value.data + first
    return NULL


# Writes the header of the batch at `batch`, whose payload stands behind it, and gets ready for the next one.
cdef void end_batch(Packing* p, uint8_t* batch, int64_t size, int64_t append_time) noexcept nogil:
    cdef int64_t sequence
    p.h.size = size
    if p.h.attributes & TIMESTAMP_TYPE_MASK:
        p.h.max_timestamp = append_time
    seal_batch(batch, &p.h, next_value(p))
    if p.h.base_sequence >= 0:
        sequence = <int64_t>p.h.base_sequence + p.h.last_offset_delta + 1
        p.h.base_sequence = <int32_t>(sequence & INT32_MAX)
    start_batch(p)


# Packs uncompressed batches behind used[0] until run_bytes are reached. Returns: as pack_rows.
cdef PackStatus pack_run(Packing* p, uint8_t* out, int64_t capacity, int64_t run_bytes, int64_t append_time,
                         int64_t* used) noexcept nogil:
    cdef PackStatus status
    while p.h.record_count or (p.row < p.row_count and used[0] < run_bytes):
        if capacity - used[0] < BATCH_HEADER_SIZE:
            return refuse(p, PACK_FULL, BATCH_HEADER_SIZE)
        status = pack_rows(p, out + used[0] + BATCH_HEADER_SIZE, capacity - used[0] - BATCH_HEADER_SIZE)
        if status != PACKED:
            return status
        end_batch(p, out + used[0], BATCH_HEADER_SIZE + p.batch_used, append_time)
        used[0] += p.h.size
    return PACKED
