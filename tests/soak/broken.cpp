/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in's device code with a fault: one store in SOAK_BROKEN_EVERY to the user's
 * output has a bit turned over, so that a soak which reports nothing is seen. */
#include "kernels/user.h"

static uint64_t soak_stores;

/* The top bit of one byte, which no rounding hides in any type. */
static void soak_broken_store(struct ips_buffer buffer, uint64_t offset, struct ips_v4 v,
                              uint32_t bytes)
{
    ips_store(buffer, offset, v, bytes);
    if (bytes &&
        __atomic_add_fetch(&soak_stores, 1, __ATOMIC_RELAXED) % SOAK_BROKEN_EVERY == 0)
        buffer.base[offset + (bytes < buffer.element ? bytes : buffer.element) - 1] ^=
            0x80;
}

#define ips_store soak_broken_store
#include "tools/simgpu/kernels.cpp"
