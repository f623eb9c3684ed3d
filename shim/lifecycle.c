/* SPDX-License-Identifier: Apache-2.0 */
/* The exported calls that end a communicator or ask after its health. An entry leaves the
 * table before the call is forwarded, for NCCL may reuse the handle's address at once. */
#include <errno.h>
#include <time.h>

#include "core/join.h"
#include "shim/comm.h"
#include "shim/errors.h"
#include "shim/group.h"
#include "shim/late.h"
#include "shim/nccl_api.h"
#include "shim/process.h"
#include "shim/settle.h"

/* The engine takes no more calls; NCCL gives the answers. */
static struct ips_stop rest(struct ips_comm *comm, const char *reason)
{
    return ips_comm_stop(comm, (struct ips_stop){reason, IPS_HOLD_STOPPED});
}

static const char finalized[] = "communicator is finalized";

/* As long as one that did not wait itself has calls of the engine to run. */
static int is_finalizing(const struct ips_comm *comm)
{
    return ips_comm_reason(comm) == finalized && comm->engine &&
           !ips_engine_idle(comm->engine);
}

/* After this NCCL takes no call, and the engine none either: NCCL's answer is given. A
 * blocking one returns when what was issued has run, the engine's calls included. */
IPS_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t result;
    __typeof__(&ncclCommFinalize) real = IPS_REAL(ncclCommFinalize);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommFinalize);
    struct ips_comm *known = ips_pass() ? NULL : ips_comm_known(comm);
    if (known) {
        ips_settle_cancel(known, finalized);
        rest(known, finalized);
        if (known->engine && known->blocking && ips_group_depth() == 0)
            ips_engine_drain(known->engine);
    }
    IPS_CALL(result, real(comm));
    ips_comm_put(known);
    return ips_pass() ? result : ips_group_answer(result);
}

/* Other threads' calls on it are short: whoever destroys it also frees it, and no
 * watchdog finds itself with that. */
static void wait_alone(const struct ips_comm *comm)
{
    const struct timespec pause = {0, 50000};
    for (int i = 0; i < 20000 && !ips_comm_alone(comm); i++)
        nanosleep(&pause, NULL);
}

/* The engine's part; what a group still holds ends with the group. Gives whether an abort
 * came meanwhile. */
static int destroy(ncclComm_t handle)
{
    int aborted = 0, saved = errno;
    ips_late_end(handle);
    struct ips_comm *known = ips_comm_remove_ending(handle);
    if (!known)
        return 0;
    ips_settle_cancel(known, "destroyed during its set-up");
    const int in_group = ips_group_depth() > 0;
    if (!in_group || ips_comm_alone(known)) {
        if (known->engine)
            ips_engine_drain(known->engine);
        if (!in_group)
            wait_alone(known);
        aborted = ips_comm_ended(known);
    }
    ips_comm_put(known);
    errno = saved;
    return aborted;
}

/* When an abort by another thread has come first, that frees NCCL's communicator. */
IPS_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ncclResult_t result;
    __typeof__(&ncclCommDestroy) real = IPS_REAL(ncclCommDestroy);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommDestroy);
    if (!ips_pass() && destroy(comm))
        return ncclSuccess;
    IPS_CALL(result, real(comm));
    return ips_pass() ? result : ips_group_answer(result);
}

/* Any thread, also while another is inside a call on the communicator, or destroys it:
 * the engine's waits end first, and whoever lets go of the entry last frees it. */
IPS_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    ncclResult_t result;
    __typeof__(&ncclCommAbort) real = IPS_REAL(ncclCommAbort);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommAbort);
    struct ips_comm *known = NULL;
    if (!ips_pass()) {
        ips_late_end(comm);
        known = ips_comm_remove(comm);
        if (known)
            ips_settle_abort(known);
        else
            ips_comm_abort_ending(comm);
    }
    IPS_CALL(result, real(comm));
    ips_comm_put(known);
    return result;
}

static const char revoked[] = "communicator is revoked";

/* Ends what runs on the communicator, which can then only be shrunk or destroyed. */
IPS_EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    ncclResult_t result;
    __typeof__(&ncclCommRevoke) real = IPS_REAL(ncclCommRevoke);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommRevoke);
    struct ips_comm *known = ips_pass() ? NULL : ips_comm_known(comm);
    struct ips_stop before = {0};
    if (known)
        before = ips_settle_end(known, revoked);
    IPS_CALL(result, real(comm, revokeFlags));
    if (known)
        ips_settle_ended(known, revoked, before, result);
    ips_comm_put(known);
    return result;
}

/* Until it is resumed NCCL takes no call, and the engine none either. The engine keeps
 * its memory: graphs that were captured before are replayed after. A verdict that is out
 * is waited for: a rank that gave it up would be alone with that after the resume. */
static const char suspended[] = "communicator is suspended";

IPS_EXPORT ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags)
{
    ncclResult_t result;
    __typeof__(&ncclCommSuspend) real = IPS_REAL(ncclCommSuspend);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommSuspend);
    struct ips_comm *known = ips_pass() ? NULL : ips_comm_ready(comm);
    struct ips_stop before = {0};
    if (known)
        before = rest(known, suspended);
    IPS_CALL(result, real(comm, flags));
    if (known && result != ncclSuccess && result != ncclInProgress)
        ips_comm_resume(known, suspended, before);
    ips_comm_put(known);
    return ips_pass() ? result : ips_group_answer(result);
}

IPS_EXPORT ncclResult_t ncclCommResume(ncclComm_t comm)
{
    ncclResult_t result;
    __typeof__(&ncclCommResume) real = IPS_REAL(ncclCommResume);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommResume);
    IPS_CALL(result, real(comm));
    struct ips_comm *known = ips_pass() ? NULL : ips_comm_known(comm);
    if (known && (result == ncclSuccess || result == ncclInProgress))
        ips_comm_resume(known, suspended, (struct ips_stop){0});
    ips_comm_put(known);
    return ips_pass() ? result : ips_group_answer(result);
}

/* NCCL's own answer, unless the engine's verdict is still out, only the engine has
 * failed, or only its calls still run before the communicator is finalized. Never waits:
 * watchdogs ask while another thread is inside a call. */
IPS_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    ncclResult_t result;
    __typeof__(&ncclCommGetAsyncError) real = IPS_REAL(ncclCommGetAsyncError);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommGetAsyncError);
    const uint64_t asked = ips_late_count();
    IPS_CALL(result, real(comm, asyncError));
    if (ips_pass() || result != ncclSuccess || !asyncError)
        return result;
    ips_late_settled(comm, *asyncError, asked);
    struct ips_comm *known = ips_comm_known(comm);
    if (!known)
        return result;
    *asyncError = ips_settle_poll(known, *asyncError);
    const int error = ips_comm_error(known);
    if (error && *asyncError == ncclSuccess)
        *asyncError = ips_result_of(error);
    if (*asyncError == ncclSuccess && is_finalizing(known))
        *asyncError = ncclInProgress;
    ips_comm_put(known);
    return result;
}
