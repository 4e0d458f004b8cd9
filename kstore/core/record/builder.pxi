# MemoryRecordsBuilderCore: records in, one batch of magic 2 or a V0 or V1 message set out; at the end, its append for
# calls by name.

cdef enum:
    FIRST_CAPACITY = 16448           # a batch of Kafka's default batch.size, and CAPACITY_SLACK
    MOST_FIRST_CAPACITY = 1048576
    CAPACITY_SLACK = 64
    LEAST_PREFETCHED_SIZE = 256
    MOST_PREFETCHED_SIZE = 8192

cdef double COMPRESSION_RATE_ESTIMATION_FACTOR = 1.05   # Kafka's margin for a batch that compresses worse than the last


cdef class MemoryRecordsBuilderCore:
    """MemoryRecordsBuilderCore(*, magic=2, compression='none', level=None, timestamp_type=TimestampType.CREATE_TIME,\
 base_offset=0, log_append_time_ms=-1, producer_id=-1, producer_epoch=-1, base_sequence=-1, is_transactional=False,\
 is_control=False, partition_leader_epoch=-1, delete_horizon_ms=None, write_limit_bytes=2147483647, buffer=None)\n--\n
    The records of one batch, each encoded when it is appended; the base class of MemoryRecordsBuilder.

    Args: those of MemoryRecordsBuilder; compression: Kafka's codec id; codec_id_of() of a subclass accepts names.
    Raises: ValueError for values out of range or in contradiction.
    Threads: not safe.  Cost: append copies key and value once and keeps no object.
    Source: Kafka MemoryRecordsBuilder, DefaultRecord.writeTo.
    """

    cdef ColumnBuffer buffer      # header and records; after end_appends, header and payload
    cdef Header h
    cdef int64_t used             # bytes of the buffer
    cdef int64_t header_size
    cdef int64_t offset_of_max
    cdef int64_t records_size     # in bytes, before compression
    cdef SealedBatch known        # facts of the records so far
    cdef const uint8_t* last_value
    cdef bint has_horizon
    cdef bint is_handed_out
    cdef bint was_buffer_given    # the buffer is accounted to a pool, so its memory is kept where possible
    cdef readonly bint is_open
    cdef bint was_dropped
    cdef readonly int32_t write_limit_bytes
    cdef readonly int64_t log_append_time_ms
    cdef readonly object level
    cdef public double estimated_compression_ratio
    cdef public object _built

    def __init__(self, *, magic=MAGIC_V2, compression="none", level=None, timestamp_type=_CREATE_TIME,
                 base_offset=0, log_append_time_ms=-1, producer_id=-1, producer_epoch=-1, base_sequence=-1,
                 bint is_transactional=False, bint is_control=False, partition_leader_epoch=-1,
                 delete_horizon_ms=None, write_limit_bytes=INT32_MAX, ColumnBuffer buffer=None):
        self.is_open = self.was_dropped = self.is_handed_out = False
        self._built = None
        self.h.magic = <int32_t>ranged("magic", magic, MAGIC_V0, MAGIC_V2)
        self.h.base_offset = ranged("base_offset", base_offset, 0, INT64_MAX - 1)
        self.h.leader_epoch = <int32_t>ranged("partition_leader_epoch", partition_leader_epoch, -1, INT32_MAX)
        self.h.last_offset_delta = -1
        self.h.max_timestamp = -1
        self.h.base_timestamp = -1
        self.h.record_count = 0
        self.h.attributes = CONTROL_MASK if is_control else 0
        self.log_append_time_ms = ranged("log_append_time_ms", log_append_time_ms, -1, INT64_MAX)
        self.write_limit_bytes = <int32_t>ranged("write_limit_bytes", write_limit_bytes, 0, INT32_MAX)
        self.estimated_compression_ratio = 1.0
        self.level = level
        if timestamp_type is not _CREATE_TIME:
            set_timestamp_type(&self.h, timestamp_type)
        if level is not None or type(compression) is not str or <str>compression != "none":
            self.h.attributes |= <int>self.codec_id_of(compression, level) & CODEC_MASK
        self.has_horizon = delete_horizon_ms is not None
        if self.has_horizon:
            self.h.base_timestamp = ranged("delete_horizon_ms", delete_horizon_ms, 0, INT64_MAX)
            self.h.attributes |= DELETE_HORIZON_MASK
        set_producer(&self.h, producer_id, producer_epoch, base_sequence, is_transactional)
        self.header_size = BATCH_HEADER_SIZE
        if self.h.magic != MAGIC_V2:
            check_legacy(&self.h, self.has_horizon)
            self.header_size = least_batch_size(self.h.magic) if self.h.attributes & CODEC_MASK else 0
        self.start(FIRST_CAPACITY if self.write_limit_bytes == INT32_MAX
                   else <int64_t>self.write_limit_bytes + CAPACITY_SLACK, buffer)

    @cython.final
    cdef int start(self, int64_t capacity, ColumnBuffer buffer) except -1:
        if buffer is not None and (buffer.is_read_only or buffer.block.capacity < self.header_size):
            raise ValueError(f"the buffer must be writable and of at least {self.header_size} bytes, for the header")
        self.was_buffer_given = buffer is not None
        self.buffer = buffer if buffer is not None else new_buffer(min(capacity, MOST_FIRST_CAPACITY))
        self.buffer.was_writable = self.buffer.export_count > 0
        self.used = self.header_size
        self.offset_of_max = -1
        self.records_size = 0
        self.known = SealedBatch(0, -1, 0, 0, False)
        self.is_open = True
        return 0

    # The type of build()'s result, called with the finished buffer.
    records_type = bytes

    def compress_records(self, codec_id, records, level):
        """Return the payload for records in a codec; overridden by subclasses with codecs.  Raises: ValueError."""
        raise ValueError(f"no codec is known here, got {codec_id}")

    def codec_id_of(self, compression, level):
        """Return Kafka's id of a codec, for the constructor; overridden by subclasses that know names and levels.

        Raises: ValueError.
        """
        if compression not in range(MAX_CODEC_ID + 1) or level is not None:
            raise ValueError(f"compression must be from 0 to {MAX_CODEC_ID} without a level, got {compression!r}")
        return compression

    @property
    def magic(self): return self.h.magic
    @property
    def base_offset(self): return self.h.base_offset
    @property
    def next_offset(self): return self.h.base_offset + self.h.last_offset_delta + 1
    @property
    def last_offset(self): return self.h.base_offset + self.h.last_offset_delta if self.h.record_count else None
    @property
    def record_count(self): return self.h.record_count
    @property
    def base_timestamp_ms(self): return self.h.base_timestamp
    @property
    def max_timestamp_ms(self): return self.h.max_timestamp
    @property
    def offset_of_max_timestamp(self): return self.offset_of_max
    @property
    def records_size_in_bytes(self): return self.records_size
    @property
    def attributes(self): return self.h.attributes
    @property
    def partition_leader_epoch(self): return self.h.leader_epoch
    @property
    def producer_id(self): return self.h.producer_id
    @property
    def producer_epoch(self): return self.h.producer_epoch
    @property
    def base_sequence(self): return self.h.base_sequence
    @property
    def is_transactional(self): return self.h.attributes & TRANSACTIONAL_MASK != 0
    @property
    def is_control(self): return self.h.attributes & CONTROL_MASK != 0

    @property
    def is_closed(self):
        """Whether the batch was built or finished; only reopen_and_rewrite_producer_state can then change it."""
        return self.is_handed_out

    @property
    def is_full(self):
        """Whether the batch should take no more records: it is closed for appends, or has reached the write limit."""
        return not self.is_open or (self.h.record_count > 0 and self.write_limit_bytes <= self.estimate())

    @property
    def uncompressed_size_in_bytes(self):
        """The size of header and records in bytes, before compression."""
        return self.header_size + self.records_size

    @property
    def estimated_size_in_bytes(self):
        """The size of the closed batch in bytes, or an estimate, by estimated_compression_ratio, for closing it now."""
        return self.current_size()

    @cython.final
    cdef inline int64_t current_size(self) noexcept:
        return self.estimate() if not self.is_handed_out else self.used if self.h.record_count else 0

    @property
    def compression_ratio(self):
        """Size of the payload divided by the size of the records; 1.0 until the batch is closed."""
        if not self.is_handed_out or self.h.record_count == 0:
            return 1.0
        return (self.used - self.header_size) / <double>self.records_size

    @cython.final
    cdef int64_t estimate(self) noexcept:
        cdef double size
        if self.h.attributes & CODEC_MASK == 0:
            return self.header_size + self.records_size
        size = self.records_size * self.estimated_compression_ratio * COMPRESSION_RATE_ESTIMATION_FACTOR
        return self.header_size + (<int64_t>size if 0 <= size <= INT32_MAX else INT32_MAX)

    @cython.final
    cdef int check(self, int64_t offset, int64_t timestamp, bint is_control) except -1:
        cdef int64_t least = self.h.base_offset + self.h.last_offset_delta + 1
        if not self.is_open or is_control != (self.h.attributes & CONTROL_MASK != 0) or timestamp < -1 or offset < least \
                or offset - self.h.base_offset > INT32_MAX or offset == INT64_MAX:
            refuse_record(&self.h, offset, self.is_open, timestamp, is_control)
        return 0

    @cython.final
    cdef int64_t base_for(self, int64_t timestamp) noexcept:
        return timestamp if self.h.record_count == 0 and not self.has_horizon else self.h.base_timestamp

    # Returns: the address for the next record, with room for a body of that size and its length field.
    @cython.final
    cdef inline uint8_t* reserve(self, int64_t size) except NULL:
        if size > min(self.buffer.block.capacity, INT32_MAX) - MAX_VARINT_SIZE - self.used:
            self.grow(size)
        return self.buffer.block.data + self.used

    # Takes another buffer, rather than realloc: one from the memory cache has its pages mapped already.
    @cython.final
    cdef int grow(self, int64_t size) except -1:
        if size > INT32_MAX - MAX_VARINT_SIZE - self.used:
            raise ValueError(f"a batch has at most {INT32_MAX} bytes: {self.used} are used, {size} do not fit")
        cdef ColumnBuffer longer = new_buffer(max(self.used + MAX_VARINT_SIZE + size, 2 * self.buffer.block.capacity))
        copy_content(longer, self.buffer, self.used)
        self.buffer = longer
        return 0

    def append(self, Record record=None, /, *, timestamp_ms=None, key=None, value=None, headers=(), offset=None):
        """Append one record, given as a Record or as its fields, and return self.

        Args: offset: None for the Record's own, or for the next one if it has none (-1); key, value: bytes, any buffer,
            or None for null; headers: (str, bytes or None) pairs; surrogate escapes in a key are written as the bytes
            that they stand for.
        Raises: ValueError, and nothing is appended, if the batch is closed, the offset does not rise or is more than
            2^31 - 1 above the base offset, the timestamp is below -1, the record and the batch are not both control or
            both not, magic 0 or 1 is given headers, a header key has other lone surrogates, or the batch would exceed
            2^31 - 1 bytes. TypeError for fields of other types.
        """
        self.append_any(record, timestamp_ms, key, value, headers, offset)
        return self

    @cython.final
    cdef int append_any(self, Record record, object timestamp_ms, object key, object value, object headers,
                        object offset) except -1:
        cdef RecordFields r
        cdef int64_t timestamp
        cdef bytes key_bytes, value_bytes
        cdef list flat
        cdef bint is_control = False
        if record is not None:
            require_record_alone(timestamp_ms, key, value, headers)
            key, value, headers = record.key, record.value, record.headers
            timestamp, is_control = record.timestamp_ms, record.is_control
            offset = record.offset if offset is None and record.offset != -1 else offset
        else:
            timestamp = given_timestamp(timestamp_ms, "append")
        key_bytes, value_bytes = as_bytes(key, "key"), as_bytes(value, "value")
        flat = None if is_empty_tuple(headers) else flat_headers(headers)
        if flat and self.h.magic != MAGIC_V2:
            raise ValueError(f"a record of magic {self.h.magic} can't have headers")
        set_fields(&r, key_bytes, value_bytes, flat)
        return self.add(&r, flat, self.next_or(offset), timestamp, is_control)

    @cython.final
    cdef int64_t next_or(self, object offset) except? -1:
        return self.h.base_offset + self.h.last_offset_delta + 1 if offset is None \
            else ranged("offset", offset, INT64_MIN, INT64_MAX)

    # No Python code of the caller runs from here on, so the checked state cannot change.
    @cython.final
    cdef int add(self, RecordFields* r, list flat, int64_t offset, int64_t timestamp, bint is_control) except -1:
        self.check(offset, timestamp, is_control)
        if self.h.magic == MAGIC_V2:
            return self.append_v2_record(r, offset, timestamp, flat)
        return self.append_message(r, offset, timestamp)

    # Requires: check() did not raise.
    @cython.final
    cdef inline int append_v2_record(self, RecordFields* r, int64_t offset, int64_t timestamp, list flat) except -1:
        cdef int64_t size
        cdef uint8_t* at
        cdef uint8_t* end
        r.timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>self.base_for(timestamp))
        r.offset_delta = offset - self.h.base_offset
        size = body_size(r)
        at = self.reserve(size)
        end = put_record(at, size, r)
        if flat is not None:
            end = put_flat_headers(end, flat)
        self.note(end - at, offset, timestamp, r.key_size)
        self.prefetch_next_value(r)
        return 0

    # Values that were allocated in sequence are often adjacent. If this one follows the last in memory, prefetch the
    # one after the next.
    @cython.final
    cdef void prefetch_next_value(self, const RecordFields* r) noexcept:
        cdef int64_t step = r.value - self.last_value
        self.last_value = r.value
        if LEAST_PREFETCHED_SIZE <= r.value_size <= step <= MOST_PREFETCHED_SIZE:
            ks_prefetch_all(r.value + 2 * step - CACHE_LINE, r.value_size + CACHE_LINE)

    # Requires: check() did not raise. Inside a V1 wrapper, offsets are relative to the base offset.
    @cython.final
    cdef int append_message(self, const RecordFields* r, int64_t offset, int64_t timestamp) except -1:
        cdef Header h = self.h
        h.attributes = self.h.attributes & TIMESTAMP_TYPE_MASK
        h.last_offset_delta = <int32_t>(offset - self.h.base_offset)
        if self.h.magic == MAGIC_V1 and self.h.attributes & CODEC_MASK:
            h.base_offset = 0
        if h.magic == MAGIC_V0:
            timestamp = -1
        elif h.attributes:
            timestamp = self.log_append_time_ms
        h.max_timestamp = timestamp
        put_entry(self.reserve(size_of_entry(h.magic, r)), &h, r)
        self.note(h.size, offset, timestamp, r.key_size)
        return 0

    # Counts the record that was written at the end of the buffer.
    @cython.final
    cdef void note(self, int64_t size, int64_t offset, int64_t timestamp, int64_t key_size) noexcept:
        self.used += size
        self.records_size += size
        note_known(&self.known, timestamp, key_size)
        if self.h.record_count == 0:
            self.h.base_timestamp = self.base_for(timestamp)
        self.h.record_count += 1
        self.h.last_offset_delta = <int32_t>(offset - self.h.base_offset)
        if timestamp > self.h.max_timestamp:
            self.h.max_timestamp = timestamp
            self.offset_of_max = offset

    def record_size(self, Record record=None, /, *, timestamp_ms=None, key=None, value=None, headers=()):
        """Return the size in bytes that append would add for the same arguments, at the next offset."""
        cdef RecordFields r
        cdef int64_t timestamp
        cdef bytes key_bytes, value_bytes
        if record is not None:
            require_record_alone(timestamp_ms, key, value, headers)
            timestamp_ms, key, value, headers = record.timestamp_ms, record.key, record.value, record.headers
        timestamp = given_timestamp(timestamp_ms, "record_size")
        key_bytes, value_bytes = as_bytes(key, "key"), as_bytes(value, "value")
        set_fields(&r, key_bytes, value_bytes, flat_headers(headers))
        if self.h.magic != MAGIC_V2:
            return size_of_entry(self.h.magic, &r)
        r.timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>self.base_for(timestamp))
        r.offset_delta = <int64_t>self.h.last_offset_delta + 1
        return sized_size(body_size(&r))

    def has_room_for(self, Record record=None, /, *, timestamp_ms=None, key=None, value=None, headers=()):
        """Return whether one more record fits the write limit, uncompressed; the first record always does.

        Args: as for append.
        """
        cdef int64_t size = self.record_size(record, timestamp_ms=timestamp_ms, key=key, value=value, headers=headers)
        if not self.is_open or self.h.record_count == 0:
            return self.is_open
        return self.write_limit_bytes > self.estimate() and self.write_limit_bytes >= self.estimate() + size

    def set_producer_state(self, *, producer_id, producer_epoch, base_sequence, bint is_transactional):
        """Set the producer fields of the header.

        Raises: ValueError if the batch is closed: sequence numbers are assigned before it is first sent.
        """
        if self.is_handed_out:
            raise ValueError("the batch is closed: its producer state can only be rewritten by reopening it")
        set_producer(&self.h, producer_id, producer_epoch, base_sequence, is_transactional)

    def reopen_and_rewrite_producer_state(self, *, producer_id, producer_epoch, base_sequence, bint is_transactional):
        """Set the producer fields of a batch that may be closed; the next close writes a new header with a new CRC.

        Records are not compressed again. MemoryRecords that were built before keep their bytes.
        Raises: ValueError if the batch was aborted.
        """
        cdef ColumnBuffer copy
        if self.was_dropped:
            raise ValueError("the batch was aborted: it can't be reopened")
        set_producer(&self.h, producer_id, producer_epoch, base_sequence, is_transactional)
        self._built = None
        if self.is_handed_out:
            if is_shared(<PyObject*>self.buffer):
                copy = new_buffer(self.used)
                copy_content(copy, self.buffer, self.used)
                self.buffer = copy
            self.buffer.is_read_only = self.is_handed_out = False
            self.buffer.sealed.size = 0

    def end_appends(self, compress):
        """Close the batch for appends; if it has a codec, set its payload to compress(codec id, records, level)."""
        cdef const uint8_t[::1] payload
        cdef int64_t used = self.used
        if not self.is_open:
            return
        if self.h.attributes & CODEC_MASK and self.h.record_count:
            self.buffer.size = self.used
            records = memoryview(self.buffer)[self.header_size:]
            payload = compress(self.h.attributes & CODEC_MASK, records, self.level)
            if not self.is_open or self.used != used:
                raise ValueError("the batch was used while its records were compressed")
            if payload.shape[0] > INT32_MAX - self.header_size:
                raise ValueError(f"a batch has at most {INT32_MAX} bytes, its payload alone {payload.shape[0]}")
            records = None
            self.put_payload(start_of(payload), payload.shape[0])
        self.is_open = False

    # A buffer given by the caller is reused for the payload, unless something else still refers to it.
    @cython.final
    cdef int put_payload(self, const uint8_t* payload, int64_t size) except -1:
        cdef int64_t used = self.header_size + size
        if not self.was_buffer_given or used > self.buffer.block.capacity or is_shared(<PyObject*>self.buffer):
            self.buffer = new_buffer(used)
        memcpy(self.buffer.block.data + self.header_size, payload, <size_t>size)
        self.used = used
        return 0

    def build(self):
        """Close the batch and return it as records_type: MemoryRecords for MemoryRecordsBuilder, bytes here.

        Returns the same object until the batch is reopened.
        Raises: ValueError if the batch was aborted or its producer fields contradict each other.
        Lifetime: the result owns its bytes; later calls of the builder do not change them.
        """
        if self._built is None:
            compress = self.compress_records if self.h.attributes & CODEC_MASK else None
            self._built = records_of(self.records_type, self.sealed(compress))
        return self._built

    def finish(self, compress):
        """Close the batch, write header and CRC, and return it as a read-only buffer, empty if it has no record.

        Raises: ValueError if the batch was aborted or its producer fields contradict each other.
        Threads: not safe; the GIL is released for 64 KiB and more.  Cost: O(bytes) for the CRC.
        """
        return self.sealed(compress)

    @cython.final
    cdef ColumnBuffer sealed(self, object compress):
        cdef Header h
        cdef ColumnBuffer batch
        if self.was_dropped or self.buffer is None:
            raise ValueError("the batch was aborted: it can't be closed")
        check_producer(&self.h)
        if self.is_open and self.h.attributes & CODEC_MASK:
            self.end_appends(compress)
        self.is_open = False
        batch = self.buffer
        if self.is_handed_out:
            return batch
        batch.size = self.used if self.h.record_count else 0
        batch.is_read_only = self.is_handed_out = True
        if self.h.record_count and self.header_size:
            h = self.h
            h.size = self.used
            h.max_timestamp = self.batch_max_timestamp()
            seal_buffer(batch, &h, &self.known)
        return batch

    @cython.final
    cdef int64_t batch_max_timestamp(self) noexcept:
        return self.log_append_time_ms if self.h.attributes & TIMESTAMP_TYPE_MASK else self.h.max_timestamp

    def abort(self):
        """Drop the records; the builder cannot be used again."""
        self.is_open = False
        self.was_dropped = True
        self.is_handed_out = False
        self.buffer = None
        self._built = None


# MemoryRecordsBuilder.append: MemoryRecordsBuilderCore.append as a C method (METH_FASTCALL), which takes fields given by name
# without Cython's parser of arguments. A call with timestamp_ms, key and value then takes 1,033 instructions, not 1,192
# (CPython 3.11, cachegrind).

cdef extern from "Python.h":
    ctypedef PyObject* (*PyCFunction)(PyObject*, PyObject*)
    ctypedef struct PyMethodDef:
        const char* ml_name
        PyCFunction ml_meth
        int ml_flags
        const char* ml_doc
    enum:
        METH_FASTCALL
        METH_KEYWORDS
    object PyDescr_NewMethod(PyTypeObject* type, PyMethodDef* method)
    Py_ssize_t name_count "PyTuple_GET_SIZE"(PyObject* names) noexcept
    PyObject* name_at "PyTuple_GET_ITEM"(PyObject* names, Py_ssize_t number) noexcept
    bint is_exact_int "PyLong_CheckExact"(PyObject* it) noexcept
    bint is_exact_bytes "PyBytes_CheckExact"(PyObject* it) noexcept
    char* first_byte "PyBytes_AS_STRING"(PyObject* it) noexcept
    Py_ssize_t byte_count "PyBytes_GET_SIZE"(PyObject* it) noexcept

# Of append_fields: an error that it returns is looked at, not raised at once.
ctypedef PyObject* (*AppendFunction)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*) noexcept

cdef str _TIMESTAMP_NAME = "timestamp_ms"
cdef str _KEY_NAME = "key"
cdef str _VALUE_NAME = "value"
cdef str _HEADERS_NAME = "headers"
cdef str _OFFSET_NAME = "offset"
cdef tuple _NO_HEADERS = ()

# The arguments of one call, borrowed.
cdef struct GivenFields:
    PyObject* timestamp_ms
    PyObject* key
    PyObject* value
    PyObject* headers
    PyObject* offset


# Returns: whether all names are known. Compares them by identity, as names in calls are interned; others are parsed.
cdef inline bint set_named(GivenFields* given, PyObject* const* values, PyObject* names) noexcept:
    cdef Py_ssize_t number
    cdef PyObject* name
    for number in range(name_count(names)):
        name = name_at(names, number)
        if name == <PyObject*>_TIMESTAMP_NAME:
            given.timestamp_ms = values[number]
        elif name == <PyObject*>_KEY_NAME:
            given.key = values[number]
        elif name == <PyObject*>_VALUE_NAME:
            given.value = values[number]
        elif name == <PyObject*>_HEADERS_NAME:
            given.headers = values[number]
        elif name == <PyObject*>_OFFSET_NAME:
            given.offset = values[number]
        else:
            return False
    return True


# Returns: whether the object is bytes or None. Lifetime: data points into the object.
cdef inline bint set_field(const uint8_t** data, int64_t* size, PyObject* it) noexcept:
    data[0] = NULL
    size[0] = -1
    if it == <PyObject*>None:
        return True
    if not is_exact_bytes(it):
        return False
    data[0] = <const uint8_t*>first_byte(it)
    size[0] = byte_count(it)
    return True


# Returns: whether the fields have the common types: an int, bytes or None, and an empty tuple of headers.
cdef inline bint set_plain(RecordFields* r, const GivenFields* given) noexcept:
    r.header_count = r.headers_size = 0
    return (is_exact_int(given.timestamp_ms) and set_field(&r.key, &r.key_size, given.key)
            and set_field(&r.value, &r.value_size, given.value) and is_empty_tuple(<object>given.headers)
            and (given.offset == <PyObject*>None or is_exact_int(given.offset)))


# append() of the builder. An int of more than 64 bits ends append_fields with an OverflowError, before anything is
# appended; to check each int first takes 7 % longer. So the call is made again, with the checks and errors of append().
cdef PyObject* append_named(PyObject* builder, PyObject* const* args, Py_ssize_t count, PyObject* names) except NULL:
    cdef PyObject* done = (<AppendFunction>append_fields)(builder, args, count, names)
    if done == NULL and PyErr_ExceptionMatches(OverflowError):
        PyErr_Clear()
        append_parsed(<MemoryRecordsBuilderCore>builder, args, count, names)
        Py_INCREF(<object>builder)
        return builder
    return done


cdef PyObject* append_fields(PyObject* builder, PyObject* const* args, Py_ssize_t count, PyObject* names) except NULL:
    cdef MemoryRecordsBuilderCore encoder = <MemoryRecordsBuilderCore>builder
    cdef RecordFields r
    cdef GivenFields given = GivenFields(<PyObject*>None, <PyObject*>None, <PyObject*>None, <PyObject*>_NO_HEADERS, <PyObject*>None)
    if count == 0 and names != NULL and set_named(&given, args, names):
        if set_plain(&r, &given):
            encoder.add(&r, None, encoder.next_or(<object>given.offset), <int64_t><object>given.timestamp_ms, False)
        else:
            encoder.append_any(None, <object>given.timestamp_ms, <object>given.key, <object>given.value,
                               <object>given.headers, <object>given.offset)
    elif count == 1 and names == NULL and type(<object>args[0]) is Record:
        encoder.append_any(<Record>args[0], None, None, None, _NO_HEADERS, None)
    else:
        append_parsed(encoder, args, count, names)
    Py_INCREF(encoder)
    return builder


cdef int append_parsed(MemoryRecordsBuilderCore encoder, PyObject* const* args, Py_ssize_t count, PyObject* names) except -1:
    cdef Py_ssize_t i
    cdef list positional = [<object>args[i] for i in range(count)]
    cdef dict named = {}
    for i in range(name_count(names) if names != NULL else 0):
        named[<object>name_at(names, i)] = <object>args[count + i]
    MemoryRecordsBuilderCore.append(encoder, *positional, **named)
    return 0


cdef bytes _append_doc = (b"append($self, record=None, /, *, timestamp_ms=None, key=None, value=None, headers=(), offset=None)\n"
                          b"--\n\n" + MemoryRecordsBuilderCore.append.__doc__.encode())
cdef PyMethodDef append_method = PyMethodDef(b"append", <PyCFunction>append_named, METH_FASTCALL | METH_KEYWORDS, _append_doc)

append_of_builder = PyDescr_NewMethod(<PyTypeObject*>MemoryRecordsBuilderCore, &append_method)
