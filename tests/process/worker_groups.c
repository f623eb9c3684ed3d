/* SPDX-License-Identifier: Apache-2.0 */
/* Groups, on communicator A, and what their calls must have done when they end.
 *
 *   group KIND [count=N]
 *   nested: in three levels. empty. error: with a bad call among good ones. simulate:
 * ends with ncclGroupSimulateEnd. mixed: with other collectives, sends and receives, on
 * two streams. comms: on A and B, on streams of their own. pytorch: ended and begun again
 *   around a communicator's init. init: two inits in one group */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/types.h"
#include "tests/process/worker_parts.h"

#define PARTS 4

struct group {
    struct worker *worker;
    const struct nccl_api *nccl;
    struct part part[PARTS];
    nccl_comm comm;
    unsigned all;
};

static int sum(struct group *g, unsigned index, nccl_comm comm, unsigned stream)
{
    return part_sum(g->worker, &g->part[index], comm, g->worker->stream[stream]);
}

static int nested(struct group *g)
{
    int code = g->nccl->GroupStart() | g->nccl->GroupStart();
    code |= sum(g, 0, g->comm, 0) | g->nccl->GroupEnd();
    code |= g->nccl->GroupStart() | g->nccl->GroupEnd() | sum(g, 1, g->comm, 0);
    code |= g->nccl->GroupStart() | g->nccl->GroupStart() | sum(g, 2, g->comm, 0);
    code |= g->nccl->GroupEnd() | g->nccl->GroupEnd() | g->nccl->GroupEnd();
    code |= sum(g, 3, g->comm, 1);
    worker_check(g->worker, !code, "nested: code %d", code);
    if (worker_wait(g->worker))
        return -1;
    for (unsigned i = 0; i < PARTS; i++)
        part_check(g->worker, &g->part[i], g->all, "nested");
    return 0;
}

static int empty(struct group *g)
{
    int code = 0;
    for (int i = 0; i < 3; i++)
        code |= g->nccl->GroupStart() | g->nccl->GroupEnd();
    code |= g->nccl->GroupStart() | g->nccl->GroupStart();
    code |= g->nccl->GroupEnd() | g->nccl->GroupEnd();
    worker_check(g->worker, !code, "empty: code %d", code);
    code = g->nccl->GroupEnd();
    worker_check(g->worker, code == 5, "an end without a start: code %d", code);
    return 0;
}

/* The first error is the group's, and none of its calls ran. */
static int error(struct group *g)
{
    g->nccl->GroupStart();
    int good = sum(g, 0, g->comm, 0);
    int bad = g->nccl->AllReduce((void *)(uintptr_t)g->part[1].in,
                                 (void *)(uintptr_t)g->part[1].out, 4, 99, IPS_SUM,
                                 g->comm, g->worker->stream[0]);
    int later = sum(g, 2, g->comm, 0);
    int end = g->nccl->GroupEnd();
    worker_check(g->worker, !good && !later && bad == NCCL_INVALID_ARGUMENT && end == bad,
                 "codes %d %d %d, at the end %d", good, bad, later, end);
    if (worker_wait(g->worker))
        return -1;
    for (unsigned i = 0; i < 3; i++)
        part_check_untouched(g->worker, &g->part[i], "error");
    worker_check(g->worker, !sum(g, 3, g->comm, 0), "a call after the error");
    if (worker_wait(g->worker))
        return -1;
    part_check(g->worker, &g->part[3], g->all, "after the error");
    return 0;
}

static int simulate(struct group *g)
{
    int (*end)(void *info);
    *(void **)&end = dlsym(RTLD_DEFAULT, "ncclGroupSimulateEnd");
    g->nccl->GroupStart();
    int code = sum(g, 0, g->comm, 0) | end(NULL);
    worker_check(g->worker, !code, "simulate: code %d", code);
    if (worker_wait(g->worker))
        return -1;
    part_check_untouched(g->worker, &g->part[0], "simulate");
    worker_check(g->worker, !sum(g, 1, g->comm, 0), "a call after it");
    if (worker_wait(g->worker))
        return -1;
    part_check(g->worker, &g->part[1], g->all, "after it");
    return 0;
}

static void check_copy(struct group *g, const struct part *part, unsigned from,
                       size_t offset, const char *what)
{
    uint32_t *host = malloc(part->count * g->worker->nranks * 4);
    size_t wrong = 0;
    if (!worker_check(g->worker, host && !part_download(g->worker, part, host), "output"))
        return;
    for (size_t i = 0; i < part->count; i++)
        wrong += host[offset + i] != part_value(part, from, i);
    worker_check(g->worker, !wrong, "%s: %zu of %zu wrong", what, wrong, part->count);
    free(host);
}

static int mixed(struct group *g)
{
    const struct nccl_api *n = g->nccl;
    unsigned nranks = g->worker->nranks, rank = g->worker->rank;
    unsigned next = (rank + 1) % nranks, previous = (rank + nranks - 1) % nranks;
    gpu_stream *stream = g->worker->stream;
    void *in[PARTS], *out[PARTS];
    for (unsigned i = 0; i < PARTS; i++) {
        in[i] = (void *)(uintptr_t)g->part[i].in;
        out[i] = (void *)(uintptr_t)g->part[i].out;
    }
    size_t count = g->part[0].count;
    int code = n->GroupStart() | sum(g, 0, g->comm, 0);
    code |= n->Send(in[1], count, IPS_INT32, (int)next, g->comm, stream[1]);
    code |= n->AllGather(in[2], out[2], count, IPS_INT32, g->comm, stream[0]);
    code |= n->Recv(out[1], count, IPS_INT32, (int)previous, g->comm, stream[1]);
    code |= sum(g, 3, g->comm, 1) | n->GroupEnd();
    worker_check(g->worker, !code, "mixed: code %d", code);
    if (worker_wait(g->worker))
        return -1;
    part_check(g->worker, &g->part[0], g->all, "sum");
    part_check(g->worker, &g->part[3], g->all, "second sum");
    check_copy(g, &g->part[1], previous, 0, "received");
    for (unsigned r = 0; r < nranks; r++)
        check_copy(g, &g->part[2], r, r * count, "gathered");
    return 0;
}

static int comms(struct group *g)
{
    nccl_comm b = g->worker->comm[1];
    int code = g->nccl->GroupStart() | sum(g, 0, g->comm, 0) | sum(g, 1, b, 1);
    code |= sum(g, 2, b, 2) | sum(g, 3, g->comm, 1) | g->nccl->GroupEnd();
    worker_check(g->worker, !code, "comms: code %d", code);
    if (worker_wait(g->worker))
        return -1;
    for (unsigned i = 0; i < PARTS; i++)
        part_check(g->worker, &g->part[i], g->all, "comms");
    return 0;
}

static int init_rank(struct group *g, nccl_comm *comm)
{
    return g->nccl->CommInitRank(comm, (int)g->worker->nranks, g->worker->page->id,
                                 (int)g->worker->rank);
}

/* A communicator that is first needed inside a group: what is open is ended around its
 * init. The calls before it have then begun. */
static int pytorch(struct group *g)
{
    nccl_comm *comm = &g->worker->comm[WORKER_COMMS - 1];
    if (worker_new_id(g->worker))
        return -1;
    int code = g->nccl->GroupStart() | g->nccl->GroupStart() | sum(g, 0, g->comm, 0);
    code |= g->nccl->GroupEnd() | g->nccl->GroupEnd();
    code |= init_rank(g, comm);
    code |= g->nccl->GroupStart() | g->nccl->GroupStart();
    code |= sum(g, 1, *comm, 1) | sum(g, 2, g->comm, 0);
    code |= g->nccl->GroupEnd() | g->nccl->GroupEnd();
    worker_check(g->worker, !code, "pytorch: code %d", code);
    if (worker_wait(g->worker))
        return -1;
    for (unsigned i = 0; i < 3; i++)
        part_check(g->worker, &g->part[i], g->all, "pytorch");
    worker_check(g->worker, !g->nccl->CommDestroy(*comm), "destroy");
    *comm = NULL;
    return 0;
}

/* Two at once: the second with the id that rank 0 makes meanwhile. */
static int init(struct group *g)
{
    nccl_comm comm[2] = {NULL, NULL};
    if (worker_new_id(g->worker))
        return -1;
    int code = g->nccl->GroupStart() | init_rank(g, &comm[0]);
    if (worker_new_id(g->worker))
        return -1;
    code |= init_rank(g, &comm[1]) | g->nccl->GroupEnd();
    worker_check(g->worker, !code, "two inits: code %d", code);
    code = sum(g, 0, comm[0], 0) | sum(g, 1, comm[1], 1);
    worker_check(g->worker, !code, "on them: code %d", code);
    if (worker_wait(g->worker))
        return -1;
    part_check(g->worker, &g->part[0], g->all, "the first");
    part_check(g->worker, &g->part[1], g->all, "the second");
    code = g->nccl->CommDestroy(comm[g->worker->rank % 2]);
    code |= g->nccl->CommDestroy(comm[1 - g->worker->rank % 2]);
    worker_check(g->worker, !code, "destroyed in another order on every rank: %d", code);
    return 0;
}

int worker_group(struct worker *worker, const struct words *words)
{
    static const struct {
        const char *name;
        int (*run)(struct group *group);
    } kinds[] = {{"nested", nested},     {"empty", empty}, {"error", error},
                 {"simulate", simulate}, {"mixed", mixed}, {"comms", comms},
                 {"pytorch", pytorch},   {"init", init}};
    struct group g = {.worker = worker,
                      .nccl = &worker->nccl,
                      .comm = worker->comm[0],
                      .all = (1u << worker->nranks) - 1};
    size_t count = (size_t)words_number(words, "count", 100);
    int result = -1;
    for (unsigned i = 0; i < PARTS; i++)
        if (part_make(worker, &g.part[i], count, i))
            return -1;
    for (size_t k = 0; words->count > 1 && k < sizeof kinds / sizeof kinds[0]; k++)
        if (!strcmp(kinds[k].name, words->word[1]))
            result = kinds[k].run(&g);
    for (unsigned i = 0; i < PARTS && !result; i++)
        part_free(worker, &g.part[i]);
    return result ? result : fleet_barrier(&worker->page->sync);
}
