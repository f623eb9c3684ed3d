/* SPDX-License-Identifier: Apache-2.0 */
/* The order is a sort by place, outermost first. Each count's groups lie within the next
 * wider ones, so sorting leaves every group in one piece; a closed ring must change group
 * at least once for each group, and this one does exactly so. */
#include "core/ring_order.h"

struct place {
    ips_address socket, numa, host;
    ips_address top; /* the outermost switch, else the GPU itself */
    ips_address path[IPS_TOPO_DEPTH + 1];
    unsigned depth, rank;
};

/* Writes the devices from the root port down to the GPU. */
static void find_path(const struct ips_topology *t, int gpu, struct place *place)
{
    const struct ips_topo_device *d = &t->device[gpu];
    place->top = d->address;
    for (int at = gpu; at >= 0; at = t->device[at].parent)
        place->depth++;
    unsigned level = place->depth;
    for (int at = gpu; at >= 0; at = t->device[at].parent) {
        d = &t->device[at];
        place->path[--level] = d->address;
        if (at != gpu && d->upstream >= 0)
            place->top = t->device[d->upstream].address;
    }
}

static struct place find_place(const struct ips_topology *t, const int *gpu_of,
                               unsigned rank)
{
    struct place place = {.socket = IPS_NO_SOCKET - 1, .numa = -1, .host = -1, .rank = rank};
    int gpu = gpu_of[rank];
    if (gpu < 0) {
        place.top = -1 - (ips_address)rank;
        return place;
    }
    const struct ips_topo_device *d = &t->device[gpu];
    place.numa = d->numa;
    place.host = d->host;
    place.socket = ips_topology_socket(d);
    find_path(t, gpu, &place);
    return place;
}

static int order(ips_address a, ips_address b)
{
    return (a > b) - (a < b);
}

static int compare(const struct place *a, const struct place *b)
{
    int o = order(a->socket, b->socket);
    o = o ? o : order(a->numa, b->numa);
    o = o ? o : order(a->host, b->host);
    for (unsigned level = 0; !o && level < a->depth && level < b->depth; level++)
        o = order(a->path[level], b->path[level]);
    o = o ? o : order(a->depth, b->depth);
    return o ? o : order(a->rank, b->rank);
}

void ips_ring_order(const struct ips_topology *t, const int *gpu_of, unsigned ranks,
                    unsigned *ret_ring)
{
    struct place sorted[IPS_RING_RANKS];
    for (unsigned rank = 0; rank < ranks; rank++) {
        struct place place = find_place(t, gpu_of, rank);
        unsigned at = rank;
        for (; at && compare(&sorted[at - 1], &place) > 0; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = place;
    }
    for (unsigned i = 0; i < ranks; i++)
        ret_ring[i] = sorted[i].rank;
}

struct ips_ring_cost ips_ring_cost(const struct ips_topology *t, const int *gpu_of,
                                   const unsigned *ring, unsigned ranks)
{
    struct ips_ring_cost cost = {0};
    for (unsigned i = 0; i < ranks; i++) {
        struct place a = find_place(t, gpu_of, ring[i]);
        struct place b = find_place(t, gpu_of, ring[(i + 1) % ranks]);
        int socket = a.socket != b.socket, numa = socket || a.numa != b.numa;
        cost.socket += socket;
        cost.numa += numa;
        cost.cpu += numa || a.host != b.host || a.top != b.top;
    }
    return cost;
}
