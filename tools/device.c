/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU as a program uses it. */
#include "tools/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CAPTURE_MODE_THREAD_LOCAL 1

static int check(int error, const char *call)
{
    if (error == GPU_SUCCESS)
        return 0;
    fprintf(stderr, "ipcshim: %s: %s\n", call, ips_gpu_error(error));
    return -EIO;
}
#define CHECK(call) check((call), #call)

int device_count(int *ret_simulated)
{
    int count = 0;
    *ret_simulated = 0;
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return 0;
    int (*init)(unsigned) = NULL, (*get_count)(int *) = NULL;
    void *found = dlsym(handle, "cuInit");
    memcpy(&init, &found, sizeof init);
    found = dlsym(handle, "cuDeviceGetCount");
    memcpy(&get_count, &found, sizeof get_count);
    *ret_simulated = dlsym(handle, "simgpu_quiet") != NULL;
    if (!init || !get_count || init(0) || get_count(&count))
        return 0;
    return count;
}

static int load_calls(struct device *device)
{
    const struct {
        void *slot;
        const char *name;
    } symbols[] = {
        {&device->cuStreamBeginCapture, "cuStreamBeginCapture_v2"},
        {&device->cuStreamEndCapture, "cuStreamEndCapture"},
        {&device->cuGraphInstantiate, "cuGraphInstantiateWithFlags"},
        {&device->cuGraphLaunch, "cuGraphLaunch"},
        {&device->cuGraphExecDestroy, "cuGraphExecDestroy"},
        {&device->cuGraphDestroy, "cuGraphDestroy"},
        {&device->cuMemcpyAsync, "cuMemcpyAsync"},
        {&device->cuDeviceGetName, "cuDeviceGetName"},
    };
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; handle && i < sizeof symbols / sizeof symbols[0]; i++) {
        void *found = dlsym(handle, symbols[i].name);
        if (!found) {
            fprintf(stderr, "ipcshim: libcuda.so.1 lacks %s\n", symbols[i].name);
            return -ENOSYS;
        }
        memcpy(symbols[i].slot, &found, sizeof found);
    }
    return handle ? 0 : -ENOSYS;
}

int device_open(struct device *device, unsigned rank)
{
    int count = 0;
    memset(device, 0, sizeof *device);
    device->gpu = ips_gpu();
    if (!device->gpu) {
        fprintf(stderr, "ipcshim: no usable CUDA driver (libcuda.so.1)\n");
        return -ENODEV;
    }
    int error = load_calls(device);
    if (error)
        return error;
    error = CHECK(device->gpu->cuDeviceGetCount(&count));
    if (error || count == 0)
        return error ? error : -ENODEV;
    device->ordinal = (int)(rank % (unsigned)count);
    error = CHECK(device->gpu->cuDeviceGet(&device->id, device->ordinal));
    if (!error)
        error =
            CHECK(device->gpu->cuDevicePrimaryCtxRetain(&device->context, device->id));
    if (!error)
        error = CHECK(device->gpu->cuCtxPushCurrent(device->context));
    return error;
}

void device_close(struct device *device)
{
    gpu_context ignored;
    if (!device->context)
        return;
    device->gpu->cuCtxPopCurrent(&ignored);
    device->gpu->cuDevicePrimaryCtxRelease(device->id);
    device->context = NULL;
}

int device_alloc(struct device *device, size_t bytes, gpu_ptr *ret)
{
    return CHECK(device->gpu->cuMemAlloc(ret, bytes ? bytes : 1));
}

void device_free(struct device *device, gpu_ptr address)
{
    if (address)
        CHECK(device->gpu->cuMemFree(address));
}

int device_upload(struct device *device, gpu_ptr to, const void *from, size_t bytes,
                  gpu_stream stream)
{
    if (!bytes)
        return 0;
    int error = CHECK(device->gpu->cuMemcpyHtoDAsync(to, from, bytes, stream));
    return error ? error : CHECK(device->gpu->cuStreamSynchronize(stream));
}

int device_download(struct device *device, void *to, gpu_ptr from, size_t bytes,
                    gpu_stream stream)
{
    if (!bytes)
        return 0;
    int error = CHECK(device->gpu->cuMemcpyDtoHAsync(to, from, bytes, stream));
    return error ? error : CHECK(device->gpu->cuStreamSynchronize(stream));
}

int device_fill(struct device *device, gpu_ptr to, unsigned char value, size_t bytes,
                gpu_stream stream)
{
    if (!bytes)
        return 0;
    int error = CHECK(device->gpu->cuMemsetD8Async(to, value, bytes, stream));
    return error ? error : CHECK(device->gpu->cuStreamSynchronize(stream));
}

int device_stream(struct device *device, gpu_stream *ret)
{
    return CHECK(device->gpu->cuStreamCreate(ret, GPU_STREAM_NON_BLOCKING));
}

int device_wait(struct device *device, gpu_stream stream, double seconds)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (unsigned polls = 1;;
         polls++) { /* yields: on the stand-in, the GPU is a thread */
        int error = device->gpu->cuStreamQuery(stream);
        if (error != GPU_ERROR_NOT_READY)
            return check(error, "cuStreamQuery(stream)");
        if (polls % 16)
            continue;
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((double)(now.tv_sec - start.tv_sec) > seconds) {
            fprintf(stderr, "ipcshim: the stream is not idle after %.0f s\n", seconds);
            return -ETIMEDOUT;
        }
    }
}

int device_capture(struct device *device, gpu_stream stream, int (*enqueue)(void *arg),
                   void *arg, gpu_graph_exec *ret)
{
    gpu_graph graph = NULL;
    int error = CHECK(device->cuStreamBeginCapture(stream, CAPTURE_MODE_THREAD_LOCAL));
    if (error)
        return error;
    int failed = enqueue(arg);
    error = CHECK(device->cuStreamEndCapture(stream, &graph));
    if (!error && !failed)
        error = CHECK(device->cuGraphInstantiate(ret, graph, 0));
    if (graph)
        device->cuGraphDestroy(graph);
    return failed ? failed : error;
}
