/* SPDX-License-Identifier: Apache-2.0 */
/* Runs under the shim that has the fake engine: checks which calls reach the engine and
 * NCCL, and in which order. Argument: the case; without one, their names. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/nccl_api.h"
#include "tests/abi/fake_nccl.h"

#define STREAM(n) ((cudaStream_t)(uintptr_t)(n))
static char buffer[64];
static int failures;

static void expect_log(int line, const char *expected)
{
    if (strcmp(fake_log(), expected) != 0) {
        printf("line %d: expected %s\n          got      %s\n", line, expected,
               fake_log());
        failures++;
    }
    fake_reset();
}

static void expect_number(int line, const char *what, long got, long expected)
{
    if (got != expected) {
        printf("line %d: %s is %ld, expected %ld\n", line, what, got, expected);
        failures++;
    }
}
#define LOG(expected) expect_log(__LINE__, expected)
#define IS(call, expected) expect_number(__LINE__, #call, (long)(call), (long)(expected))

static ncclResult_t reduce(ncclComm_t comm, size_t count, uintptr_t stream)
{
    return ncclAllReduce(buffer, buffer, count, ncclFloat32, ncclSum, comm,
                         STREAM(stream));
}

static ncclComm_t make(int rank)
{
    ncclUniqueId id = {{(char)(rank + 1)}};
    ncclComm_t comm = NULL;
    IS(ncclCommInitRank(&comm, 2, id, rank), ncclSuccess);
    return comm;
}

static ncclComm_t quiet_make(int rank)
{
    ncclComm_t comm = make(rank);
    fake_reset();
    return comm;
}

static void test_init(void)
{
    make(1);
    LOG("create(1);ncclCommInitRank;ncclCommCuDevice;start(1/2, 101);take;drop;");
}

static void test_init_config(void)
{
    struct {
        size_t size;
        unsigned magic, version;
        int blocking;
    } config = {sizeof config, 0xcafebeef, 22809, 1};
    ncclUniqueId id = {{5}};
    ncclComm_t comm;
    ncclCommInitRankConfig(&comm, 2, id, 0, (ncclConfig_t *)&config);
    LOG("create(0);"
        "ncclCommInitRankConfig;ncclCommCuDevice;start(0/2, 100);take;drop;");
    config.blocking = 0;
    ncclCommInitRankConfig(&comm, 2, id, 0, (ncclConfig_t *)&config);
    LOG("create(0);ncclCommInitRankConfig;");
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("ncclCommGetAsyncError;ncclCommCuDevice;start(0/2, "
        "100);take;drop;allreduce(0,1);");
    config.magic = 1; /* not a config: nothing is read from it */
    ncclCommInitRankConfig(&comm, 2, id, 0, (ncclConfig_t *)&config);
    LOG("create(0);"
        "ncclCommInitRankConfig;ncclCommCuDevice;start(0/2, 100);take;drop;");
    setenv("NCCL_COMM_BLOCKING", "0", 1);
    ncclCommInitRank(&comm, 2, id, 0);
    LOG("create(0);ncclCommInitRank;");
    setenv("NCCL_COMM_BLOCKING", "1", 1);
    setenv("NCCL_COMM_ID", "127.0.0.1:1", 1);
    ncclCommInitRank(&comm, 2, id, 0);
    LOG("ncclCommInitRank;");
    unsetenv("NCCL_COMM_ID");
    ncclCommInitRank(&comm, 9, id, 0);
    LOG("ncclCommInitRank;");
    ncclCommInitRank(&comm, 1, id, 0);
    LOG("ncclCommInitRank;");
    ncclCommInitRank(&comm, 2, id, 2); /* NCCL's to refuse */
    LOG("ncclCommInitRank;");
}

static void test_init_fails(void)
{
    ncclUniqueId id = {{1}};
    ncclComm_t comm = NULL;
    fake_fail_next(ncclSystemError);
    IS(ncclCommInitRank(&comm, 2, id, 0), ncclSystemError);
    LOG("create(0);ncclCommInitRank;drop;");
}

static void test_init_group(void)
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

static void test_decline(void)
{
    ncclComm_t comm = make(0);
    LOG("create(0);ncclCommInitRank;ncclCommCuDevice;start(0/2, 100);drop;");
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("ncclAllReduce;");
    IS(ncclCommDestroy(comm), ncclSuccess);
    LOG("ncclCommDeregister;ncclCommDestroy;");
}

static void test_none(void)
{
    ncclComm_t comm = make(0);
    LOG("create(0);ncclCommInitRank;");
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("ncclAllReduce;");
}

static void test_disabled(void)
{
    ncclComm_t comm = make(0);
    LOG("ncclCommInitRank;");
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("ncclAllReduce;");
}

static void test_allreduce(void)
{
    ncclComm_t comm = quiet_make(0);
    IS(reduce(comm, 1, 7), ncclSuccess);
    LOG("allreduce(0,1);");
    /* More than IPCSHIM_MAX_BYTES, a type and an operation the engine does not know. */
    IS(reduce(comm, 1 << 30, 7), ncclSuccess);
    LOG("begin(0,7);ncclAllReduce;end(0,7);");
    ncclAllReduce(buffer, buffer, 1, (ncclDataType_t)10, ncclSum, comm, STREAM(7));
    LOG("begin(0,7);ncclAllReduce;end(0,7);");
    ncclAllReduce(buffer, buffer, 1, ncclFloat32, (ncclRedOp_t)5, comm, STREAM(7));
    LOG("begin(0,7);ncclAllReduce;end(0,7);");
    /* Invalid arguments are NCCL's to answer. */
    ncclAllReduce(NULL, buffer, 1, ncclFloat32, ncclSum, comm, STREAM(7));
    LOG("begin(0,7);ncclAllReduce;end(0,7);");
    IS(reduce(NULL, 1, 7), ncclInvalidArgument);
    LOG("ncclAllReduce;");
    ncclBcast(buffer, 1, ncclFloat32, 0, comm, STREAM(8));
    LOG("begin(0,8);ncclBcast;ncclBroadcast;end(0,8);");
    /* The engine's errors are the call's. */
    IS(reduce(comm, 666, 7), ncclSystemError);
    LOG("allreduce(0,666);");
}

static void test_group(void)
{
    ncclComm_t comm = quiet_make(0), other = quiet_make(1);
    ncclGroupStart();
    ncclGroupStart();
    IS(reduce(comm, 1, 1), ncclSuccess);
    IS(reduce(other, 2, 2), ncclSuccess);
    ncclBroadcast(buffer, buffer, 1, ncclFloat32, 0, comm, STREAM(3));
    ncclBroadcast(buffer, buffer, 1, ncclFloat32, 0, comm, STREAM(3));
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

static void test_group_fails(void)
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
}

static void test_simulate(void)
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

static void test_end(void)
{
    ncclComm_t comm = quiet_make(0);
    IS(ncclCommFinalize(comm), ncclSuccess);
    IS(ncclCommDestroy(comm), ncclSuccess);
    LOG("drain(0);ncclCommFinalize;destroy(0);ncclCommDeregister;ncclCommDestroy;");
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
    LOG("allreduce(0,1);ncclGroupEnd;destroy(0);");
    comm = quiet_make(0);
    IS(ncclCommRevoke(comm, 0), ncclSuccess);
    LOG("abort;ncclCommRevoke;");
    IS(reduce(comm, 1, 1), ncclSuccess); /* NCCL's own answer */
    LOG("ncclAllReduce;");
}

static void test_async_error(void)
{
    ncclComm_t comm = quiet_make(0);
    ncclResult_t error;
    IS(ncclCommGetAsyncError(comm, &error), ncclSuccess);
    IS(error, ncclSuccess);
    setenv("FAKE_ENGINE_ERROR", "110", 1); /* ETIMEDOUT */
    IS(ncclCommGetAsyncError(comm, &error), ncclSuccess);
    IS(error, ncclRemoteError);
}

static void test_makers(void)
{
    ncclUniqueId ids[2] = {{{1}}, {{2}}};
    ncclComm_t comm, all[2];
    ncclCommInitRankScalable(&comm, 2, 1, 2, ids, NULL);
    LOG("create(1);ncclCommInitRankScalable;ncclCommCuDevice;start(1/2, 101);take;drop;");
    ncclCommInitAll(all, 2, NULL);
    LOG("create(0);create(1);ncclGetUniqueId;ncclCommInitAll;ncclCommInitAll;"
        "ncclCommCuDevice;start(0/2, 100);take;drop;"
        "ncclCommCuDevice;start(1/2, 101);take;drop;");
    ncclCommSplit(comm, 0, 0, &all[0], NULL);
    LOG("create(-1);ncclCommSplit;ncclCommCount;ncclCommUserRank;ncclCommCuDevice;"
        "start(1/2, 101);take;drop;");
    ncclCommSplit(comm, -1, 0, &all[1], NULL);
    LOG("ncclCommSplit;");
    IS(all[1] == NULL, 1);
    ncclCommShrink(comm, NULL, 1, &all[1], NULL, 0);
    LOG("ncclCommShrink;ncclCommCount;ncclCommUserRank;");
    ncclCommGrow(comm, 3, &ids[0], 2, &all[1], NULL);
    LOG("ncclCommGrow;ncclCommCount;ncclCommUserRank;");
    IS(reduce(all[0], 1, 1), ncclSuccess);
    LOG("allreduce(1,1);");
    IS(reduce(all[1], 1, 1), ncclSuccess);
    LOG("ncclAllReduce;");
}

static void *make_elsewhere(void *comms)
{
    ((ncclComm_t *)comms)[0] = quiet_make(1);
    ((ncclComm_t *)comms)[1] = quiet_make(0);
    return NULL;
}

/* A handle's address is reused, while the entry it had now belongs to another: the
 * thread's cache of the table must notice. The thread that makes them has a cache of its
 * own. */
static void test_stale(void)
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

/* A few calls of each kind, for the trace. */
static void test_trace(void)
{
    ncclComm_t comm = make(1), comm2;
    reduce(comm, 1, 0x10);
    reduce(comm, 1, 0xca);
    reduce(comm, 1 << 30, 0x10);
    ncclBcast(buffer, 3, ncclFloat64, 0, comm, STREAM(1));
    ncclAllReduce(buffer, buffer, 5, (ncclDataType_t)99, (ncclRedOp_t)77, comm,
                  STREAM(1));
    ncclSend(buffer, 10, ncclInt8, 0, comm, STREAM(1));
    ncclCommShrink(comm, NULL, 0, &comm2, NULL, 0);
    reduce(comm2, 2, 1);
    ncclCommDestroy(comm2);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fake_reset();
        IS(reduce(comm, 1, 1), ncclSuccess);
        LOG("ncclAllReduce;"); /* no engine in a child */
        IS(ncclCommDestroy(comm), ncclSuccess);
        LOG("ncclCommDeregister;ncclCommDestroy;");
        exit(failures != 0);
    }
    fake_reset();
    reduce(comm, 1, 1);
    LOG("allreduce(1,1);");
    int status = -1;
    IS(waitpid(child, &status, 0), child);
    IS(status, 0);
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

static size_t count_of(const char *text, const char *piece)
{
    size_t count = 0;
    for (; (text = strstr(text, piece)); text++)
        count++;
    return count;
}

static void test_threads(void)
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

/* A watchdog aborts a communicator that another thread is using: the engine must outlive
 * the call that is in it. The fake overwrites an engine that it destroys, so a use after
 * that would show as another rank. */
static void *use_until_aborted(void *handle)
{
    for (int i = 0; i < 2000 && reduce(handle, 1, 1) == ncclSuccess; i++)
        ;
    return NULL;
}

static void test_abort_race(void)
{
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

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"init", test_init},
    {"init-config", test_init_config},
    {"init-fails", test_init_fails},
    {"init-group", test_init_group},
    {"decline", test_decline},
    {"none", test_none},
    {"disabled", test_disabled},
    {"allreduce", test_allreduce},
    {"group", test_group},
    {"group-fails", test_group_fails},
    {"simulate", test_simulate},
    {"end", test_end},
    {"async-error", test_async_error},
    {"makers", test_makers},
    {"trace", test_trace},
    {"stale", test_stale},
    {"threads", test_threads},
    {"abort-race", test_abort_race},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (argc == 2 && strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return failures != 0;
        }
    }
    printf("no such case\n");
    return 2;
}
