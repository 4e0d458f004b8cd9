# ColumnDecoder: chunks of a .log file in, columns out. Around it: the aborted transactions that a read_committed reader
# skips, and decompression into columns. The loops over the records of a batch are in plain.pxi (fast), columns.pxi
# (general) and messages.pxi (V0 and V1).

# Aborted transactions: which batches a read_committed reader skips.

# The batches of producer_id with first_offset <= base offset <= last_offset (that of the abort marker) were rolled
# back.
cdef struct Aborted:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset


# Requires: sorted by producer id, then first offset; the transactions of one producer do not overlap.
cdef bint is_aborted(const Aborted* sorted_list, int64_t count, const Header* h) noexcept nogil:
    cdef int64_t low = 0
    cdef int64_t high = count
    cdef int64_t middle
    cdef const Aborted* one
    if not h.attributes & TRANSACTIONAL_MASK:
        return False
    while low < high:
        middle = low + (high - low) // 2
        one = sorted_list + middle
        if one.producer_id < h.producer_id or (one.producer_id == h.producer_id and one.first_offset <= h.base_offset):
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return False
    one = sorted_list + low - 1
    return one.producer_id == h.producer_id and h.base_offset <= one.last_offset


cdef ColumnBuffer aborted_list(transactions):
    cdef list ordered = sorted(transactions)
    cdef ColumnBuffer buffer = ColumnBuffer(len(ordered) * sizeof(Aborted))
    cdef Aborted* list_ = <Aborted*>buffer.block.data
    for i, (producer_id, first_offset, last_offset) in enumerate(ordered):
        list_[<Py_ssize_t>i].producer_id = producer_id
        list_[<Py_ssize_t>i].first_offset = first_offset
        list_[<Py_ssize_t>i].last_offset = last_offset
    return buffer


# Decompression into columns.

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


# Decompresses a payload, if its codec copies blocks, to `target`; s then reads its content. Other codecs, and payloads with
# an error, are left to ColumnDecoder.inflate. Requires: `room` bytes and BLOCK_MARGIN at target. Returns: OPENED, with the
# size in frame.found; NEED_INFLATE; NEED_CONTENT_ROOM (of frame.room bytes); FAILED.
cdef Progress decompress_payload(const Header* h, Source* s, Frame* frame, uint8_t* target, int64_t room, int64_t limit,
                                 Problem* problem) noexcept nogil:
    cdef int codec = h.attributes & CODEC_MASK
    cdef int64_t size = s.end - s.at
    if h.magic < MAGIC_V2 or not copies_blocks(codec) \
            or check_blocks(codec, s.at, size, h.magic, limit, frame) != FRAME_OK:
        return NEED_INFLATE
    if frame.room > room:
        return NEED_CONTENT_ROOM
    if decompress_checked(codec, s.at, size, limit, target, frame) != FRAME_OK:
        return NEED_INFLATE
    if check_counts(h, frame.found, problem) != OK:
        return FAILED
    s.at = target
    s.end = s.at + frame.found
    s.readable_end = s.end + BLOCK_MARGIN
    return OPENED


# The decoder.

cdef enum:
    FIRST_BATCH_ROWS = 1024
    FIRST_KEY_BYTES = 262144
    LEAST_ROWS = 16
    LARGEST_BATCH_BYTES = 1073741824
    MOST_VIEWED_BYTES = 16777216
    # Of a buffer that the contents of several batches share, where views point into them.
    MOST_SHARED_BYTES = 1310720

_MODES = {None: MODE_ABSENT, "copy": MODE_COPY, "view": MODE_VIEW, "string": MODE_STRING}


@cython.final
cdef class ColumnDecoder:
    """Decodes the batches of .log files into columns, chunk by chunk, without an object per record.

    Use: start_file(...); then run() until "done", feeding a chunk from `position` on at each "more" and taking the
    columns at each "full"; call take() again at the end. Control batches are skipped. Every batch is checked: frame,
    CRC (also of messages inside a wrapper of magic 0 or 1), counts, rising offsets, and the structure of the records
    if a column needs their bytes.

    Args:
        key, value: None (not decoded), "copy", "view" (no copy; the columns keep the chunk) or "string" (UTF-8, with
            U+FFFD for invalid bytes); offset, timestamp, headers: whether to fill these columns.
        batch_bytes: the size in bytes at which columns count as full (one record may exceed it): of all of them, or,
            with views, of the keys, values and headers and of the rest apart. Columns with views are also full where
            their chunk ends, if they are half full and another one would fill them: they then keep no other chunk; and
            when their views keep 16 MiB plus twice batch_bytes of chunks and decompressed batches (one may exceed it).
        max_batch_bytes: the largest valid size of a batch in bytes.
        max_decompressed_bytes: the largest payload of a batch; also the limit of the Python objects for one record's
            headers, in bytes.
        decompress: decompress(codec, payload, limit) -> bytes-like, called with magic=magic for wrappers of magic 0 and
            1; not called for payloads that the core decompresses itself.
        start_offset, end_offset: records outside [start_offset, end_offset) are left out; end None: no bound.
        verify_crc: whether to check CRCs.
        aborted: (producer id, first offset, offset of the abort marker) of transactions whose batches are skipped.
    Attributes: position: of the next batch; needed: the bytes of it that run() waits for; last_position: of the batch
        before it, -1 if none was passed since start_file.
    Threads: one at a time; run() releases the GIL except for codecs of Python packages and wrappers, and for views into
        contents that are a large part of a table.
    """

    cdef Table table
    cdef Source source
    cdef Header h
    cdef Problem problem
    cdef Shape shape                # that the last plain batch began with
    cdef int64_t chunk_position, end_position, least_offset, next_base_offset
    cdef int64_t max_batch_bytes, max_decompressed_bytes, batch_bytes
    cdef int64_t batch_rows, first_row, viewed_bytes
    cdef bint in_batch, inflated, finds_end, verify_crc, wants_bodies, has_views, wants_offset, wants_timestamp, started, running
    cdef bint allows_low_last_offset
    cdef int32_t chunk_view
    cdef readonly int64_t position, needed, last_position
    cdef const uint8_t* chunk_start
    cdef int64_t chunk_size
    cdef object chunk_bytes, payload
    cdef ColumnBuffer reused        # what the chunk is in, if DirectReads fills it again
    cdef ColumnBuffer content       # of the batch, or with views of several ones
    cdef int64_t content_used       # by those that views point into
    cdef int32_t content_view       # -1: no view of the table may point into it
    cdef Frame frame
    cdef object decompress, path
    cdef list view_buffers
    cdef int64_t aborted_count
    cdef ColumnBuffer offsets, timestamps, timestamp_validity, batches, aborted
    cdef list key_parts, value_parts, header_parts

    def __cinit__(self, *, key=None, value=None, bint offset=False, bint timestamp=False, bint headers=False,
                  int64_t batch_bytes, int64_t max_batch_bytes, int64_t max_decompressed_bytes, decompress,
                  int64_t start_offset=0, end_offset=None, bint verify_crc=True, bint allows_low_last_offset=False,
                  aborted=()):
        if not 1 <= batch_bytes <= LARGEST_BATCH_BYTES:
            raise ValueError(f"batch_bytes must be from 1 to {LARGEST_BATCH_BYTES}, got {batch_bytes}")
        self.content = ColumnBuffer(0)
        memset(&self.table, 0, sizeof(Table))
        memset(&self.source, 0, sizeof(Source))
        self.table.key.mode = _MODES[key]
        self.table.value.mode = _MODES[value]
        self.table.headers.wanted = headers
        self.table.headers.most_bytes = max_decompressed_bytes
        self.table.headers.keys.mode = MODE_STRING
        self.table.headers.values.mode = MODE_COPY
        self.wants_bodies = key is not None or value is not None or headers
        self.has_views = "view" in (key, value)
        self.content_view = -1
        self.source.start_offset = start_offset
        self.source.end_offset = INT64_MAX if end_offset is None else end_offset
        self.batch_bytes = batch_bytes
        self.max_batch_bytes = max_batch_bytes
        self.max_decompressed_bytes = max_decompressed_bytes
        self.decompress = decompress
        self.verify_crc, self.allows_low_last_offset = verify_crc, allows_low_last_offset
        self.aborted = aborted_list(aborted)
        self.aborted_count = len(aborted)
        self.table.row_width = (8 * offset + 8 * timestamp + 4 * headers
                                + index_width(self.table.key.mode) + index_width(self.table.value.mode))
        self.table.row_charge = 0 if self.has_views else self.table.row_width
        self.wants_offset, self.wants_timestamp = offset, timestamp

    # Columns are allocated only when the next record comes, so that they can reuse the memory of columns already
    # dropped.
    cdef int start_table(self) except -1:
        cdef Table* t = &self.table
        t.rows = 0
        t.room = self.batch_bytes
        t.row_capacity = max(LEAST_ROWS, self.batch_bytes // t.row_width + 1) if t.row_width else INT32_MAX
        self.offsets = ColumnBuffer(8 * t.row_capacity) if self.wants_offset else None
        self.timestamps = ColumnBuffer(8 * t.row_capacity) if self.wants_timestamp else None
        t.offsets = <int64_t*>self.offsets.block.data if self.wants_offset else NULL
        t.timestamps = <int64_t*>self.timestamps.block.data if self.wants_timestamp else NULL
        t.timestamp_validity = NULL
        t.timestamp_null_count = 0
        t.lost_offset = -1
        self.key_parts = new_column(&t.key, t.row_capacity, min(FIRST_KEY_BYTES, self.batch_bytes))
        self.value_parts = new_column(&t.value, t.row_capacity, self.batch_bytes + FIRST_KEY_BYTES)
        self.header_parts = new_header_column(&t.headers, t.row_capacity) if t.headers.wanted else None
        self.batches = ColumnBuffer(max(FIRST_BATCH_ROWS, self.batch_rows + 2) * sizeof(BatchRow))
        self.batch_rows = self.first_row = 0
        self.register_views()
        self.started = True
        return 0

    # The buffers that the views of the current columns point into: the chunk, and the payloads decompressed from it.
    cdef int register_views(self) except -1:
        self.view_buffers = []
        self.viewed_bytes = 0
        if not self.has_views:
            return 0
        if self.chunk_bytes is not None:
            self.add_chunk_view()
        if self.in_batch and self.source.view_base == self.content.block.data:
            # The table before has views into it as well, so no other batch comes in.
            self.view_buffers.append(self.content)
            self.source.view_buffer = <int32_t>(len(self.view_buffers) - 1)
            self.viewed_bytes += self.content.size
        elif self.in_batch and self.inflated:
            self.add_payload_view()
        elif self.in_batch:
            self.source.view_buffer = self.chunk_view
        return 0

    cdef int add_payload_view(self) except -1:
        self.view_buffers.append(self.payload)
        self.source.view_buffer = <int32_t>(len(self.view_buffers) - 1)
        self.viewed_bytes += len(self.payload)
        return 0

    @property
    def row_count(self):
        """The number of rows that take() would return now."""
        return self.table.rows

    def start_file(self, *, int64_t position, int64_t end_position, int64_t base_offset=0, next_base_offset=None,
                   path=None, bint keeps_chunk=False, bint finds_end=False):
        """Begin with the batches in [position, end_position) of a file.

        Args: base_offset: no batch may start below it; next_base_offset: that of the next segment, which no batch may
            reach (None: there is no next segment); keeps_chunk: the chunk that was fed last belongs to this file;
            finds_end: decoding may end earlier, at a torn batch or at zeros, as a HeaderScan would.
        Raises: ValueError if the last file is not finished or the positions are invalid.
        """
        self.check_idle()
        if self.in_batch:
            raise ValueError("start_file before the last file was done")
        if not 0 <= position <= end_position:
            raise ValueError(f"position must be from 0 to end_position, got {position} and {end_position}")
        self.path = path
        self.position = position
        self.last_position = -1
        self.end_position = end_position
        self.least_offset = base_offset
        self.next_base_offset = INT64_MAX if next_base_offset is None else next_base_offset
        self.needed = BATCH_HEADER_SIZE
        self.finds_end = finds_end
        if not keeps_chunk:
            self.chunk_bytes = None
            self.chunk_start, self.chunk_size = NULL, 0

    def feed(self, chunk, int64_t position):
        """Supply the bytes of the file from `position` on, which must be self.position.

        At least `needed` bytes, unless the file ends before (which run() then reports).
        Raises: ValueError for another position, or if a batch is not finished.
        Lifetime: the chunk is kept until the next feed, and by the columns in view mode.
        """
        cdef const uint8_t[::1] data = chunk
        self.check_idle()
        if self.in_batch or position != self.position:
            raise ValueError(f"feed expects a chunk at position {self.position}, got {position}")
        if self.has_views and data.shape[0] > INT32_MAX:
            raise ValueError(f"a chunk that views point into must be of at most {INT32_MAX} bytes, got {data.shape[0]}")
        self.chunk_bytes, self.reused = memoryview(chunk), None
        self.chunk_start, self.chunk_size = start_of(data), data.shape[0]
        self.chunk_position = position
        if self.has_views and self.started:
            self.add_chunk_view()

    def note_last(self, DirectReads reads not None):
        """Note the batch that was passed last in `reads.last`, if it is in the current chunk."""
        self.check_idle()
        self.note_passed(&reads.passed)

    cdef int add_chunk_view(self) except -1:
        if self.table.rows == 0:
            self.view_buffers = []
            self.viewed_bytes = 0
            self.content_view = -1
        self.view_buffers.append(self.chunk_bytes)
        self.chunk_view = <int32_t>(len(self.view_buffers) - 1)
        self.viewed_bytes += self.chunk_size
        return 0

    cdef int check_idle(self) except -1:
        if self.running:
            raise ValueError("the decoder is running: use it by one thread at a time, and not in decompress")
        return 0

    def run(self, DirectReads reads=None):
        """Continue decoding; return "more" (feed a chunk), "full" (take the columns) or "done" (end_position reached).

        Args: reads: reads the next chunks, as far as it can.
        Raises: CorruptRecordError, InvalidRecordError, DecompressionError, MemoryLimitError, UnsupportedMagicError,
            UnsupportedCompressionTypeError, with path and position.
        """
        self.check_idle()
        self.running = True
        try:
            if reads is None or reads.file is None or reads.file._fd < 0:
                return self.run_on(None, -1)
            reads.file.reads += 1
            try:
                reads.bytes_read = 0
                return self.run_on(reads, reads.file._fd)
            finally:
                reads.file.end_read()
        finally:
            self.running = False

    cdef object run_on(self, DirectReads reads, int fd):
        cdef Progress progress
        if not self.started:
            self.start_table()
        while True:
            if fd >= 0:
                reads.prepare(self.end_position - self.position, len(self.view_buffers))
            with nogil:
                progress = self.advance(self.chunk_start, self.chunk_size)
                while progress == NEED_CHUNK and fd >= 0 and reads.may_fill and self.read_chunk(reads, fd):
                    progress = self.advance(self.chunk_start, self.chunk_size)
            if fd >= 0 and reads.is_chunk_taken:
                self.keep_chunk(reads)
                if progress == NEED_CHUNK and not reads.may_fill:
                    continue
            if progress == NEED_INFLATE:
                self.inflate()
            elif progress == NEED_CONTENT_ROOM:
                self.new_content()
            elif progress == NEED_BATCH_ROWS:
                self.batches.grow(0)
            elif progress == FAILED:
                self.grow_or_raise()
            else:
                return _PROGRESS[progress]

    # Makes room for the content of the next batch.
    cdef int new_content(self) except -1:
        self.end_content()
        self.content = ColumnBuffer(0)
        self.content = ColumnBuffer(self.shared_bytes() if self.has_views else self.frame.room)
        self.content_used = 0
        if self.has_views:
            self.view_buffers.append(self.content)
            self.content_view = <int32_t>(len(self.view_buffers) - 1)
        return 0

    # After it the views of the table point into no more of the content.
    cdef void end_content(self) noexcept:
        if self.content_view >= 0:
            self.content.size = self.content_used
            self.content_view = -1

    cdef int64_t shared_bytes(self) noexcept nogil:
        return min(self.batch_bytes + self.batch_bytes // 4, <int64_t>MOST_SHARED_BYTES)

    # Reads the chunk that is needed. Returns: False if the caller has to.
    cdef bint read_chunk(self, DirectReads reads, int fd) noexcept nogil:
        cdef int64_t size
        self.note_passed(&reads.passed)
        size = reads.read(fd, self.position, self.needed, self.end_position)
        if size == 0:
            # The current chunk may be in the buffer that was read into.
            self.chunk_size = 0
            return False
        self.chunk_start, self.chunk_size, self.chunk_position = reads.buffer.block.data, size, self.position
        reads.is_chunk_taken = True
        if self.has_views:
            reads.may_fill = False
            if self.table.rows == 0:
                reads.views = self.viewed_bytes = 0
                self.content_view = -1
            self.chunk_view = reads.views
            self.viewed_bytes += size
        return True

    # Keeps the chunk that was read, as feed does.
    cdef int keep_chunk(self, DirectReads reads) except -1:
        reads.is_chunk_taken = False
        if self.reused is reads.buffer:
            return 0
        if self.has_views:
            reads.buffer.size = self.chunk_size
        self.chunk_bytes = memoryview(reads.buffer)
        if self.has_views:
            del self.view_buffers[reads.views:]
            self.view_buffers.append(reads.buffer)
            reads.buffer = None
        else:
            self.reused = reads.buffer
        return 0

    cdef void note_passed(self, NotedBatch* batch) noexcept nogil:
        cdef int64_t at = self.last_position - self.chunk_position
        if self.last_position < 0 or at < 0 or at >= self.chunk_size:
            return
        batch.position = self.last_position
        batch.size = min(self.position - self.last_position, <int64_t>BATCH_HEADER_SIZE)
        memcpy(batch.header, self.chunk_start + at, <size_t>batch.size)

    # Works through the chunk until something needs the GIL.
    cdef Progress advance(self, const uint8_t* chunk, int64_t chunk_size) noexcept nogil:
        cdef Progress progress
        cdef Status status
        while True:
            if (self.batch_rows + 2) * <int64_t>sizeof(BatchRow) > self.batches.block.capacity:
                return NEED_BATCH_ROWS
            if not self.in_batch:
                if self.table.rows and self.viewed_bytes > MOST_VIEWED_BYTES + 2 * self.batch_bytes:
                    return TABLE_FULL
                self.run_messages(chunk, chunk_size)
                progress = self.open_batch(chunk, chunk_size)
                if progress == SKIPPED:
                    continue
                if progress == NEED_CHUNK and self.ends_with_chunk():
                    return TABLE_FULL
                if progress != OPENED:
                    return progress
            if self.fills_from_header():
                status = fill_from_header(&self.table, &self.h, &self.source, &self.problem)
            elif self.h.attributes & CODEC_MASK and not self.inflated:
                progress = self.decompress_batch()
                if progress != OPENED:
                    return progress
                continue
            elif self.h.magic < MAGIC_V2:
                status = decode_messages(&self.table, &self.h, &self.source, self.verify_crc, &self.problem)
                if status == NEED_BATCH_NOTE:
                    self.note_batch()
                    self.source.timestamp_type = self.source.next_timestamp_type
                    continue
            elif self.wants_bodies:
                if is_plain(&self.table, &self.h, &self.source):
                    decode_plain_rows(&self.table, &self.h, &self.source, &self.shape)
                status = OK
                if self.source.done < self.h.record_count or self.source.at != self.source.end:
                    status = decode_rows(&self.table, &self.h, &self.source, &self.problem)
            else:
                status = decode_prefixes(&self.table, &self.h, &self.source, &self.problem)
            if status != OK and status != STOPPED:
                self.problem.status = status
                return FAILED
            self.note_batch()
            if status == STOPPED:
                return TABLE_FULL
            self.close_batch()

    # Returns: as decompress_payload.
    cdef Progress decompress_batch(self) noexcept nogil:
        cdef int64_t room = self.content.block.capacity - self.content_used
        cdef Progress progress = decompress_payload(
            &self.h, &self.source, &self.frame, self.content.block.data + self.content_used,
            -1 if self.has_views and self.content_view < 0 else room, self.max_decompressed_bytes, &self.problem)
        if progress == NEED_CONTENT_ROOM and self.has_views and self.frame.room > self.shared_bytes() // 4:
            return NEED_INFLATE
        if progress != OPENED:
            return progress
        self.inflated = True
        if self.has_views:
            self.source.view_base = self.content.block.data
            self.source.view_buffer = self.content_view
            self.content_used += self.frame.found
            self.viewed_bytes += self.frame.found
        return OPENED

    # Whether a table with views ends where its chunk does, so that it keeps no other: if it is half full, and the next
    # chunk would fill it.
    cdef bint ends_with_chunk(self) noexcept nogil:
        return self.has_views and self.table.rows and self.table.room < min(self.batch_bytes // 2, self.chunk_size)

    cdef bint fills_from_header(self) noexcept nogil:
        return not self.wants_bodies and self.h.magic == MAGIC_V2 and self.h.record_count == self.h.last_offset_delta + 1 \
            and (self.table.timestamps == NULL or self.h.attributes & TIMESTAMP_TYPE_MASK != 0)

    # Fast path for the plain V0 and V1 messages from position on.
    cdef void run_messages(self, const uint8_t* chunk, int64_t chunk_size) noexcept nogil:
        cdef MessageRun run
        cdef int64_t at = self.position - self.chunk_position
        cdef int64_t left = self.end_position - self.position
        if chunk == NULL or chunk_size - at < MIN_MESSAGE_V0_SIZE or left < MIN_MESSAGE_V0_SIZE \
                or chunk[at + MAGIC_AT] >= MAGIC_V2:
            return
        run.at = chunk + at
        run.end = run.at + (chunk_size - at if chunk_size - at < left else left)
        run.position = self.position
        run.last_position = self.last_position
        run.least_offset = self.least_offset
        run.next_base_offset = self.next_base_offset
        run.max_batch_bytes = self.max_batch_bytes
        run.batches = <BatchRow*>self.batches.block.data
        run.batch_count = self.batch_rows
        run.batch_capacity = self.batches.block.capacity // <int64_t>sizeof(BatchRow) - 1
        run.verify_crc = self.verify_crc
        self.source.readable_end = chunk + chunk_size
        self.source.view_base = chunk
        self.source.view_buffer = self.chunk_view
        decode_message_run(&self.table, &run, &self.source)
        self.position = run.position
        self.last_position = run.last_position
        self.least_offset = run.least_offset
        self.batch_rows = run.batch_count

    # Returns: OPENED, SKIPPED (nothing in it to decode), NEED_CHUNK, FILE_DONE or FAILED.
    cdef Progress open_batch(self, const uint8_t* chunk, int64_t chunk_size) noexcept nogil:
        cdef int64_t left = self.end_position - self.position
        cdef int64_t at = self.position - self.chunk_position
        cdef int64_t available = chunk_size - at if chunk != NULL and at <= chunk_size else 0
        cdef const uint8_t* p = chunk + at if available else NULL
        cdef int64_t last_offset, payload_size
        if left == 0:
            return FILE_DONE
        start_problem(&self.problem, self.position)
        if self.finds_end and available >= min(left, <int64_t>BATCH_HEADER_SIZE) and self.is_at_tail(p, left):
            return FILE_DONE
        if left < BATCH_HEADER_SIZE and available >= left and left < HEADER_SIZE_UP_TO_MAGIC:
            fail(&self.problem, BATCH_INCOMPLETE, BATCH_HEADER_SIZE, left)
            return FAILED
        if available < BATCH_HEADER_SIZE and available < left:
            self.needed = BATCH_HEADER_SIZE
            return NEED_CHUNK
        if check_frame(p, self.max_batch_bytes, &self.problem) != OK:
            return FAILED
        self.h.size = entry_size_at(p)
        if self.h.size > left:
            fail(&self.problem, BATCH_INCOMPLETE, self.h.size, left)
            return FAILED
        if self.h.size > available:
            self.needed = self.h.size
            return NEED_CHUNK
        load_header(p, &self.h)
        if self.verify_crc and check_stored_crc(p, &self.h, &self.problem) != OK:
            return FAILED
        if check_place(&self.h, self.least_offset, self.next_base_offset, &self.problem) != OK:
            return FAILED
        last_offset = self.h.base_offset + self.h.last_offset_delta
        self.source.least_delta = 0
        if last_offset < self.source.start_offset \
                or (self.h.base_offset >= self.source.end_offset and not is_wrapper(&self.h)):
            self.close_batch()
            return SKIPPED
        # As in Log.read, which checks no more of a batch that it skips.
        if self.h.attributes & CONTROL_MASK \
                or is_aborted(<const Aborted*>self.aborted.block.data, self.aborted_count, &self.h):
            self.close_batch()
            return SKIPPED
        if self.allows_low_last_offset:
            allow_low_last_offset(&self.h)
        payload_size = self.h.size - BATCH_HEADER_SIZE
        if self.check_count(payload_size) != OK:
            return FAILED
        if self.h.record_count == 0 and payload_size == 0:
            self.close_batch()
            return SKIPPED
        self.source.at = p + (BATCH_HEADER_SIZE if self.h.magic == MAGIC_V2 else 0)
        self.source.end = p + self.h.size
        self.source.readable_end = chunk + chunk_size
        self.source.view_base = chunk
        self.source.view_buffer = self.chunk_view
        self.source.done = 0
        self.source.timestamp_type = timestamp_type_of(&self.h)
        if self.h.magic < MAGIC_V2:
            self.source.least_delta = self.least_offset
            place_plain_message(&self.h, &self.source.messages)
        self.first_row = self.table.rows
        self.inflated = False
        self.in_batch = True
        return OPENED

    # Requires: as check_next. Returns: whether a header walk would stop here, at a torn batch or at zeros.
    cdef bint is_at_tail(self, const uint8_t* p, int64_t left) noexcept nogil:
        cdef Walk walk
        cdef Header h
        cdef Problem problem
        start_walk(&walk, self.position, self.end_position, self.least_offset, self.next_base_offset,
                   self.max_batch_bytes)
        check_next(&walk, p, &h, &problem)
        return walk.state == SCAN_TORN or walk.state == SCAN_ZEROS

    # A payload that no column needs is not decompressed; the record count is then bounded by the limit of the payload.
    cdef Status check_count(self, int64_t payload_size) noexcept nogil:
        cdef int64_t most = self.max_decompressed_bytes // MIN_RECORD_SIZE
        if self.h.attributes & CODEC_MASK == 0:
            return check_counts(&self.h, payload_size, &self.problem)
        if check_counts(&self.h, -1, &self.problem) == OK and self.h.record_count > most:
            fail(&self.problem, BAD_RECORD_COUNT, most, self.h.record_count)
        return self.problem.status

    cdef void close_batch(self) noexcept nogil:
        self.last_position = self.position
        self.position += self.h.size
        self.least_offset = self.h.base_offset + self.h.last_offset_delta + 1
        if self.h.magic < MAGIC_V2 and self.source.least_delta > self.least_offset:
            self.least_offset = self.source.least_delta
        self.in_batch = False

    cdef void note_batch(self) noexcept nogil:
        cdef BatchRow* row = <BatchRow*>self.batches.block.data + self.batch_rows
        if self.table.rows == self.first_row:
            return
        row.row_count = self.table.rows - self.first_row
        row.position = self.position
        row.base_offset = self.h.base_offset
        row.attributes = self.h.attributes
        row.leader_epoch = self.h.leader_epoch
        row.producer_id = self.h.producer_id
        row.producer_epoch = self.h.producer_epoch
        row.base_sequence = self.h.base_sequence
        row.magic = self.h.magic
        row.timestamp_type = self.source.timestamp_type
        self.batch_rows += 1
        self.first_row = self.table.rows

    cdef int inflate(self) except -1:
        cdef int64_t at = self.position - self.chunk_position
        cdef int64_t end = at + self.h.size
        cdef Message wrapper
        cdef const Py_buffer* raw
        if self.h.magic == MAGIC_V2:
            at += BATCH_HEADER_SIZE
        elif parse_message(self.chunk_start + at, &wrapper, &self.problem) != OK \
                or (wrapper.value_size < 0 and fail(&self.problem, NULL_WRAPPER, 0, -1) != OK):
            raise error_of(&self.problem, self.path)
        else:
            at = end - wrapper.value_size
        self.payload = None  # so that its memory can be reused
        payload = decompressed(self.decompress, &self.h, self.chunk_bytes[at:end], self.max_decompressed_bytes,
                               self.position, self.path)
        self.payload = checked_payload(payload, limit=self.max_decompressed_bytes, is_kept=self.has_views)
        raw = bytes_of(self.payload)
        self.source.at = self.source.view_base = <const uint8_t*>raw.buf
        self.source.end = self.source.readable_end = self.source.at + raw.len
        if self.h.magic == MAGIC_V2:
            check_counts(&self.h, raw.len, &self.problem)
        elif find_messages(self.source.at, raw.len, self.max_decompressed_bytes, &self.source.messages,
                           &self.problem) == OK \
                and place_messages(&self.h, &self.source.messages, &self.problem) == OK:
            self.source.end = self.source.at + self.source.messages.size
        if self.problem.status != OK:
            raise error_of(&self.problem, self.path)
        if self.has_views:
            self.add_payload_view()
        self.inflated = True
        return 0

    cdef int grow_or_raise(self) except -1:
        cdef Status status = self.problem.status
        cdef int64_t size = self.problem.expected
        if status == NEED_KEY_SPACE:
            grow_bytes(&self.table.key, self.key_parts, size)
        elif status == NEED_VALUE_SPACE:
            grow_bytes(&self.table.value, self.value_parts, size)
        elif status == NEED_HEADER_SPACE:
            grow_headers(&self.table.headers, self.header_parts, size, self.problem.found)
        elif status == NEED_TIMESTAMP_VALIDITY:
            self.timestamp_validity = new_validity(self.table.row_capacity)
            self.table.timestamp_validity = self.timestamp_validity.block.data
        else:
            raise error_of(&self.problem, self.path)
        return 0

    def take(self):
        """Return the Columns decoded since the last take, and start new ones."""
        cdef Columns out = Columns.__new__(Columns)
        cdef Table* t = &self.table
        cdef int64_t rows = t.rows
        self.check_idle()
        if not self.started:
            self.start_table()
        if self.in_batch:
            self.note_batch()
        self.end_content()
        out.row_count = out.end = rows
        out.offset = resized(self.offsets, 8 * rows)
        out.timestamp = resized(self.timestamps, 8 * rows)
        out.timestamp_null_count = t.timestamp_null_count
        if t.timestamp_null_count:
            out.timestamp_validity = resized(self.timestamp_validity, (rows + 7) // 8)
        if t.lost_offset >= 0:
            out.lost_timestamp = (t.lost_offset, t.lost_timestamp_ms)
        out.key = finished(&t.key, self.key_parts, rows, self.view_buffers)
        out.value = finished(&t.value, self.value_parts, rows, self.view_buffers)
        out.has_key_views, out.has_value_views = t.key.mode == MODE_VIEW, t.value.mode == MODE_VIEW
        out.batches = resized(self.batches, self.batch_rows * sizeof(BatchRow))
        out.headers = finished_headers(&t.headers, self.header_parts, rows)
        self.drop_table()
        return out

    def full_tables(self, read_chunk=None, DirectReads reads=None):
        """Iterate the Columns each time they are full, up to the end of what the decoder was started on.

        The rows after them stay in the decoder, which fills a table from several files.
        Args: read_chunk: called with the decoder, it returns the bytes from its position on, at least as many as it
            needs; None: the decoder was fed everything before; reads: reads them instead, as far as it can.
        Raises: as run and read_chunk; ValueError if bytes are missing and read_chunk is None.
        """
        cdef _FullTables tables = _FullTables.__new__(_FullTables)
        tables.decoder, tables.read_chunk, tables.reads = self, read_chunk, reads
        return tables

    cdef void drop_table(self) noexcept:
        self.started = False
        self.table.rows = 0
        self.offsets = self.timestamps = self.timestamp_validity = self.batches = self.key_parts = self.value_parts = self.header_parts = None
        self.view_buffers = []


# The iterator of ColumnDecoder.full_tables.
@cython.final
cdef class _FullTables:
    cdef ColumnDecoder decoder
    cdef object read_chunk
    cdef DirectReads reads

    def __iter__(self):
        return self

    def __next__(self):
        cdef ColumnDecoder decoder = self.decoder
        while (status := decoder.run(self.reads)) != "done":
            if status == "full":
                return decoder.take()
            if self.read_chunk is None:
                raise ValueError(
                    f"the decoder needs {decoder.needed} bytes from position {decoder.position} on: feed them first")
            decoder.feed(self.read_chunk(decoder), decoder.position)
        raise StopIteration
