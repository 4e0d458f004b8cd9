# What became of a batch, and what the sender of one record gets: the place of the record, and its future.

cdef extern from *:
    """
    #define KS_NEW(type, args) (((PyTypeObject *)(type))->tp_new((PyTypeObject *)(type), args, NULL))
    """
    object new_of "KS_NEW"(object type, object args)


cdef class BatchResult:
    """The compiled part of ProduceRequestResult: what became of a batch, and who is told.

    Threads: safe, each call is one step under the GIL.
    """

    cdef readonly object topic_partition
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time_ms
    cdef readonly tuple pieces
    cdef readonly tuple first_indexes
    cdef readonly bint is_done
    cdef bint is_set
    cdef object error_of_record
    cdef list waiters             # locks that are held
    cdef list watchers

    def __cinit__(self):
        self.base_offset = self.log_append_time_ms = -1
        self.pieces = self.first_indexes = ()

    def __init__(self, topic_partition):
        self.topic_partition = topic_partition

    def set(self, int64_t base_offset, *, int64_t log_append_time_ms=-1, error_of=None):
        """Say what became of the batch: an offset, or the error of each record by its index.

        Raises: ValueError if it was said before.
        """
        if self.is_set:
            raise ValueError(f"the result of a batch of {self.topic_partition} was set before")
        self.is_set = True
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error_of_record = error_of

    def point_to(self, tuple pieces not None, tuple first_indexes not None):
        """Leave the rest to the pieces of the batch, each with the index of its first record here, before end()."""
        self.pieces = pieces
        self.first_indexes = first_indexes

    def end(self):
        """Let go all who wait, and return those who want to be told.

        Raises: ValueError if the result was not set.
        """
        if not self.is_set:
            raise ValueError(f"the result of a batch of {self.topic_partition} is not set")
        self.is_done = True
        waiters, watchers = self.waiters, self.watchers
        self.waiters = self.watchers = None
        if waiters is not None:
            for lock in waiters:
                lock.release()
        return () if watchers is None else watchers

    # Whether no future wants to be told, and nothing was said yet.
    cdef bint is_silent(self) noexcept:
        return not self.is_set and not self.watchers

    # The same as set() and end(). Requires: is_silent().
    cdef int succeed(self, int64_t base_offset, int64_t log_append_time_ms) except -1:
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.is_set = self.is_done = True
        waiters, self.waiters = self.waiters, None
        if waiters is not None:
            for lock in waiters:
                lock.release()
        return 0

    def error_of(self, index):
        """Return why the record of an index failed, None if it did not; place_of() says whom to ask after a split."""
        return None if self.error_of_record is None else self.error_of_record(index)

    def add_watcher(self, watcher):
        """Have a future told by this result, whatever its index; return False if it is done."""
        # With a list a collection of garbage may come, and code of others that changes all this.
        cdef list made = [] if self.watchers is None else None
        if self.is_done:
            return False
        if self.watchers is None:
            self.watchers = made
        self.watchers.append(watcher)
        return True

    def add_waiter(self, lock):
        """Have a lock, which is held, released when the batch is done; return False if it is."""
        cdef list made = [] if self.waiters is None else None
        if self.is_done:
            return False
        if self.waiters is None:
            self.waiters = made
        self.waiters.append(lock)
        return True

    def remove_waiter(self, lock):
        """Forget a lock, if it is not released yet."""
        if self.waiters is not None and lock in self.waiters:
            self.waiters.remove(lock)


cdef class RecordFuture:
    """The compiled part of FutureRecordMetadata: which record of which ProduceRequestResult it stands for.

    Sizes are -1 for null.
    """

    cdef readonly object produce_result
    cdef readonly int64_t timestamp_ms
    cdef readonly int32_t index
    cdef readonly int32_t serialized_key_size
    cdef readonly int32_t serialized_value_size

    def __init__(self, produce_result, *, int32_t index, int64_t timestamp_ms, int32_t serialized_key_size,
                 int32_t serialized_value_size):
        self.produce_result = produce_result
        self.index = index
        self.timestamp_ms = timestamp_ms
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size


# The same as a call of the class, without objects for the arguments.
cdef inline RecordFuture new_future(object future_type, object produce_result, int32_t index, int64_t timestamp_ms,
                                    int32_t key_size, int32_t value_size):
    cdef RecordFuture future = <RecordFuture>new_of(future_type, ())
    future.produce_result = produce_result
    future.index = index
    future.timestamp_ms = timestamp_ms
    future.serialized_key_size = key_size
    future.serialized_value_size = value_size
    return future


@cython.final
@cython.freelist(256)
cdef class RecordAppendResult:
    """What an append gives back: the place of the record, and what the accumulator has to say about it.

    Attributes: index (in its batch), sizes (-1 for null); batch_is_full, new_batch_created, appended_bytes, partition
        are set by the accumulator; abort_for_new_batch says that nothing was appended. future is made when it is first
        asked for.
    """

    cdef readonly object produce_result
    cdef readonly object callback
    cdef object future_type
    cdef RecordFuture known_future
    cdef readonly int64_t timestamp_ms
    cdef readonly int32_t index
    cdef readonly int32_t serialized_key_size
    cdef readonly int32_t serialized_value_size
    cdef readonly int32_t partition
    cdef readonly int64_t appended_bytes
    cdef readonly bint batch_is_full
    cdef readonly bint new_batch_created
    cdef readonly bint abort_for_new_batch

    @property
    def future(self):
        cdef RecordFuture future = self.known_future
        if future is None and self.produce_result is not None:
            future = new_future(self.future_type, self.produce_result, self.index, self.timestamp_ms,
                                self.serialized_key_size, self.serialized_value_size)
            if self.known_future is None:
                self.known_future = future
        return self.known_future
