/* SPDX-License-Identifier: Apache-2.0 */
/* The exported calls that make communicators. Each describes what it makes, forwards, and
 * leaves the rest to init.c. Shrunk and grown communicators stay with NCCL. */
#include <stdlib.h>

#include "shim/comm.h"
#include "shim/group.h"
#include "shim/init.h"
#include "shim/nccl_api.h"
#include "shim/process.h"
#include "shim/settle.h"

/* Arguments that NCCL will refuse are left to NCCL alone. */
static int plausible(const ncclComm_t *comm, int nranks, int rank)
{
    return comm && nranks > 0 && rank >= 0 && rank < nranks;
}

/* The rest of a function whose call is NCCL's to refuse. */
#define LEAVE(call)                      \
    do {                                 \
        IPS_CALL(result, call);          \
        return ips_group_answer(result); \
    } while (0)

/* One that is made from unique ids. */
static void prepare(struct ips_init *init, ncclComm_t *where, int nranks, int rank,
                    const ncclUniqueId *ids, int count, const void *config)
{
    struct ips_key key;
    ips_process_begin(rank);
    ips_key_of_ids(&key, ids, count, nranks);
    ips_init_prepare(init, where, nranks, rank, ips_init_blocking(config, 1), &key);
}

IPS_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks,
                                         ncclUniqueId commId, int rank)
{
    ncclResult_t result;
    __typeof__(&ncclCommInitRank) real = IPS_REAL(ncclCommInitRank);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommInitRank);
    if (ips_pass())
        return real(comm, nranks, commId, rank);
    if (!plausible(comm, nranks, rank))
        LEAVE(real(comm, nranks, commId, rank));
    struct ips_init init;
    prepare(&init, comm, nranks, rank, &commId, 1, NULL);
    IPS_CALL(result, real(comm, nranks, commId, rank));
    return ips_init_forwarded(&init, 1, result);
}

IPS_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks,
                                               ncclUniqueId commId, int rank,
                                               ncclConfig_t *config)
{
    ncclResult_t result;
    __typeof__(&ncclCommInitRankConfig) real = IPS_REAL(ncclCommInitRankConfig);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommInitRankConfig);
    if (ips_pass())
        return real(comm, nranks, commId, rank, config);
    if (!plausible(comm, nranks, rank))
        LEAVE(real(comm, nranks, commId, rank, config));
    struct ips_init init;
    prepare(&init, comm, nranks, rank, &commId, 1, config);
    IPS_CALL(result, real(comm, nranks, commId, rank, config));
    return ips_init_forwarded(&init, 1, result);
}

IPS_EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks,
                                                 int myrank, int nId,
                                                 ncclUniqueId *commIds,
                                                 ncclConfig_t *config)
{
    ncclResult_t result;
    __typeof__(&ncclCommInitRankScalable) real = IPS_REAL(ncclCommInitRankScalable);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommInitRankScalable);
    if (ips_pass())
        return real(newcomm, nranks, myrank, nId, commIds, config);
    if (!plausible(newcomm, nranks, myrank) || !commIds || nId <= 0)
        LEAVE(real(newcomm, nranks, myrank, nId, commIds, config));
    struct ips_init init;
    prepare(&init, newcomm, nranks, myrank, commIds, nId, config);
    IPS_CALL(result, real(newcomm, nranks, myrank, nId, commIds, config));
    return ips_init_forwarded(&init, 1, result);
}

IPS_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    ncclResult_t result;
    __typeof__(&ncclCommInitAll) real = IPS_REAL(ncclCommInitAll);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommInitAll);
    if (ips_pass())
        return real(comm, ndev, devlist);
    if (!comm || ndev <= 0)
        LEAVE(real(comm, ndev, devlist));
    struct ips_key key;
    ips_process_begin(0);
    struct ips_init *inits = calloc((size_t)ndev, sizeof *inits);
    ips_key_random(&key);
    for (int i = 0; inits && i < ndev; i++)
        ips_init_prepare(&inits[i], &comm[i], ndev, i, ips_init_blocking(NULL, 1), &key);
    IPS_CALL(result, real(comm, ndev, devlist));
    if (!inits)
        return ips_group_answer(
            result); /* the communicators stay unknown, and with NCCL */
    result = ips_init_forwarded(inits, (size_t)ndev, result);
    free(inits);
    return result;
}

IPS_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                                      ncclComm_t *newcomm, ncclConfig_t *config)
{
    ncclResult_t result;
    __typeof__(&ncclCommSplit) real = IPS_REAL(ncclCommSplit);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommSplit);
    if (ips_pass())
        return real(comm, color, key, newcomm, config);
    if (!newcomm)
        LEAVE(real(comm, color, key, newcomm, config));
    struct ips_init init;
    ips_process_begin(-1);
    struct ips_comm *parent = ips_comm_known(comm);
    ips_init_prepare_split(&init, newcomm, comm, parent, color, config);
    IPS_CALL(result, real(comm, color, key, newcomm, config));
    if (parent && (result == ncclSuccess || result == ncclInProgress))
        __atomic_fetch_add(&parent->splits, 1, __ATOMIC_RELAXED);
    ips_comm_put(parent);
    return ips_init_forwarded(&init, 1, result);
}

/* With NCCL_SHRINK_ABORT the parent's running calls must end, the engine's as well. */
static const char shrunk[] = "communicator was shrunk with abort";

IPS_EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList,
                                       int excludeRanksCount, ncclComm_t *newcomm,
                                       ncclConfig_t *config, int shrinkFlags)
{
    ncclResult_t result;
    __typeof__(&ncclCommShrink) real = IPS_REAL(ncclCommShrink);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommShrink);
    if (ips_pass())
        return real(comm, excludeRanksList, excludeRanksCount, newcomm, config,
                    shrinkFlags);
    if (!newcomm)
        LEAVE(real(comm, excludeRanksList, excludeRanksCount, newcomm, config,
                   shrinkFlags));
    struct ips_init init;
    ips_process_begin(-1);
    struct ips_comm *parent =
        shrinkFlags & IPS_NCCL_SHRINK_ABORT ? ips_comm_known(comm) : NULL;
    struct ips_stop before = {0};
    if (parent)
        before = ips_settle_end(parent, shrunk);
    ips_init_prepare_other(&init, newcomm, comm, "communicator made by ncclCommShrink");
    IPS_CALL(result, real(comm, excludeRanksList, excludeRanksCount, newcomm, config,
                          shrinkFlags));
    if (parent)
        ips_settle_ended(parent, shrunk, before, result);
    ips_comm_put(parent);
    return ips_init_forwarded(&init, 1, result);
}

IPS_EXPORT ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks,
                                     const ncclUniqueId *uniqueId, int rank,
                                     ncclComm_t *newcomm, ncclConfig_t *config)
{
    ncclResult_t result;
    __typeof__(&ncclCommGrow) real = IPS_REAL(ncclCommGrow);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclCommGrow);
    if (ips_pass())
        return real(comm, nRanks, uniqueId, rank, newcomm, config);
    if (!newcomm)
        LEAVE(real(comm, nRanks, uniqueId, rank, newcomm, config));
    struct ips_init init;
    ips_process_begin(rank);
    ips_init_prepare_other(&init, newcomm, comm, "communicator made by ncclCommGrow");
    IPS_CALL(result, real(comm, nRanks, uniqueId, rank, newcomm, config));
    return ips_init_forwarded(&init, 1, result);
}
