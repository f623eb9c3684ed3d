/* SPDX-License-Identifier: Apache-2.0 */
/* From NCCL's init to an entry in the communicator table. Invariant: a rank that can't
 * bring its engine up leaves no record, so the peers decline as well; no lock is held
 * while waiting or calling NCCL. */
#include "shim/init.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "shim/comm.h"
#include "shim/group.h"
#include "shim/process.h"
#include "shim/settings.h"
#include "shim/trace.h"

/* A wait longer than this is written to the engine's control page. */
#define REPORT_NS 30000000000ull

/* The key: the unique id is the same on all ranks and new for every communicator. */
struct key {
    ncclUniqueId id;
    int32_t nranks;
};

static const char *why_not(int nranks, int blocking)
{
    if (!ips_settings()->enable)
        return "IPCSHIM_ENABLE=0";
    if (nranks < IPS_MIN_RANKS)
        return "a single rank";
    if (nranks > IPS_MAX_RANKS)
        return "more than 8 ranks";
    if (!blocking)
        return "non-blocking communicator";
    if (ips_settings_constant_id())
        return "NCCL_COMM_ID gives all communicators one id";
    if (!ips_policy_takes_some(&ips_settings()->policy, (unsigned)nranks))
        return "no size is taken with this many ranks: see IPCSHIM_MAX_BYTES";
    return NULL;
}

void ips_init_adopt(struct ips_init *init, ncclComm_t *where, int nranks, int rank,
                    const char *reason)
{
    *init = (struct ips_init){
        .where = where, .nranks = nranks, .rank = rank, .reason = reason};
}

void ips_init_prepare(struct ips_init *init, ncclComm_t *where, int nranks, int rank,
                      const ncclUniqueId *id, int blocking)
{
    const struct ips_settings *settings = ips_settings();
    ips_init_adopt(init, where, nranks, rank, why_not(nranks, blocking));
    if (init->reason)
        return;
    struct key key;
    memset(&key, 0, sizeof key);
    key.id = *id;
    key.nranks = nranks;
    struct ips_bringup_config config = {
        .key = &key,
        .key_bytes = sizeof key,
        .rank = rank,
        .settings = &settings->policy,
        .settings_bytes = sizeof settings->policy,
        .channels = settings->policy.max_channels,
        .mem_max = settings->mem_max_bytes,
        .links_any = settings->links_any,
        .p2p_disabled = ips_settings_p2p_disabled(),
        .report_ns = REPORT_NS,
    };
    char reason[IPS_REASON_BYTES] = "";
    init->bringup = ips_bringup_create(&config, reason);
    if (!init->bringup)
        init->reason = ips_trace_intern(reason);
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

/* A question to the real NCCL about a finished communicator; -1 without an answer. */
typedef ncclResult_t question(const ncclComm_t comm, int *answer);
static int ask(enum ips_slot slot, ncclComm_t comm)
{
    question *real = (question *)ips_real(slot, NULL);
    ncclResult_t result = ncclInternalError;
    int answer = -1;
    if (real)
        IPS_CALL(result, real(comm, &answer));
    return result == ncclSuccess ? answer : -1;
}

static void warn_of_differences(const struct ips_init *init,
                                const struct ips_policy_settings *agreed)
{
    char text[256];
    if (ips_settings_differ(&ips_settings()->policy, agreed, text, sizeof text))
        ips_log(IPS_LOG_WARN,
                "rank %d: settings differ from rank 0's, which are used: %s", init->rank,
                text);
}

/* The engine after an agreement, else NULL and the reason in the init. */
static struct ips_engine *outcome(struct ips_init *init,
                                  struct ips_policy_settings *settings)
{
    if (!init->bringup)
        return NULL;
    char agreed[IPS_SETTINGS_BYTES];
    struct ips_engine *engine = NULL;
    if (ips_bringup_poll(init->bringup) == IPS_BRINGUP_AGREED) {
        engine = ips_bringup_take(init->bringup, agreed);
        memcpy(settings, agreed, sizeof *settings);
        init->reason = "agreed";
        warn_of_differences(init, settings);
    } else {
        init->reason = ips_trace_intern(ips_bringup_reason(init->bringup));
    }
    ips_bringup_destroy(init->bringup);
    init->bringup = NULL;
    return engine;
}

static void announce(const struct ips_init *init, const struct ips_comm *comm)
{
    ips_log(IPS_LOG_INFO, "communicator %d, rank %d of %d: %s%s", comm->number,
            comm->rank, comm->nranks,
            comm->engine ? "served by the engine" : "served by NCCL: ",
            comm->engine ? "" : init->reason);
    if (!ips_trace_on())
        return;
    struct ips_event event = {
        .time_ns = ips_trace_now(),
        .kind = IPS_EVENT_COMM,
        .count = comm->nranks < 0 ? 0 : (uint64_t)comm->nranks,
        .comm = comm->number,
        .rank = comm->rank,
        .route = comm->engine ? IPS_ROUTE_ENGINE : IPS_ROUTE_NCCL,
        .reason = init->reason,
    };
    ips_trace_add(&event);
}

static void enter(struct ips_init *init, ncclComm_t handle)
{
    struct ips_comm description = {0};
    description.engine = outcome(init, &description.settings);
    description.rank = init->rank;
    description.nranks = init->nranks;
    description.reason = init->reason;
    if (ips_comm_add(handle, &description) < 0)
        return;
    struct ips_comm *comm = ips_comm_get(handle);
    if (comm)
        announce(init, comm);
    ips_comm_put(comm);
}

/* Whose init NCCL has finished starts phase two; one still in progress is left to NCCL.
 */
static void start(struct ips_init *init, ncclResult_t result)
{
    if (result == ncclInProgress) {
        if (init->bringup)
            init->reason = "non-blocking communicator";
        ips_init_drop(init, 1);
        return;
    }
    if (init->nranks < 0) {
        init->nranks = ask(IPS_SLOT_ncclCommCount, *init->where);
        init->rank = ask(IPS_SLOT_ncclCommUserRank, *init->where);
    }
    if (!init->bringup)
        return;
    int device = ask(IPS_SLOT_ncclCommCuDevice, *init->where);
    if (device >= 0) {
        ips_bringup_start(init->bringup, init->nranks, init->rank, device);
        return;
    }
    init->reason = "NCCL does not tell the communicator's device";
    ips_init_drop(init, 1);
}

static void wait_all(struct ips_init *inits, size_t count)
{
    struct ips_bringup **bringups = calloc(count, sizeof *bringups);
    size_t waiting = 0;
    if (!bringups) {
        ips_log(IPS_LOG_ERROR, "out of memory while communicators are brought up");
        for (size_t i = 0; i < count; i++)
            if (inits[i].bringup)
                inits[i].reason = "out of memory";
        ips_init_drop(inits, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (inits[i].bringup)
            bringups[waiting++] = inits[i].bringup;
    if (waiting)
        ips_bringup_wait(bringups, waiting);
    free(bringups);
}

void ips_init_complete(struct ips_init *inits, size_t count, ncclResult_t result)
{
    int saved = errno;
    if (result != ncclSuccess && result != ncclInProgress) {
        ips_init_drop(inits, count);
        return;
    }
    ips_process_ready();
    for (size_t i = 0; i < count; i++)
        if (inits[i].where && *inits[i].where)
            start(&inits[i], result);
        else
            ips_init_drop(&inits[i], 1); /* no handle: ncclCommSplit without a color */
    wait_all(inits, count);
    for (size_t i = 0; i < count; i++)
        if (inits[i].where && *inits[i].where)
            enter(&inits[i], *inits[i].where);
    errno = saved;
}

int ips_init_blocking(const void *config)
{
    /* The head of ncclConfig_t, the same in all versions. */
    struct head {
        size_t size;
        unsigned magic, version;
        int blocking;
    };
    const struct head *head = config;
    int blocking = 1;
    if (head && head->size >= offsetof(struct head, blocking) + sizeof blocking &&
        head->magic == 0xcafebeef && head->blocking == 0)
        blocking = 0;
    return ips_settings_blocking(blocking);
}
