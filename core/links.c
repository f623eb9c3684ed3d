/* SPDX-License-Identifier: Apache-2.0 */
/* Judges links by NVML's P2P status and the driver's peer access. */
#include "core/links.h"

#include <stdio.h>
#include <string.h>

enum { CAPS_READ = 0, CAPS_WRITE = 1, CAPS_NVLINK = 2, STATUS_OK = 0 };

static enum ips_verdict judge_nvml(const struct ips_device *device, const char *peer,
                                        const struct ips_bringup_config *config,
                                        char *ret_reason)
{
    const struct ips_nvml_api *nvml = ips_nvml();
    nvml_device a, b;
    if (!nvml || nvml->nvmlDeviceGetHandleByPciBusId(device->bus_id, &a) ||
        nvml->nvmlDeviceGetHandleByPciBusId(peer, &b)) {
        if (config->links_any)
            return IPS_VERDICT_USABLE;
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "NVML cannot judge the link %s to %s; IPCSHIM_LINKS=any takes it",
                 device->bus_id, peer);
        return IPS_VERDICT_UNWANTED;
    }
    int status = -1;
    if (!config->links_any && !nvml->nvmlDeviceGetP2PStatus(a, b, CAPS_NVLINK, &status) &&
        status == STATUS_OK) {
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "NVLink between %s and %s: NCCL is at home there", device->bus_id, peer);
        return IPS_VERDICT_UNWANTED;
    }
    for (int caps = CAPS_READ; caps <= CAPS_WRITE; caps++) {
        status = -1;
        if (!nvml->nvmlDeviceGetP2PStatus(a, b, caps, &status) && status == STATUS_OK)
            continue;
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "NVML reports no peer-to-peer %s between %s and %s (status %d)",
                 caps == CAPS_READ ? "reads" : "writes", device->bus_id, peer, status);
        return IPS_VERDICT_BROKEN;
    }
    return IPS_VERDICT_USABLE;
}

enum ips_verdict ips_link_judge(const struct ips_device *device,
                                     const struct ips_record *peer,
                                     const struct ips_bringup_config *config,
                                     char *ret_reason)
{
    if (!memcmp(&device->uuid, &peer->uuid, sizeof peer->uuid))
        return IPS_VERDICT_USABLE;
    if (config->p2p_disabled) {
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "NCCL_P2P_DISABLE or NCCL_P2P_LEVEL forbids peer-to-peer");
        return IPS_VERDICT_FORBIDDEN;
    }
    char bus_id[sizeof peer->bus_id];
    memcpy(bus_id, peer->bus_id, sizeof bus_id);
    bus_id[sizeof bus_id - 1] = 0;
    enum ips_verdict verdict = judge_nvml(device, bus_id, config, ret_reason);
    if (verdict != IPS_VERDICT_USABLE)
        return verdict;
    int ordinal, can = 1;
    gpu_device other;
    if (!ips_device_find(device->gpu, &peer->uuid, &ordinal) &&
        !device->gpu->cuDeviceGet(&other, ordinal))
        device->gpu->cuDeviceCanAccessPeer(&can, device->device, other);
    if (can)
        return IPS_VERDICT_USABLE;
    snprintf(ret_reason, IPS_REASON_BYTES,
             "the driver reports no peer access from %s to %s", device->bus_id, bus_id);
    return IPS_VERDICT_BROKEN;
}

static int has_nvlink(const struct ips_record *one, const struct ips_record *other)
{
    const struct ips_nvml_api *nvml = ips_nvml();
    char bus_id[2][sizeof one->bus_id];
    nvml_device device[2];
    int status = -1;
    memcpy(bus_id[0], one->bus_id, sizeof bus_id[0]);
    memcpy(bus_id[1], other->bus_id, sizeof bus_id[1]);
    for (int i = 0; i < 2; i++) {
        bus_id[i][sizeof bus_id[i] - 1] = 0;
        if (!nvml || nvml->nvmlDeviceGetHandleByPciBusId(bus_id[i], &device[i]))
            return 0;
    }
    return !nvml->nvmlDeviceGetP2PStatus(device[0], device[1], CAPS_NVLINK, &status) &&
           status == STATUS_OK;
}

enum ips_link ips_link_classify(const struct ips_record *const *records, int nranks)
{
    enum ips_link link = IPS_LINK_SAME_GPU;
    for (int i = 0; i < nranks; i++)
        for (int j = 0; j < i; j++) {
            if (!memcmp(&records[i]->uuid, &records[j]->uuid, sizeof records[i]->uuid))
                continue;
            if (!has_nvlink(records[i], records[j]))
                return IPS_LINK_PCIE;
            link = IPS_LINK_NVLINK;
        }
    return link;
}
