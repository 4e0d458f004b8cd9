# A run of batches of any magic in memory: what holds it, and its Records, deep, without an object for a batch.

_DEFAULT_CONFIG = LogConfig()


cdef inline object read_only_bytes(object buffer):
    cdef object view = memoryview(buffer)
    cdef const Py_buffer* raw = PyMemoryView_GET_BUFFER(view)
    if raw.readonly and raw.ndim == 1 and view.format == "B":
        return view
    return view.cast("B").toreadonly()


cdef class RecordsBuffer:
    """The bytes of a run of batches and where they come from; MemoryRecords without the batches.

    Args: those of MemoryRecords; config is kept as it is.
    """

    cdef object _held            # a ColumnBuffer until somebody wants to see the bytes, which then is a memoryview
    cdef readonly int64_t _position
    cdef readonly object _path
    cdef readonly object _topic_partition
    cdef readonly object _config

    def __init__(self, buffer, *, int64_t position=0, path=None, topic_partition=None, config=_DEFAULT_CONFIG):
        self._held = buffer if type(buffer) is ColumnBuffer else read_only_bytes(buffer)
        self._position = position
        self._path = path
        self._topic_partition = topic_partition
        self._config = config

    @property
    def size_in_bytes(self):
        """All bytes, an incomplete last batch included."""
        return len(self._held)

    @property
    def buffer(self):
        """All bytes, read-only, without a copy."""
        if type(self._held) is ColumnBuffer:
            self._held = read_only_bytes(self._held)
        return self._held

    def __len__(self):
        return len(self._held)


# The same as kind(buffer), without a call where that is a RecordsBuffer.
cdef object records_of(object kind, ColumnBuffer buffer):
    cdef PyTypeObject* records_type = <PyTypeObject*>kind
    cdef RecordsBuffer records
    if not PyType_Check(kind) or records_type.tp_init != (<PyTypeObject*>RecordsBuffer).tp_init:
        return kind(buffer)
    records = records_type.tp_new(records_type, (), NULL)
    records._held = buffer
    records._config = _DEFAULT_CONFIG
    return records


# Returns: the ColumnBuffer of records that are one batch of which all is known since it was sealed; else None.
cdef ColumnBuffer sealed_of(object records):
    cdef object held = (<RecordsBuffer>records)._held if isinstance(records, RecordsBuffer) else None
    if type(held) is not ColumnBuffer:
        return None
    cdef ColumnBuffer buffer = <ColumnBuffer>held
    return buffer if buffer.is_read_only and 0 < buffer.sealed.size == buffer.size else None


@cython.final
cdef class RunIterator:
    """Iterate the Records of a run of batches; see iterate_run."""

    cdef const uint8_t[::1] buffer
    cdef Py_ssize_t at
    cdef int64_t position
    cdef int64_t max_batch_bytes
    cdef RecordIterator batch

    def __iter__(self):
        return self

    def __next__(self):
        cdef Record record = self.batch.next_record()
        while record is None:
            if not self.open_next():
                raise StopIteration
            record = self.batch.next_record()
        return record

    # Returns: whether there is one more batch.
    cdef bint open_next(self) except -1:
        cdef const uint8_t* start = start_of(self.buffer) + self.at
        cdef int64_t left = self.buffer.shape[0] - self.at
        cdef int64_t size
        cdef bint is_open = False
        if left < LOG_OVERHEAD_SIZE:
            return False
        size = entry_size_at(start)
        if left < HEADER_SIZE_UP_TO_MAGIC and size >= MIN_MESSAGE_V0_SIZE:
            return False
        if left >= HEADER_SIZE_UP_TO_MAGIC and left < size <= self.max_batch_bytes and start[MAGIC_AT] <= MAGIC_V2:
            return False
        if not HEADER_SIZE_UP_TO_MAGIC < size <= left:
            size = left
        self.check(start, size)
        self.batch.least_delta = 0
        try:
            self.batch.open(self.buffer[self.at:self.at + size], self.position + self.at)
            is_open = True
        finally:
            if not is_open:
                self.batch.close()
        self.at += size
        if self.batch.h.attributes & CODEC_MASK == 0 and size <= left - size:
            self.batch.ahead = size
        return True

    cdef int check(self, const uint8_t* start, int64_t size) except -1:
        cdef Problem* problem = &self.batch.problem
        start_problem(problem, self.position + self.at)
        if check_header(start, size, self.max_batch_bytes, problem) == OK:
            if size < GIL_RELEASE_SIZE:
                check_whole_batch(start, size, problem)
            else:
                with nogil:
                    check_whole_batch(start, size, problem)
        if problem.status != OK:
            raise error_of(problem, self.batch.path)
        return 0


def iterate_run(const uint8_t[::1] buffer, *, int64_t position, decompress, int64_t max_batch_bytes,
                int64_t max_decompressed_bytes, path=None, topic_partition=None):
    """Return an iterator over the Records of a run of batches, the CRC of each checked before its first Record.

    An incomplete last batch with a known magic ends it. Arguments, errors and lifetime are those of iterate_records.
    Threads: not safe.
    """
    cdef RunIterator run = RunIterator.__new__(RunIterator)
    cdef RecordIterator batch = RecordIterator.__new__(RecordIterator)
    batch.decompress, batch.max_decompressed_bytes = decompress, max_decompressed_bytes
    batch.path, batch.topic_partition = path, topic_partition
    batch.verify_crc = batch.checks_offsets = batch.makes_headers = True
    batch.payload = None        # no view at all yet, which code with checks refuses to look at
    run.buffer, run.position, run.max_batch_bytes, run.batch = buffer, position, max_batch_bytes, batch
    return run
