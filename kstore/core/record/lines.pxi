# The records of a batch of magic 2 as text, for the kstore command: one line, or whatever its fields make up, for each
# record. What a record is made of is a list of fields and of bytes between them (RecordLines). Other magics are left to
# the caller.

cdef extern from *:
    bint Py_UNICODE_ISPRINTABLE(Py_UCS4 character) nogil

# The times that have a year from 1 to 9999.
cdef int64_t FIRST_TIME_MS = -62135596800000LL
cdef int64_t LAST_TIME_MS = 253402300799999LL

cdef enum:
    MAX_INT64_DIGITS = 20
    # What a field takes at most, beside the bytes of the record.
    MOST_FIELD_SIZE = 64
    MOST_HEADER_SIZE = 32
    # What a byte takes at most: six characters in JSON, each of which may be a quote that CSV doubles.
    MOST_GROWTH = 6
    MOST_HEADER_GROWTH = 12

cdef enum LineField:
    LINE_BYTES
    LINE_OFFSET
    LINE_TIMESTAMP
    LINE_TIME
    LINE_TIMESTAMP_TYPE
    LINE_SEQUENCE
    LINE_PRODUCER_ID
    LINE_PRODUCER_EPOCH
    LINE_LEADER_EPOCH
    LINE_IS_TRANSACTIONAL
    # Of the key; the same of the value follow each other in the same order.
    LINE_KEY
    LINE_KEY_SIZE
    LINE_KEY_SIZE_BINARY
    LINE_KEY_BASE64
    LINE_KEY_JSON
    LINE_KEY_TEXT
    LINE_KEY_CSV
    LINE_KEY_HEX
    LINE_VALUE
    LINE_VALUE_SIZE
    LINE_VALUE_SIZE_BINARY
    LINE_VALUE_BASE64
    LINE_VALUE_JSON
    LINE_VALUE_TEXT
    LINE_VALUE_CSV
    LINE_VALUE_HEX
    LINE_HEADERS
    LINE_HEADERS_BASE64
    LINE_HEADERS_JSON
    LINE_HEADERS_TEXT
    LINE_HEADERS_CSV
    LINE_HEADERS_HEX

_LINE_FIELDS = {name: field for field, name in enumerate((
    "", "offset", "timestamp", "time", "timestamp_type", "sequence", "producer_id", "producer_epoch", "leader_epoch",
    "is_transactional", "key", "key_size", "key_size_binary", "key_base64", "key_json", "key_text", "key_csv", "key_hex",
    "value", "value_size", "value_size_binary", "value_base64", "value_json", "value_text", "value_csv", "value_hex",
    "headers", "headers_base64", "headers_json", "headers_text", "headers_csv", "headers_hex")) if name}

cdef uint8_t BASE64_PAIRS[8192]
cdef uint8_t* HEX_DIGITS = b"0123456789abcdef"


cdef int fill_base64_pairs() except -1:
    cdef bytes letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    cdef int i
    for i in range(4096):
        BASE64_PAIRS[2 * i] = letters[i >> 6]
        BASE64_PAIRS[2 * i + 1] = letters[i & 63]
    return 0


fill_base64_pairs()

# Returns: a bit for bytes of a word that put_escaped does not copy: control characters, DEL and the backslash.
cdef inline uint64_t escape_stops(uint64_t word) noexcept nogil:
    cdef uint64_t slashes = word ^ (ONES * c'\\')
    cdef uint64_t deletes = word ^ (ONES * 0x7F)
    return (((slashes - ONES) & ~slashes) | ((deletes - ONES) & ~deletes) | ((word - ONES * 0x20) & ~word)) & HIGH_BITS


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


cdef inline uint8_t* put_digits(uint8_t* out, int64_t value, int count) noexcept nogil:
    cdef int at = count
    while at > 0:
        at -= 1
        out[at] = <uint8_t>(48 + value % 10)
        value //= 10
    return out + count


# Puts the UTC time in ISO 8601 with ms; the number of ms outside of the years 1 to 9999, `-` for -1.
cdef uint8_t* put_time(uint8_t* out, int64_t timestamp_ms) noexcept nogil:
    cdef int64_t ms, days, era, day, year, month
    if timestamp_ms == -1:
        return put_ascii(out, b"-", 1)
    if timestamp_ms < FIRST_TIME_MS or timestamp_ms > LAST_TIME_MS:
        return put_decimal(out, timestamp_ms)
    # Of years that begin in March, so that a leap day is the last of one, and of eras of 400 such years.
    ms = timestamp_ms - FIRST_TIME_MS
    days = ms // 86400000 + 306
    ms = ms % 86400000
    era = days // 146097
    day = days % 146097
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    month += 3 if month < 10 else -9
    out = put_digits(out, 400 * era + year + (1 if month <= 2 else 0), 4)
    out[0] = 45
    out = put_digits(out + 1, month, 2)
    out[0] = 45
    out = put_digits(out + 1, day + 1, 2)
    out[0] = 84
    out = put_digits(out + 1, ms // 3600000, 2)
    out[0] = 58
    out = put_digits(out + 1, ms // 60000 % 60, 2)
    out[0] = 58
    out = put_digits(out + 1, ms // 1000 % 60, 2)
    out[0] = 46
    out = put_digits(out + 1, ms % 1000, 3)
    out[0] = 90
    return out + 1


# size < 0: null.
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


cdef inline uint8_t* put_escape(uint8_t* out, uint8_t letter) noexcept nogil:
    out[0] = 92
    out[1] = letter
    return out + 2


cdef inline uint8_t* put_hex_digits(uint8_t* out, uint32_t value, int count) noexcept nogil:
    cdef int at = count
    while at > 0:
        at -= 1
        out[at] = HEX_DIGITS[value & 15]
        value >>= 4
    return out + count


# Puts text as a JSON string. size < 0: null. What is not UTF-8 is null too, or with `is_lossy` has U+FFFD.
cdef uint8_t* put_json_text(uint8_t* out, const uint8_t* p, int64_t size, bint is_lossy) noexcept nogil:
    cdef uint8_t* start = out
    cdef const uint8_t* end = p + size
    cdef uint64_t word
    cdef uint8_t byte
    cdef int step
    if size < 0:
        return put_ascii(out, b"null", 4)
    out[0] = 34
    out += 1
    while p < end:
        if end - p >= 8:
            word = load_word(p, 8)
            if word & HIGH_BITS == 0 and string_stops(word) == 0:
                memcpy(out, p, 8)
                out += 8
                p += 8
                continue
        byte = p[0]
        if byte >= 0x80:
            step = utf8_sequence(p, end - p)
            if step > 0:
                out = put_ascii(out, p, step)
            elif is_lossy:
                out = put_ascii(out, b"\xef\xbf\xbd", 3)
                step = -step
            else:
                return put_ascii(start, b"null", 4)
            p += step
            continue
        if byte >= 32 and byte != 34 and byte != 92:
            out[0] = byte
            out += 1
        elif byte == 34 or byte == 92:
            out = put_escape(out, byte)
        elif byte == 8:
            out = put_escape(out, 98)
        elif byte == 9:
            out = put_escape(out, 116)
        elif byte == 10:
            out = put_escape(out, 110)
        elif byte == 12:
            out = put_escape(out, 102)
        elif byte == 13:
            out = put_escape(out, 114)
        else:
            out = put_hex_digits(put_ascii(out, b"\\u00", 4), byte, 2)
        p += 1
    out[0] = 34
    return out + 1


# Requires: a valid UTF-8 sequence of `size` bytes.
cdef inline uint32_t code_point_of(const uint8_t* p, int size) noexcept nogil:
    cdef uint32_t code = p[0] & (0x7F >> size)
    cdef int i
    for i in range(1, size):
        code = code << 6 | (p[i] & 0x3F)
    return code


# Puts text with a backslash escape for each byte that is not UTF-8 and each character that is not printable, which might
# control a terminal. size < 0: null.
cdef uint8_t* put_escaped(uint8_t* out, const uint8_t* p, int64_t size) noexcept nogil:
    cdef const uint8_t* end = p + size
    cdef uint64_t word
    cdef uint32_t code
    cdef uint8_t byte
    cdef int step
    if size < 0:
        return put_ascii(out, b"<null>", 6)
    if size == 0:
        return put_ascii(out, b"<empty>", 7)
    if (size == 6 and memcmp(p, b"<null>", 6) == 0) or (size == 7 and memcmp(p, b"<empty>", 7) == 0):
        return put_ascii(put_ascii(out, b"\\", 1), p, size)
    while p < end:
        if end - p >= 8:
            word = load_word(p, 8)
            if word & HIGH_BITS == 0 and escape_stops(word) == 0:
                memcpy(out, p, 8)
                out += 8
                p += 8
                continue
        byte = p[0]
        step = 1
        if 32 <= byte < 127 and byte != 92:
            out[0] = byte
            out += 1
        elif byte == 92:
            out = put_escape(out, 92)
        elif byte == 9:
            out = put_escape(out, 116)
        elif byte == 10:
            out = put_escape(out, 110)
        elif byte == 13:
            out = put_escape(out, 114)
        else:
            step = utf8_sequence(p, end - p)
            code = byte if step < 0 else code_point_of(p, step) if step > 1 else byte
            if step > 1 and Py_UNICODE_ISPRINTABLE(<Py_UCS4>code):
                out = put_ascii(out, p, step)
            elif code < 0x100:
                out = put_hex_digits(put_escape(out, 120), code, 2)
            elif code < 0x10000:
                out = put_hex_digits(put_escape(out, 117), code, 4)
            else:
                out = put_hex_digits(put_escape(out, 85), code, 8)
            step = step if step > 0 else 1
        p += step
    return out


# Puts a field of CSV (RFC 4180), with U+FFFD for what is not UTF-8. size < 0: null, which is nothing; "" is empty.
cdef uint8_t* put_csv(uint8_t* out, const uint8_t* p, int64_t size) noexcept nogil:
    cdef const uint8_t* end = p + size
    cdef int64_t i
    cdef bint is_quoted = size == 0
    cdef int step
    for i in range(size):
        if p[i] == 34 or p[i] == 44 or p[i] == 10 or p[i] == 13:
            is_quoted = True
            break
    if is_quoted:
        out[0] = 34
        out += 1
    while p < end:
        if p[0] == 34:
            out[0] = 34
            out += 1
        if p[0] < 0x80:
            out[0] = p[0]
            out += 1
            p += 1
            continue
        step = utf8_sequence(p, end - p)
        if step > 0:
            out = put_ascii(out, p, step)
            p += step
        else:
            out = put_ascii(out, b"\xef\xbf\xbd", 3)
            p -= step
    if is_quoted:
        out[0] = 34
        out += 1
    return out


cdef uint8_t* put_hex(uint8_t* out, const uint8_t* p, int64_t size) noexcept nogil:
    cdef int64_t i
    if size < 0:
        return put_ascii(out, b"<null>", 6)
    if size == 0:
        return put_ascii(out, b"<empty>", 7)
    for i in range(size):
        out[2 * i] = HEX_DIGITS[p[i] >> 4]
        out[2 * i + 1] = HEX_DIGITS[p[i] & 15]
    return out + 2 * size


# Doubles the quotes of JSON that was put from start to end, and puts quotes around it: a field of CSV.
cdef uint8_t* quote_csv(uint8_t* start, uint8_t* end) noexcept nogil:
    cdef int64_t quotes = 2
    cdef uint8_t* at = start
    cdef uint8_t* to
    while at < end:
        quotes += at[0] == 34
        at += 1
    to = end + quotes - 1
    to[0] = 34
    while at > start:
        at -= 1
        to -= 1
        to[0] = at[0]
        if at[0] == 34:
            to -= 1
            to[0] = 34
    start[0] = 34
    return end + quotes


# Requires: check_headers returned OK, and room. Puts what stands before, between and after headers too.
cdef uint8_t* put_line_headers(uint8_t* out, const RawRecord* r, LineField field) noexcept nogil:
    cdef RawHeader header
    cdef Problem problem
    cdef uint8_t* start = out
    cdef const uint8_t* at = r.headers
    cdef bint is_json = field == LINE_HEADERS_BASE64 or field == LINE_HEADERS_JSON or field == LINE_HEADERS_CSV
    cdef int32_t i
    if r.header_count == 0:
        return put_ascii(out, b"[]", 2) if is_json and field != LINE_HEADERS_CSV else out
    if is_json:
        out = put_ascii(out, b"[", 1)
    elif field != LINE_HEADERS:
        out = put_ascii(out, b"\t", 1)
    for i in range(r.header_count):
        parse_header(&at, r.end, &header, &problem)
        if is_json:
            out = put_ascii(out, b"[", 1) if i == 0 else put_ascii(out, b",[", 2)
            out = put_json_text(out, header.key, header.key_size, True)
            out = put_ascii(out, b",", 1)
            if field == LINE_HEADERS_BASE64:
                out = put_json_bytes(out, header.value, header.value_size)
            else:
                out = put_json_text(out, header.value, header.value_size, False)
            out = put_ascii(out, b"]", 1)
        elif field == LINE_HEADERS:
            out = out if i == 0 else put_ascii(out, b",", 1)
            out = put_ascii(put_ascii(out, header.key, header.key_size), b"=", 1)
            if header.value_size < 0:
                out = put_ascii(out, b"NULL", 4)
            else:
                out = put_ascii(out, header.value, header.value_size)
        else:
            out = out if i == 0 else put_ascii(out, b", ", 2)
            if header.key_size:
                out = put_escaped(out, header.key, header.key_size)
            out = put_ascii(out, b"=", 1)
            if field == LINE_HEADERS_TEXT:
                out = put_escaped(out, header.value, header.value_size)
            else:
                out = put_hex(out, header.value, header.value_size)
    if is_json:
        out = put_ascii(out, b"]", 1)
    return quote_csv(start, out) if field == LINE_HEADERS_CSV else out


# Puts a key or value. field: that of a key. Requires: room.
cdef inline uint8_t* put_line_bytes(uint8_t* out, const uint8_t* p, int32_t size, int field) noexcept nogil:
    if field == LINE_KEY:
        return put_ascii(out, p, size) if size > 0 else out
    if field == LINE_KEY_SIZE:
        return put_decimal(out, size)
    if field == LINE_KEY_SIZE_BINARY:
        ks_put32(out, <uint32_t>size)
        return out + 4
    if field == LINE_KEY_BASE64:
        return put_json_bytes(out, p, size)
    if field == LINE_KEY_JSON:
        return put_json_text(out, p, size, False)
    if field == LINE_KEY_TEXT:
        return put_escaped(out, p, size)
    if field == LINE_KEY_CSV:
        return put_csv(out, p, size)
    return put_hex(out, p, size)


# Puts a field of the batch, or a number of a record. Requires: room.
cdef inline uint8_t* put_line_number(uint8_t* out, const Header* h, const RawRecord* r, LineField field) noexcept nogil:
    if field == LINE_OFFSET:
        return put_decimal(out, h.base_offset + r.offset_delta)
    if field == LINE_TIMESTAMP:
        return put_decimal(out, timestamp_of(h, r.timestamp_delta))
    if field == LINE_TIME:
        return put_time(out, timestamp_of(h, r.timestamp_delta))
    if field == LINE_TIMESTAMP_TYPE:
        if h.attributes & TIMESTAMP_TYPE_MASK:
            return put_ascii(out, b"LogAppendTime", 13)
        return put_ascii(out, b"CreateTime", 10)
    if field == LINE_SEQUENCE:
        return put_decimal(out, sequence_of(h, r.offset_delta))
    if field == LINE_PRODUCER_ID:
        return put_decimal(out, h.producer_id)
    if field == LINE_PRODUCER_EPOCH:
        return put_decimal(out, h.producer_epoch)
    if field == LINE_LEADER_EPOCH:
        return put_decimal(out, h.leader_epoch)
    return put_ascii(out, b"true", 4) if h.attributes & TRANSACTIONAL_MASK else put_ascii(out, b"false", 5)


# A field, or the bytes that stand in its place.
cdef struct LineStep:
    LineField field
    const uint8_t* text
    int64_t text_size


# most_fixed: what a record takes beside its own bytes.
cdef struct LineSteps:
    LineStep* steps
    int count
    int64_t most_fixed


@cython.final
cdef class RecordLines:
    """RecordLines(steps)\n--\n
    What the text of a record is made of.

    Args: steps: bytes, which are put as they are, and names of fields: offset, timestamp (ms), time (ISO 8601),
        timestamp_type, sequence, producer_id, producer_epoch, leader_epoch, is_transactional; key, key_size (-1 for null),
        key_size_binary (int32), key_base64 (in quotes, or null), key_json (text in quotes; null also for what is not
        UTF-8), key_text (escaped, with <null> and <empty>), key_csv, key_hex; the same of value; headers (k=v,k=v),
        headers_base64 and headers_json (arrays of pairs), headers_csv (headers_json as a field), headers_text and
        headers_hex (after a tab, if there are any).
    Raises: ValueError for another name.  Threads: immutable, safe.
    """

    cdef LineSteps lines
    cdef tuple held                 # the bytes that the steps point to

    def __cinit__(self, steps):
        cdef LineStep* at
        self.held = tuple(steps)
        self.lines.count = <int>len(self.held)
        self.lines.most_fixed = MOST_FIELD_SIZE
        self.lines.steps = at = <LineStep*>calloc(<size_t>max(self.lines.count, 1), sizeof(LineStep))
        if at == NULL:
            raise MemoryError
        for step in self.held:
            if type(step) is bytes:
                at.text = <const uint8_t*>PyBytes_AS_STRING(step)
                at.text_size = PyBytes_GET_SIZE(step)
                self.lines.most_fixed += at.text_size
            elif step in _LINE_FIELDS:
                at.field = <LineField><int>_LINE_FIELDS[step]
                self.lines.most_fixed += MOST_FIELD_SIZE
            else:
                raise ValueError(f"no such field of a record: {step!r}; expected one of {', '.join(_LINE_FIELDS)}")
            at += 1

    def __dealloc__(self):
        free(self.lines.steps)


# Requires: room for most_line_size.
cdef uint8_t* put_line(uint8_t* out, const Header* h, const RawRecord* r, const LineSteps* lines) noexcept nogil:
    cdef const LineStep* step = lines.steps
    cdef const LineStep* end = step + lines.count
    while step < end:
        if step.field == LINE_BYTES:
            out = put_ascii(out, step.text, step.text_size)
        elif step.field < LINE_KEY:
            out = put_line_number(out, h, r, step.field)
        elif step.field < LINE_VALUE:
            out = put_line_bytes(out, r.key, r.key_size, step.field)
        elif step.field < LINE_HEADERS:
            out = put_line_bytes(out, r.value, r.value_size, step.field - LINE_VALUE + LINE_KEY)
        else:
            out = put_line_headers(out, r, step.field)
        step += 1
    return out


# Returns: how many bytes the text of a record takes at most.
cdef int64_t most_line_size(const RawRecord* r, const LineSteps* lines) noexcept nogil:
    cdef const LineStep* step = lines.steps
    cdef const LineStep* end = step + lines.count
    cdef int64_t size = lines.most_fixed
    while step < end:
        if LINE_KEY <= step.field < LINE_VALUE and r.key_size > 0:
            size += MOST_GROWTH * <int64_t>r.key_size
        elif LINE_VALUE <= step.field < LINE_HEADERS and r.value_size > 0:
            size += MOST_GROWTH * <int64_t>r.value_size
        elif step.field >= LINE_HEADERS:
            size += MOST_HEADER_GROWTH * (r.end - r.headers) + MOST_HEADER_SIZE * <int64_t>r.header_count
        step += 1
    return size


# Which records of a batch: offsets and times of [start, end), at most `limit`.
cdef struct LineRange:
    int64_t start_offset
    int64_t end_offset
    int64_t since_ms
    int64_t until_ms
    int64_t limit


# Text that grows.
cdef struct LineText:
    uint8_t* data
    int64_t used
    int64_t capacity


cdef bint grow_text(LineText* text, int64_t more) noexcept nogil:
    cdef int64_t capacity = max(2 * text.capacity, text.used + more)
    cdef uint8_t* data = <uint8_t*>realloc(text.data, <size_t>capacity)
    if data == NULL:
        return False
    text.data, text.capacity = data, capacity
    return True


# Puts the text of the records of a range. Returns: their number, -1 if a record is invalid or the text has more than
# most_bytes, -2 without memory.
cdef int64_t put_lines(LineText* text, const uint8_t* at, const uint8_t* end, const Header* h, const LineSteps* lines,
                       const LineRange* wanted, int64_t most_bytes) noexcept nogil:
    cdef RawRecord raw
    cdef Problem problem
    cdef int64_t count = 0
    cdef int64_t least_delta = 0
    cdef int64_t offset, timestamp, size
    cdef int32_t i
    start_problem(&problem, 0)
    for i in range(h.record_count):
        if parse_record(at, end, &raw, &problem) != OK \
                or check_offset_delta(h, raw.offset_delta, &least_delta, &problem) != OK:
            return -1
        at = raw.end
        offset = h.base_offset + raw.offset_delta
        timestamp = timestamp_of(h, raw.timestamp_delta)
        if offset < wanted.start_offset or offset >= wanted.end_offset or timestamp < wanted.since_ms \
                or (timestamp >= wanted.until_ms and wanted.until_ms != INT64_MAX) or count == wanted.limit:
            continue
        size = most_line_size(&raw, lines)
        if text.capacity - text.used < size and not grow_text(text, size):
            return -2
        text.used = put_line(text.data + text.used, h, &raw, lines) - text.data
        if text.used > most_bytes:
            return -1
        count += 1
    return count if at == end else -1


def lines_of_records(RecordIterator records, RecordLines lines, *, int64_t start_offset, int64_t end_offset,
                     int64_t since_ms, int64_t until_ms, int64_t limit, int64_t most_bytes):
    """Return the text of the records of a batch, and how many they are.

    Returns None if the magic is not 2, a record is invalid, or the text might take more than most_bytes.
    Args: records: a fresh iterator over the batch; start_offset, end_offset, since_ms, until_ms, limit: which records:
        start <= offset < end, since <= timestamp < until (the largest int64 for no end), at most `limit` (-1 for all).
    Raises: MemoryError.
    Cost: a copy of the payload and the text twice, in memory.  Threads: the GIL is released.
    """
    cdef LineRange wanted = LineRange(start_offset, end_offset, since_ms, until_ms, limit)
    cdef LineText text = LineText(NULL, 0, 0)
    cdef int64_t count
    cdef const uint8_t* start = start_of(records.payload)
    cdef int64_t payload_size = records.payload.shape[0]
    # A copy, because another thread may write to the buffer while it is read.
    cdef uint8_t* copy
    # What is put of a value before the limit is looked at must be bounded too.
    if records.h.magic < MAGIC_V2 or payload_size > most_bytes // 4:
        return None
    copy = <uint8_t*>malloc(<size_t>max(payload_size, 1))
    if copy == NULL:
        raise MemoryError
    try:
        with nogil:
            if payload_size > 0:
                memcpy(copy, start, <size_t>payload_size)
            if not grow_text(&text, 2 * payload_size + MOST_FIELD_SIZE):
                count = -2
            else:
                count = put_lines(&text, copy, copy + payload_size, &records.h, &lines.lines, &wanted, most_bytes)
        if count == -2:
            raise MemoryError
        return None if count < 0 else (PyBytes_FromStringAndSize(<char*>text.data, text.used), count)
    finally:
        free(copy)
        free(text.data)
