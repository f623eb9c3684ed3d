/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank knows of its machine, and the rate at which a copy engine moves bytes to
 * where the next rank of the ring has its memory: the yardstick for an AllReduce of the
 * same run. */
#include <sys/mman.h>
#include <time.h>

#include "core/engine.h"
#include "shim/settings.h"
#include "tools/bench_rank.h"

#define REAL_BYTES (256 << 20) /* more than any cache between the two holds */
#define SIM_BYTES (1 << 20)
#define COPIES 4 /* in one timing */
#define TIMINGS 5

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Gives room on another device, and lets the own one reach it directly if it can. */
static enum bench_hop open_peer(struct bench_rank *r, int ordinal, size_t bytes,
                                gpu_device *ret_peer, gpu_ptr *ret_to)
{
    const struct ips_gpu_api *gpu = r->device.gpu;
    gpu_context context, ignored;
    int can = 0;
    if (gpu->cuDeviceGet(ret_peer, ordinal) ||
        gpu->cuDevicePrimaryCtxRetain(&context, *ret_peer))
        return BENCH_HOP_UNKNOWN;
    int error = gpu->cuCtxPushCurrent(context);
    if (!error) {
        error = gpu->cuMemAlloc(ret_to, bytes);
        gpu->cuCtxPopCurrent(&ignored);
    }
    if (error) {
        gpu->cuDevicePrimaryCtxRelease(*ret_peer);
        return BENCH_HOP_UNKNOWN;
    }
    gpu->cuDeviceCanAccessPeer(&can, r->device.id, *ret_peer);
    if (can)
        error = gpu->cuCtxEnablePeerAccess(context, 0);
    return can && (!error || error == GPU_ERROR_PEER_ACCESS_ALREADY_ENABLED)
               ? BENCH_HOP_PEER
               : BENCH_HOP_STAGED;
}

/* GB/s of the fastest timing, since a limit is asked for; 0 when a copy fails. */
static double copy_rate(struct bench_rank *r, gpu_ptr to, gpu_ptr from, size_t bytes)
{
    double best = 0;
    for (unsigned i = 0; i < TIMINGS + 1; i++) { /* the first warms up */
        double start = now_s();
        for (unsigned copy = 0; copy < COPIES; copy++)
            if (r->device.cuMemcpyAsync(to, from, bytes, r->stream))
                return 0;
        if (r->device.gpu->cuStreamSynchronize(r->stream))
            return 0;
        double rate = COPIES * (double)bytes / (now_s() - start) * 1e-9;
        if (i && rate > best)
            best = rate;
    }
    return best;
}

/* GB/s each way of copies to host memory and back that run at the same time. */
static double both_rate(struct bench_rank *r, const gpu_ptr host[2],
                        const gpu_ptr memory[2], size_t bytes, gpu_stream other)
{
    const struct ips_gpu_api *gpu = r->device.gpu;
    double best = 0;
    for (unsigned i = 0; i < TIMINGS + 1; i++) {
        double start = now_s();
        for (unsigned copy = 0; copy < COPIES; copy++)
            if (r->device.cuMemcpyAsync(host[0], memory[0], bytes, r->stream) ||
                r->device.cuMemcpyAsync(memory[1], host[1], bytes, other))
                return 0;
        if (gpu->cuStreamSynchronize(r->stream) || gpu->cuStreamSynchronize(other))
            return 0;
        double rate = COPIES * (double)bytes / (now_s() - start) * 1e-9;
        if (i && rate > best)
            best = rate;
    }
    return best;
}

/* What crosses the link where the mailboxes lie in host memory. */
static void measure_host(struct bench_rank *r)
{
    const struct ips_gpu_api *gpu = r->device.gpu;
    struct bench_place *place = &r->page->places[r->rank];
    const size_t bytes = (r->page->options.simulated ? SIM_BYTES : REAL_BYTES) / 2;
    gpu_ptr memory = 0, mapped = 0;
    gpu_stream other = NULL;
    void *host = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (host == MAP_FAILED)
        return;
    if (!gpu->cuMemHostRegister(host, 2 * bytes, GPU_HOST_PORTABLE | GPU_HOST_DEVICEMAP)) {
        if (!gpu->cuMemHostGetDevicePointer(&mapped, host, 0) &&
            !gpu->cuMemAlloc(&memory, 2 * bytes) &&
            !gpu->cuStreamCreate(&other, GPU_STREAM_NON_BLOCKING)) {
            place->hop = BENCH_HOP_HOST;
            place->copy_gb_s =
                both_rate(r, (gpu_ptr[]){mapped, mapped + bytes},
                          (gpu_ptr[]){memory, memory + bytes}, bytes, other);
        }
        if (other)
            gpu->cuStreamDestroy(other);
        if (memory)
            gpu->cuMemFree(memory);
        gpu->cuMemHostUnregister(host);
    }
    munmap(host, 2 * bytes);
}

static void measure_hop(struct bench_rank *r)
{
    const struct ips_gpu_api *gpu = r->device.gpu;
    struct bench_place *place = &r->page->places[r->rank];
    size_t bytes = r->page->options.simulated ? SIM_BYTES : REAL_BYTES;
    int count = 1;
    gpu->cuDeviceGetCount(&count);
    int next = (int)((r->rank + 1) % r->page->sync.nranks % (unsigned)count);
    gpu_ptr from = 0, to = 0;
    gpu_device peer = 0;
    if (gpu->cuMemAlloc(&from, bytes))
        return;
    if (next != place->ordinal)
        place->hop = open_peer(r, next, bytes, &peer, &to);
    else if (!gpu->cuMemAlloc(&to, bytes))
        place->hop = BENCH_HOP_SAME_GPU;
    if (place->hop != BENCH_HOP_UNKNOWN)
        place->copy_gb_s = copy_rate(r, to, from, bytes);
    if (to)
        gpu->cuMemFree(to);
    gpu->cuMemFree(from);
    if (place->hop == BENCH_HOP_PEER || place->hop == BENCH_HOP_STAGED)
        gpu->cuDevicePrimaryCtxRelease(peer);
}

static void name_gpus(struct bench_rank *r)
{
    gpu_device id;
    for (int i = 0; i < IPS_MAX_RANKS && !r->device.gpu->cuDeviceGet(&id, i); i++)
        r->device.cuDeviceGetName(r->page->gpus[i], sizeof r->page->gpus[i], id);
}

int bench_look_around(struct bench_rank *r)
{
    struct bench_page *page = r->page;
    struct bench_place *place = &page->places[r->rank];
    place->ordinal = r->device.ordinal;
    if (r->rank == 0) {
        name_gpus(r);
        r->device.gpu->cuDriverGetVersion(&page->cuda_version);
        if (page->options.beside)
            r->real.GetVersion(&page->nccl_version);
    }
    for (unsigned turn = 0; turn < page->sync.nranks; turn++) {
        if (turn == r->rank && page->options.measure_limit)
            (ips_settings()->transport == IPS_TRANSPORT_HOST ? measure_host
                                                             : measure_hop)(r);
        if (fleet_barrier(&page->sync))
            return -1;
    }
    return 0;
}
