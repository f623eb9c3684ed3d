/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels as the checker's driver calls them, and the wire layout that both sides of it
 * are compiled with. */
#ifndef CHECKER_KERNELS_H
#define CHECKER_KERNELS_H

#include "kernels/wire.h"
#include "tests/checker/checker.h"

extern lane_fn *const checked_kernels[IPS_VARIANTS];
extern lane_fn *const checked_probe;

static_assert(IPS_LL_FLAG_BITS <= 8, "built with narrow flags");
static_assert(sizeof(struct ips_channel) < 40 * 1024, "built with small slots");

#endif
