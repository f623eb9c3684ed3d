/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libnvidia-ml.so.1: what the engine asks NVML about links. Same devices
 * and bus ids as the stand-in driver's. Takes no GPU topology into account yet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/simgpu/fault.h"

#define DEVICES_MAX 32
#define MOST_LINKS 18
#define SWITCH_LINKS 12
#define BRIDGE_LINKS 4

/* nvmlReturn_t */
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
enum { CAPS_READ = 0, CAPS_WRITE = 1, CAPS_NVLINK = 2 }; /* nvmlGpuP2PCapsIndex_t */
enum { P2P_OK = 0, P2P_NOT_SUPPORTED = 5 };              /* nvmlGpuP2PStatus_t */

enum { REMOTE_GPU = 0, REMOTE_SWITCH = 2 };                /* nvmlIntNvLinkDeviceType_t */

struct nvmlDevice_st {
    int unused;
};
struct pci_info { /* nvmlPciInfo_t */
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
typedef struct nvmlDevice_st *nvml_device;

SIM_API int nvmlInit_v2(void);
SIM_API int nvmlShutdown(void);
SIM_API const char *nvmlErrorString(int error);
SIM_API int nvmlDeviceGetCount_v2(unsigned *count);
SIM_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device);
SIM_API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvml_device *device);
SIM_API int nvmlDeviceGetNvLinkState(nvml_device device, unsigned link, unsigned *active);
SIM_API int nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device device, unsigned link,
                                                unsigned *type);
SIM_API int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device device, unsigned link,
                                                struct pci_info *pci);
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
    case NOT_SUPPORTED:
        return "Not Supported";
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

/* SIMGPU_NVLINK: "1": all GPUs at switches; "pairs": the first with the second by a bridge,
 * the third with the fourth, and so on. */
static int has_bridges(void)
{
    const char *text = secure_getenv("SIMGPU_NVLINK");
    return text && !strcmp(text, "pairs");
}

/* The other end of the GPU's bridge, or -1: it has none. */
static int bridged(nvml_device device)
{
    const int other = (int)(device - devices) ^ 1;
    return has_bridges() && other < device_count() ? other : -1;
}

static unsigned link_count(nvml_device device)
{
    if (number("SIMGPU_NVLINK", 0))
        return SWITCH_LINKS;
    return bridged(device) >= 0 ? BRIDGE_LINKS : 0;
}

int nvmlDeviceGetNvLinkState(nvml_device device, unsigned link, unsigned *active)
{
    ENTER();
    if (!device || !active || link >= MOST_LINKS)
        return INVALID_ARGUMENT;
    if (!link_count(device))
        return NOT_SUPPORTED;
    *active = link < link_count(device);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(nvml_device device, unsigned link, unsigned *type)
{
    ENTER();
    if (!device || !type || link >= link_count(device))
        return INVALID_ARGUMENT;
    *type = has_bridges() ? REMOTE_GPU : REMOTE_SWITCH;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml_device device, unsigned link,
                                        struct pci_info *pci)
{
    ENTER();
    if (!device || !pci || link >= link_count(device))
        return INVALID_ARGUMENT;
    *pci = (struct pci_info){.bus = (unsigned)bridged(device) + 1};
    if (!has_bridges())
        pci->domain = 0xff; /* of a switch */
    return SUCCESS;
}

int nvmlDeviceGetP2PStatus(nvml_device a, nvml_device b, int index, int *status)
{
    ENTER();
    if (!a || !b || a == b || !status || index < CAPS_READ || index > 4)
        return INVALID_ARGUMENT;
    if (index == CAPS_READ || index == CAPS_WRITE)
        *status = number("SIMGPU_NVML_P2P", P2P_OK);
    else if (index == CAPS_NVLINK &&
             (number("SIMGPU_NVLINK", 0) || bridged(a) == b - devices))
        *status = P2P_OK;
    else
        *status = P2P_NOT_SUPPORTED;
    return SUCCESS;
}
