/* SPDX-License-Identifier: Apache-2.0 */
/* Non-blocking communicators, under the shim that has the fake engine: the verdict is out
 * until NCCL's init and the engine's set-up are complete. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/abi/engine_test.h"

struct config background_config = {sizeof background_config, 0xcafebeef, 22809, 0};
#define CONFIG ((ncclConfig_t *)&background_config)

/* Two ranks of one communicator, in this thread; NCCL is at their init. */
static void make_two(ncclComm_t *comms, const char *engine)
{
    static char number;
    ncclUniqueId id = {{++number}};
    setenv("FAKE_ENGINE", engine, 1);
    fake_slow();
    fake_reset();
    for (int rank = 0; rank < 2; rank++)
        IS(ncclCommInitRankConfig(&comms[rank], 2, id, rank, CONFIG), ncclInProgress);
    LOG("create(0);ncclCommInitRankConfig;create(1);ncclCommInitRankConfig;");
}

static ncclResult_t state(ncclComm_t comm)
{
    ncclResult_t answer = ncclInternalError;
    IS(ncclCommGetAsyncError(comm, &answer), ncclSuccess);
    return answer;
}

void test_background(void)
{
    ncclComm_t comms[2];
    make_two(comms, "meet");
    IS(state(comms[0]), ncclInProgress);
    LOG("ncclCommGetAsyncError;");
    /* NCCL's own answer as long as it is at its init. */
    IS(reduce(comms[0], 1, 1), ncclInvalidArgument);
    LOG("ncclCommGetAsyncError;ncclCommGetAsyncError;ncclAllReduce;");
    fake_finish(ncclSuccess);
    /* NCCL is done here, the engine waits for the other rank. */
    IS(state(comms[0]), ncclInProgress);
    IS(state(comms[0]), ncclInProgress);
    LOG("ncclCommGetAsyncError;ncclCommCuDevice;start(0/2, 100);ncclCommGetAsyncError;");
    IS(state(comms[1]), ncclSuccess);
    IS(state(comms[0]), ncclSuccess);
    LOG("ncclCommGetAsyncError;ncclCommCuDevice;start(1/2, 101);take;drop;"
        "ncclCommGetAsyncError;take;drop;");
    IS(reduce(comms[0], 1, 1), ncclSuccess);
    LOG("allreduce(0,1);");
}

/* A call while the verdict is out, but NCCL's init complete: it is waited for, and the
 * process's other set-ups move on meanwhile. Without that this would not end. */
void test_background_call(void)
{
    ncclComm_t comms[2];
    make_two(comms, "meet");
    fake_finish(ncclSuccess);
    IS(reduce(comms[0], 1, 1), ncclSuccess);
    IS(count_of(fake_log(), "start("), 2);
    IS(count_of(fake_log(), "allreduce(0,1)"), 1);
    fake_reset();
    IS(reduce(comms[1], 1, 1), ncclSuccess);
    IS(count_of(fake_log(), "allreduce(1,1)"), 1);
    /* In a group, and a call that is forwarded. */
    make_two(comms, "meet");
    fake_finish(ncclSuccess);
    ncclGroupStart();
    ncclBroadcast(test_buffer, test_buffer, 1, ncclFloat32, 0, comms[0], STREAM(1));
    IS(reduce(comms[1], 1, 2), ncclSuccess);
    fake_reset();
    IS(ncclGroupEnd(), ncclSuccess);
    LOG("allreduce(1,1);begin(0,1);ncclGroupEnd;end(0,1);");
}

void test_background_group(void)
{
    ncclUniqueId id = {{77}};
    ncclComm_t comms[2];
    setenv("FAKE_ENGINE", "meet", 1);
    fake_slow();
    ncclGroupStart();
    for (int rank = 0; rank < 2; rank++)
        ncclCommInitRankConfig(&comms[rank], 2, id, rank, CONFIG);
    fake_fail_next(ncclInProgress);
    fake_reset();
    IS(ncclGroupEnd(), ncclInProgress);
    LOG("ncclGroupEnd;");
    fake_finish(ncclSuccess);
    IS(state(comms[0]), ncclInProgress);
    IS(state(comms[1]), ncclSuccess);
    IS(state(comms[0]), ncclSuccess);
}

void test_background_fails(void)
{
    ncclComm_t comms[2];
    make_two(comms, "meet");
    fake_finish(ncclSystemError);
    IS(state(comms[0]), ncclSystemError);
    LOG("ncclCommGetAsyncError;drop;");
    IS(reduce(comms[0], 1, 1), ncclSuccess); /* the fake's answer */
    LOG("ncclAllReduce;");
    IS(ncclCommAbort(comms[0]), ncclSuccess);
    LOG("ncclCommAbort;");
    /* A call comes to know it as well. */
    IS(reduce(comms[1], 1, 1), ncclSuccess);
    LOG("ncclCommGetAsyncError;drop;ncclAllReduce;");
}

/* Given up while the verdict is out: the record goes before NCCL hears of it. */
void test_background_end(void)
{
    ncclComm_t comms[2];
    make_two(comms, "meet");
    IS(ncclCommAbort(comms[0]), ncclSuccess);
    LOG("drop;ncclCommAbort;");
    fake_finish(ncclSuccess);
    IS(state(comms[1]), ncclSuccess); /* it has seen that its peer declined */
    LOG("ncclCommGetAsyncError;ncclCommCuDevice;start(1/2, 101);drop;");
    IS(reduce(comms[1], 1, 1), ncclSuccess);
    LOG("ncclAllReduce;");

    make_two(comms, "never");
    fake_finish(ncclSuccess);
    IS(state(comms[0]), ncclInProgress);
    fake_reset();
    IS(ncclCommDestroy(comms[0]), ncclSuccess);
    LOG("drop;ncclCommDeregister;ncclCommDestroy;");
    IS(ncclCommFinalize(comms[1]), ncclSuccess);
    LOG("drop;ncclCommFinalize;");
    IS(state(comms[1]), ncclSuccess);
    IS(reduce(comms[1], 1, 1), ncclSuccess);
    LOG("ncclCommGetAsyncError;ncclAllReduce;");
}

/* Suspended while the verdict is out: all ranks come to the same one. */
void test_background_suspend(void)
{
    ncclComm_t comms[2];
    make_two(comms, "meet");
    fake_finish(ncclSuccess);
    IS(state(comms[0]), ncclInProgress);
    IS(ncclCommSuspend(comms[0], 1), ncclSuccess);
    IS(ncclCommResume(comms[0]), ncclSuccess);
    IS(state(comms[1]), ncclSuccess);
    fake_reset();
    IS(reduce(comms[0], 1, 1), ncclSuccess);
    IS(reduce(comms[1], 1, 1), ncclSuccess);
    LOG("allreduce(0,1);allreduce(1,1);");
    /* While NCCL is at its init it refuses, and nothing has changed. */
    make_two(comms, "meet");
    IS(ncclCommSuspend(comms[0], 1), ncclInvalidArgument);
    fake_finish(ncclSuccess);
    IS(state(comms[0]), ncclInProgress);
    IS(state(comms[1]), ncclSuccess);
    IS(reduce(comms[0], 1, 1), ncclSuccess);
    IS(count_of(fake_log(), "allreduce(0,1)"), 1);
}

/* More set-ups than are moved on at once: here one waits for the oldest. */
#define MANY 70
void test_background_many(void)
{
    static ncclComm_t comms[2][MANY];
    alarm(20);
    setenv("FAKE_ENGINE", "meet", 1);
    fake_slow();
    for (int rank = 0; rank < 2; rank++)
        for (int i = MANY - 1; i >= 0; i--) {
            ncclUniqueId id = {{(char)(i + 1)}};
            ncclCommInitRankConfig(&comms[rank][i], 2, id, rank, CONFIG);
        }
    fake_finish(ncclSuccess);
    for (int i = 0; i < MANY; i++)
        IS(reduce(comms[1][i], 1, 1), ncclSuccess);
    IS(count_of(fake_log(), "allreduce(1,1)"), MANY);
}

static void *reduce_once(void *handle)
{
    return (void *)(intptr_t)reduce(handle, 1, 1);
}

static void *poll_until(void *handle)
{
    ncclResult_t answer = ncclInProgress;
    while (answer == ncclInProgress)
        ncclCommGetAsyncError(handle, &answer);
    return (void *)(intptr_t)answer;
}

/* A thread that waits for the verdict in a call is let go by another's abort; a
 * watchdog's questions are answered all the time. */
void test_background_race(void)
{
    ncclComm_t comms[2];
    pthread_t user, watchdog;
    void *answer;
    make_two(comms, "never");
    fake_finish(ncclSuccess);
    fake_keep(); /* the aborted handle may still be in the other thread's call */
    pthread_create(&user, NULL, reduce_once, comms[0]);
    usleep(20000);
    IS(state(comms[0]), ncclInProgress);
    IS(ncclCommAbort(comms[0]), ncclSuccess);
    pthread_join(user, &answer);
    IS((intptr_t)answer, ncclSuccess);
    IS(count_of(fake_log(), "allreduce("), 0);
    ncclCommAbort(comms[1]);
    fake_reset();
    for (int i = 0; i < 100; i++) {
        make_two(comms, "meet");
        pthread_create(&watchdog, NULL, poll_until, comms[1]);
        pthread_create(&user, NULL, poll_until, comms[0]);
        fake_finish(ncclSuccess);
        if (i % 2)
            IS(reduce(comms[0], 1, 1), ncclSuccess);
        pthread_join(watchdog, &answer);
        IS((intptr_t)answer, ncclSuccess);
        pthread_join(user, &answer);
        IS((intptr_t)answer, ncclSuccess);
        IS(count_of(fake_log(), "take;"), 2);
        IS(count_of(fake_log(), "drop;"), 2);
        ncclCommDestroy(comms[0]);
        ncclCommDestroy(comms[1]);
        fake_reset();
    }
}

static ncclResult_t forwarded(ncclComm_t comm, uintptr_t stream)
{
    return ncclAllReduce(test_buffer, test_buffer, 1, (ncclDataType_t)10, ncclSum, comm,
                         STREAM(stream));
}

/* NCCL enqueues in the background: the mark in the engine's order comes when it has. */
void test_background_order(void)
{
    ncclComm_t comms[2];
    make_two(comms, "agree");
    fake_finish(ncclSuccess);
    IS(state(comms[0]), ncclSuccess);
    fake_reset();
    fake_fail_next(ncclInProgress);
    IS(forwarded(comms[0], 3), ncclInProgress);
    LOG("begin(0,3);ncclAllReduce;");
    IS(reduce(comms[0], 1, 1), ncclSuccess);
    LOG("ncclCommGetAsyncError;end(0,3);allreduce(0,1);");
    ncclGroupStart();
    forwarded(comms[0], 4);
    fake_fail_next(ncclInProgress);
    fake_reset();
    IS(ncclGroupEnd(), ncclInProgress);
    LOG("begin(0,4);ncclGroupEnd;");
    fake_slow();
    IS(state(comms[0]), ncclInProgress);
    IS(reduce(comms[0], 1, 1), ncclInvalidArgument); /* as NCCL says */
    LOG("ncclCommGetAsyncError;ncclCommGetAsyncError;ncclCommGetAsyncError;"
        "ncclAllReduce;");
    fake_finish(ncclSuccess);
    IS(state(comms[0]), ncclSuccess);
    LOG("ncclCommGetAsyncError;end(0,4);");
    IS(reduce(comms[0], 1, 1), ncclSuccess);
    LOG("allreduce(0,1);");
}

/* A group with calls of the engine and of NCCL: the streams meet when NCCL has enqueued,
 * and those of a communicator without a call of NCCL's at once. */
void test_background_streams(void)
{
    ncclComm_t comms[2];
    make_two(comms, "agree");
    fake_finish(ncclSuccess);
    IS(state(comms[0]), ncclSuccess);
    IS(state(comms[1]), ncclSuccess);
    ncclGroupStart();
    reduce(comms[0], 1, 1);
    forwarded(comms[0], 4);
    forwarded(comms[0], 5);
    reduce(comms[1], 1, 6);
    reduce(comms[1], 1, 7);
    fake_fail_next(ncclInProgress);
    fake_reset();
    IS(ncclGroupEnd(), ncclInProgress);
    LOG("join(0,4>1);join(0,5>1);join(0,1>4);join(0,1>5);join(1,7>6);join(1,6>7);"
        "allreduce(0,1);allreduce(1,1);allreduce(1,1);begin(0,4);begin(0,5);ncclGroupEnd;"
        "join(1,7>6);join(1,6>7);");
    fake_slow();
    IS(state(comms[0]), ncclInProgress);
    LOG("ncclCommGetAsyncError;");
    fake_finish(ncclSuccess);
    IS(state(comms[0]), ncclSuccess);
    LOG("ncclCommGetAsyncError;end(0,4);end(0,5);join(0,4>1);join(0,5>1);join(0,1>4);"
        "join(0,1>5);");
    IS(reduce(comms[0], 1, 1), ncclSuccess);
    LOG("allreduce(0,1);");
}

/* A parent that splits in the background; *child is written by NCCL's thread. */
static ncclComm_t split_late(ncclComm_t *child)
{
    ncclComm_t parent[2];
    make_two(parent, "agree");
    fake_finish(ncclSuccess);
    IS(state(parent[0]), ncclSuccess);
    fake_slow();
    fake_reset();
    *child = (ncclComm_t)1; /* whatever was there before */
    IS(ncclCommSplit(parent[0], 0, 0, child, NULL), ncclInProgress);
    LOG("create(-1);ncclCommSplit;");
    IS(*child == NULL, 1);
    return parent[0];
}

static void await(ncclComm_t *child)
{
    while (!__atomic_load_n(child, __ATOMIC_ACQUIRE))
        usleep(100);
}

void test_late(void)
{
    ncclComm_t child, parent = split_late(&child);
    IS(state(parent), ncclInProgress);
    fake_finish(ncclSuccess);
    await(&child); /* as PyTorch does, and then it polls the child */
    fake_reset();
    IS(state(child), ncclSuccess);
    LOG("ncclCommGetAsyncError;ncclCommCount;ncclCommUserRank;ncclCommCuDevice;"
        "start(0/2, 100);take;drop;");
    IS(reduce(child, 1, 1), ncclSuccess);
    LOG("allreduce(0,1);");

    /* Seen first by a call on the child, by a question after the parent, by its end. */
    split_late(&child);
    fake_finish(ncclSuccess);
    await(&child);
    IS(reduce(child, 1, 1), ncclSuccess);
    IS(count_of(fake_log(), "allreduce(0,1)"), 1);
    parent = split_late(&child);
    fake_finish(ncclSuccess);
    await(&child);
    IS(state(parent), ncclSuccess);
    ncclComm_t moved = child;
    child = NULL; /* not looked at any more */
    IS(state(moved), ncclSuccess);
    parent = split_late(&child);
    fake_finish(ncclSuccess);
    await(&child);
    ncclCommDestroy(child);
    IS(count_of(fake_log(), "drop;"), 1);
}

/* Where a child's handle would come; the program frees it when it knows of the failure.
 */
static ncclComm_t *new_place(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* A failed split's place for the handle is not looked at once the program can know. */
void test_late_fails(void)
{
    ncclComm_t *place = new_place(), other = quiet_make(1), parent;
    parent = split_late(place);
    fake_finish(ncclSystemError);
    IS(state(parent), ncclSystemError);
    munmap(place, 4096);
    IS(reduce(other, 1, 1), ncclSuccess);
    /* A call comes to know it as well: here from a forwarded one before. */
    ncclComm_t comms[2];
    make_two(comms, "agree");
    fake_finish(ncclSuccess);
    IS(state(comms[0]), ncclSuccess);
    place = new_place();
    fake_fail_next(ncclInProgress);
    IS(forwarded(comms[0], 3), ncclInProgress);
    fake_slow();
    IS(ncclCommSplit(comms[0], 0, 0, place, NULL), ncclInProgress);
    fake_finish(ncclSystemError);
    IS(forwarded(comms[0], 3), ncclSuccess); /* the fake's answer */
    munmap(place, 4096);
    IS(reduce(other, 1, 1), ncclSuccess);
    IS(count_of(fake_log(), "allreduce(1,1)"), 1);
}

static void *ask_state(void *comm)
{
    return (void *)(intptr_t)state(comm);
}

/* A child whose address was that of one that NCCL freed unseen: nobody waits for the end
 * of that one's engine. */
void test_late_stale(void)
{
    pthread_t thread;
    void *answer;
    ncclComm_t stale = quiet_make(0), other = quiet_make(1), comms[2], child;
    make_two(comms, "agree");
    fake_finish(ncclSuccess);
    IS(state(comms[0]), ncclSuccess);
    fake_slow();
    fake_reuse(stale, NULL);
    IS(ncclCommSplit(comms[0], 0, 0, &child, NULL), ncclInProgress);
    fake_finish(ncclSuccess);
    await(&child);
    IS(child == stale, 1);
    setenv("FAKE_ENGINE_DESTROY_US", "1000000", 1);
    fake_reset();
    pthread_create(&thread, NULL, ask_state, child);
    while (!count_of(fake_log(), "destroying(0);"))
        usleep(1000);
    IS(reduce(other, 1, 1), ncclSuccess);
    LOG("ncclCommGetAsyncError;destroying(0);allreduce(1,1);");
    pthread_join(thread, &answer);
    IS((intptr_t)answer, ncclSuccess);
    IS(count_of(fake_log(), "destroy(0);"), 1);
}

/* One whose handle never comes is given up with its parent. */
void test_late_end(void)
{
    ncclComm_t child, parent = split_late(&child);
    fake_finish(ncclSystemError);
    IS(state(parent), ncclSystemError);
    LOG("ncclCommGetAsyncError;drop;");
    IS(ncclCommAbort(parent), ncclSuccess);
    LOG("abort;ncclCommAbort;destroy(0);");
    /* Its parent goes while NCCL is at it. */
    parent = split_late(&child);
    IS(ncclCommAbort(parent), ncclSuccess);
    LOG("drop;abort;ncclCommAbort;destroy(0);");
    /* A rank without a color has no child to wait for. */
    ncclComm_t comms[2];
    make_two(comms, "agree");
    IS(ncclCommSplit(comms[0], -1, 0, &child, NULL), ncclSuccess);
    LOG("ncclCommSplit;");
}
