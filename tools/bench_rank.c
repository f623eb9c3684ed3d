/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a bench: runs every case of the page through whatever answers to
 * ncclAllReduce (the shim), checks each result on the host, and times it beside NCCL's
 * own. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench.h"
#include "tools/device.h"
#include "tools/tool.h"

#define GUARD_BYTES 256
#define POISON 0xa5

struct rank {
    struct bench_page *page;
    unsigned rank;
    struct device device;
    gpu_stream stream;
    struct nccl_api shim, real;
    nccl_comm comm, real_comm;
    gpu_ptr in_base, out_base; /* with room for the offset and the guards */
    unsigned char *host;       /* as large as one of them */
    size_t room;
};

/* One AllReduce, or several of them, as they are enqueued for one measurement. */
struct batch {
    struct rank *rank;
    const struct nccl_api *api;
    nccl_comm comm;
    const struct bench_case *c;
    gpu_ptr in, out;
    unsigned calls;
};

static int nccl_check(const struct nccl_api *api, int error, const char *what)
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
        if (nccl_check(b->api, error, "ncclAllReduce"))
            return -1;
    }
    return 0;
}

static int finish(struct rank *r)
{
    return device_wait(&r->device, r->stream, r->page->options.wait_seconds);
}

/* Runs the batch once: eagerly, or from a graph when there is one. */
static int launch(struct batch *b, gpu_graph_exec graph)
{
    struct rank *r = b->rank;
    if (graph ? r->device.cuGraphLaunch(graph, r->stream) != GPU_SUCCESS : enqueue(b))
        return -1;
    return finish(r);
}

static struct batch make_batch(struct rank *r, unsigned index, int real, unsigned calls)
{
    const struct bench_case *c = &r->page->cases[index];
    gpu_ptr offset =
        GUARD_BYTES + r->page->options.offset_elems * ips_type_bytes(c->type);
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
static uint64_t damaged(const struct rank *r, const unsigned char *output, size_t bytes)
{
    uint64_t count = 0;
    for (const unsigned char *at = r->host; at < output; at++)
        count += *at != POISON;
    for (size_t i = 0; i < GUARD_BYTES; i++)
        count += output[bytes + i] != POISON;
    return count;
}

static int check_once(struct batch *b, unsigned index, unsigned check,
                      gpu_graph_exec graph)
{
    struct rank *r = b->rank;
    struct bench_result *result = bench_result(r->page, index, r->rank);
    struct ips_payload payload = bench_payload(r->page, index, check);
    size_t bytes = b->c->count * ips_type_bytes(b->c->type);
    size_t span = (size_t)(b->in - r->in_base) + bytes + GUARD_BYTES;
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
    uint64_t wrong = ips_payload_check(&payload, 0, b->c->count, at, &first);
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
    if (!b->rank->page->options.graph)
        return 0;
    return device_capture(&b->rank->device, b->rank->stream, enqueue, b, ret);
}

static void drop(struct rank *r, gpu_graph_exec graph)
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

/* Engine and NCCL take turns, so that a drift of the machine meets both. */
static int time_case(struct rank *r, unsigned index)
{
    const struct bench_options *options = &r->page->options;
    struct bench_result *result = bench_result(r->page, index, r->rank);
    struct batch sides[2] = {make_batch(r, index, 0, options->iters),
                             make_batch(r, index, 1, options->iters)};
    gpu_graph_exec graphs[2] = {NULL, NULL};
    unsigned nsides = options->beside ? 2 : 1;
    int error = 0;
    for (unsigned side = 0; side < nsides && !error; side++) {
        struct batch warm = sides[side];
        warm.calls = options->warmup;
        error = capture(&sides[side], &graphs[side]) || launch(&warm, NULL);
        if (!error && graphs[side])
            error = launch(&sides[side], graphs[side]);
    }
    for (unsigned s = 0; s < options->samples && !error; s++)
        for (unsigned side = 0; side < nsides && !error; side++)
            error = time_once(&sides[side], graphs[side],
                              side ? &result->nccl_us[s] : &result->engine_us[s]);
    for (unsigned side = 0; side < nsides; side++)
        drop(r, graphs[side]);
    return error ? -1 : 0;
}

/* Checked with one payload before the timing, and with others after it: eagerly, or as
 * replays of one graph. */
static int run_case(struct rank *r, unsigned index)
{
    struct batch one = make_batch(r, index, 0, 1);
    gpu_graph_exec graph = NULL;
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

static int open_nccl(struct rank *r)
{
    const char *error = nccl_api_load(RTLD_DEFAULT, &r->shim);
    if (error) {
        tool_fail("libipcshim.so is not preloaded: no %s in the process", error);
        return -1;
    }
    if (!r->page->options.beside)
        return 0;
    void *handle = nccl_real_open(&error);
    if (!handle || (error = nccl_api_load(handle, &r->real)) != NULL) {
        tool_fail("NCCL to compare with: %s: set IPCSHIM_NCCL_LIB or LD_LIBRARY_PATH, or "
                  "give --no-nccl",
                  error);
        return -1;
    }
    return 0;
}

static int make_comms(struct rank *r)
{
    struct bench_page *page = r->page;
    int error = 0;
    if (r->rank == 0) {
        error =
            nccl_check(&r->shim, r->shim.GetUniqueId(&page->id[0]), "ncclGetUniqueId");
        if (!error && page->options.beside)
            error = nccl_check(&r->real, r->real.GetUniqueId(&page->id[1]),
                               "ncclGetUniqueId (NCCL beside)");
    }
    if (error || fleet_barrier(&page->sync))
        return -1;
    int nranks = (int)page->sync.nranks, rank = (int)r->rank;
    error =
        nccl_check(&r->shim, r->shim.CommInitRank(&r->comm, nranks, page->id[0], rank),
                   "ncclCommInitRank");
    if (!error && page->options.beside)
        error = nccl_check(&r->real,
                           r->real.CommInitRank(&r->real_comm, nranks, page->id[1], rank),
                           "ncclCommInitRank (NCCL beside)");
    return error;
}

static int make_buffers(struct rank *r)
{
    for (unsigned i = 0; i < r->page->ncases; i++) {
        const struct bench_case *c = &r->page->cases[i];
        size_t bytes =
            (c->count + r->page->options.offset_elems) * ips_type_bytes(c->type);
        if (bytes > r->room)
            r->room = bytes;
    }
    r->room += 2 * GUARD_BYTES;
    r->host = malloc(r->room);
    if (!r->host) {
        tool_fail("no memory for %zu bytes on the host", r->room);
        return -1;
    }
    if (device_stream(&r->device, &r->stream) ||
        device_alloc(&r->device, r->room, &r->in_base))
        return -1;
    return r->page->options.in_place ? 0
                                     : device_alloc(&r->device, r->room, &r->out_base);
}

static void close_rank(struct rank *r)
{
    if (r->comm)
        r->shim.CommDestroy(r->comm);
    if (r->real_comm)
        r->real.CommDestroy(r->real_comm);
    device_free(&r->device, r->in_base);
    device_free(&r->device, r->out_base);
    if (r->stream)
        r->device.gpu->cuStreamDestroy(r->stream);
    device_close(&r->device);
    free(r->host);
}

/* What this process prints at its end, its summary, belongs after the table. */
static void wait_for_report(const struct bench_page *page)
{
    for (unsigned ms = 0; ms < 2000; ms++) {
        if (__atomic_load_n(&page->reported, __ATOMIC_ACQUIRE) == page->ncases)
            return;
        usleep(1000);
    }
}

/* Arguments: the descriptor and the size of the page. RANK names the rank. */
int cmd_bench_rank(int argc, char **argv)
{
    uint64_t fd, bytes, rank;
    if (argc != 3 || tool_parse_number(argv[1], 0, 1 << 20, &fd) ||
        tool_parse_number(argv[2], 1, SIZE_MAX, &bytes) || !getenv("RANK") ||
        tool_parse_number(getenv("RANK"), 0, IPS_MAX_RANKS - 1, &rank))
        return tool_fail("bench-rank is started by ipcshim bench only");
    struct rank r = {.page = fleet_attach((int)fd, bytes), .rank = (unsigned)rank};
    if (!r.page)
        return tool_fail("cannot map the bench's page");
    int error = open_nccl(&r) || device_open(&r.device, r.rank) || make_buffers(&r) ||
                make_comms(&r);
    for (unsigned i = 0; i < r.page->ncases && !error; i++)
        error = run_case(&r, i) || fleet_barrier(&r.page->sync);
    if (error) /* peers may be gone, and a kernel hang: nothing may wait for them */
        _exit(TOOL_FAILED);
    close_rank(&r);
    wait_for_report(r.page);
    return 0;
}
