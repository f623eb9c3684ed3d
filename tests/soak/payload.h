/* SPDX-License-Identifier: Apache-2.0 */
/* The data of a soak and what an AllReduce must make of it, for host and device: any
 * thread computes any element of any rank from the call's number, so that a GPU fills and
 * checks without the host. The inputs are those of tools/reference.c bit by bit, and the
 * results are judged by the bound derived there; test_payload.c compares the two. */
#ifndef IPS_TESTS_SOAK_PAYLOAD_H
#define IPS_TESTS_SOAK_PAYLOAD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/types.h"

#ifdef __CUDACC__
#define SOAK_FN static __host__ __device__ __forceinline__
#else
#define SOAK_FN static inline
#endif

enum soak_values { SOAK_RANDOM, SOAK_EXACT, SOAK_SPECIAL, SOAK_VALUES };

struct soak_payload {
    uint64_t seed; /* of this call */
    uint32_t nranks, type, op, values;
};

/* What one element of the result must be. */
struct soak_expected {
    double value, bound; /* floats */
    uint64_t bits;       /* integers */
    int any_sign;        /* a zero of either sign will do */
};

SOAK_FN uint64_t soak_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

SOAK_FN unsigned soak_bytes(uint32_t type)
{
    return type <= IPS_UINT8                                                ? 1
           : type == IPS_FLOAT16 || type == IPS_BFLOAT16                    ? 2
           : type == IPS_INT32 || type == IPS_UINT32 || type == IPS_FLOAT32 ? 4
                                                                            : 8;
}

SOAK_FN int soak_is_float(uint32_t type)
{
    return type >= IPS_FLOAT16;
}

SOAK_FN int soak_is_signed(uint32_t type)
{
    return type == IPS_INT8 || type == IPS_INT32 || type == IPS_INT64;
}

/* Bits of a float's mantissa, and of its exponent. */
SOAK_FN unsigned soak_mantissa(uint32_t type)
{
    return type == IPS_FLOAT16    ? 10
           : type == IPS_BFLOAT16 ? 7
           : type == IPS_FLOAT32  ? 23
                                  : 52;
}

SOAK_FN unsigned soak_exponent(uint32_t type)
{
    return type == IPS_FLOAT16 ? 5 : type == IPS_FLOAT64 ? 11 : 8;
}

SOAK_FN uint64_t soak_mask(unsigned bits)
{
    return bits >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
}

SOAK_FN uint64_t soak_pack(uint32_t type, uint64_t sign, uint64_t exponent,
                           uint64_t mantissa)
{
    return sign << (8 * soak_bytes(type) - 1) | exponent << soak_mantissa(type) |
           mantissa;
}

SOAK_FN double soak_from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

/* The float as a double, which holds all of them. Float16 and bfloat16 inputs and results
 * here are normal, zero, infinite or NaN; subnormals are computed all the same. */
SOAK_FN double soak_value(uint32_t type, uint64_t bits)
{
    const unsigned width = soak_mantissa(type), top = (1u << soak_exponent(type)) - 1;
    if (type == IPS_FLOAT64)
        return soak_from_bits(bits);
    if (type == IPS_FLOAT32) {
        const uint32_t word = (uint32_t)bits;
        float narrow;
        memcpy(&narrow, &word, 4);
        return narrow;
    }
    const uint64_t sign = bits >> 15 & 1, mantissa = bits & soak_mask(width);
    const unsigned exponent = (unsigned)(bits >> width) & top, bias = top >> 1;
    if (exponent == top)
        return soak_from_bits(sign << 63 | (uint64_t)2047 << 52 |
                              mantissa << (52 - width));
    if (exponent) /* normal */
        return soak_from_bits(sign << 63 | (uint64_t)(exponent + 1023 - bias) << 52 |
                              mantissa << (52 - width));
    const double unit = soak_from_bits((uint64_t)(1023 + 1 - bias - width) << 52);
    return (sign ? -1.0 : 1.0) * (double)mantissa * unit;
}

/* k / 4 for k from -8 to 8. */
SOAK_FN uint64_t soak_quarters(uint32_t type, int k)
{
    const unsigned width = soak_mantissa(type),
                   bias = (1u << (soak_exponent(type) - 1)) - 1;
    const uint64_t size = (uint64_t)(k < 0 ? -k : k);
    const unsigned log = size >= 8 ? 3 : size >= 4 ? 2 : size >= 2 ? 1 : 0;
    if (!k)
        return 0;
    return soak_pack(type, k < 0, bias + log - 2,
                     size << (width - log) & soak_mask(width));
}

SOAK_FN uint64_t soak_special(uint32_t type, uint64_t random)
{
    const uint64_t sign = random & 1, top = soak_mask(soak_exponent(type));
    switch (random >> 1 & 7) {
    case 0: /* quiet NaN */
        return soak_pack(type, sign, top, (uint64_t)1 << (soak_mantissa(type) - 1));
    case 1:
        return soak_pack(type, sign, top, 0);
    case 2:
    case 3:
    case 4:
        return soak_pack(type, sign, 0, 0);
    default:
        return soak_quarters(type, sign ? -4 : 4);
    }
}

SOAK_FN uint64_t soak_rank_seed(const struct soak_payload *p, uint32_t rank)
{
    return soak_mix(p->seed ^ soak_mix(rank + 1));
}

/* One element of the input of the rank that the seed stands for. */
SOAK_FN uint64_t soak_element(const struct soak_payload *p, uint64_t rank_seed,
                              uint64_t index)
{
    const uint64_t random = soak_mix(rank_seed + index);
    if (!soak_is_float(p->type))
        return random & soak_mask(8 * soak_bytes(p->type));
    if (p->values == SOAK_SPECIAL)
        return soak_special(p->type, random);
    const uint64_t bias = soak_mask(soak_exponent(p->type) - 1);
    if (p->values == SOAK_EXACT && p->op != IPS_PROD)
        return soak_quarters(p->type, (int)(random % 17) - 8);
    if (p->values == SOAK_EXACT)
        return soak_pack(p->type, random & 1,
                         bias + (random >> 1 & 1) - (random >> 2 & 1), 0);
    const uint64_t exponent =
        p->op == IPS_PROD ? bias - 1 + (random >> 1 & 1) : bias - 6 + (random >> 1 & 7);
    return soak_pack(p->type, random & 1, exponent,
                     random >> 12 & soak_mask(soak_mantissa(p->type)));
}

SOAK_FN int64_t soak_signed(unsigned bytes, uint64_t x)
{
    const unsigned shift = 64 - 8 * bytes;
    return (int64_t)(x << shift) >> shift;
}

SOAK_FN uint64_t soak_fold_integer(const struct soak_payload *p, uint64_t total,
                                   uint64_t x)
{
    const unsigned bytes = soak_bytes(p->type);
    const int less = soak_is_signed(p->type)
                         ? soak_signed(bytes, x) < soak_signed(bytes, total)
                         : x < total;
    if (p->op == IPS_PROD)
        return (total * x) & soak_mask(8 * bytes);
    if (p->op == IPS_SUM || p->op == IPS_AVG)
        return (total + x) & soak_mask(8 * bytes);
    return (p->op == IPS_MIN ? less : !less) ? x : total;
}

/* Integers wrap around in their own width; avg divides the wrapped sum, truncating. */
SOAK_FN uint64_t soak_end_integer(const struct soak_payload *p, uint64_t total)
{
    const unsigned bytes = soak_bytes(p->type);
    if (p->op != IPS_AVG)
        return total;
    if (!soak_is_signed(p->type))
        return total / p->nranks;
    return (uint64_t)(soak_signed(bytes, total) / (int64_t)p->nranks) &
           soak_mask(8 * bytes);
}

/* The format's nearest value to 1/n, ties to even: what NCCL multiplies by for avg. */
SOAK_FN double soak_reciprocal(uint32_t type, uint32_t n)
{
    int exponent;
    const int width = (int)soak_mantissa(type) + 1;
    if (type == IPS_FLOAT64)
        return 1.0 / n;
    const double fraction = frexp(1.0 / n, &exponent);
    return ldexp(rint(ldexp(fraction, width)), exponent - width);
}

/* How far n roundings to the type may take a sum: (1 + u)^n - 1, without cancellation. */
SOAK_FN double soak_growth(uint32_t type, uint32_t n)
{
    const double u = soak_from_bits((uint64_t)(1023 - soak_mantissa(type) - 1) << 52);
    double growth = 0;
    for (uint32_t i = 0; i < n; i++)
        growth += u + growth * u;
    return growth;
}

SOAK_FN struct soak_expected soak_expect_integer(const struct soak_payload *p,
                                                 const uint64_t *seeds, uint64_t index)
{
    struct soak_expected e = {0, 0, soak_element(p, seeds[0], index), 0};
    for (uint32_t r = 1; r < p->nranks; r++)
        e.bits = soak_fold_integer(p, e.bits, soak_element(p, seeds[r], index));
    e.bits = soak_end_integer(p, e.bits);
    return e;
}

/* NaN loses against any number, as in CUDA's fmax and fmin. */
SOAK_FN struct soak_expected soak_expect_extreme(const struct soak_payload *p,
                                                 const uint64_t *seeds, uint64_t index)
{
    struct soak_expected e = {soak_from_bits((uint64_t)0x7ff8 << 48), 0, 0, 0};
    int plus = 0, minus = 0;
    for (uint32_t r = 0; r < p->nranks; r++) {
        const double v = soak_value(p->type, soak_element(p, seeds[r], index));
        plus |= v == 0 && !signbit(v);
        minus |= v == 0 && signbit(v);
        if (isnan(e.value) || (p->op == IPS_MAX ? v > e.value : v < e.value))
            e.value = v;
    }
    e.any_sign = plus && minus;
    return e;
}

SOAK_FN struct soak_expected soak_expect_sum(const struct soak_payload *p,
                                             const uint64_t *seeds, uint64_t index)
{
    const double c = p->op == IPS_AVG ? soak_reciprocal(p->type, p->nranks) : 1;
    struct soak_expected e = {soak_value(p->type, soak_element(p, seeds[0], index)) * c,
                              0, 0, 0};
    double size = fabs(e.value);
    for (uint32_t r = 1; r < p->nranks; r++) {
        const double v = soak_value(p->type, soak_element(p, seeds[r], index)) * c;
        e.value = p->op == IPS_PROD ? e.value * v : e.value + v;
        size = p->op == IPS_PROD ? fabs(e.value) : size + fabs(v);
    }
    const uint32_t roundings = p->nranks - (p->op != IPS_AVG);
    if ((p->values == SOAK_RANDOM || p->op == IPS_AVG) && isfinite(size)) /* not exact */
        e.bound =
            soak_growth(p->type, roundings) * size +
            soak_growth(IPS_FLOAT64, p->nranks + 1) * size; /* the reference's own */
    return e;
}

/* `seeds`: of every rank. */
SOAK_FN struct soak_expected soak_expect(const struct soak_payload *p,
                                         const uint64_t *seeds, uint64_t index)
{
    if (!soak_is_float(p->type))
        return soak_expect_integer(p, seeds, index);
    if (p->op == IPS_MAX || p->op == IPS_MIN)
        return soak_expect_extreme(p, seeds, index);
    return soak_expect_sum(p, seeds, index);
}

SOAK_FN int soak_right(const struct soak_payload *p, const struct soak_expected *e,
                       uint64_t bits)
{
    if (!soak_is_float(p->type))
        return bits == e->bits;
    const double got = soak_value(p->type, bits);
    if (isnan(e->value))
        return isnan(got);
    if (e->bound > 0)
        return fabs(got - e->value) <= e->bound;
    if (got != e->value)
        return 0;
    return got != 0 || e->any_sign || !signbit(got) == !signbit(e->value);
}

#endif
