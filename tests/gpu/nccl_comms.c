/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the communicators of the stand-in NCCL: every way to make one, and how it fails.
 */
#include <stdlib.h>
#include <unistd.h>

#include "tests/gpu/nccl_rank.h"

static void run_split(struct rank *self)
{
    ncclComm_t child = NULL, none = (ncclComm_t)1;
    int count = 0, rank = -1, half = self->rank % 2;
    WANT(ncclCommSplit(self->comm, half, -self->rank, &child, NULL) == 0);
    WANT(ncclCommCount(child, &count) == 0 && count == (self->n + 1 - half) / 2);
    WANT(ncclCommUserRank(child, &rank) == 0 && rank == count - 1 - self->rank / 2);
    fill(self, COUNT, 1);
    WANT(ncclAllReduce(self->in, self->out, COUNT, 7, 0, child, self->stream) == 0);
    finish(self);
    int sum = 0;
    for (int r = half; r < self->n; r += 2)
        sum += r + 1;
    WANT(is(self->out, COUNT, (float)sum));
    WANT(ncclCommDestroy(child) == 0);
    WANT(ncclCommSplit(self->comm, self->rank ? 0 : -1, 0, &none, NULL) == 0);
    WANT((none == NULL) == (self->rank == 0));
    if (none)
        WANT(ncclCommDestroy(none) == 0);
}

/* All but the middle rank go on, also with what hangs on the old communicator. */
static void run_shrink(struct rank *self)
{
    int out = 1, n = self->n, rank = -1;
    ncclComm_t child = NULL;
    if (self->rank == out)
        return;
    WANT(ncclAllReduce(self->in, self->out, 1, 7, 0, self->comm, self->stream) == 0);
    WANT(ncclCommShrink(self->comm, &out, 0, &child, NULL, 1) == ncclInvalidArgument);
    WANT(ncclCommShrink(self->comm, &out, 1, &child, NULL, 1) == 0);
    WANT(ncclCommUserRank(child, &rank) == 0 && rank == self->rank - (self->rank > out));
    fill(self, COUNT, 1);
    WANT(ncclAllReduce(self->in, self->out, COUNT, 7, 0, child, self->stream) == 0);
    finish(self);
    WANT(is(self->out, COUNT, (float)(SUM(n) - out - 1)));
    WANT(ncclCommDestroy(child) == 0);
}

static void run_scalable(struct rank *self)
{
    ncclUniqueId ids[2] = {self->id, self->id};
    ids[1].internal[0]++;
    open_device(self, self->rank);
    WANT(ncclCommInitRankScalable(&self->comm, self->n, self->rank, 0, ids, NULL) ==
         ncclInvalidArgument);
    WANT(ncclCommInitRankScalable(&self->comm, self->n, self->rank, 2, ids, NULL) == 0);
    fill(self, COUNT, 1);
    WANT(ncclAllReduce(self->in, self->out, COUNT, 7, 0, self->comm, self->stream) == 0);
    finish(self);
    WANT(is(self->out, COUNT, (float)SUM(self->n)));
    WANT(ncclCommDestroy(self->comm) == 0);
}

static void run_nonblocking(struct rank *self)
{
    ncclConfig_t config[8] = {
        {.size = sizeof config, .magic = 0xcafebeef, .version = 22809}};
    ncclResult_t state = ncclInProgress;
    int count;
    open_device(self, self->rank);
    if (self->rank == 0)
        usleep(100000);
    ncclResult_t result =
        ncclCommInitRankConfig(&self->comm, self->n, self->id, self->rank, config);
    WANT(result == ncclInProgress && self->comm);
    if (self->rank != 0)
        WANT(ncclCommCount(self->comm, &count) == ncclInvalidArgument);
    while (!bad && state == ncclInProgress)
        WANT(ncclCommGetAsyncError(self->comm, &state) == 0);
    fill(self, COUNT, 1);
    WANT(ncclAllReduce(self->in, self->out, COUNT, 7, 0, self->comm, self->stream) == 0);
    finish(self);
    WANT(is(self->out, COUNT, (float)SUM(self->n)));
    WANT(ncclCommDestroy(self->comm) == 0);
}

static ncclResult_t settled(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (!bad && state == ncclInProgress)
        WANT(ncclCommGetAsyncError(comm, &state) == 0);
    return state;
}

/* The handle comes late; until then the parent is in progress. */
static void run_late_split(struct rank *self)
{
    ncclConfig_t config[8] = {
        {.size = sizeof config, .magic = 0xcafebeef, .version = 22809}};
    ncclComm_t child = (ncclComm_t)1, none = (ncclComm_t)1;
    ncclResult_t state;
    int count = 0;
    open_device(self, self->rank);
    WANT(ncclCommInitRankConfig(&self->comm, self->n, self->id, self->rank, config) ==
         ncclInProgress);
    WANT(settled(self->comm) == 0);
    WANT(ncclCommSplit(self->comm, 0, 0, &child, NULL) == ncclInProgress);
    WANT(!child && ncclCommGetAsyncError(self->comm, &state) == 0 &&
         state == ncclInProgress);
    WANT(settled(self->comm) == 0 && child);
    WANT(ncclCommCount(child, &count) == 0 && count == self->n);
    WANT(ncclCommSplit(self->comm, -1, 0, &none, NULL) == ncclInProgress && !none);
    WANT(settled(self->comm) == 0 && !none);
    WANT(ncclCommDestroy(child) == 0 && ncclCommDestroy(self->comm) == 0);
}

/* One thread, n devices; the ranks' buffers are in one process. */
static void run_init_all(struct rank *self)
{
    enum { N = 3 };
    struct rank ranks[N];
    ncclComm_t comms[N];
    WANT(ncclCommInitAll(comms, N, NULL) == 0);
    for (int r = 0; r < N && !bad; r++) {
        ranks[r] = *self;
        ranks[r].rank = r;
        ranks[r].n = N;
        open_device(&ranks[r], r);
        fill(&ranks[r], COUNT, 1);
    }
    WANT(ncclGroupStart() == 0);
    for (int r = 0; r < N && !bad; r++)
        WANT(ncclAllReduce(ranks[r].in, ranks[r].out, COUNT, 7, 0, comms[r],
                           ranks[r].stream) == 0);
    WANT(ncclGroupEnd() == 0);
    for (int r = 0; r < N && !bad; r++) {
        finish(&ranks[r]);
        WANT(is(ranks[r].out, COUNT, (float)SUM(N)));
    }
    for (int r = 0; r < N && !bad; r++)
        WANT(ncclCommDestroy(comms[r]) == 0);
}

static void run_failure(struct rank *self)
{
    ncclResult_t state = ncclSuccess;
    void *handle;
    setenv("SIMNCCL_TIMEOUT_S", "1", 1);
    open_device(self, self->rank);
    WANT(ncclCommInitRank(&self->comm, self->n, self->id, self->rank) == 0);
    WANT(ncclAllReduce(self->in, self->out, 1, 7, 0, self->comm, self->stream) == 0);
    finish(self);
    WANT(ncclCommRegister(self->comm, self->in, 64, &handle) == 0);
    WANT(ncclCommRegister(self->comm, self->in, 64, &handle) == ncclInternalError);
    if (self->rank == 0) { /* nobody else takes part */
        WANT(ncclAllReduce(self->in, self->out, 1, 7, 0, self->comm, self->stream) == 0);
        finish(self);
        WANT(ncclCommGetAsyncError(self->comm, &state) == 0 && state == ncclRemoteError);
    }
    WANT(ncclCommAbort(self->comm) == 0);
}

int main(void)
{
    int version = 0;
    setenv("SIMNCCL_FAIL", "ncclCommRegister:2:3", 1); /* read at the first call */
    tap(ncclGetVersion(&version) == 0 && version == 22809, "version 2.28.9");
    in_ranks(5, run_split, 0, "split by color and key");
    in_ranks(3, run_nonblocking, 1, "a non-blocking communicator");
    in_ranks(3, run_late_split, 1, "a non-blocking split");
    in_ranks(4, run_scalable, 1, "an init with two ids");
    in_ranks(4, run_shrink, 0, "shrunk, with an unfinished call");
    in_ranks(1, run_init_all, 1, "one thread with three communicators");
    in_ranks(2, run_failure, 1, "failures on request, and the deadline");
    return tap_end();
}
