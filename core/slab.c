/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation, export and mapping of slabs, and their end. */
#include "core/slab.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

/* Smaller allocations share a 2 MiB block, and an exported handle would expose it whole.
 */
#define SLAB_MIN_BYTES ((size_t)2 << 20)

struct retired {
    struct ips_device *device;
    gpu_ptr own;
    size_t bytes;
    struct ips_segment segment;
    struct retired *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t held_bytes;
static struct retired *retired;

static int reserve(size_t bytes, uint64_t mem_max, char *ret_reason)
{
    pthread_mutex_lock(&lock);
    int fits = held_bytes + bytes <= mem_max;
    if (fits)
        held_bytes += bytes;
    pthread_mutex_unlock(&lock);
    if (fits)
        return 0;
    snprintf(ret_reason, IPS_REASON_BYTES,
             "this process's engines would hold more device memory than IPCSHIM_MEM_MAX "
             "(%llu bytes)",
             (unsigned long long)mem_max);
    return -EDQUOT;
}

static void release(size_t bytes)
{
    pthread_mutex_lock(&lock);
    held_bytes -= bytes;
    pthread_mutex_unlock(&lock);
}

static int create_memory(struct ips_slab *slab, struct ips_control *control,
                         gpu_stream stream)
{
    const struct ips_gpu_api *gpu = slab->device->gpu;
    int error = gpu->cuMemAlloc(&slab->own, slab->bytes);
    if (error)
        return error;
    memset(control, 0, IPS_CONTROL_BYTES);
    error = gpu->cuMemHostRegister(control, IPS_CONTROL_BYTES,
                                   GPU_HOST_PORTABLE | GPU_HOST_DEVICEMAP);
    if (!error) {
        slab->control = control;
        error = gpu->cuMemHostGetDevicePointer(&slab->control_device, control, 0);
    }
    if (!error)
        error = gpu->cuMemsetD8Async(slab->own, 0, slab->bytes, stream);
    if (!error)
        error = gpu->cuStreamSynchronize(stream);
    return error;
}

int ips_slab_create(struct ips_slab *slab, struct ips_device *device, unsigned channels,
                    struct ips_control *control, uint64_t mem_max, gpu_stream stream,
                    char *ret_reason)
{
    memset(slab, 0, sizeof *slab);
    slab->device = device;
    slab->bytes = IPS_HEAD_BYTES + IPS_MAILBOX_BYTES(channels);
    if (slab->bytes < SLAB_MIN_BYTES)
        slab->bytes = SLAB_MIN_BYTES;
    int error = reserve(slab->bytes, mem_max, ret_reason);
    if (error)
        return error;
    error = create_memory(slab, control, stream);
    if (!error)
        return 0;
    snprintf(ret_reason, IPS_REASON_BYTES,
             "cannot allocate %zu bytes of device memory, or register a page of the "
             "host's: %s",
             slab->bytes, ips_gpu_error(error));
    if (slab->control)
        device->gpu->cuMemHostUnregister(slab->control);
    if (slab->own)
        device->gpu->cuMemFree(slab->own);
    release(slab->bytes);
    memset(slab, 0, sizeof *slab);
    return -ENOMEM;
}

int ips_slab_export(const struct ips_slab *slab, struct ips_record *record,
                    char *ret_reason)
{
    const struct ips_device *device = slab->device;
    record->uuid = device->uuid;
    memcpy(record->bus_id, device->bus_id, sizeof record->bus_id);
    record->ordinal = device->ordinal;
    record->slab = slab->own;
    int error = device->gpu->cuIpcGetMemHandle(&record->handle, slab->own);
    if (!error)
        return 0;
    snprintf(ret_reason, IPS_REASON_BYTES, "cannot export device memory: %s",
             ips_gpu_error(error));
    return -EIO;
}

/* A peer in this process: its pointer, and peer access if it is on another device. */
static int open_here(struct ips_slab *slab, const struct ips_record *peer,
                     gpu_ptr *ret_address, char *ret_reason)
{
    *ret_address = peer->slab;
    if (peer->ordinal == slab->device->ordinal)
        return 0;
    struct ips_device *other = ips_device_get(peer->ordinal, ret_reason);
    if (!other)
        return -ENODEV;
    int error = slab->device->gpu->cuCtxEnablePeerAccess(other->context, 0);
    if (!error || error == GPU_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        return 0;
    snprintf(ret_reason, IPS_REASON_BYTES, "cannot enable peer access to rank %d: %s",
             peer->rank, ips_gpu_error(error));
    return -EIO;
}

static int open_peer(struct ips_slab *slab, const struct ips_record *peer,
                     gpu_ptr *ret_address, gpu_ptr *ret_opened, char *ret_reason)
{
    if (ips_record_own_process(peer))
        return open_here(slab, peer, ret_address, ret_reason);
    int error = slab->device->gpu->cuIpcOpenMemHandle(ret_address, peer->handle,
                                                      GPU_IPC_LAZY_PEER_ACCESS);
    if (error) {
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "the memory handle of rank %d (GPU %.31s) does not open: %s", peer->rank,
                 peer->bus_id, ips_gpu_error(error));
        return -EIO;
    }
    *ret_opened = *ret_address;
    return 0;
}

int ips_slab_open_peers(struct ips_slab *slab, const struct ips_segment *segment,
                        char *ret_reason)
{
    for (int rank = 0; rank < segment->nranks; rank++) {
        gpu_ptr address = slab->own;
        int error = 0;
        if (rank != segment->rank)
            error = open_peer(slab, ips_segment_record(segment, rank), &address,
                              &slab->opened[rank], ret_reason);
        if (error)
            return error;
        slab->mailbox[rank] = address + IPS_HEAD_BYTES;
    }
    return 0;
}

void ips_slab_close_peers(struct ips_slab *slab)
{
    for (int rank = 0; rank < IPS_MAX_RANKS; rank++) {
        if (slab->opened[rank])
            IPS_GPU_AT(IPS_LOG_INFO, slab->device->gpu,
                       cuIpcCloseMemHandle(slab->opened[rank]));
        slab->opened[rank] = 0;
    }
}

static int all_closed(const struct ips_segment *segment)
{
    for (int slot = 0; slot < IPS_SEGMENT_SLOTS; slot++) {
        const struct ips_record *record = ips_segment_slot(segment, slot);
        uint32_t state = ips_record_state(record);
        if (state != IPS_RECORD_NONE && state != IPS_RECORD_CLOSED &&
            !ips_segment_dead(segment, slot))
            return 0;
    }
    return 1;
}

/* 0 when it is freed. */
static int free_retired(struct retired *one)
{
    const struct ips_gpu_api *gpu = one->device->gpu;
    int pushed = 0;
    int error = ips_gpu_enter(gpu, one->device->context, &pushed);
    if (error)
        return error;
    error = IPS_GPU_AT(IPS_LOG_INFO, gpu, cuMemFree(one->own));
    ips_gpu_leave(gpu, pushed);
    if (error)
        return error;
    release(one->bytes);
    ips_segment_close(&one->segment);
    free(one);
    return 0;
}

static void keep_retired(struct retired *one)
{
    pthread_mutex_lock(&lock);
    one->next = retired;
    retired = one;
    pthread_mutex_unlock(&lock);
}

void ips_slab_sweep(void)
{
    struct retired *ready = NULL;
    pthread_mutex_lock(&lock);
    for (struct retired **at = &retired; *at;) {
        struct retired *one = *at;
        if (all_closed(&one->segment)) {
            *at = one->next;
            one->next = ready;
            ready = one;
        } else {
            at = &one->next;
        }
    }
    pthread_mutex_unlock(&lock);
    while (ready) {
        struct retired *one = ready;
        ready = one->next;
        if (free_retired(one))
            keep_retired(one); /* another time */
    }
}

void ips_slab_retire(struct ips_slab *slab, struct ips_segment *segment)
{
    struct retired *one = slab->own ? calloc(1, sizeof *one) : NULL;
    if (slab->control)
        slab->device->gpu->cuMemHostUnregister(slab->control);
    if (one) {
        *one = (struct retired){slab->device, slab->own, slab->bytes, *segment, NULL};
        keep_retired(one);
    } else {
        ips_segment_close(segment); /* nothing to free, or leaked for want of memory */
    }
    memset(slab, 0, sizeof *slab);
    segment->base = NULL;
    ips_slab_sweep();
}
