/* SPDX-License-Identifier: Apache-2.0 */
/* One case of a bench, in one rank: the AllReduce goes through whatever answers to
 * ncclAllReduce (the shim), each result is checked on the host, and it is timed beside
 * NCCL's own. */
#include <string.h>
#include <time.h>

#include "tools/bench_rank.h"
#include "tools/tool.h"

#define POISON 0xa5
#define WINDOWS 16 /* of a result of which a part is compared */

/* One AllReduce, or several of them, as they are enqueued for one measurement. */
struct batch {
    struct bench_rank *rank;
    const struct nccl_api *api;
    nccl_comm comm;
    const struct bench_case *c;
    gpu_ptr in, out;
    unsigned calls;
};

int bench_nccl_check(const struct nccl_api *api, int error, const char *what)
{
    if (!error)
        return 0;
    tool_fail("%s: %s", what, api->GetErrorString(error));
    return -1;
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int enqueue(void *arg)
{
    struct batch *b = arg;
    for (unsigned i = 0; i < b->calls; i++) {
        int error = b->api->AllReduce((const void *)(uintptr_t)b->in,
                                      (void *)(uintptr_t)b->out, b->c->count, b->c->type,
                                      b->c->op, b->comm, b->rank->stream);
        if (bench_nccl_check(b->api, error, "ncclAllReduce"))
            return -1;
    }
    return 0;
}

static int finish(struct bench_rank *r)
{
    return device_wait(&r->device, r->stream, r->page->options.wait_seconds);
}

/* Runs the batch once: eagerly, or from a graph when there is one. */
static int launch(struct batch *b, gpu_graph_exec graph)
{
    struct bench_rank *r = b->rank;
    if (graph ? r->device.cuGraphLaunch(graph, r->stream) != GPU_SUCCESS : enqueue(b))
        return -1;
    return finish(r);
}

static struct batch make_batch(struct bench_rank *r, unsigned index, int real,
                               unsigned calls)
{
    const struct bench_case *c = &r->page->cases[index];
    gpu_ptr offset =
        BENCH_GUARD_BYTES + r->page->options.offset_elems * ips_type_bytes(c->type);
    struct batch b = {.rank = r,
                      .api = real ? &r->real : &r->shim,
                      .comm = real ? r->real_comm : r->comm,
                      .c = c,
                      .in = r->in_base + offset,
                      .out =
                          (r->page->options.in_place ? r->in_base : r->out_base) + offset,
                      .calls = calls};
    return b;
}

/* Bytes around the output that no longer hold what was there before. */
static uint64_t damaged(const struct bench_rank *r, const unsigned char *output,
                        size_t bytes)
{
    uint64_t count = 0;
    for (const unsigned char *at = r->host; at < output; at++)
        count += *at != POISON;
    for (size_t i = 0; i < BENCH_GUARD_BYTES; i++)
        count += output[bytes + i] != POISON;
    return count;
}

/* Compares the whole result, or windows that are spread over it: the reference takes the
 * host far longer than the GPU takes for the AllReduce. */
static uint64_t compare(const struct bench_rank *r, const struct ips_payload *payload,
                        uint64_t count, const unsigned char *at,
                        struct ips_mismatch *ret_first)
{
    uint64_t most = r->page->options.check_elems, wrong = 0;
    if (!most || count <= most)
        return ips_payload_check(payload, 0, count, at, ret_first);
    for (unsigned i = 0; i < WINDOWS; i++) {
        uint64_t length = most / WINDOWS;
        uint64_t start = (count - length) / (WINDOWS - 1) * i;
        if (i == WINDOWS - 1)
            start = count - length;
        struct ips_mismatch first;
        uint64_t more = ips_payload_check(
            payload, start, length, at + start * ips_type_bytes(payload->type), &first);
        if (more && !wrong)
            *ret_first = first;
        wrong += more;
    }
    return wrong;
}

static int check_once(struct batch *b, unsigned index, unsigned check,
                      gpu_graph_exec graph)
{
    struct bench_rank *r = b->rank;
    struct bench_result *result = bench_result(r->page, index, r->rank);
    struct ips_payload payload = bench_payload(r->page, index, check);
    size_t bytes = b->c->count * ips_type_bytes(b->c->type);
    size_t span = (size_t)(b->in - r->in_base) + bytes + BENCH_GUARD_BYTES;
    gpu_ptr out_base = b->out == b->in ? r->in_base : r->out_base;
    unsigned char *at = r->host + (b->in - r->in_base);

    memset(r->host, POISON, span);
    if (device_upload(&r->device, out_base, r->host, span, r->stream))
        return -1;
    ips_payload_fill(&payload, r->rank, b->c->count, at);
    if (device_upload(&r->device, b->in, at, bytes, r->stream) ||
        fleet_barrier(&r->page->sync) || launch(b, graph) ||
        device_download(&r->device, r->host, out_base, span, r->stream))
        return -1;

    struct ips_mismatch first;
    uint64_t wrong = compare(r, &payload, b->c->count, at, &first);
    if (wrong && !result->wrong) {
        result->first = first;
        result->wrong_check = check;
    }
    result->wrong += wrong + damaged(r, at, bytes);
    result->hash[check] = ips_hash(at, bytes);
    return 0;
}

static int capture(struct batch *b, gpu_graph_exec *ret)
{
    *ret = NULL;
    if (!b->c->graph)
        return 0;
    return device_capture(&b->rank->device, b->rank->stream, enqueue, b, ret);
}

static void drop(struct bench_rank *r, gpu_graph_exec graph)
{
    if (graph)
        r->device.cuGraphExecDestroy(graph);
}

static int time_once(struct batch *b, gpu_graph_exec graph, double *ret_us)
{
    if (fleet_barrier(&b->rank->page->sync))
        return -1;
    double start = now_us();
    if (launch(b, graph))
        return -1;
    *ret_us = (now_us() - start) / b->calls;
    return 0;
}

/* Both sides as they are timed. */
struct pair {
    struct batch side[2]; /* through the shim, and NCCL's own */
    gpu_graph_exec graph[2];
    unsigned nsides;
};

static int warm_up(struct bench_rank *r, struct pair *pair)
{
    int error = 0;
    for (unsigned i = 0; i < pair->nsides && !error; i++) {
        struct batch warm = pair->side[i];
        warm.calls = r->page->options.warmup;
        error = launch(&warm, NULL);
    }
    return error;
}

/* All ranks time one call of each side, and take the pace that suits the slowest. */
static int agree_pace(struct bench_rank *r, unsigned index, struct pair *pair)
{
    const struct bench_options *o = &r->page->options;
    struct bench_result *own = bench_result(r->page, index, r->rank);
    own->pace = (struct bench_pace){o->iters, o->samples};
    if (!o->case_us)
        return 0;
    for (unsigned i = 0; i < pair->nsides; i++) {
        struct batch one = pair->side[i];
        double us;
        one.calls = 1;
        if (time_once(&one, NULL, &us))
            return -1;
        own->call_us = us > own->call_us ? us : own->call_us;
    }
    if (fleet_barrier(&r->page->sync))
        return -1;
    double slowest = 0;
    for (unsigned rank = 0; rank < r->page->sync.nranks; rank++) {
        double us = bench_result(r->page, index, rank)->call_us;
        slowest = us > slowest ? us : slowest;
    }
    own->pace = bench_pace_of(o->case_us, slowest, own->pace);
    return 0;
}

/* Tells the parent how many calls of the case it will find in the trace. */
static void announce_calls(struct bench_rank *r, unsigned index)
{
    const struct bench_options *o = &r->page->options;
    struct bench_result *result = bench_result(r->page, index, r->rank);
    const struct bench_pace *pace = &result->pace;
    unsigned graph = r->page->cases[index].graph, timed = 0;
    if (o->samples)
        timed = o->warmup + (o->case_us != 0) + pace->iters * (graph ? 1 : pace->samples);
    __atomic_store_n(&result->calls, timed + (graph ? 2 : BENCH_CHECKS),
                     __ATOMIC_RELEASE);
}

static int capture_sides(struct pair *pair, unsigned calls)
{
    int error = 0;
    for (unsigned i = 0; i < pair->nsides && !error; i++) {
        pair->side[i].calls = calls;
        error = capture(&pair->side[i], &pair->graph[i]);
        if (!error && pair->graph[i])
            error = launch(&pair->side[i], pair->graph[i]);
    }
    return error;
}

/* Engine and NCCL take turns, so that a drift of the machine meets both, and change who
 * begins, so that being second favours neither. */
static int take_samples(struct bench_result *result, struct pair *pair)
{
    int error = 0;
    for (unsigned s = 0; s < result->pace.samples && !error; s++)
        for (unsigned turn = 0; turn < pair->nsides && !error; turn++) {
            unsigned side = pair->nsides == 2 ? (turn + s) % 2 : 0;
            error = time_once(&pair->side[side], pair->graph[side],
                              side ? &result->nccl_us[s] : &result->engine_us[s]);
        }
    return error;
}

static int time_case(struct bench_rank *r, unsigned index)
{
    struct bench_result *result = bench_result(r->page, index, r->rank);
    struct pair pair = {.side = {make_batch(r, index, 0, 1), make_batch(r, index, 1, 1)},
                        .nsides = r->page->options.beside ? 2 : 1};
    int error = warm_up(r, &pair) || agree_pace(r, index, &pair);
    if (!error) {
        announce_calls(r, index);
        error = capture_sides(&pair, result->pace.iters) || take_samples(result, &pair);
    }
    for (unsigned side = 0; side < pair.nsides; side++)
        drop(r, pair.graph[side]);
    return error ? -1 : 0;
}

/* Checked with one payload before the timing, and with others after it: eagerly, or as
 * replays of one graph. */
int bench_run_case(struct bench_rank *r, unsigned index)
{
    struct batch one = make_batch(r, index, 0, 1);
    gpu_graph_exec graph = NULL;
    if (!r->page->options.samples)
        announce_calls(r, index);
    int error = check_once(&one, index, 0, NULL);
    if (!error && r->page->options.samples)
        error = time_case(r, index);
    if (!error)
        error = capture(&one, &graph);
    for (unsigned check = 1; check < BENCH_CHECKS && !error; check++)
        error = check_once(&one, index, check, graph);
    drop(r, graph);
    if (!error)
        __atomic_store_n(&r->page->done[r->rank], index + 1, __ATOMIC_RELEASE);
    return error;
}
