/* SPDX-License-Identifier: Apache-2.0 */
/* Puts a communicator's calls on a stream as host functions, so that they keep the
 * stream's order and can be captured. Calls on one communicator keep their issue order
 * over all streams, a replay counting as issued when it is launched; all streams of a
 * group are joined before and after. */
#include <stdlib.h>

#include "tools/simgpu/cuda_api.h"
#include "tools/simgpu/nccl_sim.h"

/* What one host function runs: a collective, or a list of sends and receives. */
struct run {
    struct ncclComm *comm;
    struct sim_job *jobs;
    int keep; /* captured: it may run again */
};

static void free_jobs(struct sim_job *jobs)
{
    while (jobs) {
        struct sim_job *next = jobs->next;
        free(jobs);
        jobs = next;
    }
}

static void run_on_stream(void *data)
{
    struct run *run = data;
    if (run->jobs->call == SIM_SEND || run->jobs->call == SIM_RECV)
        sim_run_transfers(run->jobs);
    else
        sim_run_collective(run->jobs);
    if (run->keep)
        return;
    free_jobs(run->jobs);
    __atomic_sub_fetch(&run->comm->pending, 1, __ATOMIC_ACQ_REL);
    free(run);
}

/* Consumes the jobs. */
static int enqueue(struct ncclComm *comm, struct sim_job *jobs, gpu_stream stream,
                   int captured)
{
    struct run *run = malloc(sizeof *run);
    if (!run)
        abort();
    *run = (struct run){comm, jobs, captured};
    if (!captured)
        __atomic_add_fetch(&comm->pending, 1, __ATOMIC_ACQ_REL);
    comm->captured |= captured;
    int error = cuLaunchHostFunc(stream, run_on_stream, run);
    if (!error)
        return 0;
    if (!captured)
        __atomic_sub_fetch(&comm->pending, 1, __ATOMIC_ACQ_REL);
    free_jobs(jobs);
    free(run);
    return error;
}

static int wait_for(gpu_event event, gpu_stream first, gpu_stream second)
{
    int error = cuEventRecord(event, first);
    return error ? error : cuStreamWaitEvent(second, event, 0);
}

/* The other streams of the group before `stream`, or after it. */
static int join_streams(struct ncclComm *comm, gpu_stream stream,
                        const gpu_stream *others, size_t count, int after)
{
    int error = 0;
    for (size_t i = 0; i < count && !error; i++)
        error = after ? wait_for(comm->join, stream, others[i])
                      : wait_for(comm->join, others[i], stream);
    return error;
}

static size_t other_streams(const struct sim_job *jobs, gpu_stream *others)
{
    size_t count = 0;
    for (const struct sim_job *job = jobs->next; job; job = job->next) {
        size_t i = 0;
        while (i < count && others[i] != job->stream)
            i++;
        if (job->stream != jobs->stream && i == count)
            others[count++] = job->stream;
    }
    return count;
}

static int is_transfer(const struct sim_job *job)
{
    return job->call == SIM_SEND || job->call == SIM_RECV;
}

/* Collectives one by one, then all transfers together. */
static int enqueue_all(struct ncclComm *comm, struct sim_job *jobs, gpu_stream stream,
                       int captured)
{
    struct sim_job *transfers = NULL, **last = &transfers;
    int error = 0;
    while (jobs) {
        struct sim_job *job = jobs;
        jobs = job->next;
        job->next = NULL;
        if (is_transfer(job)) {
            *last = job;
            last = &job->next;
        } else if (error) {
            free(job);
        } else {
            error = enqueue(comm, job, stream, captured);
        }
    }
    if (transfers && !error)
        return enqueue(comm, transfers, stream, captured);
    free_jobs(transfers);
    return error;
}

static struct sim_tail *find_tail(struct ncclComm *comm, uint64_t capture)
{
    for (unsigned i = 0; i < SIM_CAPTURES; i++)
        if (comm->tail[i].capture == capture)
            return &comm->tail[i];
    struct sim_tail *tail = &comm->tail[comm->captures++ % SIM_CAPTURES];
    *tail = (struct sim_tail){.capture = capture};
    return tail;
}

/* A capture begins with a wait, and every call ends with a record: nodes that bind when
 * the graph is launched. In between its calls form a chain. */
static int order_captured(struct ncclComm *comm, gpu_stream stream, int after)
{
    int status;
    uint64_t id = 0;
    const gpu_node *frontier;
    size_t count = 0;
    int error =
        after ? cuEventRecordWithFlags(comm->order, stream, GPU_EVENT_EXTERNAL) : 0;
    if (!error)
        error = cuStreamGetCaptureInfo_v2(stream, &status, &id, NULL, &frontier, &count);
    if (error)
        return error;
    struct sim_tail *tail = find_tail(comm, id);
    if (after)
        tail->node = frontier[0]; /* the record */
    else if (tail->node)
        return cuStreamUpdateCaptureDependencies(stream, &tail->node, 1,
                                                 GPU_ADD_CAPTURE_DEPENDENCIES);
    else
        return cuStreamWaitEvent(stream, comm->order, GPU_EVENT_EXTERNAL);
    return 0;
}

static int order_before(struct ncclComm *comm, gpu_stream stream, int captured)
{
    if (captured)
        return order_captured(comm, stream, 0);
    if (comm->captured || (comm->has_last && comm->last_stream != stream))
        return cuStreamWaitEvent(stream, comm->order, 0);
    return 0;
}

static int order_after(struct ncclComm *comm, gpu_stream stream, int captured)
{
    if (captured)
        return order_captured(comm, stream, 1);
    comm->last_stream = stream;
    comm->has_last = 1;
    return cuEventRecord(comm->order, stream);
}

static int launch(struct ncclComm *comm, struct sim_job *jobs)
{
    int status = 0, error;
    gpu_stream stream = jobs->stream, *others;
    size_t jobs_count = 0;
    for (struct sim_job *job = jobs; job; job = job->next)
        jobs_count++;
    others = calloc(jobs_count, sizeof *others);
    if (!others)
        abort();
    size_t count = other_streams(jobs, others);
    error = cuStreamIsCapturing(stream, &status);
    int captured = status != GPU_CAPTURE_NONE;
    if (!error)
        error = order_before(comm, stream, captured);
    if (!error)
        error = join_streams(comm, stream, others, count, 0);
    if (error)
        free_jobs(jobs);
    else
        error = enqueue_all(comm, jobs, stream, captured);
    if (!error)
        error = order_after(comm, stream, captured);
    if (!error)
        error = join_streams(comm, stream, others, count, 1);
    free(others);
    return error;
}

ncclResult_t sim_launch(struct ncclComm *comm, struct sim_job *jobs)
{
    simgpu_quiet(1);
    int error = cuCtxPushCurrent_v2(comm->context);
    if (error) {
        free_jobs(jobs);
    } else {
        error = launch(comm, jobs);
        cuCtxPopCurrent_v2(NULL);
    }
    simgpu_quiet(-1);
    return error ? sim_nccl_error(ncclUnhandledCudaError, "a driver call failed")
                 : ncclSuccess;
}
