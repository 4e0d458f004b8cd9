# Records of batches. Parses V2 records; defines Record and the iterators over the records of a batch (RecordIterator,
# also for messages of magic 0 and 1) and of a run of batches (RunIterator); holds the bytes of a run of batches
# (MemoryRecordsCore).

cdef struct RawRecord:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size
    int32_t value_size
    int32_t header_count
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers
    const uint8_t* end

cdef struct RawHeader:
    int32_t key_size
    int32_t value_size
    const uint8_t* key
    const uint8_t* value


# Requires: at[0] <= end. Returns: OK with at[0] after the header.
cdef inline Status parse_header(const uint8_t** at, const uint8_t* end, RawHeader* out, Problem* problem) noexcept nogil:
    if read_varint(at, end, &out.key_size) != OK:
        return fail(problem, BAD_VARINT, end - at[0], 0)
    if out.key_size < 0 or out.key_size > end - at[0]:
        return fail(problem, BAD_HEADER_KEY_SIZE, end - at[0], out.key_size)
    out.key = at[0]
    at[0] += out.key_size
    if read_varint(at, end, &out.value_size) != OK:
        return fail(problem, BAD_VARINT, end - at[0], 0)
    if out.value_size < -1 or out.value_size > end - at[0]:
        return fail(problem, BAD_HEADER_VALUE_SIZE, end - at[0], out.value_size)
    out.value = at[0]
    if out.value_size > 0:
        at[0] += out.value_size
    return OK


cdef Status check_headers(const uint8_t* at, RawRecord* r, Problem* problem) noexcept nogil:
    cdef RawHeader header
    cdef int32_t i
    if r.header_count < 0 or r.header_count > (r.end - at) // 2:
        return fail(problem, BAD_HEADER_COUNT, (r.end - at) // 2, r.header_count)
    for i in range(r.header_count):
        if parse_header(&at, r.end, &header, problem) != OK:
            return problem.status
    if at != r.end:
        return fail(problem, RECORD_SIZE_MISMATCH, 0, r.end - at)
    return OK


# Parses the length, attributes and deltas of a record; sets out.end to the end of the record. Requires: at <= end.
cdef inline Status parse_prefix(const uint8_t** at, const uint8_t* end, RawRecord* out, Problem* problem) noexcept nogil:
    cdef int32_t size
    if read_varint(at, end, &size) != OK:
        return fail(problem, BAD_VARINT, end - at[0], 0)
    if size < 1 or size > end - at[0]:
        return fail(problem, BAD_RECORD_SIZE, end - at[0], size)
    out.end = at[0] + size
    at[0] += 1
    if read_varlong(at, out.end, &out.timestamp_delta) != OK or read_varint(at, out.end, &out.offset_delta) != OK:
        return fail(problem, BAD_VARINT, out.end - at[0], 0)
    return OK


# Requires: at <= end. Returns: OK if every field of `out` lies inside the record and the record inside [at, end).
cdef inline Status parse_record(const uint8_t* at, const uint8_t* end, RawRecord* out, Problem* problem) noexcept nogil:
    if parse_prefix(&at, end, out, problem) != OK:
        return problem.status
    if read_varint(&at, out.end, &out.key_size) != OK:
        return fail(problem, BAD_VARINT, out.end - at, 0)
    if out.key_size < -1 or out.key_size > out.end - at:
        return fail(problem, BAD_KEY_SIZE, out.end - at, out.key_size)
    out.key = at
    if out.key_size > 0:
        at += out.key_size
    if read_varint(&at, out.end, &out.value_size) != OK:
        return fail(problem, BAD_VARINT, out.end - at, 0)
    if out.value_size < -1 or out.value_size > out.end - at:
        return fail(problem, BAD_VALUE_SIZE, out.end - at, out.value_size)
    out.value = at
    if out.value_size > 0:
        at += out.value_size
    if read_varint(&at, out.end, &out.header_count) != OK:
        return fail(problem, BAD_VARINT, out.end - at, 0)
    out.headers = at
    if out.header_count == 0 and at == out.end:
        return OK
    return check_headers(at, out, problem)


# Requires: at < end. Returns: whether a whole record may start at `at`: its fields are consistent, its attributes 0.
cdef inline bint may_be_record(const uint8_t* at, const uint8_t* end, RawRecord* out) noexcept nogil:
    cdef Problem problem
    cdef const uint8_t* attributes = at
    while attributes < end and attributes[0] & 0x80:
        attributes += 1
    return attributes + 1 < end and attributes[1] == 0 and parse_record(at, end, out, &problem) == OK


# Requires: start <= end <= size. ends[i]: whether a batch that holds [start, end) may end at i; on return also whether
# a row of records leads from i to such a place. Returns: the end of a record that starts before `start` and has all of
# [start, a place in ends) in one field, -1 if there is none; with messages, also of a value of magic 0 or 1.
cdef int64_t end_of_record_around(const uint8_t* p, int64_t size, int64_t start, int64_t end, bint messages,
                                  uint8_t* ends) noexcept nogil:
    cdef RawRecord r
    cdef int64_t at, record_end
    if messages:
        for at in range(start, 3, -1):
            record_end = at + <int32_t>ks_get32(p + at - 4)
            if end <= record_end <= size and ends[record_end]:
                return record_end
    for at in range(size - 1, end - 1, -1):
        if not ends[at] and may_be_record(p + at, p + size, &r) and ends[r.end - p]:
            ends[at] = 1
    for at in range(start - 1, -1, -1):
        if not may_be_record(p + at, p + size, &r):
            continue
        record_end = r.end - p
        if record_end >= end and ends[record_end] and (
                p + start >= r.headers or p + start >= r.value and r.value + r.value_size >= p + end
                or p + start >= r.key and r.key + r.key_size >= p + end):
            return record_end
    return -1


def find_record_around(const uint8_t[::1] buffer, *, int64_t start, int64_t end, ends, bint messages=False):
    """Return the end of a record that may hold the bytes [start, end) of a damaged range in its key, value or headers,
    -1 if there is none.

    Such a record has consistent fields, starts before `start`, and ends in `ends`, or where further records lead to
    one of those places.
    Args: ends: positions from `end` on at which the records of the batch around it may end. messages: look also for the
        value of a message of magic 0 or 1 that ends in `ends`.
    Threads: the GIL is released.  Cost: O(bytes).
    """
    cdef int64_t size = buffer.shape[0]
    cdef int64_t position, found
    cdef const uint8_t* data = start_of(buffer)
    if not 0 <= start < end <= size:
        raise ValueError(f"expected 0 <= start < end <= {size}, got {start} and {end}")
    marks = bytearray(size + 1)
    cdef uint8_t[::1] view = marks
    for position in ends:
        if not end <= position <= size:
            raise ValueError(f"expected an end from {end} to {size}, got {position}")
        view[position] = 1
    with nogil:
        found = end_of_record_around(data, size, start, end, messages, &view[0])
    return found


def find_last_record(const uint8_t[::1] buffer, int64_t before):
    """Return the offset delta of the shortest record that starts before a position and ends where these bytes end, None
    if there is none.

    Threads: the GIL is released.  Cost: O(bytes).
    """
    cdef RawRecord r
    cdef int64_t at, size = buffer.shape[0]
    cdef const uint8_t* data = start_of(buffer)
    if not 0 <= before <= size:
        raise ValueError(f"before must be from 0 to {size}, got {before}")
    with nogil:
        at = before - 1
        while at >= 0 and not (may_be_record(data + at, data + size, &r) and r.end == data + size):
            at -= 1
    return None if at < 0 else r.offset_delta


# Requires: record and base offset of the problem are set. Returns: OK if the objects for the record's headers fit the
# limit in bytes; LEAST_HEADER_COUNT headers always do.
cdef inline Status check_header_count(const RawRecord* r, int64_t limit, int64_t offset, Problem* problem) noexcept nogil:
    if r.header_count <= LEAST_HEADER_COUNT or r.header_count <= limit // HEADER_OBJECT_SIZE:
        return OK
    problem.offset = offset
    return fail(problem, TOO_MANY_HEADERS, max(limit, LEAST_HEADER_COUNT * HEADER_OBJECT_SIZE), r.header_count)


# Offsets of a batch rise and stay inside it. Returns: OK with the least valid next delta in `least`.
cdef inline Status check_offset_delta(const Header* h, int32_t delta, int64_t* least, Problem* problem) noexcept nogil:
    if delta < least[0] or delta > <int64_t>h.last_offset_delta + h.excess:
        return fail(problem, BAD_OFFSET_DELTA, least[0], delta)
    least[0] = <int64_t>delta + 1
    return OK


cdef inline int64_t timestamp_of(const Header* h, int64_t delta) noexcept nogil:
    if h.attributes & TIMESTAMP_TYPE_MASK:
        return h.max_timestamp
    return <int64_t>(<uint64_t>h.base_timestamp + <uint64_t>delta)


cdef inline int32_t sequence_of(const Header* h, int32_t delta) noexcept nogil:
    return -1 if h.base_sequence < 0 else <int32_t>incremented_sequence(h.base_sequence, delta)


cdef bytes bytes_or_none(const uint8_t* data, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char*>data, size)


cdef tuple headers_of(const RawRecord* r):
    cdef RawHeader header
    cdef Problem problem
    cdef const uint8_t* at = r.headers
    cdef list out = []
    cdef int32_t i
    for i in range(r.header_count):
        if parse_header(&at, r.end, &header, &problem) != OK:
            raise error_of(&problem, None)
        key = PyUnicode_DecodeUTF8(<const char*>header.key, header.key_size, "surrogateescape")
        out.append((key, bytes_or_none(header.value, header.value_size)))
    return tuple(out)


@cython.final
@cython.freelist(256)
cdef class Record:
    """Record(*, offset=-1, timestamp_ms=-1, key=None, value=None, headers=(), timestamp_type=TimestampType.CREATE_TIME,\
 topic_partition=None, sequence=-1, is_control=False)\n--\n
    One record: offset, timestamp_ms, timestamp_type, key, value, headers, topic_partition, sequence, is_control.

    key and value are bytes, None for null; an empty one is b"". A record that was read with a deserializer has its
    results; Record[K, V] names their types. headers is a tuple of (str, bytes or None); a key that is not valid UTF-8
    keeps its bytes through surrogateescape. sequence is -1 if the producer was not idempotent. An append assigns an
    offset of -1; WritableLog.append gives a record with neither offset nor timestamp the current time. timestamp_ms may
    be given as an aware datetime. Compares by all fields; hashable; picklable; copy.replace() makes a changed copy.
    Raises: TypeError for a key or value that is neither a buffer nor None, ValueError for a datetime without a zone.
    Threads: immutable, safe.  Source: Kafka DefaultRecord, ConsumerRecord.
    """

    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef readonly object timestamp_type
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers
    cdef readonly object topic_partition
    cdef readonly int32_t sequence
    cdef readonly bint is_control

    def __init__(self, *, offset=-1, timestamp_ms=-1, key=None, value=None, headers=(),
                 timestamp_type=TimestampType.CREATE_TIME, topic_partition=None, sequence=-1, bint is_control=False):
        self.offset = ranged("offset", offset, INT64_MIN, INT64_MAX)
        if type(timestamp_ms) is not int:
            timestamp_ms = time_ms("timestamp_ms", timestamp_ms, rounds_up=False)
        if key is not None and not PyObject_CheckBuffer(key):
            refuse_content("key", key)
        if value is not None and not PyObject_CheckBuffer(value):
            refuse_content("value", value)
        self.timestamp_ms = ranged("timestamp_ms", timestamp_ms, INT64_MIN, INT64_MAX)
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = tuple(headers)
        self.topic_partition = topic_partition
        self.sequence = <int32_t>ranged("sequence", sequence, -1, INT32_MAX)
        self.is_control = is_control

    @property
    def topic(self):
        """The topic that the record was read from, None if it is unknown."""
        return None if self.topic_partition is None else self.topic_partition[0]

    @property
    def partition(self):
        """The number of the partition that the record was read from, None if it is unknown."""
        return None if self.topic_partition is None else self.topic_partition[1]

    @property
    def timestamp(self):
        """timestamp_ms as a datetime in UTC; None without a timestamp, and for one that no datetime can hold."""
        return None if self.timestamp_ms == -1 else _datetime_of(self.timestamp_ms)

    def __replace__(self, /, **changes):
        for name in changes:
            if name not in _FIELDS:
                raise TypeError(f"a Record has no field {name!r}; it has {', '.join(_FIELDS)}")
        given = dict(zip(_FIELDS, fields_of(self)))
        kept = {name: given.pop(name) for name in ("key", "value") if name not in changes}
        cdef Record record = Record(**(given | changes))
        record.key, record.value = kept.get("key", record.key), kept.get("value", record.value)
        return record

    @classmethod
    def __class_getitem__(cls, item):
        return _GenericAlias(cls, item)

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return fields_of(self) == fields_of(other)

    def __hash__(self):
        return hash(fields_of(self))

    def __reduce__(self):
        return _record_of, fields_of(self)

    def __repr__(self):
        return (f"Record(offset={self.offset}, timestamp_ms={self.timestamp_ms}, timestamp_type="
                f"{self.timestamp_type.label}, key={self.key!r}, value={self.value!r}, headers={self.headers!r})")


cdef tuple fields_of(Record r):
    return (r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value, r.headers, r.topic_partition, r.sequence,
            r.is_control)


_FIELDS = ("offset", "timestamp_ms", "timestamp_type", "key", "value", "headers", "topic_partition", "sequence",
           "is_control")


cdef int refuse_content(str name, content) except -1:
    shown = repr(content)
    shown = shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}..."
    advice = ": encode it first, or send it with a serializer" if isinstance(content, str) else ""
    raise TypeError(f"{name} must be bytes or None, got {type(content).__name__} {shown}{advice}")


def with_content(Record record not None, key, value):
    """Return a copy of a record with another key and value, which may be of any type."""
    cdef Record made = Record.__new__(Record)
    made.offset = record.offset
    made.timestamp_ms = record.timestamp_ms
    made.timestamp_type = record.timestamp_type
    made.key = key
    made.value = value
    made.headers = record.headers
    made.topic_partition = record.topic_partition
    made.sequence = record.sequence
    made.is_control = record.is_control
    return made


def _record_of(offset, timestamp_ms, timestamp_type, key, value, headers, topic_partition, sequence, is_control):
    cdef Record record = Record(offset=offset, timestamp_ms=timestamp_ms, timestamp_type=timestamp_type,
                                headers=headers, topic_partition=topic_partition, sequence=sequence,
                                is_control=is_control)
    record.key = key
    record.value = value
    return record


cdef extern from *:
    """
    #include <structmember.h>
    #define KS_MEMBER(record, field) \\
        {#field, T_OBJECT_EX, (Py_ssize_t)((char *)&(record)->field - (char *)(record)), READONLY, NULL}
    #define KS_RECORD_MEMBERS(record, out) do { \\
        PyMemberDef members[] = {KS_MEMBER(record, timestamp_type), KS_MEMBER(record, key), KS_MEMBER(record, value), \\
                                 KS_MEMBER(record, headers), KS_MEMBER(record, topic_partition)}; \\
        memcpy(out, members, sizeof members); \\
    } while (0)
    """
    ctypedef struct PyMemberDef:
        const char* name
    ctypedef struct PyTypeObject:
        PyObject* tp_dict
        void* tp_init
        object (*tp_new)(PyTypeObject* type, object args, PyObject* keywords)
    bint PyType_Check(object it)
    object PyDescr_NewMember(PyTypeObject* type, PyMemberDef* member)
    void PyType_Modified(PyTypeObject* type)
    void find_members "KS_RECORD_MEMBERS"(Record record, PyMemberDef* out)

cdef enum:
    MEMBER_COUNT = 5
    MOST_SHOWN = 40

cdef PyMemberDef record_members[MEMBER_COUNT]


# Replaces the properties that Cython makes for object fields by member descriptors, which the interpreter reads without
# a call, and puts the properties back unless a Record then reads as before. Cython can't make such members, and tp_dict
# is not meant to be changed after PyType_Ready, so this relies on CPython; tests/core/test_record_members.py shows that
# it works on each supported version. A loop over the records of a batch that reads key and value then takes 1,036
# instructions per record, not 1,348 (CPython 3.11, cachegrind).
cdef int make_members() except -1:
    cdef PyTypeObject* record_type = <PyTypeObject*>Record
    cdef PyMemberDef* member = record_members
    cdef Record record = Record(offset=0, timestamp_ms=0, key=b"key", value=b"value", headers=(("h", b""),),
                                timestamp_type=TimestampType.LOG_APPEND_TIME, topic_partition=("topic", 0))
    cdef dict members = {}, properties = {}
    find_members(record, record_members)
    while member < record_members + MEMBER_COUNT:
        name = member.name.decode()
        members[name] = PyDescr_NewMember(record_type, member)
        properties[name] = (<dict>record_type.tp_dict)[name]
        member += 1
    expected = [getattr(record, name) for name in members]
    (<dict>record_type.tp_dict).update(members)
    PyType_Modified(record_type)
    if [getattr(record, name, NotImplemented) for name in members] != expected:
        (<dict>record_type.tp_dict).update(properties)
        PyType_Modified(record_type)
    return 0


make_members()

_CREATE_TIME = TimestampType.CREATE_TIME
_LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
_TIMESTAMP_TYPES = (TimestampType.NO_TIMESTAMP_TYPE, _CREATE_TIME, _LOG_APPEND_TIME)


cdef object decompressed(decompress, const Header* h, payload, int64_t limit, int64_t position, path):
    try:
        if h.magic < MAGIC_V2:
            return decompress(h.attributes & CODEC_MASK, payload, limit, magic=h.magic)
        return decompress(h.attributes & CODEC_MASK, payload, limit)
    except DecompressionError as error:
        place = place_of(position, h.base_offset, path)
        raise DecompressionError(f"{error.reason} in {place}", path=path, base_offset=h.base_offset, position=position,
                                 reason=error.reason, expected=error.expected, found=error.found) from error


@cython.final
cdef class RecordIterator:
    """Iterator over the Records of one batch; made by iterate_records.  Threads: not safe."""

    cdef Header h
    cdef Problem problem
    cdef MessageSet messages
    cdef const uint8_t[::1] payload
    cdef Py_ssize_t at
    cdef int32_t done
    cdef int64_t least_delta        # for magic 0 and 1: the least valid offset
    cdef int64_t ahead              # distance in bytes from a record to the bytes to prefetch with it; 0: none
    cdef int64_t max_decompressed_bytes
    cdef int64_t taken_bytes        # size of the objects that take() is about to return
    cdef bint verify_crc
    cdef bint checks_offsets
    cdef bint makes_headers
    cdef bint allows_low_last_offset
    cdef object decompress
    cdef object path
    cdef object topic_partition
    cdef object timestamp_type

    def __iter__(self):
        return self

    @property
    def incomplete_bytes(self):
        """Bytes of an incomplete message at the end of a wrapper, which is ignored as in Kafka; else 0."""
        return self.payload.shape[0] - self.messages.size if is_wrapper(&self.h) else 0

    @property
    def first_offset(self):
        """The offset of the batch's first record; for magic 2 the base offset, even if that record was removed."""
        if not is_wrapper(&self.h):
            return self.h.base_offset
        return self.messages.offset_base + <int64_t>ks_get64(start_of(self.payload))

    def __next__(self):
        cdef Record record = self.next_record()
        if record is None:
            raise StopIteration
        return record

    # Returns: None after the last record.
    cdef Record next_record(self):
        cdef RawRecord raw
        if self.h.magic < MAGIC_V2:
            return self.next_message(start_of(self.payload))
        return self.make(&raw) if self.next_raw(&raw) else None

    # Requires: magic 2. Returns: whether there is another record.
    cdef inline bint next_raw(self, RawRecord* raw) except -1:
        cdef const uint8_t* start = start_of(self.payload)
        cdef const uint8_t* end = start + self.payload.shape[0]
        cdef Status status
        if self.done == self.h.record_count:
            return False
        self.problem.record = self.done
        status = parse_record(start + self.at, end, raw, &self.problem)
        if status == OK:
            status = check_offset_delta(&self.h, raw.offset_delta, &self.least_delta, &self.problem)
        if status == OK and self.done + 1 == self.h.record_count and raw.end != end:
            status = fail(&self.problem, TRAILING_BYTES, 0, end - raw.end)
        if status == OK and raw.header_count and self.makes_headers:
            status = check_header_count(raw, self.max_decompressed_bytes, self.h.base_offset + raw.offset_delta, &self.problem)
        if status != OK:
            raise error_of(&self.problem, self.path)
        if self.ahead:
            ks_prefetch_all(start + self.at + self.ahead, raw.end - start - self.at)
        self.done += 1
        self.at = raw.end - start
        return True

    cdef Record make(self, const RawRecord* raw):
        cdef Record record = Record.__new__(Record)
        self.taken_bytes += RECORD_OBJECT_SIZE + (raw.end - raw.key) + HEADER_OBJECT_SIZE * <int64_t>raw.header_count
        record.offset = self.h.base_offset + raw.offset_delta
        record.timestamp_ms = timestamp_of(&self.h, raw.timestamp_delta)
        record.timestamp_type = self.timestamp_type
        record.key = bytes_or_none(raw.key, raw.key_size)
        record.value = bytes_or_none(raw.value, raw.value_size)
        record.headers = headers_of(raw) if raw.header_count and self.makes_headers else ()
        record.topic_partition = self.topic_partition
        record.sequence = sequence_of(&self.h, raw.offset_delta)
        record.is_control = self.h.attributes & CONTROL_MASK != 0
        return record

    cdef Record next_message(self, const uint8_t* start):
        cdef Message m
        cdef Status status
        cdef int64_t offset
        if self.at == self.messages.size:
            return None
        self.problem.record = self.done if is_wrapper(&self.h) else -1
        status = check_message_frame(start + self.at, self.messages.size - self.at, &self.problem)
        if status == OK and self.verify_crc and is_wrapper(&self.h):
            status = check_legacy_crc(start + self.at, entry_size_at(start + self.at), &self.problem)
        if status == OK:
            status = parse_message(start + self.at, &m, &self.problem)
        offset = offset_of_message(&self.messages, &m)
        if status == OK and self.checks_offsets:
            status = check_message_offset(&self.messages, offset, self.done == 0, &self.least_delta, &self.problem)
        if status != OK:
            raise error_of(&self.problem, self.path)
        self.done += 1
        self.at += <Py_ssize_t>m.size
        self.taken_bytes += RECORD_OBJECT_SIZE + m.size
        cdef Record record = Record.__new__(Record)
        record.offset = offset
        record.timestamp_ms = message_timestamp(&self.h, &m)
        record.timestamp_type = _TIMESTAMP_TYPES[1 + message_timestamp_type(&self.h, &m)]
        record.key = bytes_or_none(m.key, m.key_size)
        record.value = bytes_or_none(m.value, m.value_size)
        record.headers = ()
        record.topic_partition = self.topic_partition
        record.sequence = -1
        return record

    # Requires: the whole message at p, its frame and offset checked. Sets: payload and messages, for an OK result.
    cdef Status open_message(self, const uint8_t* p, const uint8_t[::1] buffer) except *:
        cdef Message m
        cdef Status status = check_counts(&self.h, -1, &self.problem)
        if status == OK:
            status = parse_message(p, &m, &self.problem)
        if not is_wrapper(&self.h):
            place_plain_message(&self.h, &self.messages)
            self.payload = buffer
            return status
        if status == OK and m.value_size < 0:
            status = fail(&self.problem, NULL_WRAPPER, 0, -1)
        if status == OK:
            body = memoryview(buffer)[m.value - p:m.value - p + m.value_size]
            self.payload = decompressed(self.decompress, &self.h, body, self.max_decompressed_bytes, self.problem.position,
                                        self.path)
            status = find_messages(start_of(self.payload), self.payload.shape[0], self.max_decompressed_bytes,
                                   &self.messages, &self.problem)
        if status == OK:
            status = place_messages(&self.h, &self.messages, &self.problem)
        return status

    # Starts on a batch, which must fill the buffer. The caller has checked its CRC if it wants that checked.
    cdef int open(self, const uint8_t[::1] buffer, int64_t position) except -1:
        cdef Header* h = &self.h
        cdef const uint8_t* start = start_of(buffer)
        start_problem(&self.problem, position)
        if check_header(start, buffer.shape[0], INT32_MAX, &self.problem) != OK:
            raise error_of(&self.problem, self.path)
        load_header(start, h)
        self.problem.base_offset = h.base_offset
        self.timestamp_type = _TIMESTAMP_TYPES[1 + timestamp_type_of(h)]
        self.at = self.done = self.ahead = self.messages.size = 0
        if h.size != buffer.shape[0]:
            fail(&self.problem, BATCH_INCOMPLETE, h.size, buffer.shape[0])
        elif check_offsets(h, &self.problem) == OK:
            if self.allows_low_last_offset:
                allow_low_last_offset(h)
            if h.magic == MAGIC_V2:
                self.open_records(buffer)
            else:
                self.problem.status = self.open_message(start, buffer)
        if self.problem.status != OK:
            raise error_of(&self.problem, self.path)
        return 0

    def find(self, int64_t offset):
        """Return the Record at an offset of a batch of magic 2, None if none of those that are left has it.

        Raises: as iteration does; ValueError for another magic.  Cost: the records before it are checked, and no object
            is made of them.
        """
        cdef RawRecord raw
        if self.h.magic != MAGIC_V2:
            raise ValueError(f"magic must be {MAGIC_V2}, got {self.h.magic}")
        while self.next_raw(&raw):
            if self.h.base_offset + raw.offset_delta >= offset:
                return self.make(&raw) if self.h.base_offset + raw.offset_delta == offset else None
        return None

    def take(self, *, Py_ssize_t most_records, int64_t most_bytes):
        """Return the next Records as a list, empty after the last one.

        Args: most_records: the maximum number of Records; most_bytes: stop as soon as the Python objects of their keys,
            values and headers take this many bytes.
        Raises: as iteration does; the Records before the error are lost.
        """
        cdef list found = []
        cdef Record record
        self.taken_bytes = 0
        while len(found) < most_records and self.taken_bytes < most_bytes:
            record = self.next_record()
            if record is None:
                break
            found.append(record)
        return found

    cdef void close(self) noexcept:
        self.h.record_count = self.done = 0
        self.messages.size = self.at = 0

    # Requires: a whole batch of magic 2. Sets: the payload, or the problem.
    cdef int open_records(self, const uint8_t[::1] buffer) except -1:
        cdef const uint8_t[::1] payload = buffer[BATCH_HEADER_SIZE:]
        cdef bint is_compressed = self.h.attributes & CODEC_MASK != 0
        self.least_delta = 0
        if check_counts(&self.h, -1 if is_compressed else payload.shape[0], &self.problem) != OK:
            return 0
        if is_compressed and (self.h.record_count or payload.shape[0]):
            payload = decompressed(self.decompress, &self.h, memoryview(buffer)[BATCH_HEADER_SIZE:],
                                   self.max_decompressed_bytes, self.problem.position, self.path)
            check_counts(&self.h, payload.shape[0], &self.problem)
        self.payload = payload
        return 0


# Returns: an iterator with the defaults of iterate_records, to be opened on a batch.
cdef RecordIterator new_iterator(decompress, int64_t max_decompressed_bytes, path, topic_partition):
    cdef RecordIterator it = RecordIterator.__new__(RecordIterator)
    it.decompress, it.max_decompressed_bytes = decompress, max_decompressed_bytes
    it.path, it.topic_partition = path, topic_partition
    it.verify_crc = it.checks_offsets = it.makes_headers = True
    return it


def iterate_records(const uint8_t[::1] buffer, *, int64_t position, decompress, int64_t max_decompressed_bytes,
                    path=None, topic_partition=None, bint verify_crc=True, bint checks_offsets=True,
                    int64_t least_offset=0, bint headers=True, bint allows_low_last_offset=False):
    """Return an iterator over the Records of one batch, which must fill the buffer exactly.

    The batch's CRC is not checked (see check_crc). If the batch is compressed, decompress(codec, payload, limit) is
    called once, with magic=magic in addition for a wrapper of magic 0 or 1.
    Args: headers: if False, headers are checked but no objects are made, and the Records have none.
        max_decompressed_bytes: the limit of the payload, and of the objects for one record's headers, in bytes.
        allows_low_last_offset: accept a last offset below those of the records, as Kafka's classes do.
        For magic 0 and 1 only: verify_crc: check the CRC of each message inside a wrapper (Kafka's iteration does not);
        checks_offsets: reject messages whose offsets do not rise, exceed the wrapper's or lie below least_offset.
    Raises: CorruptRecordError, InvalidRecordError, DecompressionError, MemoryLimitError, UnsupportedMagicError,
        UnsupportedCompressionTypeError; some of them only while iterating. If bytes follow the last record, the error
        takes that record's place.
    Lifetime: holds the buffer; the Records hold copies.  Threads: not safe.
    """
    cdef RecordIterator it = new_iterator(decompress, max_decompressed_bytes, path, topic_partition)
    it.verify_crc, it.checks_offsets, it.least_delta = verify_crc, checks_offsets, least_offset
    it.makes_headers, it.allows_low_last_offset = headers, allows_low_last_offset
    it.open(buffer, position)
    return it


# A run of batches of any magic in memory: its bytes, and iteration over its Records without an object for a batch.

_DEFAULT_CONFIG = LogConfig()


cdef inline object read_only_bytes(object buffer):
    cdef object view = memoryview(buffer)
    cdef const Py_buffer* raw = PyMemoryView_GET_BUFFER(view)
    if raw.readonly and raw.ndim == 1 and view.format == "B":
        return view
    return view.cast("B").toreadonly()


cdef class MemoryRecordsCore:
    """MemoryRecordsCore(buffer, *, position=0, path=None, topic_partition=None, config=...)\n--\n
    The bytes of a run of batches and where they come from: the base class of MemoryRecords.

    Args: those of MemoryRecords; config is stored unchanged.
    """

    cdef object _held            # a ColumnBuffer; replaced by a memoryview at the first use of `buffer`
    cdef bytes whole             # what was given, if it is bytes
    cdef readonly int64_t _position
    cdef readonly object _path
    cdef readonly object _topic_partition
    cdef readonly object _config

    def __init__(self, buffer, *, int64_t position=0, path=None, topic_partition=None, config=None):
        self._held = buffer if type(buffer) is ColumnBuffer else read_only_bytes(buffer)
        self.whole = buffer if type(buffer) is bytes else None
        self._position = position
        self._path = path
        self._topic_partition = topic_partition
        self._config = _DEFAULT_CONFIG if config is None else config

    @property
    def size_in_bytes(self):
        """The size of all bytes, including an incomplete last batch."""
        return len(self._held)

    @property
    def buffer(self):
        """All bytes as a read-only view, not a copy."""
        if type(self._held) is ColumnBuffer:
            self._held = read_only_bytes(self._held)
        return self._held

    def __len__(self):
        return len(self._held)


# kind(buffer), without a Python call if kind is MemoryRecordsCore or a subclass with the same __init__.
cdef object records_of(object kind, ColumnBuffer buffer):
    cdef PyTypeObject* records_type = <PyTypeObject*>kind
    cdef MemoryRecordsCore records
    if not PyType_Check(kind) or records_type.tp_init != (<PyTypeObject*>MemoryRecordsCore).tp_init:
        return kind(buffer)
    records = records_type.tp_new(records_type, (), NULL)
    records._held = buffer
    records._config = _DEFAULT_CONFIG
    return records


# Returns: the ColumnBuffer of records that are one sealed batch, so that the facts in its `sealed` hold; else None.
cdef ColumnBuffer sealed_of(object records):
    cdef object held = (<MemoryRecordsCore>records)._held if isinstance(records, MemoryRecordsCore) else None
    if type(held) is not ColumnBuffer:
        return None
    cdef ColumnBuffer buffer = <ColumnBuffer>held
    return buffer if buffer.is_read_only and 0 < buffer.sealed.size == buffer.size else None


@cython.final
cdef class RunIterator:
    """Iterator over the Records of a run of batches; made by iterate_run.  Threads: not safe."""

    cdef const uint8_t[::1] buffer
    cdef Py_ssize_t at
    cdef int64_t position
    cdef int64_t max_batch_bytes
    cdef RecordIterator batch

    def __cinit__(self):
        self.buffer = None
        self.batch = RecordIterator.__new__(RecordIterator)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Record record = self.batch.next_record()
        while record is None:
            if not self.open_next():
                raise StopIteration
            record = self.batch.next_record()
        return record

    # Returns: whether there is another batch.
    cdef bint open_next(self) except -1:
        if self.buffer is None:
            return False
        cdef const uint8_t* start = start_of(self.buffer) + self.at
        cdef int64_t left = self.buffer.shape[0] - self.at
        cdef int64_t size
        cdef Header h
        cdef bint is_whole, is_open = False
        start_problem(&self.batch.problem, self.position + self.at)
        if next_batch(start, left, self.max_batch_bytes, &h, &is_whole, &self.batch.problem) != OK:
            raise error_of(&self.batch.problem, self.batch.path)
        if not is_whole:
            return False
        size = h.size
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
    """Return an iterator over the Records of a run of batches; each batch's CRC is checked before its first Record.

    An incomplete last batch with a known magic ends the iteration. For arguments, errors and lifetime, see
    iterate_records.
    Threads: not safe.
    """
    cdef RunIterator run = RunIterator.__new__(RunIterator)
    cdef RecordIterator batch = run.batch
    batch.decompress, batch.max_decompressed_bytes = decompress, max_decompressed_bytes
    batch.path, batch.topic_partition = path, topic_partition
    batch.verify_crc = batch.checks_offsets = batch.makes_headers = True
    batch.payload = None        # an unset view; accesses with checks raise
    run.buffer, run.position, run.max_batch_bytes = buffer, position, max_batch_bytes
    return run


def take_records(records, list into not None, *, int64_t least_offset, Py_ssize_t most_records, int64_t most_bytes):
    """Append the records of an iterator from least_offset on to a list.

    Ends when the list has most_records, or with the record that brings the bytes taken to most_bytes: those of keys,
    values and headers.
    Returns: (the bytes, whether the iterator has ended).
    Raises: what the iterator raises, with the records before in the list.
    """
    cdef Record record
    cdef int64_t taken_bytes = 0
    for item in records:
        record = <Record?>item
        if record.offset < least_offset:
            continue
        into.append(record)
        taken_bytes += record_size(record)
        if len(into) >= most_records or taken_bytes >= most_bytes:
            return taken_bytes, False
    return taken_bytes, True


cpdef int64_t record_size(Record record) except -1:
    """Return the bytes of a record's key, value and headers."""
    cdef int64_t size = size_of_bytes(record.key) + size_of_bytes(record.value)
    for key, value in record.headers if record.headers else ():
        size += len(key) + size_of_bytes(value)
    return size


cdef inline Py_ssize_t size_of_bytes(object content) except -1:
    return 0 if content is None else len(content)
