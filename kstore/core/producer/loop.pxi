# Sending from an event loop of asyncio (LoopSender): the futures of the loop, and how those of a batch are set.


@cython.final
cdef class LoopBatch:
    """The futures of a loop for the records of one batch, in the order in which they were sent.

    Args: when_done: called with this object when the batch is done, by the thread that completes it.
    Attributes: result: of the batch; index: what its result's watchers have: the record whose piece they wait for.
    Threads: the loop's, but for settle().
    """

    cdef readonly ProduceRequestResultCore result
    cdef object when_done
    cdef list sent                # the FutureRecordMetadata of each
    cdef list futures
    cdef Py_ssize_t set_count

    index = 0

    def __init__(self, ProduceRequestResultCore result not None, when_done):
        self.result = result
        self.when_done = when_done
        self.sent = []
        self.futures = []

    def settle(self):
        """Say that the batch is done."""
        self.when_done(self)

    @property
    def left(self):
        """How many futures are not set yet."""
        return len(self.futures) - self.set_count

    def set_some(self, Py_ssize_t most, metadata_type, set_slowly):
        """Give up to `most` futures the outcomes of their records; return how many.

        Args: metadata_type: RecordMetadata; set_slowly: called with (sent, future) if the batch failed or was split.
        """
        cdef ProduceRequestResultCore result = <ProduceRequestResultCore?><object>self.result
        cdef FutureRecordMetadataCore sent
        cdef bint is_plain = result.is_done and not result.pieces and result.error_of_record is None
        cdef Py_ssize_t i, count = min(most, len(self.futures) - self.set_count)
        for i in range(self.set_count, self.set_count + count):
            future = self.futures[i]
            sent = self.sent[i]
            self.futures[i] = self.sent[i] = None
            self.set_count += 1
            if not is_plain:
                set_slowly(sent, future)
            elif not future.done():
                future.set_result(result.made_metadata(metadata_type, sent.index, sent.timestamp_ms,
                                                       sent.serialized_key_size, sent.serialized_value_size))
        return count


cdef class LoopSender:
    """The compiled base class of kstore.aio.Producer: sends records whose outcomes are futures of a loop.

    Args: producer: raises would_block where it would wait. Its subclass has _begin(), called before the first record is
        sent, _when_done() of each LoopBatch, and _set_soon(), called in the loop's thread with a LoopBatch that was done
        before it was watched.
    Attributes: _new_future: makes a future of the loop, None before the loop is known; _may_send: whether records may be
        sent in the loop's thread; _waiting_count: of tasks that wait to send; _batches: those with futures, by result;
        _newest: that of the last record, None if it is done.
    Threads: the loop's.
    """

    cdef ProducerCore producer
    cdef object would_block
    cdef public object _new_future
    cdef public bint _may_send
    cdef public Py_ssize_t _waiting_count
    cdef readonly dict _batches
    cdef readonly LoopBatch _newest

    def __init__(self, ProducerCore producer not None, *, would_block):
        self.producer = producer
        self.would_block = would_block
        self._batches = {}

    def send_nowait(self, topic, value=None, *, key=None, headers=(), partition=None, timestamp_ms=None, on_delivery=None):
        """Put a record into a batch, and return a RecordFuture; the batch lingers for up to linger_ms.

        Raises: BufferExhaustedError if that would wait: for memory, after other tasks that wait, or for the partitions
            of a topic to which nothing was sent before; use send() then. What kstore.Producer.send raises.
        """
        cdef FutureRecordMetadataCore sent = None
        if self._waiting_count == 0:
            sent = self.sent_now(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if sent is None:
            raise BufferExhaustedError("the record would have to wait for memory or for the partitions of its topic")
        # That of a record which is in no batch is a future of another class.
        return sent if isinstance(sent, self.producer.accumulator.future_type) else self.future_of(sent)

    def _sent_now(self, topic, value, key, headers, partition, timestamp_ms, on_delivery):
        """Put a record into a batch and return a future of its metadata, None if that would wait."""
        cdef FutureRecordMetadataCore sent = self.sent_now(topic, value, key, headers, partition, timestamp_ms, on_delivery)
        return None if sent is None else self.future_of(sent)

    @cython.final
    cdef FutureRecordMetadataCore sent_now(self, topic, value, key, headers, partition, timestamp_ms, on_delivery):
        if self._new_future is None:
            (<object>self)._begin()
        if not self._may_send:
            return None
        try:
            return <FutureRecordMetadataCore?>self.producer.sent(topic, value, key, headers, partition, timestamp_ms,
                                                                 on_delivery)
        except self.would_block:
            return None

    def _future_of(self, FutureRecordMetadataCore sent not None):
        """Return a future of the loop with the outcome of a record that was sent."""
        return self.future_of(sent)

    @cython.final
    cdef object future_of(self, FutureRecordMetadataCore sent):
        cdef ProduceRequestResultCore result = sent.produce_result
        cdef LoopBatch batch = self._newest
        future = self._new_future()
        if batch is None or batch.result is not result:
            batch = self._batches.get(result)
            if batch is None:
                batch = LoopBatch(result, (<object>self)._when_done)
                self._batches[result] = batch
                batch.sent.append(sent)
                batch.futures.append(future)
                self._newest = batch
                if not (<object>result).watch(batch):
                    (<object>self)._set_soon(batch)
                return future
            self._newest = batch
        batch.sent.append(sent)
        batch.futures.append(future)
        return future

    def _forget(self, LoopBatch batch not None):
        """Forget a batch that is done, which gets no more records."""
        self._batches.pop(batch.result, None)
        if self._newest is batch:
            self._newest = None
