# Columns of decoded values: any nesting of Arrow's layouts, filled and grown without the GIL under one limit of bytes,
# and cut back to a number of rows when a value proves to be bad after some of its fields were stored.

cdef enum ValueLayout:
    LAYOUT_NULL         # no bytes: each row is null
    LAYOUT_BIT          # a bit a row
    LAYOUT_FIXED        # `width` bytes a row
    LAYOUT_VARIABLE     # int32 offsets, and bytes
    LAYOUT_LIST         # int32 offsets into the only child
    LAYOUT_STRUCT       # children of as many rows
    LAYOUTS

cdef enum ValueFault:
    VALUE_SOUND
    VALUE_NO_MEMORY
    VALUE_TOO_LARGE
    VALUE_TRUNCATED
    VALUE_BAD_VARINT
    VALUE_BAD_INT
    VALUE_BAD_SIZE
    VALUE_BAD_BOOLEAN
    VALUE_BAD_BRANCH
    VALUE_BAD_SYMBOL
    VALUE_BAD_ITEM_COUNT
    VALUE_BAD_DECIMAL
    VALUE_BAD_TIME
    VALUE_UNRESOLVED
    VALUE_TOO_DEEP
    VALUE_TRAILING_BYTES
    VALUE_NOT_FRAMED
    VALUE_NO_SCHEMA
    VALUE_BAD_JSON
    VALUE_INCOMPLETE
    VALUE_BAD_UTF8
    VALUE_OTHER_TYPE
    VALUE_NOT_WHOLE
    VALUE_OUT_OF_RANGE
    VALUE_REPEATED

cdef enum:
    LEAST_VALUE_ROWS = 64
    LEAST_VALUE_BYTES = 1024

# Bits of validity start set; a null clears one. offsets[0] is 0 once there is memory.
cdef struct ValueColumn:
    ValueLayout layout
    int32_t width
    int32_t first_child     # the children of a column stand together in the table
    int32_t child_count
    int64_t rows
    int64_t row_capacity
    int64_t null_count
    int64_t used            # bytes of LAYOUT_VARIABLE
    int64_t capacity
    int64_t rows_before     # of the last table, and its bytes of LAYOUT_VARIABLE: what the next one will take
    int64_t bytes_before
    uint8_t* validity
    int32_t* offsets
    uint8_t* data

# The column numbered 0 is the root, which has a row for each value.
cdef struct ValueTable:
    ValueColumn* columns
    int32_t count
    int64_t room            # bytes by which columns may still grow


cdef inline int64_t bit_bytes(int64_t bits) noexcept nogil:
    return (bits + 7) >> 3


cdef inline void set_bit(uint8_t* bits, int64_t i) noexcept nogil:
    bits[i >> 3] |= <uint8_t>(1 << (i & 7))


cdef inline bint is_bit_set(const uint8_t* bits, int64_t i) noexcept nogil:
    return bits[i >> 3] >> (i & 7) & 1


cdef ValueFault regrow(void** memory, int64_t size) noexcept nogil:
    cdef void* longer = realloc(memory[0], <size_t>(size + PADDING))
    if longer == NULL:
        return VALUE_NO_MEMORY
    memory[0] = longer
    return VALUE_SOUND


cdef bint has_offsets(const ValueColumn* c) noexcept nogil:
    return c.layout == LAYOUT_VARIABLE or c.layout == LAYOUT_LIST


# Returns: the bytes of `rows` rows in data, which for LAYOUT_VARIABLE grows by itself.
cdef int64_t bytes_of_rows(const ValueColumn* c, int64_t rows) noexcept nogil:
    if c.layout == LAYOUT_BIT:
        return bit_bytes(rows)
    return c.width * rows if c.layout == LAYOUT_FIXED else 0


cdef ValueFault grow_value_rows(ValueTable* t, ValueColumn* c) noexcept nogil:
    cdef int64_t rows = max(2 * c.row_capacity, LEAST_VALUE_ROWS)
    cdef int64_t before = bit_bytes(c.row_capacity)
    cdef int64_t more = bit_bytes(rows) - before + bytes_of_rows(c, rows) - bytes_of_rows(c, c.row_capacity)
    if has_offsets(c):
        more += 4 * (rows - c.row_capacity)
    if more > t.room:
        return VALUE_TOO_LARGE
    if c.layout != LAYOUT_NULL:
        if regrow(<void**>&c.validity, bit_bytes(rows)) != VALUE_SOUND:
            return VALUE_NO_MEMORY
        memset(c.validity + before, 0xFF, <size_t>(bit_bytes(rows) - before))
    if has_offsets(c):
        if regrow(<void**>&c.offsets, 4 * (rows + 1)) != VALUE_SOUND:
            return VALUE_NO_MEMORY
        if c.row_capacity == 0:
            c.offsets[0] = 0
    if bytes_of_rows(c, rows) > 0 and regrow(<void**>&c.data, bytes_of_rows(c, rows)) != VALUE_SOUND:
        return VALUE_NO_MEMORY
    t.room -= more
    c.row_capacity = rows
    return VALUE_SOUND


cdef inline ValueFault room_for_row(ValueTable* t, ValueColumn* c) noexcept nogil:
    return VALUE_SOUND if c.rows < c.row_capacity else grow_value_rows(t, c)


cdef ValueFault grow_value_bytes(ValueTable* t, ValueColumn* c, int64_t size) noexcept nogil:
    cdef int64_t capacity
    if size > INT32_MAX - c.used or c.used + size - c.capacity > t.room:
        return VALUE_TOO_LARGE
    # Twice as much takes at most half of the room, which other columns need too.
    capacity = max(c.used + size, c.capacity + min(max(c.capacity, LEAST_VALUE_BYTES), t.room // 2))
    if regrow(<void**>&c.data, capacity) != VALUE_SOUND:
        return VALUE_NO_MEMORY
    t.room -= capacity - c.capacity
    c.capacity = capacity
    return VALUE_SOUND


cdef inline ValueFault room_for_bytes(ValueTable* t, ValueColumn* c, int64_t size) noexcept nogil:
    return VALUE_SOUND if size <= c.capacity - c.used else grow_value_bytes(t, c, size)


# Ends the row that was stored in a column. Requires: room_for_row returned VALUE_SOUND.
cdef inline void end_row(ValueColumn* c) noexcept nogil:
    c.rows += 1


cdef inline void end_variable_row(ValueColumn* c) noexcept nogil:
    c.offsets[c.rows + 1] = <int32_t>c.used
    c.rows += 1


cdef ValueFault append_null(ValueTable* t, int32_t number) noexcept nogil:
    cdef ValueColumn* c = t.columns + number
    cdef ValueFault fault = room_for_row(t, c)
    cdef int32_t i
    if fault != VALUE_SOUND:
        return fault
    if c.layout == LAYOUT_STRUCT:
        for i in range(c.child_count):
            fault = append_null(t, c.first_child + i)
            if fault != VALUE_SOUND:
                return fault
    elif c.layout == LAYOUT_FIXED:
        memset(c.data + c.rows * c.width, 0, <size_t>c.width)
    elif c.layout == LAYOUT_BIT:
        clear_bit(c.data, c.rows)
    elif has_offsets(c):
        c.offsets[c.rows + 1] = c.offsets[c.rows]
    if c.layout != LAYOUT_NULL:
        clear_bit(c.validity, c.rows)
    c.null_count += 1
    c.rows += 1
    return VALUE_SOUND


# Removes the rows from `rows` on, and what a row that was not ended has stored in columns below.
cdef void cut_rows(ValueTable* t, int32_t number, int64_t rows) noexcept nogil:
    cdef ValueColumn* c = t.columns + number
    cdef int64_t row
    cdef int32_t i
    if c.layout == LAYOUT_NULL:
        c.null_count -= c.rows - rows
    elif c.null_count > 0:
        for row in range(rows, c.rows):
            if not is_bit_set(c.validity, row):
                set_bit(c.validity, row)
                c.null_count -= 1
    if c.layout == LAYOUT_STRUCT:
        for i in range(c.child_count):
            cut_rows(t, c.first_child + i, rows)
    elif c.layout == LAYOUT_LIST:
        cut_rows(t, c.first_child, c.offsets[rows] if c.row_capacity > 0 else 0)
    elif c.layout == LAYOUT_VARIABLE:
        c.used = c.offsets[rows] if c.row_capacity > 0 else 0
    c.rows = rows


cdef int take_memory(void** memory, int64_t size) except -1:
    cdef Block block
    take_block(size, &block)
    memory[0] = block.data
    return 0


# Moves a block, which regrow allocated, to a new buffer; NULL is left in its place.
cdef object exported_block(void** data, int64_t capacity, int64_t size):
    cdef ColumnBuffer buffer = ColumnBuffer.__new__(ColumnBuffer)
    buffer.block.data = <uint8_t*>data[0]
    buffer.block.capacity = capacity
    buffer.size = size
    data[0] = NULL
    return buffer


cdef void free_rows(ValueColumn* c) noexcept nogil:
    free(c.validity)
    free(c.offsets)
    free(c.data)
    c.rows = c.row_capacity = c.null_count = c.used = c.capacity = 0
    c.validity = NULL
    c.offsets = NULL
    c.data = NULL


# Columns of a layout, and their memory.
@cython.final
cdef class ValueColumns:
    """Columns of nested values under construction, in Arrow's layouts; column 0 is the root.

    Args: layout: for each column (kind, width in bytes, number of its first child, number of children), parents before
        their children, where kind is one of VALUE_LAYOUTS; most_bytes: the memory that a table may take.
    Raises: ValueError for a layout that is no tree; MemoryError.
    Threads: not thread-safe.
    """

    cdef ValueTable table
    cdef readonly int64_t most_bytes
    cdef bint is_prepared       # some of the room was taken for rows that may come

    def __cinit__(self, layout, *, int64_t most_bytes):
        cdef ValueColumn* c
        cdef int32_t expected = 1
        cdef int32_t number
        self.most_bytes = most_bytes
        self.table.room = most_bytes
        self.table.columns = <ValueColumn*>calloc(max(len(layout), 1), sizeof(ValueColumn))
        if self.table.columns == NULL:
            raise MemoryError(f"no memory for {len(layout)} columns")
        self.table.count = len(layout)
        for number, (kind, width, first_child, child_count) in enumerate(layout):
            c = self.table.columns + number
            c.layout, c.width, c.first_child, c.child_count = kind, width, first_child, child_count
            is_parent = c.layout == LAYOUT_STRUCT or c.layout == LAYOUT_LIST
            if not 0 <= c.layout < LAYOUTS or (c.width < 1) == (c.layout == LAYOUT_FIXED) \
                    or c.child_count < (c.layout == LAYOUT_LIST) or (c.child_count > 0 and not is_parent) \
                    or (c.layout == LAYOUT_LIST and c.child_count != 1) \
                    or (c.child_count > 0 and (c.first_child != expected or c.first_child <= number)):
                raise ValueError(f"column {number} of the layout is invalid: {layout[number]}")
            expected += c.child_count
        if expected != self.table.count:
            raise ValueError(f"the layout has {self.table.count} columns, its parents {expected}")

    def __dealloc__(self):
        self.clear()
        free(self.table.columns)

    cdef void clear(self) noexcept nogil:
        cdef int32_t number
        for number in range(self.table.count):
            free_rows(self.table.columns + number)
        self.table.room = self.most_bytes
        self.is_prepared = False

    @property
    def row_count(self):
        """The number of rows that the root has."""
        return self.table.columns[0].rows

    @property
    def least_bytes(self):
        """The memory that a table with one null row takes."""
        return self.least_bytes_of(0)

    cdef int64_t least_bytes_of(self, int32_t number) noexcept:
        cdef ValueColumn* c = self.table.columns + number
        cdef int64_t size = bit_bytes(LEAST_VALUE_ROWS) + bytes_of_rows(c, LEAST_VALUE_ROWS)
        cdef int32_t i
        if has_offsets(c):
            size += 4 * LEAST_VALUE_ROWS
        if c.layout == LAYOUT_STRUCT:
            for i in range(c.child_count):
                size += self.least_bytes_of(c.first_child + i)
        return size

    # Takes memory for as many rows as the last table had. Blocks that Arrow gave back are used again; malloc would map
    # new pages for each.
    cdef int prepare(self) except -1:
        cdef ValueColumn* c
        cdef int32_t number
        cdef int64_t bits, size
        for number in range(self.table.count):
            c = self.table.columns + number
            bits = bit_bytes(c.rows_before)
            size = c.bytes_before if c.layout == LAYOUT_VARIABLE else bytes_of_rows(c, c.rows_before)
            if c.row_capacity > 0 or c.rows_before == 0 or bits + size + 4 * c.rows_before > self.table.room:
                continue
            self.table.room -= bits + size + 4 * c.rows_before
            self.is_prepared = True
            if c.layout != LAYOUT_NULL:
                take_memory(<void**>&c.validity, bits)
                memset(c.validity, 0xFF, <size_t>bits)
            if has_offsets(c):
                take_memory(<void**>&c.offsets, 4 * (c.rows_before + 1))
                c.offsets[0] = 0
            if size > 0:
                take_memory(<void**>&c.data, size)
            c.capacity = size if c.layout == LAYOUT_VARIABLE else 0
            c.row_capacity = c.rows_before
        return 0

    def take(self):
        """Return (length, null_count, buffers, children) of the root, as ExportedBatch takes it, and start again.

        Raises: MemoryError.  Lifetime: the buffers own their memory.
        """
        # Offsets of no rows are a number too.
        self.table.room = INT64_MAX
        try:
            return self.taken(0)
        finally:
            self.clear()

    cdef object taken(self, int32_t number):
        cdef ValueColumn* c = self.table.columns + number
        cdef int32_t i
        cdef list children = []
        cdef list buffers
        if c.row_capacity == 0 and grow_value_rows(&self.table, c) != VALUE_SOUND:
            raise MemoryError("no memory for a column")
        c.rows_before, c.bytes_before = c.rows + c.rows // 8, c.used + c.used // 8
        for i in range(c.child_count):
            children.append(self.taken(c.first_child + i))
        if c.layout == LAYOUT_NULL:
            return c.rows, c.rows, (), children
        buffers = [None]
        if c.null_count > 0:
            buffers[0] = exported_block(<void**>&c.validity, bit_bytes(c.row_capacity), bit_bytes(c.rows))
        if has_offsets(c):
            buffers.append(exported_block(<void**>&c.offsets, 4 * (c.row_capacity + 1), 4 * (c.rows + 1)))
        if c.layout == LAYOUT_VARIABLE:
            buffers.append(exported_block(<void**>&c.data, c.capacity, c.used) if c.capacity > 0 else b"")
        elif bytes_of_rows(c, c.row_capacity) > 0:
            buffers.append(exported_block(<void**>&c.data, bytes_of_rows(c, c.row_capacity), bytes_of_rows(c, c.rows)))
        return c.rows, c.null_count, tuple(buffers), tuple(children)


# The kinds of a layout, by name.
VALUE_LAYOUTS = {
    "null": <int>LAYOUT_NULL,
    "bit": <int>LAYOUT_BIT,
    "fixed": <int>LAYOUT_FIXED,
    "variable": <int>LAYOUT_VARIABLE,
    "list": <int>LAYOUT_LIST,
    "struct": <int>LAYOUT_STRUCT,
}
