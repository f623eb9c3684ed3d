/* SPDX-License-Identifier: Apache-2.0 */
/* What ipcshim topo shows: a topology and the ring over one rank a GPU. */
#ifndef IPS_TOOLS_TOPO_H
#define IPS_TOOLS_TOPO_H

#include "core/ring_order.h"

struct topo_view {
    struct ips_topology topology;
    unsigned groups;
    struct ips_topo_group group[IPS_TOPO_GROUPS];
    int gpu_of[IPS_TOPO_GPUS];
    unsigned ring[IPS_TOPO_GPUS];
    struct ips_ring_cost cost, in_order; /* of the ring, and of 0, 1, 2, ... */
    unsigned group_size;                 /* see ips_ring_groups */
    struct ips_ring_uplink uplink;
};

void topo_print_text(const struct topo_view *view, const char *root);
void topo_print_json(const struct topo_view *view);

const char *topo_group_kind(enum ips_group_kind kind);
/* "0", "pci0000:0b" or "0000:0c:00.0" into text[IPS_ADDRESS_BYTES]; returns text. */
const char *topo_group_key(const struct ips_topo_group *group, char *text);

#endif
