# Avro values into columns: a writer's schema and what a reader wants of it, compiled into steps, run over the values of
# a column without the GIL. A value that its schema does not explain becomes a null row with a reason.

cdef extern from *:
    int lowest_bit "__builtin_ctzll"(uint64_t bits) noexcept nogil

cdef enum:
    MOST_VALUE_DEPTH = 1000     # of values in values: recursive schemas have no bound of their own
    MOST_EMPTY_ITEMS = 1024     # of a value, that take no byte in it
    UUID_SIZE = 16
    UUID_TEXT_SIZE = 36
    DURATION_SIZE = 12
    MILLIS_OF_DAY = 86400000
    CONFLUENT_FRAME_SIZE = 5
    APICURIO_FRAME_SIZE = 9
    NO_APICURIO_ID = 0xC0       # bits of its first byte; from 1 << 62 on, ids are the numbers of headers
    LIMBS = 4                   # of 64 bits, in the widest decimal

cdef enum ValueFraming:
    FRAMING_NONE
    FRAMING_CONFLUENT           # byte 0, schema id of four bytes
    FRAMING_APICURIO            # byte 0, schema id of eight bytes
    FRAMINGS

# Returns: the bytes of the varint at p, 0 if that is not known from the next eight bytes, or they can't be loaded.
cdef inline int64_t varint_bytes(const uint8_t* p, const uint8_t* readable_end, uint64_t* word) noexcept nogil:
    cdef uint64_t ends
    if readable_end - p < 8:
        return 0
    word[0] = load_word(p, 8)
    ends = ~word[0] & HIGH_BITS
    return 0 if ends == 0 else (lowest_bit(ends) >> 3) + 1


# The seven low bits of each of the first `size` bytes of a word, joined.
cdef inline uint64_t joined_bits(uint64_t word, int64_t size) noexcept nogil:
    word &= ~HIGH_BITS & (~<uint64_t>0 >> (64 - 8 * size))
    word = (word & 0x007F007F007F007FULL) | ((word & 0x7F007F007F007F00ULL) >> 1)
    word = (word & 0x00003FFF00003FFFULL) | ((word & 0x3FFF00003FFF0000ULL) >> 2)
    return (word & 0x000000000FFFFFFFULL) | ((word & 0x0FFFFFFF00000000ULL) >> 4)


# As read_avro_long from r.at on, for a number of any number of bytes, which becomes r.number.
cdef ValueFault read_wide_number(ValueRun* r) noexcept nogil:
    cdef const uint8_t* p = r.at
    cdef int64_t left = min(r.end - p, <int64_t>MAX_VARLONG_SIZE)
    cdef uint64_t result = 0
    cdef uint64_t word = 0
    cdef int64_t i = varint_bytes(p, r.readable_end, &word)
    if 0 < i <= left:
        r.at = p + i
        r.number = unzigzag64(joined_bits(word, i))
        return VALUE_SOUND
    for i in range(left):
        result |= <uint64_t>(p[i] & 0x7F) << (7 * i)
        if p[i] < 0x80:
            r.at = p + i + 1
            r.number = unzigzag64(result)
            return VALUE_SOUND
    return VALUE_BAD_VARINT if left == MAX_VARLONG_SIZE else VALUE_TRUNCATED


# What reads plain values moves `at`, which the compiler keeps in a register where it is a variable.
cdef inline ValueFault read_avro_long(ValueRun* r, const uint8_t** at, int64_t* value) noexcept nogil:
    cdef const uint8_t* p = at[0]
    cdef ValueFault fault
    if r.end - p >= 2:
        if p[0] < 0x80:
            at[0] = p + 1
            value[0] = unzigzag64(p[0])
            return VALUE_SOUND
        if p[1] < 0x80:
            at[0] = p + 2
            value[0] = unzigzag64((p[0] & 0x7F) | <uint64_t>p[1] << 7)
            return VALUE_SOUND
    r.at = p
    fault = read_wide_number(r)
    at[0] = r.at
    value[0] = r.number
    return fault


cdef inline ValueFault read_avro_int(ValueRun* r, const uint8_t** at, int32_t* value) noexcept nogil:
    cdef int64_t wide = 0
    cdef ValueFault fault = read_avro_long(r, at, &wide)
    if fault == VALUE_SOUND and wide != <int32_t>wide:
        return VALUE_BAD_INT
    value[0] = <int32_t>wide
    return fault


# Moves past `size` bytes, of which it returns the first in `p`.
cdef inline ValueFault take_from_value(const ValueRun* r, const uint8_t** at, int64_t size,
                                       const uint8_t** p) noexcept nogil:
    if size < 0:
        return VALUE_BAD_SIZE
    if size > r.end - at[0]:
        return VALUE_TRUNCATED
    p[0] = at[0]
    at[0] += size
    return VALUE_SOUND


cdef inline ValueFault take_sized_from_value(ValueRun* r, const uint8_t** at, const uint8_t** p,
                                             int64_t* size) noexcept nogil:
    cdef ValueFault fault = read_avro_long(r, at, size)
    return take_from_value(r, at, size[0], p) if fault == VALUE_SOUND else fault


cdef inline ValueFault read_boolean(ValueRun* r, const uint8_t** at, int32_t column) noexcept nogil:
    cdef const uint8_t* p
    cdef ValueFault fault = take_from_value(r, at, 1, &p)
    if fault != VALUE_SOUND:
        return fault
    if p[0] > 1:
        return VALUE_BAD_BOOLEAN
    return put_bit(r, column, p[0] == 1)


cdef ValueFault read_enum(ValueRun* r, const AvroStep* s) noexcept nogil:
    cdef int32_t symbol
    cdef int32_t text
    cdef int32_t size
    cdef ValueFault fault = read_avro_int(r, &r.at, &symbol)
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


cdef ValueFault read_decimal(ValueRun* r, const AvroStep* s) noexcept nogil:
    cdef const uint8_t* p = NULL
    cdef int64_t size = s.size
    cdef uint8_t number[8 * LIMBS]
    cdef uint64_t limbs[LIMBS]
    cdef uint64_t bound[LIMBS]
    cdef uint8_t sign
    cdef int64_t i
    cdef ValueFault fault = take_sized_from_value(r, &r.at, &p, &size) if s.kind == STEP_DECIMAL_BYTES else take_from_value(r, &r.at, size, &p)
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


cdef ValueFault read_uuid(ValueRun* r, int32_t column) noexcept nogil:
    cdef uint8_t text[UUID_TEXT_SIZE]
    cdef const uint8_t* p
    cdef const char* digits = "0123456789abcdef"
    cdef int i
    cdef int at = 0
    cdef ValueFault fault = take_from_value(r, &r.at, UUID_SIZE, &p)
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


cdef ValueFault read_duration(ValueRun* r, int32_t column) noexcept nogil:
    cdef const uint8_t* p
    cdef int32_t first
    cdef int i
    cdef ValueFault fault = take_from_value(r, &r.at, DURATION_SIZE, &p)
    if fault != VALUE_SOUND or column == UNWANTED:
        return fault
    first = r.table.columns[column].first_child
    for i in range(3):
        fault = put_long(r, first + i, <int64_t>get_le(p + 4 * i, 4))
        if fault != VALUE_SOUND:
            return fault
    return end_struct(r, column)


# Reads the item count of the next block of an array or map, 0 at its end. A block with its size in bytes is skipped as
# a whole if the step has no column, and then counts as one without items.
cdef ValueFault read_block(ValueRun* r, const AvroStep* s, int64_t* count, bint* is_last) noexcept nogil:
    cdef const uint8_t* p
    cdef int64_t size
    cdef ValueFault fault = read_avro_long(r, &r.at, count)
    if fault != VALUE_SOUND:
        return fault
    is_last[0] = count[0] == 0
    if count[0] < 0:
        if count[0] == INT64_MIN:
            return VALUE_BAD_ITEM_COUNT
        count[0] = -count[0]
        fault = read_avro_long(r, &r.at, &size)
        if fault != VALUE_SOUND:
            return fault
        if s.column == UNWANTED:
            count[0] = 0
            return take_from_value(r, &r.at, size, &p)
        if size < 0:
            return VALUE_BAD_SIZE
    if s.size > 0:
        return VALUE_SOUND if count[0] <= r.end - r.at else VALUE_BAD_ITEM_COUNT
    if count[0] > MOST_EMPTY_ITEMS - r.empty_items:
        return VALUE_BAD_ITEM_COUNT
    r.empty_items += count[0]
    return VALUE_SOUND


cdef ValueFault read_items(ValueRun* r, const AvroStep* s, int depth) noexcept nogil:
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
                fault = take_sized_from_value(r, &r.at, &p, &size)
                if fault == VALUE_SOUND:
                    fault = put_value_text(r, key, p, size)
                if fault != VALUE_SOUND:
                    return fault
            fault = read_step(r, item, depth)
            if fault == VALUE_SOUND and s.kind == STEP_MAP:
                fault = end_struct(r, pair)
            if fault != VALUE_SOUND:
                return fault
    return end_list(r, s.column) if fault == VALUE_SOUND else fault


# Reads a value that is the member number `s.size` of a union's struct; the others are null.
cdef ValueFault read_member(ValueRun* r, const AvroStep* s, int depth) noexcept nogil:
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
cdef ValueFault read_default(ValueRun* r, const AvroStep* s, int depth) noexcept nogil:
    cdef const uint8_t* at = r.at
    cdef const uint8_t* end = r.end
    cdef const uint8_t* readable_end = r.readable_end
    cdef ValueFault fault
    r.at = r.constants + s.constant
    r.end = r.at + s.constant_size
    r.readable_end = r.end
    fault = read_step(r, r.references[s.first], depth)
    r.at, r.end, r.readable_end = at, end, readable_end
    return fault


# Reads which branch of a union follows, and goes to its step, which is no union.
cdef inline ValueFault read_branch(ValueRun* r, const uint8_t** at, const AvroStep** s) noexcept nogil:
    cdef int64_t branch
    cdef ValueFault fault = read_avro_long(r, at, &branch)
    if fault != VALUE_SOUND:
        return fault
    if not 0 <= branch < s[0].count:
        return VALUE_BAD_BRANCH
    s[0] = r.steps + r.references[s[0].first + branch]
    return VALUE_SOUND


cdef inline ValueFault read_plain(ValueRun* r, const uint8_t** at, const AvroStep* s) noexcept nogil:
    cdef const uint8_t* p = NULL
    cdef int64_t wide = 0
    cdef int32_t narrow = 0
    cdef ValueFault fault
    if s.kind == STEP_LONG:
        fault = read_avro_long(r, at, &wide)
        return put_long(r, s.column, wide) if fault == VALUE_SOUND else fault
    elif s.kind == STEP_STRING:
        fault = take_sized_from_value(r, at, &p, &wide)
        return put_value_text(r, s.column, p, wide) if fault == VALUE_SOUND else fault
    elif s.kind == STEP_BYTES:
        fault = take_sized_from_value(r, at, &p, &wide)
        return put_value_bytes(r, s.column, p, wide, r.readable_end) if fault == VALUE_SOUND else fault
    elif s.kind == STEP_INT:
        fault = read_avro_int(r, at, &narrow)
        return put_four(r, s.column, &narrow) if fault == VALUE_SOUND else fault
    elif s.kind == STEP_DOUBLE:
        fault = take_from_value(r, at, 8, &p)
        return put_eight(r, s.column, p) if fault == VALUE_SOUND else fault
    elif s.kind == STEP_FLOAT:
        fault = take_from_value(r, at, 4, &p)
        return put_four(r, s.column, p) if fault == VALUE_SOUND else fault
    elif s.kind == STEP_NULL:
        return VALUE_SOUND if s.column == UNWANTED else append_null(r.table, s.column)
    return read_boolean(r, at, s.column)


cdef ValueFault read_record(ValueRun* r, const AvroStep* s, int depth) noexcept nogil:
    cdef const int32_t* number = r.references + s.first
    cdef const int32_t* last = number + s.count
    cdef const AvroStep* steps = r.steps
    cdef const AvroStep* inner
    cdef const uint8_t* at = r.at
    cdef const uint8_t* after
    cdef ValueFault fault
    while number < last:
        inner = steps + number[0]
        number += 1
        fault = VALUE_SOUND
        if inner.kind == STEP_UNION:
            fault = read_branch(r, &at, &inner)
        if fault == VALUE_SOUND:
            if inner.kind < STEP_INT_AS_LONG:
                fault = read_plain(r, &at, inner)
            elif inner.kind == STEP_SKIP:
                after = after_skip(r, inner, at)
                # NULL is beyond the end too.
                if <uintptr_t>after - <uintptr_t>at <= <uintptr_t>r.end - <uintptr_t>at:
                    at = after
                else:
                    r.at = at
                    fault = skip_each_field(r, inner)
                    at = r.at
            else:
                r.at = at
                fault = read_other(r, inner, depth)
                at = r.at
        if fault != VALUE_SOUND:
            r.at = at
            return fault
    r.at = at
    return end_struct(r, s.column)


cdef ValueFault read_other(ValueRun* r, const AvroStep* s, int depth) noexcept nogil:
    if s.kind < STEP_RECORD:
        return read_scalar(r, s)
    if depth >= MOST_VALUE_DEPTH:
        return VALUE_TOO_DEEP
    if s.kind == STEP_RECORD:
        return read_record(r, s, depth + 1)
    if s.kind == STEP_ARRAY or s.kind == STEP_MAP:
        return read_items(r, s, depth + 1)
    if s.kind == STEP_MEMBER:
        return read_member(r, s, depth + 1)
    if s.kind == STEP_DEFAULT:
        return read_default(r, s, depth + 1)
    return VALUE_UNRESOLVED


# Reads the value of a step, of whatever kind; of a union, that of the branch.
cdef ValueFault read_step(ValueRun* r, int32_t number, int depth) noexcept nogil:
    cdef const AvroStep* s = r.steps + number
    cdef ValueFault fault
    if s.kind == STEP_UNION:
        fault = read_branch(r, &r.at, &s)
        if fault != VALUE_SOUND:
            return fault
    return read_plain(r, &r.at, s) if s.kind < STEP_INT_AS_LONG else read_other(r, s, depth)


# Reads a number that becomes a wider one.
cdef ValueFault read_promoted(ValueRun* r, const AvroStep* s) noexcept nogil:
    cdef const uint8_t* p = NULL
    cdef float single
    cdef int32_t narrow = 0
    cdef int64_t wide = 0
    cdef ValueFault fault
    if s.kind == STEP_FLOAT_AS_DOUBLE:
        fault = take_from_value(r, &r.at, 4, &p)
        if fault != VALUE_SOUND:
            return fault
        memcpy(&single, p, 4)
        return put_double(r, s.column, single)
    if s.kind == STEP_LONG_AS_FLOAT or s.kind == STEP_LONG_AS_DOUBLE:
        fault = read_avro_long(r, &r.at, &wide)
    else:
        fault = read_avro_int(r, &r.at, &narrow)
        wide = narrow
    if fault != VALUE_SOUND:
        return fault
    if s.kind == STEP_INT_AS_LONG:
        return put_long(r, s.column, wide)
    if s.kind == STEP_INT_AS_FLOAT or s.kind == STEP_LONG_AS_FLOAT:
        return put_float(r, s.column, <float>wide)
    return put_double(r, s.column, <double>wide)


# Passes over one field, and what fields of a fixed size follow it. Checks everything: this is what says what is wrong.
cdef ValueFault skip_field(ValueRun* r, int32_t kind, int64_t size) noexcept nogil:
    cdef const uint8_t* p = NULL
    cdef int64_t number = 0
    cdef bint is_there = True
    cdef ValueFault fault = VALUE_SOUND
    if kind >= SKIP_IF_SECOND:
        fault = read_avro_long(r, &r.at, &number)
        if fault != VALUE_SOUND:
            return fault
        if not 0 <= number <= 1:
            return VALUE_BAD_BRANCH
        is_there = (number == 0) == (kind & SKIP_IF_FIRST != 0)
        kind &= SKIP_IF_SECOND - 1
    if kind == SKIP_FIXED:
        return take_from_value(r, &r.at, size, &p) if is_there else VALUE_SOUND
    if is_there:
        fault = read_avro_long(r, &r.at, &number)
        if fault == VALUE_SOUND and kind == SKIP_SIZED:
            fault = take_from_value(r, &r.at, number, &p)
    return take_from_value(r, &r.at, size, &p) if fault == VALUE_SOUND else fault


# Passes over fields of which not all are plain or sound.
cdef ValueFault skip_each_field(ValueRun* r, const AvroStep* s) noexcept nogil:
    cdef const int32_t* field = r.references + s.first
    cdef const int32_t* last = field + 2 * s.count
    cdef ValueFault fault
    while field < last:
        fault = skip_field(r, field[0], field[1])
        if fault != VALUE_SOUND:
            return fault
        field += 2
    return VALUE_SOUND


# Reads a time of day, in milliseconds or microseconds.
cdef ValueFault read_time(ValueRun* r, const AvroStep* s) noexcept nogil:
    cdef int64_t wide = 0
    cdef int32_t narrow
    cdef ValueFault fault = read_avro_long(r, &r.at, &wide)
    if fault != VALUE_SOUND:
        return fault
    if not 0 <= wide < (MILLIS_OF_DAY if s.kind == STEP_TIME_MILLIS else 1000 * <int64_t>MILLIS_OF_DAY):
        return VALUE_BAD_TIME
    narrow = <int32_t>wide
    return put_fixed(r, s.column, &narrow, 4) if s.kind == STEP_TIME_MILLIS else put_long(r, s.column, wide)


cdef ValueFault read_scalar(ValueRun* r, const AvroStep* s) noexcept nogil:
    cdef const uint8_t* p = NULL
    cdef ValueFault fault
    if s.kind == STEP_SKIP:
        return skip_each_field(r, s)
    if s.kind == STEP_ENUM:
        return read_enum(r, s)
    if s.kind == STEP_FIXED:
        fault = take_from_value(r, &r.at, s.size, &p)
        if fault == VALUE_SOUND and s.size == 0:
            return put_value_bytes(r, s.column, p, 0, r.readable_end)
        return put_fixed(r, s.column, p, s.size) if fault == VALUE_SOUND else fault
    if s.kind == STEP_UUID:
        return read_uuid(r, s.column)
    if s.kind == STEP_DURATION:
        return read_duration(r, s.column)
    if s.kind == STEP_TIME_MILLIS or s.kind == STEP_TIME_MICROS:
        return read_time(r, s)
    if s.kind == STEP_DECIMAL_BYTES or s.kind == STEP_DECIMAL_FIXED:
        return read_decimal(r, s)
    return read_promoted(r, s)


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
    "time-millis": <int>STEP_TIME_MILLIS,
    "time-micros": <int>STEP_TIME_MICROS,
    "skip": <int>STEP_SKIP,
    "record": <int>STEP_RECORD,
    "array": <int>STEP_ARRAY,
    "map": <int>STEP_MAP,
    "union": <int>STEP_UNION,
    "member": <int>STEP_MEMBER,
    "default": <int>STEP_DEFAULT,
    "unresolved": <int>STEP_UNRESOLVED,
}
AVRO_SKIPS = {
    "fixed": <int>SKIP_FIXED,
    "number": <int>SKIP_NUMBER,
    "sized": <int>SKIP_SIZED,
    "if second": <int>SKIP_IF_SECOND,
    "if first": <int>SKIP_IF_FIRST,
}
