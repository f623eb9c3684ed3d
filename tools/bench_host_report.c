/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the rows of `ipcshim bench --host`: nanoseconds a call. */
#include "tools/bench_host.h"

static const char *how_text(enum host_how how)
{
    return how == HOST_GROUP ? "grouped" : how == HOST_CAPTURED ? "captured" : "eager";
}

void host_report_begin(struct host_report *report, const struct host_options *o)
{
    printf(
        "# %u ranks, %u batches of %u calls, nanoseconds a call on the calling thread: "
        "median (quartiles)%s\n",
        o->ranks, o->samples, o->calls,
        o->simulated ? "; CPU time, on the CPU stand-in: not performance" : "");
    printf("%-9s %-8s %-6s %-22s %22s %22s %30s\n", "call", "how", "route", "settings",
           "real library directly", "through the shim", "added (95 % of its median)");
    if (report->json)
        fprintf(report->json,
                "{\n\"version\": \"" IPCSHIM_VERSION "\",\n\"simulated\": %s, "
                "\"ranks\": %u, \"samples\": %u, \"calls\": %u,\n\"rows\": [",
                o->simulated ? "true" : "false", o->ranks, o->samples, o->calls);
}

static void column(const struct bench_spread *spread)
{
    char text[64];
    snprintf(text, sizeof text, "%.0f (%.0f-%.0f)", spread->median, spread->quarter,
             spread->three_quarters);
    printf(" %22s", text);
}

static void json_spread(FILE *json, const char *name, const struct bench_spread *spread)
{
    fprintf(json,
            ", \"%s\": {\"median\": %.1f, \"quarter\": %.1f, "
            "\"three_quarters\": %.1f, \"least\": %.1f, \"most\": %.1f}",
            name, spread->median, spread->quarter, spread->three_quarters, spread->least,
            spread->most);
}

/* What is added is the median of the differences between neighbours in time. */
void host_report_row(struct host_report *report, const struct host_options *o,
                     const struct host_row *row, struct host_result *result)
{
    static double added_ns[HOST_SAMPLES];
    char text[64];
    double low = 0, high = 0;
    for (unsigned s = 0; s < o->samples; s++)
        added_ns[s] = result->shim_ns[s] - result->direct_ns[s];
    const int bounded = bench_median_bounds(added_ns, o->samples, &low, &high);
    const struct bench_spread added = bench_spread_of(added_ns, o->samples),
                              direct = bench_spread_of(result->direct_ns, o->samples),
                              shim = bench_spread_of(result->shim_ns, o->samples);
    const char *call = row->broadcast ? "Broadcast" : "AllReduce";
    const char *route = row->taken ? "engine" : "nccl";
    printf("%-9s %-8s %-6s %-22s", call, how_text(row->how), route, row->set->text);
    column(&direct);
    column(&shim);
    snprintf(text, sizeof text, bounded ? "%+.0f (%+.0f to %+.0f)" : "%+.0f",
             added.median, low, high);
    printf(" %30s\n", text);
    fflush(stdout);
    if (!report->json)
        return;
    fprintf(report->json,
            "%s\n {\"call\": \"nccl%s\", \"how\": \"%s\", \"route\": \"%s\", "
            "\"settings\": \"%s\"",
            report->rows++ ? "," : "", call, how_text(row->how), route, row->set->text);
    json_spread(report->json, "direct_ns", &direct);
    json_spread(report->json, "shim_ns", &shim);
    json_spread(report->json, "added_ns", &added);
    if (bounded)
        fprintf(report->json, ", \"added_low_ns\": %.1f, \"added_high_ns\": %.1f", low,
                high);
    fputc('}', report->json);
}

void host_report_end(struct host_report *report)
{
    if (report->json)
        fprintf(report->json, "\n]\n}\n");
}
