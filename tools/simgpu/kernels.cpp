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

static void run_weigh(const void *args)
{
    ips_verify_weigh(*static_cast<const struct ips_verify_args *>(args));
}

static void run_compare(const void *args)
{
    ips_verify_compare(*static_cast<const struct ips_verify_args *>(args));
}

static void run_link_store(const void *args)
{
    ips_link_store(*static_cast<const struct ips_link_args *>(args));
}

static void run_link_check(const void *args)
{
    ips_link_check(*static_cast<const struct ips_link_args *>(args));
}

#define ENTRY(function, capitals)                                                          \
    {IPS_KERNEL_##capitals, run_##function, sizeof(struct ips_allreduce_args)},
const struct sim_kernel sim_kernels[] = {
    IPS_ALLREDUCE_KERNELS(ENTRY)
    {IPS_KERNEL_PROBE, run_probe, sizeof(struct ips_probe_args)},
    {IPS_KERNEL_WEIGH, run_weigh, sizeof(struct ips_verify_args)},
    {IPS_KERNEL_COMPARE, run_compare, sizeof(struct ips_verify_args)},
    {IPS_KERNEL_LINK_STORE, run_link_store, sizeof(struct ips_link_args)},
    {IPS_KERNEL_LINK_CHECK, run_link_check, sizeof(struct ips_link_args)},
};
const size_t sim_kernel_count = sizeof sim_kernels / sizeof sim_kernels[0];
void *const sim_module_version = &ips_module_version;
