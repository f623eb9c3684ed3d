/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives that the shim only forwards, checked like the AllReduce, and calls with bad
 * arguments, whose answers must be NCCL's own.
 *
 *   call NAME count=N [type=T] [op=O] [root=R] [comm=L]
 *   NAME: allgather, reducescatter, reduce, broadcast, bcast, ring (send and receive) */
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"
#include "tests/process/worker.h"

struct collective {
    struct worker *worker;
    struct ips_payload payload;
    nccl_comm comm;
    uint64_t count; /* as NCCL takes it */
    size_t bytes;   /* of that */
    int root;
    gpu_ptr in, out; /* room for count times ranks */
    unsigned char *host, *wanted;
    size_t room;
};

static int enqueue(struct collective *c, const char *name)
{
    const struct nccl_api *n = &c->worker->nccl;
    const void *in = (const void *)(uintptr_t)c->in;
    void *out = (void *)(uintptr_t)c->out;
    int type = (int)c->payload.type, op = (int)c->payload.op;
    int nranks = (int)c->worker->nranks, rank = (int)c->worker->rank;
    gpu_stream stream = c->worker->stream[0];
    if (!strcmp(name, "allgather"))
        return n->AllGather(in, out, c->count, type, c->comm, stream);
    if (!strcmp(name, "reducescatter"))
        return n->ReduceScatter(in, out, c->count, type, op, c->comm, stream);
    if (!strcmp(name, "reduce"))
        return n->Reduce(in, out, c->count, type, op, c->root, c->comm, stream);
    if (!strcmp(name, "broadcast"))
        return n->Broadcast(in, out, c->count, type, c->root, c->comm, stream);
    if (!strcmp(name, "bcast"))
        return n->Bcast((void *)(uintptr_t)c->in, c->count, type, c->root, c->comm,
                        stream);
    if (!strcmp(name, "ring")) {
        n->GroupStart();
        int error = n->Send(in, c->count, type, (rank + 1) % nranks, c->comm, stream);
        if (!error)
            error = n->Recv(out, c->count, type, (rank + nranks - 1) % nranks, c->comm,
                            stream);
        int end = n->GroupEnd();
        return error ? error : end;
    }
    return -1;
}

/* Whether the output, as downloaded to host, is what the collective promises here. */
static int right(struct collective *c, const char *name)
{
    unsigned nranks = c->worker->nranks, rank = c->worker->rank;
    struct ips_mismatch first;
    if (!strcmp(name, "reducescatter"))
        return !ips_payload_check(&c->payload, rank * c->count, c->count, c->host,
                                  &first);
    if (!strcmp(name, "reduce"))
        return (int)rank != c->root ||
               !ips_payload_check(&c->payload, 0, c->count, c->host, &first);
    if (!strcmp(name, "allgather")) {
        for (unsigned r = 0; r < nranks; r++)
            ips_payload_fill(&c->payload, r, c->count, c->wanted + r * c->bytes);
        return !memcmp(c->host, c->wanted, nranks * c->bytes);
    }
    unsigned from =
        !strcmp(name, "ring") ? (rank + nranks - 1) % nranks : (unsigned)c->root;
    ips_payload_fill(&c->payload, from, c->count, c->wanted);
    return !memcmp(c->host, c->wanted, c->bytes);
}

static int run(struct collective *c, const char *name)
{
    struct worker *worker = c->worker;
    gpu_stream stream = worker->stream[0];
    gpu_ptr output = strcmp(name, "bcast") ? c->out : c->in;
    ips_payload_fill(&c->payload, worker->rank, c->count * worker->nranks, c->host);
    if (device_upload(&worker->device, c->in, c->host, c->room, stream) ||
        device_fill(&worker->device, c->out, 0xa5, c->room, stream) ||
        fleet_barrier(&worker->page->sync))
        return -1;
    int code = enqueue(c, name);
    if (!worker_check(worker, !code, "%s: code %d", name, code))
        return -1;
    if (device_wait(&worker->device, stream, worker->timeout_s) ||
        device_download(&worker->device, c->host, output, c->room, stream))
        return -1;
    worker_check(worker, right(c, name), "%s count %llu: wrong result", name,
                 (unsigned long long)c->count);
    return fleet_barrier(&worker->page->sync);
}

int worker_collective(struct worker *worker, const struct words *words)
{
    struct collective c = {.worker = worker,
                           .payload = {.seed = ips_mix(worker->line),
                                       .nranks = worker->nranks,
                                       .type = (enum ips_type)words_type(words),
                                       .op = (enum ips_op)words_op(words)},
                           .comm = words_comm(words, worker),
                           .count = (uint64_t)words_number(words, "count", 1),
                           .root = (int)words_number(words, "root", 0)};
    c.bytes = c.count * ips_type_bytes(c.payload.type);
    c.room = c.bytes * worker->nranks;
    c.host = malloc(c.room + 1);
    c.wanted = malloc(c.room + 1);
    int error = !c.host || !c.wanted || words->count < 2 ||
                device_alloc(&worker->device, c.room, &c.in) ||
                device_alloc(&worker->device, c.room, &c.out) || run(&c, words->word[1]);
    if (error)
        return error;
    device_free(&worker->device, c.in);
    device_free(&worker->device, c.out);
    free(c.host);
    free(c.wanted);
    return error;
}

/* AllReduce, AllGather of its result, AllReduce of that: each on another stream, and only
 * the issue order on the communicator makes one wait for the other.
 *   chain count=N [comm=L]        (int32) */
struct chain {
    struct worker *worker;
    nccl_comm comm;
    size_t count, bytes, room; /* elements and bytes of one rank's part; of all parts */
    gpu_ptr part, sum, all, end;
    int32_t *host;
};

static int enqueue_chain(const struct chain *c)
{
    const struct nccl_api *n = &c->worker->nccl;
    const gpu_stream *stream = c->worker->stream;
    size_t all = c->count * c->worker->nranks;
    int code = n->AllReduce((void *)(uintptr_t)c->part, (void *)(uintptr_t)c->sum,
                            c->count, IPS_INT32, IPS_SUM, c->comm, stream[1]);
    if (!code)
        code = n->AllGather((void *)(uintptr_t)c->sum, (void *)(uintptr_t)c->all,
                            c->count, IPS_INT32, c->comm, stream[2]);
    if (!code)
        code = n->AllReduce((void *)(uintptr_t)c->all, (void *)(uintptr_t)c->end, all,
                            IPS_INT32, IPS_SUM, c->comm, stream[0]);
    return code;
}

/* Rank r's element i is r + i: the end is nranks times the sum of all ranks'. */
static unsigned chain_errors(const struct chain *c)
{
    unsigned n = c->worker->nranks, wrong = 0;
    for (size_t i = 0; i < c->count * n; i++) {
        size_t sum = n * (i % c->count) + n * (n - 1) / 2;
        wrong += c->host[i] != (int32_t)(n * sum);
    }
    return wrong;
}

static int run_chain(struct chain *c)
{
    struct worker *worker = c->worker;
    struct device *device = &worker->device;
    for (size_t i = 0; i < c->count; i++)
        c->host[i] = (int32_t)(worker->rank + i);
    if (device_upload(device, c->part, c->host, c->bytes, worker->stream[0]) ||
        device_fill(device, c->sum, 0xa5, c->bytes, worker->stream[0]) ||
        device_fill(device, c->all, 0xa5, c->room, worker->stream[0]) ||
        fleet_barrier(&worker->page->sync))
        return -1;
    int code = enqueue_chain(c);
    if (!worker_check(worker, !code, "chain: code %d", code))
        return -1;
    for (unsigned i = 0; i < WORKER_STREAMS; i++)
        if (device_wait(device, worker->stream[i], worker->timeout_s))
            return -1;
    if (device_download(device, c->host, c->end, c->room, worker->stream[0]))
        return -1;
    unsigned wrong = chain_errors(c);
    worker_check(worker, !wrong, "chain: %u wrong", wrong);
    return fleet_barrier(&worker->page->sync);
}

int worker_chain(struct worker *worker, const struct words *words)
{
    struct chain c = {.worker = worker,
                      .comm = words_comm(words, worker),
                      .count = (size_t)words_number(words, "count", 1)};
    c.bytes = c.count * 4;
    c.room = c.bytes * worker->nranks;
    c.host = malloc(c.room + 1);
    int error = !c.host || device_alloc(&worker->device, c.bytes, &c.part) ||
                device_alloc(&worker->device, c.bytes, &c.sum) ||
                device_alloc(&worker->device, c.room, &c.all) ||
                device_alloc(&worker->device, c.room, &c.end) || run_chain(&c);
    if (error)
        return error;
    device_free(&worker->device, c.part);
    device_free(&worker->device, c.sum);
    device_free(&worker->device, c.all);
    device_free(&worker->device, c.end);
    free(c.host);
    return error;
}

struct bad_call {
    const char *what;
    int null_comm, null_in, null_out, type, op;
    size_t count;
};

/* The same bad call through the shim and straight into NCCL. */
int worker_invalid(struct worker *worker, const struct words *words)
{
    static const struct bad_call calls[] = {
        {"no communicator", 1, 0, 0, IPS_FLOAT32, IPS_SUM, 4},
        {"no input", 0, 1, 0, IPS_FLOAT32, IPS_SUM, 4},
        {"no output", 0, 0, 1, IPS_FLOAT32, IPS_SUM, 4},
        {"type 99", 0, 0, 0, 99, IPS_SUM, 4},
        {"type -1", 0, 0, 0, -1, IPS_SUM, 4},
        {"operation -1", 0, 0, 0, IPS_FLOAT32, -1, 4},
        {"operation 77", 0, 0, 0, IPS_FLOAT32, 77, 4},
    };
    struct nccl_api real;
    const char *error = NULL;
    void *handle = nccl_real_open(&error);
    gpu_ptr buffer;
    if (!handle || nccl_api_load(handle, &real) ||
        device_alloc(&worker->device, 4096, &buffer))
        return -1;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const struct bad_call *c = &calls[i];
        nccl_comm comm = c->null_comm ? NULL : words_comm(words, worker);
        void *in = c->null_in ? NULL : (void *)(uintptr_t)buffer;
        void *out = c->null_out ? NULL : (void *)(uintptr_t)(buffer + 2048);
        gpu_stream stream = worker->stream[0];
        int wanted = real.AllReduce(in, out, c->count, c->type, c->op, comm, stream);
        int got = worker->nccl.AllReduce(in, out, c->count, c->type, c->op, comm, stream);
        worker_check(worker, wanted != 0, "%s: NCCL itself accepts it", c->what);
        worker_check(worker, got == wanted, "%s: code %d, NCCL says %d", c->what, got,
                     wanted);
    }
    int wanted = real.CommInitRank(NULL, 2, worker->page->id, 0);
    int got = worker->nccl.CommInitRank(NULL, 2, worker->page->id, 0);
    worker_check(worker, wanted && got == wanted, "init into NULL: code %d, NCCL says %d",
                 got, wanted);
    nccl_comm comm = NULL;
    wanted = real.CommInitRank(&comm, 2, worker->page->id, 7);
    got = worker->nccl.CommInitRank(&comm, 2, worker->page->id, 7);
    worker_check(worker, wanted && got == wanted, "rank 7 of 2: code %d, NCCL says %d",
                 got, wanted);
    wanted = real.GetUniqueId(NULL);
    got = worker->nccl.GetUniqueId(NULL);
    worker_check(worker, wanted && got == wanted, "id into NULL: code %d, NCCL says %d",
                 got, wanted);
    device_free(&worker->device, buffer);
    return fleet_barrier(&worker->page->sync);
}
