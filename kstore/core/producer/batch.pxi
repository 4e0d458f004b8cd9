# A batch of the producer: its result and the threads and futures that wait for it (ProduceRequestResultCore), what an
# append returns (RecordAppendResult, FutureRecordMetadataCore), and the batch itself (ProducerBatchCore), whose records
# are encoded straight into a buffer of the pool.

# Results and futures.

cdef extern from *:
    """
    #define KS_NEW(type, args) (((PyTypeObject *)(type))->tp_new((PyTypeObject *)(type), args, NULL))
    """
    object new_of "KS_NEW"(object type, object args)


cdef class ProduceRequestResultCore:
    """ProduceRequestResultCore(topic_partition)\n--\n
    The compiled base class of ProduceRequestResult: the result of a batch, and the threads and futures awaiting it.

    Attributes: is_awaited: whether hurry() was called: the batch does not linger.
    Threads: safe; each call is one step under the GIL.
    """

    cdef readonly object topic_partition
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time_ms
    cdef readonly tuple pieces
    cdef readonly tuple first_indexes
    cdef readonly bint is_done
    cdef readonly bint is_awaited
    cdef bint is_set
    cdef object wake_sender       # None before the batch is in a queue
    cdef object queue             # the PartitionQueue that the batch waits in, or left last; None when it is done
    cdef object error_of_record
    cdef list waiters             # locks held, to be released at the end
    cdef list watchers

    def __cinit__(self):
        self.base_offset = self.log_append_time_ms = -1
        self.pieces = self.first_indexes = ()

    def __init__(self, topic_partition):
        self.topic_partition = topic_partition

    def set(self, int64_t base_offset, *, int64_t log_append_time_ms=-1, error_of=None):
        """Set the result of the batch: a base offset, or error_of, which returns the error of a record by its index.

        Raises: ValueError if it was set before.
        """
        if self.is_set:
            raise ValueError(f"the result of a batch of {self.topic_partition} was set before")
        self.is_set = True
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error_of_record = error_of

    def point_to(self, tuple pieces not None, tuple first_indexes not None):
        """Set the pieces of a split batch, each with the index of its first record here; call it before end()."""
        self.pieces = pieces
        self.first_indexes = first_indexes

    def end(self):
        """Release all waiting threads, and return the futures to notify.

        Raises: ValueError if the result was not set.
        """
        if not self.is_set:
            raise ValueError(f"the result of a batch of {self.topic_partition} is not set")
        self.is_done = True
        waiters, watchers = self.waiters, self.watchers
        self.waiters = self.watchers = self.queue = None
        if waiters is not None:
            for lock in waiters:
                lock.release()
        return () if watchers is None else watchers

    # Whether no future has to be notified and no result is set.
    cdef bint is_silent(self) noexcept:
        return not self.is_set and not self.watchers

    # set() and end() in one. Requires: is_silent().
    cdef int succeed(self, int64_t base_offset, int64_t log_append_time_ms) except -1:
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.is_set = self.is_done = True
        waiters = self.waiters
        self.waiters = self.queue = None
        if waiters is not None:
            for lock in waiters:
                lock.release()
        return 0

    # Returns: the metadata of a record; filled in place, as the tuple's class is Python code.
    # Requires: the batch succeeded, and was not split.
    @cython.final
    cdef object made_metadata(self, metadata_type, int64_t index, int64_t timestamp_ms, int64_t key_size,
                              int64_t value_size):
        cdef int64_t numbers[4]
        cdef Py_ssize_t i
        topic, partition = self.topic_partition
        numbers[:] = [-1 if self.base_offset == -1 else self.base_offset + index,
                      timestamp_ms if self.log_append_time_ms == -1 else self.log_append_time_ms, key_size, value_size]
        metadata = alloc_of(metadata_type, 6)
        Py_INCREF(topic)
        PyTuple_SET_ITEM(metadata, 0, topic)
        Py_INCREF(partition)
        PyTuple_SET_ITEM(metadata, 1, partition)
        for i in range(4):
            set_number(metadata, 2 + i, numbers[i])
        return metadata

    def error_of(self, index):
        """Return the error of the record with an index, None if it has none; after a split, see place_of()."""
        return None if self.error_of_record is None else self.error_of_record(index)

    def hurry(self):
        """Let the batch be sent without lingering: somebody waits for it. Only the first call wakes the sender."""
        if self.is_done or self.is_awaited:
            return
        self.is_awaited = True
        if self.wake_sender is not None:
            self.wake_sender()

    def send_now(self):
        """Send the batch in the calling thread, which waits for it, if that is possible; return whether it is done.

        Raises: RuntimeError in a signal handler or finalizer that interrupted a send of this thread, and in a callback:
            a wait for the batch would have no end.
        """
        queue = self.queue
        if not self.is_done and queue is not None:
            queue.send_now(self)
        return self.is_done

    def add_watcher(self, watcher):
        """Register a future to notify, for any record of the batch; return False if the batch is done."""
        # Allocate first: allocating a list may run the GC and other code that changes this object.
        cdef list made = [] if self.watchers is None else None
        if self.is_done:
            return False
        if self.watchers is None:
            self.watchers = made
        self.watchers.append(watcher)
        return True

    def add_waiter(self, lock):
        """Register a held lock, to be released when the batch is done; return False if it is done."""
        cdef list made = [] if self.waiters is None else None
        if self.is_done:
            return False
        if self.waiters is None:
            self.waiters = made
        self.waiters.append(lock)
        return True

    def remove_waiter(self, lock):
        """Unregister a lock, unless it was released already."""
        if self.waiters is not None and lock in self.waiters:
            self.waiters.remove(lock)


cdef class FutureRecordMetadataCore:
    """FutureRecordMetadataCore(produce_result, *, index, timestamp_ms, serialized_key_size, serialized_value_size)\n--\n
    The compiled base class of FutureRecordMetadata: a record of a ProduceRequestResult, by its index.

    The serialized sizes are in bytes, -1 for null.
    """

    cdef readonly object produce_result
    cdef readonly int64_t timestamp_ms
    cdef readonly int32_t index
    cdef readonly int32_t serialized_key_size
    cdef readonly int32_t serialized_value_size
    cdef readonly list callbacks  # None: none were added

    def __init__(self, produce_result, *, int32_t index, int64_t timestamp_ms, int32_t serialized_key_size,
                 int32_t serialized_value_size):
        self.produce_result = produce_result
        self.index = index
        self.timestamp_ms = timestamp_ms
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size

    def metadata_now(self, metadata_type, *, bint waits):
        """Return the metadata of a record that is written; None if it is not, has failed, or its batch was split.

        Args: metadata_type: RecordMetadata; waits: whether the calling thread waits for the record, and so may send it.
        Raises: as ProduceRequestResultCore.send_now().
        """
        cdef ProduceRequestResultCore result = <ProduceRequestResultCore?>self.produce_result
        if waits and not result.is_done:
            result.send_now()
        if not result.is_done or result.pieces or result.error_of_record is not None:
            return None
        return result.made_metadata(metadata_type, self.index, self.timestamp_ms, self.serialized_key_size,
                                    self.serialized_value_size)

    def made_callbacks(self):
        """Return the list of callbacks, created on first use, always the same."""
        # Allocate first: allocating a list may run the GC and other code that makes the list.
        cdef list made = [] if self.callbacks is None else None
        if self.callbacks is None:
            self.callbacks = made
        return self.callbacks


# A call of the class without argument objects.
cdef inline FutureRecordMetadataCore new_future(object future_type, object produce_result, int32_t index,
                                                int64_t timestamp_ms, int32_t key_size, int32_t value_size):
    cdef FutureRecordMetadataCore future = <FutureRecordMetadataCore>new_of(future_type, ())
    future.produce_result = produce_result
    future.index = index
    future.timestamp_ms = timestamp_ms
    future.serialized_key_size = key_size
    future.serialized_value_size = value_size
    return future


@cython.final
@cython.freelist(256)
cdef class RecordAppendResult:
    """The result of an append.

    Attributes: produce_result; index: that of the record in its batch; timestamp_ms; serialized sizes (-1 for null);
        partition, appended_bytes (growth of the batch's estimated size), batch_is_full, new_batch_created: set by the
        accumulator; abort_for_new_batch: nothing was appended; future: made at the first access.
    """

    cdef readonly object produce_result
    cdef readonly object callback
    cdef object future_type
    cdef FutureRecordMetadataCore known_future
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
        cdef FutureRecordMetadataCore future = self.known_future
        if future is None and self.produce_result is not None:
            future = new_future(self.future_type, self.produce_result, self.index, self.timestamp_ms,
                                self.serialized_key_size, self.serialized_value_size)
            if self.known_future is None:
                self.known_future = future
        return self.known_future


# The batch.

cdef enum:
    MOST_RECORD_OVERHEAD = 21     # Kafka's MAX_RECORD_OVERHEAD: most bytes of a record without key, value and headers


# Returns: the most bytes that a batch of only this record can take.
cdef int64_t batch_size_upper_bound(int magic, bint is_compressed, const RecordFields* r) noexcept nogil:
    if magic != MAGIC_V2:
        return size_of_entry(magic, r) + (least_batch_size(magic) if is_compressed else 0)
    return (BATCH_HEADER_SIZE + MOST_RECORD_OVERHEAD + sized_size(r.key_size) + sized_size(r.value_size)
            + varint_size(zigzag(r.header_count)) + r.headers_size)


def estimate_size_in_bytes_upper_bound(*, magic, compression, key=None, value=None, headers=()):
    """Return the most bytes that a batch of only this record can take, uncompressed; compression is Kafka's codec id.

    Source: Kafka AbstractRecords.estimateSizeInBytesUpperBound.
    """
    cdef RecordFields r
    cdef bytes key_bytes = as_bytes(key, "key"), value_bytes = as_bytes(value, "value")
    set_fields(&r, key_bytes, value_bytes, flat_headers(headers) if headers else None)
    return batch_size_upper_bound(<int>ranged("magic", magic, MAGIC_V0, MAGIC_V2), compression != 0, &r)


# Returns: an encoder with the settings of this one, without records; it has no buffer until start() is called.
cdef MemoryRecordsBuilderCore builder_like(MemoryRecordsBuilderCore model):
    cdef MemoryRecordsBuilderCore encoder = <MemoryRecordsBuilderCore>new_of(type(model), ())
    encoder.h = model.h
    encoder.header_size = model.header_size
    encoder.log_append_time_ms = model.log_append_time_ms
    encoder.level = model.level
    encoder.has_horizon = model.has_horizon
    encoder.write_limit_bytes = model.write_limit_bytes
    encoder.estimated_compression_ratio = model.estimated_compression_ratio
    return encoder


# The builder of batches whose __init__ was not called; it takes no records.
cdef MemoryRecordsBuilderCore NO_BUILDER = MemoryRecordsBuilderCore.__new__(MemoryRecordsBuilderCore)
NO_BUILDER.is_handed_out = NO_BUILDER.was_dropped = True


cdef class ProducerBatchCore:
    """The compiled base class of ProducerBatch: appends, times, and ownership of the buffer.

    Threads: a change is one compiled call under the GIL, which it releases only to compress; the batch then takes no
        records.
    """

    cdef MemoryRecordsBuilderCore _builder
    cdef BufferPoolCore _pool
    cdef readonly object topic_partition
    cdef readonly ProduceRequestResultCore result
    cdef readonly object estimator
    cdef readonly object final_state
    cdef object type_of_futures
    cdef list thunks              # RecordAppendResults with a callback; None: none
    cdef readonly int64_t created_ms
    cdef readonly int64_t last_append_ms
    cdef readonly int64_t last_attempt_ms
    cdef readonly int64_t drained_ms
    cdef readonly int64_t max_record_size
    cdef readonly int32_t attempts
    cdef readonly int32_t send_count
    cdef readonly bint is_split_batch
    cdef public bint in_retry     # the batch, or the one it was split from, was sent before
    cdef public bint is_in_doubt  # an attempt (of it, or of the one it was split from) may be in the log
    cdef public bint is_inflight
    cdef readonly object current_leader_epoch
    cdef int32_t attempts_of_leader   # the number of attempts when the leader changed
    cdef readonly bint sequence_has_been_reset
    cdef bint takes_records
    cdef readonly bint is_deallocated

    # The class of futures.
    future_type = FutureRecordMetadataCore

    def __cinit__(self):
        self._builder = NO_BUILDER

    def __init__(self, topic_partition, MemoryRecordsBuilderCore builder, int64_t created_ms, *,
                 ProduceRequestResultCore result, BufferPoolCore pool=None, estimator=None, bint is_split_batch=False):
        if builder is None or result is None or self._builder is not NO_BUILDER:
            raise ValueError("the batch needs a builder and a result, once")
        self.start(topic_partition, builder, result, pool)
        self.type_of_futures = self.future_type
        self.estimator = estimator
        self.is_split_batch = is_split_batch
        self.begin(created_ms)

    @cython.final
    cdef void start(self, object topic_partition, MemoryRecordsBuilderCore builder, ProduceRequestResultCore result,
                    BufferPoolCore pool) noexcept:
        self.topic_partition = topic_partition
        self.result = result
        self._builder = builder
        self._pool = pool
        self.attempts_of_leader = -1

    @cython.final
    cdef void begin(self, int64_t created_ms) noexcept:
        self.created_ms = self.last_append_ms = self.last_attempt_ms = self.drained_ms = created_ms
        self.takes_records = True

    @property
    def builder(self): return self._builder
    @property
    def pool(self): return self._pool
    @property
    def record_count(self): return self._builder.h.record_count
    @property
    def magic(self): return self._builder.h.magic
    @property
    def is_compressed(self): return self._builder.h.attributes & CODEC_MASK != 0
    @property
    def is_transactional(self): return self._builder.is_transactional
    @property
    def producer_id(self): return self._builder.h.producer_id
    @property
    def producer_epoch(self): return self._builder.h.producer_epoch
    @property
    def base_sequence(self): return self._builder.h.base_sequence
    @property
    def has_sequence(self): return self._builder.h.base_sequence != -1
    @property
    def is_done(self): return self.final_state is not None
    @property
    def is_closed(self): return self._builder.is_handed_out
    @property
    def is_writable(self): return not self._builder.is_handed_out
    @property
    def estimated_size_in_bytes(self): return self._builder.estimated_size_in_bytes
    @property
    def compression_ratio(self): return self._builder.compression_ratio

    @property
    def last_sequence(self):
        """The sequence number of the last record, -1 without sequences."""
        cdef const Header* h = &self._builder.h
        return -1 if h.base_sequence == -1 else incremented_sequence(h.base_sequence, <int64_t>h.record_count - 1)

    @property
    def is_full(self): return self.looks_full()

    @property
    def counted_bytes(self):
        """The bytes that the batch's buffer is accounted for with in the pool."""
        cdef ColumnBuffer buffer = self._builder.buffer
        return 0 if self._pool is None or buffer is None or buffer.slot.pool != &self._pool.state else buffer.slot.counted_bytes

    @cython.final
    cdef bint looks_full(self) noexcept:
        cdef MemoryRecordsBuilderCore builder = self._builder
        return (not self.takes_records or not builder.is_open
                or (builder.h.record_count > 0 and builder.write_limit_bytes <= builder.estimate()))

    @cython.final
    cdef bint has_room_left(self, int64_t size) noexcept:
        return not self.looks_full() and self._builder.write_limit_bytes - self._builder.estimate() > size

    # Returns: the size of the record with its length field, 0 if the batch does not take it. May move the records into
    # a larger buffer. No other Python code runs from its return to write().
    @cython.final
    cdef int64_t room_for(self, RecordFields* r, int64_t timestamp) except -1:
        cdef MemoryRecordsBuilderCore builder = self._builder
        cdef int64_t size
        if not self.takes_records or not builder.is_open or self.final_state is not None:
            return 0
        builder.check(builder.h.base_offset + builder.h.last_offset_delta + 1, timestamp, False)
        if builder.h.magic == MAGIC_V2:
            r.timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>builder.base_for(timestamp))
            r.offset_delta = <int64_t>builder.h.last_offset_delta + 1
            size = body_size(r)
            size += varint_size(zigzag(size))
        else:
            size = size_of_entry(builder.h.magic, r)
        if builder.h.record_count and builder.write_limit_bytes - size < builder.estimate():
            return 0
        if size > INT32_MAX - MAX_VARINT_SIZE - builder.used:
            raise ValueError(f"a batch has at most {INT32_MAX} bytes: {builder.used} are used, {size} do not fit")
        if builder.used + MAX_VARINT_SIZE + size > builder.buffer.block.capacity and not self.grow(size):
            return 0
        return size

    # Requires: room_for(r) returned `size`.
    @cython.final
    cdef int write(self, RecordFields* r, int64_t size, int64_t timestamp, list flat, int64_t now_ms) except -1:
        cdef MemoryRecordsBuilderCore builder = self._builder
        cdef int64_t offset = builder.h.base_offset + builder.h.last_offset_delta + 1
        cdef int64_t most = batch_size_upper_bound(builder.h.magic, builder.h.attributes & CODEC_MASK, r)
        cdef uint8_t* at
        if builder.h.magic == MAGIC_V2:
            at = put_record(builder.buffer.block.data + builder.used, body_size(r), r)
            if flat is not None:
                put_flat_headers(at, flat)
            builder.note(size, offset, timestamp, r.key_size)
            builder.prefetch_next_value(r)
        else:
            builder.append_message(r, offset, timestamp)
        if most > self.max_record_size:
            self.max_record_size = most
        self.last_append_ms = now_ms
        return 0

    # Allocating the list may run the GC, and so finalizers.
    @cython.final
    cdef int make_thunks(self) except -1:
        if self.thunks is None:
            self.thunks = []
        return 0

    # Returns: whether the record was appended. Fills in `result` if it is not None, and keeps it if it has a callback.
    @cython.final
    cdef bint append_fields(self, RecordFields* r, int64_t timestamp, list flat, int64_t now_ms,
                            RecordAppendResult result) except -1:
        cdef int64_t size
        if result is not None and result.callback is not None:
            self.make_thunks()
        size = self.room_for(r, timestamp)
        if size == 0:
            return False
        if result is not None:
            if result.callback is not None:
                self.thunks.append(result)
            result.produce_result = self.result
            result.future_type = self.type_of_futures
            result.index = self._builder.h.record_count
            result.timestamp_ms = timestamp
            result.serialized_key_size = <int32_t>r.key_size
            result.serialized_value_size = <int32_t>r.value_size
        self.write(r, size, timestamp, flat, now_ms)
        return True

    def append_record(self, timestamp_ms, key, value, headers, callback, int64_t now_ms):
        """Append one record and return its RecordAppendResult, or None if the batch has no room or takes no records.

        Args: callback: called with (RecordMetadata, None) or (None, error) when the batch is done; now_ms: the
            monotonic time; the others as for MemoryRecordsBuilder.append.
        Raises: ValueError, TypeError as MemoryRecordsBuilder.append; nothing is then appended.
        """
        cdef RecordFields r
        cdef int64_t timestamp = ranged("timestamp_ms", timestamp_ms, INT64_MIN, INT64_MAX)
        cdef bytes key_bytes = as_bytes(key, "key"), value_bytes = as_bytes(value, "value")
        cdef list flat = None
        cdef RecordAppendResult result = RecordAppendResult.__new__(RecordAppendResult)
        if type(headers) is not tuple or headers:
            flat = flat_headers(headers)
            if flat and self._builder.h.magic != MAGIC_V2:
                raise ValueError(f"a record of magic {self._builder.h.magic} can't have headers")
        set_fields(&r, key_bytes, value_bytes, flat)
        result.callback = callback
        return result if self.append_fields(&r, timestamp, flat, now_ms, result) else None

    def try_append(self, timestamp_ms, key, value, headers, callback, int64_t now_ms):
        """Call append_record() and return the future, or None."""
        result = self.append_record(timestamp_ms, key, value, headers, callback, now_ms)
        return None if result is None else (<RecordAppendResult>result).future

    # Records of a batch that will be compressed may exceed its buffer. If the pool refuses memory, the batch is full.
    @cython.final
    cdef bint grow(self, int64_t size) except -1:
        cdef MemoryRecordsBuilderCore builder = self._builder
        cdef int64_t capacity = max(2 * builder.buffer.block.capacity, builder.used + MAX_VARINT_SIZE + size)
        cdef ColumnBuffer longer
        if self._pool is None:
            return builder.grow(capacity) == 0
        if self._pool.state.is_closed or not self._pool.reserve(capacity):
            self.takes_records = False
            return False
        longer = self._pool.counted(capacity)
        copy_content(longer, builder.buffer, builder.used)
        self.replace_buffer(longer)
        return True

    # Requires: the new buffer is accounted to the pool. Gives the old one back, unless something else refers to it.
    @cython.final
    cdef int replace_buffer(self, ColumnBuffer buffer) except -1:
        cdef ColumnBuffer old = self._builder.buffer
        self._builder.buffer = buffer
        return self.give_back(old)

    # Requires: the builder does not hold the buffer any more, so that the caller's reference is our only one.
    @cython.final
    cdef int give_back(self, ColumnBuffer buffer) except -1:
        if buffer.slot.pool == &self._pool.state and buffer.slot.counted_bytes >= 0:
            self._pool.return_buffer(buffer, not is_shared(<PyObject*>buffer))
        return 0

    # Corrects the accounting after a call that may have replaced the builder's buffer, which was accounted with
    # counted_before bytes. Moves records that got small into a buffer of poolable size.
    @cython.final
    cdef int settle(self, int64_t counted_before) except -1:
        cdef MemoryRecordsBuilderCore builder = self._builder
        cdef ColumnBuffer shorter
        if self._pool is None:
            return 0
        if builder.buffer.slot.pool != &self._pool.state:
            give_bytes(&self._pool.state, -builder.buffer.block.capacity)
            self._pool.count(builder.buffer, builder.buffer.block.capacity)
            self._pool.give(counted_before)
        elif not builder.is_handed_out and builder.used <= self._pool.state.poolable_size < counted_before:
            shorter = self._pool.counted_anyway(self._pool.state.poolable_size)
            copy_content(shorter, builder.buffer, builder.used)
            self.replace_buffer(shorter)
        return 0

    def close_for_record_appends(self):
        """Take no more records; seal() compresses those in the batch."""
        self.takes_records = False

    def compress_records(self):
        """Take no more records, and compress those in the batch before it is closed.

        Threads: may release the GIL; no other thread may use the batch during the call.
        """
        cdef int64_t counted_before = self.counted_bytes
        self.takes_records = False
        self._builder.end_appends(self._builder.compress_records)
        self.settle(counted_before)

    def abort_record_appends(self):
        """Take no more records, and discard those in the batch; it will not be sent."""
        cdef ColumnBuffer buffer = self._builder.buffer
        self.takes_records = False
        self._builder.abort()
        if buffer is not None and self._pool is not None:
            self.give_back(buffer)

    def seal(self):
        """Compress the records, write the header and return the builder's result, the same object each time.

        Raises: ValueError if it was aborted or deallocated, or its producer fields contradict each other.
        Threads: may release the GIL; two threads must not seal the same batch concurrently.
        """
        cdef MemoryRecordsBuilderCore builder = self._builder
        cdef int64_t counted_before = self.counted_bytes
        if builder.buffer is None:
            raise ValueError("the batch has no records any more: it was aborted, or its buffer was given back")
        self.takes_records = False
        if not builder.is_handed_out:
            builder.end_appends(builder.compress_records)
            self.settle(counted_before)
        return builder.build()

    def set_producer_state(self, *, producer_id, producer_epoch, base_sequence, bint is_transactional):
        """Set the producer fields, before the batch is closed.

        Raises: ValueError.
        """
        self._builder.set_producer_state(producer_id=producer_id, producer_epoch=producer_epoch,
                                         base_sequence=base_sequence, is_transactional=is_transactional)

    def reset_producer_state(self, *, producer_id, producer_epoch, base_sequence, bint is_transactional):
        """Set the producer fields of a batch that may be closed; earlier results of records() keep their bytes.

        Raises: ValueError.
        """
        cdef int64_t counted_before = self.counted_bytes
        self._builder.reopen_and_rewrite_producer_state(producer_id=producer_id, producer_epoch=producer_epoch,
                                                        base_sequence=base_sequence, is_transactional=is_transactional)
        self.settle(counted_before)
        self.sequence_has_been_reset = True

    def begin_send(self):
        """Note that a reader of the buffer starts; the buffer does not go back to the pool before its end_send().

        Raises: ValueError if the batch was deallocated.
        """
        if self.is_deallocated:
            raise ValueError("the batch was deallocated: it can't be sent")
        self.send_count += 1

    def end_send(self):
        """Note that a reader is done; the last one gives back a deallocated batch's buffer.  Raises: ValueError."""
        if self.send_count == 0:
            raise ValueError("end_send() without begin_send()")
        self.send_count -= 1
        if self.send_count == 0 and self.is_deallocated:
            self.release_buffer()

    def deallocate(self):
        """Give the buffer back to the pool, now or at the last end_send(); return whether it was now.

        A buffer that is still visible through records() is not reused.
        Raises: ValueError if the batch was deallocated before.
        """
        if self.is_deallocated:
            raise ValueError("the batch was deallocated before")
        self.is_deallocated = True
        self.takes_records = False
        if self.send_count:
            return False
        self.release_buffer()
        return True

    def deallocate_once(self):
        """Call deallocate(), unless the batch was deallocated; return its result, or False.  Threads: safe."""
        return not self.is_deallocated and self.deallocate()

    @cython.final
    cdef int release_buffer(self) except -1:
        cdef MemoryRecordsBuilderCore builder = self._builder
        cdef ColumnBuffer buffer = builder.buffer
        builder.is_open = False
        builder.was_dropped = True
        builder.buffer = builder._built = None
        if buffer is not None and self._pool is not None:
            self.give_back(buffer)
        return 0

    def set_final_state(self, state not None):
        """Set final_state, unless it is set; return whether it was set now."""
        if self.final_state is not None:
            return False
        self.final_state = state
        return True

    def take_thunks(self):
        """Remove and return the RecordAppendResults of the records with a callback, in order."""
        thunks, self.thunks = self.thunks, None
        return [] if thunks is None else thunks

    def adopt(self, RecordAppendResult thunk not None, *, int32_t index):
        """Take over the callback of a record from the batch that was split; the record has that index here."""
        cdef RecordAppendResult own = RecordAppendResult.__new__(RecordAppendResult)
        own.produce_result, own.future_type, own.callback = self.result, self.type_of_futures, thunk.callback
        own.index, own.timestamp_ms = index, thunk.timestamp_ms
        own.serialized_key_size, own.serialized_value_size = thunk.serialized_key_size, thunk.serialized_value_size
        self.make_thunks()
        self.thunks.append(own)

    def drained(self, int64_t now_ms):
        """Record the time at which the batch was taken to be sent."""
        self.drained_ms = max(self.drained_ms, now_ms)

    def reenqueued(self, int64_t now_ms):
        """Record that the batch was put back, to be sent again."""
        self.attempts += 1
        self.last_attempt_ms = self.last_append_ms = max(self.last_append_ms, now_ms)
        self.in_retry = True

    def maybe_update_leader_epoch(self, leader_epoch):
        """Record the leader's epoch, if it is higher than the last one; None: unknown."""
        if leader_epoch is not None and (self.current_leader_epoch is None or self.current_leader_epoch < leader_epoch):
            self.attempts_of_leader = self.attempts
            self.current_leader_epoch = leader_epoch

    @property
    def has_leader_changed_for_the_ongoing_retry(self):
        """Whether this attempt is a retry and the first one sent to the current leader."""
        return 1 <= self.attempts == self.attempts_of_leader
