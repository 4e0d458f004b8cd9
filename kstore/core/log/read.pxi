# The reads that a ColumnDecoder makes itself, without the GIL: chunks of an open file, and after each of them the batches
# that show that the file is still of the history that was read before.

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* to, size_t size, int64_t position)

cdef enum:
    # What is read until Python runs again, which answers signals.
    MOST_DIRECT_BYTES = 16777216

# A batch by its first bytes: `size` of them, 0 if there is no batch.
cdef struct NotedBatch:
    int64_t position
    int64_t size
    uint8_t header[BATCH_HEADER_SIZE]


# Returns: whether all bytes were read; an interrupted call counts as one that failed.
cdef bint read_whole(int fd, uint8_t* to, int64_t size, int64_t position) noexcept nogil:
    cdef ssize_t count
    while size > 0:
        count = pread(fd, to, <size_t>size, position)
        if count <= 0:
            return False
        to += count
        size -= count
        position += count
    return True


cdef bint is_in_file(int fd, const NotedBatch* batch) noexcept nogil:
    cdef uint8_t there[BATCH_HEADER_SIZE]
    return read_whole(fd, there, batch.size, batch.position) and memcmp(there, batch.header, <size_t>batch.size) == 0


# Requires: BATCH_HEADER_SIZE bytes at `data`, where a batch may be.
cdef void note_first(NotedBatch* batch, int64_t position, const uint8_t* data) noexcept nogil:
    cdef int64_t size = entry_size_at(data)
    batch.position = position
    batch.size = size if 0 < size < BATCH_HEADER_SIZE else BATCH_HEADER_SIZE
    memcpy(batch.header, data, <size_t>batch.size)


cdef int copy_header(NotedBatch* batch, int64_t position, const uint8_t[::1] header) except -1:
    cdef const uint8_t* start = start_of(header)
    if header.shape[0] > BATCH_HEADER_SIZE:
        raise ValueError(f"a header has at most {BATCH_HEADER_SIZE} bytes, got {header.shape[0]}")
    batch.position = position
    batch.size = header.shape[0]
    memcpy(batch.header, start, <size_t>batch.size)
    return 0


@cython.final
cdef class DirectReads:
    """The reads of one open file that a ColumnDecoder makes itself, and the checks after each.

    A chunk is taken if, after it was read, the batch before it is still in the file, and the anchor of hold_to in its
    own. If not, and after any error, the decoder asks for the chunk as if nothing had been read, so that the caller
    reads it again and raises what is wrong.
    Args: chunk_bytes: of one read; a larger one is left to the caller, as all reads before begin() are.
    Attributes: last: (position, first bytes) of the batch that the decoder passed last; before it passed one, of that
        which begin was given, or of the first batch of the first chunk; None before that.
    Threads: as the decoder.
    """

    cdef PositionedFile file
    cdef int64_t chunk_bytes, bytes_read
    cdef bint has_anchor, is_chunk_taken
    cdef NotedBatch passed, anchor
    cdef ColumnBuffer buffer
    cdef bint may_fill              # whether the buffer may be read into
    cdef int32_t views              # the buffers of the table when it was prepared
    cdef object anchor_file
    cdef int anchor_fd              # -1: the anchor is in the file that is read
    cdef bytes anchor_path
    cdef const char* anchor_name    # NULL: its file is not looked up
    cdef uint64_t anchor_device, anchor_inode
    cdef int64_t anchor_born_ns

    def __init__(self, *, int64_t chunk_bytes):
        if chunk_bytes < 1:
            raise ValueError(f"chunk_bytes must be at least 1, got {chunk_bytes}")
        self.chunk_bytes = chunk_bytes

    def begin(self, PositionedFile file not None, last=None):
        """Read this file from now on. Args: last: (position, first bytes) of a batch that must be in it, None for none.

        Raises: ValueError.
        """
        self.file = file
        self.passed.size = 0
        if last is not None:
            copy_header(&self.passed, last[0], last[1])

    def hold_to(self, int64_t position, const uint8_t[::1] header, *, file=None, path=None, identity=None):
        """Check after each read that a batch, the anchor, is still in a file.

        Args: header: its first bytes; file: that contains it, whose path is looked up after each read as well, None for
            the one that is read; path, identity: of that file (device, inode, ns of its birth), None if unknown.
        Raises: LogClosedError; ValueError.
        """
        copy_header(&self.anchor, position, header)
        self.anchor_file, self.anchor_fd = file, -1 if file is None else file.fileno()
        self.anchor_path = None if path is None else PyUnicode_EncodeFSDefault(path)
        self.anchor_name = NULL
        if self.anchor_path is not None:
            self.anchor_name = PyBytes_AS_STRING(self.anchor_path)
            self.anchor_device, self.anchor_inode, self.anchor_born_ns = identity
        self.has_anchor = True

    def is_anchor_in_place(self):
        """Whether the path of the anchor's file refers to it, and the anchor is in it.

        Returns: False too where it has no path or nothing is read directly: the caller then finds out itself.
        Threads: the GIL is released.
        """
        cdef bint is_there
        cdef int fd
        if self.file is None or self.file._fd < 0 or self.anchor_name == NULL:
            return False
        fd = self.file._fd
        self.file.reads += 1
        try:
            with nogil:
                is_there = self.has_anchor_path() and self.has_anchor_batch(fd)
        finally:
            self.file.end_read()
        return is_there

    @property
    def last(self):
        return (self.passed.position, PyBytes_FromStringAndSize(<const char*>self.passed.header, self.passed.size)) \
            if self.passed.size else None

    # Makes room for the next chunk, of which at most `left` bytes remain in the file.
    cdef int prepare(self, int64_t left, Py_ssize_t views) except -1:
        cdef int64_t size = min(self.chunk_bytes, left)
        if self.buffer is None or self.buffer.size < size:
            self.buffer = new_buffer(size)
        self.may_fill = True
        self.views = <int32_t>views
        return 0

    # Reads the chunk at `position` into the buffer. Returns: its size, 0 if the caller has to read it.
    cdef int64_t read(self, int fd, int64_t position, int64_t needed, int64_t end_position) noexcept nogil:
        cdef int64_t size = min(self.chunk_bytes, end_position - position)
        if needed > size or size > self.buffer.size or size > MOST_DIRECT_BYTES - self.bytes_read:
            return 0
        if not read_whole(fd, self.buffer.block.data, size, position) \
                or (self.passed.size and not is_in_file(fd, &self.passed)) \
                or (self.has_anchor and self.anchor_fd >= 0 and not self.has_anchor_path()) \
                or (self.has_anchor and not self.has_anchor_batch(fd)):
            return 0
        if self.passed.size == 0 and size >= BATCH_HEADER_SIZE:
            note_first(&self.passed, position, self.buffer.block.data)
        self.bytes_read += size
        return size

    cdef bint has_anchor_path(self) noexcept nogil:
        cdef ks_statx status
        cdef uint64_t device = 0
        return self.anchor_name == NULL or (
            ks_file_status(-1, self.anchor_name, False, &status, &device) == 0
            and device == self.anchor_device and status.inode == self.anchor_inode
            and born_ns(&status) == self.anchor_born_ns)

    cdef bint has_anchor_batch(self, int fd) noexcept nogil:
        return is_in_file(fd if self.anchor_fd < 0 else self.anchor_fd, &self.anchor)
