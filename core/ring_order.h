/* SPDX-License-Identifier: Apache-2.0 */
/* In which order ranks stand in a ring so that as few hops as possible leave a socket, a
 * NUMA node and a switch, and which of them share a slower way out. Pure functions of the
 * topology: every rank computes the same. */
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

/* What the members of a group share on the way to the other groups. Rates: MB/s in one
 * direction by what the links can do, the slowest of all groups; 0: unknown, as always
 * between sockets, which sysfs does not tell. */
struct ips_ring_uplink {
    enum ips_group_kind kind; /* SWITCH, SOCKET, or NUMA where a socket is unknown */
    unsigned uplink;          /* from a switch's upstream port towards the CPU */
    unsigned inside;          /* of a member's own links below that */
};

/* The size g of equal groups, 1 < g < ranks: ring[0] to ring[g-1], ring[g] to ring[2g-1],
 * and so on, where each group is all ranks of one switch whose uplink is slower than g
 * times a member's own links, or all ranks of one socket. The widest, where there are
 * several, since what crosses an uplink grows with the number of groups. 0: there are none,
 * or they are not equal, or not in one piece from ring[0] on, or it is not known; then
 * *ret is all 0. `gpu_of` and `ring` as above. */
unsigned ips_ring_groups(const struct ips_topology *t, const int *gpu_of,
                         const unsigned *ring, unsigned ranks,
                         struct ips_ring_uplink *ret);

#endif
