/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the engine's result of an AllReduce and NCCL's agree, element by element, within
 * what two correct results can differ. Invariant: no pair of correct results is reported,
 * whatever the order of the operations and with intermediate results of the type or wider;
 * where inputs make a correct result uncertain, only what is certainly wrong is.
 *
 * What is certain depends on the inputs, which no rank knows alone. Each rank turns every
 * input into a weight, the weights are summed over the ranks (by NCCL, in float32, or in
 * float64 for float64), and W is the sum. Let u be the type's unit roundoff, tiny its
 * smallest subnormal, n the number of ranks, and g(k) = k u / (1 - k u), which bounds what
 * k roundings do to a number relatively (Higham, Accuracy and Stability of Numerical
 * Algorithms, 3.1). k is at most 9 and u at most 1/256, so g(k) <= 1.04 k u; that, and the
 * roundings of W and of the comparison, of the order of 2^-21, are below 9/8 k u.
 *
 * sum, avg: the weight is |x| / 16, so that W is finite if all inputs are, and S = 16 W is
 * the sum of magnitudes (what the division loses of subnormal inputs makes less than one
 * tiny of the bound). n - 1 additions in any order give the exact sum within g(n - 1) S;
 * additions have no underflow error. avg also rounds the factor 1/n and n products: within
 * g(n + 1) S / n, and tiny / 2 for each product that is subnormal. Both sides together:
 *     |a - b| <= 2 * 9/8 (n + 1) u S' + n tiny,  S' = S, or S / n for avg.
 * Where S reaches the type's largest number, one order may overflow and the other not: then
 * only two finite results are compared. W is NaN if an input is, and then so are both
 * results; infinite if an input is, and then both are infinite or NaN, and not of opposite
 * signs.
 *
 * prod: the weight is the distance of |x| from 1 in powers of two, rounded up, so that all
 * partial products lie within 2^-W and 2^W. If those are normal numbers each of n - 1
 * products is rounded relatively, and with g(7) / (1 - g(7)) <= 1.06 * 7 u
 *     |a - b| <= 2 * 9/8 (n - 1) u max(|a|, |b|).
 * Otherwise a partial product may have over- or underflowed, in one order and not the
 * other: then only opposite signs are wrong. A zero weighs ZERO, more than all else
 * together: results are then 0, or NaN if a partial product may have been infinite. NaN and
 * infinity as above.
 *
 * max, min: equal, or both NaN; zeros of either sign are equal. Integers: equal bits. */
#ifndef IPS_KERNELS_VERIFY_H
#define IPS_KERNELS_VERIFY_H

#include "kernels/reduce.h"
#include "kernels/user.h"
#include "kernels/wire.h"

/* Of a zero in a product. Eight of them and all exponents are summed exactly in float32. */
#define IPS_VERIFY_ZERO 1048576.0

/* What the bounds need to know of a floating-point type. */
struct ips_float_traits {
    double roundoff, tiny, most;
    int lowest; /* exponent of the smallest normal number */
};

IPS_DEVICE struct ips_float_traits ips_traits_of(uint32_t type)
{
    switch (type) {
    case IPS_FLOAT16:
        return {0x1p-11, 0x1p-24, 65504.0, -14};
    case IPS_BFLOAT16:
        return {0x1p-8, 0x1p-133, 0x1.fep127, -126};
    case IPS_FLOAT32:
        return {0x1p-24, 0x1p-149, 0x1.fffffep127, -126};
    default:
        return {0x1p-53, 0x1p-1074, 0x1.fffffffffffffp1023, -1022};
    }
}

IPS_DEVICE double ips_verify_number(uint64_t raw, uint32_t type)
{
    switch (type) {
    case IPS_FLOAT16:
        return ips_from_float16((uint16_t)raw);
    case IPS_BFLOAT16:
        return ips_from_bfloat16((uint16_t)raw);
    case IPS_FLOAT32:
        return ips_bits_float((uint32_t)raw);
    default:
        return ips_as_float64::get(raw);
    }
}

/* The larger distance from 0 of the two powers of two around |x|. */
IPS_DEVICE double ips_verify_exponent(double magnitude)
{
    int above;
    if (magnitude == 0)
        return IPS_VERIFY_ZERO;
    if (!(magnitude <= 0x1.fffffffffffffp1023))
        return magnitude; /* infinite or NaN */
    frexp(magnitude, &above);
    return above > 0 ? above : 1 - above;
}

/* The weight of an input, of a type and operation that have weights. */
IPS_DEVICE double ips_verify_weight(uint64_t raw, uint32_t type, uint32_t op)
{
    const double magnitude = fabs(ips_verify_number(raw, type));
    return op == IPS_PROD ? ips_verify_exponent(magnitude) : magnitude / 16;
}

IPS_DEVICE bool ips_verify_is_finite(double value)
{
    return fabs(value) <= 0x1.fffffffffffffp1023;
}

IPS_DEVICE bool ips_verify_is_nan(double value)
{
    return value != value;
}

/* Neither is finite, nor are they infinities of opposite signs. */
IPS_DEVICE bool ips_verify_both_special(double a, double b)
{
    return !ips_verify_is_finite(a) && !ips_verify_is_finite(b) && !(a < 0 && b > 0) &&
           !(a > 0 && b < 0);
}

IPS_DEVICE bool ips_verify_sum(double a, double b, double weight,
                               struct ips_float_traits type, uint32_t op, uint32_t nranks)
{
    const double share = 1.125 * (nranks + 1) * type.roundoff;
    const double limit =
        32 * share * weight / (op == IPS_AVG ? nranks : 1) + nranks * type.tiny;
    const bool finite = ips_verify_is_finite(a) && ips_verify_is_finite(b);
    if (!finite && weight * (1 + share) >= type.most / 16)
        return true;
    return fabs(a - b) <= limit;
}

IPS_DEVICE bool ips_verify_prod(double a, double b, double weight,
                                struct ips_float_traits type, uint32_t nranks)
{
    const double safe = -type.lowest - 1;
    if (weight >= IPS_VERIFY_ZERO) {
        const bool normal = fmod(weight, IPS_VERIFY_ZERO) <= safe;
        return (a == 0 || (!normal && ips_verify_is_nan(a))) &&
               (b == 0 || (!normal && ips_verify_is_nan(b)));
    }
    if (weight > safe)
        return !(a < 0 && b > 0) && !(a > 0 && b < 0);
    const double larger = fabs(a) > fabs(b) ? fabs(a) : fabs(b);
    return ips_verify_is_finite(larger) &&
           fabs(a - b) <= 2.25 * (nranks - 1) * type.roundoff * larger;
}

/* Whether `got` and `expected` can both be right; weight: W, where there are weights. */
IPS_DEVICE_CALL bool ips_verify_agree(uint64_t got, uint64_t expected, double weight,
                                      uint32_t type, uint32_t op, uint32_t nranks)
{
    if (got == expected)
        return true;
    if (!ips_is_float(type))
        return false;
    const double a = ips_verify_number(got, type), b = ips_verify_number(expected, type);
    if (op == IPS_MAX || op == IPS_MIN)
        return a == b || (ips_verify_is_nan(a) && ips_verify_is_nan(b));
    if (ips_verify_is_nan(weight))
        return ips_verify_is_nan(a) && ips_verify_is_nan(b);
    if (!ips_verify_is_finite(weight))
        return ips_verify_both_special(a, b);
    if (op == IPS_PROD)
        return ips_verify_prod(a, b, weight, ips_traits_of(type), nranks);
    return ips_verify_sum(a, b, weight, ips_traits_of(type), op, nranks);
}

IPS_DEVICE uint64_t ips_verify_load(const void *from, uint64_t index, uint32_t element)
{
    const char *at = (const char *)from + index * element;
    return ips_low(ips_load_elements(at, element, element));
}

/* Writes the weights of this rank's inputs. */
IPS_DEVICE void ips_verify_weigh_run(const struct ips_verify_args *args)
{
    const uint64_t stride = (uint64_t)ips_blocks() * ips_threads();
    uint64_t i = (uint64_t)ips_block() * ips_threads() + ips_thread();
    for (; i < args->count; i += stride) {
        const uint64_t raw = ips_verify_load(args->data, i, args->element);
        const double weight = ips_verify_weight(raw, args->type, args->op);
        if (args->type == IPS_FLOAT64)
            ((double *)args->weights)[i] = weight;
        else
            ((float *)args->weights)[i] = (float)weight;
    }
}

/* One thread of the GPU, once: the record stays. */
IPS_DEVICE_CALL void ips_verify_report(const struct ips_verify_args *args, uint64_t index,
                                       uint64_t got, uint64_t expected)
{
    struct ips_head *head = args->head;
    struct ips_wrong *wrong = &args->control->wrong;
    if (ips_exchange(&head->wrong_taken, 1))
        return;
    ips_st_relaxed(&wrong->element, args->first + index);
    ips_st_relaxed(&wrong->got, got);
    ips_st_relaxed(&wrong->expected, expected);
    const struct ips_v4 call = {
        (uint32_t)args->message, (uint32_t)(args->message >> 32),
        (uint32_t)ips_ld_relaxed(&head->call),
        args->type | args->op << 8 | args->variant << 16 | args->channels << 24};
    ips_st16(&wrong->call, call);
    ips_st_release(&wrong->there, 1);
}

/* Compares the engine's results with NCCL's. */
IPS_DEVICE void ips_verify_compare_run(const struct ips_verify_args *args)
{
    const uint64_t stride = (uint64_t)ips_blocks() * ips_threads();
    uint64_t i = (uint64_t)ips_block() * ips_threads() + ips_thread();
    for (; i < args->count; i += stride) {
        const uint64_t got = ips_verify_load(args->data, i, args->element);
        const uint64_t expected = ips_verify_load(args->expected, i, args->element);
        double weight = 0;
        if (args->weights)
            weight = args->type == IPS_FLOAT64 ? ((const double *)args->weights)[i]
                                               : ((const float *)args->weights)[i];
        if (ips_verify_agree(got, expected, weight, args->type, args->op, args->nranks))
            continue;
        ips_verify_report(args, i, got, expected);
        return;
    }
}

#endif
