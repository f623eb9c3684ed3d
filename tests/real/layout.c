/* SPDX-License-Identifier: Apache-2.0 */
/* What the shim assumes about nccl.h, held against a release's own: compiled only. */
#include <nccl.h>
#include <stddef.h>

#define SAME(what, value) _Static_assert((what) == (value), #what)

SAME(sizeof(ncclUniqueId), 128);
SAME(NCCL_UNIQUE_ID_BYTES, 128);
SAME(sizeof(ncclComm_t), sizeof(void *));

/* The head of a config is all that is read of it (shim/init.c). */
SAME(offsetof(ncclConfig_t, size), 0);
SAME(sizeof(((ncclConfig_t *)0)->size), sizeof(size_t));
SAME(offsetof(ncclConfig_t, magic), 8);
SAME(offsetof(ncclConfig_t, version), 12);
SAME(offsetof(ncclConfig_t, blocking), 16);
SAME(sizeof(((ncclConfig_t *)0)->blocking), 4);

static const ncclConfig_t standard = NCCL_CONFIG_INITIALIZER;
int check_magic(void);
int check_magic(void)
{
    return standard.magic == 0xcafebeef && standard.size == sizeof standard;
}

SAME(ncclSuccess, 0);
SAME(ncclUnhandledCudaError, 1);
SAME(ncclSystemError, 2);
SAME(ncclInternalError, 3);
SAME(ncclInvalidArgument, 4);
SAME(ncclInvalidUsage, 5);
SAME(ncclRemoteError, 6);
SAME(ncclInProgress, 7);

SAME(ncclSum, 0);
SAME(ncclProd, 1);
SAME(ncclMax, 2);
SAME(ncclMin, 3);
SAME(ncclAvg, 4);
SAME(ncclNumOps, 5);

SAME(ncclInt8, 0);
SAME(ncclUint8, 1);
SAME(ncclInt32, 2);
SAME(ncclUint32, 3);
SAME(ncclInt64, 4);
SAME(ncclUint64, 5);
SAME(ncclFloat16, 6);
SAME(ncclFloat32, 7);
SAME(ncclFloat64, 8);
#if defined(__CUDA_BF16_TYPES_EXIST__) || NCCL_VERSION_CODE >= 22403
SAME(ncclBfloat16, 9);
#endif
#if NCCL_VERSION_CODE >= 22403
SAME(ncclFloat8e4m3, 10);
SAME(ncclFloat8e5m2, 11);
#endif
