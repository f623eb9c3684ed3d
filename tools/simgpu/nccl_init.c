/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators come up together, as NCCL's do: the init of a rank is complete when all
 * ranks of the id have arrived in its segment. All inits of one group are one polled
 * state machine, so one thread can bring up several ranks. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/simgpu/cuda_api.h"
#include "tools/simgpu/nccl_sim.h"

#define NO_COLOR (-1)
#define LATE_US 2000 /* what is not blocking takes time even when all ranks are there */

enum state { NEW, SPLITTING, JOINING, READY, FAILED };

static uint64_t hash(const void *data, size_t bytes, uint64_t seed)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++)
        seed = (seed ^ byte[i]) * 1099511628211ull;
    return seed;
}

static size_t segment_bytes(int nranks)
{
    size_t n = (size_t)nranks;
    return sizeof(struct sim_segment) + n * 2 * SIM_CHUNK_BYTES +
           n * n * (sizeof(struct sim_pair) + SIM_P2P_BYTES);
}

/* Every rank makes it at the same size; pages that no rank touches cost nothing. */
static struct sim_segment *segment_open(const char *name, size_t bytes)
{
    int fd = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return NULL;
    void *base = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0)
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return base == MAP_FAILED ? NULL : base;
}

static int join_segment(struct ncclComm *comm)
{
    snprintf(
        comm->name, sizeof comm->name, "/simnccl-%016llx%016llx",
        (unsigned long long)hash(&comm->key, sizeof comm->key, 1469598103934665603ull),
        (unsigned long long)hash(&comm->key, sizeof comm->key, 88172645463325252ull));
    comm->segment_bytes = segment_bytes(comm->nranks);
    comm->segment = segment_open(comm->name, comm->segment_bytes);
    if (!comm->segment) {
        fprintf(stderr, "simnccl: %s: %s\n", comm->name, strerror(errno));
        return FAILED;
    }
    struct sim_slot *slot = &comm->segment->slot[comm->rank];
    uint32_t none = 0, ranks = 0;
    if (!__atomic_compare_exchange_n(&comm->segment->nranks, &ranks,
                                     (uint32_t)comm->nranks, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE) &&
        ranks != (uint32_t)comm->nranks)
        return FAILED;
    if (!__atomic_compare_exchange_n(&slot->present, &none, 1, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)) {
        fprintf(stderr, "simnccl: rank %d is there twice\n", comm->rank);
        return FAILED;
    }
    slot->pid = (int32_t)getpid();
    __atomic_add_fetch(&comm->segment->arrived, 1, __ATOMIC_ACQ_REL);
    return JOINING;
}

static int poll_join(struct ncclComm *comm)
{
    if (__atomic_load_n(&comm->aborted, __ATOMIC_ACQUIRE))
        return FAILED;
    if (__atomic_load_n(&comm->segment->arrived, __ATOMIC_ACQUIRE) <
        (uint32_t)comm->nranks)
        return JOINING;
    shm_unlink(comm->name); /* the first one past this point succeeds */
    return READY;
}

/* Tells the parent's ranks this one's color and key. Two sets of words suffice: a rank
 * that posts split n + 2 has seen all post n + 1, and so have read n. */
static void post_split(struct sim_init *init)
{
    struct ncclComm *parent = init->parent;
    struct sim_slot *slot = &parent->segment->slot[parent->rank];
    uint64_t number = parent->split++;
    slot->split_color[number % 2] = init->color;
    slot->split_key[number % 2] = init->split_key;
    __atomic_store_n(&slot->split_posted, number + 1, __ATOMIC_RELEASE);
}

static void child_of(struct sim_init *init, uint64_t number)
{
    struct ncclComm *parent = init->parent, *comm = init->comm;
    struct sim_slot *slot = parent->segment->slot;
    for (int r = 0; r < parent->nranks; r++) {
        if (init->excluded >> r & 1 || slot[r].split_color[number % 2] != init->color)
            continue;
        int key = slot[r].split_key[number % 2];
        comm->nranks++;
        comm->rank +=
            key < init->split_key || (key == init->split_key && r < parent->rank);
    }
    uint64_t parts[] = {hash(&parent->key, sizeof parent->key, 1), number,
                        (uint64_t)init->color, init->excluded};
    memcpy(comm->key.internal, parts, sizeof parts);
}

static int poll_split(struct sim_init *init)
{
    struct ncclComm *parent = init->parent;
    uint64_t number = parent->split - 1;
    for (int r = 0; r < parent->nranks; r++) {
        const uint64_t *posted = &parent->segment->slot[r].split_posted;
        if (init->excluded >> r & 1)
            continue;
        if (__atomic_load_n(posted, __ATOMIC_ACQUIRE) < number + 1)
            return SPLITTING;
    }
    if (init->color == NO_COLOR)
        return READY;
    child_of(init, number);
    return join_segment(init->comm);
}

static void finish(struct sim_init *init)
{
    struct ncclComm *comm = init->comm;
    ncclResult_t result = init->state == READY ? ncclSuccess : ncclSystemError;
    if (init->state == FAILED && comm->name[0])
        shm_unlink(comm->name);
    __atomic_store_n(&comm->state, (int)result, __ATOMIC_RELEASE);
    if (!init->parent)
        return;
    if (init->color == NO_COLOR || result)
        sim_comm_free(comm);
    else
        __atomic_store_n(init->ret_comm, comm, __ATOMIC_RELEASE);
    if (!init->parent->blocking)
        __atomic_store_n(&init->parent->state, (int)result, __ATOMIC_RELEASE);
}

static void step(struct sim_init *init)
{
    if (init->state == NEW && init->parent) {
        post_split(init);
        init->state = SPLITTING;
    } else if (init->state == NEW) {
        init->state = join_segment(init->comm);
    } else if (init->state == SPLITTING) {
        init->state = poll_split(init);
    } else if (init->state == JOINING) {
        init->state = poll_join(init->comm);
    }
}

static int all_settled(struct sim_init *inits)
{
    int settled = 1;
    for (struct sim_init *i = inits; i; i = i->next) {
        if (i->state != READY && i->state != FAILED)
            step(i);
        settled &= i->state == READY || i->state == FAILED;
    }
    return settled;
}

static ncclResult_t bring_up(struct sim_init *inits)
{
    ncclResult_t result = ncclSuccess;
    uint64_t since = sim_nccl_now_ns();
    while (!all_settled(inits)) {
        if (sim_nccl_now_ns() - since > 60000000000ull) {
            fprintf(stderr, "simnccl: not all ranks have come within 60 s\n");
            for (struct sim_init *i = inits; i; i = i->next)
                i->state = i->state == READY ? READY : FAILED;
            break;
        }
        usleep(100);
    }
    while (inits) {
        struct sim_init *next = inits->next;
        if (inits->state == FAILED)
            result = ncclSystemError;
        finish(inits);
        free(inits);
        inits = next;
    }
    return result;
}

static void *bring_up_thread(void *inits)
{
    usleep(LATE_US);
    bring_up(inits);
    return NULL;
}

ncclResult_t sim_inits_run(struct sim_init *inits)
{
    pthread_t thread;
    int blocking = 1;
    for (struct sim_init *i = inits; i; i = i->next)
        blocking &= i->blocking;
    if (blocking)
        return bring_up(inits);
    for (struct sim_init *i = inits; i; i = i->next)
        if (i->parent)
            __atomic_store_n(&i->parent->state, (int)ncclInProgress, __ATOMIC_RELEASE);
    if (pthread_create(&thread, NULL, bring_up_thread, inits) != 0)
        return bring_up(inits);
    pthread_detach(thread);
    return ncclInProgress;
}
