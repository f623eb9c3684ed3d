/* SPDX-License-Identifier: Apache-2.0 */
/* An NCCL that is wrong in one element: stands between the shim and the stand-in NCCL
 * (named by IPS_LIAR_NCCL), and leaves the last element of every AllReduce out. What
 * checks results must notice. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct id {
    char bytes[128];
};

static void *real(const char *name)
{
    static void *handle;
    if (!handle)
        handle = dlopen(getenv("IPS_LIAR_NCCL"), RTLD_NOW | RTLD_LOCAL);
    return handle ? dlsym(handle, name) : NULL;
}

#define FORWARD(name, parameters, arguments)        \
    EXPORT int name parameters;                     \
    int name parameters                             \
    {                                               \
        int(*function) parameters = NULL;           \
        void *found = real(#name);                  \
        memcpy(&function, &found, sizeof function); \
        return function arguments;                  \
    }

FORWARD(ncclGetVersion, (int *version), (version))
FORWARD(ncclGetUniqueId, (struct id * id), (id))
FORWARD(ncclCommInitRank, (void **comm, int nranks, struct id id, int rank),
        (comm, nranks, id, rank))
FORWARD(ncclCommDestroy, (void *comm), (comm))
FORWARD(ncclCommCuDevice, (const void *comm, int *device), (comm, device))
FORWARD(ncclCommCount, (const void *comm, int *count), (comm, count))
FORWARD(ncclCommUserRank, (const void *comm, int *rank), (comm, rank))
FORWARD(ncclCommGetAsyncError, (void *comm, int *error), (comm, error))
FORWARD(ncclCommInitRankConfig,
        (void **comm, int nranks, struct id id, int rank, void *config),
        (comm, nranks, id, rank, config))
FORWARD(ncclCommInitAll, (void **comms, int count, const int *devices),
        (comms, count, devices))
FORWARD(ncclCommFinalize, (void *comm), (comm))
FORWARD(ncclCommAbort, (void *comm), (comm))
FORWARD(ncclAllGather,
        (const void *in, void *out, size_t count, int type, void *comm, void *stream),
        (in, out, count, type, comm, stream))
FORWARD(ncclReduceScatter,
        (const void *in, void *out, size_t count, int type, int op, void *comm,
         void *stream),
        (in, out, count, type, op, comm, stream))
FORWARD(ncclReduce,
        (const void *in, void *out, size_t count, int type, int op, int root, void *comm,
         void *stream),
        (in, out, count, type, op, root, comm, stream))
FORWARD(ncclBroadcast,
        (const void *in, void *out, size_t count, int type, int root, void *comm,
         void *stream),
        (in, out, count, type, root, comm, stream))
FORWARD(ncclBcast,
        (void *buffer, size_t count, int type, int root, void *comm, void *stream),
        (buffer, count, type, root, comm, stream))
FORWARD(ncclSend,
        (const void *in, size_t count, int type, int peer, void *comm, void *stream),
        (in, count, type, peer, comm, stream))
FORWARD(ncclRecv, (void *out, size_t count, int type, int peer, void *comm, void *stream),
        (out, count, type, peer, comm, stream))
FORWARD(ncclGroupStart, (void), ())
FORWARD(ncclGroupEnd, (void), ())

EXPORT const char *ncclGetErrorString(int error);
const char *ncclGetErrorString(int error)
{
    (void)error;
    return "an error";
}

EXPORT int ncclAllReduce(const void *in, void *out, size_t count, int type, int op,
                         void *comm, void *stream);
int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, void *comm,
                  void *stream)
{
    int (*function)(const void *, void *, size_t, int, int, void *, void *) = NULL;
    void *found = real("ncclAllReduce");
    memcpy(&function, &found, sizeof function);
    return function(in, out, count ? count - 1 : 0, type, op, comm, stream);
}
