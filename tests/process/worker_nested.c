/* SPDX-License-Identifier: Apache-2.0 */
/* Captured calls in a graph that is part of another graph, replayed between eager calls
 * on other streams. The calls are links of a ring of buffers: each reads what the one
 * before wrote, and nothing but the communicator's order makes it wait.
 *
 *   nested HOW [count=N] [piece=N] [rounds=R] [comm=L]
 *   added: two graphs, the one after the other, added to an empty one. alone: a graph
 *   added to a capture that has nothing else. between: likewise, with calls before and
 *   after it. deep: added to a captured graph, which is added to a capture.
 *   piece: every other link is several calls, of so many elements */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/policy.h"
#include "tests/process/worker.h"

#define LINKS 6

struct ring {
    struct worker *worker;
    nccl_comm comm;
    size_t count, piece;
    unsigned rounds;
    gpu_ptr buffer[LINKS];
    int32_t *host;
    int (*create)(gpu_graph *graph, unsigned flags);
    int (*add_child)(gpu_node *node, gpu_graph graph, const gpu_node *dependencies,
                     size_t count, gpu_graph child);
    int (*host_function)(gpu_stream stream, void (*fn)(void *), void *data);
};

static int load(struct ring *r)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (!handle)
        return -1;
    *(void **)&r->create = dlsym(handle, "cuGraphCreate");
    *(void **)&r->add_child = dlsym(handle, "cuGraphAddChildGraphNode");
    *(void **)&r->host_function = dlsym(handle, "cuLaunchHostFunc");
    return r->create && r->add_child && r->host_function ? 0 : -1;
}

static void slow(void *data)
{
    (void)data;
    usleep(10000);
}

/* The first link sums; the others hand the sum on: by the minimum, so that it shows when
 * one rank's input was an older one. */
static int enqueue(struct ring *r, unsigned link, gpu_stream stream)
{
    size_t piece = link % 2 ? r->piece : r->count;
    int code = 0;
    for (size_t at = 0; at < r->count && !code; at += piece) {
        size_t count = r->count - at < piece ? r->count - at : piece;
        code = r->worker->nccl.AllReduce(
            (const void *)(uintptr_t)(r->buffer[link] + at * 4),
            (void *)(uintptr_t)(r->buffer[(link + 1) % LINKS] + at * 4), count, IPS_INT32,
            link ? IPS_MIN : IPS_SUM, r->comm, stream);
    }
    return code;
}

static int begin(struct ring *r, gpu_stream stream)
{
    return r->worker->device.cuStreamBeginCapture(stream, 1);
}

static int instantiate(struct ring *r, gpu_graph graph, gpu_graph_exec *ret)
{
    int error = r->worker->device.cuGraphInstantiate(ret, graph, 0);
    return error | r->worker->device.cuGraphDestroy(graph);
}

/* The links from..to-1, which start late. */
static int capture(struct ring *r, unsigned from, unsigned to, gpu_stream stream,
                   gpu_graph *ret)
{
    int code = begin(r, stream) | r->host_function(stream, slow, NULL);
    for (unsigned link = from; link < to; link++)
        code |= enqueue(r, link, stream);
    return code | r->worker->device.cuStreamEndCapture(stream, ret);
}

static int added(struct ring *r, gpu_graph_exec *ret)
{
    gpu_graph first = NULL, second = NULL, outer = NULL;
    gpu_node node[2];
    int code = capture(r, 1, 3, r->worker->stream[0], &first) |
               capture(r, 3, 5, r->worker->stream[2], &second) | r->create(&outer, 0);
    if (code)
        return code;
    code = r->add_child(&node[0], outer, NULL, 0, first) |
           r->add_child(&node[1], outer, &node[0], 1, second) |
           r->worker->device.cuGraphDestroy(first) |
           r->worker->device.cuGraphDestroy(second);
    return code | instantiate(r, outer, ret);
}

/* Puts the graph after what the stream's capture has. */
static int add_captured(struct ring *r, gpu_stream stream, gpu_graph child)
{
    const struct ips_gpu_api *gpu = r->worker->device.gpu;
    const gpu_node *after = NULL;
    gpu_graph graph = NULL;
    gpu_node node;
    uint64_t id;
    size_t count = 0;
    int status,
        code = gpu->cuStreamGetCaptureInfo(stream, &status, &id, &graph, &after, &count);
    code = code ? code : r->add_child(&node, graph, after, count, child);
    return code ? code : gpu->cuStreamUpdateCaptureDependencies(stream, &node, 1, 1);
}

/* The links from..to-1 of a graph of their own, amid a capture with the links around them. */
static int surround(struct ring *r, unsigned from, unsigned to, gpu_graph *ret)
{
    gpu_stream stream = r->worker->stream[2];
    gpu_graph inner = NULL;
    int code = capture(r, from, to, r->worker->stream[0], &inner);
    if (code)
        return code;
    code = begin(r, stream);
    for (unsigned link = 1; link < from; link++)
        code |= enqueue(r, link, stream);
    code |= add_captured(r, stream, inner);
    for (unsigned link = to; link < LINKS - 1; link++)
        code |= enqueue(r, link, stream);
    return code | r->worker->device.cuStreamEndCapture(stream, ret) |
           r->worker->device.cuGraphDestroy(inner);
}

static int alone(struct ring *r, gpu_graph_exec *ret)
{
    gpu_graph outer = NULL;
    int code = surround(r, 1, 5, &outer);
    return code ? code : instantiate(r, outer, ret);
}

static int between(struct ring *r, gpu_graph_exec *ret)
{
    gpu_graph outer = NULL;
    int code = surround(r, 2, 4, &outer);
    return code ? code : instantiate(r, outer, ret);
}

static int deep(struct ring *r, gpu_graph_exec *ret)
{
    gpu_stream last = r->worker->stream[1];
    gpu_graph middle = NULL, outer = NULL;
    int code = surround(r, 2, 4, &middle);
    if (code)
        return code;
    code = begin(r, last) | add_captured(r, last, middle) |
           r->worker->device.cuStreamEndCapture(last, &outer) |
           r->worker->device.cuGraphDestroy(middle);
    return code ? code : instantiate(r, outer, ret);
}

static int make_buffers(struct ring *r)
{
    struct device *device = &r->worker->device;
    gpu_stream stream = r->worker->stream[0];
    for (size_t i = 0; i < r->count; i++)
        r->host[i] = (int32_t)((r->worker->rank + 1) * (i + 7));
    for (unsigned i = 0; i < LINKS; i++)
        if (device_alloc(device, r->count * 4, &r->buffer[i]) ||
            device_fill(device, r->buffer[i], 0xa5, r->count * 4, stream))
            return -1;
    return device_upload(device, r->buffer[0], r->host, r->count * 4, stream);
}

/* No wait from the first to the last round, and one rank late in every one. */
static int run_rounds(struct ring *r, gpu_graph_exec exec)
{
    struct worker *worker = r->worker;
    int code = 0;
    for (unsigned round = 0; round < r->rounds; round++) {
        gpu_stream first = worker->stream[1], last = worker->stream[2];
        if (round % worker->nranks == worker->rank)
            code |= r->host_function(first, slow, NULL);
        code |= enqueue(r, 0, first);
        code |= worker->device.cuGraphLaunch(exec, worker->stream[0]);
        code |= enqueue(r, LINKS - 1, last);
    }
    return code;
}

/* All buffers hold the sum, times nranks for every round but the first. */
static int check(struct ring *r, const char *how)
{
    struct worker *worker = r->worker;
    unsigned n = worker->nranks;
    uint32_t factor = n * (n + 1) / 2;
    for (unsigned round = 1; round < r->rounds; round++)
        factor *= n;
    for (unsigned i = 0; i < LINKS; i++) {
        size_t wrong = 0;
        if (device_download(&worker->device, r->host, r->buffer[i], r->count * 4,
                            worker->stream[0]))
            return -1;
        for (size_t k = 0; k < r->count; k++)
            wrong += (uint32_t)r->host[k] != factor * (uint32_t)(k + 7);
        worker_check(worker, !wrong, "nested %s: %zu wrong in buffer %u", how, wrong, i);
    }
    return 0;
}

static int run(struct ring *r, const char *how)
{
    static const struct {
        const char *name;
        int (*make)(struct ring *r, gpu_graph_exec *ret);
    } kinds[] = {
        {"added", added}, {"alone", alone}, {"between", between}, {"deep", deep}};
    struct worker *worker = r->worker;
    gpu_graph_exec exec = NULL;
    int code = -1;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (!strcmp(kinds[k].name, how))
            code = kinds[k].make(r, &exec);
    if (!worker_check(worker, !code, "nested %s: code %d", how, code) ||
        fleet_barrier(&worker->page->sync))
        return -1;
    code = run_rounds(r, exec);
    if (!worker_check(worker, !code, "nested %s: replays: code %d", how, code))
        return -1;
    for (unsigned i = 0; i < WORKER_STREAMS; i++)
        if (device_wait(&worker->device, worker->stream[i], worker->timeout_s))
            return -1;
    if (check(r, how))
        return -1;
    code = worker->device.cuGraphExecDestroy(exec);
    worker_check(worker, !code, "nested %s: the graphs' end: code %d", how, code);
    return fleet_barrier(&worker->page->sync);
}

int worker_nested(struct worker *worker, const struct words *words)
{
    struct ring r = {.worker = worker,
                     .comm = words_comm(words, worker),
                     .count = (size_t)words_number(words, "count", 1000),
                     .rounds = (unsigned)words_number(words, "rounds", 5)};
    r.piece = (size_t)words_number(words, "piece", (long)r.count);
    r.host = malloc(r.count * 4);
    if (words->count < 2 || !r.host || load(&r) || make_buffers(&r) ||
        run(&r, words->word[1]))
        return -1; /* a call may hang: what waits for it must not be called */
    for (unsigned i = 0; i < LINKS; i++)
        device_free(&worker->device, r.buffer[i]);
    free(r.host);
    return 0;
}
