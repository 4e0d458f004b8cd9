# CRC-32C of a buffer; the instructions live in _core_cpu.h.

cdef enum:
    GIL_RELEASE_SIZE = 5120

ks_cpu_init()


def crc32c(const uint8_t[::1] data, uint32_t value=0):
    """Return the CRC-32C (Castagnoli) of data, continuing from `value`.

    Threads: safe; the GIL is released for 5 KiB and more.  Cost: O(bytes), no copy.
    """
    cdef const uint8_t* start = start_of(data)
    cdef size_t size = data.shape[0]
    if size < GIL_RELEASE_SIZE:
        return ks_crc32c(value, start, size) if size else value
    with nogil:
        value = ks_crc32c(value, start, size)
    return value


def crc32c_portable(const uint8_t[::1] data, uint32_t value=0):
    """Return the same as crc32c by the path that needs no CRC instruction."""
    cdef const uint8_t* start = start_of(data)
    cdef size_t size = data.shape[0]
    if not size:
        return value
    with nogil:
        value = ~ks_crc32c_portable(~value, start, size)
    return value


def crc32c_implementation():
    """Return the name of the path chosen for this CPU: "sse4.2", "armv8-crc" or "portable"."""
    return ks_crc32c_name.decode()
