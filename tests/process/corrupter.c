/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into ranks: writes L wrong bytes into a buffer of an AllReduce on the engine,
 * as bad memory or a bad link would. IPS_CORRUPT=out:N:B:L  the nth AllReduce kernel's
 * output, after it has run, from byte B IPS_CORRUPT=in:N:B:L   its input, before it runs
 * Stands between the shim and the driver, where the shim looks the driver's calls up. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/gpu.h"
#include "kernels/wire.h"
#include "tests/process/real_dlsym.h"

#define EXPORT __attribute__((visibility("default")))
#define MOST 64

static struct ips_gpu_api next; /* the calls that are stood before */
static gpu_function kernels[MOST];
static unsigned kernel_count, launches;

/* Remembers which functions are AllReduce kernels. */
static int get_function(gpu_function *function, gpu_module module, const char *name)
{
    int error = next.cuModuleGetFunction(function, module, name);
    const int is_wanted_kernel = !strncmp(name, "ips_ring_", 9) ||
                                 !strncmp(name, "ips_oneshot_", 12) ||
                                 !strncmp(name, "ips_twoshot_", 12) ||
                                 !strncmp(name, "ips_hierarchical_", 17);
    if (!error && is_wanted_kernel && kernel_count < MOST)
        kernels[kernel_count++] = *function;
    return error;
}

static int is_allreduce(gpu_function function)
{
    for (unsigned i = 0; i < kernel_count; i++)
        if (kernels[i] == function)
            return 1;
    return 0;
}

struct spot {
    char side[4];
    unsigned nth, byte, length;
};

/* Whether this launch is to be corrupted. */
static int is_wanted(struct spot *ret_spot)
{
    const char *text = getenv("IPS_CORRUPT");
    return text &&
           sscanf(text, "%3[a-z]:%u:%u:%u", ret_spot->side, &ret_spot->nth,
                  &ret_spot->byte, &ret_spot->length) == 4 &&
           __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED) == ret_spot->nth;
}

static void spoil(const void *buffer, const struct spot *spot, gpu_stream stream)
{
    next.cuMemsetD8Async((gpu_ptr)(uintptr_t)buffer + spot->byte, 0x5b, spot->length,
                         stream);
}

static int launch(gpu_function function, unsigned grid_x, unsigned grid_y,
                  unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                  unsigned shared_bytes, gpu_stream stream, void **parameters,
                  void **extra)
{
    struct spot spot;
    const struct ips_allreduce_args *args = parameters[0];
    const int wanted = is_allreduce(function) && is_wanted(&spot);
    if (wanted && spot.side[0] == 'i')
        spoil(args->in, &spot, stream);
    int error = next.cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y,
                                    block_z, shared_bytes, stream, parameters, extra);
    if (wanted && spot.side[0] == 'o')
        spoil(args->out, &spot, stream);
    return error;
}

static int asked_by_shim(const void *caller)
{
    Dl_info info = {0};
    return dladdr(caller, &info) && info.dli_fname &&
           strstr(info.dli_fname, "libipcshim");
}

EXPORT void *dlsym(void *handle, const char *name)
{
    void *found = real_dlsym()(handle, name);
    if (!found || !asked_by_shim(__builtin_return_address(0)))
        return found;
    if (!strcmp(name, "cuMemsetD8Async"))
        memcpy(&next.cuMemsetD8Async, &found, sizeof found);
    if (!strcmp(name, "cuModuleGetFunction")) {
        memcpy(&next.cuModuleGetFunction, &found, sizeof found);
        return (void *)get_function;
    }
    if (!strcmp(name, "cuLaunchKernel")) {
        memcpy(&next.cuLaunchKernel, &found, sizeof found);
        return (void *)launch;
    }
    return found;
}
