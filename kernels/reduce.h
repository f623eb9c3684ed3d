/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise arithmetic on 16 bytes of any type: one uniform switch on type and operation,
 * so that one kernel serves them all. NCCL's rules: integers wrap; half types are rounded
 * after every operation; max and min prefer a number to a NaN; avg multiplies each float
 * input by the type's rounded 1/n, and divides the sum of integers, toward zero. */
#ifndef IPS_KERNELS_REDUCE_H
#define IPS_KERNELS_REDUCE_H

#include <math.h>

#include "kernels/half.h"
#include "kernels/types.h"

/* How a 32- or 64-bit word holds elements of one type. Arithmetic is done in `wide`; for
 * integers that is unsigned (it wraps) except where order matters (`ordered`). */
template <class T, class O> struct ips_integer {
    typedef T wide;
    typedef O ordered;
    static const int bits = 8 * sizeof(T);
    IPS_DEVICE T get(uint64_t raw)
    {
        return (T)raw;
    }
    IPS_DEVICE uint64_t put(T value)
    {
        return value;
    }
};

struct ips_as_float16 {
    typedef float wide;
    typedef float ordered;
    static const int bits = 16;
    IPS_DEVICE float get(uint64_t raw)
    {
        return ips_from_float16((uint16_t)raw);
    }
    IPS_DEVICE uint64_t put(float value)
    {
        return ips_to_float16(value);
    }
};

struct ips_as_bfloat16 {
    typedef float wide;
    typedef float ordered;
    static const int bits = 16;
    IPS_DEVICE float get(uint64_t raw)
    {
        return ips_from_bfloat16((uint16_t)raw);
    }
    IPS_DEVICE uint64_t put(float value)
    {
        return ips_to_bfloat16(value);
    }
};

struct ips_as_float32 {
    typedef float wide;
    typedef float ordered;
    static const int bits = 32;
    IPS_DEVICE float get(uint64_t raw)
    {
        return ips_bits_float((uint32_t)raw);
    }
    IPS_DEVICE uint64_t put(float value)
    {
        return ips_float_bits(value);
    }
};

struct ips_as_float64 {
    typedef double wide;
    typedef double ordered;
    static const int bits = 64;
    IPS_DEVICE double get(uint64_t raw)
    {
        double value;
        memcpy(&value, &raw, sizeof value);
        return value;
    }
    IPS_DEVICE uint64_t put(double value)
    {
        uint64_t raw;
        memcpy(&raw, &value, sizeof raw);
        return raw;
    }
};

IPS_DEVICE float ips_larger(float a, float b)
{
    return fmaxf(a, b);
}

IPS_DEVICE float ips_smaller(float a, float b)
{
    return fminf(a, b);
}

IPS_DEVICE double ips_larger(double a, double b)
{
    return fmax(a, b);
}

IPS_DEVICE double ips_smaller(double a, double b)
{
    return fmin(a, b);
}

template <class T> IPS_DEVICE T ips_larger(T a, T b)
{
    return a > b ? a : b;
}

template <class T> IPS_DEVICE T ips_smaller(T a, T b)
{
    return a < b ? a : b;
}

struct ips_sum {
    template <class A> IPS_DEVICE uint64_t apply(uint64_t a, uint64_t b)
    {
        return A::put((typename A::wide)(A::get(a) + A::get(b)));
    }
};

struct ips_prod {
    template <class A> IPS_DEVICE uint64_t apply(uint64_t a, uint64_t b)
    {
        return A::put((typename A::wide)(A::get(a) * A::get(b)));
    }
};

struct ips_max {
    template <class A> IPS_DEVICE uint64_t apply(uint64_t a, uint64_t b)
    {
        typedef typename A::ordered O;
        return A::put((typename A::wide)ips_larger((O)A::get(a), (O)A::get(b)));
    }
};

struct ips_min {
    template <class A> IPS_DEVICE uint64_t apply(uint64_t a, uint64_t b)
    {
        typedef typename A::ordered O;
        return A::put((typename A::wide)ips_smaller((O)A::get(a), (O)A::get(b)));
    }
};

/* a / b for the sum of integers, toward zero. */
struct ips_divide {
    template <class A> IPS_DEVICE uint64_t apply(uint64_t a, uint64_t b)
    {
        typedef typename A::ordered O;
        return A::put((typename A::wide)((O)A::get(a) / (O)b));
    }
};

/* Applies Op to every element of a 32-bit word. */
template <class Op, class A> IPS_DEVICE uint32_t ips_map_word(uint32_t a, uint32_t b)
{
    if (A::bits == 32)
        return (uint32_t)Op::template apply<A>(a, b);
    const uint32_t mask = (uint32_t)((1ull << (A::bits & 31)) - 1);
    uint32_t out = 0;
    IPS_UNROLL
    for (int shift = 0; shift < 32; shift += A::bits)
        out |= ((uint32_t)Op::template apply<A>(a >> shift & mask, b >> shift & mask) & mask)
               << (shift & 31);
    return out;
}

IPS_DEVICE uint64_t ips_low(struct ips_v4 v)
{
    return v.x | (uint64_t)v.y << 32;
}

IPS_DEVICE uint64_t ips_high(struct ips_v4 v)
{
    return v.z | (uint64_t)v.w << 32;
}

IPS_DEVICE struct ips_v4 ips_pair(uint64_t low, uint64_t high)
{
    struct ips_v4 v = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
                       (uint32_t)(high >> 32)};
    return v;
}

template <class Op, class A>
IPS_DEVICE struct ips_v4 ips_map(struct ips_v4 a, struct ips_v4 b)
{
    if (A::bits == 64)
        return ips_pair(Op::template apply<A>(ips_low(a), ips_low(b)),
                        Op::template apply<A>(ips_high(a), ips_high(b)));
    struct ips_v4 out = {ips_map_word<Op, A>(a.x, b.x), ips_map_word<Op, A>(a.y, b.y),
                         ips_map_word<Op, A>(a.z, b.z), ips_map_word<Op, A>(a.w, b.w)};
    return out;
}

template <class Op>
IPS_DEVICE struct ips_v4 ips_map_type(struct ips_v4 a, struct ips_v4 b, uint32_t type)
{
    switch (type) {
    case IPS_INT8:
        return ips_map<Op, ips_integer<uint8_t, int8_t>>(a, b);
    case IPS_UINT8:
        return ips_map<Op, ips_integer<uint8_t, uint8_t>>(a, b);
    case IPS_INT32:
        return ips_map<Op, ips_integer<uint32_t, int32_t>>(a, b);
    case IPS_UINT32:
        return ips_map<Op, ips_integer<uint32_t, uint32_t>>(a, b);
    case IPS_INT64:
        return ips_map<Op, ips_integer<uint64_t, int64_t>>(a, b);
    case IPS_UINT64:
        return ips_map<Op, ips_integer<uint64_t, uint64_t>>(a, b);
    case IPS_FLOAT16:
        return ips_map<Op, ips_as_float16>(a, b);
    case IPS_BFLOAT16:
        return ips_map<Op, ips_as_bfloat16>(a, b);
    case IPS_FLOAT32:
        return ips_map<Op, ips_as_float32>(a, b);
    default:
        return ips_map<Op, ips_as_float64>(a, b);
    }
}

/* Out of line: 40 combinations in each place that reduces would make the kernels large. */
IPS_DEVICE_CALL struct ips_v4 ips_reduce_any(struct ips_v4 a, struct ips_v4 b, uint32_t type,
                                             uint32_t op)
{
    switch (op) {
    case IPS_PROD:
        return ips_map_type<ips_prod>(a, b, type);
    case IPS_MAX:
        return ips_map_type<ips_max>(a, b, type);
    case IPS_MIN:
        return ips_map_type<ips_min>(a, b, type);
    default: /* sum and avg */
        return ips_map_type<ips_sum>(a, b, type);
    }
}

/* One 16-byte result of the operation; the order of the operands does not matter. The sums
 * that training and serving make are inline. */
IPS_DEVICE struct ips_v4 ips_reduce(struct ips_v4 a, struct ips_v4 b, uint32_t type,
                                    uint32_t op)
{
    if (op == IPS_SUM && type == IPS_FLOAT32)
        return ips_map<ips_sum, ips_as_float32>(a, b);
    if (op == IPS_SUM && type == IPS_BFLOAT16)
        return ips_map<ips_sum, ips_as_bfloat16>(a, b);
    if (op == IPS_SUM && type == IPS_FLOAT16)
        return ips_map<ips_sum, ips_as_float16>(a, b);
    return ips_reduce_any(a, b, type, op);
}

IPS_DEVICE bool ips_is_float(uint32_t type)
{
    return type >= IPS_FLOAT16;
}

/* v[p], or what this rank has itself. */
IPS_DEVICE struct ips_v4 ips_operand(const struct ips_v4 *v, struct ips_v4 own, bool is_own,
                                     uint32_t p)
{
    const struct ips_v4 out = {is_own ? own.x : v[p].x, is_own ? own.y : v[p].y,
                               is_own ? own.z : v[p].z, is_own ? own.w : v[p].w};
    return out;
}

/* The sum of halves, one of each rank, rounded once. W: words that count. */
template <class A, int W>
IPS_DEVICE struct ips_v4 ips_sum_wide(const struct ips_v4 *v, struct ips_v4 own, uint32_t rank,
                                      uint32_t nranks)
{
    float sum[2 * W];
    IPS_UNROLL
    for (uint32_t p = 0; p < IPS_MAX_RANKS; p++) {
        const struct ips_v4 x = ips_operand(v, own, p == rank, p);
        const uint32_t word[4] = {x.x, x.y, x.z, x.w};
        IPS_UNROLL
        for (int i = 0; i < 2 * W; i++) {
            const float value = A::get(word[i / 2] >> i % 2 * 16 & 0xffff);
            if (p == 0)
                sum[i] = value;
            else if (p < nranks)
                sum[i] += value;
        }
    }
    uint32_t word[4] = {0, 0, 0, 0};
    IPS_UNROLL
    for (int i = 0; i < 2 * W; i++)
        word[i / 2] |= (uint32_t)A::put(sum[i]) << i % 2 * 16;
    const struct ips_v4 out = {word[0], word[1], word[2], word[3]};
    return out;
}

/* The result of the operation on one operand of each rank, in the order of the ranks: the
 * same on all of them. v[rank] stands for `own`. Sums of halves are kept in float32. W: words
 * that count, 2 or 4. */
template <int W>
IPS_DEVICE struct ips_v4 ips_reduce_ranks(const struct ips_v4 *v, struct ips_v4 own,
                                          uint32_t rank, uint32_t nranks, uint32_t type,
                                          uint32_t op)
{
    const bool sum = op == IPS_SUM || op == IPS_AVG;
    if (sum && type == IPS_BFLOAT16)
        return ips_sum_wide<ips_as_bfloat16, W>(v, own, rank, nranks);
    if (sum && type == IPS_FLOAT16)
        return ips_sum_wide<ips_as_float16, W>(v, own, rank, nranks);
    struct ips_v4 out = ips_operand(v, own, rank == 0, 0);
    IPS_UNROLL
    for (uint32_t p = 1; p < IPS_MAX_RANKS; p++) {
        if (p >= nranks)
            continue;
        const struct ips_v4 x = ips_operand(v, own, p == rank, p);
        out = sum && type == IPS_FLOAT32 ? ips_map<ips_sum, ips_as_float32>(out, x)
                                         : ips_reduce_any(out, x, type, op);
    }
    return out;
}

/* avg of floats: the input times 1/n, the factor rounded to the type. */
IPS_DEVICE_CALL struct ips_v4 ips_scale(struct ips_v4 v, uint32_t type, uint32_t nranks)
{
    double factor = 1.0 / nranks;
    uint64_t raw;
    switch (type) {
    case IPS_FLOAT16:
        raw = ips_as_float16::put((float)factor) * 0x0001000100010001ull;
        return ips_map<ips_prod, ips_as_float16>(v, ips_pair(raw, raw));
    case IPS_BFLOAT16:
        raw = ips_as_bfloat16::put((float)factor) * 0x0001000100010001ull;
        return ips_map<ips_prod, ips_as_bfloat16>(v, ips_pair(raw, raw));
    case IPS_FLOAT32:
        raw = ips_as_float32::put((float)factor) * 0x0000000100000001ull;
        return ips_map<ips_prod, ips_as_float32>(v, ips_pair(raw, raw));
    default:
        raw = ips_as_float64::put(factor);
        return ips_map<ips_prod, ips_as_float64>(v, ips_pair(raw, raw));
    }
}

/* avg of integers: the sum divided by n. */
IPS_DEVICE_CALL struct ips_v4 ips_divide_by(struct ips_v4 v, uint32_t type, uint32_t nranks)
{
    uint64_t n = nranks;
    uint64_t raw = n;
    if (type == IPS_INT8 || type == IPS_UINT8)
        raw = n * 0x0101010101010101ull;
    else if (type == IPS_INT32 || type == IPS_UINT32)
        raw = n * 0x0000000100000001ull;
    struct ips_v4 b = ips_pair(raw, raw);
    switch (type) {
    case IPS_INT8:
        return ips_map<ips_divide, ips_integer<uint8_t, int8_t>>(v, b);
    case IPS_UINT8:
        return ips_map<ips_divide, ips_integer<uint8_t, uint8_t>>(v, b);
    case IPS_INT32:
        return ips_map<ips_divide, ips_integer<uint32_t, int32_t>>(v, b);
    case IPS_UINT32:
        return ips_map<ips_divide, ips_integer<uint32_t, uint32_t>>(v, b);
    case IPS_INT64:
        return ips_map<ips_divide, ips_integer<uint64_t, int64_t>>(v, b);
    default:
        return ips_map<ips_divide, ips_integer<uint64_t, uint64_t>>(v, b);
    }
}

#endif
