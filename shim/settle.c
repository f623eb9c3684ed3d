/* SPDX-License-Identifier: Apache-2.0 */
/* Settles what is open on communicators.
 *
 * One thread at a time works on a communicator: whoever set `busy`, which is never kept
 * across a wait for a peer. It alone touches bringup, started, owed, and a pending
 * verdict; it clears IPS_HOLD_PENDING as its last store to the verdict. */
#include "shim/settle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/join.h"
#include "core/log.h"
#include "shim/init.h"
#include "shim/late.h"
#include "shim/plan.h"
#include "shim/process.h"
#include "shim/settings.h"
#include "shim/trace.h"

#define STEPS 4 /* per visit: a set-up has a dozen phases, and programs poll in a loop \
                 */
#define AT_ONCE 64

enum { ASK = -1 }; /* instead of NCCL's state */

static int is_held(const struct ips_comm *comm, unsigned what)
{
    return (ips_comm_held(comm) & what) != 0;
}

static void release_hold(struct ips_comm *comm, unsigned what)
{
    __atomic_fetch_and(&comm->hold, ~what, __ATOMIC_SEQ_CST);
}

static int try_busy(struct ips_comm *comm)
{
    return !__atomic_exchange_n(&comm->busy, 1, __ATOMIC_SEQ_CST);
}

static void leave_busy(struct ips_comm *comm)
{
    __atomic_store_n(&comm->busy, 0, __ATOMIC_SEQ_CST);
}

static void nap(void)
{
    struct timespec pause = {0, 50000};
    nanosleep(&pause, NULL);
}

static void wait_busy(struct ips_comm *comm)
{
    while (!try_busy(comm))
        nap();
}

/* A question to the real NCCL; -1 without an answer. */
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

static ncclResult_t ask_state(ncclComm_t comm)
{
    const uint64_t asked = ips_late_count();
    int state = ask(IPS_SLOT_ncclCommGetAsyncError, comm);
    if (state >= 0)
        ips_late_settled(comm, (ncclResult_t)state, asked);
    return state < 0 ? ncclInternalError : (ncclResult_t)state;
}

/* Static text, or NULL without an engine. */
static const char *transport_of(const struct ips_comm *comm)
{
    if (!comm->engine)
        return NULL;
    return ips_engine_link(comm->engine) == IPS_LINK_HOST ? "host" : "ipc";
}

static void announce(const struct ips_comm *comm)
{
    const int host = comm->engine && ips_engine_link(comm->engine) == IPS_LINK_HOST;
    ips_log(IPS_LOG_INFO, "communicator %d, rank %d of %d: %s%s", comm->number,
            comm->rank, comm->nranks,
            comm->engine ? "served by the engine" : "served by NCCL: ",
            host           ? " (host memory)"
            : comm->engine ? ""
                           : comm->reason);
    if (!ips_trace_on())
        return;
    struct ips_event event = {
        .time_ns = ips_trace_now(),
        .kind = IPS_EVENT_COMM,
        .count = comm->nranks < 0 ? 0 : (uint64_t)comm->nranks,
        .comm = comm->number,
        .rank = comm->rank,
        .route = comm->engine ? IPS_ROUTE_ENGINE : IPS_ROUTE_NCCL,
        .reason = comm->reason,
        .transport = transport_of(comm),
    };
    ips_trace_add(&event);
}

static void publish(struct ips_comm *comm, struct ips_engine *engine, const char *reason)
{
    ips_bringup_destroy(comm->bringup);
    comm->bringup = NULL;
    comm->engine = engine;
    comm->reason = reason;
    release_hold(comm, IPS_HOLD_PENDING);
    announce(comm);
}

static void warn_of_differences(const struct ips_comm *comm)
{
    char text[256];
    if (ips_settings_differ(&ips_settings()->policy, &comm->settings, text, sizeof text))
        ips_log(IPS_LOG_WARN,
                "rank %d: settings differ from rank 0's, which are used: %s", comm->rank,
                text);
}

/* NCCL's init is complete: what was not known before it is now. */
static void start(struct ips_comm *comm)
{
    ips_process_ready();
    if (comm->nranks < 0) {
        comm->nranks = ask(IPS_SLOT_ncclCommCount, comm->handle);
        comm->rank = ask(IPS_SLOT_ncclCommUserRank, comm->handle);
    }
    const char *reason = comm->bringup ? ips_init_why_not(comm->nranks) : comm->reason;
    int device = -1;
    if (!reason) {
        device = ask(IPS_SLOT_ncclCommCuDevice, comm->handle);
        if (device < 0 || comm->rank < 0)
            reason = "NCCL does not tell the communicator's device or rank";
    }
    if (reason) {
        publish(comm, NULL, reason);
        return;
    }
    ips_bringup_start(comm->bringup, comm->nranks, comm->rank, device);
    comm->started = 1;
}

static void poll_bringup(struct ips_comm *comm)
{
    struct ips_agreed agreed;
    enum ips_bringup_state state = ips_bringup_poll(comm->bringup);
    if (state == IPS_BRINGUP_DECLINED)
        publish(comm, NULL, ips_trace_intern(ips_bringup_reason(comm->bringup)));
    if (state != IPS_BRINGUP_AGREED)
        return;
    struct ips_engine *engine = ips_bringup_take(comm->bringup, &agreed);
    memcpy(&comm->settings, agreed.settings, sizeof comm->settings);
    warn_of_differences(comm);
    if (ips_plan_take(&agreed, &comm->plan) &&
        !ips_engine_set_group(engine, comm->plan.group)) {
        if (agreed.why_host[0])
            ips_log(
                (enum ips_log_level)agreed.why_host_level,
                "AllReduce of this communicator of %d ranks goes through host memory: "
                "%s; IPCSHIM_TRANSPORT=host does so without trying",
                comm->nranks, agreed.why_host);
        publish(comm, engine, "agreed");
        return;
    }
    ips_engine_destroy(engine); /* all ranks have the same plan, and do the same */
    publish(comm, NULL, "no size is known to be faster here: see `ipcshim policy`");
}

/* Some steps of a pending verdict. state: NCCL's, or ASK. */
static void advance(struct ips_comm *comm, int state)
{
    if (!is_held(comm, IPS_HOLD_PENDING) ||
        __atomic_load_n(&comm->cancelled, __ATOMIC_SEQ_CST))
        return; /* whoever cancelled it ends it */
    if (!comm->started) {
        if (state == ASK)
            state = (int)ask_state(comm->handle);
        if (state == ncclInProgress)
            return;
        if (state == ncclSuccess)
            start(comm);
        else
            publish(comm, NULL, "NCCL's init failed");
    }
    for (int i = 0; i < STEPS && is_held(comm, IPS_HOLD_PENDING); i++)
        poll_bringup(comm);
}

static void keep_first(int *first, int error)
{
    if (!*first)
        *first = error;
}

int ips_settle_pay(struct ips_engine *engine, const struct ips_owed *owed, size_t count)
{
    size_t hub = count;
    int first = 0;
    for (size_t i = count; i-- > 0;)
        if (owed[i].join)
            hub = i;
    for (size_t i = 0; i < count; i++)
        if (!owed[i].join)
            keep_first(&first, ips_engine_forward_end(engine, owed[i].stream));
    /* Each joined stream waits for each other, by way of the first. */
    for (size_t i = hub + 1; i < count; i++)
        if (owed[i].join)
            keep_first(&first, ips_engine_join(engine, owed[i].stream, owed[hub].stream));
    for (size_t i = hub + 1; i < count; i++)
        if (owed[i].join)
            keep_first(&first, ips_engine_join(engine, owed[hub].stream, owed[i].stream));
    return first;
}

/* NCCL has enqueued the call that is owed its mark, or has failed. */
static void pay(struct ips_comm *comm, ncclResult_t state)
{
    if (!is_held(comm, IPS_HOLD_OWED) || state == ncclInProgress)
        return;
    if (state == ncclSuccess)
        ips_settle_pay(comm->engine, comm->owed, comm->owed_count);
    comm->owed_count = 0;
    release_hold(comm, IPS_HOLD_OWED);
}

int ips_settle_step(struct ips_comm *comm)
{
    if (try_busy(comm)) {
        advance(comm, ncclSuccess);
        leave_busy(comm);
    }
    return is_held(comm, IPS_HOLD_PENDING);
}

void ips_settle_others(void)
{
    struct ips_comm *pending[AT_ONCE];
    size_t count = ips_comm_pending(pending, AT_ONCE);
    for (size_t i = 0; i < count; i++) {
        if (try_busy(pending[i])) {
            advance(pending[i], ASK);
            leave_busy(pending[i]);
        }
        ips_comm_put(pending[i]);
    }
    nap();
}

/* Until the verdict is there, or NCCL turns out to be still at its init. */
static void wait_verdict(struct ips_comm *comm)
{
    while (is_held(comm, IPS_HOLD_PENDING)) {
        if (try_busy(comm)) {
            advance(comm, ASK);
            int waits_for_nccl = !comm->started;
            leave_busy(comm);
            if (waits_for_nccl)
                return;
        }
        if (is_held(comm, IPS_HOLD_PENDING))
            ips_settle_others();
    }
}

static void settle(struct ips_comm *comm)
{
    int saved = errno;
    wait_verdict(comm);
    if (is_held(comm, IPS_HOLD_OWED)) {
        wait_busy(comm);
        pay(comm, ask_state(comm->handle));
        leave_busy(comm);
    }
    errno = saved;
}

struct ips_comm *ips_comm_known(ncclComm_t handle)
{
    ips_late_adopt();
    return ips_comm_get(handle);
}

struct ips_comm *ips_comm_ready(ncclComm_t handle)
{
    struct ips_comm *comm = ips_comm_known(handle);
    if (comm && is_held(comm, IPS_HOLD_PENDING | IPS_HOLD_OWED))
        settle(comm);
    return comm;
}

ncclResult_t ips_settle_poll(struct ips_comm *comm, ncclResult_t state)
{
    int saved = errno;
    if (is_held(comm, IPS_HOLD_PENDING | IPS_HOLD_OWED) && try_busy(comm)) {
        advance(comm, (int)state);
        pay(comm, state);
        leave_busy(comm);
    }
    errno = saved;
    int out = is_held(comm, IPS_HOLD_PENDING);
    return out && state == ncclSuccess ? ncclInProgress : state;
}

void ips_settle_cancel(struct ips_comm *comm, const char *reason)
{
    if (!is_held(comm, IPS_HOLD_PENDING))
        return;
    int saved = errno;
    __atomic_store_n(&comm->cancelled, 1, __ATOMIC_SEQ_CST);
    wait_busy(comm);
    if (is_held(comm, IPS_HOLD_PENDING))
        publish(comm, NULL, reason);
    leave_busy(comm);
    errno = saved;
}

void ips_settle_abort(struct ips_comm *comm)
{
    ips_settle_cancel(comm, "aborted during its set-up");
    if (comm->engine)
        ips_engine_abort(comm->engine);
}

struct ips_stop ips_settle_end(struct ips_comm *comm, const char *reason)
{
    ips_settle_cancel(comm, reason);
    const struct ips_stop before =
        ips_comm_stop(comm, (struct ips_stop){reason, IPS_HOLD_STOPPED | IPS_HOLD_ENDED});
    if (comm->engine)
        ips_engine_abort(comm->engine);
    return before;
}

void ips_settle_ended(struct ips_comm *comm, const char *reason, struct ips_stop before,
                      ncclResult_t result)
{
    if (result != ncclSuccess && result != ncclInProgress)
        ips_comm_resume(comm, reason, before);
}

int ips_settle_owe(struct ips_comm *comm, const struct ips_owed *owed, size_t count)
{
    wait_busy(comm);
    const size_t bytes = (comm->owed_count + count) * sizeof *owed;
    struct ips_owed *all = realloc(comm->owed, bytes);
    if (all) {
        memcpy(all + comm->owed_count, owed, count * sizeof *owed);
        comm->owed = all;
        comm->owed_count += count;
        __atomic_fetch_or(&comm->hold, IPS_HOLD_OWED, __ATOMIC_SEQ_CST);
    }
    leave_busy(comm);
    return all ? 0 : -ENOMEM;
}
