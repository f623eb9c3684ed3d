/* SPDX-License-Identifier: Apache-2.0 */
/* In which order ranks stand in a ring so that as few hops as possible leave a socket, a
 * NUMA node and a switch. Pure functions of the topology: every rank computes the same.
 */
#ifndef IPS_CORE_RING_ORDER_H
#define IPS_CORE_RING_ORDER_H

#include "core/topology.h"

#define IPS_RING_RANKS IPS_TOPO_GPUS

/* Hops that change the socket, the NUMA node, and that go through a CPU (no switch is
 * shared). Where the socket is unknown, each NUMA node counts as one; all GPUs of unknown
 * NUMA node count as one node. */
struct ips_ring_cost {
    unsigned socket, numa, cpu;
};

/* The ring over `ranks` (at most IPS_RING_RANKS) ranks; gpu_of[rank] is the rank's GPU in
 * `t`, or -1 where that is unknown. No ring costs less, in any of the three counts. It
 * does not depend on how the ranks or the GPUs are numbered: it begins at the lowest
 * place, and only ranks that share a GPU (or have none) stand by number. */
void ips_ring_order(const struct ips_topology *t, const int *gpu_of, unsigned ranks,
                    unsigned *ret_ring);

/* Of the closed ring ring[0], ring[1], ..., ring[ranks-1], ring[0]. */
struct ips_ring_cost ips_ring_cost(const struct ips_topology *t, const int *gpu_of,
                                   const unsigned *ring, unsigned ranks);

#endif
