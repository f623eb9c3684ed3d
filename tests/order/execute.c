/* SPDX-License-Identifier: Apache-2.0 */
/* Issues a program's steps, and compares what the buffers hold in the end. The user's
 * kernels are host functions here: they can take their time, so that what does not wait
 * for them comes too early. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/types.h"
#include "tests/order/execute.h"

#define BUFFER_BYTES (PROGRAM_WORDS * 4)
#define TIMEOUT_MS 20000

#define TRY(call)                                                          \
    do {                                                                   \
        int error_ = (call);                                               \
        if (error_) {                                                      \
            printf("# rank %u: %s gives %d\n", rank->rank, #call, error_); \
            return error_;                                                 \
        }                                                                  \
    } while (0)

int rank_make_comms(struct rank *rank)
{
    int (*make_op)(int *op, void *scalar, int type, int residence, nccl_comm comm);
    *(void **)&make_op = dlsym(RTLD_DEFAULT, "ncclRedOpCreatePreMulSum");
    uint32_t three = 3;
    for (unsigned c = 0; c < PROGRAM_COMMS; c++) {
        if (rank->rank == 0)
            TRY(rank->nccl.GetUniqueId(&rank->page->id[c]));
        TRY(fleet_barrier(&rank->page->sync));
        unsigned r = c == PROGRAM_COMMS - 1 ? rank->nranks - 1 - rank->rank : rank->rank;
        TRY(rank->nccl.CommInitRank(&rank->comm[c], (int)rank->nranks, rank->page->id[c],
                                    (int)r));
        TRY(make_op(&rank->pre_mul[c], &three, IPS_UINT32, 1, rank->comm[c]));
    }
    return 0;
}

/* The streams that nothing ties together are other ones on every rank. */
static int make_streams(struct rank *rank)
{
    for (unsigned s = 0; s < STREAM_BLOCKING; s++)
        TRY(cuStreamCreate(&rank->stream[(s + rank->rank) % STREAM_BLOCKING],
                           GPU_STREAM_NON_BLOCKING));
    TRY(cuStreamCreate(&rank->stream[STREAM_BLOCKING], 0));
    rank->stream[STREAM_LEGACY] = NULL;
    rank->stream[STREAM_PER_THREAD] = (gpu_stream)2;
    for (unsigned e = 0; e < PROGRAM_EVENTS; e++)
        TRY(cuEventCreate(&rank->event[e], GPU_EVENT_DISABLE_TIMING));
    return 0;
}

int rank_open(struct rank *rank)
{
    const char *missing = nccl_api_load(RTLD_DEFAULT, &rank->nccl);
    if (missing) {
        printf("# not preloaded: no %s\n", missing);
        return -1;
    }
    TRY(cuInit(0));
    TRY(cuDevicePrimaryCtxRetain(&rank->context, (int)rank->rank));
    TRY(cuCtxSetCurrent(rank->context));
    TRY(cuMemAlloc_v2(&rank->memory, PROGRAM_BUFFERS * BUFFER_BYTES));
    return make_streams(rank);
}

int rank_end_comms(struct rank *rank)
{
    for (unsigned c = 0; c < PROGRAM_COMMS; c++)
        TRY(rank->nccl.CommDestroy(rank->comm[c]));
    return 0;
}

static void *buffer(const struct rank *rank, int index)
{
    return (void *)(uintptr_t)(rank->memory + (gpu_ptr)index * BUFFER_BYTES);
}

static void run_kernel(void *data)
{
    const struct kernel *kernel = data;
    if (kernel->work.delay_us)
        usleep(kernel->work.delay_us);
    work_kernel(&kernel->work, kernel->rank, kernel->out, kernel->in);
}

static int issue_nccl(struct rank *rank, const struct work *work, gpu_stream stream)
{
    const struct nccl_api *n = &rank->nccl;
    const void *in = buffer(rank, work->in);
    void *out = buffer(rank, work->out);
    nccl_comm comm = rank->comm[work->comm];
    switch (work->kind) {
    case WORK_PRE_MUL:
        return n->AllReduce(in, out, work->count, work->type, rank->pre_mul[work->comm],
                            comm, stream);
    case WORK_ALL_GATHER:
        return n->AllGather(in, out, work->count, work->type, comm, stream);
    case WORK_REDUCE_SCATTER:
        return n->ReduceScatter(in, out, work->count, work->type, work->op, comm, stream);
    case WORK_BROADCAST:
        return n->Broadcast(in, out, work->count, work->type, work->root, comm, stream);
    default:
        return n->AllReduce(in, out, work->count, work->type, work->op, comm, stream);
    }
}

static int issue_work(struct rank *rank, unsigned index, const struct step *step)
{
    const struct work *work = &step->work;
    gpu_stream stream = rank->stream[step->stream];
    gpu_ptr in = (gpu_ptr)(uintptr_t)buffer(rank, work->in);
    gpu_ptr out = (gpu_ptr)(uintptr_t)buffer(rank, work->out);
    if (work_is_nccl(work))
        return issue_nccl(rank, work, stream);
    if (work->kind == WORK_COPY)
        return cuMemcpyDtoDAsync_v2(out, in, work->count, stream);
    if (work->kind == WORK_SET)
        return cuMemsetD8Async(out, (unsigned char)work->value, work->count, stream);
    struct kernel *kernel = &rank->kernel[index];
    *kernel = (struct kernel){.work = *work,
                              .rank = rank->rank,
                              .in = buffer(rank, work->in),
                              .out = buffer(rank, work->out)};
    return cuLaunchHostFunc(stream, run_kernel, kernel);
}

static int end_capture(gpu_stream stream, uint64_t seed, gpu_exec *ret)
{
    gpu_graph graph;
    int error = cuStreamEndCapture(stream, &graph);
    if (error)
        return error;
    graph_shuffle(graph, seed);
    error = cuGraphInstantiateWithFlags(ret, graph, 0);
    return error ? error : cuGraphDestroy(graph);
}

static int issue(struct rank *rank, const struct program *program, unsigned index)
{
    const struct step *step = &program->step[index];
    gpu_stream stream = rank->stream[step->stream];
    switch (step->kind) {
    case STEP_WORK:
        return issue_work(rank, index, step);
    case STEP_RECORD:
        return cuEventRecord(rank->event[step->event], stream);
    case STEP_WAIT:
        return cuStreamWaitEvent(stream, rank->event[step->event], 0);
    case STEP_SYNC:
        return cuStreamSynchronize(stream);
    case STEP_CAPTURE:
        return cuStreamBeginCapture_v2(stream, step->mode);
    case STEP_GRAPH:
        return end_capture(stream, program->seed + index, &rank->exec[step->graph]);
    case STEP_LAUNCH:
        return cuGraphLaunch(rank->exec[step->graph], stream);
    case STEP_GROUP:
        return rank->nccl.GroupStart();
    case STEP_GROUP_END:
        return rank->nccl.GroupEnd();
    }
    return -1;
}

static int wait_all(struct rank *rank)
{
    for (unsigned s = 0; s < PROGRAM_STREAMS; s++) {
        int status;
        for (unsigned ms = 0; (status = cuStreamQuery(rank->stream[s])) == 600; ms++) {
            if (ms / 5 == TIMEOUT_MS || rank->page->sync.failed) {
                printf("# rank %u: stream %u is stuck\n", rank->rank, s);
                return -1;
            }
            usleep(200);
        }
        TRY(status);
    }
    return 0;
}

static int compare(struct rank *rank)
{
    for (unsigned b = 0; b < PROGRAM_BUFFERS; b++) {
        uint32_t got[PROGRAM_WORDS];
        const uint32_t *wanted = rank->wanted[rank->rank][b];
        TRY(cuMemcpyDtoH_v2(got, rank->memory + b * BUFFER_BYTES, BUFFER_BYTES));
        for (unsigned i = 0; i < PROGRAM_WORDS; i++) {
            if (got[i] == wanted[i])
                continue;
            printf("# rank %u: buffer %u word %u is 0x%x, not 0x%x\n", rank->rank, b, i,
                   got[i], wanted[i]);
            return -1;
        }
    }
    return 0;
}

int rank_run(struct rank *rank, const struct program *program)
{
    program_fill(program, rank->wanted);
    for (unsigned b = 0; b < PROGRAM_BUFFERS; b++)
        TRY(cuMemcpyHtoD_v2(rank->memory + b * BUFFER_BYTES, rank->wanted[rank->rank][b],
                            BUFFER_BYTES));
    TRY(fleet_barrier(&rank->page->sync));
    for (unsigned i = 0; i < program->nsteps; i++) {
        int error = issue(rank, program, i);
        if (error) {
            printf("# rank %u: step %u gives %d\n", rank->rank, i, error);
            return error;
        }
    }
    program_reference(program, rank->wanted);
    if (wait_all(rank) || compare(rank))
        return -1;
    for (unsigned g = 0; g < program->ngraphs; g++)
        if (rank->exec[g])
            TRY(cuGraphExecDestroy(rank->exec[g]));
    memset(rank->exec, 0, sizeof rank->exec);
    return 0;
}
