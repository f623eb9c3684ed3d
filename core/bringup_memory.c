/* SPDX-License-Identifier: Apache-2.0 */
/* The phases of a set-up in which a rank takes memory and maps its peers': mailboxes in
 * device memory by CUDA IPC, or in host memory. */
#include "core/bringup_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/links.h"
#include "core/log.h"

static int write_keys(struct ips_bringup *b, char *ret_reason)
{
    const struct ips_gpu_api *gpu = b->device->gpu;
    const struct ips_guard_keys keys = b->meeting.first.keys;
    int error = gpu->cuMemcpyHtoDAsync(b->slab.head + offsetof(struct ips_head, keys), &keys,
                                       sizeof keys, b->stream);
    if (!error)
        error = gpu->cuStreamSynchronize(b->stream);
    if (error)
        snprintf(ret_reason, IPS_REASON_BYTES, "cannot write to device memory: %s",
                 ips_gpu_error(error));
    return error;
}

/* What any transport takes of the device. */
static int prepare_device(struct ips_bringup *b, char *ret_reason)
{
    const struct ips_segment *segment = &b->meeting.segment;
    int error = IPS_GPU(b->device->gpu, cuStreamCreate(&b->stream, GPU_STREAM_NON_BLOCKING));
    if (error) {
        snprintf(ret_reason, IPS_REASON_BYTES, "no stream: %s", ips_gpu_error(error));
        return error;
    }
    error = ips_slab_create(&b->slab, b->device, ips_segment_control(segment, segment->slot),
                            b->config.mem_max, b->stream, ret_reason);
    return error ? error : write_keys(b, ret_reason);
}

/* Loads the kernels and tells which GPU this is. Local: waits for no peer. */
void ips_bringup_load(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES] = "";
    ips_slab_sweep();
    b->device = ips_device_get(b->ordinal, reason);
    if (!b->device) {
        decline(b, 1, reason);
        return;
    }
    const int pushed = ips_bringup_enter(b);
    if (pushed < 0)
        return;
    int error = prepare_device(b, reason);
    ips_gpu_leave(b->device->gpu, pushed);
    if (error) {
        decline(b, error != -EDQUOT, reason); /* a limit that was set is no fault */
        return;
    }
    struct ips_record *record = own(b);
    record->uuid = b->device->uuid;
    memcpy(record->bus_id, b->device->bus_id, sizeof record->bus_id);
    record->ordinal = b->device->ordinal;
    record->multiprocessors = (uint32_t)b->device->multiprocessors;
    if (b->meeting.first.transport == IPS_TRANSPORT_HOST)
        ips_bringup_begin_host(b);
    else
        ips_bringup_advance(b, IPS_RECORD_LOADED, EXPORT);
}

/* What rank 0 recalls of the links holds for all ranks. */
static void recall_links(struct ips_bringup *b)
{
    struct ips_gpu_name gpus[IPS_MAX_RANKS];
    char reason[IPS_REASON_BYTES] = "";
    for (int rank = 0; rank < ranks_of(b); rank++) {
        const struct ips_record *record = record_of(b, rank);
        memcpy(gpus[rank].bus_id, record->bus_id, sizeof gpus[rank].bus_id);
        gpus[rank].bus_id[sizeof gpus[rank].bus_id - 1] = 0;
        gpus[rank].uuid = record->uuid;
    }
    const enum ips_recalled recalled =
        b->config.recall(gpus, (unsigned)ranks_of(b), reason);
    if (recalled == IPS_RECALLS_BROKEN)
        ips_bringup_refuse(b, IPS_REFUSES_BY_FAULT, reason);
    else
        __atomic_store_n(&own(b)->sound, recalled == IPS_RECALLS_SOUND, __ATOMIC_RELEASE);
}

/* Every pair must be wanted: one NVLink anywhere, and NCCL has the better plan. Whether
 * they are; if one does not work, this rank refuses. */
static int judge_links(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES], refusal[IPS_REASON_BYTES];
    enum ips_verdict worst = IPS_VERDICT_USABLE;
    for (int rank = 0; rank < ranks_of(b); rank++) {
        if (rank == rank_of(b))
            continue;
        enum ips_verdict verdict =
            ips_link_judge(b->device, record_of(b, rank), &b->config, reason);
        if (verdict == IPS_VERDICT_UNWANTED) {
            decline(b, 0, reason);
            return 0;
        }
        if (verdict == IPS_VERDICT_USABLE || worst != IPS_VERDICT_USABLE)
            continue;
        worst = verdict;
        memcpy(refusal, reason, sizeof refusal);
    }
    if (worst != IPS_VERDICT_USABLE)
        ips_bringup_refuse(b,
                           worst == IPS_VERDICT_BROKEN ? IPS_REFUSES_BY_FAULT
                                                       : IPS_REFUSES_BY_CHOICE,
                           refusal);
    else if (rank_of(b) == 0 && b->config.recall)
        recall_links(b);
    return 1;
}

void ips_bringup_export(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES] = "";
    int error = 0;
    if (!ips_rendezvous_reached(&b->meeting, IPS_RECORD_LOADED) || !judge_links(b))
        return;
    if (!is_refused(b)) {
        const int pushed = ips_bringup_enter(b);
        if (pushed < 0)
            return;
        error = ips_slab_export(&b->slab, channels_of(b), own(b), b->config.mem_max,
                                b->stream, reason);
        ips_gpu_leave(b->device->gpu, pushed);
    }
    if (error == -EIO) {
        ips_bringup_refuse(b, IPS_REFUSES_BY_FAULT, reason);
    } else if (error) {
        decline(b, error != -EDQUOT, reason);
        return;
    }
    ips_bringup_advance(b, IPS_RECORD_EXPORTED, OPEN);
}

void ips_bringup_open(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES];
    if (!ips_rendezvous_reached(&b->meeting, IPS_RECORD_EXPORTED))
        return;
    if (!is_refused(b)) {
        const int pushed = ips_bringup_enter(b);
        if (pushed < 0)
            return;
        if (ips_slab_open_peers(&b->slab, &b->meeting.segment, reason))
            ips_bringup_refuse(b, IPS_REFUSES_BY_FAULT, reason);
        ips_gpu_leave(b->device->gpu, pushed);
    }
    ips_bringup_advance(b, IPS_RECORD_OPENED, PROBE);
}

/* Nothing of a peer is mapped afterwards. */
void ips_bringup_begin_host(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES];
    const int pushed = ips_bringup_enter(b);
    if (pushed < 0)
        return;
    b->host = 1;
    ips_slab_close_peers(&b->slab);
    ips_gpu_leave(b->device->gpu, pushed);
    if (ips_slab_host_create(&b->slab, &b->meeting.segment, channels_of(b), reason)) {
        ips_bringup_decline_host(b, reason);
        return;
    }
    ips_bringup_advance(b, IPS_RECORD_HOST_READY, OPEN_HOST);
}

void ips_bringup_open_host(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES];
    if (!ips_rendezvous_reached(&b->meeting, IPS_RECORD_HOST_READY))
        return;
    const int pushed = ips_bringup_enter(b);
    if (pushed < 0)
        return;
    int error = ips_slab_host_open(&b->slab, &b->meeting.segment, reason);
    ips_gpu_leave(b->device->gpu, pushed);
    if (error) {
        ips_bringup_decline_host(b, reason);
        return;
    }
    ips_bringup_offer(b, IPS_LINK_HOST); /* all GPUs are known */
    ips_bringup_advance(b, IPS_RECORD_HOST_OPENED, PROBE);
}
