/* SPDX-License-Identifier: Apache-2.0 */
/* The unmodified device code, compiled for the checker: instrumented, with narrow flags and
 * few small slots, so that every counter wraps within a few calls. */
#include "kernels/allreduce.cu"

#include "tests/checker/kernels.h"

static_assert(offsetof(struct ips_ring_shared, dead) == CHECK_SHARED_DEAD, "as watched");

#define RUN(function, capitals)                                                            \
    static void run_##function(const void *args)                                           \
    {                                                                                      \
        ips_##function(*static_cast<const struct ips_allreduce_args *>(args));             \
    }
IPS_ALLREDUCE_KERNELS(RUN)

static void run_probe(const void *args)
{
    ips_probe(*static_cast<const struct ips_probe_args *>(args));
}

lane_fn *const checked_probe = run_probe;
#define RUNNER(function, capitals) run_##function,
lane_fn *const checked_kernels[IPS_VARIANTS] = {IPS_ALLREDUCE_KERNELS(RUNNER)};
