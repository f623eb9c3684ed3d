/* SPDX-License-Identifier: Apache-2.0 */
/* The bounded event queue. A cell at position p is free for the push number p when its
 * turn is p, and holds that event when its turn is p + 1. */
#include "shim/ring.h"

#include <stdlib.h>

struct cell {
    uint64_t turn;
    struct ips_event event;
};

struct ips_ring {
    uint64_t head; /* next push */
    uint64_t tail; /* next pop */
    uint64_t dropped;
    uint64_t mask;
    struct cell cells[];
};

struct ips_ring *ips_ring_create(size_t events)
{
    struct ips_ring *ring = calloc(1, sizeof *ring + events * sizeof ring->cells[0]);
    if (!ring)
        return NULL;
    ring->mask = events - 1;
    for (size_t i = 0; i < events; i++)
        ring->cells[i].turn = i;
    return ring;
}

void ips_ring_destroy(struct ips_ring *ring)
{
    free(ring);
}

int ips_ring_push(struct ips_ring *ring, const struct ips_event *event)
{
    uint64_t position = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
    for (;;) {
        struct cell *cell = &ring->cells[position & ring->mask];
        int64_t ahead =
            (int64_t)(__atomic_load_n(&cell->turn, __ATOMIC_ACQUIRE) - position);
        if (ahead < 0) {
            __atomic_fetch_add(&ring->dropped, 1, __ATOMIC_RELAXED);
            return 0;
        }
        if (ahead > 0) {
            position = __atomic_load_n(&ring->head, __ATOMIC_RELAXED);
            continue;
        }
        if (!__atomic_compare_exchange_n(&ring->head, &position, position + 1, 1,
                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            continue;
        cell->event = *event;
        __atomic_store_n(&cell->turn, position + 1, __ATOMIC_RELEASE);
        return 1;
    }
}

int ips_ring_pop(struct ips_ring *ring, struct ips_event *ret)
{
    struct cell *cell = &ring->cells[ring->tail & ring->mask];
    if (__atomic_load_n(&cell->turn, __ATOMIC_ACQUIRE) != ring->tail + 1)
        return 0;
    *ret = cell->event;
    __atomic_store_n(&cell->turn, ring->tail + ring->mask + 1, __ATOMIC_RELEASE);
    ring->tail++;
    return 1;
}

uint64_t ips_ring_dropped(struct ips_ring *ring, uint64_t more)
{
    return __atomic_add_fetch(&ring->dropped, more, __ATOMIC_RELAXED);
}
