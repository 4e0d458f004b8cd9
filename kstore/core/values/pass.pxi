# JSON that no column takes and that is plain: passed over many bytes at a time, and as good as checked by json.pxi, which
# says what is wrong with all other JSON.

cdef extern from "_core_cpu.h" nogil:
    enum:
        KS_DIGIT_BITS
    uint32_t ks_digit_bits(const uint8_t* p) noexcept
    uint32_t ks_digit_bits_portable(const uint8_t* p) noexcept
    const uint8_t* ks_after(const uint8_t* p, uint8_t byte) noexcept
    const uint8_t* ks_text_stop(const uint8_t* at, const uint8_t* readable_end) noexcept
    const uint8_t* ks_text_stop_portable(const uint8_t* at, const uint8_t* readable_end) noexcept

cdef enum:
    LEAST_READABLE = KS_DIGIT_BITS + 2      # bytes from the beginning of a value on
    PUNCTUATION = 5                         # of a field: blanks, quotes and the colon


def text_classes(bytes data not None, *, bint is_portable):
    """Return which of the first 32 bytes are digits, the first one as the lowest bit, and the place of the first byte
    that is a quote, a backslash, a control character or none of ASCII, -1 without one before the last 15 bytes.

    Args: is_portable: by the way of any CPU, for tests; otherwise by that of this one.  Raises: ValueError for fewer
        bytes.
    """
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef const uint8_t* end = start + len(data)
    cdef const uint8_t* stop
    if len(data) < KS_DIGIT_BITS:
        raise ValueError(f"expected {KS_DIGIT_BITS} bytes, got {len(data)}")
    stop = ks_text_stop_portable(start, end) if is_portable else ks_text_stop(start, end)
    digits = ks_digit_bits_portable(start) if is_portable else ks_digit_bits(start)
    return digits, -1 if stop == NULL else stop - start


# Whether what begins at `name` is the name of a field, and the quote after it. Requires: its size, one byte, and eight
# bytes that can be read; a plain name.
cdef inline bint has_name(const ValueRun* r, const JsonNode* field, const uint8_t* name) noexcept nogil:
    cdef int32_t size = field.name_size
    cdef const uint8_t* known = r.constants + field.name
    if (load_word(name, 8) ^ field.name_word) & field.name_mask != 0:
        return False
    if size < 8:
        return True
    if name[size] != c'"' or load_word(name + size - 8, 8) != load_word(known + size - 8, 8):
        return False
    return size <= 16 or memcmp(name + 8, known + 8, <size_t>(size - 16)) == 0


# Returns: what follows a string; NULL unless it is plain, of ASCII without escapes.
cdef inline const uint8_t* after_string(const ValueRun* r, const uint8_t* at) noexcept nogil:
    at = ks_text_stop(at + 1, r.readable_end)
    if at == NULL or at >= r.end or at[0] != c'"':
        return NULL
    return at + 1


# Returns: what follows a number, perhaps beyond the value; NULL unless it is plain that it fits its node. Requires:
# KS_DIGIT_BITS bytes that can be read after the first two.
cdef inline const uint8_t* after_number(const JsonNode* n, const uint8_t* at) noexcept nogil:
    cdef const uint8_t* first = ks_after(at, c'-')
    cdef uint64_t others = ~<uint64_t>ks_digit_bits(first)
    cdef int digits = lowest_bit(others)
    if not 0 < digits <= n.most_digits or digits == KS_DIGIT_BITS or (first[0] == c'0' and digits > 1) \
            or (n.kind == JSON_UINT and first > at):
        return NULL
    at = first + digits
    if at[0] == c'.' and n.kind == JSON_DOUBLE:
        others >>= digits + 1
        digits = lowest_bit(others)
        at += digits + 1
        if digits == 0 or at - first >= KS_DIGIT_BITS:
            return NULL
    if at[0] == c'.' or at[0] | 0x20 == c'e':
        return NULL
    return at


# Returns: what follows null, or a boolean; NULL if there is none of them, or the node takes none.
cdef inline const uint8_t* after_word(const JsonNode* n, const uint8_t* at) noexcept nogil:
    if memcmp(at, "null", 4) == 0:
        return at + 4
    if n.kind != JSON_BOOLEAN:
        return NULL
    if memcmp(at, "true", 4) == 0:
        return at + 4
    return at + 5 if memcmp(at, "false", 5) == 0 else NULL


# Returns: what follows a value, perhaps beyond the end; NULL unless it is plain that it fits its node. Requires:
# LEAST_READABLE bytes.
cdef inline const uint8_t* after_value(const ValueRun* r, const JsonNode* n, const uint8_t* at) noexcept nogil:
    if n.passing == PASS_STRING and at[0] == c'"':
        return after_string(r, at)
    if n.passing == PASS_NUMBER and at[0] != c'n':
        return after_number(n, at)
    return after_word(n, at)


# Moves past the value of a field that no column takes. Returns: False, and has not moved, unless it is plain.
cdef inline bint pass_value(ValueRun* r, const JsonNode* n) noexcept nogil:
    cdef const uint8_t* at
    if n.passing == PASS_NOT or r.readable_end - r.at < LEAST_READABLE:
        return False
    at = after_value(r, n, r.at)
    if at == NULL or at >= r.end:
        return False
    r.at = at
    return True


# Moves past fields that no column takes, as far as they come in the order of the type, are plain, and have blanks only
# where Python's json writes one: all is within the value if what follows is. Returns: whether the object ends with them;
# otherwise another field follows.
cdef inline bint pass_fields(ValueRun* r, const JsonNode* n, int32_t* expected) noexcept nogil:
    cdef const JsonNode* first = r.nodes + n.first
    cdef const JsonNode* last = first + n.count
    cdef const JsonNode* field = first + expected[0]
    cdef const uint8_t* at = r.at
    cdef bint is_last = False
    while field < last and field.passing != PASS_NOT \
            and r.readable_end - at >= LEAST_READABLE + PUNCTUATION + field.name_size:
        at = ks_after(at, c' ')
        if at[0] != c'"' or not has_name(r, field, at + 1):
            break
        at += field.name_size + 2
        if at[0] != c':':
            break
        at = after_value(r, field, ks_after(at + 1, c' '))
        if at == NULL or at >= r.end or (at[0] != c',' and at[0] != c'}'):
            break
        is_last = at[0] == c'}'
        at += 1
        r.at = at
        field += 1
        if is_last:
            break
    expected[0] = field - first
    return is_last
