# The append path of a log: sequences of idempotent producers (ProducerStateEntryCore, ProducerTable), index entries and
# size of the active segment (SegmentAppender), and the fast path that appends in one call and publishes the new end to
# readers (LogAppender).

# Producer state.

cdef enum:
    KEPT_BATCHES = 5
    NOT_KNOWN = -1

BATCHES_KEPT = KEPT_BATCHES

cdef struct KeptBatch:
    int64_t last_sequence
    int64_t last_offset
    int64_t offset_delta
    int64_t timestamp


cdef class ProducerStateEntryCore:
    """The state of one producer in a log; numbers are -1 if unknown.  Source: Kafka ProducerStateEntry.

    Attributes: producer_id, producer_epoch, coordinator_epoch, last_timestamp_ms, current_txn_first_offset (that of the
        open transaction).
    Args: batches: (last_sequence, last_offset, offset_delta, timestamp_ms) of each; the last five are kept.
    Threads: one writer. An entry that readers can see is not changed but replaced by a copy.
    """

    cdef readonly int64_t producer_id
    cdef public int64_t producer_epoch
    cdef public int64_t coordinator_epoch
    cdef public int64_t last_timestamp_ms
    cdef public int64_t current_txn_first_offset
    cdef KeptBatch kept[KEPT_BATCHES]    # oldest first
    cdef int kept_count

    def __init__(self, int64_t producer_id, *, int64_t producer_epoch=NOT_KNOWN, int64_t coordinator_epoch=NOT_KNOWN,
                 int64_t last_timestamp_ms=NOT_KNOWN, int64_t current_txn_first_offset=NOT_KNOWN, batches=()):
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.current_txn_first_offset = current_txn_first_offset
        for last_sequence, last_offset, offset_delta, timestamp_ms in batches:
            self.add_batch_metadata(last_sequence, last_offset, offset_delta, timestamp_ms)

    def copy(self):
        """Return an independent copy."""
        return self.copied()

    @property
    def kept_batches(self):
        """(last_sequence, last_offset, offset_delta, timestamp_ms) of the last batches of the epoch, oldest first."""
        cdef KeptBatch* one
        cdef int i
        found = []
        for i in range(self.kept_count):
            one = &self.kept[i]
            found.append((one.last_sequence, one.last_offset, one.offset_delta, one.timestamp))
        return found

    @property
    def last_sequence(self):
        """The last sequence number, -1 if no batch is kept."""
        return self.newest_sequence()

    @property
    def has_open_transaction(self): return self.current_txn_first_offset != NOT_KNOWN

    def add_batch(self, *, int64_t base_sequence, int64_t base_offset, int64_t last_offset, int64_t timestamp_ms):
        """Record a data batch; base_sequence is -1 if it has no sequence numbers."""
        self.add_data_batch(base_sequence, base_offset, last_offset, timestamp_ms)

    def forget_batches(self):
        """Drop the kept batches, as at a new epoch."""
        self.kept_count = 0

    cdef ProducerStateEntryCore copied(self):
        cdef object kind = type(self)
        cdef ProducerStateEntryCore new = kind.__new__(kind)
        new.producer_id = self.producer_id
        new.producer_epoch = self.producer_epoch
        new.coordinator_epoch = self.coordinator_epoch
        new.last_timestamp_ms = self.last_timestamp_ms
        new.current_txn_first_offset = self.current_txn_first_offset
        new.kept = self.kept
        new.kept_count = self.kept_count
        return new

    cdef int64_t newest_sequence(self) noexcept:
        return self.kept[self.kept_count - 1].last_sequence if self.kept_count else NOT_KNOWN

    cdef void add_batch_metadata(self, int64_t last_sequence, int64_t last_offset, int64_t offset_delta,
                                 int64_t timestamp) noexcept:
        cdef int i
        if self.kept_count == KEPT_BATCHES:
            for i in range(1, KEPT_BATCHES):
                self.kept[i - 1] = self.kept[i]
            self.kept_count -= 1
        self.kept[self.kept_count] = KeptBatch(last_sequence, last_offset, offset_delta, timestamp)
        self.kept_count += 1

    cdef void add_data_batch(self, int64_t base_sequence, int64_t base_offset, int64_t last_offset,
                             int64_t timestamp) noexcept:
        cdef int64_t offset_delta = last_offset - base_offset
        cdef int64_t last_sequence = NOT_KNOWN
        if base_sequence != NOT_KNOWN:
            last_sequence = incremented_sequence(base_sequence, offset_delta)
        self.add_batch_metadata(last_sequence, last_offset, offset_delta, timestamp)
        self.last_timestamp_ms = timestamp

    # Returns: whether the batch may be appended without further checks: it has the producer's epoch and the next
    # sequence number, and neither begins nor ends a transaction. This excludes all duplicates.
    cdef bint is_in_sequence(self, const Header* h) noexcept:
        if h.producer_epoch != self.producer_epoch or self.kept_count == 0 or h.attributes & CONTROL_MASK:
            return False
        if h.base_sequence != incremented_sequence(self.newest_sequence(), 1):
            return False
        return (h.attributes & TRANSACTIONAL_MASK != 0) == (self.current_txn_first_offset != NOT_KNOWN)

    cdef void add_batch_of(self, const Header* h) noexcept:
        self.add_data_batch(h.base_sequence, h.base_offset, h.base_offset + h.last_offset_delta, h.max_timestamp)


@cython.final
cdef class ProducerTable:
    """What a log knows of its producers; ProducerStateManager owns it, and LogAppender replaces entries of it.

    Attributes: entries: ProducerStateEntryCore by producer id, in insertion order; verifications: those in progress, by
        producer id.
    Threads: one writer; any thread may look up an entry.
    """

    cdef readonly dict entries
    cdef readonly dict verifications

    def __cinit__(self):
        self.entries = {}
        self.verifications = {}

    # Returns: the state of the batch's producer after the batch, as a copy for replace(); None if the append needs more
    # checks. entry: the copy with earlier batches of the same write; None: there are none.
    cdef ProducerStateEntryCore entry_after(self, const Header* h, ProducerStateEntryCore entry):
        cdef ProducerStateEntryCore known = entry
        if self.verifications:
            return None
        if entry is None:
            found = self.entries.get(h.producer_id)
            if not isinstance(found, ProducerStateEntryCore):
                return None
            known = <ProducerStateEntryCore>found
        elif entry.producer_id != h.producer_id:
            return None
        if not known.is_in_sequence(h):
            return None
        if entry is None:
            known = known.copied()
        known.add_batch_of(h)
        return known

    cdef int replace(self, ProducerStateEntryCore entry) except -1:
        self.entries[entry.producer_id] = entry
        return 0


# The active segment, and the append in one call.

# The fields of an info_type, all of which made_info() sets.
cdef tuple _INFO_FIELDS = ("base_offset", "last_offset", "max_timestamp_ms", "log_append_time_ms", "log_start_offset",
                           "size_in_bytes", "is_duplicate")

cdef enum:
    ENTRIES_PER_WRITE = 512
    MOST_BATCHES_PER_WRITE = 256
    MOST_BYTES_PER_WRITE = 1048576
    # For a segment that is flushed regularly: start write-back each time this much was written, and how far past a
    # flush.
    WRITE_BACK_BYTES = 524288
    MOST_WRITE_BACK_BYTES = 67108864


@cython.final
cdef class SegmentAppender:
    """The size, largest timestamp and index entries of the active segment, updated with each append.

    Attributes: size_in_bytes; max_timestamp_ms and offset_of_max_timestamp (the last offset of its batch), -1 without a
    timestamp; bytes_since_last_index_entry; first_timestamp_ms (the largest of the first batch, -1 without one), from
    which the age of the segment counts.
    Args: write: called with the bytes of an append; write_parts: called with a list of buffers and their total size;
        write_index_pages: called after many entries were appended; start_write_back: called with the position from
        which the system should start writing to the disk; segment_bytes, max_age_ms: limits beyond which a segment is
        rolled; created_ms: the start of the age of a segment without timestamps.
    Threads: one.  Source: Kafka LogSegment.
    """

    cdef OffsetIndexEntries offset_entries
    cdef TimeIndexEntries time_entries
    cdef object write
    cdef AppendedFile file        # the one that `write` appends to, None if it does more
    cdef object write_parts
    cdef object write_index_pages
    cdef object start_write_back
    cdef int64_t written_entry_count
    cdef int64_t write_back_position
    cdef int64_t write_back_end
    cdef int64_t index_interval_bytes
    cdef int64_t segment_bytes
    cdef int64_t max_age_ms
    cdef int64_t created_ms
    cdef readonly int64_t size_in_bytes
    cdef public int64_t first_timestamp_ms
    cdef readonly int64_t bytes_since_last_index_entry
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int64_t offset_of_max_timestamp

    def __cinit__(self, OffsetIndexEntries offset_entries, TimeIndexEntries time_entries, *, write, write_parts,
                  write_index_pages, int64_t index_interval_bytes, int64_t segment_bytes, int64_t max_age_ms, int64_t created_ms,
                  start_write_back=None, int64_t size_in_bytes=0, int64_t first_timestamp_ms=-1,
                  int64_t max_timestamp_ms=-1, int64_t offset_of_max_timestamp=-1):
        if offset_entries is None or time_entries is None:
            raise TypeError("expected entries of both indexes, got None")
        self.offset_entries = offset_entries
        self.time_entries = time_entries
        self.write = write
        self.file = appended_by(write)
        self.write_parts = write_parts
        self.write_index_pages = write_index_pages
        self.start_write_back = start_write_back
        self.written_entry_count = offset_entries.entry_count
        self.index_interval_bytes = index_interval_bytes
        self.segment_bytes = segment_bytes
        self.max_age_ms = max_age_ms
        self.created_ms = created_ms
        self.size_in_bytes = size_in_bytes
        self.first_timestamp_ms = first_timestamp_ms
        self.max_timestamp_ms = max_timestamp_ms
        self.offset_of_max_timestamp = offset_of_max_timestamp

    def expect_flush(self):
        """Note that the segment was just flushed; from now on, start write-back ahead of the next flush."""
        if self.start_write_back is not None:
            self.write_back_position = self.size_in_bytes
            self.write_back_end = self.size_in_bytes + MOST_WRITE_BACK_BYTES

    def should_roll(self, AppendSurvey survey not None, *, int64_t now_ms):
        """Return whether an append needs a new segment, because of its size, age, a full index, or its offsets.

        Source: Kafka LogSegment.shouldRoll.
        """
        return self.is_outgrown(&survey.f, now_ms)

    cdef bint is_outgrown(self, const AppendFacts* f, int64_t now_ms) noexcept:
        if self.size_in_bytes > self.segment_bytes - f.size or f.last_offset - self.offset_entries.base_offset > INT32_MAX:
            return True
        if self.size_in_bytes == 0:
            return False
        if self.offset_entries.entry_count >= self.offset_entries.max_entries \
                or self.time_entries.entry_count >= self.time_entries.max_entries - 1:
            return True
        if self.first_timestamp_ms >= 0:
            return f.max_timestamp > self.first_timestamp_ms and f.max_timestamp - self.first_timestamp_ms > self.max_age_ms
        return now_ms - self.created_ms > self.max_age_ms

    # Returns: whether the batches fit the segment, and the survey shows that they need no further checks.
    cdef bint can_append(self, const AppendFacts* f, int64_t log_end_offset, int32_t leader_epoch) noexcept:
        if f.batch_count == 0 or f.has_messages or f.leader_epoch != leader_epoch or not f.is_one_epoch \
                or f.disorder_position >= 0 or f.first_offset < log_end_offset:
            return False
        return not (self.size_in_bytes and self.first_timestamp_ms < 0 or self.is_outgrown(f, 0))

    # Returns: whether `count` appends that fit as one also fit one by one.
    cdef bint fits_one_by_one(self, int64_t count) noexcept:
        return self.size_in_bytes > 0 and self.offset_entries.entry_count + count < self.offset_entries.max_entries \
            and self.time_entries.entry_count + count < self.time_entries.max_entries - 1

    def append(self, AppendSurvey survey not None):
        """Write the batches at the end of the segment, and count them.

        A batch gets an index entry if more than index_interval_bytes precede it since the last entry. A full index gets
        none, and the next append rolls the segment.
        Raises: what write raises, with nothing counted.
        """
        self.append_batches(&survey.f, survey.records)

    cdef int append_batches(self, const AppendFacts* f, object records) except -1:
        if self.file is not None:
            self.file.append_content(records, f.size)
        else:
            self.write(records)
        self.count_batches(f, records)
        self.write_index_pages_if_due()
        self.start_write_back_if_due()
        return 0

    # Requires: the batches of f were written at the end.
    cdef int count_batches(self, const AppendFacts* f, object records) except -1:
        if f.batch_count == 1:
            if self.size_in_bytes == 0:
                self.first_timestamp_ms = f.max_timestamp
            self.count_batch(self.size_in_bytes, f.size, f.last_offset, f.max_timestamp)
        else:
            self.count_each_of(records)
        self.size_in_bytes += f.size
        return 0

    cdef int write_index_pages_if_due(self) except -1:
        if self.offset_entries.entry_count - self.written_entry_count >= ENTRIES_PER_WRITE:
            self.written_entry_count = self.offset_entries.entry_count
            self.write_index_pages()
        return 0

    cdef int start_write_back_if_due(self) except -1:
        cdef int64_t position = self.write_back_position
        if self.size_in_bytes - position >= WRITE_BACK_BYTES and self.size_in_bytes <= self.write_back_end:
            self.start_write_back(position)
            self.write_back_position = self.size_in_bytes
        return 0

    cdef int count_each_of(self, const uint8_t[::1] records) except -1:
        cdef const uint8_t* p
        cdef Header h
        cdef Problem problem
        cdef bint whole
        cdef int64_t at = 0
        p = start_of(records)
        # Another thread may have changed the buffer since the survey, so sizes are checked again.
        while next_batch(p + at, records.shape[0] - at, INT32_MAX, &h, &whole, &problem) == OK and whole:
            if self.size_in_bytes + at == 0:
                self.first_timestamp_ms = h.max_timestamp
            self.count_batch(self.size_in_bytes + at, h.size, h.base_offset + h.last_offset_delta, h.max_timestamp)
            at += h.size
        return 0

    cdef int count_batch(self, int64_t position, int64_t size, int64_t last_offset, int64_t max_timestamp) except -1:
        if max_timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if takes_index_entry(&self.bytes_since_last_index_entry, self.index_interval_bytes, size) \
                and self.offset_entries.entry_count < self.offset_entries.max_entries:
            self.offset_entries.add(last_offset, position)
            if self.max_timestamp_ms >= 0 and self.time_entries.entry_count < self.time_entries.max_entries - 1:
                self.time_entries.add(self.max_timestamp_ms, self.offset_of_max_timestamp, False)
        return 0


@cython.final
cdef class LogAppender:
    """The end of a log that is written: appends in one call, and publishes the result to readers.

    Only the common case is handled here. Methods change nothing and return the AppendSurvey, for the slow path, if
    batches have another leader epoch, magic 0 or 1, or no rising offsets from the log end offset on; if they do not fit
    the active segment; or if they have a producer id, except for one batch that directly follows the producer's last
    one.
    Attributes: published: (sealed segments, active segment, its size, log end offset), replaced in one step;
        log_end_offset, log_start_offset, leader_epoch (that of the last batch).
    Args: info_type: the NamedTuple that appends return, LogAppendInfo; assigner: None if all appends of clients need
        the slow path; max_batch_bytes: the largest valid batch from a leader; producers: the table of the log's
        ProducerStateManager, in which appends replace entries; while it has verifications, batches with a producer id
        take the slow path.
    Raises: appends raise what the segment's write raises, with nothing changed, and ValueError before publish.
    Threads: one writer; any thread may read the attributes. The GIL is released as in survey_replicated.
    """

    cdef SegmentAppender segment
    cdef LeaderAssigner assigner
    cdef ProducerTable producers
    cdef object sealed
    cdef object active
    cdef object info_type
    cdef ContentRoom room
    cdef readonly object published
    cdef int64_t max_batch_bytes
    cdef readonly int64_t log_end_offset
    cdef public int64_t log_start_offset
    cdef public int32_t leader_epoch

    def __cinit__(self, info_type, *, LeaderAssigner assigner, int64_t max_batch_bytes, int64_t log_start_offset,
                  int32_t leader_epoch, ProducerTable producers=None):
        if not (isinstance(info_type, type) and issubclass(info_type, tuple)) \
                or getattr(info_type, "_fields", None) != _INFO_FIELDS:
            raise TypeError(f"info_type must be a NamedTuple with the fields of LogAppendInfo, got {info_type!r}")
        self.info_type = info_type
        self.assigner = assigner
        self.producers = ProducerTable() if producers is None else producers
        self.max_batch_bytes = max_batch_bytes
        self.log_start_offset = log_start_offset
        self.leader_epoch = leader_epoch

    def __dealloc__(self):
        free(self.room.data)

    def publish(self, sealed, active, SegmentAppender segment not None, *, int64_t log_end_offset):
        """Continue with these segments, and publish them to readers."""
        self.segment = segment
        self.sealed = sealed
        self.active = active
        self.log_end_offset = log_end_offset
        self.published = (sealed, active, segment.size_in_bytes, log_end_offset)

    def append_as_leader(self, records, *, leader_epoch, int64_t now_ms):
        """Assign the next offsets to the records of a client, append them and return an info_type.

        Args: leader_epoch: None for that of the last append, 0 in a new log; now_ms: the wall-clock time.
        Returns: the AppendSurvey if the append needs the slow path; None if it needs validate_and_assign_offsets first.
        Cost: O(bytes), with one copy unless the records are bytes, and no object per record.
        """
        return self.append_sent(records, max(self.leader_epoch, 0) if leader_epoch is None else leader_epoch, now_ms)

    cdef object append_sent(self, records, int32_t leader_epoch, int64_t now_ms):
        cdef AppendFacts f
        cdef Assignment given = Assignment(self.log_end_offset, now_ms, leader_epoch)
        if self.assigner is None:
            return None
        batch = self.assigner.assigned(records, &given, &self.room, &f)
        if batch is None:
            return None
        return self.append_or_survey(&f, batch, self.append_time(now_ms))

    def append_all_as_leader(self, list batches not None, list done not None, *, int64_t now_ms):
        """Append the batches of clients for which `done` has no result yet, as append_as_leader does.

        Stops before the first that needs the slow path. They are written together, at most 1 MiB or one batch, so that a failed write leaves none of them. Batches that
        an encoder of this module sealed uncompressed are accepted by their headers and written from their own memory;
        all others are copied, and each record is checked.
        Args: batches: MemoryRecords, or bytes, of one batch each; done: gets an info_type for each batch that was
            appended, in the step that publishes it, so that an interrupt leaves no batch in the log without its result.
        Returns: how many were appended.
        Threads: the GIL is released for 64 KiB and more.
        """
        cdef Py_ssize_t start = len(done), count = min(len(batches) - start, MOST_BATCHES_PER_WRITE), taken = 0
        cdef int64_t size = 0
        cdef ColumnBuffer sealed
        cdef SentBatch* sent
        if self.assigner is None or count <= 0 or self.log_end_offset < 0 or now_ms < 0:
            return 0
        sent = <SentBatch*>malloc(count * sizeof(SentBatch))
        if sent == NULL:
            raise MemoryError(f"no memory for {count} batches")
        try:
            while taken < count and (taken == 0 or size < MOST_BYTES_PER_WRITE):
                records = batches[start + taken]
                sealed = None if self.assigner.rules.is_log_append_time else sealed_of(records)
                if taken and (sealed is None) != (sent[0].sealed == NULL):
                    break
                if sealed is None and isinstance(records, MemoryRecordsCore):
                    records = (<MemoryRecordsCore>records)._held
                PyObject_GetBuffer(records if sealed is None else sealed, &sent[taken].view, PyBUF_SIMPLE)
                sent[taken].sealed = NULL if sealed is None else &sealed.sealed
                size += sent[taken].view.len
                taken += 1
            return self.append_in_one_write(sent, taken, size, now_ms, done)
        finally:
            while taken:
                taken -= 1
                PyBuffer_Release(&sent[taken].view)
            free(sent)

    def is_small_and_plain(self, records):
        """Return whether a client's batch has less than 64 KiB and needs nothing decompressed or converted, by its header.

        Such a batch costs more to hand over between threads than to append.
        """
        cdef Py_buffer view
        cdef const uint8_t* p
        cdef bint plain
        if self.assigner is None:
            return False
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        p = <const uint8_t*>view.buf
        plain = BATCH_HEADER_SIZE <= view.len < GIL_RELEASE_SIZE and p[MAGIC_AT] == MAGIC_V2 \
            and p[ATTRIBUTES_AT + 1] & CODEC_MASK == 0
        PyBuffer_Release(&view)
        return plain

    def append_as_follower(self, records):
        """Append complete batches as their leader sent them, checked as by survey_replicated, and return an info_type.

        Returns: the AppendSurvey if the append needs the slow path.
        Raises: as survey_replicated.
        """
        cdef AppendFacts f
        content = surveyed(records, self.max_batch_bytes, &f, None)
        return self.append_or_survey(&f, content, NO_TIMESTAMP)

    def append(self, AppendSurvey survey not None, *, int64_t log_append_time_ms):
        """Append surveyed batches and return an info_type, or the survey if the append needs the slow path."""
        done = self.append_or_survey(&survey.f, survey.records, log_append_time_ms)
        return survey if isinstance(done, AppendSurvey) else done

    def info_of(self, AppendSurvey survey not None, *, int64_t log_append_time_ms):
        """Return the info_type of an append of these batches."""
        return self.made_info(&survey.f, log_append_time_ms)

    cdef int64_t append_time(self, int64_t now_ms) noexcept:
        return now_ms if self.assigner.rules.is_log_append_time else NO_TIMESTAMP

    cdef bint can_append(self, const AppendFacts* f) except *:
        if self.segment is None:
            raise ValueError("no segment was published")
        return self.segment.can_append(f, self.log_end_offset, self.leader_epoch)

    # Requires: f.has_producers. Returns: as ProducerTable.entry_after.
    cdef ProducerStateEntryCore entry_after(self, const AppendFacts* f, ProducerStateEntryCore entry):
        return self.producers.entry_after(&f.last_batch, entry) if f.batch_count == 1 else None

    cdef object append_or_survey(self, const AppendFacts* f, object records, int64_t log_append_time_ms):
        cdef ProducerStateEntryCore producer = None
        if self.can_append(f):
            if not f.has_producers or (producer := self.entry_after(f, None)) is not None:
                self.segment.append_batches(f, records)
                if producer is not None:
                    self.producers.replace(producer)
                self.publish_end(f.last_offset + 1)
                return self.made_info(f, log_append_time_ms)
        return survey_of(f, bytes(records) if type(records) is StampedBatch else records)

    # Requires: the batches are written and counted.
    cdef int publish_end(self, int64_t log_end_offset) except -1:
        self.log_end_offset = log_end_offset
        self.published = (self.sealed, self.active, self.segment.size_in_bytes, log_end_offset)
        return 0

    # Requires: size, that of all views. Returns: how many of the first batches could be appended; `done` has their results.
    cdef Py_ssize_t append_in_one_write(self, SentBatch* sent, Py_ssize_t count, int64_t size, int64_t now_ms,
                                        list done) except -1:
        cdef ColumnBuffer content = new_buffer(size if sent.sealed == NULL else 0)
        cdef ProducerStateEntryCore producer = None, following
        cdef AppendFacts together, longer
        cdef Py_ssize_t assigned = self.assign_together(sent, count, content, now_ms), taken = 0, before = len(done), i
        start_facts(&together)
        while taken < assigned:
            longer = together
            join_facts(&longer, &sent[taken].f)
            if not self.can_append(&longer) or taken and not self.segment.fits_one_by_one(taken + 1):
                break
            if sent[taken].f.has_producers:
                following = self.entry_after(&sent[taken].f, producer)
                if following is None:
                    break
                producer = following
            together = longer
            taken += 1
        if taken == 0:
            return 0
        # First, so that nothing can fail for lack of memory once the batches are published.
        for i in range(taken):
            done.append(self.made_info(&sent[i].f, self.append_time(now_ms)))
        try:
            self.write_together(sent, taken, content, together.size)
            if producer is not None:
                self.producers.replace(producer)
            self.publish_end(together.last_offset + 1)
        except BaseException:
            del done[before:]
            raise
        return taken

    cdef int write_together(self, SentBatch* sent, Py_ssize_t count, ColumnBuffer content, int64_t size) except -1:
        cdef Py_ssize_t i
        if sent.sealed == NULL:
            content.size = size
            self.segment.write(memoryview(content))
        else:
            self.segment.write_parts(parts_of(sent, count), size)
        for i in range(count):
            self.segment.count_batches(&sent[i].f, None)
        self.segment.write_index_pages_if_due()
        self.segment.start_write_back_if_due()
        return 0

    # Copies the batches, with the next offsets, into content, one after the other. Returns: the number of leading
    # batches that got offsets.
    cdef Py_ssize_t assign_together(self, SentBatch* sent, Py_ssize_t count, ColumnBuffer content,
                                    int64_t now_ms) except -1:
        cdef Assignment given = Assignment(self.log_end_offset, now_ms, max(self.leader_epoch, 0))
        cdef AssignerRules* rules = &self.assigner.rules
        cdef uint8_t* data = content.block.data
        cdef int64_t at = 0
        cdef Py_ssize_t done = 0
        cdef Assigned outcome = IS_ASSIGNED
        while outcome == IS_ASSIGNED and done < count:
            if content.size < GIL_RELEASE_SIZE:
                outcome = assign_some(data, &at, sent, count, &done, &given, rules, &self.room)
            else:
                with nogil:
                    outcome = assign_some(data, &at, sent, count, &done, &given, rules, &self.room)
            if outcome == NEEDS_CODEC:
                outcome = self.assigner.assign_by_package(content, at, data + at, &given, &sent[done].f)
                if outcome == IS_ASSIGNED:
                    advance_past(&sent[done].f, &at, &done, &given)
        return done

    # Filled in place: tuple.__new__ would need a second tuple of the same items for each append.
    cdef object made_info(self, const AppendFacts* f, int64_t log_append_time_ms):
        cdef int64_t numbers[6]
        cdef Py_ssize_t i
        numbers[:] = [f.first_offset, f.last_offset, f.max_timestamp, log_append_time_ms, self.log_start_offset, f.size]
        info = alloc_of(self.info_type, len(_INFO_FIELDS))
        for i in range(6):
            set_number(info, i, numbers[i])
        Py_INCREF(False)
        PyTuple_SET_ITEM(info, 6, False)
        PyObject_GC_UnTrack(<PyObject*>info)    # numbers refer to nothing
        return info
