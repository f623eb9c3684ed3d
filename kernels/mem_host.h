/* SPDX-License-Identifier: Apache-2.0 */
/* Host back-end of mem.h: a thread is a fiber of the CPU stand-in (tools/simgpu), which
 * provides the functions declared here. Memory order is the compiler's atomics. */
#ifndef IPS_KERNELS_MEM_HOST_H
#define IPS_KERNELS_MEM_HOST_H

#include <stdint.h>

#define IPS_DEVICE static inline
#define IPS_DEVICE_CALL static
#define IPS_KERNEL extern "C" void
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

IPS_DEVICE struct ips_v4 ips_ld16(const void *address)
{
    const uint64_t *half = (const uint64_t *)address;
    uint64_t low = __atomic_load_n(half, __ATOMIC_RELAXED);
    uint64_t high = __atomic_load_n(half + 1, __ATOMIC_RELAXED);
    struct ips_v4 v = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
                       (uint32_t)(high >> 32)};
    return v;
}

IPS_DEVICE void ips_st16(void *address, struct ips_v4 v)
{
    uint64_t *half = (uint64_t *)address;
    __atomic_store_n(half, v.x | (uint64_t)v.y << 32, __ATOMIC_RELAXED);
    __atomic_store_n(half + 1, v.z | (uint64_t)v.w << 32, __ATOMIC_RELAXED);
}

IPS_DEVICE uint64_t ips_ld_relaxed(const uint64_t *address)
{
    return __atomic_load_n(address, __ATOMIC_RELAXED);
}

IPS_DEVICE uint64_t ips_ld_acquire(const uint64_t *address)
{
    return __atomic_load_n(address, __ATOMIC_ACQUIRE);
}

IPS_DEVICE void ips_st_relaxed(uint64_t *address, uint64_t value)
{
    __atomic_store_n(address, value, __ATOMIC_RELAXED);
}

IPS_DEVICE void ips_st_release(uint64_t *address, uint64_t value)
{
    __atomic_store_n(address, value, __ATOMIC_RELEASE);
}

IPS_DEVICE uint32_t ips_ld_word(const uint32_t *address)
{
    return __atomic_load_n(address, __ATOMIC_RELAXED);
}

IPS_DEVICE void ips_st_word(uint32_t *address, uint32_t value)
{
    __atomic_store_n(address, value, __ATOMIC_RELAXED);
}

IPS_DEVICE uint64_t ips_exchange(uint64_t *address, uint64_t value)
{
    return __atomic_exchange_n(address, value, __ATOMIC_ACQ_REL);
}

#endif
