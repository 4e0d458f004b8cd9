# Batch headers and legacy messages. Loads and checks the header of a batch of any magic, with its Python view
# (BatchHeader); parses messages of magic 0 and 1 and the message set inside a compressed one (a wrapper); and changes
# in place the fields that no CRC covers: offsets and leader epochs.

# A message of magic 0 or 1 counts as a batch. Its base_offset is the stored offset, which for a wrapper (a compressed
# message) is that of its last record; record_count is then -1 (unknown). attributes keeps only the bits that the magic
# defines.
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
    int32_t excess      # how far offset deltas may exceed last_offset_delta: 0, or see allow_low_last_offset


cdef void load_legacy_header(const uint8_t* p, Header* h) noexcept nogil:
    memset(h, 0, sizeof(Header))
    h.magic = p[MAGIC_AT]
    h.base_offset = <int64_t>ks_get64(p + BASE_OFFSET_AT)
    h.size = <int64_t><int32_t>ks_get32(p + BATCH_LENGTH_AT) + LOG_OVERHEAD_SIZE
    h.leader_epoch = -1
    h.crc = ks_get32(p + MESSAGE_CRC_AT)
    h.attributes = p[MESSAGE_ATTRIBUTES_AT] & (CODEC_MASK | TIMESTAMP_TYPE_MASK if h.magic else CODEC_MASK)
    h.base_timestamp = <int64_t>ks_get64(p + MESSAGE_TIMESTAMP_AT) if h.magic else -1
    h.max_timestamp = h.base_timestamp
    h.producer_id = -1
    h.producer_epoch = -1
    h.base_sequence = -1
    h.record_count = -1 if h.attributes & CODEC_MASK else 1


# Requires: check_frame returned OK; 61 bytes at p, or 26 for magic 0 and 1.
cdef inline void load_header(const uint8_t* p, Header* h) noexcept nogil:
    if p[MAGIC_AT] < MAGIC_V2:
        load_legacy_header(p, h)
        return
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
    h.excess = 0


# As increment_sequence().
cdef inline int64_t incremented_sequence(int64_t sequence, int64_t count) noexcept nogil:
    return (sequence + count) & INT32_MAX


def increment_sequence(int64_t sequence, *, int64_t count):
    """Return the sequence number `count` records after `sequence`, or before it if negative; 0 follows 2^31 - 1.

    Source: Kafka DefaultRecordBatch.incrementSequence and decrementSequence.
    """
    return incremented_sequence(sequence, count)


cdef inline bint is_wrapper(const Header* h) noexcept nogil:
    return h.magic < MAGIC_V2 and h.attributes & CODEC_MASK != 0


# Returns: Kafka's id: -1 NoTimestampType, 0 CreateTime, 1 LogAppendTime.
cdef inline int timestamp_type_of(const Header* h) noexcept nogil:
    return (h.attributes & TIMESTAMP_TYPE_MASK != 0) if h.magic else -1


cdef inline int64_t least_batch_size(int magic) noexcept nogil:
    return BATCH_HEADER_SIZE if magic == MAGIC_V2 else (MIN_MESSAGE_V1_SIZE if magic == MAGIC_V1 else MIN_MESSAGE_V0_SIZE)


cdef inline int64_t entry_size_at(const uint8_t* p) noexcept nogil:
    return <int64_t><int32_t>ks_get32(p + BATCH_LENGTH_AT) + LOG_OVERHEAD_SIZE


cdef bint all_zero(const uint8_t* p, int64_t size) noexcept nogil:
    cdef int64_t i
    for i in range(size):
        if p[i]:
            return False
    return True


# Requires: 17 bytes at p. Checks magic and size, which must be valid before any use of the size field.
cdef inline Status check_frame(const uint8_t* p, int64_t max_batch_bytes, Problem* problem) noexcept nogil:
    cdef int64_t size = entry_size_at(p)
    cdef int magic = <int8_t>p[MAGIC_AT]
    problem.base_offset = <int64_t>ks_get64(p + BASE_OFFSET_AT)
    if magic < 0 or magic > MAGIC_V2:
        return fail(problem, BAD_MAGIC, MAGIC_V2, magic)
    if size < least_batch_size(magic):
        if all_zero(p, HEADER_SIZE_UP_TO_MAGIC):
            return fail(problem, ZEROS_FOR_BATCH, least_batch_size(magic), size)
        return fail(problem, BATCH_TOO_SMALL, least_batch_size(magic), size)
    if size > max_batch_bytes:
        return fail(problem, BATCH_TOO_LARGE, max_batch_bytes, size)
    return OK


# Checks the offset fields; the records are not read.
cdef inline Status check_offsets(const Header* h, Problem* problem) noexcept nogil:
    if h.base_offset < 0:
        return fail(problem, BAD_BASE_OFFSET, 0, h.base_offset)
    if h.last_offset_delta < 0:
        return fail(problem, BAD_LAST_OFFSET_DELTA, 0, h.last_offset_delta)
    if h.base_offset > INT64_MAX - 1 - h.last_offset_delta:
        return fail(problem, BASE_OFFSET_TOO_HIGH, INT64_MAX - 1 - h.last_offset_delta, h.base_offset)
    return OK


# Accepts a last offset that is too low for the record count, as Kafka's classes do. Requires: check_offsets returned OK.
cdef inline void allow_low_last_offset(Header* h) noexcept nogil:
    if h.magic == MAGIC_V2 and h.record_count - 1 > h.last_offset_delta and h.base_offset < INT64_MAX - h.record_count:
        h.excess = h.record_count - 1 - h.last_offset_delta


# Checks the offset fields, also against the batches before this one and the next segment.
cdef inline Status check_place(const Header* h, int64_t least_offset, int64_t next_base_offset,
                               Problem* problem) noexcept nogil:
    if check_offsets(h, problem) != OK:
        return problem.status
    if h.base_offset < least_offset:
        return fail(problem, OFFSETS_BACKWARDS, least_offset - 1, h.base_offset)
    if h.base_offset + h.last_offset_delta >= next_base_offset:
        return fail(problem, OFFSETS_BEYOND_SEGMENT, next_base_offset, h.base_offset + h.last_offset_delta)
    return OK


# Requires: the whole batch at p, frame and offsets checked. payload_size < 0: compressed, so not known yet.
cdef inline Status check_counts(const Header* h, int64_t payload_size, Problem* problem) noexcept nogil:
    cdef int64_t most = <int64_t>h.last_offset_delta + h.excess
    cdef int codec = h.attributes & CODEC_MASK
    if h.magic < MAGIC_V2 and codec <= MAX_LEGACY_CODEC_ID:
        return OK
    if h.magic < MAGIC_V2 and codec <= MAX_CODEC_ID:
        return fail(problem, BAD_LEGACY_CODEC, MAX_LEGACY_CODEC_ID, codec)
    most += 1
    if payload_size >= 0 and payload_size // MIN_RECORD_SIZE < most:
        most = payload_size // MIN_RECORD_SIZE
    if codec > MAX_CODEC_ID:
        return fail(problem, BAD_CODEC, MAX_CODEC_ID, codec)
    if h.record_count < 0 or h.record_count > most:
        return fail(problem, BAD_RECORD_COUNT, most, h.record_count)
    if h.record_count == 0 and payload_size > 0:
        return fail(problem, TRAILING_BYTES, 0, payload_size)
    return OK


cdef enum:
    MESSAGES_AHEAD_BYTES = 4096


# Prefetches as many bytes as the message has, from MESSAGES_AHEAD_BYTES after its end.
cdef Status check_legacy_crc(const uint8_t* p, int64_t size, Problem* problem) noexcept nogil:
    cdef const uint8_t* ahead = p + size + MESSAGES_AHEAD_BYTES
    cdef uint32_t computed = ks_crc32_before(p + MAGIC_AT, <size_t>(size - MAGIC_AT), ahead)
    if computed == ks_get32(p + MESSAGE_CRC_AT):
        return OK
    if size >= BATCH_HEADER_SIZE and ks_get32(p + CRC_AT) \
            == ks_crc32c_by(BEST_PATH, 0, p + ATTRIBUTES_AT, <size_t>(size - ATTRIBUTES_AT)):
        return fail(problem, BAD_MAGIC, MAGIC_V2, p[MAGIC_AT])
    return fail(problem, BAD_CRC, ks_get32(p + MESSAGE_CRC_AT), computed)


cdef inline Status check_batch_crc(const uint8_t* p, const Header* h, Problem* problem) noexcept nogil:
    cdef uint32_t computed = ks_crc32c_by(BEST_PATH, 0, p + ATTRIBUTES_AT, <size_t>(h.size - ATTRIBUTES_AT))
    if computed != h.crc:
        return fail(problem, BAD_CRC, h.crc, computed)
    return OK


cdef inline Status check_stored_crc(const uint8_t* p, const Header* h, Problem* problem) noexcept nogil:
    if h.magic < MAGIC_V2:
        return check_legacy_crc(p, h.size, problem)
    return check_batch_crc(p, h, problem)


# Checks the header of the batch at p, where `available` bytes can be read.
cdef Status check_header(const uint8_t* p, int64_t available, int64_t max_batch_bytes, Problem* problem) noexcept nogil:
    cdef int64_t header_size = BATCH_HEADER_SIZE
    if available >= HEADER_SIZE_UP_TO_MAGIC:
        if check_frame(p, max_batch_bytes, problem) != OK:
            return problem.status
        if p[MAGIC_AT] != MAGIC_V2:
            header_size = MIN_MESSAGE_V0_SIZE
    if available < header_size:
        return fail(problem, BATCH_INCOMPLETE, header_size, available)
    return OK


# Checks header, size and CRC of a batch that must have exactly `size` bytes.
cdef Status check_whole_batch(const uint8_t* p, int64_t size, Problem* problem) noexcept nogil:
    cdef Header h
    if check_header(p, size, INT32_MAX, problem) != OK:
        return problem.status
    load_header(p, &h)
    problem.base_offset = h.base_offset
    if h.size != size:
        return fail(problem, BATCH_INCOMPLETE, h.size, size)
    return check_stored_crc(p, &h, problem)


@cython.final
cdef class BatchHeader:
    """The header of one record batch, as a copy; keeps no view of the buffer.

    position and size_in_bytes are in bytes (size includes the 12 bytes of base offset and length), timestamps in ms.
    codec is Kafka's compression id, 0 to 4. timestamp_type is 0 (CreateTime), 1 (LogAppendTime) or -1 (magic 0: none).
    A message of magic 0 or 1 counts as a batch, with -1 for producer id, epochs and sequence. If it is compressed,
    base_offset equals last_offset (the offset of its last record), has_base_offset is False and record_count None.
    Threads: immutable, safe.  Source: Kafka DefaultRecordBatch, AbstractLegacyRecordBatch.
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
    def last_offset(self):
        cdef object base_offset = self.h.base_offset  # may exceed int64 in a damaged batch
        return base_offset + self.h.last_offset_delta

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
    def record_count(self): return None if is_wrapper(&self.h) else self.h.record_count
    @property
    def has_base_offset(self): return not is_wrapper(&self.h)
    @property
    def codec(self): return self.h.attributes & CODEC_MASK
    @property
    def timestamp_type(self): return timestamp_type_of(&self.h)
    @property
    def is_transactional(self): return self.h.attributes & TRANSACTIONAL_MASK != 0
    @property
    def is_control(self): return self.h.attributes & CONTROL_MASK != 0
    @property
    def has_delete_horizon(self): return self.h.attributes & DELETE_HORIZON_MASK != 0

    def check_place(self, *, int64_t least_offset, next_base_offset=None, path=None):
        """Check that the batch's offsets fit where it was found.

        Args: least_offset: the lowest valid base offset, after those of the batches before it; next_base_offset: of the
            next segment, which it must not reach, None if there is none; path: for errors.
        Raises: CorruptRecordError; InvalidRecordError for a last offset below the base offset.
        """
        cdef Problem problem
        start_problem(&problem, self.position)
        problem.base_offset = self.h.base_offset
        if check_place(&self.h, least_offset, INT64_MAX if next_base_offset is None else next_base_offset, &problem) != OK:
            raise error_of(&problem, path)

    def __repr__(self):
        return (f"BatchHeader(position={self.position}, size_in_bytes={self.h.size}, base_offset={self.h.base_offset}, "
                f"last_offset={self.last_offset}, record_count={self.record_count})")


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


# Returns: OK; `whole` tells whether a complete batch is at p, whose header is then loaded. An incomplete last batch ends a
# run of batches and is no error, as in Kafka's ByteBufferLogInputStream. Requires: the first min(left, 61) bytes at p.
cdef Status next_batch(const uint8_t* p, int64_t left, int64_t max_batch_bytes, Header* h, bint* whole,
                       Problem* problem) noexcept nogil:
    cdef int64_t size
    cdef int magic
    whole[0] = False
    if left < LOG_OVERHEAD_SIZE:
        return OK
    size = entry_size_at(p)
    if left < HEADER_SIZE_UP_TO_MAGIC:
        return OK if size >= MIN_MESSAGE_V0_SIZE else fail(problem, BATCH_TOO_SMALL, MIN_MESSAGE_V0_SIZE, size)
    magic = <int8_t>p[MAGIC_AT]
    if left < size <= max_batch_bytes and MAGIC_V0 <= magic <= MAGIC_V2:
        return OK
    if check_frame(p, max_batch_bytes, problem) != OK:
        return problem.status
    load_header(p, h)
    if h.size > left:
        return fail(problem, BATCH_INCOMPLETE, h.size, left)    # another thread changed the size since the check above
    whole[0] = True
    return OK


def next_header(const uint8_t[::1] buffer, Py_ssize_t at=0, *, int64_t position, left=None, path=None,
                int64_t max_batch_bytes=INT32_MAX):
    """Return the BatchHeader of the next batch of a run, None if the run ends there, also with an incomplete batch.

    Args: left: bytes of the run from buffer[at] on, if the buffer holds only its first min(left, 61) or more of them;
        the others as for read_header.
    Raises: CorruptRecordError for an impossible size; UnsupportedMagicError. The CRC is not checked.
    Source: Kafka ByteBufferLogInputStream, FileLogInputStream.
    """
    cdef Problem problem
    cdef Header h
    cdef BatchHeader header
    cdef bint whole
    cdef const uint8_t* start = start_of(buffer)
    cdef int64_t available = buffer.shape[0] - at
    cdef int64_t rest = available if left is None else left
    if at < 0 or available < min(rest, BATCH_HEADER_SIZE):
        raise ValueError(f"expected {min(rest, BATCH_HEADER_SIZE)} bytes at {at}, found {available}")
    start_problem(&problem, position)
    if next_batch(start + at, rest, max_batch_bytes, &h, &whole, &problem) != OK:
        raise error_of(&problem, path)
    if not whole:
        return None
    header = BatchHeader.__new__(BatchHeader)
    header.h = h
    header.position = position
    return header


def read_header(const uint8_t[::1] buffer, Py_ssize_t at=0, *, int64_t position, path=None,
                int64_t max_batch_bytes=INT32_MAX, int64_t end_position=INT64_MAX):
    """Return the BatchHeader of the batch that starts at buffer[at].

    Args: position: the batch's position in its file in bytes, for the result and for errors; end_position: by which
        the batch must end there.
    Raises: CorruptRecordError if fewer than 61 bytes (magic 0 and 1: 26) are available or the size field is out of
        range; UnsupportedMagicError for any magic but 0, 1 and 2. The CRC is not checked.
    """
    cdef Problem problem
    cdef const uint8_t* start = start_of(buffer)
    start_problem(&problem, position)
    if at < 0 or at > buffer.shape[0]:
        raise ValueError(f"at must be from 0 to {buffer.shape[0]}, got {at}")
    if check_header(start + at, buffer.shape[0] - at, max_batch_bytes, &problem) == OK \
            and entry_size_at(start + at) > end_position - position:
        fail(&problem, BATCH_INCOMPLETE, entry_size_at(start + at), end_position - position)
    if problem.status != OK:
        raise error_of(&problem, path)
    return new_header(start + at, position)


def check_crc(const uint8_t[::1] buffer, *, int64_t position, path=None):
    """Check frame, length and CRC of one batch, which must fill the buffer exactly.

    The CRC is a CRC-32 for magic 0 and 1, else a CRC-32C.
    Raises: CorruptRecordError (for a CRC mismatch, expected is the stored CRC, found the computed one);
        UnsupportedMagicError (also if the magic is 0 or 1 but the CRC is right for magic 2).
    Threads: safe; the GIL is released.
    """
    cdef Problem problem
    cdef Status status
    cdef const uint8_t* start = start_of(buffer)
    start_problem(&problem, position)
    with nogil:
        status = check_whole_batch(start, buffer.shape[0], &problem)
    if status != OK:
        raise error_of(&problem, path)


# Returns: whether a sound batch is whole at p, with a header that fits there.
cdef bint is_sound_batch(const uint8_t* p, int64_t available, int64_t max_batch_bytes, int64_t least_offset,
                         int64_t next_base_offset, Header* h, Problem* problem) noexcept nogil:
    if check_header(p, available, max_batch_bytes, problem) != OK or entry_size_at(p) > available:
        return False
    load_header(p, h)
    return h.size <= available and check_place(h, least_offset, next_base_offset, problem) == OK \
        and check_stored_crc(p, h, problem) == OK


def sound_headers(const uint8_t[::1] buffer, Py_ssize_t at=0, *, int64_t position, int64_t least_offset,
                  next_base_offset=None, int64_t max_batch_bytes=INT32_MAX):
    """Return the BatchHeaders of the sound batches that follow one another from buffer[at] on.

    A batch is sound if read_header, check_place and check_crc accept it after the one before it. The list ends before
    the first that is not, or that is not whole in the buffer.
    Args: position: that of buffer[at] in its file, in bytes; the others as for check_place and read_header.
    Threads: safe; the GIL is released for each batch.
    """
    cdef Problem problem
    cdef Header h
    cdef BatchHeader header
    cdef bint is_sound
    cdef const uint8_t* start = start_of(buffer)
    cdef int64_t before = INT64_MAX if next_base_offset is None else next_base_offset
    cdef list headers = []
    if at < 0 or at > buffer.shape[0]:
        raise ValueError(f"at must be from 0 to {buffer.shape[0]}, got {at}")
    while True:
        start_problem(&problem, position)
        with nogil:
            is_sound = is_sound_batch(start + at, buffer.shape[0] - at, max_batch_bytes, least_offset, before, &h, &problem)
        if not is_sound:
            return headers
        header = BatchHeader.__new__(BatchHeader)
        header.h = h
        header.position = position
        headers.append(header)
        at += h.size
        position += h.size
        least_offset = h.base_offset + h.last_offset_delta + 1


cdef enum:
    MOST_SIZES = 8


# Requires: `most` bytes at p, at least `at`; table: that of the CRC. Returns: the number of sizes stored in `sizes`.
cdef int find_sizes(const uint8_t* p, int64_t at, int64_t least, int64_t most, uint32_t wanted, const uint32_t* table,
                    int64_t* sizes) noexcept nogil:
    cdef uint32_t crc = 0xFFFFFFFF
    cdef int found = 0
    wanted = ~wanted
    while at < most and found < MOST_SIZES:
        crc = table[(crc ^ p[at]) & 0xFF] ^ (crc >> 8)
        at += 1
        if crc == wanted and at >= least:
            sizes[found] = at
            found += 1
    return found


cdef void fill_crc_table(uint32_t polynomial, uint32_t* table) noexcept nogil:
    cdef uint32_t crc
    cdef int i, bit
    for i in range(256):
        crc = <uint32_t>i
        for bit in range(8):
            crc = (crc >> 1) ^ (polynomial & (0 - (crc & 1)))
        table[i] = crc


def sizes_by_crc(const uint8_t[::1] buffer):
    """Return the sizes at which the batch at the start of buffer has a valid CRC, regardless of its size field.

    The CRC covers everything after it but not the size field, so that it shows where a batch of magic 0, 1 or 2 ends. A
    random match has a probability of 2^-32 per size. Returns at most 8 sizes in bytes; none for any other magic.
    Cost: O(bytes), one byte at a time; the GIL is released.
    """
    cdef int64_t sizes[MOST_SIZES]
    cdef uint32_t table[256]
    cdef int64_t most = buffer.shape[0]
    cdef int64_t least
    cdef int found, i
    cdef const uint8_t* start = start_of(buffer)
    if most < HEADER_SIZE_UP_TO_MAGIC or start[MAGIC_AT] > MAGIC_V2:
        return []
    least = least_batch_size(start[MAGIC_AT])
    if most < least:
        return []
    with nogil:
        if start[MAGIC_AT] < MAGIC_V2:
            fill_crc_table(CRC32_POLYNOMIAL, table)
            found = find_sizes(start, MAGIC_AT, least, most, ks_get32(start + MESSAGE_CRC_AT), table, sizes)
        else:
            fill_crc_table(CRC32C_POLYNOMIAL, table)
            found = find_sizes(start, ATTRIBUTES_AT, least, most, ks_get32(start + CRC_AT), table, sizes)
    return [sizes[i] for i in range(found)]


# Messages of magic 0 and 1, and message sets: the messages inside the value of a wrapper.

# A parsed message. offset is the stored one, size that of the whole entry.
cdef struct Message:
    int64_t offset
    int64_t size
    int64_t timestamp
    int32_t magic
    int32_t key_size
    int32_t value_size
    const uint8_t* key
    const uint8_t* value

# The messages of a payload: complete ones in the first `size` bytes, whose stored offsets are relative to offset_base
# and must not exceed most_offset. A plain message forms a set of one.
cdef struct MessageSet:
    int64_t size
    int64_t offset_base
    int64_t most_offset
    int64_t last_stored_offset


# Requires: the whole entry at p, its size field and magic checked. Returns: OK if every field lies inside it.
cdef inline Status parse_message(const uint8_t* p, Message* m, Problem* problem) noexcept nogil:
    cdef const uint8_t* at
    cdef int64_t left
    m.magic = p[MAGIC_AT]
    m.offset = <int64_t>ks_get64(p + BASE_OFFSET_AT)
    m.size = <int64_t><int32_t>ks_get32(p + BATCH_LENGTH_AT) + LOG_OVERHEAD_SIZE
    m.timestamp = <int64_t>ks_get64(p + MESSAGE_TIMESTAMP_AT) if m.magic else -1
    at = p + (V1_KEY_SIZE_AT if m.magic else V0_KEY_SIZE_AT)
    left = m.size - (MIN_MESSAGE_V1_SIZE if m.magic else MIN_MESSAGE_V0_SIZE)
    m.key_size = <int32_t>ks_get32(at)
    if m.key_size < -1 or m.key_size > left:
        return fail(problem, BAD_KEY_SIZE, left, m.key_size)
    m.key = at + 4
    at = m.key
    if m.key_size > 0:
        at += m.key_size
        left -= m.key_size
    m.value_size = <int32_t>ks_get32(at)
    m.value = at + 4
    if m.value_size == left or (m.value_size == -1 and left == 0):
        return OK
    if m.value_size < -1 or m.value_size > left:
        return fail(problem, BAD_VALUE_SIZE, left, m.value_size)
    return fail(problem, RECORD_SIZE_MISMATCH, 0, left if m.value_size < 0 else left - m.value_size)


# Returns: OK if a whole message lies in `left` bytes. Needed even after find_messages, because another thread may
# have changed a caller's buffer since.
cdef inline Status check_message_frame(const uint8_t* p, int64_t left, Problem* problem) noexcept nogil:
    if left < MIN_MESSAGE_V0_SIZE:
        return fail(problem, BATCH_INCOMPLETE, MIN_MESSAGE_V0_SIZE, left)
    if p[MAGIC_AT] > MAGIC_V1:
        return fail(problem, BAD_MESSAGE_MAGIC, MAGIC_V1, p[MAGIC_AT])
    if entry_size_at(p) < least_batch_size(p[MAGIC_AT]):
        return fail(problem, BAD_MESSAGE_SIZE, least_batch_size(p[MAGIC_AT]), entry_size_at(p))
    if entry_size_at(p) > left:
        return fail(problem, BATCH_INCOMPLETE, entry_size_at(p), left)
    return OK


# Finds the complete messages of a decompressed wrapper. An incomplete last one is ignored, as in Kafka, unless its size
# exceeds the payload limit (`limit`): Kafka allocates that size before it reads the message.
cdef Status find_messages(const uint8_t* p, int64_t size, int64_t limit, MessageSet* found,
                          Problem* problem) noexcept nogil:
    cdef int64_t at = 0
    cdef int64_t entry
    cdef int magic
    problem.record = 0
    while size - at >= LOG_OVERHEAD_SIZE:
        entry = <int64_t><int32_t>ks_get32(p + at + BATCH_LENGTH_AT) + LOG_OVERHEAD_SIZE
        if entry < MIN_MESSAGE_V0_SIZE:
            return fail(problem, BAD_MESSAGE_SIZE, MIN_MESSAGE_V0_SIZE, entry)
        if entry > size - at:
            if entry > limit:
                return fail(problem, MESSAGE_TOO_LARGE, limit, entry)
            break
        magic = <int8_t>p[at + MAGIC_AT]
        if magic < 0 or magic > MAGIC_V1:
            return fail(problem, BAD_MESSAGE_MAGIC, MAGIC_V1, magic)
        if entry < least_batch_size(magic):
            return fail(problem, BAD_MESSAGE_SIZE, least_batch_size(magic), entry)
        if p[at + MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
            return fail(problem, NESTED_WRAPPER, 0, p[at + MESSAGE_ATTRIBUTES_AT] & CODEC_MASK)
        found.last_stored_offset = <int64_t>ks_get64(p + at + BASE_OFFSET_AT)
        at += entry
        problem.record += 1
    problem.record = -1
    found.size = at
    return OK if at else fail(problem, EMPTY_WRAPPER, 1, 0)


# Sets offset_base: 0 in V0. In V1 the stored offsets are relative and the wrapper has the offset of the last message,
# or 0, which some producers leave there. Requires: find_messages returned OK.
cdef Status place_messages(const Header* wrapper, MessageSet* found, Problem* problem) noexcept nogil:
    found.offset_base = 0
    found.most_offset = wrapper.base_offset if wrapper.base_offset else INT64_MAX - 1
    if wrapper.magic == 0 or wrapper.base_offset == 0:
        return OK
    if wrapper.base_offset < found.last_stored_offset:
        return fail(problem, BAD_WRAPPER_OFFSET, found.last_stored_offset, wrapper.base_offset)
    found.offset_base = <int64_t>(<uint64_t>wrapper.base_offset - <uint64_t>found.last_stored_offset)
    return OK


# Requires: the whole plain message at p, frame checked.
cdef inline void place_plain_message(const Header* h, MessageSet* found) noexcept nogil:
    found.size = h.size
    found.offset_base = 0
    found.most_offset = INT64_MAX - 1


cdef inline int64_t offset_of_message(const MessageSet* found, const Message* m) noexcept nogil:
    return <int64_t>(<uint64_t>found.offset_base + <uint64_t>m.offset)


# Checks that offsets rise and do not exceed the wrapper's, and that the first one follows the batch before the wrapper;
# no CRC covers these. Returns: OK with the least valid next offset in `least`.
cdef inline Status check_message_offset(const MessageSet* found, int64_t offset, bint is_first, int64_t* least,
                                        Problem* problem) noexcept nogil:
    if is_first and offset < least[0]:
        return fail(problem, OFFSETS_BACKWARDS, least[0] - 1, offset)
    if offset < least[0] or offset > found.most_offset:
        return fail(problem, BAD_MESSAGE_OFFSET, least[0], offset)
    least[0] = offset + 1
    return OK


# h is the wrapper's header, or the message's own if it is plain.
cdef inline int message_timestamp_type(const Header* h, const Message* m) noexcept nogil:
    return timestamp_type_of(h) if m.magic else -1


cdef inline int64_t message_timestamp(const Header* h, const Message* m) noexcept nogil:
    return h.max_timestamp if m.magic and h.attributes & TIMESTAMP_TYPE_MASK else m.timestamp


# Changes in place of the fields that no CRC covers, in runs of batches of any magic.

# Returns: OK and the size of the batch at p, if all of it is in the `left` bytes and it is large enough for its header.
cdef Status find_batch(const uint8_t* p, int64_t left, int64_t* size, Problem* problem) noexcept nogil:
    if left < HEADER_SIZE_UP_TO_MAGIC:
        return fail(problem, BATCH_INCOMPLETE, HEADER_SIZE_UP_TO_MAGIC, left)
    if check_frame(p, INT64_MAX, problem) != OK:
        return problem.status
    size[0] = entry_size_at(p)
    if size[0] > left:
        return fail(problem, BATCH_INCOMPLETE, size[0], left)
    return OK


# Requires: find_batch returned OK. Returns: OK and the number of offsets that the batch at p spans, 0 if only its
# compressed content shows it.
cdef inline Status offset_span(const uint8_t* p, int64_t* span, Problem* problem) noexcept nogil:
    if <int8_t>p[MAGIC_AT] != MAGIC_V2:
        span[0] = 0 if p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK else 1
        return OK
    span[0] = <int64_t><int32_t>ks_get32(p + LAST_OFFSET_DELTA_AT) + 1
    return OK if span[0] > 0 else fail(problem, BAD_LAST_OFFSET_DELTA, 0, span[0] - 1)


# Requires: find_batch returned OK.
cdef inline void put_base_offset(uint8_t* p, int64_t base_offset, int32_t leader_epoch) noexcept nogil:
    ks_put64(p + BASE_OFFSET_AT, <uint64_t>base_offset)
    if <int8_t>p[MAGIC_AT] == MAGIC_V2:
        ks_put32(p + PARTITION_LEADER_EPOCH_AT, <uint32_t>leader_epoch)


# Assigns offsets from next_offset[0] on to the batches of a run; stops before the first one that cannot take them. If
# `write` is false, only checks.
cdef Status put_offsets(uint8_t* start, int64_t size, int64_t* next_offset, int32_t leader_epoch, bint write,
                        Problem* problem) noexcept nogil:
    cdef int64_t at = 0
    cdef int64_t batch_size = 0
    cdef int64_t span = 0
    while at < size:
        problem.position = at
        if find_batch(start + at, size - at, &batch_size, problem) != OK \
                or offset_span(start + at, &span, problem) != OK:
            return problem.status
        if span == 0:
            return fail(problem, STOPPED, 0, 0)
        if span > INT64_MAX - next_offset[0]:
            return fail(problem, BASE_OFFSET_TOO_HIGH, INT64_MAX - span, next_offset[0])
        if write:
            put_base_offset(start + at, next_offset[0], leader_epoch)
        next_offset[0] += span
        at += batch_size
    return OK


# Returns: the address of the batch at buffer[at], which is entirely in the buffer, and its size.
cdef uint8_t* batch_in(uint8_t[::1] buffer, Py_ssize_t at, int64_t* size) except NULL:
    cdef Problem problem
    if at < 0 or at > buffer.shape[0]:
        raise ValueError(f"at must be from 0 to {buffer.shape[0]}, got {at}")
    start_problem(&problem, at)
    if find_batch(<uint8_t*>start_of(buffer) + at, buffer.shape[0] - at, size, &problem) != OK:
        raise error_of(&problem, None)
    return &buffer[0] + at


def set_last_offset(uint8_t[::1] buffer, Py_ssize_t at=0, *, int64_t last_offset):
    """Set the last offset of the batch at buffer[at], in place; no CRC covers it.

    Sets the stored offset of a V0 or V1 message, which for a wrapper is that of its last record; the inner messages
    stay.
    Raises: CorruptRecordError, UnsupportedMagicError; InvalidRecordError for a negative last offset delta; ValueError
        if the batch's base offset would be negative or its last offset 2^63 - 1.
    Source: Kafka MutableRecordBatch.setLastOffset.
    """
    cdef int64_t size = 0
    cdef uint8_t* p = batch_in(buffer, at, &size)
    cdef int64_t span = 0
    cdef int64_t least
    cdef Problem problem
    start_problem(&problem, at)
    problem.base_offset = <int64_t>ks_get64(p + BASE_OFFSET_AT)
    if offset_span(p, &span, &problem) != OK:
        raise error_of(&problem, None)
    least = max(span - 1, 0)
    if last_offset < least or last_offset == INT64_MAX:
        raise ValueError(f"last_offset must be from {least} to {INT64_MAX - 1}, got {last_offset}")
    ks_put64(p + BASE_OFFSET_AT, <uint64_t>(last_offset - least))


def set_partition_leader_epoch(uint8_t[::1] buffer, Py_ssize_t at=0, *, int32_t partition_leader_epoch):
    """Set the partition leader epoch of the V2 batch at buffer[at], in place; no CRC covers it.

    Raises: CorruptRecordError, UnsupportedMagicError; ValueError for a V0 or V1 message, which has no such field.
    """
    cdef int64_t size = 0
    cdef uint8_t* p = batch_in(buffer, at, &size)
    if <int8_t>p[MAGIC_AT] != MAGIC_V2:
        raise ValueError(f"a batch of magic {<int8_t>p[MAGIC_AT]} at position {at} has no partition leader epoch")
    ks_put32(p + PARTITION_LEADER_EPOCH_AT, <uint32_t>partition_leader_epoch)


def assign_offsets(uint8_t[::1] buffer, *, int64_t base_offset, int32_t partition_leader_epoch=-1):
    """Assign offsets from base_offset on to the batches that fill the buffer, in place, and return the next offset.

    V2 batches also get the leader epoch. Offset deltas inside a V2 batch stay; a plain V0 or V1 message takes one
    offset.
    Raises: CorruptRecordError, UnsupportedMagicError, InvalidRecordError with the position; ValueError if an offset
        would be negative or 2^63 - 1 or more, or for a V0 or V1 wrapper (use set_last_offset). Nothing is written
        in these cases.
    Threads: not safe: nothing else may use the buffer. The GIL is released.  Cost: O(batches), no CRC is computed.
    """
    cdef int64_t next_offset = base_offset
    cdef uint8_t* start = <uint8_t*>start_of(buffer)
    cdef Status status
    cdef Problem problem
    if base_offset < 0:
        raise ValueError(f"base_offset must be from 0 to {INT64_MAX - 1}, got {base_offset}")
    start_problem(&problem, 0)
    with nogil:
        status = put_offsets(start, buffer.shape[0], &next_offset, partition_leader_epoch, False, &problem)
        if status == OK:
            next_offset = base_offset
            put_offsets(start, buffer.shape[0], &next_offset, partition_leader_epoch, True, &problem)
    if status == STOPPED:
        raise ValueError(f"the wrapper at position {problem.position} does not say how many offsets it spans")
    if status == BASE_OFFSET_TOO_HIGH:
        raise ValueError(f"base_offset {base_offset} is too high: the batch at position {problem.position} would end "
                         f"beyond {INT64_MAX - 1}")
    if status != OK:
        raise error_of(&problem, None)
    return next_offset


def batch_size_at(const uint8_t[::1] buffer, Py_ssize_t at=0):
    """Return the size in bytes of the batch, of any magic, that starts at buffer[at] and is entirely in the buffer.

    Raises: CorruptRecordError, UnsupportedMagicError; ValueError for an `at` outside the buffer.
    Cost: O(1), no CRC is computed.
    """
    cdef Problem problem
    cdef int64_t size = 0
    if at < 0 or at > buffer.shape[0]:
        raise ValueError(f"at must be from 0 to {buffer.shape[0]}, got {at}")
    start_problem(&problem, at)
    if find_batch(start_of(buffer) + at, buffer.shape[0] - at, &size, &problem) != OK:
        raise error_of(&problem, None)
    return size
