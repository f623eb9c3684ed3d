/* SPDX-License-Identifier: Apache-2.0 */
/* A lane of nobody else's: for tests that call parts of the device code as plain functions.
 * The block's position is theirs to set. */
#ifndef IPS_TESTS_NO_LANES_H
#define IPS_TESTS_NO_LANES_H

#include <stdint.h>

#include "kernels/mem.h"
#include "tests/unit/no_links.h"

static unsigned block, blocks = 1;
extern "C" {
unsigned simgpu_thread(void)
{
    return 0;
}
unsigned simgpu_threads(void)
{
    return 32;
}
unsigned simgpu_block(void)
{
    return block;
}
unsigned simgpu_blocks(void)
{
    return blocks;
}
void simgpu_barrier(void)
{
}
uint64_t simgpu_shfl_xor(uint64_t value, unsigned)
{
    return value;
}
uint32_t simgpu_ballot(int predicate)
{
    return predicate ? ~0u : 0;
}
void simgpu_spin(void)
{
}
uint64_t simgpu_clock_ns(void)
{
    return 0;
}
void *simgpu_shared(void)
{
    static uint64_t bytes[IPS_SHARED_BYTES / 8];
    return bytes;
}
}

#endif
