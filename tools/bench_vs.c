/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of `ipcshim bench --vs-nccl`. Where the GPU is simulated there are times, so
 * that the way here is tested, but no ratios and no bandwidths: they would mean nothing.
 */
#include "tools/bench_vs.h"

#include "tools/tool.h"

struct bench_limit bench_limit_of(const struct bench_page *page)
{
    const struct bench_place *first = &page->places[0];
    struct bench_limit limit = {.gb_s = first->copy_gb_s};
    unsigned nranks = page->sync.nranks, on_gpu[IPS_MAX_RANKS] = {0};
    for (unsigned r = 0; r < nranks; r++) {
        const struct bench_place *place = &page->places[r];
        if (place->hop == BENCH_HOP_UNKNOWN || place->copy_gb_s <= 0)
            return (struct bench_limit){.kind = "not measured: a copy failed"};
        if (place->hop != first->hop)
            return (struct bench_limit){
                .kind = "not measured: the hops of the ring are of several kinds"};
        if (place->copy_gb_s < limit.gb_s)
            limit.gb_s = place->copy_gb_s;
        unsigned sharing = ++on_gpu[place->ordinal % IPS_MAX_RANKS];
        if (sharing > limit.ranks_share)
            limit.ranks_share = sharing;
    }
    if (first->hop == BENCH_HOP_SAME_GPU)
        limit.kind = "copy within the memory of the one GPU";
    else if (first->hop == BENCH_HOP_HOST)
        limit.kind = "copies to and from host memory at once, each way";
    else if (first->hop == BENCH_HOP_PEER)
        limit.kind = "peer copy one way, slowest hop of the ring";
    else
        limit.kind = "copy one way without peer access, slowest hop of the ring";
    return limit;
}

double bench_limit_percent(const struct bench_limit *limit, unsigned ranks,
                           uint64_t bytes, double us)
{
    if (limit->gb_s <= 0 || us <= 0)
        return 0;
    double sent = 2.0 * (ranks - 1) / ranks * (double)bytes * limit->ranks_share;
    return 100 * sent / us * 1e-3 / limit->gb_s;
}

void bench_vs_begin(struct bench_report *report, const struct bench_plan *plan,
                    unsigned ranks, const char *transport)
{
    report->simulated = (int)plan->options.simulated;
    printf("# %u ranks, transport %s, seed %llu%s\n", ranks, transport ? transport : "auto",
           (unsigned long long)plan->options.seed,
           report->simulated ? "; times are simulated, not performance: no ratios" : "");
    printf("%10s %-5s  %-6s %-19s %2s %10s %17s %10s %17s %6s %13s %7s %6s  %s\n", "bytes",
           "mode", "route", "variant", "ch", "time us", "quartiles", "NCCL us", "quartiles",
           "ratio", "95 % bound", "algbw", "limit", "errors");
}

static uint64_t bytes_of(const struct bench_row *row)
{
    return row->c->count * ips_type_bytes(row->c->type);
}

static void print_time(const struct bench_spread *time)
{
    char text[32];
    snprintf(text, sizeof text, "%.2f-%.2f", time->quarter, time->three_quarters);
    printf(" %10.2f %17s", time->median, text);
}

static void print_comparison(const struct bench_row *row, const struct bench_limit *limit,
                             int simulated)
{
    char bound[32] = "-", percent[16] = "-";
    double us = row->engine.median;
    if (simulated || us <= 0) {
        printf(" %6s %13s %7s %6s", "-", "-", "-", "-");
        return;
    }
    if (row->bounded)
        snprintf(bound, sizeof bound, "%.3f-%.3f", row->ratio_low, row->ratio_high);
    if (limit->gb_s > 0)
        snprintf(percent, sizeof percent, "%.1f%%",
                 bench_limit_percent(limit, row->ranks, bytes_of(row), us));
    printf(" %6.3f %13s %7.3f %6s", row->ratio, bound, (double)bytes_of(row) / us * 1e-3,
           percent);
}

static void json_spread(FILE *json, const char *name, const struct bench_spread *time,
                        const double *samples)
{
    fprintf(json,
            "\"%s\": {\"median\": %.3f, \"quartiles\": [%.3f, %.3f], \"min\": %.3f, "
            "\"max\": %.3f, \"samples\": [",
            name, time->median, time->quarter, time->three_quarters, time->least,
            time->most);
    for (unsigned i = 0; i < time->n; i++)
        fprintf(json, "%s%.3f", i ? ", " : "", samples[i]);
    fprintf(json, "]},");
}

static void json_number(FILE *json, const char *name, double value, int known)
{
    if (known)
        fprintf(json, "\"%s\": %.4f, ", name, value);
    else
        fprintf(json, "\"%s\": null, ", name);
}

static void json_comparison(FILE *json, const struct bench_row *row,
                            const struct bench_limit *limit, int simulated)
{
    uint64_t bytes = bytes_of(row);
    double us = row->engine.median, nccl_us = row->nccl.median;
    int known = !simulated && us > 0 && nccl_us > 0, limited = known && limit->gb_s > 0;
    json_number(json, "ratio", row->ratio, known);
    if (known && row->bounded)
        fprintf(json, "\"ratio_bound\": [%.4f, %.4f], ", row->ratio_low, row->ratio_high);
    else
        fprintf(json, "\"ratio_bound\": null, ");
    json_number(json, "algbw_gb_s", known ? (double)bytes / us * 1e-3 : 0, known);
    json_number(json, "nccl_algbw_gb_s", known ? (double)bytes / nccl_us * 1e-3 : 0,
                known);
    json_number(json, "limit_gb_s", limit->gb_s, limited);
    json_number(json, "limit_percent", bench_limit_percent(limit, row->ranks, bytes, us),
                limited);
    json_number(json, "nccl_limit_percent",
                bench_limit_percent(limit, row->ranks, bytes, nccl_us), limited);
    fprintf(json, "\"limit_kind\": ");
    bench_json_text(json, limit->kind);
    fprintf(json, ", ");
}

static void json_row(struct bench_report *report, const struct bench_row *row,
                     const struct bench_limit *limit)
{
    FILE *json = report->json;
    const struct bench_took *took = &row->took;
    int engine = took->route == IPS_ROUTE_ENGINE;
    fprintf(json, "%s\n {\"transport\": ", report->rows ? "," : "");
    bench_json_text(json, engine ? row->transport : NULL);
    fprintf(json,
            ", \"ranks\": %u, \"mode\": \"%s\", \"bytes\": %llu, \"count\": %llu, "
            "\"type\": \"%s\", \"op\": \"%s\", \"route\": \"%s\", ",
            row->ranks, row->c->graph ? "graph" : "eager",
            (unsigned long long)bytes_of(row), (unsigned long long)row->c->count,
            ips_type_name(row->c->type), ips_op_name(row->c->op),
            engine ? "engine" : "nccl");
    bench_json_variant(json, engine ? took->variant : -1);
    fprintf(json, ", \"channels\": %u, \"iters\": %u,\n  ", row->took.channels, row->iters);
    json_spread(json, "us", &row->engine, row->engine_us);
    fprintf(json, "\n  ");
    json_spread(json, "nccl_us", &row->nccl, row->nccl_us);
    fprintf(json, "\n  ");
    json_comparison(json, row, limit, report->simulated);
    fprintf(json, "\"wrong\": %llu, \"ranks_differ\": %s, \"reason\": ",
            (unsigned long long)row->wrong, row->differ ? "true" : "false");
    bench_json_text(json, took->reason);
    fputc('}', json);
}

void bench_vs_row(struct bench_report *report, const struct bench_row *row)
{
    struct bench_limit limit = bench_limit_of(row->page);
    const char *variant = ips_variant_name(row->took.variant);
    char channels[8] = "-";
    if (variant)
        snprintf(channels, sizeof channels, "%u", row->took.channels);
    printf("%10llu %-5s  %-6s %-19s %2s", (unsigned long long)bytes_of(row),
           row->c->graph ? "graph" : "eager", variant ? "engine" : "nccl",
           variant ? variant : "-", channels);
    print_time(&row->engine);
    print_time(&row->nccl);
    print_comparison(row, &limit, report->simulated);
    if (row->wrong)
        printf("  WRONG %llu\n", (unsigned long long)row->wrong);
    else
        printf("  %s\n", row->differ ? "DIFFER" : "ok");
    fflush(stdout);
    if (report->json && !report->rows)
        bench_json_head(report->json, row->page);
    if (report->json)
        json_row(report, row, &limit);
    report->rows++;
}
