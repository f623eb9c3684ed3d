/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation, export and mapping of an engine's memory, and its end. */
#include "core/slab.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

/* Smaller allocations share a 2 MiB block, and an exported handle would expose it whole.
 */
#define EXPORT_MIN_BYTES ((size_t)2 << 20)

struct retired {
    struct ips_device *device;
    gpu_ptr head, exported; /* or 0 */
    size_t exported_bytes;
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
    int error = gpu->cuMemAlloc(&slab->head, IPS_HEAD_BYTES);
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
        error = gpu->cuMemsetD8Async(slab->head, 0, IPS_HEAD_BYTES, stream);
    if (!error)
        error = gpu->cuStreamSynchronize(stream);
    return error;
}

int ips_slab_create(struct ips_slab *slab, struct ips_device *device,
                    struct ips_control *control, uint64_t mem_max, gpu_stream stream,
                    char *ret_reason)
{
    memset(slab, 0, sizeof *slab);
    slab->device = device;
    int error = reserve(IPS_HEAD_BYTES, mem_max, ret_reason);
    if (error)
        return error;
    error = create_memory(slab, control, stream);
    if (!error)
        return 0;
    snprintf(ret_reason, IPS_REASON_BYTES,
             "cannot allocate %d bytes of device memory, or register a page of the "
             "host's: %s",
             IPS_HEAD_BYTES, ips_gpu_error(error));
    if (slab->control)
        device->gpu->cuMemHostUnregister(slab->control);
    if (slab->head)
        device->gpu->cuMemFree(slab->head);
    release(IPS_HEAD_BYTES);
    memset(slab, 0, sizeof *slab);
    return -ENOMEM;
}

static int alloc_exported(struct ips_slab *slab, size_t bytes, gpu_stream stream)
{
    const struct ips_gpu_api *gpu = slab->device->gpu;
    int error = gpu->cuMemAlloc(&slab->exported, bytes);
    if (error) {
        slab->exported = 0;
        return error;
    }
    error = gpu->cuMemsetD8Async(slab->exported, 0, bytes, stream);
    if (!error)
        error = gpu->cuStreamSynchronize(stream);
    if (error) {
        gpu->cuMemFree(slab->exported);
        slab->exported = 0;
    }
    return error;
}

int ips_slab_export(struct ips_slab *slab, unsigned channels, struct ips_record *record,
                    uint64_t mem_max, gpu_stream stream, char *ret_reason)
{
    size_t bytes = IPS_MAILBOX_BYTES(channels);
    if (bytes < EXPORT_MIN_BYTES)
        bytes = EXPORT_MIN_BYTES;
    int error = reserve(bytes, mem_max, ret_reason);
    if (error)
        return error;
    error = alloc_exported(slab, bytes, stream);
    if (error) {
        release(bytes);
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "cannot allocate %zu bytes of device memory: %s", bytes,
                 ips_gpu_error(error));
        return -ENOMEM;
    }
    slab->exported_bytes = bytes;
    record->mailbox = slab->exported;
    error = slab->device->gpu->cuIpcGetMemHandle(&record->handle, slab->exported);
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
    *ret_address = peer->mailbox;
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
        int error = 0;
        if (rank == segment->rank)
            slab->mailbox[rank] = slab->exported;
        else
            error = open_peer(slab, ips_segment_record(segment, rank),
                              &slab->mailbox[rank], &slab->opened[rank], ret_reason);
        if (error)
            return error;
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

int ips_slab_host_create(struct ips_slab *slab, const struct ips_segment *segment,
                         unsigned channels, char *ret_reason)
{
    return ips_host_memory_create(&slab->host, segment, channels,
                                  ips_host_node("/sys", slab->device->bus_id),
                                  ret_reason);
}

/* 0 when it is freed, or there is none. */
static int free_exported(const struct ips_gpu_api *gpu, gpu_ptr exported, size_t bytes)
{
    int error = exported ? IPS_GPU_AT(IPS_LOG_INFO, gpu, cuMemFree(exported)) : 0;
    if (!error)
        release(bytes);
    return error;
}

int ips_slab_host_open(struct ips_slab *slab, const struct ips_segment *segment,
                       char *ret_reason)
{
    const struct ips_gpu_api *gpu = slab->device->gpu;
    gpu_ptr base = 0;
    int error = ips_host_memory_register(&slab->host, gpu, &base);
    if (error) {
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "the GPU cannot map %zu bytes of host memory: %s", slab->host.bytes,
                 ips_gpu_error(error));
        return -ENOMEM;
    }
    for (int rank = 0; rank < segment->nranks; rank++)
        slab->mailbox[rank] = base + slab->host.stride * (size_t)segment->slot_of[rank];
    free_exported(gpu, slab->exported, slab->exported_bytes);
    slab->exported = 0;
    slab->exported_bytes = 0;
    return 0;
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
    error = free_exported(gpu, one->exported, one->exported_bytes);
    if (!error) {
        one->exported = 0;
        one->exported_bytes = 0;
        error = IPS_GPU_AT(IPS_LOG_INFO, gpu, cuMemFree(one->head));
    }
    ips_gpu_leave(gpu, pushed);
    if (error)
        return error;
    release(IPS_HEAD_BYTES);
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
        if (!one->exported || all_closed(&one->segment)) {
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
    struct retired *one = slab->head ? calloc(1, sizeof *one) : NULL;
    if (slab->control)
        slab->device->gpu->cuMemHostUnregister(slab->control);
    if (slab->device)
        ips_host_memory_destroy(&slab->host, slab->device->gpu);
    if (one) {
        *one = (struct retired){.device = slab->device,
                                .head = slab->head,
                                .exported = slab->exported,
                                .exported_bytes = slab->exported_bytes,
                                .segment = *segment};
        keep_retired(one);
    } else {
        ips_segment_close(segment); /* nothing to free, or leaked for want of memory */
    }
    memset(slab, 0, sizeof *slab);
    segment->base = NULL;
    ips_slab_sweep();
}
