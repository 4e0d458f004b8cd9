# RecordBatchPacker: columns in Arrow's layout in, V2 batches out, without a Python object per record. Every index and
# size is checked before use. Also sorts rows by the partition of their key, fills the open batches of a producer, and
# holds the buffers of columns (used by export.pxi too).

cdef enum PackStatus:
    PACKED = 0
    PACK_FULL                # not an error: the output needs `found` more bytes
    PACK_BAD_INDEX
    PACK_BAD_TIMESTAMP
    PACK_BAD_OFFSET
    PACK_NULL_HEADER_KEY
    PACK_BAD_HEADER_KEY
    PACK_TOO_LARGE
    PACK_CHANGED

# Nullable byte strings, or lists of headers. Element `start` is that of row 0. data_size is the upper bound of the
# indexes.
cdef struct InColumn:
    const uint8_t* index     # NULL: every element is null
    const uint8_t* data
    const uint8_t* validity  # NULL: no element is null
    int64_t data_size
    int64_t start
    int32_t width            # size of an index in bytes: 4 or 8

cdef struct InNumbers:
    const uint8_t* data      # NULL: all are `constant`
    const uint8_t* validity
    int64_t start
    int64_t constant

cdef struct Packing:
    InNumbers timestamps
    InNumbers offsets        # data NULL: consecutive offsets
    InColumn key
    InColumn value
    InColumn headers
    InColumn header_keys
    InColumn header_values
    int64_t units_per_ms
    const int64_t* rows      # the rows to pack, in this order; NULL: all
    int64_t row              # position in `rows`
    int64_t row_count
    int64_t next_offset
    int64_t batch_bytes
    Header h                 # of the current batch
    SealedBatch known        # facts of its records
    int64_t batch_used       # size of its records in bytes
    int64_t found            # for the message of an error

_PACK_ERRORS = {
    PACK_BAD_INDEX: "the indexes of a column run backwards or beyond its data at row {row}",
    PACK_BAD_TIMESTAMP: "timestamps must be -1 ms or not negative, got {found} at row {row}",
    PACK_BAD_OFFSET: "offsets must increase from base_offset and stay below 2^63 - 1, got {found} at row {row}",
    PACK_NULL_HEADER_KEY: "a header key is null at row {row}",
    PACK_BAD_HEADER_KEY: "a header key is not valid UTF-8 at row {row}",
    PACK_TOO_LARGE: "the record of row {row} is too large for a batch: {found} bytes",
    PACK_CHANGED: "the columns were changed while they were packed, at row {row}",
}


cdef inline int64_t load_signed(const uint8_t* p, int32_t width) noexcept nogil:
    cdef int32_t narrow
    cdef int64_t wide
    if width == 4:
        memcpy(&narrow, p, 4)
        return narrow
    memcpy(&wide, p, 8)
    return wide


cdef inline bint is_null(const uint8_t* validity, int64_t i) noexcept nogil:
    return validity != NULL and not validity[i >> 3] >> (i & 7) & 1


# Finds element i: its position and size, -1 for null. Returns: whether its indexes are in range.
cdef inline bint find_element(const InColumn* c, int64_t i, int64_t* first, int64_t* size) noexcept nogil:
    cdef int64_t end
    first[0] = 0
    size[0] = -1
    if c.index == NULL or is_null(c.validity, c.start + i):
        return True
    first[0] = load_signed(c.index + (c.start + i) * c.width, c.width)
    end = load_signed(c.index + (c.start + i + 1) * c.width, c.width)
    size[0] = <int64_t>(<uint64_t>end - <uint64_t>first[0])
    return 0 <= first[0] <= end <= c.data_size


cdef inline int64_t number_at(const InNumbers* n, int64_t i) noexcept nogil:
    if n.data == NULL or is_null(n.validity, n.start + i):
        return n.constant
    return load_signed(n.data + (n.start + i) * 8, 8)


cdef inline uint8_t* put_element(uint8_t* at, const InColumn* c, int64_t first, int64_t size) noexcept nogil:
    at = put_varint(at, zigzag(size))
    if size > 0:
        ks_copy(at, c.data + first, size, c.data + c.data_size)
        at += size
    return at


# Sets the size of a row's headers, without their count.
cdef PackStatus measure_headers(const Packing* p, int64_t first, int64_t count, int64_t* total) noexcept nogil:
    cdef int64_t place = 0
    cdef int64_t size = 0
    cdef int64_t i
    total[0] = 0
    for i in range(first, first + count):
        if not find_element(&p.header_keys, i, &place, &size):
            return PACK_BAD_INDEX
        if size < 0:
            return PACK_NULL_HEADER_KEY
        if valid_utf8(p.header_keys.data + place, size) != size:
            return PACK_BAD_HEADER_KEY
        total[0] += sized_size(size)
        if not find_element(&p.header_values, i, &place, &size):
            return PACK_BAD_INDEX
        total[0] += sized_size(size)
        if total[0] > INT32_MAX:
            return PACK_TOO_LARGE
    return PACKED


# Requires: `total` bytes at `at`, from measure_headers. Checks again, because another thread may have changed the
# columns since.
cdef PackStatus put_headers_of(const Packing* p, uint8_t* at, int64_t first, int64_t count, int64_t total) noexcept nogil:
    cdef const InColumn* c
    cdef const uint8_t* end = at + total
    cdef int64_t place = 0
    cdef int64_t size = 0
    cdef int64_t i
    for i in range(2 * first, 2 * (first + count)):
        c = &p.header_values if i & 1 else &p.header_keys
        if not find_element(c, i >> 1, &place, &size) or sized_size(size) > end - at or size < 0 and not i & 1:
            return PACK_CHANGED
        at = put_varint(at, zigzag(size))
        if size > 0:
            memcpy(at, c.data + place, <size_t>size)
            at += size
    return PACKED if at == end else PACK_CHANGED


cdef inline PackStatus refuse(Packing* p, PackStatus status, int64_t found) noexcept nogil:
    p.found = found
    return status


# Requires: p.row < row_count.
cdef inline int64_t row_now(const Packing* p) noexcept nogil:
    return p.row if p.rows == NULL else p.rows[p.row]


# Sets offset and timestamp of a row, and those of the batch if the row is its first.
cdef inline PackStatus take_numbers(Packing* p, int64_t row, int64_t* offset, int64_t* timestamp) noexcept nogil:
    cdef int64_t time = number_at(&p.timestamps, row)
    if p.units_per_ms != 1:
        time = time // p.units_per_ms - (time % p.units_per_ms < 0)
    timestamp[0] = time
    if time < -1:
        return refuse(p, PACK_BAD_TIMESTAMP, time)
    offset[0] = number_at(&p.offsets, row) if p.offsets.data != NULL else p.next_offset
    if offset[0] < p.next_offset or offset[0] == INT64_MAX:
        return refuse(p, PACK_BAD_OFFSET, offset[0])
    if p.h.record_count == 0:
        p.h.base_offset = offset[0]
        p.h.base_timestamp = p.h.max_timestamp = time
    return PACKED


# Requires: `size` is body_size, and there is room for it and its length field at `at`; the indexes are checked.
cdef inline uint8_t* put_row(uint8_t* at, int64_t size, const RecordFields* r, const InColumn* key, int64_t key_at,
                             const InColumn* value, int64_t value_at) noexcept nogil:
    at = put_varint(at, zigzag(size))
    at[0] = 0
    at = put_varint(at + 1, zigzag(r.timestamp_delta))
    at = put_varint(at, zigzag(r.offset_delta))
    at = put_element(at, key, key_at, r.key_size)
    at = put_element(at, value, value_at, r.value_size)
    return put_varint(at, zigzag(r.header_count))


# Appends records to the batch, from batch_used on, until it is full or no row is left. Requires: `out` has `capacity`
# bytes and WIDE_PAD more. Returns: PACKED when the batch is complete; PACK_FULL when a record does not fit `out`.
cdef PackStatus pack_rows(Packing* p, uint8_t* out, int64_t capacity) noexcept nogil:
    cdef Packing s = p[0]        # a copy, which stores through `out` cannot alias: it stays in registers
    cdef RecordFields r
    cdef PackStatus status = PACKED
    cdef uint8_t* at
    cdef int64_t timestamp = 0
    cdef int64_t offset = 0
    cdef int64_t key_at = 0
    cdef int64_t value_at = 0
    cdef int64_t headers_at = 0
    cdef int64_t row, size, total
    while s.row < s.row_count:
        row = row_now(&s)
        status = take_numbers(&s, row, &offset, &timestamp)
        if status != PACKED or offset - s.h.base_offset > INT32_MAX:
            break
        if not find_element(&s.key, row, &key_at, &r.key_size) \
                or not find_element(&s.value, row, &value_at, &r.value_size) \
                or not find_element(&s.headers, row, &headers_at, &r.header_count):
            status = PACK_BAD_INDEX
            break
        r.headers_size = 0
        if r.header_count < 0:
            r.header_count = 0
        elif r.header_count > 0:
            status = refuse(&s, measure_headers(p, headers_at, r.header_count, &r.headers_size), INT32_MAX)
        r.timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>s.h.base_timestamp)
        r.offset_delta = offset - s.h.base_offset
        size = body_size(&r)
        total = varint_size(zigzag(size)) + size
        if status != PACKED:
            break
        if total > s.batch_bytes - BATCH_HEADER_SIZE - s.batch_used and s.h.record_count:
            break
        if total > INT32_MAX - BATCH_HEADER_SIZE or total > capacity - s.batch_used:
            status = refuse(&s, PACK_TOO_LARGE if total > INT32_MAX - BATCH_HEADER_SIZE else PACK_FULL, total)
            break
        at = put_row(out + s.batch_used, size, &r, &s.key, key_at, &s.value, value_at)
        if r.header_count:
            status = put_headers_of(p, at, headers_at, r.header_count, r.headers_size)
            if status != PACKED:
                break
        s.batch_used += total
        s.h.last_offset_delta = <int32_t>r.offset_delta
        s.h.record_count += 1
        if timestamp > s.h.max_timestamp:
            s.h.max_timestamp = timestamp
        note_known(&s.known, timestamp, r.key_size)
        s.next_offset = offset + 1
        s.row += 1
    p[0] = s
    return status


cdef void start_batch(Packing* p) noexcept nogil:
    p.batch_used = 0
    p.h.record_count = 0
    p.known = SealedBatch(0, -1, 0, 0, False)


# Returns: the address of the next rows' values, to prefetch them (not checked yet); NULL if it is unknown.
cdef inline const uint8_t* next_value(const Packing* p) noexcept nogil:
    cdef int64_t first = 0
    cdef int64_t size = 0
    if p.row < p.row_count and find_element(&p.value, row_now(p), &first, &size) and size > 0:
        return p.value.data + first
    return NULL


# Writes the header of the batch at `batch`, whose payload follows it, and prepares for the next batch.
cdef void end_batch(Packing* p, uint8_t* batch, int64_t size, int64_t append_time) noexcept nogil:
    p.h.size = size
    if p.h.attributes & TIMESTAMP_TYPE_MASK:
        p.h.max_timestamp = append_time
    seal_batch(batch, &p.h, next_value(p))
    if p.h.base_sequence >= 0:
        p.h.base_sequence = <int32_t>incremented_sequence(p.h.base_sequence, <int64_t>p.h.last_offset_delta + 1)
    start_batch(p)


# Appends uncompressed batches, from used[0] on, until they reach run_bytes. Returns: as pack_rows.
cdef PackStatus pack_run(Packing* p, uint8_t* out, int64_t capacity, int64_t run_bytes, int64_t append_time,
                         int64_t* used) noexcept nogil:
    cdef PackStatus status
    while p.h.record_count or (p.row < p.row_count and used[0] < run_bytes):
        if capacity - used[0] < BATCH_HEADER_SIZE:
            return refuse(p, PACK_FULL, BATCH_HEADER_SIZE)
        status = pack_rows(p, out + used[0] + BATCH_HEADER_SIZE, capacity - used[0] - BATCH_HEADER_SIZE)
        if status != PACKED:
            return status
        end_batch(p, out + used[0], BATCH_HEADER_SIZE + p.batch_used, append_time)
        used[0] += p.h.size
    return PACKED


# Steps before packing: checking all rows, and sorting them by the partition of their key.

# Sets the upper bound of a row's record in bytes, in a batch of its own.
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
    total[0] = BATCH_HEADER_SIZE + MOST_RECORD_OVERHEAD + sized_size(key_size) + sized_size(value_size) + headers_size
    if status == PACKED and total[0] > INT32_MAX:
        status = PACK_TOO_LARGE
    return refuse(p, status, total[0]) if status != PACKED else PACKED


# Checks every row as pack_rows does. Sets the size of the largest record, as measure_row; on an error p.row.
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


# Requires: counts has partition_count + 1 zeros. Sets the partition of each row (partition_count for a null key) and
# the number of rows of each partition.
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


# Requires: next_of has the first index in `rows` of each partition; `rows` has room for row_count rows.
cdef void sort_rows(const int32_t* places, int64_t row_count, int64_t* next_of, int64_t* rows) noexcept nogil:
    cdef int64_t row
    for row in range(row_count):
        rows[next_of[places[row]]] = row
        next_of[places[row]] += 1


# A batch to pack rows into: `out` has `capacity` bytes for records and WIDE_PAD more.
cdef struct PackedBatch:
    uint8_t* out
    int64_t capacity
    Header h
    SealedBatch known
    int64_t used


# Computes the CRC of a batch's records while they are in the cache; seal_buffer combines it with that of the header.
cdef void note_crc(SealedBatch* known, const uint8_t* records, int64_t size) noexcept nogil:
    known.records_crc = ks_crc32c_by(BEST_PATH, 0, records, <size_t>size)
    known.crc_shift = crc32c_shift_of(<uint32_t>size)


# Packs the next rows into the batches in turn. Sets the number of batches that got rows; p.row is after those rows.
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


# Columns as Python objects: their buffers are held and measured here, and errors are raised here.

@cython.final
cdef class HeldBuffer:
    """A caller's buffer of any format, held while it is read."""

    cdef Py_buffer view

    def __cinit__(self, data, int flags=PyBUF_SIMPLE):
        PyObject_GetBuffer(data, &self.view, flags)

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef const uint8_t EMPTY[1]

_NATIVE_ORDER = b"@=<" if _byteorder == "little" else b"@=>"
_INTEGERS = (b"i", b"I", b"l", b"L", b"q", b"Q", b"n", b"N")


cdef const uint8_t* hold_buffer(list held, HeldBuffer buffer, int64_t* size) except NULL:
    held.append(buffer)
    size[0] = buffer.view.len
    return <const uint8_t*>buffer.view.buf if buffer.view.buf != NULL else EMPTY


cdef const uint8_t* held_bytes(list held, object data, int64_t* size) except NULL:
    return hold_buffer(held, HeldBuffer(data), size)


# As held_bytes, for a buffer of bytes or of native integers of `width` bytes; rejects other formats, which would be
# misread.
cdef const uint8_t* held_integers(list held, object data, int32_t width, int64_t* size) except NULL:
    cdef HeldBuffer buffer = HeldBuffer(data, PyBUF_CONTIG_RO | PyBUF_FORMAT)
    cdef bytes kind = buffer.view.format if buffer.view.format != NULL else b"B"
    cdef Py_ssize_t item_size = buffer.view.itemsize
    if (item_size != 1 or kind == b"?") and (item_size != width or kind.lstrip(_NATIVE_ORDER) not in _INTEGERS):
        raise ValueError(f"expected bytes or native integers of {width} bytes, found items of {item_size} in format "
                         f"{kind.decode()!r}")
    return hold_buffer(held, buffer, size)


# Returns: the validity bits, NULL if there are none. Sets their number in bits[0].
cdef const uint8_t* validity_of(list held, object validity, int64_t* bits) except? NULL:
    cdef const uint8_t* start
    bits[0] = INT64_MAX
    if validity is None:
        return NULL
    start = held_integers(held, validity, 1, bits)
    bits[0] *= 8
    return start


cdef int check_bits(int64_t bits, int64_t start, int64_t count) except -1:
    if start > bits or count > bits - start:
        raise ValueError(f"a validity bitmap of {bits // 8} bytes is too short for {count} elements from {start} on")
    return 0


cdef int hold_numbers(InNumbers* n, list held, object column, int64_t count) except -1:
    cdef int64_t size = 0
    cdef int64_t bits = 0
    n.start = column.start
    n.data = held_integers(held, column.data, 8, &size)
    if n.start < 0 or n.start > size // 8 or count > size // 8 - n.start:
        raise ValueError(f"a column of {size // 8} numbers is too short for {count} from {n.start} on")
    n.validity = validity_of(held, column.validity, &bits)
    return check_bits(bits, n.start, count)


# count -1: all elements. Returns: the number of elements from `start` on.
cdef int64_t hold_index(InColumn* c, list held, object column, int64_t count) except -1:
    cdef int64_t size = 0
    cdef int64_t bits = 0
    cdef int64_t elements
    c.start = column.start
    c.width = column.offset_bytes
    if c.width != 4 and c.width != 8:
        raise ValueError(f"offset_bytes must be 4 or 8, got {column.offset_bytes}")
    c.index = held_integers(held, column.offsets, c.width, &size)
    elements = max(size // c.width - 1, 0)      # Arrow allows a column without elements to have no offsets
    if c.start < 0 or c.start > elements or count > elements - c.start:
        raise ValueError(f"offsets for {elements} elements are too short for {count} from {c.start} on")
    c.validity = validity_of(held, column.validity, &bits)
    if count < 0:
        count = max(min(elements, bits) - c.start, 0)
    check_bits(bits, c.start, count)
    return count


# Returns: as hold_index.
cdef int64_t hold_column(InColumn* c, list held, object column, int64_t count) except -1:
    c.data = held_bytes(held, column.data, &c.data_size)
    return hold_index(c, held, column, count)


cdef enum:
    MOST_PACKED = 64             # batches per call; bounds the time for which a waiting thread gets none


cdef void take_packed(MemoryRecordsBuilderCore batch, const PackedBatch* packed) noexcept:
    batch.h.record_count = packed.h.record_count
    batch.h.last_offset_delta = packed.h.last_offset_delta
    batch.h.base_timestamp = packed.h.base_timestamp
    batch.h.max_timestamp = packed.h.max_timestamp
    batch.known = packed.known
    batch.used = BATCH_HEADER_SIZE + packed.used
    batch.records_size = packed.used
    batch.offset_of_max = batch.h.base_offset + batch.h.last_offset_delta


@cython.final
cdef class RecordBatchPacker:
    """Packs columns into runs of V2 batches, one run per call; see kstore.record.pack_columns.

    Args: those of pack_columns, with codec_id and level in place of a compression.
    Raises: ValueError for values out of range or columns that are too short.
    Threads: one at a time (others get a ValueError); the GIL is released.  Lifetime: holds the columns' buffers.
    """

    cdef Packing p
    cdef list held
    cdef ColumnBuffer scratch
    cdef int64_t run_bytes
    cdef int64_t append_time
    cdef object level
    cdef ColumnBuffer sorted_rows
    cdef int64_t largest_record_bytes
    cdef int64_t given_row_count, first_row
    cdef bint is_busy

    def __init__(self, *, int64_t row_count, timestamp, key=None, value=None, headers=None, offset=None,
                 int64_t units_per_ms=1, int64_t batch_bytes, int64_t run_bytes, int codec_id=0, level=None,
                 timestamp_type=_CREATE_TIME, log_append_time_ms=-1, int64_t base_offset=0, producer_id=-1,
                 producer_epoch=-1, base_sequence=-1, bint is_transactional=False, partition_leader_epoch=-1):
        if self.is_busy:
            raise ValueError("the columns are being packed by another thread")
        self.held = []
        self.sorted_rows = None
        memset(&self.p, 0, sizeof(Packing))
        if row_count < 0 or base_offset < 0 or codec_id < 0 or codec_id > MAX_CODEC_ID or units_per_ms < 1:
            raise ValueError("row_count, base_offset, codec_id and units_per_ms must not be negative")
        self.p.row_count = self.given_row_count = row_count
        self.p.units_per_ms = units_per_ms
        self.p.next_offset = base_offset
        self.p.batch_bytes = ranged("batch_bytes", batch_bytes, 1, INT32_MAX)
        self.run_bytes = ranged("run_bytes", run_bytes, 1, INT32_MAX)
        self.append_time = ranged("log_append_time_ms", log_append_time_ms, -1, INT64_MAX)
        self.level = level
        self.p.h.magic = MAGIC_V2
        self.p.h.attributes = codec_id
        self.p.h.leader_epoch = <int32_t>ranged("partition_leader_epoch", partition_leader_epoch, -1, INT32_MAX)
        set_timestamp_type(&self.p.h, timestamp_type)
        set_producer(&self.p.h, producer_id, producer_epoch, base_sequence, is_transactional)
        check_producer(&self.p.h)
        self.hold(timestamp, key, value, headers, offset)

    cdef int hold(self, object timestamp, object key, object value, object headers, object offset) except -1:
        cdef Packing* p = &self.p
        cdef int64_t values
        if PyIndex_Check(timestamp):
            p.timestamps.constant = ranged("timestamp", timestamp, -INT64_MAX - 1, INT64_MAX)
        else:
            hold_numbers(&p.timestamps, self.held, timestamp, p.row_count)
            p.timestamps.constant = -p.units_per_ms     # a null timestamp is -1 ms in any unit
        if offset is not None:
            p.offsets.constant = -1                     # a null offset is below any base offset
            hold_numbers(&p.offsets, self.held, offset, p.row_count)
        if key is not None:
            hold_column(&p.key, self.held, key, p.row_count)
        if value is not None:
            hold_column(&p.value, self.held, value, p.row_count)
        if headers is not None:
            hold_index(&p.headers, self.held, headers, p.row_count)
            p.headers.data_size = hold_column(&p.header_keys, self.held, headers.keys, -1)
            values = hold_column(&p.header_values, self.held, headers.values, -1)
            p.headers.data_size = min(p.headers.data_size, values)
        return 0

    def next_run(self, compress):
        """Return the next run of complete batches, a read-only ColumnBuffer; None when no row is left.

        If there is a codec, compress(codec id, records, level) makes the payload of each batch.
        Raises: ValueError with the row; errors of compress. The next call then starts at the same row again.
        """
        cdef ColumnBuffer run = None
        cdef Packing before
        self.begin()
        before = self.p
        try:
            if before.row == before.row_count:
                return None
            run = self.compressed_run(compress) if self.p.h.attributes & CODEC_MASK else self.plain_run()
        finally:
            self.is_busy = False
            if run is None:
                self.p = before
        run.is_read_only = True
        return run

    cdef object error(self, PackStatus status):
        cdef int64_t row = row_now(&self.p) if self.p.row < self.p.row_count else self.p.row
        return ValueError(_PACK_ERRORS[status].format(row=row - self.first_row, found=self.p.found))

    cdef ColumnBuffer plain_run(self):
        cdef ColumnBuffer run = ColumnBuffer(self.run_bytes + min(self.p.batch_bytes, MOST_FIRST_CAPACITY))
        cdef int64_t used = 0
        cdef PackStatus status = PACK_FULL
        start_batch(&self.p)
        while status == PACK_FULL:
            with nogil:
                status = pack_run(&self.p, run.block.data, run.block.capacity, self.run_bytes, self.append_time, &used)
            if status == PACK_FULL:
                run.grow(used + BATCH_HEADER_SIZE + self.p.batch_used + self.p.found)
        if status != PACKED:
            raise self.error(status)
        run.size = used
        return run

    # Packs the records of one batch into the scratch buffer.
    cdef int pack_records(self) except -1:
        cdef PackStatus status = PACK_FULL
        start_batch(&self.p)
        while status == PACK_FULL:
            with nogil:
                status = pack_rows(&self.p, self.scratch.block.data, self.scratch.block.capacity)
            if status == PACK_FULL:
                self.scratch.grow(self.p.batch_used + self.p.found)
        if status != PACKED:
            raise self.error(status)
        return 0

    cdef ColumnBuffer compressed_run(self, object compress):
        cdef ColumnBuffer run = ColumnBuffer(self.run_bytes)
        cdef int64_t used = 0
        cdef int64_t size
        cdef const uint8_t[::1] payload
        while self.p.row < self.p.row_count and used < self.run_bytes:
            self.scratch = ColumnBuffer(min(self.p.batch_bytes, MOST_FIRST_CAPACITY) + CAPACITY_SLACK)
            self.pack_records()
            self.scratch.size = self.p.batch_used
            payload = compress(self.p.h.attributes & CODEC_MASK, memoryview(self.scratch), self.level)
            size = BATCH_HEADER_SIZE + payload.shape[0]
            if size > INT32_MAX:
                raise ValueError(f"a batch has at most {INT32_MAX} bytes, its payload alone {payload.shape[0]}")
            if size > run.block.capacity - used:
                run.grow(used + size)
            memcpy(run.block.data + used + BATCH_HEADER_SIZE, start_of(payload), <size_t>payload.shape[0])
            with nogil:
                end_batch(&self.p, run.block.data + used, size, self.append_time)
            used += size
        run.size = used
        return run

    def check_rows(self):
        """Check every row as packing does; return the upper bound in bytes of the largest record in a batch of its own.

        Raises: ValueError with the row.  Threads: the GIL is released.
        """
        cdef PackStatus status
        cdef int64_t largest = 0
        self.begin()
        with nogil:
            status = check_rows(&self.p, &largest)
        self.is_busy = False
        if status != PACKED:
            raise self.error(status)
        self.largest_record_bytes = largest
        return largest

    def sort_by_partition(self, int32_t partition_count):
        """Sort all rows by the partition of their key; return the row count of each partition, then that of null keys.

        Use select() to pack some of the sorted rows.
        Raises: ValueError with the row, or for a partition_count out of range; MemoryError.
        """
        cdef PackStatus status
        cdef ColumnBuffer places, counts, next_of
        cdef int64_t* count_of
        cdef int64_t place
        cdef int64_t used = 0
        if partition_count < 1 or partition_count == INT32_MAX:
            raise ValueError(f"partition_count must be from 1 to {INT32_MAX - 1}, got {partition_count}")
        if self.given_row_count > INT64_MAX // 16:
            raise MemoryError(f"no memory to sort {self.given_row_count} rows")
        self.restart(first=0, count=self.given_row_count, base_offset=self.p.next_offset)
        self.begin()
        try:
            places = new_buffer(4 * self.p.row_count)
            rows = new_buffer(8 * self.p.row_count)
            counts, next_of = new_buffer(8 * (<int64_t>partition_count + 1)), new_buffer(8 * (<int64_t>partition_count + 1))
            count_of = <int64_t*>counts.block.data
            memset(count_of, 0, <size_t>counts.size)
            with nogil:
                status = place_rows(&self.p, partition_count, <int32_t*>places.block.data, count_of)
            if status != PACKED:
                raise self.error(status)
            for place in range(<int64_t>partition_count + 1):
                (<int64_t*>next_of.block.data)[place] = used
                used += count_of[place]
            self.sort_into(places, next_of, rows)
            return [count_of[place] for place in range(<int64_t>partition_count + 1)]
        finally:
            self.is_busy = False

    cdef int sort_into(self, ColumnBuffer places, ColumnBuffer next_of, ColumnBuffer rows) except -1:
        with nogil:
            sort_rows(<int32_t*>places.block.data, self.p.row_count, <int64_t*>next_of.block.data,
                      <int64_t*>rows.block.data)
        self.sorted_rows = rows
        return 0

    def select(self, *, int64_t first, int64_t count):
        """Pack only `count` rows from `first` on, in the order of sort_by_partition, from the next call on.

        Raises: ValueError for rows that were not sorted.
        """
        cdef int64_t sorted_count = 0 if self.sorted_rows is None else self.sorted_rows.size // 8
        if first < 0 or count < 0 or first > sorted_count or count > sorted_count - first:
            raise ValueError(f"expected rows of the {sorted_count} that are sorted, got {count} from {first} on")
        self.begin()
        self.p.rows = <const int64_t*>self.sorted_rows.block.data + first
        self.p.row = self.first_row = 0
        self.p.row_count = count
        self.is_busy = False

    def restart(self, *, int64_t first, int64_t count, int64_t base_offset):
        """Pack `count` rows from `first` on, from the next call on.

        Offsets start at base_offset; the row numbers of errors count from `first`.
        Raises: ValueError for rows out of range or a negative base_offset.
        """
        if first < 0 or count < 0 or first > self.given_row_count or count > self.given_row_count - first:
            raise ValueError(f"expected some of {self.given_row_count} rows, got {count} from {first} on")
        if base_offset < 0:
            raise ValueError(f"base_offset must not be negative, got {base_offset}")
        self.begin()
        self.p.rows = NULL
        self.p.row = self.first_row = first
        self.p.row_count = first + count
        self.p.next_offset = base_offset
        self.is_busy = False

    @property
    def rows_left(self): return self.p.row_count - self.p.row

    @property
    def next_record_bytes(self):
        """The upper bound in bytes of the next row's record in a batch of its own; 0 if no row is left."""
        cdef int64_t total = 0
        cdef PackStatus status = PACKED
        if self.p.row < self.p.row_count:
            status = measure_row(&self.p, row_now(&self.p), &total)
        if status != PACKED:
            raise self.error(status)
        return total

    def pack_into(self, list batches not None):
        """Pack the next rows into open, empty V2 batches (MemoryRecordsBuilderCore), filling one after the other.

        Returns: the number of batches that got rows, fewer than given if no row is left. Buffers are not enlarged.
        Raises: ValueError with the row; neither the batches nor the packer may be used afterwards.
        """
        cdef PackedBatch packed[MOST_PACKED]
        cdef PackStatus status
        cdef MemoryRecordsBuilderCore batch
        cdef int64_t count = len(batches)
        cdef int64_t got = 0
        cdef int64_t i
        if count > MOST_PACKED:
            raise ValueError(f"expected at most {MOST_PACKED} batches, got {count}")
        for i in range(count):
            batch = batches[i]
            if not batch.is_open or batch.h.record_count or batch.h.magic != MAGIC_V2 or batch.has_horizon:
                raise ValueError("rows are packed into open and empty V2 batches alone")
            packed[i].out = batch.buffer.block.data + BATCH_HEADER_SIZE
            packed[i].capacity = batch.buffer.block.capacity - BATCH_HEADER_SIZE
        self.begin()
        for i in range(count):
            (<MemoryRecordsBuilderCore>batches[i]).is_open = False
        with nogil:
            status = pack_batches(&self.p, packed, count, &got)
        self.is_busy = False
        for i in range(count):
            batch = batches[i]
            batch.is_open = True
            if i < got:
                take_packed(batch, &packed[i])
        if status != PACKED:
            raise self.error(status)
        return got

    cdef int begin(self) except -1:
        if self.is_busy:
            raise ValueError("the columns are being packed by another thread")
        self.is_busy = True
        return 0


def pack_rows_into(list batches not None, RecordBatchPacker packer not None):
    """Pack the next rows of columns into empty batches, which then take no more records; return how many got rows.

    Raises: ValueError with the row; as RecordBatchPacker.pack_into.
    """
    cdef ProducerBatchCore batch
    cdef list builders = [(<ProducerBatchCore?>batch)._builder for batch in batches]
    cdef int64_t count = packer.pack_into(builders)
    for batch in batches:
        batch.max_record_size = packer.largest_record_bytes
        batch.takes_records = False
    return count
