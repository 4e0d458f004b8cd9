# A value that is being read by steps of Avro or nodes of JSON, and how what is read of it is stored in columns.

cdef extern from "_core_cpu.h" nogil:
    int ks_has_bits(const uint8_t* at, const uint64_t* mask, const uint64_t* bits) noexcept
    int ks_has_bits_portable(const uint8_t* at, const uint64_t* mask, const uint64_t* bits) noexcept
    int ks_copy_short_text(uint8_t* to, const uint8_t* p, int64_t size) noexcept
    int ks_copy_short_text_portable(uint8_t* to, const uint8_t* p, int64_t size) noexcept

cdef enum:
    UNWANTED = -1               # the column of what is read, and not stored
    SHORT_TEXT = 16             # bytes of a text that is copied and looked at with one load

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

cdef struct SkipShape

# What a step needs besides its kind: `first` and `count` are a part of the program's references, which are numbers of
# steps (fields of a record in the writer's order, branches of a union, the item of an array, the value of a map, the
# value of a default), or for an enum positions of texts in the constants, -1 for a symbol that the reader does not have,
# each followed by its size, or for a skip a SkipKind and the size with it for each field that is passed over.
# `size` is the size of a fixed, the least size of an item, the number of a member among the children of its struct.
# constant, constant_size: an encoded default; the 32 bytes of 10^precision; the sizes of an enum's texts follow them.
# shape: of a skip, NULL for one without.
cdef struct AvroStep:
    AvroStepKind kind
    int32_t column
    int32_t first
    int32_t count
    int64_t size
    int64_t constant
    int64_t constant_size
    SkipShape* shape

# Fields in a row whose sizes are known if the bytes that follow have these bits: the highest ones of varints, and the
# branches of unions. Groups are at multiples of 16 bytes, as calloc gives them. size: of these fields. size_mask: all
# bits of a byte if then comes a size and what has it, and fields of a fixed size; else none. whole: the size of all of
# it, with one byte for the size, and without what has that. field: the number of the first field in the skip.
cdef struct SkipGroup:
    uint64_t mask[2]
    uint64_t bits[2]
    int64_t size
    int64_t whole
    uint64_t size_mask
    int64_t field

# The groups of the fields of a skip, as one value had them, up to `last`, after a first field of a fixed size, which is
# `lead`. At `last` stands one that only says which field is next; whole: the same place if that is none, else NULL.
# left: the values until the shape is judged; misses: those of them that did not have it.
cdef struct SkipShape:
    SkipGroup* groups
    const SkipGroup* last
    const SkipGroup* whole
    int64_t lead
    int32_t room
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
    const uint8_t* constants    # and the names of nodes
    int64_t empty_items
    int64_t number              # that was read last of more than two bytes
    const JsonNode* nodes
    const int32_t* ordered      # the numbers of the fields of each node, by name
    uint8_t* key                # room for a name without its escapes
    int64_t key_room
    int64_t repeated
    int32_t node                # that a value does not fit, -1 for none


def short_text(bytes data not None, *, int64_t size, bint is_portable):
    """Return whether the first `size` of 16 bytes are ASCII, and the copy of all 16.

    Args: is_portable: by the way of any CPU, for tests; otherwise by that of this one.  Raises: ValueError for other
        sizes.
    """
    cdef uint8_t copied[SHORT_TEXT]
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(data)
    if len(data) != SHORT_TEXT or not 0 <= size <= SHORT_TEXT:
        raise ValueError(f"expected {SHORT_TEXT} bytes, got {len(data)}, of which {size} are a text")
    is_text = ks_copy_short_text_portable(copied, p, size) if is_portable else ks_copy_short_text(copied, p, size)
    return bool(is_text), PyBytes_FromStringAndSize(<const char*>copied, SHORT_TEXT)


def has_bits(bytes data not None, bytes mask not None, bytes bits not None, *, bint is_portable):
    """Return whether 16 bytes have these bits among those of a mask.

    Args, Raises: as short_text; MemoryError.
    """
    cdef SkipGroup* g
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(data)
    if not len(data) == len(mask) == len(bits) == sizeof(g.mask):
        raise ValueError(f"expected {sizeof(g.mask)} bytes each, got {len(data)}, {len(mask)} and {len(bits)}")
    g = <SkipGroup*>calloc(1, sizeof(SkipGroup))
    if g == NULL:
        raise MemoryError(f"no memory for {sizeof(SkipGroup)} bytes")
    memcpy(g.mask, PyBytes_AS_STRING(mask), sizeof(g.mask))
    memcpy(g.bits, PyBytes_AS_STRING(bits), sizeof(g.bits))
    has_all = ks_has_bits_portable(p, g.mask, g.bits) if is_portable else ks_has_bits(p, g.mask, g.bits)
    free(g)
    return bool(has_all)


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
    # A column of this room has memory, and padding after it.
    if size <= SHORT_TEXT and column != UNWANTED and r.readable_end - p >= SHORT_TEXT and c.rows < c.row_capacity \
            and size < c.capacity - c.used and ks_copy_short_text(c.data + c.used, p, size):
        c.used += size
        end_variable_row(c)
        return VALUE_SOUND
    return put_any_text(r, column, p, size)


cdef ValueFault put_any_text(ValueRun* r, int32_t column, const uint8_t* p, int64_t size) noexcept nogil:
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
