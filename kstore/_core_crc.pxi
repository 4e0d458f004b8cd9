# CRC-32C and CRC-32 of a buffer; the instructions live in _core_cpu.h.

cdef enum:
    GIL_RELEASE_SIZE = 65536     # a CRC of less takes no longer than to give the GIL away and to get it back
    BEST_PATH = 0

ks_cpu_init()

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
    """Return the CRC-32C (Castagnoli) of a contiguous buffer, continuing from `value`.

    Threads: safe; the GIL is released for 64 KiB and more.  Cost: O(bytes), no copy.
    """
    return crc_of(data, value, BEST_PATH, ks_crc32c_paths)


def crc32c_by(str path, data, uint32_t value=0):
    """Return the same as crc32c by one of CRC32C_PATHS, the ways to compute it that this CPU has, best first.

    Raises: ValueError for another path.
    """
    return crc_of(data, value, CRC32C_PATHS.index(path), ks_crc32c_paths)


def crc32(data, uint32_t value=0):
    """Return the CRC-32 (IEEE, as zlib has it) of a contiguous buffer, continuing from `value`.

    Threads: safe; the GIL is released for 64 KiB and more.  Cost: O(bytes), no copy.
    """
    return crc_of(data, value, BEST_PATH, ks_crc32_paths)


def crc32_by(str path, data, uint32_t value=0):
    """Return the same as crc32 by one of CRC32_PATHS, the ways to compute it that this CPU has, best first.

    Raises: ValueError for another path.
    """
    return crc_of(data, value, CRC32_PATHS.index(path), ks_crc32_paths)
