# Messages of magic 0 and 1, and the set of them inside a wrapper: the value of a compressed message.

# A message by its fields; offset as it is stored, size of the whole entry.
cdef struct Message:
    int64_t offset
    int64_t size
    int64_t timestamp
    int32_t magic
    int32_t key_size
    int32_t value_size
    const uint8_t* key
    const uint8_t* value

# The messages of a payload: whole ones in the first `size` bytes, whose stored offsets count from offset_base and may
# reach most_offset. A plain message is a set of itself.
cdef struct MessageSet:
    int64_t size
    int64_t offset_base
    int64_t most_offset
    int64_t last_stored_offset


cdef inline int64_t entry_size_at(const uint8_t* p) noexcept nogil:
    return <int64_t><int32_t>ks_get32(p + BATCH_LENGTH_AT) + LOG_OVERHEAD_SIZE


# Requires: the whole entry at p, its size field and magic checked. Returns: OK with every field inside it.
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


# Returns: OK if the frame of a message lies whole in `left` bytes; in a caller's buffer it may have changed since it was
# found.
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


# Finds the whole messages of a decompressed wrapper. An incomplete last one is left out, as Kafka does, unless it claims
# more than a payload may hold (`limit`): Kafka takes memory for it first.
cdef Status survey_messages(const uint8_t* p, int64_t size, int64_t limit, MessageSet* found,
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


# Settles what the stored offsets of a wrapper's messages count from: 0 in V0; in V1 the wrapper has the offset of the
# last one, or 0, which some producers leave there. Requires: survey_messages was OK.
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


# Offsets rise and stay at or below the wrapper's; the first one lies behind what came before the wrapper, which no CRC
# makes sure of. Returns: OK and the next least offset.
cdef inline Status check_message_offset(const MessageSet* found, int64_t offset, bint is_first, int64_t* least,
                                        Problem* problem) noexcept nogil:
    if is_first and offset < least[0]:
        return fail(problem, OFFSETS_BACKWARDS, least[0] - 1, offset)
    if offset < least[0] or offset > found.most_offset:
        return fail(problem, BAD_MESSAGE_OFFSET, least[0], offset)
    least[0] = offset + 1
    return OK


# h is the header of the wrapper, or of the message itself if it is plain.
cdef inline int message_timestamp_type(const Header* h, const Message* m) noexcept nogil:
    return timestamp_type_of(h) if m.magic else -1


cdef inline int64_t message_timestamp(const Header* h, const Message* m) noexcept nogil:
    return h.max_timestamp if m.magic and h.attributes & TIMESTAMP_TYPE_MASK else m.timestamp
