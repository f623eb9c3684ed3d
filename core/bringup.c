/* SPDX-License-Identifier: Apache-2.0 */
/* Brings up the engine of one communicator: a polled state machine in which the ranks
 * meet (rendezvous.c), map each other's memory, probe the links and vote. Each phase is
 * one function, which either goes on to the next phase, or declines, or is called again.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/engine_private.h"
#include "core/links.h"
#include "core/log.h"
#include "core/rendezvous.h"
#include "core/watch.h"

#define PROBE_LIMIT_NS 30000000000ull
#define PROBE_DEADLINE_NS 500000000ull
#define REFUSED_LIMIT_NS 100000000ull

enum phase { WAIT_START, COMPLETE, NUMBER, EXPORT, OPEN, REFUSED, PROBE, VERIFY, VOTE, DECIDED };

struct ips_bringup {
    struct ips_bringup_config config; /* its pointers are not kept */
    struct ips_rendezvous meeting;
    enum phase phase;
    int ordinal;
    struct ips_device *device;
    gpu_stream stream;
    struct ips_slab slab;
    struct ips_engine *engine;
    char refusal[IPS_REASON_BYTES]; /* from REFUSED on */
    uint64_t refused_ns;
};

static int in_child; /* of a fork: the parent's set-up is not ours to touch */

void ips_core_child(void)
{
    in_child = 1;
}

void ips_core_exit(void)
{
    ips_segment_unlink_all();
}

/* What a killed process has left: looked for once, where there is a use for it. */
static void sweep_names(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ips_segment_sweep_names);
}

static struct ips_record *record_of(const struct ips_bringup *b, int rank)
{
    return ips_segment_record(&b->meeting.segment, rank);
}

static struct ips_record *own(const struct ips_bringup *b)
{
    return ips_rendezvous_own(&b->meeting);
}

static void decline(struct ips_bringup *b, int fault, const char *reason)
{
    ips_rendezvous_decline(&b->meeting, fault, reason);
}

static void advance(struct ips_bringup *b, enum ips_record_state state, enum phase next)
{
    ips_log(IPS_LOG_TRACE, "rank %d of %d: set-up has reached state %d",
            b->meeting.segment.rank, b->meeting.segment.nranks, state);
    ips_rendezvous_advance(&b->meeting, state);
    b->phase = next;
}

struct ips_bringup *ips_bringup_create(const struct ips_bringup_config *config,
                                       char *ret_reason)
{
    if (in_child) {
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "a child of a process that used the engine");
        return NULL;
    }
    struct ips_bringup *b = calloc(1, sizeof *b);
    if (!b || config->key_bytes > IPS_KEY_BYTES ||
        config->settings_bytes > IPS_SETTINGS_BYTES || config->channels < 1 ||
        config->channels > IPS_MAX_CHANNELS) {
        snprintf(ret_reason, IPS_REASON_BYTES, "the set-up's arguments are out of range");
        free(b);
        return NULL;
    }
    b->config = *config;
    sweep_names();
    int error = ips_rendezvous_join(&b->meeting, config, ret_reason);
    if (error) {
        ips_log(error == -EUSERS ? IPS_LOG_INFO : IPS_LOG_WARN,
                "rank %d: NCCL serves this communicator: %s", config->rank, ret_reason);
        free(b);
        return NULL;
    }
    return b;
}

void ips_bringup_start(struct ips_bringup *b, int nranks, int rank, int device)
{
    b->ordinal = device;
    ips_rendezvous_begin(&b->meeting, nranks, rank);
    b->phase = COMPLETE;
}

static void complete(struct ips_bringup *b)
{
    if (ips_rendezvous_complete(&b->meeting))
        b->phase = NUMBER;
}

static void number(struct ips_bringup *b)
{
    if (ips_rendezvous_numbered(&b->meeting))
        b->phase = EXPORT;
}

/* Loads the kernels, allocates, exports. Local: waits for no peer. */
static void export_slab(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES] = "";
    int pushed = 0;
    ips_slab_sweep();
    b->device = ips_device_get(b->ordinal, reason);
    if (!b->device) {
        decline(b, 1, reason);
        return;
    }
    const struct ips_gpu_api *gpu = b->device->gpu;
    if (ips_gpu_enter(gpu, b->device->context, &pushed)) {
        decline(b, 1, "the device's context cannot be entered");
        return;
    }
    int error = IPS_GPU(gpu, cuStreamCreate(&b->stream, GPU_STREAM_NON_BLOCKING));
    if (error)
        snprintf(reason, sizeof reason, "no stream: %s", ips_gpu_error(error));
    if (!error)
        error = ips_slab_create(
            &b->slab, b->device, b->meeting.first.channels,
            ips_segment_control(&b->meeting.segment, b->meeting.segment.slot),
            b->config.mem_max, b->stream, reason);
    if (!error)
        error = ips_slab_export(&b->slab, own(b), reason);
    ips_gpu_leave(gpu, pushed);
    if (error) {
        decline(b, error != -EDQUOT, reason); /* a limit that was set is no fault */
        return;
    }
    advance(b, IPS_RECORD_EXPORTED, OPEN);
}

/* A peer that has ended explains whatever fails with it. Whether one has. */
static int blame_dead(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES];
    const struct ips_segment *segment = &b->meeting.segment;
    for (int rank = 0; rank < segment->nranks; rank++) {
        if (rank == segment->rank || !ips_segment_dead(segment, segment->slot_of[rank]))
            continue;
        snprintf(reason, sizeof reason, "rank %d (pid %d) ended during the set-up", rank,
                 record_of(b, rank)->pid);
        decline(b, 1, reason);
        return 1;
    }
    return 0;
}

/* Every pair must be wanted: one NVLink anywhere, and NCCL has the better plan. */
static int links_pass(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES];
    for (int i = 0; i < b->meeting.segment.nranks; i++) {
        if (i == b->meeting.segment.rank)
            continue;
        enum ips_link_verdict verdict =
            ips_link_judge(b->device, record_of(b, i), &b->config, reason);
        if (verdict == IPS_LINK_USABLE)
            continue;
        decline(b, verdict == IPS_LINK_BROKEN, reason);
        return 0;
    }
    return 1;
}

/* As rank 0 sees it. */
static enum ips_link link_class(const struct ips_bringup *b)
{
    const struct ips_record *records[IPS_MAX_RANKS];
    for (int rank = 0; rank < b->meeting.segment.nranks; rank++)
        records[rank] = record_of(b, rank);
    return ips_link_classify(records, b->meeting.segment.nranks);
}

static void open_peers(struct ips_bringup *b)
{
    const struct ips_gpu_api *gpu = b->device->gpu;
    int pushed = 0;
    if (!ips_rendezvous_reached(&b->meeting, IPS_RECORD_EXPORTED) || !links_pass(b))
        return;
    if (ips_gpu_enter(gpu, b->device->context, &pushed)) {
        decline(b, 1, "the device's context cannot be entered");
        return;
    }
    int error = ips_slab_open_peers(&b->slab, &b->meeting.segment, b->refusal);
    if (!error) {
        const struct ips_guard_keys keys = b->meeting.first.keys;
        error = gpu->cuMemcpyHtoDAsync(b->slab.own + offsetof(struct ips_head, keys),
                                       &keys, sizeof keys, b->stream);
        if (!error)
            error = gpu->cuStreamSynchronize(b->stream);
        if (error)
            snprintf(b->refusal, sizeof b->refusal, "cannot write to device memory: %s",
                     ips_gpu_error(error));
    }
    ips_gpu_leave(gpu, pushed);
    if (!error) {
        if (b->meeting.segment.rank == 0)
            ips_rendezvous_offer(&b->meeting, link_class(b), &b->config.planner);
        advance(b, IPS_RECORD_OPENED, PROBE);
        return;
    }
    b->refused_ns = ips_rendezvous_age_ns(&b->meeting);
    b->phase = REFUSED;
}

/* The memory of a process goes first when it ends; that it has ended is seen soon after. */
static void refused(struct ips_bringup *b)
{
    const uint64_t age_ns = ips_rendezvous_age_ns(&b->meeting) - b->refused_ns;
    if (!blame_dead(b) && age_ns > REFUSED_LIMIT_NS)
        decline(b, 1, b->refusal);
}

static void start_probe(struct ips_bringup *b)
{
    const struct ips_gpu_api *gpu = b->device->gpu;
    int pushed = 0;
    if (!ips_rendezvous_reached(&b->meeting, IPS_RECORD_OPENED))
        return;
    struct ips_probe_args args = {
        .control = (struct ips_control *)(uintptr_t)b->slab.control_device,
        .seed = b->meeting.first.probe_seed,
        .deadline_ns = PROBE_DEADLINE_NS,
        .rank = (uint32_t)b->meeting.segment.rank,
        .nranks = (uint32_t)b->meeting.segment.nranks,
    };
    for (int rank = 0; rank < b->meeting.segment.nranks; rank++)
        args.mailbox[rank] = (void *)(uintptr_t)b->slab.mailbox[rank];
    void *parameters[] = {&args};
    int error = ips_gpu_enter(gpu, b->device->context, &pushed);
    if (!error)
        error = IPS_GPU(gpu, cuLaunchKernel(b->device->probe, 1, 1, 1, IPS_PROBE_THREADS, 1,
                                            1, 0, b->stream, parameters, NULL));
    ips_gpu_leave(gpu, pushed);
    if (error)
        decline(b, 1, "the link probe cannot be started");
    else
        b->phase = VERIFY;
}

/* Everything that can fail here is done before this rank votes. */
static void make_engine(struct ips_bringup *b)
{
    struct ips_engine *engine = calloc(1, sizeof *engine);
    int pushed = 0, error = !engine;
    if (!error) {
        engine->device = b->device;
        engine->channels = b->meeting.first.channels;
        engine->link = b->meeting.agreed.link;
        engine->watch.report_s = b->config.report_s;
        engine->watch.timeout_s = b->config.timeout_s;
        error = ips_watch_start() ||
                ips_gpu_enter(b->device->gpu, b->device->context, &pushed);
    }
    if (!error) {
        error = ips_order_init(&engine->order, b->device->gpu);
        if (!error && b->meeting.first.verify)
            error = ips_verify_alloc(engine);
        if (error)
            ips_order_finish(&engine->order, b->device->gpu);
        ips_gpu_leave(b->device->gpu, pushed);
    }
    if (error) {
        free(engine);
        engine = NULL;
    }
    b->engine = engine;
}

/* The probe ends by itself, by its deadline at the latest. */
static void verify_probe(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES];
    const int rank = b->meeting.segment.rank;
    if (!__atomic_load_n(&b->slab.control->probe_done, __ATOMIC_ACQUIRE)) {
        if (ips_rendezvous_age_ns(&b->meeting) > PROBE_LIMIT_NS)
            decline(b, 1, "the link probe does not end");
        return;
    }
    uint32_t bad = b->slab.control->probe_bad;
    if (!bad) {
        if (!ips_rendezvous_accept(&b->meeting, &b->config.planner))
            return;
        make_engine(b);
        if (!b->engine) {
            decline(b, 1, "no memory, thread or event for the engine");
            return;
        }
        advance(b, IPS_RECORD_VOTED, VOTE);
        return;
    }
    if (blame_dead(b))
        return;
    int peer = __builtin_ctz(bad); /* written by a device: believed only as far as a rank */
    if (peer >= b->meeting.segment.nranks)
        peer = rank;
    snprintf(
        reason, sizeof reason,
        "what rank %d (GPU %.31s) writes to rank %d (GPU %.31s) does not arrive within "
        "0.5 s: a link that drops writes (see ACS and IOMMU, iommu=pt), or a busy GPU",
        peer, record_of(b, peer)->bus_id, rank, own(b)->bus_id);
    decline(b, 1, reason);
}

static void vote(struct ips_bringup *b)
{
    if (ips_rendezvous_reached(&b->meeting, IPS_RECORD_VOTED))
        ips_rendezvous_agree(&b->meeting);
}

/* The step of the phase, where allocating is allowed although some thread may be
 * capturing in global mode. */
static void step(struct ips_bringup *b)
{
    static void (*const steps[])(struct ips_bringup *) = {
        [COMPLETE] = complete, [NUMBER] = number,   [EXPORT] = export_slab,
        [OPEN] = open_peers,   [REFUSED] = refused, [PROBE] = start_probe,
        [VERIFY] = verify_probe, [VOTE] = vote,
    };
    const struct ips_gpu_api *gpu = b->phase >= EXPORT ? ips_gpu() : NULL;
    int mode = GPU_CAPTURE_MODE_RELAXED;
    if (gpu)
        gpu->cuThreadExchangeStreamCaptureMode(&mode);
    steps[b->phase](b);
    if (gpu)
        gpu->cuThreadExchangeStreamCaptureMode(&mode);
}

enum ips_bringup_state ips_bringup_poll(struct ips_bringup *b)
{
    if (b->phase > WAIT_START && b->phase < DECIDED) {
        if (!ips_rendezvous_declined(&b->meeting))
            step(b);
        if (b->meeting.outcome == IPS_BRINGUP_AGREED)
            ips_log(IPS_LOG_INFO,
                    "rank %d of %d: the engine serves this communicator (GPU %s)",
                    b->meeting.segment.rank, b->meeting.segment.nranks,
                    b->device->bus_id);
        if (b->meeting.outcome != IPS_BRINGUP_PENDING)
            b->phase = DECIDED;
    }
    return b->meeting.outcome;
}

const char *ips_bringup_reason(const struct ips_bringup *b)
{
    return b->meeting.reason;
}

struct ips_engine *ips_bringup_take(struct ips_bringup *b, struct ips_agreed *ret_agreed)
{
    struct ips_engine *engine = b->engine;
    *ret_agreed = b->meeting.agreed;
    engine->slab = b->slab;
    engine->segment = b->meeting.segment;
    b->engine = NULL;
    b->meeting.segment.base = NULL;
    memset(&b->slab, 0, sizeof b->slab);
    ips_watch_add(engine);
    return engine;
}

/* Waits for an own probe that still runs: it ends by its deadline. */
static void stop_device(struct ips_bringup *b)
{
    const struct ips_gpu_api *gpu = b->device->gpu;
    int pushed = 0, mode = GPU_CAPTURE_MODE_RELAXED;
    if (ips_gpu_enter(gpu, b->device->context, &pushed))
        return;
    gpu->cuThreadExchangeStreamCaptureMode(&mode);
    if (b->stream) {
        IPS_GPU(gpu, cuStreamSynchronize(b->stream));
        gpu->cuStreamDestroy(b->stream);
    }
    if (b->engine) {
        ips_order_finish(&b->engine->order, gpu);
        ips_verify_free(b->engine);
    }
    if (b->meeting.segment.base) {
        ips_slab_close_peers(&b->slab);
        ips_record_set_state(own(b), IPS_RECORD_CLOSED);
        ips_slab_retire(&b->slab, &b->meeting.segment);
    }
    gpu->cuThreadExchangeStreamCaptureMode(&mode);
    ips_gpu_leave(gpu, pushed);
}

void ips_bringup_destroy(struct ips_bringup *b)
{
    if (!b)
        return;
    ips_segment_unlink(&b->meeting.segment);
    if (b->meeting.segment.base && b->meeting.outcome == IPS_BRINGUP_PENDING)
        decline(b, 0, "its set-up was given up");
    if (b->device)
        stop_device(b);
    if (b->meeting.segment.base) {
        ips_record_set_state(own(b), IPS_RECORD_CLOSED);
        ips_segment_close(&b->meeting.segment);
    }
    free(b->engine);
    free(b);
}
