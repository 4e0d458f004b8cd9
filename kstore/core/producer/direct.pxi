# A batch that is sent by the thread that waits for it (DirectSend).


@cython.final
cdef class DirectSend:
    """Lets a thread that waits for the batch at the head of a queue send it itself, as flush groups let a waiter sync.

    Handing a record to the Sender's thread, and its outcome back, takes ten times as long as writing it. The turn to
    send passes between that thread, which holds this object while it works, and the threads that wait: these take the
    turn only if it is free and the Sender's thread does not want it. They send one batch, and only where nothing has to
    be decided; what turns out not to be so is left to the Sender's thread, with the sequence that it has: the log knows
    it again. No callback runs here, and no code from the removal of the batch from its queue to its outcome but that of
    the log: an interrupt can come only there, and leaves a batch that the Sender's thread sends again.
    Args: lock: an object with acquire(blocking) and release(), not held; wake_sender: called when the Sender's thread
        has to go on; sequences_of: returns the sequences of a partition whose next batch can have the next one, else
        None; append: called with a partition and a sealed batch, returns the LogAppendInfo, or None, with nothing done,
        if it takes more than one plain append; incomplete: the accumulator's batches; state: of a batch that succeeded;
        delivery_timeout_ms: batches that are older are left to the Sender's thread; clock: None for the system's.
    Attributes: is_wanted: whether the Sender's thread waits for its turn; is_closed; returned: batches that the
        Sender's thread has to take back; ended: (result, futures to notify).
    Threads: safe.
    """

    cdef object lock
    cdef object wake_sender
    cdef object sequences_of
    cdef object append
    cdef object clock
    cdef object state
    cdef dict incomplete
    cdef int64_t delivery_timeout_ms
    cdef RequestSums sums
    cdef readonly list returned
    cdef readonly list ended
    cdef readonly bint is_closed
    cdef readonly bint is_wanted
    cdef bint is_held
    cdef long holder

    def __init__(self, lock, *, wake_sender, sequences_of, append, dict incomplete not None, state not None,
                 int64_t delivery_timeout_ms, clock=None):
        self.lock = lock
        self.wake_sender = wake_sender
        self.sequences_of = sequences_of
        self.append = append
        self.incomplete = incomplete
        self.state = state
        self.delivery_timeout_ms = delivery_timeout_ms
        self.sums = RequestSums.__new__(RequestSums)
        self.clock = clock
        self.returned = []
        self.ended = []

    def __enter__(self):
        self.is_wanted = True
        self.lock.acquire()
        self.is_wanted = False
        self.holder = PyThread_get_thread_ident()
        self.is_held = True
        return self

    def __exit__(self, *exception):
        self.is_held = False
        self.lock.release()

    def close(self):
        """Let no thread begin to send; one that sends goes on."""
        self.is_closed = True

    def take_sums(self):
        """Return the RequestSums of what was sent since the last call, None if nothing was."""
        made = RequestSums.__new__(RequestSums)
        if self.sums.batches == 0:
            return None
        sums, self.sums = self.sums, made
        return sums

    @property
    def is_held_here(self):
        """Whether the calling thread has the turn."""
        cdef long own = PyThread_get_thread_ident()
        return self.is_held and self.holder == own

    @property
    def has_work(self):
        """Whether a thread sends, or has left something to the Sender's thread."""
        return self.is_held or len(self.returned) > 0 or len(self.ended) > 0

    def send(self, PartitionQueue queue not None, ProduceRequestResultCore result not None):
        """Send the first batch of a queue, if it has this result, it is this thread's turn and nothing is to be decided.

        Raises: RuntimeError if this thread has the turn already; what interrupts the append.
        """
        if self.is_held_here:
            raise RuntimeError(
                "a wait for a record in a signal handler, a finalizer or a callback would have no end: it interrupted the "
                "thread that sends")
        if self.is_closed or self.is_wanted or self.is_held or not self.lock.acquire(False):
            return
        self.holder = PyThread_get_thread_ident()
        self.is_held = True
        try:
            self.send_in_turn(queue, result)
        finally:
            self.is_held = False
            self.lock.release()

    @cython.final
    cdef int send_in_turn(self, PartitionQueue queue, ProduceRequestResultCore result) except -1:
        cdef ProducerBatchCore batch
        cdef int64_t started_ms
        sequences = self.sequences_of(queue.topic_partition)
        if sequences is None:
            return 0
        started_ms = self.now_ms()
        batch = self.taken(queue, result, sequences, started_ms)
        if batch is None:
            return 0
        answer = None
        try:
            records = batch.seal()
            batch.drained(started_ms)
            if batch.final_state is None:
                answer = self.append(queue.topic_partition, records)
        except BaseException as error:
            # Of an error of the log the Sender's thread gets its own.
            batch.is_in_doubt = batch.is_in_doubt or not isinstance(error, KStoreError)
            self.give_back(batch)
            if not isinstance(error, Exception):
                raise
            return 0
        if answer is None:
            return self.give_back(batch)
        return self.finish(batch, sequences, answer, started_ms)

    cdef int64_t now_ms(self) except -1:
        return clock_ms(CLOCK_MONOTONIC) if self.clock is None else self.clock.monotonic_ms()

    # Takes the batch out of its queue, with the next sequence. Returns: None if that has to be decided otherwise.
    @cython.final
    cdef ProducerBatchCore taken(self, PartitionQueue queue, ProduceRequestResultCore result, sequences, int64_t now_ms):
        cdef ProducerBatchCore batch
        cdef list in_flight = sequences.in_flight
        producer_id, epoch = sequences.producer
        base_sequence = sequences.next_sequence
        # No other Python code runs from here on.
        if self.is_closed or queue.hold_count or queue.is_muted or not queue.batches:
            return None
        batch = <ProducerBatchCore>queue.batches[0]
        if batch.result is not result or batch.thunks or result.watchers or not is_plain_batch(batch) \
                or now_ms - batch.created_ms >= self.delivery_timeout_ms:
            return None
        sequences.next_sequence = incremented_sequence(base_sequence, batch._builder.h.record_count)
        batch.set_producer_state(producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence,
                                 is_transactional=False)
        in_flight.append(batch)
        del queue.batches[0]
        if not queue.batches:
            queue.active.pop(queue, None)
        batch.is_inflight = True
        batch.send_count += 1
        # Others that wait for it need not wake the Sender's thread.
        result.is_awaited = True
        return batch

    # Leaves the batch to the Sender's thread.
    @cython.final
    cdef int give_back(self, ProducerBatchCore batch) except -1:
        self.returned.append(batch)
        batch.end_send()
        self.wake_sender()
        return 0

    # Ends a batch that is in the log. Nobody else may see one of the steps without the others.
    @cython.final
    cdef int finish(self, ProducerBatchCore batch, sequences, answer, int64_t started_ms) except -1:
        cdef ProduceRequestResultCore result = batch.result
        cdef int64_t base_offset, log_append_time_ms
        cdef int64_t now_ms = self.now_ms()
        cdef object last_sequence = batch.last_sequence
        base_offset, log_append_time_ms = answer.base_offset, answer.log_append_time_ms
        # No other Python code runs from here on.
        sequences.in_flight.remove(batch)
        sequences.last_acked_sequence = last_sequence
        self.sums.add_request(batch, started_ms, now_ms)
        if batch.final_state is None:
            batch.final_state = self.state
            if result.is_silent():
                result.succeed(base_offset, log_append_time_ms)
            else:
                result.is_set = True
                result.base_offset, result.log_append_time_ms = base_offset, log_append_time_ms
                self.ended.append((result, result.end()))
                self.wake_sender()
        self.incomplete.pop(batch, None)
        batch.end_send()
        batch.deallocate_once()
        return 0
