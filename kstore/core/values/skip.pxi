# Fields of Avro in a row that nobody wants, passed over together where they are plain; avro.pxi says what is wrong with
# all others. Where values repeat the shape of the ones before, a few comparisons pass over many fields.

# What a field that nobody wants takes in a value. A union of it and null has a bit for the number of the null. The size
# with it is that of SKIP_FIXED; of another, that of the fields of a fixed size that follow.
cdef enum SkipKind:
    SKIP_FIXED
    SKIP_NUMBER
    SKIP_SIZED
    SKIP_IF_SECOND = 4      # the first branch of a union is null
    SKIP_IF_FIRST = 8

cdef enum:
    GROUP_SIZE = 16         # bytes of a group that may be compared
    GROUP_ROOM = 62         # bytes that no group goes beyond; two bytes of a size may follow
    LEAST_COMPARED = 2      # numbers and branches in a skip with a shape
    MOST_GROUPS = 4096      # of a program
    SHAPE_VALUES = 256      # after which a shape is judged
    SHAPE_MISSES = 64       # of these values, which end a shape

# Returns: the bytes of a number, more than MAX_VARLONG_SIZE if it is none. Requires: so many bytes. A branch for each
# byte: where sizes repeat, the processor goes on with the next field before it knows them, which arithmetic prevents.
cdef inline int64_t number_bytes(const uint8_t* p) noexcept nogil:
    cdef int64_t size = 1
    while p[size - 1] >= 0x80:
        size += 1
        if size > MAX_VARLONG_SIZE:
            break
    return size


# Returns: what follows a size of one or two bytes and what has it; NULL if the size is longer, or negative. Requires:
# two bytes.
cdef inline const uint8_t* after_sized(const uint8_t* p) noexcept nogil:
    if p[0] & 0x81 == 0:
        return p + 1 + (p[0] >> 1)
    if p[0] & 1 or p[1] & 0x80:
        return NULL
    return p + 2 + ((p[0] & 0x7F) >> 1 | <int64_t>p[1] << 6)


# Returns: what follows the fields of a skip, perhaps beyond the value; NULL if one is not plain. Loads nothing beyond
# readable_end.
cdef const uint8_t* after_fields(const int32_t* field, const int32_t* last, const uint8_t* at,
                                 const uint8_t* readable_end) noexcept nogil:
    cdef int32_t kind
    cdef int64_t number_size = 0
    while field < last:
        if readable_end - at <= MAX_VARLONG_SIZE + 1:
            return NULL
        kind = field[0]
        if kind == SKIP_NUMBER:
            number_size = number_bytes(at)
            at += number_size + field[1]
        elif kind == SKIP_SIZED:
            at = after_sized(at)
            if at == NULL:
                return NULL
            at += field[1]
        elif kind == SKIP_FIXED:
            at += field[1]
        elif at[0] == (0 if kind & SKIP_IF_SECOND else 2):
            at += 1 if kind & (SKIP_IF_SECOND - 1) == SKIP_FIXED else 1 + field[1]
        elif at[0] != (2 if kind & SKIP_IF_SECOND else 0):
            return NULL
        elif kind & SKIP_NUMBER:
            number_size = number_bytes(at + 1)
            at += 1 + number_size + field[1]
        elif kind & SKIP_SIZED:
            at = after_sized(at + 1)
            if at == NULL:
                return NULL
            at += field[1]
        else:
            at += 1 + field[1]
        if number_size > MAX_VARLONG_SIZE:
            return NULL
        field += 2
    return at


cdef inline void start_group(SkipGroup* g, int32_t field) noexcept nogil:
    memset(g, 0, sizeof(SkipGroup))
    g.field = field


cdef inline void compare_byte(SkipGroup* g, uint8_t mask, uint8_t byte) noexcept nogil:
    (<uint8_t*>g.mask)[g.size] = mask
    (<uint8_t*>g.bits)[g.size] = byte & mask
    g.size += 1


# Takes the shape of the fields of a skip in a value; those for which there is no room have none. Requires: after_fields
# passed over them, within the value.
cdef void take_shape(SkipShape* shape, const int32_t* field, int32_t count, const uint8_t* at) noexcept nogil:
    cdef SkipGroup* g = shape.groups
    cdef int32_t number, kind
    cdef int64_t compared, fixed
    cdef int32_t first = field[0] == SKIP_FIXED
    shape.lead = field[1] if first else 0
    at += shape.lead
    start_group(g, first)
    for number in range(first, count):
        kind, fixed = field[2 * number], field[2 * number + 1]
        compared = 0
        if kind >= SKIP_IF_SECOND:
            compared = 1
            if at[0] == (0 if kind & SKIP_IF_SECOND else 2):
                fixed = 0 if kind & (SKIP_IF_SECOND - 1) == SKIP_FIXED else fixed
                kind = SKIP_FIXED
        kind &= SKIP_IF_SECOND - 1
        if kind == SKIP_NUMBER:
            compared += number_bytes(at + compared)
        if g.size_mask or g.size + compared > GROUP_SIZE or g.size + compared + fixed > GROUP_ROOM:
            if g - shape.groups >= shape.room - 2 or fixed > GROUP_ROOM - GROUP_SIZE:
                break
            g += 1
            start_group(g, number)
        if field[2 * number] >= SKIP_IF_SECOND:
            compare_byte(g, 0xFF, at[0])
            at += 1
            compared -= 1
        while compared > 0:
            compare_byte(g, 0x80, at[0])
            at += 1
            compared -= 1
        if kind == SKIP_SIZED:
            g.size_mask = 0xFF
            g.whole = g.size + 1 + fixed
            at = after_sized(at) + fixed
        else:
            g.size += fixed
            g.whole = g.size
            at += fixed
    else:
        number = count
    g += 1
    start_group(g, number)
    shape.last = g
    shape.whole = g if number == count else NULL


cdef void drop_shape(SkipShape* shape) noexcept nogil:
    shape.last = shape.groups
    shape.whole = NULL
    shape.lead = 0
    start_group(shape.groups, 0)


# As after_fields, of a value by which the shape is judged: if it was dropped, it is taken from this value.
cdef const uint8_t* after_judged(SkipShape* shape, const ValueRun* r, const AvroStep* s,
                                 const uint8_t* at) noexcept nogil:
    cdef const int32_t* field = r.references + s.first
    cdef const uint8_t* after = after_fields(field, field + 2 * s.count, at, r.readable_end)
    if shape.last == shape.groups and after != NULL and after <= r.end:
        take_shape(shape, field, s.count, at)
    shape.left, shape.misses = SHAPE_VALUES, 0
    return after


# As after_fields, from the first field on that a value has in another form than the shape, or that has none.
cdef const uint8_t* after_shape(SkipShape* shape, const SkipGroup* g, const ValueRun* r, const AvroStep* s,
                                const uint8_t* at) noexcept nogil:
    cdef const int32_t* field = r.references + s.first
    cdef const int32_t* first = field + 2 * g.field
    if g < shape.last:
        shape.misses += 1
        if shape.misses == SHAPE_MISSES:
            drop_shape(shape)
    return after_fields(first, field + 2 * s.count, at, r.readable_end)


# As after_fields, by the shape of values before as far as this one has it.
cdef inline const uint8_t* after_skip(const ValueRun* r, const AvroStep* s, const uint8_t* at) noexcept nogil:
    cdef SkipShape* shape = s.shape
    cdef const uint8_t* readable = r.readable_end - GROUP_ROOM - 2
    cdef const SkipGroup* g
    cdef const SkipGroup* last
    cdef uint64_t size
    if shape == NULL:
        return after_fields(r.references + s.first, r.references + s.first + 2 * s.count, at, r.readable_end)
    shape.left -= 1
    if shape.left < 0:
        return after_judged(shape, r, s, at)
    g, last = shape.groups, shape.last
    at += shape.lead
    while g < last:
        if at > readable or not ks_has_bits(at, g.mask, g.bits):
            break
        size = at[g.size] & g.size_mask
        if size & 0x81:
            at = after_sized(at + g.size)
            if at == NULL:
                return NULL
            at += g.whole - g.size - 1
        else:
            # The place of the next group depends on this byte alone.
            at += g.whole + <int64_t>(size >> 1)
        g += 1
    return at if g == shape.whole else after_shape(shape, g, r, s, at)
