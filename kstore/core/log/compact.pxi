# Compaction of a log: the pass over a .log that fills an OffsetMap, or drops what newer records replace
# (CompactionPass). No object is made for a record or a batch.

cdef enum:
    # Keys that are hashed, and whose slots are prefetched, before the first of them is looked up.
    KEY_BLOCK = 64
    # A varlong and the growth of a size.
    MOST_RECORD_GROWTH = 12
    LEAST_OUTPUT = 65536

# What a record needs for the decision, whatever its magic.
cdef struct KeyedRecord:
    int64_t offset
    int64_t timestamp
    const uint8_t* key
    int32_t key_size
    bint has_value
    uint64_t low
    uint64_t high

# The records of one batch, uncompressed, from `at`. count: that of the header, -1 for messages.
cdef struct ContentCursor:
    const uint8_t* at
    const uint8_t* end
    int64_t done
    int64_t count
    int64_t least
    MessageSet messages


cdef inline Status next_keyed_message(ContentCursor* c, const Header* h, KeyedRecord* out, Problem* problem) noexcept nogil:
    cdef Message m
    problem.record = c.done if is_wrapper(h) else -1
    if check_message_frame(c.at, c.end - c.at, problem) != OK:
        return problem.status
    if is_wrapper(h) and check_legacy_crc(c.at, entry_size_at(c.at), problem) != OK:
        return problem.status
    if parse_message(c.at, &m, problem) != OK:
        return problem.status
    out.offset = offset_of_message(&c.messages, &m)
    if check_message_offset(&c.messages, out.offset, c.done == 0, &c.least, problem) != OK:
        return problem.status
    out.timestamp = message_timestamp(h, &m)
    out.key, out.key_size, out.has_value = m.key, m.key_size, m.value_size >= 0
    c.at += m.size
    return OK


cdef inline Status next_keyed_record(ContentCursor* c, const Header* h, KeyedRecord* out, Problem* problem) noexcept nogil:
    cdef RawRecord raw
    problem.record = c.done
    if parse_record(c.at, c.end, &raw, problem) != OK or check_offset_delta(h, raw.offset_delta, &c.least, problem) != OK:
        return problem.status
    out.offset = h.base_offset + raw.offset_delta
    out.timestamp = timestamp_of(h, raw.timestamp_delta)
    out.key, out.key_size, out.has_value = raw.key, raw.key_size, raw.value_size >= 0
    c.at = raw.end
    return OK


# Reads up to KEY_BLOCK records. Returns: OK, with their number in `found`, 0 after the last one.
cdef Status read_keyed(ContentCursor* c, const Header* h, KeyedRecord* block, int* found, Problem* problem) noexcept nogil:
    cdef int n = 0
    found[0] = 0
    if h.magic < MAGIC_V2:
        while n < KEY_BLOCK and c.at < c.end:
            if next_keyed_message(c, h, block + n, problem) != OK:
                return problem.status
            n += 1
            c.done += 1
    else:
        while n < KEY_BLOCK and c.done < c.count:
            if next_keyed_record(c, h, block + n, problem) != OK:
                return problem.status
            n += 1
            c.done += 1
        if c.done == c.count and c.at != c.end:
            return fail(problem, TRAILING_BYTES, 0, c.end - c.at)
    found[0] = n
    return OK


cdef inline void hash_keyed(const KeyMap* m, KeyedRecord* block, int count) noexcept nogil:
    cdef int i
    for i in range(count):
        if block[i].key_size >= 0:
            hash_key(m, block[i].key, block[i].key_size, &block[i].low, &block[i].high)
            ks_prefetch(m.slots + ks_scaled(block[i].low, m.slot_count))


# Transactions, as a pass meets them: which producers wrote data since their last marker.

cdef struct TxnSlot:
    int64_t producer_id
    bint is_used
    bint has_committed
    bint has_aborted

cdef struct TxnTable:
    TxnSlot* slots
    int64_t count
    int64_t capacity          # 0, or a power of two


cdef inline TxnSlot* txn_in(TxnSlot* slots, int64_t capacity, int64_t producer_id) noexcept nogil:
    cdef int64_t at = <int64_t>((<uint64_t>producer_id * 0x9E3779B97F4A7C15u) >> 20) & (capacity - 1)
    while slots[at].is_used and slots[at].producer_id != producer_id:
        at = (at + 1) & (capacity - 1)
    return slots + at


# Returns: the slot of a producer, made if need be; NULL without memory.
cdef TxnSlot* txn_of(TxnTable* t, int64_t producer_id) noexcept nogil:
    cdef TxnSlot* grown
    cdef TxnSlot* slot
    cdef int64_t capacity = max(64, 2 * t.capacity)
    cdef int64_t i
    if 2 * t.count >= t.capacity:
        grown = <TxnSlot*>calloc(<size_t>capacity, sizeof(TxnSlot))
        if grown == NULL:
            return NULL
        for i in range(t.capacity):
            if t.slots[i].is_used:
                txn_in(grown, capacity, t.slots[i].producer_id)[0] = t.slots[i]
        free(t.slots)
        t.slots = grown
        t.capacity = capacity
    slot = txn_in(t.slots, t.capacity, producer_id)
    if not slot.is_used:
        slot.is_used, slot.producer_id = True, producer_id
        t.count += 1
    return slot


# The last record of an active producer: last_offset is that of its last data batch, -1 if it has none in its epoch.
cdef struct LastRecord:
    int64_t producer_id
    int64_t last_offset
    int32_t producer_epoch

cdef struct NotedMarker:
    int64_t producer_id
    int64_t offset

cdef struct NotedMarkers:
    NotedMarker* at
    int64_t count
    int64_t capacity

cdef struct GrowingBytes:
    uint8_t* data
    int64_t size
    int64_t capacity


# Returns: whether there is room for `more` bytes after the present ones.
cdef inline bint has_grown_by(GrowingBytes* b, int64_t more) noexcept nogil:
    cdef uint8_t* data
    cdef int64_t capacity = max(LEAST_OUTPUT, 2 * b.capacity)
    if more <= b.capacity - b.size:
        return True
    capacity = max(capacity, b.size + more)
    data = <uint8_t*>realloc(b.data, <size_t>capacity)
    if data == NULL:
        return False
    b.data = data
    b.capacity = capacity
    return True


cdef inline bint add_bytes(GrowingBytes* b, const uint8_t* p, int64_t size) noexcept nogil:
    if not has_grown_by(b, size):
        return False
    memcpy(b.data + b.size, p, <size_t>size)
    b.size += size
    return True


cdef struct PassTotals:
    int64_t batches_read
    int64_t records_read
    int64_t records_kept
    int64_t batches_changed
    int64_t batches_dropped

# The fate of one batch.
cdef struct Verdict:
    bint discards                # all of its records
    bint retains_empty
    bint is_marker_of_nothing    # a marker of a transaction of which no data was met
    bint keeps_tombstone
    int64_t kept
    int64_t total
    int64_t first_kept_offset
    int64_t last_kept_offset
    int64_t offset_base          # of the messages in a wrapper
    int64_t first_kept_timestamp
    int64_t max_timestamp

cdef struct Compaction:
    Walk w
    KeyMap* map
    int64_t latest_offset
    const Aborted* aborted
    int64_t aborted_count
    const LastRecord* last_records
    int64_t last_record_count
    TxnTable transactions
    NotedMarkers aborted_markers    # of transactions with data
    NotedMarkers dropped_markers
    int64_t now_ms
    int64_t new_horizon_ms
    int64_t start_offset
    int64_t high_watermark
    int64_t max_decompressed_bytes
    bint keeps_old_tombstones
    bint is_full
    GrowingBytes out
    GrowingBytes payload      # of a rebuilt batch that is to be compressed
    GrowingBytes keeps        # a byte for each record of the batch
    ContentRoom room
    PassTotals totals
    bint only_looks           # map_keys looks for records without a key, and maps nothing
    bint removes_tombstones   # map_keys removes a key whose value is null
    bint is_past_end          # map_keys met a batch that ends at end_offset or above
    int64_t end_offset
    int64_t last_position     # of the last batch that was mapped, -1 for none
    int64_t keyless_count     # records without a key that were met for the map, or that the filter dropped
    int64_t first_keyless     # the offset of the first of them

# Why a pass over a chunk stopped.
cdef enum PassStop:
    CHUNK_DONE
    MAP_FULL
    WANTS_CONTENT             # the batch at the position is to be decompressed
    WANTS_PAYLOAD             # `payload` is to be compressed
    PASS_FAILED


# Returns: OK with the cursor at the records of a batch, whose content is decompressed.
cdef Status open_content(const uint8_t* content, int64_t size, const Header* h, int64_t least_offset, int64_t limit,
                         ContentCursor* c, Problem* problem) noexcept nogil:
    memset(c, 0, sizeof(ContentCursor))
    c.at, c.end, c.count = content, content + size, h.record_count
    if h.magic == MAGIC_V2:
        return check_counts(h, size, problem)
    c.least = least_offset
    if not is_wrapper(h):
        place_plain_message(h, &c.messages)
        return OK
    if find_messages(content, size, limit, &c.messages, problem) != OK:
        return problem.status
    c.end = content + c.messages.size
    return place_messages(h, &c.messages, problem)


cdef inline void note_keyless(Compaction* k, const KeyedRecord* r) noexcept nogil:
    if k.keyless_count == 0:
        k.first_keyless = r.offset
    k.keyless_count += 1


cdef Status map_content(Compaction* k, ContentCursor* c, const Header* h, Problem* problem) noexcept nogil:
    cdef KeyedRecord block[KEY_BLOCK]
    cdef int64_t keyless_before = k.keyless_count
    cdef int found, i
    while True:
        if read_keyed(c, h, block, &found, problem) != OK:
            return problem.status
        if found == 0:
            return OK
        hash_keyed(k.map, block, found)
        for i in range(found):
            k.totals.records_read += 1
            if block[i].offset < k.start_offset:
                continue
            if block[i].key_size < 0:
                note_keyless(k, block + i)
            if block[i].key_size < 0 or k.only_looks:
                continue
            if k.removes_tombstones and not block[i].has_value:
                remove_offset(k.map, block[i].low, block[i].high)
            elif not put_offset(k.map, block[i].low, block[i].high, block[i].offset):
                k.latest_offset = max(k.latest_offset, block[i].offset - 1)
                if k.removes_tombstones:
                    # The batch is mapped again, from its first record, once the map has grown.
                    k.keyless_count = keyless_before
                k.is_full = True
                return OK


cdef inline bint keeps_record(const Compaction* k, const Header* h, const KeyedRecord* r) noexcept nogil:
    if r.offset > k.latest_offset:
        return True
    if r.key_size < 0 or r.offset < offset_in(k.map, r.low, r.high):
        return False
    if r.has_value:
        return True
    if h.magic < MAGIC_V2:
        return k.keeps_old_tombstones
    return not h.attributes & DELETE_HORIZON_MASK or k.now_ms < h.base_timestamp


cdef inline void note_kept(Verdict* v, const KeyedRecord* r) noexcept nogil:
    if v.kept == 0:
        v.first_kept_offset, v.first_kept_timestamp = r.offset, r.timestamp
    v.last_kept_offset = r.offset
    if r.timestamp > v.max_timestamp:
        v.max_timestamp = r.timestamp
    v.keeps_tombstone |= not r.has_value
    v.kept += 1


# Decides about each record. Requires: discards and retains_empty are set.
cdef Status judge_content(Compaction* k, ContentCursor* c, const Header* h, Verdict* v, Problem* problem) noexcept nogil:
    cdef KeyedRecord block[KEY_BLOCK]
    cdef bint is_control = h.attributes & CONTROL_MASK != 0
    cdef bint keeps
    cdef int found, i
    k.keeps.size = 0
    while True:
        if read_keyed(c, h, block, &found, problem) != OK:
            return problem.status
        if found == 0:
            return OK
        if not has_grown_by(&k.keeps, found):
            return fail(problem, NO_MEMORY, 0, 0)
        if not is_control and not v.discards:
            hash_keyed(k.map, block, found)
        for i in range(found):
            keeps = not v.discards and (is_control or keeps_record(k, h, block + i))
            k.keeps.data[k.keeps.size + i] = keeps
            if keeps:
                note_kept(v, block + i)
            elif block[i].key_size < 0 and not v.discards:
                note_keyless(k, block + i)
        v.total += found
        k.keeps.size += found


# Returns: whether the batch has the last data of an active producer or, if there is none, the marker of its epoch.
cdef bint is_last_of_producer(const Compaction* k, const Header* h) noexcept nogil:
    cdef int64_t low = 0, high = k.last_record_count, middle
    if h.producer_id < 0:
        return False
    while low < high:
        middle = low + (high - low) // 2
        if k.last_records[middle].producer_id < h.producer_id:
            low = middle + 1
        else:
            high = middle
    if low == k.last_record_count or k.last_records[low].producer_id != h.producer_id:
        return False
    if k.last_records[low].last_offset >= 0:
        return h.base_offset + h.last_offset_delta == k.last_records[low].last_offset
    return h.attributes & CONTROL_MASK != 0 and h.producer_epoch == k.last_records[low].producer_epoch


# Returns: whether a batch stays even if none of its records does.
cdef inline bint is_retained_empty(const Compaction* k, const Header* h) noexcept nogil:
    return h.base_offset + h.last_offset_delta == k.high_watermark - 1 or is_last_of_producer(k, h)


cdef bint has_noted(NotedMarkers* markers, const Header* h) noexcept nogil:
    cdef NotedMarker* grown
    if markers.count == markers.capacity:
        grown = <NotedMarker*>realloc(markers.at, <size_t>(2 * markers.capacity + 16) * sizeof(NotedMarker))
        if grown == NULL:
            return False
        markers.at = grown
        markers.capacity = 2 * markers.capacity + 16
    markers.at[markers.count].producer_id = h.producer_id
    markers.at[markers.count].offset = h.base_offset
    markers.count += 1
    return True


# Notes the data of a transaction. Returns: OK with whether it was aborted in `aborted`.
cdef Status note_data(Compaction* k, const Header* h, bint* aborted, Problem* problem) noexcept nogil:
    cdef TxnSlot* slot
    aborted[0] = False
    if not h.attributes & TRANSACTIONAL_MASK:
        return OK
    slot = txn_of(&k.transactions, h.producer_id)
    if slot == NULL:
        return fail(problem, NO_MEMORY, 0, 0)
    aborted[0] = is_aborted(k.aborted, k.aborted_count, h)
    if aborted[0]:
        slot.has_aborted = True
    else:
        slot.has_committed = True
    return OK


# Notes a marker. Returns: OK with whether no data of its transaction was met in `discardable`.
cdef Status note_marker(Compaction* k, const Header* h, const uint8_t* content, int64_t size, bint* discardable,
                        Problem* problem) noexcept nogil:
    cdef RawRecord raw
    cdef TxnSlot* slot
    cdef int kind
    discardable[0] = True
    if h.record_count == 0:
        return OK
    if parse_record(content, content + size, &raw, problem) != OK:
        return problem.status
    kind = <int16_t>ks_get16(raw.key + 2) if raw.key_size >= 4 else -1
    discardable[0] = False
    if kind != 0 and kind != 1:
        return OK
    slot = txn_of(&k.transactions, h.producer_id)
    if slot == NULL:
        return fail(problem, NO_MEMORY, 0, 0)
    if kind == 1:
        discardable[0] = not slot.has_committed
        slot.has_committed = False
        return OK
    discardable[0] = not slot.has_aborted
    slot.has_aborted = False
    if not discardable[0] and not has_noted(&k.aborted_markers, h):
        return fail(problem, NO_MEMORY, 0, 0)
    return OK


# Requires: the records of a V2 batch, judged. Writes those that are kept, with their timestamps relative to another one.
cdef Status put_kept_records(const Compaction* k, const uint8_t* at, const uint8_t* end, const Header* h,
                             int64_t base_timestamp, GrowingBytes* target, Problem* problem) noexcept nogil:
    cdef RawRecord raw
    cdef const uint8_t* rest
    cdef uint8_t* to
    cdef int64_t i, delta, size
    cdef int32_t old_size
    cdef int64_t old_delta
    cdef uint8_t attributes
    for i in range(h.record_count):
        rest = at
        if parse_prefix(&rest, end, &raw, problem) != OK:
            return problem.status
        if k.keeps.data[i]:
            if not has_grown_by(target, raw.end - at + MOST_RECORD_GROWTH):
                return fail(problem, NO_MEMORY, 0, 0)
            to = target.data + target.size
            delta = <int64_t>(<uint64_t>timestamp_of(h, raw.timestamp_delta) - <uint64_t>base_timestamp)
            if delta == raw.timestamp_delta:
                memcpy(to, at, <size_t>(raw.end - at))
                target.size += raw.end - at
            else:
                # After the size and the attributes: the timestamp, then what stays as it is.
                rest = at
                if read_varint(&rest, end, &old_size) != OK:
                    return fail(problem, BAD_VARINT, end - rest, 0)
                attributes = rest[0]
                rest += 1
                if read_varlong(&rest, raw.end, &old_delta) != OK:
                    return fail(problem, BAD_VARINT, raw.end - rest, 0)
                size = 1 + varint_size(zigzag(delta)) + (raw.end - rest)
                to = put_varint(to, zigzag(size))
                to[0] = attributes
                to = put_varint(to + 1, zigzag(delta))
                memcpy(to, rest, <size_t>(raw.end - rest))
                target.size = to + (raw.end - rest) - target.data
        at = raw.end
    return OK


# Requires: the messages of a wrapper, judged. Writes those that are kept, with offsets relative to the first one (V1).
cdef Status put_kept_messages(const Compaction* k, const uint8_t* at, const Header* h, const Verdict* v,
                              GrowingBytes* target, Problem* problem) noexcept nogil:
    cdef int64_t i, size, offset
    cdef int64_t base = v.first_kept_offset - v.offset_base if h.magic == MAGIC_V1 else 0
    for i in range(v.total):
        size = entry_size_at(at)
        if k.keeps.data[i]:
            offset = <int64_t>ks_get64(at)
            if not add_bytes(target, at, size):
                return fail(problem, NO_MEMORY, 0, 0)
            ks_put64(target.data + target.size - size, <uint64_t>(offset - base))
        at += size
    return OK


# Starts the header of a rebuilt batch. Requires: something is kept.
cdef void start_rebuilt(const Compaction* k, Header* h, const Verdict* v) noexcept nogil:
    cdef bint has_horizon = h.attributes & DELETE_HORIZON_MASK != 0
    if h.magic < MAGIC_V2:
        h.base_offset = v.last_kept_offset
    elif (v.keeps_tombstone or v.is_marker_of_nothing) and not has_horizon:
        h.attributes |= DELETE_HORIZON_MASK
        h.base_timestamp = k.new_horizon_ms
    elif not has_horizon:
        h.base_timestamp = v.first_kept_timestamp
    if not h.attributes & TIMESTAMP_TYPE_MASK and h.magic > MAGIC_V0:
        h.max_timestamp = v.max_timestamp
    if h.magic == MAGIC_V2:
        h.record_count = <int32_t>v.kept


# Writes a rebuilt batch with this payload.
cdef Status put_rebuilt(Compaction* k, Header* h, const uint8_t* payload, int64_t size, Problem* problem) noexcept nogil:
    cdef int64_t header_size = least_batch_size(h.magic)
    if size > INT32_MAX - header_size:
        return fail(problem, BATCH_TOO_LARGE, INT32_MAX, size)
    if not has_grown_by(&k.out, header_size + size):
        return fail(problem, NO_MEMORY, 0, 0)
    h.size = header_size + size
    if size:
        memcpy(k.out.data + k.out.size + header_size, payload, <size_t>size)
    seal_batch(k.out.data + k.out.size, h)
    k.out.size += h.size
    return OK


# Writes the header alone, so that offsets and sequence of the batch stay known.
cdef Status put_empty(Compaction* k, Header* h, Problem* problem) noexcept nogil:
    h.attributes &= ~(CODEC_MASK | DELETE_HORIZON_MASK)
    h.base_timestamp = NO_TIMESTAMP
    h.record_count = 0
    return put_rebuilt(k, h, NULL, 0, problem)


# Requires: a judged batch of h at p, its decompressed content at `content`. Writes what is kept, except if that is to be
# compressed: then it is in k.payload, with h as the header to be. Returns: CHUNK_DONE, WANTS_PAYLOAD or PASS_FAILED.
cdef PassStop put_judged(Compaction* k, const uint8_t* p, Header* h, const Verdict* v, const uint8_t* content,
                         int64_t size, Problem* problem) noexcept nogil:
    cdef Header old = h[0]
    cdef bint sets_horizon = (v.keeps_tombstone or v.is_marker_of_nothing) and h.magic == MAGIC_V2 \
        and not h.attributes & DELETE_HORIZON_MASK
    cdef bint is_compressed = h.attributes & CODEC_MASK != 0
    cdef GrowingBytes* target = &k.payload
    k.totals.records_kept += v.kept
    if v.kept == 0:
        if not v.retains_empty or h.magic < MAGIC_V2:
            k.totals.batches_dropped += 1
            return CHUNK_DONE
        if v.total == 0 and not is_compressed and h.base_timestamp == NO_TIMESTAMP:
            return CHUNK_DONE if add_bytes(&k.out, p, h.size) else no_memory(problem)
        k.totals.batches_changed += 1
        return CHUNK_DONE if put_empty(k, h, problem) == OK else PASS_FAILED
    if v.kept == v.total and not sets_horizon:
        return CHUNK_DONE if add_bytes(&k.out, p, h.size) else no_memory(problem)
    k.totals.batches_changed += 1
    start_rebuilt(k, h, v)
    target.size = 0
    if old.magic == MAGIC_V2:
        if put_kept_records(k, content, content + size, &old, h.base_timestamp, target, problem) != OK:
            return PASS_FAILED
    elif put_kept_messages(k, content, &old, v, target, problem) != OK:
        return PASS_FAILED
    if is_compressed:
        return WANTS_PAYLOAD
    return CHUNK_DONE if put_rebuilt(k, h, target.data, target.size, problem) == OK else PASS_FAILED


cdef inline PassStop no_memory(Problem* problem) noexcept nogil:
    fail(problem, NO_MEMORY, 0, 0)
    return PASS_FAILED


# The steps for one batch whose content is decompressed. Returns: as put_judged, or MAP_FULL.
cdef PassStop take_batch(Compaction* k, const uint8_t* p, Header* h, const uint8_t* content, int64_t size, bint maps,
                         Problem* problem) noexcept nogil:
    cdef ContentCursor c
    cdef Verdict v
    cdef bint is_control = h.attributes & CONTROL_MASK != 0
    cdef bint is_done = False
    memset(&v, 0, sizeof(Verdict))
    v.max_timestamp = NO_TIMESTAMP
    if is_control:
        if note_marker(k, h, content, size, &is_done, problem) != OK:
            return PASS_FAILED
    elif note_data(k, h, &is_done, problem) != OK:
        return PASS_FAILED
    if maps:
        if is_control or is_done or h.base_offset + h.last_offset_delta < k.start_offset:
            return CHUNK_DONE
        if open_content(content, size, h, k.w.least_offset, k.max_decompressed_bytes, &c, problem) != OK \
                or map_content(k, &c, h, problem) != OK:
            return PASS_FAILED
        return MAP_FULL if k.is_full else CHUNK_DONE
    v.discards = is_done
    v.retains_empty = is_retained_empty(k, h)
    if is_control:
        v.is_marker_of_nothing = is_done
        v.discards = is_done and h.attributes & DELETE_HORIZON_MASK != 0 and h.base_timestamp <= k.now_ms
        if v.discards and not has_noted(&k.dropped_markers, h):
            return no_memory(problem)
    k.totals.batches_read += 1
    if v.discards and not v.retains_empty:
        k.totals.batches_dropped += 1
        k.totals.records_read += max(h.record_count, 0)
        return CHUNK_DONE
    if open_content(content, size, h, k.w.least_offset, k.max_decompressed_bytes, &c, problem) != OK \
            or judge_content(k, &c, h, &v, problem) != OK:
        return PASS_FAILED
    k.totals.records_read += v.total
    v.offset_base = c.messages.offset_base
    return put_judged(k, p, h, &v, content, size, problem)


# Sets the bytes that are to be decompressed: those after the header, or the value of a wrapper.
cdef Status find_payload(const uint8_t* p, const Header* h, const uint8_t** payload, int64_t* size,
                         Problem* problem) noexcept nogil:
    cdef Message m
    if h.magic == MAGIC_V2:
        payload[0], size[0] = p + BATCH_HEADER_SIZE, h.size - BATCH_HEADER_SIZE
        return OK
    if not is_wrapper(h):
        payload[0], size[0] = p, h.size
        return OK
    if parse_message(p, &m, problem) != OK:
        return problem.status
    if m.value_size < 0:
        return fail(problem, NULL_WRAPPER, 0, -1)
    payload[0], size[0] = m.value, m.value_size
    return OK


# Decompresses a payload, if its codec copies blocks. Returns: whether it is done; else the caller asks for the content.
cdef bint has_decompressed(Compaction* k, const Header* h, const uint8_t** payload, int64_t* size) noexcept nogil:
    cdef Frame frame
    cdef int codec = h.attributes & CODEC_MASK
    if not copies_blocks(codec):
        return False
    if check_blocks(codec, payload[0], size[0], h.magic, k.max_decompressed_bytes, &frame) != FRAME_OK \
            or make_room(&k.room, frame.room) != IS_ASSIGNED:
        return False
    if decompress_checked(codec, payload[0], size[0], k.max_decompressed_bytes, k.room.data, &frame) != FRAME_OK \
            or frame.found > k.max_decompressed_bytes:
        return False
    payload[0], size[0] = k.room.data, frame.found
    return True


# Whether the records of a batch need not be read: those of an aborted transaction, and offsets that are mapped already.
cdef inline bint needs_no_content(const Compaction* k, const Header* h, bint maps) noexcept nogil:
    cdef bint is_aborted_data = not h.attributes & CONTROL_MASK and is_aborted(k.aborted, k.aborted_count, h)
    if maps:
        return is_aborted_data or h.base_offset + h.last_offset_delta < k.start_offset
    return is_aborted_data and not is_retained_empty(k, h)


# Works through the whole batches of a chunk that starts at chunk_position of the file. With `content`, which may be
# NULL, the first batch is taken with that. Stops after a batch whose payload is to be compressed.
cdef PassStop pass_chunk(Compaction* k, const uint8_t* chunk, int64_t chunk_size, int64_t chunk_position, bint maps,
                         const uint8_t* content, int64_t content_size, Header* h, Problem* problem) noexcept nogil:
    cdef const uint8_t* p
    cdef const uint8_t* payload
    cdef int64_t at, needed, size
    cdef PassStop stop
    while k.w.state == SCAN_MORE:
        at = k.w.position - chunk_position
        needed = min(k.w.end_position - k.w.position, <int64_t>BATCH_HEADER_SIZE)
        if at < 0 or at > chunk_size or chunk_size - at < needed:
            return CHUNK_DONE
        p = chunk + at
        if not check_next(&k.w, p, h, problem):
            return PASS_FAILED
        if maps and h.base_offset + h.last_offset_delta >= k.end_offset:
            k.is_past_end = True
            return CHUNK_DONE
        if h.size > chunk_size - at:
            return CHUNK_DONE
        if content == NULL and check_stored_crc(p, h, problem) != OK:
            return PASS_FAILED
        payload, size = content, content_size
        if content == NULL:
            if find_payload(p, h, &payload, &size, problem) != OK \
                    or check_counts(h, -1 if h.attributes & CODEC_MASK else size, problem) != OK:
                return PASS_FAILED
            if h.attributes & CODEC_MASK and size and not needs_no_content(k, h, maps) \
                    and not has_decompressed(k, h, &payload, &size):
                return WANTS_CONTENT
        content = NULL
        stop = take_batch(k, p, h, payload, size, maps, problem)
        if stop == PASS_FAILED or stop == MAP_FULL:
            return stop
        if maps:
            k.latest_offset = max(k.latest_offset, h.base_offset + h.last_offset_delta)
            k.last_position = k.w.position
        pass_batch_of(&k.w, p)
        if stop == WANTS_PAYLOAD:
            return stop
    return CHUNK_DONE


# Moves the walk past the batch at p, as it is in the file; h may have the header of its successor by now.
cdef inline void pass_batch_of(Walk* w, const uint8_t* p) noexcept nogil:
    cdef Header h
    load_header(p, &h)
    pass_batch(w, &h)


cdef list taken_markers(NotedMarkers* markers):
    cdef int64_t i
    cdef list found = []
    for i in range(markers.count):
        found.append((markers.at[i].producer_id, markers.at[i].offset))
    markers.count = 0
    return found


@cython.final
cdef class CompactionPass:
    """A pass over the segments of a log, fed chunk by chunk: map_keys fills an OffsetMap, filter_records writes the
    batches that remain.

    Each batch is checked as any reader checks it, with its CRC, before its records count. Untouched batches keep their
    bytes; others keep their magic, codec, base and last offset, producer and sequence, as Kafka's cleaner keeps them.
    Args: aborted: (producer id, first offset, offset of the marker) of each aborted transaction; decompress, compress:
        (codec, payload, ...) -> bytes, for codecs that the core does not know; now_ms, delete_retention_ms: a tombstone
        or a marker of a transaction without data gets the sum as its delete horizon; start_offset: keys below it are
        not mapped; high_watermark: the batch that ends there stays, if need be without records, so that the end of the
        log is known (KAFKA-17076, KAFKA-20452); only_looks: map_keys maps nothing; removes_tombstones: map_keys removes
        keys with a null value, and may be called again once a full map has grown; end_offset: map_keys takes the
        batches that end below it.
    Attributes: keyless; is_full (map_keys stopped because the map is), is_past_end (it stopped at end_offset), position
        (of the next batch), last_position (of the last batch that was mapped, -1 for none).
    Threads: not safe; the GIL is released.  Source: Kafka Cleaner.cleanInto, MemoryRecords.filterTo.
    """

    cdef Compaction k
    cdef Problem problem
    cdef OffsetMap map
    cdef ColumnBuffer aborted
    cdef ColumnBuffer last_records
    cdef object decompress
    cdef object compress
    cdef object path
    cdef int64_t max_batch_bytes

    def __cinit__(self, OffsetMap offset_map, *, aborted, decompress, compress=None, int64_t now_ms=0,
                  int64_t delete_retention_ms=0, int64_t start_offset, int64_t high_watermark=INT64_MAX,
                  int64_t max_batch_bytes=INT32_MAX, int64_t max_decompressed_bytes=INT32_MAX, bint only_looks=False,
                  bint removes_tombstones=False, int64_t end_offset=INT64_MAX):
        memset(&self.k, 0, sizeof(Compaction))
        if offset_map is None:
            raise TypeError("offset_map must be an OffsetMap, got None")
        found = list(aborted)
        self.map, self.k.map = offset_map, &offset_map.m
        self.k.latest_offset = offset_map.latest_offset
        self.aborted = aborted_list(found)
        self.k.aborted, self.k.aborted_count = <const Aborted*>self.aborted.block.data, len(found)
        self.decompress, self.compress = decompress, compress
        self.k.now_ms = now_ms
        self.k.new_horizon_ms = min(now_ms, INT64_MAX - delete_retention_ms) + delete_retention_ms
        self.k.start_offset, self.k.high_watermark = start_offset, high_watermark
        self.k.only_looks, self.k.removes_tombstones = only_looks, removes_tombstones
        self.k.end_offset, self.k.last_position = end_offset, -1
        self.k.max_decompressed_bytes, self.max_batch_bytes = max_decompressed_bytes, max_batch_bytes

    def __dealloc__(self):
        free(self.k.transactions.slots)
        free(self.k.aborted_markers.at)
        free(self.k.dropped_markers.at)
        free(self.k.out.data)
        free(self.k.payload.data)
        free(self.k.keeps.data)
        free(self.k.room.data)

    @property
    def is_full(self): return bool(self.k.is_full)
    @property
    def is_past_end(self): return bool(self.k.is_past_end)
    @property
    def position(self): return self.k.w.position
    @property
    def last_position(self): return self.k.last_position

    @property
    def keyless(self):
        """(number, offset of the first) of the records without a key that map_keys met, or filter_records dropped."""
        return self.k.keyless_count, self.k.first_keyless if self.k.keyless_count else None

    @property
    def totals(self):
        """(batches read, records read, records kept, batches changed, batches dropped) so far."""
        cdef PassTotals* t = &self.k.totals
        return t.batches_read, t.records_read, t.records_kept, t.batches_changed, t.batches_dropped

    def set_last_records(self, records):
        """Set the (producer id, offset of its last data or -1, epoch) of each active producer."""
        cdef list ordered = sorted(records)
        cdef ColumnBuffer buffer = ColumnBuffer(max(len(ordered), 1) * sizeof(LastRecord))
        cdef LastRecord* last = <LastRecord*>buffer.block.data
        cdef Py_ssize_t i = 0
        for producer_id, last_offset, producer_epoch in ordered:
            last[i].producer_id, last[i].last_offset, last[i].producer_epoch = producer_id, last_offset, producer_epoch
            i += 1
        self.last_records = buffer
        self.k.last_records, self.k.last_record_count = last, i

    def start_segment(self, *, int64_t base_offset, next_base_offset, int64_t end_position, int64_t position=0,
                      bint keeps_old_tombstones=True, path=None):
        """Begin with the batches of [position, end_position) of a .log.

        Args: keeps_old_tombstones: of magic 0 and 1, which have no delete horizon.
        """
        self.path = path
        self.k.keeps_old_tombstones = keeps_old_tombstones
        start_walk(&self.k.w, position, end_position, base_offset,
                   INT64_MAX if next_base_offset is None else next_base_offset, self.max_batch_bytes)

    def map_keys(self, const uint8_t[::1] chunk, int64_t position):
        """Put the keys of the whole batches of a chunk into the map, up to the first that does not fit.

        Returns: the position to go on from; `position` if the chunk holds no whole batch.
        Raises: CorruptRecordError, InvalidRecordError, UnsupportedMagicError, DecompressionError for damage;
            MemoryError.
        """
        self.k.is_full = False
        self.run(chunk, position, True)
        if not self.k.only_looks:
            self.map.latest_offset = max(self.map.latest_offset, self.k.latest_offset)
        return self.k.w.position

    def filter_records(self, const uint8_t[::1] chunk, int64_t position):
        """Take the whole batches of a chunk, and add what remains of them to the output.

        Returns: as map_keys.  Raises: as map_keys.
        """
        self.run(chunk, position, False)
        return self.k.w.position

    def take_output(self):
        """Return the output since the last call as bytes."""
        cdef bytes out = PyBytes_FromStringAndSize(<const char*>self.k.out.data, self.k.out.size)
        self.k.out.size = 0
        return out

    def take_aborted(self):
        """Return (producer id, offset) of the abort markers since the last call whose transaction still had data."""
        return taken_markers(&self.k.aborted_markers)

    def take_dropped(self):
        """Return (producer id, offset) of the markers since the last call that are gone."""
        return taken_markers(&self.k.dropped_markers)

    cdef int run(self, const uint8_t[::1] chunk, int64_t position, bint maps) except -1:
        cdef const uint8_t* start = start_of(chunk)
        cdef const uint8_t* content = NULL
        cdef int64_t size = chunk.shape[0]
        cdef int64_t content_size = 0
        cdef const Py_buffer* raw
        cdef Header h
        cdef PassStop stop
        held = None
        while True:
            with nogil:
                stop = pass_chunk(&self.k, start, size, position, maps, content, content_size, &h, &self.problem)
            content, held = NULL, None
            if stop == PASS_FAILED:
                raise error_of(&self.problem, self.path)
            if stop == WANTS_CONTENT:
                held = memoryview(self.content_of(chunk, position, &h))
                raw = bytes_of(held)
                content, content_size = <const uint8_t*>raw.buf, raw.len
                if content_size == 0:
                    content = start
            elif stop == WANTS_PAYLOAD:
                self.put_compressed(&h)
            else:
                return 0

    # Requires: pass_chunk stopped at a batch that it cannot decompress.
    cdef object content_of(self, const uint8_t[::1] chunk, int64_t position, const Header* h):
        cdef int64_t at = self.k.w.position - position
        cdef const uint8_t* payload
        cdef int64_t size
        if find_payload(&chunk[at], h, &payload, &size, &self.problem) != OK:
            raise error_of(&self.problem, self.path)
        at = payload - &chunk[0]
        return decompressed(self.decompress, h, memoryview(chunk)[at:at + size], self.k.max_decompressed_bytes,
                            self.k.w.position, self.path)

    # Requires: pass_chunk stopped with a payload. Adds the batch to the output.
    cdef int put_compressed(self, Header* h) except -1:
        cdef GrowingBytes* payload = &self.k.payload
        held = memoryview(self.compress(h.attributes & CODEC_MASK,
                                        PyBytes_FromStringAndSize(<const char*>payload.data, payload.size), h.magic))
        cdef const Py_buffer* raw = bytes_of(held)
        if put_rebuilt(&self.k, h, <const uint8_t*>raw.buf, raw.len, &self.problem) != OK:
            raise error_of(&self.problem, self.path)
        return 0
