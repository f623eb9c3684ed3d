/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in's device code with a fault, so that a soak which reports nothing is seen.
 * SOAK_FAULT chooses it:
 *   bit      one store in SOAK_BROKEN_EVERY to the user's output has a bit turned over
 *   barrier  Simple runs without its barriers */
#include <stdlib.h>
#include <string.h>

#include "kernels/ring.h"

static bool soak_fault(const char *name)
{
    const char *chosen = getenv("SOAK_FAULT");
    return chosen && !strcmp(chosen, name);
}

static const bool soak_bit = soak_fault("bit"), soak_no_barrier = soak_fault("barrier");
static uint64_t soak_stores;

/* The top bit of one element, which no rounding hides in any type. */
static void soak_broken_store(struct ips_buffer buffer, uint64_t offset, struct ips_v4 v,
                              uint32_t bytes)
{
    ips_store(buffer, offset, v, bytes);
    if (soak_bit && bytes &&
        __atomic_add_fetch(&soak_stores, 1, __ATOMIC_RELAXED) % SOAK_BROKEN_EVERY == 0)
        buffer.base[offset + buffer.element - 1] ^= 0x80;
}

#define ips_store soak_broken_store
#define ips_barrier() (soak_no_barrier ? (void)0 : ips_barrier())
#include "kernels/simple.h"
#undef ips_barrier
#include "tools/simgpu/kernels.cpp"
