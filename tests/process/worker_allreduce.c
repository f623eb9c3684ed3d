/* SPDX-License-Identifier: Apache-2.0 */
/* One AllReduce case: `calls` of them at once, `replays` times over with new data, each
 * output checked element by element, compared between ranks by hash, and nothing outside
 * the outputs touched.
 *
 *   ar count=N [type=T] [op=O] [comm=L] [values=random|exact|special] [inplace=1]
 *      [off=K]       input and output K and K+1 elements off; 'off=rank': by rank
 *      [mode=eager|burst|group|graph|mixed] [calls=C] [replays=R] [expect=CODE]
 *
 * eager: one stream. burst: a stream after the other, another order on every rank,
 * without waiting in between: only the issue order keeps the calls apart. group: in one
 * group. graph: captured once, replayed. mixed: a third eager on one stream, a third as a
 * graph on another, the rest eager on the first or a third, without waiting in between.
 * Same arguments on all ranks. */
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"
#include "tests/process/worker.h"

#define GUARD 256
#define POISON 0xa5

struct region {
    size_t in, out; /* offsets from the base */
};

struct job {
    struct worker *worker;
    struct ips_payload payload;
    nccl_comm comm;
    uint64_t count;
    size_t bytes;
    unsigned calls, replays;
    const char *mode;
    int in_place, expected;
    size_t off_in, off_out; /* elements */
    gpu_ptr base;
    size_t room; /* of everything */
    unsigned char *image, *got;
    struct region region[64];
    int code; /* the first that is not 0 */
};

static size_t padded(const struct job *job)
{
    return (2 * GUARD + job->bytes + 16 * 8 + 255) / 256 * 256;
}

static int read_job(struct job *job, const struct words *words)
{
    struct worker *worker = job->worker;
    const char *values = words_text(words, "values", "random");
    const char *off = words_text(words, "off", "0");
    job->payload =
        (struct ips_payload){.nranks = worker->nranks,
                             .type = (enum ips_type)words_type(words),
                             .op = (enum ips_op)words_op(words),
                             .values = !strcmp(values, "exact")     ? IPS_VALUES_EXACT
                                       : !strcmp(values, "special") ? IPS_VALUES_SPECIAL
                                                                    : IPS_VALUES_RANDOM};
    job->comm = words_comm(words, worker);
    job->count = (uint64_t)words_number(words, "count", 1);
    job->bytes = job->count * ips_type_bytes(job->payload.type);
    job->calls = (unsigned)words_number(words, "calls", 1);
    job->replays = (unsigned)words_number(words, "replays", 1);
    job->mode = words_text(words, "mode", "eager");
    job->in_place = (int)words_number(words, "inplace", 0);
    job->expected = (int)words_number(words, "expect", 0);
    job->off_in = !strcmp(off, "rank") ? worker->rank % 8 : (size_t)atoi(off) % 8;
    job->off_out = !strcmp(off, "0") ? 0 : (job->off_in + 1) % 8;
    return job->calls > 64 ? -1 : 0;
}

static int make_buffers(struct job *job)
{
    size_t size = ips_type_bytes(job->payload.type), span = padded(job);
    for (unsigned k = 0; k < job->calls; k++) {
        size_t start = k * 2 * span + GUARD;
        job->region[k].in = start + job->off_in * size;
        job->region[k].out =
            job->in_place ? job->region[k].in : start + span + job->off_out * size;
    }
    job->room = 2 * span * job->calls;
    job->image = malloc(job->room);
    job->got = malloc(job->room);
    if (!job->image || !job->got)
        return -1;
    return device_alloc(&job->worker->device, job->room, &job->base);
}

static struct ips_payload payload_of(const struct job *job, unsigned replay,
                                     unsigned call)
{
    struct ips_payload payload = job->payload;
    payload.seed = ips_mix(job->worker->serial * 4096u + replay * 64 + call);
    return payload;
}

static int load(struct job *job, unsigned replay)
{
    memset(job->image, POISON, job->room);
    for (unsigned k = 0; k < job->calls; k++) {
        struct ips_payload payload = payload_of(job, replay, k);
        ips_payload_fill(&payload, job->worker->rank, job->count,
                         job->image + job->region[k].in);
    }
    return device_upload(&job->worker->device, job->base, job->image, job->room,
                         job->worker->stream[0]);
}

static gpu_stream stream_of(const struct job *job, unsigned call)
{
    int burst = !strcmp(job->mode, "burst");
    unsigned at = burst ? (call + job->worker->rank) % WORKER_STREAMS : 0;
    return job->worker->stream[at];
}

static int issue_some(struct job *job, unsigned from, unsigned to, gpu_stream stream)
{
    const struct nccl_api *nccl = &job->worker->nccl;
    for (unsigned k = from; k < to && !job->code; k++)
        job->code =
            nccl->AllReduce((const void *)(uintptr_t)(job->base + job->region[k].in),
                            (void *)(uintptr_t)(job->base + job->region[k].out),
                            job->count, (int)job->payload.type, (int)job->payload.op,
                            job->comm, stream ? stream : stream_of(job, k));
    return job->code;
}

static int issue(void *arg)
{
    struct job *job = arg;
    const struct nccl_api *nccl = &job->worker->nccl;
    if (strcmp(job->mode, "group"))
        return issue_some(job, 0, job->calls, NULL);
    job->code = nccl->GroupStart();
    issue_some(job, 0, job->calls, NULL);
    int code = nccl->GroupEnd();
    job->code = job->code ? job->code : code;
    return job->code;
}

static int issue_middle(void *arg)
{
    struct job *job = arg;
    return issue_some(job, job->calls / 3, job->calls - job->calls / 3,
                      job->worker->stream[0]);
}

static int launch(struct job *job, gpu_graph_exec graph, unsigned replay)
{
    struct worker *worker = job->worker;
    unsigned third = job->calls / 3;
    int mixed = !strcmp(job->mode, "mixed");
    if (!graph)
        return issue(job);
    if (mixed)
        issue_some(job, 0, third, worker->stream[1]);
    if (!job->code)
        job->code = worker->device.cuGraphLaunch(graph, worker->stream[0]);
    if (mixed)
        issue_some(job, job->calls - third, job->calls, worker->stream[1 + replay % 2]);
    return job->code;
}

static int wait_all(struct worker *worker)
{
    for (unsigned i = 0; i < WORKER_STREAMS; i++)
        if (device_wait(&worker->device, worker->stream[i], worker->timeout_s))
            return -1;
    return 0;
}

/* Everything but the outputs is as it was uploaded. */
static int untouched(const struct job *job)
{
    for (unsigned k = 0; k < job->calls; k++)
        memcpy(job->image + job->region[k].out, job->got + job->region[k].out,
               job->bytes);
    return memcmp(job->image, job->got, job->room) == 0;
}

static int compare_ranks(struct job *job, uint64_t hash)
{
    struct worker *worker = job->worker;
    uint64_t *hashes = worker->page->hash[worker->serial % 2];
    hashes[worker->rank] = hash;
    if (fleet_barrier(&worker->page->sync))
        return -1;
    worker_check(worker, hashes[0] == hash, "the output differs from rank 0's");
    return 0;
}

static int check(struct job *job, unsigned replay)
{
    struct worker *worker = job->worker;
    uint64_t hash = 0;
    if (device_download(&worker->device, job->got, job->base, job->room,
                        worker->stream[0]))
        return -1;
    for (unsigned k = 0; k < job->calls; k++) {
        struct ips_payload payload = payload_of(job, replay, k);
        struct ips_mismatch first = {0};
        const unsigned char *output = job->got + job->region[k].out;
        uint64_t wrong = ips_payload_check(&payload, 0, job->count, output, &first);
        const char *type = ips_type_name(payload.type), *op = ips_op_name(payload.op);
        worker_check(worker, !wrong,
                     "%s %s count %llu call %u replay %u: %llu wrong; element %llu is %g "
                     "(0x%llx), expected %g within %g",
                     type ? type : "?", op ? op : "?",
                     (unsigned long long)job->count, k, replay, (unsigned long long)wrong,
                     (unsigned long long)first.index, first.got,
                     (unsigned long long)first.got_bits, first.wanted, first.bound);
        hash = ips_mix(hash ^ ips_hash(output, job->bytes));
    }
    worker_check(worker, untouched(job), "count %llu: memory outside the outputs changed",
                 (unsigned long long)job->count);
    int error = compare_ranks(job, hash);
    worker->serial++;
    return error;
}

static int run(struct job *job, gpu_graph_exec graph)
{
    struct worker *worker = job->worker;
    for (unsigned replay = 0; replay < job->replays; replay++) {
        if (load(job, replay) || fleet_barrier(&worker->page->sync))
            return -1;
        launch(job, graph, replay);
        if (!worker_check(worker, job->code == job->expected, "code %d", job->code))
            return -1;
        if (job->expected)
            return 0;
        if (wait_all(worker) || check(job, replay))
            return -1;
    }
    return 0;
}

int worker_allreduce(struct worker *worker, const struct words *words)
{
    struct job job = {.worker = worker};
    gpu_graph_exec graph = NULL;
    int error = read_job(&job, words) || make_buffers(&job);
    int mixed = !strcmp(job.mode, "mixed");
    if (!error && (mixed || !strcmp(job.mode, "graph")))
        error = device_capture(&worker->device, worker->stream[0],
                               mixed ? issue_middle : issue, &job, &graph);
    if (!error)
        error = run(&job, graph);
    if (error)
        return error; /* a call may hang: what waits for it must not be called */
    if (graph)
        worker->device.cuGraphExecDestroy(graph);
    device_free(&worker->device, job.base);
    free(job.image);
    free(job.got);
    return 0;
}
