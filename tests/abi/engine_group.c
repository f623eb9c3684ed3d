/* SPDX-License-Identifier: Apache-2.0 */
/* Groups, under the shim that has the fake engine. */
#include <pthread.h>

#include "tests/abi/engine_test.h"

void test_init_group(void)
{
    ncclUniqueId id = {{1}};
    ncclComm_t comms[2];
    ncclGroupStart();
    ncclCommInitRank(&comms[0], 2, id, 0);
    ncclCommInitRank(&comms[1], 2, id, 1);
    LOG("ncclGroupStart;create(0);ncclCommInitRank;create(1);ncclCommInitRank;");
    IS(ncclGroupEnd(), ncclSuccess);
    LOG("ncclGroupEnd;ncclCommCuDevice;start(0/2, 100);take;drop;"
        "ncclCommCuDevice;start(1/2, 101);take;drop;");
    IS(reduce(comms[1], 1, 1), ncclSuccess);
    LOG("allreduce(1,1);");

    ncclGroupStart();
    ncclCommInitRank(&comms[0], 2, id, 0);
    fake_reset();
    fake_fail_next(ncclInternalError);
    IS(ncclGroupEnd(), ncclInternalError);
    LOG("ncclGroupEnd;drop;");
}

void test_group(void)
{
    ncclComm_t comm = quiet_make(0), other = quiet_make(1);
    ncclGroupStart();
    ncclGroupStart();
    IS(reduce(comm, 1, 1), ncclSuccess);
    IS(reduce(other, 2, 2), ncclSuccess);
    ncclBroadcast(test_buffer, test_buffer, 1, ncclFloat32, 0, comm, STREAM(3));
    ncclBroadcast(test_buffer, test_buffer, 1, ncclFloat32, 0, comm, STREAM(3));
    LOG("ncclGroupStart;ncclGroupStart;ncclBroadcast;ncclBroadcast;");
    ncclGroupEnd();
    LOG("ncclGroupEnd;");
    IS(fake_depth(), 1);
    IS(ncclGroupEnd(), ncclSuccess);
    LOG("join(0,3>1);join(0,1>3);allreduce(0,1);allreduce(1,2);begin(0,3);ncclGroupEnd;"
        "end(0,3);join(0,3>1);join(0,1>3);");
    IS(reduce(comm, 1, 1), ncclSuccess); /* the group is over */
    LOG("allreduce(0,1);");
    ncclGroupEnd(); /* one too many is NCCL's to answer */
    LOG("ncclGroupEnd;");
    ncclGroupStart();
    fake_reset();
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("");
    ncclGroupEnd();
    LOG("allreduce(0,1);ncclGroupEnd;");
}

void test_group_fails(void)
{
    ncclComm_t comm = quiet_make(0);
    ncclGroupStart();
    reduce(comm, 1, 1);
    IS(ncclAllReduce(NULL, NULL, 1, ncclFloat32, ncclSum, NULL, STREAM(3)),
       ncclInvalidArgument);
    fake_reset();
    IS(ncclGroupEnd(), ncclInvalidArgument);
    LOG("ncclGroupEnd;"); /* nothing was launched */
    /* A failed launch surfaces at the end; the others are launched all the same. */
    ncclGroupStart();
    reduce(comm, 1, 1);
    reduce(comm, 666, 1);
    reduce(comm, 2, 1);
    fake_reset();
    IS(ncclGroupEnd(), ncclSystemError);
    LOG("allreduce(0,1);allreduce(0,666);allreduce(0,2);ncclGroupEnd;");
    /* NCCL's end fails, or goes on in the background: an error of the engine's counts. */
    ncclGroupStart();
    reduce(comm, 1, 1);
    fake_fail_next(ncclInternalError);
    IS(ncclGroupEnd(), ncclInternalError);
    ncclGroupStart();
    reduce(comm, 666, 1);
    fake_fail_next(ncclInProgress);
    IS(ncclGroupEnd(), ncclSystemError);
    IS(fake_depth(), 0);
    /* The error belongs to the outermost end. */
    ncclGroupStart();
    ncclGroupStart();
    ncclAllReduce(NULL, NULL, 1, ncclFloat32, ncclSum, NULL, STREAM(3));
    reduce(comm, 1, 1);
    IS(ncclGroupEnd(), ncclSuccess);
    fake_reset();
    IS(ncclGroupEnd(), ncclInvalidArgument);
    LOG("ncclGroupEnd;");
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("allreduce(0,1);");
}

/* Whatever call NCCL fails the group for: nothing is launched. */
static void expect_failed(ncclResult_t refused, ncclComm_t comm)
{
    IS(refused, ncclInvalidArgument);
    reduce(comm, 1, 1);
    fake_reset();
    IS(ncclGroupEnd(), ncclInvalidArgument);
    LOG("ncclGroupEnd;");
}

/* In a group whose first call is refused. */
#define REFUSED(call)                        \
    do {                                     \
        ncclGroupStart();                    \
        fake_fail_next(ncclInvalidArgument); \
        expect_failed(call, comm);           \
    } while (0)

void test_group_refuses(void)
{
    ncclUniqueId id = {{1}};
    ncclWindow_t window;
    ncclComm_t other, comm = quiet_make(0);
    REFUSED(ncclCommInitRank(&other, 0, id, 0));
    REFUSED(ncclCommInitRankConfig(&other, 2, id, 2, NULL));
    REFUSED(ncclCommInitRankScalable(&other, 2, 0, 0, &id, NULL));
    REFUSED(ncclCommInitAll(&other, 0, NULL));
    REFUSED(ncclCommSplit(comm, 0, 0, NULL, NULL));
    REFUSED(ncclCommShrink(comm, NULL, 0, NULL, NULL, 0));
    REFUSED(ncclCommGrow(comm, 3, NULL, 0, NULL, NULL));
    REFUSED(ncclCommSuspend(comm, 1));
    REFUSED(ncclCommResume(comm));
    REFUSED(ncclCommWindowRegister(comm, test_buffer, 1, &window, 0));
    ncclComm_t last = quiet_make(1);
    REFUSED(ncclCommFinalize(last));
    fake_keep();
    REFUSED(ncclCommDestroy(last));
    /* A question that fails is nobody's concern. */
    int count;
    ncclGroupStart();
    fake_fail_next(ncclInvalidArgument);
    IS(ncclCommCount(comm, &count), ncclInvalidArgument);
    reduce(comm, 1, 1);
    fake_reset();
    IS(ncclGroupEnd(), ncclSuccess);
    LOG("allreduce(0,1);ncclGroupEnd;");
    /* What NCCL calls itself on its way does not count as the program's. */
    ncclGroupStart();
    reduce(comm, 1, 1);
    IS(ncclCommInitAll(&other, 0, NULL), ncclSuccess);
    fake_reset();
    IS(ncclGroupEnd(), ncclSuccess);
    LOG("allreduce(0,1);ncclGroupEnd;");
}

void test_simulate(void)
{
    ncclComm_t comm = quiet_make(0);
    ncclGroupStart();
    reduce(comm, 1, 1);
    fake_reset();
    IS(ncclGroupSimulateEnd(NULL), ncclSuccess);
    LOG("ncclGroupSimulateEnd;");
    IS(reduce(comm, 2, 1), ncclSuccess);
    LOG("allreduce(0,2);");
}

static void broadcast(ncclComm_t comm, uintptr_t stream)
{
    ncclBroadcast(test_buffer, test_buffer, 1, ncclFloat32, 0, comm, STREAM(stream));
}

/* PyTorch ends all open groups around an init, and opens as many again. */
void test_group_forced(void)
{
    ncclComm_t comm = quiet_make(0);
    IS(ncclGroupStart(), ncclSuccess);
    IS(ncclGroupEnd(), ncclSuccess); /* empty */
    LOG("ncclGroupStart;ncclGroupEnd;");
    ncclGroupStart();
    ncclGroupStart();
    reduce(comm, 1, 1);
    fake_reset();
    IS(ncclGroupEnd(), ncclSuccess);
    IS(ncclGroupEnd(), ncclSuccess);
    LOG("ncclGroupEnd;allreduce(0,1);ncclGroupEnd;");
    ncclComm_t other = make(1);
    LOG("create(1);ncclCommInitRank;ncclCommCuDevice;start(1/2, 101);take;drop;");
    ncclGroupStart();
    ncclGroupStart();
    reduce(other, 2, 1);
    fake_reset();
    ncclGroupEnd();
    ncclGroupEnd();
    LOG("ncclGroupEnd;allreduce(1,2);ncclGroupEnd;");
    /* NCCL's start fails: no group is open. */
    fake_fail_next(ncclInternalError);
    IS(ncclGroupStart(), ncclInternalError);
    fake_reset();
    reduce(comm, 3, 1);
    LOG("allreduce(0,3);");
}

/* The streams of one communicator meet before and after, if the engine took a call of it;
 * those of different communicators never do. */
void test_group_streams(void)
{
    ncclComm_t a = quiet_make(0), b = quiet_make(1);
    ncclGroupStart();
    reduce(a, 1, 1);
    reduce(b, 1, 2);
    reduce(a, 1, 1);
    broadcast(b, 2);
    fake_reset();
    ncclGroupEnd();
    LOG("allreduce(0,1);allreduce(1,1);allreduce(0,1);begin(1,2);ncclGroupEnd;end(1,2);");
    ncclGroupStart();
    reduce(a, 1, 1);
    reduce(b, 1, 2);
    reduce(a, 1, 3);
    reduce(a, 1, 4);
    fake_reset();
    ncclGroupEnd();
    LOG("join(0,3>1);join(0,4>1);join(0,1>3);join(0,1>4);"
        "allreduce(0,1);allreduce(1,1);allreduce(0,1);allreduce(0,1);ncclGroupEnd;"
        "join(0,3>1);join(0,4>1);join(0,1>3);join(0,1>4);");
    /* Only forwarded calls: NCCL joins them itself. */
    ncclGroupStart();
    broadcast(a, 1);
    broadcast(a, 2);
    reduce(b, 1, 3);
    fake_reset();
    ncclGroupEnd();
    LOG("allreduce(1,1);begin(0,1);begin(0,2);ncclGroupEnd;end(0,1);end(0,2);");
}

/* Every thread has its own groups. */
static void *group_elsewhere(void *comm)
{
    IS(reduce(comm, 5, 1), ncclSuccess);
    IS(count_of(fake_log(), "allreduce(1,5)"), 1);
    ncclGroupStart();
    reduce(comm, 6, 1);
    IS(count_of(fake_log(), "allreduce(1,6)"), 0);
    ncclGroupEnd();
    IS(count_of(fake_log(), "allreduce(1,6)"), 1);
    return NULL;
}

void test_group_threads(void)
{
    pthread_t thread;
    ncclComm_t a = quiet_make(0), b = quiet_make(1);
    ncclGroupStart();
    reduce(a, 1, 1);
    pthread_create(&thread, NULL, group_elsewhere, b);
    pthread_join(thread, NULL);
    IS(count_of(fake_log(), "allreduce(0,1)"), 0);
    ncclGroupEnd();
    IS(count_of(fake_log(), "allreduce(0,1)"), 1);
}

/* All ranks in one thread: nothing waits before the last is launched. */
void test_group_ranks(void)
{
    ncclComm_t all[4];
    ncclCommInitAll(all, 4, NULL);
    ncclGroupStart();
    for (int i = 0; i < 4; i++)
        reduce(all[i], 1, (uintptr_t)i + 1);
    fake_reset();
    IS(ncclGroupEnd(), ncclSuccess);
    LOG("allreduce(0,1);allreduce(1,1);allreduce(2,1);allreduce(3,1);ncclGroupEnd;");
}
