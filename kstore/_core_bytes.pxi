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
    PLAIN_PREFIX_SIZE = 16       # bytes that may be loaded from a record's start: five varints of one or two bytes
    LONG_VARINT = 0x80000000


cdef inline int32_t unzigzag32(uint32_t value) noexcept nogil:
    return <int32_t>((value >> 1) ^ (0 - (value & 1)))


cdef inline int64_t unzigzag64(uint64_t value) noexcept nogil:
    return <int64_t>((value >> 1) ^ (0 - (value & 1)))


# An int32 has the same zigzag value in 64 bits as in 32.
cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


# Requires: varint_size(value) bytes at `at`. Returns: the place behind the varint.
cdef inline uint8_t* put_varint(uint8_t* at, uint64_t value) noexcept nogil:
    while value >= 0x80:
        at[0] = <uint8_t>(value | 0x80)
        value >>= 7
        at += 1
    at[0] = <uint8_t>value
    return at + 1


# Requires: at[0] <= end. Returns: OK with at[0] behind the varint, or BAD_VARINT (cut off, or more than `most` bytes).
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


# One and two bytes by predicted branches: in real data the size of a field repeats from record to record.
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


# Brings bytes into the cache that will be wanted, without waiting for them. They need not be readable.
cdef inline void bring(const uint8_t* p, int64_t size) noexcept nogil:
    cdef int64_t at = 0
    while size - at > 3 * CACHE_LINE:
        ks_prefetch(p + at)
        ks_prefetch(p + at + CACHE_LINE)
        ks_prefetch(p + at + 2 * CACHE_LINE)
        ks_prefetch(p + at + 3 * CACHE_LINE)
        at += 4 * CACHE_LINE
    while at < size:
        ks_prefetch(p + at)
        at += CACHE_LINE


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
        reason = f"varint cut off or longer than {most} bytes"
        raise InvalidRecordError(f"{reason} at position {position}", position=position, reason=reason)
    value = unzigzag32(<uint32_t>wide) if most == MAX_VARINT_SIZE else unzigzag64(wide)
    return value, at - start


cdef bytes encode_one(uint64_t value):
    cdef uint8_t out[MAX_VARLONG_SIZE]
    return PyBytes_FromStringAndSize(<char*>out, put_varint(out, value) - out)


def decode_varint(const uint8_t[::1] buffer, Py_ssize_t position=0):
    """Read a zigzag varint (int32, at most 5 bytes) and return (value, position behind it).

    Bits above the 32nd are dropped and over-long forms accepted, as Kafka's ByteUtils.readVarint does.
    Raises: InvalidRecordError if cut off or longer than 5 bytes.
    """
    return decode_one(buffer, position, MAX_VARINT_SIZE)


def decode_varlong(const uint8_t[::1] buffer, Py_ssize_t position=0):
    """Read a zigzag varlong (int64, at most 10 bytes) and return (value, position behind it).

    Raises: InvalidRecordError if cut off or longer than 10 bytes.
    """
    return decode_one(buffer, position, MAX_VARLONG_SIZE)


def encode_varint(int32_t value):
    """Return the zigzag varint of an int32."""
    return encode_one(zigzag(value))


def encode_varlong(int64_t value):
    """Return the zigzag varint of an int64."""
    return encode_one(zigzag(value))


def size_of_varint(int32_t value):
    """Return the number of bytes that encode_varint writes."""
    return varint_size(zigzag(value))


def size_of_varlong(int64_t value):
    """Return the number of bytes that encode_varlong writes."""
    return varint_size(zigzag(value))
