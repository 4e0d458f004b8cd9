/* What one core can do with V2 batches, and messages of magic 1, when nothing has to be safe: the ceiling that kstore's decoder is held against.
 * It trusts the record count, reads past the end of the segment and writes past the end of a column (both are padded
 * by the caller), knows no codec, no null and no header. The CRC is checked and each record must end where it says.
 *
 *   cc -O3 -march=native -shared -fPIC -o limit.so limit.c
 *
 * One fill() hands over the columns of whole batches until their value bytes pass column_bytes, as a reader does;
 * the caller gives the same columns again, so that they stay in the L2 cache.
 */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { LOG_OVERHEAD = 12, BATCH_OVERHEAD = 61, CRC_AT = 17, CRC_FROM = 21, BASE_TIMESTAMP_AT = 27, COUNT_AT = 57 };
enum { MAX_STREAM_WORDS = 4096, PREFETCH_BYTES = 512, INLINE_BYTES = 12 };

struct cursor {
    const uint8_t *segment;
    int64_t size, position;
};

union view {                       /* Arrow's binary_view: up to 12 bytes stand in the view itself */
    struct { int32_t size, prefix, buffer, position; } far;
    __m128i whole;
};

struct columns {
    int64_t *offset, *timestamp_us;
    int32_t *key_end, *value_end;  /* Arrow's binary offsets: slot i + 1 is the end of row i */
    uint8_t *keys, *values;
    union view *key_view, *value_view;
};

static uint32_t zeros_power[MAX_STREAM_WORDS + 1];  /* x^(64 n - 33) mod P: multiplier that moves a CRC over n words */
static uint8_t inline_mask[INLINE_BYTES + 1][16];

static void prepare_crc32c(void);

void limit_prepare(void) {
    zeros_power[1] = 1;
    for (int n = 1; n < MAX_STREAM_WORDS; n++) zeros_power[n + 1] = (uint32_t)_mm_crc32_u64(zeros_power[n], 0);
    for (int size = 0; size <= INLINE_BYTES; size++) memset(inline_mask[size] + 4, 0xff, size);
    prepare_crc32c();
}

static inline uint32_t big32(const uint8_t *at) { uint32_t raw; memcpy(&raw, at, 4); return __builtin_bswap32(raw); }
static inline int64_t big64(const uint8_t *at) { uint64_t raw; memcpy(&raw, at, 8); return (int64_t)__builtin_bswap64(raw); }
static inline uint64_t word(const uint8_t *at) { uint64_t raw; memcpy(&raw, at, 8); return raw; }

static inline uint64_t over_zeros(uint64_t crc, int64_t words) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi64_si128(zeros_power[words]), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* x^n modulo a polynomial, bits reversed, moved up by the bit that clmul leaves out. */
static uint64_t power_of(uint32_t polynomial, int n) {
    uint32_t bits = 1u << 31;
    while (n--) bits = bits >> 1 ^ (bits & 1 ? polynomial : 0);
    return (uint64_t)bits << 1;
}

#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__VPCLMULQDQ__)
/* CRC-32C by folding four lanes of 64 bytes with carry-less multiplication, where the processor has that so wide. */
enum { WIDE = 64, WIDE_LANES = 4 };
#define CRC32C_POLYNOMIAL 0x82f63b78u
static uint64_t wide_over_all[2], wide_over_one[2], part_over_one[2];

static void prepare_crc32c(void) {
    uint64_t *const over[3] = {wide_over_all, wide_over_one, part_over_one};
    const int bits[3] = {8 * WIDE * WIDE_LANES, 8 * WIDE, 128};
    for (int i = 0; i < 3; i++)
        over[i][0] = power_of(CRC32C_POLYNOMIAL, bits[i] + 32), over[i][1] = power_of(CRC32C_POLYNOMIAL, bits[i] - 32);
}

static inline __m512i wide_folded(__m512i lane, __m512i by, __m512i next) {
    const __m512i low = _mm512_clmulepi64_epi128(lane, by, 0x00), high = _mm512_clmulepi64_epi128(lane, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96);
}

static inline __m512i wide_at(const uint8_t *data) { return _mm512_loadu_si512((const void *)data); }

static inline uint32_t crc32c(const uint8_t *data, int64_t size) {
    uint64_t crc = 0xffffffff;
    if (size >= WIDE * WIDE_LANES) {
        const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)wide_over_all));
        const __m512i one = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)wide_over_one));
        const __m128i part = _mm_loadu_si128((const __m128i *)part_over_one);
        __m512i a = _mm512_xor_si512(wide_at(data), _mm512_zextsi128_si512(_mm_cvtsi32_si128(-1)));
        __m512i b = wide_at(data + WIDE), c = wide_at(data + 2 * WIDE), d = wide_at(data + 3 * WIDE);
        for (data += 4 * WIDE, size -= 4 * WIDE; size >= 4 * WIDE; data += 4 * WIDE, size -= 4 * WIDE) {
            _mm_prefetch((const char *)data + 8 * PREFETCH_BYTES, _MM_HINT_T0);
            _mm_prefetch((const char *)data + 8 * PREFETCH_BYTES + WIDE, _MM_HINT_T0);
            _mm_prefetch((const char *)data + 8 * PREFETCH_BYTES + 2 * WIDE, _MM_HINT_T0);
            _mm_prefetch((const char *)data + 8 * PREFETCH_BYTES + 3 * WIDE, _MM_HINT_T0);
            a = wide_folded(a, all, wide_at(data));
            b = wide_folded(b, all, wide_at(data + WIDE));
            c = wide_folded(c, all, wide_at(data + 2 * WIDE));
            d = wide_folded(d, all, wide_at(data + 3 * WIDE));
        }
        d = wide_folded(wide_folded(wide_folded(a, one, b), one, c), one, d);
        for (; size >= WIDE; data += WIDE, size -= WIDE) d = wide_folded(d, one, wide_at(data));
        __m128i lanes[4];
        _mm512_storeu_si512((void *)lanes, d);
        for (int i = 1; i < 4; i++) {
            const __m128i low = _mm_clmulepi64_si128(lanes[i - 1], part, 0x00);
            const __m128i high = _mm_clmulepi64_si128(lanes[i - 1], part, 0x11);
            lanes[i] = _mm_xor_si128(_mm_xor_si128(low, high), lanes[i]);
        }
        crc = _mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(lanes[3])),
                            (uint64_t)_mm_extract_epi64(lanes[3], 1));
    }
    for (; size >= 8; size -= 8, data += 8) crc = _mm_crc32_u64(crc, word(data));
    for (; size > 0; size--) crc = _mm_crc32_u8((uint32_t)crc, *data++);
    return ~(uint32_t)crc;
}
#else
static void prepare_crc32c(void) {}

/* CRC-32C by three streams of equal length side by side: the instruction takes three cycles but starts every cycle.
 * Fetching 512 bytes ahead in each is worth a tenth where the data comes from memory, and costs nothing where not. */
static inline uint32_t crc32c(const uint8_t *data, int64_t size) {
    uint64_t crc = 0xffffffff;
    while (size >= 96) {
        int64_t words = size / 24 < MAX_STREAM_WORDS ? size / 24 : MAX_STREAM_WORDS;
        const uint8_t *first = data, *second = data + 8 * words, *third = data + 16 * words;
        uint64_t middle = 0, last = 0;
        for (int64_t i = 0; i < 8 * words;) {
            _mm_prefetch((const char *)first + i + PREFETCH_BYTES, _MM_HINT_T0);
            _mm_prefetch((const char *)second + i + PREFETCH_BYTES, _MM_HINT_T0);
            _mm_prefetch((const char *)third + i + PREFETCH_BYTES, _MM_HINT_T0);
            for (const int64_t line = i + 64 < 8 * words ? i + 64 : 8 * words; i < line; i += 8) {
                crc = _mm_crc32_u64(crc, word(first + i));
                middle = _mm_crc32_u64(middle, word(second + i));
                last = _mm_crc32_u64(last, word(third + i));
            }
        }
        crc = over_zeros(over_zeros(crc, words) ^ middle, words) ^ last;
        data += 24 * words;
        size -= 24 * words;
    }
    for (; size >= 8; size -= 8, data += 8) crc = _mm_crc32_u64(crc, word(data));
    for (; size > 0; size--) crc = _mm_crc32_u8((uint32_t)crc, *data++);
    return ~(uint32_t)crc;
}
#endif

/* One byte, then two, then the rest: the length of a field repeats from record to record, so these branches are
 * predicted and the address of the next field does not wait for the bytes of this one. */
static inline int64_t zigzag_varint(const uint8_t **cursor) {
    const uint8_t *at = *cursor;
    uint64_t raw = at[0];
    if (__builtin_expect(raw < 0x80, 1)) {
        *cursor = at + 1;
    } else if (__builtin_expect(at[1] < 0x80, 1)) {
        raw = (raw & 0x7f) | (uint64_t)at[1] << 7;
        *cursor = at + 2;
    } else {
        int shift = 0;
        raw = 0;
        do raw |= (uint64_t)(*at & 0x7f) << shift, shift += 7; while (*at++ & 0x80 && shift < 64);
        *cursor = at;
    }
    return (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
}

static inline void copy_by_words(uint8_t *to, const uint8_t *from, int64_t size) {
    for (int64_t i = 0; i < size; i += 32)
        _mm256_storeu_si256((__m256i *)(to + i), _mm256_loadu_si256((const __m256i *)(from + i)));
}

static inline void copy_short(uint8_t *to, const uint8_t *from, int64_t size) {
    for (int64_t i = 0; i < size; i += 16)
        _mm_storeu_si128((__m128i *)(to + i), _mm_loadu_si128((const __m128i *)(from + i)));
}

static inline void set_view(union view *view, const uint8_t *bytes, int64_t size, int64_t position) {
    if (size <= INLINE_BYTES) {
        __m128i kept = _mm_and_si128(_mm_loadu_si128((const __m128i *)(bytes - 4)), *(__m128i *)inline_mask[size]);
        view->whole = _mm_or_si128(kept, _mm_cvtsi32_si128((int32_t)size));
    } else {
        view->far.size = (int32_t)size;
        memcpy(&view->far.prefix, bytes, 4);
        view->far.buffer = 0;
        view->far.position = (int32_t)position;
    }
}

static inline __attribute__((always_inline)) int64_t
fill(struct cursor *cursor, const struct columns *to, int64_t column_bytes, int checked, int copied) {
    const uint8_t *const segment = cursor->segment;
    int64_t row = 0, key_bytes = 0, value_bytes = 0, start = cursor->position;
    to->key_end[0] = to->value_end[0] = 0;
    while (start + BATCH_OVERHEAD <= cursor->size && value_bytes <= column_bytes) {
        const uint8_t *batch = segment + start, *end = batch + LOG_OVERHEAD + big32(batch + 8);
        if (checked && crc32c(batch + CRC_FROM, end - batch - CRC_FROM) != big32(batch + CRC_AT)) return -1;
        const int64_t base_offset = big64(batch), base_timestamp_ms = big64(batch + BASE_TIMESTAMP_AT);
        const int64_t last_row = row + big32(batch + COUNT_AT);
        for (const uint8_t *next = batch + BATCH_OVERHEAD; row < last_row; row++) {
            const uint8_t *at = next;
            const int64_t size = zigzag_varint(&at);
            next = at + size;
            at++;
            const int64_t timestamp_delta = zigzag_varint(&at), offset_delta = zigzag_varint(&at);
            const int64_t key_size = zigzag_varint(&at);
            const uint8_t *key = at;
            at += key_size;
            const int64_t value_size = zigzag_varint(&at);
            const uint8_t *value = at;
            if (value + value_size + 1 != next || next > end) return -1;
            to->offset[row] = base_offset + offset_delta;
            to->timestamp_us[row] = (base_timestamp_ms + timestamp_delta) * 1000;
            if (copied) {
                copy_short(to->keys + key_bytes, key, key_size);
                copy_by_words(to->values + value_bytes, value, value_size);
                to->key_end[row + 1] = (int32_t)(key_bytes += key_size);
                to->value_end[row + 1] = (int32_t)(value_bytes += value_size);
            } else {
                set_view(&to->key_view[row], key, key_size, key - segment);
                set_view(&to->value_view[row], value, value_size, value - segment);
                value_bytes += 2 * (int64_t)sizeof(union view);
            }
        }
        start = end - segment;
    }
    cursor->position = start;
    return row;
}

int64_t limit_copied(struct cursor *cursor, const struct columns *to, int64_t column_bytes) {
    return fill(cursor, to, column_bytes, 1, 1);
}

int64_t limit_views(struct cursor *cursor, const struct columns *to, int64_t column_bytes) {
    return fill(cursor, to, column_bytes, 1, 0);
}

int64_t limit_views_unchecked(struct cursor *cursor, const struct columns *to, int64_t column_bytes) {
    return fill(cursor, to, column_bytes, 0, 0);
}

/* CRC of each whole batch from the cursor on; the number of bytes that were right. */
int64_t limit_crc(struct cursor *cursor) {
    int64_t right = 0;
    for (; cursor->position + BATCH_OVERHEAD <= cursor->size;) {
        const uint8_t *batch = cursor->segment + cursor->position;
        const int64_t size = LOG_OVERHEAD + big32(batch + 8);
        if (crc32c(batch + CRC_FROM, size - CRC_FROM) == big32(batch + CRC_AT)) right += size;
        cursor->position += size;
    }
    return right;
}

/* The same, and each batch written to a file by a call of its own; the bytes that were right and are written. What no
 * leader can append faster than: it has to check the records too.
 */
int64_t limit_append(struct cursor *cursor, int64_t descriptor) {
    const int64_t start = cursor->position;
    while (cursor->position + BATCH_OVERHEAD <= cursor->size) {
        const uint8_t *batch = cursor->segment + cursor->position;
        const int64_t size = LOG_OVERHEAD + big32(batch + 8);
        if (crc32c(batch + CRC_FROM, size - CRC_FROM) != big32(batch + CRC_AT)) break;
        if (write((int)descriptor, batch, (size_t)size) != size) break;
        cursor->position += size;
    }
    return cursor->position - start;
}

/* The CRCs alone from a file: preads of `chunk` bytes into one buffer, whose whole batches are taken before the next one. */
struct file {
    int64_t descriptor, size, position, chunk;
    uint8_t *buffer;               /* of chunk bytes, padded */
    struct cursor held;            /* the whole batches of the last pread */
};

/* Makes held the next batches; 0 at the end of the file or where not even one batch fits. */
static int refill(struct file *file) {
    const int64_t got = pread((int)file->descriptor, file->buffer, (size_t)file->chunk, file->position);
    int64_t whole = 0;
    while (whole + BATCH_OVERHEAD <= got) {
        const int64_t end = whole + LOG_OVERHEAD + big32(file->buffer + whole + 8);
        if (end > got) break;
        whole = end;
    }
    file->held = (struct cursor){file->buffer, whole, 0};
    file->position += whole;
    return whole > 0;
}

/* The CRC of each batch of a file; the number of bytes that were right. What no reader of the file can be faster than. */
int64_t limit_file_crc(struct file *file) {
    int64_t right = 0;
    while (file->position < file->size && refill(file)) right += limit_crc(&file->held);
    return right;
}

int64_t limit_file_copied(struct file *file, const struct columns *to, int64_t column_bytes) {
    return refill(file) ? fill(&file->held, to, column_bytes, 1, 1) : -1;
}

int64_t limit_file_views(struct file *file, const struct columns *to, int64_t column_bytes) {
    return refill(file) ? fill(&file->held, to, column_bytes, 1, 0) : -1;
}

uint32_t limit_crc32c(const uint8_t *data, int64_t size) { return crc32c(data, size); }

/* Plain messages of magic 1: CRC-32, which has no instruction, by folding with carry-less multiplication. */
enum { MESSAGE_CRC_AT = 12, MESSAGE_CRC_FROM = 16, MESSAGE_TIMESTAMP_AT = 18, MESSAGE_KEY_SIZE_AT = 26 };
enum { LANE = 16, LANES = 4, MESSAGES_AHEAD_BYTES = 4096 };
#define CRC32_POLYNOMIAL 0xedb88320u
static uint32_t crc32_table[8][256];
static uint64_t over_one[2], over_all[2];  /* what moves a lane over one lane, over all four */

void limit_prepare_messages(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t state = n;
        for (int bit = 0; bit < 8; bit++) state = state >> 1 ^ (state & 1 ? CRC32_POLYNOMIAL : 0);
        crc32_table[0][n] = state;
    }
    for (int row = 1; row < 8; row++)
        for (int n = 0; n < 256; n++)
            crc32_table[row][n] = crc32_table[0][crc32_table[row - 1][n] & 255] ^ crc32_table[row - 1][n] >> 8;
    over_one[0] = power_of(CRC32_POLYNOMIAL, 8 * LANE + 32), over_one[1] = power_of(CRC32_POLYNOMIAL, 8 * LANE - 32);
    over_all[0] = power_of(CRC32_POLYNOMIAL, 8 * LANE * LANES + 32), over_all[1] = power_of(CRC32_POLYNOMIAL, 8 * LANE * LANES - 32);
}

static inline uint32_t crc32_by_table(uint32_t state, const uint8_t *data, int64_t size) {
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t eight = word(data) ^ state;
        state = 0;
        for (int i = 0; i < 8; i++, eight >>= 8) state ^= crc32_table[7 - i][eight & 255];
    }
    for (; size > 0; size--) state = crc32_table[0][(state ^ *data++) & 255] ^ state >> 8;
    return state;
}

static inline __m128i folded(__m128i lane, const uint64_t *over, __m128i next) {
    const __m128i by = _mm_loadu_si128((const __m128i *)over);
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(lane, by, 0x00), _mm_clmulepi64_si128(lane, by, 0x11)), next);
}

static inline uint32_t crc32(const uint8_t *data, int64_t size) {
    uint32_t state = 0xffffffff;
    if (size >= LANE * LANES) {
        __m128i lanes[LANES];
        for (int i = 0; i < LANES; i++) lanes[i] = _mm_loadu_si128((const __m128i *)data + i);
        lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)state));
        for (data += LANE * LANES, size -= LANE * LANES; size >= LANE * LANES; data += LANE * LANES, size -= LANE * LANES) {
            _mm_prefetch((const char *)data + MESSAGES_AHEAD_BYTES, _MM_HINT_T0);
            for (int i = 0; i < LANES; i++) lanes[i] = folded(lanes[i], over_all, _mm_loadu_si128((const __m128i *)data + i));
        }
        for (int i = 1; i < LANES; i++) lanes[i] = folded(lanes[i - 1], over_one, lanes[i]);
        for (; size >= LANE; data += LANE, size -= LANE)
            lanes[LANES - 1] = folded(lanes[LANES - 1], over_one, _mm_loadu_si128((const __m128i *)data));
        uint8_t last[LANE];
        _mm_storeu_si128((__m128i *)last, lanes[LANES - 1]);
        state = crc32_by_table(0, last, LANE);
    }
    return ~crc32_by_table(state, data, size);
}

int64_t limit_messages(struct cursor *cursor, const struct columns *to, int64_t column_bytes) {
    int64_t row = 0, key_bytes = 0, value_bytes = 0, start = cursor->position;
    to->key_end[0] = to->value_end[0] = 0;
    for (; start + MESSAGE_KEY_SIZE_AT <= cursor->size && value_bytes <= column_bytes; row++) {
        const uint8_t *message = cursor->segment + start;
        const int64_t size = LOG_OVERHEAD + big32(message + 8);
        if (crc32(message + MESSAGE_CRC_FROM, size - MESSAGE_CRC_FROM) != big32(message + MESSAGE_CRC_AT)) return -1;
        const int64_t key_size = big32(message + MESSAGE_KEY_SIZE_AT);
        const uint8_t *key = message + MESSAGE_KEY_SIZE_AT + 4, *value = key + key_size + 4;
        const int64_t value_size = big32(value - 4);
        if (value + value_size != message + size) return -1;
        to->offset[row] = big64(message);
        to->timestamp_us[row] = big64(message + MESSAGE_TIMESTAMP_AT) * 1000;
        copy_short(to->keys + key_bytes, key, key_size);
        copy_by_words(to->values + value_bytes, value, value_size);
        to->key_end[row + 1] = (int32_t)(key_bytes += key_size);
        to->value_end[row + 1] = (int32_t)(value_bytes += value_size);
        start += size;
    }
    cursor->position = start;
    return row;
}

/* The way back: columns to V2 batches that the next record would take above batch_bytes, output used again. */
struct records {
    const int64_t *timestamp_ms;
    const int32_t *key_end, *value_end;
    const uint8_t *keys, *values;
    int64_t count, row;
};

static inline uint64_t zigzag(int64_t value) { return (uint64_t)value << 1 ^ (uint64_t)(value >> 63); }
static inline int varint_size(uint64_t code) { return (70 - __builtin_clzll(code | 1)) / 7; }
static inline void set_big32(uint8_t *at, uint32_t value) { value = __builtin_bswap32(value); memcpy(at, &value, 4); }
static inline void set_big64(uint8_t *at, uint64_t value) { value = __builtin_bswap64(value); memcpy(at, &value, 8); }

static inline uint8_t *set_varint(uint8_t *at, uint64_t code) {
    for (; __builtin_expect(code >= 0x80, 0); code >>= 7) *at++ = (uint8_t)(code | 0x80);
    *at = (uint8_t)code;
    return at + 1;
}

/* Batches from the row on, until out_bytes are reached; the number of bytes. `out` has room for one batch more. */
int64_t limit_encode(struct records *from, uint8_t *out, int64_t out_bytes, int64_t batch_bytes) {
    uint8_t *batch = out;
    int64_t row = from->row;
    while (row < from->count && batch - out < out_bytes) {
        const int64_t first = row, base_ms = from->timestamp_ms[row];
        int64_t max_ms = base_ms;
        uint8_t *at = batch + BATCH_OVERHEAD;
        for (; row < from->count; row++) {
            const int64_t key_size = from->key_end[row + 1] - from->key_end[row];
            const int64_t value_size = from->value_end[row + 1] - from->value_end[row], ms = from->timestamp_ms[row];
            const uint64_t time_code = zigzag(ms - base_ms), offset_code = zigzag(row - first);
            const int64_t size = 2 + varint_size(time_code) + varint_size(offset_code) + varint_size(zigzag(key_size)) +
                                 key_size + varint_size(zigzag(value_size)) + value_size;
            if (at - batch + varint_size(zigzag(size)) + size > batch_bytes && row > first) break;
            at = set_varint(at, zigzag(size));
            *at = 0;
            at = set_varint(set_varint(set_varint(at + 1, time_code), offset_code), zigzag(key_size));
            copy_short(at, from->keys + from->key_end[row], key_size);
            at = set_varint(at + key_size, zigzag(value_size));
            copy_by_words(at, from->values + from->value_end[row], value_size);
            at += value_size;
            *at++ = 0;
            max_ms = ms > max_ms ? ms : max_ms;
        }
        memset(batch, 0xff, BATCH_OVERHEAD);                    /* no leader epoch, no producer */
        set_big64(batch, (uint64_t)first);
        set_big32(batch + 8, (uint32_t)(at - batch - LOG_OVERHEAD));
        batch[16] = 2;
        memset(batch + CRC_FROM, 0, 2);
        set_big32(batch + 23, (uint32_t)(row - first - 1));
        set_big64(batch + BASE_TIMESTAMP_AT, (uint64_t)base_ms);
        set_big64(batch + 35, (uint64_t)max_ms);
        set_big32(batch + COUNT_AT, (uint32_t)(row - first));
        set_big32(batch + CRC_AT, crc32c(batch + CRC_FROM, at - batch - CRC_FROM));
        batch = at;
    }
    from->row = row;
    return batch - out;
}
