/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads at once, under the shim that has the fake engine. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/abi/engine_test.h"

static void *make_elsewhere(void *comms)
{
    ((ncclComm_t *)comms)[0] = quiet_make(1);
    ((ncclComm_t *)comms)[1] = quiet_make(0);
    return NULL;
}

/* A handle's address is reused, while the entry it had now belongs to another: the
 * thread's cache of the table must notice. The thread that makes them has a cache of its
 * own. */
void test_stale(void)
{
    ncclComm_t a = quiet_make(0), b = quiet_make(1);
    reduce(a, 1, 1);
    reduce(b, 1, 1);
    fake_keep();
    ncclCommDestroy(a);
    ncclCommDestroy(b);
    /* b's entry was freed last, so a communicator made now gets it. */
    ncclComm_t made[2];
    pthread_t maker;
    fake_reuse(a, b);
    pthread_create(&maker, NULL, make_elsewhere, made);
    pthread_join(maker, NULL);
    ncclComm_t c = made[0], d = made[1];
    IS(c == a && d == b, 1);
    reduce(c, 1, 1);
    reduce(d, 1, 1);
    LOG("allreduce(1,1);allreduce(0,1);");
    ncclCommDestroy(c);
    fake_reset();
    reduce(c, 1, 1); /* not known any more */
    LOG("ncclAllReduce;");
}

/* Threads that make, use, abort and destroy communicators at the same time, on addresses
 * that malloc keeps reusing. Every AllReduce of a living one must reach its own engine.
 */
static void *churn(void *number)
{
    int rank = (int)(intptr_t)number;
    for (int i = 0; i < 3000; i++) {
        ncclUniqueId id = {{(char)i}};
        ncclComm_t comm;
        ncclCommInitRank(&comm, 8, id, rank);
        for (int j = 0; j < 8; j++)
            if (reduce(comm, 1, 1) != ncclSuccess)
                __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
        if (i % 2)
            ncclCommDestroy(comm);
        else
            ncclCommAbort(comm);
    }
    return NULL;
}

void test_threads(void)
{
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, churn, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) {
        char piece[32];
        snprintf(piece, sizeof piece, "allreduce(%d,", i);
        IS(count_of(fake_log(), piece), 3000 * 8);
        snprintf(piece, sizeof piece, "destroy(%d)", i);
        IS(count_of(fake_log(), piece), 3000);
    }
}

static void await(const char *piece)
{
    while (!strstr(fake_log(), piece))
        usleep(1000);
}

static void *destroy_elsewhere(void *comm)
{
    return (void *)(intptr_t)ncclCommDestroy(comm);
}

static void *destroy_in_group(void *comm)
{
    ncclGroupStart();
    reduce(comm, 1, 1);
    ncclCommDestroy(comm);
    return (void *)(intptr_t)ncclGroupEnd();
}

/* A destroy that waits for calls of the engine that don't end: another thread's abort
 * finds it, and ends NCCL's part in its place. */
void test_destroy_stuck(void)
{
    pthread_t thread;
    void *answer;
    ncclComm_t comm = quiet_make(0), other = quiet_make(1);
    setenv("FAKE_ENGINE_STUCK", "1", 1);
    fake_keep();
    pthread_create(&thread, NULL, destroy_elsewhere, comm);
    await("drain(0);");
    usleep(10000);
    IS(ncclCommAbort(comm), ncclSuccess);
    pthread_join(thread, &answer);
    IS((intptr_t)answer, ncclSuccess);
    IS(count_of(fake_log(), "ncclCommAbort;"), 1);
    IS(count_of(fake_log(), "ncclCommDestroy;"), 0);
    IS(count_of(fake_log(), "destroy(0);"), 1);
    fake_reset();
    ncclCommAbort(comm); /* over: nothing is found */
    LOG("ncclCommAbort;");
    pthread_create(&thread, NULL, destroy_in_group, other);
    await("drain(1);");
    usleep(10000);
    ncclCommAbort(other);
    pthread_join(thread, &answer);
    IS((intptr_t)answer, ncclSuccess);
    IS(count_of(fake_log(), "destroy(1);"), 1);
}

static void *watch(void *comm)
{
    ncclResult_t error;
    ncclCommGetAsyncError(comm, &error);
    return NULL;
}

/* A question after its health while it is destroyed: the thread that destroys it is the
 * one that frees the engine, before NCCL's part. */
void test_destroy_watched(void)
{
    pthread_t watchdog;
    ncclComm_t comm = quiet_make(0);
    fake_keep();
    setenv("FAKE_ENGINE_ERROR_US", "100000", 1);
    pthread_create(&watchdog, NULL, watch, comm);
    await("ncclCommGetAsyncError;");
    usleep(20000);
    IS(ncclCommDestroy(comm), ncclSuccess);
    LOG("ncclCommGetAsyncError;drain(0);destroy(0);ncclCommDeregister;ncclCommDestroy;");
    pthread_join(watchdog, NULL);
    LOG("");
}

/* A watchdog aborts a communicator that another thread is using: the engine must outlive
 * the call that is in it. The fake overwrites an engine that it destroys, so a use after
 * that would show as another rank. */
static void *use_until_aborted(void *handle)
{
    for (int i = 0; i < 2000 && reduce(handle, 1, 1) == ncclSuccess; i++)
        ;
    return NULL;
}

void test_abort_race(void)
{
    fake_keep(); /* the aborted handle may still be in the other thread's call */
    for (int i = 0; i < 300; i++) {
        pthread_t user;
        ncclComm_t comm = quiet_make(0);
        pthread_create(&user, NULL, use_until_aborted, comm);
        usleep((useconds_t)(i % 100));
        ncclCommAbort(comm);
        pthread_join(user, NULL);
        IS(count_of(fake_log(), "destroy(0)"), 1);
        IS(count_of(fake_log(), "allreduce(0,"), count_of(fake_log(), "allreduce("));
    }
}
