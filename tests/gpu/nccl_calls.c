/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the calls of the stand-in NCCL: what collectives, sends and receives compute, in
 * issue order over streams, groups, captures and replays, and which ones are refused. */
#include <unistd.h>

#include "tests/gpu/nccl_rank.h"

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

int main(void)
{
    in_ranks(4, run_collectives, 0, "collectives of 4 processes");
    in_ranks(8, run_collectives, 0, "collectives of 8 processes");
    in_ranks(1, run_types, 0, "one rank alone");
    in_ranks(3, run_types, 0, "types, averages and user operations");
    in_ranks(4, run_transfers, 0, "sends and receives in a group");
    in_ranks(4, run_capture, 0, "captured and replayed");
    in_ranks(3, run_streams, 0, "issue order over streams, and a group's streams joined");
    in_ranks(2, run_refusals, 0, "bad arguments and groups");
    in_ranks(4, run_parts, 0, "parts to all, to one and from one");
    in_ranks(3, run_mixed, 0, "issue order over replays and streams");
    return tap_end();
}
