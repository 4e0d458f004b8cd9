# Appends of the producer: the queues of its partitions, and the short way of a record into the last batch of one.

from cpython.pythread cimport PyThread_get_thread_ident


@cython.final
cdef class PartitionQueue:
    """The batches of one partition that wait to be sent, the oldest first, and the lock that guards them.

    A context manager, which holds the lock, also for a finalizer or signal handler that appends in its midst. What is one
    compiled call needs no lock, since the GIL is held all the time, but then it looks first whether somebody holds it.
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
    cdef int32_t hold_count       # of the thread that holds the lock
    cdef long holder

    def __init__(self, topic_partition, *, lock, active):
        self.topic_partition = topic_partition
        self.partition = <int32_t>ranged("partition", topic_partition[1], 0, INT32_MAX)
        self.lock = lock
        self.active = active
        self.batches = []

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

    def append_to_new(self, BatchAppender batch not None, timestamp_ms, key, value, headers, callback, *, int64_t now_ms):
        """Put a new batch behind the others, with one record in it, and return its RecordAppendResult.

        Raises: ValueError as append_record(), and then the batch is not put there.
        """
        cdef RecordAppendResult result = batch.append_record(timestamp_ms, key, value, headers, callback, now_ms)
        if result is None:
            raise ValueError("a new batch must have room for its first record")
        self.push_last(batch)
        self.describe(result, batch, 0)
        result.new_batch_created = True
        return result

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
    cdef int64_t sticky_room      # bytes until the partitioner has to be told
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


# What an append is asked for, besides the record.
cdef struct AppendRequest:
    int64_t partition             # -1: the one that the partitioner chooses
    int64_t timestamp_ms
    int64_t now_ms
    bint may_begin_batch


cdef class AppendPath:
    """The compiled part of RecordAccumulator.

    Args: append_slowly: called where locks, a wait for memory or a choice of partition are needed, with the record's
        fields as append() got them; batch_type, result_type: the classes of batches and their results; model: a builder
        without records, as which those of batches begin; estimator: gives their ratio if they are compressed;
        incomplete: where batches enter themselves.
    Attributes: topics: the queues by topic; active: the queues that are not empty; is_closed: whether appends are refused.
    """

    cdef readonly dict topics
    cdef readonly dict active
    cdef readonly PoolMemory pool
    cdef public int64_t batch_size
    cdef public bint is_closed
    cdef object append_slowly
    cdef object batch_type
    cdef object future_type
    cdef object result_type
    cdef object estimator
    cdef RecordBatchEncoder model
    cdef dict incomplete
    cdef object last_topic
    cdef TopicQueues last_queues

    def __cinit__(self):
        self.topics = {}
        self.active = {}

    def __init__(self, *, PoolMemory pool, int64_t batch_size, RecordBatchEncoder model, batch_type, result_type,
                 estimator, dict incomplete, append_slowly):
        if pool is None or model is None or incomplete is None:
            raise TypeError("pool, model and incomplete must not be None")
        if not issubclass(batch_type, BatchAppender) or not issubclass(result_type, BatchResult):
            raise TypeError("batch_type must be a BatchAppender and result_type a BatchResult")
        self.pool = pool
        self.batch_size = batch_size
        self.model = encoder_like(model)
        self.batch_type = batch_type
        self.future_type = batch_type.future_type
        self.result_type = result_type
        self.estimator = estimator
        self.incomplete = incomplete
        self.append_slowly = append_slowly

    def append(self, topic, partition, timestamp_ms, key, value, headers=(), callback=None, *,
               int64_t max_time_to_block_ms, int64_t now_ms, cluster, bint abort_on_new_batch=False):
        """Append a record to the last batch of its partition, or to a new one, and return a RecordAppendResult.

        Args: partition: None for the one that BuiltInPartitioner chooses; key, value, headers: as of
            MemoryRecordsBuilder.append; callback: called with (RecordMetadata, None) or (None, error) by the thread that
            completes the batch; max_time_to_block_ms: how long to wait for memory; now_ms: the monotonic time;
            abort_on_new_batch: come back with abort_for_new_batch rather than begin a batch.
        Raises: ProducerClosedError; BufferExhaustedError; UnknownTopicOrPartitionError if None can't be chosen;
            ValueError, TypeError for what no record can be made of. Then nothing was appended and no memory is taken.
        Threads: safe.  Cost: one copy of key and value, one object, no lock while the pool has memory.
        """
        cdef RecordFields r
        cdef AppendRequest request
        cdef bytes key_bytes = as_bytes(key), value_bytes = as_bytes(value)
        cdef list flat = None
        cdef RecordAppendResult result
        request.timestamp_ms = as_int64(timestamp_ms)
        request.now_ms = now_ms
        request.may_begin_batch = not abort_on_new_batch
        request.partition = -1
        if type(headers) is not tuple:
            headers = tuple(headers)
        if headers:
            flat = flat_headers(headers)
        set_fields(&r, key_bytes, value_bytes, flat)
        if partition is None or as_partition(partition, &request.partition):
            result = RecordAppendResult.__new__(RecordAppendResult)
            result.callback = callback
            if self.append_quickly(topic, &request, &r, flat, result) is not None:
                return result
        return self.append_slowly(topic, partition, request.timestamp_ms, key_bytes, value_bytes, headers, callback,
                                  max_time_to_block_ms=max_time_to_block_ms, now_ms=now_ms, cluster=cluster,
                                  abort_on_new_batch=abort_on_new_batch)

    # Returns: the batch that took the record as its last one; None if that takes more than is done here. A result, if it
    # is not None, is filled in.
    @cython.final
    cdef BatchAppender append_quickly(self, object topic, const AppendRequest* request, RecordFields* r, list flat,
                                      RecordAppendResult result):
        cdef TopicQueues queues
        cdef PartitionQueue queue
        cdef BatchAppender last
        cdef int64_t before
        if topic is not self.last_topic:
            self.last_queues = self.topics.get(topic)
            self.last_topic = topic
        queues = self.last_queues
        if queues is None:
            self.last_topic = None
            return None
        if request.partition >= 0:
            queue = queues.queue_of(request.partition)
        else:
            queue = queues.sticky_queue
            if queues.sticky_room - queues.sticky_bytes <= 2 * batch_size_upper_bound(MAGIC_V2, False, r):
                return None
        if queue is None:
            return None
        last = queue.last_batch()
        if last is not None and result is not None and result.callback is not None:
            last.make_thunks()
        # No code of others runs from here to the write.
        if queue.hold_count or self.is_closed or queue.last_batch() is not last:
            return None
        if last is not None:
            before = last._builder.estimate()
            if last.append_fields(r, request.timestamp_ms, flat, request.now_ms, result):
                if result is not None:
                    queue.describe(result, last, before)
                if request.partition < 0:
                    queues.sticky_bytes += last._builder.estimate() - before
                return last
        if request.partition < 0 or not request.may_begin_batch:
            return None
        return self.append_to_new(queue, last, request, r, flat, result)

    # Begins a batch if there is memory at once. Requires: `last`, the last batch, has no room.
    @cython.final
    cdef BatchAppender append_to_new(self, PartitionQueue queue, BatchAppender last, const AppendRequest* request,
                                     RecordFields* r, list flat, RecordAppendResult result):
        cdef BatchAppender batch
        cdef ColumnBuffer buffer
        cdef Py_ssize_t count = len(queue.batches)
        if batch_size_upper_bound(MAGIC_V2, False, r) > self.batch_size or request.timestamp_ms < -1:
            return None
        batch = self.new_batch(queue.topic_partition)
        if result is not None and result.callback is not None:
            batch.make_thunks()
        # Code of others may have run. None does from here on.
        if self.is_closed or queue.hold_count or len(queue.batches) != count or queue.last_batch() is not last:
            return None
        buffer = try_allocate(self.pool, self.batch_size)
        if buffer is None:
            return None
        if last is not None:
            last.takes_records = False
        start_in(batch, buffer, request.now_ms)
        if not batch.append_fields(r, request.timestamp_ms, flat, request.now_ms, result):
            batch.deallocate()
            raise ValueError("a new batch must have room for its first record")
        self.incomplete[batch] = None
        queue.push_last(batch)
        if result is not None:
            queue.describe(result, batch, 0)
            result.new_batch_created = True
        return batch

    # Returns: a batch without a buffer: start_in() is still to be called.
    @cython.final
    cdef BatchAppender new_batch(self, object topic_partition):
        cdef BatchAppender batch = <BatchAppender>new_of(self.batch_type, ())
        cdef BatchResult result = <BatchResult>new_of(self.result_type, ())
        cdef RecordBatchEncoder builder = encoder_like(self.model)
        result.topic_partition = topic_partition
        batch.start(topic_partition, builder, result, self.pool)
        batch.type_of_futures = self.future_type
        if builder.h.attributes & CODEC_MASK:
            batch.estimator = self.estimator
            builder.estimated_compression_ratio = self.estimator.estimation(topic_partition[0], builder.compression)
        return batch

    def open_batch(self, topic_partition, ColumnBuffer buffer not None, int64_t now_ms):
        """Begin a batch in a buffer of the pool, which is full where the buffer ends."""
        cdef BatchAppender batch = self.new_batch(topic_partition)
        start_in(batch, buffer, now_ms)
        return batch

    def open_batches(self, topic_partition, ColumnBuffer buffer not None, int64_t now_ms, *, int64_t most):
        """Begin a batch in a buffer of the pool, and as many more of its size as there is memory for, up to `most`."""
        cdef BatchAppender batch
        cdef int64_t size = buffer.size
        cdef Py_ssize_t count = 0
        cdef list batches = [self.new_batch(topic_partition) for _ in range(max(most, 1))]
        # No code of others runs from here on.
        for batch in batches:
            if count > 0:
                buffer = try_allocate(self.pool, size)
                if buffer is None:
                    break
            start_in(batch, buffer, now_ms)
            count += 1
        return batches[:count]


# Returns: whether it is a number that names a partition.
cdef inline bint as_partition(object partition, int64_t* number) except -1:
    cdef int overflow = 0
    if type(partition) is not int:
        return False
    number[0] = PyLong_AsLongLongAndOverflow(partition, &overflow)
    return not overflow and number[0] >= 0


# Requires: a new batch, and a buffer that is counted in its pool and has room for the header.
cdef int start_in(BatchAppender batch, ColumnBuffer buffer, int64_t now_ms) except -1:
    batch._builder.write_limit_bytes = <int32_t>min(buffer.size, <int64_t>INT32_MAX)
    batch._builder.start(0, buffer)
    batch.begin(now_ms)
    return 0


# Returns: a buffer if there is memory and nobody waits for it, else None. No code of others runs.
cdef ColumnBuffer try_allocate(PoolMemory pool, int64_t size):
    cdef PoolSlot* slot
    if size == pool.state.poolable_size:
        slot = take_pooled(&pool.state, False)
        if slot != NULL:
            return claimed(slot)
    if pool.state.is_closed or size < 0 or not pool.reserve(size):
        return None
    return pool.counted(size)
