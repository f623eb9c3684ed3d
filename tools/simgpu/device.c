/* SPDX-License-Identifier: Apache-2.0 */
/* The fake GPUs and the entry of every call. All processes see the same devices. */
#include "tools/simgpu/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t sim_done = PTHREAD_COND_INITIALIZER;
struct sim_settings sim_settings;
__thread int sim_in_host_function;

static __thread int quiet;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int initialized, forked;

static void child(void)
{
    forked = 1; /* CUDA doesn't work in a child of an initialized process */
}

static long long number(const char *name, long long otherwise)
{
    const char *text = secure_getenv(name);
    return text && *text ? atoll(text) : otherwise;
}

static void read_settings(void)
{
    int devices = (int)number("SIMGPU_DEVICES", 8);
    sim_settings.devices = devices < SIM_MAX_DEVICES ? devices : SIM_MAX_DEVICES;
    sim_settings.driver_version = (int)number("SIMGPU_DRIVER_VERSION", 13000);
    sim_settings.multiprocessors = (int)number("SIMGPU_MULTIPROCESSORS", 132);
    sim_settings.no_peer = number("SIMGPU_NO_PEER", 0) != 0;
    sim_settings.mem_bytes = (size_t)number("SIMGPU_MEM_BYTES", 4ll << 30);
    sim_links_read(secure_getenv("SIMGPU_LINK"));
    for (int i = 0; i < SIM_MAX_DEVICES; i++)
        sim_contexts[i].device = i;
    pthread_atfork(NULL, NULL, child);
}

void simgpu_quiet(int change)
{
    quiet += change;
}

int sim_enter_early(const char *function)
{
    pthread_once(&once, read_settings);
    if (quiet)
        return CUDA_SUCCESS;
    if (sim_logging("SIMGPU"))
        sim_log("%s", function);
    return sim_fault("SIMGPU", function);
}

int sim_enter(const char *function)
{
    int error = sim_enter_early(function);
    if (error)
        return error;
    if (!__atomic_load_n(&initialized, __ATOMIC_ACQUIRE) || forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    return sim_in_host_function ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

uint64_t sim_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int cuInit(unsigned flags)
{
    int error = sim_enter_early(__func__);
    if (error)
        return error;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (forked && initialized)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (sim_settings.devices <= 0)
        return CUDA_ERROR_NO_DEVICE;
    __atomic_store_n(&initialized, 1, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

int cuDriverGetVersion(int *version)
{
    int error = sim_enter_early(__func__);
    if (error)
        return error;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = sim_settings.driver_version;
    return CUDA_SUCCESS;
}

int cuDeviceGetCount(int *count)
{
    SIM_ENTER();
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = sim_settings.devices;
    return CUDA_SUCCESS;
}

static int valid(gpu_device device)
{
    return device >= 0 && device < sim_settings.devices;
}

int cuDeviceGet(gpu_device *device, int ordinal)
{
    SIM_ENTER();
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

int cuDeviceGetName(char *text, int length, gpu_device device)
{
    SIM_ENTER();
    if (!text || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(text, (size_t)length, "simgpu (no GPU: CPU stand-in)");
    return CUDA_SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, gpu_device device)
{
    static const int values[][2] = {
        {1, SIM_MAX_THREADS},  /* MAX_THREADS_PER_BLOCK */
        {2, SIM_MAX_THREADS},  /* MAX_BLOCK_DIM_X */
        {5, SIM_MAX_BLOCKS},   /* MAX_GRID_DIM_X */
        {8, SIM_SHARED_BYTES}, /* MAX_SHARED_MEMORY_PER_BLOCK */
        {10, 32},              /* WARP_SIZE */
        {GPU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {GPU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {41, 1}, /* UNIFIED_ADDRESSING */
    };
    SIM_ENTER();
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    if (attribute == 33) { /* PCI_BUS_ID */
        *value = device + 1;
        return CUDA_SUCCESS;
    }
    if (attribute == GPU_ATTRIBUTE_MULTIPROCESSOR_COUNT) {
        *value = sim_settings.multiprocessors;
        return CUDA_SUCCESS;
    }
    *value = 0; /* the rest of what a device can have, this one has not */
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (values[i][0] == attribute)
            *value = values[i][1];
    return attribute > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuDeviceGetUuid_v2(struct gpu_uuid *uuid, gpu_device device)
{
    SIM_ENTER();
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, "simgpu-device-\0", 16);
    uuid->bytes[14] = 0x80;
    uuid->bytes[15] = (unsigned char)device;
    return CUDA_SUCCESS;
}

int cuDeviceGetUuid(struct gpu_uuid *uuid, gpu_device device)
{
    SIM_ENTER();
    simgpu_quiet(1);
    int error = cuDeviceGetUuid_v2(uuid, device);
    simgpu_quiet(-1);
    return error;
}

int cuDeviceGetPCIBusId(char *text, int length, gpu_device device)
{
    SIM_ENTER();
    if (!text || length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(text, (size_t)length, "0000:%02X:00.0", (unsigned)device + 1);
    return CUDA_SUCCESS;
}

int cuDeviceGetByPCIBusId(gpu_device *device, const char *text)
{
    unsigned domain, bus, slot, function;
    SIM_ENTER();
    if (!device || !text ||
        sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (domain || slot || function || !valid((int)bus - 1))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = (int)bus - 1;
    return CUDA_SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, gpu_device device)
{
    SIM_ENTER();
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device))
        return CUDA_ERROR_INVALID_DEVICE;
    *bytes = sim_settings.mem_bytes;
    return CUDA_SUCCESS;
}

int cuDeviceCanAccessPeer(int *can, gpu_device device, gpu_device peer)
{
    SIM_ENTER();
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device) || !valid(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && !sim_settings.no_peer;
    return CUDA_SUCCESS;
}
