/* SPDX-License-Identifier: Apache-2.0 */
/* No bad links: for tests of the device code without the rest of the CPU stand-in. */
#ifndef IPS_TESTS_NO_LINKS_H
#define IPS_TESTS_NO_LINKS_H

#include <stdint.h>

extern "C" {
int simgpu_links;
int simgpu_store(void *, uint64_t, uint64_t, unsigned)
{
    return 0;
}
const void *simgpu_load(const void *address)
{
    return address;
}
}

#endif
