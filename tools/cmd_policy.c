/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim policy: from which size on an AllReduce takes which route and protocol, and
 * why, under the IPCSHIM_* variables that are set. Exact: the size is the first one. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "policy/policy.h"
#include "shim/settings.h"
#include "tools/tool.h"

static const char help[] =
    "usage: ipcshim policy [--ranks N] [--type T] [--op O]\n\n"
    "Prints from which size on an AllReduce of N ranks (default 2) takes which route "
    "and\n"
    "protocol, and why, under the IPCSHIM_* variables that are set. Whether the engine "
    "gets\n"
    "a communicator at all is decided when it is made (see IPCSHIM_LOG=info).\n";

struct query {
    unsigned ranks;
    int type, op;
};

static struct ips_decision decide(const struct query *q, uint64_t count)
{
    return ips_policy_decide(&ips_settings()->policy, q->ranks, count, q->type, q->op);
}

static int same(const struct ips_decision *a, const struct ips_decision *b)
{
    if (a->route != b->route || strcmp(a->reason, b->reason))
        return 0;
    return a->route == IPS_ROUTE_NCCL ||
           (a->variant == b->variant && a->channels == b->channels &&
            a->threads == b->threads);
}

static void print_row(const struct query *q, uint64_t count)
{
    struct ips_decision d = decide(q, count);
    char size[16];
    tool_size_text(count * ips_type_bytes(q->type), size);
    if (d.route == IPS_ROUTE_ENGINE)
        printf("%12s  engine  %-13s  %8u  %7u  %s\n", size, ips_variant_name(d.variant),
               d.channels, d.threads, d.reason);
    else
        printf("%12s  nccl    %-13s  %8s  %7s  %s\n", size, "-", "-", "-", d.reason);
}

/* Prints every count in (low, high] that decides otherwise than the one before it. The
 * ends of an interval that changes and changes back look alike, so intervals start out
 * small. */
static void print_changes(const struct query *q, uint64_t low, uint64_t high)
{
    struct ips_decision at_low = decide(q, low), at_high = decide(q, high);
    if (same(&at_low, &at_high))
        return;
    if (high - low == 1) {
        print_row(q, high);
        return;
    }
    uint64_t middle = low + (high - low) / 2;
    print_changes(q, low, middle);
    print_changes(q, middle, high);
}

static void print_table(const struct query *q)
{
    unsigned size = ips_type_bytes(q->type);
    printf("# %u ranks, %s, %s\n", q->ranks, ips_type_name(q->type), ips_op_name(q->op));
    if (!ips_settings()->enable)
        printf("# IPCSHIM_ENABLE=0: every call goes to NCCL, whatever the table says\n");
    printf("%12s  route   %-13s  channels  threads  why\n", "from", "variant");
    uint64_t low = 8 / size, most = (UINT64_C(1) << 30) / size;
    print_row(q, low);
    for (; low < most; low += low / 8 ? low / 8 : 1)
        print_changes(q, low, low + (low / 8 ? low / 8 : 1));
}

static void print_problems(void)
{
    const struct ips_settings_problems *problems = ips_settings_problems();
    for (unsigned i = 0; i < problems->count; i++)
        tool_fail("%s", problems->text[i]);
}

int cmd_policy(int argc, char **argv)
{
    static const struct option options[] = {{"ranks", required_argument, NULL, 'n'},
                                            {"type", required_argument, NULL, 't'},
                                            {"op", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct query query = {2, IPS_FLOAT32, IPS_SUM};
    uint64_t ranks;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        } else if (option == 'n') {
            if (tool_parse_number(optarg, 1, 1 << 20, &ranks))
                return tool_fail("--ranks %s: expected a number from 1", optarg);
            query.ranks = (unsigned)ranks;
        } else if (option == 't') {
            if ((query.type = tool_parse_type(optarg)) < 0)
                return tool_fail(
                    "--type %s: the engine knows int8, uint8, int32, uint32, "
                    "int64, uint64, float16, bfloat16, float32, float64",
                    optarg);
        } else if (option == 'o') {
            if ((query.op = tool_parse_op(optarg)) < 0)
                return tool_fail("--op %s: the engine knows sum, prod, max, min, avg",
                                 optarg);
        } else {
            return TOOL_USAGE;
        }
    }
    if (optind < argc)
        return tool_fail("policy: \"%s\" is not an option", argv[optind]);
    print_problems();
    print_table(&query);
    return 0;
}
