/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's types and prototypes, whatever header is at hand: the installed one, with what
 * it is too old to declare added, or none at all. The prototypes of api.def are declared
 * in every case, so that the compiler compares them with the installed header's. */
#ifndef IPS_SHIM_NCCL_API_H
#define IPS_SHIM_NCCL_API_H

#include <stddef.h>
#include <stdint.h>

#ifndef IPS_HAVE_NCCL_H
#define IPS_HAVE_NCCL_H 0
#endif

#if IPS_HAVE_NCCL_H
#include <nccl.h>
#define IPS_NCCL_HEADER NCCL_VERSION_CODE
#else
#define IPS_NCCL_HEADER 0

typedef struct CUstream_st *cudaStream_t;
typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct ncclConfig_opaque ncclConfig_t; /* only its head is ever read: init.c */

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
} ncclResult_t;

typedef enum {
    ncclSum,
    ncclProd,
    ncclMax,
    ncclMin,
    ncclAvg,
    ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum {
    ncclInt8,
    ncclUint8,
    ncclInt32,
    ncclUint32,
    ncclInt64,
    ncclUint64,
    ncclFloat16,
    ncclFloat32,
    ncclFloat64,
    ncclBfloat16,
} ncclDataType_t;

typedef enum { ncclScalarDevice, ncclScalarHostImmediate } ncclScalarResidence_t;
#endif

#if IPS_NCCL_HEADER < 22203
typedef struct ncclSimInfo_opaque ncclSimInfo_t;
#endif
#if IPS_NCCL_HEADER < 22703
typedef struct ncclWindow_opaque *ncclWindow_t;
#endif
#define IPS_NCCL_SHRINK_ABORT 1 /* NCCL_SHRINK_ABORT, 2.27 */

#define OWN(result, name, parameters, arguments) result name parameters;
#define TRACED(name, parameters, arguments, count, type, op) ncclResult_t name parameters;
#define PLAIN(name, parameters, arguments) ncclResult_t name parameters;
#define TEXT(name, parameters, arguments, without) const char *name parameters;
#include "shim/api.def"

#endif
