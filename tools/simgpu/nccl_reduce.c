/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's arithmetic on host memory. 16-bit floats are computed in float and rounded after
 * every operation. */
#include <math.h>
#include <string.h>

#include "tools/simgpu/nccl_sim.h"

size_t sim_type_bytes(ncclDataType_t type)
{
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type >= 0 && type < (int)sizeof bytes ? bytes[type] : 0;
}

int sim_is_float(ncclDataType_t type)
{
    return type == IPS_FLOAT16 || type == IPS_FLOAT32 || type == IPS_FLOAT64 ||
           type == IPS_BFLOAT16;
}

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float from_bfloat(uint16_t bits)
{
    return bits_float((uint32_t)bits << 16);
}

/* No branches in what follows, so that the compiler makes vectors of the loops. */
static uint16_t to_bfloat(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}

static float from_half(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = bits & 0x7fff;
    uint32_t special = 0x7f800000 | (rest & 0x3ff) << 13;
    /* 2^112 corrects the exponent's bias, for subnormals too. */
    uint32_t finite = float_bits(bits_float(rest << 13) * bits_float(0x77800000));
    return bits_float(sign | (rest >= 0x7c00 ? special : finite));
}

static uint16_t to_half(float value)
{
    uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000,
             rest = bits & 0x7fffffff;
    uint32_t normal = (rest + 0xfff + (rest >> 13 & 1) - 0x38000000) >> 13;
    /* Below 2^-14: adding 0.5 rounds at bit 2^-24. */
    uint32_t small = float_bits(bits_float(rest) + 0.5f) - 0x3f000000;
    uint32_t finite = rest < 0x38800000 ? small : normal;
    uint32_t big = rest > 0x7f800000 ? 0x7fff : 0x7c00;
    return (uint16_t)(sign |
                      (rest >= 0x477ff000 ? big : finite)); /* from 65520 on: infinity */
}

/* The loops below differ in the type and in how an element enters and leaves arithmetic.
 */
#define KEEP(x) (x)
#define LOOP(type, from_element, to_element, expression)     \
    for (size_t i = 0; i < count; i++) {                     \
        type a = from_element(x[i]), b = from_element(y[i]); \
        x[i] = to_element(expression);                       \
    }                                                        \
    break

/* Sums and products of integers wrap, so they are made in the unsigned type. */
#define INTEGER(name, element, wide)                                     \
    static void name(element *x, const element *y, size_t count, int op) \
    {                                                                    \
        switch (op) {                                                    \
        case IPS_SUM:                                                    \
            LOOP(element, KEEP, (element), (wide)a + (wide)b);           \
        case IPS_PROD:                                                   \
            LOOP(element, KEEP, (element), (wide)a *(wide)b);            \
        case IPS_MAX:                                                    \
            LOOP(element, KEEP, KEEP, a > b ? a : b);                    \
        default:                                                         \
            LOOP(element, KEEP, KEEP, a < b ? a : b);                    \
        }                                                                \
    }

#define FLOATING(name, element, arithmetic, from_element, to_element, maximum, minimum) \
    static void name(element *x, const element *y, size_t count, int op)                \
    {                                                                                   \
        switch (op) {                                                                   \
        case IPS_SUM:                                                                   \
            LOOP(arithmetic, from_element, to_element, a + b);                          \
        case IPS_PROD:                                                                  \
            LOOP(arithmetic, from_element, to_element, a *b);                           \
        case IPS_MAX:                                                                   \
            LOOP(arithmetic, from_element, to_element, maximum(a, b));                  \
        default:                                                                        \
            LOOP(arithmetic, from_element, to_element, minimum(a, b));                  \
        }                                                                               \
    }

INTEGER(reduce_int8, int8_t, uint32_t)
INTEGER(reduce_uint8, uint8_t, uint32_t)
INTEGER(reduce_int32, int32_t, uint32_t)
INTEGER(reduce_uint32, uint32_t, uint32_t)
INTEGER(reduce_int64, int64_t, uint64_t)
INTEGER(reduce_uint64, uint64_t, uint64_t)
FLOATING(reduce_half, uint16_t, float, from_half, to_half, fmaxf, fminf)
FLOATING(reduce_bfloat, uint16_t, float, from_bfloat, to_bfloat, fmaxf, fminf)
FLOATING(reduce_float, float, float, KEEP, KEEP, fmaxf, fminf)
FLOATING(reduce_double, double, double, KEEP, KEEP, fmax, fmin)

void sim_reduce(void *into, const void *from, size_t count, ncclDataType_t type, int op)
{
    switch (type) {
    case IPS_INT8:
        reduce_int8(into, from, count, op);
        break;
    case IPS_UINT8:
        reduce_uint8(into, from, count, op);
        break;
    case IPS_INT32:
        reduce_int32(into, from, count, op);
        break;
    case IPS_UINT32:
        reduce_uint32(into, from, count, op);
        break;
    case IPS_INT64:
        reduce_int64(into, from, count, op);
        break;
    case IPS_UINT64:
        reduce_uint64(into, from, count, op);
        break;
    case IPS_FLOAT16:
        reduce_half(into, from, count, op);
        break;
    case IPS_FLOAT32:
        reduce_float(into, from, count, op);
        break;
    case IPS_FLOAT64:
        reduce_double(into, from, count, op);
        break;
    default:
        reduce_bfloat(into, from, count, op);
        break;
    }
}

/* Multiplies by a scalar of the same type; a product of integers wraps. */
void sim_scale(void *data, size_t count, ncclDataType_t type, const void *scalar)
{
    size_t bytes = sim_type_bytes(type);
    for (size_t i = 0; i < count; i++)
        sim_reduce((char *)data + i * bytes, scalar, 1, type, IPS_PROD);
}

#define DIVIDE(element)                               \
    do {                                              \
        element *x = data;                            \
        for (size_t i = 0; i < count; i++)            \
            x[i] = (element)(x[i] / (element)nranks); \
    } while (0);                                      \
    break

static void divide(void *data, size_t count, ncclDataType_t type, int nranks)
{
    switch (type) {
    case IPS_INT8:
        DIVIDE(int8_t);
    case IPS_UINT8:
        DIVIDE(uint8_t);
    case IPS_INT32:
        DIVIDE(int32_t);
    case IPS_UINT32:
        DIVIDE(uint32_t);
    case IPS_INT64:
        DIVIDE(int64_t);
    default:
        DIVIDE(uint64_t);
    }
}

void sim_scale_average(void *data, size_t count, ncclDataType_t type, int nranks)
{
    union {
        uint16_t half;
        float single;
        double wide;
    } scalar;
    if (!sim_is_float(type)) {
        divide(data, count, type, nranks);
        return;
    }
    if (type == IPS_FLOAT16)
        scalar.half = to_half(1.0f / (float)nranks);
    else if (type == IPS_BFLOAT16)
        scalar.half = to_bfloat(1.0f / (float)nranks);
    else if (type == IPS_FLOAT32)
        scalar.single = 1.0f / (float)nranks;
    else
        scalar.wide = 1.0 / (double)nranks;
    sim_scale(data, count, type, &scalar);
}
