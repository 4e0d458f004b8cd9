# One V2 record out: the leaves that write it and its batch header, and the encoder that gathers a batch.

# Sizes are -1 for null. headers_size is what the headers take behind their count.
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


# Requires: sized_size(size) bytes at `at`. Returns: the place behind them.
cdef inline uint8_t* put_sized(uint8_t* at, const uint8_t* data, int64_t size) noexcept nogil:
    at = put_varint(at, zigzag(size))
    if size > 0:
        memcpy(at, data, <size_t>size)
        at += size
    return at


# Returns: the bytes of a record behind its length field.
cdef inline int64_t body_size(const RecordFields* r) noexcept nogil:
    return (1 + varint_size(zigzag(r.timestamp_delta)) + varint_size(zigzag(r.offset_delta)) + sized_size(r.key_size)
            + sized_size(r.value_size) + varint_size(zigzag(r.header_count)) + r.headers_size)


# Requires: room for the record and its length at `at`; size is its body_size.
# Returns: the place of its headers, which the caller writes.
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


# Requires: h.size bytes at p, the payload in place. Writes the header and sets h.crc.
cdef void seal_batch(uint8_t* p, Header* h) noexcept nogil:
    store_header(p, h)
    h.crc = ks_crc32c_by(BEST_PATH, 0, p + ATTRIBUTES_AT, <size_t>(h.size - ATTRIBUTES_AT))
    ks_put32(p + CRC_AT, h.crc)


def patch_batch_header(uint8_t[::1] buffer, Py_ssize_t at=0, *, int64_t base_offset, int32_t partition_leader_epoch):
    """Set base offset and leader epoch of the batch at buffer[at], in place; the CRC covers neither.

    Raises: CorruptRecordError, UnsupportedMagicError as read_header; ValueError if the batch's offsets would be
        negative or end at 2^63 - 1.
    """
    cdef int64_t most
    header = read_header(buffer, at, position=at)
    most = INT64_MAX - 1 - max(header.last_offset - header.base_offset, 0)
    if base_offset < 0 or base_offset > most:
        raise ValueError(f"base_offset must be from 0 to {most}, got {base_offset}")
    ks_put64(&buffer[at] + BASE_OFFSET_AT, <uint64_t>base_offset)
    ks_put32(&buffer[at] + PARTITION_LEADER_EPOCH_AT, <uint32_t>partition_leader_epoch)


# A float would be cut to an integer in silence.
cdef inline int64_t as_int64(object number) except? -1:
    return number if type(number) is int else PyNumber_Index(number)


cdef inline bytes as_bytes(object data):
    return <bytes>data if data is None or isinstance(data, bytes) else memoryview(data).tobytes()


# Returns: key, value, key, value ... of all headers, as bytes. A key that is not UTF-8 comes from surrogateescape.
cdef list flat_headers(object headers):
    cdef list flat = []
    for key, value in headers:
        if not isinstance(key, str):
            raise TypeError(f"a header key must be str, got {type(key).__name__}")
        flat.append((<str>key).encode("utf-8", "surrogateescape"))
        flat.append(as_bytes(value))
    return flat


# Lifetime: r points into key and value.
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


cdef class RecordBatchEncoder:
    """The records of one V2 batch, encoded as they come, behind room for the header that seal() writes.

    Args: base_offset: offset that the deltas count from; delete_horizon_ms: what timestamps count from, None for the
        first record's; capacity_bytes: of the first buffer, which grows as needed.
    Threads: not safe.  Cost: append copies key and value once and makes no object that stays.
    Source: Kafka MemoryRecordsBuilder, DefaultRecord.writeTo.
    """

    cdef ColumnBuffer buffer
    cdef Header h
    cdef int64_t used
    cdef bint has_horizon
    cdef readonly bint is_open
    cdef readonly bint is_control

    def __init__(self, *, int64_t base_offset=0, bint is_control=False, delete_horizon_ms=None,
                 int64_t capacity_bytes=16384):
        if base_offset < 0 or base_offset == INT64_MAX:
            raise ValueError(f"base_offset must be from 0 to {INT64_MAX - 1}, got {base_offset}")
        self.h.base_offset = base_offset
        self.h.magic = MAGIC_V2
        self.h.last_offset_delta = -1
        self.h.max_timestamp = -1
        self.h.base_timestamp = -1
        self.h.record_count = 0
        self.has_horizon = delete_horizon_ms is not None
        if self.has_horizon:
            self.h.base_timestamp = delete_horizon_ms
            if self.h.base_timestamp < 0:
                raise ValueError(f"delete_horizon_ms must not be negative, got {delete_horizon_ms}")
        self.buffer = ColumnBuffer(max(capacity_bytes, BATCH_HEADER_SIZE))
        self.used = BATCH_HEADER_SIZE
        self.is_control = is_control
        self.is_open = True

    @property
    def base_offset(self): return self.h.base_offset
    @property
    def next_offset(self): return self.h.base_offset + self.h.last_offset_delta + 1
    @property
    def last_offset(self): return self.h.base_offset + self.h.last_offset_delta if self.h.record_count else None
    @property
    def record_count(self): return self.h.record_count
    @property
    def base_timestamp_ms(self): return self.h.base_timestamp
    @property
    def max_timestamp_ms(self): return self.h.max_timestamp
    @property
    def records_size_in_bytes(self): return self.used - BATCH_HEADER_SIZE

    @cython.final
    cdef int check(self, int64_t offset, int64_t timestamp, bint is_control) except -1:
        cdef int64_t least = self.h.base_offset + self.h.last_offset_delta + 1
        if not self.is_open:
            raise ValueError("the batch is closed: it takes no more records")
        if is_control != self.is_control:
            raise ValueError("control records can only be appended to control batches, and nothing else to those")
        if timestamp < -1:
            raise ValueError(f"timestamp_ms must be -1 or not negative, got {timestamp}")
        if offset < least:
            raise ValueError(f"offsets must rise: expected at least {least}, got {offset}")
        if offset - self.h.base_offset > INT32_MAX or offset == INT64_MAX:
            most = min(int(self.h.base_offset) + INT32_MAX, INT64_MAX - 1)
            raise ValueError(f"offset too far from the batch's base offset: expected at most {most}, got {offset}")
        return 0

    @cython.final
    cdef int64_t base_for(self, int64_t timestamp) noexcept:
        return timestamp if self.h.record_count == 0 and not self.has_horizon else self.h.base_timestamp

    # Returns: where the next record goes, with room for a body of that size and its length.
    @cython.final
    cdef uint8_t* reserve(self, int64_t size) except NULL:
        if size > INT32_MAX - MAX_VARINT_SIZE - self.used:
            raise ValueError(f"a batch has at most {INT32_MAX} bytes: {self.used} are used, {size} do not fit")
        if self.used + MAX_VARINT_SIZE + size > self.buffer.block.capacity:
            self.grow(self.used + MAX_VARINT_SIZE + size)
        return self.buffer.block.data + self.used

    # A buffer from the pool, in place of a longer one, has no page to be faulted in.
    @cython.final
    cdef int grow(self, int64_t least) except -1:
        cdef ColumnBuffer longer = ColumnBuffer(max(least, 2 * self.buffer.block.capacity))
        memcpy(longer.block.data, self.buffer.block.data, <size_t>self.used)
        self.buffer = longer
        return 0

    def append(self, Record record=None, /, *, timestamp_ms=None, key=None, value=None, headers=(), offset=None):
        """Append one record, given as a Record or as its fields, and return self.

        Args: offset: None for the Record's own, or for the one after the last; key, value: bytes, any buffer, or None
            for null; headers: (str, bytes or None) pairs, a key with surrogate escapes is written as the bytes it
            stands for.
        Raises: ValueError, and nothing is appended, if the batch is closed, the offset does not rise or is more than
            2^31 - 1 above the base offset, the timestamp is below -1, a control record meets a batch of another kind,
            a header key has other lone surrogates, or the batch would exceed 2^31 - 1 bytes.
        """
        cdef RecordFields r
        cdef int64_t timestamp, record_offset, size
        cdef bytes key_bytes, value_bytes
        cdef list flat = None
        cdef bint is_control = False
        cdef uint8_t* at
        if record is not None:
            require_record_alone(timestamp_ms, key, value, headers)
            key, value, headers = record.key, record.value, record.headers
            timestamp, is_control = record.timestamp_ms, record.is_control
        elif timestamp_ms is None:
            raise TypeError("append needs a Record or timestamp_ms")
        else:
            timestamp = as_int64(timestamp_ms)
        key_bytes, value_bytes = as_bytes(key), as_bytes(value)
        if type(headers) is not tuple or headers:
            flat = flat_headers(headers)
        if offset is not None:
            record_offset = as_int64(offset)
        elif record is not None:
            record_offset = record.offset
        else:
            record_offset = self.h.base_offset + self.h.last_offset_delta + 1
        # From here on no code of the caller runs, so what is checked stays true.
        self.check(record_offset, timestamp, is_control)
        set_fields(&r, key_bytes, value_bytes, flat)
        r.timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>self.base_for(timestamp))
        r.offset_delta = record_offset - self.h.base_offset
        size = body_size(&r)
        at = put_record(self.reserve(size), size, &r)
        if flat is not None:
            at = put_flat_headers(at, flat)
        self.used = at - self.buffer.block.data
        self.h.base_timestamp = self.base_for(timestamp)
        self.h.record_count += 1
        self.h.last_offset_delta = <int32_t>r.offset_delta
        if timestamp > self.h.max_timestamp:
            self.h.max_timestamp = timestamp
        return self

    def record_size(self, Record record=None, /, *, timestamp_ms=None, key=None, value=None, headers=()):
        """Return the bytes that append would add for the same arguments, at the offset after the last."""
        cdef RecordFields r
        cdef int64_t timestamp
        cdef bytes key_bytes, value_bytes
        if record is not None:
            require_record_alone(timestamp_ms, key, value, headers)
            timestamp_ms, key, value, headers = record.timestamp_ms, record.key, record.value, record.headers
        elif timestamp_ms is None:
            raise TypeError("record_size needs a Record or timestamp_ms")
        timestamp = as_int64(timestamp_ms)
        key_bytes, value_bytes = as_bytes(key), as_bytes(value)
        set_fields(&r, key_bytes, value_bytes, flat_headers(headers))
        r.timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>self.base_for(timestamp))
        r.offset_delta = <int64_t>self.h.last_offset_delta + 1
        return sized_size(body_size(&r))

    def take(self):
        """Close the batch and return its ColumnBuffer: 61 bytes of room for the header, then the records.

        Raises: ValueError if it was closed before.
        """
        cdef ColumnBuffer buffer = self.buffer
        if not self.is_open:
            raise ValueError("the batch is closed: its records were taken")
        buffer.size = self.used
        self.buffer = None
        self.is_open = False
        return buffer

    def seal(self, uint8_t[::1] batch, *, int32_t attributes, int64_t max_timestamp_ms, int32_t partition_leader_epoch,
             int64_t producer_id, int16_t producer_epoch, int32_t base_sequence):
        """Write the header, with the CRC, of these records into the first 61 bytes of `batch`.

        Args: batch: room for the header, then the records as they were taken, or compressed.
        Raises: ValueError if it has no room for a header and a payload, or is longer than 2^31 - 1 bytes.
        Threads: the GIL is released.  Cost: O(bytes) for the CRC.
        """
        cdef Header h = self.h
        if batch.shape[0] <= BATCH_HEADER_SIZE or batch.shape[0] > INT32_MAX:
            raise ValueError(f"batch must have from {BATCH_HEADER_SIZE + 1} to {INT32_MAX} bytes, got {len(batch)}")
        h.size = batch.shape[0]
        h.attributes = attributes
        h.max_timestamp = max_timestamp_ms
        h.leader_epoch = partition_leader_epoch
        h.producer_id = producer_id
        h.producer_epoch = producer_epoch
        h.base_sequence = base_sequence
        with nogil:
            seal_batch(&batch[0], &h)
