/* SPDX-License-Identifier: Apache-2.0 */
/* Making, asking and ending communicators. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "tools/simgpu/cuda_api.h"
#include "tools/simgpu/nccl_sim.h"

#define MAGIC 0x6d6d6f636c63636eull
#define CONFIG_MAGIC 0xcafebeefu

SIM_NCCL(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id));
SIM_NCCL(ncclResult_t, ncclCommInitRank,
         (ncclComm_t * comm, int n, ncclUniqueId id, int rank));
SIM_NCCL(ncclResult_t, ncclCommInitRankConfig,
         (ncclComm_t * comm, int n, ncclUniqueId id, int rank, ncclConfig_t *config));
SIM_NCCL(ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int n, const int *devices));
SIM_NCCL(ncclResult_t, ncclCommInitRankScalable,
         (ncclComm_t * comm, int n, int rank, int ids, ncclUniqueId *id,
          ncclConfig_t *config));
SIM_NCCL(ncclResult_t, ncclCommFinalize, (ncclComm_t comm));
SIM_NCCL(ncclResult_t, ncclCommDestroy, (ncclComm_t comm));
SIM_NCCL(ncclResult_t, ncclCommAbort, (ncclComm_t comm));
SIM_NCCL(ncclResult_t, ncclCommCount, (ncclComm_t comm, int *count));
SIM_NCCL(ncclResult_t, ncclCommCuDevice, (ncclComm_t comm, int *device));
SIM_NCCL(ncclResult_t, ncclCommUserRank, (ncclComm_t comm, int *rank));
SIM_NCCL(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error));
ncclResult_t pncclGroupStart(void); /* nccl_group.c */
ncclResult_t pncclGroupEnd(void);

int sim_comm_valid(const struct ncclComm *comm)
{
    return comm && comm->magic == MAGIC;
}

ncclResult_t sim_comm_ready(const struct ncclComm *comm)
{
    if (!sim_comm_valid(comm))
        return sim_nccl_error(ncclInvalidArgument, "comm argument is invalid");
    int state = __atomic_load_n(&comm->state, __ATOMIC_ACQUIRE);
    if (state == ncclInProgress)
        return sim_nccl_error(ncclInvalidArgument, "communicator is not ready yet");
    return (ncclResult_t)state;
}

ncclResult_t pncclGetUniqueId(ncclUniqueId *id)
{
    SIM_NCCL_ENTER(" ");
    if (!id)
        return sim_nccl_error(ncclInvalidArgument, "id is NULL");
    memset(id, 0, sizeof *id);
    if (getrandom(id->internal, 32, 0) != 32)
        return sim_nccl_error(ncclSystemError, "getrandom failed");
    return ncclSuccess;
}

/* The caller's device: its current context's, or device 0. */
static int attach(struct ncclComm *comm)
{
    int error = cuInit(0);
    if (!error && cuCtxGetDevice(&comm->device))
        comm->device = 0;
    if (!error)
        error = cuDevicePrimaryCtxRetain(&comm->context, comm->device);
    if (!error)
        error = cuCtxPushCurrent_v2(comm->context);
    if (error)
        return error;
    error = cuEventCreate(&comm->order, GPU_EVENT_DISABLE_TIMING);
    if (!error)
        error = cuEventCreate(&comm->join, GPU_EVENT_DISABLE_TIMING);
    cuCtxPopCurrent_v2(NULL);
    return error;
}

struct ncclComm *sim_comm_create(int blocking)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (!comm)
        return NULL;
    simgpu_quiet(1);
    int error = attach(comm);
    simgpu_quiet(-1);
    if (error) {
        free(comm);
        return NULL;
    }
    comm->magic = MAGIC;
    comm->blocking = blocking;
    comm->state = ncclInProgress;
    pthread_mutex_init(&comm->running, NULL);
    return comm;
}

int sim_config_blocking(const ncclConfig_t *config, int otherwise)
{
    if (!config || config->magic != CONFIG_MAGIC || config->size < sizeof *config)
        return otherwise;
    return config->blocking == 0 ? 0 : config->blocking == 1 ? 1 : otherwise;
}

static ncclResult_t init_rank(ncclComm_t *ret_comm, int nranks, const ncclUniqueId *id,
                              int rank, int blocking)
{
    if (!ret_comm || nranks < 1 || nranks > SIM_RANKS_MAX || rank < 0 || rank >= nranks)
        return sim_group_fail(ncclInvalidArgument);
    struct sim_init *init = calloc(1, sizeof *init);
    struct ncclComm *comm = sim_comm_create(blocking);
    if (!init || !comm)
        return sim_group_fail(ncclUnhandledCudaError);
    comm->nranks = nranks;
    comm->rank = rank;
    comm->key = *id;
    *init = (struct sim_init){.comm = comm, .ret_comm = ret_comm, .blocking = blocking};
    *ret_comm = comm;
    return sim_group_add_init(init);
}

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank)
{
    SIM_NCCL_ENTER("ranks=%d rank=%d", n, rank);
    return init_rank(comm, n, &id, rank, 1);
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                     ncclConfig_t *config)
{
    SIM_NCCL_ENTER("ranks=%d rank=%d", n, rank);
    return init_rank(comm, n, &id, rank, sim_config_blocking(config, 1));
}

/* The ids only share the work of the bootstrap: all of them together are the key. */
ncclResult_t pncclCommInitRankScalable(ncclComm_t *comm, int n, int rank, int ids,
                                       ncclUniqueId *id, ncclConfig_t *config)
{
    SIM_NCCL_ENTER("ranks=%d rank=%d ids=%d", n, rank, ids);
    if (!id || ids < 1 || ids > n)
        return sim_group_fail(ncclInvalidArgument);
    ncclUniqueId key = id[0];
    for (int i = 1; i < ids; i++)
        for (size_t b = 0; b < sizeof key.internal; b++)
            key.internal[b] = (char)(key.internal[b] * 31 + id[i].internal[b]);
    return init_rank(comm, n, &key, rank, sim_config_blocking(config, 1));
}

static ncclResult_t init_on(ncclComm_t *comm, int n, const ncclUniqueId *id, int rank,
                            int device)
{
    gpu_context context = NULL;
    simgpu_quiet(1);
    int error = cuDevicePrimaryCtxRetain(&context, device);
    if (!error)
        error = cuCtxPushCurrent_v2(context);
    simgpu_quiet(-1);
    if (error)
        return sim_group_fail(ncclUnhandledCudaError);
    ncclResult_t result = init_rank(comm, n, id, rank, 1);
    simgpu_quiet(1);
    cuCtxPopCurrent_v2(NULL);
    cuDevicePrimaryCtxRelease_v2(device);
    simgpu_quiet(-1);
    return result;
}

/* Calls ncclGetUniqueId by its public name, as the real one does. */
ncclResult_t pncclCommInitAll(ncclComm_t *comms, int n, const int *devices)
{
    ncclUniqueId id;
    SIM_NCCL_ENTER("ranks=%d", n);
    if (!comms || n < 1)
        return sim_nccl_error(ncclInvalidArgument, "bad number of devices");
    simgpu_quiet(1);
    int error = cuInit(0);
    simgpu_quiet(-1);
    ncclResult_t result = error ? ncclUnhandledCudaError : ncclGetUniqueId(&id);
    if (!result)
        result = pncclGroupStart();
    if (result)
        return result;
    for (int i = 0; i < n && !result; i++)
        result = init_on(&comms[i], n, &id, i, devices ? devices[i] : i);
    return pncclGroupEnd();
}

static void drain(const struct ncclComm *comm)
{
    while (__atomic_load_n(&comm->pending, __ATOMIC_ACQUIRE) ||
           __atomic_load_n(&comm->state, __ATOMIC_ACQUIRE) == ncclInProgress)
        usleep(100);
}

ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
    SIM_NCCL_ENTER("comm=%p", (void *)comm);
    ncclResult_t result = sim_comm_ready(comm);
    if (result)
        return result;
    if (comm->finalized)
        return sim_nccl_error(ncclInvalidUsage, "communicator is finalized already");
    drain(comm);
    comm->finalized = 1;
    return ncclSuccess;
}

/* Graphs may still run captured work, so a communicator with any is kept for good. */
void sim_comm_free(struct ncclComm *comm)
{
    comm->magic = 0;
    simgpu_quiet(1);
    cuEventDestroy_v2(comm->order);
    cuEventDestroy_v2(comm->join);
    cuDevicePrimaryCtxRelease_v2(comm->device);
    simgpu_quiet(-1);
    if (comm->captured)
        return;
    if (comm->segment)
        munmap(comm->segment, comm->segment_bytes);
    pthread_mutex_destroy(&comm->running);
    free(comm);
}

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    SIM_NCCL_ENTER("comm=%p", (void *)comm);
    if (!comm)
        return ncclSuccess;
    if (!sim_comm_valid(comm))
        return sim_nccl_error(ncclInvalidArgument, "comm argument is invalid");
    drain(comm);
    sim_comm_free(comm);
    return ncclSuccess;
}

/* Work may still be queued behind something else: the communicator's memory is leaked. */
ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    SIM_NCCL_ENTER("comm=%p", (void *)comm);
    if (!comm)
        return ncclSuccess;
    if (!sim_comm_valid(comm))
        return sim_nccl_error(ncclInvalidArgument, "comm argument is invalid");
    __atomic_store_n(&comm->aborted, 1, __ATOMIC_RELEASE);
    comm->magic = 0;
    return ncclSuccess;
}

ncclResult_t pncclCommCount(ncclComm_t comm, int *count)
{
    SIM_NCCL_ENTER("comm=%p", (void *)comm);
    ncclResult_t result = sim_comm_ready(comm);
    if (!result)
        *count = comm->nranks;
    return result;
}

ncclResult_t pncclCommCuDevice(ncclComm_t comm, int *device)
{
    SIM_NCCL_ENTER("comm=%p", (void *)comm);
    ncclResult_t result = sim_comm_ready(comm);
    if (!result)
        *device = comm->device;
    return result;
}

ncclResult_t pncclCommUserRank(ncclComm_t comm, int *rank)
{
    SIM_NCCL_ENTER("comm=%p", (void *)comm);
    ncclResult_t result = sim_comm_ready(comm);
    if (!result)
        *rank = comm->rank;
    return result;
}

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    SIM_NCCL_ENTER("comm=%p", (void *)comm);
    if (!sim_comm_valid(comm) || !error)
        return sim_nccl_error(ncclInvalidArgument, "comm argument is invalid");
    *error = (ncclResult_t)__atomic_load_n(&comm->state, __ATOMIC_ACQUIRE);
    return ncclSuccess;
}
