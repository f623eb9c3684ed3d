/* SPDX-License-Identifier: Apache-2.0 */
/* Runs AllReduce on an engine that was brought up, and takes it down. Enqueues only: per
 * call one look at the current context, one capture query (in a capture a second one, for
 * the nodes to come after), one wait of the stream, one launch and one event record. No
 * wait of the host, no allocation, no lock and no system call of its own: tests/host
 * counts them. */
#include "core/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "core/engine_private.h"
#include "core/log.h"

/* How long a rank that destroys its engine waits for the last credits of its successor,
 * and a rank that aborted for its own kernels. */
#define QUIESCE_MS 2000

/* Whether this is the first error: that is the one that stays. */
static int set_error(struct ips_engine *engine, int error)
{
    int none = 0;
    return __atomic_compare_exchange_n(&engine->error, &none, error, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

static void end_waits(struct ips_engine *engine)
{
    __atomic_store_n(&engine->slab.control->abort, 1, __ATOMIC_RELEASE);
}

int ips_engine_fail(struct ips_engine *engine, int error, const char *reason)
{
    struct ips_record *record = ips_segment_slot(&engine->segment, engine->segment.slot);
    if (!set_error(engine, error))
        return ips_engine_error(engine);
    record->error = error;
    snprintf(record->reason, sizeof record->reason, "%s", reason);
    const int first = ips_segment_fail(&engine->segment);
    end_waits(engine);
    ips_log(first ? IPS_LOG_WARN : IPS_LOG_INFO,
            "rank %d of %d: %s; calls on this communicator fail from now on",
            engine->segment.rank, engine->segment.nranks, reason);
    return error;
}

int ips_engine_error(const struct ips_engine *engine)
{
    return __atomic_load_n(&engine->error, __ATOMIC_ACQUIRE);
}

static int launch(struct ips_engine *engine, const struct ips_allreduce *call,
                  int captured)
{
    const int n = engine->segment.nranks;
    const unsigned channels =
        call->channels < engine->channels ? call->channels : engine->channels;
    const unsigned element = ips_element_bytes(call->type);
    struct ips_allreduce_args args = {
        .in = call->in,
        .out = call->out,
        .count = call->count,
        .head = (struct ips_head *)(uintptr_t)engine->slab.head,
        .control = (struct ips_control *)(uintptr_t)engine->slab.control_device,
        .rank = (uint32_t)engine->position,
        .nranks = (uint32_t)n,
        .type = call->type,
        .op = call->op,
        .counter = ips_counter_of(call->variant, call->count * element),
        .element = element,
        .captured = captured != 0,
        .group = engine->group,
    };
    for (int position = 0; position < n; position++) {
        const uint8_t rank = engine->lineup.rank[position];
        args.mailbox[position] = (void *)(uintptr_t)engine->slab.mailbox[rank];
        args.peer[position] = rank;
    }
    void *parameters[] = {&args};
    return IPS_GPU(engine->device->gpu,
                   cuLaunchKernel(engine->device->kernels[call->variant], channels, 1, 1,
                                  call->threads, 1, 1, 0, call->stream, parameters,
                                  NULL));
}

/* An error before the launch leaves everything as it was: the stream or its capture is
 * not usable. After the launch it breaks the communicator. */
static int enqueue(struct ips_engine *engine, const struct ips_allreduce *call,
                   int *ret_captured)
{
    const struct ips_gpu_api *gpu = engine->device->gpu;
    if (ips_order_begin(&engine->order, gpu, call->stream, ret_captured) ||
        launch(engine, call, *ret_captured))
        return -EINVAL;
    engine->captured |= *ret_captured;
    if (ips_order_end(&engine->order, gpu, call->stream, *ret_captured))
        return ips_engine_fail(engine, -EIO, "a driver call failed after a launch");
    return 0;
}

int ips_engine_set_group(struct ips_engine *engine, unsigned group)
{
    if (group && !ips_groups_valid(group, (unsigned)engine->segment.nranks))
        return -EINVAL;
    engine->group = group;
    return 0;
}

int ips_engine_allreduce(struct ips_engine *engine, const struct ips_allreduce *call,
                         int *ret_captured)
{
    const struct ips_gpu_api *gpu = engine->device->gpu;
    int pushed = 0;
    *ret_captured = 0;
    if (ips_engine_error(engine))
        return -EIO;
    if (!call->channels || call->threads > ips_variant_max_threads((int)call->variant) ||
        (ips_variant_algo((int)call->variant) == IPS_HIERARCHICAL && !engine->group))
        return -EINVAL;
    if (!call->count)
        return 0;
    if (ips_gpu_enter(gpu, engine->device->context, &pushed))
        return -EIO;
    int error = enqueue(engine, call, ret_captured);
    ips_gpu_leave(gpu, pushed);
    return error;
}

int ips_engine_forward_begin(struct ips_engine *engine, gpu_stream stream)
{
    const struct ips_gpu_api *gpu = engine->device->gpu;
    int pushed = 0, captured;
    if (ips_engine_error(engine) || ips_gpu_enter(gpu, engine->device->context, &pushed))
        return -EIO;
    ips_order_begin(&engine->order, gpu, stream, &captured);
    ips_gpu_leave(gpu, pushed);
    return 0; /* a stream that can't be used gets NCCL's own answer */
}

int ips_engine_forward_end(struct ips_engine *engine, gpu_stream stream)
{
    const struct ips_gpu_api *gpu = engine->device->gpu;
    int pushed = 0;
    if (ips_gpu_enter(gpu, engine->device->context, &pushed))
        return -EIO;
    ips_order_end_forwarded(&engine->order, gpu, stream);
    ips_gpu_leave(gpu, pushed);
    return 0;
}

int ips_stream_captured(gpu_stream stream)
{
    const struct ips_gpu_api *gpu = ips_gpu();
    int status = GPU_CAPTURE_NONE;
    if (!gpu || gpu->cuStreamGetCaptureInfo(stream, &status, NULL, NULL, NULL, NULL))
        return 0;
    return status != GPU_CAPTURE_NONE;
}

void ips_engine_abort(struct ips_engine *engine)
{
    set_error(engine, -ECANCELED);
    end_waits(engine);
    __atomic_store_n(&ips_segment_slot(&engine->segment, engine->segment.slot)->aborted,
                     1, __ATOMIC_RELEASE);
}

unsigned ips_engine_channels(const struct ips_engine *engine)
{
    return engine->channels;
}

enum ips_link ips_engine_link(const struct ips_engine *engine)
{
    return engine->link;
}

void ips_engine_counts(const struct ips_engine *engine, uint64_t *ret_counts)
{
    for (unsigned i = 0; i < IPS_COUNTERS; i++)
        ret_counts[i] =
            __atomic_load_n(&engine->slab.control->count[i], __ATOMIC_RELAXED);
}

static void pause_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* The position of who reads what this rank sends in a ring. */
static uint32_t successor(const struct ips_engine *engine, uint32_t ring)
{
    return ips_ring_next((int)ring, (uint32_t)engine->position, 1,
                         (uint32_t)engine->segment.nranks, engine->group);
}

/* Whether the rank at a position, which may still write here, has left. */
static int has_left(const struct ips_engine *engine, uint32_t position)
{
    const struct ips_segment *segment = &engine->segment;
    const int slot = segment->slot_of[engine->lineup.rank[position]];
    return ips_record_state(ips_segment_slot(segment, slot)) == IPS_RECORD_CLOSED ||
           ips_segment_dead(segment, slot);
}

/* Whether a protocol's successors have given their last credits, or left. */
static int credited(const struct ips_engine *engine, int proto,
                    const struct ips_word *credit, uint64_t step)
{
    for (uint32_t ring = 0; ring < ips_rings(proto, engine->group); ring++) {
        const uint32_t position = successor(engine, ring);
        if (credit[position].value < step && !has_left(engine, position))
            return 0;
    }
    return 1;
}

/* Whether all successors have written their last credits into this slab: then no peer
 * writes here any more, since all data was received by the calls that have ended. */
static int quiet(struct ips_engine *engine, gpu_stream stream)
{
    const struct ips_gpu_api *gpu = engine->device->gpu;
    struct ips_head head;
    if (gpu->cuMemcpyDtoHAsync(&head, engine->slab.head, sizeof head, stream) ||
        gpu->cuStreamSynchronize(stream))
        return 0;
    for (unsigned channel = 0; channel < engine->channels; channel++) {
        struct ips_word credit[IPS_PROTOS][IPS_MAX_RANKS];
        gpu_ptr at = engine->slab.exported + sizeof(struct ips_mailbox) +
                     channel * sizeof(struct ips_channel) +
                     offsetof(struct ips_channel, credit);
        if (gpu->cuMemcpyDtoHAsync(credit, at, sizeof credit, stream) ||
            gpu->cuStreamSynchronize(stream))
            return 0;
        for (int proto = 0; proto < IPS_PROTOS; proto++)
            if (!credited(engine, proto, credit[proto], head.step[proto][channel]))
                return 0;
    }
    return 1;
}

/* Whether this rank's calls have ended: waits for them, after an abort for two seconds,
 * since that makes them end soon. */
static int ended(const struct ips_engine *engine)
{
    int status, waited = 0;
    while ((status = engine->device->gpu->cuEventQuery(engine->order.event)) ==
               GPU_ERROR_NOT_READY &&
           (!ips_engine_error(engine) || waited++ < QUIESCE_MS))
        pause_ms(1);
    return status == GPU_SUCCESS;
}

/* Whether the peers write no more, within two seconds: a process that ends right after
 * this takes its device memory along. Host memory stays for as long as a peer maps it. */
static int left_alone(struct ips_engine *engine)
{
    const struct ips_gpu_api *gpu = engine->device->gpu;
    gpu_stream stream;
    if (!engine->slab.exported)
        return 1;
    if (gpu->cuStreamCreate(&stream, GPU_STREAM_NON_BLOCKING))
        return 0;
    int done = 0;
    for (int waited = 0; waited < QUIESCE_MS && !done; waited++) {
        done = quiet(engine, stream) || ips_engine_error(engine);
        if (!done)
            pause_ms(1);
    }
    gpu->cuStreamDestroy(stream);
    return done;
}

/* Nothing of this rank can use the memory any more. After an abort or a failure the peers
 * may still write for a while: they close what they have mapped once they have stopped,
 * or end, and the slab lives until then. Where the driver failed, the event tells
 * nothing. */
static int released(struct ips_engine *engine)
{
    const int error = ips_engine_error(engine);
    return error != -EIO && ended(engine) &&
           (ips_engine_error(engine) || left_alone(engine));
}

void ips_engine_destroy(struct ips_engine *engine)
{
    if (!engine)
        return;
    const struct ips_gpu_api *gpu = engine->device->gpu;
    int pushed = 0, mode = GPU_CAPTURE_MODE_RELAXED;
    if (ips_gpu_enter(gpu, engine->device->context, &pushed)) {
        ips_watch_remove(engine);
        return; /* the driver is gone: so is the memory */
    }
    gpu->cuThreadExchangeStreamCaptureMode(&mode);
    const int clean = released(engine);
    ips_verify_failed(engine); /* the last call's, which the thread may not have seen */
    if (clean && !engine->captured) {
        ips_watch_remove(engine);
        ips_slab_close_peers(&engine->slab);
        ips_record_set_state(ips_segment_slot(&engine->segment, engine->segment.slot),
                             IPS_RECORD_CLOSED);
        ips_order_finish(&engine->order, gpu);
        ips_verify_free(engine);
        ips_slab_retire(&engine->slab, &engine->segment);
    } else {
        /* A graph, a kernel or a peer may still use it all: kept until the process ends,
         * engine included, and watched. */
        ips_log(IPS_LOG_INFO, "rank %d: engine memory is kept: %s", engine->segment.rank,
                clean ? "graphs captured calls of the communicator" : "unclean end");
        engine = NULL;
    }
    gpu->cuThreadExchangeStreamCaptureMode(&mode);
    ips_gpu_leave(gpu, pushed);
    free(engine);
}
