/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank of a bench holds while it works: bench_rank.c sets it up, bench_case.c
 * checks and times one case with it. */
#ifndef IPS_TOOLS_BENCH_RANK_H
#define IPS_TOOLS_BENCH_RANK_H

#include "tools/bench.h"
#include "tools/device.h"

#define BENCH_GUARD_BYTES 256 /* before and behind each buffer */

struct bench_rank {
    struct bench_page *page;
    unsigned rank;
    struct device device;
    gpu_stream stream;
    struct nccl_api shim, real;
    nccl_comm comm, real_comm;
    gpu_ptr in_base, out_base; /* with room for the offset and the guards */
    unsigned char *host;       /* as large as one of them */
    size_t room;
};

/* Checks and times one case, and marks it done. Not 0 after printing what failed: peers
 * may be gone then, and nothing may wait for them. */
int bench_run_case(struct bench_rank *rank, unsigned index);

/* Writes what this rank knows of its machine into the page; one rank after the other, so
 * that none disturbs another's measurement. Not 0 when a rank has failed. */
int bench_look_around(struct bench_rank *rank);

/* 0, or -1 after printing NCCL's text. */
int bench_nccl_check(const struct nccl_api *api, int error, const char *what);

#endif
