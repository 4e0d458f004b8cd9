# Columns in Arrow's layout while they are filled: appending values of one record (bytes, views, UTF-8 text, headers,
# timestamps), the decoding loops over the records of a V2 batch, and the buffers of a table (Columns), which are
# allocated, grown and finished under the GIL.

cdef enum ColumnMode:
    MODE_ABSENT
    MODE_COPY
    MODE_VIEW
    MODE_STRING

cdef struct View:
    uint64_t low
    uint64_t high

# A variable-width column: Arrow offsets and data, or Arrow views. Validity bits start set; a null clears one.
cdef struct VarColumn:
    ColumnMode mode
    uint8_t* data
    int64_t capacity
    int64_t used
    int32_t* offsets
    View* views
    uint8_t* validity
    int64_t null_count

# Headers: list offsets and validity per row; keys and values per header. count is the number of headers.
cdef struct HeaderColumn:
    bint wanted
    int32_t* offsets
    uint8_t* validity
    int64_t null_count
    int64_t count
    int64_t count_capacity
    int64_t most_bytes      # limit of the Python objects for one record's headers
    VarColumn keys
    VarColumn values

cdef struct Table:
    int64_t* offsets
    int64_t* timestamps
    uint8_t* timestamp_validity     # NULL until a timestamp is null
    int64_t timestamp_null_count
    int64_t lost_offset             # of the first record whose timestamp exceeds int64, -1 for none; with that timestamp
    int64_t lost_timestamp_ms
    VarColumn key
    VarColumn value
    HeaderColumn headers
    int64_t rows
    int64_t row_capacity
    int64_t row_width       # the bytes of a row without those of its key, value and headers
    int64_t row_charge      # what of them counts: nothing beside views
    int64_t room            # bytes left until the table counts as full; one record may make it negative

# The batch being decoded. readable_end bounds wide loads; view_buffer is the batch's number among the table's view
# buffers.
cdef struct Source:
    const uint8_t* at
    const uint8_t* end
    const uint8_t* readable_end
    const uint8_t* view_base
    int32_t view_buffer
    int32_t done
    int64_t least_delta
    int64_t start_offset
    int64_t end_offset
    MessageSet messages     # for magic 0 and 1, where least_delta is the least offset
    int timestamp_type
    int next_timestamp_type

cdef enum:
    WIDE_PAD = 32
    VIEW_INLINE_SIZE = 12
    MICROSECONDS = 1000
    HEADER_WIDTH = 8         # the offsets of a header's key and value, in bytes
    UTF8_GROWTH = 3          # U+FFFD takes three bytes, in place of one

cdef int64_t MOST_MS = INT64_MAX // 1000
cdef uint64_t HIGH_BITS = 0x8080808080808080ULL
cdef uint64_t ONES = 0x0101010101010101ULL


cdef inline void clear_bit(uint8_t* bits, int64_t i) noexcept nogil:
    bits[i >> 3] &= <uint8_t>~(1 << (i & 7))


cdef inline uint64_t load_word(const uint8_t* p, int64_t size) noexcept nogil:
    cdef uint64_t word = 0
    memcpy(&word, p, <size_t>size)
    return word


# The high bit of each byte that is a quote, a backslash or a control character; of a byte above such one, maybe.
cdef inline uint64_t string_stops(uint64_t word) noexcept nogil:
    cdef uint64_t quotes = word ^ (ONES * c'"')
    cdef uint64_t slashes = word ^ (ONES * c'\\')
    return (((quotes - ONES) & ~quotes) | ((slashes - ONES) & ~slashes) | ((word - ONES * 0x20) & ~word)) & HIGH_BITS


# Arrow's BinaryView: up to 12 bytes are inline; of a longer value, four bytes and its location.
cdef inline void put_view(View* view, const uint8_t* p, int64_t size, const Source* s) noexcept nogil:
    cdef uint64_t low, high
    if size > VIEW_INLINE_SIZE:
        view.low = <uint64_t>size | <uint64_t>get_le(p, 4) << 32
        view.high = <uint64_t>s.view_buffer | <uint64_t>(p - s.view_base) << 32
        return
    if size == 8:
        low, high = load_word(p, 8), 0
    elif size > 8:
        low, high = load_word(p, 8), load_word(p + 8, size - 8)
    else:
        low, high = load_word(p, size), 0
    view.low = <uint64_t>size | low << 32
    view.high = low >> 32 | high << 32


# Returns: NEED_VALUE_SPACE (nothing changed) if `size` bytes do not fit.
cdef inline Status put_bytes(VarColumn* c, int64_t row, const uint8_t* p, int64_t size, const Source* s) noexcept nogil:
    if c.mode == MODE_ABSENT:
        return OK
    if c.mode == MODE_COPY:
        if size > c.capacity - c.used:
            return NEED_VALUE_SPACE
        if size > 0:
            ks_copy(c.data + c.used, p, size, s.readable_end)
            c.used += size
        c.offsets[row + 1] = <int32_t>c.used
    elif c.mode == MODE_VIEW:
        if size >= 0:
            put_view(c.views + row, p, size, s)
        else:
            c.views[row].low = 0
            c.views[row].high = 0
    elif c.mode == MODE_STRING:
        if size > 0 and put_text(c, p, size, s.readable_end) != OK:
            return NEED_VALUE_SPACE
        c.offsets[row + 1] = <int32_t>c.used
    if size < 0:
        clear_bit(c.validity, row)
        c.null_count += 1
    return OK


# As put_bytes, for the plain loop. Requires: the bytes fit; mode is the column's mode, and not MODE_STRING. A put_bytes
# that called this function would take 2.4 % more instructions per scan with headers and views (gcc 12, cachegrind).
cdef inline void put_fitting_bytes(VarColumn* c, ColumnMode mode, int64_t row, const uint8_t* p, int64_t size,
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


# Returns: the length of the valid UTF-8 sequence at p, or minus the length of the maximal invalid subpart.
cdef int utf8_sequence(const uint8_t* p, int64_t left) noexcept nogil:
    cdef int lead = p[0]
    cdef int low = 0x80
    cdef int high = 0xBF
    cdef int more, i
    if lead < 0x80:
        return 1
    if 0xC2 <= lead <= 0xDF:
        more = 1
    elif 0xE0 <= lead <= 0xEF:
        more = 2
        low = 0xA0 if lead == 0xE0 else 0x80
        high = 0x9F if lead == 0xED else 0xBF
    elif 0xF0 <= lead <= 0xF4:
        more = 3
        low = 0x90 if lead == 0xF0 else 0x80
        high = 0x8F if lead == 0xF4 else 0xBF
    else:
        return -1
    for i in range(1, more + 1):
        if i >= left or p[i] < low or p[i] > high:
            return -i
        low, high = 0x80, 0xBF
    return more + 1


# Returns: the number of bytes from p on that are valid UTF-8.
cdef int64_t valid_utf8(const uint8_t* p, int64_t size) noexcept nogil:
    cdef int64_t at = 0
    cdef int step
    while at < size:
        if size - at >= 8 and load_word(p + at, 8) & HIGH_BITS == 0:
            at += 8
            continue
        step = utf8_sequence(p + at, size - at)
        if step < 0:
            return at
        at += step
    return at


# Requires: 0 <= count <= 8. Returns: a word whose first `count` bytes are 0xFF.
cdef inline uint64_t low_bytes(int64_t count) noexcept nogil:
    return ~(~<uint64_t>0 << (4 * count) << (4 * count))


# Whether `size` bytes have no high bit. A load may reach beyond them, but not to readable_end.
cdef inline bint is_ascii(const uint8_t* p, int64_t size, const uint8_t* readable_end) noexcept nogil:
    cdef uint64_t high = 0
    if size <= 16 and readable_end - p >= 16:
        # Without a branch for the size, which differs from text to text.
        high = load_word(p, 8) & low_bytes(min(size, 8)) | load_word(p + 8, 8) & low_bytes(max(size - 8, 0))
        return high & HIGH_BITS == 0
    while size >= 8:
        high |= load_word(p, 8)
        p += 8
        size -= 8
    if size > 0:
        if readable_end - p >= 8:
            high |= load_word(p, 8) << (64 - 8 * size)
        else:
            high |= load_word(p, size)
    return high & HIGH_BITS == 0


# Copies p as UTF-8, with U+FFFD for each maximal invalid subpart, to where there is room for UTF8_GROWTH times its size,
# or for its size if it is valid. Requires: `good` bytes from p on are valid. Returns: how many bytes were stored.
cdef int64_t copy_as_text(uint8_t* to, const uint8_t* p, int64_t size, int64_t good,
                          const uint8_t* readable_end) noexcept nogil:
    cdef int64_t stored = good
    cdef int step
    ks_copy(to, p, good, readable_end)
    while good < size:
        step = utf8_sequence(p + good, size - good)
        if step > 0:
            memcpy(to + stored, p + good, <size_t>step)
            stored += step
            good += step
        else:
            memcpy(to + stored, "\xef\xbf\xbd", 3)
            stored += 3
            good -= step
    return stored


# Appends p as UTF-8, with U+FFFD for each maximal invalid subpart. Returns: NEED_VALUE_SPACE (nothing changed) if it
# may not fit.
cdef Status put_text(VarColumn* c, const uint8_t* p, int64_t size, const uint8_t* readable_end) noexcept nogil:
    cdef int64_t good = valid_utf8(p, size)
    if (size if good == size else UTF8_GROWTH * size) > c.capacity - c.used:
        return NEED_VALUE_SPACE
    c.used += copy_as_text(c.data + c.used, p, size, good, readable_end)
    return OK


# Requires: check_headers returned OK. Returns: NEED_HEADER_SPACE (nothing changed) if the headers may not fit, or
# TOO_MANY_HEADERS.
cdef Status put_headers(HeaderColumn* c, int64_t row, int64_t offset, const RawRecord* r, const Source* s,
                        Problem* problem) noexcept nogil:
    cdef RawHeader header
    cdef const uint8_t* at = r.headers
    cdef int64_t size = r.end - r.headers
    cdef int32_t i
    if check_header_count(r, c.most_bytes, offset, problem) != OK:
        return problem.status
    if r.header_count > c.count_capacity - c.count or UTF8_GROWTH * size > c.keys.capacity - c.keys.used \
            or size > c.values.capacity - c.values.used:
        return NEED_HEADER_SPACE
    for i in range(r.header_count):
        if parse_header(&at, r.end, &header, problem) != OK:
            return problem.status
        put_bytes(&c.keys, c.count, header.key, header.key_size, s)
        put_bytes(&c.values, c.count, header.value, header.value_size, s)
        c.count += 1
    if r.header_count == 0:
        clear_bit(c.validity, row)
        c.null_count += 1
    c.offsets[row + 1] = <int32_t>c.count
    return OK


# Gives rows [first, end) null header lists: their records have no headers.
cdef inline void put_no_headers(HeaderColumn* c, int64_t first, int64_t end) noexcept nogil:
    cdef int64_t row
    for row in range(first, end):
        c.offsets[row + 1] = <int32_t>c.count
    for row in range(first, end):
        clear_bit(c.validity, row)
    c.null_count += end - first


cdef inline bint is_null_timestamp(int64_t timestamp_ms) noexcept nogil:
    return timestamp_ms == NO_TIMESTAMP or not -MOST_MS <= timestamp_ms <= MOST_MS


# Whether put_timestamp can store the timestamp; if not, the table needs a timestamp_validity first.
cdef inline bint has_timestamp_room(const Table* t, int64_t timestamp_ms) noexcept nogil:
    return not is_null_timestamp(timestamp_ms) or t.timestamp_validity != NULL


cdef void put_null_timestamp(Table* t, int64_t row, int64_t offset, int64_t timestamp_ms) noexcept nogil:
    if timestamp_ms != NO_TIMESTAMP and t.lost_offset < 0:
        t.lost_offset = offset
        t.lost_timestamp_ms = timestamp_ms
    clear_bit(t.timestamp_validity, row)
    t.timestamp_null_count += 1
    t.timestamps[row] = 0


# Appends microseconds, or null if there is no timestamp or it exceeds int64. Requires: has_timestamp_room.
cdef inline void put_timestamp(Table* t, int64_t row, int64_t offset, int64_t timestamp_ms) noexcept nogil:
    if is_null_timestamp(timestamp_ms):
        put_null_timestamp(t, row, offset, timestamp_ms)
    else:
        t.timestamps[row] = timestamp_ms * MICROSECONDS


# Fills rows of a batch whose offsets (and LogAppendTime) follow from its header alone; reads no record. Requires:
# record_count == last_offset_delta + 1. Returns: OK after the batch, STOPPED when the table is full,
# NEED_TIMESTAMP_VALIDITY.
cdef Status fill_from_header(Table* t, const Header* h, Source* s, Problem* problem) noexcept nogil:
    cdef int64_t offset
    while s.done < h.record_count:
        offset = h.base_offset + s.done
        if offset >= s.start_offset and offset < s.end_offset:
            if t.room <= 0 or t.rows == t.row_capacity:
                return STOPPED
            if t.timestamps != NULL:
                if not has_timestamp_room(t, h.max_timestamp):
                    return fail(problem, NEED_TIMESTAMP_VALIDITY, 0, 0)
                put_timestamp(t, t.rows, offset, h.max_timestamp)
            if t.offsets != NULL:
                t.offsets[t.rows] = offset
            t.rows += 1
            t.room -= t.row_charge
        s.done += 1
    return OK


# Whether a record is in the range. One after the last offset of its batch is where that is: so it is in one range only.
cdef inline bint is_wanted(const Header* h, const Source* s, int64_t offset) noexcept nogil:
    return offset >= s.start_offset \
        and (offset < s.end_offset or (h.excess and h.base_offset + h.last_offset_delta < s.end_offset))


# Decodes offsets and timestamps only; skips the rest of each record. Returns: as decode_rows.
cdef Status decode_prefixes(Table* t, const Header* h, Source* s, Problem* problem) noexcept nogil:
    cdef RawRecord r
    cdef const uint8_t* at
    cdef int64_t least, offset
    while s.done < h.record_count:
        if t.room <= 0 or t.rows == t.row_capacity:
            return STOPPED
        at = s.at
        least = s.least_delta
        if parse_prefix(&at, s.end, &r, problem) != OK or check_offset_delta(h, r.offset_delta, &least, problem) != OK:
            problem.record = s.done
            return problem.status
        offset = h.base_offset + r.offset_delta
        if is_wanted(h, s, offset):
            if t.timestamps != NULL:
                if not has_timestamp_room(t, timestamp_of(h, r.timestamp_delta)):
                    return fail(problem, NEED_TIMESTAMP_VALIDITY, 0, 0)
                put_timestamp(t, t.rows, offset, timestamp_of(h, r.timestamp_delta))
            if t.offsets != NULL:
                t.offsets[t.rows] = offset
            t.rows += 1
            t.room -= t.row_charge
        s.at = r.end
        s.least_delta = least
        s.done += 1
    return OK if s.at == s.end else fail(problem, TRAILING_BYTES, 0, s.end - s.at)


# The loop over records with all checks. Returns: OK after the batch; STOPPED when the table is full; NEED_x when a
# column must grow (the record is not consumed, problem.expected holds its size); else the error.
cdef Status decode_rows(Table* t, const Header* h, Source* s, Problem* problem) noexcept nogil:
    cdef RawRecord r
    cdef VarColumn key = t.key
    cdef VarColumn value = t.value
    cdef Source here = s[0]
    cdef int64_t row = t.rows
    cdef int64_t room = t.room
    cdef int64_t offset, least, key_used, nulls
    cdef Status status = OK
    r.end = s.at
    while here.done < h.record_count:
        if room <= 0 or row == t.row_capacity:
            status = STOPPED
            break
        least = here.least_delta
        status = parse_record(here.at, here.end, &r, problem)
        if status != OK or check_offset_delta(h, r.offset_delta, &least, problem) != OK:
            status = problem.status
            break
        offset = h.base_offset + r.offset_delta
        if is_wanted(h, &here, offset):
            if t.timestamps != NULL and not has_timestamp_room(t, timestamp_of(h, r.timestamp_delta)):
                status = NEED_TIMESTAMP_VALIDITY
                break
            key_used = key.used
            nulls = key.null_count
            if put_bytes(&key, row, r.key, r.key_size, &here) != OK:
                status = NEED_KEY_SPACE
                break
            status = put_bytes(&value, row, r.value, r.value_size, &here)
            if status == OK and t.headers.wanted:
                status = put_headers(&t.headers, row, offset, &r, &here, problem)
                if status != OK:
                    value.used = value.offsets[row] if value.offsets != NULL else 0
                    value.null_count -= r.value_size < 0
            if status != OK:
                key.used = key_used
                key.null_count = nulls
                break
            if t.timestamps != NULL:
                put_timestamp(t, row, offset, timestamp_of(h, r.timestamp_delta))
            if t.offsets != NULL:
                t.offsets[row] = offset
            row += 1
            room -= t.row_charge
            if key.mode != MODE_ABSENT and r.key_size > 0:
                room -= r.key_size
            if value.mode != MODE_ABSENT and r.value_size > 0:
                room -= r.value_size
            if t.headers.wanted:
                room -= r.end - r.headers + HEADER_WIDTH * r.header_count
        here.at = r.end
        here.least_delta = least
        here.done += 1
    if status == OK and here.at != here.end:
        status = fail(problem, TRAILING_BYTES, 0, here.end - here.at)
    elif status in (NEED_KEY_SPACE, NEED_VALUE_SPACE, NEED_HEADER_SPACE):
        problem.expected = r.end - here.at
        problem.found = r.header_count
    elif status != OK:
        problem.record = here.done
    s[0] = here
    t.key = key
    t.value = value
    t.rows = row
    t.room = room
    return status


# A table of columns: its buffers are allocated, grown and finished under the GIL.

# One row of Columns.batches: the facts of one batch. All int64, so that NumPy can read it as a matrix.
cdef struct BatchRow:
    int64_t row_count
    int64_t position
    int64_t base_offset
    int64_t attributes
    int64_t leader_epoch
    int64_t producer_id
    int64_t producer_epoch
    int64_t base_sequence
    int64_t magic
    int64_t timestamp_type

BATCH_ROW_FIELDS = ("row_count", "position", "base_offset", "attributes", "leader_epoch", "producer_id",
                    "producer_epoch", "base_sequence", "magic", "timestamp_type")


cdef enum:
    FIRST_HEADER_ROWS = 1024
    FIRST_HEADER_BYTES = 65536


# The size in bytes of a buffer, or of all buffers in nested tuples and lists; counts and None take none.
cdef int64_t size_of(object part) except -1:
    cdef int64_t size = 0
    if isinstance(part, (tuple, list)):
        for inner in part:
            size += size_of(inner)
        return size
    return 0 if part is None or isinstance(part, int) else len(part)


@cython.final
cdef class Columns:
    """A table of decoded records.

    row_count: the number of rows, of which [start, end) are those of the table: all, unless it is a slice. offset: int64[row_count]. timestamp: int64[row_count], microseconds since the epoch,
    with timestamp_null_count and timestamp_validity (bits or None); null for a record without a timestamp (-1 ms) and
    for one that exceeds int64 in microseconds; lost_timestamp is (offset, ms) of the first of the latter, or None.
    key, value: (null_count, validity bits or None, int32[row_count + 1] offsets or 16-byte views, data buffers).
    headers: (null_count, validity or None, int32[row_count + 1] offsets, header_count, keys, values), with keys and
    values like key and value. A column that was not requested is None. batches: int64[n, 10], see BATCH_ROW_FIELDS.
    Lifetime: every buffer may be kept.  Threads: immutable, safe.
    """

    cdef readonly int64_t row_count, start, end
    cdef readonly object offset
    cdef readonly object timestamp
    cdef readonly int64_t timestamp_null_count
    cdef readonly object timestamp_validity
    cdef readonly tuple lost_timestamp
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers
    cdef readonly object batches
    cdef bint has_key_views, has_value_views

    def slice(self, int64_t start, *, int64_t end):
        """Return the table of the rows [start, end), which shares the buffers.

        Raises: ValueError if they are not within the rows of this one.
        """
        cdef Columns out
        if not self.start <= start <= end <= self.end:
            raise ValueError(f"a slice must be within the rows [{self.start}, {self.end}), got [{start}, {end})")
        out = Columns.__new__(Columns)
        out.row_count, out.start, out.end = self.row_count, start, end
        out.offset, out.batches, out.lost_timestamp = self.offset, self.batches, self.lost_timestamp
        out.timestamp, out.timestamp_null_count = self.timestamp, self.timestamp_null_count
        out.timestamp_validity = self.timestamp_validity
        out.key, out.value, out.headers = self.key, self.value, self.headers
        out.has_key_views, out.has_value_views = self.has_key_views, self.has_value_views
        return out

    def exported(self, name):
        """Return all rows of the offset, timestamp, key, value or headers as ExportedBatch takes a column; None if it was not requested."""
        if name == "offset":
            return None if self.offset is None else (self.row_count, 0, (None, self.offset), ())
        if name == "timestamp":
            return None if self.timestamp is None else (
                self.row_count, self.timestamp_null_count, (self.timestamp_validity, self.timestamp), ())
        if name == "key":
            return exported_bytes(self.row_count, self.key, self.has_key_views)
        if name == "value":
            return exported_bytes(self.row_count, self.value, self.has_value_views)
        if name == "headers":
            return exported_headers(self.row_count, self.headers)
        raise ValueError(f"no decoded column has the name {name!r}")

    @property
    def size_in_bytes(self):
        """The size in bytes of all buffers, including those that views point into."""
        return size_of(self.offset) + size_of(self.timestamp) + size_of(self.timestamp_validity) + size_of(self.batches) + size_of(self.key) \
            + size_of(self.value) + size_of(self.headers)


cdef tuple exported_bytes(int64_t rows, tuple column, bint has_views):
    cdef ColumnBuffer sizes
    cdef Py_ssize_t number
    if column is None:
        return None
    null_count, validity, index, data = column
    if not has_views:
        return rows, null_count, (validity, index, (<list>data)[0]), ()
    sizes = new_buffer(8 * len(<list>data))
    for number, buffer in enumerate(<list>data):
        (<int64_t*>sizes.block.data)[number] = len(buffer)
    return rows, null_count, (validity, index, *data, sizes), ()


cdef tuple exported_headers(int64_t rows, tuple column):
    if column is None:
        return None
    null_count, validity, list_offsets, header_count, keys, values = column
    children = (exported_bytes(header_count, keys, False), exported_bytes(header_count, values, False))
    return rows, null_count, (validity, list_offsets), ((header_count, 0, (None,), children),)


cdef int64_t index_width(ColumnMode mode) noexcept:
    return 0 if mode == MODE_ABSENT else (sizeof(View) if mode == MODE_VIEW else 4)


cdef ColumnBuffer new_validity(int64_t rows):
    cdef ColumnBuffer bits = ColumnBuffer((rows + 7) // 8)
    memset(bits.block.data, 0xFF, <size_t>bits.size)
    return bits


# Returns: [validity, offsets or views, data] of a column with room for `rows` rows and `size` bytes; [] if it is
# absent.
cdef list new_column(VarColumn* c, int64_t rows, int64_t size):
    cdef ColumnBuffer validity, index, data
    c.used = 0
    c.null_count = 0
    if c.mode == MODE_ABSENT:
        return []
    validity = new_validity(rows)
    c.validity = validity.block.data
    if c.mode == MODE_VIEW:
        index = ColumnBuffer(sizeof(View) * rows)
        c.views = <View*>index.block.data
        return [validity, index, None]
    index = ColumnBuffer(4 * (rows + 1))
    data = ColumnBuffer(size)
    c.offsets = <int32_t*>index.block.data
    c.offsets[0] = 0
    c.data = data.block.data
    c.capacity = data.block.capacity
    return [validity, index, data]


cdef int grow_data(VarColumn* c, list parts, int64_t size) except -1:
    cdef ColumnBuffer data = parts[2]
    if size > INT32_MAX - c.used:
        raise MemoryError(f"a column of {c.used + size} bytes passes Arrow's limit of {INT32_MAX}")
    data.grow(c.used + size)
    c.data = data.block.data
    c.capacity = min(data.block.capacity, INT32_MAX)
    return 0


cdef int grow_rows(VarColumn* c, list parts, int64_t rows, int64_t row_capacity) except -1:
    cdef ColumnBuffer validity = parts[0]
    cdef ColumnBuffer index = parts[1]
    cdef int64_t old = (rows + 7) // 8
    validity.grow((row_capacity + 7) // 8)
    memset(validity.block.data + old, 0xFF, <size_t>(validity.block.capacity - old))
    c.validity = validity.block.data
    index.grow(4 * (row_capacity + 1))
    c.offsets = <int32_t*>index.block.data
    return 0


# Returns: [list offsets, list validity, key parts, value parts] of a header column with room for `rows` rows.
cdef list new_header_column(HeaderColumn* c, int64_t rows):
    cdef ColumnBuffer list_offsets = ColumnBuffer(4 * (rows + 1))
    cdef ColumnBuffer list_validity = new_validity(rows)
    c.offsets = <int32_t*>list_offsets.block.data
    c.offsets[0] = 0
    c.validity = list_validity.block.data
    c.null_count = 0
    c.count = 0
    c.count_capacity = FIRST_HEADER_ROWS
    keys = new_column(&c.keys, FIRST_HEADER_ROWS, FIRST_HEADER_BYTES)
    return [list_offsets, list_validity, keys, new_column(&c.values, FIRST_HEADER_ROWS, FIRST_HEADER_BYTES)]


# size: at least the bytes of the headers that did not fit; count: their number.
cdef int grow_headers(HeaderColumn* c, list parts, int64_t size, int64_t count) except -1:
    cdef int64_t count_capacity = max(2 * c.count_capacity, c.count + count)
    if UTF8_GROWTH * size > c.keys.capacity - c.keys.used:
        grow_data(&c.keys, parts[2], UTF8_GROWTH * size)
    if size > c.values.capacity - c.values.used:
        grow_data(&c.values, parts[3], size)
    if count <= c.count_capacity - c.count:
        return 0
    grow_rows(&c.keys, parts[2], c.count, count_capacity)
    grow_rows(&c.values, parts[3], c.count, count_capacity)
    c.count_capacity = count_capacity
    return 0


cdef int grow_bytes(VarColumn* c, list parts, int64_t size) except -1:
    return grow_data(c, parts, UTF8_GROWTH * size if c.mode == MODE_STRING else size)


cdef ColumnBuffer resized(ColumnBuffer buffer, int64_t size):
    if buffer is not None:
        buffer.size = size
    return buffer


cdef tuple finished(const VarColumn* c, list parts, int64_t rows, list view_buffers):
    if c.mode == MODE_ABSENT:
        return None
    validity = resized(parts[0], (rows + 7) // 8) if c.null_count else None
    if c.mode == MODE_VIEW:
        return c.null_count, validity, resized(parts[1], sizeof(View) * rows), view_buffers
    return c.null_count, validity, resized(parts[1], 4 * (rows + 1)), [resized(parts[2], c.used)]


cdef tuple finished_headers(const HeaderColumn* c, list parts, int64_t rows):
    if not c.wanted:
        return None
    validity = resized(parts[1], (rows + 7) // 8) if c.null_count else None
    return (c.null_count, validity, resized(parts[0], 4 * (rows + 1)), c.count,
            finished(&c.keys, parts[2], c.count, []), finished(&c.values, parts[3], c.count, []))
