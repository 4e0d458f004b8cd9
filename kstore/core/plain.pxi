# The fast loops over the records of a common V2 batch. Conditions are checked once for the batch, so that a record
# needs few. What is not plain (long varints, records with headers, damage) is left to decode_rows, which also finds
# the error.

cdef enum:
    LEAST_ALIKE = 2          # records of one size in a row before a shape is tried
    LEAST_SHAPED_ROWS = 8    # a shape that fits fewer records did not pay
    SHAPE_PREFIX_SIZE = 8

cdef uint64_t SECOND_CODE_BYTE = 0x3F80     # the bits that the second byte of a varint has in its code

cdef int64_t MOST_PLAIN_MS = INT64_MAX // 2000
# The most that a varint of two bytes subtracts: no record of a batch that starts later has the timestamp -1.
cdef int64_t LEAST_PLAIN_MS = 8192


# A batch whose rows are being decoded: where its next record is, its row and the least delta of its offset. The
# timestamp of a record is base_timestamp + (its delta & delta_mask).
cdef struct PlainRows:
    const uint8_t* at
    int64_t row
    int64_t rows_end
    int64_t least_delta
    int64_t base_timestamp
    int64_t delta_mask
    int64_t bytes_used


# Where the fields of a record are, and how many bytes its deltas have. Records of one size mostly have one shape, and
# one comparison of their first bytes then proves what five varints would say: all bits of the sizes, and of the deltas
# only whether another byte follows.
cdef struct Shape:
    uint64_t prefix                 # the first bytes, as a little-endian word, in the bits of prefix_mask
    uint64_t prefix_mask
    int timestamp_shift             # where the first byte of a delta is in the word, in bits
    int offset_shift
    uint64_t timestamp_second_byte  # SECOND_CODE_BYTE of a delta of two bytes, else 0
    uint64_t offset_second_byte
    uint32_t value_code             # the varint of the value's size, in the bits of value_code_mask
    uint32_t value_code_mask
    int64_t key_at
    int64_t key_size
    int64_t value_code_at
    int64_t value_at
    int64_t value_size
    int64_t size


cdef inline bint has_plain_room(const VarColumn* c, int64_t size) noexcept nogil:
    return c.mode == MODE_ABSENT or c.mode == MODE_VIEW or (c.mode == MODE_COPY and size <= c.capacity - c.used)


# Whether every record of the batch is wanted and no column can fill up inside it.
cdef bint is_plain(const Table* t, const Header* h, const Source* s) noexcept nogil:
    cdef int64_t size = s.end - s.at
    cdef int64_t count = h.record_count - s.done
    return count <= t.row_capacity - t.rows and size + count * t.row_charge < t.room \
        and h.base_offset >= s.start_offset and h.base_offset + h.last_offset_delta < s.end_offset \
        and -MOST_PLAIN_MS <= h.base_timestamp <= MOST_PLAIN_MS \
        and -MOST_PLAIN_MS <= h.max_timestamp <= MOST_PLAIN_MS \
        and (t.timestamps == NULL or (h.base_timestamp >= LEAST_PLAIN_MS and h.max_timestamp >= LEAST_PLAIN_MS)) \
        and has_plain_room(&t.key, size) and has_plain_room(&t.value, size)


cdef inline void put_place(Table* t, int64_t row, int64_t offset, int64_t timestamp) noexcept nogil:
    if t.offsets != NULL:
        t.offsets[row] = offset
    if t.timestamps != NULL:
        t.timestamps[row] = timestamp * MICROSECONDS


# Takes a delta into the shape. Requires: its varint of one or two bytes at `at`; `code_mask`, the bits of the code that
# may differ. Returns: its size in bytes.
cdef inline int add_delta(const uint8_t* at, uint64_t code_mask, int shift, uint64_t* mask,
                          uint64_t* second) noexcept nogil:
    cdef bint is_long = at[0] >= 0x80
    second[0] = SECOND_CODE_BYTE if is_long else 0
    mask[0] &= ~((code_mask | (0x7F00 if is_long else 0)) << shift)
    return 2 if is_long else 1


# Requires: a plain record at p, whose key is at `key` and whose value at `value`; size, of the record with its own
# varint. Returns: whether it has a shape.
cdef inline bint find_shape(const uint8_t* p, const uint8_t* key, int64_t key_size, const uint8_t* value,
                            int64_t value_size, int64_t size, Shape* shape) noexcept nogil:
    cdef int at = 2 if p[0] >= 0x80 else 1
    cdef uint64_t mask
    if key - p > SHAPE_PREFIX_SIZE:
        return False
    mask = (<uint64_t>-1 >> 8 * (SHAPE_PREFIX_SIZE - (key - p))) & ~(<uint64_t>0xFF << 8 * at)     # the attributes
    shape.timestamp_shift = 8 * (at + 1)
    at += 1 + add_delta(p + at + 1, 0x7F, shape.timestamp_shift, &mask, &shape.timestamp_second_byte)
    shape.offset_shift = 8 * at
    add_delta(p + at, 0x7E, shape.offset_shift, &mask, &shape.offset_second_byte)
    shape.prefix_mask = mask
    shape.prefix = load_word(p, SHAPE_PREFIX_SIZE) & mask
    shape.key_at, shape.key_size = key - p, key_size
    shape.value_code_at = key - p + (key_size if key_size > 0 else 0)
    shape.value_at, shape.value_size = value - p, value_size
    shape.value_code_mask = 0xFFFF if shape.value_at - shape.value_code_at == 2 else 0xFF
    shape.value_code = <uint32_t>get_le(p + shape.value_code_at, 2) & shape.value_code_mask
    shape.size = size
    return True


cdef inline uint32_t code_of_delta(uint64_t word, int shift, uint64_t second_byte) noexcept nogil:
    word >>= shift
    return <uint32_t>((word & 0x7F) | ((word >> 1) & second_byte))


# Decodes records while they have the shape. Requires: as decode_plain_rows. Returns: how many.
cdef int64_t decode_shaped_rows(Table* t, VarColumn* key_column, VarColumn* value_column, const Header* h,
                                const Source* source, const Shape* known, PlainRows* rows) noexcept nogil:
    cdef Source s = source[0]
    cdef VarColumn key = key_column[0], value = value_column[0]
    cdef Shape shape = known[0]
    cdef PlainRows r = rows[0]
    cdef const uint8_t* stop = min(s.end - shape.size, s.readable_end - PLAIN_PREFIX_SIZE)
    cdef int64_t* offsets = t.offsets
    cdef int64_t* timestamps = t.timestamps
    cdef int64_t base_offset = h.base_offset, last_offset_delta = h.last_offset_delta
    cdef int64_t delta, count
    cdef uint64_t word
    while r.row < r.rows_end and r.at <= stop:
        word = load_word(r.at, SHAPE_PREFIX_SIZE)
        delta = code_of_delta(word, shape.offset_shift, shape.offset_second_byte) >> 1
        if word & shape.prefix_mask != shape.prefix \
                or <uint32_t>get_le(r.at + shape.value_code_at, 2) & shape.value_code_mask != shape.value_code \
                or (r.at + shape.size - 1)[0] != 0 or delta < r.least_delta or delta > last_offset_delta:
            break
        put_fitting_bytes(&key, key.mode, r.row, r.at + shape.key_at, shape.key_size, &s)
        put_fitting_bytes(&value, value.mode, r.row, r.at + shape.value_at, shape.value_size, &s)
        if offsets != NULL:
            offsets[r.row] = base_offset + delta
        if timestamps != NULL:
            timestamps[r.row] = MICROSECONDS * (r.base_timestamp + (r.delta_mask & unzigzag32(
                code_of_delta(word, shape.timestamp_shift, shape.timestamp_second_byte))))
        r.least_delta = delta + 1
        r.row += 1
        r.at += shape.size
    count = r.row - rows.row
    if key.mode != MODE_ABSENT and shape.key_size > 0:
        r.bytes_used += count * shape.key_size
    if value.mode != MODE_ABSENT and shape.value_size > 0:
        r.bytes_used += count * shape.value_size
    key_column[0] = key
    value_column[0] = value
    rows[0] = r
    return count


# Decodes plain records until, after a first one, `enough` more of its size have come. Requires: as decode_plain_rows.
# Returns: whether they have; the shape is then that of the last one.
cdef bint decode_until_alike(Table* t, VarColumn* key_column, VarColumn* value_column, const Header* h,
                             const Source* source, int enough, Shape* shape, PlainRows* rows) noexcept nogil:
    cdef VarColumn key = key_column[0], value = value_column[0]
    cdef PlainRows r = rows[0]
    cdef Source s = source[0]
    cdef const uint8_t* last_start = s.readable_end - PLAIN_PREFIX_SIZE
    cdef const uint8_t* start
    cdef const uint8_t* p
    cdef const uint8_t* next
    cdef const uint8_t* key_at
    cdef int64_t key_size, value_size, delta
    cdef uint32_t size_code, timestamp_code, offset_code, key_code, value_code, size_before = 0
    cdef int alike = 0
    cdef bint found = False
    while r.row < r.rows_end and r.at <= last_start:
        p = start = r.at
        size_code = short_varint(&p)
        next = p + (size_code >> 1)
        p += 1
        timestamp_code = short_varint(&p)
        offset_code = short_varint(&p)
        key_code = short_varint(&p)
        if (size_code | offset_code) & (LONG_VARINT | 1) or (timestamp_code | key_code) & LONG_VARINT or next > s.end:
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
                or delta < r.least_delta or delta > h.last_offset_delta or key_size < -1 or value_size < -1:
            break
        put_fitting_bytes(&key, key.mode, r.row, key_at, key_size, &s)
        put_fitting_bytes(&value, value.mode, r.row, p, value_size, &s)
        if key.mode != MODE_ABSENT and key_size > 0:
            r.bytes_used += key_size
        if value.mode != MODE_ABSENT and value_size > 0:
            r.bytes_used += value_size
        put_place(t, r.row, h.base_offset + delta, r.base_timestamp + (unzigzag32(timestamp_code) & r.delta_mask))
        r.least_delta = delta + 1
        r.row += 1
        r.at = next
        alike = alike + 1 if size_code == size_before else 0
        size_before = size_code
        if alike >= enough and find_shape(start, key_at, key_size, p, value_size, next - start, shape):
            found = True
            break
    key_column[0] = key
    value_column[0] = value
    rows[0] = r
    return found


# Decodes records while they are plain. Requires: is_plain; `first`, the shape that the batch before began with, of size 0
# if it had none. Changes: the table, how far s has been read, `first`.
cdef void decode_plain_rows(Table* t, const Header* h, Source* s, Shape* first) noexcept nogil:
    cdef VarColumn key = t.key, value = t.value
    cdef bint appended = h.attributes & TIMESTAMP_TYPE_MASK != 0
    cdef int enough = LEAST_ALIKE
    cdef Shape shape
    cdef PlainRows r
    memset(&shape, 0, sizeof(Shape))
    r.at, r.least_delta, r.bytes_used = s.at, s.least_delta, 0
    r.row, r.rows_end = t.rows, t.rows + h.record_count - s.done
    r.base_timestamp = h.max_timestamp if appended else h.base_timestamp
    r.delta_mask = 0 if appended else -1
    if first.size == 0 or decode_shaped_rows(t, &key, &value, h, s, first, &r) == 0:
        first.size = 0
    while decode_until_alike(t, &key, &value, h, s, enough, &shape, &r):
        if first.size == 0:
            first[0] = shape
        if decode_shaped_rows(t, &key, &value, h, s, &shape, &r) < LEAST_SHAPED_ROWS:
            enough *= 2
    s.at = r.at
    s.least_delta = r.least_delta
    s.done += <int32_t>(r.row - t.rows)
    t.room -= (r.row - t.rows) * t.row_charge + r.bytes_used
    if t.headers.wanted:
        put_no_headers(&t.headers, t.rows, r.row)
        t.room -= r.row - t.rows    # the varint of a header count of 0
    t.key = key
    t.value = value
    t.rows = r.row
