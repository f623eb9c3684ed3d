/* SPDX-License-Identifier: Apache-2.0 */
/* Runs under the shim that has the fake engine: checks which calls reach the engine and
 * NCCL, and in which order. Argument: the case; without one, their names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/abi/engine_test.h"

char test_buffer[64];
int failures;

void expect_log(int line, const char *expected)
{
    if (strcmp(fake_log(), expected) != 0) {
        printf("line %d: expected %s\n          got      %s\n", line, expected,
               fake_log());
        failures++;
    }
    fake_reset();
}

void expect_number(int line, const char *what, long got, long expected)
{
    if (got != expected) {
        printf("line %d: %s is %ld, expected %ld\n", line, what, got, expected);
        failures++;
    }
}

size_t count_of(const char *text, const char *piece)
{
    size_t count = 0, length = strlen(piece), left = strlen(text);
    for (; left >= length; text++, left--)
        count += *text == *piece && !memcmp(text, piece, length);
    return count;
}

ncclResult_t reduce(ncclComm_t comm, size_t count, uintptr_t stream)
{
    return ncclAllReduce(test_buffer, test_buffer, count, ncclFloat32, ncclSum, comm,
                         STREAM(stream));
}

ncclComm_t make(int rank)
{
    ncclUniqueId id = {{(char)(rank + 1)}};
    ncclComm_t comm = NULL;
    IS(ncclCommInitRank(&comm, 2, id, rank), ncclSuccess);
    return comm;
}

ncclComm_t quiet_make(int rank)
{
    ncclComm_t comm = make(rank);
    fake_reset();
    return comm;
}

void test_init(void)
{
    make(1);
    LOG("create(1);ncclCommInitRank;ncclCommCuDevice;start(1/2, 101);take;drop;");
}

void test_init_config(void)
{
    struct config config = {sizeof config, 0xcafebeef, 22809, 1};
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

void test_init_fails(void)
{
    ncclUniqueId id = {{1}};
    ncclComm_t comm = NULL;
    fake_fail_next(ncclSystemError);
    IS(ncclCommInitRank(&comm, 2, id, 0), ncclSystemError);
    LOG("create(0);ncclCommInitRank;drop;");
}

void test_decline(void)
{
    ncclComm_t comm = make(0);
    LOG("create(0);ncclCommInitRank;ncclCommCuDevice;start(0/2, 100);drop;");
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("ncclAllReduce;");
    IS(ncclCommDestroy(comm), ncclSuccess);
    LOG("ncclCommDeregister;ncclCommDestroy;");
}

void test_none(void)
{
    ncclComm_t comm = make(0);
    LOG("create(0);ncclCommInitRank;");
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("ncclAllReduce;");
}

void test_disabled(void)
{
    ncclComm_t comm = make(0);
    LOG("ncclCommInitRank;");
    IS(reduce(comm, 1, 1), ncclSuccess);
    LOG("ncclAllReduce;");
    ncclComm_t others[2];
    ncclCommInitAll(others, 2, NULL);
    ncclCommSplit(comm, 0, 0, &others[0], NULL);
    LOG("ncclGetUniqueId;ncclCommInitAll;ncclCommInitAll;ncclCommSplit;ncclCommCount;"
        "ncclCommUserRank;");
}

static ncclResult_t floats(ncclComm_t comm, ncclRedOp_t op, uintptr_t stream)
{
    return ncclAllReduce(test_buffer, test_buffer, 3, ncclFloat32, op, comm,
                         STREAM(stream));
}

/* Every second call: NCCL's part comes first, since the engine's may destroy the input. */
void test_verify(void)
{
    ncclComm_t comm = quiet_make(0);
    IS(floats(comm, ncclSum, 7), ncclSuccess);
    LOG("allreduce(0,3);");
    IS(floats(comm, ncclSum, 7), ncclSuccess);
    LOG("weigh(0,3);ncclAllReduce;ncclAllReduce;allreduce(0,3);compare(0,3);");
    IS(floats(comm, ncclMax, 7), ncclSuccess);
    LOG("allreduce(0,3);");
    IS(floats(comm, ncclMax, 7), ncclSuccess);
    LOG("weigh(0,3);ncclAllReduce;allreduce(0,3);compare(0,3);");
    IS(floats(comm, ncclSum, 7), ncclSuccess);
    LOG("allreduce(0,3);");
    /* Not counted: captured, in a group, nothing to compare. */
    IS(floats(comm, ncclSum, 0xca), ncclSuccess);
    ncclAllReduce(test_buffer, test_buffer, 0, ncclFloat32, ncclSum, comm, STREAM(7));
    LOG("allreduce(0,3);allreduce(0,0);");
    ncclGroupStart();
    IS(floats(comm, ncclSum, 7), ncclSuccess);
    IS(ncclGroupEnd(), ncclSuccess);
    LOG("ncclGroupStart;allreduce(0,3);ncclGroupEnd;");
    /* What NCCL refuses is not launched. */
    fake_fail_next(ncclInvalidArgument);
    IS(floats(comm, ncclSum, 7), ncclInvalidArgument);
    LOG("weigh(0,3);ncclAllReduce;broken(0);");
}

void test_allreduce(void)
{
    ncclComm_t comm = quiet_make(0);
    IS(reduce(comm, 1, 7), ncclSuccess);
    LOG("allreduce(0,1);");
    /* More than IPCSHIM_MAX_BYTES, a type and an operation the engine does not know. */
    IS(reduce(comm, 1 << 30, 7), ncclSuccess);
    LOG("begin(0,7);ncclAllReduce;end(0,7);");
    ncclAllReduce(test_buffer, test_buffer, 1, (ncclDataType_t)10, ncclSum, comm,
                  STREAM(7));
    LOG("begin(0,7);ncclAllReduce;end(0,7);");
    ncclAllReduce(test_buffer, test_buffer, 1, ncclFloat32, (ncclRedOp_t)5, comm,
                  STREAM(7));
    LOG("begin(0,7);ncclAllReduce;end(0,7);");
    /* Invalid arguments are NCCL's to answer. */
    ncclAllReduce(NULL, test_buffer, 1, ncclFloat32, ncclSum, comm, STREAM(7));
    LOG("begin(0,7);ncclAllReduce;end(0,7);");
    IS(reduce(NULL, 1, 7), ncclInvalidArgument);
    LOG("ncclAllReduce;");
    ncclBcast(test_buffer, 1, ncclFloat32, 0, comm, STREAM(8));
    LOG("begin(0,8);ncclBcast;ncclBroadcast;end(0,8);");
    /* The engine's errors are the call's. */
    IS(reduce(comm, 666, 7), ncclSystemError);
    LOG("allreduce(0,666);");
}

/* A few calls of each kind, for the trace. */
void test_trace(void)
{
    ncclComm_t comm = make(1), comm2;
    reduce(comm, 1, 0x10);
    reduce(comm, 1, 0xca);
    reduce(comm, 1 << 30, 0x10);
    ncclBcast(test_buffer, 3, ncclFloat64, 0, comm, STREAM(1));
    ncclAllReduce(test_buffer, test_buffer, 5, (ncclDataType_t)99, (ncclRedOp_t)77, comm,
                  STREAM(1));
    ncclSend(test_buffer, 10, ncclInt8, 0, comm, STREAM(1));
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

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
#define CASE(name, function) {name, function},
    ENGINE_CASES(CASE)};

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
