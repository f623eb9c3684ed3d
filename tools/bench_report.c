/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a bench's rows: a table for people on stdout, and JSON for programs. */
#include "tools/bench.h"
#include "tools/tool.h"

static void json_options(FILE *json, const struct bench_plan *plan)
{
    const struct bench_options *o = &plan->options;
    fprintf(json,
            "{\n\"version\": \"" IPCSHIM_VERSION "\",\n\"simulated\": %s,\n"
            "\"seed\": %llu, \"warmup\": %u, \"iters\": %u, \"samples\": %u,\n"
            "\"in_place\": %s, \"graph\": %s, \"offset_elems\": %llu,\n\"rows\": [",
            o->simulated ? "true" : "false", (unsigned long long)o->seed, o->warmup,
            o->iters, o->samples, o->in_place ? "true" : "false",
            plan->graph ? "true" : "false", (unsigned long long)o->offset_elems);
}

void bench_report_begin(struct bench_report *report, const struct bench_plan *plan,
                        unsigned ranks)
{
    const struct bench_options *options = &plan->options;
    report->simulated = (int)options->simulated;
    report->beside = (int)options->beside;
    if (report->json && !report->rows)
        json_options(report->json, plan);
    printf("# %u ranks, %s, %s, seed %llu%s\n", ranks,
           options->in_place ? "in place" : "out of place",
           plan->graph ? "captured and replayed" : "eager",
           (unsigned long long)options->seed,
           options->simulated ? "; times are simulated, not performance" : "");
    printf("%10s %11s %-8s %-4s  %-6s %-19s %2s %10s %7s %7s  %-8s", "bytes", "count",
           "type", "op", "route", "variant", "ch", "time us", "algbw", "busbw", "errors");
    if (report->beside)
        printf(" %10s %6s", "NCCL us", "ratio");
    printf("  why\n");
}

void bench_json_text(FILE *json, const char *text)
{
    if (!text) {
        fprintf(json, "null");
        return;
    }
    fputc('"', json);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', json);
        if ((unsigned char)*text >= ' ')
            fputc(*text, json);
    }
    fputc('"', json);
}

/* The two members that say how the engine ran a case; null for NCCL. */
void bench_json_variant(FILE *json, int variant)
{
    fprintf(json, "\"algorithm\": ");
    bench_json_text(json, variant < 0 ? NULL : ips_algo_name(ips_variant_algo(variant)));
    fprintf(json, ", \"protocol\": ");
    bench_json_text(json, variant < 0 ? NULL : ips_proto_name(ips_variant_proto(variant)));
}

static void json_row(struct bench_report *report, const struct bench_row *row,
                     double algbw, double busbw)
{
    FILE *json = report->json;
    const struct bench_took *took = &row->took;
    fprintf(json,
            "%s\n {\"ranks\": %u, \"bytes\": %llu, \"count\": %llu, \"type\": \"%s\", "
            "\"op\": \"%s\", \"route\": \"%s\", ",
            report->rows ? "," : "", row->ranks,
            (unsigned long long)(row->c->count * ips_type_bytes(row->c->type)),
            (unsigned long long)row->c->count, ips_type_name(row->c->type),
            ips_op_name(row->c->op), took->route == IPS_ROUTE_ENGINE ? "engine" : "nccl");
    bench_json_variant(json, took->variant);
    fprintf(json,
            ", \"channels\": %u, \"us\": %.3f, \"algbw\": %.3f, \"busbw\": %.3f, "
            "\"wrong\": %llu, \"ranks_differ\": %s, ",
            row->took.channels, row->engine.median, algbw, busbw,
            (unsigned long long)row->wrong, row->differ ? "true" : "false");
    if (report->beside)
        fprintf(json, "\"nccl_us\": %.3f, \"ratio\": %.4f, ", row->nccl.median,
                row->ratio);
    fprintf(json, "\"reason\": ");
    bench_json_text(json, took->reason);
    fputc('}', json);
}

void bench_report_row(struct bench_report *report, const struct bench_row *row)
{
    uint64_t bytes = row->c->count * ips_type_bytes(row->c->type);
    double algbw = row->engine.median > 0 ? (double)bytes / row->engine.median * 1e-3 : 0;
    double busbw = algbw * 2 * (row->ranks - 1) / row->ranks;
    const char *variant = ips_variant_name(row->took.variant);
    char errors[32] = "ok";
    if (row->wrong)
        snprintf(errors, sizeof errors, "WRONG %llu", (unsigned long long)row->wrong);
    else if (row->differ)
        snprintf(errors, sizeof errors, "DIFFER");
    printf("%10llu %11llu %-8s %-4s  %-6s %-19s", (unsigned long long)bytes,
           (unsigned long long)row->c->count, ips_type_name(row->c->type),
           ips_op_name(row->c->op),
           row->took.route == IPS_ROUTE_ENGINE ? "engine" : "nccl", variant ? variant : "-");
    if (variant)
        printf(" %2u", row->took.channels);
    else
        printf("  -");
    printf(" %10.2f %7.3f %7.3f  %-8s", row->engine.median, algbw, busbw, errors);
    if (report->beside)
        printf(" %10.2f %6.2f", row->nccl.median, row->ratio);
    printf("  %s\n", row->took.reason);
    fflush(stdout);
    if (report->json)
        json_row(report, row, algbw, busbw);
    report->rows++;
}

void bench_report_end(struct bench_report *report)
{
    if (report->json && (report->rows || !report->vs_nccl))
        fprintf(report->json, "\n]\n}\n");
}
