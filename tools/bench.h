/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `ipcshim bench` share: the parent (cmd_bench.c) writes the cases into
 * a page, one process per rank (bench_rank.c) works through them and writes results
 * beside them, bench_trace.c says what the shim did, bench_report.c prints. */
#ifndef IPS_TOOLS_BENCH_H
#define IPS_TOOLS_BENCH_H

#include <stdint.h>
#include <stdio.h>

#include "policy/policy.h"
#include "tools/bench_pace.h"
#include "tools/fleet.h"
#include "tools/nccl.h"
#include "tools/reference.h"

#define BENCH_CHECKS 3 /* checked AllReduces of a case, each with another payload */
#define BENCH_MAX_SAMPLES 31

struct bench_options {
    uint64_t seed;
    uint64_t offset_elems;
    uint32_t warmup, iters, samples;
    uint32_t in_place;
    uint32_t beside; /* NCCL's own AllReduce on a second communicator, turn by turn */
    uint32_t simulated;
    uint32_t case_us;       /* for the timings of one case; 0: as long as they take */
    uint32_t check_elems;   /* of a result that are compared with the reference; 0: all */
    uint32_t measure_limit; /* of each hop, by a copy engine, before the cases */
    uint32_t wait_seconds;  /* for one AllReduce, before the bench gives up */
};

struct bench_case {
    uint64_t count;
    int32_t type, op;
    uint32_t graph; /* calls captured and replayed, else eager */
};

/* One rank's result of one case. */
struct bench_result {
    uint32_t calls; /* of ncclAllReduce through the shim, replays not counted; 0: it is
                       not known yet how many it will be */
    struct bench_pace pace; /* of its timings */
    double call_us;         /* first timing of one call, the slower side's */
    uint64_t wrong; /* elements, over all checks, and bytes written outside the output */
    uint32_t wrong_check;
    struct ips_mismatch first;
    uint64_t hash[BENCH_CHECKS];
    double engine_us[BENCH_MAX_SAMPLES], nccl_us[BENCH_MAX_SAMPLES];
};

/* How a rank's bytes reach the next rank, and how fast a copy engine moves them there. */
enum bench_hop {
    BENCH_HOP_UNKNOWN,
    BENCH_HOP_SAME_GPU,
    BENCH_HOP_PEER,
    BENCH_HOP_STAGED,
    BENCH_HOP_HOST
};
struct bench_place {
    int32_t ordinal, hop;
    double copy_gb_s; /* GB are 10^9 bytes, as everywhere in a bench */
};

struct bench_page {
    struct fleet_sync sync;
    struct bench_options options;
    struct nccl_id id[2]; /* through the shim, and NCCL's own */
    struct bench_place places[IPS_MAX_RANKS];
    char gpus[IPS_MAX_RANKS][96]; /* names of all that there are, used or not */
    int32_t cuda_version, nccl_version; /* of the driver, and NCCL's own; 0: not known */
    uint32_t ncases;
    uint32_t done[IPS_MAX_RANKS]; /* cases that a rank has finished */
    uint32_t reported;            /* cases that the parent has printed */
    struct bench_case cases[];    /* ncases, then results [ncases][nranks] */
};

static inline size_t bench_page_bytes(unsigned ncases, unsigned nranks)
{
    return sizeof(struct bench_page) +
           ncases * (sizeof(struct bench_case) + nranks * sizeof(struct bench_result));
}

static inline struct bench_result *bench_result(struct bench_page *page, unsigned index,
                                                unsigned rank)
{
    struct bench_result *all = (struct bench_result *)(page->cases + page->ncases);
    return all + (size_t)index * page->sync.nranks + rank;
}

/* Calls that one rank makes in one case; UINT32_MAX while that is not known. */
static inline uint32_t bench_calls(struct bench_page *page, unsigned index, unsigned rank)
{
    struct bench_result *result = bench_result(page, index, rank);
    uint32_t calls = __atomic_load_n(&result->calls, __ATOMIC_ACQUIRE);
    return calls ? calls : UINT32_MAX;
}

static inline struct ips_payload bench_payload(const struct bench_page *page,
                                               unsigned index, unsigned check)
{
    const struct bench_case *c = &page->cases[index];
    return (struct ips_payload){
        .seed = ips_mix(page->options.seed + index * BENCH_CHECKS + check),
        .nranks = page->sync.nranks,
        .type = (enum ips_type)c->type,
        .op = (enum ips_op)c->op,
        .values = check ? IPS_VALUES_EXACT : IPS_VALUES_RANDOM,
    };
}

#define BENCH_TRANSPORTS 3

/* What was asked for, in the parent. */
struct bench_plan {
    struct bench_options options;
    unsigned ranks[IPS_MAX_RANKS], nranks;
    struct bench_case *cases; /* to be freed */
    unsigned ncases;
    const char *json;
    int device; /* enum place_device */
    int no_nccl, summary, graph;
    int vs_nccl;      /* the matrix of eager and captured cases, with bounds */
    int sizes_given;  /* by the user */
    uint32_t seconds; /* that the matrix may take */
    const char *plot;
    /* Each a run of its own, as each number of ranks is; NULL: as the environment says. */
    const char *transports[BENCH_TRANSPORTS];
    unsigned ntransports;
};

/* Reads the command line. -1: go on; otherwise the exit status (usage, or --help). */
int bench_plan_parse(struct bench_plan *plan, int argc, char **argv);

/* Fills in what was left open, once it is known whether the GPU is simulated. */
void bench_plan_settle(struct bench_plan *plan, int simulated);

/* What the shim's trace of one rank says about its AllReduce calls of one case. */
struct bench_took {
    uint64_t calls;    /* events seen */
    uint64_t disagree; /* events that differ from the case's first one */
    enum ips_route route;
    int variant; /* -1 for NCCL */
    unsigned channels; /* 0 for NCCL */
    char reason[160];
};

/* Follows the trace of one rank while it is written, and assigns its AllReduce events to
 * the cases in order. */
struct bench_trace {
    struct bench_page *page;
    unsigned rank;
    char path[4096];
    FILE *file;
    struct bench_took *took; /* one per case */
    unsigned index;          /* case that the next event belongs to */
    uint64_t dropped;        /* events that the shim could not write */
    int served;              /* the communicator is the engine's; -1: not told yet */
    char transport[16];      /* then, the one it has */
};

/* 0 or -ENOMEM; the file need not be there yet. */
int bench_trace_open(struct bench_trace *trace, struct bench_page *page, unsigned rank,
                     const char *path);
/* Reads the whole lines that are new. */
void bench_trace_advance(struct bench_trace *trace);
void bench_trace_close(struct bench_trace *trace);

struct bench_row {
    const struct bench_case *c;
    unsigned ranks;
    struct bench_took took; /* rank 0's; all ranks' are compared with it */
    uint64_t wrong;
    int differ; /* ranks hold different outputs */
    const struct bench_page *page;
    const char *transport;
    unsigned iters;                   /* calls in one sample */
    struct bench_spread engine, nccl; /* us; 0 when not measured */
    double ratio;                     /* median of the pairs' */
    int bounded;                      /* there are enough pairs for a bound */
    double ratio_low, ratio_high;
    double engine_us[BENCH_MAX_SAMPLES], nccl_us[BENCH_MAX_SAMPLES]; /* as taken */
};

struct bench_report {
    FILE *json;
    unsigned rows;
    int simulated, beside;
    int vs_nccl;           /* rows go to bench_vs.c */
    const char *transport; /* asked for, of the rows to come; NULL: none */
};

/* Joins measurements, checks, settings and traces of one case into a row, prints it, and
 * what is wrong with it on stderr. Returns whether all is well. */
int bench_join_row(struct bench_page *page, unsigned index, struct bench_trace *traces,
                   struct bench_report *report);

void bench_report_begin(struct bench_report *report, const struct bench_plan *plan,
                        unsigned ranks);
/* A quoted text, without what JSON may not hold; null for NULL. */
void bench_json_text(FILE *json, const char *text);
void bench_json_variant(FILE *json, int variant);
void bench_report_row(struct bench_report *report, const struct bench_row *row);
void bench_report_end(struct bench_report *report);

#endif
