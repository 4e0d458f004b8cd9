# Rows of columns before they are packed: all of them checked, and sorted by the partition that their key goes to.

cdef enum:
    RECORD_OVERHEAD = 21     # most bytes of a record beside key, value and headers, as Kafka estimates it


# Returns: the bytes that the record of a row takes at most in a batch of its own.
cdef inline PackStatus measure_row(Packing* p, int64_t row, int64_t* total) noexcept nogil:
    cdef PackStatus status = PACKED
    cdef int64_t at = 0
    cdef int64_t key_size = -1
    cdef int64_t value_size = -1
    cdef int64_t header_count = -1
    cdef int64_t headers_at = 0
    cdef int64_t headers_size = 0
    total[0] = 0
    if not find_element(&p.key, row, &at, &key_size) or not find_element(&p.value, row, &at, &value_size) \
            or not find_element(&p.headers, row, &headers_at, &header_count):
        return PACK_BAD_INDEX
    if header_count > 0:
        status = measure_headers(p, headers_at, header_count, &headers_size)
    total[0] = BATCH_HEADER_SIZE + RECORD_OVERHEAD + sized_size(key_size) + sized_size(value_size) + headers_size
    if status == PACKED and total[0] > INT32_MAX:
        status = PACK_TOO_LARGE
    return refuse(p, status, total[0]) if status != PACKED else PACKED


# Asks of every row what pack_rows will ask. Sets the size of the largest record, as measure_row; on an error p.row.
cdef PackStatus check_rows(Packing* p, int64_t* largest) noexcept nogil:
    cdef Packing s = p[0]        # a copy, as in pack_rows
    cdef PackStatus status
    cdef int64_t timestamp = 0
    cdef int64_t offset = 0
    cdef int64_t total = 0
    cdef int64_t most = 0
    cdef int64_t row
    for row in range(s.row_count):
        status = take_numbers(&s, row, &offset, &timestamp)
        if status == PACKED:
            status = measure_row(&s, row, &total)
        if status != PACKED:
            p.row, p.found = row, s.found
            return status
        if total > most:
            most = total
    p.row = 0
    largest[0] = most
    return PACKED


# Requires: counts has partition_count + 1 zeros. Sets the partition of each row, partition_count where the key is null,
# and how many rows each of them has.
cdef PackStatus place_rows(Packing* p, int32_t partition_count, int32_t* places, int64_t* counts) noexcept nogil:
    cdef int64_t at = 0
    cdef int64_t size = 0
    cdef int64_t row
    cdef int32_t place
    for row in range(p.row_count):
        if not find_element(&p.key, row, &at, &size):
            p.row = row
            return PACK_BAD_INDEX
        place = partition_count
        if size >= 0:
            place = partition_of_hash(murmur2_of(p.key.data + at, size), partition_count)
        places[row] = place
        counts[place] += 1
    return PACKED


# Requires: next_of has the first place in `rows` of each partition; room there for row_count rows.
cdef void sort_rows(const int32_t* places, int64_t row_count, int64_t* next_of, int64_t* rows) noexcept nogil:
    cdef int64_t row
    for row in range(row_count):
        rows[next_of[places[row]]] = row
        next_of[places[row]] += 1


# A batch that rows are packed into: `out` has `capacity` bytes for records and WIDE_PAD more.
cdef struct PackedBatch:
    uint8_t* out
    int64_t capacity
    Header h
    SealedBatch known
    int64_t used


# Makes the CRC of the records of a batch while they are in the cache; that of the header, not known yet, is joined to it.
cdef void note_crc(SealedBatch* known, const uint8_t* records, int64_t size) noexcept nogil:
    known.records_crc = ks_crc32c_by(BEST_PATH, 0, records, <size_t>size)
    known.crc_shift = crc32c_shift_of(<uint32_t>size)


# Packs the next rows into the batches, one after the other. Sets how many of them got rows; p.row is behind those.
cdef PackStatus pack_batches(Packing* p, PackedBatch* batches, int64_t count, int64_t* packed) noexcept nogil:
    cdef PackStatus status
    cdef int64_t i
    packed[0] = 0
    for i in range(count):
        if p.row == p.row_count:
            break
        start_batch(p)
        p.next_offset = 0
        status = pack_rows(p, batches[i].out, batches[i].capacity)
        if status == PACK_FULL:
            status = PACKED if p.h.record_count else PACK_CHANGED
        if status != PACKED:
            return status
        batches[i].h = p.h
        batches[i].known = p.known
        batches[i].used = p.batch_used
        note_crc(&batches[i].known, batches[i].out, p.batch_used)
        packed[0] += 1
    return PACKED
