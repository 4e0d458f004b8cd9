# JSON values into columns: a tree of nodes, one for each column and for each field whose type is only checked, walked
# over the text of a value without the GIL. A value that is no JSON, or of other types, becomes a null row with a reason.

cdef enum:
    ESCAPE_SIZE = 6                 # of \u and four digits, which may stand for one byte
    MOST_REPEATED = 1024            # names of fields that are stored already, in a value
    MOST_LAST_DIGIT = 5             # of the largest uint64
    MOST_FLOAT_DIGITS = 38          # before its point: any such number is a float
    DEPTH_WORDS = 16                # of 64 bits, one for each of MOST_VALUE_DEPTH

cdef uint64_t MOST_BEFORE_LAST_DIGIT = 1844674407370955161ULL


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return c'0' <= byte <= c'9'


# Moves past digits, which it adds to a number. Returns: False without any.
cdef inline bint take_digits(ValueRun* r, JsonNumber* n, bint is_fraction) noexcept nogil:
    cdef const uint8_t* at = r.at
    cdef bint is_any = at < r.end and is_digit(at[0])
    while at < r.end and is_digit(at[0]):
        if n.digits < MOST_BEFORE_LAST_DIGIT \
                or (n.digits == MOST_BEFORE_LAST_DIGIT and at[0] - c'0' <= MOST_LAST_DIGIT and n.is_exact):
            n.digits = 10 * n.digits + (at[0] - c'0')
            n.exponent -= is_fraction
        else:
            # There is no room for the digits after this one either.
            n.is_exact = n.is_exact and at[0] == c'0'
            n.exponent += not is_fraction
        at += 1
    r.at = at
    return is_any


cdef ValueFault take_number(ValueRun* r, JsonNumber* n) noexcept nogil:
    cdef const uint8_t* power
    n.digits, n.exponent = 0, 0
    n.is_exact = True
    n.is_negative = r.at[0] == c'-'
    r.at += n.is_negative
    if r.at < r.end and r.at[0] == c'0':
        r.at += 1
    elif not take_digits(r, n, False):
        return bad_json(r)
    if r.at < r.end and r.at[0] == c'.':
        r.at += 1
        if not take_digits(r, n, True):
            return bad_json(r)
    if r.at < r.end and (r.at[0] == c'e' or r.at[0] == c'E'):
        r.at += 1
        power = r.at
        if r.at < r.end and (r.at[0] == c'-' or r.at[0] == c'+'):
            r.at += 1
        if r.at == r.end or not is_digit(r.at[0]):
            return bad_json(r)
        while r.at < r.end and is_digit(r.at[0]):
            r.at += 1
        n.exponent += power_of(power, r.at)
    return VALUE_SOUND


# Stores the integer that a number is, also one with a fraction of zeros or an exponent.
cdef ValueFault put_integer(ValueRun* r, const JsonNode* n, const JsonNumber* number) noexcept nogil:
    cdef uint64_t digits = number.digits
    cdef int64_t exponent = number.exponent if digits != 0 else 0
    cdef uint64_t most = ~<uint64_t>0 >> (64 - 8 * n.size)
    if n.kind == JSON_INT:
        most = (most >> 1) + number.is_negative
    elif number.is_negative:
        most = 0
    while exponent < 0 and digits % 10 == 0:
        digits //= 10
        exponent += 1
    if exponent < 0 or (exponent == 0 and not number.is_exact):
        return VALUE_NOT_WHOLE
    if not number.is_exact:
        return VALUE_OUT_OF_RANGE
    while exponent > 0:
        if digits > most // 10:
            return VALUE_OUT_OF_RANGE
        digits *= 10
        exponent -= 1
    if digits > most:
        return VALUE_OUT_OF_RANGE
    if number.is_negative:
        digits = 0 - digits
    return put_long(r, n.column, <int64_t>digits) if n.size == 8 else put_fixed(r, n.column, &digits, n.size)


cdef ValueFault read_json_number(ValueRun* r, const JsonNode* n) noexcept nogil:
    cdef const uint8_t* text = r.at
    cdef JsonNumber number
    cdef double value = 0.0
    cdef float narrow = 0.0
    cdef ValueFault fault = take_number(r, &number)
    if fault != VALUE_SOUND:
        return fault
    if n.kind != JSON_DOUBLE:
        fault = put_integer(r, n, &number)
    else:
        fault = double_of(&number, text, r.at - text, &value)
        if fault == VALUE_SOUND and n.size == 8:
            return put_double(r, n.column, value)
        if fault == VALUE_SOUND:
            fault = float_of(value, text, r.at - text, &narrow)
        if fault == VALUE_SOUND:
            fault = put_float(r, n.column, narrow)
    if fault == VALUE_NOT_WHOLE or fault == VALUE_OUT_OF_RANGE:
        r.at = text
        r.node = n - r.nodes
    return fault


cdef inline void skip_blanks(ValueRun* r) noexcept nogil:
    if r.at < r.end and r.at[0] > c' ':
        return
    while r.at < r.end and (r.at[0] == c' ' or r.at[0] == c'\n' or r.at[0] == c'\r' or r.at[0] == c'\t'):
        r.at += 1


cdef inline ValueFault bad_json(const ValueRun* r) noexcept nogil:
    return VALUE_INCOMPLETE if r.at >= r.end else VALUE_BAD_JSON


# Returns: the number that four hexadecimal digits are, -1 for other characters.
cdef int32_t four_digits(const uint8_t* p) noexcept nogil:
    cdef int32_t number = 0
    cdef int i, digit
    for i in range(4):
        if is_digit(p[i]):
            digit = p[i] - c'0'
        else:
            digit = (p[i] | 0x20) - c'a' + 10
            if not 10 <= digit < 16:
                return -1
        number = number << 4 | digit
    return number


# Moves past a string; p, size: what is between its quotes, which is UTF-8.
cdef ValueFault take_string(ValueRun* r, const uint8_t** p, int64_t* size, bint* has_escapes) noexcept nogil:
    cdef const uint8_t* at = r.at + 1
    cdef const uint8_t* stop
    cdef uint64_t high = 0
    cdef uint64_t word, stops
    cdef int64_t good
    cdef int i
    p[0] = at
    has_escapes[0] = False
    stop = ks_text_stop(at, r.readable_end)
    if stop != NULL and stop < r.end and stop[0] == c'"':
        size[0] = stop - at
        r.at = stop + 1
        return VALUE_SOUND
    while at < r.end:
        if r.readable_end - at >= 8:
            word = load_word(at, 8)
            stops = string_stops(word)
            if stops == 0:
                high |= word
                at += 8
                continue
            i = lowest_bit(stops) & ~7
            high |= word & ((<uint64_t>1 << i) - 1)
            at += i >> 3
            if at >= r.end:
                break
        elif at[0] >= 0x20 and at[0] != c'"' and at[0] != c'\\':
            high |= at[0]
            at += 1
            continue
        if at[0] == c'"':
            size[0] = at - p[0]
            r.at = at + 1
            if high & HIGH_BITS:
                good = valid_utf8(p[0], size[0])
                if good < size[0]:
                    r.at = p[0] + good
                    return VALUE_BAD_UTF8
            return VALUE_SOUND
        r.at = at
        if at[0] < 0x20:
            return VALUE_BAD_JSON
        has_escapes[0] = True
        i = 2
        if r.end - at < 2:
            break
        if at[1] == c'u':
            i = ESCAPE_SIZE
            if r.end - at < i:
                break
            if four_digits(at + 2) < 0:
                return VALUE_BAD_JSON
        elif unescaped(at[1]) == 0:
            return VALUE_BAD_JSON
        at += i
    r.at = r.end
    return VALUE_INCOMPLETE


# Returns: what a character after a backslash stands for, 0 if it stands for nothing.
cdef inline uint8_t unescaped(uint8_t byte) noexcept nogil:
    if byte == c'"' or byte == c'\\' or byte == c'/':
        return byte
    if byte == c'n':
        return c'\n'
    if byte == c't':
        return c'\t'
    if byte == c'r':
        return c'\r'
    if byte == c'b':
        return c'\b'
    return c'\f' if byte == c'f' else 0


cdef inline int64_t put_code_point(uint8_t* to, int32_t code) noexcept nogil:
    if code < 0x80:
        to[0] = <uint8_t>code
        return 1
    if code < 0x800:
        to[0] = <uint8_t>(0xC0 | code >> 6)
        to[1] = <uint8_t>(0x80 | code & 0x3F)
        return 2
    if code < 0x10000:
        to[0] = <uint8_t>(0xE0 | code >> 12)
        to[1] = <uint8_t>(0x80 | code >> 6 & 0x3F)
        to[2] = <uint8_t>(0x80 | code & 0x3F)
        return 3
    to[0] = <uint8_t>(0xF0 | code >> 18)
    to[1] = <uint8_t>(0x80 | code >> 12 & 0x3F)
    to[2] = <uint8_t>(0x80 | code >> 6 & 0x3F)
    to[3] = <uint8_t>(0x80 | code & 0x3F)
    return 4


# Copies a string without its escapes, of which half a pair of surrogates becomes U+FFFD. Requires: take_string returned
# VALUE_SOUND; room for its size. Returns: how many bytes were stored.
cdef int64_t copy_unescaped(uint8_t* to, const uint8_t* p, int64_t size) noexcept nogil:
    cdef const uint8_t* end = p + size
    cdef uint8_t* start = to
    cdef int32_t code, second
    while p < end:
        if p[0] != c'\\':
            to[0] = p[0]
            to += 1
            p += 1
        elif p[1] != c'u':
            to[0] = unescaped(p[1])
            to += 1
            p += 2
        else:
            code = four_digits(p + 2)
            p += ESCAPE_SIZE
            if 0xD800 <= code < 0xE000:
                second = four_digits(p + 2) if end - p >= ESCAPE_SIZE and p[0] == c'\\' and p[1] == c'u' else 0
                if code < 0xDC00 and 0xDC00 <= second < 0xE000:
                    code = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00)
                    p += ESCAPE_SIZE
                else:
                    code = 0xFFFD
            to += put_code_point(to, code)
    return to - start


cdef ValueFault read_json_string(ValueRun* r, int32_t column) noexcept nogil:
    cdef ValueColumn* c = r.table.columns + column
    cdef const uint8_t* p = NULL
    cdef int64_t size = 0
    cdef bint has_escapes = False
    cdef ValueFault fault = take_string(r, &p, &size, &has_escapes)
    if fault != VALUE_SOUND or not has_escapes:
        return put_value_bytes(r, column, p, size, r.readable_end) if fault == VALUE_SOUND else fault
    if column == UNWANTED:
        return VALUE_SOUND
    fault = room_for_row(r.table, c)
    if fault == VALUE_SOUND:
        fault = room_for_bytes(r.table, c, size)
    if fault == VALUE_SOUND:
        c.used += copy_unescaped(c.data + c.used, p, size)
        end_variable_row(c)
    return fault


cdef inline ValueFault take_word(ValueRun* r, const char* word, int64_t size) noexcept nogil:
    if r.end - r.at < size or memcmp(r.at, word, <size_t>size) != 0:
        return VALUE_BAD_JSON
    r.at += size
    return VALUE_SOUND


cdef inline ValueFault take_byte(ValueRun* r, uint8_t byte) noexcept nogil:
    skip_blanks(r)
    if r.at == r.end or r.at[0] != byte:
        return bad_json(r)
    r.at += 1
    return VALUE_SOUND


# Moves past the name of a field, and the colon.
cdef ValueFault skip_name(ValueRun* r) noexcept nogil:
    cdef const uint8_t* p = NULL
    cdef int64_t size = 0
    cdef bint has_escapes = False
    cdef ValueFault fault
    skip_blanks(r)
    if r.at == r.end or r.at[0] != c'"':
        return bad_json(r)
    fault = take_string(r, &p, &size, &has_escapes)
    return take_byte(r, c':') if fault == VALUE_SOUND else fault


# Moves past a string, a number, true, false or null.
cdef ValueFault skip_json_scalar(ValueRun* r) noexcept nogil:
    cdef const uint8_t* p = NULL
    cdef int64_t size = 0
    cdef bint has_escapes = False
    cdef JsonNumber number
    cdef uint8_t first = r.at[0]
    if first == c'"':
        return take_string(r, &p, &size, &has_escapes)
    if first == c'-' or is_digit(first):
        return take_number(r, &number)
    if first == c't':
        return take_word(r, "true", 4)
    return take_word(r, "false", 5) if first == c'f' else take_word(r, "null", 4)


# Moves past a value of any type; what it is nested in costs a bit each.
cdef ValueFault skip_json(ValueRun* r) noexcept nogil:
    cdef uint64_t is_object[DEPTH_WORDS]
    cdef int depth = 0
    cdef bint is_in_object = False
    cdef bint is_at_value = True
    cdef ValueFault fault = VALUE_SOUND
    is_object[0] = 0
    while fault == VALUE_SOUND:
        skip_blanks(r)
        if r.at == r.end:
            return VALUE_INCOMPLETE
        if is_at_value and (r.at[0] == c'{' or r.at[0] == c'['):
            if depth == MOST_VALUE_DEPTH:
                return VALUE_TOO_DEEP
            depth += 1
            is_in_object = r.at[0] == c'{'
            if is_in_object:
                is_object[depth >> 6] |= <uint64_t>1 << (depth & 63)
            else:
                is_object[depth >> 6] &= ~(<uint64_t>1 << (depth & 63))
            r.at += 1
            skip_blanks(r)
            is_at_value = r.at == r.end or r.at[0] != (c'}' if is_in_object else c']')
            if is_at_value and is_in_object:
                fault = skip_name(r)
            continue
        if is_at_value:
            fault = skip_json_scalar(r)
            is_at_value = False
        elif r.at[0] == c',':
            r.at += 1
            fault = skip_name(r) if is_in_object else VALUE_SOUND
            is_at_value = True
            continue
        elif r.at[0] != (c'}' if is_in_object else c']'):
            return VALUE_BAD_JSON
        else:
            r.at += 1
            depth -= 1
            is_in_object = is_object[depth >> 6] >> (depth & 63) & 1
        if depth == 0:
            break
    return fault


# Moves past the name of a field. child: the number of its node, UNWANTED if the schema has no such field; expected: of
# the field that is looked at first, then of the one after it.
cdef inline ValueFault take_field(ValueRun* r, const JsonNode* n, int32_t* expected, int32_t* child) noexcept nogil:
    cdef const JsonNode* field = r.nodes + n.first + expected[0]
    if expected[0] < n.count and field.is_plain and r.readable_end - r.at > max(field.name_size + 1, 8) \
            and has_name(r, field, r.at + 1) and r.end - r.at > field.name_size + 1:
        child[0] = n.first + expected[0]
        expected[0] += 1
        r.at += field.name_size + 2
        return VALUE_SOUND
    return look_up_field(r, n, expected, child)


cdef ValueFault look_up_field(ValueRun* r, const JsonNode* n, int32_t* expected, int32_t* child) noexcept nogil:
    cdef const uint8_t* name = NULL
    cdef const JsonNode* field
    cdef int64_t size = 0
    cdef bint has_escapes = False
    cdef int32_t low = n.first
    cdef int32_t high = n.first + n.count
    cdef int32_t middle
    cdef int order
    cdef ValueFault fault = take_string(r, &name, &size, &has_escapes)
    child[0] = UNWANTED
    if fault != VALUE_SOUND or (has_escapes and size > r.key_room):
        return fault
    if has_escapes:
        size = copy_unescaped(r.key, name, size)
        name = r.key
    while low < high:
        middle = (low + high) // 2
        field = r.nodes + r.ordered[middle]
        order = memcmp(name, r.constants + field.name, <size_t>min(size, field.name_size))
        if order == 0 and size == field.name_size:
            child[0] = r.ordered[middle]
            expected[0] = child[0] - n.first + 1
            break
        if order < 0 or (order == 0 and size < field.name_size):
            high = middle
        else:
            low = middle + 1
    return VALUE_SOUND


cdef ValueFault read_field(ValueRun* r, int32_t child, int64_t rows) noexcept nogil:
    cdef int32_t column = r.nodes[child].column
    if column != UNWANTED and r.table.columns[column].rows > rows:
        # The last of several fields of a name counts.
        r.repeated += 1
        if r.repeated > MOST_REPEATED:
            return VALUE_REPEATED
        cut_rows(r.table, column, rows)
    return read_node(r, child)


cdef ValueFault read_object(ValueRun* r, const JsonNode* n) noexcept nogil:
    cdef int64_t rows = 0 if n.column == UNWANTED else r.table.columns[n.column].rows
    cdef int32_t expected = 0
    cdef int32_t child = 0
    cdef int32_t column
    cdef ValueFault fault
    r.at += 1
    skip_blanks(r)
    if r.at < r.end and r.at[0] == c'}':
        r.at += 1
    else:
        while True:
            if pass_fields(r, n, &expected):
                break
            skip_blanks(r)
            if r.at == r.end or r.at[0] != c'"':
                return bad_json(r)
            fault = take_field(r, n, &expected, &child)
            if fault == VALUE_SOUND:
                fault = take_byte(r, c':')
            if fault == VALUE_SOUND:
                skip_blanks(r)
                if child == UNWANTED:
                    fault = skip_json(r)
                elif r.nodes[child].column != UNWANTED or not pass_value(r, r.nodes + child):
                    fault = read_field(r, child, rows)
            if fault != VALUE_SOUND:
                return fault
            skip_blanks(r)
            if r.at == r.end or (r.at[0] != c',' and r.at[0] != c'}'):
                return bad_json(r)
            r.at += 1
            if (r.at - 1)[0] == c'}':
                break
    if n.column == UNWANTED:
        return VALUE_SOUND
    for child in range(n.first, n.first + n.count):
        column = r.nodes[child].column
        if column != UNWANTED and r.table.columns[column].rows == rows:
            fault = append_null(r.table, column)
            if fault != VALUE_SOUND:
                return fault
    return end_struct(r, n.column)


# Reads the items of a list, or the pairs of a map.
cdef ValueFault read_json_items(ValueRun* r, const JsonNode* n) noexcept nogil:
    cdef uint8_t closing = c']' if n.kind == JSON_LIST else c'}'
    cdef int32_t pair = UNWANTED
    cdef int32_t key = UNWANTED
    cdef ValueFault fault = VALUE_SOUND
    if n.kind == JSON_MAP and n.column != UNWANTED:
        pair = r.table.columns[n.column].first_child
        key = r.table.columns[pair].first_child
    r.at += 1
    skip_blanks(r)
    if r.at < r.end and r.at[0] == closing:
        r.at += 1
        return end_list(r, n.column)
    while True:
        if n.kind == JSON_MAP:
            skip_blanks(r)
            if r.at == r.end or r.at[0] != c'"':
                return bad_json(r)
            fault = read_json_string(r, key)
            if fault == VALUE_SOUND:
                fault = take_byte(r, c':')
        if fault == VALUE_SOUND:
            fault = read_node(r, n.first)
        if fault == VALUE_SOUND:
            fault = end_struct(r, pair)
        if fault != VALUE_SOUND:
            return fault
        skip_blanks(r)
        if r.at == r.end or (r.at[0] != c',' and r.at[0] != closing):
            return bad_json(r)
        r.at += 1
        if (r.at - 1)[0] == closing:
            return end_list(r, n.column)


cdef ValueFault read_json_text(ValueRun* r, int32_t column) noexcept nogil:
    cdef const uint8_t* text = r.at
    cdef ValueFault fault = skip_json(r)
    return put_value_bytes(r, column, text, r.at - text, r.readable_end) if fault == VALUE_SOUND else fault


# Reads a value into the column of its node. Its depth is that of the columns, which is bounded.
cdef ValueFault read_node(ValueRun* r, int32_t number) noexcept nogil:
    cdef const JsonNode* n = r.nodes + number
    cdef ValueFault fault
    cdef uint8_t first
    skip_blanks(r)
    if r.at == r.end:
        return VALUE_INCOMPLETE
    first = r.at[0]
    if first == c'n':
        fault = take_word(r, "null", 4)
        return fault if fault != VALUE_SOUND or n.column == UNWANTED else append_null(r.table, n.column)
    if n.kind == JSON_STRING and first == c'"':
        return read_json_string(r, n.column)
    if JSON_INT <= n.kind <= JSON_DOUBLE and (is_digit(first) or first == c'-'):
        return read_json_number(r, n)
    if n.kind == JSON_STRUCT and first == c'{':
        return read_object(r, n)
    if n.kind == JSON_BOOLEAN and (first == c't' or first == c'f'):
        fault = take_word(r, "true", 4) if first == c't' else take_word(r, "false", 5)
        return put_bit(r, n.column, first == c't') if fault == VALUE_SOUND else fault
    if n.kind == JSON_TEXT:
        return read_json_text(r, n.column)
    if (n.kind == JSON_LIST and first == c'[') or (n.kind == JSON_MAP and first == c'{'):
        return read_json_items(r, n)
    if first == c'"' or first == c'{' or first == c'[' or first == c't' or first == c'f' or first == c'-' \
            or is_digit(first):
        r.node = number
        return VALUE_OTHER_TYPE
    return VALUE_BAD_JSON


# Reads a whole value, which may begin with a byte order mark.
cdef ValueFault read_json(ValueRun* r) noexcept nogil:
    cdef ValueFault fault
    r.repeated = 0
    if r.end - r.at >= 3 and memcmp(r.at, "\xef\xbb\xbf", 3) == 0:
        r.at += 3
    fault = read_node(r, 0)
    if fault == VALUE_SOUND:
        skip_blanks(r)
        if r.at != r.end:
            return VALUE_TRAILING_BYTES
    return fault


@cython.final
cdef class JsonProgram:
    """What reads JSON values into columns.

    Args: nodes: for each node (kind, column, first, count, size, name, name_size), kind one of JSON_KINDS, column -1 for
        a value that is only checked, first and count its children, which stand together after it, size the bytes of a
        number, name and name_size a part of names: what a field is called; names: in UTF-8. Node 0 is the value.
    Raises: ValueError for a node that does not fit its column or whose children or name are not there; MemoryError.
    Threads: safe; nothing changes it.
    """

    cdef JsonNode* nodes
    cdef int32_t* ordered
    cdef bytes names
    cdef int64_t key_room

    def __cinit__(self, ValueColumns columns, nodes, bytes names):
        cdef JsonNode* n
        cdef int32_t number
        cdef int32_t expected = 1
        cdef int32_t count = len(nodes)
        if columns is None or names is None:
            raise TypeError("expected columns and names, got None")
        if POWERS_OF_TEN[2 * (POWERS - 1)] == 0:
            fill_powers_of_ten()
        self.names = names
        self.nodes = <JsonNode*>calloc(max(count, 1), sizeof(JsonNode))
        self.ordered = <int32_t*>calloc(max(count, 1), sizeof(int32_t))
        if self.nodes == NULL or self.ordered == NULL:
            raise MemoryError(f"no memory for {count} nodes")
        for number, (kind, column, first, child_count, size, name, name_size) in enumerate(nodes):
            n = self.nodes + number
            n.kind, n.column, n.first, n.count, n.size = kind, column, first, child_count, size
            n.name, n.name_size = name, name_size
            if not 0 <= n.kind < JSON_KINDS or n.count < 0 or n.count > count - expected \
                    or (n.count > 0 and n.first != expected) or n.first < 0 \
                    or (n.count != 1 and (n.kind == JSON_LIST or n.kind == JSON_MAP)) \
                    or (n.count > 0 and n.kind < JSON_LIST) or not 0 <= n.name <= len(names) \
                    or not 0 <= n.name_size <= len(names) - n.name or not self.fits(n, &columns.table):
                raise ValueError(f"node {number} is invalid: {nodes[number]}")
            expected += n.count
            text = names[n.name : n.name + n.name_size]
            n.is_plain = not any(byte < 0x20 or byte == 0x22 or byte == 0x5C for byte in text)
            begin = (text + b'"')[:8]
            n.name_word = int.from_bytes(begin, "little")
            n.name_mask = ~<uint64_t>0 >> (64 - 8 * <int>len(begin))
            n.most_digits = self.most_digits_of(n)
            if n.is_plain and n.column == UNWANTED:
                n.passing = PASS_STRING if n.kind == JSON_STRING else PASS_NUMBER if n.most_digits > 0 else PASS_WORD
            self.key_room = max(self.key_room, ESCAPE_SIZE * n.name_size)
        if expected != count:
            raise ValueError(f"there are {count} nodes, and their children are {expected - 1}")
        for number in range(count):
            self.order_fields(self.nodes + number)

    # Whether a node has the column that its values need. The children of a wanted node may be unwanted, if it is a
    # struct.
    cdef bint fits(self, const JsonNode* n, const ValueTable* t) noexcept:
        cdef const ValueColumn* c
        cdef const ValueColumn* pair
        if (n.kind == JSON_INT or n.kind == JSON_UINT) and n.size not in (1, 2, 4, 8):
            return False
        if n.kind == JSON_DOUBLE and n.size not in (4, 8):
            return False
        if n.column == UNWANTED:
            return True
        if not 0 <= n.column < t.count:
            return False
        c = t.columns + n.column
        if n.kind == JSON_NULL:
            return c.layout == LAYOUT_NULL
        if n.kind == JSON_BOOLEAN:
            return c.layout == LAYOUT_BIT
        if n.kind == JSON_STRING or n.kind == JSON_TEXT:
            return c.layout == LAYOUT_VARIABLE
        if n.kind == JSON_STRUCT:
            return c.layout == LAYOUT_STRUCT
        if n.kind == JSON_LIST:
            return c.layout == LAYOUT_LIST
        if n.kind == JSON_MAP:
            pair = t.columns + c.first_child
            return c.layout == LAYOUT_LIST and pair.layout == LAYOUT_STRUCT and pair.child_count == 2 \
                and t.columns[pair.first_child].layout == LAYOUT_VARIABLE
        return c.layout == LAYOUT_FIXED and c.width == n.size

    # Returns: how many digits before its point a number of any value may have and fit, 0 for what is no number.
    cdef int32_t most_digits_of(self, const JsonNode* n) noexcept:
        if n.kind == JSON_DOUBLE:
            return MOST_FLOAT_DIGITS if n.size == 4 else MOST_POWER
        if n.kind != JSON_INT and n.kind != JSON_UINT:
            return 0
        return 18 if n.size == 8 else 9 if n.size == 4 else 2 * n.size

    # Stores the numbers of the fields of a struct in the order of their names.
    cdef int order_fields(self, const JsonNode* n) except -1:
        cdef int32_t at = n.first
        fields = [(self.names[self.nodes[number].name : self.nodes[number].name + self.nodes[number].name_size], number)
                  for number in range(n.first, n.first + n.count)]
        for _, number in sorted(fields):
            self.ordered[at] = number
            at += 1
        return 0

    def __dealloc__(self):
        free(self.nodes)
        free(self.ordered)


# The kinds of a node, by name.
JSON_NODES = {
    "null": <int>JSON_NULL,
    "boolean": <int>JSON_BOOLEAN,
    "int": <int>JSON_INT,
    "uint": <int>JSON_UINT,
    "double": <int>JSON_DOUBLE,
    "string": <int>JSON_STRING,
    "text": <int>JSON_TEXT,
    "list": <int>JSON_LIST,
    "map": <int>JSON_MAP,
    "struct": <int>JSON_STRUCT,
}
