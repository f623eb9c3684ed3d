/* SPDX-License-Identifier: Apache-2.0 */
/* Who is here, how far they have come, and the one outcome: the part of a set-up that
 * ranks share. Knows nothing of devices.
 *
 * Invariant: the outcome is decided once, in the segment, and every rank obeys it. It is
 * "agreed" only if every rank had voted yes before. */
#ifndef IPS_CORE_RENDEZVOUS_H
#define IPS_CORE_RENDEZVOUS_H

#include "core/engine.h"
#include "core/log.h"
#include "core/segment.h"

struct ips_rendezvous {
    struct ips_segment segment;
    enum ips_bringup_state outcome;
    uint64_t started_ns, stepped_ns;
    uint32_t seen[IPS_SEGMENT_SLOTS]; /* states of the records when last looked at */
    struct ips_record mine;  /* what this rank wrote: what it shares may be overwritten */
    struct ips_record first; /* rank 0's, as it was when it was found sound */
    struct ips_agreed agreed; /* from ips_rendezvous_accept on */
    char reason[IPS_REASON_BYTES];
};

/* Writes this rank's record. 0 or a negative errno, with the cause in
 * ret_reason[IPS_REASON_BYTES]. */
int ips_rendezvous_join(struct ips_rendezvous *r, const struct ips_bringup_config *config,
                        char *ret_reason);

/* NCCL's init is complete here, so all records that will ever be are there: says who this
 * rank is, and removes the segment's name. */
void ips_rendezvous_begin(struct ips_rendezvous *r, int nranks, int rank);

/* Whether every rank has a sound record; declines if not. */
int ips_rendezvous_complete(struct ips_rendezvous *r);
/* Whether every rank has said its number, after which segment.slot_of and `first` are
 * valid. */
int ips_rendezvous_numbered(struct ips_rendezvous *r);

/* Whether all ranks have reached the state. Declines when one of them has ended, or has
 * made no step for 2 s (30 s where it may be loading kernels). */
int ips_rendezvous_reached(struct ips_rendezvous *r, enum ips_record_state state);

/* Rank 0 tells what the others are to accept, before it advances to the state in which they
 * look. */
void ips_rendezvous_offer(struct ips_rendezvous *r, enum ips_link link,
                          const struct ips_lineup *lineup,
                          const struct ips_planner *planner);
/* Takes rank 0's offer, for host memory or not, out of others' reach, into `agreed`. Whether
 * it is sound; declines if not. */
int ips_rendezvous_accept(struct ips_rendezvous *r, int host,
                          const struct ips_planner *planner);

/* This rank can't use IPC. To be said before it advances to IPS_RECORD_PROBED. */
void ips_rendezvous_refuse(struct ips_rendezvous *r, enum ips_refusal refusal,
                           const char *reason);
/* Whether a rank refuses IPC, by choice or by fault. Once all have probed: what the first of
 * those says that know the cause, alike on all ranks. Its words go to
 * ret_reason[IPS_REASON_BYTES], or NULL. */
enum ips_refusal ips_rendezvous_refused(const struct ips_rendezvous *r, char *ret_reason);

/* Says how far this rank has come. */
void ips_rendezvous_advance(struct ips_rendezvous *r, enum ips_record_state state);

/* Declines for all, unless the outcome is decided already: then that holds. `fault`:
 * worth a warning to the user. */
void ips_rendezvous_decline(struct ips_rendezvous *r, int fault, const char *reason);
/* Likewise in words that name a rank themselves. */
void ips_rendezvous_decline_as(struct ips_rendezvous *r, int fault, const char *reason);
/* All ranks have voted yes. */
void ips_rendezvous_agree(struct ips_rendezvous *r);
/* Whether a peer has declined meanwhile. */
int ips_rendezvous_declined(struct ips_rendezvous *r);

/* At which level this rank tells the user what concerns all: one of them warns of a fault.
 */
enum ips_log_level ips_rendezvous_level(const struct ips_rendezvous *r, int fault);

struct ips_record *ips_rendezvous_own(const struct ips_rendezvous *r);
uint64_t ips_rendezvous_age_ns(const struct ips_rendezvous *r); /* since begin */

#endif
