/* What one core can do with the Avro values of bench_values.py when nothing has to be safe: the ceiling that kstore's
 * decoder is held against. It is written for the one schema, trusts every length, and is given columns that are large
 * enough; a copy may read and write up to 31 bytes past the end.
 *
 *   cc -O3 -march=native -shared -fPIC -o avro.so avro.c
 */
#include <stdint.h>
#include <string.h>

enum { FRAME_BYTES = 5, WIDE = 32 };

struct text { int32_t *ends; uint8_t *bytes; };
struct rides {
    int64_t *id, *departed;
    int32_t *delay;
    double *distance;
    uint8_t *has_delay, *is_late;      /* bits */
    struct text carrier, origin, note;
};

static inline uint64_t varint(const uint8_t **at) {
    const uint8_t *p = *at;
    uint64_t value = *p & 0x7f;
    for (int shift = 7; *p++ & 0x80; shift += 7) value |= (uint64_t)(*p & 0x7f) << shift;
    *at = p;
    return value;
}

static inline int64_t number(const uint8_t **at) {
    const uint64_t value = varint(at);
    return (int64_t)(value >> 1 ^ (0 - (value & 1)));
}

static inline void copy(struct text *column, int64_t row, const uint8_t **at) {
    const int64_t size = number(at);
    uint8_t *to = column->bytes + column->ends[row];
    for (int64_t done = 0; done < size; done += WIDE) memcpy(to + done, *at + done, WIDE);
    column->ends[row + 1] = column->ends[row] + (int32_t)size;
    *at += size;
}

static inline void set(uint8_t *bits, int64_t row, int is_set) {
    const uint8_t bit = (uint8_t)(1 << (row & 7));
    bits[row >> 3] = (uint8_t)(is_set ? bits[row >> 3] | bit : bits[row >> 3] & ~bit);
}

int64_t limit_rides(const uint8_t *data, const int32_t *offsets, int64_t rows, struct rides *columns) {
    struct rides c = *columns;
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *at = data + offsets[row] + FRAME_BYTES;
        c.id[row] = number(&at);
        copy(&c.carrier, row, &at);
        copy(&c.origin, row, &at);
        const int has_delay = number(&at) != 0;
        set(c.has_delay, row, has_delay);
        c.delay[row] = has_delay ? (int32_t)number(&at) : 0;
        memcpy(&c.distance[row], at, 8);
        at += 8;
        c.departed[row] = number(&at);
        copy(&c.note, row, &at);
        set(c.is_late, row, *at);
    }
    return rows;
}

/* Two of twenty fields, number 6 and 13, of kinds that follow each other: long, string, double, null or int. */
enum { FIELDS = 20, KINDS = 4, NUMBER_FIELD = 6, TEXT_FIELD = 13 };

static inline void skip_number(const uint8_t **at) {
    const uint8_t *p = *at;
    while (*p++ & 0x80) { }
    *at = p;
}

int64_t limit_two(const uint8_t *data, const int32_t *offsets, int64_t rows, double *numbers, struct text *text) {
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *at = data + offsets[row] + FRAME_BYTES;
#pragma GCC unroll 20
        for (int field = 0; field < FIELDS; field++) {
            const int kind = field % KINDS;
            if (field == NUMBER_FIELD) memcpy(&numbers[row], at, 8);
            if (field == TEXT_FIELD) copy(text, row, &at);
            else if (kind == 0) skip_number(&at);
            else if (kind == 1) { const int64_t size = number(&at); at += size; }
            else if (kind == 2) at += 8;
            else if (*at++) skip_number(&at);
        }
    }
    return rows;
}
