/* SPDX-License-Identifier: Apache-2.0 */
/* Checker back-end of mem.h: every primitive is a function of tests/checker, where all lanes
 * of all ranks are fibers of one thread and memory is as weak as the contract allows. Plain
 * accesses are seen too: this build is instrumented (-fsanitize=thread) for hooks that
 * tests/checker/races.cpp provides instead of ThreadSanitizer. */
#ifndef IPS_KERNELS_MEM_CHECK_H
#define IPS_KERNELS_MEM_CHECK_H

#ifndef IPS_CHECKER
#define IPS_CHECKER
#endif
#include "kernels/mem.h"

#include "kernels/mem_lanes.h"

extern "C" {
void check_load16(const void *address, uint64_t *value); /* two halves */
void check_store16(void *address, uint64_t low, uint64_t high);
uint64_t check_load(const uint64_t *address, int acquire);
void check_store(uint64_t *address, uint64_t value, int release);
uint32_t check_load_word(const uint32_t *address);
void check_store_word(uint32_t *address, uint32_t value);
uint64_t check_exchange(uint64_t *address, uint64_t value);
}

IPS_DEVICE struct ips_v4 ips_ld16(const void *address)
{
    uint64_t half[2];
    check_load16(address, half);
    struct ips_v4 v = {(uint32_t)half[0], (uint32_t)(half[0] >> 32), (uint32_t)half[1],
                       (uint32_t)(half[1] >> 32)};
    return v;
}

IPS_DEVICE void ips_st16(void *address, struct ips_v4 v)
{
    check_store16(address, v.x | (uint64_t)v.y << 32, v.z | (uint64_t)v.w << 32);
}

IPS_DEVICE uint64_t ips_ld_relaxed(const uint64_t *address)
{
    return check_load(address, 0);
}

IPS_DEVICE uint64_t ips_ld_acquire(const uint64_t *address)
{
    return check_load(address, 1);
}

IPS_DEVICE void ips_st_relaxed(uint64_t *address, uint64_t value)
{
    check_store(address, value, 0);
}

IPS_DEVICE void ips_st_release(uint64_t *address, uint64_t value)
{
    check_store(address, value, 1);
}

IPS_DEVICE uint32_t ips_ld_word(const uint32_t *address)
{
    return check_load_word(address);
}

IPS_DEVICE void ips_st_word(uint32_t *address, uint32_t value)
{
    check_store_word(address, value);
}

IPS_DEVICE uint64_t ips_exchange(uint64_t *address, uint64_t value)
{
    return check_exchange(address, value);
}

#endif
