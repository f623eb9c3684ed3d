/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libnvidia-ml.so.1: what the engine asks NVML about links. Same devices
 * and bus ids as the stand-in driver's. Takes no GPU topology into account yet. */
#include <stdio.h>
#include <stdlib.h>

#include "tools/simgpu/fault.h"

#define DEVICES_MAX 32

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6 }; /* nvmlReturn_t */
enum { CAPS_READ = 0, CAPS_WRITE = 1, CAPS_NVLINK = 2 };   /* nvmlGpuP2PCapsIndex_t */
enum { P2P_OK = 0, P2P_NOT_SUPPORTED = 5 };                /* nvmlGpuP2PStatus_t */

struct nvmlDevice_st {
    int unused;
};
typedef struct nvmlDevice_st *nvml_device;

SIM_API int nvmlInit_v2(void);
SIM_API int nvmlShutdown(void);
SIM_API const char *nvmlErrorString(int error);
SIM_API int nvmlDeviceGetCount_v2(unsigned *count);
SIM_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device);
SIM_API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvml_device *device);
SIM_API int nvmlDeviceGetP2PStatus(nvml_device a, nvml_device b, int index, int *status);

static struct nvmlDevice_st devices[DEVICES_MAX];

#define ENTER()                                     \
    do {                                            \
        if (sim_logging("SIMGPU"))                  \
            sim_log("%s", __func__);                \
        int error_ = sim_fault("SIMGPU", __func__); \
        if (error_)                                 \
            return error_;                          \
    } while (0)

static int number(const char *name, int otherwise)
{
    const char *text = secure_getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

static int device_count(void)
{
    int count = number("SIMGPU_DEVICES", 8);
    return count < DEVICES_MAX ? count : DEVICES_MAX;
}

int nvmlInit_v2(void)
{
    ENTER();
    return SUCCESS;
}

int nvmlShutdown(void)
{
    ENTER();
    return SUCCESS;
}

const char *nvmlErrorString(int error)
{
    switch (error) {
    case SUCCESS:
        return "Success";
    case INVALID_ARGUMENT:
        return "Invalid Argument";
    case NOT_FOUND:
        return "Not Found";
    default:
        return "Unknown Error";
    }
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER();
    if (!count)
        return INVALID_ARGUMENT;
    *count = (unsigned)device_count();
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device)
{
    ENTER();
    if (!device || index >= (unsigned)device_count())
        return INVALID_ARGUMENT;
    *device = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvml_device *device)
{
    unsigned domain, bus, slot, function;
    ENTER();
    if (!device || !bus_id ||
        sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
        return INVALID_ARGUMENT;
    if (domain || slot || function || !bus || bus > (unsigned)device_count())
        return NOT_FOUND;
    *device = &devices[bus - 1];
    return SUCCESS;
}

int nvmlDeviceGetP2PStatus(nvml_device a, nvml_device b, int index, int *status)
{
    ENTER();
    if (!a || !b || a == b || !status || index < CAPS_READ || index > 4)
        return INVALID_ARGUMENT;
    if (index == CAPS_READ || index == CAPS_WRITE)
        *status = number("SIMGPU_NVML_P2P", P2P_OK);
    else if (index == CAPS_NVLINK && number("SIMGPU_NVLINK", 0))
        *status = P2P_OK;
    else
        *status = P2P_NOT_SUPPORTED;
    return SUCCESS;
}
