/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the driver's and NVML's tables. Nothing is opened before the first communicator.
 */
#include "core/gpu.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "core/load.h"
#include "core/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ips_gpu_api gpu_table;
static int gpu_ready;
static struct ips_nvml_api nvml_table;
static int nvml_state; /* 0 untried, 1 ready, -1 absent */

struct symbol {
    void *slot;
    const char *name;
};

/* The first name that `handle` lacks, or NULL when every slot was filled. */
static const char *fill(void *handle, const struct symbol *symbols, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(handle, symbols[i].name);
        if (!found)
            return symbols[i].name;
        memcpy(symbols[i].slot, &found, sizeof found);
    }
    return NULL;
}

/* A library that is not there is no fault; one that is refused is for the user to know,
 * once. */
static void *open_library(const char *name)
{
    static int told;
    void *handle = NULL;
    const char *cause;
    int error = ips_load(name, &handle, &cause);
    if (error)
        ips_log(error == -EPERM && !__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED)
                    ? IPS_LOG_WARN
                    : IPS_LOG_INFO,
                "%s is not loaded: %s", name, cause);
    return handle;
}

static int gpu_open(void)
{
    static const struct symbol symbols[] = {
#define X(name, symbol, parameters) {&gpu_table.name, symbol},
        IPS_GPU_CALLS(X)
#undef X
    };
    void *handle = open_library("libcuda.so.1");
    if (!handle)
        return 0;
    const char *missing = fill(handle, symbols, sizeof symbols / sizeof symbols[0]);
    if (missing) {
        static int told;
        ips_log(
            __atomic_exchange_n(&told, 1, __ATOMIC_RELAXED) ? IPS_LOG_INFO : IPS_LOG_WARN,
            "libcuda.so.1 lacks %s: the driver is too old, update it to 580 or newer; "
            "NCCL serves all calls",
            missing);
        return 0;
    }
    return IPS_GPU_AT(IPS_LOG_INFO, &gpu_table, cuInit(0)) == GPU_SUCCESS;
}

const struct ips_gpu_api *ips_gpu(void)
{
    if (__atomic_load_n(&gpu_ready, __ATOMIC_ACQUIRE))
        return &gpu_table;
    pthread_mutex_lock(&lock);
    if (!gpu_ready)
        __atomic_store_n(&gpu_ready, gpu_open(), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return gpu_ready ? &gpu_table : NULL;
}

static int nvml_open(void)
{
    static const struct symbol symbols[] = {
        {&nvml_table.nvmlInit, "nvmlInit_v2"},
        {&nvml_table.nvmlDeviceGetHandleByPciBusId, "nvmlDeviceGetHandleByPciBusId_v2"},
        {&nvml_table.nvmlDeviceGetP2PStatus, "nvmlDeviceGetP2PStatus"},
    };
    void *handle = open_library("libnvidia-ml.so.1");
    if (!handle)
        return -1;
    if (fill(handle, symbols, sizeof symbols / sizeof symbols[0]))
        return -1;
    return nvml_table.nvmlInit() == 0 ? 1 : -1;
}

const struct ips_nvml_api *ips_nvml(void)
{
    pthread_mutex_lock(&lock);
    if (!nvml_state)
        nvml_state = nvml_open();
    pthread_mutex_unlock(&lock);
    return nvml_state > 0 ? &nvml_table : NULL;
}

const char *ips_gpu_error(int error)
{
    const char *name = NULL;
    if (gpu_table.cuGetErrorName && gpu_table.cuGetErrorName(error, &name) == 0 && name)
        return name;
    return "an error unknown to the driver";
}

int ips_gpu_check(int error, const char *call, int level)
{
    if (error != GPU_SUCCESS)
        ips_log((enum ips_log_level)level, "%s: %s", call, ips_gpu_error(error));
    return error;
}

int ips_gpu_enter(const struct ips_gpu_api *gpu, gpu_context context, int *ret_pushed)
{
    gpu_context current = NULL;
    int error = gpu->cuCtxGetCurrent(&current);
    if (error)
        return error;
    if (current == context) {
        *ret_pushed = 0;
        return GPU_SUCCESS;
    }
    error = IPS_GPU(gpu, cuCtxPushCurrent(context));
    if (!error)
        *ret_pushed = 1;
    return error;
}

void ips_gpu_leave(const struct ips_gpu_api *gpu, int pushed)
{
    gpu_context ignored;
    if (pushed)
        gpu->cuCtxPopCurrent(&ignored);
}
