# The status of a leaf, and the one function that turns it into an exception.

cdef enum Status:
    OK = 0
    STOPPED            # not an error: the leaf's bound was reached
    NEED_KEY_SPACE     # not errors: the caller grows a column and calls again
    NEED_VALUE_SPACE
    NEED_HEADER_SPACE
    NEED_TIMESTAMP_VALIDITY
    NEED_BATCH_NOTE    # nor this: the next record's timestamp type is another
    NO_MEMORY
    BATCH_TOO_SMALL
    BATCH_TOO_LARGE
    BATCH_INCOMPLETE
    BAD_MAGIC
    BAD_CRC
    BAD_BASE_OFFSET
    OFFSETS_BACKWARDS
    OFFSETS_BEYOND_SEGMENT
    OFFSET_OVERFLOW
    BAD_LAST_OFFSET_DELTA
    BAD_CODEC
    BAD_RECORD_COUNT
    BAD_OFFSET_DELTA
    BAD_RECORD_SIZE
    BAD_VARINT
    BAD_KEY_SIZE
    BAD_VALUE_SIZE
    BAD_HEADER_COUNT
    BAD_HEADER_KEY_SIZE
    BAD_HEADER_VALUE_SIZE
    RECORD_SIZE_MISMATCH
    TRAILING_BYTES
    TOO_MANY_HEADERS
    BAD_LEGACY_CODEC
    NULL_WRAPPER
    EMPTY_WRAPPER
    NESTED_WRAPPER
    BAD_WRAPPER_OFFSET
    BAD_MESSAGE_SIZE
    MESSAGE_TOO_LARGE
    BAD_MESSAGE_MAGIC
    BAD_MESSAGE_OFFSET

# Where a leaf failed. expected and found are what the message shows; record is the number in the batch, -1 if none; offset is
# that of the record, of TOO_MANY_HEADERS only.
cdef struct Problem:
    Status status
    int64_t position
    int64_t base_offset
    int64_t expected
    int64_t found
    int64_t record
    int64_t offset


# Bytes of Python objects beside their content: of a Record with key and value; of a header's tuple, str and bytes and
# their places in lists, which take less as columns of Arrow or JSON. LEAST_HEADER_COUNT headers fit any limit.
cdef enum:
    RECORD_OBJECT_SIZE = 256
    HEADER_OBJECT_SIZE = 192
    LEAST_HEADER_COUNT = 1024


cdef inline Status fail(Problem* problem, Status status, int64_t expected, int64_t found) noexcept nogil:
    problem.status = status
    problem.expected = expected
    problem.found = found
    return status

_CORRUPT = {
    BATCH_TOO_SMALL: "batch smaller than its header: expected at least {expected} bytes, found {found}",
    BATCH_TOO_LARGE: "batch larger than the limit: expected at most {expected} bytes, found {found}",
    BATCH_INCOMPLETE: "batch runs past the end: expected {expected} bytes, found {found}",
    BAD_CRC: "CRC mismatch: stored 0x{expected:08x}, computed 0x{found:08x}",
    BAD_BASE_OFFSET: "base offset out of range: expected at least {expected}, found {found}",
    OFFSETS_BEYOND_SEGMENT: "offsets run into the next segment: expected less than {expected}, found {found}",
    OFFSET_OVERFLOW: "offset too far above the segment's base offset: expected at most {expected}, found {found}",
    BAD_MESSAGE_SIZE: "inner message smaller than its header: expected at least {expected} bytes, found {found}",
    MESSAGE_TOO_LARGE: "inner message larger than a payload may be: expected at most {expected} bytes, found {found}",
    OFFSETS_BACKWARDS: "base offset not above the last offset before it: expected more than {expected}, found {found}",
}
_INVALID = {
    BAD_LAST_OFFSET_DELTA: "last offset delta does not fit: expected at least {expected}, found {found}",
    BAD_RECORD_COUNT: "record count does not fit: expected from 0 to {expected}, found {found}",
    BAD_OFFSET_DELTA: "offset delta out of order: expected from {expected} to the last offset delta, found {found}",
    BAD_RECORD_SIZE: "record size does not fit: expected from 1 to {expected} bytes, found {found}",
    BAD_VARINT: "varint cut off or too long: {expected} bytes left",
    BAD_KEY_SIZE: "key size does not fit: expected from -1 to {expected} bytes, found {found}",
    BAD_VALUE_SIZE: "value size does not fit: expected from -1 to {expected} bytes, found {found}",
    BAD_HEADER_COUNT: "header count does not fit: expected from 0 to {expected}, found {found}",
    BAD_HEADER_KEY_SIZE: "header key size does not fit: expected from 0 to {expected} bytes, found {found}",
    BAD_HEADER_VALUE_SIZE: "header value size does not fit: expected from -1 to {expected} bytes, found {found}",
    RECORD_SIZE_MISMATCH: "record size does not match its fields: expected {expected} bytes, found {found}",
    TRAILING_BYTES: "bytes left after the last record: expected {expected}, found {found}",
    BAD_LEGACY_CODEC: "compression type not allowed in magic 0 and 1: expected 0 to {expected}, found {found} (zstd)",
    NULL_WRAPPER: "compressed message without a value: expected compressed messages, found null",
    EMPTY_WRAPPER: "compressed message without inner messages: expected at least {expected} message, found {found}",
    NESTED_WRAPPER: "compressed message inside a compressed message: expected compression type 0, found {found}",
    BAD_WRAPPER_OFFSET: "offset of a compressed message too small: expected at least {expected}, found {found}",
    BAD_MESSAGE_MAGIC: "inner message with a wrong magic: expected 0 or 1, found {found}",
    BAD_MESSAGE_OFFSET: "inner offset out of order: expected from {expected} to that of the compressed message, "
                        "found {found}",
}


cdef object place_of(int64_t position, int64_t base_offset, object path):
    where = f"batch at position {position} of {'memory' if path is None else path}"
    return where if base_offset < 0 else f"{where} (base offset {base_offset})"


cdef object error_of(const Problem* problem, object path):
    """Return the exception of a failed leaf; the caller raises it."""
    cdef Status status = problem.status
    base_offset = problem.base_offset
    place = place_of(problem.position, problem.base_offset, path)
    if status == NO_MEMORY:
        return MemoryError(f"no memory for the columns of the {place}")
    if status == BAD_MAGIC:
        magic = problem.found
        expected = f"{MAGIC_V2}" if 0 <= magic < MAGIC_V2 else f"0 to {MAGIC_V2}"
        error = UnsupportedMagicError(
            f"unsupported magic in {place}: expected {expected}, found {magic}",
            path=path, base_offset=base_offset, position=problem.position)
        error.magic = magic
        return error
    if status == BAD_CODEC:
        error = UnsupportedCompressionTypeError(
            f"unsupported compression type in {place}: expected 0 to {MAX_CODEC_ID}, found {problem.found}",
            path=path, base_offset=base_offset, position=problem.position)
        error.codec_id = problem.found
        return error
    if status == TOO_MANY_HEADERS:
        return limit_error(problem, place, path)
    if status in _CORRUPT:
        cls, template = CorruptRecordError, _CORRUPT[status]
    else:
        cls, template = InvalidRecordError, _INVALID[status]
    reason = template.format(expected=problem.expected, found=problem.found)
    what, _, detail = reason.partition(": ")
    record = f"record {problem.record} of the " if problem.record >= 0 else ""
    return cls(f"{what} in {record}{place}: {detail}", path=path, base_offset=base_offset, position=problem.position,
               reason=reason, expected=problem.expected, found=problem.found)


# Requires: found is the number of headers, expected the bytes that their objects may take.
cdef object limit_error(const Problem* problem, object place, object path):
    return MemoryLimitError(
        f"headers take too much memory in record {problem.record} (offset {problem.offset}) of the {place}: expected at most "
        f"{problem.expected} bytes (max_decompressed_bytes), found {problem.found * HEADER_OBJECT_SIZE} for "
        f"{problem.found} headers; raise max_decompressed_bytes to read them",
        path=path, base_offset=problem.base_offset, position=problem.position, offset=problem.offset,
        option="max_decompressed_bytes", limit=problem.expected, found=problem.found * HEADER_OBJECT_SIZE)
