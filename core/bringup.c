/* SPDX-License-Identifier: Apache-2.0 */
/* Brings up the engine of one communicator: a polled state machine in which the ranks
 * meet (rendezvous.c), map each other's memory, probe the links and vote. Each phase is
 * one function, which either goes on to the next phase, or declines, or is called again.
 *
 * Where a rank can't use CUDA IPC it refuses, and goes through the phases with the others
 * all the same: then all choose alike whether host memory is tried instead. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bringup_private.h"
#include "core/log.h"
#include "core/watch.h"

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

void ips_bringup_advance(struct ips_bringup *b, enum ips_record_state state,
                         enum ips_bringup_phase next)
{
    ips_log(IPS_LOG_TRACE, "rank %d of %d: set-up has reached state %d", rank_of(b),
            ranks_of(b), state);
    ips_rendezvous_advance(&b->meeting, state);
    b->phase = next;
}

int ips_bringup_enter(struct ips_bringup *b)
{
    int pushed = 0;
    if (!ips_gpu_enter(b->device->gpu, b->device->context, &pushed))
        return pushed;
    decline(b, 1, "the device's context cannot be entered");
    return -1;
}

void ips_bringup_refuse(struct ips_bringup *b, enum ips_refusal refusal,
                        const char *reason)
{
    ips_log(IPS_LOG_TRACE, "rank %d of %d: no CUDA IPC: %s", rank_of(b), ranks_of(b),
            reason);
    ips_rendezvous_refuse(&b->meeting, refusal, reason);
}

void ips_bringup_offer(struct ips_bringup *b, enum ips_link link)
{
    const struct ips_record *records[IPS_MAX_RANKS];
    struct ips_lineup lineup;
    if (rank_of(b) != 0)
        return;
    for (int rank = 0; rank < ranks_of(b); rank++)
        records[rank] = record_of(b, rank);
    ips_lineup_find(records, ranks_of(b), link, &lineup, b->ring);
    ips_rendezvous_offer(&b->meeting, link, &lineup, &b->config.planner);
}

void ips_bringup_decline_host(struct ips_bringup *b, const char *reason)
{
    char why[IPS_REASON_BYTES], text[2 * IPS_REASON_BYTES + 32];
    if (ips_rendezvous_refused(&b->meeting, why) != IPS_REFUSES_NOT)
        snprintf(text, sizeof text, "%s (host memory, since %s)", reason, why);
    else
        snprintf(text, sizeof text, "%s", reason);
    decline(b, 1, text);
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
        b->phase = LOAD;
}

/* Blocks wait for each other, so those of all ranks on a GPU must be on it at once, and one
 * may take a multiprocessor. The same on all ranks. */
static unsigned resident_channels(const struct ips_bringup *b, unsigned most)
{
    for (int rank = 0; rank < ranks_of(b); rank++) {
        const struct ips_record *record = record_of(b, rank);
        unsigned sharing = 0;
        for (int other = 0; other < ranks_of(b); other++)
            sharing += !memcmp(&record_of(b, other)->uuid, &record->uuid,
                               sizeof record->uuid);
        const unsigned each = record->multiprocessors / (sharing ? sharing : 1);
        if (each < most)
            most = each ? each : 1;
    }
    return most;
}

/* Everything that can fail here is done before this rank votes. */
static void make_engine(struct ips_bringup *b)
{
    struct ips_engine *engine = calloc(1, sizeof *engine);
    int pushed = 0, error = !engine;
    if (!error) {
        engine->device = b->device;
        engine->channels = resident_channels(b, channels_of(b));
        engine->link = b->meeting.agreed.link;
        engine->lineup = b->meeting.agreed.lineup;
        while (engine->lineup.rank[engine->position] != rank_of(b))
            engine->position++;
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

static void prepare_vote(struct ips_bringup *b)
{
    if (!ips_rendezvous_accept(&b->meeting, b->host, &b->config.planner))
        return;
    make_engine(b);
    if (b->engine)
        ips_bringup_advance(b, IPS_RECORD_VOTED, VOTE);
    else
        decline(b, 1, "no memory, thread or event for the engine");
}

/* All have probed, and all look at what all have found: all choose alike. */
static void choose(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES];
    if (!ips_rendezvous_reached(&b->meeting,
                                b->host ? IPS_RECORD_HOST_PROBED : IPS_RECORD_PROBED))
        return;
    const enum ips_refusal refused =
        b->host ? IPS_REFUSES_NOT : ips_rendezvous_refused(&b->meeting, reason);
    if (refused == IPS_REFUSES_NOT)
        prepare_vote(b);
    else if (b->meeting.first.transport == IPS_TRANSPORT_IPC)
        ips_rendezvous_decline_as(&b->meeting, refused == IPS_REFUSES_BY_FAULT, reason);
    else
        ips_bringup_begin_host(b);
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
        [COMPLETE] = complete,
        [NUMBER] = number,
        [LOAD] = ips_bringup_load,
        [EXPORT] = ips_bringup_export,
        [OPEN] = ips_bringup_open,
        [OPEN_HOST] = ips_bringup_open_host,
        [PROBE] = ips_bringup_probe,
        [VERIFY] = ips_bringup_verify,
        [CHOOSE] = choose,
        [VOTE] = vote,
    };
    const struct ips_gpu_api *gpu = b->phase >= LOAD ? ips_gpu() : NULL;
    int mode = GPU_CAPTURE_MODE_RELAXED;
    if (gpu)
        gpu->cuThreadExchangeStreamCaptureMode(&mode);
    steps[b->phase](b);
    if (gpu)
        gpu->cuThreadExchangeStreamCaptureMode(&mode);
}

static void tell_agreed(const struct ips_bringup *b)
{
    ips_log(IPS_LOG_INFO, "rank %d of %d: the engine serves this communicator (GPU %s)%s",
            rank_of(b), ranks_of(b), b->device->bus_id, b->host ? ", host memory" : "");
    if (b->ring[0])
        ips_log(IPS_LOG_INFO, "rank 0 of %d: %s", ranks_of(b), b->ring);
    if (b->config.transport != b->meeting.first.transport)
        ips_log(IPS_LOG_WARN,
                "rank %d: IPCSHIM_TRANSPORT differs from rank 0's, which is used",
                rank_of(b));
}

static void explain_host(const struct ips_bringup *b, struct ips_agreed *ret_agreed)
{
    const enum ips_refusal refused =
        ips_rendezvous_refused(&b->meeting, ret_agreed->why_host);
    if (!b->host || refused == IPS_REFUSES_NOT)
        ret_agreed->why_host[0] = 0;
    ret_agreed->why_host_level =
        ips_rendezvous_level(&b->meeting, refused == IPS_REFUSES_BY_FAULT);
}

enum ips_bringup_state ips_bringup_poll(struct ips_bringup *b)
{
    if (b->phase > WAIT_START && b->phase < DECIDED) {
        if (!ips_rendezvous_declined(&b->meeting))
            step(b);
        if (b->meeting.outcome == IPS_BRINGUP_AGREED)
            tell_agreed(b);
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
    explain_host(b, ret_agreed);
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
