/* SPDX-License-Identifier: Apache-2.0 */
/* What the unmodified shim does on the host in one call, counted: two ranks on the CPU
 * stand-in, of which one is watched. Prints a table, and compares every number in it.
 *
 * Environment: IPS_SHIM, IPS_NCCL, IPCSHIM_NCCL_LIB (front.c): absolute paths;
 * LD_LIBRARY_PATH with the stand-in. */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy/policy.h"
#include "tests/gpu/tap.h"
#include "tests/host/meter.h"
#include "tools/device.h"
#include "tools/fleet.h"
#include "tools/nccl.h"

TAP_DEFINE;

#define TAKEN_COUNT 256           /* float32 elements */
#define FORWARDED_COUNT (1 << 16) /* more than IPCSHIM_MAX_BYTES */
#define MAX_BYTES "64K"
#define MANY 12 /* communicators */

enum call { TAKEN, TOO_LARGE, BROADCAST };

static const struct row {
    const char *name;
    enum call call;
    int captured;
    int nth; /* the call that is counted: of the communicator's, or of one capture's */
    int grouped; /* what is counted is a group of as many calls */
    int many;    /* ... is a call on each of as many communicators */
    unsigned want[METER_COUNTS];
} rows[] = {
    /*           context, query, wait, record, launch, other, allocation, lock, system,
       NCCL */
    {"taken, eager", TAKEN, .nth = 2, .want = {1, 1, 1, 1, 1}},
    {"taken, first of a capture", TAKEN, 1, .want = {1, 2, 1, 1, 1}},
    /* The record node moves: off its old place, onto the new one. */
    {"taken, captured", TAKEN, 1, .nth = 2, .want = {1, 2, 0, 2, 1}},
    {"taken, of many communicators", TAKEN, .nth = 1, .many = MANY,
     .want = {MANY, MANY, MANY, MANY, MANY}},
    /* The group's lists: not more for more calls, up to eight. */
    {"taken, 4 in a group", TAKEN, .nth = 2, .grouped = 4,
     .want = {4, 4, 4, 4, 4, 0, 4, 0, 0, 2}},
    {"too large, eager", TOO_LARGE, .nth = 2, .want = {2, 2, 1, 1, 0, 0, 0, 0, 0, 1}},
    {"too large, first of a capture", TOO_LARGE, 1,
     .want = {2, 2, 1, 1, 0, 0, 0, 0, 0, 1}},
    {"too large, captured", TOO_LARGE, 1, 2, .want = {2, 2, 0, 2, 0, 0, 0, 0, 0, 1}},
    {"Broadcast, eager", BROADCAST, .nth = 2, .want = {2, 2, 1, 1, 0, 0, 0, 0, 0, 1}},
    {"Broadcast, captured", BROADCAST, 1, 2, .want = {2, 2, 0, 2, 0, 0, 0, 0, 0, 1}},
};
#define ROWS (sizeof rows / sizeof rows[0])

static const char *const columns[METER_COUNTS] = {"context", "query", "wait",  "record",
                                                  "launch",  "other", "alloc", "lock",
                                                  "sys",     "NCCL"};

struct page {
    struct fleet_sync sync;
    struct nccl_id id[MANY];
    struct meter meter;
    unsigned count[ROWS][METER_COUNTS];
    char other[ROWS][64];
    long last_syscall[ROWS];
    unsigned done; /* rows */
};

struct rank {
    struct page *page;
    unsigned rank;
    struct device device;
    struct nccl_api nccl;
    nccl_comm comm[MANY];
    gpu_stream stream;
    gpu_ptr in, out;
};

static int one(struct rank *r, const struct row *row, nccl_comm comm)
{
    const void *in = (const void *)(uintptr_t)r->in;
    void *out = (void *)(uintptr_t)r->out;
    const size_t count = row->call == TAKEN ? TAKEN_COUNT : FORWARDED_COUNT;
    if (row->call == BROADCAST)
        return r->nccl.Broadcast(in, out, count, IPS_FLOAT32, 0, comm, r->stream);
    return r->nccl.AllReduce(in, out, count, IPS_FLOAT32, IPS_SUM, comm, r->stream);
}

/* What a row counts. */
static int calls(struct rank *r, const struct row *row)
{
    int error = row->grouped ? r->nccl.GroupStart() : 0;
    for (int i = 0; i < row->grouped && !error; i++)
        error = one(r, row, r->comm[0]);
    for (int i = 0; i < row->many && !error; i++)
        error = one(r, row, r->comm[i]);
    if (row->grouped && !error)
        return r->nccl.GroupEnd();
    return error || row->many ? error : one(r, row, r->comm[0]);
}

static int counted(struct rank *r, const struct row *row)
{
    meter_start(&r->page->meter);
    int error = calls(r, row);
    meter_stop(&r->page->meter);
    return error;
}

struct work {
    struct rank *rank;
    const struct row *row;
};

static int enqueue(void *arg)
{
    const struct work *work = arg;
    int error = 0;
    for (int i = 0; i <= work->row->nth && !error; i++)
        error = work->rank->rank == 0 && i == work->row->nth
                    ? counted(work->rank, work->row)
                    : calls(work->rank, work->row);
    return error;
}

static int run_row(struct rank *r, const struct row *row)
{
    struct work work = {r, row};
    gpu_graph_exec graph = NULL;
    if (!row->captured)
        return enqueue(&work) || device_wait(&r->device, r->stream, 60);
    if (device_capture(&r->device, r->stream, enqueue, &work, &graph) ||
        r->device.cuGraphLaunch(graph, r->stream) ||
        device_wait(&r->device, r->stream, 60))
        return -1;
    return r->device.cuGraphExecDestroy(graph);
}

static void keep(struct page *page, size_t index)
{
    memcpy(page->count[index], page->meter.count, sizeof page->meter.count);
    memcpy(page->other[index], page->meter.other, sizeof page->meter.other);
    page->last_syscall[index] = page->meter.last_syscall;
    page->done++;
}

/* By path, as a program that loads NCCL itself. */
static int open_nccl(struct rank *r)
{
    void *handle = dlopen(getenv("IPS_SHIM"), RTLD_NOW | RTLD_LOCAL);
    const char *missing = handle ? NULL : dlerror();
    struct {
        void *slot;
        const char *name;
    } symbols[] = {
#define X(name, parameters) {&r->nccl.name, "nccl" #name},
        IPS_NCCL_CALLS(X)
#undef X
    };
    for (size_t i = 0; handle && i < sizeof symbols / sizeof symbols[0]; i++) {
        void *found = meter_dlsym(handle, symbols[i].name);
        missing = found ? missing : symbols[i].name;
        memcpy(symbols[i].slot, &found, sizeof found);
    }
    if (missing)
        fprintf(stderr, "# the shim: %s\n", missing);
    return missing ? -1 : 0;
}

static int open_rank(struct rank *r)
{
    struct page *page = r->page;
    const size_t bytes = FORWARDED_COUNT * sizeof(float);
    if (open_nccl(r) || device_open(&r->device, r->rank) ||
        device_stream(&r->device, &r->stream) ||
        device_alloc(&r->device, bytes, &r->in) ||
        device_alloc(&r->device, bytes, &r->out))
        return -1;
    int error = 0;
    for (int i = 0; i < MANY && !error; i++) {
        if (r->rank == 0)
            error = r->nccl.GetUniqueId(&page->id[i]);
        error = error || fleet_barrier(&page->sync) ||
                r->nccl.CommInitRank(&r->comm[i], 2, page->id[i], (int)r->rank);
    }
    return error;
}

static _Noreturn void be_rank(struct page *page, unsigned rank)
{
    struct rank r = {.page = page, .rank = rank};
    int error = open_rank(&r);
    if (rank == 0)
        meter_attach(&page->meter);
    for (size_t i = 0; i < ROWS && !error; i++) {
        error = run_row(&r, &rows[i]);
        if (rank == 0 && !error)
            keep(page, i);
    }
    if (error)
        __atomic_store_n(&page->sync.failed, 1, __ATOMIC_RELEASE);
    _exit(error != 0);
}

static pid_t start(struct page *page, unsigned rank, int traced)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid)
        return pid;
    if (traced && (ptrace(PTRACE_TRACEME, 0, NULL, NULL) || raise(SIGSTOP)))
        _exit(2);
    be_rank(page, rank);
}

static void print_table(const struct page *page, const char *title)
{
    printf("# %-32s", title);
    for (int what = 0; what < METER_COUNTS; what++)
        printf(" %7s", columns[what]);
    printf("\n");
    for (size_t i = 0; i < page->done; i++) {
        printf("# %-32s", rows[i].name);
        for (int what = 0; what < METER_COUNTS; what++)
            printf(" %7u", page->count[i][what]);
        printf("\n");
    }
}

struct mode {
    const char *title;
    int switched_off; /* every call is forwarded, and no engine is told of it */
    int trace_file;   /* which says of every forwarded call whether it is captured */
};

static unsigned wanted(const struct mode *mode, const struct row *row, int what)
{
    const unsigned calls = (unsigned)(row->many      ? row->many
                                      : row->grouped ? row->grouped
                                                     : 1);
    const int forwarded = mode->switched_off || row->call != TAKEN;
    unsigned want = mode->switched_off ? 0 : row->want[what];
    if (mode->switched_off && what == METER_NCCL)
        want = calls + (row->grouped ? 2 : 0); /* start and end */
    if (what == METER_QUERY && forwarded && mode->trace_file)
        want += calls;
    return want;
}

static void judge(const struct page *page, const struct mode *mode)
{
    const char *title = mode->title;
    print_table(page, title);
    tap_is(page->done, ROWS, title);
    for (size_t i = 0; i < page->done; i++) {
        int good = 1;
        for (int what = 0; what < METER_COUNTS; what++) {
            const unsigned want = wanted(mode, &rows[i], what);
            if (page->count[i][what] == want)
                continue;
            good = 0;
            printf("# %s: %u, want %u%s%s\n", columns[what], page->count[i][what], want,
                   what == METER_OTHER ? ": " : "",
                   what == METER_OTHER ? page->other[i] : "");
            if (what == METER_SYSTEM_CALL)
                printf("# the last one is number %ld\n", page->last_syscall[i]);
        }
        tap(good, "%s: %s", title, rows[i].name);
    }
}

static void run(struct mode mode)
{
    const char *title = mode.title;
    struct page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = -1, other = -1;
    if (page == MAP_FAILED) {
        tap(0, "%s: no memory", title);
        return;
    }
    page->sync.nranks = 2;
    pid_t peer = start(page, 1, 0), watched = start(page, 0, 1);
    if (peer > 0 && watched > 0)
        status = meter_follow(watched, &page->meter);
    if (status && peer > 0)
        kill(peer, SIGKILL);
    if (peer > 0)
        waitpid(peer, &other, 0);
    tap(!status && !other, "%s: both ranks end well", title);
    judge(page, &mode);
    munmap(page, sizeof *page);
}

int main(void)
{
    if (!getenv("IPS_SHIM") || !getenv("IPS_NCCL") || !getenv("IPCSHIM_NCCL_LIB"))
        return 77;
    setenv("IPCSHIM_MAX_BYTES", MAX_BYTES, 1);
    setenv("IPCSHIM_MAX_CHANNELS", "1", 1); /* small buffers: there are many */
    unsetenv("IPCSHIM_TRACE");
    unsetenv("IPCSHIM_SUMMARY");
    unsetenv("IPCSHIM_ENABLE");
    run((struct mode){"no trace"});
    setenv("IPCSHIM_SUMMARY", "1", 1);
    run((struct mode){"summary"});
    unsetenv("IPCSHIM_SUMMARY");
    setenv("IPCSHIM_TRACE", "/dev/null", 1);
    run((struct mode){"trace file", .trace_file = 1});
    setenv("IPCSHIM_ENABLE", "0", 1);
    run((struct mode){"off, trace file", 1, 1});
    unsetenv("IPCSHIM_TRACE");
    run((struct mode){"off", 1, 0});
    return tap_end();
}
