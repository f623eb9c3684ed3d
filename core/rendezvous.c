/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks' meeting and their vote. */
#include "core/rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"

#define STEP_LIMIT_NS 2000000000ull   /* without a step from a peer */
#define TOTAL_LIMIT_NS 30000000000ull /* in all: PTX may have to be compiled */

uint64_t ips_rendezvous_age_ns(const struct ips_rendezvous *r)
{
    return ips_now_ns() - r->started_ns;
}

struct ips_record *ips_rendezvous_own(const struct ips_rendezvous *r)
{
    return ips_segment_slot(&r->segment, r->segment.slot);
}

static int fill_random(void *bytes, size_t count)
{
    for (size_t at = 0; at < count; at += 256)
        if (getentropy((char *)bytes + at, count - at < 256 ? count - at : 256))
            return -errno;
    return 0;
}

int ips_rendezvous_join(struct ips_rendezvous *r, const struct ips_bringup_config *config,
                        char *ret_reason)
{
    int error = ips_segment_open(&r->segment, config->key, config->key_bytes, ret_reason);
    if (error)
        return error;
    r->outcome = IPS_BRINGUP_PENDING;
    struct ips_record *record = ips_rendezvous_own(r);
    memset(record, 0, sizeof *record);
    record->magic = IPS_RECORD_MAGIC;
    record->layout = IPS_RECORD_VERSION;
    record->wire_version = IPS_WIRE_VERSION;
    snprintf(record->version, sizeof record->version, "%s", IPCSHIM_VERSION);
    record->rank = config->rank;
    record->nranks = -1;
    record->key_bytes = (uint32_t)config->key_bytes;
    memcpy(record->key, config->key, config->key_bytes);
    record->settings_bytes = (uint32_t)config->settings_bytes;
    memcpy(record->settings, config->settings, config->settings_bytes);
    record->channels = config->channels;
    record->verify = config->verify != 0;
    record->can_verify = config->can_verify != 0;
    record->transport = config->transport;
    ips_record_identify(record);
    error = fill_random(&record->keys, sizeof record->keys);
    if (!error)
        error = fill_random(&record->probe_seed, sizeof record->probe_seed);
    if (error) {
        snprintf(ret_reason, IPS_REASON_BYTES, "no random numbers: %s", strerror(-error));
        ips_segment_close(&r->segment);
        return error;
    }
    r->mine = *record;
    ips_rendezvous_advance(r, IPS_RECORD_PRESENT);
    return 0;
}

void ips_rendezvous_advance(struct ips_rendezvous *r, enum ips_record_state state)
{
    r->mine.state = (uint32_t)state;
    ips_record_set_state(ips_rendezvous_own(r), state);
}

void ips_rendezvous_begin(struct ips_rendezvous *r, int nranks, int rank)
{
    struct ips_record *record = ips_rendezvous_own(r);
    r->segment.nranks = nranks;
    r->segment.rank = rank;
    r->started_ns = r->stepped_ns = ips_now_ns();
    record->nranks = nranks;
    record->rank = rank;
    ips_rendezvous_advance(r, IPS_RECORD_LOADING);
    ips_segment_unlink(&r->segment); /* all who will ever come have come */
}

void ips_rendezvous_refuse(struct ips_rendezvous *r, enum ips_refusal refusal,
                           const char *reason)
{
    struct ips_record *record = ips_rendezvous_own(r);
    snprintf(record->refusal, sizeof record->refusal, "rank %d: %.*s", r->segment.rank,
             IPS_REASON_BYTES - 32, reason);
    __atomic_store_n(&record->refused, (uint32_t)refusal, __ATOMIC_RELEASE);
}

enum ips_refusal ips_rendezvous_refused(const struct ips_rendezvous *r, char *ret_reason)
{
    const struct ips_record *found = NULL;
    uint32_t how = IPS_REFUSES_NOT;
    for (int rank = 0; rank < r->segment.nranks; rank++) {
        const struct ips_record *record = ips_segment_record(&r->segment, rank);
        const uint32_t refused = __atomic_load_n(&record->refused, __ATOMIC_ACQUIRE);
        const int knows =
            refused == IPS_REFUSES_BY_CHOICE || refused == IPS_REFUSES_BY_FAULT;
        if (refused == IPS_REFUSES_NOT || (found && !knows))
            continue;
        found = record;
        how = refused;
        if (knows)
            break;
    }
    if (found && ret_reason)
        ips_record_refusal(found, ret_reason);
    if (!found || how == IPS_REFUSES_BY_CHOICE)
        return (enum ips_refusal)how;
    return IPS_REFUSES_BY_FAULT;
}

/* The lowest living rank of this communicator on this host tells a fault to the user; one
 * whose number is not known yet counts as lower by its slot. */
static int lowest_here(const struct ips_rendezvous *r)
{
    for (int slot = 0; slot < IPS_SEGMENT_SLOTS; slot++) {
        const struct ips_record *record = ips_segment_slot(&r->segment, slot);
        if (slot == r->segment.slot || ips_record_state(record) == IPS_RECORD_NONE ||
            ips_segment_dead(&r->segment, slot))
            continue;
        if (record->rank < 0 ? slot < r->segment.slot : record->rank < r->segment.rank)
            return 0;
    }
    return 1;
}

enum ips_log_level ips_rendezvous_level(const struct ips_rendezvous *r, int fault)
{
    return fault && lowest_here(r) ? IPS_LOG_WARN : IPS_LOG_INFO;
}

/* The end of every set-up that did not succeed, with the reason of the rank that decided.
 */
static void end_declined(struct ips_rendezvous *r, uint32_t outcome)
{
    uint32_t slot = outcome - IPS_OUTCOME_DECLINED;
    int fault = 1;
    if (outcome >= IPS_OUTCOME_DECLINED && slot < IPS_SEGMENT_SLOTS) {
        const struct ips_record *record = ips_segment_slot(&r->segment, (int)slot);
        ips_record_reason(record, r->reason);
        fault = record->fault != 0;
    } else {
        snprintf(r->reason, sizeof r->reason,
                 "the shared segment holds a foreign outcome");
    }
    r->outcome = IPS_BRINGUP_DECLINED;
    ips_log(ips_rendezvous_level(r, fault),
            "NCCL serves this communicator of %d ranks: %s", r->segment.nranks,
            r->reason);
}

void ips_rendezvous_decline(struct ips_rendezvous *r, int fault, const char *reason)
{
    char text[IPS_REASON_BYTES];
    snprintf(text, sizeof text, "rank %d: %.*s", ips_rendezvous_own(r)->rank,
             IPS_REASON_BYTES - 32, reason);
    ips_rendezvous_decline_as(r, fault, text);
}

static int all_voted(const struct ips_rendezvous *r)
{
    for (int slot = 0; slot < r->segment.nranks; slot++)
        if (ips_record_state(ips_segment_slot(&r->segment, slot)) < IPS_RECORD_VOTED)
            return 0;
    return 1;
}

void ips_rendezvous_decline_as(struct ips_rendezvous *r, int fault, const char *reason)
{
    struct ips_record *record = ips_rendezvous_own(r);
    record->fault = (uint32_t)fault;
    snprintf(record->reason, sizeof record->reason, "%s", reason);
    uint32_t outcome =
        ips_segment_decide(&r->segment, IPS_OUTCOME_DECLINED + (uint32_t)r->segment.slot);
    if (outcome == IPS_OUTCOME_AGREED && r->mine.state == IPS_RECORD_VOTED &&
        all_voted(r))
        r->outcome = IPS_BRINGUP_AGREED;
    else
        end_declined(r, outcome);
}

void ips_rendezvous_agree(struct ips_rendezvous *r)
{
    uint32_t outcome = ips_segment_decide(&r->segment, IPS_OUTCOME_AGREED);
    if (outcome == IPS_OUTCOME_AGREED)
        r->outcome = IPS_BRINGUP_AGREED;
    else
        end_declined(r, outcome);
}

int ips_rendezvous_declined(struct ips_rendezvous *r)
{
    uint32_t outcome = ips_segment_outcome(&r->segment);
    if (outcome == IPS_OUTCOME_OPEN ||
        (outcome == IPS_OUTCOME_AGREED && /* not without this rank's vote */
         r->mine.state >= IPS_RECORD_VOTED))
        return 0;
    end_declined(r, outcome);
    return 1;
}

/* What is wrong with a record, or NULL. */
static const char *flaw_of(const struct ips_record *mine, const struct ips_record *record)
{
    if (record->magic != IPS_RECORD_MAGIC || record->layout != IPS_RECORD_VERSION)
        return "a foreign record";
    if (record->wire_version != IPS_WIRE_VERSION ||
        memcmp(record->version, mine->version, sizeof mine->version))
        return "another version of the shim";
    if (record->key_bytes != mine->key_bytes ||
        memcmp(record->key, mine->key, mine->key_bytes))
        return "a record of another communicator";
    if (record->settings_bytes != mine->settings_bytes || record->channels < 1 ||
        record->channels > IPS_MAX_CHANNELS || record->transport < IPS_TRANSPORT_AUTO ||
        record->transport > IPS_TRANSPORT_HOST)
        return "settings of another kind";
    return NULL;
}

int ips_rendezvous_complete(struct ips_rendezvous *r)
{
    char reason[IPS_REASON_BYTES];
    int here = 0;
    for (int slot = 0; slot < IPS_SEGMENT_SLOTS; slot++)
        here += ips_record_state(ips_segment_slot(&r->segment, slot)) != IPS_RECORD_NONE;
    if (here != r->segment.nranks) {
        snprintf(
            reason, sizeof reason,
            "%d of %d ranks have no record here: on another node, without the shim, or "
            "switched off",
            r->segment.nranks - here, r->segment.nranks);
        ips_rendezvous_decline(r, 0, reason);
        return 0;
    }
    for (int slot = 0; slot < r->segment.nranks; slot++) {
        const struct ips_record *record = ips_segment_slot(&r->segment, slot);
        const char *flaw = flaw_of(&r->mine, record);
        if (!flaw)
            continue;
        snprintf(reason, sizeof reason,
                 "rank %d has %s (%.15s, wire %u; here %s, wire %u)", record->rank, flaw,
                 record->version, record->wire_version, IPCSHIM_VERSION,
                 (unsigned)IPS_WIRE_VERSION);
        ips_rendezvous_decline(r, 1, reason);
        return 0;
    }
    return 1;
}

/* Takes rank 0's record, which decides for all, out of others' reach. */
static int keep_first(struct ips_rendezvous *r)
{
    r->first = *ips_segment_record(&r->segment, 0);
    for (int slot = 0; slot < r->segment.nranks; slot++)
        if (!ips_segment_slot(&r->segment, slot)->can_verify)
            r->first.verify = 0;
    return !flaw_of(&r->mine, &r->first) && r->first.rank == 0;
}

int ips_rendezvous_numbered(struct ips_rendezvous *r)
{
    if (!ips_rendezvous_reached(r, IPS_RECORD_LOADING))
        return 0;
    unsigned numbers = 0;
    for (int slot = 0; slot < r->segment.nranks; slot++) {
        const struct ips_record *record = ips_segment_slot(&r->segment, slot);
        int rank = record->rank;
        if (record->nranks == r->segment.nranks && rank >= 0 &&
            rank < r->segment.nranks) {
            r->segment.slot_of[rank] = slot;
            numbers |= 1u << rank;
        }
    }
    if (numbers == (1u << r->segment.nranks) - 1 &&
        r->segment.slot_of[r->segment.rank] == r->segment.slot && keep_first(r))
        return 1;
    ips_rendezvous_decline(r, 1, "the records do not hold each rank once");
    return 0;
}

void ips_rendezvous_offer(struct ips_rendezvous *r, enum ips_link link,
                          const struct ips_lineup *lineup,
                          const struct ips_planner *planner)
{
    unsigned char plan[IPS_PLAN_BYTES];
    struct ips_record *record = ips_rendezvous_own(r);
    size_t bytes = planner->make ? planner->make(planner->context, r->segment.nranks,
                                                 link, lineup, plan)
                                 : 0;
    if (bytes > sizeof plan)
        bytes = 0;
    record->link = link;
    record->lineup = *lineup;
    record->plan_bytes = (uint32_t)bytes;
    memcpy(record->plan, plan, bytes);
}

static int is_lineup_sound(const struct ips_lineup *lineup, int nranks)
{
    const uint32_t ranks = (uint32_t)nranks, group = lineup->group;
    uint32_t met = 0;
    for (uint32_t position = 0; position < ranks; position++)
        if (lineup->rank[position] < ranks)
            met |= 1u << lineup->rank[position];
    return met == (1u << ranks) - 1 && (!group || ips_groups_valid(group, ranks));
}

int ips_rendezvous_accept(struct ips_rendezvous *r, int host,
                          const struct ips_planner *planner)
{
    struct ips_agreed *agreed = &r->agreed;
    const struct ips_record *record = ips_segment_record(&r->segment, 0);
    const uint32_t link = __atomic_load_n(&record->link, __ATOMIC_RELAXED);
    const uint32_t bytes = __atomic_load_n(&record->plan_bytes, __ATOMIC_RELAXED);
    memcpy(agreed->settings, r->first.settings, r->mine.settings_bytes);
    memcpy(&agreed->lineup, &record->lineup, sizeof agreed->lineup);
    if (link < IPS_LINKS && (link == IPS_LINK_HOST) == host &&
        bytes <= sizeof agreed->plan &&
        is_lineup_sound(&agreed->lineup, r->segment.nranks)) {
        agreed->link = (enum ips_link)link;
        agreed->plan_bytes = bytes;
        memcpy(agreed->plan, record->plan, bytes);
        if (!planner->is_sound || planner->is_sound(planner->context, r->segment.nranks,
                                                    agreed->link, agreed->plan, bytes))
            return 1;
    }
    ips_rendezvous_decline(r, 1, "rank 0 offers a plan that cannot be");
    return 0;
}

int ips_rendezvous_reached(struct ips_rendezvous *r, enum ips_record_state state)
{
    char reason[IPS_REASON_BYTES];
    const uint64_t now = ips_now_ns();
    int behind = -1;
    for (int slot = 0; slot < r->segment.nranks; slot++) {
        uint32_t at = ips_record_state(ips_segment_slot(&r->segment, slot));
        if (at != r->seen[slot]) {
            r->seen[slot] = at;
            r->stepped_ns = now;
        }
        if (at < (uint32_t)state)
            behind = slot;
    }
    if (behind < 0)
        return 1;
    /* A rank may still be in NCCL's init, load kernels, or clear memory of a GPU that is
     * busy: it has until the end. */
    const int slow = r->seen[behind] <= IPS_RECORD_LOADED;
    const struct ips_record *record = ips_segment_slot(&r->segment, behind);
    if (ips_segment_dead(&r->segment, behind))
        snprintf(reason, sizeof reason, "rank %d (pid %d) ended during the set-up",
                 record->rank, record->pid);
    else if (now - r->started_ns > TOTAL_LIMIT_NS ||
             (!slow && now - r->stepped_ns > STEP_LIMIT_NS))
        snprintf(
            reason, sizeof reason,
            "rank %d (pid %d) makes no step in the set-up (state %u): stopped or hung?",
            record->rank, record->pid, r->seen[behind]);
    else
        return 0;
    ips_rendezvous_decline(r, 1, reason);
    return 0;
}
