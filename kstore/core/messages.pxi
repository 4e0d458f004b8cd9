# Columns of V0 and V1 messages: one at a time with all checks, and a fast path for runs of plain messages.

# Plain messages of a chunk, from `at`, which is at `position` of the file; complete ones end by `end`.
cdef struct MessageRun:
    const uint8_t* at
    const uint8_t* end
    int64_t position
    int64_t least_offset
    int64_t next_base_offset
    int64_t max_batch_bytes
    BatchRow* batches
    int64_t batch_count
    int64_t batch_capacity
    int64_t last_position    # of the message passed last
    bint verify_crc


cdef inline bint has_room(const VarColumn* c, int64_t size) noexcept nogil:
    if c.mode == MODE_COPY:
        return size <= c.capacity - c.used
    if c.mode == MODE_STRING:
        return UTF8_GROWTH * size <= c.capacity - c.used
    return True


# Appends a row. Returns: OK; or, with nothing changed and the message's size in problem.expected, NEED_KEY_SPACE,
# NEED_VALUE_SPACE or NEED_TIMESTAMP_VALIDITY.
cdef inline Status put_message(Table* t, const Message* m, int64_t offset, int64_t timestamp_ms, const Source* s,
                               Problem* problem) noexcept nogil:
    cdef int64_t row = t.rows
    if not has_room(&t.key, m.key_size):
        return fail(problem, NEED_KEY_SPACE, m.size, 0)
    if not has_room(&t.value, m.value_size):
        return fail(problem, NEED_VALUE_SPACE, m.size, 0)
    if t.timestamps != NULL:
        if not has_timestamp_room(t, timestamp_ms):
            return fail(problem, NEED_TIMESTAMP_VALIDITY, m.size, 0)
        put_timestamp(t, row, offset, timestamp_ms)
    put_bytes(&t.key, row, m.key, m.key_size, s)
    put_bytes(&t.value, row, m.value, m.value_size, s)
    if t.headers.wanted:
        clear_bit(t.headers.validity, row)
        t.headers.null_count += 1
        t.headers.offsets[row + 1] = <int32_t>t.headers.count
    if t.offsets != NULL:
        t.offsets[row] = offset
    t.rows = row + 1
    t.room -= t.row_charge
    if t.key.mode != MODE_ABSENT and m.key_size > 0:
        t.room -= m.key_size
    if t.value.mode != MODE_ABSENT and m.value_size > 0:
        t.room -= m.value_size
    return OK


# Decodes the messages of s: those of a wrapper, or one plain message. Returns: OK after the last one; STOPPED when the
# table is full; NEED_x as put_message; NEED_BATCH_NOTE (with the next type in s.next_timestamp_type); else the error.
cdef Status decode_messages(Table* t, const Header* h, Source* s, bint verify_crc, Problem* problem) noexcept nogil:
    cdef Message m
    cdef int64_t offset, least
    cdef int timestamp_type
    cdef Status status
    problem.record = -1
    while s.at < s.end:
        if t.room <= 0 or t.rows == t.row_capacity:
            return STOPPED
        problem.record = s.done if is_wrapper(h) else -1
        if verify_crc and check_legacy_crc(s.at, entry_size_at(s.at), problem) != OK:
            return problem.status
        if parse_message(s.at, &m, problem) != OK:
            return problem.status
        offset = offset_of_message(&s.messages, &m)
        least = s.least_delta
        if check_message_offset(&s.messages, offset, s.done == 0, &least, problem) != OK:
            return problem.status
        if offset >= s.start_offset and offset < s.end_offset:
            timestamp_type = message_timestamp_type(h, &m)
            if timestamp_type != s.timestamp_type:
                s.next_timestamp_type = timestamp_type
                return fail(problem, NEED_BATCH_NOTE, 0, 0)
            status = put_message(t, &m, offset, message_timestamp(h, &m), s, problem)
            if status != OK:
                return status
        s.least_delta = least
        s.at += m.size
        s.done += 1
    return OK


cdef inline void note_message(BatchRow* row, const Message* m, int64_t position, int attributes, int timestamp_type) noexcept nogil:
    row.row_count = 1
    row.position = position
    row.base_offset = m.offset
    row.attributes = attributes
    row.leader_epoch = -1
    row.producer_id = -1
    row.producer_epoch = -1
    row.base_sequence = -1
    row.magic = m.magic
    row.timestamp_type = timestamp_type


# Fast path: decodes plain messages up to the first that needs the slow path. Changes: run, table.
cdef void decode_message_run(Table* t, MessageRun* run, const Source* s) noexcept nogil:
    cdef Message m
    cdef Problem problem
    cdef const uint8_t* p = run.at
    cdef int64_t size
    cdef int attributes, timestamp_type
    while run.end - p >= MIN_MESSAGE_V0_SIZE and p[MAGIC_AT] < MAGIC_V2 and not p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
        size = entry_size_at(p)
        if size > run.end - p or size > run.max_batch_bytes or size < least_batch_size(p[MAGIC_AT]):
            break
        if parse_message(p, &m, &problem) != OK or m.offset < run.least_offset or m.offset >= run.next_base_offset \
                or (run.verify_crc and check_legacy_crc(p, size, &problem) != OK):
            break
        if m.offset >= s.start_offset and m.offset < s.end_offset:
            if t.room <= 0 or t.rows == t.row_capacity or run.batch_count == run.batch_capacity:
                break
            attributes = p[MESSAGE_ATTRIBUTES_AT] & TIMESTAMP_TYPE_MASK if m.magic else 0
            timestamp_type = (attributes != 0) if m.magic else -1
            if put_message(t, &m, m.offset, m.timestamp, s, &problem) != OK:
                break
            note_message(run.batches + run.batch_count, &m, run.position + (p - run.at), attributes, timestamp_type)
            run.batch_count += 1
        run.least_offset = m.offset + 1
        run.last_position = run.position + (p - run.at)
        p += size
    run.position += p - run.at
    run.at = p
