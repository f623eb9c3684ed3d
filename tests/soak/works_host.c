/* SPDX-License-Identifier: Apache-2.0 */
/* A soak's works as host functions of a stream: for the CPU stand-in, where device memory
 * is the host's. */
#include "tests/soak/works_host.h"

#include <time.h>

static void fill(void *data)
{
    const struct soak_call *call = data;
    const uint64_t delay = soak_delay_ns(call, soak_number(call));
    soak_fill(call, 0, 1);
    if (delay)
        nanosleep(&(struct timespec){.tv_nsec = (long)delay}, NULL);
}

static void check(void *data)
{
    soak_check(data, 0, 1);
}

static void advance(void *data)
{
    ++*((struct soak_call *)data)->replay;
}

void (*const soak_host_works[SOAK_WORKS])(void *call) = {fill, check, advance};
