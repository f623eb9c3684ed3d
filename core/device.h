/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU of this process as the engine uses it: its primary context and the loaded
 * kernels. Made once per device and kept until the process ends, since captured graphs
 * may hold the kernels. */
#ifndef IPS_CORE_DEVICE_H
#define IPS_CORE_DEVICE_H

#include "core/gpu.h"
#include "kernels/types.h"

struct ips_device {
    const struct ips_gpu_api *gpu;
    int ordinal;
    gpu_device device;
    gpu_context context;
    struct gpu_uuid uuid;
    char bus_id[32];
    int multiprocessors;
    gpu_function kernels[IPS_VARIANTS];
    gpu_function probe;
    gpu_function weigh, compare; /* see kernels/verify.h */
    struct ips_device *older;
};

/* The device of this ordinal, with the kernels loaded now and not at their first launch
 * (a late load can deadlock kernels that wait for each other). NULL on failure, with the
 * cause in ret_reason[IPS_REASON_BYTES]. May take seconds where PTX has to be compiled.
 * Thread-safe. */
struct ips_device *ips_device_get(int ordinal, char *ret_reason);

/* Looks for the device with this UUID among those visible here. 0 and *ret_ordinal, or
 * -ENODEV. */
int ips_device_find(const struct ips_gpu_api *gpu, const struct gpu_uuid *uuid,
                    int *ret_ordinal);

#endif
