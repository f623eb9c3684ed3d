/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between float and the two half types, given as their 16 bits; round to nearest
 * even. One float operation, rounded back, equals the half type's own correctly rounded
 * operation: 24 >= 2 * 11 + 2 bits (Figueroa, "When is double rounding innocuous?", 1995). */
#ifndef IPS_KERNELS_HALF_H
#define IPS_KERNELS_HALF_H

#include <string.h>

#include "kernels/mem.h"

IPS_DEVICE uint32_t ips_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

IPS_DEVICE float ips_bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>

IPS_DEVICE float ips_from_float16(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}

IPS_DEVICE uint16_t ips_to_float16(float value)
{
    return __half_as_ushort(__float2half_rn(value));
}

IPS_DEVICE float ips_from_bfloat16(uint16_t bits)
{
    return __uint_as_float((uint32_t)bits << 16);
}

IPS_DEVICE uint16_t ips_to_bfloat16(float value)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
#else
IPS_DEVICE float ips_from_float16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
    if (exponent == 0x1f)
        return ips_bits_float(sign | 0x7f800000 | mantissa << 13);
    if (exponent)
        return ips_bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
    float value = (float)mantissa * 0x1p-24f; /* subnormal: exact */
    return sign ? -value : value;
}

IPS_DEVICE uint16_t ips_to_float16(float value)
{
    uint32_t bits = ips_float_bits(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return 0x7fff; /* NaN, as the GPU's conversion gives it */
    if (magnitude >= 0x477ff000)
        return sign | 0x7c00; /* rounds to 65536 or more */
    if (magnitude < 0x38800000) { /* below 2^-14: a multiple of 2^-24 */
        float scaled = ips_bits_float(magnitude) * 0x1p24f;
        uint32_t whole = (uint32_t)scaled;
        float rest = scaled - (float)whole;
        whole += rest > 0.5f || (rest == 0.5f && (whole & 1));
        return (uint16_t)(sign | whole);
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((rounded - (112u << 23)) >> 13));
}

IPS_DEVICE float ips_from_bfloat16(uint16_t bits)
{
    return ips_bits_float((uint32_t)bits << 16);
}

IPS_DEVICE uint16_t ips_to_bfloat16(float value)
{
    uint32_t bits = ips_float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#endif

#endif
