/* SPDX-License-Identifier: Apache-2.0 */
/* What the host and the two kernels of `ipcshim doctor --probe` share. No part of the
 * engine: it has no say in the wire version. */
#ifndef IPS_KERNELS_LINK_WIRE_H
#define IPS_KERNELS_LINK_WIRE_H

#include <stddef.h>

#include "kernels/wire.h"

#define IPS_LINK_MAX_THREADS 512
#define IPS_LINK_MAX_BLOCKS 16
#define IPS_LINK_BATCH 4 /* units of 16 bytes that a thread has in flight */

/* What one warp has seen; in memory of the GPU that the kernel runs on. */
struct ips_link_result {
    uint64_t start_ns, end_ns; /* of its work, after the wait for the flag */
    uint64_t late; /* lanes that gave up at the deadline, or had no flag by then */
    uint64_t
        wrong; /* units of 16 bytes that were not what they should be, in all passes */
    uint64_t blank; /* of those: all zeros or all ones, as a bus answers that fails */
    uint64_t first; /* the lowest of them, or UINT64_MAX */
};

/* The one parameter of both kernels. Grid: blocks of whole warps, the same for both ends;
 * `units` is a multiple of IPS_LINK_BATCH x blocks x threads. */
struct ips_link_args {
    void *data; /* `units` units: written, or read and compared */
    struct ips_word
        *flag; /* one a block: raised after the data, or awaited; NULL: none */
    struct ips_link_result *result; /* one a warp */
    uint64_t seed;                  /* of the data, and what a raised flag holds; not 0 */
    uint64_t units;
    uint64_t deadline_ns; /* from the kernel's start */
    uint32_t passes;      /* over the data */
    uint32_t pad;
};

#define IPS_KERNEL_LINK_STORE "ips_link_store"
#define IPS_KERNEL_LINK_CHECK "ips_link_check"

/* Half of a unit, at `half` of all of them: no other seed has it there (finalizer of
 * splitmix64, which is one-to-one). */
IPS_BOTH uint64_t ips_link_word(uint64_t seed, uint64_t half)
{
    uint64_t x = seed + half * 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

IPS_STATIC_ASSERT(sizeof(struct ips_link_result) == 48, "same layout everywhere");
IPS_STATIC_ASSERT(sizeof(struct ips_link_args) == 56, "same layout everywhere");

#endif
