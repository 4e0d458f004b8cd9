# Raw blocks of lz4 and snappy, opened: literals, and copies of what came before.  Source: LZ4 block format 1.6.1,
# snappy format description of 2011. In both the content and BLOCK_MARGIN bytes behind its room may be written.

cdef extern from "_core_cpu.h" nogil:
    void ks_move16(uint8_t* target, const uint8_t* source) noexcept
    void ks_move32(uint8_t* target, const uint8_t* source) noexcept
    uint16_t ks_get_le16(const uint8_t* p) noexcept

cdef enum:
    BLOCK_MARGIN = 64
    WIDE_STEP = 32
    LZ4_LONG = 15                 # a length of four bits that goes on in further bytes
    LZ4_LEAST_COPY = 4
    LZ4_LAST_LITERALS = 5         # the bytes and the content that every block ends with as literals
    LZ4_LAST_COPY_START = 12      # no copy starts in the last bytes of the largest block
    LZ4_COPY_TAIL = 8             # least bytes from an offset on: itself, a token and the last literals
    SHORT_LENGTH = 64             # of literals and copies that are moved as a whole
    LZ4_SHORT_TAKES = 80          # bytes that a sequence of short lengths and LZ4_COPY_TAIL take at most
    LZ4_SHORT_GIVES = 140         # content of a sequence of short lengths and LZ4_LAST_COPY_START
    SNAPPY_SHORT_TAKES = 72       # bytes that are read for a short element and the tag behind it, at most
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
    LZ4_TRAILING_BYTES
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
    LZ4_CUT_OFF: "frame: cut off before its end mark",
    LZ4_BAD_BLOCK_SIZE: "frame: block runs past its limit or the end, or is stored and of no bytes",
    LZ4_BAD_BLOCK_CHECKSUM: "frame: wrong block checksum",
    LZ4_TRAILING_BYTES: "frame: wrong number of bytes after the end mark",
    SNAPPY_BAD_STREAM_HEADER: "stream: header cut off or of a version below 1",
    SNAPPY_BAD_BLOCK_SIZE: "stream: block of no bytes, or running past the end",
    SNAPPY_BAD_LENGTH: "block: declared size cut off, or of more than 5 bytes or 32 bits",
    SNAPPY_LENGTH_TOO_LARGE: "block: declared size that its bytes can't hold",
    SNAPPY_NO_BYTES: "stream: no bytes",
    BLOCK_CUT_OFF: "block: cut off inside a length, an offset or a literal",
    BLOCK_TOO_LARGE: "block: more content than there is room for",
    BLOCK_BAD_OFFSET: "block: copy from offset 0 or from before its content",
    LZ4_BAD_BLOCK_END: "block: its last five bytes are no literals, or the last copy starts or ends too late",
    SNAPPY_WRONG_SIZE: "block: wrong declared size",
    LZ4_WRONG_CONTENT_SIZE: "frame: wrong content size",
    LZ4_WRONG_CONTENT_CHECKSUM: "frame: wrong content checksum",
    FRAME_CHANGED: "frame: changed while it was read",
}

# What a walk found: where it failed, or what the frame holds.
cdef struct Frame:
    int64_t expected
    int64_t found
    int64_t bound            # most bytes of content
    int64_t largest_block    # most bytes of content of one block
    int64_t content_size     # as declared, 0 if not
    int64_t room             # for all content, besides the margin behind it
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


# Copies size bytes from offset bytes before: what is there already repeats with that period, so each round doubles it.
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


# Returns: the length with the bytes at `at` added, which it passes, or -1 if they run to the end.
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


# One sequence of any lengths, with every check.
cdef FrameStatus open_lz4_sequence(BlockPlace* b, const uint8_t* largest, Frame* frame) noexcept nogil:
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


# Takes sequences for as long as their lengths are short, the copy is not of itself, and the ends are far.
# Requires: SHORT_LENGTH bytes of content.
cdef void open_short_lz4_sequences(BlockPlace* b) noexcept nogil:
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


# Requires: room, and BLOCK_MARGIN bytes behind it, at target; room <= largest, the content that a block of the frame
# may have. Returns: FRAME_OK with the size of the content in frame.found.
cdef FrameStatus open_lz4_block(const uint8_t* p, int64_t n, uint8_t* target, int64_t room, Frame* frame) noexcept nogil:
    cdef BlockPlace b
    cdef FrameStatus status
    b.at, b.end = p, p + n
    b.start = b.to = target
    b.full = target + room
    while b.at < b.end:
        if b.to - b.start >= SHORT_LENGTH:
            open_short_lz4_sequences(&b)
        status = open_lz4_sequence(&b, target + frame.largest_block, frame)
        if status != FRAME_OK:
            return status
    frame.found = b.to - b.start
    return FRAME_OK


# What a snappy tag says: the element's size, and in the bits above what is added to the bytes behind the tag for the
# offset. A literal has its size for an offset; what is not short has an offset that is never there.
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


# One element of any kind, with every check.
cdef FrameStatus open_snappy_element(BlockPlace* b, Frame* frame) noexcept nogil:
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


# Takes elements for as long as they are short, no copy is of itself, and the ends are far. Whether an element is a
# literal is as good as random, so nothing branches on it. Requires: SHORT_LENGTH bytes of content.
cdef void open_short_snappy_elements(BlockPlace* b) noexcept nogil:
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


# Requires: room, exactly the content, and BLOCK_MARGIN bytes behind it, at target.
cdef FrameStatus open_snappy_block(const uint8_t* p, int64_t n, uint8_t* target, int64_t room,
                                   Frame* frame) noexcept nogil:
    cdef BlockPlace b
    cdef FrameStatus status
    b.at, b.end = p, p + n
    b.start = b.to = target
    b.full = target + room
    while b.at < b.end:
        if b.to - b.start >= SHORT_LENGTH:
            open_short_snappy_elements(&b)
        status = open_snappy_element(&b, frame)
        if status != FRAME_OK:
            return status
    if b.to != b.full:
        return fail_frame(frame, SNAPPY_WRONG_SIZE, room, b.to - b.start)
    return FRAME_OK
