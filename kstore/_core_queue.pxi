# The queues of the producer's partitions, and the lock that guards each.

from cpython.pythread cimport PyThread_get_thread_ident


cdef class OwnedLock:
    """A lock that its thread may take again, and that knows whether it is this thread's.

    A context manager, which holds it.
    Args: lock: has acquire() and release().
    Threads: safe; an interrupt leaves it either held by who is inside, or as it was.
    """

    cdef object lock
    cdef int32_t hold_count       # of the thread that holds the lock
    cdef long holder

    def __init__(self, lock):
        self.lock = lock

    def __enter__(self):
        cdef long own = PyThread_get_thread_ident()
        if self.hold_count == 0 or self.holder != own:
            self.lock.acquire()
            self.holder = own
        self.hold_count += 1
        return self

    def __exit__(self, *exception):
        self.hold_count -= 1
        if self.hold_count == 0:
            self.lock.release()

    @property
    def is_held_here(self):
        """Whether the calling thread holds it."""
        cdef long own = PyThread_get_thread_ident()
        return self.hold_count > 0 and self.holder == own


@cython.final
cdef class Bell:
    """Wakes the one thread that waits for it, or spares it the next wait.

    Args: lock: not held; has acquire(blocking, timeout in s) and release().
    Threads: ring() from any; each call is one step, into which no interrupt comes.
    """

    cdef object lock              # held, unless somebody rang for who waits
    cdef bint is_awaited
    cdef readonly bint is_rung

    def __init__(self, lock):
        self.lock = lock
        lock.acquire()

    def ring(self):
        """Let the thread go on that waits, or that will next."""
        self.is_rung = True
        if self.is_awaited:
            self.is_awaited = False
            self.lock.release()

    def wait(self, double timeout_s):
        """Wait until it rings, unless it has rung since the last time."""
        if not self.is_rung:
            self.is_awaited = True
            if not self.lock.acquire(True, timeout_s) and not self.is_awaited:
                # it rang too late to be heard
                self.lock.acquire()
            self.is_awaited = False
        self.is_rung = False


@cython.final
cdef class PartitionQueue(OwnedLock):
    """The batches of one partition that wait to be sent, the oldest first, and the lock that guards them.

    A finalizer or signal handler may append in the midst of who holds the lock. What is one compiled call needs no lock,
    since the GIL is held all the time, but then it looks first whether somebody holds it.
    Args: lock: has acquire() and release(); active: where the queue enters itself while it is not empty.
    Attributes: is_muted: whether nothing may be drained now.
    Threads: safe while the lock is held.
    """

    cdef readonly object topic_partition
    cdef public bint is_muted
    cdef list batches
    cdef dict active
    cdef int32_t partition

    def __init__(self, topic_partition, *, lock, active):
        self.topic_partition = topic_partition
        self.partition = <int32_t>ranged("partition", topic_partition[1], 0, INT32_MAX)
        super().__init__(lock)
        self.active = active
        self.batches = []

    def __len__(self):
        return len(self.batches)

    def copy(self):
        """Return the batches of now."""
        return list(self.batches)

    @property
    def first(self): return self.batches[0] if self.batches else None
    @property
    def last(self): return self.batches[len(self.batches) - 1] if self.batches else None

    @property
    def is_full(self):
        """Whether no batch here would take a record that is small enough."""
        cdef Py_ssize_t count = len(self.batches)
        return count == 0 or (<BatchAppender>self.batches[count - 1]).looks_full()

    def push_first(self, BatchAppender batch not None):
        """Put a batch before all others."""
        self.batches.insert(0, batch)
        self.active[self] = None

    def push_last(self, BatchAppender batch not None):
        """Put a batch behind all others."""
        self.batches.append(batch)
        self.active[self] = None

    def insert(self, Py_ssize_t place, BatchAppender batch not None):
        """Put a batch behind so many others."""
        self.batches.insert(place, batch)
        self.active[self] = None

    def pop_first(self):
        """Take the first batch out.

        Raises: IndexError if there is none.
        """
        batch = self.batches.pop(0)
        if not self.batches:
            self.active.pop(self, None)
        return batch

    def remove(self, batch):
        """Take a batch out, wherever it is; say whether it was there."""
        cdef Py_ssize_t place
        for place in range(len(self.batches)):
            if self.batches[place] is batch:
                del self.batches[place]
                if not self.batches:
                    self.active.pop(self, None)
                return True
        return False

    # Returns: the last batch; None if there is none.
    @cython.final
    cdef inline BatchAppender last_batch(self):
        cdef Py_ssize_t count = len(self.batches)
        return <BatchAppender>self.batches[count - 1] if count else None

    # Says in a result what the accumulator has to say of an append to the last batch.
    @cython.final
    cdef int describe(self, RecordAppendResult result, BatchAppender last, int64_t before) except -1:
        result.partition = self.partition
        result.appended_bytes = last._builder.estimate() - before
        result.batch_is_full = len(self.batches) > 1 or last.looks_full()
        return 0

    def append_to_last(self, timestamp_ms, key, value, headers, callback, *, int64_t now_ms):
        """Append a record to the last batch; None if there is none with room, and the last one then takes no more."""
        cdef BatchAppender last = self.last_batch()
        if last is None:
            return None
        cdef int64_t before = last._builder.estimate()
        cdef RecordAppendResult result = last.append_record(timestamp_ms, key, value, headers, callback, now_ms)
        if result is None:
            last.close_for_record_appends()
            return None
        self.describe(result, last, before)
        return result

    def stopped_before_new_batch(self):
        """Return what an append gives back that must not begin a batch: nothing was appended."""
        cdef RecordAppendResult result = RecordAppendResult.__new__(RecordAppendResult)
        result.partition = self.partition
        result.abort_for_new_batch = True
        return result


cdef enum:
    MOST_NUMBERED_QUEUES = 4096


@cython.final
cdef class TopicQueues:
    """The queues of one topic, and which of them takes the records that name no partition.

    Attributes: partitioner chooses that one; is_sticky_used: whether it was asked for.
    """

    cdef readonly object partitioner
    cdef readonly dict queues
    cdef list queue_by_number     # the same, as far as numbers are small; None where there is none
    cdef readonly bint is_sticky_used
    cdef object sticky_info
    cdef PartitionQueue sticky_queue
    cdef int64_t sticky_size      # bytes of a partition
    cdef int64_t sticky_room      # of them, what was left when the partitioner was told last
    cdef int64_t sticky_bytes     # that it has not been told yet

    def __init__(self, partitioner):
        self.partitioner = partitioner
        self.queues = {}
        self.queue_by_number = []

    def __len__(self):
        return len(self.queues)

    def add(self, PartitionQueue queue not None):
        """Add the queue of a partition, and return it; or the one that there is already."""
        cdef PartitionQueue known = self.queues.setdefault(queue.partition, queue)
        if known is queue and queue.partition < MOST_NUMBERED_QUEUES:
            while len(self.queue_by_number) <= queue.partition:
                self.queue_by_number.append(None)
            self.queue_by_number[queue.partition] = queue
        return known

    # Returns: None if there is none.
    @cython.final
    cdef inline PartitionQueue queue_of(self, int64_t partition):
        if 0 <= partition < len(self.queue_by_number):
            return <PartitionQueue>self.queue_by_number[partition]
        return <PartitionQueue>self.queues.get(partition)

    def size_of(self, partition):
        """Return how many batches wait for a partition."""
        cdef PartitionQueue queue = self.queue_of(partition)
        return 0 if queue is None else len(queue.batches)

    def stick(self, info, PartitionQueue queue not None, *, int64_t size, int64_t room):
        """Send records that name no partition to a queue without asking again, for as long as keeps() says.

        Args: size: bytes of a partition; room: how many of them are left.
        Requires: the queue is held and belongs to `info`, the partitioner's current partition.
        """
        self.sticky_info = info
        self.sticky_queue = queue
        self.sticky_size = size
        self.sticky_room = room
        self.sticky_bytes = 0
        self.is_sticky_used = True

    # Whether the partitioner would stay with its partition behind a record of less than so many bytes: until that has got
    # its bytes, or twice as many where the record leaves room in its last batch, None for a batch that is still to be made.
    @cython.final
    cdef bint keeps(self, BatchAppender last, int64_t size) noexcept:
        cdef int64_t room = self.sticky_room - self.sticky_bytes
        if room <= size and last is not None and last.has_room_left(size):
            room += self.sticky_size
        return room > size

    def unstick(self, info):
        """Ask again from now on, and return the bytes that went to `info` without a word.

        Requires: its queue is held.
        """
        cdef int64_t told = self.sticky_bytes
        if self.sticky_info is not info:
            return 0
        self.sticky_queue = None
        self.sticky_info = None
        self.sticky_bytes = 0
        return told
