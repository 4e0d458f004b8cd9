/* The only code that depends on the CPU: CRC-32C, CRC-32, big-endian loads and stores, wide copies.
 * Each fast path is chosen at run time and has a portable one beside it; wheels target the baseline CPU. */
#ifndef KSTORE_CORE_CPU_H
#define KSTORE_CORE_CPU_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* Bytes of a value in groups of 7 bits: one for each group, one for 0. */
static inline int ks_varint_size(uint64_t value) { return (70 - __builtin_clzll(value | 1)) / 7; }

#if defined(__GNUC__) || defined(__clang__)
#define ks_prefetch(p) __builtin_prefetch(p)
#else
#define ks_prefetch(p) ((void)(p))
#endif

/* Requires: size >= 0, source readable up to readable_end, room for size rounded up to 32 at target.
 * Short copies by whole words beat a call; near the end of the source and for long ones memcpy is right. */
static inline void ks_copy(uint8_t *target, const uint8_t *source, int64_t size, const uint8_t *readable_end) {
    if (size <= 256 && readable_end - source >= size + 31) {
        for (int64_t done = 0; done < size; done += 32) memcpy(target + done, source + done, 32);
    } else {
        /* Where the compiler knows a small upper bound it would expand memcpy to slow string instructions. */
        size_t hidden = (size_t)size;
        __asm__("" : "+r"(hidden));
        memcpy(target, source, hidden);
    }
}

enum { KS_LONG_STREAM = 4096, KS_SHORT_STREAM = 256 };
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

static uint32_t ks_crc32c_portable(uint32_t state, const uint8_t *p, size_t n) {
    return ks_crc_by_table(ks_crc_table, state, p, n);
}

static uint32_t ks_crc32_portable(uint32_t state, const uint8_t *p, size_t n) {
    return ks_crc_by_table(ks_crc32_table, state, p, n);
}

/* What `size` zero bytes do to a CRC state is linear: 32 basis vectors give the whole table. */
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

/* The CRC instruction takes three cycles but one can start each cycle: three streams side by side, joined by table. */
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
__attribute__((target("sse4.2"))) static uint32_t ks_crc32c_sse42(uint32_t state, const uint8_t *p, size_t n) {
    KS_THREE_STREAMS(_mm_crc32_u64, _mm_crc32_u8)
}

/* Streams as long as the data allows, joined by one carry-less multiplication: moving a state over w words of zeros
 * multiplies it by x^(64 w), and CRC32(0, a * b) is a * b * x^33 in this bit order, hence the constants x^(64 w - 33). */
enum { KS_AHEAD = 512, KS_MOST_WORDS = 4096, KS_LEAST_STREAMED = 96 };
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

__attribute__((target("sse4.2,pclmul"))) static uint32_t ks_crc32c_pclmul(uint32_t state, const uint8_t *p, size_t n) {
    uint64_t c0 = state, w0, w1, w2;
    while (n >= KS_LEAST_STREAMED) {
        size_t words = n / 24 < KS_MOST_WORDS ? n / 24 : KS_MOST_WORDS, stream = 8 * words;
        uint64_t c1 = 0, c2 = 0;
        for (size_t word = 0; word < words; word++, p += 8) {
            if (!(word & 7)) {
                _mm_prefetch((const char *)p + KS_AHEAD, _MM_HINT_T0);
                _mm_prefetch((const char *)p + stream + KS_AHEAD, _MM_HINT_T0);
                _mm_prefetch((const char *)p + 2 * stream + KS_AHEAD, _MM_HINT_T0);
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
        n -= 3 * stream;
    }
    for (; n >= 8; n -= 8, p += 8) { memcpy(&w0, p, 8); c0 = _mm_crc32_u64(c0, w0); }
    for (; n; n--) c0 = _mm_crc32_u8((uint32_t)c0, *p++);
    return (uint32_t)c0;
}

/* CRC-32 has no instruction: 16 bytes move over d bits by multiplying their halves with x^(d + 32) and x^(d - 32), so
 * that four lanes fold into the next four and at last into one, whose 16 bytes stand for all before them. */
enum { KS_LANES = 4, KS_LANE = 16, KS_LEAST_FOLDED = 64 };
static uint64_t ks_over_lanes[2], ks_over_three[2], ks_over_two[2], ks_over_lane[2];
/* Indexes for pshufb: loaded from KS_LANE + n on they move a lane n bytes down, from n on 16 - n bytes up. */
static uint8_t ks_lane_moves[3 * KS_LANE];

/* Requires: n > 0. Returns: x^n modulo the polynomial, its bits reversed and moved up by the one that clmul leaves out. */
static uint64_t ks_crc32_power(int n) {
    uint32_t power = 1u << 31;
    while (n--) power = power >> 1 ^ (power & 1 ? KS_CRC32_POLYNOMIAL : 0);
    return (uint64_t)power << 1;
}

static void ks_make_crc32_power_pair(uint64_t powers[2], int lanes) {
    powers[0] = ks_crc32_power(8 * lanes * KS_LANE + 32);
    powers[1] = ks_crc32_power(8 * lanes * KS_LANE - 32);
}

static void ks_make_crc32_powers(void) {
    ks_make_crc32_power_pair(ks_over_lanes, KS_LANES);
    ks_make_crc32_power_pair(ks_over_three, 3);
    ks_make_crc32_power_pair(ks_over_two, 2);
    ks_make_crc32_power_pair(ks_over_lane, 1);
    memset(ks_lane_moves, 0x80, sizeof ks_lane_moves);
    for (int i = 0; i < KS_LANE; i++) ks_lane_moves[KS_LANE + i] = (uint8_t)i;
}

__attribute__((target("sse4.2,pclmul"))) static inline __m128i ks_fold(__m128i lane, __m128i powers, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(lane, powers, 0x00), high = _mm_clmulepi64_si128(lane, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Returns: the lane that stands for `lane` and the n bytes that end at `end`. Requires: 0 < n < 16 <= end - start. */
__attribute__((target("sse4.2,pclmul"))) static inline __m128i ks_fold_tail(__m128i lane, const uint8_t *end, size_t n) {
    __m128i up = _mm_loadu_si128((const __m128i *)(ks_lane_moves + n));
    __m128i down = _mm_loadu_si128((const __m128i *)(ks_lane_moves + KS_LANE + n));
    __m128i tail = _mm_loadu_si128((const __m128i *)(end - KS_LANE));
    __m128i rest = _mm_blendv_epi8(_mm_shuffle_epi8(lane, down), tail, down);
    return ks_fold(_mm_shuffle_epi8(lane, up), _mm_loadu_si128((const __m128i *)ks_over_lane), rest);
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t ks_crc32_pclmul(uint32_t state, const uint8_t *p, size_t n) {
    if (n < KS_LEAST_FOLDED) return ks_crc32_portable(state, p, n);
    const __m128i *at = (const __m128i *)p;
    __m128i powers = _mm_loadu_si128((const __m128i *)ks_over_lanes);
    __m128i a = _mm_xor_si128(_mm_loadu_si128(at), _mm_cvtsi32_si128((int)state));
    __m128i b = _mm_loadu_si128(at + 1), c = _mm_loadu_si128(at + 2), d = _mm_loadu_si128(at + 3);
    uint8_t folded[KS_LANE];
    for (at += KS_LANES, n -= KS_LANES * KS_LANE; n >= KS_LANES * KS_LANE; at += KS_LANES, n -= KS_LANES * KS_LANE) {
        a = ks_fold(a, powers, _mm_loadu_si128(at));
        b = ks_fold(b, powers, _mm_loadu_si128(at + 1));
        c = ks_fold(c, powers, _mm_loadu_si128(at + 2));
        d = ks_fold(d, powers, _mm_loadu_si128(at + 3));
    }
    powers = _mm_loadu_si128((const __m128i *)ks_over_lane);
    d = ks_fold(a, _mm_loadu_si128((const __m128i *)ks_over_three), d);
    c = ks_fold(c, powers, ks_fold(b, _mm_loadu_si128((const __m128i *)ks_over_two), d));
    for (a = c; n >= KS_LANE; at++, n -= KS_LANE) a = ks_fold(a, powers, _mm_loadu_si128(at));
    if (n) a = ks_fold_tail(a, (const uint8_t *)at + n, n);
    _mm_storeu_si128((__m128i *)folded, a);
    return ks_crc_by_table(ks_crc32_table, 0, folded, KS_LANE);
}
#elif defined(KS_ARM)
#if defined(__clang__)
#define KS_ARM_TARGET __attribute__((target("crc")))
#else
#define KS_ARM_TARGET __attribute__((target("+crc")))
#endif
KS_ARM_TARGET static uint32_t ks_crc32c_arm(uint32_t state, const uint8_t *p, size_t n) {
    KS_THREE_STREAMS(__crc32cd, __crc32cb)
}

KS_ARM_TARGET static uint32_t ks_crc32_arm(uint32_t state, const uint8_t *p, size_t n) {
    for (uint64_t w; n >= 8; n -= 8, p += 8) { memcpy(&w, p, 8); state = __crc32d(state, w); }
    for (; n; n--) state = __crc32b(state, *p++);
    return state;
}
#endif

typedef uint32_t (*ks_crc_path)(uint32_t, const uint8_t *, size_t);
typedef struct { const char *name; ks_crc_path path; } ks_named_path;

/* The paths that this CPU can take, best first; the last one is portable. */
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
            ks_make_crc32_powers();
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
    return ~paths[path].path(~value, p, n);
}

static inline uint32_t ks_crc32c_by(int path, uint32_t value, const uint8_t *p, size_t n) {
    return ks_crc_by(ks_crc32c_paths, path, value, p, n);
}

static inline uint32_t ks_crc32_by(int path, uint32_t value, const uint8_t *p, size_t n) {
    return ks_crc_by(ks_crc32_paths, path, value, p, n);
}

#endif
