/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim bench, the parent: starts the ranks, watches them, and then joins three things
 * into one table: what the ranks measured and checked, what the policy says, and what the
 * shim's own trace says it did. The three must agree. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim/settings.h"
#include "tools/bench.h"
#include "tools/place.h"
#include "tools/tool.h"

struct run {
    const struct bench_plan *plan;
    struct fleet fleet;
    struct bench_page *page;
    size_t bytes;
    unsigned ranks;
    char trace[PATH_MAX]; /* with %r, and perhaps %p */
    int terminal;
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
    snprintf(run->trace, sizeof run->trace, "%s/%u-ranks-%%r.jsonl", own_directory,
             run->ranks);
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

static void progress(void *arg)
{
    struct run *run = arg;
    unsigned done = finished(run);
    char size[16];
    if (!run->terminal || done == run->page->ncases)
        return;
    const struct bench_case *c = &run->page->cases[done];
    tool_size_text(c->count * ips_type_bytes(c->type), size);
    fprintf(stderr, "\r%u ranks: %u of %u done, now %s %s %s \033[K", run->ranks, done,
            run->page->ncases, ips_type_name(c->type), ips_op_name(c->op), size);
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
    int status = fleet_wait(&run->fleet, progress, run, &rank);
    if (run->terminal)
        fprintf(stderr, "\r\033[K");
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

/* --- joining --- */

/* The slowest rank of each sample; the median of the samples, and of the pairs' ratios.
 */
static void join_times(struct run *run, unsigned index, struct bench_row *row)
{
    const struct bench_options *o = &run->page->options;
    double engine[BENCH_MAX_SAMPLES] = {0}, nccl[BENCH_MAX_SAMPLES] = {0};
    double ratio[BENCH_MAX_SAMPLES] = {0};
    for (unsigned s = 0; s < o->samples; s++) {
        for (unsigned r = 0; r < run->ranks; r++) {
            const struct bench_result *result = bench_result(run->page, index, r);
            if (result->engine_us[s] > engine[s])
                engine[s] = result->engine_us[s];
            if (result->nccl_us[s] > nccl[s])
                nccl[s] = result->nccl_us[s];
        }
        ratio[s] = nccl[s] > 0 ? engine[s] / nccl[s] : 0;
    }
    row->engine_us = bench_median(engine, o->samples);
    row->nccl_us = bench_median(nccl, o->samples);
    row->ratio = bench_median(ratio, o->samples);
}

static void join_checks(struct run *run, unsigned index, struct bench_row *row)
{
    const struct bench_result *zero = bench_result(run->page, index, 0);
    for (unsigned r = 0; r < run->ranks; r++) {
        const struct bench_result *result = bench_result(run->page, index, r);
        row->wrong += result->wrong;
        for (unsigned check = 0; check < BENCH_CHECKS; check++)
            row->differ |= result->hash[check] != zero->hash[check];
    }
}

static void explain_wrong(struct run *run, unsigned index)
{
    for (unsigned r = 0; r < run->ranks; r++) {
        const struct bench_result *result = bench_result(run->page, index, r);
        const struct ips_mismatch *first = &result->first;
        if (result->wrong)
            tool_fail("rank %u: %llu wrong; first in check %u, element %llu: got %.17g "
                      "(0x%llx), expected %.17g within %.3g",
                      r, (unsigned long long)result->wrong, result->wrong_check,
                      (unsigned long long)first->index, first->got,
                      (unsigned long long)first->got_bits, first->wanted, first->bound);
    }
}

static int took_same(const struct bench_took *a, const struct bench_took *b)
{
    return a->route == b->route && a->proto == b->proto && !strcmp(a->reason, b->reason);
}

/* Whether the trace of a case is complete, alike on all ranks, and what the policy says.
 * `declined`: this communicator is NCCL's, whatever the policy says. */
static int agrees(struct run *run, unsigned index, struct bench_took **took, int declined)
{
    const struct bench_case *c = &run->page->cases[index];
    const struct bench_took *zero = &took[0][index];
    struct ips_decision says =
        ips_policy_decide(&ips_settings()->policy, run->ranks, c->count, c->type, c->op);
    int fine = 1;
    for (unsigned r = 0; r < run->ranks; r++) {
        const struct bench_took *t = &took[r][index];
        unsigned calls = bench_result(run->page, index, r)->calls;
        if (t->calls == calls && !t->disagree && took_same(t, zero))
            continue;
        tool_fail(
            "rank %u, %llu elements: the trace has %llu of %u calls, %llu of another "
            "kind%s",
            r, (unsigned long long)c->count, (unsigned long long)t->calls, calls,
            (unsigned long long)t->disagree,
            took_same(t, zero) ? "" : ", and another route than rank 0's");
        fine = 0;
    }
    int engine = says.route == IPS_ROUTE_ENGINE && !declined;
    if (engine != (zero->route == IPS_ROUTE_ENGINE) ||
        (engine && zero->proto != (int)says.proto)) {
        tool_fail("%llu elements: the shim did not do what the policy says (%s)",
                  (unsigned long long)c->count,
                  engine ? ips_proto_name(says.proto) : "nccl");
        fine = 0;
    }
    return fine;
}

static int read_traces(struct run *run, struct bench_took **took)
{
    for (unsigned r = 0; r < run->ranks; r++) {
        char path[PATH_MAX];
        uint64_t dropped = 0;
        expand_trace(run, r, path, sizeof path);
        if (bench_trace_read(path, run->page, r, took[r], &dropped))
            return TOOL_FAILED;
        if (dropped) {
            tool_fail("rank %u dropped %llu events of its trace: run fewer --iters", r,
                      (unsigned long long)dropped);
            return TOOL_FAILED;
        }
    }
    return 0;
}

/* No call at all was taken: the communicator was declined, or the shim is switched off.
 */
static int was_declined(struct run *run, struct bench_took **took)
{
    for (unsigned i = 0; i < run->page->ncases; i++)
        if (took[0][i].route == IPS_ROUTE_ENGINE)
            return 0;
    return 1;
}

static int report_all(struct run *run, struct bench_took **took,
                      struct bench_report *report)
{
    int declined = was_declined(run, took), status = 0;
    bench_report_begin(report, &run->page->options, run->ranks);
    for (unsigned i = 0; i < run->page->ncases; i++) {
        struct bench_row row = {
            .c = &run->page->cases[i], .ranks = run->ranks, .took = took[0][i]};
        if (row.took.route == IPS_ROUTE_ENGINE)
            row.channels = ips_policy_decide(&ips_settings()->policy, run->ranks,
                                             row.c->count, row.c->type, row.c->op)
                               .channels;
        join_times(run, i, &row);
        join_checks(run, i, &row);
        bench_report_row(report, &row);
        explain_wrong(run, i);
        if (row.wrong || row.differ || !agrees(run, i, took, declined))
            status = TOOL_FAILED;
    }
    return status;
}

static int bench_with(const struct bench_plan *plan, unsigned ranks,
                      struct bench_report *report)
{
    struct run run = {.plan = plan, .ranks = ranks, .terminal = isatty(STDERR_FILENO)};
    struct bench_took *took[IPS_MAX_RANKS] = {NULL};
    int fd = -1, status = choose_trace(&run);
    if (!status)
        status = open_page(&run, &fd);
    if (!status)
        status = run_ranks(&run, fd);
    for (unsigned r = 0; r < ranks && !status; r++) {
        took[r] = calloc(plan->ncases, sizeof *took[r]);
        if (!took[r])
            status = tool_fail("no memory");
    }
    if (!status)
        status = read_traces(&run, took);
    if (!status)
        status = report_all(&run, took, report);
    for (unsigned r = 0; r < ranks; r++)
        free(took[r]);
    if (run.page)
        munmap(run.page, run.bytes);
    if (fd >= 0)
        close(fd);
    return status;
}

int cmd_bench(int argc, char **argv)
{
    struct bench_plan plan;
    struct bench_report report = {0};
    int status = bench_plan_parse(&plan, argc, argv);
    if (status >= 0)
        return status;
    int device = place_choose_device(plan.device, IPS_MAX_RANKS);
    if (device < 0 || place_preload())
        return TOOL_USAGE;
    bench_plan_settle(&plan, device == PLACE_SIM);
    if (plan.json && !(report.json = fopen(plan.json, "we")))
        return tool_fail("cannot write %s: %s", plan.json, strerror(errno));
    status = 0;
    for (unsigned i = 0; i < plan.nranks; i++) {
        int failed = bench_with(&plan, plan.ranks[i], &report);
        if (failed)
            status = failed;
    }
    bench_report_end(&report);
    if (report.json && fclose(report.json))
        status = tool_fail("cannot write %s: %s", plan.json, strerror(errno));
    if (status)
        fprintf(stderr, "ipcshim: bench FAILED%s%s\n",
                own_directory[0] ? ", traces kept in " : "", own_directory);
    else
        remove_traces();
    free(plan.cases);
    return status;
}
