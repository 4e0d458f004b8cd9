# What a log knows of one producer: its epochs, its last batches, its open transaction.

cdef enum:
    KEPT_BATCHES = 5
    NOT_KNOWN = -1

BATCHES_KEPT = KEPT_BATCHES

cdef struct KeptBatch:
    int64_t last_sequence
    int64_t last_offset
    int64_t offset_delta
    int64_t timestamp


cdef inline int64_t sequence_behind(int64_t sequence, int64_t count) noexcept nogil:
    return (sequence + count) & INT32_MAX


cdef class ProducerEntry:
    """What a log knows of one producer; -1 where it knows nothing.  Source: Kafka ProducerStateEntry.

    Attributes: producer_id, producer_epoch, coordinator_epoch, last_timestamp_ms, current_txn_first_offset (of the open
        transaction).
    Args: batches: (last_sequence, last_offset, offset_delta, timestamp_ms) of each, of which the last five are kept.
    Threads: one changes it; what a log shows its readers is not changed any more, but replaced by a copy.
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
            self.keep(last_sequence, last_offset, offset_delta, timestamp_ms)

    def copy(self):
        """Return an entry that says the same and can be changed apart."""
        return self.copied()

    @property
    def kept_batches(self):
        """(last_sequence, last_offset, offset_delta, timestamp_ms) of the last batches of this epoch, oldest first."""
        cdef KeptBatch* one
        cdef int i
        found = []
        for i in range(self.kept_count):
            one = &self.kept[i]
            found.append((one.last_sequence, one.last_offset, one.offset_delta, one.timestamp))
        return found

    @property
    def last_sequence(self):
        """The last sequence, -1 if no batch is kept."""
        return self.newest_sequence()

    @property
    def has_open_transaction(self): return self.current_txn_first_offset != NOT_KNOWN

    def add_batch(self, *, int64_t base_sequence, int64_t base_offset, int64_t last_offset, int64_t timestamp_ms):
        """Go on behind a batch of data; base_sequence is -1 without sequences."""
        self.go_on(base_sequence, base_offset, last_offset, timestamp_ms)

    def forget_batches(self):
        """Keep no batch, as in a new epoch."""
        self.kept_count = 0

    cdef ProducerEntry copied(self):
        cdef object kind = type(self)
        cdef ProducerEntry new = kind.__new__(kind)
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

    cdef void keep(self, int64_t last_sequence, int64_t last_offset, int64_t offset_delta, int64_t timestamp) noexcept:
        cdef int i
        if self.kept_count == KEPT_BATCHES:
            for i in range(1, KEPT_BATCHES):
                self.kept[i - 1] = self.kept[i]
            self.kept_count -= 1
        self.kept[self.kept_count] = KeptBatch(last_sequence, last_offset, offset_delta, timestamp)
        self.kept_count += 1

    cdef void go_on(self, int64_t base_sequence, int64_t base_offset, int64_t last_offset, int64_t timestamp) noexcept:
        cdef int64_t offset_delta = last_offset - base_offset
        cdef int64_t last_sequence = NOT_KNOWN
        if base_sequence != NOT_KNOWN:
            last_sequence = sequence_behind(base_sequence, offset_delta)
        self.keep(last_sequence, last_offset, offset_delta, timestamp)
        self.last_timestamp_ms = timestamp

    # Returns: whether nothing more has to be asked before the batch is appended: its epoch is the producer's, its sequence the
    # next one, and it neither opens a transaction nor ends one. No batch that was sent before is that.
    cdef bint is_followed_by(self, const Header* h) noexcept:
        if h.producer_epoch != self.producer_epoch or self.kept_count == 0 or h.attributes & CONTROL_MASK:
            return False
        if h.base_sequence != sequence_behind(self.newest_sequence(), 1):
            return False
        return (h.attributes & TRANSACTIONAL_MASK != 0) == (self.current_txn_first_offset != NOT_KNOWN)

    cdef void follow(self, const Header* h) noexcept:
        self.go_on(h.base_sequence, h.base_offset, h.base_offset + h.last_offset_delta, h.max_timestamp)
