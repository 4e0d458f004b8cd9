# From an offset to its batch by one read: what to read, whether it proves the index entry, and the batch in it.

cdef enum ProofState:
    UNPROVEN = 0
    PROVEN      # the entry's batch is right, and headers lead from it to the next entry's position
    LONE     # also: it is the only batch up to there, and the entry holds its last offset


# Requires: chunk holds [position, next_position). Returns: what these bytes prove of an entry.
cdef ProofState prove_interval(const uint8_t* chunk, int64_t position, int64_t next_position, int64_t entry_offset,
                               int64_t base_offset, int64_t next_base_offset, int64_t max_batch_bytes) noexcept nogil:
    cdef Walk w
    cdef Header h
    cdef Header first
    cdef Problem problem
    memset(&w, 0, sizeof(Walk))
    w.position = position
    w.end_position = next_position
    w.max_batch_bytes = max_batch_bytes
    w.least_offset = base_offset
    w.last_offset = -1
    if position >= next_position or not check_next(&w, chunk, &first, &problem) or is_wrapper(&first) \
            or first.base_offset > entry_offset or check_stored_crc(chunk, &first, &problem) != OK:
        return UNPROVEN
    pass_batch(&w, &first)
    while w.state == SCAN_MORE:
        if not check_next(&w, chunk + (w.position - position), &h, &problem):
            return UNPROVEN
        pass_batch(&w, &h)
    if w.state != SCAN_END or w.last_offset >= next_base_offset or w.last_offset < entry_offset:
        return UNPROVEN
    return LONE if w.batch_count == 1 and w.last_offset == entry_offset else PROVEN


@cython.final
cdef class OffsetIndexSearch:
    """Search in the entries of one offset index, which remembers what of them the log has proven.

    Lifetime: keeps a view of the entries, which must not change.
    Threads: safe.  Source: Kafka OffsetIndex, LogSegment.translateOffset.
    """

    cdef const uint8_t[::1] entries
    cdef const uint8_t* start
    cdef readonly int64_t entry_count
    cdef int64_t base_offset
    cdef ColumnBuffer proofs

    def __cinit__(self, const uint8_t[::1] entries, *, int64_t base_offset):
        self.entries = entries
        self.start = start_of(entries)
        self.entry_count = entries.shape[0] // OFFSET_ENTRY_SIZE
        self.base_offset = base_offset

    cdef inline int64_t floor(self, int64_t offset) noexcept:
        if offset < self.base_offset:
            return -1
        return floor_slot(self.start, OFFSET_ENTRY_SIZE, self.entry_count, offset - self.base_offset)

    cdef inline int64_t position_of(self, int64_t slot, int64_t end_position) noexcept:
        if slot < 0:
            return 0
        return end_position if slot >= self.entry_count else <int32_t>ks_get32(self.start + slot * OFFSET_ENTRY_SIZE + 4)

    # One ProofState for each slot from -1 on. What lies before the first entry starts at a batch without proof.
    cdef uint8_t* proof_of(self, int64_t slot) except NULL:
        cdef ColumnBuffer proofs
        if self.proofs is None:
            proofs = ColumnBuffer(self.entry_count + 1)
            memset(proofs.block.data, UNPROVEN, <size_t>(self.entry_count + 1))
            proofs.block.data[0] = PROVEN
            self.proofs = proofs
        return self.proofs.block.data + slot + 1

    def slot_of_offset(self, int64_t offset):
        """Return the slot of the greatest entry with offset <= the given one, -1 if there is none."""
        return self.floor(offset)

    def slots_of_offsets(self, const int64_t[::1] offsets):
        """Return the slot of each of many offsets, as slot_of_offset, in a buffer of int64.

        Cost: less than a call for each, as several searches wait for memory at once; the GIL is released.
        """
        cdef int64_t count = offsets.shape[0]
        cdef int64_t done = 0
        cdef int lane, lanes
        cdef int64_t targets[LANES]
        cdef int64_t found[LANES]
        cdef ColumnBuffer slots = ColumnBuffer(count * sizeof(int64_t))
        cdef int64_t* out = <int64_t*>slots.block.data
        cdef const int64_t* wanted = &offsets[0] if count else NULL
        with nogil:
            while done < count:
                lanes = <int>min(count - done, LANES)
                for lane in range(LANES):
                    targets[lane] = (wanted[done + lane] - self.base_offset
                                     if lane < lanes and wanted[done + lane] >= self.base_offset else -1)
                floor_slots(self.start, OFFSET_ENTRY_SIZE, self.entry_count, targets, found)
                memcpy(out + done, found, <size_t>lanes * sizeof(int64_t))
                done += lanes
        return slots

    def plan_read(self, int64_t offset, *, int64_t end_position):
        """Return (slot, position, size): the bytes of a .log that show the batch of an offset.

        They start at the position of an entry of the slot (-1: of the segment) and reach over the first header behind
        the next entry's position; if the entry was proven, and the offset lies behind its batch, that header alone.
        None if no entry before end_position helps.
        """
        cdef int64_t slot = self.floor(offset)
        cdef int64_t position, next_position
        cdef uint8_t proof
        if slot >= 0 and self.proof_of(slot)[0] == LONE and slot + 1 < self.entry_count \
                and offset > self.base_offset + offset_key(self.start, slot):
            slot += 1
            position = next_position = self.position_of(slot, end_position)
        else:
            position = self.position_of(slot, end_position)
            next_position = self.position_of(slot + 1, end_position)
            if position >= next_position:
                return None
        if not 0 <= position <= next_position <= end_position or position == end_position:
            return None
        return slot, position, min(next_position + BATCH_HEADER_SIZE, end_position) - position

    def batch_of_offset(self, const uint8_t[::1] chunk, int64_t offset, *, int64_t slot, int64_t position,
                        int64_t end_position, int64_t next_base_offset=INT64_MAX, int64_t max_batch_bytes=INT32_MAX):
        """Return the BatchHeader of the first batch with last offset >= offset in a chunk that plan_read asked for.

        None if the bytes do not prove the entry, or show no such batch: then the entry is not to be used.
        """
        cdef Walk w
        cdef Header h
        cdef Problem problem
        cdef ProofState proof
        cdef uint8_t* state
        cdef int64_t at, next_position
        if not -1 <= slot < self.entry_count:
            raise IndexError(f"slot must be from -1 to {self.entry_count - 1}, got {slot}")
        state = self.proof_of(slot)
        next_position = self.position_of(slot + 1, end_position)
        if state[0] == UNPROVEN and (slot == 0 or chunk.shape[0] > BATCH_HEADER_SIZE or (state - 1)[0] != LONE):
            if next_position - position > chunk.shape[0]:
                return None
            proof = prove_interval(&chunk[0], position, next_position, self.base_offset + offset_key(self.start, slot),
                                   self.base_offset, next_base_offset, max_batch_bytes)
            if proof == UNPROVEN:
                return None
            state[0] = proof
        memset(&w, 0, sizeof(Walk))
        w.position = position
        w.end_position = end_position
        w.max_batch_bytes = max_batch_bytes
        w.least_offset = self.base_offset
        w.stop_offset = offset
        while w.state == SCAN_MORE:
            at = w.position - position
            if chunk.shape[0] - at < min(BATCH_HEADER_SIZE, end_position - w.position) \
                    or not walk_one(&w, &chunk[at], &h, &problem):
                break
        if w.state != SCAN_FOUND or h.base_offset + h.last_offset_delta >= next_base_offset:
            return None
        return new_header(&chunk[w.position - position], w.position)
