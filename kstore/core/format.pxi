# The facts of the on-disk format, stated once for the whole core: field positions (_AT), sizes and masks; the statuses
# that leaf functions return, with the function that turns one into an exception; the range check of given numbers; and
# big-endian loads and stores, varints and prefetch. docs/format.md explains the format.

cdef enum:
    LOG_OVERHEAD_SIZE = 12
    BASE_OFFSET_AT = 0
    BATCH_LENGTH_AT = 8
    PARTITION_LEADER_EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    LAST_OFFSET_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    RECORD_COUNT_AT = 57
    RECORDS_AT = 61
    HEADER_SIZE_UP_TO_MAGIC = 17
    BATCH_HEADER_SIZE = 61
    MIN_RECORD_SIZE = 7
    MAGIC_V0 = 0
    MAGIC_V1 = 1
    MAGIC_V2 = 2

    MESSAGE_CRC_AT = 12
    MESSAGE_ATTRIBUTES_AT = 17
    MESSAGE_TIMESTAMP_AT = 18
    V0_KEY_SIZE_AT = 18
    V1_KEY_SIZE_AT = 26
    MIN_MESSAGE_V0_SIZE = 26
    MIN_MESSAGE_V1_SIZE = 34

    CODEC_MASK = 0x07
    TIMESTAMP_TYPE_MASK = 0x08
    TRANSACTIONAL_MASK = 0x10
    CONTROL_MASK = 0x20
    DELETE_HORIZON_MASK = 0x40
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4
    MAX_LEGACY_CODEC_ID = CODEC_LZ4
    MAX_CODEC_ID = CODEC_ZSTD

    OFFSET_ENTRY_SIZE = 8
    TIME_ENTRY_SIZE = 12

# By id, as labels of kstore.compression.CompressionType.
CODEC_NAMES = {0: "none", 1: "gzip", CODEC_SNAPPY: "snappy", CODEC_LZ4: "lz4", CODEC_ZSTD: "zstd"}

LOG_OVERHEAD = LOG_OVERHEAD_SIZE
MAGIC_POSITION = MAGIC_AT
CRC_POSITION = CRC_AT
ATTRIBUTES_POSITION = ATTRIBUTES_AT
MAX_TIMESTAMP_POSITION = MAX_TIMESTAMP_AT
MESSAGE_CRC_POSITION = MESSAGE_CRC_AT
MESSAGE_ATTRIBUTES_POSITION = MESSAGE_ATTRIBUTES_AT
MESSAGE_TIMESTAMP_POSITION = MESSAGE_TIMESTAMP_AT
CODEC_BITS = CODEC_MASK
TIMESTAMP_TYPE_BIT = TIMESTAMP_TYPE_MASK
TRANSACTIONAL_BIT = TRANSACTIONAL_MASK
CONTROL_BIT = CONTROL_MASK
DELETE_HORIZON_BIT = DELETE_HORIZON_MASK
RECORD_BATCH_OVERHEAD = BATCH_HEADER_SIZE
OFFSET_INDEX_ENTRY_SIZE = OFFSET_ENTRY_SIZE
TIME_INDEX_ENTRY_SIZE = TIME_ENTRY_SIZE

if RECORDS_AT != RECORD_COUNT_AT + 4 or RECORDS_AT != BATCH_HEADER_SIZE:
    raise ImportError("batch header places do not add up")


# Statuses of leaf functions. error_of turns one into an exception.

cdef enum Status:
    OK = 0
    STOPPED            # not an error: the leaf reached its bound
    NEED_KEY_SPACE     # not errors: the caller grows a column and calls again
    NEED_VALUE_SPACE
    NEED_HEADER_SPACE
    NEED_TIMESTAMP_VALIDITY
    NEED_BATCH_NOTE    # not an error: the next record has another timestamp type
    NO_MEMORY
    BATCH_TOO_SMALL
    BATCH_TOO_LARGE
    BATCH_INCOMPLETE
    ZEROS_FOR_BATCH
    BAD_MAGIC
    BAD_CRC
    BAD_BASE_OFFSET
    BASE_OFFSET_TOO_HIGH
    OFFSETS_BACKWARDS
    OFFSETS_BEYOND_SEGMENT
    OFFSET_OVERFLOW
    BAD_LAST_OFFSET_DELTA
    BAD_CODEC
    BAD_RECORD_COUNT
    BAD_OFFSET_DELTA
    BAD_RECORD_SIZE
    BAD_VARINT
    BAD_KEY_SIZE
    BAD_VALUE_SIZE
    BAD_HEADER_COUNT
    BAD_HEADER_KEY_SIZE
    BAD_HEADER_VALUE_SIZE
    RECORD_SIZE_MISMATCH
    TRAILING_BYTES
    TOO_MANY_HEADERS
    BAD_LEGACY_CODEC
    NULL_WRAPPER
    EMPTY_WRAPPER
    NESTED_WRAPPER
    BAD_WRAPPER_OFFSET
    BAD_MESSAGE_SIZE
    MESSAGE_TOO_LARGE
    BAD_MESSAGE_MAGIC
    BAD_MESSAGE_OFFSET

# Where a leaf failed. expected and found are the values for the message. record is the record's number in the batch, or
# -1. offset is that of the record; only TOO_MANY_HEADERS sets it.
cdef struct Problem:
    Status status
    int64_t position
    int64_t base_offset
    int64_t expected
    int64_t found
    int64_t record
    int64_t offset


# Memory that Python objects take in addition to their content, in bytes: a Record with its key and value; one header
# (its tuple, str and bytes, and its slots in lists). Headers as Arrow columns or JSON take less. LEAST_HEADER_COUNT
# headers are allowed under any limit.
cdef enum:
    RECORD_OBJECT_SIZE = 256
    HEADER_OBJECT_SIZE = 192
    LEAST_HEADER_COUNT = 1024


cdef inline Status fail(Problem* problem, Status status, int64_t expected, int64_t found) noexcept nogil:
    problem.status = status
    problem.expected = expected
    problem.found = found
    return status

_CORRUPT = {
    BATCH_TOO_SMALL: "batch smaller than its header: expected at least {expected} bytes, found {found}",
    BATCH_TOO_LARGE: "batch larger than the limit: expected at most {expected} bytes, found {found}",
    BATCH_INCOMPLETE: "batch runs past the end: expected {expected} bytes, found {found}",
    ZEROS_FOR_BATCH: "zero bytes in place of a batch: expected at least {expected} bytes, found {found}",
    BAD_CRC: "CRC mismatch: stored 0x{expected:08x}, computed 0x{found:08x}",
    BAD_BASE_OFFSET: "base offset out of range: expected at least {expected}, found {found}",
    BASE_OFFSET_TOO_HIGH: "base offset out of range: expected at most {expected}, found {found}",
    OFFSETS_BEYOND_SEGMENT: "offsets run into the next segment: expected less than {expected}, found {found}",
    OFFSET_OVERFLOW: "offset too far above the segment's base offset: expected at most {expected}, found {found}",
    BAD_MESSAGE_SIZE: "inner message smaller than its header: expected at least {expected} bytes, found {found}",
    MESSAGE_TOO_LARGE: "inner message larger than a payload may be: expected at most {expected} bytes, found {found}",
    OFFSETS_BACKWARDS: "base offset not above the last offset before it: expected more than {expected}, found {found}",
}
_INVALID = {
    BAD_LAST_OFFSET_DELTA: "last offset delta does not fit: expected at least {expected}, found {found}",
    BAD_RECORD_COUNT: "record count does not fit: expected from 0 to {expected}, found {found}",
    BAD_OFFSET_DELTA: "offset delta out of order: expected from {expected} to the last offset delta, found {found}",
    BAD_RECORD_SIZE: "record size does not fit: expected from 1 to {expected} bytes, found {found}",
    BAD_VARINT: "varint truncated or too long: {expected} bytes left",
    BAD_KEY_SIZE: "key size does not fit: expected from -1 to {expected} bytes, found {found}",
    BAD_VALUE_SIZE: "value size does not fit: expected from -1 to {expected} bytes, found {found}",
    BAD_HEADER_COUNT: "header count does not fit: expected from 0 to {expected}, found {found}",
    BAD_HEADER_KEY_SIZE: "header key size does not fit: expected from 0 to {expected} bytes, found {found}",
    BAD_HEADER_VALUE_SIZE: "header value size does not fit: expected from -1 to {expected} bytes, found {found}",
    RECORD_SIZE_MISMATCH: "record size does not match its fields: expected {expected} bytes, found {found}",
    TRAILING_BYTES: "bytes left after the last record: expected {expected}, found {found}",
    BAD_LEGACY_CODEC: "compression type not allowed in magic 0 and 1: expected 0 to {expected}, found {found} ({codec})",
    NULL_WRAPPER: "compressed message without a value: expected compressed messages, found null",
    EMPTY_WRAPPER: "compressed message without inner messages: expected at least {expected} message, found {found}",
    NESTED_WRAPPER: "compressed message inside a compressed message: expected compression type 0, found {found}",
    BAD_WRAPPER_OFFSET: "offset of a compressed message too small: expected at least {expected}, found {found}",
    BAD_MESSAGE_MAGIC: "inner message with a wrong magic: expected 0 or 1, found {found}",
    BAD_MESSAGE_OFFSET: "inner offset out of order: expected from {expected} to that of the compressed message, "
                        "found {found}",
}


cdef object place_of(int64_t position, int64_t base_offset, object path):
    where = f"batch at position {position} of {'memory' if path is None else path}"
    return where if base_offset < 0 else f"{where} (base offset {base_offset})"


cdef object error_of(const Problem* problem, object path):
    """Return the exception of a failed leaf; the caller raises it."""
    cdef Status status = problem.status
    base_offset = problem.base_offset
    place = place_of(problem.position, problem.base_offset, path)
    if status == NO_MEMORY:
        return MemoryError(f"no memory for the columns of the {place}")
    if status == BAD_MAGIC:
        magic = problem.found
        expected = f"{MAGIC_V2}" if 0 <= magic < MAGIC_V2 else f"0 to {MAGIC_V2}"
        pair = f"expected {expected}, found {magic}"
        return UnsupportedMagicError(
            f"unsupported magic in {place}: {pair}", path=path, base_offset=base_offset, position=problem.position,
            reason=f"unsupported magic: {pair}", expected=expected, magic=magic)
    if status == BAD_CODEC:
        error = UnsupportedCompressionTypeError(
            f"unsupported compression type in {place}: expected 0 to {MAX_CODEC_ID}, found {problem.found}",
            path=path, base_offset=base_offset, position=problem.position)
        error.codec_id = problem.found
        return error
    if status == TOO_MANY_HEADERS:
        return limit_error(problem, place, path)
    if status in _CORRUPT:
        cls, template = CorruptRecordError, _CORRUPT[status]
    else:
        cls, template = InvalidRecordError, _INVALID[status]
    reason = template.format(expected=problem.expected, found=problem.found, codec=CODEC_NAMES.get(problem.found))
    what, _, detail = reason.partition(": ")
    record = f"record {problem.record} of the " if problem.record >= 0 else ""
    return cls(f"{what} in {record}{place}: {detail}", path=path, base_offset=base_offset, position=problem.position,
               reason=reason, expected=problem.expected, found=problem.found)


# Requires: found is the number of headers, expected the maximum size of their objects in bytes.
cdef object limit_error(const Problem* problem, object place, object path):
    return MemoryLimitError(
        f"headers take too much memory in record {problem.record} (offset {problem.offset}) of the {place}: expected at most "
        f"{problem.expected} bytes (max_decompressed_bytes), found {problem.found * HEADER_OBJECT_SIZE} for "
        f"{problem.found} headers; raise max_decompressed_bytes to read them",
        path=path, base_offset=problem.base_offset, position=problem.position, offset=problem.offset,
        option="max_decompressed_bytes", limit=problem.expected, found=problem.found * HEADER_OBJECT_SIZE)


# Numbers that are given as Python objects.

cdef int64_t refuse_range(str name, object number, int64_t least, int64_t most) except -2:
    raise ValueError(f"{name} must be from {least} to {most}, got {number}")


cdef inline int64_t ranged(str name, object number, int64_t least, int64_t most) except? -2:
    cdef int overflow = 0
    cdef int64_t value
    if type(number) is not int:
        number = checked_index(name, number)
    value = PyLong_AsLongLongAndOverflow(number, &overflow)
    if overflow or value < least or value > most:
        return refuse_range(name, number, least, most)
    return value


# Big-endian loads and stores, zigzag varints.

cdef extern from "_core_cpu.h" nogil:
    uint16_t ks_get16(const uint8_t* p) noexcept
    uint32_t ks_get32(const uint8_t* p) noexcept
    uint64_t ks_get64(const uint8_t* p) noexcept
    void ks_put16(uint8_t* p, uint16_t value) noexcept
    void ks_put32(uint8_t* p, uint32_t value) noexcept
    void ks_put64(uint8_t* p, uint64_t value) noexcept
    int varint_size "ks_varint_size"(uint64_t value) noexcept
    void ks_copy(uint8_t* target, const uint8_t* source, int64_t size, const uint8_t* readable_end) noexcept
    void ks_copy_exactly(uint8_t* target, const uint8_t* source, int64_t size) noexcept
    void ks_prefetch(const void* p) noexcept
    void ks_prefetch_all(const uint8_t* p, int64_t size) noexcept
    void ks_cpu_init() noexcept
    ctypedef struct ks_named_path:
        const char* name
    uint32_t ks_crc_by(const ks_named_path* paths, int path, uint32_t value, const uint8_t* p, size_t n) noexcept
    uint32_t ks_crc32c_by(int path, uint32_t value, const uint8_t* p, size_t n) noexcept
    uint32_t ks_crc32_by(int path, uint32_t value, const uint8_t* p, size_t n) noexcept
    uint32_t ks_crc32c_before(const uint8_t* p, size_t n, const uint8_t* ahead) noexcept
    uint32_t ks_crc32_before(const uint8_t* p, size_t n, const uint8_t* ahead) noexcept
    ks_named_path ks_crc32c_paths[4]
    ks_named_path ks_crc32_paths[4]
    int ks_crc32c_path_count
    int ks_crc32_path_count

cdef enum:
    CACHE_LINE = 64
    MAX_VARINT_SIZE = 5
    MAX_VARLONG_SIZE = 10
    PLAIN_PREFIX_SIZE = 16       # bytes that may be loaded at a record's start: five varints of one or two bytes
    LONG_VARINT = 0x80000000


cdef inline int32_t unzigzag32(uint32_t value) noexcept nogil:
    return <int32_t>((value >> 1) ^ (0 - (value & 1)))


cdef inline int64_t unzigzag64(uint64_t value) noexcept nogil:
    return <int64_t>((value >> 1) ^ (0 - (value & 1)))


# The zigzag value of an int32 is the same in 64 bits as in 32.
cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


# Requires: room for varint_size(value) bytes at `at`. Returns: the address after the varint.
cdef inline uint8_t* put_varint(uint8_t* at, uint64_t value) noexcept nogil:
    while value >= 0x80:
        at[0] = <uint8_t>(value | 0x80)
        value >>= 7
        at += 1
    at[0] = <uint8_t>value
    return at + 1


# Requires: at[0] <= end. Returns: OK with at[0] after the varint, or BAD_VARINT (truncated, or more than `most` bytes).
cdef Status read_long_varint(const uint8_t** at, const uint8_t* end, int most, uint64_t* value) noexcept nogil:
    cdef const uint8_t* p = at[0]
    cdef uint64_t result = 0
    cdef int i
    for i in range(most):
        if p + i >= end:
            return BAD_VARINT
        result |= <uint64_t>(p[i] & 0x7F) << (7 * i)
        if p[i] < 0x80:
            at[0] = p + i + 1
            value[0] = result
            return OK
    return BAD_VARINT


# One or two bytes take branches that are well predicted: in real data, sizes of a field repeat from record to record.
cdef inline Status read_varint(const uint8_t** at, const uint8_t* end, int32_t* value) noexcept nogil:
    cdef const uint8_t* p = at[0]
    cdef uint64_t wide
    cdef Status status
    if end - p >= 2:
        if p[0] < 0x80:
            at[0] = p + 1
            value[0] = unzigzag32(p[0])
            return OK
        if p[1] < 0x80:
            at[0] = p + 2
            value[0] = unzigzag32((p[0] & 0x7F) | <uint32_t>p[1] << 7)
            return OK
    status = read_long_varint(at, end, MAX_VARINT_SIZE, &wide)
    if status == OK:
        value[0] = unzigzag32(<uint32_t>wide)
    return status


cdef inline Status read_varlong(const uint8_t** at, const uint8_t* end, int64_t* value) noexcept nogil:
    cdef const uint8_t* p = at[0]
    cdef uint64_t wide
    cdef Status status
    if end - p >= 2:
        if p[0] < 0x80:
            at[0] = p + 1
            value[0] = unzigzag64(p[0])
            return OK
        if p[1] < 0x80:
            at[0] = p + 2
            value[0] = unzigzag64((p[0] & 0x7F) | <uint64_t>p[1] << 7)
            return OK
    status = read_long_varint(at, end, MAX_VARLONG_SIZE, &wide)
    if status == OK:
        value[0] = unzigzag64(wide)
    return status


# Requires: two readable bytes at p. Returns: the zigzag code, or LONG_VARINT for more than two bytes.
cdef inline uint32_t short_varint(const uint8_t** at) noexcept nogil:
    cdef const uint8_t* p = at[0]
    if p[0] < 0x80:
        at[0] = p + 1
        return p[0]
    at[0] = p + 2
    if p[1] < 0x80:
        return (p[0] & 0x7F) | <uint32_t>p[1] << 7
    return LONG_VARINT


cdef const uint8_t* start_of(const uint8_t[::1] buffer) noexcept:
    return &buffer[0] if buffer.shape[0] else NULL


cdef object decode_one(const uint8_t[::1] buffer, Py_ssize_t position, int most):
    cdef uint64_t wide = 0
    cdef const uint8_t* start = start_of(buffer)
    cdef const uint8_t* at
    if position < 0 or position > buffer.shape[0]:
        raise ValueError(f"position must be from 0 to {buffer.shape[0]}, got {position}")
    at = start + position
    if read_long_varint(&at, start + buffer.shape[0], most, &wide) != OK:
        reason = f"varint truncated or longer than {most} bytes"
        raise InvalidRecordError(f"{reason} at position {position}", position=position, reason=reason)
    value = unzigzag32(<uint32_t>wide) if most == MAX_VARINT_SIZE else unzigzag64(wide)
    return value, at - start


cdef bytes encode_one(uint64_t value):
    cdef uint8_t out[MAX_VARLONG_SIZE]
    return PyBytes_FromStringAndSize(<char*>out, put_varint(out, value) - out)


def decode_varint(const uint8_t[::1] buffer, Py_ssize_t position=0):
    """Read a zigzag varint (int32, at most 5 bytes) and return (value, position after it).

    Bits above the 32nd are dropped and over-long forms accepted, as Kafka's ByteUtils.readVarint does.
    Raises: InvalidRecordError if truncated or longer than 5 bytes; ValueError for a position outside the buffer.
    """
    return decode_one(buffer, position, MAX_VARINT_SIZE)


def decode_varlong(const uint8_t[::1] buffer, Py_ssize_t position=0):
    """Read a zigzag varlong (int64, at most 10 bytes) and return (value, position after it).

    Raises: InvalidRecordError if truncated or longer than 10 bytes; ValueError for a position outside the buffer.
    """
    return decode_one(buffer, position, MAX_VARLONG_SIZE)


def encode_varint(int32_t value):
    """Return the zigzag varint of an int32."""
    return encode_one(zigzag(value))


def encode_varlong(int64_t value):
    """Return the zigzag varint of an int64."""
    return encode_one(zigzag(value))


def size_of_varint(int32_t value):
    """Return the size in bytes of encode_varint's result."""
    return varint_size(zigzag(value))


def size_of_varlong(int64_t value):
    """Return the size in bytes of encode_varlong's result."""
    return varint_size(zigzag(value))
