# The append of a leader without a Python frame, for records that need nothing but what LogAppender does.

cdef enum:
    PREFETCHED_BYTES = 1024      # by the time that they are read, they are in the cache


cdef class LeaderLog:
    """The compiled base class of WritableLog: the common append.

    Requires: a subclass with the methods _append_as_leader (what is left to do if the append needs more than one compiled
        call) and _append_otherwise (an append with any argument but records, or of other records).
    Attributes: those of WritableLog and Log with these names; _system_wall_clock_ms: the method that reads the system's
        clock, in whose place the clock is read here.
    """

    cdef public object _gate
    cdef public object _local
    cdef public object _live
    cdef public object _listeners
    cdef public object _durability
    cdef public object _env
    cdef public object _system_wall_clock_ms

    def append(self, records, *, ack="written", partition_leader_epoch=None, origin=None, guard=None,
               expected_end_offset=None, expected_key_offset=None, atomic=False):
        """Append as the partition's leader: check the records and assign the next offsets.

        Args: records: MemoryRecords as a producer sends them (offsets from 0; exactly one batch if it is V2 or
            compressed); a batch with any offsets; or one Record or several, which become one batch with the topic's
            codec, and several if one would exceed max_message_bytes. The offsets of Records are ignored; one with
            neither offset nor timestamp gets the current time. ack: what the records survive when this returns:
            "written" the end of the process, "flushed" a power cut. partition_leader_epoch: None for the last append's,
            0 in a new log; not below it, or -1 for none. origin: an AppendOrigin, None for that of clients. guard: see
            ProducerStateManager.start_verification. expected_end_offset, expected_key_offset: append only if the log
            ends there, or if that is the offset of the newest record of the Records' one key (-1: none; its cost:
            KeyOffsets). atomic: in one batch or not at all.
        Raises: before anything is written: CorruptRecordError, InvalidRecordError, UnsupportedError;
            UnexpectedAppendOffsetError unless it is as expected; MemoryLimitError if KeyOffsets takes too much;
            RecordValidationError and its subclasses, RecordTooLargeError, RecordBatchTooLargeError, ProducerStateError;
            TypeError for a key or value that is no buffer and not None, and for anything but Records; ValueError for a
            partition_leader_epoch that is none, or too low. StorageError: nothing was written unless it is_final. Then
            the records may be in the log: the error of a flush fails an append that was written, with any ack if the
            append rolled the log, or flush_messages or flush_ms make a flush due.
        Cost: one write, which flushed appends of several threads share. One compiled call for one V2 batch that only
            needs new header fields and continues its producer's sequence; otherwise one object per batch.
        Source: Kafka UnifiedLog.appendAsLeader.
        """
        if ack == "written" and origin is None and expected_end_offset is None and expected_key_offset is None \
                and partition_leader_epoch is None and guard is None and isinstance(records, MemoryRecordsCore):
            return self.append_sent(<MemoryRecordsCore>records)
        return self._append_otherwise(records, ack, partition_leader_epoch, origin, guard, expected_end_offset,
                                      expected_key_offset, atomic=atomic)

    @cython.final
    cdef object append_sent(self, MemoryRecordsCore records):
        cdef object done, gate = self._gate, lock = gate.append_lock
        if records.whole is not None:
            ks_prefetch_all(<const uint8_t*>PyBytes_AS_STRING(records.whole),
                            min(PyBytes_GET_SIZE(records.whole), PREFETCHED_BYTES))
        lock.acquire()
        try:
            if not gate.is_open:
                gate.check()
            done = self.append_locked(records, gate)
        finally:
            lock.release()
        if self._listeners.any:
            self._live.tell()
        if not self._durability.needs_no_flush:
            self._durability.flush_for_ack(done.last_offset, "written")
        return done

    @cython.final
    cdef object append_locked(self, MemoryRecordsCore records, gate):
        cdef LogAppender appender = self._local.appender
        cdef int64_t now_ms = self.now_ms()
        cdef object done, content = records.buffer if records.whole is None else records.whole
        try:
            done = appender.append_sent(content, max(appender.leader_epoch, 0), now_ms)
        except BaseException as error:
            gate.fail_unless_undone(error, self._local)
            raise
        return done if type(done) is appender.info_type else self._append_as_leader(records, done, now_ms=now_ms)

    @cython.final
    cdef int64_t now_ms(self) except? -1:
        env = self._env
        if type(env).wall_clock_ms is self._system_wall_clock_ms:
            return clock_ms(CLOCK_REALTIME)
        return env.wall_clock_ms()
