/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL as the tools and tests call it: the few functions they need, looked up by name, so
 * that a program can hold the shim's and the real library's side by side. Types are NCCL's
 * ABI, declared here; no NCCL header is needed. */
#ifndef IPS_TOOLS_NCCL_H
#define IPS_TOOLS_NCCL_H

#include <stddef.h>

#include "core/gpu.h"

typedef struct ncclComm *nccl_comm;
struct nccl_id {
    char bytes[128];
};

enum {
    NCCL_SUCCESS = 0,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_IN_PROGRESS = 7,
};

/* X(member, parameters): the symbol is the member's name with its prefix nccl. */
#define IPS_NCCL_CALLS(X)                                                                  \
    X(GetVersion, (int *version))                                                          \
    X(GetUniqueId, (struct nccl_id * id))                                                  \
    X(CommInitRank, (nccl_comm * comm, int nranks, struct nccl_id id, int rank))           \
    X(CommInitRankConfig,                                                                  \
      (nccl_comm * comm, int nranks, struct nccl_id id, int rank, void *config))           \
    X(CommInitAll, (nccl_comm * comms, int count, const int *devices))                     \
    X(CommFinalize, (nccl_comm comm))                                                      \
    X(CommDestroy, (nccl_comm comm))                                                       \
    X(CommAbort, (nccl_comm comm))                                                         \
    X(CommGetAsyncError, (nccl_comm comm, int *error))                                     \
    X(AllReduce, (const void *in, void *out, size_t count, int type, int op,               \
                  nccl_comm comm, gpu_stream stream))                                      \
    X(AllGather, (const void *in, void *out, size_t count, int type, nccl_comm comm,       \
                  gpu_stream stream))                                                      \
    X(ReduceScatter, (const void *in, void *out, size_t count, int type, int op,           \
                      nccl_comm comm, gpu_stream stream))                                  \
    X(Reduce, (const void *in, void *out, size_t count, int type, int op, int root,        \
               nccl_comm comm, gpu_stream stream))                                         \
    X(Broadcast, (const void *in, void *out, size_t count, int type, int root,             \
                  nccl_comm comm, gpu_stream stream))                                      \
    X(Bcast, (void *buffer, size_t count, int type, int root, nccl_comm comm,              \
              gpu_stream stream))                                                          \
    X(Send, (const void *in, size_t count, int type, int peer, nccl_comm comm,             \
             gpu_stream stream))                                                           \
    X(Recv, (void *out, size_t count, int type, int peer, nccl_comm comm,                  \
             gpu_stream stream))                                                           \
    X(GroupStart, (void))                                                                  \
    X(GroupEnd, (void))

struct nccl_api {
#define X(name, parameters) int(*name) parameters;
    IPS_NCCL_CALLS(X)
#undef X
    const char *(*GetErrorString)(int error);
};

/* Fills *api from a library's handle, or from the global scope with RTLD_DEFAULT. The first
 * name that is missing, or NULL when all were found. */
const char *nccl_api_load(void *handle, struct nccl_api *api);

/* A handle of the real NCCL that bypasses whatever is preloaded: IPCSHIM_NCCL_LIB, else
 * libnccl.so.2 as the loader finds it. NULL with *ret_error (the loader's text). */
void *nccl_real_open(const char **ret_error);

#endif
