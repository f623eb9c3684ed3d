/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim tune, the parent: starts the ranks, one number of them after the other, shows
 * how far they are, and writes the file that the shim reads when it makes communicators.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/engine.h"
#include "policy/plan.h"
#include "shim/settings.h"
#include "tools/device.h"
#include "tools/place.h"
#include "tools/tool.h"
#include "tools/tune.h"

static const char help[] =
    "usage: ipcshim tune [--ranks N,...] [--sizes BYTES,...] [--rounds N] [--no-nccl]\n"
    "           [--transport auto|ipc|host] [--output FILE] [--device auto|gpu|sim]\n"
    "\n"
    "Measures on this machine which of the engine's kernels is the fastest for each\n"
    "size, and whether it is faster than NCCL, launched and replayed from a graph;\n"
    "checks every result; and writes it to FILE, which libipcshim.so reads when it\n"
    "makes a communicator. Let nothing else run meanwhile. IPCSHIM_ALGO,\n"
    "IPCSHIM_PROTO and IPCSHIM_MAX_CHANNELS leave kernels out.\n"
    "\n"
    "  --ranks N,...      numbers of ranks, one process each (default: 2, 4, 8 and the\n"
    "                     number of GPUs, as far as there are; with one GPU the first\n"
    "                     three, which share it)\n"
    "  --transport T      where the ranks' mailboxes lie, as IPCSHIM_TRANSPORT\n"
    "                     (default: auto)\n"
    "  --sizes BYTES,...  (default: 1K to 64M, powers of two)\n"
    "  --rounds N         timings of each candidate that stays in the race (default: 5)\n"
    "  --no-nccl          the engine alone: then the model stands for NCCL\n"
    "  --output FILE      (default: IPCSHIM_TUNE_FILE, else ipcshim/tune in\n"
    "                     $XDG_CACHE_HOME or ~/.cache); tables of other numbers of\n"
    "                     ranks or links stay in it\n"
    "See docs/tuning.md.\n";

struct tuning {
    struct tune_options options;
    unsigned ranks[IPS_MAX_RANKS], nranks;
    unsigned gpus;
    int device; /* enum place_device */
    char path[PATH_MAX];
    const char *output;
    struct tune_page *page; /* of the ranks that run */
    struct ips_tuned *tuned[IPS_MAX_RANKS];
    unsigned ntuned;
    int terminal;
};

/* --- the ranks --- */

static void prepare(unsigned rank, void *arg)
{
    const struct tuning *t = arg;
    char text[16];
    snprintf(text, sizeof text, "%u", rank);
    setenv("RANK", text, 1);
    if (t->gpus >= t->page->options.ranks)
        return;
    /* Ranks that share a GPU: NCCL from 2.30 on takes them if it is told so, and all its
     * blocks must find room at once. */
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    setenv("NCCL_MAX_CTAS", "16", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 0);
}

static void tick(void *arg)
{
    const struct tuning *t = arg;
    char size[16];
    const unsigned done = __atomic_load_n(&t->page->done_sizes, __ATOMIC_ACQUIRE);
    if (t->terminal && done < t->page->options.nsizes)
        fprintf(stderr, "\r%u ranks: %u of %u sizes done, now %s\033[K",
                t->page->sync.nranks, done, t->page->options.nsizes,
                tool_size_text(t->page->options.size[done], size));
}

static int run_ranks(struct tuning *t, int fd)
{
    char fd_text[16], bytes_text[24];
    struct fleet fleet = {.sync = &t->page->sync};
    int rank;
    snprintf(fd_text, sizeof fd_text, "%d", fd);
    snprintf(bytes_text, sizeof bytes_text, "%zu", sizeof *t->page);
    char *argv[] = {"/proc/self/exe", "tune-rank", fd_text, bytes_text, NULL};
    const int error = fleet_start(&fleet, t->page->options.ranks, argv, prepare, t);
    if (error)
        return tool_fail("cannot start %u ranks: %s", t->page->options.ranks,
                         strerror(-error));
    const int status = fleet_wait(&fleet, tick, t, &rank);
    if (t->terminal)
        fprintf(stderr, "\r\033[K");
    if (status)
        tool_fail("rank %d of %u ended with status %d after %u of %u sizes", rank,
                  t->page->options.ranks, status, t->page->done_sizes,
                  t->page->options.nsizes);
    return status ? TOOL_FAILED : 0;
}

/* --- what came out --- */

static void print_row(const struct ips_plan_row *row)
{
    char size[16];
    printf("  up to %9s  ", row->up_to_bytes == UINT64_MAX
                                ? "any size"
                                : tool_size_text(row->up_to_bytes, size));
    if (row->variant == IPS_PLAN_NCCL)
        printf("NCCL\n");
    else
        printf("%s, %u channels of %u threads\n", ips_variant_name(row->variant),
               row->channels, row->threads);
}

/* What a communicator will do by the new table. */
static void print_plan(const struct tuning *t, const struct ips_tuned *tuned)
{
    const struct ips_policy_settings *settings = &ips_settings()->policy;
    struct ips_policy_plan plan;
    ips_policy_plan_make(settings, &t->page->place, tuned, &plan);
    printf("%u ranks, %s: %llu candidates%s\n", tuned->ranks,
           ips_link_name((int)tuned->link), (unsigned long long)t->page->measured,
           t->page->has_nccl ? " beside NCCL" : "");
    for (unsigned i = 0; i < plan.count; i++)
        if (i + 1 == plan.count || plan.row[i].variant != IPS_PLAN_NCCL ||
            plan.row[i + 1].variant != IPS_PLAN_NCCL) /* else for another reason only */
            print_row(&plan.row[i]);
    fflush(stdout);
}

static int keep(struct tuning *t)
{
    struct ips_tuned *tuned = malloc(sizeof *tuned);
    if (!tuned)
        return tool_fail("no memory");
    *tuned = t->page->tuned;
    t->tuned[t->ntuned++] = tuned;
    print_plan(t, tuned);
    return 0;
}

static int tune_with(struct tuning *t, unsigned ranks, struct tune_page *ret_machine)
{
    int fd;
    t->page = fleet_share(sizeof *t->page, &fd);
    if (!t->page)
        return tool_fail("no shared memory for the ranks: %s", strerror(errno));
    t->page->options = t->options;
    t->page->options.ranks = ranks;
    int status = getrandom(t->page->key, sizeof t->page->key, 0) < 0
                     ? tool_fail("no random numbers: %s", strerror(errno))
                     : run_ranks(t, fd);
    if (!status && t->page->wrong)
        status = TOOL_FAILED; /* each was told */
    if (!status)
        status = keep(t);
    *ret_machine = *t->page;
    munmap(t->page, sizeof *t->page);
    close(fd);
    return status;
}

static int tune_all(struct tuning *t, int simulated)
{
    struct tune_page *machine = malloc(sizeof *machine);
    int status = machine ? 0 : tool_fail("no memory");
    for (unsigned i = 0; i < t->nranks && !status; i++)
        status = tune_with(t, t->ranks[i], machine);
    if (!status &&
        tune_file_write(t->path, machine, (const struct ips_tuned *const *)t->tuned,
                        t->ntuned, simulated))
        status = TOOL_FAILED;
    if (!status)
        printf("written to %s\n", t->path);
    else
        fprintf(stderr, "ipcshim: tune FAILED: %s is as it was\n", t->path);
    free(machine);
    return status;
}

/* --- what was asked for --- */

/* In a child, so that this process never initializes the driver. */
static unsigned count_gpus(void)
{
    int status, simulated;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(device_count(&simulated) & 0xff);
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status)
               ? (unsigned)WEXITSTATUS(status)
               : 0;
}

static int add_rank(struct tuning *t, const char *word)
{
    uint64_t ranks;
    if (tool_parse_number(word, IPS_MIN_RANKS, IPS_MAX_RANKS, &ranks) ||
        t->nranks == IPS_MAX_RANKS)
        return -1;
    for (unsigned i = 0; i < t->nranks; i++)
        if (t->ranks[i] == ranks)
            return 0;
    t->ranks[t->nranks++] = (unsigned)ranks;
    return 0;
}

/* Whole float32 elements, by rising size, each once. */
static int add_size(struct tuning *t, const char *word)
{
    struct tune_options *o = &t->options;
    uint64_t bytes;
    if (tool_parse_size(word, &bytes) || bytes < 4 || bytes % 4 || bytes > (1u << 30) ||
        o->nsizes == IPS_TUNED_SIZES)
        return -1;
    unsigned at = o->nsizes;
    while (at && o->size[at - 1] > bytes)
        at--;
    if (at && o->size[at - 1] == bytes)
        return 0;
    memmove(o->size + at + 1, o->size + at, (o->nsizes - at) * sizeof *o->size);
    o->size[at] = bytes;
    o->nsizes++;
    return 0;
}

static int each_word(char *list, int (*add)(struct tuning *, const char *),
                     struct tuning *t)
{
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ","))
        if (add(t, word))
            return -1;
    return 0;
}

static int parse_transport(const char *text)
{
    return !strcmp(text, "auto")   ? IPS_TRANSPORT_AUTO
           : !strcmp(text, "ipc")  ? IPS_TRANSPORT_IPC
           : !strcmp(text, "host") ? IPS_TRANSPORT_HOST
                                   : -2;
}

/* Whether the value of an option is none. */
static int take(struct tuning *t, int letter, char *value)
{
    uint64_t number;
    switch (letter) {
    case 'n':
        return each_word(value, add_rank, t);
    case 's':
        return each_word(value, add_size, t);
    case 't':
        return (t->options.transport = parse_transport(value)) == -2;
    case 'r':
        if (tool_parse_number(value, 1, 15, &number))
            return -1;
        t->options.rounds = (uint32_t)number;
        return 0;
    case 'd':
        return (t->device = place_parse_device(value)) < 0;
    case 'x':
        t->options.beside = 0;
        return 0;
    case 'o':
        t->output = value;
        return 0;
    }
    return -1;
}

/* -1: go on; otherwise the exit status. */
static int parse(struct tuning *t, int argc, char **argv)
{
    static const struct option options[] = {{"ranks", required_argument, NULL, 'n'},
                                            {"transport", required_argument, NULL, 't'},
                                            {"sizes", required_argument, NULL, 's'},
                                            {"rounds", required_argument, NULL, 'r'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"device", required_argument, NULL, 'd'},
                                            {"no-nccl", no_argument, NULL, 'x'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int letter, index = 0;
    while ((letter = getopt_long(argc, argv, "", options, &index)) != -1) {
        if (letter == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (letter == '?')
            return TOOL_USAGE;
        if (take(t, letter, optarg))
            return tool_fail("--%s %s: see ipcshim tune --help", options[index].name,
                             optarg);
    }
    if (optind < argc)
        return tool_fail("tune: \"%s\" is not an option", argv[optind]);
    if (ips_settings_tune_file(t->output ? t->output : ips_settings()->tune_file, t->path,
                               sizeof t->path))
        return tool_fail("no place for the file: give --output");
    return -1;
}

/* What was left open. On the stand-in a large size takes minutes. */
static void settle(struct tuning *t, int simulated)
{
    static const unsigned usual[] = {2, 4, 8};
    const unsigned gpus = t->gpus = count_gpus();
    const uint64_t most = simulated ? 64u << 10 : 64u << 20;
    const int any_ranks = !t->nranks, any_size = !t->options.nsizes;
    for (unsigned i = 0; any_ranks && i < 3; i++) {
        if (usual[i] <= gpus || gpus == 1 || i == 0)
            t->ranks[t->nranks++] = usual[i];
        if (gpus > usual[i] && gpus < 2 * usual[i] && gpus < IPS_MAX_RANKS)
            t->ranks[t->nranks++] = gpus; /* 3, 5, 6, 7 */
    }
    for (uint64_t bytes = 1024; any_size && bytes <= most; bytes *= 2)
        t->options.size[t->options.nsizes++] = bytes;
}

int cmd_tune(int argc, char **argv)
{
    static struct tuning t = {.options = {.rounds = 5,
                                          .transport = IPS_TRANSPORT_AUTO,
                                          .beside = 1,
                                          .batch_us = 500,
                                          .most_calls = 40,
                                          .wait_s = 20}};
    const int status = parse(&t, argc, argv);
    if (status >= 0)
        return status;
    const int device = place_choose_device(t.device, IPS_MAX_RANKS);
    if (device < 0)
        return TOOL_USAGE;
    t.terminal = isatty(STDERR_FILENO);
    settle(&t, device == PLACE_SIM);
    return tune_all(&t, device == PLACE_SIM);
}
