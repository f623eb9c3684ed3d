/* SPDX-License-Identifier: Apache-2.0 */
/* The list of inits that wait for their handle.
 *
 * Where NCCL writes it is the program's memory, which is read until the handle is seen or
 * NCCL is at nothing more on the parent: it writes the handle before it says so. Every
 * question after some communicator's health looks, so it is seen while the program
 * still waits for it. No NCCL call is made with the lock held. */
#include "shim/late.h"

#include <pthread.h>
#include <stdlib.h>

struct late {
    struct ips_init init;
    uint64_t number; /* how many were added before it */
    struct late *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct late *list;
static unsigned waiting; /* in the list; atomic */
static uint64_t added;   /* ever; atomic */

void ips_late_add(const struct ips_init *init)
{
    struct late *late = malloc(sizeof *late);
    /* NCCL serves it, unknown to the shim, and the peers decline. Without a parent nobody
     * would tell that the place for the handle may be gone. */
    if (!late || !init->parent) {
        free(late);
        struct ips_init dropped = *init;
        ips_init_drop(&dropped, 1);
        return;
    }
    late->init = *init;
    pthread_mutex_lock(&lock);
    late->next = list;
    late->number = __atomic_fetch_add(&added, 1, __ATOMIC_SEQ_CST);
    list = late;
    __atomic_fetch_add(&waiting, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&lock);
}

static struct late *unlink_at(struct late **link)
{
    struct late *late = *link;
    *link = late->next;
    __atomic_fetch_sub(&waiting, 1, __ATOMIC_SEQ_CST);
    return late;
}

/* Under the lock, so that no other thread misses the entry in between. Gives what is to
 * be put after it. */
static struct ips_comm *adopt(void)
{
    struct ips_comm *stale = NULL;
    struct late **link = &list;
    while (*link) {
        if (!ips_init_handle(&(*link)->init)) {
            link = &(*link)->next;
            continue;
        }
        ips_comm_put(ips_init_enter(&(*link)->init, &stale));
        free(unlink_at(link));
    }
    return stale;
}

void ips_late_adopt(void)
{
    if (!__atomic_load_n(&waiting, __ATOMIC_SEQ_CST))
        return;
    pthread_mutex_lock(&lock);
    struct ips_comm *stale = adopt();
    pthread_mutex_unlock(&lock);
    ips_comm_put_all(stale);
}

/* Gives up the parent's whose number is below. */
static void give_up(ncclComm_t parent, uint64_t below)
{
    struct late *ended = NULL;
    if (!__atomic_load_n(&waiting, __ATOMIC_SEQ_CST))
        return;
    pthread_mutex_lock(&lock);
    struct ips_comm *stale = adopt();
    for (struct late **link = &list; *link;) {
        if ((*link)->init.parent != parent || (*link)->number >= below) {
            link = &(*link)->next;
            continue;
        }
        struct late *late = unlink_at(link);
        late->next = ended;
        ended = late;
    }
    pthread_mutex_unlock(&lock);
    ips_comm_put_all(stale);
    while (ended) {
        struct late *next = ended->next;
        ips_init_drop(&ended->init, 1);
        free(ended);
        ended = next;
    }
}

void ips_late_end(ncclComm_t parent)
{
    give_up(parent, UINT64_MAX);
}

uint64_t ips_late_count(void)
{
    return __atomic_load_n(&added, __ATOMIC_SEQ_CST);
}

void ips_late_settled(ncclComm_t parent, ncclResult_t state, uint64_t asked)
{
    if (state != ncclInProgress)
        give_up(parent, asked);
}
