# Frames of the codecs: checked and bounded from their headers alone, then opened block by block by the codec packages.

cdef enum:
    LZ4_MAGIC = 0x184D2204
    LZ4_MOST_RATIO = 255
    XERIAL_VERSION_AT = 8
    XERIAL_HEADER_SIZE = 16
    SNAPPY_MOST_RATIO = 64
    SNAPPY_MOST_LENGTH_SIZE = 5
    ZSTD_MAGIC = 0xFD2FB528
    ZSTD_MAX_BLOCK = 131072
    XXH32_PRIME_1 = 0x9E3779B1
    XXH32_PRIME_2 = 0x85EBCA77
    XXH32_PRIME_3 = 0xC2B2AE3D
    XXH32_PRIME_4 = 0x27D4EB2F
    XXH32_PRIME_5 = 0x165667B1

# The xerial magic, "\x82SNAPPY\0", as a number.
cdef uint64_t XERIAL_MAGIC = 0x82534E4150505900

cdef enum FrameStatus:
    FRAME_OK
    LZ4_BAD_MAGIC
    LZ4_BAD_DESCRIPTOR
    LZ4_BAD_HEADER_CHECKSUM
    LZ4_CUT_OFF
    LZ4_BAD_BLOCK_SIZE
    LZ4_BAD_BLOCK_CHECKSUM
    LZ4_TRAILING_BYTES
    SNAPPY_BAD_STREAM_HEADER
    SNAPPY_BAD_BLOCK_SIZE
    SNAPPY_BAD_LENGTH
    SNAPPY_LENGTH_TOO_LARGE

_FRAME_REASONS = {
    LZ4_BAD_MAGIC: "lz4 frame: bad magic or shorter than its header",
    LZ4_BAD_DESCRIPTOR: "lz4 frame: unsupported descriptor",
    LZ4_BAD_HEADER_CHECKSUM: "lz4 frame: wrong header checksum",
    LZ4_CUT_OFF: "lz4 frame: cut off before its end mark",
    LZ4_BAD_BLOCK_SIZE: "lz4 frame: block runs past its limit or the end, or is stored and of no bytes",
    LZ4_BAD_BLOCK_CHECKSUM: "lz4 frame: wrong block checksum",
    LZ4_TRAILING_BYTES: "lz4 frame: wrong number of bytes after the end mark",
    SNAPPY_BAD_STREAM_HEADER: "snappy stream: header cut off or of a version below 1",
    SNAPPY_BAD_BLOCK_SIZE: "snappy stream: block of no bytes, or running past the end",
    SNAPPY_BAD_LENGTH: "snappy block: declared size cut off, or of more than 5 bytes or 32 bits",
    SNAPPY_LENGTH_TOO_LARGE: "snappy block: declared size that its bytes can't hold",
}

# What a walk found: where it failed, or what the frame holds.
cdef struct Frame:
    int64_t expected
    int64_t found
    int64_t bound            # most bytes of content
    int64_t largest_block    # most bytes of content of one block
    int64_t content_size     # as declared, 0 if not
    int64_t blocks_at        # position of the first block
    bint has_block_checksums
    bint has_content_checksum

# One block of a frame: its bytes in the payload, and the room for its content (snappy: exactly how much that is).
cdef struct FrameBlock:
    int64_t at
    int64_t size
    int64_t room
    int64_t next_at
    bint is_stored


cdef object frame_error(str reason, expected=None, found=None):
    return DecompressionError(reason, reason=reason, expected=expected, found=found)


def output_too_large(str codec, int64_t limit):
    """Return the DecompressionError (without a place) for a payload that decompresses to more than limit bytes."""
    return frame_error(f"{codec} payload decompresses to more than max_decompressed_bytes", expected=limit)


cdef inline FrameStatus fail_frame(Frame* frame, FrameStatus status, int64_t expected, int64_t found) noexcept nogil:
    frame.expected = expected
    frame.found = found
    return status


cdef inline uint32_t get_le(const uint8_t* p, int size) noexcept nogil:
    cdef uint32_t value = 0
    cdef int i
    for i in range(size):
        value |= <uint32_t>p[i] << (8 * i)
    return value


cdef inline uint32_t rotate_left(uint32_t value, int by) noexcept nogil:
    return value << by | value >> (32 - by)


# xxHash32 with seed 0.  Source: xxHash specification 0.1.1.
cdef uint32_t xxh32(const uint8_t* p, int64_t n) noexcept nogil:
    cdef const uint8_t* end = p + n
    cdef uint32_t value = <uint32_t>XXH32_PRIME_5
    cdef uint32_t a, b, c, d
    if n >= 16:
        a = <uint32_t>(XXH32_PRIME_1 + XXH32_PRIME_2)
        b = <uint32_t>XXH32_PRIME_2
        c = 0
        d = 0 - <uint32_t>XXH32_PRIME_1
        while end - p >= 16:
            a = rotate_left(a + get_le(p, 4) * <uint32_t>XXH32_PRIME_2, 13) * <uint32_t>XXH32_PRIME_1
            b = rotate_left(b + get_le(p + 4, 4) * <uint32_t>XXH32_PRIME_2, 13) * <uint32_t>XXH32_PRIME_1
            c = rotate_left(c + get_le(p + 8, 4) * <uint32_t>XXH32_PRIME_2, 13) * <uint32_t>XXH32_PRIME_1
            d = rotate_left(d + get_le(p + 12, 4) * <uint32_t>XXH32_PRIME_2, 13) * <uint32_t>XXH32_PRIME_1
            p += 16
        value = rotate_left(a, 1) + rotate_left(b, 7) + rotate_left(c, 12) + rotate_left(d, 18)
    value += <uint32_t>n
    while end - p >= 4:
        value = rotate_left(value + get_le(p, 4) * <uint32_t>XXH32_PRIME_3, 17) * <uint32_t>XXH32_PRIME_4
        p += 4
    while p < end:
        value = rotate_left(value + p[0] * <uint32_t>XXH32_PRIME_5, 11) * <uint32_t>XXH32_PRIME_1
        p += 1
    value = (value ^ value >> 15) * <uint32_t>XXH32_PRIME_2
    value = (value ^ value >> 13) * <uint32_t>XXH32_PRIME_3
    return value ^ value >> 16


# The second byte of the hash stands in the header. Kafka's V0 writers hashed the frame magic too, its reader of V0
# does not look.
cdef FrameStatus open_lz4(const uint8_t* p, int64_t n, int magic, Frame* frame) noexcept nogil:
    cdef int flags
    cdef int64_t at = 6
    cdef uint32_t checksum
    if n < 11 or get_le(p, 4) != LZ4_MAGIC:
        return fail_frame(frame, LZ4_BAD_MAGIC, 11, n)
    flags = p[4]
    if flags & 0xE3 != 0x60 or p[5] & 0x8F or p[5] < 0x40:
        return fail_frame(frame, LZ4_BAD_DESCRIPTOR, 0x6040, flags << 8 | p[5])
    frame.largest_block = <int64_t>1 << (8 + 2 * (p[5] >> 4))
    frame.has_block_checksums = flags & 0x10
    frame.has_content_checksum = flags & 0x04
    frame.content_size = 0
    if flags & 0x08:
        if n < 19:
            return fail_frame(frame, LZ4_CUT_OFF, 19, n)
        frame.content_size = <int64_t>(get_le(p + 6, 4) | <uint64_t>get_le(p + 10, 4) << 32)
        at = 14
    checksum = xxh32(p + 4, at - 4) >> 8 & 0xFF
    if magic > 0 and p[at] != checksum:
        return fail_frame(frame, LZ4_BAD_HEADER_CHECKSUM, checksum, p[at])
    frame.blocks_at = at + 1
    return FRAME_OK


# Returns: FRAME_OK with the block at `at`, whose next_at is 0 for the end mark.
cdef FrameStatus next_lz4_block(const uint8_t* p, int64_t n, int64_t at, Frame* frame,
                                FrameBlock* block) noexcept nogil:
    cdef uint32_t word
    cdef int64_t checksum_size = 4 if frame.has_block_checksums else 0
    if n - at < 4:
        return fail_frame(frame, LZ4_CUT_OFF, 4, n - at)
    word = get_le(p + at, 4)
    block.at = at + 4
    block.size = word & 0x7FFFFFFF
    block.is_stored = word >> 31 != 0
    if word == 0:
        block.next_at = 0
        return FRAME_OK
    if block.size == 0 or block.size > frame.largest_block or block.size > n - block.at - checksum_size:
        return fail_frame(frame, LZ4_BAD_BLOCK_SIZE, min(frame.largest_block, n - block.at - checksum_size), block.size)
    block.room = block.size if block.is_stored else min(frame.largest_block, LZ4_MOST_RATIO * block.size)
    block.next_at = block.at + block.size + checksum_size
    return FRAME_OK


# Follows Kafka's Lz4BlockInputStream, but looks at every checksum and at what stands behind the end mark.
# Source: LZ4 frame format 1.6.1.
cdef FrameStatus check_lz4(const uint8_t* p, int64_t n, int magic, Frame* frame) noexcept nogil:
    cdef FrameBlock block
    cdef FrameStatus status = open_lz4(p, n, magic, frame)
    cdef int64_t at = frame.blocks_at
    cdef uint32_t stored, computed
    frame.bound = 0
    while status == FRAME_OK:
        status = next_lz4_block(p, n, at, frame, &block)
        if status != FRAME_OK:
            break
        if block.next_at == 0:
            if n - block.at != (4 if frame.has_content_checksum else 0):
                return fail_frame(frame, LZ4_TRAILING_BYTES, 4 if frame.has_content_checksum else 0, n - block.at)
            break
        if frame.has_block_checksums:
            stored, computed = get_le(p + block.at + block.size, 4), xxh32(p + block.at, block.size)
            if stored != computed:
                return fail_frame(frame, LZ4_BAD_BLOCK_CHECKSUM, stored, computed)
        frame.bound += block.room
        at = block.next_at
    return status


# The bytes of a one-dimensional view.
cdef const Py_buffer* bytes_of(object view) except NULL:
    cdef const Py_buffer* raw = PyMemoryView_GET_BUFFER(view)
    if raw.ndim != 1 or raw.itemsize != 1 or (raw.strides != NULL and raw.strides[0] != 1):
        raise ValueError("a payload must be contiguous bytes in one dimension")
    return raw


# Returns: a view of what decompress gave; if it is kept, in memory of its size rather than in a much larger buffer.
cdef object checked_payload(object payload, int64_t limit, bint is_kept):
    cdef ColumnBuffer fitted
    view = memoryview(payload)
    cdef const Py_buffer* raw = bytes_of(view)
    if raw.len > limit:
        raise ValueError(f"decompress returned {raw.len} bytes, more than {limit}")
    base = view.obj
    if not is_kept or not isinstance(base, ColumnBuffer) \
            or (<ColumnBuffer>base).block.capacity - raw.len <= raw.len // 4:
        return view
    fitted = ColumnBuffer(raw.len)
    memcpy(fitted.block.data, raw.buf, <size_t>raw.len)
    return memoryview(fitted)


cdef int64_t checked_size(object size, int64_t room) except -1:
    cdef int64_t n = size
    if not 0 <= n <= room:
        raise ValueError(f"the codec package says it wrote {n} bytes where {room} had room")
    return n


def lz4_decompress(payload, *, int64_t limit, int magic, block_into):
    """Return the content of one LZ4 frame, in the subset that Kafka reads, which must fill the payload.

    Args: magic: of the batch; with 0 the header checksum is not looked at. block_into(block, target, room):
        decompresses one raw block to the start of target, at most room bytes, and returns how many that are.
    Raises: DecompressionError (without a place); what block_into raises.
    Cost: one pass, the content is never copied; memory of limit and one block, or 255 bytes for each of the payload.
    """
    cdef Frame frame
    cdef FrameBlock block
    cdef FrameStatus status
    source = memoryview(payload)
    cdef const Py_buffer* raw = bytes_of(source)
    cdef const uint8_t* p = <const uint8_t*>raw.buf
    cdef int64_t n = raw.len
    cdef int64_t at, done, room
    cdef ColumnBuffer content
    if n < GIL_RELEASE_SIZE * 8:
        status = check_lz4(p, n, magic, &frame)
    else:
        with nogil:
            status = check_lz4(p, n, magic, &frame)
    if status != FRAME_OK:
        raise frame_error(_FRAME_REASONS[status], frame.expected, frame.found)
    if frame.content_size > limit or frame.content_size < 0:
        raise output_too_large("lz4", limit)
    content = ColumnBuffer(min(frame.bound, limit + frame.largest_block))
    at, done = frame.blocks_at, 0
    while next_lz4_block(p, n, at, &frame, &block) == FRAME_OK and block.next_at:
        if block.room > content.size - done:
            raise frame_error("lz4 frame: changed while it was read")
        if block.is_stored:
            memcpy(content.block.data + done, p + block.at, <size_t>block.size)
            done += block.size
        else:
            room = block.room
            target = content if room == content.size else memoryview(content)[done:done + room]
            done += checked_size(block_into(source[block.at:block.at + block.size], target, room), room)
        if done > limit:
            raise output_too_large("lz4", limit)
        at = block.next_at
    if frame.content_size and frame.content_size != done:
        raise frame_error("lz4 frame: wrong content size", frame.content_size, done)
    if frame.has_content_checksum and get_le(p + n - 4, 4) != xxh32(content.block.data, done):
        raise frame_error("lz4 frame: wrong content checksum", get_le(p + n - 4, 4), xxh32(content.block.data, done))
    content.size = done
    return memoryview(content)


cdef inline bint starts_xerial(const uint8_t* p, int64_t n) noexcept nogil:
    return n >= 8 and ks_get64(p) == XERIAL_MAGIC


# Checks what a raw block says of itself; block.room becomes the size of its content.
cdef FrameStatus read_snappy_length(const uint8_t* p, Frame* frame, FrameBlock* block) noexcept nogil:
    cdef uint64_t length = 0
    cdef int64_t size = 0
    while size < min(block.size, SNAPPY_MOST_LENGTH_SIZE):
        length |= <uint64_t>(p[block.at + size] & 0x7F) << (7 * size)
        size += 1
        if p[block.at + size - 1] < 0x80:
            break
    if size == 0 or p[block.at + size - 1] >= 0x80 or length >> 32:
        return fail_frame(frame, SNAPPY_BAD_LENGTH, SNAPPY_MOST_LENGTH_SIZE, size)
    block.room = <int64_t>length
    if block.room > SNAPPY_MOST_RATIO * block.size:
        return fail_frame(frame, SNAPPY_LENGTH_TOO_LARGE, SNAPPY_MOST_RATIO * block.size, block.room)
    if block.room == 0 and block.size != size:
        return fail_frame(frame, SNAPPY_BAD_BLOCK_SIZE, size, block.size)
    return FRAME_OK


# Returns: FRAME_OK with what stands at `at` < n: a block, or a stream header, which is of size 0. A payload that does
# not start with a whole stream header is one raw block.
cdef FrameStatus next_snappy_block(const uint8_t* p, int64_t n, int64_t at, Frame* frame,
                                   FrameBlock* block) noexcept nogil:
    block.room = 0
    if not starts_xerial(p, n) or n < XERIAL_HEADER_SIZE:
        block.at, block.size, block.next_at = 0, n, n
        return read_snappy_length(p, frame, block)
    if starts_xerial(p + at, n - at):
        if n - at < XERIAL_HEADER_SIZE or <int32_t>ks_get32(p + at + XERIAL_VERSION_AT) < 1:
            return fail_frame(frame, SNAPPY_BAD_STREAM_HEADER, XERIAL_HEADER_SIZE, n - at)
        block.size = 0
        block.next_at = at + XERIAL_HEADER_SIZE
        return FRAME_OK
    if n - at < 4:
        return fail_frame(frame, SNAPPY_BAD_BLOCK_SIZE, 4, n - at)
    block.at = at + 4
    block.size = <int32_t>ks_get32(p + at)
    if block.size <= 0 or block.size > n - block.at:
        return fail_frame(frame, SNAPPY_BAD_BLOCK_SIZE, n - block.at, block.size)
    block.next_at = block.at + block.size
    return read_snappy_length(p, frame, block)


# Stops when the content passes the limit: frame.bound is then above it.
cdef FrameStatus check_snappy(const uint8_t* p, int64_t n, int64_t limit, Frame* frame) noexcept nogil:
    cdef FrameBlock block
    cdef FrameStatus status
    cdef int64_t at = 0
    frame.bound = 0
    while at < n and frame.bound <= limit:
        status = next_snappy_block(p, n, at, frame, &block)
        if status != FRAME_OK:
            return status
        frame.bound += block.room
        at = block.next_at
    return FRAME_OK


def snappy_decompress(payload, *, int64_t limit, raw_into):
    """Return the content of snappy blocks in xerial framing, or of one raw block, which must fill the payload.

    Args: raw_into(block, target): decompresses one raw block into target, just large enough, and returns that size.
    Raises: DecompressionError (without a place); what raw_into raises.
    Cost: one pass, the content is never copied; memory of the content, at most limit.
    """
    cdef Frame frame
    cdef FrameBlock block
    cdef FrameStatus status
    source = memoryview(payload)
    cdef const Py_buffer* raw = bytes_of(source)
    cdef const uint8_t* p = <const uint8_t*>raw.buf
    cdef int64_t n = raw.len
    cdef int64_t at = 0
    cdef int64_t done = 0
    cdef ColumnBuffer content
    if n == 0:
        raise frame_error("snappy stream: no bytes")
    status = check_snappy(p, n, limit, &frame)
    if status != FRAME_OK:
        raise frame_error(_FRAME_REASONS[status], frame.expected, frame.found)
    if frame.bound > limit:
        raise output_too_large("snappy", limit)
    content = ColumnBuffer(frame.bound)
    while at < n and next_snappy_block(p, n, at, &frame, &block) == FRAME_OK:
        if block.room > content.size - done:
            break
        if block.room:
            target = content if block.room == content.size else memoryview(content)[done:done + block.room]
            size = raw_into(source[block.at:block.at + block.size], target)
            if size != block.room:
                raise frame_error("snappy block: wrong declared size", block.room, size)
            done += block.room
        at = block.next_at
    if done != content.size:
        raise frame_error("snappy stream: changed while it was read")
    return memoryview(content)


def zstd_frame_bound(frame):
    """Return (bound, content_size): the most bytes that one zstd frame can decompress to, and its declared size or -1.

    The frame must fill the buffer; skippable and concatenated frames and dictionaries are refused.
    Raises: DecompressionError (without a place).  Cost: O(blocks).  Source: RFC 8878 section 3.
    """
    view = memoryview(frame)
    cdef const Py_buffer* raw = bytes_of(view)
    cdef const uint8_t* p = <const uint8_t*>raw.buf
    cdef int64_t n = raw.len
    cdef int64_t at = 5
    cdef int64_t bound = 0
    cdef uint32_t block
    cdef int64_t stored
    cdef uint64_t content_size = 0
    cdef int descriptor, size_bytes, i
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
    for i in range(size_bytes):
        content_size |= <uint64_t>p[at + i] << (8 * i)
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
    return bound, content_size if size_bytes else -1
