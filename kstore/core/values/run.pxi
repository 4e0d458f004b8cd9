# A value that is being read by steps of Avro or nodes of JSON, and how what is read of it is stored in columns.

cdef enum:
    UNWANTED = -1               # the column of what is read, and not stored

# The kinds before STEP_INT_AS_LONG are common and plain: read_plain reads them, and read_other all others.
cdef enum AvroStepKind:
    STEP_NULL
    STEP_BOOLEAN
    STEP_INT
    STEP_LONG
    STEP_FLOAT
    STEP_DOUBLE
    STEP_BYTES
    STEP_STRING
    STEP_INT_AS_LONG
    STEP_INT_AS_FLOAT
    STEP_INT_AS_DOUBLE
    STEP_LONG_AS_FLOAT
    STEP_LONG_AS_DOUBLE
    STEP_FLOAT_AS_DOUBLE
    STEP_FIXED
    STEP_ENUM
    STEP_DECIMAL_BYTES
    STEP_DECIMAL_FIXED
    STEP_UUID
    STEP_DURATION
    STEP_TIME_MILLIS
    STEP_TIME_MICROS
    STEP_SKIP
    STEP_RECORD
    STEP_ARRAY
    STEP_MAP
    STEP_UNION
    STEP_MEMBER
    STEP_DEFAULT
    STEP_UNRESOLVED
    STEPS

# What a step needs besides its kind: `first` and `count` are a part of the program's references, which are numbers of
# steps (fields of a record in the writer's order, branches of a union, the item of an array, the value of a map, the
# value of a default), or for an enum positions of texts in the constants, -1 for a symbol that the reader does not have,
# each followed by its size, or for a skip a SkipKind and the size with it for each field that is passed over.
# `size` is the size of a fixed, the least size of an item, the number of a member among the children of its struct, of
# a skip that of its shape.
# constant, constant_size: an encoded default; the 32 bytes of 10^precision; the sizes of an enum's texts follow them.
cdef struct AvroStep:
    AvroStepKind kind
    int32_t column
    int32_t first
    int32_t count
    int64_t size
    int64_t constant
    int64_t constant_size

# Fields in a row whose sizes are known if the bytes that follow have these bits: the highest ones of varints, and the
# branches of unions. size: of these fields. is_sized: then comes a size and what has it, and fields of a fixed size;
# rest: of these, with the byte of the size. field: the number of the first field in the skip.
cdef struct SkipGroup:
    uint64_t mask[2]
    uint64_t bits[2]
    int64_t size
    int64_t rest
    int32_t field
    bint is_sized

# The groups of the fields of a skip, as one value had them. After them stands one that only says which field is next.
# left: the values until the shape is judged; misses: those of them that did not have it.
cdef struct SkipShape:
    SkipGroup* groups
    int32_t room
    int32_t count
    int32_t left
    int32_t misses

cdef enum JsonKind:
    JSON_NULL
    JSON_BOOLEAN
    JSON_INT
    JSON_UINT
    JSON_DOUBLE
    JSON_STRING
    JSON_TEXT               # any value, as the text that it is
    JSON_LIST
    JSON_MAP
    JSON_STRUCT
    JSON_KINDS

# How the field of a node is passed over where it is plain; PASS_NOT: its name is not plain, or a column takes it.
cdef enum JsonPass:
    PASS_NOT
    PASS_STRING
    PASS_NUMBER
    PASS_WORD

# The children of a node stand together: fields of a struct in the order of the schema, the item of a list, the value of
# a map. size: the bytes of a number. is_plain: whether the name is the same in JSON. name_word, name_mask: the first
# eight bytes of the name and the quote after it. most_digits: a number of no more before its point fits.
cdef struct JsonNode:
    JsonKind kind
    int32_t column
    int32_t first
    int32_t count
    int32_t size
    int32_t name
    int32_t name_size
    int32_t most_digits
    JsonPass passing
    bint is_plain
    uint64_t name_word
    uint64_t name_mask

cdef struct ValueRun:
    ValueTable* table
    const uint8_t* start
    const uint8_t* at
    const uint8_t* end
    const uint8_t* readable_end
    const AvroStep* steps
    const int32_t* references
    SkipShape* shapes
    const uint8_t* constants    # and the names of nodes
    int64_t empty_items
    int64_t number              # that was read last of more than two bytes
    const JsonNode* nodes
    const int32_t* ordered      # the numbers of the fields of each node, by name
    uint8_t* key                # room for a name without its escapes
    int64_t key_room
    int64_t repeated
    int32_t node                # that a value does not fit, -1 for none


cdef ValueFault put_bit(ValueRun* r, int32_t column, bint is_set) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault != VALUE_SOUND:
        return fault
    if is_set:
        set_bit(c.data, c.rows)
    else:
        clear_bit(c.data, c.rows)
    end_row(c)
    return VALUE_SOUND


cdef ValueFault put_fixed(ValueRun* r, int32_t column, const void* p, int64_t width) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        memcpy(c.data + c.rows * width, p, <size_t>width)
        end_row(c)
    return fault


cdef inline ValueFault put_four(ValueRun* r, int32_t column, const void* p) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        memcpy(c.data + c.rows * 4, p, 4)
        end_row(c)
    return fault


cdef inline ValueFault put_eight(ValueRun* r, int32_t column, const void* p) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        memcpy(c.data + c.rows * 8, p, 8)
        end_row(c)
    return fault


cdef inline ValueFault put_long(ValueRun* r, int32_t column, int64_t value) noexcept nogil:
    return put_eight(r, column, &value)


cdef inline ValueFault put_double(ValueRun* r, int32_t column, double value) noexcept nogil:
    return put_eight(r, column, &value)


cdef inline ValueFault put_float(ValueRun* r, int32_t column, float value) noexcept nogil:
    return put_four(r, column, &value)


cdef inline ValueFault put_value_bytes(ValueRun* r, int32_t column, const uint8_t* p, int64_t size,
                                       const uint8_t* readable_end) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        fault = room_for_bytes(r.table, c, size)
    if fault == VALUE_SOUND:
        ks_copy(c.data + c.used, p, size, readable_end)
        c.used += size
        end_variable_row(c)
    return fault


cdef ValueFault put_value_text(ValueRun* r, int32_t column, const uint8_t* p, int64_t size) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef int64_t good
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    if is_ascii(p, size, r.readable_end):
        return put_value_bytes(r, column, p, size, r.readable_end)
    good = valid_utf8(p, size)
    if good == size:
        return put_value_bytes(r, column, p, size, r.readable_end)
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        fault = room_for_bytes(r.table, c, UTF8_GROWTH * size)
    if fault == VALUE_SOUND:
        c.used += copy_as_text(c.data + c.used, p, size, good, r.readable_end)
        end_variable_row(c)
    return fault


cdef inline ValueFault end_struct(ValueRun* r, int32_t column) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        end_row(c)
    return fault


cdef ValueFault end_list(ValueRun* r, int32_t column) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        c.offsets[c.rows + 1] = <int32_t>r.table.columns[c.first_child].rows
        end_row(c)
    return fault
