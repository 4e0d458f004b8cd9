# A search over the records of a batch: equality of keys and headers, and bytes that a key or value must contain, without
# the GIL. Where it asks for more (a regular expression), it finds the candidates, and calls Python for each of them.

cdef extern from "<string.h>" nogil:
    void* memmem(const void* data, size_t size, const void* part, size_t part_size)
    void* memchr(const void* data, int byte, size_t size)

cdef extern from *:
    """
    /* Whether an automaton finds a match: it starts in state 1, and state 0 is that of a match. table: the next state
       after each byte, 256 for each state. Bytes that leave it in state 1 are passed over without a chain of loads. */
    static int ks_finds(const uint8_t* table, const uint8_t* p, int64_t size) {
        const uint8_t* end = p + size;
        const uint8_t* first = table + 256;
        uint32_t state = 1;
        while (p < end) {
            if (state == 1) {
                while (end - p >= 4 && ((first[p[0]] ^ 1) | (first[p[1]] ^ 1) | (first[p[2]] ^ 1) | (first[p[3]] ^ 1)) == 0)
                    p += 4;
                while (p < end && first[*p] == 1)
                    p++;
                if (p == end)
                    return 0;
            }
            state = table[state << 8 | *p++];
            if (state == 0)
                return 1;
        }
        return 0;
    }
    """
    bint ks_finds(const uint8_t* table, const uint8_t* p, int64_t size) nogil

# Bytes to look for. data: NULL for none; rarest: the index of the byte that other data has least often.
cdef struct Wanted:
    const uint8_t* data
    int64_t size
    int64_t rarest

# The bytes that texts, JSON and binary encodings have most often, the most frequent first.
cdef bytes FREQUENT_BYTES = b"\0\"e taoinsr0123456789,:lhdcu.-_mpfgbywvkT{}/\1\2\4\x08\n"
cdef enum:
    # Occurrences of the rarest byte after which it must pay: at least this many bytes for each.
    FEW_OCCURRENCES = 16
    BYTES_PER_OCCURRENCE = 64

# A header to look for. value.data: NULL if any value will do, also null.
cdef struct WantedHeader:
    Wanted key
    Wanted value


cdef Wanted wanted_bytes(object data) except *:
    cdef Wanted wanted
    wanted.data = NULL
    wanted.size = wanted.rarest = 0
    if data is not None:
        wanted.data = <const uint8_t*>PyBytes_AS_STRING(data)
        wanted.size = PyBytes_GET_SIZE(data)
        wanted.rarest = rarest_of(data)
    return wanted


cdef Py_ssize_t rarest_of(bytes data) except -1:
    cdef Py_ssize_t at, rank, rarest = 0, greatest = -1
    for at in range(len(data)):
        rank = FREQUENT_BYTES.find(data[at:at + 1])
        if rank < 0:
            return at
        if rank > greatest:
            rarest, greatest = at, rank
    return rarest


# size < 0: null, which equals and contains nothing.
cdef inline bint equals(const Wanted* wanted, const uint8_t* p, int64_t size) noexcept nogil:
    return wanted.data == NULL or (size == wanted.size and memcmp(p, wanted.data, <size_t>size) == 0)


cdef inline bint is_part(const Wanted* wanted, const uint8_t* p, int64_t size) noexcept nogil:
    if wanted.data == NULL:
        return True
    if wanted.size == 0:
        return size >= 0
    return size >= wanted.size and contains(wanted, p, size)


# Looks for the rarest byte, which memchr finds faster than memmem finds all of them, as long as it is rare in these
# bytes too. Requires: 0 < wanted.size <= size.
cdef bint contains(const Wanted* wanted, const uint8_t* p, int64_t size) noexcept nogil:
    cdef const uint8_t* at = p
    cdef int64_t occurrences = 0
    cdef int64_t left = size - wanted.size + 1    # places where the bytes may begin, from `at` on
    cdef const uint8_t* found
    while left > 0:
        found = <const uint8_t*>memchr(at + wanted.rarest, wanted.data[wanted.rarest], <size_t>left)
        if found == NULL:
            return False
        found -= wanted.rarest
        if memcmp(found, wanted.data, <size_t>wanted.size) == 0:
            return True
        left -= found + 1 - at
        at = found + 1
        occurrences += 1
        if occurrences > FEW_OCCURRENCES and (at - p) // occurrences < BYTES_PER_OCCURRENCE:
            return memmem(at, <size_t>(left + wanted.size - 1), wanted.data, <size_t>wanted.size) != NULL
    return False


# Whether bytes have a match of an automaton. table.data: NULL for none.
cdef inline bint is_found(const Wanted* table, const uint8_t* p, int64_t size) noexcept nogil:
    return table.data == NULL or (size >= 0 and ks_finds(table.data, p, size))


cdef Wanted wanted_table(bytes table) except *:
    cdef Wanted wanted = wanted_bytes(table)
    if table is not None and (wanted.size < 512 or wanted.size % 256 or wanted.size > 65536
                              or max(table) >= wanted.size // 256):
        raise ValueError(f"expected a table of 2 to 256 states, got {wanted.size} bytes")
    return wanted


cdef object copied(object data, str name):
    if data is not None and type(data) is not bytes:
        raise TypeError(f"{name} must be bytes or None, got {type(data).__name__}")
    return data


@cython.final
cdef class RecordMatcher:
    """RecordMatcher(*, key=None, key_part=None, value_part=None, headers=(), key_table=None, value_table=None, key_test=None, value_test=None, producer_id=None)\n--\n
    What the records of a search have: all conditions that are given.

    Args: key: the whole key; key_part, value_part: bytes that the key or value contains; headers: (key, value) of
        headers that are there, None for any value; key_table, value_table: of automatons (table_of) that find a match in
        the key or value; key_test, value_test: called with a key or value that has all else,
        and return whether it matches; producer_id: of its batch, -1 for none. A null matches no condition.
    Raises: TypeError for what is not bytes; ValueError for a table that leads out of itself.  Threads: safe to share.
    """

    cdef Wanted key
    cdef Wanted key_part
    cdef Wanted value_part
    cdef Wanted key_table
    cdef Wanted value_table
    cdef WantedHeader* headers
    cdef int header_count
    cdef object key_test
    cdef object value_test
    cdef bint has_producer_id
    cdef int64_t producer_id
    cdef tuple wanted_headers
    cdef tuple held         # the bytes that the pointers are to

    def __cinit__(self, *, key=None, key_part=None, value_part=None, headers=(), key_table=None, value_table=None,
                  key_test=None, value_test=None, producer_id=None):
        cdef int i
        self.has_producer_id = producer_id is not None
        self.producer_id = producer_id if self.has_producer_id else -1
        self.wanted_headers = tuple([(copied(name, "the key of a header"), copied(value, "the value of a header"))
                                     for name, value in headers])
        self.held = (copied(key, "key"), copied(key_part, "key_part"), copied(value_part, "value_part"),
                     copied(key_table, "key_table"), copied(value_table, "value_table"), self.wanted_headers)
        self.key = wanted_bytes(key)
        self.key_part = wanted_bytes(key_part)
        self.value_part = wanted_bytes(value_part)
        self.key_table, self.value_table = wanted_table(key_table), wanted_table(value_table)
        self.key_test, self.value_test = key_test, value_test
        self.header_count = <int>len(self.wanted_headers)
        self.headers = <WantedHeader*>calloc(<size_t>max(self.header_count, 1), sizeof(WantedHeader))
        if self.headers == NULL:
            raise MemoryError
        for i, (name, value) in enumerate(self.wanted_headers):
            self.headers[i].key = wanted_bytes(name)
            self.headers[i].value = wanted_bytes(value)

    def __dealloc__(self):
        free(self.headers)

    def pass_over(self, const uint8_t[::1] chunk, Py_ssize_t at=0, *, int64_t position, int64_t end_position,
                  int64_t least_offset, next_base_offset, int64_t max_batch_bytes):
        """Pass over the batches that cannot hold a match, by their bytes, without the GIL.

        It stops at the first batch that may hold one or is compressed, is not whole in the chunk, is of magic 0 or 1, or
        is not sound: of these the caller has to raise what is wrong.
        Args: at: the index in the chunk where a batch begins; position: of that in the file; end_position: of the part
            of the file that is read; least_offset, next_base_offset, max_batch_bytes: as in HeaderScan.
        Returns: (size in bytes, last offset) of all batches passed, whose CRCs are right; (0, -1) for none.
        Raises: ValueError for an index or positions outside of the chunk.  Cost: O(bytes passed).
        """
        cdef Walk w
        cdef const uint8_t* start = start_of(chunk)
        if not 0 <= at <= chunk.shape[0] or not 0 <= position <= end_position:
            raise ValueError(f"expected an index of 0 to {chunk.shape[0]} and a position of 0 to {end_position}, "
                             f"got {at} and {position}")
        start_walk(&w, position, end_position, least_offset,
                   INT64_MAX if next_base_offset is None else next_base_offset, max_batch_bytes)
        with nogil:
            self.walk_over(&w, start + at, chunk.shape[0] - at)
        return w.position - position, w.last_offset

    cdef void walk_over(self, Walk* w, const uint8_t* p, int64_t size) noexcept nogil:
        cdef Header h
        cdef Problem problem
        cdef int64_t at
        while w.state == SCAN_MORE:
            at = w.position - w.start_position
            if size - at < BATCH_HEADER_SIZE or not check_next(w, p + at, &h, &problem) or size - at < h.size:
                return
            if h.magic != MAGIC_V2 or h.attributes & CODEC_MASK or check_batch_crc(p + at, &h, &problem) != OK \
                    or check_counts(&h, h.size - BATCH_HEADER_SIZE, &problem) != OK:
                return
            if self.is_of_producer(&h) and self.may_be_in(p + at + BATCH_HEADER_SIZE, h.size - BATCH_HEADER_SIZE):
                return
            pass_batch(w, &h)

    cdef inline bint is_of_producer(self, const Header* h) noexcept nogil:
        return not self.has_producer_id or h.producer_id == self.producer_id

    # Whether a payload of magic 2 holds all bytes that a record must have: one look over a block of many records.
    cdef bint may_be_in(self, const uint8_t* p, int64_t size) noexcept nogil:
        cdef int i
        if not (is_part(&self.key, p, size) and is_part(&self.key_part, p, size) and is_part(&self.value_part, p, size)):
            return False
        for i in range(self.header_count):
            if not (is_part(&self.headers[i].key, p, size) and is_part(&self.headers[i].value, p, size)):
                return False
        return is_found(&self.key_table, p, size) and is_found(&self.value_table, p, size)

    # Requires: parse_record returned OK.
    cdef bint has_headers(self, const RawRecord* r) noexcept nogil:
        cdef RawHeader header
        cdef Problem problem
        cdef const uint8_t* at
        cdef bint is_there
        cdef int i
        cdef int32_t number
        for i in range(self.header_count):
            at = r.headers
            is_there = False
            for number in range(r.header_count):
                if parse_header(&at, r.end, &header, &problem) != OK:
                    return False
                if equals(&self.headers[i].key, header.key, header.key_size) \
                        and equals(&self.headers[i].value, header.value, header.value_size):
                    is_there = True
                    break
            if not is_there:
                return False
        return True

    cdef bint is_candidate(self, const RawRecord* r) noexcept nogil:
        return equals(&self.key, r.key, r.key_size) and is_part(&self.key_part, r.key, r.key_size) \
            and is_part(&self.value_part, r.value, r.value_size) and self.has_headers(r) \
            and is_found(&self.key_table, r.key, r.key_size) and is_found(&self.value_table, r.value, r.value_size)

    cdef bint passes_tests(self, key, value) except -1:
        if self.key_test is not None and (key is None or not self.key_test(key)):
            return False
        return self.value_test is None or (value is not None and bool(self.value_test(value)))

    # Of a Record of magic 0 or 1, which has no headers.
    cdef bint matches(self, Record record) except -1:
        cdef RawRecord raw
        if self.header_count:
            return False
        raw.header_count = 0
        raw.key_size = raw.value_size = -1
        raw.key = raw.value = NULL
        if record.key is not None:
            raw.key, raw.key_size = <const uint8_t*>PyBytes_AS_STRING(record.key), PyBytes_GET_SIZE(record.key)
        if record.value is not None:
            raw.value, raw.value_size = <const uint8_t*>PyBytes_AS_STRING(record.value), PyBytes_GET_SIZE(record.value)
        return self.is_candidate(&raw) and self.passes_tests(record.key, record.value)


# The next record that is a candidate, from it.at on. Returns: OK; STOPPED after the last record; else the error.
cdef Status next_candidate(RecordIterator it, RecordMatcher matcher, const uint8_t* start, const uint8_t* end,
                           RawRecord* raw) noexcept nogil:
    cdef Status status
    while it.done < it.h.record_count:
        it.problem.record = it.done
        status = parse_record(start + it.at, end, raw, &it.problem)
        if status == OK:
            status = check_offset_delta(&it.h, raw.offset_delta, &it.least_delta, &it.problem)
        if status == OK and it.done + 1 == it.h.record_count and raw.end != end:
            status = fail(&it.problem, TRAILING_BYTES, 0, end - raw.end)
        if status != OK:
            return status
        it.done += 1
        it.at = raw.end - start
        if matcher.is_candidate(raw):
            return OK
    return STOPPED


def find_records(RecordIterator records not None, RecordMatcher matcher not None, *, Py_ssize_t most_records,
                 int64_t most_bytes):
    """Return the next Records that match as a list, empty after the last one; only they are made.

    Records of a batch that cannot hold a match, by its bytes, are not decoded.
    Args: as RecordIterator.take, which counts only what is returned.
    Raises: as iteration does; what a test raises. The Records before are lost.
    Threads: the GIL is released between two candidates.
    """
    cdef list found = []
    cdef RawRecord raw
    cdef Record record
    cdef Status status = OK
    cdef bint may_match = True
    cdef int64_t taken_bytes
    cdef const uint8_t* start = start_of(records.payload)
    cdef const uint8_t* end = start + records.payload.shape[0]
    records.taken_bytes = 0
    if not matcher.is_of_producer(&records.h):
        records.close()
        return found
    if records.h.magic < MAGIC_V2:
        while len(found) < most_records and records.taken_bytes < most_bytes:
            taken_bytes = records.taken_bytes
            record = records.next_record()
            if record is None:
                break
            if matcher.matches(record):
                found.append(record)
            else:
                records.taken_bytes = taken_bytes
        return found
    if records.done == 0:
        with nogil:
            may_match = matcher.may_be_in(start, end - start)
        if not may_match:
            records.close()
            return found
    while len(found) < most_records and records.taken_bytes < most_bytes:
        with nogil:
            status = next_candidate(records, matcher, start, end, &raw)
        if status == STOPPED:
            break
        if status == OK and raw.header_count and records.makes_headers:
            status = check_header_count(&raw, records.max_decompressed_bytes, records.h.base_offset + raw.offset_delta,
                                        &records.problem)
        if status != OK:
            raise error_of(&records.problem, records.path)
        if (matcher.key_test is None and matcher.value_test is None) or matcher.passes_tests(
                bytes_or_none(raw.key, raw.key_size), bytes_or_none(raw.value, raw.value_size)):
            found.append(records.make(&raw))
    return found
