/* SPDX-License-Identifier: Apache-2.0 */
/* The exported calls that end a communicator or ask after its health. An entry leaves the
 * table before the call is forwarded, for NCCL may reuse the handle's address at once. */
#include "shim/comm.h"
#include "shim/errors.h"
#include "shim/nccl_api.h"
#include "shim/process.h"

IPS_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ncclResult_t result;
    __typeof__(&ncclCommFinalize) real = IPS_REAL(ncclCommFinalize);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommFinalize);
    IPS_CALL(result, real(comm));
    return result;
}

IPS_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ncclResult_t result;
    __typeof__(&ncclCommDestroy) real = IPS_REAL(ncclCommDestroy);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommDestroy);
    if (!ips_pass())
        ips_comm_put(ips_comm_remove(comm));
    IPS_CALL(result, real(comm));
    return result;
}

/* Any thread, also while another is inside a call on the communicator: the engine's waits
 * end first, and whoever lets go of the entry last frees it. */
IPS_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    ncclResult_t result;
    __typeof__(&ncclCommAbort) real = IPS_REAL(ncclCommAbort);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommAbort);
    struct ips_comm *known = ips_pass() ? NULL : ips_comm_remove(comm);
    if (known && known->engine)
        ips_engine_abort(known->engine);
    IPS_CALL(result, real(comm));
    ips_comm_put(known);
    return result;
}

/* Ends what runs on the communicator, which can then only be shrunk or destroyed. */
IPS_EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    ncclResult_t result;
    __typeof__(&ncclCommRevoke) real = IPS_REAL(ncclCommRevoke);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommRevoke);
    struct ips_comm *known = ips_pass() ? NULL : ips_comm_get(comm);
    if (known && known->engine)
        ips_engine_abort(known->engine);
    IPS_CALL(result, real(comm, revokeFlags));
    ips_comm_put(known);
    return result;
}

/* NCCL's own answer, unless only the engine has failed. */
IPS_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    ncclResult_t result;
    __typeof__(&ncclCommGetAsyncError) real = IPS_REAL(ncclCommGetAsyncError);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommGetAsyncError);
    IPS_CALL(result, real(comm, asyncError));
    if (ips_pass() || result != ncclSuccess || !asyncError || *asyncError != ncclSuccess)
        return result;
    struct ips_comm *known = ips_comm_get(comm);
    int error = known && known->engine ? ips_engine_error(known->engine) : 0;
    if (error)
        *asyncError = ips_result_of(error);
    ips_comm_put(known);
    return result;
}
