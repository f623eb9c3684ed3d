/* SPDX-License-Identifier: Apache-2.0 */
/* One rank: issues the plan's calls through whatever answers to ncclAllReduce, each
 * between a work that fills its input and one that checks its output, and looks at the
 * tally when a round has ended. What only concerns this rank (streams, alignment, in
 * place or not, delays) is chosen by a random state of its own. */
#include "tests/soak/rank.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "policy/policy.h"
#include "shim/settings.h"
#include "shim/tune_file.h"
#include "tests/order/random.h"
#include "tests/soak/report.h"

#define WAIT_S 60
#define MISALIGNED 16 /* elements, at most */
#define CALL_ROOM(bytes) \
    (((bytes) + 2 * SOAK_GUARD + (MISALIGNED + 1) * 8 + 511) / 256 * 256)

/* A batch as this rank issues it. */
struct issue {
    unsigned ncalls;
    nccl_comm comm;
    struct soak_call call[SOAK_BATCH_CALLS];
};

struct graph {
    gpu_graph_exec exec;
    gpu_ptr arena, replay;
    uint64_t serial, launches;
    struct issue issue;
};

struct rank {
    struct soak_page *page;
    const struct soak_options *options;
    struct soak_count *count;
    unsigned rank;
    struct soak_device device;
    struct nccl_api nccl;
    gpu_stream stream[SOAK_STREAMS];
    gpu_ptr arena[SOAK_STREAMS], tally;
    nccl_comm comm[SOAK_COMMS];
    struct graph graph[SOAK_COMMS][SOAK_GRAPHS];
    struct issue issue[SOAK_ROUND_BATCHES]; /* of the running round */
    uint64_t graphs, next_number, local;    /* made; of an eager call; random state */
    struct ips_policy_plan plan;            /* as all communicators have it */
};

static int nccl_check(struct rank *r, int error, const char *what)
{
    if (!error)
        return 0;
    fprintf(stderr, "soak: rank %u: %s: %s\n", r->rank, what,
            r->nccl.GetErrorString(error));
    return -1;
}

static size_t arena_bytes(const struct soak_options *o)
{
    return 2 * (o->max_bytes + SOAK_BATCH_CALLS * CALL_ROOM(256));
}

/* --- calls --- */

/* Lays the calls of a batch into an arena, and numbers them. */
static void lay_out(struct rank *r, const struct soak_batch *batch, gpu_ptr at,
                    uint64_t number, gpu_ptr replay, struct issue *issue)
{
    issue->ncalls = batch->ncalls;
    issue->comm = r->comm[batch->comm];
    for (unsigned i = 0; i < batch->ncalls; i++) {
        const struct soak_shape *shape = &batch->call[i];
        unsigned bytes = soak_bytes(shape->type);
        uint64_t room = CALL_ROOM(shape->count * bytes);
        int aligned = random_chance(&r->local, 50),
            in_place = random_chance(&r->local, 30);
        gpu_ptr in = at + SOAK_GUARD, out = at + room + SOAK_GUARD;
        in += aligned ? 0 : bytes * random_below(&r->local, MISALIGNED + 1);
        out += aligned ? 0 : bytes * random_below(&r->local, MISALIGNED + 1);
        at += 2 * room;
        issue->call[i] = (struct soak_call){
            .seed = r->options->seed,
            .number = number + i,
            .replay = (uint64_t *)(uintptr_t)replay,
            .stride = batch->ncalls,
            .in = (void *)(uintptr_t)in,
            .out = (void *)(uintptr_t)(in_place ? in : out),
            .count = shape->count,
            .tally = (struct soak_tally *)(uintptr_t)r->tally,
            .rank = r->rank,
            .nranks = r->options->nranks,
            .type = shape->type,
            .op = shape->op,
            .values = shape->values,
            .delay = r->options->delay,
        };
    }
}

/* The plan that the shim makes, whatever the link: the tables of a soak are the same for all
 * of them, but for the number of channels. */
static int make_plan(struct rank *r)
{
    const struct ips_settings *settings = ips_settings();
    const unsigned ranks = r->options->nranks;
    struct ips_tuned *tuned = malloc(sizeof *tuned);
    enum ips_tuned_verdict verdict;
    char reason[IPS_TUNED_REASON_BYTES] = "no IPCSHIM_TUNE_FILE";
    if (!tuned || !settings->tune_file ||
        ips_tune_file_read(settings->tune_file, NULL, ranks, IPS_LINK_PCIE, tuned, &verdict,
                           reason)) {
        fprintf(stderr, "soak: rank %u: no tables: %s\n", r->rank, reason);
        free(tuned);
        return -1;
    }
    const struct ips_policy_place place = {
        .ranks = ranks, .link = IPS_LINK_PCIE, .most_channels = IPS_MAX_CHANNELS};
    ips_policy_plan_make(&settings->policy, &place, tuned, &r->plan);
    free(tuned);
    return 0;
}

/* Notes where the calls are to go. */
static void foresee(struct rank *r, const struct soak_batch *batch, int replayed)
{
    for (unsigned i = 0; i < batch->ncalls; i++) {
        const struct soak_shape *shape = &batch->call[i];
        struct ips_decision d =
            ips_policy_decide(&r->plan, shape->count, (int)shape->type, (int)shape->op);
        if (d.route != IPS_ROUTE_ENGINE)
            r->count->nccl++;
        else if (replayed)
            r->count->replayed[d.variant]++;
        else
            r->count->eager[d.variant]++;
    }
}

static int issue_works(struct rank *r, struct issue *issue, enum soak_work work,
                       gpu_stream stream)
{
    int error = 0;
    for (unsigned i = 0; i < issue->ncalls && !error; i++)
        error = soak_enqueue(&r->device, work, &issue->call[i], stream);
    return error;
}

/* Fills all inputs, then reduces back to back, then checks. */
static int issue_batch(struct rank *r, struct issue *issue, int group, gpu_stream stream)
{
    const struct nccl_api *n = &r->nccl;
    int error = issue_works(r, issue, SOAK_FILL, stream);
    if (!error && group)
        error = nccl_check(r, n->GroupStart(), "ncclGroupStart");
    for (unsigned i = 0; i < issue->ncalls && !error; i++) {
        const struct soak_call *c = &issue->call[i];
        error = nccl_check(r,
                           n->AllReduce(c->in, c->out, c->count, (int)c->type, (int)c->op,
                                        issue->comm, stream),
                           "ncclAllReduce");
    }
    if (!error && group)
        error = nccl_check(r, n->GroupEnd(), "ncclGroupEnd");
    return error ? error : issue_works(r, issue, SOAK_CHECK, stream);
}

/* --- graphs and communicators --- */

struct capture {
    struct rank *rank;
    struct graph *graph;
};

static int enqueue_graph(void *arg)
{
    struct capture *c = arg;
    struct rank *r = c->rank;
    int error = issue_batch(r, &c->graph->issue, 0, r->stream[0]);
    return error ? error
                 : soak_enqueue(&r->device, SOAK_ADVANCE, &c->graph->issue.call[0],
                                r->stream[0]);
}

static int make_graph(struct rank *r, unsigned comm, struct graph *graph)
{
    const uint64_t zero = 0;
    struct capture capture = {r, graph};
    struct soak_batch batch;
    graph->serial = r->graphs++;
    graph->launches = 0;
    soak_plan_graph(r->options, graph->serial, &batch);
    batch.comm = comm;
    lay_out(r, &batch, graph->arena, soak_graph_number(graph->serial), graph->replay,
            &graph->issue);
    r->count->captured += batch.ncalls;
    if (device_upload(&r->device.device, graph->replay, &zero, 8, r->stream[0]))
        return -1;
    return device_capture(&r->device.device, r->stream[0], enqueue_graph, &capture,
                          &graph->exec);
}

static int make_comm(struct rank *r, unsigned c)
{
    struct soak_page *page = r->page;
    int nranks = (int)r->options->nranks;
    int rank = c + 1 == SOAK_COMMS ? nranks - 1 - (int)r->rank : (int)r->rank;
    if (r->rank == 0 &&
        nccl_check(r, r->nccl.GetUniqueId(&page->id[c]), "ncclGetUniqueId"))
        return -1;
    if (fleet_barrier(&page->sync) ||
        nccl_check(r, r->nccl.CommInitRank(&r->comm[c], nranks, page->id[c], rank),
                   "ncclCommInitRank"))
        return -1;
    r->count->comms++;
    for (unsigned g = 0; g < SOAK_GRAPHS; g++)
        if (make_graph(r, c, &r->graph[c][g]))
            return -1;
    return 0;
}

/* Every replay had data of its own only if the device has counted them all. */
static int end_graph(struct rank *r, struct graph *graph)
{
    uint64_t replays = 0;
    if (device_download(&r->device.device, &replays, graph->replay, 8, r->stream[0]))
        return -1;
    r->device.device.cuGraphExecDestroy(graph->exec);
    graph->exec = NULL;
    if (replays == graph->launches)
        return 0;
    fprintf(stderr, "soak: rank %u: %llu launches of a graph, but %llu replays\n", r->rank,
            (unsigned long long)graph->launches, (unsigned long long)replays);
    return -1;
}

/* No call of it is under way. */
static int end_comm(struct rank *r, unsigned c)
{
    for (unsigned g = 0; g < SOAK_GRAPHS; g++)
        if (end_graph(r, &r->graph[c][g]))
            return -1;
    return nccl_check(r, r->nccl.CommDestroy(r->comm[c]), "ncclCommDestroy");
}

/* --- rounds --- */

static void pause_sometimes(struct rank *r)
{
    if (r->options->delay && random_below(&r->local, r->options->delay) == 0)
        usleep(random_below(&r->local, 300));
}

static int run_batch(struct rank *r, struct soak_batch *batch, struct issue *issue)
{
    unsigned s = random_below(&r->local, SOAK_STREAMS);
    pause_sometimes(r);
    if (batch->kind == SOAK_REPLAY) {
        struct graph *graph = &r->graph[batch->comm][batch->graph];
        soak_plan_graph(r->options, graph->serial, batch);
        foresee(r, batch, 1);
        graph->launches++;
        return r->device.device.cuGraphLaunch(graph->exec, r->stream[s]);
    }
    lay_out(r, batch, r->arena[s], r->next_number, 0, issue);
    r->next_number += batch->ncalls;
    foresee(r, batch, 0);
    return issue_batch(r, issue, batch->kind == SOAK_GROUP, r->stream[s]);
}

/* 0 when everything was right. */
static int look(struct rank *r, uint64_t index)
{
    struct soak_tally tally;
    for (unsigned s = 0; s < SOAK_STREAMS; s++)
        if (device_wait(&r->device.device, r->stream[s], WAIT_S)) {
            soak_report_stuck(r->options, r->rank, index);
            return -1;
        }
    if (device_download(&r->device.device, &tally, r->tally, sizeof tally, r->stream[0]))
        return -1;
    r->count->calls = tally.calls;
    r->count->elements = tally.elements;
    r->count->wrong = tally.wrong;
    r->count->rounds = index + 1;
    if (tally.wrong)
        soak_report_wrong(r->options, r->rank, index, &tally);
    return tally.wrong ? -1 : 0;
}

static int run_round(struct rank *r, uint64_t index)
{
    struct soak_round round;
    soak_plan_round(r->options, index, &round);
    if (round.remake >= 0 &&
        (end_comm(r, (unsigned)round.remake) || make_comm(r, (unsigned)round.remake)))
        return -1;
    for (unsigned i = 0; i < round.nbatches; i++)
        if (run_batch(r, &round.batch[i], &r->issue[i]))
            return -1;
    return look(r, index);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Whether the round is to be run. Rank 0 ends it all one round after the one that it is
 * about to begin: no rank can have ended a round that rank 0 has not begun. */
static int goes_on(struct rank *r, uint64_t index, double start)
{
    uint64_t *last = &r->page->last_round;
    const struct soak_options *o = r->options;
    if (o->calls)
        return r->count->calls < o->calls;
    if (r->rank == 0 && now_s() - start > o->seconds &&
        __atomic_load_n(last, __ATOMIC_RELAXED) == UINT64_MAX)
        __atomic_store_n(last, index + 1, __ATOMIC_RELEASE);
    return index <= __atomic_load_n(last, __ATOMIC_ACQUIRE);
}

/* --- beginning and end --- */

/* Every work once, before any kernel can wait for another: what a first launch still has
 * to arrange may wait for the device. */
static int warm_up(struct rank *r)
{
    struct soak_batch batch = {.ncalls = 1, .call = {{.type = IPS_INT32, .count = 1}}};
    static const struct soak_tally none;
    struct graph *graph = &r->graph[0][0];
    struct soak_call *call = &r->issue[0].call[0];
    gpu_stream stream = r->stream[0];
    lay_out(r, &batch, r->arena[0], 0, graph->replay, &r->issue[0]);
    call->delay = 0;
    if (device_upload(&r->device.device, r->tally, &none, sizeof none, stream) ||
        device_fill(&r->device.device, graph->replay, 0, 8, stream))
        return -1;
    for (enum soak_work work = 0; work < SOAK_WORKS; work++)
        if (soak_enqueue(&r->device, work, call, stream))
            return -1;
    return device_wait(&r->device.device, stream, WAIT_S) ||
           device_upload(&r->device.device, r->tally, &none, sizeof none, stream);
}

static int make_buffers(struct rank *r)
{
    struct device *device = &r->device.device;
    size_t bytes = arena_bytes(r->options);
    for (unsigned s = 0; s < SOAK_STREAMS; s++)
        if (device_stream(device, &r->stream[s]) ||
            device_alloc(device, bytes, &r->arena[s]))
            return -1;
    for (unsigned g = 0; g < SOAK_COMMS * SOAK_GRAPHS; g++) {
        struct graph *graph = &r->graph[g / SOAK_GRAPHS][g % SOAK_GRAPHS];
        if (device_alloc(device, bytes, &graph->arena) ||
            device_alloc(device, 8, &graph->replay))
            return -1;
    }
    return device_alloc(device, sizeof(struct soak_tally), &r->tally);
}

static int open_rank(struct rank *r)
{
    const char *missing = nccl_api_load(RTLD_DEFAULT, &r->nccl);
    if (missing) {
        fprintf(stderr, "soak: no %s in the process: preload libipcshim.so\n", missing);
        return -1;
    }
    if (soak_device_open(&r->device, r->rank) || make_buffers(r) || warm_up(r))
        return -1;
    for (unsigned c = 0; c < SOAK_COMMS; c++)
        if (make_comm(r, c))
            return -1;
    return 0;
}

static int close_rank(struct rank *r)
{
    for (unsigned c = 0; c < SOAK_COMMS; c++)
        if (end_comm(r, c))
            return -1;
    for (unsigned s = 0; s < SOAK_STREAMS; s++) {
        device_free(&r->device.device, r->arena[s]);
        r->device.device.gpu->cuStreamDestroy(r->stream[s]);
    }
    for (unsigned g = 0; g < SOAK_COMMS * SOAK_GRAPHS; g++) {
        device_free(&r->device.device, r->graph[g / SOAK_GRAPHS][g % SOAK_GRAPHS].arena);
        device_free(&r->device.device, r->graph[g / SOAK_GRAPHS][g % SOAK_GRAPHS].replay);
    }
    device_free(&r->device.device, r->tally);
    soak_device_close(&r->device);
    return 0;
}

int soak_rank_run(struct soak_page *page, unsigned rank)
{
    static struct rank self;
    struct rank *r = &self;
    r->page = page;
    r->options = &page->options;
    r->count = &page->count[rank];
    r->rank = rank;
    r->local = soak_mix(page->options.seed * IPS_MAX_RANKS + rank);
    int error = make_plan(r) || open_rank(r);
    double start = now_s();
    for (uint64_t index = 0; !error && goes_on(r, index, start); index++)
        error = run_round(r, index);
    if (!error)
        error = close_rank(r);
    fflush(stdout);
    if (error) /* a stream may be stuck: nothing may wait for it */
        _exit(1);
    return 0;
}
