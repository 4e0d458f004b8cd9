# The hash by which producers spread keys over partitions: MurmurHash2 of 32 bits with Kafka's seed.

cdef enum:
    MURMUR_SHIFT = 24
    HASH_MASK = 0x7fffffff       # Kafka's toPositive

cdef uint32_t MURMUR_SEED = 0x9747b28cu
cdef uint32_t MURMUR_FACTOR = 0x5bd1e995u


# Requires: size bytes at data.  Returns: the bits of Kafka's int.
cdef uint32_t murmur2_of(const uint8_t* data, int64_t size) noexcept nogil:
    cdef uint32_t hashed = MURMUR_SEED ^ <uint32_t>size
    cdef uint32_t word
    cdef int64_t rest = size
    while rest >= 4:
        word = <uint32_t>data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24
        word *= MURMUR_FACTOR
        word ^= word >> MURMUR_SHIFT
        hashed = hashed * MURMUR_FACTOR ^ word * MURMUR_FACTOR
        data += 4
        rest -= 4
    if rest == 3:
        hashed ^= <uint32_t>data[2] << 16
    if rest >= 2:
        hashed ^= <uint32_t>data[1] << 8
    if rest >= 1:
        hashed = (hashed ^ data[0]) * MURMUR_FACTOR
    hashed ^= hashed >> 13
    hashed *= MURMUR_FACTOR
    return hashed ^ hashed >> 15


# Requires: partition_count > 0.
cdef inline int32_t partition_of_hash(uint32_t hashed, int32_t partition_count) noexcept nogil:
    return <int32_t>(hashed & HASH_MASK) % partition_count


cdef uint32_t murmur2_of_object(object data) except? 0:
    cdef Py_buffer view
    cdef uint32_t hashed
    if type(data) is bytes:
        return murmur2_of(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    hashed = murmur2_of(<const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return hashed


def murmur2(data):
    """Return the hash of a key's bytes, from -2^31 to 2^31 - 1.

    Threads: safe.  Cost: O(bytes), no copy.  Source: Kafka Utils.murmur2.
    """
    return <int32_t>murmur2_of_object(data)


def partition_for_key(key, int32_t partition_count):
    """Return the partition in which a producer puts the records of a key, given as bytes.

    Raises: ValueError for a partition_count below 1.  Threads: safe.  Source: Kafka BuiltInPartitioner.partitionForKey.
    """
    if partition_count < 1:
        raise ValueError(f"partition_count must be at least 1, got {partition_count}")
    return partition_of_hash(murmur2_of_object(key), partition_count)
