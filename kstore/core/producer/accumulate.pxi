# The append path of the producer's accumulator: the queues of its partitions and their locks, the sticky partition,
# which takes records without a partition, and the fast path that appends a record to the last batch of its partition
# or to a new one (RecordAccumulatorCore).

# Queues, and the lock of each.

from cpython.pythread cimport PyThread_get_thread_ident


cdef class OwnedLock:
    """A reentrant lock that knows whether the calling thread holds it; a context manager that holds it.

    Args: lock: an object with acquire() and release().
    Threads: safe. An interrupted call has either taken the lock or left it as it was.
    """

    cdef object lock
    cdef int32_t hold_count       # by the thread that holds the lock
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
        """Whether the calling thread holds the lock."""
        cdef long own = PyThread_get_thread_ident()
        return self.hold_count > 0 and self.holder == own


@cython.final
cdef class TriedLock:
    """A context manager that takes a lock if that is free now, and returns whether it has; it is released at the end.

    `acquire(blocking=False)` and a `try` have a place between them where an interrupt leaves the lock held.
    Args: lock: an object with acquire(blocking) and release().
    Threads: for one `with` statement.
    """

    cdef object lock
    cdef bint is_held

    def __init__(self, lock):
        self.lock = lock

    def __enter__(self):
        self.is_held = self.lock.acquire(False)
        return self.is_held

    def __exit__(self, *exception):
        if self.is_held:
            self.is_held = False
            self.lock.release()


@cython.final
cdef class Bell:
    """An event for one waiting thread: ring() ends its wait, or makes its next wait return at once.

    Args: lock: not held; has acquire(blocking, timeout in s) and release(); patience_s: within which the thread looks
        at what call() is called for; work: a dict that has something in it while there is anything to look at.
    Threads: any may call ring() and call(). Each call is one step, which no interrupt can split.
    """

    cdef object lock              # held, except when ring() has released it for the waiting thread
    cdef bint is_awaited
    cdef readonly bint is_rung
    cdef bint is_called           # since the last wait began
    cdef double patience_s
    cdef double timeout_s         # of the wait
    cdef dict work

    def __init__(self, lock, *, double patience_s=0, dict work=None):
        self.lock = lock
        self.patience_s = patience_s
        self.work = work
        lock.acquire()

    def ring(self):
        """Wake the waiting thread, or let its next wait return at once."""
        self.is_rung = True
        if self.is_awaited:
            self.is_awaited = False
            self.lock.release()

    def call(self):
        """Let the thread's wait, the present or the next one, end within patience_s, by its own timeout if that is so.

        To wake a thread takes far longer than to note that it is to look: who calls again and again wakes nobody.
        """
        self.is_called = True
        if self.patience_s <= 0 or (self.is_awaited and self.timeout_s > self.patience_s):
            self.ring()

    def wait(self, double timeout_s):
        """Wait until ring() is called, at most timeout_s, or return at once if it was called since the last wait.

        After a call() it looks at `work` twice within patience_s, and returns if there is any both times: what others
        begin and end again and again is no work.
        """
        cdef double left_s = timeout_s
        cdef bint has_seen_work = False
        while not self.is_rung:
            self.timeout_s = min(left_s, self.patience_s / 2) if self.is_called or has_seen_work else left_s
            left_s -= self.timeout_s
            self.is_called = False
            self.is_awaited = True
            if not self.lock.acquire(True, self.timeout_s) and not self.is_awaited:
                # The timeout ended first, and ring() released the lock afterwards.
                self.lock.acquire()
            self.is_awaited = False
            if self.is_rung:
                break
            if left_s <= 0 or self.work is None or (has_seen_work and len(self.work) > 0):
                return
            has_seen_work = len(self.work) > 0
        self.is_rung = False


@cython.final
cdef class PartitionQueue(OwnedLock):
    """The batches of one partition that wait to be sent, oldest first, and the lock that guards them.

    A finalizer or signal handler may append while its own thread holds the lock. A single compiled call holds the GIL
    throughout and so needs no lock, but it must first check that the lock is not held.
    Args: lock: an object with acquire() and release(); active: a dict that contains the queue while it is not empty;
        wake_sender: called when somebody waits for a batch that lingers in the queue; None if nobody is to be woken;
        direct: a DirectSend, None if only the Sender's thread sends.
    Attributes: is_muted: whether no batch may be drained now.
    Threads: safe while the lock is held.
    """

    cdef readonly object topic_partition
    cdef public bint is_muted
    cdef list batches
    cdef dict active
    cdef object wake_sender
    cdef object direct
    cdef int32_t partition

    def __init__(self, topic_partition, *, lock, active, wake_sender=None, direct=None):
        self.topic_partition = topic_partition
        self.wake_sender = wake_sender
        self.direct = direct
        self.partition = <int32_t>ranged("partition", topic_partition[1], 0, INT32_MAX)
        super().__init__(lock)
        self.active = active
        self.batches = []

    def __len__(self):
        return len(self.batches)

    def copy(self):
        """Return the current batches as a list."""
        return list(self.batches)

    @property
    def first(self): return self.batches[0] if self.batches else None
    @property
    def last(self): return self.batches[len(self.batches) - 1] if self.batches else None

    @property
    def is_full(self):
        """Whether the last batch takes no more records, or there is no batch."""
        cdef Py_ssize_t count = len(self.batches)
        return count == 0 or (<ProducerBatchCore>self.batches[count - 1]).looks_full()

    @property
    def is_first_due(self):
        """Whether the first batch must not linger: it takes no more records, or somebody waits for it."""
        return len(self.batches) > 0 and not self.may_linger_at(0)

    # Whether the batch after `passed` others may wait for more records: no other one follows it, it is not full, and
    # nobody waits for its result. Requires: there is such a batch.
    @cython.final
    cdef inline bint may_linger_at(self, Py_ssize_t passed) noexcept:
        cdef ProducerBatchCore batch
        if len(self.batches) > passed + 1:
            return False
        batch = <ProducerBatchCore>self.batches[passed]
        return not (batch.looks_full() or batch.result.is_awaited)

    # What a batch that enters the queue needs to know of it.
    cdef int receive(self, ProducerBatchCore batch) except -1:
        self.active[self] = None
        batch.result.wake_sender = self.wake_sender
        batch.result.queue = self
        return 0

    def send_now(self, ProduceRequestResultCore result not None):
        """Send the first batch in the calling thread, if `result` is its and a DirectSend can; see there."""
        if self.direct is not None:
            self.direct.send(self, result)

    def push_first(self, ProducerBatchCore batch not None):
        """Insert a batch at the front."""
        self.batches.insert(0, batch)
        self.receive(batch)

    def push_last(self, ProducerBatchCore batch not None):
        """Append a batch."""
        self.batches.append(batch)
        self.receive(batch)

    def insert(self, Py_ssize_t place, ProducerBatchCore batch not None):
        """Insert a batch after the first `place` batches."""
        self.batches.insert(place, batch)
        self.receive(batch)

    def pop_first(self):
        """Remove and return the first batch.

        Raises: IndexError if there is none.
        """
        batch = self.batches.pop(0)
        if not self.batches:
            self.active.pop(self, None)
        return batch

    def remove(self, batch):
        """Remove a batch from any place; return whether it was there."""
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
    cdef inline ProducerBatchCore last_batch(self):
        cdef Py_ssize_t count = len(self.batches)
        return <ProducerBatchCore>self.batches[count - 1] if count else None

    # Fills in a result after an append to the last batch. before: the batch's estimated size before it.
    @cython.final
    cdef int describe(self, RecordAppendResult result, ProducerBatchCore last, int64_t before) except -1:
        result.partition = self.partition
        result.appended_bytes = last._builder.estimate() - before
        result.batch_is_full = len(self.batches) > 1 or last.looks_full()
        return 0

    def append_to_last(self, timestamp_ms, key, value, headers, callback, *, int64_t now_ms):
        """Append a record to the last batch; if there is none, or no room, close it and return None."""
        cdef ProducerBatchCore last = self.last_batch()
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
        """Return the result of an append that must not begin a new batch but needs one: nothing was appended."""
        cdef RecordAppendResult result = RecordAppendResult.__new__(RecordAppendResult)
        result.partition = self.partition
        result.abort_for_new_batch = True
        return result


# The sticky partition.

@cython.final
cdef class StickyPartitionInfo:
    """StickyPartitionInfo(partition, *, sticky_batch_size)\n--\n
    The current partition for records without a key, the bytes it has received, and the rule when it is replaced.

    Args: sticky_batch_size: the bytes that a partition receives, or twice as many while its last batch has room.
    Threads: one compiled call at a time, under the GIL.  Source: Kafka BuiltInPartitioner.updatePartitionInfo.
    """

    cdef readonly int64_t partition
    cdef readonly int64_t produced_bytes
    cdef readonly int64_t sticky_batch_size

    def __init__(self, int64_t partition, *, int64_t sticky_batch_size):
        self.partition = partition
        self.sticky_batch_size = sticky_batch_size

    def add(self, int64_t appended_bytes):
        """Count bytes that were appended to the partition."""
        self.produced_bytes += appended_bytes

    def has_enough(self, *, bint has_room):
        """Return whether the partition is replaced; has_room: whether its last batch has room."""
        return self.would_have_enough(0, has_room)

    # Whether the partition would be replaced after `more` bytes.
    cdef inline bint would_have_enough(self, int64_t more, bint has_room) noexcept:
        return self.sticky_batch_size - self.produced_bytes - more <= (-self.sticky_batch_size if has_room else 0)


cdef enum:
    MOST_NUMBERED_QUEUES = 4096


@cython.final
cdef class TopicQueues:
    """The queues of one topic, and the sticky queue, which takes records without a partition.

    Attributes: partitioner: chooses the sticky partition; is_sticky_used: whether stick() was called.
    Threads: one compiled call at a time, under the GIL; see PartitionQueue.
    """

    cdef readonly object partitioner
    cdef readonly dict queues
    cdef list queue_by_number     # the queues with small numbers by number, None for those that do not exist
    cdef readonly bint is_sticky_used
    cdef StickyPartitionInfo sticky_info
    cdef PartitionQueue sticky_queue

    def __init__(self, partitioner):
        self.partitioner = partitioner
        self.queues = {}
        self.queue_by_number = []

    def __len__(self):
        return len(self.queues)

    def add(self, PartitionQueue queue not None):
        """Add the queue of a partition; return it, or the existing queue of the partition."""
        cdef PartitionQueue known = self.queues.setdefault(queue.partition, queue)
        if known is queue and queue.partition < MOST_NUMBERED_QUEUES:
            while len(self.queue_by_number) <= queue.partition:
                self.queue_by_number.append(None)
            self.queue_by_number[queue.partition] = queue
        return known

    # Returns: None if there is no such queue.
    @cython.final
    cdef inline PartitionQueue queue_of(self, int64_t partition):
        if 0 <= partition < len(self.queue_by_number):
            return <PartitionQueue>self.queue_by_number[partition]
        return <PartitionQueue>self.queues.get(partition)

    def size_of(self, partition):
        """Return the number of batches that wait for a partition."""
        cdef PartitionQueue queue = self.queue_of(partition)
        return 0 if queue is None else len(queue.batches)

    def stick(self, StickyPartitionInfo info not None, PartitionQueue queue not None):
        """Append records without a partition to a queue, without asking the partitioner, as long as keeps() is true.

        Requires: the queue is held and belongs to `info`, the partitioner's current partition.
        """
        self.sticky_info = info
        self.sticky_queue = queue
        self.is_sticky_used = True

    # Whether the partitioner would keep its partition after a record of less than `size` bytes is appended to the last
    # batch; None: to a new batch. Requires: sticky_queue is set.
    @cython.final
    cdef bint keeps(self, ProducerBatchCore last, int64_t size) noexcept:
        cdef StickyPartitionInfo info = self.sticky_info
        if not info.would_have_enough(size, False):
            return True
        return last is not None and last.has_room_left(size) and not info.would_have_enough(size, True)

    def unstick(self, StickyPartitionInfo info not None):
        """Stop taking records without asking the partitioner, if its choice was `info`.  Requires: the queue is held."""
        if self.sticky_info is info:
            self.sticky_queue = None
            self.sticky_info = None


# The fast path of an append.

# The parameters of an append, without the record.
cdef struct AppendRequest:
    int64_t partition             # -1: chosen by the partitioner
    int64_t timestamp_ms
    int64_t now_ms
    bint may_begin_batch
    bint needs_partition          # in a transaction, the partition must already belong to it


@cython.final
cdef class OpenTransaction:
    """Which records may be appended to a transaction without a call of its TransactionManager.

    Attributes: is_open: whether any may; partitions: those that belong to the transaction.
    Threads: changed only while the manager's lock is held.
    """

    cdef public bint is_open
    cdef readonly set partitions

    def __cinit__(self):
        self.partitions = set()

    @cython.final
    cdef inline bint accepts(self, object topic_partition, bint needs_partition) except -1:
        return self.is_open and (not needs_partition or topic_partition in self.partitions)


cdef class RecordAccumulatorCore:
    """The compiled base class of RecordAccumulator: the fast path of append().

    Args: append_slowly: the slow path, called with the record's fields as append() got them when locks, a wait for
        memory or a choice of partition are needed; batch_type, result_type: the classes of batches and of their
        results; model: a builder without records, which the builders of batches copy; estimator: estimates their
        compression ratio; incomplete: a dict that batches enter themselves into; open_transaction: None if records may
        be appended outside of transactions.
    Attributes: topics: the queues by topic; active: the queues that are not empty; is_closed: whether appends are
        refused; future_type: the class of the futures of new batches.
    """

    cdef readonly dict topics
    cdef readonly dict active
    cdef readonly BufferPoolCore pool
    cdef public int64_t batch_size
    cdef public bint is_closed
    cdef readonly OpenTransaction open_transaction
    cdef object append_slowly
    cdef object batch_type
    cdef public object future_type
    cdef object result_type
    cdef object estimator
    cdef MemoryRecordsBuilderCore model
    cdef dict incomplete
    cdef object last_topic
    cdef TopicQueues last_queues

    def __cinit__(self):
        self.topics = {}
        self.active = {}

    def __init__(self, *, BufferPoolCore pool, int64_t batch_size, MemoryRecordsBuilderCore model, batch_type, result_type,
                 estimator, dict incomplete, append_slowly, OpenTransaction open_transaction=None):
        if pool is None or model is None or incomplete is None:
            raise TypeError("pool, model and incomplete must not be None")
        if not issubclass(batch_type, ProducerBatchCore) or not issubclass(result_type, ProduceRequestResultCore):
            raise TypeError("batch_type must be a ProducerBatchCore and result_type a ProduceRequestResultCore")
        self.pool = pool
        self.batch_size = batch_size
        self.model = builder_like(model)
        self.batch_type = batch_type
        self.future_type = batch_type.future_type
        self.result_type = result_type
        self.estimator = estimator
        self.incomplete = incomplete
        self.append_slowly = append_slowly
        self.open_transaction = open_transaction

    @property
    def is_held_here(self):
        """Whether the calling thread holds the lock of any queue.  Cost: O(partitions)."""
        cdef TopicQueues queues
        for queues in list(self.topics.values()):
            for queue in list(queues.queues.values()):
                if (<PartitionQueue>queue).is_held_here:
                    return True
        return False

    def append(self, topic, partition, timestamp_ms, key, value, headers=(), callback=None, *,
               int64_t max_time_to_block_ms, int64_t now_ms, cluster, bint abort_on_new_batch=False):
        """Append a record to the last batch of its partition, or to a new one, and return a RecordAppendResult.

        Args: partition: None for the choice of BuiltInPartitioner; key, value, headers: as for
            MemoryRecordsBuilder.append; callback: called with (RecordMetadata, None) or (None, error) by the thread
            that completes the batch; max_time_to_block_ms: how long to wait for memory; now_ms: the monotonic time;
            abort_on_new_batch: return a result with abort_for_new_batch instead of beginning a batch.
        Raises: ProducerClosedError; TransactionStateError; BufferExhaustedError; UnknownTopicOrPartitionError if no
            partition can be chosen; ValueError, TypeError for fields that no record can have. Nothing is then appended,
            and no memory stays allocated.
        Threads: safe.  Cost: one copy of key and value, one object; no lock while the pool has memory.
        """
        cdef RecordFields r
        cdef AppendRequest request
        cdef bytes key_bytes = as_bytes(key, "key"), value_bytes = as_bytes(value, "value")
        cdef list flat = None
        cdef RecordAppendResult result
        request.timestamp_ms = ranged("timestamp_ms", timestamp_ms, -INT64_MAX - 1, INT64_MAX)
        request.now_ms = now_ms
        request.may_begin_batch = not abort_on_new_batch
        request.needs_partition = False
        request.partition = -1
        if type(headers) is not tuple:
            headers = header_pairs(headers)
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

    # Whether the producer's state allows an append now.
    @cython.final
    cdef inline bint accepts(self, PartitionQueue queue, const AppendRequest* request) except -1:
        if self.is_closed:
            return False
        return self.open_transaction is None or self.open_transaction.accepts(queue.topic_partition, request.needs_partition)

    # Returns: the batch whose last record is now the new one; None if the slow path is needed. Fills in `result` if it
    # is not None.
    @cython.final
    cdef ProducerBatchCore append_quickly(self, object topic, const AppendRequest* request, RecordFields* r, list flat,
                                          RecordAppendResult result):
        cdef TopicQueues queues
        cdef PartitionQueue queue
        cdef ProducerBatchCore last
        cdef StickyPartitionInfo info = None
        cdef int64_t before, size
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
        if queue is None:
            return None
        last = queue.last_batch()
        if last is not None and result is not None and result.callback is not None:
            last.make_thunks()
        # No other Python code runs from here to the write, so the checks below remain true.
        if queue.hold_count or queue.last_batch() is not last or not self.accepts(queue, request):
            return None
        if request.partition < 0:
            size = 2 * batch_size_upper_bound(MAGIC_V2, False, r)
            if queues.sticky_queue is not queue or not queues.keeps(last, size):
                return None
            info = queues.sticky_info
        if last is not None:
            before = last._builder.estimate()
            if last.append_fields(r, request.timestamp_ms, flat, request.now_ms, result):
                if result is not None:
                    queue.describe(result, last, before)
                if info is not None:
                    info.produced_bytes += last._builder.estimate() - before
                return last
        if not request.may_begin_batch:
            return None
        return self.append_to_new(queues, queue, last, request, r, flat, result)

    # Begins a batch if memory is available at once. Requires: `last`, the last batch, has no room.
    @cython.final
    cdef ProducerBatchCore append_to_new(self, TopicQueues queues, PartitionQueue queue, ProducerBatchCore last,
                                         const AppendRequest* request, RecordFields* r, list flat, RecordAppendResult result):
        cdef ProducerBatchCore batch
        cdef ColumnBuffer buffer
        cdef StickyPartitionInfo info = None
        cdef Py_ssize_t count = len(queue.batches)
        cdef int64_t size = batch_size_upper_bound(MAGIC_V2, False, r)
        if size > self.batch_size or request.timestamp_ms < -1:
            return None
        batch = self.new_batch(queue.topic_partition)
        if result is not None and result.callback is not None:
            batch.make_thunks()
        # Other Python code may have run above; none does from here on.
        if queue.hold_count or len(queue.batches) != count or queue.last_batch() is not last or not self.accepts(queue, request):
            return None
        if request.partition < 0:
            if queues.sticky_queue is not queue or not queues.keeps(None, 2 * size):
                return None
            info = queues.sticky_info
        buffer = try_allocate(self.pool, self.batch_size)
        if buffer is None:
            return None
        if last is not None:
            last.takes_records = False
        self.begin_batch(queue, batch, buffer, request, r, flat, result)
        if info is not None:
            info.produced_bytes += batch._builder.estimate()
        return batch

    # Starts a new batch in the buffer, with one record, and appends it to the queue. Requires: the buffer is accounted
    # to the pool; it is given back if the record is refused.
    @cython.final
    cdef int begin_batch(self, PartitionQueue queue, ProducerBatchCore batch, ColumnBuffer buffer, const AppendRequest* request,
                         RecordFields* r, list flat, RecordAppendResult result) except -1:
        start_in(batch, buffer, request.now_ms)
        try:
            if not batch.append_fields(r, request.timestamp_ms, flat, request.now_ms, result):
                raise ValueError("a new batch must have room for its first record")
        except BaseException:
            batch.deallocate()
            raise
        self.incomplete[batch] = None
        queue.push_last(batch)
        if result is not None:
            queue.describe(result, batch, 0)
            result.new_batch_created = True
        return 0

    def append_first(self, PartitionQueue queue not None, list held not None, timestamp_ms, key, value, headers, callback, *,
                     int64_t now_ms):
        """Begin a batch with one record, append it to a queue that is held, and return the RecordAppendResult.

        The batch gets the buffer in the list `held`. The buffer moves from the list to the queued batch in one step.
        Raises: ValueError, TypeError as append(); no batch is then queued.
        """
        cdef RecordFields r
        cdef AppendRequest request
        cdef bytes key_bytes = as_bytes(key, "key"), value_bytes = as_bytes(value, "value")
        cdef list flat = flat_headers(headers) if headers else None
        cdef RecordAppendResult result = RecordAppendResult.__new__(RecordAppendResult)
        cdef ProducerBatchCore batch = self.new_batch(queue.topic_partition)
        request.timestamp_ms = ranged("timestamp_ms", timestamp_ms, INT64_MIN, INT64_MAX)
        request.now_ms = now_ms
        set_fields(&r, key_bytes, value_bytes, flat)
        result.callback = callback
        batch.make_thunks()
        # No other Python code runs from here on.
        self.begin_batch(queue, batch, <ColumnBuffer?>held.pop(), &request, &r, flat, result)
        return result

    # Returns: a batch without a buffer; the caller has to call start_in().
    @cython.final
    cdef ProducerBatchCore new_batch(self, object topic_partition):
        if self.model is None:
            raise ValueError("the accumulator has no classes of batches: its __init__ was not called")
        cdef ProducerBatchCore batch = <ProducerBatchCore>new_of(self.batch_type, ())
        cdef ProduceRequestResultCore result = <ProduceRequestResultCore>new_of(self.result_type, ())
        cdef MemoryRecordsBuilderCore builder = builder_like(self.model)
        result.topic_partition = topic_partition
        batch.start(topic_partition, builder, result, self.pool)
        batch.type_of_futures = self.future_type
        if builder.h.attributes & CODEC_MASK:
            batch.estimator = self.estimator
            builder.estimated_compression_ratio = self.estimator.estimation(topic_partition[0], builder.compression)
        return batch

    def open_batches(self, list batches not None, topic_partition, list held not None, int64_t now_ms, *, int64_t most):
        """Begin a batch in the buffer that a list holds, and more of its size while there is memory, `most` in all.

        They are appended to `batches` in the same step.
        """
        cdef ProducerBatchCore batch
        cdef ColumnBuffer buffer = None
        cdef int64_t size = 0
        cdef list made = [self.new_batch(topic_partition) for _ in range(max(most, 1))]
        # No other Python code runs from here on.
        for batch in made:
            buffer = <ColumnBuffer?>held.pop() if buffer is None else try_allocate(self.pool, size)
            if buffer is None:
                break
            size = buffer.size
            start_in(batch, buffer, now_ms)
            batches.append(batch)


# Returns: whether the object is an int that can be a partition, which is then in number[0].
cdef inline bint as_partition(object partition, int64_t* number) except -1:
    cdef int overflow = 0
    if type(partition) is not int:
        return False
    number[0] = PyLong_AsLongLongAndOverflow(partition, &overflow)
    return not overflow and number[0] >= 0


# Requires: a new batch, and a buffer that is accounted to its pool and has room for the header.
cdef int start_in(ProducerBatchCore batch, ColumnBuffer buffer, int64_t now_ms) except -1:
    batch._builder.write_limit_bytes = <int32_t>min(buffer.size, <int64_t>INT32_MAX)
    batch._builder.start(0, buffer)
    batch.begin(now_ms)
    return 0
