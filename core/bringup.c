/* SPDX-License-Identifier: Apache-2.0 */
/* Brings up the engine of one communicator: a polled state machine in which the ranks meet
 * in a shared-memory segment, map each other's memory, probe the links and vote.
 *
 * Invariant: there is one outcome, decided once in the segment, and every rank obeys it. It
 * is "agreed" only if every rank voted yes, each of them after its own probe passed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/engine_private.h"
#include "core/links.h"
#include "core/log.h"

#define STEP_LIMIT_NS 2000000000ull   /* without a step from a peer */
#define TOTAL_LIMIT_NS 30000000000ull /* in all: PTX may have to be compiled */
#define PROBE_DEADLINE_NS 500000000ull
#define PROBE_THREADS 32

enum phase { WAIT_START, JUDGE, EXPORT, OPEN, PROBE, VERIFY, VOTE, AGREED, DECLINED };

struct ips_bringup {
    struct ips_bringup_config config; /* its pointers are not kept */
    struct ips_segment segment;
    enum phase phase;
    int ordinal;
    struct ips_device *device;
    gpu_stream stream;
    struct ips_slab slab;
    struct ips_engine *engine;
    uint64_t started_ns, stepped_ns;
    uint32_t seen[IPS_MAX_RANKS]; /* states of the records when last looked at */
    char reason[IPS_REASON_BYTES];
};

static int in_child; /* of a fork: the parent's set-up is not ours to touch */

void ips_core_child(void)
{
    in_child = 1;
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static struct ips_record *record_of(const struct ips_bringup *b, int rank)
{
    return ips_segment_record(&b->segment, rank);
}

static struct ips_record *own(const struct ips_bringup *b)
{
    return record_of(b, b->segment.rank);
}

static void write_record(const struct ips_bringup *b, const struct ips_bringup_config *config)
{
    struct ips_record *record = own(b);
    memset(record, 0, sizeof *record);
    record->magic = IPS_RECORD_MAGIC;
    record->layout = IPS_RECORD_VERSION;
    record->wire_version = IPS_WIRE_VERSION;
    snprintf(record->version, sizeof record->version, "%s", IPCSHIM_VERSION);
    record->rank = (uint32_t)config->rank;
    record->nranks = (uint32_t)config->nranks;
    record->key_bytes = (uint32_t)config->key_bytes;
    memcpy(record->key, config->key, config->key_bytes);
    record->settings_bytes = (uint32_t)config->settings_bytes;
    memcpy(record->settings, config->settings, config->settings_bytes);
    record->channels = config->channels;
    ips_record_identify(record);
    char *keys = (char *)&record->keys;
    for (size_t at = 0; at < sizeof record->keys; at += 256)
        if (getentropy(keys + at, sizeof record->keys - at < 256 ? sizeof record->keys - at
                                                                 : 256))
            ips_log(IPS_LOG_WARN, "no random numbers: %s", strerror(errno));
    if (getentropy(&record->probe_seed, sizeof record->probe_seed))
        record->probe_seed = record->start_time;
    ips_record_set_state(record, IPS_RECORD_PRESENT);
}

struct ips_bringup *ips_bringup_create(const struct ips_bringup_config *config,
                                       char *ret_reason)
{
    ips_slab_sweep();
    if (in_child) {
        snprintf(ret_reason, IPS_REASON_BYTES, "a child of a process that used the engine");
        return NULL;
    }
    if (config->nranks < IPS_MIN_RANKS || config->nranks > IPS_MAX_RANKS) {
        snprintf(ret_reason, IPS_REASON_BYTES, "%d ranks: the engine serves 2 to 8",
                 config->nranks);
        return NULL;
    }
    struct ips_bringup *b = calloc(1, sizeof *b);
    if (!b || config->rank < 0 || config->rank >= config->nranks ||
        config->key_bytes > IPS_KEY_BYTES || config->settings_bytes > IPS_SETTINGS_BYTES ||
        config->channels < 1 || config->channels > IPS_MAX_CHANNELS) {
        snprintf(ret_reason, IPS_REASON_BYTES, "the set-up's arguments are out of range");
        free(b);
        return NULL;
    }
    b->config = *config;
    if (ips_segment_open(&b->segment, config->key, config->key_bytes, config->nranks,
                         config->rank, ret_reason)) {
        ips_log(IPS_LOG_WARN, "rank %d: NCCL serves this communicator: %s", config->rank,
                ret_reason);
        free(b);
        return NULL;
    }
    write_record(b, config);
    return b;
}

void ips_bringup_start(struct ips_bringup *b, int device)
{
    b->ordinal = device;
    b->started_ns = b->stepped_ns = now_ns();
    b->phase = JUDGE;
    ips_segment_unlink(&b->segment); /* all who will ever come have come */
}

/* The lowest living rank of this communicator on this host tells a fault to the user. */
static int lowest_here(const struct ips_bringup *b)
{
    for (int i = 0; i < b->segment.rank; i++)
        if (ips_record_state(record_of(b, i)) != IPS_RECORD_NONE &&
            !ips_record_dead(record_of(b, i)))
            return 0;
    return 1;
}

/* The end of every set-up that did not succeed, with the reason of the rank that decided. */
static void end_declined(struct ips_bringup *b, uint32_t outcome)
{
    uint32_t rank = outcome - IPS_OUTCOME_DECLINED;
    int fault = 1;
    if (outcome >= IPS_OUTCOME_DECLINED && rank < (uint32_t)b->segment.nranks) {
        const struct ips_record *record = record_of(b, (int)rank);
        memcpy(b->reason, record->reason, sizeof b->reason);
        b->reason[sizeof b->reason - 1] = 0;
        fault = record->fault != 0;
    } else {
        snprintf(b->reason, sizeof b->reason, "the shared segment holds a foreign outcome");
    }
    for (char *at = b->reason; *at; at++)
        if ((unsigned char)*at < ' ')
            *at = '?';
    b->phase = DECLINED;
    ips_log(fault && lowest_here(b) ? IPS_LOG_WARN : IPS_LOG_INFO,
            "NCCL serves this communicator of %d ranks: %s", b->segment.nranks, b->reason);
}

static void end_agreed(struct ips_bringup *b)
{
    b->phase = AGREED;
    ips_log(IPS_LOG_INFO, "rank %d of %d: the engine serves this communicator (GPU %s)",
            b->segment.rank, b->segment.nranks, b->device->bus_id);
}

/* Declines for all ranks, unless the outcome is decided already: then that holds. */
static void decline(struct ips_bringup *b, int fault, const char *reason)
{
    struct ips_record *record = own(b);
    record->fault = (uint32_t)fault;
    snprintf(record->reason, sizeof record->reason, "rank %d: %.*s", b->segment.rank,
             IPS_REASON_BYTES - 32, reason);
    uint32_t outcome = ips_segment_decide(
        &b->segment, IPS_OUTCOME_DECLINED + (uint32_t)b->segment.rank);
    if (outcome == IPS_OUTCOME_AGREED && ips_record_state(record) == IPS_RECORD_VOTED)
        end_agreed(b);
    else
        end_declined(b, outcome);
}

/* What is wrong with the record of `rank`, or NULL. */
static const char *record_flaw(const struct ips_bringup *b, int rank)
{
    const struct ips_record *mine = own(b), *record = record_of(b, rank);
    if (record->magic != IPS_RECORD_MAGIC || record->layout != IPS_RECORD_VERSION)
        return "a foreign record";
    if (record->wire_version != IPS_WIRE_VERSION ||
        memcmp(record->version, mine->version, sizeof mine->version))
        return "another version of the shim";
    if (record->rank != (uint32_t)rank || record->nranks != mine->nranks ||
        record->key_bytes != mine->key_bytes ||
        memcmp(record->key, mine->key, mine->key_bytes))
        return "a record of another communicator";
    if (record->settings_bytes != mine->settings_bytes)
        return "settings of another size";
    return NULL;
}

/* NCCL's init is complete on this rank, so every record that will ever exist is there. */
static void judge(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES];
    int missing = 0, first = -1;
    for (int i = 0; i < b->segment.nranks; i++) {
        if (ips_record_state(record_of(b, i)) != IPS_RECORD_NONE)
            continue;
        first = missing++ ? first : i;
    }
    if (missing) {
        snprintf(reason, sizeof reason,
                 "%d of %d ranks have no record here (the first is rank %d): on another "
                 "node, without the shim, or switched off",
                 missing, b->segment.nranks, first);
        decline(b, 0, reason);
        return;
    }
    for (int i = 0; i < b->segment.nranks; i++) {
        const char *flaw = record_flaw(b, i);
        if (!flaw)
            continue;
        snprintf(reason, sizeof reason, "rank %d has %s (%.15s, wire %u; here %s, wire %u)", i,
                 flaw, record_of(b, i)->version, record_of(b, i)->wire_version,
                 IPCSHIM_VERSION, (unsigned)IPS_WIRE_VERSION);
        decline(b, 1, reason);
        return;
    }
    b->phase = EXPORT;
}

/* Loads the kernels, allocates, exports. Local: waits for no peer. */
static void export_slab(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES] = "";
    int pushed = 0;
    ips_record_set_state(own(b), IPS_RECORD_LOADING);
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
        error = ips_slab_create(&b->slab, b->device, record_of(b, 0)->channels,
                                b->config.mem_max, b->stream, reason);
    if (!error)
        error = ips_slab_export(&b->slab, own(b), reason);
    ips_gpu_leave(gpu, pushed);
    if (error) {
        decline(b, error != -EDQUOT, reason); /* a limit that was set is no fault */
        return;
    }
    ips_record_set_state(own(b), IPS_RECORD_EXPORTED);
    b->phase = OPEN;
}

/* Whether all ranks have reached `state`. Declines when one of them has ended, or has made no
 * step for too long; a rank that has not yet come out of NCCL's init, or is loading kernels,
 * has until the end. */
static int reached(struct ips_bringup *b, enum ips_record_state state)
{
    char reason[IPS_REASON_BYTES];
    const uint64_t now = now_ns();
    int behind = -1;
    for (int i = 0; i < b->segment.nranks; i++) {
        uint32_t at = ips_record_state(record_of(b, i));
        if (at != b->seen[i]) {
            b->seen[i] = at;
            b->stepped_ns = now;
        }
        if (at < (uint32_t)state)
            behind = i;
    }
    if (behind < 0)
        return 1;
    const struct ips_record *record = record_of(b, behind);
    const int slow = b->seen[behind] <= IPS_RECORD_LOADING;
    if (ips_record_dead(record))
        snprintf(reason, sizeof reason, "rank %d (pid %d) ended during the set-up", behind,
                 record->pid);
    else if (now - b->started_ns > TOTAL_LIMIT_NS ||
             (!slow && now - b->stepped_ns > STEP_LIMIT_NS))
        snprintf(reason, sizeof reason,
                 "rank %d (pid %d) makes no step in the set-up (state %u): stopped or hung?",
                 behind, record->pid, b->seen[behind]);
    else
        return 0;
    decline(b, 1, reason);
    return 0;
}

/* Every pair must be wanted: one NVLink anywhere, and NCCL has the better plan. */
static int links_pass(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES];
    for (int i = 0; i < b->segment.nranks; i++) {
        if (i == b->segment.rank)
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

static void open_peers(struct ips_bringup *b)
{
    char reason[IPS_REASON_BYTES];
    const struct ips_gpu_api *gpu = b->device->gpu;
    int pushed = 0;
    if (!reached(b, IPS_RECORD_EXPORTED) || !links_pass(b))
        return;
    if (ips_gpu_enter(gpu, b->device->context, &pushed)) {
        decline(b, 1, "the device's context cannot be entered");
        return;
    }
    int error = ips_slab_open_peers(&b->slab, &b->segment, reason);
    if (!error) {
        /* Own copy first: the record is shared, the stream asynchronous. */
        struct ips_guard_keys keys = record_of(b, 0)->keys;
        error = gpu->cuMemcpyHtoDAsync(b->slab.own + offsetof(struct ips_slab_head, keys),
                                       &keys, sizeof keys, b->stream);
        if (!error)
            error = gpu->cuStreamSynchronize(b->stream);
        if (error)
            snprintf(reason, sizeof reason, "cannot write to device memory: %s",
                     ips_gpu_error(error));
    }
    ips_gpu_leave(gpu, pushed);
    if (error) {
        decline(b, 1, reason);
        return;
    }
    ips_record_set_state(own(b), IPS_RECORD_OPENED);
    b->phase = PROBE;
}

static void start_probe(struct ips_bringup *b)
{
    const struct ips_gpu_api *gpu = b->device->gpu;
    int pushed = 0;
    if (!reached(b, IPS_RECORD_OPENED))
        return;
    struct ips_probe_args args = {
        .slab = (void *)(uintptr_t)b->slab.own,
        .next = (void *)(uintptr_t)b->slab.next,
        .prev = (void *)(uintptr_t)b->slab.prev,
        .control = (struct ips_control *)(uintptr_t)b->slab.control_device,
        .seed = record_of(b, 0)->probe_seed,
        .deadline_ns = PROBE_DEADLINE_NS,
        .rank = (uint32_t)b->segment.rank,
        .nranks = (uint32_t)b->segment.nranks,
    };
    void *parameters[] = {&args};
    int error = ips_gpu_enter(gpu, b->device->context, &pushed);
    if (!error)
        error = IPS_GPU(gpu, cuLaunchKernel(b->device->probe, 1, 1, 1, PROBE_THREADS, 1, 1, 0,
                                            b->stream, parameters, NULL));
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
        engine->channels = record_of(b, 0)->channels;
        engine->report_ns = b->config.report_ns;
        error = ips_gpu_enter(b->device->gpu, b->device->context, &pushed);
    }
    if (!error) {
        error = ips_order_init(&engine->order, b->device->gpu);
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
    const int n = b->segment.nranks, rank = b->segment.rank;
    if (!__atomic_load_n(&b->slab.control->probe_done, __ATOMIC_ACQUIRE)) {
        if (now_ns() - b->started_ns > TOTAL_LIMIT_NS)
            decline(b, 1, "the link probe does not end");
        return;
    }
    uint32_t bad = b->slab.control->probe_bad;
    if (!bad) {
        make_engine(b);
        if (!b->engine) {
            decline(b, 1, "no memory or no event for the engine");
            return;
        }
        ips_record_set_state(own(b), IPS_RECORD_VOTED);
        b->phase = VOTE;
        return;
    }
    int peer = bad & 1 ? (rank + n - 1) % n : (rank + 1) % n;
    snprintf(reason, sizeof reason,
             "the link from rank %d (GPU %.31s) to rank %d (GPU %.31s) loses writes: check "
             "ACS and the IOMMU (iommu=pt)",
             peer, record_of(b, peer)->bus_id, rank, own(b)->bus_id);
    decline(b, 1, reason);
}

static void vote(struct ips_bringup *b)
{
    if (!reached(b, IPS_RECORD_VOTED))
        return;
    uint32_t outcome = ips_segment_decide(&b->segment, IPS_OUTCOME_AGREED);
    if (outcome != IPS_OUTCOME_AGREED) {
        end_declined(b, outcome);
        return;
    }
    end_agreed(b);
}

/* A peer may have decided while this rank was between two phases. */
static int decided_elsewhere(struct ips_bringup *b)
{
    uint32_t outcome = ips_segment_outcome(&b->segment);
    if (outcome == IPS_OUTCOME_OPEN || outcome == IPS_OUTCOME_AGREED)
        return 0;
    end_declined(b, outcome);
    return 1;
}

enum ips_bringup_state ips_bringup_poll(struct ips_bringup *b)
{
    static void (*const step[])(struct ips_bringup *) = {
        [JUDGE] = judge,       [EXPORT] = export_slab,   [OPEN] = open_peers,
        [PROBE] = start_probe, [VERIFY] = verify_probe, [VOTE] = vote,
    };
    if (b->phase > WAIT_START && b->phase < AGREED && !decided_elsewhere(b)) {
        /* Allocating is refused while some thread captures in global mode. */
        const struct ips_gpu_api *gpu = b->device ? b->device->gpu : NULL;
        int mode = GPU_CAPTURE_MODE_RELAXED;
        if (!gpu && b->phase == EXPORT)
            gpu = ips_gpu();
        if (gpu)
            gpu->cuThreadExchangeStreamCaptureMode(&mode);
        step[b->phase](b);
        if (gpu)
            gpu->cuThreadExchangeStreamCaptureMode(&mode);
    }
    return b->phase == AGREED     ? IPS_BRINGUP_AGREED
           : b->phase == DECLINED ? IPS_BRINGUP_DECLINED
                                  : IPS_BRINGUP_PENDING;
}

void ips_bringup_wait(struct ips_bringup **bringups, size_t count)
{
    size_t pending;
    do {
        pending = 0;
        for (size_t i = 0; i < count; i++)
            pending += ips_bringup_poll(bringups[i]) == IPS_BRINGUP_PENDING;
        if (pending) {
            struct timespec pause = {0, 50000};
            nanosleep(&pause, NULL);
        }
    } while (pending);
}

const char *ips_bringup_reason(const struct ips_bringup *b)
{
    return b->reason;
}

struct ips_engine *ips_bringup_take(struct ips_bringup *b, void *ret_settings)
{
    struct ips_engine *engine = b->engine;
    memcpy(ret_settings, record_of(b, 0)->settings, own(b)->settings_bytes);
    engine->slab = b->slab;
    engine->segment = b->segment;
    b->engine = NULL;
    b->segment.base = NULL;
    memset(&b->slab, 0, sizeof b->slab);
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
    if (b->engine)
        ips_order_finish(&b->engine->order, gpu);
    if (b->segment.base) {
        ips_slab_close_peers(&b->slab);
        ips_record_set_state(own(b), IPS_RECORD_CLOSED);
        ips_slab_retire(&b->slab, &b->segment);
    }
    gpu->cuThreadExchangeStreamCaptureMode(&mode);
    ips_gpu_leave(gpu, pushed);
}

void ips_bringup_destroy(struct ips_bringup *b)
{
    if (!b)
        return;
    ips_segment_unlink(&b->segment);
    if (b->segment.base && b->phase != AGREED && b->phase != DECLINED)
        decline(b, 0, "its set-up was given up");
    if (b->device)
        stop_device(b);
    if (b->segment.base) {
        ips_record_set_state(own(b), IPS_RECORD_CLOSED);
        ips_segment_close(&b->segment);
    }
    free(b->engine);
    free(b);
}
