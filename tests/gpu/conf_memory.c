/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: contexts, names, memory and copies. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/gpu/conformance.h"

static void no_context(void *data)
{
    gpu_ptr address;
    gpu_context current;
    (void)data;
    OK(more.cuCtxSetCurrent(NULL));
    OK(gpu.cuCtxGetCurrent(&current));
    tap(current == NULL, "a thread can have no current context");
    tap_is(gpu.cuMemAlloc(&address, 64), INVALID_CONTEXT,
           "no allocation without a context");
}

static int name_is(int error, const char *want)
{
    const char *name = NULL;
    return gpu.cuGetErrorName(error, &name) == 0 && name && strcmp(name, want) == 0;
}

static void test_names(void)
{
    const char *name;
    tap(name_is(2, "CUDA_ERROR_OUT_OF_MEMORY"), "name of error 2");
    tap(name_is(209, "CUDA_ERROR_NO_BINARY_FOR_GPU"), "name of error 209");
    tap(name_is(600, "CUDA_ERROR_NOT_READY"), "name of error 600");
    tap(name_is(704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"), "name of error 704");
    tap(name_is(900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"), "name of error 900");
    tap(gpu.cuGetErrorName(123456, &name) != 0, "no name for an unknown error");
}

static void test_peers(void)
{
    int devices, can = 1;
    gpu_context other;
    OK(gpu.cuDeviceGetCount(&devices));
    if (devices < 2)
        return;
    OK(gpu.cuDeviceCanAccessPeer(&can, 0, 0));
    tap_is(can, 0, "a device is not its own peer");
    OK(gpu.cuDeviceCanAccessPeer(&can, 0, 1));
    if (!can)
        return;
    OK(gpu.cuDevicePrimaryCtxRetain(&other, 1));
    tap_is(gpu.cuCtxEnablePeerAccess(other, 0), 0, "peer access is enabled");
    tap_is(gpu.cuCtxEnablePeerAccess(other, 0), GPU_ERROR_PEER_ACCESS_ALREADY_ENABLED,
           "and says so the second time");
    OK(gpu.cuDevicePrimaryCtxRelease(1));
}

void test_context(void)
{
    gpu_context again, current;
    gpu_device device = -1;
    int major = 0;
    struct gpu_uuid uuid = {{0}};
    char bus[16] = "";
    OK(gpu.cuDevicePrimaryCtxRetain(&context, 0));
    OK(gpu.cuDevicePrimaryCtxRetain(&again, 0));
    tap(context == again, "the primary context keeps its handle");
    OK(gpu.cuDevicePrimaryCtxRelease(0));
    OK(gpu.cuCtxPushCurrent(context));
    OK(gpu.cuCtxGetCurrent(&current));
    OK(gpu.cuCtxGetDevice(&device));
    tap(current == context && device == 0, "a pushed context is current");
    OK(gpu.cuCtxPopCurrent(&current));
    tap(current == context, "pop gives it back");
    OK(more.cuCtxSetCurrent(context));
    OK(gpu.cuDeviceGetAttribute(&major, GPU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    tap(major >= 7, "compute capability");
    OK(gpu.cuDeviceGetUuid(&uuid, 0));
    OK(gpu.cuDeviceGetPCIBusId(bus, sizeof bus, 0));
    tap(strlen(bus) == 12 && bus[4] == ':', "bus id %s", bus);
    on_thread(no_context, NULL);
    test_names();
    test_peers();
}

static void test_proc_address(void)
{
    void *found = NULL;
    int status = -1;
    gpu_ptr address = 0;
    int (*function)(gpu_ptr *, size_t);
    tap_is(more.cuGetProcAddress("cuMemAlloc", &found, 12000, 0, &status), 0,
           "cuGetProcAddress finds cuMemAlloc");
    memcpy(&function, &found, sizeof function);
    tap(found && status == 0 && function(&address, 64) == 0 && address, "and it works");
    OK(gpu.cuMemFree(address));
    tap(more.cuGetProcAddress("cuNoSuchCall", &found, 12000, 0, &status) != 0 ||
            status == 1,
        "but nothing that isn't there");
}

static void test_host_memory(gpu_ptr device, size_t bytes)
{
    gpu_ptr mapped;
    gpu_stream stream = stream_new();
    void *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tap(gpu.cuMemHostGetDevicePointer(&mapped, host, 0) != 0, "the device does not know it");
    OK(gpu.cuMemHostRegister(host, bytes, GPU_HOST_PORTABLE | GPU_HOST_DEVICEMAP));
    tap(gpu.cuMemHostRegister(host, bytes, GPU_HOST_PORTABLE | GPU_HOST_DEVICEMAP) != 0,
        "memory is registered once");
    OK(gpu.cuMemHostGetDevicePointer(&mapped, host, 0));
    memset(host, 0x3c, bytes);
    OK(gpu.cuMemcpyHtoDAsync(device, host, bytes, stream));
    OK(gpu.cuStreamSynchronize(stream));
    tap(all_are(device, bytes, 0x3c), "copy from pinned memory");
    OK(gpu.cuMemsetD8Async(mapped, 0x44, bytes, stream));
    OK(gpu.cuStreamSynchronize(stream));
    tap(((unsigned char *)host)[bytes - 1] == 0x44,
        "the device writes mapped host memory");
    OK(gpu.cuMemsetD8Async(device, 0x45, bytes, stream));
    OK(gpu.cuMemcpyDtoHAsync(host, device, bytes, stream));
    OK(gpu.cuStreamSynchronize(stream));
    tap(((unsigned char *)host)[0] == 0x45, "copy to pinned memory");
    OK(gpu.cuStreamDestroy(stream));
    OK(gpu.cuMemHostUnregister(host));
    tap(gpu.cuMemHostUnregister(host) != 0, "and unregistered once");
    munmap(host, bytes);
}

/* As ranks that are threads do it: one memory, mapped and registered twice. */
static void test_shared_memory(size_t bytes)
{
    enum { MAPPINGS = 2 };
    char *host[MAPPINGS];
    gpu_ptr device[MAPPINGS];
    gpu_stream stream = stream_new();
    const int fd = memfd_create("conformance", MFD_CLOEXEC);
    tap(fd >= 0 && !posix_fallocate(fd, 0, (off_t)bytes), "shared memory");
    for (int i = 0; i < MAPPINGS; i++) {
        host[i] = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        OK(gpu.cuMemHostRegister(host[i], bytes, GPU_HOST_PORTABLE | GPU_HOST_DEVICEMAP));
        OK(gpu.cuMemHostGetDevicePointer(&device[i], host[i], 0));
    }
    tap(gpu.cuMemHostRegister(host[0] + bytes, bytes, GPU_HOST_DEVICEMAP) != 0,
        "what lies behind the end of its file can't be registered");
    OK(gpu.cuMemsetD8Async(device[0], 0x51, bytes, stream));
    OK(gpu.cuStreamSynchronize(stream));
    tap(host[1][0] == 0x51 && host[1][bytes - 1] == 0x51 && all_are(device[1], bytes, 0x51),
        "what the device writes through one mapping is seen through the other");
    OK(gpu.cuMemHostUnregister(host[0]));
    munmap(host[0], 2 * bytes);
    OK(gpu.cuMemsetD8Async(device[1], 0x52, bytes, stream));
    OK(gpu.cuStreamSynchronize(stream));
    tap(host[1][bytes - 1] == 0x52, "which outlives the first");
    OK(gpu.cuMemHostUnregister(host[1]));
    munmap(host[1], 2 * bytes);
    close(fd);
    OK(gpu.cuStreamDestroy(stream));
}

static void test_pageable(gpu_ptr device, size_t bytes)
{
    unsigned char *plain = malloc(bytes);
    gpu_stream stream = stream_new();
    memset(plain, 0x21, bytes);
    OK(gpu.cuMemcpyHtoDAsync(device, plain, bytes, stream));
    memset(plain, 0x22, bytes);
    OK(gpu.cuStreamSynchronize(stream));
    tap(all_are(device, bytes, 0x21), "a pageable source has been read on return");
    OK(gpu.cuMemcpyDtoHAsync(plain, device, bytes, stream));
    tap(plain[0] == 0x21 && plain[bytes - 1] == 0x21,
        "a pageable destination has been written on return");
    OK(gpu.cuStreamSynchronize(stream));
    OK(gpu.cuStreamDestroy(stream));
    free(plain);
}

void test_memory(void)
{
    const size_t bytes = 48 * 1024;
    size_t total;
    gpu_ptr a, b, huge;
    OK(gpu.cuMemAlloc(&a, bytes));
    tap(a % 256 == 0, "an allocation is aligned to 256 bytes");
    if (simulated)
        tap(all_are(a, bytes, 0xa5), "new memory holds garbage");
    OK(more.cuMemsetD8(a, 1, bytes));
    OK(more.cuMemsetD8(a + 100, 2, 200));
    tap(all_are(a, 100, 1) && all_are(a + 100, 200, 2) &&
            all_are(a + 300, bytes - 300, 1),
        "memset fills exactly its range");
    b = alloc_filled(bytes, 0);
    OK(more.cuMemcpyDtoD(b + 10, a + 100, 200));
    OK(more.cuCtxSynchronize());
    tap(all_are(b, 10, 0) && all_are(b + 10, 200, 2) && all_are(b + 210, bytes - 210, 0),
        "copy from device to device");
    test_pageable(a, bytes);
    test_host_memory(b, bytes);
    test_shared_memory(bytes);
    OK(more.cuDeviceTotalMem(&total, 0));
    tap_is(gpu.cuMemAlloc(&huge, total * 2), GPU_ERROR_OUT_OF_MEMORY,
           "more memory than there is");
    tap(gpu.cuMemFree(a + 256) != 0, "only the start of an allocation can be freed");
    OK(gpu.cuMemFree(a));
    OK(gpu.cuMemFree(b));
    test_proc_address();
}
