/* SPDX-License-Identifier: Apache-2.0 */
/* The ways to make a communicator, and under which key its ranks meet, under the shim
 * that has the fake engine. */
#include <dlfcn.h>
#include <stdlib.h>

#include "tests/abi/engine_test.h"

void test_makers(void)
{
    ncclUniqueId ids[2] = {{{1}}, {{2}}};
    ncclComm_t comm, all[2];
    ncclCommInitRankScalable(&comm, 2, 1, 2, ids, NULL);
    LOG("create(1);ncclCommInitRankScalable;ncclCommCuDevice;start(1/2, 101);take;drop;");
    setenv("FAKE_ENGINE", "meet",
           1); /* all of them are started before one is waited for */
    ncclCommInitAll(all, 2, NULL);
    LOG("create(0);create(1);ncclGetUniqueId;ncclCommInitAll;ncclCommInitAll;"
        "ncclCommCuDevice;start(0/2, 100);ncclCommCuDevice;start(1/2, 101);take;drop;"
        "take;drop;");
    setenv("FAKE_ENGINE", "agree", 1);
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
    /* What NCCL will refuse is its own to answer. */
    ncclCommInitRankScalable(&comm, 2, 2, 1, ids, NULL);
    LOG("ncclCommInitRankScalable;");
}

/* A second NCCL is looked for when something was loaded, not at every communicator. */
void test_makers_many(void)
{
    make(0);
    int shown = fake_objects_shown();
    IS(shown > 1, 1);
    make(1);
    IS(fake_objects_shown() - shown <= 1, 1);
    shown = fake_objects_shown();
    IS(dlopen("libinnocent.so", RTLD_NOW) != NULL, 1);
    make(0);
    IS(fake_objects_shown() - shown > 2, 1);
}

void test_makers_group(void)
{
    ncclUniqueId id = {{9}};
    ncclComm_t all[4], children[4];
    setenv("FAKE_ENGINE", "meet", 1);
    ncclGroupStart();
    ncclCommInitAll(all, 2, NULL);
    ncclCommInitRank(&all[2], 2, id, 0);
    ncclCommInitRank(&all[3], 2, id, 1);
    IS(count_of(fake_log(), "start("), 0);
    IS(ncclGroupEnd(), ncclSuccess);
    IS(count_of(fake_log(), "take;"), 4);
    ncclGroupStart(); /* every other one takes no part */
    for (int i = 0; i < 4; i++)
        ncclCommSplit(all[i], i < 2 ? 7 : -1, 0, &children[i], NULL);
    fake_reset();
    IS(ncclGroupEnd(), ncclSuccess);
    IS(count_of(fake_log(), "take;"), 2);
    IS(reduce(children[1], 1, 1), ncclSuccess);
    IS(count_of(fake_log(), "allreduce(1,1);"), 1);
    fake_fail_next(ncclInternalError);
    IS(ncclCommInitRank(&all[0], 2, id, 0), ncclInternalError);
}

/* Splits and notes the key. */
static ncclComm_t split(ncclComm_t parent, int color)
{
    ncclComm_t child = NULL;
    IS(ncclCommSplit(parent, color, 0, &child, NULL), ncclSuccess);
    return child;
}

#define MADE_0 "ncclCommCuDevice;start(0/2, 100);take;drop;"
#define SPLIT_0 "ncclCommSplit;ncclCommCount;ncclCommUserRank;" MADE_0
#define SPLIT_1                                                                      \
    "ncclCommSplit;ncclCommCount;ncclCommUserRank;ncclCommCuDevice;start(1/2, 101);" \
    "take;drop;"

void test_keys(void)
{
    ncclUniqueId id = {{1}};
    ncclComm_t ranks[2], children[2];
    setenv("FAKE_ENGINE_KEYS", "1", 1);
    for (int rank = 0; rank < 2; rank++)
        ncclCommInitRank(&ranks[rank], 2, id, rank);
    LOG("create(0, key 0);ncclCommInitRank;" MADE_0
        "create(1, key 0);ncclCommInitRank;ncclCommCuDevice;start(1/2, 101);take;drop;");
    children[0] = split(ranks[0], 0);
    LOG("create(-1, key 1);" SPLIT_0);
    split(ranks[0], 0);
    LOG("create(-1, key 2);" SPLIT_0);
    split(ranks[0], 5);
    LOG("create(-1, key 3);" SPLIT_0);
    split(children[0], 0);
    LOG("create(-1, key 4);" SPLIT_0);
    /* The other rank takes no part in the first split, and comes to the same keys. */
    split(ranks[1], -1);
    fake_reset();
    split(ranks[1], 0);
    LOG("create(-1, key 2);" SPLIT_1);
    /* A split that NCCL refuses does not count. */
    fake_fail_next(ncclInvalidArgument);
    IS(ncclCommSplit(ranks[1], 5, 0, &children[1], NULL), ncclInvalidArgument);
    LOG("create(-1, key 3);ncclCommSplit;drop;");
    split(ranks[1], 5);
    LOG("create(-1, key 3);" SPLIT_1);
    /* The order of ids, and how many ranks, are part of the key. */
    ncclUniqueId ids[2] = {{{1}}, {{2}}}, turned[2] = {{{2}}, {{1}}};
    ncclCommInitRankScalable(&children[0], 2, 0, 1, ids, NULL);
    LOG("create(0, key 0);ncclCommInitRankScalable;" MADE_0);
    ncclCommInitRankScalable(&children[0], 2, 0, 2, ids, NULL);
    LOG("create(0, key 5);ncclCommInitRankScalable;" MADE_0);
    ncclCommInitRankScalable(&children[0], 2, 0, 2, turned, NULL);
    LOG("create(0, key 6);ncclCommInitRankScalable;" MADE_0);
    ncclCommInitRankScalable(&children[0], 3, 0, 2, ids, NULL);
    IS(count_of(fake_log(), "create(0, key 7)"), 1);
    ncclCommInitAll(children, 2, NULL);
    IS(count_of(fake_log(), "key 8"), 2);
    ncclCommInitAll(children, 2, NULL);
    IS(count_of(fake_log(), "key 9"), 2);
}

/* Parents that NCCL serves can have children that the engine serves, if they have a key.
 */
void test_children(void)
{
    ncclUniqueId id = {{1}};
    ncclComm_t parent, child;
    ncclCommInitRank(&parent, 9, id, 0);
    LOG("ncclCommInitRank;");
    fake_child_ranks(2);
    IS(reduce(split(parent, 0), 1, 1), ncclSuccess);
    LOG("create(-1);" SPLIT_0 "allreduce(0,1);");
    /* Those that turn out to be too small or too large are not. */
    fake_child_ranks(1);
    split(parent, 0);
    LOG("create(-1);ncclCommSplit;ncclCommCount;ncclCommUserRank;drop;");
    fake_child_ranks(9);
    split(parent, 0);
    LOG("create(-1);ncclCommSplit;ncclCommCount;ncclCommUserRank;drop;");
    fake_child_ranks(2);
    setenv("FAKE_ENGINE", "decline", 1);
    ncclCommInitRank(&parent, 2, id, 0);
    setenv("FAKE_ENGINE", "agree", 1);
    fake_reset();
    IS(reduce(split(parent, 0), 1, 1), ncclSuccess);
    LOG("create(-1);" SPLIT_0 "allreduce(0,1);");
    /* No key: shrunk, grown, a constant id, not known. */
    ncclCommShrink(parent, NULL, 0, &child, NULL, 0);
    fake_reset();
    split(child, 0);
    LOG("ncclCommSplit;ncclCommCount;ncclCommUserRank;");
    setenv("NCCL_COMM_ID", "127.0.0.1:1", 1);
    ncclCommInitRank(&parent, 9, id, 0);
    unsetenv("NCCL_COMM_ID");
    fake_reset();
    split(split(parent, 0), 0);
    LOG("ncclCommSplit;ncclCommCount;ncclCommUserRank;ncclCommSplit;ncclCommCount;"
        "ncclCommUserRank;");
    fake_keep();
    ncclCommDestroy(parent);
    fake_reset();
    split(parent, 0);
    LOG("ncclCommSplit;ncclCommCount;ncclCommUserRank;");
}
