/* SPDX-License-Identifier: Apache-2.0 */
/* What uses NCCL, built in several forms: linked, torch-like, static, bound at load. */
#include <string.h>

#include "shim/nccl_api.h"
#include "tests/loader/user.h"

/* One communicator of one rank and one AllReduce; 0 when NCCL answered rightly. */
int user_run(void)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    int version = 0, wrong = 0;
    wrong |= ncclGetVersion(&version) != ncclSuccess || version != 22809;
    wrong |= ncclGetUniqueId(&id) != ncclSuccess;
    wrong |= ncclCommInitRank(&comm, 1, id, 0) != ncclSuccess;
    if (wrong)
        return 2;
    wrong |= ncclAllReduce(&id, &id, 1, ncclInt8, ncclSum, comm, NULL) != ncclSuccess;
    wrong |= strcmp(ncclGetErrorString(ncclSuccess), "the fake's error string") != 0;
    wrong |= ncclCommDestroy(comm) != ncclSuccess;
    return wrong;
}
