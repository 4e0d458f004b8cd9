# Stamps the batches of a producer without an id as those of a transaction: producer id, epoch, sequences, the
# transactional bit, and the CRC that covers them.

cdef enum:
    CRC_HEADER_SIZE = 40    # from the attributes to the record count: what the CRC covers of the header

# The fields to set; base_sequence is that of the next batch.
cdef struct Stamp:
    int64_t producer_id
    int32_t producer_epoch
    int32_t base_sequence


# Returns: OK if the batch is one that a producer without an id encodes: all records there, offsets from 0 on, neither
# transactional nor a control batch. STOPPED if not, although the header is valid.
cdef Status check_unstamped(const Header* h, Problem* problem) noexcept nogil:
    if check_offsets(h, problem) != OK or check_counts(h, payload_size_of(h), problem) != OK:
        return problem.status
    if h.base_offset != 0 or h.record_count < 1 or h.record_count - 1 != h.last_offset_delta \
            or h.producer_id != -1 or h.producer_epoch != -1 or h.base_sequence != -1 \
            or h.attributes & (TRANSACTIONAL_MASK | CONTROL_MASK):
        return fail(problem, STOPPED, 0, 0)
    return OK


# Requires: the whole batch of h at p. Checks the CRC first, so that damage is found as such, and reads the records only
# once: their own CRC is joined with that of the old header and with that of the new one.
cdef Status stamp_batch(uint8_t* p, const Header* h, Stamp* stamp, Problem* problem) noexcept nogil:
    cdef int64_t records_size = h.size - BATCH_HEADER_SIZE
    cdef uint32_t records_crc, shift, found
    if h.magic != MAGIC_V2:
        return fail(problem, BAD_MAGIC, MAGIC_V2, h.magic)
    records_crc = ks_crc32c_by(BEST_PATH, 0, p + BATCH_HEADER_SIZE, <size_t>records_size)
    shift = crc32c_shift_of(<uint32_t>records_size)
    found = joined_crc32c(ks_crc32c_by(BEST_PATH, 0, p + ATTRIBUTES_AT, CRC_HEADER_SIZE), records_crc, shift)
    if found != h.crc:
        return fail(problem, BAD_CRC, h.crc, found)
    if check_unstamped(h, problem) != OK:
        return problem.status
    ks_put16(p + ATTRIBUTES_AT, <uint16_t>(h.attributes | TRANSACTIONAL_MASK))
    ks_put64(p + PRODUCER_ID_AT, <uint64_t>stamp.producer_id)
    ks_put16(p + PRODUCER_EPOCH_AT, <uint16_t>stamp.producer_epoch)
    ks_put32(p + BASE_SEQUENCE_AT, <uint32_t>stamp.base_sequence)
    found = joined_crc32c(ks_crc32c_by(BEST_PATH, 0, p + ATTRIBUTES_AT, CRC_HEADER_SIZE), records_crc, shift)
    ks_put32(p + CRC_AT, found)
    stamp.base_sequence = <int32_t>incremented_sequence(stamp.base_sequence, h.record_count)
    return OK


# Stamps the complete batches of [p, p + size). ends: room for size // BATCH_HEADER_SIZE numbers; gets where each ends.
cdef Status stamp_run(uint8_t* p, int64_t size, Stamp* stamp, int64_t* ends, int64_t* count,
                      Problem* problem) noexcept nogil:
    cdef Header h
    cdef bint whole = True
    cdef int64_t at = 0, start = problem.position
    while True:
        start_problem(problem, start + at)
        if next_batch(p + at, size - at, INT32_MAX, &h, &whole, problem) != OK:
            return problem.status
        if not whole:
            return OK
        problem.base_offset = h.base_offset
        if stamp_batch(p + at, &h, stamp, problem) != OK:
            return problem.status
        at += h.size
        ends[count[0]] = at
        count[0] += 1


def stamp_batches(uint8_t[::1] buffer, *, int64_t producer_id, int32_t producer_epoch, int32_t base_sequence,
                  int64_t position=0, path=None):
    """Make the V2 batches of a buffer part of a transaction, in place; return where each ends, and the next sequence.

    The batches are those of a producer without an id; an incomplete one at the end is left as it is. Sequences continue
    from batch to batch, after 2^31 - 1 with 0.
    Args: position: that of the buffer in its file in bytes, for errors; path: the same.
    Returns: (ends, next_sequence); ends are positions in the buffer.
    Raises: CorruptRecordError for a wrong CRC, size or header field; UnsupportedMagicError; InvalidRecordError for
        counts that do not fit; ValueError for a batch that is stamped already, or no client's, and for arguments below
        0. Batches before the wrong one are stamped then.
    Threads: not safe: nothing else may use the buffer. The GIL is released.  Cost: O(bytes): one CRC of everything.
    """
    cdef Stamp stamp = Stamp(producer_id, producer_epoch, base_sequence)
    cdef uint8_t* start = <uint8_t*>start_of(buffer)
    cdef int64_t size = buffer.shape[0]
    cdef int64_t* ends
    cdef int64_t count = 0, i
    cdef Status status
    cdef Problem problem
    if producer_id < 0 or not 0 <= producer_epoch <= INT16_MAX or base_sequence < 0 or position < 0:
        raise ValueError(f"expected producer_id, producer_epoch (at most {INT16_MAX}), base_sequence and position of 0 "
                         f"or more, got {producer_id}, {producer_epoch}, {base_sequence}, {position}")
    ends = <int64_t*>malloc((<size_t>size // BATCH_HEADER_SIZE + 1) * sizeof(int64_t))
    if ends == NULL:
        raise MemoryError(f"no memory for the ends of the batches in {size} bytes")
    start_problem(&problem, position)
    try:
        with nogil:
            status = stamp_run(start, size, &stamp, ends, &count, &problem)
        if status == STOPPED:
            where = f"position {problem.position}" if path is None else f"position {problem.position} of {path}"
            raise ValueError(f"batch at {where}: expected offsets from 0 on and no producer id, found another batch")
        if status != OK:
            raise error_of(&problem, path)
        return [ends[i] for i in range(count)], stamp.base_sequence
    finally:
        free(ends)
