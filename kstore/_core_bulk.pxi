# Columns in, batches out: buffers are held and measured here, errors are raised here.

@cython.final
cdef class HeldBuffer:
    """The bytes of a caller's buffer of any format, held for as long as they are read."""

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


# The same of a buffer of bytes, or of native integers of `width` bytes; others would be read as numbers that they are not.
cdef const uint8_t* held_integers(list held, object data, int32_t width, int64_t* size) except NULL:
    cdef HeldBuffer buffer = HeldBuffer(data, PyBUF_CONTIG_RO | PyBUF_FORMAT)
    cdef bytes kind = buffer.view.format if buffer.view.format != NULL else b"B"
    cdef Py_ssize_t item_size = buffer.view.itemsize
    if (item_size != 1 or kind == b"?") and (item_size != width or kind.lstrip(_NATIVE_ORDER) not in _INTEGERS):
        raise ValueError(f"expected bytes or native integers of {width} bytes, found items of {item_size} in format "
                         f"{kind.decode()!r}")
    return hold_buffer(held, buffer, size)


# Returns: the validity bits, NULL if there are none; how many in bits[0].
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


# count -1: as many as there are. Returns: the number of elements from `start` on.
cdef int64_t hold_index(InColumn* c, list held, object column, int64_t count) except -1:
    cdef int64_t size = 0
    cdef int64_t bits = 0
    cdef int64_t elements
    c.start = column.start
    c.width = column.offset_bytes
    if c.width != 4 and c.width != 8:
        raise ValueError(f"offset_bytes must be 4 or 8, got {column.offset_bytes}")
    c.index = held_integers(held, column.offsets, c.width, &size)
    elements = max(size // c.width - 1, 0)      # Arrow lets a column without elements have no offsets
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
    MOST_PACKED = 64             # batches of one call: so long nobody who waits for them gets one


cdef void take_packed(RecordBatchEncoder batch, const PackedBatch* packed) noexcept:
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
    """Packs columns into runs of V2 batches, one run at a time; see kstore.record.pack_columns.

    Threads: one at a time; the GIL is released.  Lifetime: holds the columns' buffers.
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
        """Return the next run of whole batches, a read-only ColumnBuffer; None when no row is left.

        compress(codec id, records, level) makes the payload of a batch where there is a codec.
        Raises: ValueError with the row; what compress raises. The next call then starts at the same row again.
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
        """Ask of every row what packing will ask, and return the most bytes that one of them takes in a batch of its own.

        Raises: ValueError with the row.
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
        """Sort all rows by the partition of their key, and return how many each has; the last number is that of null keys.

        select() then says which of the sorted rows are packed.
        Raises: ValueError with the row.
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
        """Pack only `count` rows from `first` on, in the order of sort_by_partition."""
        cdef int64_t sorted_count = 0 if self.sorted_rows is None else self.sorted_rows.size // 8
        if first < 0 or count < 0 or first > sorted_count or count > sorted_count - first:
            raise ValueError(f"expected rows of the {sorted_count} that are sorted, got {count} from {first} on")
        self.begin()
        self.p.rows = <const int64_t*>self.sorted_rows.block.data + first
        self.p.row = self.first_row = 0
        self.p.row_count = count
        self.is_busy = False

    def restart(self, *, int64_t first, int64_t count, int64_t base_offset):
        """Pack `count` rows from `first` on, offsets and the rows of errors counted anew."""
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
        """The most bytes that the record of the next row takes in a batch of its own."""
        cdef int64_t total = 0
        cdef PackStatus status = PACKED
        if self.p.row < self.p.row_count:
            status = measure_row(&self.p, row_now(&self.p), &total)
        if status != PACKED:
            raise self.error(status)
        return total

    def pack_into(self, list batches not None):
        """Pack the next rows into open, empty V2 batches (RecordBatchEncoder), each until it is full.

        Returns: how many of them got rows, fewer if no row is left; they grow by no byte.
        Raises: ValueError with the row; the batches are then not to be used, and packing goes on nowhere.
        """
        cdef PackedBatch packed[MOST_PACKED]
        cdef PackStatus status
        cdef RecordBatchEncoder batch
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
            (<RecordBatchEncoder>batches[i]).is_open = False
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
    """Pack the next rows of columns into empty batches, which take no more records then; return how many got rows.

    Raises: ValueError with the row.
    """
    cdef BatchAppender batch
    cdef list builders = [(<BatchAppender?>batch)._builder for batch in batches]
    cdef int64_t count = packer.pack_into(builders)
    for batch in batches:
        batch.max_record_size = packer.largest_record_bytes
        batch.takes_records = False
    return count
