/* SPDX-License-Identifier: Apache-2.0 */
/* The device code, compiled for the host: what cuModuleGetFunction finds, whatever image
 * was loaded. Also the only place where the kernels meet the fiber scheduler. */
#include "kernels/allreduce.cu"

extern "C" {
#include "tools/simgpu/lanes.h"
}

static_assert(IPS_SHARED_BYTES <= SIM_SHARED_BYTES, "a block's shared memory fits");

/* sim.h is C; these mirror its struct sim_kernel and the two look-ups. */
struct sim_kernel {
    const char *name;
    sim_lane_fn *fn;
    size_t bytes;
};
extern "C" const struct sim_kernel sim_kernels[];
extern "C" const size_t sim_kernel_count;
extern "C" void *const sim_module_version;

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

static void run_weigh(const void *args)
{
    ips_verify_weigh(*static_cast<const struct ips_verify_args *>(args));
}

static void run_compare(const void *args)
{
    ips_verify_compare(*static_cast<const struct ips_verify_args *>(args));
}

const struct sim_kernel sim_kernels[] = {
    {IPS_KERNEL_RING_LL, run_ring_ll, sizeof(struct ips_allreduce_args)},
    {IPS_KERNEL_RING_LL128, run_ring_ll128, sizeof(struct ips_allreduce_args)},
    {IPS_KERNEL_RING_SIMPLE, run_ring_simple, sizeof(struct ips_allreduce_args)},
    {IPS_KERNEL_ONESHOT_LL, run_oneshot_ll, sizeof(struct ips_allreduce_args)},
    {IPS_KERNEL_ONESHOT_LL128, run_oneshot_ll128, sizeof(struct ips_allreduce_args)},
    {IPS_KERNEL_TWOSHOT_LL, run_twoshot_ll, sizeof(struct ips_allreduce_args)},
    {IPS_KERNEL_TWOSHOT_LL128, run_twoshot_ll128, sizeof(struct ips_allreduce_args)},
    {IPS_KERNEL_PROBE, run_probe, sizeof(struct ips_probe_args)},
    {IPS_KERNEL_WEIGH, run_weigh, sizeof(struct ips_verify_args)},
    {IPS_KERNEL_COMPARE, run_compare, sizeof(struct ips_verify_args)},
};
const size_t sim_kernel_count = sizeof sim_kernels / sizeof sim_kernels[0];
void *const sim_module_version = &ips_module_version;
