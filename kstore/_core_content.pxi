# Payloads opened on the way into columns.

cdef enum Progress:
    NEED_CHUNK
    TABLE_FULL
    FILE_DONE
    NEED_INFLATE
    NEED_CONTENT_ROOM
    NEED_BATCH_ROWS
    FAILED
    OPENED
    SKIPPED

_PROGRESS = {NEED_CHUNK: "more", TABLE_FULL: "full", FILE_DONE: "done"}


# Opens a payload of lz4 or snappy in `room`; s becomes its content. What the core does not open, and what is wrong with a
# payload, is left to ColumnDecoder.inflate. Returns: OPENED; NEED_INFLATE; NEED_CONTENT_ROOM (frame.room); FAILED.
cdef Progress open_payload(const Header* h, Source* s, Frame* frame, const Block* room, int64_t limit,
                           Problem* problem) noexcept nogil:
    cdef int codec = h.attributes & CODEC_MASK
    cdef int64_t size = s.end - s.at
    if h.magic < MAGIC_V2 or (codec != CODEC_SNAPPY and codec != CODEC_LZ4) \
            or check_blocks(codec, s.at, size, h.magic, limit, frame) != FRAME_OK:
        return NEED_INFLATE
    if frame.room > room.capacity:
        return NEED_CONTENT_ROOM
    if open_blocks(codec, s.at, size, limit, room.data, frame) != FRAME_OK:
        return NEED_INFLATE
    if check_counts(h, frame.found, problem) != OK:
        return FAILED
    s.at = s.view_base = room.data
    s.end = s.at + frame.found
    s.readable_end = s.end + BLOCK_MARGIN
    return OPENED
