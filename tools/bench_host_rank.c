/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of `ipcshim bench --host`: times how long a call keeps the calling thread, in
 * the real library and through the shim by turns. The shim is loaded by its path and not
 * preloaded, so that the real library is met without it. */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench_host.h"
#include "tools/device.h"
#include "tools/place.h"
#include "tools/tool.h"

#define CAPTURE_MODE_THREAD_LOCAL 1

struct side {
    struct nccl_api api;
    nccl_comm comm;
};

struct rank {
    struct host_page *page;
    unsigned rank;
    struct device device;
    gpu_stream stream;
    gpu_ptr in, out;
    struct side shim, real;
};

static int nccl_check(const struct side *side, int error, const char *what)
{
    if (!error)
        return 0;
    tool_fail("%s: %s", what, side->api.GetErrorString(error));
    return -1;
}

/* On the stand-in the GPU is threads, which keep this one off the cores: there only the
 * time counts in which it ran. */
static double now_ns(const struct rank *r)
{
    struct timespec now;
    clock_gettime(r->page->options.simulated ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                  &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int enqueue(struct rank *r, const struct side *side, const struct host_row *row,
                   unsigned calls)
{
    const void *in = (const void *)(uintptr_t)r->in;
    void *out = (void *)(uintptr_t)r->out;
    int error = row->how == HOST_GROUP ? side->api.GroupStart() : 0;
    for (unsigned i = 0; i < calls && !error; i++)
        error = row->broadcast ? side->api.Broadcast(in, out, HOST_ELEMS, IPS_FLOAT32, 0,
                                                     side->comm, r->stream)
                               : side->api.AllReduce(in, out, HOST_ELEMS, IPS_FLOAT32,
                                                     IPS_SUM, side->comm, r->stream);
    if (row->how == HOST_GROUP && !error)
        error = side->api.GroupEnd();
    return error;
}

/* The calls only; not the capture around them, whose graph is never launched. */
static int time_batch(struct rank *r, const struct side *side, const struct host_row *row,
                      unsigned calls, double *ret_ns)
{
    gpu_graph graph = NULL;
    const int captured = row->how == HOST_CAPTURED;
    if (fleet_barrier(&r->page->sync) ||
        (captured &&
         r->device.cuStreamBeginCapture(r->stream, CAPTURE_MODE_THREAD_LOCAL)))
        return -1;
    const double start = now_ns(r);
    int error = enqueue(r, side, row, calls);
    *ret_ns = (now_ns(r) - start) / calls;
    if (captured && (r->device.cuStreamEndCapture(r->stream, &graph) ||
                     r->device.cuGraphDestroy(graph)))
        return -1;
    if (nccl_check(side, error, row->broadcast ? "ncclBroadcast" : "ncclAllReduce"))
        return -1;
    return device_wait(&r->device, r->stream, r->page->options.wait_seconds);
}

/* Which side comes first takes turns as well. */
static int time_row(struct rank *r, unsigned index)
{
    const struct host_options *o = &r->page->options;
    const struct host_row *row = &host_rows[r->page->first + index];
    struct host_result *result = &r->page->result[index];
    double ns[2], ignored;
    if (time_batch(r, &r->real, row, o->calls, &ignored) ||
        time_batch(r, &r->shim, row, o->calls, &ignored))
        return -1;
    for (unsigned s = 0; s < o->samples; s++) {
        for (unsigned i = 0; i < 2; i++) {
            const unsigned side = (s + i) % 2;
            if (time_batch(r, side ? &r->shim : &r->real, row, o->calls, &ns[side]))
                return -1;
        }
        if (r->rank == 0) {
            result->direct_ns[s] = ns[0];
            result->shim_ns[s] = ns[1];
        }
    }
    return 0;
}

static int open_side(struct side *side, void *handle, const char *error)
{
    if (handle && !(error = nccl_api_load(handle, &side->api)))
        return 0;
    tool_fail("NCCL is not there: %s: set IPCSHIM_NCCL_LIB or LD_LIBRARY_PATH", error);
    return -1;
}

static int open_sides(struct rank *r)
{
    const char *error = NULL;
    const char *path = place_shim();
    if (!path || open_side(&r->real, nccl_real_open(&error), error))
        return -1;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return open_side(&r->shim, handle, handle ? NULL : dlerror());
}

static int make_comms(struct rank *r)
{
    struct side *sides[2] = {&r->shim, &r->real};
    struct host_page *page = r->page;
    for (unsigned i = 0; i < 2 && r->rank == 0; i++)
        if (nccl_check(sides[i], sides[i]->api.GetUniqueId(&page->id[i]),
                       "ncclGetUniqueId"))
            return -1;
    if (fleet_barrier(&page->sync))
        return -1;
    for (unsigned i = 0; i < 2; i++) {
        int error = sides[i]->api.CommInitRank(&sides[i]->comm, (int)page->options.ranks,
                                               page->id[i], (int)r->rank);
        if (nccl_check(sides[i], error, "ncclCommInitRank"))
            return -1;
    }
    return 0;
}

static int make_buffers(struct rank *r)
{
    const size_t bytes = HOST_ELEMS * sizeof(float);
    return device_stream(&r->device, &r->stream) ||
           device_alloc(&r->device, bytes, &r->in) ||
           device_alloc(&r->device, bytes, &r->out) ||
           device_fill(&r->device, r->in, 0, bytes, r->stream);
}

static int run_rows(struct rank *r)
{
    double ignored;
    for (unsigned i = 0; i < r->page->count; i++) {
        const struct host_row *row = &host_rows[r->page->first + i];
        int error =
            r->page->probe ? time_batch(r, &r->shim, row, 1, &ignored) : time_row(r, i);
        if (error)
            return error;
    }
    return fleet_barrier(&r->page->sync);
}

static void close_rank(struct rank *r)
{
    r->shim.api.CommDestroy(r->shim.comm);
    r->real.api.CommDestroy(r->real.comm);
    device_free(&r->device, r->in);
    device_free(&r->device, r->out);
    r->device.gpu->cuStreamDestroy(r->stream);
    device_close(&r->device);
}

/* Argument: the descriptor of the page. RANK names the rank. */
int cmd_bench_host_rank(int argc, char **argv)
{
    uint64_t fd, rank;
    if (argc != 2 || tool_parse_number(argv[1], 0, 1 << 20, &fd) || !getenv("RANK") ||
        tool_parse_number(getenv("RANK"), 0, IPS_MAX_RANKS - 1, &rank))
        return tool_fail("bench-host-rank is started by ipcshim bench --host only");
    struct rank r = {.page = fleet_attach((int)fd, sizeof *r.page),
                     .rank = (unsigned)rank};
    if (!r.page)
        return tool_fail("cannot map the bench's page");
    if (open_sides(&r) || device_open(&r.device, r.rank) || make_buffers(&r) ||
        make_comms(&r) || run_rows(&r))
        _exit(TOOL_FAILED); /* peers may be gone: nothing may wait for them */
    close_rank(&r);
    return 0;
}
