/* SPDX-License-Identifier: Apache-2.0 */
/* Host back-end of mem.h: a lane is a fiber of the CPU stand-in (tools/simgpu), which
 * provides the functions declared here. Memory order is the compiler's atomics. */
#ifndef IPS_KERNELS_MEM_HOST_H
#define IPS_KERNELS_MEM_HOST_H

#include <stdint.h>
#include <string.h>

#define IPS_DEVICE static inline
#define IPS_KERNEL extern "C" void
#define IPS_GLOBAL_VARIABLE extern "C"

extern "C" {
unsigned simgpu_thread(void);  /* threadIdx.x */
unsigned simgpu_threads(void); /* blockDim.x */
unsigned simgpu_block(void);   /* blockIdx.x */
unsigned simgpu_blocks(void);  /* gridDim.x */
void simgpu_barrier(void);     /* all threads of the block */
uint64_t simgpu_shfl_xor(uint64_t value, unsigned lane_mask); /* all 32 lanes */
uint32_t simgpu_ballot(int predicate);                        /* all 32 lanes */
void simgpu_spin(void);                                       /* a poll failed: let others run */
uint64_t simgpu_clock_ns(void);
void *simgpu_shared(void); /* IPS_SHARED_BYTES of this block, 16-byte aligned */
}
