/* SPDX-License-Identifier: Apache-2.0 */
/* The element types, operations and protocols that the engine knows. The numbers of types
 * and operations are NCCL's own (ncclDataType_t, ncclRedOp_t), so no table translates. */
#ifndef IPS_KERNELS_TYPES_H
#define IPS_KERNELS_TYPES_H

/* For host and device code. */
#ifdef __CUDACC__
#define IPS_BOTH static inline __host__ __device__
#else
#define IPS_BOTH static inline
#endif

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

/* What the ranks' data crosses, at its slowest: decides what is fast. */
enum ips_link {
    IPS_LINK_SAME_GPU = 0, /* all ranks share one GPU */
    IPS_LINK_PCIE = 1,     /* peer-to-peer over PCIe, or over a link that is not known */
    IPS_LINK_NVLINK = 2,   /* peer-to-peer, NVLink between all GPUs */
    IPS_LINK_HOST = 3,     /* the mailboxes lie in host memory */
    IPS_LINKS = 4,
};

/* How the ranks' data moves: see ring.h, direct.h and hierarchical.h. */
enum ips_algo {
    IPS_RING = 0,    /* from neighbour to neighbour, 2 * n - 2 hops */
    IPS_ONESHOT = 1, /* every rank sends all of its data to every other: one hop */
    IPS_TWOSHOT = 2, /* every rank sums one part and sends the sum to every other: two hops */
    IPS_HIERARCHICAL = 3, /* rings within groups, and between them one for each part */
    IPS_ALGOS = 4,
};

/* An algorithm with a protocol that suits it: one kernel each. */
enum ips_variant {
    IPS_RING_LL = 0,
    IPS_RING_LL128 = 1,
    IPS_RING_SIMPLE = 2,
    IPS_ONESHOT_LL = 3,
    IPS_ONESHOT_LL128 = 4,
    IPS_TWOSHOT_LL = 5,
    IPS_TWOSHOT_LL128 = 6,
    IPS_HIERARCHICAL_SIMPLE = 7,
    IPS_VARIANTS = 8,
};

/* The variant, or -1 where the two do not go together. */
IPS_BOTH int ips_variant_of(int algo, int proto)
{
    if (algo == IPS_RING)
        return proto;
    if (algo == IPS_HIERARCHICAL)
        return proto == IPS_SIMPLE ? IPS_HIERARCHICAL_SIMPLE : -1;
    return proto == IPS_SIMPLE ? -1 : IPS_ONESHOT_LL + 2 * (algo - IPS_ONESHOT) + proto;
}

IPS_BOTH int ips_variant_algo(int variant)
{
    return variant < IPS_ONESHOT_LL            ? IPS_RING
           : variant < IPS_HIERARCHICAL_SIMPLE ? IPS_ONESHOT + (variant - IPS_ONESHOT_LL) / 2
                                               : IPS_HIERARCHICAL;
}

IPS_BOTH int ips_variant_proto(int variant)
{
    return variant < IPS_ONESHOT_LL            ? variant
           : variant < IPS_HIERARCHICAL_SIMPLE ? (variant - IPS_ONESHOT_LL) % 2
                                               : IPS_SIMPLE;
}

/* Whether it goes from neighbour to neighbour, with credits. */
IPS_BOTH int ips_is_ring(int variant)
{
    const int algo = ips_variant_algo(variant);
    return algo == IPS_RING || algo == IPS_HIERARCHICAL;
}

/* Variants that use the same memory count their steps together. */
enum { IPS_SEQUENCES = 5 };
IPS_BOTH int ips_sequence_of(int variant)
{
    return (ips_is_ring(variant) ? 0 : (int)IPS_PROTOS) + ips_variant_proto(variant);
}

/* Threads of a block, at most: what the registers of a multiprocessor allow. */
#define IPS_MAX_THREADS 512
#define IPS_TWOSHOT_LL_THREADS 384
#define IPS_TWOSHOT_LL128_THREADS 256
IPS_BOTH unsigned ips_variant_max_threads(int variant)
{
    return variant == IPS_TWOSHOT_LL128 ? IPS_TWOSHOT_LL128_THREADS
           : variant == IPS_TWOSHOT_LL  ? IPS_TWOSHOT_LL_THREADS
                                        : IPS_MAX_THREADS;
}

/* Size of an element; 0 for a number that is none of the above. */
static inline unsigned ips_element_bytes(int type)
{
    static const unsigned char bytes[IPS_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && type < IPS_TYPES ? bytes[type] : 0;
}

#define IPS_MIN_RANKS 2
#define IPS_MAX_RANKS 8
/* Whether `nranks` ranks can be groups of `group` ranks each: several of several. */
IPS_BOTH int ips_groups_valid(unsigned group, unsigned nranks)
{
    return group > 1 && group < nranks && nranks % group == 0;
}

/* A channel is one block of the kernel with its own slots and its own step count. */
#define IPS_MAX_CHANNELS 16
/* Likewise where mailboxes lie in host memory: /dev/shm has 64 MB in a container of Docker's
 * unless it is asked for more, and 4 channels of 8 ranks take 30 MB of it. */
#define IPS_HOST_CHANNELS 4

#endif
