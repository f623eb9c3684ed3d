/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators made from others. The child's handle is written when it is complete: for
 * a non-blocking parent later, by another thread, and the parent is in progress until
 * then. */
#include <stdlib.h>
#include <unistd.h>

#include "tools/simgpu/nccl_sim.h"

#define SHRINK_ABORT 1

SIM_NCCL(ncclResult_t, ncclCommSplit,
         (ncclComm_t parent, int color, int key, ncclComm_t *comm, ncclConfig_t *config));
SIM_NCCL(ncclResult_t, ncclCommShrink,
         (ncclComm_t parent, int *excluded, int count, ncclComm_t *comm,
          ncclConfig_t *config, int flags));

/* Whether the call blocks is the parent's matter, the config only makes the child. */
static ncclResult_t make_child(const struct sim_init *request, const ncclConfig_t *config)
{
    struct ncclComm *parent = request->parent;
    struct sim_init *init = calloc(1, sizeof *init);
    struct ncclComm *child =
        sim_comm_create(sim_config_blocking(config, parent->blocking));
    if (!init || !child)
        return sim_group_fail(ncclUnhandledCudaError);
    *init = *request;
    init->comm = child;
    init->blocking = parent->blocking;
    *init->ret_comm = NULL;
    return sim_group_add_init(init);
}

ncclResult_t pncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *comm,
                            ncclConfig_t *config)
{
    SIM_NCCL_ENTER("color=%d key=%d", color, key);
    ncclResult_t result = sim_comm_ready(parent);
    if (!result && (!comm || color < -1))
        result = ncclInvalidArgument;
    if (result)
        return sim_group_fail(result);
    return make_child(
        &(struct sim_init){
            .ret_comm = comm, .parent = parent, .color = color, .split_key = key},
        config);
}

/* What still runs on the parent ends now, without a result. */
static void end_running(struct ncclComm *comm)
{
    __atomic_store_n(&comm->aborted, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&comm->pending, __ATOMIC_ACQUIRE))
        usleep(100);
    __atomic_store_n(&comm->aborted, 0, __ATOMIC_RELEASE);
}

/* Only the ranks that stay call it. */
ncclResult_t pncclCommShrink(ncclComm_t parent, int *excluded, int count,
                             ncclComm_t *comm, ncclConfig_t *config, int flags)
{
    SIM_NCCL_ENTER("parent=%p excluded=%d flags=%d", (void *)parent, count, flags);
    int aborts = flags & SHRINK_ABORT && sim_comm_valid(parent);
    ncclResult_t result = aborts ? ncclSuccess : sim_comm_ready(parent);
    struct sim_init request = {.ret_comm = comm, .parent = parent};
    if (!result && (!comm || !excluded || count < 1 || count >= parent->nranks))
        result = ncclInvalidArgument;
    for (int i = 0; i < count && !result; i++) {
        if (excluded[i] < 0 || excluded[i] >= parent->nranks ||
            excluded[i] == parent->rank)
            result = ncclInvalidArgument;
        else
            request.excluded |= 1ull << excluded[i];
    }
    if (result)
        return sim_group_fail(result);
    if (aborts)
        end_running(parent);
    return make_child(&request, config);
}
