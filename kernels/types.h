/* SPDX-License-Identifier: Apache-2.0 */
/* The element types, operations and protocols that the engine knows. The numbers of types
 * and operations are NCCL's own (ncclDataType_t, ncclRedOp_t), so no table translates. */
#ifndef IPS_KERNELS_TYPES_H
#define IPS_KERNELS_TYPES_H

enum ips_type {
    IPS_INT8 = 0,
    IPS_UINT8 = 1,
    IPS_INT32 = 2,
    IPS_UINT32 = 3,
    IPS_INT64 = 4,
    IPS_UINT64 = 5,
    IPS_FLOAT16 = 6,
    IPS_FLOAT32 = 7,
    IPS_FLOAT64 = 8,
    IPS_BFLOAT16 = 9,
    IPS_TYPES = 10,
};

enum ips_op {
    IPS_SUM = 0,
    IPS_PROD = 1,
    IPS_MAX = 2,
    IPS_MIN = 3,
    IPS_AVG = 4,
    IPS_OPS = 5,
};

/* Wire protocols, from the lowest latency to the highest bandwidth: see wire.h. */
enum ips_proto {
    IPS_LL = 0,
    IPS_LL128 = 1,
    IPS_SIMPLE = 2,
    IPS_PROTOS = 3,
};

/* Size of an element; 0 for a number that is none of the above. */
static inline unsigned ips_element_bytes(int type)
{
    static const unsigned char bytes[IPS_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && type < IPS_TYPES ? bytes[type] : 0;
}

#define IPS_MIN_RANKS 2
#define IPS_MAX_RANKS 8
/* A channel is one block of the kernel with its own slots and its own step count. */
#define IPS_MAX_CHANNELS 16

#endif
