/* SPDX-License-Identifier: Apache-2.0 */
/* Opens devices and loads the kernels into their primary contexts, once. */
#include "core/device.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine.h"
#include "core/log.h"
#include "kernels/image.h"
#include "kernels/wire.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ips_device *devices;

static int failed(char *ret_reason, const char *call, int error)
{
    if (error)
        snprintf(ret_reason, IPS_REASON_BYTES, "%s: %s", call, ips_gpu_error(error));
    return error;
}

/* The kernels in `module`, each made resident by asking for its attributes. */
static int find_kernels(struct ips_device *device, gpu_module module, char *ret_reason)
{
    const struct {
        gpu_function *slot;
        const char *name;
    } wanted[] = {
#define WANTED(function, capitals)                                                         \
    {&device->kernels[IPS_##capitals], IPS_KERNEL_##capitals},
        IPS_ALLREDUCE_KERNELS(WANTED)
#undef WANTED
        {&device->probe, IPS_KERNEL_PROBE},
        {&device->weigh, IPS_KERNEL_WEIGH},
        {&device->compare, IPS_KERNEL_COMPARE},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        int registers;
        int error =
            device->gpu->cuModuleGetFunction(wanted[i].slot, module, wanted[i].name);
        if (!error)
            error = device->gpu->cuFuncGetAttribute(&registers, GPU_FUNCTION_REGISTERS,
                                                    *wanted[i].slot);
        if (failed(ret_reason, wanted[i].name, error))
            return error;
    }
    return 0;
}

/* The loaded module was built from the same wire.h as this code. */
static int check_version(const struct ips_device *device, gpu_module module,
                         char *ret_reason)
{
    const struct ips_gpu_api *gpu = device->gpu;
    gpu_ptr address = 0;
    size_t bytes = 0;
    uint32_t version = 0;
    gpu_stream stream = NULL;
    int error = gpu->cuModuleGetGlobal(&address, &bytes, module, IPS_MODULE_VERSION);
    if (!error)
        error = gpu->cuStreamCreate(&stream, GPU_STREAM_NON_BLOCKING);
    if (error)
        return failed(ret_reason, IPS_MODULE_VERSION, error);
    if (bytes == sizeof version)
        error = gpu->cuMemcpyDtoHAsync(&version, address, bytes, stream);
    if (!error)
        error = gpu->cuStreamSynchronize(stream);
    gpu->cuStreamDestroy(stream);
    if (failed(ret_reason, IPS_MODULE_VERSION, error))
        return error;
    if (version == IPS_WIRE_VERSION)
        return 0;
    snprintf(ret_reason, IPS_REASON_BYTES,
             "the loaded kernels have wire version %u, the library %u", version,
             (unsigned)IPS_WIRE_VERSION);
    return -EPROTO;
}

static int load(struct ips_device *device, char *ret_reason)
{
    static const unsigned char none[64];
    const void *image = ips_kernel_image_bytes ? (const void *)ips_kernel_image : none;
    gpu_module module = NULL;
    int error = device->gpu->cuModuleLoadData(&module, image);
    if (error) {
        int version = 0;
        device->gpu->cuDriverGetVersion(&version);
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "the driver (CUDA %d.%d) refuses the kernels: %s; %s", version / 1000,
                 version % 1000 / 10, ips_gpu_error(error),
                 ips_kernel_image_bytes
                     ? "it takes driver 580 or newer and a GPU of compute capability 7.5"
                     : "this library was built without nvcc: rebuild it with the CUDA "
                       "toolkit");
        return error;
    }
    error = find_kernels(device, module, ret_reason);
    if (!error)
        error = check_version(device, module, ret_reason);
    if (error)
        device->gpu->cuModuleUnload(module);
    return error;
}

static int open_device(struct ips_device *device, char *ret_reason)
{
    const struct ips_gpu_api *gpu = device->gpu;
    int pushed = 0;
    int error = gpu->cuDeviceGet(&device->device, device->ordinal);
    if (!error)
        error = gpu->cuDeviceGetUuid(&device->uuid, device->device);
    if (!error)
        error = gpu->cuDeviceGetPCIBusId(device->bus_id, sizeof device->bus_id,
                                         device->device);
    if (!error)
        error = gpu->cuDeviceGetAttribute(&device->multiprocessors,
                                          GPU_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                          device->device);
    if (!error)
        error = gpu->cuDevicePrimaryCtxRetain(&device->context, device->device);
    if (failed(ret_reason, "cannot open the device", error))
        return error;
    error = ips_gpu_enter(gpu, device->context, &pushed);
    if (!failed(ret_reason, "cannot enter the context", error)) {
        error = load(device, ret_reason);
        ips_gpu_leave(gpu, pushed);
    }
    if (error)
        gpu->cuDevicePrimaryCtxRelease(device->device);
    return error;
}

struct ips_device *ips_device_get(int ordinal, char *ret_reason)
{
    const struct ips_gpu_api *gpu = ips_gpu();
    if (!gpu) {
        snprintf(ret_reason, IPS_REASON_BYTES, "no usable CUDA driver (libcuda.so.1)");
        return NULL;
    }
    pthread_mutex_lock(&lock);
    struct ips_device *device = devices;
    while (device && device->ordinal != ordinal)
        device = device->older;
    if (!device) {
        device = calloc(1, sizeof *device);
        if (!device) {
            snprintf(ret_reason, IPS_REASON_BYTES, "out of host memory");
        } else {
            device->gpu = gpu;
            device->ordinal = ordinal;
            if (open_device(device, ret_reason)) {
                free(device);
                device = NULL;
            } else {
                device->older = devices;
                devices = device;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return device;
}

int ips_device_find(const struct ips_gpu_api *gpu, const struct gpu_uuid *uuid,
                    int *ret_ordinal)
{
    int count = 0;
    if (gpu->cuDeviceGetCount(&count))
        return -ENODEV;
    for (int i = 0; i < count; i++) {
        gpu_device device;
        struct gpu_uuid here;
        if (!gpu->cuDeviceGet(&device, i) && !gpu->cuDeviceGetUuid(&here, device) &&
            !memcmp(&here, uuid, sizeof here)) {
            *ret_ordinal = i;
            return 0;
        }
    }
    return -ENODEV;
}
