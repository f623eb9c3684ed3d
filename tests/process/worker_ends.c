/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, children, and graphs that live longer than their communicator.
 *
 *   initall n=N      this rank alone, on N devices of its own
 *   threads n=T [calls=C]    all: T threads, each with a communicator (A, B, ...)
 *   outlive L how=drop|replay    all: a graph of L when L is destroyed, then dropped, or
 *                    replayed once more
 *   fork             a child that calls NCCL: refused, silent, alive */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/types.h"
#include "tests/process/worker_parts.h"

#define DEVICES_MAX 8
#define CALLS_MAX 32
#define COUNT 300

struct all {
    struct worker *worker;
    int n, code;
    unsigned wrong;
    struct device device[DEVICES_MAX];
    gpu_stream stream[DEVICES_MAX];
    gpu_ptr buffer[DEVICES_MAX];
    nccl_comm comm[DEVICES_MAX];
};

static int open_devices(struct all *all)
{
    int32_t host[COUNT];
    for (int d = 0; d < all->n; d++) {
        for (int i = 0; i < COUNT; i++)
            host[i] = (d + 1) * (i + 1);
        if (device_open(&all->device[d], (unsigned)d) ||
            device_stream(&all->device[d], &all->stream[d]) ||
            device_alloc(&all->device[d], sizeof host, &all->buffer[d]) ||
            device_upload(&all->device[d], all->buffer[d], host, sizeof host,
                          all->stream[d]))
            return -1;
    }
    return 0;
}

/* One call for each device: the first finds no peer until the group ends. */
static int sum_all(struct all *all)
{
    const struct nccl_api *nccl = &all->worker->nccl;
    int code = nccl->GroupStart();
    for (int d = 0; d < all->n && !code; d++) {
        void *buffer = (void *)(uintptr_t)all->buffer[d];
        code = nccl->AllReduce(buffer, buffer, COUNT, IPS_INT32, IPS_SUM, all->comm[d],
                               all->stream[d]);
    }
    return code | nccl->GroupEnd();
}

static unsigned check_all(struct all *all)
{
    int32_t host[COUNT], factor = all->n * (all->n + 1) / 2 * all->n;
    unsigned wrong = 0;
    for (int d = 0; d < all->n; d++) {
        if (device_wait(&all->device[d], all->stream[d], all->worker->timeout_s) ||
            device_download(&all->device[d], host, all->buffer[d], sizeof host,
                            all->stream[d]))
            return COUNT;
        for (int i = 0; i < COUNT; i++)
            wrong += host[i] != factor * (i + 1);
    }
    return wrong;
}

/* A thread of its own: the devices' contexts become current on it. */
static void *run_all(void *arg)
{
    struct all *all = arg;
    all->code = open_devices(all);
    if (!all->code)
        all->code = all->worker->nccl.CommInitAll(all->comm, all->n, NULL);
    for (int i = 0; i < 2 && !all->code; i++)
        all->code = sum_all(all);
    if (all->code)
        return NULL;
    all->wrong = check_all(all);
    for (int d = 0; d < all->n; d++)
        all->code |= all->worker->nccl.CommDestroy(all->comm[d]);
    return NULL;
}

int worker_init_all(struct worker *worker, const struct words *words)
{
    struct all all = {.worker = worker, .n = (int)words_number(words, "n", 2)};
    pthread_t thread;
    if (all.n > DEVICES_MAX || pthread_create(&thread, NULL, run_all, &all))
        return -1;
    pthread_join(thread, NULL);
    worker_check(worker, !all.code && !all.wrong, "%d devices: code %d, %u wrong", all.n,
                 all.code, all.wrong);
    return all.code;
}

struct user {
    pthread_t id;
    struct worker *worker;
    nccl_comm comm;
    gpu_stream stream;
    struct part part[CALLS_MAX];
    unsigned calls;
    int code;
};

static void *run_user(void *arg)
{
    struct user *user = arg;
    struct device device;
    user->code = device_open(&device, user->worker->rank);
    for (unsigned i = 0; i < user->calls && !user->code; i++)
        user->code = part_sum(user->worker, &user->part[i], user->comm, user->stream);
    return NULL;
}

int worker_threads(struct worker *worker, const struct words *words)
{
    unsigned n = (unsigned)words_number(words, "n", 2);
    unsigned calls = (unsigned)words_number(words, "calls", CALLS_MAX);
    struct user user[4] = {0};
    if (n > 4 || calls > CALLS_MAX)
        return -1;
    for (unsigned t = 0; t < n; t++) {
        user[t].worker = worker;
        user[t].comm = worker->comm[t];
        user[t].calls = calls;
        if (device_stream(&worker->device, &user[t].stream))
            return -1;
        for (unsigned i = 0; i < calls; i++)
            if (part_make(worker, &user[t].part[i], 50 + 400 * (i % 3),
                          t * CALLS_MAX + i))
                return -1;
    }
    for (unsigned t = 0; t < n; t++)
        if (pthread_create(&user[t].id, NULL, run_user, &user[t]))
            return -1;
    for (unsigned t = 0; t < n; t++) {
        pthread_join(user[t].id, NULL);
        worker_check(worker, !user[t].code, "thread %u: code %d", t, user[t].code);
        if (device_wait(&worker->device, user[t].stream, worker->timeout_s))
            return -1;
        for (unsigned i = 0; i < calls; i++) {
            part_check(worker, &user[t].part[i], worker->members[t], "thread");
            part_free(worker, &user[t].part[i]);
        }
    }
    return fleet_barrier(&worker->page->sync);
}

struct captured {
    struct worker *worker;
    struct part part;
    nccl_comm comm;
};

static int enqueue(void *arg)
{
    struct captured *c = arg;
    return part_sum(c->worker, &c->part, c->comm, c->worker->stream[0]);
}

static int replay(struct captured *c, gpu_graph_exec graph, const char *what)
{
    struct worker *worker = c->worker;
    if (device_fill(&worker->device, c->part.out, (unsigned char)PART_POISON,
                    c->part.count * worker->nranks * 4, worker->stream[0]) ||
        fleet_barrier(&worker->page->sync))
        return -1;
    int code = worker->device.cuGraphLaunch(graph, worker->stream[0]);
    worker_check(worker, !code, "%s: code %d", what, code);
    if (worker_wait(worker))
        return -1;
    part_check(worker, &c->part, (1u << worker->nranks) - 1, what);
    return fleet_barrier(&worker->page->sync);
}

int worker_outlive(struct worker *worker, const struct words *words)
{
    unsigned slot = worker_slot(words->count > 1 ? words->word[1] : "A");
    struct captured c = {.worker = worker, .comm = worker->comm[slot]};
    gpu_graph_exec graph;
    if (part_make(worker, &c.part, 500, 0) ||
        device_capture(&worker->device, worker->stream[0], enqueue, &c, &graph) ||
        replay(&c, graph, "replay"))
        return -1;
    int code = worker->nccl.CommDestroy(c.comm);
    worker->comm[slot] = NULL;
    worker_check(worker, !code, "destroy: code %d", code);
    if (fleet_barrier(&worker->page->sync))
        return -1;
    if (!strcmp(words_text(words, "how", "drop"), "replay") &&
        replay(&c, graph, "replay after the end"))
        return -1;
    code = worker->device.cuGraphExecDestroy(graph);
    worker_check(worker, !code, "graph: code %d", code);
    part_free(worker, &c.part);
    return 0;
}

int worker_fork(struct worker *worker, const struct words *words)
{
    struct part part;
    int status = -1;
    (void)words;
    if (part_make(worker, &part, 10, 0))
        return -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        nccl_comm comm = NULL;
        int code = part_sum(worker, &part, worker->comm[0], worker->stream[0]);
        int init = worker->nccl.CommInitRank(&comm, 2, worker->page->id, 0);
        exit(code && init ? 0 : 3); /* with all destructors */
    }
    waitpid(child, &status, 0);
    worker_check(worker, status == 0, "the child's status is 0x%x", status);
    part_free(worker, &part);
    return fleet_barrier(&worker->page->sync);
}
