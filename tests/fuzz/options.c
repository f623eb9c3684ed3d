/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes command lines: the options of `ipcshim bench`, one a line, and the words that
 * all subcommands read. */
#include <getopt.h>

#include "tests/fuzz/fuzz.h"
#include "tools/bench.h"
#include "tools/place.h"

/* A complaint is not printed here. */
#define tool_fail tool_fail_loud
#include "tools/tool.c"
#undef tool_fail
int tool_fail(const char *format, ...);
int tool_fail(const char *format, ...)
{
    return format ? TOOL_USAGE : -1;
}

/* Nor is the help. */
#define fputs(text, file) ((void)(text))
#include "tools/bench_options.c"
#undef fputs

int place_parse_device(const char *text)
{
    return !strcmp(text, "sim") ? PLACE_SIM : -1;
}

static void check_plan(struct bench_plan *plan)
{
    bench_plan_settle(plan, 1);
    const struct bench_options *o = &plan->options;
    MUST(plan->nranks >= 1 && plan->nranks <= IPS_MAX_RANKS);
    for (unsigned i = 0; i < plan->nranks; i++)
        MUST(plan->ranks[i] >= 1 && plan->ranks[i] <= IPS_MAX_RANKS);
    MUST(plan->ncases >= 1 && plan->ncases <= 4096);
    for (unsigned i = 0; i < plan->ncases; i++) {
        const struct bench_case *c = &plan->cases[i];
        MUST(c->type >= 0 && c->type < IPS_TYPES && c->op >= 0 && c->op < IPS_OPS);
        MUST(c->count <= UINT64_MAX / ips_type_bytes(c->type));
    }
    MUST(o->iters >= 1 && o->iters <= 10000 && o->warmup <= 10000);
    MUST(!plan->vs_nccl || (o->beside && o->case_us && (!plan->plot || plan->json)));
    MUST(o->samples <= BENCH_MAX_SAMPLES && o->offset_elems <= 1 << 20);
}

static void check_words(char *const *words)
{
    static const char *const names[] = {"bench", "check", "policy"};
    for (uint64_t value; *words; words++) {
        if (!tool_parse_number(*words, 3, 99, &value))
            MUST(value >= 3 && value <= 99);
        if (!tool_parse_size(*words, &value)) {
            char text[16];
            MUST(strlen(tool_size_text(value, text)) < sizeof text);
        }
        tool_nearest(*words, names, 3);
        MUST(tool_parse_type(*words) < IPS_TYPES && tool_parse_op(*words) < IPS_OPS);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_texts texts;
    char name[] = "bench", *argv[FUZZ_TEXTS + 2] = {name};
    struct bench_plan plan;
    fuzz_cut(&texts, data, size, '\n');
    memcpy(argv + 1, texts.text, sizeof texts.text);
    check_words(texts.text);
    optind = 0; /* getopt begins anew */
    opterr = 0;
    if (bench_plan_parse(&plan, (int)texts.count + 1, argv) == -1)
        check_plan(&plan);
    free(plan.cases);
    fuzz_free(&texts);
    return 0;
}
