/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator table: a list under a mutex, and in front of it a small cache per
 * thread.
 *
 * Entries are recycled but never freed, so a stale pointer of a cache still points to an
 * entry. A cached entry is trusted when it could be referenced while it was alive and no
 * entry was removed since it was cached: the reader first takes its reference, then reads
 * the generation; the remover first changes the generation, then drops its reference. */
#include "shim/comm.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/join.h"
#include "core/log.h"
#include "shim/process.h"
#include "shim/settle.h"
#include "shim/summary.h"
#include "shim/trace.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ips_comm *comms;    /* in the table */
static struct ips_comm *endings;  /* being destroyed, for an abort to find */
static struct ips_comm *recycled; /* free for use */
static int next_number;
static uint64_t generation = 1;

/* Small: it is static thread-local storage, of which a library that is loaded late gets
 * little. */
#define CACHE_SLOTS 16 /* a power of two */
static _Thread_local struct {
    uint64_t generation;
    struct {
        ncclComm_t handle;
        struct ips_comm *comm;
    } slot[CACHE_SLOTS];
} cache __attribute__((tls_model("initial-exec")));

/* The handle's, else the one that is its own to take: empty, or else another's. As many
 * communicators as there are slots never drive each other out, and so need no lock. */
static unsigned cache_slot(ncclComm_t handle)
{
    uint64_t hash = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u;
    const unsigned home = (unsigned)(hash >> 32) & (CACHE_SLOTS - 1);
    for (unsigned i = 0; i < CACHE_SLOTS; i++) {
        const unsigned slot = (home + i) & (CACHE_SLOTS - 1);
        if (cache.slot[slot].handle == handle || !cache.slot[slot].handle)
            return slot;
    }
    return home;
}

/* Under the lock: takes the entry out, the caller gets the table's reference. */
static struct ips_comm *unlink_entry(ncclComm_t handle)
{
    struct ips_comm **link = &comms;
    while (*link && (*link)->handle != handle)
        link = &(*link)->next;
    struct ips_comm *comm = *link;
    if (comm) {
        *link = comm->next;
        __atomic_fetch_add(&generation, 1, __ATOMIC_SEQ_CST);
    }
    return comm;
}

void ips_comm_put_all(struct ips_comm *stale)
{
    while (stale) {
        struct ips_comm *next = stale->next;
        ips_comm_put(stale);
        stale = next;
    }
}

struct ips_comm *ips_comm_add(ncclComm_t handle, const struct ips_comm *description,
                              struct ips_comm **stale)
{
    pthread_mutex_lock(&lock);
    /* One that NCCL freed by a way the shim does not see. */
    struct ips_comm *freed = unlink_entry(handle);
    if (freed) {
        freed->next = *stale;
        *stale = freed;
    }
    struct ips_comm *comm = recycled;
    if (comm)
        recycled = comm->next;
    else
        comm = calloc(1, sizeof *comm);
    if (comm) {
        memcpy(comm, description, offsetof(struct ips_comm, handle));
        comm->handle = handle;
        comm->ending = comm->aborted = 0;
        comm->number = next_number++;
        comm->next = comms;
        /* The last store: a stale cache may look at this at any time. The table's
         * reference, and the caller's. */
        __atomic_store_n(&comm->references, 2, __ATOMIC_RELEASE);
        comms = comm;
    }
    pthread_mutex_unlock(&lock);
    if (!comm)
        ips_log(IPS_LOG_ERROR, "out of memory for a communicator: NCCL serves it");
    return comm;
}

/* A reference, unless the entry is dead. */
static int try_hold(struct ips_comm *comm)
{
    unsigned references = __atomic_load_n(&comm->references, __ATOMIC_RELAXED);
    while (references)
        if (__atomic_compare_exchange_n(&comm->references, &references, references + 1, 1,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            return 1;
    return 0;
}

static struct ips_comm *find(ncclComm_t handle)
{
    struct ips_comm *found;
    pthread_mutex_lock(&lock);
    for (found = comms; found && found->handle != handle; found = found->next)
        ;
    if (found) {
        uint64_t now = __atomic_load_n(&generation, __ATOMIC_RELAXED);
        if (cache.generation != now)
            memset(&cache, 0, sizeof cache);
        cache.generation = now;
        cache.slot[cache_slot(handle)].handle = handle;
        cache.slot[cache_slot(handle)].comm = found;
        __atomic_fetch_add(&found->references, 1, __ATOMIC_SEQ_CST);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

struct ips_comm *ips_comm_get(ncclComm_t handle)
{
    if (!handle)
        return NULL;
    unsigned slot = cache_slot(handle);
    struct ips_comm *cached = cache.slot[slot].comm;
    if (cached && cache.slot[slot].handle == handle && try_hold(cached)) {
        if (__atomic_load_n(&generation, __ATOMIC_SEQ_CST) == cache.generation)
            return cached;
        ips_comm_put(cached);
    }
    return find(handle);
}

void ips_comm_hold(struct ips_comm *comm)
{
    __atomic_fetch_add(&comm->references, 1, __ATOMIC_RELAXED);
}

/* Executions that the host did not launch: graph replays. */
static void add_replays(const struct ips_comm *comm, uint64_t *counts)
{
    uint64_t executed[IPS_COUNTERS] = {0};
    ips_engine_counts(comm->engine, executed);
    for (size_t i = 0; i < IPS_COUNTERS; i++)
        counts[i] += executed[i];
}

/* The summary's source of replays. An entry in the table has its engine. */
static void add_all_replays(uint64_t *counts)
{
    pthread_mutex_lock(&lock);
    for (const struct ips_comm *comm = comms; comm; comm = comm->next)
        if (!(ips_comm_held(comm) & IPS_HOLD_PENDING) && comm->engine)
            add_replays(comm, counts);
    pthread_mutex_unlock(&lock);
}

void ips_comm_trace_replays(void)
{
    ips_summary_set_source(add_all_replays);
}

/* The last reference is gone: its numbers go into the trace, the engine goes away. */
static void retire(struct ips_comm *comm)
{
    /* Destroyed in a group. What could wait comes while an abort finds it. */
    if (comm->ending && comm->engine)
        ips_engine_drain(comm->engine);
    ips_comm_ended(comm);
    ips_settle_cancel(comm, "ended during its set-up");
    if (ips_trace_on()) {
        struct ips_event event = {
            .time_ns = ips_trace_now(),
            .kind = IPS_EVENT_COMM_END,
            .count = comm->nranks < 0 ? 0 : (uint64_t)comm->nranks,
            .comm = comm->number,
            .rank = comm->rank,
            .route = comm->engine ? IPS_ROUTE_ENGINE : IPS_ROUTE_NCCL,
            .reason = comm->reason,
        };
        uint64_t counts[IPS_COUNTERS] = {0};
        if (comm->engine)
            add_replays(comm, counts);
        ips_summary_retire(counts);
        ips_trace_add(&event);
        ips_trace_flush("communicator end");
    }
    ips_engine_destroy(comm->engine);
    free(comm->owed);
    pthread_mutex_lock(&lock);
    comm->next = recycled;
    recycled = comm;
    pthread_mutex_unlock(&lock);
}

void ips_comm_put(struct ips_comm *comm)
{
    if (comm && __atomic_sub_fetch(&comm->references, 1, __ATOMIC_SEQ_CST) == 0)
        retire(comm);
}

struct ips_comm *ips_comm_remove(ncclComm_t handle)
{
    pthread_mutex_lock(&lock);
    struct ips_comm *comm = unlink_entry(handle);
    pthread_mutex_unlock(&lock);
    return comm;
}

struct ips_comm *ips_comm_remove_ending(ncclComm_t handle)
{
    pthread_mutex_lock(&lock);
    struct ips_comm *comm = unlink_entry(handle);
    if (comm) {
        comm->ending = 1;
        comm->next = endings;
        endings = comm;
    }
    pthread_mutex_unlock(&lock);
    return comm;
}

int ips_comm_alone(const struct ips_comm *comm)
{
    return __atomic_load_n(&comm->references, __ATOMIC_SEQ_CST) == 1;
}

int ips_comm_ended(struct ips_comm *comm)
{
    pthread_mutex_lock(&lock);
    struct ips_comm **link = &endings;
    while (*link && *link != comm)
        link = &(*link)->next;
    if (*link)
        *link = comm->next;
    comm->ending = 0;
    const int aborted = comm->aborted;
    pthread_mutex_unlock(&lock);
    return aborted;
}

/* Under the lock, so that the engine is there. */
void ips_comm_abort_ending(ncclComm_t handle)
{
    pthread_mutex_lock(&lock);
    for (struct ips_comm *comm = endings; comm; comm = comm->next)
        if (comm->handle == handle) {
            comm->aborted = 1;
            if (!(ips_comm_held(comm) & IPS_HOLD_PENDING) && comm->engine)
                ips_engine_abort(comm->engine);
        }
    pthread_mutex_unlock(&lock);
}

/* The list is in falling order of the numbers. */
size_t ips_comm_pending(struct ips_comm **ret_comms, size_t room)
{
    static int turn = INT_MAX; /* of those with a smaller number; under the lock */
    size_t count = 0;
    pthread_mutex_lock(&lock);
    for (int others = 0; others < 2; others++)
        for (struct ips_comm *comm = comms; comm && count < room; comm = comm->next)
            if (ips_comm_held(comm) & IPS_HOLD_PENDING &&
                (comm->number >= turn) == others) {
                ips_comm_hold(comm);
                ret_comms[count++] = comm;
            }
    if (count == room && room)
        turn = ret_comms[count - 1]->number;
    pthread_mutex_unlock(&lock);
    return count;
}

#define STOPS (unsigned)(IPS_HOLD_STOPPED | IPS_HOLD_ENDED)

struct ips_stop ips_comm_stop(struct ips_comm *comm, struct ips_stop stop)
{
    struct ips_stop before = {.hold = ips_comm_held(comm) & STOPS};
    if (before.hold)
        before.reason = __atomic_load_n(&comm->stopped, __ATOMIC_RELAXED);
    __atomic_store_n(&comm->stopped, stop.reason, __ATOMIC_RELAXED);
    __atomic_fetch_or(&comm->hold, stop.hold, __ATOMIC_SEQ_CST);
    return before;
}

void ips_comm_resume(struct ips_comm *comm, const char *reason, struct ips_stop before)
{
    if (__atomic_load_n(&comm->stopped, __ATOMIC_RELAXED) != reason)
        return;
    __atomic_store_n(&comm->stopped, before.reason, __ATOMIC_RELAXED);
    __atomic_fetch_and(&comm->hold, ~(STOPS & ~before.hold), __ATOMIC_SEQ_CST);
}

int ips_comm_error(const struct ips_comm *comm)
{
    if (ips_comm_held(comm) & (IPS_HOLD_PENDING | IPS_HOLD_ENDED) || !comm->engine)
        return 0;
    return ips_engine_error(comm->engine);
}

const char *ips_comm_reason(const struct ips_comm *comm)
{
    if (!comm)
        return "communicator not known to the shim";
    unsigned hold = ips_comm_held(comm);
    const char *stopped = __atomic_load_n(&comm->stopped, __ATOMIC_RELAXED);
    if (hold & IPS_HOLD_STOPPED && stopped)
        return stopped;
    if (hold & IPS_HOLD_PENDING)
        return "NCCL's init is in progress";
    if (hold & IPS_HOLD_OWED)
        return "NCCL's last call is in progress";
    return comm->reason;
}
