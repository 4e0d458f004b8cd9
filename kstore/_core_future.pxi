# What the sender of one record gets: the place of the record, and its future when it is asked for.

cdef extern from *:
    """
    #define KS_NEW(type, args) (((PyTypeObject *)(type))->tp_new((PyTypeObject *)(type), args, NULL))
    """
    object new_of "KS_NEW"(object type, object args)


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
    cdef bint fills_batch         # as no other append to that batch did

    @property
    def future(self):
        cdef RecordFuture future = self.known_future
        if future is None and self.produce_result is not None:
            future = new_of(self.future_type, ())
            future.produce_result = self.produce_result
            future.index = self.index
            future.timestamp_ms = self.timestamp_ms
            future.serialized_key_size = self.serialized_key_size
            future.serialized_value_size = self.serialized_value_size
            if self.known_future is None:
                self.known_future = future
        return self.known_future
