# The V2 batch header: load, check, and the Python view of it.

cdef struct Header:
    int64_t base_offset
    int64_t size
    int32_t leader_epoch
    int32_t magic
    uint32_t crc
    int32_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t producer_epoch
    int32_t base_sequence
    int32_t record_count


# Requires: 61 bytes at p.
cdef inline void load_header(const uint8_t* p, Header* h) noexcept nogil:
    h.base_offset = <int64_t>ks_get64(p + BASE_OFFSET_AT)
    h.size = <int64_t><int32_t>ks_get32(p + BATCH_LENGTH_AT) + LOG_OVERHEAD_SIZE
    h.leader_epoch = <int32_t>ks_get32(p + PARTITION_LEADER_EPOCH_AT)
    h.magic = <int8_t>p[MAGIC_AT]
    h.crc = ks_get32(p + CRC_AT)
    h.attributes = <int16_t>ks_get16(p + ATTRIBUTES_AT)
    h.last_offset_delta = <int32_t>ks_get32(p + LAST_OFFSET_DELTA_AT)
    h.base_timestamp = <int64_t>ks_get64(p + BASE_TIMESTAMP_AT)
    h.max_timestamp = <int64_t>ks_get64(p + MAX_TIMESTAMP_AT)
    h.producer_id = <int64_t>ks_get64(p + PRODUCER_ID_AT)
    h.producer_epoch = <int16_t>ks_get16(p + PRODUCER_EPOCH_AT)
    h.base_sequence = <int32_t>ks_get32(p + BASE_SEQUENCE_AT)
    h.record_count = <int32_t>ks_get32(p + RECORD_COUNT_AT)


# Requires: 17 bytes at p. Checks what must hold before the length field may be believed.
cdef inline Status check_frame(const uint8_t* p, int64_t max_batch_bytes, Problem* problem) noexcept nogil:
    cdef int64_t size = <int64_t><int32_t>ks_get32(p + BATCH_LENGTH_AT) + LOG_OVERHEAD_SIZE
    cdef int magic = <int8_t>p[MAGIC_AT]
    problem.base_offset = <int64_t>ks_get64(p + BASE_OFFSET_AT)
    if magic != MAGIC_V2:
        return fail(problem, BAD_MAGIC, MAGIC_V2, magic)
    if size < BATCH_HEADER_SIZE:
        return fail(problem, BATCH_TOO_SMALL, BATCH_HEADER_SIZE, size)
    if size > max_batch_bytes:
        return fail(problem, BATCH_TOO_LARGE, max_batch_bytes, size)
    return OK


# What the offset fields must satisfy, whatever the records say.
cdef inline Status check_offsets(const Header* h, Problem* problem) noexcept nogil:
    if h.base_offset < 0:
        return fail(problem, BAD_BASE_OFFSET, 0, h.base_offset)
    if h.last_offset_delta < 0:
        return fail(problem, BAD_LAST_OFFSET_DELTA, 0, h.last_offset_delta)
    if h.base_offset > INT64_MAX - 1 - h.last_offset_delta:
        return fail(problem, BAD_BASE_OFFSET, 0, h.base_offset)
    return OK


# Requires: the whole batch at p, frame and offsets checked. payload_size < 0: compressed, not known yet.
cdef inline Status check_counts(const Header* h, int64_t payload_size, Problem* problem) noexcept nogil:
    cdef int64_t most = h.last_offset_delta
    most += 1
    if payload_size >= 0 and payload_size // MIN_RECORD_SIZE < most:
        most = payload_size // MIN_RECORD_SIZE
    if h.attributes & CODEC_MASK > MAX_CODEC_ID:
        return fail(problem, BAD_CODEC, MAX_CODEC_ID, h.attributes & CODEC_MASK)
    if h.record_count < 0 or h.record_count > most:
        return fail(problem, BAD_RECORD_COUNT, most, h.record_count)
    if h.record_count == 0 and payload_size > 0:
        return fail(problem, TRAILING_BYTES, 0, payload_size)
    return OK


cdef inline Status check_stored_crc(const uint8_t* p, const Header* h, Problem* problem) noexcept nogil:
    cdef uint32_t computed = ks_crc32c_by(BEST_PATH, 0, p + ATTRIBUTES_AT, <size_t>(h.size - ATTRIBUTES_AT))
    if computed != h.crc:
        return fail(problem, BAD_CRC, h.crc, computed)
    return OK


@cython.final
cdef class BatchHeader:
    """The header of one V2 record batch, as values; keeps no view of the buffer.

    position and size_in_bytes are bytes (size includes the 12 bytes before the length), timestamps are ms,
    codec is Kafka's compression id 0 to 4, timestamp_type 0 (CreateTime) or 1 (LogAppendTime).
    Threads: immutable, safe.  Source: Kafka DefaultRecordBatch.
    """

    cdef Header h
    cdef readonly int64_t position

    @property
    def base_offset(self): return self.h.base_offset
    @property
    def size_in_bytes(self): return self.h.size
    @property
    def partition_leader_epoch(self): return self.h.leader_epoch
    @property
    def magic(self): return self.h.magic
    @property
    def crc(self): return self.h.crc
    @property
    def attributes(self): return self.h.attributes
    @property
    def last_offset(self): return self.h.base_offset + self.h.last_offset_delta
    @property
    def base_timestamp_ms(self): return self.h.base_timestamp
    @property
    def max_timestamp_ms(self): return self.h.max_timestamp
    @property
    def producer_id(self): return self.h.producer_id
    @property
    def producer_epoch(self): return self.h.producer_epoch
    @property
    def base_sequence(self): return self.h.base_sequence
    @property
    def record_count(self): return self.h.record_count
    @property
    def codec(self): return self.h.attributes & CODEC_MASK
    @property
    def timestamp_type(self): return 1 if self.h.attributes & TIMESTAMP_TYPE_MASK else 0
    @property
    def is_transactional(self): return self.h.attributes & TRANSACTIONAL_MASK != 0
    @property
    def is_control(self): return self.h.attributes & CONTROL_MASK != 0
    @property
    def has_delete_horizon(self): return self.h.attributes & DELETE_HORIZON_MASK != 0

    def __repr__(self):
        return (f"BatchHeader(position={self.position}, size_in_bytes={self.h.size}, base_offset={self.h.base_offset}, "
                f"last_offset={self.last_offset}, record_count={self.h.record_count})")


cdef BatchHeader new_header(const uint8_t* p, int64_t position):
    cdef BatchHeader header = BatchHeader.__new__(BatchHeader)
    load_header(p, &header.h)
    header.position = position
    return header


cdef void start_problem(Problem* problem, int64_t position) noexcept nogil:
    problem.status = OK
    problem.position = position
    problem.base_offset = -1
    problem.record = -1


def read_header(const uint8_t[::1] buffer, Py_ssize_t at=0, *, int64_t position, path=None,
                int64_t max_batch_bytes=INT32_MAX):
    """Return the BatchHeader of the batch that starts at buffer[at].

    Args: position: the byte place of that batch in its file, for the result and for errors.
    Raises: CorruptRecordError if fewer than 61 bytes are there or the size field can't be right;
        UnsupportedMagicError for any magic but 2. Neither the CRC nor the batch's end is looked at.
    """
    cdef Problem problem
    cdef const uint8_t* start = start_of(buffer)
    cdef Status status = OK
    start_problem(&problem, position)
    if at < 0 or at > buffer.shape[0]:
        raise ValueError(f"at must be from 0 to {buffer.shape[0]}, got {at}")
    if buffer.shape[0] - at >= HEADER_SIZE_UP_TO_MAGIC:
        status = check_frame(start + at, max_batch_bytes, &problem)
    if status == OK and buffer.shape[0] - at < BATCH_HEADER_SIZE:
        status = fail(&problem, BATCH_INCOMPLETE, BATCH_HEADER_SIZE, buffer.shape[0] - at)
    if status != OK:
        raise error_of(&problem, path)
    return new_header(start + at, position)


def check_crc(const uint8_t[::1] buffer, *, int64_t position, path=None):
    """Check frame, length and CRC-32C of one batch, which must fill the buffer exactly.

    Raises: CorruptRecordError (for a wrong CRC: expected = stored, found = computed), UnsupportedMagicError.
    Threads: safe; the GIL is released.
    """
    cdef Problem problem
    cdef Header h
    cdef Status status
    cdef const uint8_t* start = start_of(buffer)
    read_header(buffer, 0, position=position, path=path)
    start_problem(&problem, position)
    load_header(start, &h)
    problem.base_offset = h.base_offset
    with nogil:
        if h.size != buffer.shape[0]:
            status = fail(&problem, BATCH_INCOMPLETE, h.size, buffer.shape[0])
        else:
            status = check_stored_crc(start, &h, &problem)
    if status != OK:
        raise error_of(&problem, path)
