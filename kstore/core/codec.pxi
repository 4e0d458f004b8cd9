# Decompression of payloads. Checks the frames of lz4 and snappy (raw or in xerial framing), bounds their content from
# block headers alone, and decompresses their blocks; for zstd, computes the bound only. Other codecs are Python
# libraries, see kstore/compression.py.

# Raw blocks of lz4 and snappy: literals, and copies of earlier content. Source: LZ4 block format 1.6.1, snappy format
# description of 2011. Both decompressors may write up to BLOCK_MARGIN bytes past the room for the content.

cdef extern from "_core_cpu.h" nogil:
    void ks_move16(uint8_t* target, const uint8_t* source) noexcept
    void ks_move32(uint8_t* target, const uint8_t* source) noexcept
    uint16_t ks_get_le16(const uint8_t* p) noexcept

cdef enum:
    BLOCK_MARGIN = 64
    WIDE_STEP = 32
    LZ4_LONG = 15                 # a 4-bit length that continues in further bytes
    LZ4_LEAST_COPY = 4
    LZ4_LAST_LITERALS = 5         # every block ends with at least so many bytes of literals
    LZ4_LAST_COPY_START = 12      # no copy starts in the last 12 bytes of the largest block
    LZ4_COPY_TAIL = 8             # least bytes from an offset to the end: offset, token, last literals
    SHORT_LENGTH = 64             # longest literal or copy that is moved as a whole
    LZ4_SHORT_TAKES = 80          # most bytes of a sequence of short lengths, and LZ4_COPY_TAIL
    LZ4_SHORT_GIVES = 140         # most content of a sequence of short lengths, and LZ4_LAST_COPY_START
    SNAPPY_SHORT_TAKES = 72       # most bytes that are read for a short element and the tag after it
    SNAPPY_LONG_LITERAL = 60
    SNAPPY_NO_OFFSET_BIT = 56

cdef enum FrameStatus:
    FRAME_OK
    LZ4_BAD_MAGIC
    LZ4_BAD_DESCRIPTOR
    LZ4_BAD_HEADER_CHECKSUM
    LZ4_CUT_OFF
    LZ4_BAD_BLOCK_SIZE
    LZ4_BAD_BLOCK_CHECKSUM
    SNAPPY_BAD_STREAM_HEADER
    SNAPPY_BAD_BLOCK_SIZE
    SNAPPY_BAD_LENGTH
    SNAPPY_LENGTH_TOO_LARGE
    SNAPPY_NO_BYTES
    BLOCK_CUT_OFF
    BLOCK_TOO_LARGE
    BLOCK_BAD_OFFSET
    LZ4_BAD_BLOCK_END
    SNAPPY_WRONG_SIZE
    LZ4_WRONG_CONTENT_SIZE
    LZ4_WRONG_CONTENT_CHECKSUM
    CONTENT_TOO_LARGE
    FRAME_CHANGED

_FRAME_REASONS = {
    LZ4_BAD_MAGIC: "frame: bad magic or shorter than its header",
    LZ4_BAD_DESCRIPTOR: "frame: unsupported descriptor",
    LZ4_BAD_HEADER_CHECKSUM: "frame: wrong header checksum",
    LZ4_CUT_OFF: "frame: truncated before its end mark or in its content checksum",
    LZ4_BAD_BLOCK_SIZE: "frame: block exceeds its limit or the frame, or is a stored block of 0 bytes",
    LZ4_BAD_BLOCK_CHECKSUM: "frame: wrong block checksum",
    SNAPPY_BAD_STREAM_HEADER: "stream: later header truncated, or its version is below 1",
    SNAPPY_BAD_BLOCK_SIZE: "stream: empty block, or block that exceeds the stream",
    SNAPPY_BAD_LENGTH: "block: declared size truncated, or longer than 5 bytes or 32 bits",
    SNAPPY_LENGTH_TOO_LARGE: "block: declared size exceeds what its bytes can encode",
    SNAPPY_NO_BYTES: "stream: empty",
    BLOCK_CUT_OFF: "block: truncated inside a length, an offset or a literal",
    BLOCK_TOO_LARGE: "block: content exceeds the available space",
    BLOCK_BAD_OFFSET: "block: copy with offset 0 or from before the start of the content",
    LZ4_BAD_BLOCK_END: "block: the last five bytes are not literals, or the last copy starts or ends too late",
    SNAPPY_WRONG_SIZE: "block: wrong declared size",
    LZ4_WRONG_CONTENT_SIZE: "frame: wrong content size",
    LZ4_WRONG_CONTENT_CHECKSUM: "frame: wrong content checksum",
    FRAME_CHANGED: "frame: changed while it was read",
}

# What a check found: the values for the message of an error, or the facts of the frame.
cdef struct Frame:
    int64_t expected
    int64_t found
    int64_t bound            # the largest possible size of the content
    int64_t largest_block    # the largest content of one block
    int64_t content_size     # as declared; 0: not declared
    int64_t room             # for all content, without the margin
    int64_t blocks_at        # position of the first block
    int64_t checksum_at      # position of the content checksum of lz4
    bint has_block_checksums
    bint has_content_checksum

# One block of a frame: its bytes in the payload, and the room for its content (for snappy, exactly the content's size).
cdef struct FrameBlock:
    int64_t at
    int64_t size
    int64_t room
    int64_t next_at
    bint is_stored


cdef object frame_error(str reason, expected=None, found=None):
    return DecompressionError(reason, reason=reason, expected=expected, found=found)


def output_too_large(str codec, int64_t limit):
    """Return the DecompressionError (without a position) for a payload that decompresses to more than limit bytes."""
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


# Copies size bytes from offset bytes earlier. The content repeats with that period, so each round doubles what can be
# copied.
cdef void repeat_bytes(uint8_t* to, int64_t offset, int64_t size) noexcept nogil:
    cdef const uint8_t* start = to - offset
    cdef int64_t done = 0
    cdef int64_t step
    if offset >= WIDE_STEP:
        while done < size:
            ks_move32(to + done, start + done)
            done += WIDE_STEP
        return
    while done < size:
        step = min(size - done, offset + done)
        memcpy(to + done, start, <size_t>step)
        done += step


# Returns: the length plus its continuation bytes at `at`, which moves past them, or -1 if they run past the end.
cdef inline int64_t lz4_length(int64_t length, const uint8_t** at, const uint8_t* end) noexcept nogil:
    cdef int byte = 255
    while byte == 255:
        if at[0] == end:
            return -1
        byte = at[0][0]
        at[0] += 1
        length += byte
    return length


cdef struct BlockPlace:
    const uint8_t* at
    const uint8_t* end
    uint8_t* start
    uint8_t* to
    uint8_t* full


# Decompresses one sequence of any lengths, with all checks.
cdef FrameStatus decompress_lz4_sequence(BlockPlace* b, const uint8_t* largest, Frame* frame) noexcept nogil:
    cdef int token = b.at[0]
    cdef int64_t size = token >> 4
    cdef int64_t offset
    b.at += 1
    if size == LZ4_LONG:
        size = lz4_length(size, &b.at, b.end)
    if size < 0 or size > b.end - b.at:
        return fail_frame(frame, BLOCK_CUT_OFF, size, b.end - b.at)
    if size > b.full - b.to:
        return fail_frame(frame, BLOCK_TOO_LARGE, b.full - b.to, size)
    ks_copy(b.to, b.at, size, b.end)
    b.to += size
    b.at += size
    if b.at == b.end:
        return FRAME_OK
    if b.end - b.at < LZ4_COPY_TAIL or largest - b.to < LZ4_LAST_COPY_START:
        return fail_frame(frame, LZ4_BAD_BLOCK_END, LZ4_COPY_TAIL, b.end - b.at)
    offset = ks_get_le16(b.at)
    b.at += 2
    size = token & 15
    if size == LZ4_LONG:
        size = lz4_length(size, &b.at, b.end)
        if size < 0 or b.end - b.at < LZ4_COPY_TAIL - 2:
            return fail_frame(frame, LZ4_BAD_BLOCK_END, LZ4_COPY_TAIL - 2, b.end - b.at)
    size += LZ4_LEAST_COPY
    if offset == 0 or offset > b.to - b.start:
        return fail_frame(frame, BLOCK_BAD_OFFSET, b.to - b.start, offset)
    if size > b.full - b.to:
        return fail_frame(frame, BLOCK_TOO_LARGE, b.full - b.to, size)
    if size > largest - b.to - LZ4_LAST_LITERALS:
        return fail_frame(frame, LZ4_BAD_BLOCK_END, largest - b.to - LZ4_LAST_LITERALS, size)
    repeat_bytes(b.to, offset, size)
    b.to += size
    return FRAME_OK


# Fast path: decompresses sequences while their lengths are short, copies do not overlap themselves and both ends are
# far. Requires: SHORT_LENGTH bytes of content before.
cdef void decompress_short_lz4_sequences(BlockPlace* b) noexcept nogil:
    cdef const uint8_t* at = b.at
    cdef const uint8_t* last = b.end - LZ4_SHORT_TAKES
    cdef uint8_t* to = b.to
    cdef uint8_t* full = b.full - LZ4_SHORT_GIVES
    cdef const uint8_t* next
    cdef uint8_t* copy
    cdef uint64_t literals, size, offset
    while at <= last and to <= full:
        size = at[0] & 15
        literals = at[0] >> 4
        next = at + 1
        if literals == LZ4_LONG:
            literals += at[1]
            if literals > SHORT_LENGTH:
                break
            next = at + 2
            ks_move32(to + 16, next + 16)
            ks_move16(to + 48, next + 48)
        ks_move16(to, next)
        next += literals
        copy = to + literals
        offset = ks_get_le16(next)
        next += 2
        if size == LZ4_LONG:
            size += next[0]
            next += 1
        size += LZ4_LEAST_COPY
        if size > SHORT_LENGTH or offset - size > <uint64_t>(copy - b.start) - size:
            break
        ks_move32(copy, copy - offset)
        if size > WIDE_STEP:
            ks_move32(copy + WIDE_STEP, copy - offset + WIDE_STEP)
        at = next
        to = copy + size
    b.at = at
    b.to = to


# Requires: `room` bytes and BLOCK_MARGIN at target; room <= frame.largest_block. Returns: FRAME_OK with the size of the
# content in frame.found.
cdef FrameStatus decompress_lz4_block(const uint8_t* p, int64_t n, uint8_t* target, int64_t room,
                                      Frame* frame) noexcept nogil:
    cdef BlockPlace b
    cdef FrameStatus status
    b.at, b.end = p, p + n
    b.start = b.to = target
    b.full = target + room
    while b.at < b.end:
        if b.to - b.start >= SHORT_LENGTH:
            decompress_short_lz4_sequences(&b)
        status = decompress_lz4_sequence(&b, target + frame.largest_block, frame)
        if status != FRAME_OK:
            return status
    frame.found = b.to - b.start
    return FRAME_OK


# For each snappy tag: the size of its element in the low 8 bits; above them the offset, to which the bytes after the
# tag are added. For a literal the offset is its size. For an element that is not short it is one that no content has.
cdef uint64_t snappy_elements[256]
cdef uint32_t snappy_offset_masks[4]


cdef void fill_snappy_elements() noexcept:
    cdef int tag
    cdef uint64_t size
    snappy_offset_masks[0] = snappy_offset_masks[3] = 0
    snappy_offset_masks[1], snappy_offset_masks[2] = 0xFF, 0xFFFF
    for tag in range(256):
        size = tag >> 2
        if tag & 3 == 3 or (tag & 3 == 0 and size >= SNAPPY_LONG_LITERAL):
            snappy_elements[tag] = <uint64_t>1 << SNAPPY_NO_OFFSET_BIT
        elif tag & 3 == 0:
            snappy_elements[tag] = (size + 1) << 8 | (size + 1)
        elif tag & 3 == 1:
            snappy_elements[tag] = <uint64_t>(tag >> 5) << 16 | ((size & 7) + 4)
        else:
            snappy_elements[tag] = size + 1

fill_snappy_elements()


# Decompresses one element of any kind, with all checks.
cdef FrameStatus decompress_snappy_element(BlockPlace* b, Frame* frame) noexcept nogil:
    cdef int tag = b.at[0]
    cdef int kind = tag & 3
    cdef int64_t size = tag >> 2
    cdef int64_t offset = 0
    cdef int offset_size = 4 if kind == 3 else kind
    b.at += 1
    if kind == 0 and size >= SNAPPY_LONG_LITERAL:
        offset_size = <int>size - SNAPPY_LONG_LITERAL + 1
    if offset_size > b.end - b.at:
        return fail_frame(frame, BLOCK_CUT_OFF, offset_size, b.end - b.at)
    offset = get_le(b.at, offset_size)
    b.at += offset_size
    if kind == 1:
        offset |= tag >> 5 << 8
        size = (size & 7) + 4
    else:
        size = (offset if kind == 0 and offset_size else size) + 1
    if kind == 0 and size > b.end - b.at:
        return fail_frame(frame, BLOCK_CUT_OFF, size, b.end - b.at)
    if size > b.full - b.to:
        return fail_frame(frame, BLOCK_TOO_LARGE, b.full - b.to, size)
    if kind == 0:
        ks_copy(b.to, b.at, size, b.end)
        b.at += size
    elif offset == 0 or offset > b.to - b.start:
        return fail_frame(frame, BLOCK_BAD_OFFSET, b.to - b.start, offset)
    else:
        repeat_bytes(b.to, offset, size)
    b.to += size
    return FRAME_OK


# Fast path: decompresses elements while they are short, copies do not overlap themselves and both ends are far. Whether
# an element is a literal is unpredictable, so there is no branch on it. Requires: SHORT_LENGTH bytes of content before.
cdef void decompress_short_snappy_elements(BlockPlace* b) noexcept nogil:
    cdef const uint8_t* at = b.at
    cdef const uint8_t* last = b.end - SNAPPY_SHORT_TAKES
    cdef uint8_t* to = b.to
    cdef uint8_t* full = b.full - SHORT_LENGTH
    cdef const uint8_t* source
    cdef uint64_t tag, kind, element, size, offset, literal
    if at <= last:
        tag = at[0]
    while at <= last and to <= full:
        kind = tag & 3
        element = snappy_elements[tag]
        size = element & 0xFF
        offset = (element >> 8) + (ks_get_le16(at + 1) & snappy_offset_masks[kind])
        if offset - size > <uint64_t>(to - b.start) - size:
            break
        literal = <uint64_t>(<int64_t>(kind - 1) >> 63)
        source = to - offset
        source += <uint64_t>(at + 1 - source) & literal
        at += 1 + kind + (((tag >> 2) + 1) & literal)
        tag = at[0]
        ks_move32(to, source)
        if size > WIDE_STEP:
            ks_move32(to + WIDE_STEP, source + WIDE_STEP)
        to += size
    b.at = at
    b.to = to


# Requires: `room` bytes, exactly the content's size, and BLOCK_MARGIN at target.
cdef FrameStatus decompress_snappy_block(const uint8_t* p, int64_t n, uint8_t* target, int64_t room,
                                         Frame* frame) noexcept nogil:
    cdef BlockPlace b
    cdef FrameStatus status
    b.at, b.end = p, p + n
    b.start = b.to = target
    b.full = target + room
    while b.at < b.end:
        if b.to - b.start >= SHORT_LENGTH:
            decompress_short_snappy_elements(&b)
        status = decompress_snappy_element(&b, frame)
        if status != FRAME_OK:
            return status
    if b.to != b.full:
        return fail_frame(frame, SNAPPY_WRONG_SIZE, room, b.to - b.start)
    return FRAME_OK


# Frames of lz4 and snappy: checked and bounded from their headers alone, then decompressed block by block.

cdef enum:
    LZ4_MAGIC = 0x184D2204
    LZ4_MOST_RATIO = 255
    XERIAL_VERSION_AT = 8
    XERIAL_HEADER_SIZE = 16
    SNAPPY_MOST_RATIO = 64
    SNAPPY_MOST_LENGTH_SIZE = 5
    ZSTD_MAGIC = 0xFD2FB528
    ZSTD_SKIPPABLE_MAGIC = 0x184D2A50    # to 0x184D2A5F
    ZSTD_LEAST_FRAME = 8
    ZSTD_MAX_BLOCK = 131072
    ZSTD_MAX_WINDOW = 134217728
    ZSTD_CHECKSUM_SIZE = 4
    ZSTD_CHECKSUM_OF_NOTHING = 0x51D8E999    # the low half of its XXH64
    XXH32_PRIME_1 = 0x9E3779B1
    XXH32_PRIME_2 = 0x85EBCA77
    XXH32_PRIME_3 = 0xC2B2AE3D
    XXH32_PRIME_4 = 0x27D4EB2F
    XXH32_PRIME_5 = 0x165667B1

# The xerial magic, "\x82SNAPPY\0", as a number.
cdef uint64_t XERIAL_MAGIC = 0x82534E4150505900

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


# Checks the frame header of lz4. The second byte of the hash is stored in it. Kafka's V0 writers included the frame
# magic in the hash, and Kafka does not check it for V0.
cdef FrameStatus check_lz4_header(const uint8_t* p, int64_t n, int magic, Frame* frame) noexcept nogil:
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


# Returns: FRAME_OK with the block at `at`. next_at is 0 for the end mark.
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


# As Kafka's Lz4BlockInputStream, which ignores what follows the frame, but checks every checksum. Source: LZ4 frame
# format 1.6.1.
cdef FrameStatus check_lz4(const uint8_t* p, int64_t n, int magic, Frame* frame) noexcept nogil:
    cdef FrameBlock block
    cdef FrameStatus status = check_lz4_header(p, n, magic, frame)
    cdef int64_t at = frame.blocks_at
    cdef uint32_t stored, computed
    frame.bound = 0
    while status == FRAME_OK:
        status = next_lz4_block(p, n, at, frame, &block)
        if status != FRAME_OK:
            break
        if block.next_at == 0:
            if frame.has_content_checksum and n - block.at < 4:
                return fail_frame(frame, LZ4_CUT_OFF, 4, n - block.at)
            frame.checksum_at = block.at
            break
        if frame.has_block_checksums:
            stored, computed = get_le(p + block.at + block.size, 4), xxh32(p + block.at, block.size)
            if stored != computed:
                return fail_frame(frame, LZ4_BAD_BLOCK_CHECKSUM, stored, computed)
        frame.bound += block.room
        at = block.next_at
    return status


# Returns: the buffer of a view, which must be contiguous bytes in one dimension.
cdef const Py_buffer* bytes_of(object view) except NULL:
    cdef const Py_buffer* raw = PyMemoryView_GET_BUFFER(view)
    if raw.ndim != 1 or raw.itemsize != 1 or (raw.strides != NULL and raw.strides[0] != 1):
        raise ValueError("a payload must be contiguous bytes in one dimension")
    return raw


# Returns: a view of the result of decompress. If it is to be kept and its buffer is much too large, a copy of the exact
# size.
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


# Requires: check_lz4 returned FRAME_OK; frame.room bytes and BLOCK_MARGIN at target. Returns: FRAME_OK with the size in
# frame.found.
cdef FrameStatus decompress_lz4_blocks(const uint8_t* p, int64_t n, int64_t limit, uint8_t* target,
                                       Frame* frame) noexcept nogil:
    cdef FrameBlock block
    cdef FrameStatus status = next_lz4_block(p, n, frame.blocks_at, frame, &block)
    cdef int64_t done = 0
    while status == FRAME_OK and block.next_at:
        if block.room > frame.room - done:
            return fail_frame(frame, FRAME_CHANGED, frame.room - done, block.room)
        if block.is_stored:
            memcpy(target + done, p + block.at, <size_t>block.size)
            done += block.size
        else:
            status = decompress_lz4_block(p + block.at, block.size, target + done, block.room, frame)
            if status != FRAME_OK:
                return status
            done += frame.found
        if done > limit:
            return CONTENT_TOO_LARGE
        status = next_lz4_block(p, n, block.next_at, frame, &block)
    if frame.content_size and frame.content_size != done:
        return fail_frame(frame, LZ4_WRONG_CONTENT_SIZE, frame.content_size, done)
    if frame.has_content_checksum and get_le(p + frame.checksum_at, 4) != xxh32(target, done):
        return fail_frame(frame, LZ4_WRONG_CONTENT_CHECKSUM, get_le(p + frame.checksum_at, 4), xxh32(target, done))
    frame.found = done
    return status


cdef inline bint starts_xerial(const uint8_t* p, int64_t n) noexcept nogil:
    return n >= 8 and ks_get64(p) == XERIAL_MAGIC


# Checks the declared size of a raw block and moves past it; block.room becomes the size of its content.
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
    block.at += size
    block.size -= size
    return FRAME_OK


# Returns: FRAME_OK with the block, or what has no content (a stream header, bytes after the last block), at `at` < n. A payload that does not start with a
# complete stream header is one raw block.
cdef FrameStatus next_snappy_block(const uint8_t* p, int64_t n, int64_t at, Frame* frame,
                                   FrameBlock* block) noexcept nogil:
    block.room = 0
    if not starts_xerial(p, n) or n < XERIAL_HEADER_SIZE:
        block.at, block.size, block.next_at = 0, n, n
        return read_snappy_length(p, frame, block)
    if starts_xerial(p + at, n - at):
        # snappy-java checks the version of later headers only.
        if n - at < XERIAL_HEADER_SIZE or (at > 0 and <int32_t>ks_get32(p + at + XERIAL_VERSION_AT) < 1):
            return fail_frame(frame, SNAPPY_BAD_STREAM_HEADER, XERIAL_HEADER_SIZE, n - at)
        block.size = 0
        block.next_at = at + XERIAL_HEADER_SIZE
        return FRAME_OK
    if n - at < 4:
        # As in snappy-java, bytes that are too few for the size of a block are none.
        block.size, block.next_at = 0, n
        return FRAME_OK
    block.at = at + 4
    block.size = <int32_t>ks_get32(p + at)
    if block.size <= 0 or block.size > n - block.at:
        return fail_frame(frame, SNAPPY_BAD_BLOCK_SIZE, n - block.at, block.size)
    block.next_at = block.at + block.size
    return read_snappy_length(p, frame, block)


# Stops when the content exceeds the limit: frame.bound is then above it.
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


# Requires: check_snappy returned FRAME_OK; frame.room bytes and BLOCK_MARGIN at target. Returns: FRAME_OK with the size
# in frame.found.
cdef FrameStatus decompress_snappy_blocks(const uint8_t* p, int64_t n, uint8_t* target, Frame* frame) noexcept nogil:
    cdef FrameBlock block
    cdef FrameStatus status
    cdef int64_t at = 0
    cdef int64_t done = 0
    while at < n:
        status = next_snappy_block(p, n, at, frame, &block)
        if status != FRAME_OK or block.room > frame.room - done:
            return fail_frame(frame, FRAME_CHANGED, frame.room - done, block.room)
        if block.room:
            status = decompress_snappy_block(p + block.at, block.size, target + done, block.room, frame)
            if status != FRAME_OK:
                return status
            done += block.room
        at = block.next_at
    if done != frame.room:
        return fail_frame(frame, FRAME_CHANGED, frame.room, done)
    frame.found = done
    return FRAME_OK


# Whether this part decompresses a codec: one whose blocks are literals, and copies of earlier content.
cdef inline bint copies_blocks(int codec) noexcept nogil:
    return codec == CODEC_SNAPPY or codec == CODEC_LZ4


# Requires: copies_blocks. Returns: FRAME_OK with the room for the content in frame.room, which is at most limit plus one
# block.
cdef FrameStatus check_blocks(int codec, const uint8_t* p, int64_t n, int magic, int64_t limit,
                              Frame* frame) noexcept nogil:
    cdef FrameStatus status
    if codec == CODEC_SNAPPY:
        if n == 0:
            return fail_frame(frame, SNAPPY_NO_BYTES, 1, 0)
        status = check_snappy(p, n, limit, frame)
        frame.room = frame.bound
        return CONTENT_TOO_LARGE if status == FRAME_OK and frame.bound > limit else status
    status = check_lz4(p, n, magic, frame)
    if status == FRAME_OK and (frame.content_size > limit or frame.content_size < 0):
        return CONTENT_TOO_LARGE
    frame.room = min(frame.bound, limit + frame.largest_block)
    return status


# Requires: check_blocks returned FRAME_OK.
cdef FrameStatus decompress_checked(int codec, const uint8_t* p, int64_t n, int64_t limit, uint8_t* target,
                                    Frame* frame) noexcept nogil:
    if codec == CODEC_SNAPPY:
        return decompress_snappy_blocks(p, n, target, frame)
    return decompress_lz4_blocks(p, n, limit, target, frame)


def decompress_blocks(payload, *, int codec_id, int64_t limit, int magic):
    """Decompress a payload that is an LZ4 frame (in the subset that Kafka reads) or snappy blocks; return a memoryview.

    Snappy: blocks in xerial framing, or one raw block.
    Args: codec_id: one of these two; limit: the most bytes of content; magic: that of the batch (with 0, the lz4
        header checksum is not checked).
    Raises: DecompressionError (without a position); ValueError for another codec or a payload that is not bytes.
    Cost: one pass without a copy of the content. Memory: at most limit plus one block, and no more than the payload's
        block headers allow. The GIL is released for 64 KiB and more.
    """
    cdef Frame frame
    cdef FrameStatus status
    cdef ColumnBuffer content
    cdef const Py_buffer* raw
    if not copies_blocks(codec_id):
        expected = " or ".join(str(known) for known in CODEC_NAMES if copies_blocks(known))
        raise ValueError(f"codec_id must be {expected}, got {codec_id}")
    source = memoryview(payload)
    raw = bytes_of(source)
    cdef const uint8_t* p = <const uint8_t*>raw.buf
    cdef int64_t n = raw.len
    if n < GIL_RELEASE_SIZE:
        status = check_blocks(codec_id, p, n, magic, limit, &frame)
    else:
        with nogil:
            status = check_blocks(codec_id, p, n, magic, limit, &frame)
    if status == FRAME_OK:
        content = ColumnBuffer(frame.room)
        if frame.room <= GIL_RELEASE_SIZE:
            status = decompress_checked(codec_id, p, n, limit, content.block.data, &frame)
        else:
            with nogil:
                status = decompress_checked(codec_id, p, n, limit, content.block.data, &frame)
    name = CODEC_NAMES[codec_id]
    if status == CONTENT_TOO_LARGE:
        raise output_too_large(name, limit)
    if status != FRAME_OK:
        raise frame_error(f"{name} {_FRAME_REASONS[status]}", frame.expected, frame.found)
    content.size = frame.found
    return memoryview(content)


# One frame with content: its place in the payload, the largest possible size of its content, and that which it declares,
# or -1.
cdef struct ZstdFrame:
    int64_t at
    int64_t end
    int64_t bound
    int64_t content_size
    int64_t window           # 0 for one of the content's size
    bint has_checksum


# Reads the header of the frame at f.at and moves f.end past it.  Source: RFC 8878 section 3.1.1.1.
cdef int read_zstd_header(const uint8_t* p, int64_t n, ZstdFrame* f) except -1:
    cdef uint64_t content_size = 0
    cdef int descriptor, size_bytes, i
    cdef int64_t window
    if n - f.at < ZSTD_LEAST_FRAME or get_le(p + f.at, 4) != ZSTD_MAGIC:
        raise frame_error("zstd frame: bad magic or shorter than its header")
    descriptor = p[f.at + 4]
    f.end = f.at + 5
    if descriptor & 0x0B:
        raise frame_error(f"zstd frame: reserved bit or dictionary in descriptor {descriptor:#04x}")
    size_bytes = (1 << (descriptor >> 6)) if descriptor >> 6 else (1 if descriptor & 0x20 else 0)
    f.window = 0
    if not descriptor & 0x20:
        window = <int64_t>1 << (10 + (p[f.end] >> 3))
        f.window = window + (window >> 3) * (p[f.end] & 7)
        f.end += 1
    if n - f.end < size_bytes:
        raise frame_error("zstd frame: truncated in its header")
    for i in range(size_bytes):
        content_size |= <uint64_t>p[f.end + i] << (8 * i)
    if size_bytes == 2:
        content_size += 256
    if content_size > INT64_MAX:
        raise frame_error("zstd frame: declared size out of range", INT64_MAX, content_size)
    f.content_size = <int64_t>content_size if size_bytes else -1
    f.has_checksum = descriptor & 0x04
    f.end += size_bytes
    return 0


# Reads the blocks of a frame, whose header ends at f.end, and moves f.end past its checksum.
cdef int read_zstd_blocks(const uint8_t* p, int64_t n, ZstdFrame* f) except -1:
    cdef uint32_t block = 0
    cdef int64_t stored
    f.bound = 0
    while not block & 1:
        if n - f.end < 3:
            raise frame_error("zstd frame: truncated before its last block")
        block = get_le(p + f.end, 3)
        f.end += 3
        stored = 1 if (block >> 1) & 3 == 1 else block >> 3
        f.bound += ZSTD_MAX_BLOCK if (block >> 1) & 3 == 2 else block >> 3
        if (block >> 1) & 3 == 3 or block >> 3 > ZSTD_MAX_BLOCK or stored > n - f.end:
            raise frame_error("zstd frame: block of a reserved type, too large, or exceeding the frame")
        f.end += stored
    if f.has_checksum:
        if n - f.end < ZSTD_CHECKSUM_SIZE:
            raise frame_error("zstd frame: truncated in its checksum", ZSTD_CHECKSUM_SIZE, n - f.end)
        f.end += ZSTD_CHECKSUM_SIZE
    return 0


# Requires: a frame of which no block can have content. Checks what the library would check.
cdef int check_empty_zstd_frame(const uint8_t* p, const ZstdFrame* f) except -1:
    cdef uint32_t stored
    if f.content_size > 0:
        raise frame_error("zstd frame: declares content where its blocks have none", f.content_size, 0)
    if f.window > ZSTD_MAX_WINDOW:
        raise frame_error("zstd frame: window too large", ZSTD_MAX_WINDOW, f.window)
    if f.has_checksum:
        stored = get_le(p + f.end - ZSTD_CHECKSUM_SIZE, 4)
        if stored != ZSTD_CHECKSUM_OF_NOTHING:
            raise frame_error("zstd frame: wrong content checksum", stored, <uint32_t>ZSTD_CHECKSUM_OF_NOTHING)
    return 0


def next_zstd_frame(payload, int64_t position):
    """Return (start, end, bound, content_size) of the next zstd frame that can have content: its place in the payload,
    the most bytes it can decompress to, and its declared size or -1. After the last one start is the payload's size.

    Skippable frames and frames without content are checked and passed over; dictionaries are rejected.
    Args: position: 0, or the end of the frame before.
    Raises: DecompressionError (without a position) also for bytes that are no frame, an empty payload among them.
    Cost: O(blocks).  Source: RFC 8878 section 3.
    """
    view = memoryview(payload)
    cdef const Py_buffer* raw = bytes_of(view)
    cdef const uint8_t* p = <const uint8_t*>raw.buf
    cdef int64_t n = raw.len
    cdef int64_t size
    cdef ZstdFrame f
    f.at = position
    while f.at < n or f.at == 0:
        if n - f.at >= 8 and get_le(p + f.at, 4) & 0xFFFFFFF0 == ZSTD_SKIPPABLE_MAGIC:
            size = get_le(p + f.at + 4, 4)
            if size > n - f.at - 8:
                raise frame_error("zstd skippable frame: truncated", size, n - f.at - 8)
            f.at += 8 + size
            continue
        read_zstd_header(p, n, &f)
        read_zstd_blocks(p, n, &f)
        if f.bound:
            return f.at, f.end, f.bound, f.content_size
        check_empty_zstd_frame(p, &f)
        f.at = f.end
    return n, n, 0, -1
