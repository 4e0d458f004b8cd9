# Writes one record, one legacy entry, and a batch header with its CRC; checks the fields of a header, and turns those of
# a record into bytes.

# Sizes are -1 for null. headers_size is the size of the headers after their count.
cdef struct RecordFields:
    int64_t timestamp_delta
    int64_t offset_delta
    int64_t key_size
    int64_t value_size
    int64_t header_count
    int64_t headers_size
    const uint8_t* key
    const uint8_t* value


cdef inline int64_t sized_size(int64_t size) noexcept nogil:
    return varint_size(zigzag(size)) + (size if size > 0 else 0)


# Requires: room for sized_size(size) bytes at `at`. Returns: the address after them.
cdef inline uint8_t* put_sized(uint8_t* at, const uint8_t* data, int64_t size) noexcept nogil:
    at = put_varint(at, zigzag(size))
    if size > 0:
        ks_copy_exactly(at, data, size)
        at += size
    return at


# Returns: the size of a record without its length field.
cdef inline int64_t body_size(const RecordFields* r) noexcept nogil:
    return (1 + varint_size(zigzag(r.timestamp_delta)) + varint_size(zigzag(r.offset_delta)) + sized_size(r.key_size)
            + sized_size(r.value_size) + varint_size(zigzag(r.header_count)) + r.headers_size)


# Requires: room for the record and its length field at `at`; size is its body_size. Returns: the address of its
# headers, which the caller writes.
cdef inline uint8_t* put_record(uint8_t* at, int64_t size, const RecordFields* r) noexcept nogil:
    at = put_varint(at, zigzag(size))
    at[0] = 0
    at = put_varint(at + 1, zigzag(r.timestamp_delta))
    at = put_varint(at, zigzag(r.offset_delta))
    at = put_sized(at, r.key, r.key_size)
    at = put_sized(at, r.value, r.value_size)
    return put_varint(at, zigzag(r.header_count))


# Requires: 61 bytes at p.
cdef void store_header(uint8_t* p, const Header* h) noexcept nogil:
    ks_put64(p + BASE_OFFSET_AT, <uint64_t>h.base_offset)
    ks_put32(p + BATCH_LENGTH_AT, <uint32_t>(h.size - LOG_OVERHEAD_SIZE))
    ks_put32(p + PARTITION_LEADER_EPOCH_AT, <uint32_t>h.leader_epoch)
    p[MAGIC_AT] = <uint8_t>h.magic
    ks_put32(p + CRC_AT, h.crc)
    ks_put16(p + ATTRIBUTES_AT, <uint16_t>h.attributes)
    ks_put32(p + LAST_OFFSET_DELTA_AT, <uint32_t>h.last_offset_delta)
    ks_put64(p + BASE_TIMESTAMP_AT, <uint64_t>h.base_timestamp)
    ks_put64(p + MAX_TIMESTAMP_AT, <uint64_t>h.max_timestamp)
    ks_put64(p + PRODUCER_ID_AT, <uint64_t>h.producer_id)
    ks_put16(p + PRODUCER_EPOCH_AT, <uint16_t>h.producer_epoch)
    ks_put32(p + BASE_SEQUENCE_AT, <uint32_t>h.base_sequence)
    ks_put32(p + RECORD_COUNT_AT, <uint32_t>h.record_count)


# Returns: the size of a V0 or V1 entry: offset, length field and message.
cdef inline int64_t size_of_entry(int magic, const RecordFields* r) noexcept nogil:
    return least_batch_size(magic) + max(r.key_size, 0) + max(r.value_size, 0)


cdef inline uint8_t* put_field(uint8_t* at, const uint8_t* data, int64_t size) noexcept nogil:
    ks_put32(at, <uint32_t><int32_t>size)
    at += 4
    if size > 0:
        memcpy(at, data, <size_t>size)
        at += size
    return at


# Writes the fields of an entry before its key, except for the CRC. Returns: the address of the key's size.
cdef inline uint8_t* put_entry_header(uint8_t* p, const Header* h) noexcept nogil:
    ks_put64(p + BASE_OFFSET_AT, <uint64_t>(h.base_offset + h.last_offset_delta))
    ks_put32(p + BATCH_LENGTH_AT, <uint32_t>(h.size - LOG_OVERHEAD_SIZE))
    p[MAGIC_AT] = <uint8_t>h.magic
    p[MESSAGE_ATTRIBUTES_AT] = <uint8_t>h.attributes
    if h.magic == MAGIC_V0:
        return p + MESSAGE_TIMESTAMP_AT
    ks_put64(p + MESSAGE_TIMESTAMP_AT, <uint64_t>h.max_timestamp)
    return p + MESSAGE_TIMESTAMP_AT + 8


cdef inline void seal_entry(uint8_t* p, int64_t size) noexcept nogil:
    ks_put32(p + MESSAGE_CRC_AT, ks_crc32_by(BEST_PATH, 0, p + MAGIC_AT, <size_t>(size - MAGIC_AT)))


# Requires: size_of_entry bytes at p. h: the last offset, timestamp and attributes of the message.
cdef void put_entry(uint8_t* p, Header* h, const RecordFields* r) noexcept nogil:
    h.size = size_of_entry(h.magic, r)
    put_field(put_field(put_entry_header(p, h), r.key, r.key_size), r.value, r.value_size)
    seal_entry(p, h.size)


# Requires: h.size bytes at p, the payload in place. Writes the header with the CRC, of a batch or of a V0 or V1
# wrapper, whose key is null and whose value is the payload. Computing the CRC also prefetches the bytes at `ahead`,
# unless that is NULL.
cdef void seal_batch(uint8_t* p, Header* h, const uint8_t* ahead=NULL) noexcept nogil:
    if h.magic != MAGIC_V2:
        put_field(put_field(put_entry_header(p, h), NULL, -1), NULL, -1)
        ks_put32(p + least_batch_size(h.magic) - 4, <uint32_t>(h.size - least_batch_size(h.magic)))
        seal_entry(p, h.size)
        return
    store_header(p, h)
    if ahead == NULL:
        ahead = p
    h.crc = ks_crc32c_before(p + ATTRIBUTES_AT, <size_t>(h.size - ATTRIBUTES_AT), ahead)
    ks_put32(p + CRC_AT, h.crc)


# Writes the header with the CRC and seals the buffer. Requires: known, the facts of the records since start(). They are
# not stored if there was a writable view, which may have changed the records.
cdef void seal_buffer(ColumnBuffer batch, Header* h, const SealedBatch* known) noexcept:
    cdef uint8_t* p = batch.block.data
    if known.crc_shift and h.magic == MAGIC_V2 and not h.attributes & CODEC_MASK:
        store_header(p, h)
        h.crc = ks_crc32c_by(BEST_PATH, 0, p + ATTRIBUTES_AT, BATCH_HEADER_SIZE - ATTRIBUTES_AT)
        h.crc = joined_crc32c(h.crc, known.records_crc, known.crc_shift)
        ks_put32(p + CRC_AT, h.crc)
    elif h.size < GIL_RELEASE_SIZE:
        seal_batch(batch.block.data, h)
    else:
        with nogil:
            seal_batch(batch.block.data, h)
    if h.magic == MAGIC_V2 and not h.attributes & CODEC_MASK and not batch.was_writable:
        batch.sealed = known[0]
        batch.sealed.size = h.size


cdef inline void note_known(SealedBatch* known, int64_t timestamp, int64_t key_size) noexcept nogil:
    known.crc_shift = 0
    known.has_null_key |= key_size < 0
    if <uint64_t>timestamp < <uint64_t>known.least_timestamp:    # as unsigned, -1 is the largest
        known.least_timestamp = timestamp


cdef int set_producer(Header* h, object producer_id, object producer_epoch, object base_sequence,
                      bint is_transactional) except -1:
    cdef int64_t new_id = ranged("producer_id", producer_id, -1, INT64_MAX)
    cdef int32_t new_epoch = <int32_t>ranged("producer_epoch", producer_epoch, -1, INT16_MAX)
    h.base_sequence = <int32_t>ranged("base_sequence", base_sequence, -1, INT32_MAX)
    h.producer_id = new_id
    h.producer_epoch = new_epoch
    h.attributes &= ~TRANSACTIONAL_MASK
    if is_transactional:
        h.attributes |= TRANSACTIONAL_MASK
    return 0


# Rejects producer fields that contradict each other.
cdef int check_producer(const Header* h) except -1:
    if h.producer_id == -1:
        if h.attributes & TRANSACTIONAL_MASK:
            raise ValueError("a transactional batch needs a producer id")
        return 0
    if h.magic != MAGIC_V2:
        raise ValueError(f"a batch of magic {h.magic} has no producer id, got {h.producer_id}")
    if h.producer_epoch == -1:
        raise ValueError(f"producer {h.producer_id} needs a producer epoch")
    if h.base_sequence == -1 and not h.attributes & CONTROL_MASK:
        raise ValueError(f"producer {h.producer_id} needs a base sequence unless the batch is a control batch")
    return 0


# V0 has no timestamp, so any type is accepted.
cdef int set_timestamp_type(Header* h, object timestamp_type) except -1:
    if h.magic == MAGIC_V0:
        return 0
    if timestamp_type == _LOG_APPEND_TIME:
        h.attributes |= TIMESTAMP_TYPE_MASK
    elif timestamp_type != _CREATE_TIME:
        raise ValueError(f"timestamp_type must be CREATE_TIME or LOG_APPEND_TIME, got {timestamp_type!r}")
    return 0


# Rejects what V0 and V1 cannot store.
cdef int check_legacy(const Header* h, bint has_horizon) except -1:
    for name, is_wanted in (("transactions", h.attributes & TRANSACTIONAL_MASK), ("control records",
                            h.attributes & CONTROL_MASK), ("a delete horizon", has_horizon),
                            (CODEC_NAMES[h.attributes & CODEC_MASK],
                             h.attributes & CODEC_MASK > MAX_LEGACY_CODEC_ID)):
        if is_wanted:
            raise ValueError(f"a batch of magic {h.magic} can't have {name}")
    return 0


def patch_batch_header(uint8_t[::1] buffer, Py_ssize_t at=0, *, int64_t base_offset, int32_t partition_leader_epoch):
    """Set base offset and leader epoch of the V2 batch at buffer[at], in place; the CRC covers neither.

    Raises: CorruptRecordError; UnsupportedMagicError for any other magic; ValueError if the base offset would be
        negative or the last offset 2^63 - 1.
    """
    cdef int64_t most
    cdef Problem problem
    header = read_header(buffer, at, position=at)
    if header.magic != MAGIC_V2:
        start_problem(&problem, at)
        fail(&problem, BAD_MAGIC, MAGIC_V2, header.magic)
        raise error_of(&problem, None)
    most = INT64_MAX - 1 - max(header.last_offset - header.base_offset, 0)
    if base_offset < 0 or base_offset > most:
        raise ValueError(f"base_offset must be from 0 to {most}, got {base_offset}")
    ks_put64(&buffer[at] + BASE_OFFSET_AT, <uint64_t>base_offset)
    ks_put32(&buffer[at] + PARTITION_LEADER_EPOCH_AT, <uint32_t>partition_leader_epoch)


# Raises the error for a record that the batch cannot take. Requires: there is a reason.
cdef int refuse_record(const Header* h, int64_t offset, bint is_open, int64_t timestamp, bint is_control) except -1:
    cdef int64_t least = h.base_offset + h.last_offset_delta + 1
    if not is_open:
        raise ValueError("the batch is closed: it takes no more records")
    if is_control != (h.attributes & CONTROL_MASK != 0):
        raise ValueError("control records can only be appended to control batches, and nothing else to those")
    if timestamp < -1:
        raise ValueError(f"timestamp_ms must be -1 or not negative, got {timestamp}")
    if offset < least:
        raise ValueError(f"offsets must increase: expected at least {least}, got {offset}")
    most = min(int(h.base_offset) + INT32_MAX, INT64_MAX - 1)
    raise ValueError(f"offset too far from the batch's base offset: expected at most {most}, got {offset}")


cdef inline int64_t given_timestamp(object timestamp_ms, str call) except? -1:
    if timestamp_ms is None:
        raise TypeError(f"{call} needs a Record or timestamp_ms")
    return ranged("timestamp_ms", timestamp_ms, INT64_MIN, INT64_MAX)


cdef inline bint is_empty_tuple(object data) noexcept:
    return type(data) is tuple and len(<tuple>data) == 0


cdef inline bytes as_bytes(object data, str name):
    return <bytes>data if data is None or isinstance(data, bytes) else copied_bytes(data, name)


cdef bytes copied_bytes(object data, str name):
    try:
        return memoryview(data).tobytes()
    except TypeError:
        advice = ": encode it first, as by text.encode()" if isinstance(data, str) else ""
        raise TypeError(f"{name} must be bytes or None, got {type(data).__name__}{advice}") from None


# Returns: [key, value, key, value, ...] of all headers, as bytes. Surrogate escapes in a key become the bytes that they
# stand for.
cdef list flat_headers(object headers):
    cdef list flat = []
    for header in headers:
        # No try here: it costs more than the rest of the loop.
        key, value = <tuple>header if type(header) is tuple and len(<tuple>header) == 2 else pair_of(header)
        if not isinstance(key, str):
            raise TypeError(f"a header key must be str, got {type(key).__name__}")
        flat.append((<str>key).encode("utf-8", "surrogateescape"))
        flat.append(value if value is None or isinstance(value, bytes) else copied_bytes(value, "a header value"))
    return flat


cdef tuple pair_of(object header):
    try:
        key, value = header
    except TypeError:
        raise TypeError(f"a header must be a pair of str and bytes or None, got {header!r}") from None
    except ValueError:
        raise ValueError(f"a header must be a pair of str and bytes or None, got {header!r}") from None
    return key, value


cpdef tuple header_pairs(headers):
    """Return the headers of a record as a tuple; its pairs are not checked.  Raises: TypeError for a non-iterable."""
    try:
        rest = iter(headers)
    except TypeError:
        raise TypeError(
            f"headers must be pairs of str and bytes or None, got {headers!r} ({type(headers).__name__})") from None
    return tuple(rest)


# Lifetime: r points into key, value and flat, which must outlive it.
cdef inline void set_fields(RecordFields* r, bytes key, bytes value, list flat) noexcept:
    r.key_size = r.value_size = -1
    r.key = r.value = NULL
    r.header_count = r.headers_size = 0
    if key is not None:
        r.key = <const uint8_t*>PyBytes_AS_STRING(key)
        r.key_size = PyBytes_GET_SIZE(key)
    if value is not None:
        r.value = <const uint8_t*>PyBytes_AS_STRING(value)
        r.value_size = PyBytes_GET_SIZE(value)
    if flat is not None:
        r.header_count = len(flat) // 2
        for data in flat:
            r.headers_size += sized_size(-1 if data is None else PyBytes_GET_SIZE(data))


cdef uint8_t* put_flat_headers(uint8_t* at, list flat) noexcept:
    for data in flat:
        if data is None:
            at = put_sized(at, NULL, -1)
        else:
            at = put_sized(at, <const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return at


cdef int require_record_alone(object timestamp_ms, object key, object value, object headers) except -1:
    if timestamp_ms is not None or key is not None or value is not None or headers:
        raise TypeError("expected a Record or the fields of one, not both")
    return 0
