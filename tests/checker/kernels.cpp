/* SPDX-License-Identifier: Apache-2.0 */
/* The unmodified device code, compiled for the checker: instrumented, with narrow flags and
 * few small slots, so that every counter wraps within a few calls. */
#include "kernels/allreduce.cu"

#include "tests/checker/kernels.h"

static_assert(offsetof(struct ips_ring_shared, dead) == CHECK_SHARED_DEAD, "as watched");

static void run_ll(const void *args)
{
    ips_allreduce_ll(*static_cast<const struct ips_allreduce_args *>(args));
}

static void run_ll128(const void *args)
{
    ips_allreduce_ll128(*static_cast<const struct ips_allreduce_args *>(args));
}

static void run_simple(const void *args)
{
    ips_allreduce_simple(*static_cast<const struct ips_allreduce_args *>(args));
}

static void run_probe(const void *args)
{
    ips_probe(*static_cast<const struct ips_probe_args *>(args));
}

lane_fn *const checked_probe = run_probe;
lane_fn *const checked_kernels[IPS_PROTOS] = {run_ll, run_ll128, run_simple};
