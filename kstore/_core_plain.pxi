# The common batch, faster: everything that can be asked once is asked per batch, so that a record costs few tests.
# Whatever is not plain (long varints, a record that has headers, damage) is left to decode_rows, which says what is wrong.

cdef enum:
    AHEAD_STEP = 512

cdef int64_t MOST_PLAIN_MS = INT64_MAX // 2000


cdef inline bint has_plain_room(const VarColumn* c, int64_t size) noexcept nogil:
    return c.mode == MODE_ABSENT or c.mode == MODE_VIEW or (c.mode == MODE_COPY and size <= c.capacity - c.used)


# Whether every record of the batch is wanted and nothing can fill up inside it.
cdef bint is_plain(const Table* t, const Header* h, const Source* s) noexcept nogil:
    cdef int64_t size = s.end - s.at
    cdef int64_t count = h.record_count - s.done
    return count <= t.row_capacity - t.rows and size + count * t.row_width < t.room \
        and h.base_offset >= s.start_offset and h.base_offset + h.last_offset_delta < s.end_offset \
        and -MOST_PLAIN_MS <= h.base_timestamp <= MOST_PLAIN_MS \
        and -MOST_PLAIN_MS <= h.max_timestamp <= MOST_PLAIN_MS \
        and has_plain_room(&t.key, size) and has_plain_room(&t.value, size)


# Requires: has_plain_room was true for the column, mode is its mode.
cdef inline void put_plain(VarColumn* c, ColumnMode mode, int64_t row, const uint8_t* p, int64_t size,
                           const Source* s) noexcept nogil:
    if mode == MODE_COPY:
        if size > 0:
            ks_copy(c.data + c.used, p, size, s.readable_end)
            c.used += size
        c.offsets[row + 1] = <int32_t>c.used
    elif mode == MODE_VIEW:
        if size >= 0:
            put_view(c.views + row, p, size, s)
        else:
            c.views[row].low = 0
            c.views[row].high = 0
    if size < 0 and mode != MODE_ABSENT:
        clear_bit(c.validity, row)
        c.null_count += 1


cdef inline void put_place(Table* t, int64_t row, int64_t offset, int64_t timestamp) noexcept nogil:
    if t.offsets != NULL:
        t.offsets[row] = offset
    if t.timestamps != NULL:
        t.timestamps[row] = timestamp * MICROSECONDS


# What follows the batch, and is likely to be one of its size: the starts of the three streams that its CRC will read.
cdef struct Ahead:
    const uint8_t* at
    const uint8_t* end
    int64_t stream


cdef inline Ahead ahead_of(const Header* h, const Source* s) noexcept nogil:
    cdef Ahead a
    a.at = s.end
    a.stream = min(h.size, s.readable_end - s.end) // 3
    a.end = a.at + a.stream
    return a


# Rows wait for latency and the CRC for memory, so bytes for the CRC come in while rows are decoded.
cdef inline void bring_ahead(Ahead* a) noexcept nogil:
    if a.at < a.end:
        ks_prefetch(a.at)
        ks_prefetch(a.at + a.stream)
        ks_prefetch(a.at + 2 * a.stream)
        a.at += CACHE_LINE


# Decodes records for as long as they are plain. Requires: is_plain. Changes: the table and the place in s.
cdef void decode_plain_rows(Table* t, const Header* h, Source* s) noexcept nogil:
    cdef VarColumn key = t.key, value = t.value
    cdef Source here = s[0]
    cdef const uint8_t* at = here.at
    cdef const uint8_t* end = here.end
    cdef const uint8_t* last_start = here.readable_end - PLAIN_PREFIX_SIZE
    cdef const uint8_t* stop = at if at < last_start else last_start
    cdef Ahead ahead = ahead_of(h, &here)
    cdef const uint8_t* p
    cdef const uint8_t* next
    cdef const uint8_t* key_at
    cdef int64_t row = t.rows
    cdef int64_t last_row = row + h.record_count - here.done
    cdef bint appended = h.attributes & TIMESTAMP_TYPE_MASK != 0
    cdef int64_t base_timestamp = h.max_timestamp if appended else h.base_timestamp
    cdef int64_t delta_mask = 0 if appended else -1
    cdef int64_t least = here.least_delta
    cdef int64_t bytes_used = 0
    cdef int64_t key_size, value_size, delta
    cdef uint32_t size_code, timestamp_code, offset_code, key_code, value_code
    while True:
        while row < last_row and at <= stop:
            p = at
            size_code = short_varint(&p)
            next = p + (size_code >> 1)
            p += 1
            timestamp_code = short_varint(&p)
            offset_code = short_varint(&p)
            key_code = short_varint(&p)
            if (size_code | offset_code) & (LONG_VARINT | 1) or (timestamp_code | key_code) & LONG_VARINT or next > end:
                break
            key_size = unzigzag32(key_code)
            key_at = p
            p += key_size if key_size > 0 else 0
            if next - p < 2:
                break
            value_code = short_varint(&p)
            value_size = unzigzag32(value_code)
            delta = offset_code >> 1
            if value_code & LONG_VARINT or p + (value_size if value_size > 0 else 0) + 1 != next or (next - 1)[0] != 0 \
                    or delta < least or delta > h.last_offset_delta or key_size < -1 or value_size < -1:
                break
            put_plain(&key, t.key.mode, row, key_at, key_size, &here)
            put_plain(&value, t.value.mode, row, p, value_size, &here)
            if t.key.mode != MODE_ABSENT and key_size > 0:
                bytes_used += key_size
            if t.value.mode != MODE_ABSENT and value_size > 0:
                bytes_used += value_size
            put_place(t, row, h.base_offset + delta, base_timestamp + (unzigzag32(timestamp_code) & delta_mask))
            least = delta + 1
            row += 1
            at = next
        else:
            if row < last_row and stop < last_start:
                stop += min(AHEAD_STEP, last_start - stop)
                bring_ahead(&ahead)
                continue
        break
    here.at = at
    here.least_delta = least
    here.done += <int32_t>(row - t.rows)
    t.room -= (row - t.rows) * t.row_width + bytes_used
    if t.headers.wanted:
        put_no_headers(&t.headers, t.rows, row)
        t.room -= row - t.rows    # the count of no headers
    t.key = key
    t.value = value
    t.rows = row
    s[0] = here
