/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's errors in NCCL's words. */
#ifndef IPS_SHIM_ERRORS_H
#define IPS_SHIM_ERRORS_H

#include <errno.h>

#include "shim/nccl_api.h"

static inline ncclResult_t ips_result_of(int error)
{
    switch (error) {
    case 0:
        return ncclSuccess;
    case -ECANCELED: /* aborted: the communicator must not be used any more */
    case -EPROTO:    /* the ranks' calls differ */
        return ncclInvalidUsage;
    case -EINVAL:
        return ncclInvalidArgument;
    case -ENOMEM:
        return ncclSystemError;
    case -EBADMSG: /* a result is wrong: "memory corruption", as NCCL's manual says */
        return ncclInternalError;
    case -EIO: /* a driver call failed */
        return ncclUnhandledCudaError;
    case -EPIPE:
    case -ESRCH:
    case -EOWNERDEAD:
    case -ECONNRESET:
    case -ETIMEDOUT: /* a peer is gone or does not answer */
        return ncclRemoteError;
    default:
        return ncclInternalError;
    }
}

/* What a failed engine call means: an abort makes every call fail alike. */
static inline ncclResult_t ips_engine_result(int error, int engine_error)
{
    return ips_result_of(error && engine_error ? engine_error : error);
}

#endif
