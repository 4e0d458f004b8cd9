# Checksums and hashes: CRC-32C (batches of magic 2), CRC-32 (messages of magic 0 and 1), the combination of two
# CRC-32Cs, and the murmur2 hash of Kafka's default partitioner. The CPU-specific CRC code is in _core_cpu.h.

cdef enum:
    GIL_RELEASE_SIZE = 65536     # the CRC of a smaller buffer takes no longer than releasing and reacquiring the GIL
    BEST_PATH = 0
    CRC32C_POLYNOMIAL = 0x82F63B78    # reflected: the coefficient of x^0 is the highest bit
    CRC32_POLYNOMIAL = 0xEDB88320
    MOST_SHIFT_BITS = 31

ks_cpu_init()

# x^(8 * 2^i) modulo the polynomial: the factor by which appending 2^i zero bytes multiplies a CRC.
cdef uint32_t crc32c_shifts[MOST_SHIFT_BITS]


cdef uint32_t crc32c_product(uint32_t a, uint32_t b) noexcept nogil:
    cdef uint32_t product = 0
    cdef int i
    for i in range(32):
        product ^= b & (0 - (a >> 31))
        a <<= 1
        b = (b >> 1) ^ (<uint32_t>CRC32C_POLYNOMIAL & (0 - (b & 1)))
    return product


# Returns: x^(8 * size) modulo the polynomial, never 0.
cdef uint32_t crc32c_shift_of(uint32_t size) noexcept nogil:
    cdef uint32_t shift = <uint32_t>1 << 31
    cdef int i
    for i in range(MOST_SHIFT_BITS):
        if size >> i & 1:
            shift = crc32c_product(shift, crc32c_shifts[i])
    return shift


# Requires: `first` and `others`, the CRCs of two adjacent byte strings; `shift`, crc32c_shift_of the size of the
# second. Returns: the CRC of the two together.
cdef inline uint32_t joined_crc32c(uint32_t first, uint32_t others, uint32_t shift) noexcept nogil:
    return crc32c_product(shift, first) ^ others


cdef void fill_crc32c_shifts() noexcept:
    cdef int i
    crc32c_shifts[0] = <uint32_t>1 << 23
    for i in range(1, MOST_SHIFT_BITS):
        crc32c_shifts[i] = crc32c_product(crc32c_shifts[i - 1], crc32c_shifts[i - 1])

fill_crc32c_shifts()

CRC32C_PATHS = tuple([ks_crc32c_paths[number].name.decode() for number in range(ks_crc32c_path_count)])
CRC32_PATHS = tuple([ks_crc32_paths[number].name.decode() for number in range(ks_crc32_path_count)])


cdef uint32_t crc_of(object data, uint32_t value, int path, const ks_named_path* paths) except? 0:
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if view.len < GIL_RELEASE_SIZE:
        value = ks_crc_by(paths, path, value, <const uint8_t*>view.buf, view.len) if view.len else value
    else:
        with nogil:
            value = ks_crc_by(paths, path, value, <const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return value


def crc32c(data, uint32_t value=0):
    """Return the CRC-32C (Castagnoli) of a contiguous buffer, continuing from the CRC `value`.

    Threads: safe; the GIL is released for 64 KiB and more.  Cost: O(bytes), no copy.
    """
    return crc_of(data, value, BEST_PATH, ks_crc32c_paths)


def crc32c_by(str path, data, uint32_t value=0):
    """Return crc32c, computed by the implementation called `path`, one of CRC32C_PATHS.

    CRC32C_PATHS are the names of the implementations that this CPU supports, fastest first.

    Raises: ValueError for another path.
    """
    return crc_of(data, value, CRC32C_PATHS.index(path), ks_crc32c_paths)


def crc32(data, uint32_t value=0):
    """Return the CRC-32 (IEEE, as in zlib) of a contiguous buffer, continuing from the CRC `value`.

    Threads: safe; the GIL is released for 64 KiB and more.  Cost: O(bytes), no copy.
    """
    return crc_of(data, value, BEST_PATH, ks_crc32_paths)


def crc32_by(str path, data, uint32_t value=0):
    """Return crc32, computed by the implementation called `path`, one of CRC32_PATHS.

    CRC32_PATHS are the names of the implementations that this CPU supports, fastest first.

    Raises: ValueError for another path.
    """
    return crc_of(data, value, CRC32_PATHS.index(path), ks_crc32_paths)


# The hash by which producers assign keys to partitions: 32-bit MurmurHash2 with Kafka's seed.

cdef enum:
    MURMUR_SHIFT = 24
    HASH_MASK = 0x7fffffff       # as Kafka's toPositive

cdef uint32_t MURMUR_SEED = 0x9747b28cu
cdef uint32_t MURMUR_FACTOR = 0x5bd1e995u


# Requires: size bytes at data. Returns: the bits of the int that Kafka computes.
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
    """Return the murmur2 hash of a key's bytes, from -2^31 to 2^31 - 1.

    Threads: safe.  Cost: O(bytes), no copy.  Source: Kafka Utils.murmur2.
    """
    return <int32_t>murmur2_of_object(data)


def partition_for_key(key, int32_t partition_count):
    """Return the partition, from 0 to partition_count - 1, of records with this key, given as bytes.

    Raises: ValueError for a partition_count below 1.  Threads: safe.  Source: Kafka BuiltInPartitioner.partitionForKey.
    """
    if partition_count < 1:
        raise ValueError(f"partition_count must be at least 1, got {partition_count}")
    return partition_of_hash(murmur2_of_object(key), partition_count)
