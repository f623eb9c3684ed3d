/* SPDX-License-Identifier: Apache-2.0 */
/* The unmodified device code, compiled for the checker: instrumented, with narrow flags and
 * few small slots, so that every counter wraps within a few calls. */
#include "kernels/allreduce.cu"

#include "tests/checker/kernels.h"

static_assert(offsetof(struct ips_ring_shared, dead) == CHECK_SHARED_DEAD, "as watched");

static void run_ring_ll(const void *args)
{
    ips_ring_ll(*static_cast<const struct ips_allreduce_args *>(args));
}

static void run_ring_ll128(const void *args)
{
    ips_ring_ll128(*static_cast<const struct ips_allreduce_args *>(args));
}

static void run_ring_simple(const void *args)
{
    ips_ring_simple(*static_cast<const struct ips_allreduce_args *>(args));
}

static void run_oneshot_ll(const void *args)
{
    ips_oneshot_ll(*static_cast<const struct ips_allreduce_args *>(args));
}

static void run_oneshot_ll128(const void *args)
{
    ips_oneshot_ll128(*static_cast<const struct ips_allreduce_args *>(args));
}

static void run_twoshot_ll(const void *args)
{
    ips_twoshot_ll(*static_cast<const struct ips_allreduce_args *>(args));
}

static void run_twoshot_ll128(const void *args)
{
    ips_twoshot_ll128(*static_cast<const struct ips_allreduce_args *>(args));
}

static void run_probe(const void *args)
{
    ips_probe(*static_cast<const struct ips_probe_args *>(args));
}

lane_fn *const checked_probe = run_probe;
lane_fn *const checked_kernels[IPS_VARIANTS] = {
    run_ring_ll,
    run_ring_ll128,
    run_ring_simple,
    run_oneshot_ll,
    run_oneshot_ll128,
    run_twoshot_ll,
    run_twoshot_ll128};
