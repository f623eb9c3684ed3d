/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `ipcshim bench --host` share: the rows, the page between the parent
 * (bench_host.c) and the ranks (bench_host_rank.c), and the printing
 * (bench_host_report.c). */
#ifndef IPS_TOOLS_BENCH_HOST_H
#define IPS_TOOLS_BENCH_HOST_H

#include <stdint.h>
#include <stdio.h>

#include "kernels/names.h"
#include "kernels/types.h"
#include "tools/bench_stats.h"
#include "tools/fleet.h"
#include "tools/nccl.h"

#define HOST_SAMPLES 1000 /* most */
#define HOST_ROWS 16
#define HOST_ELEMS 256 /* float32: 1 KB, which the engine takes or not as it is told */

enum host_how { HOST_EAGER, HOST_GROUP, HOST_CAPTURED };

/* Settings of the shim, which are a process's: rows with the same ones follow each other
 * and are run by the same ranks. */
struct host_set {
    const char *text;
    const char *enable, *max_bytes;
    int trace, summary;
};

struct host_row {
    const struct host_set *set;
    int broadcast; /* else AllReduce */
    enum host_how how;
    int taken; /* by the engine; else forwarded */
};
extern const struct host_row host_rows[];
extern const unsigned host_row_count;

/* One rank's nanoseconds a call, each the mean of a batch: of the real library called
 * directly, and through the shim, by turns. */
struct host_result {
    double direct_ns[HOST_SAMPLES], shim_ns[HOST_SAMPLES];
};

struct host_options {
    uint32_t ranks, samples, calls; /* calls of a batch */
    uint32_t simulated;
    uint32_t wait_seconds;
};

struct host_page {
    struct fleet_sync sync;
    struct host_options options;
    struct nccl_id id[2];  /* through the shim, and the real library's */
    uint32_t first, count; /* rows of this run */
    uint32_t probe;        /* one call of each row through the shim, untimed */
    struct host_result result[HOST_ROWS]; /* rank 0's */
};

/* What rank 0 measured, and what became of the row's call. */
struct host_report {
    FILE *json;
    unsigned rows;
};
void host_report_begin(struct host_report *report, const struct host_options *options);
void host_report_row(struct host_report *report, const struct host_options *options,
                     const struct host_row *row, struct host_result *result);
void host_report_end(struct host_report *report);

/* argv[0] is the command's name. */
int bench_host(int argc, char **argv);

#endif
