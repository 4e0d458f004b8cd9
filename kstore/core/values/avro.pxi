# Avro values into columns: a writer's schema and what a reader wants of it, compiled into steps, run over the values of
# a column without the GIL. A value that its schema does not explain becomes a null row with a reason.

cdef enum AvroStepKind:
    STEP_NULL
    STEP_BOOLEAN
    STEP_INT
    STEP_INT_AS_LONG
    STEP_INT_AS_FLOAT
    STEP_INT_AS_DOUBLE
    STEP_LONG
    STEP_LONG_AS_FLOAT
    STEP_LONG_AS_DOUBLE
    STEP_FLOAT
    STEP_FLOAT_AS_DOUBLE
    STEP_DOUBLE
    STEP_BYTES
    STEP_STRING
    STEP_FIXED
    STEP_ENUM
    STEP_DECIMAL_BYTES
    STEP_DECIMAL_FIXED
    STEP_UUID
    STEP_DURATION
    STEP_RECORD
    STEP_ARRAY
    STEP_MAP
    STEP_UNION
    STEP_MEMBER
    STEP_DEFAULT
    STEP_UNRESOLVED
    STEPS

cdef enum:
    UNWANTED = -1               # the column of a step whose value is skipped
    MOST_VALUE_DEPTH = 1000     # of values in values: recursive schemas have no bound of their own
    MOST_EMPTY_ITEMS = 1024     # of a value, that take no byte in it
    UUID_SIZE = 16
    UUID_TEXT_SIZE = 36
    DURATION_SIZE = 12
    CONFLUENT_FRAME_SIZE = 5
    APICURIO_FRAME_SIZE = 9
    LIMBS = 4                   # of 64 bits, in the widest decimal

cdef enum ValueFraming:
    FRAMING_NONE
    FRAMING_CONFLUENT           # byte 0, schema id of four bytes
    FRAMING_APICURIO            # byte 0, schema id of eight bytes
    FRAMINGS

# What a step needs besides its kind: `first` and `count` are a part of the program's references, which are numbers of
# steps (fields of a record in the writer's order, branches of a union, the item of an array, the value of a map, the
# value of a default), or for an enum positions of texts in the constants, -1 for a symbol that the reader does not have.
# `size` is the size of a fixed, the least size of an item, the number of a member among the children of its struct.
# constant, constant_size: an encoded default; the 32 bytes of 10^precision; the sizes of an enum's texts follow them.
cdef struct AvroStep:
    AvroStepKind kind
    int32_t column
    int32_t first
    int32_t count
    int64_t size
    int64_t constant
    int64_t constant_size

cdef struct AvroRun:
    const AvroStep* steps
    const int32_t* references
    const uint8_t* constants
    ValueTable* table
    const uint8_t* start
    const uint8_t* at
    const uint8_t* end
    const uint8_t* readable_end
    int64_t empty_items


cdef inline ValueFault read_avro_long(AvroRun* r, int64_t* value) noexcept nogil:
    cdef uint64_t wide
    if r.at < r.end and r.at[0] < 0x80:
        value[0] = unzigzag64(r.at[0])
        r.at += 1
        return VALUE_SOUND
    if read_long_varint(&r.at, r.end, MAX_VARLONG_SIZE, &wide) != OK:
        return VALUE_BAD_VARINT if r.end - r.at >= MAX_VARLONG_SIZE else VALUE_TRUNCATED
    value[0] = unzigzag64(wide)
    return VALUE_SOUND


cdef inline ValueFault read_avro_int(AvroRun* r, int32_t* value) noexcept nogil:
    cdef int64_t wide
    cdef ValueFault fault = read_avro_long(r, &wide)
    if fault == VALUE_SOUND and wide != <int32_t>wide:
        return VALUE_BAD_INT
    value[0] = <int32_t>wide
    return fault


# Moves past `size` bytes, of which it returns the first in `p`.
cdef inline ValueFault take_from_value(AvroRun* r, int64_t size, const uint8_t** p) noexcept nogil:
    if size < 0:
        return VALUE_BAD_SIZE
    if size > r.end - r.at:
        return VALUE_TRUNCATED
    p[0] = r.at
    r.at += size
    return VALUE_SOUND


cdef inline ValueFault take_sized_from_value(AvroRun* r, const uint8_t** p, int64_t* size) noexcept nogil:
    cdef ValueFault fault = read_avro_long(r, size)
    return take_from_value(r, size[0], p) if fault == VALUE_SOUND else fault


cdef inline ValueFault put_fixed(AvroRun* r, int32_t column, const void* p, int64_t width) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        memcpy(c.data + c.rows * width, p, <size_t>width)
        end_row(c)
    return fault


cdef inline ValueFault put_long(AvroRun* r, int32_t column, int64_t value) noexcept nogil:
    return put_fixed(r, column, &value, 8)


cdef inline ValueFault put_double(AvroRun* r, int32_t column, double value) noexcept nogil:
    return put_fixed(r, column, &value, 8)


cdef inline ValueFault put_float(AvroRun* r, int32_t column, float value) noexcept nogil:
    return put_fixed(r, column, &value, 4)


cdef inline ValueFault put_value_bytes(AvroRun* r, int32_t column, const uint8_t* p, int64_t size,
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


cdef ValueFault put_value_text(AvroRun* r, int32_t column, const uint8_t* p, int64_t size) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef int64_t good
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
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


cdef ValueFault read_boolean(AvroRun* r, int32_t column) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef const uint8_t* p
    cdef ValueFault fault = take_from_value(r, 1, &p)
    if fault != VALUE_SOUND:
        return fault
    if p[0] > 1:
        return VALUE_BAD_BOOLEAN
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault != VALUE_SOUND:
        return fault
    if p[0]:
        set_bit(c.data, c.rows)
    else:
        clear_bit(c.data, c.rows)
    end_row(c)
    return VALUE_SOUND


cdef ValueFault read_enum(AvroRun* r, const AvroStep* s) noexcept nogil:
    cdef int32_t symbol
    cdef int32_t text
    cdef int32_t size
    cdef ValueFault fault = read_avro_int(r, &symbol)
    if fault != VALUE_SOUND:
        return fault
    if not 0 <= symbol < s.count:
        return VALUE_BAD_SYMBOL
    if s.column == UNWANTED:
        return VALUE_SOUND
    text = r.references[s.first + 2 * symbol]
    size = r.references[s.first + 2 * symbol + 1]
    if text < 0:
        return VALUE_UNRESOLVED
    return put_value_bytes(r, s.column, r.constants + text, size, r.constants + text + size)


# Whether a number of LIMBS limbs, made positive, is below a bound.
cdef bint is_below(const uint64_t* number, const uint64_t* bound) noexcept nogil:
    cdef uint64_t positive[LIMBS]
    cdef uint64_t carry = 1
    cdef int i
    memcpy(positive, number, sizeof(positive))
    if number[LIMBS - 1] >> 63:
        for i in range(LIMBS):
            positive[i] = ~positive[i] + carry
            carry = carry and positive[i] == 0
    for i in range(LIMBS - 1, -1, -1):
        if positive[i] != bound[i]:
            return positive[i] < bound[i]
    return False


cdef ValueFault read_decimal(AvroRun* r, const AvroStep* s) noexcept nogil:
    cdef const uint8_t* p = NULL
    cdef int64_t size = s.size
    cdef uint8_t number[8 * LIMBS]
    cdef uint64_t limbs[LIMBS]
    cdef uint64_t bound[LIMBS]
    cdef uint8_t sign
    cdef int64_t i
    cdef ValueFault fault = take_sized_from_value(r, &p, &size) if s.kind == STEP_DECIMAL_BYTES else take_from_value(r, size, &p)
    if fault != VALUE_SOUND or s.column == UNWANTED:
        return fault
    sign = 0xFF if size > 0 and p[0] & 0x80 else 0
    while size > 8 * LIMBS and p[0] == sign and (p[1] ^ sign) & 0x80 == 0:
        p += 1
        size -= 1
    if size > 8 * LIMBS:
        return VALUE_BAD_DECIMAL
    memset(number, sign, sizeof(number))
    for i in range(size):
        number[i] = p[size - 1 - i]
    for i in range(LIMBS):
        limbs[i] = load_word(number + 8 * i, 8)
    memcpy(bound, r.constants + s.constant, sizeof(bound))
    if not is_below(limbs, bound):
        return VALUE_BAD_DECIMAL
    return put_fixed(r, s.column, limbs, r.table.columns[s.column].width)


cdef ValueFault read_uuid(AvroRun* r, int32_t column) noexcept nogil:
    cdef uint8_t text[UUID_TEXT_SIZE]
    cdef const uint8_t* p
    cdef const char* digits = "0123456789abcdef"
    cdef int i
    cdef int at = 0
    cdef ValueFault fault = take_from_value(r, UUID_SIZE, &p)
    if fault != VALUE_SOUND:
        return fault
    for i in range(UUID_SIZE):
        if i == 4 or i == 6 or i == 8 or i == 10:
            text[at] = c'-'
            at += 1
        text[at] = digits[p[i] >> 4]
        text[at + 1] = digits[p[i] & 15]
        at += 2
    return put_value_bytes(r, column, text, UUID_TEXT_SIZE, text + UUID_TEXT_SIZE)


cdef ValueFault read_duration(AvroRun* r, int32_t column) noexcept nogil:
    cdef const uint8_t* p
    cdef int32_t first
    cdef int i
    cdef ValueFault fault = take_from_value(r, DURATION_SIZE, &p)
    if fault != VALUE_SOUND or column == UNWANTED:
        return fault
    first = r.table.columns[column].first_child
    for i in range(3):
        fault = put_long(r, first + i, <int64_t>get_le(p + 4 * i, 4))
        if fault != VALUE_SOUND:
            return fault
    return end_struct(r, column)


cdef inline ValueFault end_struct(AvroRun* r, int32_t column) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef ValueFault fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        end_row(c)
    return fault


# Reads the item count of the next block of an array or map, 0 at its end; a block whose size is told is skipped as a
# whole if nobody wants it, and then counts as one without items.
cdef ValueFault read_block(AvroRun* r, const AvroStep* s, int64_t* count, bint* is_last) noexcept nogil:
    cdef const uint8_t* p
    cdef int64_t size
    cdef ValueFault fault = read_avro_long(r, count)
    if fault != VALUE_SOUND:
        return fault
    is_last[0] = count[0] == 0
    if count[0] < 0:
        if count[0] == INT64_MIN:
            return VALUE_BAD_ITEM_COUNT
        count[0] = -count[0]
        fault = read_avro_long(r, &size)
        if fault != VALUE_SOUND:
            return fault
        if s.column == UNWANTED:
            count[0] = 0
            return take_from_value(r, size, &p)
        if size < 0:
            return VALUE_BAD_SIZE
    if s.size > 0:
        return VALUE_SOUND if count[0] <= r.end - r.at else VALUE_BAD_ITEM_COUNT
    if count[0] > MOST_EMPTY_ITEMS - r.empty_items:
        return VALUE_BAD_ITEM_COUNT
    r.empty_items += count[0]
    return VALUE_SOUND


cdef ValueFault read_items(AvroRun* r, const AvroStep* s, int depth) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + s.column
    cdef int32_t pair = UNWANTED if s.column == UNWANTED else c.first_child
    cdef int32_t key = UNWANTED
    cdef int32_t item = r.references[s.first]
    cdef const uint8_t* p = NULL
    cdef int64_t size = 0
    cdef int64_t count = 0
    cdef int64_t i
    cdef bint is_last = False
    cdef ValueFault fault
    if s.kind == STEP_MAP and pair != UNWANTED:
        key = r.table.columns[pair].first_child
    while True:
        fault = read_block(r, s, &count, &is_last)
        if fault != VALUE_SOUND or is_last:
            break
        for i in range(count):
            if s.kind == STEP_MAP:
                fault = take_sized_from_value(r, &p, &size)
                if fault == VALUE_SOUND:
                    fault = put_value_text(r, key, p, size)
                if fault != VALUE_SOUND:
                    return fault
            fault = read_step(r, item, depth)
            if fault == VALUE_SOUND and s.kind == STEP_MAP:
                fault = end_struct(r, pair)
            if fault != VALUE_SOUND:
                return fault
    if fault != VALUE_SOUND or s.column == UNWANTED:
        return fault
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        c.offsets[c.rows + 1] = <int32_t>r.table.columns[c.first_child].rows
        end_row(c)
    return fault


# Reads a value that is the member number `s.size` of a union's struct; the others are null.
cdef ValueFault read_member(AvroRun* r, const AvroStep* s, int depth) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + s.column
    cdef ValueFault fault
    cdef int32_t i
    for i in range(c.child_count):
        if i == s.size:
            fault = read_step(r, r.references[s.first], depth)
        else:
            fault = append_null(r.table, c.first_child + i)
        if fault != VALUE_SOUND:
            return fault
    return end_struct(r, s.column)


# Reads a default, which is encoded among the constants.
cdef ValueFault read_default(AvroRun* r, const AvroStep* s, int depth) noexcept nogil:
    cdef AvroRun inner = r[0]
    cdef ValueFault fault
    inner.at = r.constants + s.constant
    inner.end = inner.at + s.constant_size
    inner.readable_end = inner.end
    fault = read_step(&inner, r.references[s.first], depth)
    r.empty_items = inner.empty_items
    return fault


cdef ValueFault read_compound(AvroRun* r, const AvroStep* s, int depth) noexcept nogil:
    cdef ValueFault fault
    cdef int32_t i
    cdef int64_t branch
    if depth >= MOST_VALUE_DEPTH:
        return VALUE_TOO_DEEP
    if s.kind == STEP_RECORD:
        for i in range(s.first, s.first + s.count):
            fault = read_step(r, r.references[i], depth + 1)
            if fault != VALUE_SOUND:
                return fault
        return end_struct(r, s.column)
    if s.kind == STEP_UNION:
        fault = read_avro_long(r, &branch)
        if fault != VALUE_SOUND:
            return fault
        if not 0 <= branch < s.count:
            return VALUE_BAD_BRANCH
        return read_step(r, r.references[s.first + branch], depth + 1)
    if s.kind == STEP_ARRAY or s.kind == STEP_MAP:
        return read_items(r, s, depth + 1)
    if s.kind == STEP_MEMBER:
        return read_member(r, s, depth + 1)
    if s.kind == STEP_DEFAULT:
        return read_default(r, s, depth + 1)
    return VALUE_UNRESOLVED


# Reads the value of a step, of whatever kind.
cdef ValueFault read_step(AvroRun* r, int32_t number, int depth) noexcept nogil:
    cdef const AvroStep* s = r.steps + number
    cdef const uint8_t* p = NULL
    cdef int64_t wide = 0
    cdef int32_t narrow = 0
    cdef ValueFault fault
    if s.kind == STEP_LONG or s.kind == STEP_LONG_AS_FLOAT or s.kind == STEP_LONG_AS_DOUBLE:
        fault = read_avro_long(r, &wide)
        if fault != VALUE_SOUND:
            return fault
        if s.kind == STEP_LONG:
            return put_long(r, s.column, wide)
        return put_double(r, s.column, <double>wide) if s.kind == STEP_LONG_AS_DOUBLE \
            else put_float(r, s.column, <float>wide)
    if s.kind == STEP_STRING or s.kind == STEP_BYTES:
        fault = take_sized_from_value(r, &p, &wide)
        if fault != VALUE_SOUND:
            return fault
        return put_value_text(r, s.column, p, wide) if s.kind == STEP_STRING \
            else put_value_bytes(r, s.column, p, wide, r.readable_end)
    if STEP_INT <= s.kind <= STEP_INT_AS_DOUBLE:
        fault = read_avro_int(r, &narrow)
        if fault != VALUE_SOUND:
            return fault
        if s.kind == STEP_INT:
            return put_fixed(r, s.column, &narrow, 4)
        if s.kind == STEP_INT_AS_LONG:
            return put_long(r, s.column, narrow)
        return put_double(r, s.column, <double>narrow) if s.kind == STEP_INT_AS_DOUBLE \
            else put_float(r, s.column, <float>narrow)
    if s.kind == STEP_DOUBLE or s.kind == STEP_FLOAT or s.kind == STEP_FLOAT_AS_DOUBLE:
        return read_floating(r, s)
    if s.kind == STEP_NULL:
        return VALUE_SOUND if s.column == UNWANTED else append_null(r.table, s.column)
    if s.kind >= STEP_RECORD:
        return read_compound(r, s, depth)
    return read_scalar(r, s)


cdef ValueFault read_floating(AvroRun* r, const AvroStep* s) noexcept nogil:
    cdef const uint8_t* p = NULL
    cdef float narrow
    cdef uint32_t bits
    cdef int64_t wide
    cdef ValueFault fault = take_from_value(r, 8 if s.kind == STEP_DOUBLE else 4, &p)
    if fault != VALUE_SOUND:
        return fault
    if s.kind == STEP_DOUBLE:
        wide = <int64_t>load_word(p, 8)
        return put_long(r, s.column, wide)
    bits = <uint32_t>get_le(p, 4)
    memcpy(&narrow, &bits, 4)
    return put_float(r, s.column, narrow) if s.kind == STEP_FLOAT else put_double(r, s.column, narrow)


cdef ValueFault read_scalar(AvroRun* r, const AvroStep* s) noexcept nogil:
    cdef const uint8_t* p = NULL
    cdef ValueFault fault
    if s.kind == STEP_BOOLEAN:
        return read_boolean(r, s.column)
    if s.kind == STEP_ENUM:
        return read_enum(r, s)
    if s.kind == STEP_FIXED:
        fault = take_from_value(r, s.size, &p)
        if fault == VALUE_SOUND and s.size == 0:
            return put_value_bytes(r, s.column, p, 0, r.readable_end)
        return put_fixed(r, s.column, p, s.size) if fault == VALUE_SOUND else fault
    if s.kind == STEP_UUID:
        return read_uuid(r, s.column)
    if s.kind == STEP_DURATION:
        return read_duration(r, s.column)
    return read_decimal(r, s)


# The kinds of a step, by name.
AVRO_STEPS = {
    "null": <int>STEP_NULL,
    "boolean": <int>STEP_BOOLEAN,
    "int": <int>STEP_INT,
    "int as long": <int>STEP_INT_AS_LONG,
    "int as float": <int>STEP_INT_AS_FLOAT,
    "int as double": <int>STEP_INT_AS_DOUBLE,
    "long": <int>STEP_LONG,
    "long as float": <int>STEP_LONG_AS_FLOAT,
    "long as double": <int>STEP_LONG_AS_DOUBLE,
    "float": <int>STEP_FLOAT,
    "float as double": <int>STEP_FLOAT_AS_DOUBLE,
    "double": <int>STEP_DOUBLE,
    "bytes": <int>STEP_BYTES,
    "string": <int>STEP_STRING,
    "fixed": <int>STEP_FIXED,
    "enum": <int>STEP_ENUM,
    "decimal bytes": <int>STEP_DECIMAL_BYTES,
    "decimal fixed": <int>STEP_DECIMAL_FIXED,
    "uuid": <int>STEP_UUID,
    "duration": <int>STEP_DURATION,
    "record": <int>STEP_RECORD,
    "array": <int>STEP_ARRAY,
    "map": <int>STEP_MAP,
    "union": <int>STEP_UNION,
    "member": <int>STEP_MEMBER,
    "default": <int>STEP_DEFAULT,
    "unresolved": <int>STEP_UNRESOLVED,
}
