/* SPDX-License-Identifier: Apache-2.0 */
/* A set-up in the making, as the files bringup*.c share it. */
#ifndef IPS_CORE_BRINGUP_PRIVATE_H
#define IPS_CORE_BRINGUP_PRIVATE_H

#include "core/engine_private.h"
#include "core/lineup.h"
#include "core/rendezvous.h"

/* What is to be done next. Each is one function, see ips_bringup_poll. */
enum ips_bringup_phase {
    WAIT_START,
    COMPLETE,
    NUMBER,
    LOAD,
    EXPORT,
    OPEN,
    OPEN_HOST,
    PROBE,
    VERIFY,
    CHOOSE,
    VOTE,
    DECIDED
};

struct ips_bringup {
    struct ips_bringup_config config; /* its pointers are not kept, but the planner's */
    struct ips_rendezvous meeting;
    enum ips_bringup_phase phase;
    int ordinal;
    struct ips_device *device;
    gpu_stream stream;
    struct ips_slab slab;
    struct ips_engine *engine;
    int host; /* the mailboxes are to lie in host memory */
    char ring[IPS_RING_TEXT_BYTES]; /* rank 0's words for the ring, or "" */
};

static inline struct ips_record *record_of(const struct ips_bringup *b, int rank)
{
    return ips_segment_record(&b->meeting.segment, rank);
}

static inline struct ips_record *own(const struct ips_bringup *b)
{
    return ips_rendezvous_own(&b->meeting);
}

static inline int rank_of(const struct ips_bringup *b)
{
    return b->meeting.segment.rank;
}

static inline int ranks_of(const struct ips_bringup *b)
{
    return b->meeting.segment.nranks;
}

static inline void decline(struct ips_bringup *b, int fault, const char *reason)
{
    ips_rendezvous_decline(&b->meeting, fault, reason);
}

/* Whether a rank can't use IPC, so that there is no use in going on with it. */
static inline int is_refused(const struct ips_bringup *b)
{
    return ips_rendezvous_refused(&b->meeting, NULL) != IPS_REFUSES_NOT;
}

static inline unsigned channels_of(const struct ips_bringup *b)
{
    const unsigned channels = b->meeting.first.channels;
    return b->host && channels > IPS_HOST_CHANNELS ? IPS_HOST_CHANNELS : channels;
}

void ips_bringup_advance(struct ips_bringup *b, enum ips_record_state state,
                         enum ips_bringup_phase next);
/* Makes the device's context current: what ips_gpu_leave is to be told, or -1. Declines
 * where that fails. */
int ips_bringup_enter(struct ips_bringup *b);
/* This rank can't use IPC; what comes of it is chosen when all have probed. */
void ips_bringup_refuse(struct ips_bringup *b, enum ips_refusal refusal,
                        const char *reason);
/* Rank 0 says what the ranks' data crosses. */
void ips_bringup_offer(struct ips_bringup *b, enum ips_link link);
/* Declines at host memory; says also why the ranks are there. */
void ips_bringup_decline_host(struct ips_bringup *b, const char *reason);

/* The phases of bringup_memory.c. */
void ips_bringup_load(struct ips_bringup *b);
void ips_bringup_export(struct ips_bringup *b);
void ips_bringup_open(struct ips_bringup *b);
void ips_bringup_open_host(struct ips_bringup *b);
/* From CUDA IPC, or from the beginning, to host memory. */
void ips_bringup_begin_host(struct ips_bringup *b);

/* Those of bringup_probe.c. */
void ips_bringup_probe(struct ips_bringup *b);
void ips_bringup_verify(struct ips_bringup *b);

#endif
