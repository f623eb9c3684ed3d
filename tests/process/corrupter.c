/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into ranks: writes one wrong byte into a buffer of an AllReduce on the engine, as
 * bad memory or a bad link would.
 *   IPS_CORRUPT=out:N:B  the nth AllReduce kernel's output, after it has run, at byte B
 *   IPS_CORRUPT=in:N:B   its input, before it runs
 * Stands between the shim and the driver, where the shim looks the driver's calls up. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/gpu.h"
#include "kernels/wire.h"

#define EXPORT __attribute__((visibility("default")))
#define MOST 64

typedef void *dlsym_function(void *handle, const char *name);

static struct ips_gpu_api next; /* the calls that are stood before */
static gpu_function kernels[MOST];
static unsigned kernel_count, launches;

/* dlsym itself is replaced below. */
static dlsym_function *real_dlsym(void)
{
    static dlsym_function *found;
    if (!found) {
        void *symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!symbol)
            symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        memcpy(&found, &symbol, sizeof found);
    }
    return found;
}

/* Remembers which functions are AllReduce kernels. */
static int get_function(gpu_function *function, gpu_module module, const char *name)
{
    int error = next.cuModuleGetFunction(function, module, name);
    if (!error && !strncmp(name, "ips_allreduce_", 14) && kernel_count < MOST)
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

/* Where this launch is to be corrupted: 'i', 'o' or 0. */
static char what(unsigned *ret_byte)
{
    char side[4] = "";
    unsigned nth = 0;
    const char *text = getenv("IPS_CORRUPT");
    if (!text || sscanf(text, "%3[a-z]:%u:%u", side, &nth, ret_byte) != 3)
        return 0;
    return __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED) == nth ? side[0] : 0;
}

static void spoil(const void *buffer, unsigned byte, gpu_stream stream)
{
    next.cuMemsetD8Async((gpu_ptr)(uintptr_t)buffer + byte, 0x5b, 1, stream);
}

static int launch(gpu_function function, unsigned grid_x, unsigned grid_y,
                  unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                  unsigned shared_bytes, gpu_stream stream, void **parameters,
                  void **extra)
{
    unsigned byte = 0;
    const struct ips_allreduce_args *args = parameters[0];
    const char side = is_allreduce(function) ? what(&byte) : 0;
    if (side == 'i')
        spoil(args->in, byte, stream);
    int error = next.cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y,
                                    block_z, shared_bytes, stream, parameters, extra);
    if (side == 'o')
        spoil(args->out, byte, stream);
    return error;
}

static int asked_by_shim(const void *caller)
{
    Dl_info info = {0};
    return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libipcshim");
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
