/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs and reference of an AllReduce.
 *
 * Error bound. Let u be the unit roundoff of the type (2^-11 float16, 2^-8 bfloat16,
 * 2^-24 float32, 2^-53 float64). A result that rounds to the type after each of the n-1
 * additions, in any order, differs from the exact sum by at most ((1+u)^(n-1) - 1) *
 * sum|x_i| (Higham, "Accuracy and Stability of Numerical Algorithms", 4.2). One that
 * keeps more precision in between is better, never worse. avg multiplies each input by c,
 * the type's rounded 1/n, so one more rounding: ((1+u)^n - 1) * sum|c * x_i|. prod:
 * ((1+u)^(n-1) - 1) * |prod x_i|. The inputs keep clear of overflow and of subnormals, so
 * no absolute term is needed. max and min, and all integer operations, are exact. */
#include "tools/reference.h"

#include <math.h>
#include <string.h>

#include "policy/policy.h"

struct float_format {
    unsigned bits, exponent, mantissa;
};

static const struct float_format formats[IPS_TYPES] = {
    [IPS_FLOAT16] = {16, 5, 10},
    [IPS_BFLOAT16] = {16, 8, 7},
    [IPS_FLOAT32] = {32, 8, 23},
    [IPS_FLOAT64] = {64, 11, 52},
};

static int is_float(enum ips_type type)
{
    return formats[type].bits != 0;
}

static int is_signed(enum ips_type type)
{
    return type == IPS_INT8 || type == IPS_INT32 || type == IPS_INT64;
}

uint64_t ips_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t ips_hash(const void *data, uint64_t bytes)
{
    const unsigned char *at = data;
    uint64_t hash = ips_mix(bytes);
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    uint64_t tail = 0;
    memcpy(&tail, at, bytes);
    return ips_mix(hash ^ tail);
}

/* --- floats as bits --- */

static uint64_t float_pack(const struct float_format *f, uint64_t sign, uint64_t exponent,
                           uint64_t mantissa)
{
    return sign << (f->bits - 1) | exponent << f->mantissa | mantissa;
}

static long double float_value(const struct float_format *f, uint64_t bits)
{
    uint64_t mantissa = bits & ((UINT64_C(1) << f->mantissa) - 1);
    int exponent = (int)(bits >> f->mantissa & ((1u << f->exponent) - 1));
    int top = (1 << f->exponent) - 1, bias = top >> 1;
    long double value;
    if (f->bits == 32) {
        float narrow;
        uint32_t word = (uint32_t)bits;
        memcpy(&narrow, &word, 4);
        return narrow;
    }
    if (f->bits == 64) {
        double wide;
        memcpy(&wide, &bits, 8);
        return wide;
    }
    if (exponent == top)
        value = mantissa ? (long double)NAN : (long double)INFINITY;
    else if (exponent == 0)
        value = ldexpl((long double)mantissa, 1 - bias - (int)f->mantissa);
    else
        value = ldexpl((long double)(mantissa | UINT64_C(1) << f->mantissa),
                       exponent - bias - (int)f->mantissa);
    return bits >> (f->bits - 1) & 1 ? -value : value;
}

/* Bits of a value that the format holds exactly, as a normal number or zero. */
static uint64_t float_exact(const struct float_format *f, double value)
{
    if (value == 0)
        return 0;
    int exponent;
    double fraction = frexp(fabs(value), &exponent); /* in [0.5, 1) */
    int bias = (1 << (f->exponent - 1)) - 1;
    uint64_t mantissa = (uint64_t)ldexp(fraction, (int)f->mantissa + 1);
    return float_pack(f, value < 0, (uint64_t)(exponent - 1 + bias),
                      mantissa & ((UINT64_C(1) << f->mantissa) - 1));
}

/* The format's nearest value to 1/n, ties to even: what NCCL multiplies by for avg. */
static long double float_reciprocal(const struct float_format *f, unsigned n)
{
    int exponent;
    long double fraction = frexpl(1.0L / n, &exponent);
    fraction = rintl(ldexpl(fraction, (int)f->mantissa + 1));
    return ldexpl(fraction, exponent - (int)f->mantissa - 1);
}

/* --- inputs --- */

static uint64_t random_float(const struct ips_payload *p, uint64_t random)
{
    const struct float_format *f = &formats[p->type];
    uint64_t bias = (UINT64_C(1) << (f->exponent - 1)) - 1;
    uint64_t mantissa = random >> 12 & ((UINT64_C(1) << f->mantissa) - 1);
    /* Factors in [0.5, 2): eight of them stay in float16's normal range. Otherwise
     * magnitudes from 2^-6 to 4, so that the terms of a sum differ in scale. */
    uint64_t exponent =
        p->op == IPS_PROD ? bias - 1 + (random >> 1 & 1) : bias - 6 + (random >> 1 & 7);
    return float_pack(f, random & 1, exponent, mantissa);
}

static uint64_t exact_float(const struct ips_payload *p, uint64_t random)
{
    const struct float_format *f = &formats[p->type];
    double value;
    if (p->op == IPS_PROD)
        value =
            ldexp(random & 1 ? -1 : 1, (int)(random >> 1 & 1) - (int)(random >> 2 & 1));
    else
        value = ((int)(random % 17) - 8) * 0.25; /* sums of 8 fit bfloat16's 8 bits */
    return float_exact(f, value);
}

static uint64_t special_float(const struct ips_payload *p, uint64_t random)
{
    const struct float_format *f = &formats[p->type];
    uint64_t top = (UINT64_C(1) << f->exponent) - 1, sign = random & 1;
    switch (random >> 1 & 7) {
    case 0: /* quiet NaN */
        return float_pack(f, sign, top, UINT64_C(1) << (f->mantissa - 1));
    case 1:
        return float_pack(f, sign, top, 0);
    case 2:
    case 3:
    case 4:
        return float_pack(f, sign, 0, 0);
    default:
        return float_exact(f, sign ? -1 : 1);
    }
}

static uint64_t element(const struct ips_payload *p, uint64_t rank_seed, uint64_t index)
{
    uint64_t random = ips_mix(rank_seed + index);
    if (!is_float(p->type)) {
        unsigned bytes = ips_type_bytes(p->type);
        return bytes == 8 ? random : random & ((UINT64_C(1) << 8 * bytes) - 1);
    }
    if (p->values == IPS_VALUES_SPECIAL)
        return special_float(p, random);
    if (p->values == IPS_VALUES_EXACT)
        return exact_float(p, random);
    return random_float(p, random);
}

static uint64_t rank_seed(const struct ips_payload *p, unsigned rank)
{
    return ips_mix(p->seed ^ ips_mix(rank + 1));
}

void ips_payload_fill(const struct ips_payload *p, unsigned rank, uint64_t count,
                      void *out)
{
    unsigned bytes = ips_type_bytes(p->type);
    uint64_t seed = rank_seed(p, rank);
    unsigned char *at = out;
    for (uint64_t i = 0; i < count; i++, at += bytes) {
        uint64_t bits = element(p, seed, i);
        memcpy(at, &bits, bytes); /* little-endian, like every CUDA host */
    }
}

/* --- reference --- */

static uint64_t truncate_to(unsigned bytes, uint64_t x)
{
    return bytes == 8 ? x : x & ((UINT64_C(1) << 8 * bytes) - 1);
}

static int64_t sign_extend(unsigned bytes, uint64_t x)
{
    unsigned shift = 64 - 8 * bytes;
    return (int64_t)(x << shift) >> shift;
}

/* Integers wrap around in their own width; avg divides the wrapped sum, truncating. */
static uint64_t integer_expected(const struct ips_payload *p, const uint64_t *x)
{
    unsigned bytes = ips_type_bytes(p->type);
    uint64_t total = x[0];
    for (unsigned r = 1; r < p->nranks; r++) {
        int less = is_signed(p->type)
                       ? sign_extend(bytes, x[r]) < sign_extend(bytes, total)
                       : x[r] < total;
        if (p->op == IPS_SUM || p->op == IPS_AVG)
            total += x[r];
        else if (p->op == IPS_PROD)
            total *= x[r];
        else if (p->op == IPS_MIN ? less : !less)
            total = x[r];
    }
    total = truncate_to(bytes, total);
    if (p->op == IPS_AVG) {
        if (is_signed(p->type)) /* the divisor is at least 2: no overflow */
            total = (uint64_t)(sign_extend(bytes, total) / (int64_t)p->nranks);
        else
            total /= p->nranks;
    }
    return truncate_to(bytes, total);
}

struct expected {
    long double value, bound;
    int any_sign; /* a zero of either sign will do */
};

static struct expected float_extreme(const struct ips_payload *p, const uint64_t *x)
{
    const struct float_format *f = &formats[p->type];
    struct expected e = {.value = NAN};
    int plus = 0, minus = 0;
    for (unsigned r = 0; r < p->nranks; r++) {
        long double v = float_value(f, x[r]);
        if (v == 0)
            *(signbit(v) ? &minus : &plus) = 1;
        /* NaN loses against any number, as in CUDA's fmax and fmin. */
        if (isnan(e.value) || (p->op == IPS_MAX ? v > e.value : v < e.value))
            e.value = v;
    }
    e.any_sign = plus && minus;
    return e;
}

static struct expected float_expected(const struct ips_payload *p, const uint64_t *x)
{
    const struct float_format *f = &formats[p->type];
    if (p->op == IPS_MAX || p->op == IPS_MIN)
        return float_extreme(p, x);
    long double c = p->op == IPS_AVG ? float_reciprocal(f, p->nranks) : 1;
    long double total = float_value(f, x[0]) * c, magnitude = fabsl(total);
    for (unsigned r = 1; r < p->nranks; r++) {
        long double v = float_value(f, x[r]) * c;
        total = p->op == IPS_PROD ? total * v : total + v;
        magnitude = p->op == IPS_PROD ? fabsl(total) : magnitude + fabsl(v);
    }
    struct expected e = {.value = total};
    int exact = p->values != IPS_VALUES_RANDOM && p->op != IPS_AVG;
    if (!exact && isfinite(magnitude)) {
        long double u = ldexpl(1, -(int)f->mantissa - 1), growth = 1;
        for (unsigned r = p->op == IPS_AVG ? 0 : 1; r < p->nranks; r++)
            growth *= 1 + u;
        /* The last term is for the reference's own rounding, in 64-bit mantissas. */
        e.bound = (growth - 1) * magnitude + magnitude * ldexpl(p->nranks, -63);
    }
    return e;
}

static int float_right(const struct expected *e, long double got)
{
    if (isnan(e->value))
        return isnan(got);
    if (e->bound > 0)
        return fabsl(got - e->value) <= e->bound;
    if (got != e->value)
        return 0;
    return got != 0 || e->any_sign || !signbit(got) == !signbit(e->value);
}

static void describe(struct ips_mismatch *first, uint64_t index, uint64_t bits,
                     long double got, long double wanted, long double bound)
{
    *first = (struct ips_mismatch){.index = index,
                                   .got = (double)got,
                                   .wanted = (double)wanted,
                                   .bound = (double)bound,
                                   .got_bits = bits};
}

static int check_element(const struct ips_payload *p, const uint64_t *x, uint64_t bits,
                         uint64_t index, struct ips_mismatch *first)
{
    unsigned bytes = ips_type_bytes(p->type);
    if (!is_float(p->type)) {
        uint64_t wanted = integer_expected(p, x);
        if (bits == wanted)
            return 1;
        if (first)
            describe(first, index, bits, (long double)sign_extend(bytes, bits),
                     (long double)sign_extend(bytes, wanted), 0);
        return 0;
    }
    struct expected e = float_expected(p, x);
    long double got = float_value(&formats[p->type], bits);
    if (float_right(&e, got))
        return 1;
    if (first)
        describe(first, index, bits, got, e.value, e.bound);
    return 0;
}

uint64_t ips_payload_check(const struct ips_payload *p, uint64_t first, uint64_t count,
                           const void *output, struct ips_mismatch *ret_first)
{
    unsigned bytes = ips_type_bytes(p->type);
    const unsigned char *at = output;
    uint64_t seeds[IPS_MAX_RANKS], x[IPS_MAX_RANKS], wrong = 0;
    for (unsigned r = 0; r < p->nranks; r++)
        seeds[r] = rank_seed(p, r);
    for (uint64_t i = 0; i < count; i++, at += bytes) {
        uint64_t bits = 0;
        memcpy(&bits, at, bytes);
        for (unsigned r = 0; r < p->nranks; r++)
            x[r] = element(p, seeds[r], first + i);
        wrong += !check_element(p, x, bits, first + i, wrong ? NULL : ret_first);
    }
    return wrong;
}
