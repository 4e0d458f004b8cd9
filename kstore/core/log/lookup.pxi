# Lookups in one segment without a Python frame except for the read.

cdef enum:
    # Lookups between two that are reported to the caches.
    USES_UNTOLD = 256


@cython.final
cdef class SegmentLookup:
    """Lookups in a segment through its indexes and its file, one read each.

    Methods return None when one read cannot prove the answer; the caller then walks headers. Every other result is the
    one that a walk over the headers gives.
    Args: fetch_offsets, fetch_times: return an OffsetIndexSearch and a TimeIndexSearch, or None if there is no index;
        fetch_pread: returns a pread(size, position=position) of the .log that raises LogClosedError after its file was
        closed. All three are called again at intervals, so that caches see what is in use. decompress,
        max_decompressed_bytes, path, topic_partition: as for iterate_records.
    Raises: what these raise.
    Lifetime: keeps no index alive.  Threads: safe.
    """

    cdef object fetch_offsets
    cdef object fetch_times
    cdef object fetch_pread
    cdef object offsets
    cdef object steps
    cdef object reader
    cdef int64_t uses
    cdef Readable segment
    cdef object decompress
    cdef int64_t max_decompressed_bytes
    cdef object path
    cdef object topic_partition

    def __cinit__(self, fetch_offsets, fetch_times, fetch_pread, *, int64_t end_position, next_base_offset=None,
                  int64_t max_batch_bytes=INT32_MAX, decompress=None, int64_t max_decompressed_bytes=INT32_MAX, path=None,
                  topic_partition=None):
        self.fetch_offsets, self.fetch_times, self.fetch_pread = fetch_offsets, fetch_times, fetch_pread
        self.decompress, self.max_decompressed_bytes = decompress, max_decompressed_bytes
        self.path, self.topic_partition = path, topic_partition
        self.segment.end_position = end_position
        self.segment.next_base_offset = INT64_MAX if next_base_offset is None else next_base_offset
        self.segment.max_batch_bytes = max_batch_bytes

    cdef OffsetIndexSearch offsets_at_hand(self):
        cdef object found = None if self.offsets is None else self.offsets()
        self.uses += 1
        if found is None or self.uses % USES_UNTOLD == 0:
            found = self.fetch_offsets()
            self.offsets = None if found is None else PyWeakref_NewRef(found, None)
            if self.reader is not None:
                self.reader = reader_of(self.fetch_pread())
        return found

    cdef TimeIndexSearch steps_at_hand(self):
        cdef object found = None if self.steps is None else self.steps()
        if found is None or self.uses % USES_UNTOLD == 0:
            found = self.fetch_times()
            self.steps = None if found is None else PyWeakref_NewRef(found, None)
        return found

    cdef object reader_at_hand(self):
        if self.reader is None:
            self.reader = reader_of(self.fetch_pread())
        return self.reader

    def batch_of_offset(self, int64_t offset):
        """Return the BatchHeader of the first batch with last offset >= offset, or None."""
        cdef OffsetIndexSearch offsets = self.offsets_at_hand()
        if offsets is None:
            return None
        try:
            return offsets.batch_for(offset, self.reader_at_hand(), &self.segment)
        except LogClosedError:
            self.reader = None
            return offsets.batch_for(offset, self.reader_at_hand(), &self.segment)

    def batch_after(self, BatchHeader start not None, int64_t offset):
        """Return the BatchHeader of batch_of_offset if it is `start`, which was found before, or the batch after it.

        Returns: None if the headers of these two, which are read again, do not show that, or cannot be had.
        """
        try:
            return self.batch_near(start, offset)
        except LogClosedError:
            self.reader = None
            return self.batch_near(start, offset)

    cdef BatchHeader batch_near(self, BatchHeader start, int64_t offset):
        cdef Walk w
        cdef Header h
        cdef Problem problem
        cdef bytes data
        cdef int64_t size
        start_walk(&w, start.position, self.segment.end_position, start.h.base_offset, self.segment.next_base_offset,
                   self.segment.max_batch_bytes)
        w.stop_offset = offset
        while w.state == SCAN_MORE and w.batch_count < 2:
            size = min(<int64_t>BATCH_HEADER_SIZE, w.end_position - w.position)
            if size <= 0:
                break
            try:
                data = read_at(self.reader_at_hand(), size, w.position)
            except CorruptRecordError:
                return None
            if PyBytes_GET_SIZE(data) != size:
                break
            walk_one(&w, <const uint8_t*>PyBytes_AS_STRING(data), &h, &problem)
        return new_header(<const uint8_t*>PyBytes_AS_STRING(data), w.position) if w.state == SCAN_FOUND else None

    cdef tuple sound_batch(self, OffsetIndexSearch offsets, int64_t offset):
        try:
            return offsets.read_sound_batch(offset, self.reader_at_hand(), &self.segment)
        except LogClosedError:
            self.reader = None
            return offsets.read_sound_batch(offset, self.reader_at_hand(), &self.segment)

    def record_of_offset(self, int64_t offset, unproven, check=None, is_left_out=None):
        """Return the Record at an offset, from the batch of batch_of_offset, whose CRC is checked; None if that has none.

        Args: unproven: what is returned where one or two reads do not prove the batch, and for magic 0 and 1; check:
            called after the read, before anything is made of it; is_left_out: whether the batch of a BatchHeader is.
        Raises: what iterate_records and its iteration raise, and what `check` does.
        """
        cdef OffsetIndexSearch offsets = self.offsets_at_hand()
        cdef BatchHeader header
        cdef bytes data
        cdef RecordIterator records
        cdef const uint8_t[::1] bytes_of_batch
        cdef int64_t at
        cdef tuple found = None if offsets is None else self.sound_batch(offsets, offset)
        if found is None:
            return unproven
        if check is not None:
            check()
        header, data, at = found
        if header.h.attributes & CONTROL_MASK or (is_left_out is not None and is_left_out(header)):
            return None
        records = new_iterator(self.decompress, self.max_decompressed_bytes, self.path, self.topic_partition)
        bytes_of_batch = data
        records.open(bytes_of_batch[at:at + header.h.size], header.position)
        pass_plain_records(records, offset)
        return records.find(offset)

    def record_of_timestamp(self, int64_t timestamp_ms, *, int64_t start_offset):
        """Return the OffsetAndTimestamp of the first record at or after both bounds, after note_checked; else None."""
        cdef OffsetIndexSearch offsets = self.offsets_at_hand()
        cdef TimeIndexSearch steps = self.steps_at_hand()
        if offsets is None or steps is None:
            return None
        try:
            return offsets.find_record(steps, timestamp_ms, start_offset, self.reader_at_hand(), &self.segment)
        except LogClosedError:
            self.reader = None
            return offsets.find_record(steps, timestamp_ms, start_offset, self.reader_at_hand(), &self.segment)

    def batch_of_timestamp(self, int64_t timestamp_ms, *, int64_t start_offset):
        """Find the batch with the first record at or after both bounds, if a confirmed time entry leads to it.

        Returns: (slot of the entry, BatchHeader, bytes of the batch, whose end may be missing), or None.
        """
        cdef OffsetIndexSearch offsets = self.offsets_at_hand()
        cdef TimeIndexSearch steps = self.steps_at_hand()
        cdef int64_t slot
        cdef tuple found
        if offsets is None or steps is None or timestamp_ms == INT64_MIN:
            return None
        slot = steps.floor(timestamp_ms - 1)
        if slot < 0 or steps.state_of(slot)[0] == UNCONFIRMED or steps.offset_at(slot) < start_offset - 1:
            return None
        try:
            found = offsets.read_batch(steps.offset_at(slot) + 1, self.reader_at_hand(), &self.segment)
        except LogClosedError:
            self.reader = None
            found = offsets.read_batch(steps.offset_at(slot) + 1, self.reader_at_hand(), &self.segment)
        if found is None or (<BatchHeader>found[0]).h.max_timestamp < timestamp_ms:
            return None
        return slot, found[0], found[1]

    def note_checked(self, int64_t slot, bytes data not None):
        """Record that the batch from batch_of_timestamp was read whole and has a right CRC, magic 2 and no codec.

        Args: data: from batch_of_timestamp.
        """
        cdef TimeIndexSearch steps = self.steps_at_hand()
        cdef Header h
        if steps is None:
            return
        steps.state_of(slot)[0] = CHECKED
        if PyBytes_GET_SIZE(data) >= 2 * LEAST_SKIPPED_BYTES:
            load_header(<const uint8_t*>PyBytes_AS_STRING(data), &h)
            if h.size == PyBytes_GET_SIZE(data):
                steps.mark(slot, <const uint8_t*>PyBytes_AS_STRING(data), &h)
