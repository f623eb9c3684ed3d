/* SPDX-License-Identifier: Apache-2.0 */
/* `ipcshim bench --vs-nccl`: rows that set the engine beside NCCL, as a table and as JSON
 * (docs/benchmark.md says what each member means; tools/plot draws it). */
#ifndef IPS_TOOLS_BENCH_VS_H
#define IPS_TOOLS_BENCH_VS_H

#include "tools/bench.h"

/* What the links between the ranks can carry, as a copy engine shows it. */
struct bench_limit {
    double gb_s;          /* 0: not known */
    const char *kind;     /* what was measured, or why nothing was */
    unsigned ranks_share; /* ranks whose bytes go through the same memory or link */
};

/* From what the ranks measured of their hops. */
struct bench_limit bench_limit_of(const struct bench_page *page);

/* Percent of the limit, of an AllReduce of `bytes` among `ranks` in `us`. Each rank must
 * send and get at least 2 (n-1)/n times the bytes when partial sums are made on the way
 * (Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 69, 2009); ranks that
 * share a memory share its rate. 0 when it is not known. */
double bench_limit_percent(const struct bench_limit *limit, unsigned ranks,
                           uint64_t bytes, double us);

/* Draws a JSON into a file with ipcshim-plot; with NULL only asks whether it could. 0, or
 * its exit status after it has said why not. */
int bench_plot(const char *json, const char *picture);

void bench_vs_begin(struct bench_report *report, const struct bench_plan *plan,
                    unsigned ranks, const char *transport);
void bench_vs_row(struct bench_report *report, const struct bench_row *row);

/* What the numbers come from: versions, machine, environment, method. Opens the object
 * and its array of rows; bench_report_end closes both. */
void bench_json_head(FILE *json, const struct bench_page *page);

#endif
