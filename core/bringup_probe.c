/* SPDX-License-Identifier: Apache-2.0 */
/* The probe of a set-up: whether what the ranks write to each other arrives, while the
 * kernels on both sides run. It is left out where that is known. */
#include "core/bringup_private.h"

#include <stdio.h>
#include <string.h>

#include "core/links.h"
#include "core/log.h"

#define PROBE_LIMIT_NS 30000000000ull
#define PROBE_DEADLINE_NS 500000000ull

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

static int launch_probe(struct ips_bringup *b)
{
    struct ips_probe_args args = {
        .control = (struct ips_control *)(uintptr_t)b->slab.control_device,
        .seed = b->meeting.first.probe_seed,
        .deadline_ns = PROBE_DEADLINE_NS,
        .rank = (uint32_t)rank_of(b),
        .nranks = (uint32_t)ranks_of(b),
    };
    for (int rank = 0; rank < ranks_of(b); rank++)
        args.mailbox[rank] = (void *)(uintptr_t)b->slab.mailbox[rank];
    b->slab.control->probe_bad = 0;
    __atomic_store_n(&b->slab.control->probe_done, 0, __ATOMIC_RELEASE);
    void *parameters[] = {&args};
    return IPS_GPU(b->device->gpu, cuLaunchKernel(b->device->probe, 1, 1, 1,
                                                  IPS_PROBE_THREADS, 1, 1, 0, b->stream,
                                                  parameters, NULL));
}

/* As rank 0 sees it. */
static enum ips_link link_class(const struct ips_bringup *b)
{
    const struct ips_record *records[IPS_MAX_RANKS];
    for (int rank = 0; rank < ranks_of(b); rank++)
        records[rank] = record_of(b, rank);
    return ips_link_classify(records, ranks_of(b));
}

static void pass(struct ips_bringup *b)
{
    if (!b->host)
        ips_bringup_offer(b, link_class(b));
    ips_bringup_advance(b, b->host ? IPS_RECORD_HOST_PROBED : IPS_RECORD_PROBED, CHOOSE);
}

/* Alike on all ranks: rank 0 has said so before it mapped anything. */
static int is_known_sound(const struct ips_bringup *b)
{
    return !b->host && __atomic_load_n(&record_of(b, 0)->sound, __ATOMIC_ACQUIRE) == 1;
}

void ips_bringup_probe(struct ips_bringup *b)
{
    if (!ips_rendezvous_reached(&b->meeting,
                                b->host ? IPS_RECORD_HOST_OPENED : IPS_RECORD_OPENED))
        return;
    if (!b->host && is_refused(b)) {
        ips_bringup_advance(b, IPS_RECORD_PROBED, CHOOSE);
        return;
    }
    if (is_known_sound(b)) {
        pass(b);
        return;
    }
    const int pushed = ips_bringup_enter(b);
    if (pushed < 0)
        return;
    int error = launch_probe(b);
    ips_gpu_leave(b->device->gpu, pushed);
    if (error)
        decline(b, 1, "the link probe cannot be started");
    else
        b->phase = VERIFY;
}

/* Of the positions in `bad` those from which nothing ever arrived. The others have written
 * something, and stopped: for want of what a third rank, or this one, wrote to them. */
static uint32_t find_silent(struct ips_bringup *b, uint32_t bad)
{
    struct ips_mailbox mailbox;
    const struct ips_gpu_api *gpu = b->device->gpu;
    const uint64_t nothing[2][IPS_PROBE_WORDS] = {{0}};
    uint32_t silent = 0;
    const int pushed = ips_bringup_enter(b);
    if (pushed < 0)
        return 0;
    int error =
        gpu->cuMemcpyDtoHAsync(&mailbox, b->slab.mailbox[rank_of(b)], sizeof mailbox, b->stream);
    if (!error)
        error = gpu->cuStreamSynchronize(b->stream);
    ips_gpu_leave(gpu, pushed);
    for (int rank = 0; !error && rank < ranks_of(b); rank++)
        if (!memcmp(mailbox.probe[rank].word, nothing, sizeof nothing))
            silent |= 1u << rank;
    return silent & bad;
}

/* bad: by position, as the device wrote it; believed only as far as it names ranks. */
static void describe_bad_probe(const struct ips_bringup *b, uint32_t bad, char *ret_reason)
{
    const int rank = rank_of(b);
    int peer = __builtin_ctz(bad);
    if (peer >= ranks_of(b))
        peer = rank;
    snprintf(ret_reason, IPS_REASON_BYTES,
             "what rank %d (GPU %.31s) writes to rank %d (GPU %.31s) does not arrive within "
             "0.5 s: %s",
             peer, record_of(b, peer)->bus_id, rank, own(b)->bus_id,
             b->host ? "a busy GPU, or a rank that was stopped"
                     : "a link that drops writes (see ACS and IOMMU, iommu=pt), or a busy "
                       "GPU");
}

static void fail_probe(struct ips_bringup *b, uint32_t bad)
{
    char reason[IPS_REASON_BYTES];
    const uint32_t silent = find_silent(b, bad);
    describe_bad_probe(b, silent ? silent : bad, reason);
    if (b->host)
        ips_bringup_decline_host(b, reason);
    else
        ips_bringup_refuse(b, silent ? IPS_REFUSES_BY_FAULT : IPS_REFUSES_AFTER_OTHERS,
                           reason);
}

/* The probe ends by itself, by its deadline at the latest. */
void ips_bringup_verify(struct ips_bringup *b)
{
    if (!__atomic_load_n(&b->slab.control->probe_done, __ATOMIC_ACQUIRE)) {
        if (ips_rendezvous_age_ns(&b->meeting) > PROBE_LIMIT_NS)
            decline(b, 1, "the link probe does not end");
        return;
    }
    const uint32_t bad = b->slab.control->probe_bad;
    if (bad && b->host && blame_dead(b))
        return;
    if (bad)
        fail_probe(b, bad);
    if (b->meeting.outcome == IPS_BRINGUP_PENDING) /* else declined */
        pass(b);
}
