/* SPDX-License-Identifier: Apache-2.0 */
/* Every way to make a communicator, and calls on communicators with any members.
 *
 *   make L [how=rank|config|late|scalable]    all; late: non-blocking, waited for
 *   split FROM TO color=WHAT [key=WHAT] [group=1]    members of FROM; waited for when
 * late WHAT: a number, or by rank: half (odd or even), none0 (rank 0 has no color), minus
 *   sum comm=L [count=N] [calls=C]            members of L: AllReduce and check
 *   renew count=N [how=...] [end=destroy|abort|mixed]    all: made, used, ended, N times;
 *     memory, mappings and descriptors must not grow */
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/process/worker_parts.h"

#define CALLS_MAX 16
#define NO_COLOR (-1)

struct config {
    size_t size;
    unsigned magic, version;
    int blocking, rest[16];
};

static struct config late_config(void)
{
    return (struct config){
        .size = sizeof(struct config), .magic = 0xcafebeef, .version = 22809};
}

/* Until the communicator is no longer in progress; its state, or -1 after the time. */
static int settle(struct worker *worker, nccl_comm comm)
{
    int state = NCCL_IN_PROGRESS;
    for (unsigned polls = 0; polls < worker->timeout_s * 10000; polls++) {
        int code = worker->nccl.CommGetAsyncError(comm, &state);
        if (code || state != NCCL_IN_PROGRESS)
            return code ? code : state;
        usleep(100);
    }
    return -1;
}

int worker_init_late(struct worker *worker, nccl_comm *comm, int nranks, int rank)
{
    struct config config = late_config();
    return worker->nccl.CommInitRankConfig(comm, nranks, worker->page->id, rank, &config);
}

static int make_late(struct worker *worker, nccl_comm *comm)
{
    int code = worker_init_late(worker, comm, (int)worker->nranks, (int)worker->rank);
    worker_check(worker, code == NCCL_IN_PROGRESS && *comm, "non-blocking: code %d",
                 code);
    return settle(worker, *comm);
}

static int make_scalable(struct worker *worker, nccl_comm *comm)
{
    int (*init)(nccl_comm * newcomm, int nranks, int rank, int ids, struct nccl_id *id,
                void *config);
    struct nccl_id ids[2] = {worker->page->id, worker->page->id};
    *(void **)&init = dlsym(RTLD_DEFAULT, "ncclCommInitRankScalable");
    ids[1].bytes[3]++;
    return init(comm, (int)worker->nranks, (int)worker->rank, 2, ids, NULL);
}

static int make(struct worker *worker, nccl_comm *comm, const char *how)
{
    int nranks = (int)worker->nranks, rank = (int)worker->rank;
    int code = worker_new_id(worker);
    if (code)
        return code;
    if (!strcmp(how, "late"))
        return make_late(worker, comm);
    if (!strcmp(how, "scalable"))
        return make_scalable(worker, comm);
    if (!strcmp(how, "config"))
        return worker->nccl.CommInitRankConfig(comm, nranks, worker->page->id, rank,
                                               NULL);
    return worker->nccl.CommInitRank(comm, nranks, worker->page->id, rank);
}

int worker_make(struct worker *worker, const struct words *words)
{
    unsigned slot = worker_slot(words->count > 1 ? words->word[1] : "A");
    const char *how = words_text(words, "how", "rank");
    int code = make(worker, &worker->comm[slot], how);
    worker->members[slot] = (1u << worker->nranks) - 1;
    return !worker_check(worker, !code, "made by %s: code %d", how, code);
}

static int by_rank(const char *what, unsigned rank)
{
    if (!strcmp(what, "half"))
        return (int)rank % 2;
    if (!strcmp(what, "none0"))
        return rank ? 0 : NO_COLOR;
    if (!strcmp(what, "minus"))
        return -(int)rank;
    return atoi(what);
}

static int split(struct worker *worker, nccl_comm from, nccl_comm *to, int color, int key,
                 int in_group)
{
    int (*call)(nccl_comm parent, int color, int key, nccl_comm *child, void *config);
    *(void **)&call = dlsym(RTLD_DEFAULT, "ncclCommSplit");
    int code = in_group ? worker->nccl.GroupStart() : 0;
    if (!code)
        code = call(from, color, key, to, NULL);
    int end = in_group ? worker->nccl.GroupEnd() : code;
    if (end == NCCL_IN_PROGRESS) { /* the handle comes with the parent's answer */
        end = settle(worker, from);
        if (!end && *to)
            end = settle(worker, *to);
    }
    return code && code != NCCL_IN_PROGRESS ? code : end;
}

int worker_split(struct worker *worker, const struct words *words)
{
    if (words->count < 4)
        return -1;
    unsigned from = worker_slot(words->word[1]), to = worker_slot(words->word[2]);
    const char *what = words_text(words, "color", "0");
    if (!(worker->members[from] >> worker->rank & 1))
        return 0;
    int color = by_rank(what, worker->rank);
    worker->comm[to] = (nccl_comm)1;
    int code = split(worker, worker->comm[from], &worker->comm[to], color,
                     by_rank(words_text(words, "key", "0"), worker->rank),
                     (int)words_number(words, "group", 0));
    worker->members[to] = 0;
    for (unsigned r = 0; color != NO_COLOR && r < worker->nranks; r++)
        if (worker->members[from] >> r & 1 && by_rank(what, r) == color)
            worker->members[to] |= 1u << r;
    return !worker_check(worker, !code && !worker->comm[to] == (color == NO_COLOR),
                         "split: code %d, handle %p", code, (void *)worker->comm[to]);
}

static int sum(struct worker *worker, unsigned slot, size_t count, unsigned calls,
               unsigned turn)
{
    struct part part[CALLS_MAX];
    int code = 0;
    for (unsigned i = 0; i < calls; i++)
        if (part_make(worker, &part[i], count, turn * CALLS_MAX + i))
            return -1;
    for (unsigned i = 0; i < calls && !code; i++)
        code = part_sum(worker, &part[i], worker->comm[slot],
                        worker->stream[i % WORKER_STREAMS]);
    if (!worker_check(worker, !code, "sum: code %d", code) || worker_wait(worker))
        return -1;
    for (unsigned i = 0; i < calls; i++) {
        part_check(worker, &part[i], worker->members[slot], "sum");
        part_free(worker, &part[i]);
    }
    return 0;
}

int worker_sum(struct worker *worker, const struct words *words)
{
    unsigned slot = worker_slot(words_text(words, "comm", "A"));
    unsigned calls = (unsigned)words_number(words, "calls", 3);
    if (!(worker->members[slot] >> worker->rank & 1) || !worker->comm[slot])
        return 0;
    return sum(worker, slot, (size_t)words_number(words, "count", 200),
               calls < CALLS_MAX ? calls : CALLS_MAX, 0);
}

/* The last communicators' memory may still wait for a peer to let go of it. */
#define SLACK_BYTES (20u << 20)
#define SLACK_MAPS 8
#define SLACK_FILES 3

/* What must not grow: device memory in use, mappings, open files. */
struct held {
    size_t device, maps, files;
};

static size_t count_entries(const char *path)
{
    DIR *directory = opendir(path);
    size_t count = 0;
    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

static size_t count_lines(const char *path)
{
    FILE *file = fopen(path, "re");
    size_t count = 0;
    for (int c; file && (c = fgetc(file)) != EOF;)
        count += c == '\n';
    if (file)
        fclose(file);
    return count;
}

static struct held held_now(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*info)(size_t * available, size_t * total);
    size_t available = 0, total = 0;
    *(void **)&info = driver ? dlsym(driver, "cuMemGetInfo_v2") : NULL;
    if (info)
        info(&available, &total);
    return (struct held){.device = total - available,
                         .maps = count_lines("/proc/self/maps"),
                         .files = count_entries("/proc/self/fd")};
}

static int end(struct worker *worker, unsigned slot, const char *how, unsigned turn)
{
    int aborts =
        !strcmp(how, "abort") || (!strcmp(how, "mixed") && (turn + worker->rank) % 2);
    int code = aborts ? worker->nccl.CommAbort(worker->comm[slot])
                      : worker->nccl.CommDestroy(worker->comm[slot]);
    worker->comm[slot] = NULL;
    return code;
}

int worker_renew(struct worker *worker, const struct words *words)
{
    const unsigned slot = WORKER_COMMS - 1, warm = 3;
    const char *how = words_text(words, "how", "rank");
    const char *ended = words_text(words, "end", "destroy");
    unsigned count = (unsigned)words_number(words, "count", 20) + warm;
    struct held before = {0};
    worker->members[slot] = (1u << worker->nranks) - 1;
    for (unsigned i = 0; i < count; i++) {
        int code = make(worker, &worker->comm[slot], how);
        if (!worker_check(worker, !code, "the %uth time: code %d", i, code) ||
            sum(worker, slot, 100, 2, i))
            return -1;
        code = end(worker, slot, ended, i);
        worker_check(worker, !code, "ended for the %uth time: code %d", i, code);
        if (fleet_barrier(&worker->page->sync))
            return -1;
        if (i + 1 == warm)
            before = held_now();
    }
    struct held now = held_now();
    worker_check(worker, now.device <= before.device + SLACK_BYTES,
                 "device memory: %zu, now %zu", before.device, now.device);
    if (strcmp(ended, "destroy")) /* the stand-in NCCL keeps what it maps after an abort */
        return 0;
    worker_check(worker, now.maps <= before.maps + SLACK_MAPS, "mappings: %zu, now %zu",
                 before.maps, now.maps);
    worker_check(worker, now.files <= before.files + SLACK_FILES,
                 "open files: %zu, now %zu", before.files, now.files);
    return 0;
}
