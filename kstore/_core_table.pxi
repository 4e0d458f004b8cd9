# A table of columns: its buffers are made, grown and finished under the GIL.

# One line of Columns.batches: what each batch gave, all int64 so that NumPy reads it as a matrix.
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


# The bytes of a buffer, or of all buffers in a nest of tuples and lists; counts and None have none.
cdef int64_t size_of(object part) except -1:
    cdef int64_t size = 0
    if isinstance(part, (tuple, list)):
        for one in part:
            size += size_of(one)
        return size
    return 0 if part is None or isinstance(part, int) else len(part)


@cython.final
cdef class Columns:
    """A table of decoded records; every buffer may be kept.

    row_count: rows. offset: int64[row_count]; timestamp: int64[row_count], microseconds since the epoch, with
    timestamp_null_count and timestamp_validity (bits or None): null is what microseconds of int64 can't hold, and
    lost_timestamp is (offset, ms) of the first such record, or None.
    key, value: (null_count, validity bits or None, int32[row_count + 1] offsets or 16-byte views, data buffers).
    headers: (null_count, validity or None, int32[row_count + 1] offsets, header_count, keys, values), the last two
    like key and value. None for a column not asked for. batches: int64[n, 10], see BATCH_ROW_FIELDS.
    """

    cdef readonly int64_t row_count
    cdef readonly object offset
    cdef readonly object timestamp
    cdef readonly int64_t timestamp_null_count
    cdef readonly object timestamp_validity
    cdef readonly tuple lost_timestamp
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers
    cdef readonly object batches

    @property
    def size_in_bytes(self):
        """Bytes of all buffers, those that views point into included."""
        return size_of(self.offset) + size_of(self.timestamp) + size_of(self.timestamp_validity) + size_of(self.batches) + size_of(self.key) \
            + size_of(self.value) + size_of(self.headers)


cdef int64_t index_width(ColumnMode mode) noexcept:
    return 0 if mode == MODE_ABSENT else (sizeof(View) if mode == MODE_VIEW else 4)


cdef ColumnBuffer new_validity(int64_t rows):
    cdef ColumnBuffer bits = ColumnBuffer((rows + 7) // 8)
    memset(bits.block.data, 0xFF, <size_t>bits.size)
    return bits


# Returns: [validity, offsets or views, data] of a column with room for `rows` and `size` bytes; [] if it is absent.
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


# Returns: [list offsets, list validity, parts of keys, parts of values] of a header column with room for `rows`.
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


# size: at least the bytes of the headers that did not fit; count: how many they are.
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
