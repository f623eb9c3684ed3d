/* SPDX-License-Identifier: Apache-2.0 */
/* Enqueues works as kernels from the embedded fat binary, or as host functions. */
#include "tests/soak/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tests/soak/works_host.h"

#define THREADS 256
#define BLOCKS 32 /* at most: ranks that share a GPU need room for each other's */

#ifdef SOAK_FATBIN
#include "tests/soak/soak.fatbin.h" /* .incbin is no dependency; this is one */
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".global soak_image\n"
        ".hidden soak_image\n"
        "soak_image:\n"
        ".incbin \"" SOAK_FATBIN "\"\n"
        ".popsection\n");
extern const unsigned char soak_image[];
#else
static const unsigned char soak_image[8];
#endif

static const char *const names[SOAK_WORKS] = {"soak_fill_kernel", "soak_check_kernel",
                                              "soak_advance_kernel"};

static int try(int error, const char *what)
{
    if (error)
        fprintf(stderr, "soak: %s: %s\n", what, ips_gpu_error(error));
    return error;
}

static int open_module(struct soak_device *d)
{
    const struct ips_gpu_api *gpu = d->device.gpu;
    int error = try(gpu->cuModuleLoadData(&d->module, soak_image),
                    "loading the kernels (built without nvcc?)");
    for (unsigned i = 0; i < SOAK_WORKS && !error; i++) {
        int unused; /* asking makes a kernel resident: a late load could wait for ours */
        error =
            try(gpu->cuModuleGetFunction(&d->kernel[i], d->module, names[i]), names[i]);
        if (!error)
            error = try(gpu->cuFuncGetAttribute(&unused, 0, d->kernel[i]), names[i]);
    }
    return error;
}

int soak_device_open(struct soak_device *d, unsigned rank)
{
    memset(d, 0, sizeof *d);
    device_count(&d->simulated);
    int error = device_open(&d->device, rank);
    if (error)
        return error;
    if (!d->simulated)
        return open_module(d);
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = handle ? dlsym(handle, "cuLaunchHostFunc") : NULL;
    memcpy(&d->cuLaunchHostFunc, &found, sizeof found);
    return found ? 0 : -1;
}

void soak_device_close(struct soak_device *d)
{
    if (d->module)
        d->device.gpu->cuModuleUnload(d->module);
    device_close(&d->device);
}

int soak_enqueue(struct soak_device *d, enum soak_work work, struct soak_call *call,
                 gpu_stream stream)
{
    if (d->simulated)
        return try(d->cuLaunchHostFunc(stream, soak_host_works[work], call), names[work]);
    void *parameters[] = {call};
    uint64_t wanted = work == SOAK_ADVANCE ? 1 : (call->count + THREADS - 1) / THREADS;
    unsigned blocks = wanted < BLOCKS ? (unsigned)wanted : BLOCKS;
    return try(d->device.gpu->cuLaunchKernel(d->kernel[work], blocks, 1, 1,
                                             work == SOAK_ADVANCE ? 1 : THREADS, 1, 1, 0,
                                             stream, parameters, NULL),
               names[work]);
}
