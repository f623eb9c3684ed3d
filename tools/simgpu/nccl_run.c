/* SPDX-License-Identifier: Apache-2.0 */
/* Moves the data, on the thread of the stream. Collectives go in rounds: every rank posts
 * a chunk, waits for all chunks, reads what it needs, and says so. Each rank has two
 * chunks and uses them in turn, so a round needs no second wait. Waits yield; the ranks
 * may be many more than the cores. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/simgpu/nccl_sim.h"

#define TIMEOUT_S 60

uint64_t sim_nccl_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t timeout_ns(void)
{
    const char *text = secure_getenv("SIMNCCL_TIMEOUT_S");
    return (uint64_t)(text && *text ? atoi(text) : TIMEOUT_S) * 1000000000u;
}

static uint64_t get(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void put(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static void fail(struct ncclComm *comm, ncclResult_t result)
{
    __atomic_store_n(&comm->state, (int)result, __ATOMIC_RELEASE);
    __atomic_store_n(&comm->segment->failed, 1, __ATOMIC_RELEASE);
}

int sim_nccl_pause(struct ncclComm *comm, uint64_t since_ns, unsigned polls,
                   const char *what)
{
    if (__atomic_load_n(&comm->aborted, __ATOMIC_ACQUIRE))
        return -1;
    if (__atomic_load_n(&comm->segment->failed, __ATOMIC_ACQUIRE)) {
        __atomic_store_n(&comm->state, (int)ncclRemoteError, __ATOMIC_RELEASE);
        return -1;
    }
    if (polls < 1000) {
        sched_yield();
        return 0;
    }
    usleep(100);
    if (sim_nccl_now_ns() - since_ns < timeout_ns())
        return 0;
    fprintf(stderr, "simnccl: rank %d of %d is stuck: %s\n", comm->rank, comm->nranks,
            what);
    fail(comm, ncclRemoteError);
    return -1;
}

static unsigned char *chunk(const struct ncclComm *comm, int rank)
{
    size_t index = (size_t)rank * 2 + comm->round % 2;
    return comm->segment->data + index * SIM_CHUNK_BYTES;
}

static int wait_all(struct ncclComm *comm, int what_taken, uint64_t value)
{
    uint64_t since = sim_nccl_now_ns();
    for (int r = 0; r < comm->nranks; r++) {
        struct sim_slot *slot = &comm->segment->slot[r];
        const uint64_t *word = what_taken ? &slot->taken : &slot->posted;
        for (unsigned polls = 0; get(word) < value; polls++)
            if (sim_nccl_pause(comm, since, polls, "a collective waits for a peer"))
                return -1;
    }
    return 0;
}

/* The same on all ranks for one call; user operations differ in number. */
static uint64_t hash_of(const struct sim_job *job)
{
    uint64_t parts[] = {job->call, job->count, (uint64_t)job->type,
                        (uint64_t)(job->op > IPS_AVG ? 5 : job->op), (uint64_t)job->root};
    uint64_t hash = 1469598103934665603ull;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        hash = (hash ^ parts[i]) * 1099511628211ull;
    return hash;
}

static int alike(struct ncclComm *comm, const struct sim_job *job)
{
    for (int r = 0; r < comm->nranks; r++) {
        if (comm->segment->slot[r].call[comm->round % 2] != hash_of(job)) {
            fprintf(stderr,
                    "simnccl: ranks %d and %d disagree on the call: call %d, count "
                    "%zu, type %d, op %d, root %d on rank %d\n",
                    comm->rank, r, job->call, job->count, job->type, job->op, job->root,
                    comm->rank);
            fail(comm, ncclInvalidUsage);
            return 0;
        }
    }
    return 1;
}

/* What NCCL does to the input before it enters the sum. */
static void prepare(const struct sim_job *job, void *data, size_t count)
{
    int reduces = job->call == SIM_ALL_REDUCE || job->call == SIM_REDUCE ||
                  job->call == SIM_REDUCE_SCATTER;
    if (reduces && job->op == IPS_AVG && sim_is_float(job->type))
        sim_scale_average(data, count, job->type, job->comm->nranks);
    if (!reduces || job->op <= IPS_AVG)
        return;
    const struct sim_user_op *op = &job->comm->user_op[(job->op & 0xff) - 5];
    sim_scale(data, count, job->type, op->on_device ? op->pointer : op->scalar);
}

/* Posts `count` elements (0 when this rank has nothing to give) and waits for all ranks'.
 */
static int round_begin(struct sim_job *job, const void *from, size_t count)
{
    struct ncclComm *comm = job->comm;
    struct sim_slot *mine = &comm->segment->slot[comm->rank];
    if (comm->round >= 2 && wait_all(comm, 1, comm->round - 1))
        return -1;
    if (count) {
        memcpy(chunk(comm, comm->rank), from, count * sim_type_bytes(job->type));
        prepare(job, chunk(comm, comm->rank), count);
    }
    mine->call[comm->round % 2] = hash_of(job);
    put(&mine->posted, comm->round + 1);
    return wait_all(comm, 0, comm->round + 1) || !alike(comm, job) ? -1 : 0;
}

static void round_end(struct ncclComm *comm)
{
    put(&comm->segment->slot[comm->rank].taken, ++comm->round);
}

/* Reduces one chunk of all ranks, in rank order, so that all ranks get the same bits. */
static void reduce_round(const struct sim_job *job, void *into, size_t count)
{
    const struct ncclComm *comm = job->comm;
    int op = job->op >= IPS_AVG ? IPS_SUM : job->op;
    memcpy(into, chunk(comm, 0), count * sim_type_bytes(job->type));
    for (int r = 1; r < comm->nranks; r++)
        sim_reduce(into, chunk(comm, r), count, job->type, op);
    if (job->op == IPS_AVG && !sim_is_float(job->type))
        sim_scale_average(into, count, job->type, comm->nranks);
}

static int gathers(const struct sim_job *job)
{
    return job->call == SIM_ALL_GATHER || job->call == SIM_GATHER ||
           job->call == SIM_ALL_TO_ALL;
}

/* One stretch of `count` elements: `from` is this rank's (NULL: none); `reduced` gets the
 * reduction, `gathered` rank r's elements at r * count, or rank `root`'s only. */
static int stretch(struct sim_job *job, const char *from, char *reduced, char *gathered)
{
    struct ncclComm *comm = job->comm;
    size_t bytes = sim_type_bytes(job->type), most = SIM_CHUNK_BYTES / bytes;
    for (size_t at = 0; at < job->count; at += most) {
        size_t count = job->count - at < most ? job->count - at : most;
        if (round_begin(job, from ? from + at * bytes : NULL, from ? count : 0))
            return -1;
        if (reduced)
            reduce_round(job, reduced + at * bytes, count);
        if (gathered && !gathers(job))
            memcpy(gathered + at * bytes, chunk(comm, job->root), count * bytes);
        for (int r = 0; gathered && gathers(job) && r < comm->nranks; r++)
            memcpy(gathered + ((size_t)r * job->count + at) * bytes, chunk(comm, r),
                   count * bytes);
        round_end(comm);
    }
    return 0;
}

/* A stretch for each rank's part of the input. */
static void run_parts(struct sim_job *job)
{
    const char *send = job->send;
    int rank = job->comm->rank, error = 0;
    for (int r = 0; r < job->comm->nranks && !error; r++) {
        const char *part = send + (size_t)r * job->count * sim_type_bytes(job->type);
        char *into = r == rank ? job->recv : NULL;
        if (job->call == SIM_REDUCE_SCATTER)
            error = stretch(job, part, into, NULL);
        else if (job->call == SIM_ALL_TO_ALL)
            error = stretch(job, part, NULL, into);
        else
            error = stretch(job, rank == job->root ? part : NULL, NULL, into);
    }
}

static void run(struct sim_job *job)
{
    const char *send = job->send;
    char *recv = job->recv;
    int rank = job->comm->rank;
    switch (job->call) {
    case SIM_ALL_REDUCE:
        stretch(job, send, recv, NULL);
        break;
    case SIM_REDUCE:
        stretch(job, send, rank == job->root ? recv : NULL, NULL);
        break;
    case SIM_BROADCAST:
        stretch(job, rank == job->root ? send : NULL, NULL, recv);
        break;
    case SIM_ALL_GATHER:
        stretch(job, send, NULL, recv);
        break;
    case SIM_GATHER:
        stretch(job, send, NULL, rank == job->root ? recv : NULL);
        break;
    default:
        run_parts(job);
    }
}

void sim_run_collective(struct sim_job *job)
{
    pthread_mutex_lock(&job->comm->running);
    run(job);
    pthread_mutex_unlock(&job->comm->running);
}

static struct sim_pair *pair(const struct ncclComm *comm, int from, int to,
                             unsigned char **ret)
{
    size_t n = (size_t)comm->nranks, index = (size_t)from * n + (size_t)to;
    unsigned char *pairs = comm->segment->data + n * 2 * SIM_CHUNK_BYTES;
    *ret = pairs + n * n * sizeof(struct sim_pair) + index * SIM_P2P_BYTES;
    return (struct sim_pair *)pairs + index;
}

/* Moves one piece if the peer lets it; whether it did. */
static int advance(struct sim_job *job, size_t bytes)
{
    struct ncclComm *comm = job->comm;
    unsigned char *data;
    if (job->call == SIM_SEND) {
        struct sim_pair *out = pair(comm, comm->rank, job->root, &data);
        if (get(&out->posted) != get(&out->taken))
            return 0;
        size_t left = bytes - job->done;
        out->bytes = left < SIM_P2P_BYTES ? left : SIM_P2P_BYTES;
        memcpy(data, (const char *)job->send + job->done, out->bytes);
        job->done += out->bytes;
        put(&out->posted, out->posted + 1);
        return 1;
    }
    struct sim_pair *in = pair(comm, job->root, comm->rank, &data);
    if (get(&in->posted) == in->taken)
        return 0;
    size_t piece = in->bytes <= bytes - job->done ? in->bytes : bytes - job->done;
    memcpy((char *)job->recv + job->done, data, piece);
    job->done += piece;
    put(&in->taken, in->taken + 1);
    return 1;
}

/* Whether an earlier transfer in the same direction with the same peer is not done yet.
 */
static int blocked(const struct sim_job *jobs, const struct sim_job *job)
{
    for (const struct sim_job *j = jobs; j != job; j = j->next)
        if (j->call == job->call && j->root == job->root &&
            j->done < j->count * sim_type_bytes(j->type))
            return 1;
    return 0;
}

void sim_run_transfers(struct sim_job *jobs)
{
    struct ncclComm *comm = jobs->comm;
    uint64_t since = sim_nccl_now_ns();
    unsigned polls = 0;
    int left = 1;
    pthread_mutex_lock(&comm->running);
    for (struct sim_job *j = jobs; j; j = j->next)
        j->done = 0;
    while (left) {
        int moved = 0;
        left = 0;
        for (struct sim_job *j = jobs; j; j = j->next) {
            size_t bytes = j->count * sim_type_bytes(j->type);
            if (j->done < bytes && !blocked(jobs, j))
                moved |= advance(j, bytes);
            left |= j->done < bytes;
        }
        if (moved) {
            since = sim_nccl_now_ns();
            polls = 0;
        } else if (left &&
                   sim_nccl_pause(comm, since, polls++, "a send or receive waits")) {
            break;
        }
    }
    pthread_mutex_unlock(&comm->running);
}
