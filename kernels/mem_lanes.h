/* SPDX-License-Identifier: Apache-2.0 */
/* The half of mem.h that the back-ends on the host share: a thread is a fiber, and whoever
 * runs the fibers (tools/simgpu, tests/checker) provides the functions declared here. */
#ifndef IPS_KERNELS_MEM_LANES_H
#define IPS_KERNELS_MEM_LANES_H

#include <stdint.h>

#include "kernels/shared.h"

#define IPS_DEVICE static inline
#define IPS_DEVICE_CALL static
#define IPS_KERNEL(threads) extern "C" void
#define IPS_PARAMETER const
#define IPS_GLOBAL
#define IPS_UNROLL

extern "C" {
unsigned simgpu_thread(void);  /* threadIdx.x */
unsigned simgpu_threads(void); /* blockDim.x */
unsigned simgpu_block(void);   /* blockIdx.x */
unsigned simgpu_blocks(void);  /* gridDim.x */
void simgpu_barrier(void);     /* all threads of the block */
uint64_t simgpu_shfl_xor(uint64_t value, unsigned lane_mask); /* all 32 lanes */
uint32_t simgpu_ballot(int predicate);                        /* all 32 lanes */
void simgpu_spin(void); /* a poll failed: let others run */
uint64_t simgpu_clock_ns(void);
void *simgpu_shared(void); /* IPS_SHARED_BYTES of this block, 16-byte aligned */
}

IPS_DEVICE unsigned ips_thread(void)
{
    return simgpu_thread();
}

IPS_DEVICE unsigned ips_threads(void)
{
    return simgpu_threads();
}

IPS_DEVICE unsigned ips_block(void)
{
    return simgpu_block();
}

IPS_DEVICE unsigned ips_blocks(void)
{
    return simgpu_blocks();
}

IPS_DEVICE void ips_barrier(void)
{
    simgpu_barrier();
}

IPS_DEVICE uint64_t ips_shfl_xor(uint64_t value, unsigned lane_mask)
{
    return simgpu_shfl_xor(value, lane_mask);
}

IPS_DEVICE uint32_t ips_ballot(bool predicate)
{
    return simgpu_ballot(predicate);
}

IPS_DEVICE void ips_spin(void)
{
    simgpu_spin();
}

IPS_DEVICE uint64_t ips_clock_ns(void)
{
    return simgpu_clock_ns();
}

IPS_DEVICE void *ips_shared(void)
{
    return simgpu_shared();
}

/* The warps tell each other in the middle of what the block shares, which others leave free. */
IPS_DEVICE bool ips_barrier_any(bool predicate)
{
    uint64_t *said = (uint64_t *)((char *)simgpu_shared() + IPS_SHARED_ANY);
    const unsigned warps = simgpu_threads() / 32;
    const bool any = simgpu_ballot(predicate) != 0;
    if (simgpu_thread() % 32 == 0)
        said[simgpu_thread() / 32] = any;
    simgpu_barrier();
    bool all = false;
    for (unsigned warp = 0; warp < warps; warp++)
        all |= said[warp] != 0;
    simgpu_barrier();
    return all;
}

#endif
