/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim policy: the plan that a communicator would get under the IPCSHIM_* variables
 * that are set, with the times it rests on; and of one size, those of all candidates. */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/plan.h"
#include "shim/settings.h"
#include "shim/tune_file.h"
#include "tools/tool.h"

static const char help[] =
    "usage: ipcshim policy [--ranks N] [--link LINK] [--group N [--uplink PERCENT]]\n"
    "           [--tune FILE] [--size BYTES]\n\n"
    "Prints the plan of a communicator of N ranks (default 2) over a LINK (same-gpu, "
    "pcie,\n"
    "nvlink or host; default pcie) under the IPCSHIM_* variables that are set: up to "
    "which\n"
    "size an AllReduce takes which route and kernel, the times that rests on, in us,\n"
    "launched / replayed from a graph, and why. \"~\": by the model.\n"
    "FILE: of ipcshim tune (default: the one that the shim would read); its machine is "
    "not\n"
    "compared with this one. With --size, all candidates for that size. --group: so "
    "many\n"
    "ranks each stand behind an uplink that they share (default: none do), which "
    "carries\n"
    "PERCENT of what the link of one of them does (default: 100).\n"
    "Whether the engine gets a communicator at all is decided when it is made (see\n"
    "IPCSHIM_LOG=info).\n";

struct query {
    struct ips_plan_input input;
    const char *file; /* or NULL */
    char path[PATH_MAX];
};

static void print_times(const struct ips_times *times, int measured)
{
    char text[32];
    snprintf(text, sizeof text, "%s%.1f/%.1f", measured ? "" : "~",
             times->us[IPS_MODE_EAGER], times->us[IPS_MODE_GRAPH]);
    printf("  %15s", text);
}

static void print_row(const struct query *q, const struct ips_plan_row *row)
{
    char size[16];
    if (row->up_to_bytes == UINT64_MAX)
        strcpy(size, "any");
    else
        tool_size_text(row->up_to_bytes, size);
    if (row->variant == IPS_PLAN_NCCL)
        printf("%12s  nccl    %-19s  %8s  %7s", size, "-", "-", "-");
    else
        printf("%12s  engine  %-19s  %8u  %7u", size, ips_variant_name(row->variant),
               row->channels, row->threads);
    if (row->up_to_bytes == UINT64_MAX || q->input.place.ranks < IPS_MIN_RANKS ||
        q->input.place.ranks > IPS_MAX_RANKS) {
        printf("  %15s  %15s", "-", "-");
    } else {
        const struct ips_choice choice = ips_plan_choose(&q->input, row->up_to_bytes);
        print_times(&choice.engine, choice.engine_measured);
        print_times(&choice.nccl, choice.nccl_measured);
    }
    printf("  %s\n", ips_plan_why_text(row->why));
}

static void print_head(const struct query *q)
{
    printf("# %u ranks, %s, %s\n", q->input.place.ranks,
           ips_link_name((int)q->input.place.link),
           q->input.tuned ? q->path : "nothing measured: by the model");
    if (!ips_settings()->enable)
        printf("# IPCSHIM_ENABLE=0: every call goes to NCCL, whatever the table says\n");
}

static void print_plan(const struct query *q)
{
    const struct ips_plan_input *in = &q->input;
    struct ips_policy_plan plan;
    ips_policy_plan_make(in->settings, &in->place, in->tuned, &plan);
    print_head(q);
    printf("%12s  route   %-19s  channels  threads  %15s  %15s  why\n", "up to", "kernel",
           "engine", "nccl");
    for (unsigned i = 0; i < plan.count; i++)
        print_row(q, &plan.row[i]);
}

/* What was measured of the candidate at this size, or NULL. */
static const struct ips_times *measured(const struct query *q, uint64_t bytes,
                                        const struct ips_candidate *c)
{
    const struct ips_tuned *tuned = q->input.tuned;
    for (unsigned i = 0; tuned && i < tuned->count; i++) {
        const struct ips_tuned_row *row = &tuned->row[i];
        if (row->bytes == bytes && !row->nccl && row->candidate.variant == c->variant &&
            row->candidate.channels == c->channels &&
            row->candidate.threads == c->threads)
            return &row->times;
    }
    return NULL;
}

static void print_candidates(const struct query *q, uint64_t bytes)
{
    const struct ips_plan_input *in = &q->input;
    const struct ips_choice choice = ips_plan_choose(in, bytes);
    struct ips_candidate c;
    char size[16];
    print_head(q);
    printf("# %s; the engine is taken at %.0f / %.0f %% of NCCL's times or less: it %s\n",
           tool_size_text(bytes, size), 100 * choice.margin[IPS_MODE_EAGER],
           100 * choice.margin[IPS_MODE_GRAPH], choice.wins ? "is" : "is not");
    printf("%-19s  channels  threads  %15s  %15s\n", "kernel", "measured", "model");
    printf("%-19s  %8s  %7s", "nccl", "-", "-");
    const struct ips_times nccl = ips_model_nccl(in->place.link, in->place.ranks, bytes);
    if (choice.nccl_measured)
        print_times(&choice.nccl, 1);
    else
        printf("  %15s", "-");
    print_times(&nccl, 0);
    putchar('\n');
    for (unsigned i = 0; ips_candidate_at(i, &c); i++) {
        const struct ips_times model = ips_model_engine(&in->place, bytes, &c);
        const struct ips_times *times = measured(q, bytes, &c);
        struct ips_candidate cut = c;
        if (!ips_plan_permits(in, &cut) || cut.channels != c.channels)
            continue;
        printf("%-19s  %8u  %7u", ips_variant_name((int)c.variant), c.channels,
               c.threads);
        if (times)
            print_times(times, 1);
        else
            printf("  %15s", "-");
        print_times(&model, 0);
        printf("%s\n", c.variant == choice.best.variant &&
                               c.channels == choice.best.channels &&
                               c.threads == choice.best.threads
                           ? "  best"
                           : "");
    }
}

/* The measurements, where there is a file; one that was asked for must be of use. */
static int read_file(struct query *q, struct ips_tuned *tuned)
{
    char reason[IPS_TUNED_REASON_BYTES];
    enum ips_tuned_verdict verdict;
    const char *named = q->file ? q->file : ips_settings()->tune_file;
    if (ips_settings_tune_file(named, q->path, sizeof q->path) ||
        q->input.place.ranks < IPS_MIN_RANKS || q->input.place.ranks > IPS_MAX_RANKS)
        return 0;
    if (!ips_tune_file_read(q->path, NULL, q->input.place.ranks, q->input.place.link,
                            tuned, &verdict, reason)) {
        q->input.tuned = tuned;
        return 0;
    }
    if (!named && verdict == IPS_TUNED_NO_FILE)
        return 0;
    tool_fail("%s: %s", q->path, reason);
    return q->file && verdict != IPS_TUNED_ABSENT ? -1 : 0;
}

static void print_problems(void)
{
    const struct ips_settings_problems *problems = ips_settings_problems();
    for (unsigned i = 0; i < problems->count; i++)
        tool_fail("%s", problems->text[i]);
}

static int show(struct query *q, uint64_t bytes)
{
    struct ips_tuned *tuned = malloc(sizeof *tuned);
    if (!tuned)
        return tool_fail("no memory");
    int error = read_file(q, tuned);
    if (q->input.place.link == IPS_LINK_HOST)
        q->input.place.most_channels = IPS_HOST_CHANNELS;
    if (!error && bytes)
        print_candidates(q, bytes);
    else if (!error)
        print_plan(q);
    free(tuned);
    return error ? TOOL_USAGE : 0;
}

int cmd_policy(int argc, char **argv)
{
    static const struct option options[] = {
        {"ranks", required_argument, NULL, 'n'}, {"link", required_argument, NULL, 'l'},
        {"tune", required_argument, NULL, 't'},  {"size", required_argument, NULL, 's'},
        {"group", required_argument, NULL, 'g'}, {"uplink", required_argument, NULL, 'u'},
        {"help", no_argument, NULL, 'h'},        {0}};
    struct query query = {.input = {.settings = &ips_settings()->policy,
                                    .place = {.ranks = 2,
                                              .link = IPS_LINK_PCIE,
                                              .most_channels = IPS_MAX_CHANNELS}}};
    struct ips_policy_place *place = &query.input.place;
    uint64_t number, bytes = 0;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        } else if (option == 'n') {
            if (tool_parse_number(optarg, 1, 1 << 20, &number))
                return tool_fail("--ranks %s: expected a number from 1", optarg);
            place->ranks = (unsigned)number;
        } else if (option == 'g') {
            if (tool_parse_number(optarg, 0, IPS_MAX_RANKS, &number))
                return tool_fail("--group %s: expected a number of ranks", optarg);
            place->group = (unsigned)number;
        } else if (option == 'u') {
            if (tool_parse_number(optarg, 1, 100000, &number))
                return tool_fail("--uplink %s: expected percent of a link", optarg);
            place->uplink = (double)number / 100;
        } else if (option == 'l') {
            const int link = tool_parse_link(optarg);
            if (link < 0)
                return tool_fail("--link %s: same-gpu, pcie, nvlink or host", optarg);
            place->link = (enum ips_link)link;
        } else if (option == 't') {
            query.file = optarg;
        } else if (option == 's') {
            if (tool_parse_size(optarg, &bytes) || !bytes)
                return tool_fail("--size %s: expected bytes, or with K, M, G", optarg);
        } else {
            return TOOL_USAGE;
        }
    }
    if (optind < argc)
        return tool_fail("policy: \"%s\" is not an option", argv[optind]);
    if (bytes && (place->ranks < IPS_MIN_RANKS || place->ranks > IPS_MAX_RANKS))
        return tool_fail("--size: the engine has candidates for 2 to 8 ranks");
    if (place->group && !ips_groups_valid(place->group, place->ranks))
        return tool_fail("--group %u: %u ranks are not several groups of several ranks",
                         place->group, place->ranks);
    *place = ips_plan_place(query.input.settings, place);
    print_problems();
    return show(&query, bytes);
}
