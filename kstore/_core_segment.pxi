# Lookups in one segment, with no Python frame but that of the read.

cdef enum:
    # Lookups between two that the caches are told of.
    USES_UNTOLD = 256


@cython.final
cdef class SegmentLookup:
    """Lookups in a segment by what is at hand of its indexes and its file. None stands for: not told by one read, walk.

    Every answer is one that a walk over the headers would give.
    Args: fetch_offsets, fetch_times: give an OffsetIndexSearch and a TimeIndexSearch, None where there is no index;
        fetch_pread: gives a pread(size, position=position) of the .log, which raises LogClosedError once its file was
        closed. They are called again now and then, so that caches learn what is in use.
    Raises: what these raise.
    Lifetime: keeps no index alive.  Threads: safe.
    """

    cdef object fetch_offsets
    cdef object fetch_times
    cdef object fetch_pread
    cdef object offsets
    cdef object steps
    cdef object pread
    cdef int64_t uses
    cdef Readable segment

    def __cinit__(self, fetch_offsets, fetch_times, fetch_pread, *, int64_t end_position, next_base_offset=None,
                  int64_t max_batch_bytes=INT32_MAX):
        self.fetch_offsets, self.fetch_times, self.fetch_pread = fetch_offsets, fetch_times, fetch_pread
        self.segment.end_position = end_position
        self.segment.next_base_offset = INT64_MAX if next_base_offset is None else next_base_offset
        self.segment.max_batch_bytes = max_batch_bytes

    cdef OffsetIndexSearch offsets_at_hand(self):
        cdef object found = None if self.offsets is None else self.offsets()
        self.uses += 1
        if found is None or self.uses % USES_UNTOLD == 0:
            found = self.fetch_offsets()
            self.offsets = None if found is None else PyWeakref_NewRef(found, None)
            if self.pread is not None:
                self.pread = self.fetch_pread()
        return found

    cdef TimeIndexSearch steps_at_hand(self):
        cdef object found = None if self.steps is None else self.steps()
        if found is None or self.uses % USES_UNTOLD == 0:
            found = self.fetch_times()
            self.steps = None if found is None else PyWeakref_NewRef(found, None)
        return found

    cdef object pread_at_hand(self):
        if self.pread is None:
            self.pread = self.fetch_pread()
        return self.pread

    def batch_of_offset(self, int64_t offset):
        """Return the BatchHeader of the first batch with last offset >= offset."""
        cdef OffsetIndexSearch offsets = self.offsets_at_hand()
        if offsets is None:
            return None
        try:
            return offsets.batch_for(offset, self.pread_at_hand(), &self.segment)
        except LogClosedError:
            self.pread = None
            return offsets.batch_for(offset, self.pread_at_hand(), &self.segment)

    def record_of_timestamp(self, int64_t timestamp_ms, *, int64_t start_offset):
        """Return the OffsetAndTimestamp of the first record that is not before either, where note_checked was called."""
        cdef OffsetIndexSearch offsets = self.offsets_at_hand()
        cdef TimeIndexSearch steps = self.steps_at_hand()
        if offsets is None or steps is None:
            return None
        try:
            return offsets.find_record(steps, timestamp_ms, start_offset, self.pread_at_hand(), &self.segment)
        except LogClosedError:
            self.pread = None
            return offsets.find_record(steps, timestamp_ms, start_offset, self.pread_at_hand(), &self.segment)

    def batch_of_timestamp(self, int64_t timestamp_ms, *, int64_t start_offset):
        """Return the batch that holds the first record that is not before either, if a confirmed time entry leads to it.

        Returns: the entry's slot, the BatchHeader, and the batch's bytes, of which the end may be missing.
        """
        cdef OffsetIndexSearch offsets = self.offsets_at_hand()
        cdef TimeIndexSearch steps = self.steps_at_hand()
        cdef int64_t slot
        cdef tuple found
        if offsets is None or steps is None or timestamp_ms == INT64_MIN:
            return None
        slot = floor_slot(steps.start, TIME_ENTRY_SIZE, steps.entry_count, timestamp_ms - 1)
        if slot < 0 or steps.state_of(slot)[0] == UNCONFIRMED or steps.offset_at(slot) < start_offset - 1:
            return None
        try:
            found = offsets.read_batch(steps.offset_at(slot) + 1, self.pread_at_hand(), &self.segment)
        except LogClosedError:
            self.pread = None
            found = offsets.read_batch(steps.offset_at(slot) + 1, self.pread_at_hand(), &self.segment)
        if found is None or (<BatchHeader>found[0]).h.max_timestamp < timestamp_ms:
            return None
        return slot, found[0], found[1]

    def note_checked(self, int64_t slot):
        """Note that the batch of batch_of_timestamp was read whole, has a right CRC, magic 2 and no codec."""
        cdef TimeIndexSearch steps = self.steps_at_hand()
        if steps is not None:
            steps.state_of(slot)[0] = CHECKED
