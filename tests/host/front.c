/* SPDX-License-Identifier: Apache-2.0 */
/* An NCCL before the stand-in NCCL (named by IPS_NCCL), which tells the meter of the
 * calls that are measured: what NCCL does in them is not the shim's. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tests/host/meter.h"

#define EXPORT __attribute__((visibility("default")))

struct id {
    char bytes[128];
};

static void *real(const char *name)
{
    static void *handle;
    if (!handle)
        handle = dlopen(getenv("IPS_NCCL"), RTLD_NOW | RTLD_LOCAL);
    return handle ? meter_dlsym(handle, name) : NULL;
}

#define FORWARD(name, parameters, arguments)            \
    EXPORT int name parameters;                         \
    int name parameters                                 \
    {                                                   \
        static int(*function) parameters;               \
        meter_enter(METER_NCCL, #name);                 \
        if (!function) {                                \
            void *found = real(#name);                  \
            memcpy(&function, &found, sizeof function); \
        }                                               \
        int result = function arguments;                \
        meter_leave();                                  \
        return result;                                  \
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
FORWARD(ncclGroupStart, (void), ())
FORWARD(ncclGroupEnd, (void), ())
FORWARD(ncclAllReduce,
        (const void *in, void *out, size_t count, int type, int op, void *comm,
         void *stream),
        (in, out, count, type, op, comm, stream))
FORWARD(ncclBroadcast,
        (const void *in, void *out, size_t count, int type, int root, void *comm,
         void *stream),
        (in, out, count, type, root, comm, stream))

EXPORT const char *ncclGetErrorString(int error);
const char *ncclGetErrorString(int error)
{
    (void)error;
    return "an error";
}
