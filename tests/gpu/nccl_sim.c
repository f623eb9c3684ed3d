/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the stand-in NCCL: its collectives among processes and among one thread's
 * communicators, groups, capture, and what it refuses. Every case runs in processes of
 * its own; their exit status counts what was wrong. */
#include "tools/simgpu/nccl_sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/tap.h"
#include "tools/simgpu/cuda_api.h"

TAP_DEFINE;

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices);
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *comm,
                           ncclConfig_t *config);
ncclResult_t ncclCommShrink(ncclComm_t parent, int *excluded, int count, ncclComm_t *comm,
                            ncclConfig_t *config, int flags);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int n, int rank, int ids,
                                      ncclUniqueId *id, ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommCount(ncclComm_t comm, int *count);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           gpu_stream stream);
ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclAllGather(const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               gpu_stream stream);
ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                        int root, ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, gpu_stream stream);
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                      int residence, ncclComm_t comm);
ncclResult_t ncclCommRegister(ncclComm_t comm, void *buffer, size_t bytes, void **handle);
unsigned long simnccl_calls(const char *function);

#define COUNT 50003 /* more than one chunk for 4-byte types, and odd */
#define SUM(n) ((n) * ((n) + 1) / 2)

static int bad; /* in a rank's process: what was wrong */

#define WANT(condition)                                      \
    do {                                                     \
        if (!(condition)) {                                  \
            printf("# line %d: %s\n", __LINE__, #condition); \
            fflush(stdout);                                  \
            bad++;                                           \
        }                                                    \
    } while (0)

/* A rank's device, a stream, and two buffers that the host can read directly here. */
struct rank {
    int rank, n;
    ncclUniqueId id;
    ncclComm_t comm;
    gpu_stream stream;
    float *in, *out;
};

static void open_device(struct rank *self, int device)
{
    gpu_context context;
    gpu_ptr in, out;
    size_t bytes = (size_t)self->n * COUNT * 8;
    WANT(cuInit(0) == 0);
    WANT(cuDevicePrimaryCtxRetain(&context, device) == 0);
    WANT(cuCtxSetCurrent(context) == 0);
    WANT(cuStreamCreate(&self->stream, GPU_STREAM_NON_BLOCKING) == 0);
    WANT(cuMemAlloc_v2(&in, bytes) == 0 && cuMemAlloc_v2(&out, bytes) == 0);
    self->in = (float *)(uintptr_t)in;
    self->out = (float *)(uintptr_t)out;
}

static void fill(struct rank *self, size_t count, int base)
{
    for (size_t i = 0; i < count; i++)
        self->in[i] = (float)(base + self->rank) * (float)(i % 100);
}

static void finish(struct rank *self)
{
    WANT(cuStreamSynchronize(self->stream) == 0);
}

/* Whether out[i] == factor * (i % 100). */
static int is(const float *out, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        if (out[i] != factor * (float)(i % 100))
            return 0;
    return 1;
}

static void run_collectives(struct rank *self)
{
    const float sum = (float)SUM(self->n);
    int n = self->n, rank = self->rank, last = n - 1;
    fill(self, COUNT, 1);
    WANT(ncclAllReduce(self->in, self->out, COUNT, 7, 0, self->comm, self->stream) == 0);
    finish(self);
    WANT(is(self->out, COUNT, sum));
    WANT(ncclAllReduce(self->in, self->out, COUNT, 7, 2, self->comm, self->stream) == 0);
    finish(self);
    WANT(is(self->out, COUNT, (float)n));
    WANT(ncclReduce(self->in, self->out, COUNT, 7, 3, last, self->comm, self->stream) ==
         0);
    finish(self);
    WANT(is(self->out, COUNT, rank == last ? 1 : (float)n));
    WANT(ncclAllGather(self->in, self->out, 1001, 7, self->comm, self->stream) == 0);
    finish(self);
    for (int r = 0; r < n; r++)
        WANT(is(self->out + 1001 * r, 1001, (float)(r + 1)));
    WANT(ncclBcast(self->in, COUNT, 7, 1, self->comm, self->stream) == 0);
    finish(self);
    WANT(is(self->in, COUNT, 2));
    WANT(simnccl_calls("ncclBroadcast") == 1);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < COUNT; i++)
            self->in[r * COUNT + i] = (float)(i % 100 * (r + 1));
    WANT(ncclReduceScatter(self->in, self->in + rank * COUNT, COUNT, 7, 0, self->comm,
                           self->stream) == 0);
    finish(self);
    WANT(is(self->in + rank * COUNT, COUNT, (float)(n * (rank + 1))));
}

static void run_transfers(struct rank *self)
{
    const int n = self->n, each = 30011;
    fill(self, (size_t)n * each, 1);
    WANT(ncclGroupStart() == 0);
    for (int r = 0; r < n; r++) {
        WANT(ncclSend(self->in + r * each, each, 7, r, self->comm, self->stream) == 0);
        WANT(ncclRecv(self->out + r * each, each, 7, r, self->comm, self->stream) == 0);
    }
    WANT(ncclGroupEnd() == 0);
    finish(self);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < each; i += 997)
            WANT(self->out[r * each + i] ==
                 (float)(r + 1) * (float)((self->rank * each + i) % 100));
}

static void run_types(struct rank *self)
{
    union {
        int8_t i8[8];
        uint64_t u64[8];
        double f64[8];
        _Float16 half[8];
        uint16_t bits[8];
    } *in = (void *)self->in, *out = (void *)self->out;
    int n = self->n;
    for (int i = 0; i < 8; i++)
        in->i8[i] = (int8_t)(-10 * (self->rank + i));
    WANT(ncclAllReduce(in, out, 8, 0, 4, self->comm, self->stream) == 0);
    finish(self);
    for (int i = 0; i < 8; i++)
        WANT(out->i8[i] == (int8_t)((int8_t)(-10 * (SUM(n - 1) + n * i)) / n));
    for (int i = 0; i < 8; i++)
        in->u64[i] = (1ull << 62) + (uint64_t)(self->rank * i);
    WANT(ncclAllReduce(in, out, 8, 5, 0, self->comm, self->stream) == 0);
    finish(self);
    for (int i = 0; i < 8; i++)
        WANT(out->u64[i] == (uint64_t)n * (1ull << 62) + (uint64_t)(SUM(n - 1) * i));
    for (int i = 0; i < 8; i++)
        in->half[i] = (_Float16)(0.3f * (float)(self->rank + i));
    WANT(ncclAllReduce(in, out, 8, 6, 4, self->comm, self->stream) == 0);
    finish(self);
    for (int i = 0; i < 8; i++) {
        _Float16 part = (_Float16)(1.0f / (float)n), sum = 0;
        for (int r = 0; r < n; r++) {
            _Float16 scaled =
                (_Float16)((float)(_Float16)(0.3f * (float)(r + i)) * (float)part);
            sum = r ? (_Float16)((float)sum + (float)scaled) : scaled;
        }
        WANT(out->half[i] == sum);
    }
    double scalar = self->rank + 1;
    ncclRedOp_t op;
    WANT(ncclRedOpCreatePreMulSum(&op, &scalar, 8, 1, self->comm) == 0 && op >= 5);
    for (int i = 0; i < 8; i++)
        in->f64[i] = i;
    WANT(ncclAllReduce(in, out, 8, 8, op, self->comm, self->stream) == 0);
    finish(self);
    for (int i = 0; i < 8; i++)
        WANT(out->f64[i] == SUM(n) * (double)i);
}

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

/* Each rank sends every rank its part; then parts go to rank 1, and come back. */
static void run_parts(struct rank *self)
{
    const int n = self->n, each = 30011;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < each; i++)
            self->in[r * each + i] = (float)((self->rank + 1) * (r + 1) * (i % 100));
    WANT(ncclAlltoAll(self->in, self->out, each, 7, self->comm, self->stream) == 0);
    finish(self);
    for (int r = 0; r < n; r++)
        WANT(is(self->out + r * each, each, (float)((r + 1) * (self->rank + 1))));
    fill(self, each, 1);
    WANT(ncclGather(self->in, self->out, each, 7, 1, self->comm, self->stream) == 0);
    finish(self);
    for (int r = 0; r < n && self->rank == 1; r++)
        WANT(is(self->out + r * each, each, (float)(r + 1)));
    WANT(ncclScatter(self->out, self->in, each, 7, 1, self->comm, self->stream) == 0);
    finish(self);
    WANT(is(self->in, each, (float)(self->rank + 1)));
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

static void slow(void *data)
{
    (void)data;
    usleep(30000);
}

/* Replays and eager calls by turns on two streams, where the first one is slow: each
 * sums what the one before wrote. */
static void run_mixed(struct rank *self)
{
    gpu_stream other;
    gpu_graph graph;
    gpu_exec exec;
    float sum = 1;
    WANT(cuStreamCreate(&other, GPU_STREAM_NON_BLOCKING) == 0);
    fill(self, 100, 1);
    WANT(cuStreamBeginCapture_v2(other, 1) == 0);
    WANT(cuLaunchHostFunc(other, slow, NULL) == 0);
    WANT(ncclAllReduce(self->in, self->in, 100, 7, 0, self->comm, other) == 0);
    WANT(cuStreamEndCapture(other, &graph) == 0);
    WANT(cuGraphInstantiateWithFlags(&exec, graph, 0) == 0);
    for (int i = 0; i < 3; i++) {
        WANT(cuGraphLaunch(exec, other) == 0);
        WANT(cuLaunchHostFunc(self->stream, slow, NULL) == 0);
        WANT(ncclAllReduce(self->in, self->in, 100, 7, 0, self->comm, self->stream) == 0);
        sum *= (float)(self->n * self->n);
    }
    finish(self);
    WANT(cuStreamSynchronize(other) == 0);
    WANT(is(self->in, 100, sum / (float)self->n * (float)SUM(self->n)));
    WANT(cuGraphExecDestroy(exec) == 0 && cuGraphDestroy(graph) == 0);
}

static void run_capture(struct rank *self)
{
    gpu_graph graph;
    gpu_exec exec;
    fill(self, COUNT, 1);
    WANT(cuStreamBeginCapture_v2(self->stream, 1) == 0);
    WANT(ncclAllReduce(self->in, self->in, COUNT, 7, 0, self->comm, self->stream) == 0);
    WANT(cuStreamEndCapture(self->stream, &graph) == 0);
    WANT(cuGraphInstantiateWithFlags(&exec, graph, 0) == 0);
    for (int i = 0; i < 3; i++)
        WANT(cuGraphLaunch(exec, self->stream) == 0);
    WANT(ncclAllReduce(self->in, self->out, COUNT, 7, 0, self->comm, self->stream) == 0);
    finish(self);
    WANT(is(self->out, COUNT, (float)(SUM(self->n) * self->n * self->n * self->n)));
    WANT(cuGraphExecDestroy(exec) == 0 && cuGraphDestroy(graph) == 0);
}

/* Issue order over streams: each call reads what the one before wrote. */
static void run_streams(struct rank *self)
{
    gpu_stream other;
    WANT(cuStreamCreate(&other, GPU_STREAM_NON_BLOCKING) == 0);
    fill(self, COUNT, 1);
    for (int i = 0; i < 4; i++)
        WANT(ncclAllReduce(self->in, self->in, COUNT, 7, i ? 2 : 0, self->comm,
                           i % 2 ? other : self->stream) == 0);
    WANT(cuStreamSynchronize(other) == 0);
    WANT(is(self->in, COUNT, (float)SUM(self->n)));
    WANT(ncclGroupStart() == 0);
    WANT(ncclAllReduce(self->in, self->out, COUNT, 7, 2, self->comm, self->stream) == 0);
    WANT(ncclAllReduce(self->out, self->in, COUNT, 7, 0, self->comm, other) == 0);
    WANT(ncclGroupEnd() == 0);
    finish(self);
    WANT(is(self->in, COUNT, (float)(SUM(self->n) * self->n)));
    WANT(cuStreamDestroy_v2(other) == 0);
}

static void run_refusals(struct rank *self)
{
    ncclSimInfo_t info = {.size = sizeof info, .estimatedTime = 1};
    ncclComm_t comm = self->comm;
    float *in = self->in, *out = self->out;
    WANT(ncclAllReduce(in, out, 1, 7, 0, NULL, self->stream) == ncclInvalidArgument);
    WANT(ncclAllReduce(in, out, 1, 7, 77, comm, self->stream) == ncclInvalidArgument);
    WANT(ncclAllReduce(in, out, 1, 17, 0, comm, self->stream) == ncclInvalidArgument);
    WANT(ncclAllReduce(in, NULL, 1, 7, 0, comm, self->stream) == ncclInvalidArgument);
    WANT(ncclAllReduce(NULL, NULL, 0, 7, 0, comm, self->stream) == ncclSuccess);
    WANT(ncclGroupEnd() == ncclInvalidUsage);
    WANT(ncclGroupStart() == 0);
    WANT(ncclAllReduce(in, out, 1, 77, 0, comm, self->stream) == ncclInvalidArgument);
    WANT(ncclAllReduce(in, out, 1, 7, 0, comm, self->stream) == 0);
    WANT(ncclGroupEnd() == ncclInvalidArgument);
    WANT(ncclGroupStart() == 0);
    WANT(ncclAllReduce(in, out, 1, 7, 0, comm, self->stream) == 0);
    WANT(ncclGroupSimulateEnd(&info) == 0);
    WANT(cuStreamQuery(self->stream) == 0);
}

static void with_comm(struct rank *self, void (*fn)(struct rank *))
{
    open_device(self, self->rank);
    WANT(ncclCommInitRank(&self->comm, self->n, self->id, self->rank) == 0);
    if (bad)
        return;
    fn(self);
    WANT(ncclCommFinalize(self->comm) == 0);
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

static void in_ranks(int n, void (*fn)(struct rank *), int own_init, const char *what)
{
    struct rank self = {.n = n};
    int failed = ncclGetUniqueId(&self.id) != 0;
    pid_t pid[SIM_RANKS_MAX];
    for (self.rank = 0; self.rank < n; self.rank++) {
        pid[self.rank] = fork();
        if (pid[self.rank] != 0)
            continue;
        if (own_init)
            fn(&self);
        else
            with_comm(&self, fn);
        _exit(bad != 0);
    }
    for (int r = 0; r < n; r++) {
        int status = -1;
        waitpid(pid[r], &status, 0);
        failed |= status != 0;
    }
    tap(!failed, "%s", what);
}

int main(void)
{
    int version = 0;
    setenv("SIMNCCL_FAIL", "ncclCommRegister:2:3", 1); /* read at the first call */
    tap(ncclGetVersion(&version) == 0 && version == 22809, "version 2.28.9");
    in_ranks(4, run_collectives, 0, "collectives of 4 processes");
    in_ranks(8, run_collectives, 0, "collectives of 8 processes");
    in_ranks(1, run_types, 0, "one rank alone");
    in_ranks(3, run_types, 0, "types, averages and user operations");
    in_ranks(4, run_transfers, 0, "sends and receives in a group");
    in_ranks(5, run_split, 0, "split by color and key");
    in_ranks(4, run_capture, 0, "captured and replayed");
    in_ranks(3, run_streams, 0, "issue order over streams, and a group's streams joined");
    in_ranks(2, run_refusals, 0, "bad arguments and groups");
    in_ranks(3, run_nonblocking, 1, "a non-blocking communicator");
    in_ranks(3, run_late_split, 1, "a non-blocking split");
    in_ranks(4, run_scalable, 1, "an init with two ids");
    in_ranks(4, run_shrink, 0, "shrunk, with an unfinished call");
    in_ranks(4, run_parts, 0, "parts to all, to one and from one");
    in_ranks(3, run_mixed, 0, "issue order over replays and streams");
    in_ranks(1, run_init_all, 1, "one thread with three communicators");
    in_ranks(2, run_failure, 1, "failures on request, and the deadline");
    return tap_end();
}
