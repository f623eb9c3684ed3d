/* SPDX-License-Identifier: Apache-2.0 */
/* What ipcshim topo shows: a topology and the ring over one rank a GPU. */
#ifndef IPS_TOOLS_TOPO_H
#define IPS_TOOLS_TOPO_H

#include <stdio.h>

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
    uint64_t nvlink_told;  /* the GPUs whose NVLinks are known, one bit each */
    const char *no_nvlink; /* why those of none are; or NULL */
};

void topo_print_text(const struct topo_view *view, const char *root);
void topo_print_json(const struct topo_view *view);
/* `root` may be any text. */
void topo_print_svg(FILE *out, const struct topo_view *view, const char *root);

/* Enters the NVLinks of this machine's GPUs. Of which ones NVML told: one bit a GPU. */
uint64_t topo_read_nvlinks(struct ips_topology *t);

const char *topo_group_kind(enum ips_group_kind kind);
/* "0", "pci0000:0b" or "0000:0c:00.0" into text[IPS_ADDRESS_BYTES]; returns text. */
const char *topo_group_key(const struct ips_topo_group *group, char *text);

#endif
