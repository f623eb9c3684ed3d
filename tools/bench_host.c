/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim bench --host: how long a call keeps the calling thread, in the real library and
 * through the shim. Each set of settings runs twice: untimed with a trace, which tells
 * whether the calls take the route that the row names, and then timed. */
#include "tools/bench_host.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/place.h"
#include "tools/tool.h"

static const struct host_set off = {"IPCSHIM_ENABLE=0", "0", "64K", 0, 0},
                             off_summary = {"ENABLE=0, SUMMARY", "0", "64K", 0, 1},
                             off_trace = {"ENABLE=0, TRACE", "0", "64K", 1, 0},
                             small = {"IPCSHIM_MAX_BYTES=512", "1", "512", 0, 0},
                             on = {"IPCSHIM_MAX_BYTES=64K", "1", "64K", 0, 0},
                             on_summary = {"the same, SUMMARY", "1", "64K", 0, 1},
                             on_trace = {"the same, TRACE", "1", "64K", 1, 0};

const struct host_row host_rows[] = {
    {&off, 0, HOST_EAGER, 0},         {&off, 0, HOST_GROUP, 0},
    {&off_summary, 0, HOST_EAGER, 0}, {&off_trace, 0, HOST_EAGER, 0},
    {&small, 0, HOST_EAGER, 0},       {&small, 0, HOST_CAPTURED, 0},
    {&on, 1, HOST_EAGER, 0},          {&on, 1, HOST_GROUP, 0},
    {&on, 1, HOST_CAPTURED, 0},       {&on, 0, HOST_EAGER, 1},
    {&on, 0, HOST_GROUP, 1},          {&on, 0, HOST_CAPTURED, 1},
    {&on_summary, 0, HOST_EAGER, 1},  {&on_trace, 0, HOST_EAGER, 1},
    {&on_trace, 1, HOST_EAGER, 0},
};
const unsigned host_row_count = sizeof host_rows / sizeof host_rows[0];
_Static_assert(sizeof host_rows / sizeof host_rows[0] <= HOST_ROWS, "room in the page");

static const char help[] =
    "usage: ipcshim bench --host [OPTIONS]\n\n"
    "Times how long a call of 1 KB keeps the calling thread: in the real NCCL called\n"
    "directly, and through the shim, forwarded or taken by the engine. Each with the\n"
    "settings that the row names; others come from the environment.\n\n"
    "  --ranks N       2 to 8 (default 2)\n"
    "  --samples N     batches of each row, 1 to 1000 (default 200)\n"
    "  --calls N       calls of a batch, 1 to 256 (default 16)\n"
    "  --json FILE     also write the rows there\n"
    "  --device D      auto (default), gpu or sim\n\n"
    "The exit status is 1 when a call does not take the route that its row names.\n";

struct run {
    struct host_page *page;
    const struct host_set *set;
    char directory[64], trace[PATH_MAX]; /* of rank 0 */
};

/* --- the ranks --- */

static void prepare(unsigned rank, void *arg)
{
    const struct run *run = arg;
    char text[16];
    snprintf(text, sizeof text, "%u", rank);
    setenv("RANK", text, 1);
    setenv("IPCSHIM_ENABLE", run->set->enable, 1);
    setenv("IPCSHIM_MAX_BYTES", run->set->max_bytes, 1);
    setenv("IPCSHIM_VERIFY", "0", 1);
    unsetenv("IPCSHIM_TRACE");
    unsetenv("IPCSHIM_SUMMARY");
    if (run->page->probe)
        setenv("IPCSHIM_TRACE", rank ? "/dev/null" : run->trace, 1);
    else if (run->set->trace)
        setenv("IPCSHIM_TRACE", "/dev/null", 1);
    if (run->set->summary && !run->page->probe)
        setenv("IPCSHIM_SUMMARY", "1", 1);
    /* The summary's table is not for this. */
    if (run->set->summary && !run->page->probe && !freopen("/dev/null", "w", stderr))
        _exit(TOOL_FAILED);
}

static int run_ranks(struct run *run, int fd, int probe)
{
    char text[16];
    char *argv[] = {"/proc/self/exe", "bench-host-rank", text, NULL};
    struct fleet fleet = {.sync = &run->page->sync};
    int rank;
    snprintf(text, sizeof text, "%d", fd);
    memset(&run->page->sync, 0, sizeof run->page->sync);
    run->page->probe = (uint32_t)probe;
    int error = fleet_start(&fleet, run->page->options.ranks, argv, prepare, run);
    if (error)
        return tool_fail("cannot start the ranks: %s", strerror(-error));
    int status = fleet_wait(&fleet, NULL, NULL, &rank);
    if (status)
        tool_fail("rank %d ended with status %d", rank, status);
    return status ? TOOL_FAILED : 0;
}

/* --- routes --- */

/* Compares the trace's next call with the row; whether it is as the row says. */
static int as_said(FILE *trace, const struct host_row *row)
{
    char line[1024];
    const char *wanted = row->taken ? "\"route\":\"engine\"" : "\"route\":\"nccl\"";
    const char *name = row->broadcast ? "\"ncclBroadcast\"" : "\"ncclAllReduce\"";
    while (fgets(line, sizeof line, trace)) {
        if (!strstr(line, "\"event\":\"call\"") || !strstr(line, name))
            continue;
        if (strstr(line, wanted))
            return 1;
        const char *reason = strstr(line, "\"reason\":");
        tool_fail("%s with %s is not %s: %s", name, row->set->text,
                  row->taken ? "taken" : "forwarded", reason ? reason : line);
        return 0;
    }
    tool_fail("%s with %s is not in the trace", name, row->set->text);
    return 0;
}

static int routes_as_said(const struct run *run)
{
    FILE *trace = fopen(run->trace, "re");
    int good = trace != NULL;
    for (unsigned i = 0; i < run->page->count && good; i++)
        good = as_said(trace, &host_rows[run->page->first + i]);
    if (!trace)
        tool_fail("no trace in %s: %s", run->trace, strerror(errno));
    else
        fclose(trace);
    unlink(run->trace);
    return good;
}

static int run_set(struct run *run, int fd, struct host_report *report)
{
    struct host_page *page = run->page;
    int status = run_ranks(run, fd, 1);
    if (!status && !routes_as_said(run))
        status = TOOL_FAILED;
    if (!status)
        status = run_ranks(run, fd, 0);
    for (unsigned i = 0; i < page->count && !status; i++)
        host_report_row(report, &page->options, &host_rows[page->first + i],
                        &page->result[i]);
    return status;
}

/* All sets, also after one that failed. */
static int run_sets(struct run *run, int fd, struct host_report *report)
{
    struct host_page *page = run->page;
    int status = 0;
    host_report_begin(report, &page->options);
    for (unsigned first = 0; first < host_row_count; first += page->count) {
        run->set = host_rows[first].set;
        page->first = first;
        page->count = 1;
        while (first + page->count < host_row_count &&
               host_rows[first + page->count].set == run->set)
            page->count++;
        int failed = run_set(run, fd, report);
        status = failed ? failed : status;
    }
    host_report_end(report);
    return status;
}

static int run_all(const struct host_options *options, struct host_report *report)
{
    struct run run = {.directory = "/tmp/ipcshim-host-XXXXXX"};
    int fd = -1;
    run.page = fleet_share(sizeof *run.page, &fd);
    if (!run.page)
        return tool_fail("no shared memory for the ranks: %s", strerror(errno));
    int status = 0;
    if (!mkdtemp(run.directory))
        status = tool_fail("cannot make %s: %s", run.directory, strerror(errno));
    if (!status) {
        snprintf(run.trace, sizeof run.trace, "%s/trace", run.directory);
        run.page->options = *options;
        status = run_sets(&run, fd, report);
        rmdir(run.directory);
    }
    munmap(run.page, sizeof *run.page);
    close(fd);
    return status;
}

/* --- the command line --- */

static int take(struct host_options *o, int letter, const char *value, int *ret_device)
{
    uint64_t number = 0;
    int error = 0;
    switch (letter) {
    case 'n':
        error = tool_parse_number(value, 2, IPS_MAX_RANKS, &number);
        o->ranks = (uint32_t)number;
        break;
    case 'm':
        error = tool_parse_number(value, 1, HOST_SAMPLES, &number);
        o->samples = (uint32_t)number;
        break;
    case 'c':
        error = tool_parse_number(value, 1, 256, &number);
        o->calls = (uint32_t)number;
        break;
    case 'd':
        *ret_device = place_parse_device(value);
        error = *ret_device < 0;
        break;
    }
    return error;
}

static const struct option options[] = {
    {"host", no_argument, NULL, 'o'},          {"ranks", required_argument, NULL, 'n'},
    {"samples", required_argument, NULL, 'm'}, {"calls", required_argument, NULL, 'c'},
    {"json", required_argument, NULL, 'j'},    {"device", required_argument, NULL, 'd'},
    {"help", no_argument, NULL, 'h'},          {0}};

/* -1: go on; otherwise the exit status. */
static int parse(int argc, char **argv, struct host_options *o, const char **ret_json,
                 int *ret_device)
{
    int letter;
    while ((letter = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (letter == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (letter == 'j')
            *ret_json = optarg;
        if (letter == '?')
            return TOOL_USAGE;
        if (take(o, letter, optarg, ret_device))
            return tool_fail(
                "bench --host: bad value %s: see ipcshim bench --host --help", optarg);
    }
    return optind < argc
               ? tool_fail("bench --host: \"%s\" is not an option", argv[optind])
               : -1;
}

int bench_host(int argc, char **argv)
{
    struct host_options o = {
        .ranks = 2, .samples = 200, .calls = 16, .wait_seconds = 120};
    struct host_report report = {0};
    const char *json = NULL;
    int device = PLACE_AUTO, status = parse(argc, argv, &o, &json, &device);
    if (status >= 0)
        return status;
    device = place_choose_device(device, IPS_MAX_RANKS);
    if (device < 0 || !place_shim())
        return TOOL_USAGE;
    o.simulated = device == PLACE_SIM;
    if (json && !(report.json = fopen(json, "we")))
        return tool_fail("cannot write %s: %s", json, strerror(errno));
    status = run_all(&o, &report);
    if (report.json && fclose(report.json))
        status = tool_fail("cannot write %s: %s", json, strerror(errno));
    return status;
}
