# The records of a batch of magic 2 as JSON objects, for the kstore command. Only the plain case is handled here, where
# keys and values are copied as base64; for the rest (a header key that needs escaping, magic 0 and 1) the caller uses
# Python.

cdef enum:
    MAX_INT64_DIGITS = 20

cdef uint8_t BASE64_PAIRS[8192]


cdef int fill_base64_pairs() except -1:
    cdef bytes letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    cdef int i
    for i in range(4096):
        BASE64_PAIRS[2 * i] = letters[i >> 6]
        BASE64_PAIRS[2 * i + 1] = letters[i & 63]
    return 0


fill_base64_pairs()


# The text around the values of a record: before the offset, between timestamp and key, between two records.
cdef struct JsonText:
    const uint8_t* opening
    int64_t opening_size
    const uint8_t* middle
    int64_t middle_size
    const uint8_t* separator
    int64_t separator_size


cdef inline uint8_t* put_ascii(uint8_t* out, const uint8_t* text, int64_t size) noexcept nogil:
    memcpy(out, text, <size_t>size)
    return out + size


cdef inline uint8_t* put_decimal(uint8_t* out, int64_t value) noexcept nogil:
    cdef uint8_t digits[MAX_INT64_DIGITS]
    cdef uint64_t left = <uint64_t>value
    cdef int at = MAX_INT64_DIGITS
    if value < 0:
        out[0] = 45
        out += 1
        left = 0 - left
    while True:
        at -= 1
        digits[at] = <uint8_t>(48 + left % 10)
        left //= 10
        if left == 0:
            break
    return put_ascii(out, digits + at, MAX_INT64_DIGITS - at)


# Requires: room for json_bytes_size(size). size < 0: null.
cdef inline uint8_t* put_json_bytes(uint8_t* out, const uint8_t* data, int64_t size) noexcept nogil:
    cdef uint32_t three
    if size < 0:
        return put_ascii(out, b"null", 4)
    out[0] = 34
    out += 1
    while size >= 3:
        three = (<uint32_t>data[0] << 16) | (<uint32_t>data[1] << 8) | data[2]
        memcpy(out, BASE64_PAIRS + 2 * (three >> 12), 2)
        memcpy(out + 2, BASE64_PAIRS + 2 * (three & 4095), 2)
        data += 3
        out += 4
        size -= 3
    if size:
        three = (<uint32_t>data[0] << 16) | (<uint32_t>data[1] << 8 if size == 2 else 0)
        memcpy(out, BASE64_PAIRS + 2 * (three >> 12), 2)
        out[2] = BASE64_PAIRS[2 * (three & 4095)] if size == 2 else 61
        out[3] = 61
        out += 4
    out[0] = 34
    return out + 1


cdef inline int64_t json_bytes_size(int64_t size) noexcept nogil:
    return 4 if size < 0 else 4 * ((size + 2) // 3) + 2


cdef bint is_plain_text(const uint8_t* p, int64_t size) noexcept nogil:
    cdef int64_t i
    for i in range(size):
        if p[i] < 32 or p[i] > 126 or p[i] == 34 or p[i] == 92:
            return False
    return True


# Requires: check_headers returned OK. Returns: the maximum size of the headers' JSON array, or -1 if a key is not plain
# text.
cdef int64_t json_headers_size(const RawRecord* r) noexcept nogil:
    cdef RawHeader header
    cdef Problem problem
    cdef const uint8_t* at = r.headers
    cdef int64_t total = 2
    cdef int32_t i
    for i in range(r.header_count):
        parse_header(&at, r.end, &header, &problem)
        if not is_plain_text(header.key, header.key_size):
            return -1
        total += header.key_size + json_bytes_size(header.value_size) + 6
    return total


# Requires: room for json_headers_size.
cdef uint8_t* put_json_headers(uint8_t* out, const RawRecord* r) noexcept nogil:
    cdef RawHeader header
    cdef Problem problem
    cdef const uint8_t* at = r.headers
    cdef int32_t i
    out = put_ascii(out, b"[", 1)
    for i in range(r.header_count):
        parse_header(&at, r.end, &header, &problem)
        out = put_ascii(out, b"[\"", 2) if i == 0 else put_ascii(out, b",[\"", 3)
        out = put_ascii(out, header.key, header.key_size)
        out = put_ascii(out, b"\",", 2)
        out = put_json_bytes(out, header.value, header.value_size)
        out = put_ascii(out, b"]", 1)
    return put_ascii(out, b"]", 1)


# Returns: the maximum size of the text of all records, or -1 if a record is invalid or not plain.
cdef int64_t json_size(const uint8_t* at, const uint8_t* end, const Header* h, const JsonText* text) noexcept nogil:
    cdef RawRecord raw
    cdef Problem problem
    cdef int64_t total = 0
    cdef int64_t least_delta = 0
    cdef int64_t headers_size
    cdef int64_t fixed = text.opening_size + text.middle_size + text.separator_size + 2 * MAX_INT64_DIGITS + 40
    cdef int32_t i
    start_problem(&problem, 0)
    for i in range(h.record_count):
        if parse_record(at, end, &raw, &problem) != OK \
                or check_offset_delta(h, raw.offset_delta, &least_delta, &problem) != OK:
            return -1
        headers_size = json_headers_size(&raw)
        if headers_size < 0:
            return -1
        total += fixed + json_bytes_size(raw.key_size) + json_bytes_size(raw.value_size) + headers_size
        at = raw.end
    return total if at == end else -1


# Requires: room for json_size at out. Returns: the end of the text.
cdef uint8_t* put_json_records(uint8_t* out, const uint8_t* at, const uint8_t* end, const Header* h,
                               const JsonText* text) noexcept nogil:
    cdef RawRecord raw
    cdef Problem problem
    cdef int32_t i
    for i in range(h.record_count):
        parse_record(at, end, &raw, &problem)
        if i:
            out = put_ascii(out, text.separator, text.separator_size)
        out = put_ascii(out, text.opening, text.opening_size)
        out = put_decimal(out, h.base_offset + raw.offset_delta)
        out = put_ascii(out, b",\"timestamp\":", 13)
        out = put_decimal(out, timestamp_of(h, raw.timestamp_delta))
        out = put_ascii(out, text.middle, text.middle_size)
        out = put_json_bytes(out, raw.key, raw.key_size)
        out = put_ascii(out, b",\"value\":", 9)
        out = put_json_bytes(out, raw.value, raw.value_size)
        out = put_ascii(out, b",\"headers\":", 11)
        out = put_json_headers(out, &raw)
        out = put_ascii(out, b"}", 1)
        at = raw.end
    return out


def json_of_records(RecordIterator records, *, const uint8_t[::1] opening, const uint8_t[::1] middle,
                    const uint8_t[::1] separator, int64_t most_bytes):
    """Return all records of a batch as one str of JSON objects, without brackets around them.

    Returns None if the magic is not 2, a record is invalid, a header key needs escaping, or the text might take more
    than most_bytes.

    Args: records: a fresh iterator over the batch; opening, middle, separator: ASCII text to put before each offset,
        between timestamp and key, and between two records.
    Raises: MemoryError.
    Cost: a copy of the payload and the text twice, in memory.  Threads: the GIL is released.
    """
    cdef JsonText text
    cdef int64_t size
    cdef uint8_t* out = NULL
    cdef uint8_t* end
    cdef const uint8_t* start = start_of(records.payload)
    cdef int64_t payload_size = records.payload.shape[0]
    # A copy, because another thread may write to the buffer between measuring and writing.
    cdef uint8_t* copy
    if records.h.magic < MAGIC_V2:
        return None
    text.opening, text.opening_size = start_of(opening), opening.shape[0]
    text.middle, text.middle_size = start_of(middle), middle.shape[0]
    text.separator, text.separator_size = start_of(separator), separator.shape[0]
    copy = <uint8_t*>malloc(<size_t>max(payload_size, 1))
    if copy == NULL:
        raise MemoryError
    try:
        with nogil:
            if payload_size > 0:
                memcpy(copy, start, <size_t>payload_size)
            size = json_size(copy, copy + payload_size, &records.h, &text)
        if size < 0 or size > most_bytes:
            return None
        out = <uint8_t*>malloc(<size_t>max(size, 1))
        if out == NULL:
            raise MemoryError
        with nogil:
            end = put_json_records(out, copy, copy + payload_size, &records.h, &text)
        return PyUnicode_DecodeUTF8(<char*>out, end - out, NULL)
    finally:
        free(copy)
        free(out)
