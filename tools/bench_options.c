/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `ipcshim bench`, turned into a list of cases. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/bench.h"
#include "tools/place.h"
#include "tools/tool.h"

#define UNSET UINT32_MAX
#define MOST_SIZES 64
#define MOST_CASES 4096
#define MOST_SIMULATED (64 << 10) /* bytes, of a matrix whose sizes nobody gave */
#define TIMED_SHARE 0.5           /* of --seconds; the rest is set-up and checks */

static const char help[] =
    "usage: ipcshim bench [OPTIONS]\n\n"
    "Runs ncclAllReduce through the shim with real processes, checks every element of "
    "every\n"
    "rank against a reference, and on a GPU times it beside NCCL's own. Sizes take K, M, "
    "G. `ipcshim bench --host` times what a call costs the host (see its --help).\n\n"
    "  --ranks LIST         1 to 8 (default 2)\n"
    "  --transport LIST     auto, ipc, host, for each a run (default: IPCSHIM_TRANSPORT)\n"
    "  --min B --max B      from and to this size (default 8 and 16M), each --factor F\n"
    "                       (default 2) times the last; --max is always among them\n"
    "  --sizes LIST         these sizes instead\n"
    "  --types LIST|all     default float32\n"
    "  --ops LIST|all       default sum\n"
    "  --iters N --warmup N calls timed at once, and before (default 20 and 5; simulated "
    "1, 0)\n"
    "  --samples N          timings of which the median is shown, 0 to 31 (default 7;\n"
    "                       simulated 1)\n"
    "  --in-place           output = input\n"
    "  --offset-elems N     buffers this many elements off their alignment\n"
    "  --graph              calls captured in a CUDA graph and replayed\n"
    "  --no-nccl            no timing of NCCL's own beside it\n"
    "  --seed N             of the input data (default: from the clock)\n"
    "  --summary            rank 0 prints the shim's summary at the end\n"
    "  --json FILE          also write the rows there\n"
    "  --vs-nccl            the whole matrix beside NCCL: eager and captured, by default "
    "2, 4\n"
    "                       and 8 ranks, 8 B to 256M (simulated: to 64K), 25 samples; "
    "with\n"
    "                       quartiles, and the ratio's 95 % bound. What the engine does "
    "not\n"
    "                       take is NCCL twice: see IPCSHIM_MAX_BYTES\n"
    "  --seconds N          that the matrix may take, roughly (default 240)\n"
    "  --plot FILE          draw it, as .svg, .png or .pdf; needs matplotlib, and "
    "writes\n"
    "                       FILE.json unless --json names another\n"
    "  --device D           auto (default), gpu or sim\n\n"
    "The exit status is 1 when any element is wrong, any rank disagrees, or the shim did "
    "not\n"
    "do what its plan says.\n";

struct lists {
    uint64_t sizes[MOST_SIZES], min, max, factor;
    int max_given;
    unsigned nsizes;
    int types[IPS_TYPES], ops[IPS_OPS];
    unsigned ntypes, nops;
};

/* Calls add(word) for every word of a comma-separated list; the bad word, or NULL. */
static const char *each_word(char *list, int (*add)(const char *word, void *arg),
                             void *arg)
{
    char *rest;
    for (char *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        if (add(word, arg))
            return word;
    return NULL;
}

static int add_rank(const char *word, void *arg)
{
    struct bench_plan *plan = arg;
    uint64_t ranks;
    if (plan->nranks == IPS_MAX_RANKS ||
        tool_parse_number(word, 1, IPS_MAX_RANKS, &ranks))
        return -1;
    plan->ranks[plan->nranks++] = (unsigned)ranks;
    return 0;
}

static int add_transport(const char *word, void *arg)
{
    static const char *const known[] = {"auto", "ipc", "host"};
    struct bench_plan *plan = arg;
    for (unsigned i = 0; i < BENCH_TRANSPORTS; i++)
        if (!strcmp(word, known[i]) && plan->ntransports < BENCH_TRANSPORTS) {
            plan->transports[plan->ntransports++] = known[i];
            return 0;
        }
    return -1;
}

static int add_size(const char *word, void *arg)
{
    struct lists *lists = arg;
    if (lists->nsizes == MOST_SIZES)
        return -1;
    return tool_parse_size(word, &lists->sizes[lists->nsizes++]);
}

static int add_type(const char *word, void *arg)
{
    struct lists *lists = arg;
    int type = tool_parse_type(word);
    for (int all = 0; all < IPS_TYPES && !strcmp(word, "all"); all++)
        lists->types[all] = all;
    if (!strcmp(word, "all"))
        lists->ntypes = IPS_TYPES;
    else if (type < 0 || lists->ntypes == IPS_TYPES)
        return -1;
    else
        lists->types[lists->ntypes++] = type;
    return 0;
}

static int add_op(const char *word, void *arg)
{
    struct lists *lists = arg;
    int op = tool_parse_op(word);
    for (int all = 0; all < IPS_OPS && !strcmp(word, "all"); all++)
        lists->ops[all] = all;
    if (!strcmp(word, "all"))
        lists->nops = IPS_OPS;
    else if (op < 0 || lists->nops == IPS_OPS)
        return -1;
    else
        lists->ops[lists->nops++] = op;
    return 0;
}

static const struct option options[] = {{"ranks", required_argument, NULL, 'n'},
                                        {"transport", required_argument, NULL, 'c'},
                                        {"min", required_argument, NULL, 'b'},
                                        {"max", required_argument, NULL, 'e'},
                                        {"factor", required_argument, NULL, 'f'},
                                        {"sizes", required_argument, NULL, 's'},
                                        {"types", required_argument, NULL, 't'},
                                        {"ops", required_argument, NULL, 'o'},
                                        {"iters", required_argument, NULL, 'i'},
                                        {"warmup", required_argument, NULL, 'w'},
                                        {"samples", required_argument, NULL, 'm'},
                                        {"in-place", no_argument, NULL, 'p'},
                                        {"offset-elems", required_argument, NULL, 'a'},
                                        {"graph", no_argument, NULL, 'g'},
                                        {"no-nccl", no_argument, NULL, 'x'},
                                        {"seed", required_argument, NULL, 'r'},
                                        {"json", required_argument, NULL, 'j'},
                                        {"device", required_argument, NULL, 'd'},
                                        {"summary", no_argument, NULL, 'u'},
                                        {"vs-nccl", no_argument, NULL, 'v'},
                                        {"seconds", required_argument, NULL, 'l'},
                                        {"plot", required_argument, NULL, 'q'},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};

static const char *option_name(int letter)
{
    for (const struct option *o = options; o->name; o++)
        if (o->val == letter)
            return o->name;
    return "?";
}

static int read_number(const char *text, uint64_t least, uint64_t most, uint32_t *ret)
{
    uint64_t value;
    if (tool_parse_number(text, least, most, &value))
        return -1;
    *ret = (uint32_t)value;
    return 0;
}

/* One option; not 0 when its value is bad. */
static int take(struct bench_plan *plan, struct lists *lists, int letter, char *value)
{
    struct bench_options *o = &plan->options;
    switch (letter) {
    case 'n':
        return each_word(value, add_rank, plan) != NULL;
    case 'c':
        return each_word(value, add_transport, plan) != NULL;
    case 'b':
        plan->sizes_given = 1;
        return tool_parse_size(value, &lists->min);
    case 'e':
        plan->sizes_given = lists->max_given = 1;
        return tool_parse_size(value, &lists->max);
    case 'f':
        return tool_parse_number(value, 2, 1024, &lists->factor);
    case 's':
        plan->sizes_given = 1;
        return each_word(value, add_size, lists) != NULL;
    case 't':
        return each_word(value, add_type, lists) != NULL;
    case 'o':
        return each_word(value, add_op, lists) != NULL;
    case 'i':
        return read_number(value, 1, 10000, &o->iters);
    case 'w':
        return read_number(value, 0, 10000, &o->warmup);
    case 'm':
        return read_number(value, 0, BENCH_MAX_SAMPLES, &o->samples);
    case 'a':
        return tool_parse_number(value, 0, 1 << 20, &o->offset_elems);
    case 'r':
        return tool_parse_number(value, 0, UINT64_MAX, &o->seed);
    case 'l':
        return read_number(value, 1, 86400, &plan->seconds);
    case 'd':
        return (plan->device = place_parse_device(value)) < 0;
    }
    return 0;
}

static void take_flag(struct bench_plan *plan, int letter, char *value)
{
    if (letter == 'p')
        plan->options.in_place = 1;
    else if (letter == 'g')
        plan->graph = 1;
    else if (letter == 'x')
        plan->no_nccl = 1;
    else if (letter == 'u')
        plan->summary = 1;
    else if (letter == 'v')
        plan->vs_nccl = 1;
    else if (letter == 'q')
        plan->plot = value;
    else if (letter == 'j')
        plan->json = value;
}

static int make_sizes(struct lists *lists)
{
    if (lists->nsizes)
        return 0;
    if (lists->min > lists->max || !lists->min)
        return -1;
    for (uint64_t size = lists->min; size < lists->max; size *= lists->factor) {
        if (lists->nsizes == MOST_SIZES - 1)
            return -1;
        lists->sizes[lists->nsizes++] = size;
    }
    lists->sizes[lists->nsizes++] = lists->max;
    return 0;
}

static void add_cases(struct bench_plan *plan, const struct lists *lists, uint32_t graph)
{
    for (unsigned t = 0; t < lists->ntypes; t++)
        for (unsigned o = 0; o < lists->nops; o++)
            for (unsigned s = 0; s < lists->nsizes; s++) {
                uint64_t bytes = lists->sizes[s];
                unsigned size = ips_type_bytes(lists->types[t]);
                struct bench_case c = {bytes && bytes < size ? 1 : bytes / size,
                                       lists->types[t], lists->ops[o], graph};
                plan->cases[plan->ncases++] = c;
            }
}

static int make_cases(struct bench_plan *plan, struct lists *lists)
{
    if (make_sizes(lists))
        return tool_fail(
            "bench: --min must be from 1 to --max, and give at most %d sizes",
            MOST_SIZES);
    unsigned most = lists->ntypes * lists->nops * lists->nsizes * (plan->vs_nccl ? 2 : 1);
    if (most > MOST_CASES)
        return tool_fail("bench: %u cases are more than %d: name fewer", most,
                         MOST_CASES);
    plan->cases = calloc(most, sizeof *plan->cases);
    if (!plan->cases)
        return tool_fail("bench: no memory");
    if (plan->vs_nccl)
        add_cases(plan, lists, 0);
    add_cases(plan, lists, plan->vs_nccl || plan->graph);
    return -1;
}

/* What was left open of the ranks, types and so on. */
static void fill_lists(struct bench_plan *plan, struct lists *lists)
{
    if (!plan->nranks) {
        plan->ranks[plan->nranks++] = 2;
        for (unsigned ranks = 4; plan->vs_nccl && ranks <= 8; ranks *= 2)
            plan->ranks[plan->nranks++] = ranks;
    }
    if (!lists->ntypes)
        lists->types[lists->ntypes++] = IPS_FLOAT32;
    if (!lists->nops)
        lists->ops[lists->nops++] = IPS_SUM;
    if (!lists->max_given)
        lists->max = plan->vs_nccl ? 256 << 20 : 16 << 20;
    if (!plan->ntransports)
        plan->transports[plan->ntransports++] = getenv("IPCSHIM_TRANSPORT");
}

/* Options that only the matrix knows, and one that it does not. */
static int check_matrix(struct bench_plan *plan)
{
    if (!plan->vs_nccl && (plan->plot || plan->seconds))
        return tool_fail("bench: --plot and --seconds belong to --vs-nccl");
    if (plan->vs_nccl && plan->no_nccl)
        return tool_fail("bench: --vs-nccl without NCCL has nothing to compare with");
    if (plan->plot && !plan->json) {
        static char beside[4096];
        if ((size_t)snprintf(beside, sizeof beside, "%s.json", plan->plot) >=
            sizeof beside)
            return tool_fail("bench: the name for --plot is too long");
        plan->json = beside;
    }
    return -1;
}

int bench_plan_parse(struct bench_plan *plan, int argc, char **argv)
{
    struct lists lists = {.min = 8, .factor = 2};
    int letter;
    *plan = (struct bench_plan){.device = PLACE_AUTO,
                                .options = {.iters = UNSET,
                                            .warmup = UNSET,
                                            .samples = UNSET,
                                            .seed = (uint64_t)time(NULL)}};
    while ((letter = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (letter == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (letter == '?')
            return TOOL_USAGE;
        if (take(plan, &lists, letter, optarg))
            return tool_fail("bench: bad value for --%s: see ipcshim bench --help",
                             option_name(letter));
        take_flag(plan, letter, optarg);
    }
    if (optind < argc)
        return tool_fail("bench: \"%s\" is not an option: see ipcshim bench --help",
                         argv[optind]);
    fill_lists(plan, &lists);
    int status = check_matrix(plan);
    if (status >= 0)
        return status;
    return make_cases(plan, &lists);
}

/* On the stand-in nobody waits for large messages that he did not ask for. */
static void drop_large(struct bench_plan *plan)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < plan->ncases; i++) {
        const struct bench_case *c = &plan->cases[i];
        if (c->count * ips_type_bytes(c->type) <= MOST_SIMULATED)
            plan->cases[kept++] = *c;
    }
    plan->ncases = kept;
}

static void settle_matrix(struct bench_plan *plan, int simulated)
{
    struct bench_options *o = &plan->options;
    if (simulated && !plan->sizes_given)
        drop_large(plan);
    if (o->samples == UNSET)
        o->samples = simulated ? BENCH_STATS_LEAST : 25;
    if (!plan->seconds)
        plan->seconds = 240;
    double share = plan->seconds * 1e6 * TIMED_SHARE /
                   (plan->ncases * plan->nranks * plan->ntransports);
    o->case_us = share < 1 ? 1 : share > 1e9 ? 1000000000 : (uint32_t)share;
    o->check_elems = 1 << 20;
    o->measure_limit = 1;
}

void bench_plan_settle(struct bench_plan *plan, int simulated)
{
    struct bench_options *o = &plan->options;
    o->simulated = (uint32_t)simulated;
    if (plan->vs_nccl)
        settle_matrix(plan, simulated);
    if (o->iters == UNSET)
        o->iters = simulated ? 1 : 20;
    if (o->warmup == UNSET)
        o->warmup = simulated ? 0 : 5;
    if (o->samples == UNSET)
        o->samples = simulated ? 1 : 7;
    o->beside = plan->vs_nccl || (!plan->no_nccl && !simulated);
    o->wait_seconds = 120;
}
