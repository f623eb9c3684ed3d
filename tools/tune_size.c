/* SPDX-License-Identifier: Apache-2.0 */
/* One size of `ipcshim tune`, in one rank. Every candidate's result is checked before it
 * is timed, launched and replayed. Candidates and NCCL take turns in rounds, so that a
 * drift of the machine meets all; those that lose clearly are left out of the rounds to
 * come. The best ones then meet NCCL alone, in longer batches. What counts is the slowest
 * rank, and all ranks leave out the same. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy/plan.h"
#include "shim/settings.h"
#include "tools/tool.h"
#include "tools/tune_rank.h"

#define MOST_ROUNDS 15
/* By the model, beyond this many times the best one's time nothing is tried: a factor of
 * two either way covers what the model does not know. */
#define MODEL_FACTOR 4.0
/* A large size's candidates differ by more than a single call's time errs: one that takes
 * so many times the best one's is not timed at all. */
#define FIRST_FACTOR 3.0
#define LARGE_BYTES (1u << 20)
/* Of the best one's time, after the first round and later: what is slower is left out. */
static const double round_factor[] = {1.6, 1.25, 1.12};

/* A candidate, or NCCL. */
struct side {
    int nccl;
    struct ips_candidate candidate;
    struct ips_times model;
    double us[IPS_MODES][MOST_ROUNDS];
    unsigned rounds, calls; /* calls: of one timing */
    gpu_graph_exec graph;
    int out; /* of the race */
};

/* What is enqueued for one timing. */
struct batch {
    struct tune_rank *rank;
    const struct side *side;
    uint64_t bytes;
    unsigned calls, times; /* as many calls, as many times */
};

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int enqueue_one(const struct batch *b)
{
    struct tune_rank *r = b->rank;
    const uint64_t count = b->bytes / 4;
    int captured;
    if (b->side->nccl) {
        int error =
            r->nccl.AllReduce((const void *)(uintptr_t)r->in, (void *)(uintptr_t)r->out,
                              count, IPS_FLOAT32, IPS_SUM, r->comm, r->stream);
        return error ? tool_fail("ncclAllReduce: %s", r->nccl.GetErrorString(error)) : 0;
    }
    const struct ips_allreduce call = {
        .in = (const void *)(uintptr_t)r->in,
        .out = (void *)(uintptr_t)r->out,
        .count = count,
        .type = IPS_FLOAT32,
        .op = IPS_SUM,
        .variant = b->side->candidate.variant,
        .channels = b->side->candidate.channels,
        .threads = b->side->candidate.threads,
        .stream = r->stream,
    };
    int error = ips_engine_allreduce(r->engine, &call, &captured);
    return error ? tool_fail("the engine: %s", strerror(-error)) : 0;
}

static int enqueue(void *arg)
{
    const struct batch *b = arg;
    int error = 0;
    for (unsigned i = 0; i < b->calls && !error; i++)
        error = enqueue_one(b);
    return error ? -1 : 0;
}

/* us of one call, launched or from the graph. */
static int time_batch(struct batch *b, gpu_graph_exec graph, double *ret_us)
{
    struct tune_rank *r = b->rank;
    if (fleet_barrier(&r->page->sync))
        return -1;
    const double start = now_us();
    for (unsigned i = 0; i < b->times; i++)
        if (graph ? r->device.cuGraphLaunch(graph, r->stream) != GPU_SUCCESS : enqueue(b))
            return -1;
    if (device_wait(&r->device, r->stream, r->page->options.wait_s))
        return -1;
    *ret_us = (now_us() - start) / (b->calls * b->times);
    return 0;
}

static void tell_wrong(struct tune_rank *r, const struct side *side, uint64_t bytes,
                       int replayed)
{
    const char *how = replayed ? "replayed" : "launched";
    char size[16];
    r->page->wrong++;
    tool_size_text(bytes, size);
    if (side->nccl)
        tool_fail("WRONG result of NCCL at %s, %s", size, how);
    else
        tool_fail("WRONG result of %s with %u channels of %u threads at %s, %s",
                  ips_variant_name((int)side->candidate.variant),
                  side->candidate.channels, side->candidate.threads, size, how);
}

/* Runs the batch with its result checked on all ranks; one that is wrong is out. The time
 * is the slowest rank's. */
static int run_checked(struct batch *b, struct side *side, gpu_graph_exec graph,
                       double *ret_us)
{
    struct tune_rank *r = b->rank;
    struct tune_slot own = {.flag = 0}, all;
    int wrong;
    if (tune_poison(r, b->bytes) || time_batch(b, graph, &own.us[0]) ||
        tune_compare(r, b->bytes, &wrong))
        return -1;
    own.flag = (uint32_t)wrong;
    if (tune_agree(r, &own, &all))
        return -1;
    *ret_us = all.us[0];
    if (!all.flag)
        return 0;
    side->out = 1;
    if (r->rank == 0)
        tell_wrong(r, side, b->bytes, graph != NULL);
    return 0;
}

/* --- the race --- */

static unsigned calls_for(const struct tune_options *o, double us)
{
    const double calls = us > 0 ? o->batch_us / us : o->most_calls;
    if (calls < 2)
        return 2;
    return calls > o->most_calls ? o->most_calls : (unsigned)calls;
}

/* A side as it is timed: checked, captured, and checked again as replayed. *best_us: the
 * shortest call of the engine so far, or 0. */
static int prepare(struct tune_rank *r, struct side *side, uint64_t bytes,
                   double *best_us)
{
    struct batch b = {r, side, bytes, 1, 1};
    struct tune_slot own = {.flag = 0}, all;
    double us;
    if (run_checked(&b, side, NULL, &us) || time_batch(&b, NULL, &own.us[0]) ||
        tune_agree(r, &own, &all)) /* the first call is slower than those to come */
        return -1;
    us = all.us[0];
    if (!side->nccl && !side->out && (!*best_us || us < *best_us))
        *best_us = us;
    if (!side->nccl && bytes >= LARGE_BYTES && us > FIRST_FACTOR * *best_us)
        side->out = 1;
    if (side->out)
        return 0;
    b.calls = side->calls = calls_for(&r->page->options, us);
    if (device_capture(&r->device, r->stream, enqueue, &b, &side->graph))
        return -1;
    return run_checked(&b, side, side->graph, &us);
}

/* A timing in the rounds after the first is so many times as long: what the ranks' start
 * takes weighs on a short one, and more on NCCL's, whose launch takes the host longer. */
#define LONGER 4

static int run_side(struct tune_rank *r, struct side *side, uint64_t bytes,
                    unsigned times)
{
    struct batch b = {r, side, bytes, side->calls, times};
    struct tune_slot own = {.flag = 0}, all;
    if (time_batch(&b, NULL, &own.us[IPS_MODE_EAGER]) ||
        time_batch(&b, side->graph, &own.us[IPS_MODE_GRAPH]) || tune_agree(r, &own, &all))
        return -1;
    for (int mode = 0; mode < IPS_MODES; mode++)
        side->us[mode][side->rounds] = all.us[mode];
    side->rounds++;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of all rounds but the first, where there are more. */
static struct ips_times median(const struct side *side)
{
    const unsigned first = side->rounds > 1, count = side->rounds - first;
    struct ips_times times;
    for (int mode = 0; mode < IPS_MODES; mode++) {
        double sorted[MOST_ROUNDS];
        memcpy(sorted, side->us[mode] + first, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, by_value);
        times.us[mode] = sorted[count / 2];
    }
    return times;
}

static double score(const struct ips_times *times)
{
    return times->us[IPS_MODE_EAGER] * times->us[IPS_MODE_GRAPH];
}

/* The shortest times of the engine, each mode's and of both together. */
static struct ips_times best_times(const struct side *sides, unsigned count,
                                   double *ret_score)
{
    struct ips_times best = {{0}};
    *ret_score = 0;
    for (unsigned i = 0; i < count; i++) {
        if (sides[i].nccl || sides[i].out)
            continue;
        const struct ips_times times = median(&sides[i]);
        for (int mode = 0; mode < IPS_MODES; mode++)
            if (!best.us[mode] || times.us[mode] < best.us[mode])
                best.us[mode] = times.us[mode];
        if (!*ret_score || score(&times) < *ret_score)
            *ret_score = score(&times);
    }
    return best;
}

/* One that is near the best in one mode alone may be what beats NCCL there: it stays. */
static void leave_out(struct side *sides, unsigned count, unsigned round)
{
    const unsigned steps = sizeof round_factor / sizeof round_factor[0];
    const double factor = round_factor[round < steps ? round : steps - 1];
    double best_score;
    const struct ips_times best = best_times(sides, count, &best_score);
    for (unsigned i = 0; i < count; i++) {
        if (sides[i].nccl || sides[i].out)
            continue;
        const struct ips_times times = median(&sides[i]);
        int behind = score(&times) > factor * factor * best_score;
        for (int mode = 0; mode < IPS_MODES; mode++)
            behind &= times.us[mode] > (1 + (factor - 1) / 4) * best.us[mode];
        sides[i].out = behind;
    }
}

/* NCCL first, then every candidate that the IPCSHIM_* variables leave and the model does
 * not rule out. */
static unsigned list_sides(const struct tune_rank *r, uint64_t bytes, struct side *sides)
{
    const struct ips_plan_input input = {&ips_settings()->policy, r->place, NULL};
    struct ips_candidate candidate;
    unsigned count = 0;
    double best = 0;
    if (r->comm)
        sides[count++] = (struct side){.nccl = 1};
    for (unsigned i = 0; ips_candidate_at(i, &candidate) && count < TUNE_CANDIDATES;
         i++) {
        const struct ips_times model = ips_model_engine(&r->place, bytes, &candidate);
        const unsigned channels = candidate.channels;
        if (!ips_plan_permits(&input, &candidate) || candidate.channels != channels)
            continue;
        if (!best || score(&model) < best)
            best = score(&model);
        sides[count++] = (struct side){.candidate = candidate, .model = model};
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++)
        if (sides[i].nccl || score(&sides[i].model) <= MODEL_FACTOR * MODEL_FACTOR * best)
            sides[kept++] = sides[i];
    return kept;
}

static int race(struct tune_rank *r, struct side *sides, unsigned count, uint64_t bytes)
{
    int error = 0;
    double best_us = 0;
    for (unsigned i = 0; i < count && !error; i++)
        error = prepare(r, &sides[i], bytes, &best_us);
    for (unsigned round = 0; round < r->page->options.rounds && !error; round++) {
        for (unsigned turn = 0; turn < count && !error; turn++) {
            struct side *side = &sides[round % 2 ? count - 1 - turn : turn];
            if (!side->out)
                error = run_side(r, side, bytes, side->rounds ? LONGER : 1);
        }
        if (!error)
            leave_out(sides, count, round);
    }
    return error ? -1 : 0;
}

static int by_score(const void *a, const void *b)
{
    const struct side *x = a, *y = b;
    const struct ips_times tx = median(x), ty = median(y);
    const double sx = x->nccl ? 0 : score(&tx), sy = y->nccl ? 0 : score(&ty);
    return (sx > sy) - (sx < sy);
}

/* Moves NCCL and the candidates that are still in the race to the front, the best first.
 * How many they are. */
static unsigned sort(struct side *sides, unsigned count)
{
    unsigned left = 0;
    for (unsigned i = 0; i < count; i++)
        if (!sides[i].out && sides[i].rounds) {
            const struct side side = sides[left];
            sides[left++] = sides[i];
            sides[i] = side;
        }
    qsort(sides, left, sizeof *sides, by_score);
    return left;
}

/* NCCL's first calls after a pause take longer than those that follow, the engine's
 * hardly do: which of the two is faster is decided by batches in which that does not
 * weigh. */
#define FINALISTS (TUNE_KEEP + 1) /* all that are told, and NCCL */
#define FINAL_ROUNDS 5
#define FINAL_US 2000
#define FINAL_CALLS 200

static int prepare_final(struct tune_rank *r, struct side *side, uint64_t bytes)
{
    const double calls = FINAL_US / median(side).us[IPS_MODE_GRAPH];
    struct batch b = {r, side, bytes, 2, 1};
    if (calls > b.calls)
        b.calls = calls < FINAL_CALLS ? (unsigned)calls : FINAL_CALLS;
    side->calls = b.calls;
    side->rounds = 0;
    r->device.cuGraphExecDestroy(side->graph);
    side->graph = NULL;
    return device_capture(&r->device, r->stream, enqueue, &b, &side->graph);
}

/* Of the sides as sort() leaves them. */
static int decide(struct tune_rank *r, struct side *sides, unsigned left, uint64_t bytes)
{
    const unsigned count = left < FINALISTS ? left : FINALISTS;
    int error = 0;
    for (unsigned i = 0; i < count && !error; i++)
        error = prepare_final(r, &sides[i], bytes);
    for (unsigned round = 0; round < FINAL_ROUNDS && !error; round++)
        for (unsigned turn = 0; turn < count && !error; turn++)
            error = run_side(r, &sides[round % 2 ? count - 1 - turn : turn], bytes, 1);
    return error ? -1 : 0;
}

/* --- what came out --- */

static void add_row(struct tune_rank *r, const struct side *side, uint64_t bytes)
{
    struct ips_tuned *tuned = &r->page->tuned;
    if (tuned->count < IPS_TUNED_ROWS)
        tuned->row[tuned->count++] = (struct ips_tuned_row){.bytes = bytes,
                                                            .nccl = side->nccl,
                                                            .candidate = side->candidate,
                                                            .times = median(side)};
}

/* NCCL's row, then the best candidates, the best one first. */
static void tell(struct tune_rank *r, struct side *sides, unsigned count, unsigned left,
                 uint64_t bytes)
{
    unsigned told = 0;
    for (unsigned i = 0; i < count; i++)
        r->page->measured += !sides[i].nccl && sides[i].rounds;
    sort(sides, left);
    for (unsigned i = 0; i < left && told < TUNE_KEEP; i++) {
        add_row(r, &sides[i], bytes);
        told += !sides[i].nccl;
    }
}

int tune_size(struct tune_rank *r, uint64_t bytes)
{
    struct side *sides = calloc(TUNE_CANDIDATES, sizeof *sides);
    if (!sides) {
        tool_fail("no memory");
        return -1;
    }
    const unsigned count = list_sides(r, bytes, sides);
    int error = tune_upload(r, bytes) || race(r, sides, count, bytes);
    const unsigned left = error ? 0 : sort(sides, count);
    error = error || decide(r, sides, left, bytes);
    if (!error && r->rank == 0)
        tell(r, sides, count, left, bytes);
    for (unsigned i = 0; i < count; i++)
        if (sides[i].graph)
            r->device.cuGraphExecDestroy(sides[i].graph);
    free(sides);
    return error ? -1 : 0;
}
