/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers from a seed, and machines made of them. */
#ifndef IPS_TESTS_RANDOM_MACHINE_H
#define IPS_TESTS_RANDOM_MACHINE_H

#include <stdint.h>
#include <string.h>

#include "core/ring_order.h"

#define MOST_GPUS 12

static uint64_t state; /* of the random numbers */

static inline unsigned pick(unsigned below)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

static inline void shuffle(unsigned *list, unsigned count)
{
    for (unsigned i = count; i > 1; i--) {
        unsigned j = pick(i), kept = list[i - 1];
        list[i - 1] = list[j];
        list[j] = kept;
    }
}

static inline int bridge(struct ips_topology *t, int parent, ips_address host)
{
    int at = IPS_TOPO_GPUS + (int)t->bridges++;
    struct ips_topo_device *d = &t->device[at];
    *d = (struct ips_topo_device){.address = IPS_ADDRESS(1, pick(256), 0, 0) << 10 | at,
                                  .host = host,
                                  .numa = -1,
                                  .socket = -1,
                                  .parent = parent,
                                  .upstream = -1};
    if (parent >= 0)
        d->upstream = t->device[parent].upstream == parent ? parent : at;
    return at;
}

/* GPUs below a root port, some of them below further switches. */
static inline void fill_port(struct ips_topology *t, const struct ips_topo_device *place)
{
    int port = pick(8) ? bridge(t, -1, place->host) : -1;
    int upstream = port >= 0 && pick(2) ? bridge(t, port, place->host) : -1;
    unsigned gpus = upstream < 0 ? 1 : 1 + pick(4);
    for (unsigned i = 0; i < gpus && t->gpus < MOST_GPUS; i++) {
        struct ips_topo_device *gpu = &t->device[t->gpus++];
        *gpu = *place;
        gpu->parent = upstream < 0 ? port : bridge(t, upstream, place->host);
        if (upstream >= 0 && !pick(4))
            gpu->parent = bridge(t, bridge(t, gpu->parent, place->host), place->host);
        gpu->address = IPS_ADDRESS(pick(3), pick(256), 0, 0) << 10 | t->gpus;
    }
}

static inline void make_machine(struct ips_topology *t)
{
    memset(t, 0, sizeof *t);
    unsigned nodes = 1 + pick(4), sockets_here = 1 + pick(3), ports = 1 + pick(8);
    int sockets = pick(4) != 0, numbered = pick(5) != 0;
    for (unsigned i = 0; i < ports; i++) {
        int numa = numbered ? (int)pick(nodes) : -1;
        struct ips_topo_device place = {
            .numa = numa,
            .socket = sockets && numbered ? numa % (int)sockets_here : -1,
            .host = pick(10) ? IPS_ADDRESS(numa + 1, pick(2), 0, 0) : -1,
            .upstream = -1};
        fill_port(t, &place);
    }
}

/* The same machine with its GPUs numbered by `at`: old number -> new. */
static inline void renumber(const struct ips_topology *t, const unsigned *at,
                            struct ips_topology *ret)
{
    *ret = *t;
    for (unsigned i = 0; i < t->gpus; i++)
        ret->device[at[i]] = t->device[i];
}

#endif
