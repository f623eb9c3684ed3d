/* SPDX-License-Identifier: Apache-2.0 */
/* Host back-end of mem.h, for the CPU stand-in (tools/simgpu). Memory order is the compiler's
 * atomics. Where the stand-in has bad links, it looks at each access before it is made. */
#ifndef IPS_KERNELS_MEM_HOST_H
#define IPS_KERNELS_MEM_HOST_H

#include "kernels/mem_lanes.h"

extern "C" {
extern int simgpu_links; /* not 0: there are bad ones */
int simgpu_store(void *address, uint64_t low, uint64_t high, unsigned bytes);
const void *simgpu_load(const void *address);
}

/* Whether the store is done with. */
IPS_DEVICE bool ips_link_stores(void *address, uint64_t low, uint64_t high, unsigned bytes)
{
    return __builtin_expect(simgpu_links, 0) && simgpu_store(address, low, high, bytes);
}

/* Where the load is to be made. */
IPS_DEVICE const void *ips_link_loads(const void *address)
{
    return __builtin_expect(simgpu_links, 0) ? simgpu_load(address) : address;
}

IPS_DEVICE struct ips_v4 ips_ld16(const void *address)
{
    const uint64_t *half = (const uint64_t *)ips_link_loads(address);
    uint64_t low = __atomic_load_n(half, __ATOMIC_RELAXED);
    uint64_t high = __atomic_load_n(half + 1, __ATOMIC_RELAXED);
    struct ips_v4 v = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
                       (uint32_t)(high >> 32)};
    return v;
}

IPS_DEVICE void ips_st16(void *address, struct ips_v4 v)
{
    uint64_t *half = (uint64_t *)address;
    const uint64_t low = v.x | (uint64_t)v.y << 32, high = v.z | (uint64_t)v.w << 32;
    if (ips_link_stores(address, low, high, 16))
        return;
    __atomic_store_n(half, low, __ATOMIC_RELAXED);
    __atomic_store_n(half + 1, high, __ATOMIC_RELAXED);
}

IPS_DEVICE uint64_t ips_ld_relaxed(const uint64_t *address)
{
    return __atomic_load_n((const uint64_t *)ips_link_loads(address), __ATOMIC_RELAXED);
}

IPS_DEVICE uint64_t ips_ld_acquire(const uint64_t *address)
{
    return __atomic_load_n((const uint64_t *)ips_link_loads(address), __ATOMIC_ACQUIRE);
}

IPS_DEVICE void ips_st_relaxed(uint64_t *address, uint64_t value)
{
    if (!ips_link_stores(address, value, 0, 8))
        __atomic_store_n(address, value, __ATOMIC_RELAXED);
}

IPS_DEVICE void ips_st_release(uint64_t *address, uint64_t value)
{
    if (!ips_link_stores(address, value, 0, 8))
        __atomic_store_n(address, value, __ATOMIC_RELEASE);
}

IPS_DEVICE uint32_t ips_ld_word(const uint32_t *address)
{
    return __atomic_load_n((const uint32_t *)ips_link_loads(address), __ATOMIC_RELAXED);
}

IPS_DEVICE void ips_st_word(uint32_t *address, uint32_t value)
{
    if (!ips_link_stores(address, value, 0, 4))
        __atomic_store_n(address, value, __ATOMIC_RELAXED);
}

IPS_DEVICE uint64_t ips_exchange(uint64_t *address, uint64_t value)
{
    return __atomic_exchange_n(address, value, __ATOMIC_ACQ_REL);
}

#endif
