# Numbers written with decimal digits: the doubles and floats nearest to them.

cdef extern from "stdio.h":
    int snprintf(char* text, size_t size, const char* form, long long number) noexcept nogil

cdef extern from "math.h":
    bint isinf(double value) noexcept nogil

cdef extern from *:
    """
    #include <locale.h>
    #include <stdlib.h>
    #ifdef __APPLE__
    #include <xlocale.h>
    #endif

    /* The decimal point of strtod is that of a locale; this one is never freed. */
    static locale_t ks_plain_locale;

    static int ks_set_plain_locale(void) {
        ks_plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        return ks_plain_locale != (locale_t)0;
    }

    static double ks_strtod(const char *text) { return strtod_l(text, NULL, ks_plain_locale); }
    static float ks_strtof(const char *text) { return strtof_l(text, NULL, ks_plain_locale); }

    /* Returns: the high 64 bits of a product, of which it stores the low ones. */
    static inline uint64_t ks_multiply(uint64_t a, uint64_t b, uint64_t *low) {
        unsigned __int128 product = (unsigned __int128)a * b;
        *low = (uint64_t)product;
        return (uint64_t)(product >> 64);
    }
    """
    uint64_t ks_multiply(uint64_t a, uint64_t b, uint64_t* low) noexcept nogil
    int leading_zeros "__builtin_clzll"(uint64_t bits) noexcept nogil
    bint ks_set_plain_locale() noexcept nogil
    double ks_strtod(const char* text) noexcept nogil
    float ks_strtof(const char* text) noexcept nogil

cdef enum:
    MOST_NUMBER_SIZE = 1024         # of a number that is given to the C library as it is
    MOST_NUMBER_DIGITS = 800        # more than lie between a double and the middle to the next one
    LEAST_POWER = -348              # of ten, in POWERS_OF_TEN
    MOST_POWER = 308
    POWERS = MOST_POWER - LEAST_POWER + 1

cdef uint64_t MASK_BELOW_FLOAT = (1ULL << 29) - 1       # the bits of a double that a float does not have
cdef uint64_t MIDDLE_BELOW_FLOAT = 1ULL << 28
cdef double LEAST_NORMAL_FLOAT = 2.0 ** -126

# digits times ten to the power of exponent. is_exact: no digit but zeros was left out of digits.
cdef struct JsonNumber:
    uint64_t digits
    int64_t exponent
    bint is_negative
    bint is_exact

# The first 128 bits of each power of ten, high and low, rounded down.
cdef uint64_t POWERS_OF_TEN[2 * POWERS]


# Takes a millisecond, so that it waits for the first program. Requires: the GIL.
cdef int fill_powers_of_ten() except -1:
    cdef object one = 1
    cdef object ten = 10
    cdef object bits, power
    cdef int i
    for i in range(POWERS):
        power = one * (i + LEAST_POWER)
        bits = ten**power if power >= 0 else (one << 1300) // ten**-power
        bits = bits << 128 >> bits.bit_length()
        POWERS_OF_TEN[2 * i] = bits >> 64
        POWERS_OF_TEN[2 * i + 1] = bits & ((one << 64) - 1)
    return 0


if not ks_set_plain_locale():
    raise MemoryError("no memory for a locale")


# Stores the double nearest to digits * 10^exponent, where a product of 64 and 128 bits decides which it is (Lemire,
# "Number parsing at a gigabyte per second", 2021). Returns: False if it does not, or the double is not a normal one.
cdef bint nearest_double(uint64_t digits, int64_t exponent, double* value) noexcept nogil:
    cdef const uint64_t* power = POWERS_OF_TEN + 2 * (exponent - LEAST_POWER)
    cdef int shift = leading_zeros(digits)
    cdef uint64_t scaled = digits << shift
    cdef uint64_t low = 0
    cdef uint64_t more_low = 0
    cdef uint64_t high = ks_multiply(scaled, power[0], &low)
    cdef uint64_t more, bits
    cdef int64_t binary
    if high & 0x1FF == 0x1FF and low > ~scaled:
        # The rest of the power may carry into what is rounded.
        more = ks_multiply(scaled, power[1], &more_low)
        low += more
        high += low < more
        if high & 0x1FF == 0x1FF and low == ~<uint64_t>0 and more_low > ~scaled:
            return False
    # log2(10) is 217706 / 65536, for these powers.
    binary = (217706 * exponent >> 16) + 63 - shift + <int64_t>(high >> 63)
    bits = high >> (9 + (high >> 63))
    if low == 0 and high & 0x1FF == 0 and bits & 3 == 1:
        return False
    bits = (bits + (bits & 1)) >> 1
    if bits >> 53:
        bits >>= 1
        binary += 1
    if not -1023 < binary < 1024:
        return False
    bits = (bits & ((<uint64_t>1 << 52) - 1)) | <uint64_t>(binary + 1023) << 52
    memcpy(value, &bits, 8)
    return True


# Copies a number as text that ends. Of digits after those that decide which double is nearest, it only counts whether
# one is not 0.
cdef void copy_number(const uint8_t* text, int64_t size, char* copied) noexcept nogil:
    cdef int64_t exponent = 0
    cdef int digits = 0
    cdef int used = 0
    cdef bint is_fraction = False
    cdef bint is_more = False
    cdef int64_t i = text[0] == c'-'
    if size <= MOST_NUMBER_SIZE:
        memcpy(copied, text, <size_t>size)
        copied[size] = 0
        return
    if i > 0:
        copied[0] = c'-'
        used = 1
    while i < size and text[i] | 0x20 != c'e':
        if text[i] == c'.':
            is_fraction = True
        elif digits < MOST_NUMBER_DIGITS:
            exponent -= is_fraction
            if digits > 0 or text[i] != c'0':
                copied[used] = <char>text[i]
                used += 1
                digits += 1
        else:
            exponent += not is_fraction
            is_more = is_more or text[i] != c'0'
        i += 1
    if i < size:
        exponent += power_of(text + i + 1, text + size)
    copied[used] = c'1' if is_more else c'0'
    snprintf(copied + used + 1, MOST_NUMBER_SIZE - MOST_NUMBER_DIGITS - 2, "e%lld", <long long>(exponent - 1))


# Returns: the power of ten that is written after the e of a number; of a larger one than any digits of a value can make
# up for, such a large one.
cdef int64_t power_of(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef int64_t power = 0
    cdef bint is_negative = at[0] == c'-'
    at += is_negative or at[0] == c'+'
    while at < end:
        power = min(10 * power + (at[0] - c'0'), <int64_t>1 << 40)
        at += 1
    return -power if is_negative else power


# As nearest_double, of the text of a number.
cdef ValueFault exact_double(const uint8_t* text, int64_t size, double* value) noexcept nogil:
    cdef char copied[MOST_NUMBER_SIZE + 1]
    copy_number(text, size, copied)
    value[0] = ks_strtod(copied)
    return VALUE_OUT_OF_RANGE if isinf(value[0]) else VALUE_SOUND


cdef ValueFault double_of(const JsonNumber* n, const uint8_t* text, int64_t size, double* value) noexcept nogil:
    cdef double other = 0.0
    value[0] = 0.0
    if n.digits != 0 and n.exponent > MOST_POWER:
        return VALUE_OUT_OF_RANGE
    if n.digits != 0 and n.exponent >= LEAST_POWER:
        if not nearest_double(n.digits, n.exponent, value):
            return exact_double(text, size, value)
        if not n.is_exact and (n.digits + 1 == 0 or not nearest_double(n.digits + 1, n.exponent, &other)
                               or value[0] != other):
            return exact_double(text, size, value)
    if n.is_negative:
        value[0] = -value[0]
    return VALUE_SOUND


# Stores the float nearest to a number, given the double nearest to it. A double in the middle between two floats does
# not say on which side of it the number is; those between the smallest floats are not told apart.
cdef ValueFault float_of(double nearest, const uint8_t* text, int64_t size, float* value) noexcept nogil:
    cdef char copied[MOST_NUMBER_SIZE + 1]
    cdef uint64_t bits = 0
    memcpy(&bits, &nearest, 8)
    value[0] = <float>nearest
    if bits & MASK_BELOW_FLOAT == MIDDLE_BELOW_FLOAT \
            or (-LEAST_NORMAL_FLOAT < nearest < LEAST_NORMAL_FLOAT and nearest != 0):
        copy_number(text, size, copied)
        value[0] = ks_strtof(copied)
    return VALUE_OUT_OF_RANGE if isinf(value[0]) else VALUE_SOUND
