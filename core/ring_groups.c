/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the ranks that share a slower way to the others: behind a switch, whose uplink is
 * one link for all of them, or on a socket, where the links to the other sockets are.
 * What is not known makes no group. */
#include "core/ring_order.h"

struct members {
    const struct ips_topology *t;
    int gpu[IPS_RING_RANKS]; /* by place in the ring; all are known */
    unsigned ranks, size;    /* of a group */
};

static unsigned min(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static int is_below(const struct ips_topology *t, int gpu, int bridge)
{
    int at = t->device[gpu].parent;
    while (at > bridge)
        at = t->device[at].parent;
    return at == bridge;
}

static unsigned count_below(const struct members *m, int bridge, unsigned first,
                            unsigned ranks)
{
    unsigned count = 0;
    for (unsigned i = first; i < first + ranks; i++)
        count += is_below(m->t, m->gpu[i], bridge);
    return count;
}

/* The lowest bridge above the whole group, if it is a switch's and no other rank is below
 * it; or -1. */
static int own_switch(const struct members *m, unsigned first)
{
    int at = m->t->device[m->gpu[first]].parent;
    while (at >= 0 && count_below(m, at, first, m->size) < m->size)
        at = m->t->device[at].parent;
    if (at < 0 || m->t->device[at].upstream < 0)
        return -1;
    return count_below(m, at, 0, m->ranks) == m->size ? at : -1;
}

/* The slowest known link from `at` up to below `end`; 0: none is known. */
static unsigned slowest(const struct ips_topology *t, int at, int end)
{
    unsigned least = 0;
    for (; at >= 0 && at != end; at = t->device[at].parent) {
        unsigned rate = ips_link_rate(t->device[at].most);
        if (rate && (!least || rate < least))
            least = rate;
    }
    return least;
}

/* From the switch up to where others join; -1: all the way. */
static int end_of_uplink(const struct members *m, int bridge)
{
    while (bridge >= 0 && count_below(m, bridge, 0, m->ranks) == m->size)
        bridge = m->t->device[bridge].parent;
    return bridge;
}

static int by_switch(const struct members *m, struct ips_ring_uplink *ret)
{
    struct ips_ring_uplink found = {IPS_GROUP_SWITCH, UINT32_MAX, UINT32_MAX};
    for (unsigned first = 0; first < m->ranks; first += m->size) {
        const int bridge = own_switch(m, first);
        if (bridge < 0)
            return 0;
        found.uplink = min(found.uplink, slowest(m->t, bridge, end_of_uplink(m, bridge)));
        for (unsigned i = first; i < first + m->size; i++)
            found.inside = min(found.inside, slowest(m->t, m->gpu[i], bridge));
    }
    if (!found.uplink || found.uplink >= (uint64_t)m->size * found.inside)
        return 0;
    *ret = found;
    return 1;
}

static int by_socket(const struct members *m, struct ips_ring_uplink *ret)
{
    struct ips_ring_uplink found = {IPS_GROUP_SOCKET, 0, UINT32_MAX};
    for (unsigned i = 0; i < m->ranks; i++) {
        const struct ips_topo_device *gpu = &m->t->device[m->gpu[i]];
        const int64_t socket = ips_topology_socket(gpu);
        if (gpu->socket < 0 && gpu->numa < 0)
            return 0;
        for (unsigned j = 0; j < i; j++)
            if ((ips_topology_socket(&m->t->device[m->gpu[j]]) == socket) !=
                (i / m->size == j / m->size))
                return 0;
        if (gpu->socket < 0)
            found.kind = IPS_GROUP_NUMA;
        found.inside = min(found.inside, slowest(m->t, m->gpu[i], -1));
    }
    *ret = found;
    return 1;
}

unsigned ips_ring_groups(const struct ips_topology *t, const int *gpu_of,
                         const unsigned *ring, unsigned ranks,
                         struct ips_ring_uplink *ret)
{
    struct members m = {.t = t, .ranks = ranks};
    *ret = (struct ips_ring_uplink){0};
    for (unsigned i = 0; i < ranks; i++) {
        m.gpu[i] = gpu_of[ring[i]];
        if (m.gpu[i] < 0)
            return 0;
    }
    for (m.size = ranks / 2; m.size > 1; m.size--)
        if (ranks % m.size == 0 && (by_switch(&m, ret) || by_socket(&m, ret)))
            return m.size;
    return 0;
}
