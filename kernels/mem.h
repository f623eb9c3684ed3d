/* SPDX-License-Identifier: Apache-2.0 */
/* The only way kernels touch memory that another rank or the host also touches, and the only
 * way they meet the other threads of their block. One contract, several back-ends:
 *
 * - System scope throughout. Loads and stores of shared memory are relaxed unless the name
 *   says acquire or release. 16-byte accesses are atomic in each aligned 8-byte half and
 *   nothing wider.
 * - A release orders what the thread did, and what it observed through a barrier, before the
 *   store; an acquire orders what follows after the load. A barrier orders the block.
 * - shfl, ballot: all 32 lanes of the warp take part. barrier: all threads of the block;
 *   barrier_any also tells all of them whether one came with the predicate.
 * - A failed poll calls ips_spin(), so that a back-end that shares a core can run others.
 *
 * Memory of the user and of this rank alone is read and written in plain C. */
#ifndef IPS_KERNELS_MEM_H
#define IPS_KERNELS_MEM_H

#include <stdint.h>

#include "kernels/shared.h"

struct alignas(16) ips_v4 {
    uint32_t x, y, z, w;
};

#ifdef IPS_CHECKER
#include "kernels/mem_check.h"
#elif defined(__CUDACC__)
#include "kernels/mem_ptx.h"
#else
#include "kernels/mem_host.h"
#endif

#endif
