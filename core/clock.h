/* SPDX-License-Identifier: Apache-2.0 */
/* The time that the host measures waits with: it never jumps. */
#ifndef IPS_CORE_CLOCK_H
#define IPS_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t ips_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

#endif
