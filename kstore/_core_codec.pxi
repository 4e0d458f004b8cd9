# Upper bounds of what a compressed frame can produce, from its block headers alone. Nothing is decompressed here.

cdef enum:
    LZ4_MAGIC = 0x184D2204
    ZSTD_MAGIC = 0xFD2FB528
    ZSTD_MAX_BLOCK = 131072


cdef inline uint32_t get_le(const uint8_t* p, int size) noexcept nogil:
    cdef uint32_t value = 0
    cdef int i
    for i in range(size):
        value |= <uint32_t>p[i] << (8 * i)
    return value


cdef object frame_error(str reason, expected=None, found=None):
    return DecompressionError(reason, reason=reason, expected=expected, found=found)


def lz4_frame_bound(const uint8_t[::1] frame):
    """Return the most bytes that one LZ4 frame, which must fill the buffer, can decompress to.

    Follows Kafka's Lz4BlockInputStream: version 1, independent blocks, no dictionary, one frame with its end mark.
    Raises: DecompressionError (without a place) for any other framing or a frame that is cut off.
    Cost: O(blocks).  Source: LZ4 frame format 1.6.1.
    """
    cdef const uint8_t* p = start_of(frame)
    cdef int64_t n = frame.shape[0]
    cdef int64_t at = 7
    cdef int64_t bound = 0
    cdef int64_t block
    cdef int64_t largest
    cdef int flags
    if n < 11 or get_le(p, 4) != LZ4_MAGIC:
        raise frame_error("lz4 frame: bad magic or shorter than its header")
    flags = p[4]
    if flags & 0xE3 != 0x60 or p[5] & 0x8F or p[5] < 0x40:
        raise frame_error(f"lz4 frame: unsupported descriptor {flags:#04x} {p[5]:#04x}")
    largest = <int64_t>1 << (8 + 2 * (p[5] >> 4))
    if flags & 0x08:
        at += 8
    while True:
        if n - at < 4:
            raise frame_error("lz4 frame: cut off before its end mark")
        block = get_le(p + at, 4)
        at += 4
        if block == 0:
            break
        bound += (block & 0x7FFFFFFF) if block & 0x80000000 else largest
        block = (block & 0x7FFFFFFF) + (4 if flags & 0x10 else 0)
        if block > largest + 4 or block > n - at:
            raise frame_error("lz4 frame: block runs past its limit or the end", largest, block)
        at += block
    if n - at != (4 if flags & 0x04 else 0):
        raise frame_error("lz4 frame: wrong number of bytes after the end mark", 4 if flags & 0x04 else 0, n - at)
    return bound


def zstd_frame_bound(const uint8_t[::1] frame):
    """Return (bound, content_size): the most bytes that one zstd frame can decompress to, and its declared size or -1.

    The frame must fill the buffer; skippable and concatenated frames and dictionaries are refused.
    Raises: DecompressionError (without a place).  Cost: O(blocks).  Source: RFC 8878 section 3.
    """
    cdef const uint8_t* p = start_of(frame)
    cdef int64_t n = frame.shape[0]
    cdef int64_t at = 5
    cdef int64_t bound = 0
    cdef uint32_t block
    cdef int64_t stored
    cdef int descriptor, size_bytes
    if n < 8 or get_le(p, 4) != ZSTD_MAGIC:
        raise frame_error("zstd frame: bad magic or shorter than its header")
    descriptor = p[4]
    if descriptor & 0x0B:
        raise frame_error(f"zstd frame: reserved bit or dictionary in descriptor {descriptor:#04x}")
    size_bytes = (1 << (descriptor >> 6)) if descriptor >> 6 else (1 if descriptor & 0x20 else 0)
    if not descriptor & 0x20:
        at += 1
    if n - at < size_bytes:
        raise frame_error("zstd frame: cut off in its header")
    content_size = int.from_bytes(frame[at:at + size_bytes], "little") if size_bytes else -1
    if size_bytes == 2:
        content_size += 256
    at += size_bytes
    while True:
        if n - at < 3:
            raise frame_error("zstd frame: cut off before its last block")
        block = get_le(p + at, 3)
        at += 3
        stored = 1 if (block >> 1) & 3 == 1 else block >> 3
        bound += ZSTD_MAX_BLOCK if (block >> 1) & 3 == 2 else block >> 3
        if (block >> 1) & 3 == 3 or block >> 3 > ZSTD_MAX_BLOCK or stored > n - at:
            raise frame_error("zstd frame: block of a reserved type, too large, or running past the end")
        at += stored
        if block & 1:
            break
    if n - at != (4 if descriptor & 0x04 else 0):
        raise frame_error("zstd frame: wrong number of bytes after the last block", 4 if descriptor & 4 else 0, n - at)
    return bound, content_size
