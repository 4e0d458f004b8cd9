# Appends of the producer: the queues of its partitions, and the short way of a record into the last batch of one.

@cython.final
cdef class PartitionQueue:
    """The batches of one partition that wait to be sent, the oldest first, and the lock that guards them.

    A context manager, which holds the lock. What is one compiled call needs no lock, since the GIL is held all the time,
    but then it looks first whether somebody else holds it.
    Args: lock: has acquire() and release(); active: where the queue enters itself while it is not empty.
    Attributes: is_muted: whether nothing may be drained now.
    Threads: safe while the lock is held.
    """

    cdef readonly object topic_partition
    cdef public bint is_muted
    cdef list batches
    cdef object lock
    cdef dict active
    cdef int32_t partition
    cdef bint is_held

    def __init__(self, topic_partition, *, lock, active):
        self.topic_partition = topic_partition
        self.partition = <int32_t>ranged("partition", topic_partition[1], 0, INT32_MAX)
        self.lock = lock
        self.active = active
        self.batches = []

    def __enter__(self):
        self.lock.acquire()
        self.is_held = True
        return self

    def __exit__(self, *exception):
        self.is_held = False
        self.lock.release()

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

    # Appends to the last batch. Returns: whether it had room. From the look at the batch to the write no code of others runs.
    cdef bint append_fields(self, RecordFields* r, int64_t timestamp, list flat, int64_t now_ms,
                            RecordAppendResult result) except -1:
        cdef Py_ssize_t count = len(self.batches)
        cdef BatchAppender last
        cdef int64_t before
        if count == 0:
            return False
        last = <BatchAppender>self.batches[count - 1]
        before = last._builder.estimate()
        if not last.append_fields(r, timestamp, flat, now_ms, result):
            return False
        result.partition = self.partition
        result.appended_bytes = last._builder.estimate() - before
        result.fills_batch = last.looks_full()
        result.batch_is_full = count > 1 or result.fills_batch
        return True

    def append_to_new(self, BatchAppender batch not None, timestamp_ms, key, value, headers, callback, *, int64_t now_ms):
        """Put a new batch behind the others, with one record in it, and return its RecordAppendResult.

        Raises: ValueError as append_record(), and then the batch is not put there.
        """
        cdef RecordAppendResult result = batch.append_record(timestamp_ms, key, value, headers, callback, now_ms)
        if result is None:
            raise ValueError("a new batch must have room for its first record")
        self.push_last(batch)
        result.partition = self.partition
        result.appended_bytes = batch._builder.estimate()
        result.batch_is_full = len(self.batches) > 1 or batch.looks_full()
        result.new_batch_created = True
        return result

    def append_to_last(self, timestamp_ms, key, value, headers, callback, *, int64_t now_ms):
        """Append a record to the last batch; None if there is none with room, and the last one then takes no more."""
        cdef BatchAppender last
        if not self.batches:
            return None
        last = <BatchAppender>self.batches[len(self.batches) - 1]
        before = last._builder.estimate()
        cdef RecordAppendResult result = last.append_record(timestamp_ms, key, value, headers, callback, now_ms)
        if result is None:
            last.close_for_record_appends()
            return None
        result.partition = self.partition
        result.appended_bytes = last._builder.estimate() - before
        result.batch_is_full = len(self.batches) > 1 or last.looks_full()
        return result

    def stopped_before_new_batch(self):
        """Return what an append gives back that must not begin a batch: nothing was appended."""
        cdef RecordAppendResult result = RecordAppendResult.__new__(RecordAppendResult)
        result.partition = self.partition
        result.abort_for_new_batch = True
        return result


@cython.final
cdef class TopicQueues:
    """The queues of one topic, and which of them takes the records that name no partition.

    Attributes: partitioner chooses that one; is_sticky_used: whether it was asked for.
    """

    cdef readonly object partitioner
    cdef readonly dict queues
    cdef readonly bint is_sticky_used
    cdef object sticky_info
    cdef PartitionQueue sticky_queue
    cdef int64_t sticky_room      # bytes until the partitioner has to be told
    cdef int64_t sticky_bytes     # that it has not been told yet

    def __init__(self, partitioner):
        self.partitioner = partitioner
        self.queues = {}

    def __len__(self):
        return len(self.queues)

    def size_of(self, partition):
        """Return how many batches wait for a partition."""
        cdef PartitionQueue queue = self.queues.get(partition)
        return 0 if queue is None else len(queue.batches)

    def stick(self, info, PartitionQueue queue not None, int64_t room):
        """Send records that name no partition to a queue, for so many bytes, without asking again.

        Requires: the queue is held and belongs to `info`, the partitioner's current partition.
        """
        self.sticky_info = info
        self.sticky_queue = queue
        self.sticky_room = room
        self.sticky_bytes = 0
        self.is_sticky_used = True

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


cdef class AppendPath:
    """The compiled part of RecordAccumulator.

    Attributes: topics: the queues by topic; active: the queues that are not empty; is_closed: whether appends are refused.
    """

    cdef readonly dict topics
    cdef readonly dict active
    cdef public bint is_closed

    def __cinit__(self):
        self.topics = {}
        self.active = {}

    def append(self, topic, partition, timestamp_ms, key, value, headers=(), callback=None, *,
               int64_t max_time_to_block_ms, int64_t now_ms, cluster, bint abort_on_new_batch=False):
        """Append a record to the last batch of its partition, or to a new one, and return a RecordAppendResult.

        Args: partition: None for the one that BuiltInPartitioner chooses; key, value, headers: as of
            MemoryRecordsBuilder.append; callback: called with (RecordMetadata, None) or (None, error) by the thread that
            completes the batch; max_time_to_block_ms: how long to wait for memory; now_ms: the monotonic time;
            abort_on_new_batch: come back with abort_for_new_batch rather than begin a batch.
        Raises: ProducerClosedError; BufferExhaustedError; UnknownTopicOrPartitionError if None can't be chosen;
            ValueError, TypeError for what no record can be made of. Then nothing was appended and no memory is taken.
        Threads: safe.  Cost: one copy of key and value, one object, no lock where the last batch has room.
        """
        cdef RecordFields r
        cdef int64_t timestamp = as_int64(timestamp_ms)
        cdef bytes key_bytes = as_bytes(key), value_bytes = as_bytes(value)
        cdef list flat = None
        cdef RecordAppendResult result = RecordAppendResult.__new__(RecordAppendResult)
        if type(headers) is not tuple:
            headers = tuple(headers)
        if headers:
            flat = flat_headers(headers)
        set_fields(&r, key_bytes, value_bytes, flat)
        result.callback = callback
        if not self.is_closed and self.append_quickly(topic, partition, &r, timestamp, flat, now_ms, result):
            return result
        return self.append_slowly(topic, partition, timestamp, key_bytes, value_bytes, headers, callback,
                                  max_time_to_block_ms=max_time_to_block_ms, now_ms=now_ms, cluster=cluster,
                                  abort_on_new_batch=abort_on_new_batch)

    # No code of others runs here.
    @cython.final
    cdef bint append_quickly(self, object topic, object partition, RecordFields* r, int64_t timestamp, list flat,
                             int64_t now_ms, RecordAppendResult result) except -1:
        cdef TopicQueues queues = self.topics.get(topic)
        cdef PartitionQueue queue
        if queues is None:
            return False
        if partition is None:
            queue = queues.sticky_queue
            if queue is None or queues.sticky_room - queues.sticky_bytes <= 2 * batch_size_upper_bound(MAGIC_V2, False, r):
                return False
        else:
            queue = queues.queues.get(partition)
        if queue is None or queue.is_held or not queue.append_fields(r, timestamp, flat, now_ms, result):
            return False
        if partition is None:
            queues.sticky_bytes += result.appended_bytes
        return True

    def append_slowly(self, topic, partition, timestamp_ms, key, value, headers, callback, *, max_time_to_block_ms, now_ms,
                      cluster, abort_on_new_batch):
        """Append with the queue's lock, and with a new batch if need be; RecordAccumulator has it."""
        raise NotImplementedError


def pack_rows_into(list batches not None, RecordBatchPacker packer not None):
    """Pack the next rows of columns into empty batches, which take no more records then; return how many got rows.

    Raises: ValueError with the row.
    """
    cdef BatchAppender batch
    cdef list builders = [(<BatchAppender?>batch)._builder for batch in batches]
    cdef int64_t count = packer.pack_into(builders)
    for batch in batches:
        batch.max_record_size = packer.largest_record_bytes
        batch.takes_records = False
    return count


def try_allocate(PoolMemory pool not None, int64_t size):
    """Return a buffer of the pool if there is memory and nobody waits for it, else None."""
    cdef PoolSlot* slot
    if size == pool.state.poolable_size:
        slot = take_pooled(&pool.state, False)
        if slot != NULL:
            return claimed(slot)
    if pool.state.is_closed or size < 0 or not pool.reserve(size):
        return None
    return pool.counted(size)
