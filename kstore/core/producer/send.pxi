# Sending. The rule by which batches leave their queues (DrainRequest); steps of the sender that handle many batches in
# one call: sequence numbers, statistics, completion; and the fast path of Producer.send (ProducerCore), for records
# that only have to be copied into a batch.

# Batches that are sent together.


# Returns: a copy of the list.  Raises: TypeError for anything but batches.
cdef list checked_batches(list batches):
    return [<ProducerBatchCore?>batch for batch in batches]


def push_batches(PartitionQueue queue not None, list batches not None, Py_ssize_t count, dict incomplete not None):
    """Move the first `count` batches of a list to the end of a queue that is held, and add them to `incomplete`."""
    cdef ProducerBatchCore batch
    cdef list checked = checked_batches(batches[:count])
    for batch in checked:
        incomplete[batch] = None
    queue.batches += checked
    del batches[:count]
    if checked:
        queue.active[queue] = None


def give_up(BufferPoolCore pool not None, list held not None, list batches not None):
    """Give the buffers in one list and the batches in another back to the pool, and empty both lists."""
    pool.deallocate_all(held)
    while batches:
        (<ProducerBatchCore?>batches.pop()).deallocate_once()


# Whether the batch may be sent if the one before it may, so that Drain need not check it: it was never sent, has no
# sequence number, is not compressed and has no final state.
cdef inline bint is_plain_batch(ProducerBatchCore batch) noexcept:
    cdef MemoryRecordsBuilderCore builder = batch._builder
    return batch.attempts == 0 and batch.final_state is None and builder.buffer is not None and not builder.is_handed_out \
        and builder.h.base_sequence == -1 and builder.h.attributes & CODEC_MASK == 0


cdef class DrainRequest:
    """The batches of one request to a node, and the rule by which batches leave their queues for it.

    The first batch of a queue is taken if it is due, may be sent (Drain decides that), and fits. It is due if it is the
    first of its partition in the request, takes no more records, is awaited, or has lingered. It fits if the request is empty or
    has room for it. Batches that are plain, see is_plain_batch(), are taken in one call, by the same rule.
    Args: max_size: in bytes; linger_ms: 0 if all batches are due; now_ms: the monotonic time.
    Attributes: size: in bytes; is_full: whether a batch did not fit; was_changed: whether a batch left its queue.
    Threads: one. A queue must be held, except by plain_rounds().
    """

    cdef readonly list batches
    cdef readonly int64_t now_ms
    cdef readonly int64_t size
    cdef readonly bint is_full
    cdef readonly bint was_changed
    cdef int64_t max_size
    cdef int64_t lingered_since_ms    # a batch that waits since then, or longer, has lingered

    def __init__(self, *, int64_t max_size, int64_t now_ms, int64_t linger_ms):
        self.batches = []
        self.max_size = max_size
        self.now_ms = now_ms
        self.lingered_since_ms = INT64_MAX
        if linger_ms > 0:
            self.lingered_since_ms = now_ms - linger_ms if now_ms >= linger_ms - INT64_MAX else -INT64_MAX

    # Whether the batch after `passed` others, if there is one, is due.
    @cython.final
    cdef inline bint is_due(self, PartitionQueue queue, Py_ssize_t passed, bint is_first) noexcept:
        if passed >= len(queue.batches):
            return False
        return is_first or not queue.may_linger_at(passed) \
            or (<ProducerBatchCore>queue.batches[passed]).last_attempt_ms <= self.lingered_since_ms

    # Whether there is room for the batch after `more` bytes.
    @cython.final
    cdef inline bint fits(self, ProducerBatchCore batch, int64_t more) noexcept:
        return not self.batches or self.size + more + batch._builder.current_size() <= self.max_size

    def due(self, PartitionQueue queue not None, *, bint is_first):
        """Return the first batch of a queue if it is due, else None.

        Args: is_first: whether it is the first one of its partition in the request.
        """
        return queue.batches[0] if self.is_due(queue, 0, is_first) else None

    def admits(self, ProducerBatchCore batch not None):
        """Return whether a batch fits; if not, the request is full."""
        if not self.fits(batch, 0):
            self.is_full = True
            return False
        return True

    def take(self, PartitionQueue queue not None):
        """Remove the first batch of a queue, mark it as in flight, and return it in a list.

        Raises: IndexError if there is none.
        """
        return self.removed(queue, [<ProducerBatchCore>queue.batches[0]])

    def plain_rounds(self, list queues not None, *, Py_ssize_t most):
        """Return how many plain batches each queue can give in whole rounds, one batch of each queue per round.

        A queue whose next batch is not due leaves the rounds. Stops before a round in which a batch is not plain or
        does not fit.
        Args: most: the most rounds.
        Requires: the request has taken a batch of each queue, and the next one of each may be sent.
        """
        cdef PartitionQueue queue
        cdef ProducerBatchCore batch
        cdef int64_t more = 0
        cdef Py_ssize_t place, done
        cdef list counts = [0] * len(queues), before, in_turn = list(range(len(queues))), still
        for done in range(most):
            before, still = list(counts), []
            for place in in_turn:
                queue = queues[place]
                if not self.is_due(queue, done, False):
                    continue
                batch = <ProducerBatchCore>queue.batches[done]
                if not is_plain_batch(batch) or not self.fits(batch, more):
                    return before
                more += batch._builder.estimate()
                counts[place] = done + 1
                still.append(place)
            if not still:
                break
            in_turn = still
        return counts

    def take_plain(self, PartitionQueue queue not None, Py_ssize_t most, leader_epoch):
        """Remove up to `most` batches, as counted by plain_rounds(), mark them as in flight, and return them.

        Each is checked again, because records may have been appended since it was counted.
        Args: leader_epoch: that of the partition's leader, or None.
        """
        cdef ProducerBatchCore batch
        cdef int64_t more = 0
        cdef list taken = []
        for batch in queue.batches[:most]:
            if not is_plain_batch(batch) or not self.fits(batch, more):
                break
            more += batch._builder.estimate()
            taken.append(batch)
        for batch in taken:
            if leader_epoch is not None:
                batch.maybe_update_leader_epoch(leader_epoch)
        return self.removed(queue, taken)

    # Requires: the batches are the first ones of the queue.
    @cython.final
    cdef list removed(self, PartitionQueue queue, list taken):
        cdef ProducerBatchCore batch
        if not taken:
            return taken
        del queue.batches[:len(taken)]
        if not queue.batches:
            queue.active.pop(queue, None)
        for batch in taken:
            batch.is_inflight = True
        self.was_changed = True
        return taken

    def close(self, list taken not None):
        """Close batches that were taken, count their size, and return those without a final state.

        Raises: ValueError as ProducerBatch.close().
        """
        cdef ProducerBatchCore batch
        for batch in checked_batches(taken):
            if batch._builder.h.attributes & CODEC_MASK:
                (<object>batch).close()
            elif not batch._builder.is_handed_out:
                batch.seal()
        cdef list closed = [batch for batch in taken if batch.final_state is None]
        for batch in closed:
            self.size += batch._builder.current_size()
            batch.drained(self.now_ms)
        return closed


def number_batches(list batches not None, *, producer_id, producer_epoch, int32_t base_sequence, bint is_transactional):
    """Assign sequence numbers from base_sequence on to batches; return the next sequence number.

    Raises: ValueError if one is closed; then none is changed.
    """
    cdef ProducerBatchCore batch
    cdef int64_t sequence = base_sequence
    batches = checked_batches(batches)
    for batch in batches:
        if batch._builder.is_handed_out:
            raise ValueError("a batch is closed: its producer state can only be rewritten by reopening it")
    for batch in batches:
        batch.set_producer_state(producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence,
                                 is_transactional=is_transactional)
        sequence = incremented_sequence(sequence, batch._builder.h.record_count)
    return sequence


def begin_sends(list batches not None, int64_t created_before_ms):
    """Call begin_send() of the batches created after created_before_ms; return (these, the older ones).

    Raises: ValueError as ProducerBatchCore.begin_send(); then none was begun.
    """
    cdef ProducerBatchCore batch
    cdef list young = [], old = []
    for batch in checked_batches(batches):
        (young if batch.created_ms > created_before_ms else old).append(batch)
    for batch in young:
        if batch.is_deallocated:
            raise ValueError("the batch was deallocated: it can't be sent")
    for batch in young:
        batch.send_count += 1
    return young, old


def end_sends(list batches not None):
    """Call end_send() of each batch."""
    cdef ProducerBatchCore batch
    for batch in checked_batches(batches):
        batch.end_send()


def records_of_batches(list batches not None):
    """Return records() of each batch."""
    cdef ProducerBatchCore batch
    cdef list records = []
    for batch in checked_batches(batches):
        built = batch._builder._built if batch._builder.is_handed_out else None
        records.append((<object>batch).records() if built is None else built)
    return records


@cython.final
cdef class RequestSums:
    """Sums and maxima of the batches of requests: of the sizes of batches and of their largest records, in bytes; of
    the times in the queue, in ms; and of the compression ratios.

    Attributes: batches, records: how many; latency_ms, greatest_latency_ms: how long requests took; last_ms: when the
        last one was noted, monotonic.
    Threads: each call is one step under the GIL.
    """

    cdef int64_t sums[3]
    cdef int64_t largest[3]
    cdef double ratios
    cdef double largest_ratio
    cdef readonly int64_t batches
    cdef readonly int64_t records
    cdef readonly int64_t latency_ms
    cdef readonly int64_t greatest_latency_ms
    cdef readonly int64_t last_ms

    @cython.final
    cdef int add(self, ProducerBatchCore batch) except -1:
        cdef int64_t[3] values
        cdef double ratio = batch._builder.compression_ratio
        cdef int i
        values[:] = [batch._builder.estimated_size_in_bytes, batch.max_record_size, batch.drained_ms - batch.created_ms]
        for i in range(3):
            self.sums[i] += values[i]
            self.largest[i] = max(self.largest[i], values[i])
        self.ratios += ratio
        self.largest_ratio = max(self.largest_ratio, ratio)
        self.batches += 1
        self.records += batch._builder.h.record_count
        return 0

    # Adds a request of one batch.
    @cython.final
    cdef int add_request(self, ProducerBatchCore batch, int64_t started_ms, int64_t now_ms) except -1:
        self.add(batch)
        self.latency_ms += now_ms - started_ms
        self.greatest_latency_ms = max(self.greatest_latency_ms, now_ms - started_ms)
        self.last_ms = now_ms
        return 0

    def values(self):
        """Return (sum, maximum) of each of the four."""
        return [(self.sums[i], self.largest[i]) for i in range(3)] + [(self.ratios, self.largest_ratio)]


def sums_of_request(list batches not None):
    """Return the RequestSums of batches, without a latency."""
    cdef RequestSums sums = RequestSums.__new__(RequestSums)
    for batch in checked_batches(batches):
        sums.add(<ProducerBatchCore>batch)
    return sums


# Whether the object is an int from -1 to `most`.
cdef inline bint is_offset_or_none(object number, int64_t most) noexcept:
    cdef int overflow = 0
    cdef int64_t value
    if type(number) is not int:
        return False
    value = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0 and -1 <= value <= most


# Whether the object is a response of that class, a tuple (offset, append time, error, ...), without error and with
# plausible numbers.
cdef inline bint is_plain_success(object response, object response_type, int64_t record_count) noexcept:
    if type(response) is not response_type or not isinstance(response, tuple) or len(<tuple>response) < 3:
        return False
    return ((<tuple>response)[2] is None and is_offset_or_none((<tuple>response)[0], INT64_MAX - record_count)
            and is_offset_or_none((<tuple>response)[1], INT64_MAX))


def answered_from(list batches not None, list responses not None, Py_ssize_t start, response_type):
    """Return the end of the run of batches from `start` on, all of one partition, that succeeded at the first attempt.

    The run ends before a batch with a final state.
    Args: response_type: the class that responses must have, with plausible numbers.
    Raises: ValueError unless there are as many responses as batches.
    """
    cdef Py_ssize_t end = start
    cdef ProducerBatchCore batch
    cdef object topic_partition
    if len(responses) != len(batches) or start < 0:
        raise ValueError(f"expected as many responses as batches, {len(batches)}, got {len(responses)}, from {start} on")
    if start < len(batches):
        topic_partition = (<ProducerBatchCore?>batches[start]).topic_partition
        while end < len(batches):
            batch = <ProducerBatchCore?>batches[end]
            if batch.attempts or batch.final_state is not None or batch.topic_partition is not topic_partition:
                break
            if not is_plain_success(responses[end], response_type, batch._builder.h.record_count):
                break
            end += 1
    return end


# Whether the batch can be completed without calling user code.
cdef inline bint has_no_callback(ProducerBatchCore batch) except -1:
    if batch.final_state is not None or batch.thunks or not isinstance(batch.result, ProduceRequestResultCore):
        return False
    return (<ProduceRequestResultCore>batch.result).is_silent()


def complete_batches(list batches not None, list responses not None, *, Py_ssize_t start, Py_ssize_t end, state,
                     dict incomplete not None, complete):
    """Complete batches as sent and give their memory back; use complete(batch, response) if a callback waits.

    Args: state: their final state.
    Raises: what complete() raises; the batches after that one are then not completed.
    """
    cdef ProducerBatchCore batch
    cdef int64_t base_offset, log_append_time_ms
    cdef Py_ssize_t i
    for i in range(start, end):
        batch = <ProducerBatchCore?>batches[i]
        response = responses[i]
        base_offset, log_append_time_ms = response.base_offset, response.log_append_time_ms
        if not has_no_callback(batch):
            complete(batch, response)
            continue
        # No other Python code has run since has_no_callback().
        batch.final_state = state
        (<ProduceRequestResultCore>batch.result).succeed(base_offset, log_append_time_ms)
        incomplete.pop(batch, None)
        batch.deallocate_once()


# The fast path of Producer.send.

from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


cdef inline int64_t clock_ms(int which) noexcept nogil:
    cdef timespec now
    clock_gettime(which, &now)
    return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000


# Returns: -1 for anything but an int of 64 bits.
cdef inline int64_t timestamp_or_none(object timestamp_ms) except? -1:
    cdef int overflow = 0
    cdef int64_t value
    if type(timestamp_ms) is not int:
        return -1
    value = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
    return -1 if overflow else value


cdef class ProducerCore:
    """The compiled base class of Producer: the fast path of send().

    Args: accumulator: gets the records; serialize: called with "key" or "value", the object, its serializer and the
        topic, for objects that are neither bytes nor None, or have a serializer; wake_sender: called when a batch is
        full; call_sender: when it is new, and lingers; send_slowly, send_serialized: the slow paths, called with the
        arguments of send() in the order of its signature, except that in send_serialized the key precedes the value.
        The first is for
        interceptors, a custom partitioner, or no open transaction; the second gets bytes, if the batch has no room, the
        transaction does not have the partition yet, or an argument is invalid; max_record_bytes: a record of a larger
        estimated size also goes to send_serialized; clock: None for the system's.
    Attributes: _uses_fast_path: whether the fast path is allowed; _partition_counts: of topics whose partitions are
        numbered from 0 without a gap.
    """

    cdef RecordAccumulatorCore accumulator
    cdef object serialize
    cdef object wake_sender
    cdef object call_sender
    cdef object send_slowly
    cdef object send_serialized
    cdef object clock
    cdef object key_serializer
    cdef object value_serializer
    cdef int64_t max_record_bytes
    cdef int64_t wall_clock_ms    # as read at monotonic_ms
    cdef int64_t monotonic_ms
    cdef bint ignores_keys
    cdef public bint _uses_fast_path
    cdef public dict _partition_counts

    def __init__(self, RecordAccumulatorCore accumulator, *, serialize, wake_sender, call_sender, send_slowly, send_serialized,
                 key_serializer, value_serializer, int64_t max_record_bytes, bint ignores_keys, clock=None):
        if accumulator is None:
            raise TypeError("accumulator must not be None")
        self.accumulator = accumulator
        self.serialize = serialize
        self.wake_sender = wake_sender
        self.call_sender = call_sender
        self.send_slowly = send_slowly
        self.send_serialized = send_serialized
        self.key_serializer = key_serializer
        self.value_serializer = value_serializer
        self.max_record_bytes = max_record_bytes
        self.ignores_keys = ignores_keys
        self.clock = clock
        self.monotonic_ms = -1
        self._partition_counts = {}

    def send(self, topic, value=None, *, key=None, headers=(), partition=None, timestamp_ms=None, on_delivery=None):
        """Append a record to the batch of its partition and return a future of its RecordMetadata.

        Args: value, key: the arguments of the serializers; without one, bytes, any buffer, or None; headers: (str,
            bytes or None) pairs; partition: None to choose it by the key or, without a key, to fill batches;
            timestamp_ms: None for now; on_delivery: called by the producer's thread before the future is done, with the
            metadata and None, or with metadata whose offset is -1 and the error.
        Raises: ProducerClosedError; TypeError, ValueError for arguments that no record can have; SerializationError;
            the error that a transaction failed with; TransactionStateError outside of one. The future raises
            RecordTooLargeError, UnknownTopicOrPartitionError, BufferExhaustedError after max_block_ms without memory,
            ProducerTimeoutError after delivery_timeout_ms, and errors of the sink.
        Threads: safe.  Cost: one copy, one future; blocks while buffer_memory is exhausted.
        Source: Kafka KafkaProducer.send.
        """
        return self.sent(topic, value, key, headers, partition, timestamp_ms, on_delivery)

    @cython.final
    cdef object sent(self, topic, value, key, headers, partition, timestamp_ms, on_delivery):
        if not self._uses_fast_path or not self.is_open():
            return self.send_slowly(topic, value, key, headers, partition, timestamp_ms, on_delivery)
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

    # Returns: None if the record needs the slow path.
    @cython.final
    cdef FutureRecordMetadataCore append(self, topic, bytes key, bytes value, tuple headers, partition, timestamp_ms,
                                         on_delivery):
        cdef RecordFields r
        cdef AppendRequest request
        cdef RecordAppendResult result = None
        cdef ProducerBatchCore batch
        cdef int32_t index
        cdef list flat = flat_headers(headers) if headers else None
        request.partition = -1
        request.may_begin_batch = request.needs_partition = True
        if partition is not None:
            if not as_partition(partition, &request.partition):
                return None
        elif key is not None and not self.ignores_keys:
            count = self._partition_counts.get(topic)
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
        # Read the index now: code that runs below may append more records.
        index = batch._builder.h.record_count - 1
        if batch.looks_full():
            self.wake_sender()
        elif index == 0:
            self.call_sender()
        return new_future(batch.type_of_futures, batch.result, index, request.timestamp_ms, <int32_t>r.key_size,
                          <int32_t>r.value_size)

    # Reads the wall clock once per millisecond. A timestamp that is not an int of 64 bits becomes -1.
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
