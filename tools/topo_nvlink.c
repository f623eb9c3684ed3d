/* SPDX-License-Identifier: Apache-2.0 */
/* The NVLinks of this machine's GPUs, from NVML: sysfs does not tell. Links to an
 * NVSwitch count for every pair, as many as both GPUs have, as in nvidia-smi topo -m. */
#include <dlfcn.h>
#include <string.h>

#include "core/gpu.h"
#include "core/load.h"
#include "tools/topo.h"

#define MOST_LINKS 64 /* NVML_NVLINK_MAX_LINKS is 18 now */

enum { NVML_SUCCESS = 0, NVLINK_ACTIVE = 1 };
enum { REMOTE_GPU = 0, REMOTE_SWITCH = 2 }; /* nvmlIntNvLinkDeviceType_t */

struct pci_info { /* nvmlPciInfo_t */
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

struct nvml {
    int (*init)(void);
    int (*handle)(const char *bus_id, nvml_device *device);
    int (*state)(nvml_device device, unsigned link, unsigned *active);
    int (*remote_type)(nvml_device device, unsigned link, unsigned *type);
    int (*remote)(nvml_device device, unsigned link, struct pci_info *pci);
};

static int open_nvml(struct nvml *ret)
{
    const struct {
        void *slot;
        const char *name;
    } symbols[] = {
        {&ret->init, "nvmlInit_v2"},
        {&ret->handle, "nvmlDeviceGetHandleByPciBusId_v2"},
        {&ret->state, "nvmlDeviceGetNvLinkState"},
        {&ret->remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType"},
        {&ret->remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2"},
    };
    void *handle;
    const char *cause;
    if (ips_load("libnvidia-ml.so.1", &handle, &cause))
        return -1;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *found = dlsym(handle, symbols[i].name);
        if (!found)
            return -1;
        memcpy(symbols[i].slot, &found, sizeof found);
    }
    return ret->init() ? -1 : 0;
}

/* The GPU there, or -1. NVML's own text of the bus id may be in capitals. */
static int gpu_at(const struct ips_topology *t, const struct pci_info *pci)
{
    const ips_address address = IPS_ADDRESS(pci->domain, pci->bus, pci->device, 0);
    int gpu = (int)t->gpus - 1;
    while (gpu >= 0 && t->device[gpu].address != address)
        gpu--;
    return gpu;
}

/* Enters the links to other GPUs; gives those to switches. */
static unsigned count_links(const struct nvml *nvml, nvml_device device, unsigned gpu,
                            struct ips_topology *t)
{
    unsigned to_switch = 0;
    for (unsigned link = 0; link < MOST_LINKS; link++) {
        struct pci_info pci = {0};
        unsigned active = 0, type = 0;
        if (nvml->state(device, link, &active) != NVML_SUCCESS ||
            active != NVLINK_ACTIVE || nvml->remote_type(device, link, &type))
            continue; /* it has no such link, or does not use it */
        to_switch += type == REMOTE_SWITCH;
        if (type != REMOTE_GPU || nvml->remote(device, link, &pci))
            continue;
        const int peer = gpu_at(t, &pci);
        if (peer >= 0 && peer != (int)gpu)
            t->nvlinks[gpu][peer]++;
    }
    return to_switch;
}

/* The two ends of a link may have been asked at different times, or one not at all. */
static void make_symmetric(struct ips_topology *t, const unsigned *to_switch)
{
    for (unsigned a = 0; a < t->gpus; a++)
        for (unsigned b = 0; b < a; b++) {
            const unsigned shared =
                to_switch[a] < to_switch[b] ? to_switch[a] : to_switch[b];
            unsigned links = t->nvlinks[a][b];
            if (t->nvlinks[b][a] > links)
                links = t->nvlinks[b][a];
            t->nvlinks[a][b] = t->nvlinks[b][a] = (unsigned char)(links + shared);
        }
}

uint64_t topo_read_nvlinks(struct ips_topology *t)
{
    struct nvml nvml;
    unsigned to_switch[IPS_TOPO_GPUS] = {0};
    uint64_t told = 0;
    if (open_nvml(&nvml))
        return 0;
    for (unsigned gpu = 0; gpu < t->gpus; gpu++) {
        char text[IPS_ADDRESS_BYTES];
        nvml_device device;
        if (nvml.handle(ips_address_text(t->device[gpu].address, text), &device))
            continue;
        told |= UINT64_C(1) << gpu;
        to_switch[gpu] = count_links(&nvml, device, gpu, t);
    }
    make_symmetric(t, to_switch);
    return told;
}
