/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim bench, the parent: starts the ranks, follows their results and the shim's
 * traces while they work, and prints a row as soon as all of it is there. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/bench_host.h"
#include "tools/bench_vs.h"
#include "tools/place.h"
#include "tools/tool.h"

struct run {
    const struct bench_plan *plan;
    struct fleet fleet;
    struct bench_page *page;
    size_t bytes;
    unsigned ranks;
    char trace[PATH_MAX]; /* with %r, and perhaps %p */
    struct bench_trace traces[IPS_MAX_RANKS];
    struct bench_report *report;
    unsigned reported; /* rows */
    int terminal, failed;
};

/* --- traces --- */

static char own_directory[64]; /* of temporary traces, "" when the user named a place */

static int choose_trace(struct run *run)
{
    const char *user = getenv("IPCSHIM_TRACE");
    if (user && *user && !own_directory[0]) {
        if (!strstr(user, "%r") && !strstr(user, "%p"))
            return tool_fail("IPCSHIM_TRACE=%s: ranks need a file each: add %%r", user);
        snprintf(run->trace, sizeof run->trace, "%s", user);
        return 0;
    }
    if (!own_directory[0]) {
        strcpy(own_directory, "/tmp/ipcshim-bench-XXXXXX");
        if (!mkdtemp(own_directory))
            return tool_fail("cannot make %s: %s", own_directory, strerror(errno));
    }
    const char *transport = run->report->transport;
    snprintf(run->trace, sizeof run->trace, "%s/%u-ranks-%s-%%r.jsonl", own_directory,
             run->ranks, transport ? transport : "auto");
    setenv("IPCSHIM_TRACE", run->trace, 1);
    return 0;
}

static void expand_trace(const struct run *run, unsigned rank, char *path, size_t size)
{
    size_t used = 0;
    path[0] = '\0';
    for (const char *at = run->trace; *at && used + 12 < size; at++) {
        if (at[0] == '%' && at[1] == 'r')
            used += (size_t)snprintf(path + used, size - used, "%u", rank);
        else if (at[0] == '%' && at[1] == 'p')
            used +=
                (size_t)snprintf(path + used, size - used, "%d", run->fleet.pid[rank]);
        else {
            path[used++] = *at;
            path[used] = '\0';
            continue;
        }
        at++;
    }
}

static void remove_traces(void)
{
    DIR *directory = own_directory[0] ? opendir(own_directory) : NULL;
    if (!directory)
        return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    rmdir(own_directory);
}

/* --- the ranks --- */

static void prepare(unsigned rank, void *arg)
{
    const struct run *run = arg;
    char text[16];
    snprintf(text, sizeof text, "%u", rank);
    setenv("RANK", text, 1);
    if (run->report->transport)
        setenv("IPCSHIM_TRANSPORT", run->report->transport, 1);
    if (run->plan->summary && rank == 0)
        setenv("IPCSHIM_SUMMARY", "1", 1);
}

static unsigned finished(const struct run *run)
{
    unsigned least = run->page->ncases;
    for (unsigned r = 0; r < run->ranks; r++) {
        unsigned done = __atomic_load_n(&run->page->done[r], __ATOMIC_ACQUIRE);
        if (done < least)
            least = done;
    }
    return least;
}

static void clear_line(const struct run *run)
{
    if (run->terminal)
        fprintf(stderr, "\r\033[K");
}

/* A case is complete when its ranks are done and their traces have all its calls. */
static int complete(const struct run *run, unsigned index, unsigned done)
{
    for (unsigned r = 0; r < run->ranks; r++)
        if (index >= done ||
            run->traces[r].took[index].calls < bench_calls(run->page, index, r))
            return 0;
    return 1;
}

/* Prints the rows that are complete; at the end, all that were measured. */
static void report_rows(struct run *run, int at_end)
{
    unsigned done = finished(run);
    for (unsigned r = 0; r < run->ranks; r++)
        bench_trace_advance(&run->traces[r]);
    while (complete(run, run->reported, done) || (at_end && run->reported < done)) {
        clear_line(run);
        if (!bench_join_row(run->page, run->reported, run->traces, run->report))
            run->failed = TOOL_FAILED;
        __atomic_store_n(&run->page->reported, ++run->reported, __ATOMIC_RELEASE);
    }
}

static void tick(void *arg)
{
    struct run *run = arg;
    unsigned done = finished(run);
    char size[16];
    report_rows(run, 0);
    if (!run->terminal || done == run->page->ncases)
        return;
    const struct bench_case *c = &run->page->cases[done];
    tool_size_text(c->count * ips_type_bytes(c->type), size);
    fprintf(stderr, "\r%u ranks: %u of %u done, now %s %s %s\033[K", run->ranks, done,
            run->page->ncases, ips_type_name(c->type), ips_op_name(c->op), size);
}

static int follow_traces(struct run *run)
{
    for (unsigned r = 0; r < run->ranks; r++) {
        char path[PATH_MAX];
        expand_trace(run, r, path, sizeof path);
        if (bench_trace_open(&run->traces[r], run->page, r, path))
            return -1;
    }
    return 0;
}

static int run_ranks(struct run *run, int fd)
{
    char fd_text[16], bytes_text[24];
    snprintf(fd_text, sizeof fd_text, "%d", fd);
    snprintf(bytes_text, sizeof bytes_text, "%zu", run->bytes);
    char *argv[] = {"/proc/self/exe", "bench-rank", fd_text, bytes_text, NULL};
    int rank, error = fleet_start(&run->fleet, run->ranks, argv, prepare, run);
    if (error) {
        tool_fail("cannot start %u ranks: %s", run->ranks, strerror(-error));
        return TOOL_FAILED;
    }
    int followed = !follow_traces(run);
    int status = fleet_wait(&run->fleet, followed ? tick : NULL, run, &rank);
    if (!followed)
        return tool_fail("no memory to follow the traces");
    report_rows(run, 1);
    clear_line(run);
    if (status)
        tool_fail("rank %d ended with status %d after %u of %u cases", rank, status,
                  finished(run), run->page->ncases);
    return status ? TOOL_FAILED : 0;
}

static int open_page(struct run *run, int *ret_fd)
{
    const struct bench_plan *plan = run->plan;
    run->bytes = bench_page_bytes(plan->ncases, run->ranks);
    run->page = fleet_share(run->bytes, ret_fd);
    if (!run->page)
        return tool_fail("no shared memory for the ranks: %s", strerror(errno));
    run->page->options = plan->options;
    run->page->ncases = plan->ncases;
    memcpy(run->page->cases, plan->cases, plan->ncases * sizeof *plan->cases);
    run->fleet.sync = &run->page->sync;
    return 0;
}

static void begin_table(const struct run *run)
{
    if (run->plan->vs_nccl)
        bench_vs_begin(run->report, run->plan, run->ranks, run->report->transport);
    else
        bench_report_begin(run->report, run->plan, run->ranks);
}

static int bench_with(const struct bench_plan *plan, unsigned ranks,
                      struct bench_report *report)
{
    struct run run = {.plan = plan,
                      .ranks = ranks,
                      .report = report,
                      .terminal = isatty(STDERR_FILENO)};
    int fd = -1, status = choose_trace(&run);
    if (!status)
        status = open_page(&run, &fd);
    if (!status) {
        begin_table(&run);
        status = run_ranks(&run, fd);
    }
    for (unsigned r = 0; r < ranks; r++)
        bench_trace_close(&run.traces[r]);
    if (run.page)
        munmap(run.page, run.bytes);
    if (fd >= 0)
        close(fd);
    return status ? status : run.failed;
}

static int bench_all(const struct bench_plan *plan, struct bench_report *report)
{
    int status = 0;
    for (unsigned t = 0; t < plan->ntransports; t++)
        for (unsigned i = 0; i < plan->nranks; i++) {
            report->transport = plan->transports[t];
            int failed = bench_with(plan, plan->ranks[i], report);
            if (failed)
                status = failed;
        }
    return status;
}

int cmd_bench(int argc, char **argv)
{
    struct bench_plan plan;
    struct bench_report report = {0};
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--host"))
            return bench_host(argc, argv);
    int status = bench_plan_parse(&plan, argc, argv);
    if (status >= 0)
        return status;
    int device = place_choose_device(plan.device, IPS_MAX_RANKS);
    if (device < 0 || place_preload())
        return TOOL_USAGE;
    bench_plan_settle(&plan, device == PLACE_SIM);
    report.vs_nccl = plan.vs_nccl;
    if (plan.plot && bench_plot(NULL, NULL)) /* not found out after minutes */
        return TOOL_USAGE;
    if (plan.json && !(report.json = fopen(plan.json, "we")))
        return tool_fail("cannot write %s: %s", plan.json, strerror(errno));
    status = bench_all(&plan, &report);
    bench_report_end(&report);
    if (report.json && fclose(report.json))
        status = tool_fail("cannot write %s: %s", plan.json, strerror(errno));
    if (plan.plot && report.rows && bench_plot(plan.json, plan.plot) && !status)
        status = TOOL_FAILED;
    if (status)
        fprintf(stderr, "ipcshim: bench FAILED%s%s\n",
                own_directory[0] ? ", traces kept in " : "", own_directory);
    else
        remove_traces();
    free(plan.cases);
    return status;
}
