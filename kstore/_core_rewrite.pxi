# Batches of any magic patched where they stand: the fields that no CRC covers, in whole runs of batches.

# Returns: OK with the size of the batch at p, which lies whole in `left` bytes and has every field of its header.
cdef Status find_batch(const uint8_t* p, int64_t left, int64_t* size, Problem* problem) noexcept nogil:
    cdef int magic
    if left < HEADER_SIZE_UP_TO_MAGIC:
        return fail(problem, BATCH_INCOMPLETE, HEADER_SIZE_UP_TO_MAGIC, left)
    magic = <int8_t>p[MAGIC_AT]
    problem.base_offset = <int64_t>ks_get64(p + BASE_OFFSET_AT)
    if magic < MAGIC_V0 or magic > MAGIC_V2:
        return fail(problem, BAD_MAGIC, MAGIC_V2, magic)
    size[0] = <int64_t><int32_t>ks_get32(p + BATCH_LENGTH_AT) + LOG_OVERHEAD_SIZE
    if size[0] < least_batch_size(magic):
        return fail(problem, BATCH_TOO_SMALL, least_batch_size(magic), size[0])
    if size[0] > left:
        return fail(problem, BATCH_INCOMPLETE, size[0], left)
    return OK


# Requires: find_batch passed. Returns: OK and how many offsets the batch at p spans, 0 if only its compressed content
# says so.
cdef inline Status offset_span(const uint8_t* p, int64_t* span, Problem* problem) noexcept nogil:
    if <int8_t>p[MAGIC_AT] != MAGIC_V2:
        span[0] = 0 if p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK else 1
        return OK
    span[0] = <int64_t><int32_t>ks_get32(p + LAST_OFFSET_DELTA_AT) + 1
    return OK if span[0] > 0 else fail(problem, BAD_LAST_OFFSET_DELTA, 0, span[0] - 1)


# Requires: find_batch passed.
cdef inline void put_base_offset(uint8_t* p, int64_t base_offset, int32_t leader_epoch) noexcept nogil:
    ks_put64(p + BASE_OFFSET_AT, <uint64_t>base_offset)
    if <int8_t>p[MAGIC_AT] == MAGIC_V2:
        ks_put32(p + PARTITION_LEADER_EPOCH_AT, <uint32_t>leader_epoch)


# Gives the batches of a run the offsets from next_offset[0] on; stops before the first one that can't have them.
# Writes nothing unless `write`.
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
            return fail(problem, BAD_BASE_OFFSET, 0, next_offset[0])
        if write:
            put_base_offset(start + at, next_offset[0], leader_epoch)
        next_offset[0] += span
        at += batch_size
    return OK


# Returns: the batch at buffer[at], which lies whole in the buffer; its size.
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

    The offset of a V0 or V1 message is set as it is; it is the last one of a wrapper, whose content stays.
    Raises: CorruptRecordError, UnsupportedMagicError; InvalidRecordError for a negative last offset delta; ValueError
        if the batch's offsets would be negative or end at 2^63 - 1.
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
    """Set the leader epoch of the V2 batch at buffer[at], in place; no CRC covers it.

    Raises: CorruptRecordError, UnsupportedMagicError; ValueError for a V0 or V1 message, which has none.
    """
    cdef int64_t size = 0
    cdef uint8_t* p = batch_in(buffer, at, &size)
    if <int8_t>p[MAGIC_AT] != MAGIC_V2:
        raise ValueError(f"a batch of magic {<int8_t>p[MAGIC_AT]} at position {at} has no partition leader epoch")
    ks_put32(p + PARTITION_LEADER_EPOCH_AT, <uint32_t>partition_leader_epoch)


def assign_offsets(uint8_t[::1] buffer, *, int64_t base_offset, int32_t partition_leader_epoch=-1):
    """Give the batches that fill the buffer the offsets from base_offset on, in place, and return the next offset.

    V2 batches get the leader epoch too. The deltas inside a V2 batch stay; a plain V0 or V1 message takes one offset.
    Raises: CorruptRecordError, UnsupportedMagicError, InvalidRecordError with the position; ValueError for a negative
        offset, one of 2^63 - 1 or more, or a compressed V0 or V1 wrapper (set_last_offset is for these). Nothing is
        written then.
    Threads: the GIL is released.  Cost: O(batches), no CRC work.
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
    if status == BAD_BASE_OFFSET:
        raise ValueError(f"base_offset {base_offset} is too high: the batch at position {problem.position} would end "
                         f"beyond {INT64_MAX - 1}")
    if status != OK:
        raise error_of(&problem, None)
    return next_offset


def batch_size_at(const uint8_t[::1] buffer, Py_ssize_t at=0):
    """Return the bytes of the batch, of any magic, that starts at buffer[at] and lies whole in the buffer.

    Raises: CorruptRecordError, UnsupportedMagicError.  Cost: O(1), no CRC work.
    """
    cdef Problem problem
    cdef int64_t size = 0
    if at < 0 or at > buffer.shape[0]:
        raise ValueError(f"at must be from 0 to {buffer.shape[0]}, got {at}")
    start_problem(&problem, at)
    if find_batch(start_of(buffer) + at, buffer.shape[0] - at, &size, &problem) != OK:
        raise error_of(&problem, None)
    return size
