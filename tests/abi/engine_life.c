/* SPDX-License-Identifier: Apache-2.0 */
/* How communicators end, rest and fail, under the shim that has the fake engine. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/abi/engine_test.h"

void test_end(void)
{
    ncclComm_t comm = quiet_make(0);
    IS(ncclCommFinalize(comm), ncclSuccess);
    IS(ncclCommDestroy(comm), ncclSuccess);
    LOG("drain(0);ncclCommFinalize;drain(0);destroy(0);ncclCommDeregister;"
        "ncclCommDestroy;");
    comm = quiet_make(1);
    IS(ncclCommAbort(comm), ncclSuccess);
    LOG("abort;ncclCommAbort;destroy(1);");
    /* Destroyed in a group: what is queued is launched first. */
    comm = quiet_make(0);
    ncclGroupStart();
    reduce(comm, 1, 1);
    ncclCommDestroy(comm);
    LOG("ncclGroupStart;ncclCommDeregister;ncclCommDestroy;");
    ncclGroupEnd();
    LOG("allreduce(0,1);ncclGroupEnd;drain(0);destroy(0);");
    comm = quiet_make(0);
    IS(ncclCommRevoke(comm, 0), ncclSuccess);
    LOG("abort;ncclCommRevoke;");
    IS(reduce(comm, 1, 1), ncclSuccess); /* NCCL's own answer */
    LOG("ncclAllReduce;");
}

void test_async_error(void)
{
    ncclComm_t comm = quiet_make(0);
    ncclResult_t error;
    IS(ncclCommGetAsyncError(comm, &error), ncclSuccess);
    IS(error, ncclSuccess);
    setenv("FAKE_ENGINE_ERROR", "110", 1); /* ETIMEDOUT */
    IS(ncclCommGetAsyncError(comm, &error), ncclSuccess);
    IS(error, ncclRemoteError);
}

/* Suspended, finalized or revoked: the engine takes nothing, NCCL gives the answers. */
void test_rest(void)
{
    ncclComm_t comm = quiet_make(0);
    IS(ncclCommSuspend(comm, 1), ncclSuccess);
    IS(reduce(comm, 1, 1), ncclSuccess);
    ncclBroadcast(test_buffer, test_buffer, 1, ncclFloat32, 0, comm, STREAM(3));
    LOG("ncclCommSuspend;ncclAllReduce;ncclBroadcast;");
    IS(ncclCommResume(comm), ncclSuccess);
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("ncclCommResume;allreduce(0,1);");
    fake_fail_next(ncclInvalidUsage); /* then it isn't */
    IS(ncclCommSuspend(comm, 1), ncclInvalidUsage);
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("ncclCommSuspend;allreduce(0,1);");
    ncclCommSuspend(comm, 1);
    fake_fail_next(ncclSystemError);
    IS(ncclCommResume(comm), ncclSystemError);
    fake_reset();
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("ncclAllReduce;");
    ncclCommResume(comm);
    IS(ncclCommFinalize(comm), ncclSuccess);
    fake_reset();
    ncclCommResume(comm); /* no way back from there */
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("ncclCommResume;ncclAllReduce;");
    IS(ncclCommDestroy(comm), ncclSuccess);
    LOG("drain(0);destroy(0);ncclCommDeregister;ncclCommDestroy;");
    /* Ended by a shrink. */
    ncclComm_t child;
    comm = quiet_make(0);
    ncclCommShrink(comm, NULL, 0, &child, NULL, 1);
    IS(count_of(fake_log(), "abort;ncclCommShrink;"), 1);
}

static ncclResult_t state(ncclComm_t comm)
{
    ncclResult_t answer = ncclInternalError;
    IS(ncclCommGetAsyncError(comm, &answer), ncclSuccess);
    return answer;
}

/* A communicator that the program ended itself is as healthy as NCCL says. One that NCCL
 * refused to end has lost its engine, and says so. */
void test_ended(void)
{
    ncclComm_t child, comm = quiet_make(0);
    IS(ncclCommShrink(comm, NULL, 0, &child, NULL, 1), ncclSuccess);
    IS(state(comm), ncclSuccess);
    IS(reduce(comm, 1, 1), ncclSuccess);
    fake_reset();
    fake_fail_next(ncclInvalidArgument); /* again: it stays ended */
    IS(ncclCommRevoke(comm, 0), ncclInvalidArgument);
    IS(state(comm), ncclSuccess);
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("abort;ncclCommRevoke;ncclCommGetAsyncError;ncclAllReduce;");
    comm = quiet_make(0);
    IS(ncclCommRevoke(comm, 0), ncclSuccess);
    IS(state(comm), ncclSuccess);
    comm = quiet_make(0);
    fake_fail_next(ncclInvalidArgument);
    IS(ncclCommRevoke(comm, 7), ncclInvalidArgument);
    IS(state(comm), ncclInvalidUsage);
    IS(reduce(comm, 1, 1), ncclInvalidUsage);
    LOG("abort;ncclCommRevoke;ncclCommGetAsyncError;allreduce(0,1);");
    comm = quiet_make(0);
    fake_fail_next(ncclInvalidArgument);
    IS(ncclCommShrink(comm, NULL, 0, &child, NULL, 1), ncclInvalidArgument);
    IS(state(comm), ncclInvalidUsage);
    /* Stopped otherwise, the engine's error is told; what is refused changes nothing. */
    comm = quiet_make(0);
    ncclCommFinalize(comm);
    fake_fail_next(ncclInvalidArgument);
    ncclCommSuspend(comm, 1);
    fake_reset();
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("ncclAllReduce;");
    setenv("FAKE_ENGINE_ERROR", "110", 1); /* ETIMEDOUT */
    IS(state(comm), ncclRemoteError);
}

/* Calls of the engine that still run are part of what a finalize waits for. */
void test_finalizing(void)
{
    ncclComm_t comm = quiet_make(0);
    setenv("FAKE_ENGINE_BUSY", "1", 1);
    IS(state(comm), ncclSuccess);
    ncclGroupStart();
    reduce(comm, 1, 1);
    IS(ncclCommFinalize(comm), ncclSuccess);
    IS(ncclGroupEnd(), ncclSuccess);
    IS(state(comm), ncclInProgress);
    unsetenv("FAKE_ENGINE_BUSY");
    IS(state(comm), ncclSuccess);
    /* Non-blocking. */
    ncclUniqueId id = {{3}};
    setenv("FAKE_ENGINE_BUSY", "1", 1);
    ncclCommInitRankConfig(&comm, 2, id, 0, (ncclConfig_t *)&background_config);
    IS(reduce(comm, 1, 1), ncclSuccess);
    fake_reset();
    IS(ncclCommFinalize(comm), ncclSuccess);
    LOG("ncclCommFinalize;");
    IS(state(comm), ncclInProgress);
    setenv("FAKE_ENGINE_ERROR", "110", 1); /* ETIMEDOUT */
    IS(state(comm), ncclRemoteError);
    unsetenv("FAKE_ENGINE_ERROR");
    unsetenv("FAKE_ENGINE_BUSY");
    IS(state(comm), ncclSuccess);
}

int ncclAllReduceConfig(const void *, void *, size_t, int, int, ncclComm_t, cudaStream_t,
                        const void *);

void test_config(void)
{
    ncclComm_t comm = quiet_make(0);
    IS(ncclAllReduceConfig(test_buffer, test_buffer, 3, ncclFloat32, ncclSum, comm,
                           STREAM(1), NULL),
       ncclSuccess);
    LOG("allreduce(0,3);");
    ncclAllReduceConfig(test_buffer, test_buffer, 3, ncclFloat32, ncclSum, comm,
                        STREAM(1), test_buffer);
    LOG("begin(0,1);ncclAllReduceConfig;end(0,1);");
    ncclAllReduceConfig(test_buffer, test_buffer, 3, 10, ncclSum, comm, STREAM(1), NULL);
    LOG("begin(0,1);ncclAllReduceConfig;end(0,1);");
    ncclGroupStart();
    ncclAllReduceConfig(test_buffer, test_buffer, 4, ncclFloat32, ncclSum, comm,
                        STREAM(1), NULL);
    fake_reset();
    ncclGroupEnd();
    LOG("allreduce(0,4);ncclGroupEnd;");
}

/* A child forked after init passes everything on, and ends without a trace of the shim,
 * by whichever way. */
void test_fork(void)
{
    ncclUniqueId id = {{3}};
    ncclComm_t comm = make(0), pending;
    fake_slow();
    ncclCommInitRankConfig(&pending, 2, id, 0, (ncclConfig_t *)&background_config);
    for (int way = 0; way < 2; way++) {
        pid_t child = fork();
        if (child == 0) {
            ncclComm_t other;
            fake_reset();
            fake_finish(ncclSuccess);
            IS(reduce(comm, 1, 1), ncclSuccess);
            IS(reduce(pending, 1, 1), ncclSuccess);
            ncclGroupStart();
            IS(reduce(comm, 1, 1), ncclSuccess);
            ncclGroupEnd();
            LOG("ncclAllReduce;ncclAllReduce;ncclGroupStart;ncclAllReduce;ncclGroupEnd;");
            ncclCommInitRank(&other, 2, id, 1);
            ncclCommSplit(comm, 0, 0, &other, NULL);
            ncclCommAbort(pending);
            ncclCommDestroy(comm);
            LOG("ncclCommInitRank;ncclCommSplit;ncclCommAbort;ncclCommDeregister;"
                "ncclCommDestroy;");
            if (way)
                _exit(failures != 0);
            exit(failures != 0);
        }
        int status = -1;
        IS(waitpid(child, &status, 0), child);
        IS(status, 0);
    }
    fake_reset();
    fake_finish(ncclSuccess);
    IS(reduce(comm, 1, 1), ncclSuccess);
    IS(reduce(pending, 1, 1), ncclSuccess);
    LOG("allreduce(0,1);ncclCommGetAsyncError;ncclCommCuDevice;start(0/2, 100);take;drop;"
        "allreduce(0,1);");
}
