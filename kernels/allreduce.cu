/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels: one per algorithm and protocol, the probe, two that verify, and two of
 * `ipcshim doctor --probe`. Compiled by nvcc for GPUs and as C++ for the CPU stand-in. */
#include "kernels/wire.h"

#include "kernels/mem.h"

#include "kernels/hierarchical.h"
#include "kernels/link_probe.h"
#include "kernels/ll.h"
#include "kernels/ll128.h"
#include "kernels/probe.h"
#include "kernels/simple.h"
#include "kernels/verify.h"

extern "C" {
IPS_GLOBAL uint32_t ips_module_version = IPS_WIRE_VERSION;
}

IPS_KERNEL(IPS_MAX_THREADS) ips_ring_ll(IPS_PARAMETER struct ips_allreduce_args args)
{
    struct ips_ll protocol;
    ips_ring_run(&args, &protocol);
}

IPS_KERNEL(IPS_MAX_THREADS) ips_ring_ll128(IPS_PARAMETER struct ips_allreduce_args args)
{
    struct ips_ll128 protocol;
    ips_ll128::open(&protocol, &args.head->keys);
    ips_ring_run(&args, &protocol);
}

IPS_KERNEL(IPS_MAX_THREADS) ips_ring_simple(IPS_PARAMETER struct ips_allreduce_args args)
{
    struct ips_simple protocol;
    ips_ring_run(&args, &protocol);
}

IPS_KERNEL(IPS_MAX_THREADS) ips_oneshot_ll(IPS_PARAMETER struct ips_allreduce_args args)
{
    struct ips_ll protocol;
    ips_direct_run(&args, &protocol, IPS_ONESHOT);
}

IPS_KERNEL(IPS_MAX_THREADS) ips_oneshot_ll128(IPS_PARAMETER struct ips_allreduce_args args)
{
    struct ips_ll128 protocol;
    ips_ll128::open(&protocol, &args.head->keys);
    ips_direct_run(&args, &protocol, IPS_ONESHOT);
}

IPS_KERNEL(IPS_TWOSHOT_LL_THREADS) ips_twoshot_ll(IPS_PARAMETER struct ips_allreduce_args args)
{
    struct ips_ll protocol;
    ips_direct_run(&args, &protocol, IPS_TWOSHOT);
}

IPS_KERNEL(IPS_TWOSHOT_LL128_THREADS) ips_twoshot_ll128(IPS_PARAMETER struct ips_allreduce_args args)
{
    struct ips_ll128 protocol;
    ips_ll128::open(&protocol, &args.head->keys);
    ips_direct_run(&args, &protocol, IPS_TWOSHOT);
}

IPS_KERNEL(IPS_MAX_THREADS) ips_hierarchical_simple(IPS_PARAMETER struct ips_allreduce_args args)
{
    struct ips_simple protocol;
    ips_hierarchical_run(&args, &protocol);
}

IPS_KERNEL(IPS_PROBE_THREADS) ips_probe(IPS_PARAMETER struct ips_probe_args args)
{
    ips_probe_run(&args);
}

IPS_KERNEL(IPS_MAX_THREADS) ips_verify_weigh(IPS_PARAMETER struct ips_verify_args args)
{
    ips_verify_weigh_run(&args);
}

IPS_KERNEL(IPS_MAX_THREADS) ips_verify_compare(IPS_PARAMETER struct ips_verify_args args)
{
    ips_verify_compare_run(&args);
}

IPS_KERNEL(IPS_LINK_MAX_THREADS) ips_link_store(IPS_PARAMETER struct ips_link_args args)
{
    ips_link_store_run(&args);
}

IPS_KERNEL(IPS_LINK_MAX_THREADS) ips_link_check(IPS_PARAMETER struct ips_link_args args)
{
    ips_link_check_run(&args);
}
