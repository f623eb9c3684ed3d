/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a bench: sets up what its cases need, communicators through the shim and
 * NCCL's own beside it, runs every case of the page, and takes it down again. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/bench_rank.h"
#include "tools/tool.h"

static int open_nccl(struct bench_rank *r)
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

static int make_comms(struct bench_rank *r)
{
    struct bench_page *page = r->page;
    int error = 0;
    if (r->rank == 0) {
        error = bench_nccl_check(&r->shim, r->shim.GetUniqueId(&page->id[0]),
                                 "ncclGetUniqueId");
        if (!error && page->options.beside)
            error = bench_nccl_check(&r->real, r->real.GetUniqueId(&page->id[1]),
                                     "ncclGetUniqueId (NCCL beside)");
    }
    if (error || fleet_barrier(&page->sync))
        return -1;
    int nranks = (int)page->sync.nranks, rank = (int)r->rank;
    error = bench_nccl_check(&r->shim,
                             r->shim.CommInitRank(&r->comm, nranks, page->id[0], rank),
                             "ncclCommInitRank");
    if (!error && page->options.beside)
        error = bench_nccl_check(
            &r->real, r->real.CommInitRank(&r->real_comm, nranks, page->id[1], rank),
            "ncclCommInitRank (NCCL beside)");
    return error;
}

static int make_buffers(struct bench_rank *r)
{
    for (unsigned i = 0; i < r->page->ncases; i++) {
        const struct bench_case *c = &r->page->cases[i];
        size_t bytes =
            (c->count + r->page->options.offset_elems) * ips_type_bytes(c->type);
        if (bytes > r->room)
            r->room = bytes;
    }
    r->room += 2 * BENCH_GUARD_BYTES;
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

static void close_rank(struct bench_rank *r)
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
    struct bench_rank r = {.page = fleet_attach((int)fd, bytes), .rank = (unsigned)rank};
    if (!r.page)
        return tool_fail("cannot map the bench's page");
    int error = open_nccl(&r) || device_open(&r.device, r.rank) || make_buffers(&r) ||
                make_comms(&r) || bench_look_around(&r);
    for (unsigned i = 0; i < r.page->ncases && !error; i++)
        error = bench_run_case(&r, i) || fleet_barrier(&r.page->sync);
    if (error) /* peers may be gone, and a kernel hang: nothing may wait for them */
        _exit(TOOL_FAILED);
    close_rank(&r);
    wait_for_report(r.page);
    return 0;
}
