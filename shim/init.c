/* SPDX-License-Identifier: Apache-2.0 */
/* From the call that makes a communicator to an entry in the table. Invariant: a rank
 * that can't bring its engine up leaves no record, so the peers decline as well; no lock
 * is held while waiting or calling NCCL. */
#include "shim/init.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "shim/group.h"
#include "shim/late.h"
#include "shim/measured.h"
#include "shim/plan.h"
#include "shim/settings.h"
#include "shim/settle.h"
#include "shim/trace.h"

const char *ips_init_why_not(int nranks)
{
    if (nranks < 0)
        return NULL;
    if (nranks < IPS_MIN_RANKS)
        return "a single rank";
    if (nranks > IPS_MAX_RANKS)
        return "more than 8 ranks";
    if (!ips_settings()->policy.max_bytes)
        return "no size is taken: IPCSHIM_MAX_BYTES=0";
    return NULL;
}

void ips_init_prepare(struct ips_init *init, ncclComm_t *where, int nranks, int rank,
                      int blocking, const struct ips_key *key)
{
    const struct ips_settings *settings = ips_settings();
    *init = (struct ips_init){
        .where = where,
        .nranks = nranks,
        .rank = rank,
        .blocking = blocking,
        .key = *key,
        .reason = key->count ? ips_init_why_not(nranks) : key->why_not,
    };
    if (init->reason)
        return;
    struct ips_bringup_config config = {
        .key = key->bytes,
        .key_bytes = key->count,
        .rank = rank,
        .settings = &settings->policy,
        .settings_bytes = sizeof settings->policy,
        .channels = settings->policy.max_channels,
        .mem_max = settings->mem_max_bytes,
        .links_any = settings->links_any,
        .p2p_disabled = ips_settings_p2p_disabled(),
        .report_s = settings->report_s,
        .timeout_s = settings->timeout_s,
        .verify = settings->policy.verify != 0,
        .can_verify = blocking,
        .transport = (enum ips_transport)settings->transport,
        .planner = ips_plan_planner(&settings->policy),
        .recall = ips_measured_recall,
    };
    char reason[IPS_REASON_BYTES] = "";
    init->bringup = ips_bringup_create(&config, reason);
    if (!init->bringup)
        init->reason = ips_trace_intern(reason);
}

void ips_init_prepare_other(struct ips_init *init, ncclComm_t *where, ncclComm_t parent,
                            const char *reason)
{
    struct ips_key none;
    ips_key_none(&none, reason);
    ips_init_prepare(init, where, -1, -1, ips_init_blocking(NULL, 1), &none);
    init->parent = parent;
}

/* NCCL calls ranks of one split by the same number on all ranks of the parent, whether
 * they take part or not, and so do we; the child's size is not known before. */
void ips_init_prepare_split(struct ips_init *init, ncclComm_t *where, ncclComm_t parent,
                            struct ips_comm *known, int color, const void *config)
{
    struct ips_key key;
    if (color < 0)
        ips_key_none(&key, "no color");
    else if (!known)
        ips_key_none(&key, "its parent is not known to the shim");
    else
        ips_key_of_child(&key, &known->key,
                         __atomic_load_n(&known->splits, __ATOMIC_RELAXED), color);
    /* Without a config the child is what its parent is. */
    int blocking = ips_init_blocking(config, config || !known || known->blocking);
    ips_init_prepare(init, color < 0 ? NULL : where, -1, -1, blocking, &key);
    init->parent = parent;
}

ncclResult_t ips_init_forwarded(struct ips_init *inits, size_t count, ncclResult_t result)
{
    int good = result == ncclSuccess || result == ncclInProgress;
    if (ips_group_depth() == 0 || !good) {
        ips_init_complete(inits, count, result);
        if (!good)
            ips_group_failed(result);
        return result;
    }
    for (size_t i = 0; i < count; i++)
        if (ips_group_add_init(&inits[i]) < 0)
            ips_init_drop(&inits[i], 1); /* NCCL serves it, unknown to the shim */
    return result;
}

void ips_init_drop(struct ips_init *inits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ips_bringup_destroy(inits[i].bringup);
        inits[i].bringup = NULL;
    }
}

ncclComm_t ips_init_handle(const struct ips_init *init)
{
    return init->where ? __atomic_load_n(init->where, __ATOMIC_ACQUIRE) : NULL;
}

struct ips_comm *ips_init_enter(struct ips_init *init, struct ips_comm **stale)
{
    struct ips_comm description = {
        .rank = init->rank,
        .nranks = init->nranks,
        .reason = init->reason,
        .blocking = init->blocking,
        .key = init->key,
        .bringup = init->bringup,
        .hold = IPS_HOLD_PENDING,
    };
    struct ips_comm *comm = ips_comm_add(ips_init_handle(init), &description, stale);
    if (!comm)
        ips_init_drop(init, 1);
    init->bringup = NULL;
    return comm;
}

/* One whose init NCCL may still be at: NCCL tells when asked after its health. */
static int in_background(const struct ips_init *init, ncclResult_t result)
{
    return result == ncclInProgress || !init->blocking;
}

static void enter(struct ips_init *init, ncclResult_t result)
{
    struct ips_comm *stale = NULL;
    init->comm = NULL;
    if (ips_init_handle(init))
        init->comm = ips_init_enter(init, &stale);
    else if (init->where && in_background(init, result))
        ips_late_add(init);
    else
        ips_init_drop(init, 1);
    ips_comm_put_all(stale);
    if (in_background(init, result)) {
        ips_comm_put(init->comm);
        init->comm = NULL;
    }
}

void ips_init_complete(struct ips_init *inits, size_t count, ncclResult_t result)
{
    int saved = errno, waiting;
    if (result != ncclSuccess && result != ncclInProgress) {
        ips_init_drop(inits, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        enter(&inits[i], result);
    do {
        waiting = 0;
        for (size_t i = 0; i < count; i++)
            waiting |= inits[i].comm && ips_settle_step(inits[i].comm);
        if (waiting)
            ips_settle_others();
    } while (waiting);
    for (size_t i = 0; i < count; i++)
        ips_comm_put(inits[i].comm);
    errno = saved;
}

int ips_init_blocking(const void *config, int standard)
{
    /* The head of ncclConfig_t, the same in all versions. */
    struct head {
        size_t size;
        unsigned magic, version;
        int blocking;
    };
    const struct head *head = config;
    int blocking = standard;
    if (head && head->size >= offsetof(struct head, blocking) + sizeof blocking &&
        head->magic == 0xcafebeef && head->blocking == 0)
        blocking = 0;
    return ips_settings_blocking(blocking);
}
