/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs that check the stand-in NCCL share: ranks, each a process of its own,
 * whose exit status counts what was wrong. */
#ifndef TEST_NCCL_RANK_H
#define TEST_NCCL_RANK_H

#include "tests/gpu/tap.h"
#include "tools/simgpu/cuda_api.h"
#include "tools/simgpu/nccl_sim.h"

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices);
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *comm,
                           ncclConfig_t *config);
ncclResult_t ncclCommShrink(ncclComm_t parent, int *excluded, int count, ncclComm_t *comm,
                            ncclConfig_t *config, int flags);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int n, int rank, int ids,
                                      ncclUniqueId *id, ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommCount(ncclComm_t comm, int *count);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           gpu_stream stream);
ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclAllGather(const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               gpu_stream stream);
ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                        int root, ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      int residence, ncclComm_t comm);
ncclResult_t ncclCommRegister(ncclComm_t comm, void *buffer, size_t bytes, void **handle);
unsigned long simnccl_calls(const char *function);

#define COUNT 50003 /* more than one chunk for 4-byte types, and odd */
#define SUM(n) ((n) * ((n) + 1) / 2)

extern int bad; /* in a rank's process: what was wrong */

#define WANT(condition)                                      \
    do {                                                     \
        if (!(condition)) {                                  \
            printf("# line %d: %s\n", __LINE__, #condition); \
            fflush(stdout);                                  \
            bad++;                                           \
        }                                                    \
    } while (0)

/* A rank's device, a stream, and two buffers that the host can read directly here. */
struct rank {
    int rank, n;
    ncclUniqueId id;
    ncclComm_t comm;
    gpu_stream stream;
    float *in, *out;
};

void open_device(struct rank *self, int device);
void fill(struct rank *self, size_t count, int base);
void finish(struct rank *self);
/* Whether out[i] == factor * (i % 100). */
int is(const float *out, size_t count, float factor);

/* Runs fn in n processes and reports one case; with a communicator of all ranks, or it
 * makes its own. */
void in_ranks(int n, void (*fn)(struct rank *), int own_init, const char *what);

#endif
