# The buffers of a column: made, grown and finished under the GIL.


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
