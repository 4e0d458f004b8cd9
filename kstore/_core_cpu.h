/* The only CPU-specific code of the core: CRC-32C, CRC-32, big-endian loads and stores, wide copies, classes of many
 * bytes at once, a spin lock. Each CRC is chosen at run time from what the CPU supports, down to a portable one; wheels
 * target the baseline CPU, of which the rest needs no more. */
#ifndef KSTORE_CORE_CPU_H
#define KSTORE_CORE_CPU_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sched.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define KS_X86 1
#include <immintrin.h>
#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))
#define KS_ARM 1
#include <arm_acle.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "kstore supports little-endian machines only"
#endif

static inline uint16_t ks_get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v); }
static inline uint32_t ks_get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
static inline uint64_t ks_get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }

static inline void ks_put16(uint8_t *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
static inline void ks_put32(uint8_t *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
static inline void ks_put64(uint8_t *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }

/* The size of a value as a varint, 7 bits per byte. */
static inline int ks_varint_size(uint64_t value) { return ((63 ^ __builtin_clzll(value | 1)) * 9 + 73) / 64; }

#if defined(__GNUC__) || defined(__clang__)
#define ks_prefetch(p) __builtin_prefetch(p)
#define KS_HAS_EFFECT() __asm__ volatile("")
#else
#define ks_prefetch(p) ((void)(p))
#define KS_HAS_EFFECT() ((void)0)
#endif

/* A spin lock for a few instructions, with or without the GIL: its holder must never block. */
typedef struct { char is_held; } ks_lock;

static inline void ks_acquire(ks_lock *lock) {
    while (__atomic_test_and_set(&lock->is_held, __ATOMIC_ACQUIRE))
        for (int tries = 0; __atomic_load_n(&lock->is_held, __ATOMIC_RELAXED); tries++)
            if (tries > 100) sched_yield();
}

static inline void ks_release(ks_lock *lock) { __atomic_clear(&lock->is_held, __ATOMIC_RELEASE); }

static inline uint16_t ks_get_le16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return v; }

/* The moves load everything before they store. A vector type, because compilers keep it in registers, unlike a byte
array. */
#if defined(__GNUC__) || defined(__clang__)
typedef uint8_t ks_vector __attribute__((vector_size(16)));
#else
typedef struct { uint64_t low, high; } ks_vector;
#endif

static inline void ks_move16(uint8_t *target, const uint8_t *source) {
    ks_vector v;
    memcpy(&v, source, 16);
    memcpy(target, &v, 16);
}

static inline void ks_move32(uint8_t *target, const uint8_t *source) {
    ks_vector low, high;
    memcpy(&low, source, 16);
    memcpy(&high, source + 16, 16);
    memcpy(target, &low, 16);
    memcpy(target + 16, &high, 16);
}

/* Requires: size >= 0, source readable up to readable_end, room for size rounded up to 32 at target.
 * Whole-word copies are faster than a call for small sizes; memcpy serves large ones and the end of the source. */
static inline void ks_copy(uint8_t *target, const uint8_t *source, int64_t size, const uint8_t *readable_end) {
    if (size <= 256 && readable_end - source >= size + 31) {
        for (int64_t done = 0; done < size; done += 32) memcpy(target + done, source + done, 32);
    } else if (size) {
        /* Hide the size: given a small upper bound, the compiler would expand memcpy to slow string instructions. */
        size_t hidden = (size_t)size;
        __asm__("" : "+r"(hidden));
        memcpy(target, source, hidden);
    }
}

/* Copies exactly size bytes; 4 to 16, the size of most keys, without a call. */
static inline void ks_copy_exactly(uint8_t *target, const uint8_t *source, int64_t size) {
    if (size > 16 || size < 4) {
        size_t hidden = (size_t)size;
        __asm__("" : "+r"(hidden));
        memcpy(target, source, hidden);
    } else if (size >= 8) {
        uint64_t first, last;
        memcpy(&first, source, 8);
        memcpy(&last, source + size - 8, 8);
        memcpy(target, &first, 8);
        memcpy(target + size - 8, &last, 8);
    } else {
        uint32_t first, last;
        memcpy(&first, source, 4);
        memcpy(&last, source + size - 4, 4);
        memcpy(target, &first, 4);
        memcpy(target + size - 4, &last, 4);
    }
}

/* Classes of bytes in the text of JSON, many bytes at once; of x86-64, all CPUs have the instructions. */
enum { KS_DIGIT_BITS = 32 };
#define KS_EACH_BYTE(byte) (0x0101010101010101u * (uint64_t)(byte))

/* Returns: a bit for each of eight bytes whose highest bit is set. */
static inline uint32_t ks_high_bits(uint64_t word) {
    return (uint32_t)(((word & KS_EACH_BYTE(0x80)) >> 7) * 0x0102040810204080u >> 56);
}

static inline uint32_t ks_digit_bits_portable(const uint8_t *p) {
    uint32_t bits = 0;
    for (int i = 0; i < KS_DIGIT_BITS; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, 8);
        word ^= KS_EACH_BYTE('0');
        word |= (word & KS_EACH_BYTE(0x7F)) + KS_EACH_BYTE(0x7F - 9);
        bits |= ks_high_bits(~word) << i;
    }
    return bits;
}

static inline const uint8_t *ks_text_stop_portable(const uint8_t *at, const uint8_t *readable_end) {
    for (; readable_end - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        uint64_t quotes = word ^ KS_EACH_BYTE('"'), slashes = word ^ KS_EACH_BYTE('\\');
        uint64_t stops = (quotes - KS_EACH_BYTE(1)) | (slashes - KS_EACH_BYTE(1)) | (word - KS_EACH_BYTE(0x20)) | word;
        stops &= KS_EACH_BYTE(0x80);
        if (stops) return at + (__builtin_ctzll(stops) >> 3);
    }
    return NULL;
}

/* Returns: what follows a byte where it is at p. By a branch, which the processor predicts: what is loaded from a sum
 * would wait for this byte. */
static inline const uint8_t *ks_after(const uint8_t *p, uint8_t byte) {
    if (*p != byte) return p;
    p++;
    __asm__("" : "+r"(p));
    return p;
}

/* Returns: which of the KS_DIGIT_BITS bytes at p are decimal digits, that of the first byte as the lowest bit. */
static inline uint32_t ks_digit_bits(const uint8_t *p) {
#if defined(KS_X86)
    const __m128i zero = _mm_set1_epi8('0'), most = _mm_set1_epi8(9);
    __m128i low = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)p), zero);
    __m128i high = _mm_sub_epi8(_mm_loadu_si128((const __m128i *)(p + 16)), zero);
    uint32_t bits = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(low, most), low));
    return bits | (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(high, most), high)) << 16;
#else
    return ks_digit_bits_portable(p);
#endif
}

/* Returns: the first byte from `at` on that is a quote, a backslash, a control character or none of ASCII; NULL if there
 * is none before the last bytes, fewer than 16, in front of readable_end. */
static inline const uint8_t *ks_text_stop(const uint8_t *at, const uint8_t *readable_end) {
#if defined(KS_X86)
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1F);
    for (; readable_end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        __m128i stops = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, slash));
        stops = _mm_or_si128(stops, _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes));
        int bits = _mm_movemask_epi8(_mm_or_si128(stops, bytes));
        if (bits) return at + __builtin_ctz((unsigned)bits);
    }
    return NULL;
#else
    return ks_text_stop_portable(at, readable_end);
#endif
}

/* Whether 16 bytes have these bits among those of a mask. Requires: mask and bits at multiples of 16. */
static inline int ks_has_bits_portable(const uint8_t *at, const uint64_t *mask, const uint64_t *bits) {
    uint64_t word[2];
    memcpy(word, at, 16);
    return (((word[0] & mask[0]) ^ bits[0]) | ((word[1] & mask[1]) ^ bits[1])) == 0;
}

static inline int ks_has_bits(const uint8_t *at, const uint64_t *mask, const uint64_t *bits) {
#if defined(KS_X86)
    __m128i found = _mm_and_si128(_mm_loadu_si128((const __m128i *)at), _mm_load_si128((const __m128i *)mask));
    return _mm_movemask_epi8(_mm_cmpeq_epi8(found, _mm_load_si128((const __m128i *)bits))) == 0xFFFF;
#else
    return ks_has_bits_portable(at, mask, bits);
#endif
}

/* Copies 16 bytes, of which the first `size` are a text. Returns: whether that is ASCII. Requires: 0 <= size <= 16. */
static inline int ks_copy_short_text_portable(uint8_t *to, const uint8_t *p, int64_t size) {
    static const uint64_t all = KS_EACH_BYTE(0x80);
    uint64_t word[2];
    memcpy(word, p, 16);
    memcpy(to, word, 16);
    word[0] = size >= 8 ? word[0] : word[0] & ~(~UINT64_C(0) << 8 * size);
    word[1] = size <= 8 ? 0 : word[1] & ~(~UINT64_C(0) << 4 * (size - 8) << 4 * (size - 8));
    return ((word[0] | word[1]) & all) == 0;
}

static inline int ks_copy_short_text(uint8_t *to, const uint8_t *p, int64_t size) {
#if defined(KS_X86)
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    _mm_storeu_si128((__m128i *)to, bytes);
    return ((uint32_t)_mm_movemask_epi8(bytes) & ~(~UINT32_C(0) << size)) == 0;
#else
    return ks_copy_short_text_portable(to, p, size);
#endif
}

enum { KS_CACHE_LINE = 64, KS_AHEAD = 512, KS_LONG_STREAM = 4096, KS_SHORT_STREAM = 256 };

/* Prefetches bytes, which need not be readable. GCC takes a function that only prefetches for one without effect, and
   drops the calls of it; the empty asm statement is an effect. */
static inline void ks_prefetch_all(const uint8_t *p, int64_t size) {
    KS_HAS_EFFECT();
    for (int64_t at = 0; at < size; at += KS_CACHE_LINE) ks_prefetch(p + at);
}

#define KS_CRC32C_POLYNOMIAL 0x82f63b78u
#define KS_CRC32_POLYNOMIAL 0xedb88320u

static uint32_t ks_crc_table[8][256], ks_crc32_table[8][256];
static uint32_t ks_join_long[4][256], ks_join_short[4][256];

static inline uint32_t ks_crc_by_table(uint32_t table[8][256], uint32_t state, const uint8_t *p, size_t n) {
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        word ^= state;
        state = 0;
        for (int i = 0; i < 8; i++, word >>= 8) state ^= table[7 - i][word & 255];
    }
    while (n--) state = table[0][(state ^ *p++) & 255] ^ (state >> 8);
    return state;
}

static uint32_t ks_crc32c_portable(uint32_t state, const uint8_t *p, size_t n, const uint8_t *ahead) {
    (void)ahead;
    return ks_crc_by_table(ks_crc_table, state, p, n);
}

static uint32_t ks_crc32_portable(uint32_t state, const uint8_t *p, size_t n, const uint8_t *ahead) {
    (void)ahead;
    return ks_crc_by_table(ks_crc32_table, state, p, n);
}

/* The effect of `size` zero bytes on a CRC state is linear, so 32 basis vectors give the whole table. */
static void ks_make_join(uint32_t table[4][256], size_t size) {
    uint32_t basis[32];
    for (int bit = 0; bit < 32; bit++) {
        uint32_t state = 1u << bit;
        for (size_t i = 0; i < size; i++) state = ks_crc_table[0][state & 255] ^ (state >> 8);
        basis[bit] = state;
    }
    for (int byte = 0; byte < 4; byte++)
        for (int value = 0; value < 256; value++) {
            uint32_t sum = 0;
            for (int bit = 0; bit < 8; bit++) if (value >> bit & 1) sum ^= basis[8 * byte + bit];
            table[byte][value] = sum;
        }
}

static inline uint32_t ks_join(uint32_t table[4][256], uint32_t state) {
    return table[0][state & 255] ^ table[1][state >> 8 & 255] ^ table[2][state >> 16 & 255] ^ table[3][state >> 24];
}

/* The CRC instruction has a latency of three cycles and a throughput of one, so three streams run side by side. */
#define KS_THREE_STREAMS(STEP8, STEP1)                                                                      \
    uint64_t c0 = state;                                                                                    \
    for (int pass = 0; pass < 2; pass++) {                                                                  \
        const size_t stream = pass ? KS_SHORT_STREAM : KS_LONG_STREAM;                                      \
        for (; n >= 3 * stream; n -= 3 * stream, p += 2 * stream) {                                         \
            uint64_t c1 = 0, c2 = 0, w0, w1, w2;                                                            \
            for (const uint8_t *end = p + stream; p < end; p += 8) {                                        \
                memcpy(&w0, p, 8);                                                                          \
                memcpy(&w1, p + stream, 8);                                                                 \
                memcpy(&w2, p + 2 * stream, 8);                                                             \
                c0 = STEP8((uint32_t)c0, w0);                                                               \
                c1 = STEP8((uint32_t)c1, w1);                                                               \
                c2 = STEP8((uint32_t)c2, w2);                                                               \
            }                                                                                               \
            c0 = ks_join(pass ? ks_join_short : ks_join_long, (uint32_t)c0) ^ c1;                           \
            c0 = ks_join(pass ? ks_join_short : ks_join_long, (uint32_t)c0) ^ c2;                           \
        }                                                                                                   \
    }                                                                                                       \
    for (uint64_t w; n >= 8; n -= 8, p += 8) { memcpy(&w, p, 8); c0 = STEP8((uint32_t)c0, w); }             \
    for (; n; n--) c0 = STEP1((uint32_t)c0, *p++);                                                          \
    return (uint32_t)c0;

#if defined(KS_X86)
__attribute__((target("sse4.2"))) static uint32_t ks_crc32c_sse42(uint32_t state, const uint8_t *p, size_t n, const uint8_t *ahead) {
    (void)ahead;
    KS_THREE_STREAMS(_mm_crc32_u64, _mm_crc32_u8)
}

/* Streams as long as the data allows, joined by one carry-less multiplication: moving a state over w words of zeros
 * multiplies it by x^(64 w), and CRC32(0, a * b) is a * b * x^33 in this bit order, hence the constants x^(64 w - 33).
 */
enum { KS_MOST_WORDS = 4096, KS_LEAST_STREAMED = 96 };
static uint32_t ks_zeros_power[KS_MOST_WORDS + 1];

__attribute__((target("sse4.2"))) static void ks_make_zeros_power(void) {
    ks_zeros_power[1] = 1;
    for (int words = 1; words < KS_MOST_WORDS; words++)
        ks_zeros_power[words + 1] = (uint32_t)_mm_crc32_u64(0, ks_zeros_power[words]);
}

__attribute__((target("sse4.2,pclmul"))) static inline uint64_t ks_over_zeros(uint64_t state, size_t words) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)state), _mm_cvtsi32_si128((int)ks_zeros_power[words]), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t ks_crc32c_pclmul(uint32_t state, const uint8_t *p, size_t n, const uint8_t *ahead) {
    uint64_t c0 = state, w0, w1, w2;
    while (n >= KS_LEAST_STREAMED) {
        size_t words = n / 24 < KS_MOST_WORDS ? n / 24 : KS_MOST_WORDS, stream = 8 * words;
        uint64_t c1 = 0, c2 = 0;
        for (size_t word = 0; word < words; word++, p += 8) {
            if (!(word & 7)) {
                ks_prefetch(ahead);
                ks_prefetch(ahead + stream);
                ks_prefetch(ahead + 2 * stream);
                ahead += KS_CACHE_LINE;
            }
            memcpy(&w0, p, 8);
            memcpy(&w1, p + stream, 8);
            memcpy(&w2, p + 2 * stream, 8);
            c0 = _mm_crc32_u64(c0, w0);
            c1 = _mm_crc32_u64(c1, w1);
            c2 = _mm_crc32_u64(c2, w2);
        }
        c0 = ks_over_zeros(ks_over_zeros(c0, words) ^ c1, words) ^ c2;
        p += 2 * stream;
        ahead += 2 * stream;
        n -= 3 * stream;
    }
    for (; n >= 8; n -= 8, p += 8) { memcpy(&w0, p, 8); c0 = _mm_crc32_u64(c0, w0); }
    for (; n; n--) c0 = _mm_crc32_u8((uint32_t)c0, *p++);
    return (uint32_t)c0;
}

/* Folding: a lane of 16 bytes moves over d bits when its halves are multiplied by x^(d + 32) and x^(d - 32). Several
 * lanes at a time fold into the next ones, and at the end into one lane that has the CRC of all bytes before. CRC-32
 * has no instruction on x86 and needs this; CRC-32C is faster this way where four lanes fold at once. */
enum { KS_LANE = 16, KS_MOST_LANES = 16, KS_WIDE_LANES = 4, KS_LEAST_FOLDED = 64, KS_LEAST_FOLDED_WIDE = 256 };
/* The factors of a polynomial that move a lane over n lanes. */
typedef struct { uint64_t over[KS_MOST_LANES + 1][2]; } ks_powers;
static ks_powers ks_crc32_powers, ks_crc32c_powers;
/* Indexes for pshufb: those at KS_LANE + n move a lane n bytes down, those at n move it 16 - n bytes up. */
static uint8_t ks_lane_moves[3 * KS_LANE];

/* Returns: x^n modulo the polynomial, bit-reversed and shifted left by one, as clmul needs it. */
static uint64_t ks_power(uint32_t polynomial, int n) {
    uint32_t power = 1u << 31;
    while (n--) power = power >> 1 ^ (power & 1 ? polynomial : 0);
    return (uint64_t)power << 1;
}

static void ks_make_powers(ks_powers *powers, uint32_t polynomial) {
    for (int lanes = 1; lanes <= KS_MOST_LANES; lanes++) {
        powers->over[lanes][0] = ks_power(polynomial, 8 * lanes * KS_LANE + 32);
        powers->over[lanes][1] = ks_power(polynomial, 8 * lanes * KS_LANE - 32);
    }
}

static void ks_make_lane_moves(void) {
    memset(ks_lane_moves, 0x80, sizeof ks_lane_moves);
    for (int i = 0; i < KS_LANE; i++) ks_lane_moves[KS_LANE + i] = (uint8_t)i;
}

#define KS_NARROW __attribute__((target("sse4.2,pclmul")))
#define KS_WIDE __attribute__((target("sse4.2,pclmul,avx512f,avx512vl,vpclmulqdq")))

KS_NARROW static inline __m128i ks_over(const ks_powers *powers, int lanes) {
    return _mm_loadu_si128((const __m128i *)powers->over[lanes]);
}

KS_NARROW static inline __m128i ks_fold(__m128i lane, __m128i power, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(lane, power, 0x00), high = _mm_clmulepi64_si128(lane, power, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Returns: the lane of `lane` and the n bytes that end at `end`. Requires: 0 < n < 16 <= end - start. */
KS_NARROW static inline __m128i ks_fold_tail(__m128i lane, const uint8_t *end, size_t n, const ks_powers *powers) {
    __m128i up = _mm_loadu_si128((const __m128i *)(ks_lane_moves + n));
    __m128i down = _mm_loadu_si128((const __m128i *)(ks_lane_moves + KS_LANE + n));
    __m128i tail = _mm_loadu_si128((const __m128i *)(end - KS_LANE));
    __m128i rest = _mm_blendv_epi8(_mm_shuffle_epi8(lane, down), tail, down);
    return ks_fold(_mm_shuffle_epi8(lane, up), ks_over(powers, 1), rest);
}

/* Returns: the lane of lanes[0] to lanes[3] followed by the n bytes at p. */
KS_NARROW static inline __m128i ks_fold_rest(const __m128i lanes[4], const uint8_t *p, size_t n, const ks_powers *powers) {
    __m128i last = ks_fold(lanes[1], ks_over(powers, 2), ks_fold(lanes[0], ks_over(powers, 3), lanes[3]));
    last = ks_fold(lanes[2], ks_over(powers, 1), last);
    for (; n >= KS_LANE; p += KS_LANE, n -= KS_LANE)
        last = ks_fold(last, ks_over(powers, 1), _mm_loadu_si128((const __m128i *)p));
    return n ? ks_fold_tail(last, p + n, n, powers) : last;
}

KS_NARROW static inline uint32_t ks_crc32_of_lane(__m128i lane) {
    uint8_t folded[KS_LANE];
    _mm_storeu_si128((__m128i *)folded, lane);
    return ks_crc_by_table(ks_crc32_table, 0, folded, KS_LANE);
}

KS_NARROW static uint32_t ks_crc32_pclmul(uint32_t state, const uint8_t *p, size_t n, const uint8_t *ahead) {
    if (n < KS_LEAST_FOLDED) return ks_crc32_portable(state, p, n, ahead);
    const ks_powers *powers = &ks_crc32_powers;
    const __m128i over = ks_over(powers, 4);
    const __m128i *at = (const __m128i *)p;
    __m128i lanes[4];
    for (int i = 0; i < 4; i++) lanes[i] = _mm_loadu_si128(at + i);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)state));
    for (at += 4, n -= 4 * KS_LANE; n >= 4 * KS_LANE; at += 4, n -= 4 * KS_LANE, ahead += KS_CACHE_LINE) {
        ks_prefetch(ahead);
        for (int i = 0; i < 4; i++) lanes[i] = ks_fold(lanes[i], over, _mm_loadu_si128(at + i));
    }
    return ks_crc32_of_lane(ks_fold_rest(lanes, (const uint8_t *)at, n, powers));
}

KS_WIDE static inline __m512i ks_over_wide(const ks_powers *powers, int lanes) {
    return _mm512_broadcast_i32x4(ks_over(powers, lanes));
}

KS_WIDE static inline __m512i ks_fold_wide(__m512i lanes, __m512i power, __m512i next) {
    __m512i low = _mm512_clmulepi64_epi128(lanes, power, 0x00), high = _mm512_clmulepi64_epi128(lanes, power, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96);   /* all three by xor */
}

static inline void ks_prefetch_four(const uint8_t **ahead) {
    for (size_t i = 0; i < 4; i++) ks_prefetch(*ahead + i * KS_CACHE_LINE);
    *ahead += 4 * KS_CACHE_LINE;
}

/* Returns: the lane of the state and the n bytes at p. Requires: n >= KS_LEAST_FOLDED_WIDE. */
KS_WIDE static inline __m128i ks_fold_all(uint32_t state, const uint8_t *p, size_t n, const uint8_t *ahead, const ks_powers *powers) {
    const __m512i over = ks_over_wide(powers, 4 * KS_WIDE_LANES), over_one = ks_over_wide(powers, KS_WIDE_LANES);
    __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128);
    __m512i d = _mm512_loadu_si512(p + 192);
    __m128i lanes[4];
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state)));
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        ks_prefetch_four(&ahead);
        a = ks_fold_wide(a, over, _mm512_loadu_si512(p));
        b = ks_fold_wide(b, over, _mm512_loadu_si512(p + 64));
        c = ks_fold_wide(c, over, _mm512_loadu_si512(p + 128));
        d = ks_fold_wide(d, over, _mm512_loadu_si512(p + 192));
    }
    d = ks_fold_wide(b, ks_over_wide(powers, 2 * KS_WIDE_LANES), ks_fold_wide(a, ks_over_wide(powers, 3 * KS_WIDE_LANES), d));
    d = ks_fold_wide(c, over_one, d);
    ks_prefetch_four(&ahead);
    for (; n >= 64; p += 64, n -= 64) d = ks_fold_wide(d, over_one, _mm512_loadu_si512(p));
    lanes[0] = _mm512_castsi512_si128(d);
    lanes[1] = _mm512_extracti32x4_epi32(d, 1);
    lanes[2] = _mm512_extracti32x4_epi32(d, 2);
    lanes[3] = _mm512_extracti32x4_epi32(d, 3);
    return ks_fold_rest(lanes, p, n, powers);
}

KS_WIDE static uint32_t ks_crc32_vpclmul(uint32_t state, const uint8_t *p, size_t n, const uint8_t *ahead) {
    if (n < KS_LEAST_FOLDED_WIDE) return ks_crc32_pclmul(state, p, n, ahead);
    return ks_crc32_of_lane(ks_fold_all(state, p, n, ahead, &ks_crc32_powers));
}

KS_WIDE static uint32_t ks_crc32c_vpclmul(uint32_t state, const uint8_t *p, size_t n, const uint8_t *ahead) {
    if (n < KS_LEAST_FOLDED_WIDE) return ks_crc32c_pclmul(state, p, n, ahead);
    __m128i lane = ks_fold_all(state, p, n, ahead, &ks_crc32c_powers);
    uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(lane));
    return (uint32_t)_mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(lane, 1));
}
#elif defined(KS_ARM)
#if defined(__clang__)
#define KS_ARM_TARGET __attribute__((target("crc")))
#else
#define KS_ARM_TARGET __attribute__((target("+crc")))
#endif
KS_ARM_TARGET static uint32_t ks_crc32c_arm(uint32_t state, const uint8_t *p, size_t n, const uint8_t *ahead) {
    (void)ahead;
    KS_THREE_STREAMS(__crc32cd, __crc32cb)
}

KS_ARM_TARGET static uint32_t ks_crc32_arm(uint32_t state, const uint8_t *p, size_t n, const uint8_t *ahead) {
    (void)ahead;
    for (uint64_t w; n >= 8; n -= 8, p += 8) { memcpy(&w, p, 8); state = __crc32d(state, w); }
    for (; n; n--) state = __crc32b(state, *p++);
    return state;
}
#endif

/* Paths that can prefetch also prefetch the n bytes from `ahead` on, which may be any address. */
typedef uint32_t (*ks_crc_path)(uint32_t state, const uint8_t *p, size_t n, const uint8_t *ahead);
typedef struct { const char *name; ks_crc_path path; } ks_named_path;

/* The paths that this CPU supports, fastest first; the last one is portable. */
static ks_named_path ks_crc32c_paths[4], ks_crc32_paths[4];
static int ks_crc32c_path_count = 0, ks_crc32_path_count = 0;

static void ks_add_crc32c(const char *name, ks_crc_path path) {
    ks_crc32c_paths[ks_crc32c_path_count].name = name;
    ks_crc32c_paths[ks_crc32c_path_count++].path = path;
}

static void ks_add_crc32(const char *name, ks_crc_path path) {
    ks_crc32_paths[ks_crc32_path_count].name = name;
    ks_crc32_paths[ks_crc32_path_count++].path = path;
}

static void ks_find_paths(void) {
#if defined(KS_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2")) {
        ks_make_zeros_power();
        if (__builtin_cpu_supports("pclmul")) {
            ks_make_powers(&ks_crc32_powers, KS_CRC32_POLYNOMIAL);
            ks_make_powers(&ks_crc32c_powers, KS_CRC32C_POLYNOMIAL);
            ks_make_lane_moves();
            if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq")) {
                ks_add_crc32c("vpclmulqdq", ks_crc32c_vpclmul);
                ks_add_crc32("vpclmulqdq", ks_crc32_vpclmul);
            }
            ks_add_crc32c("sse4.2+pclmul", ks_crc32c_pclmul);
            ks_add_crc32("pclmul", ks_crc32_pclmul);
        }
        ks_add_crc32c("sse4.2", ks_crc32c_sse42);
    }
#elif defined(KS_ARM) && defined(__linux__)
    if (getauxval(AT_HWCAP) & (1u << 7)) {
        ks_add_crc32c("armv8-crc", ks_crc32c_arm);
        ks_add_crc32("armv8-crc", ks_crc32_arm);
    }
#elif defined(KS_ARM) && defined(__APPLE__)
    ks_add_crc32c("armv8-crc", ks_crc32c_arm);
    ks_add_crc32("armv8-crc", ks_crc32_arm);
#endif
    ks_add_crc32c("portable", ks_crc32c_portable);
    ks_add_crc32("portable", ks_crc32_portable);
}

static void ks_make_table(uint32_t table[8][256], uint32_t polynomial) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t state = n;
        for (int bit = 0; bit < 8; bit++) state = state >> 1 ^ (state & 1 ? polynomial : 0);
        table[0][n] = state;
    }
    for (int row = 1; row < 8; row++)
        for (int n = 0; n < 256; n++) {
            uint32_t before = table[row - 1][n];
            table[row][n] = table[0][before & 255] ^ (before >> 8);
        }
}

static void ks_cpu_init(void) {
    ks_make_table(ks_crc_table, KS_CRC32C_POLYNOMIAL);
    ks_make_table(ks_crc32_table, KS_CRC32_POLYNOMIAL);
    ks_make_join(ks_join_long, KS_LONG_STREAM);
    ks_make_join(ks_join_short, KS_SHORT_STREAM);
    ks_crc32c_path_count = ks_crc32_path_count = 0;
    ks_find_paths();
}

static inline uint32_t ks_crc_by(const ks_named_path *paths, int path, uint32_t value, const uint8_t *p, size_t n) {
    return ~paths[path].path(~value, p, n, p + KS_AHEAD);
}

static inline uint32_t ks_crc32c_by(int path, uint32_t value, const uint8_t *p, size_t n) {
    return ks_crc_by(ks_crc32c_paths, path, value, p, n);
}

static inline uint32_t ks_crc32_by(int path, uint32_t value, const uint8_t *p, size_t n) {
    return ks_crc_by(ks_crc32_paths, path, value, p, n);
}

/* The CRC by the fastest path, which prefetches the n bytes at `ahead`; these need not be readable. */
static inline uint32_t ks_crc32c_before(const uint8_t *p, size_t n, const uint8_t *ahead) {
    return ~ks_crc32c_paths[0].path(~0u, p, n, ahead);
}

static inline uint32_t ks_crc32_before(const uint8_t *p, size_t n, const uint8_t *ahead) {
    return ~ks_crc32_paths[0].path(~0u, p, n, ahead);
}

#endif
