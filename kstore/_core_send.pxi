# The producer's send(): the short way of a record that only has to be copied into a batch that has room for it.

from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


cdef inline int64_t clock_ms(int which) noexcept nogil:
    cdef timespec now
    clock_gettime(which, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000


# Returns: -1 for what is no plain int of 64 bits.
cdef inline int64_t timestamp_or_none(object timestamp_ms) except? -1:
    cdef int overflow = 0
    cdef int64_t value
    if type(timestamp_ms) is not int:
        return -1
    value = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
    return -1 if overflow else value


cdef class SendPath:
    """The compiled part of Producer.

    Args: accumulator: takes the records; serialize: called with "key" or "value", the object, its serializer and the
        topic, for what is neither bytes nor None or has a serializer; wake_sender: called when a batch is full or new;
        send_by_the_long_way, send_serialized: called with the arguments of send(), in the order of its signature but the
        value before the key, the one where interceptors or a partitioner have a say or no transaction is open, the
        other, with bytes, where the batch has no room, the transaction has to be told of its partition, or something is
        not right; max_record_bytes: a larger record, by the estimate of its size, goes that way; clock: None for the machine's.
    Attributes: takes_short_way: whether nothing has to happen between send() and the accumulator; partition_counts: of
        the topics whose partitions are numbered from 0 without a gap.
    """

    cdef AppendPath accumulator
    cdef object serialize
    cdef object wake_sender
    cdef object send_by_the_long_way
    cdef object send_serialized
    cdef object clock
    cdef object key_serializer
    cdef object value_serializer
    cdef int64_t max_record_bytes
    cdef int64_t wall_clock_ms    # at monotonic_ms
    cdef int64_t monotonic_ms
    cdef bint ignores_keys
    cdef public bint takes_short_way
    cdef public dict partition_counts

    def __init__(self, AppendPath accumulator, *, serialize, wake_sender, send_by_the_long_way, send_serialized,
                 key_serializer, value_serializer, int64_t max_record_bytes, bint ignores_keys, clock=None):
        if accumulator is None:
            raise TypeError("accumulator must not be None")
        self.accumulator = accumulator
        self.serialize = serialize
        self.wake_sender = wake_sender
        self.send_by_the_long_way = send_by_the_long_way
        self.send_serialized = send_serialized
        self.key_serializer = key_serializer
        self.value_serializer = value_serializer
        self.max_record_bytes = max_record_bytes
        self.ignores_keys = ignores_keys
        self.clock = clock
        self.monotonic_ms = -1
        self.partition_counts = {}

    def send(self, topic, value=None, *, key=None, headers=(), partition=None, timestamp_ms=None, on_delivery=None):
        """Put a record into the batch of its partition and return a future of its RecordMetadata.

        Args: value, key: what the serializers take; without one, bytes, any buffer, or None; headers: (str, bytes or
            None) pairs; partition: None to go by the key, or, without one, to fill up batches; timestamp_ms: None for
            now; on_delivery: called by the producer's thread before the future is done, with the metadata and None, or
            with metadata whose offset is -1 and the error.
        Raises: ProducerClosedError; TypeError, ValueError for arguments that no record can have; SerializationError; what a
            transaction failed of; TransactionStateError outside of one. The future gives RecordTooLargeError,
            UnknownTopicOrPartitionError, BufferExhaustedError after max_block_ms without room, ProducerTimeoutError
            after delivery_timeout_ms, and what the sink answered.
        Threads: safe.  Cost: one copy, one future; blocks while buffer_memory is used up.
        Source: Kafka KafkaProducer.send.
        """
        if not self.takes_short_way or not self.is_open():
            return self.send_by_the_long_way(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if self.key_serializer is not None or (key is not None and type(key) is not bytes):
            key = self.serialize("key", key, self.key_serializer, topic)
        if self.value_serializer is not None or (value is not None and type(value) is not bytes):
            value = self.serialize("value", value, self.value_serializer, topic)
        if type(headers) is not tuple:
            headers = header_pairs(headers)
        future = self.append(topic, key, value, headers, partition, timestamp_ms, on_delivery)
        if future is None:
            return self.send_serialized(topic, key, value, headers, partition, timestamp_ms, on_delivery)
        return future

    @cython.final
    cdef inline bint is_open(self) noexcept:
        cdef OpenTransaction transaction = self.accumulator.open_transaction
        return transaction is None or transaction.is_open

    # Returns: None if the record has to go the long way.
    @cython.final
    cdef RecordFuture append(self, topic, bytes key, bytes value, tuple headers, partition, timestamp_ms, on_delivery):
        cdef RecordFields r
        cdef AppendRequest request
        cdef RecordAppendResult result = None
        cdef BatchAppender batch
        cdef int32_t index
        cdef list flat = flat_headers(headers) if headers else None
        request.partition = -1
        request.may_begin_batch = request.needs_partition = True
        if partition is not None:
            if not as_partition(partition, &request.partition):
                return None
        elif key is not None and not self.ignores_keys:
            count = self.partition_counts.get(topic)
            if count is None:
                return None
            request.partition = partition_of_hash(
                murmur2_of(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)), count)
        self.read_clock(timestamp_ms, &request)
        set_fields(&r, key, value, flat)
        if request.timestamp_ms < 0 or batch_size_upper_bound(MAGIC_V2, False, &r) > self.max_record_bytes:
            return None
        if on_delivery is not None:
            if not callable(on_delivery):
                return None
            result = RecordAppendResult.__new__(RecordAppendResult)
            result.callback = on_delivery
        batch = self.accumulator.append_quickly(topic, &request, &r, flat, result)
        if batch is None:
            return None
        # Whatever runs from here on, the record is the last one only now.
        index = batch._builder.h.record_count - 1
        if index == 0 or batch.looks_full():
            self.wake_sender()
        return new_future(batch.type_of_futures, batch.result, index, request.timestamp_ms, <int32_t>r.key_size,
                          <int32_t>r.value_size)

    # The wall clock is read once a millisecond. A timestamp that is no plain int of 64 bits comes out as -1.
    @cython.final
    cdef int read_clock(self, object timestamp_ms, AppendRequest* request) except -1:
        if self.clock is not None:
            request.now_ms = self.clock.monotonic_ms()
            request.timestamp_ms = self.clock.wall_clock_ms() if timestamp_ms is None else timestamp_or_none(timestamp_ms)
            return 0
        request.now_ms = clock_ms(CLOCK_MONOTONIC)
        if timestamp_ms is not None:
            request.timestamp_ms = timestamp_or_none(timestamp_ms)
            return 0
        if request.now_ms != self.monotonic_ms:
            self.wall_clock_ms = clock_ms(CLOCK_REALTIME)
            self.monotonic_ms = request.now_ms
        request.timestamp_ms = self.wall_clock_ms
        return 0
