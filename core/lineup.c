/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the ranks' GPUs in /sys, lets the pure functions of ring_order.h order them, and
 * puts it into words. */
#include "core/lineup.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/ring_order.h"

struct places {
    struct ips_topology topology;
    int gpu_of[IPS_MAX_RANKS]; /* index there, or -1 */
};

/* In a ring of three each pair stands side by side, in any order. */
static int order_matters(const struct ips_record *const *records, int nranks)
{
    int one_gpu = 1;
    for (int rank = 1; rank < nranks; rank++)
        one_gpu &=
            !memcmp(&records[rank]->uuid, &records[0]->uuid, sizeof records[0]->uuid);
    return nranks > 3 && !one_gpu;
}

/* The record is another process's. */
static ips_address address_of(const struct ips_record *record)
{
    char bus_id[sizeof record->bus_id] = "";
    ips_address address;
    for (size_t i = 0; i < sizeof bus_id - 1 && record->bus_id[i]; i++)
        bus_id[i] = (char)tolower((unsigned char)record->bus_id[i]); /* as in sysfs */
    return ips_address_parse(bus_id, &address) ? IPS_TOPO_UNKNOWN : address;
}

/* How many ranks' GPUs are there. */
static int find_places(const struct ips_record *const *records, int nranks,
                       struct places *ret)
{
    ips_address address[IPS_MAX_RANKS];
    int root = open("/sys", O_PATH | O_DIRECTORY | O_CLOEXEC), found = 0;
    for (int rank = 0; rank < nranks; rank++)
        address[rank] = address_of(records[rank]);
    if (root >= 0) {
        ips_topology_read_gpus(root, address, (unsigned)nranks, &ret->topology);
        close(root);
    }
    for (int rank = 0; rank < nranks; rank++) {
        int gpu = (int)ret->topology.gpus - 1;
        while (gpu >= 0 && ret->topology.device[gpu].address != address[rank])
            gpu--;
        ret->gpu_of[rank] = gpu;
        found += gpu >= 0;
    }
    return found;
}

/* Of something 1 at least: 0 is not known. */
static uint32_t percent(unsigned part, unsigned whole)
{
    const uint64_t rounded = (100ull * part + whole / 2) / whole;
    return part && !rounded ? 1 : (uint32_t)rounded;
}

/* Through NVLink nothing is shared, and through host memory the switch's uplink is
 * crossed inside a group as well. */
static void find_groups(const struct places *places, const unsigned *ring,
                        unsigned nranks, const struct ips_ring_cost *cost,
                        enum ips_link link, struct ips_lineup *ret)
{
    struct ips_ring_uplink uplink;
    if (link == IPS_LINK_NVLINK)
        return;
    const unsigned size =
        ips_ring_groups(&places->topology, places->gpu_of, ring, nranks, &uplink);
    if (!size || (link == IPS_LINK_HOST && cost->socket != nranks / size))
        return;
    ret->group = size;
    if (uplink.inside && link != IPS_LINK_HOST)
        ret->uplink = percent(uplink.uplink, uplink.inside);
}

static void describe(const struct ips_lineup *lineup, int nranks,
                     struct ips_ring_cost cost, char *ret_text)
{
    size_t at = (size_t)snprintf(ret_text, IPS_RING_TEXT_BYTES, "ring");
    for (int i = 0; i < nranks; i++)
        at += (size_t)snprintf(ret_text + at, IPS_RING_TEXT_BYTES - at, " %u",
                               lineup->rank[i]);
    at += (size_t)snprintf(ret_text + at, IPS_RING_TEXT_BYTES - at,
                           ", %u hop%s between sockets, %u through a CPU", cost.socket,
                           cost.socket == 1 ? "" : "s", cost.cpu);
    if (lineup->group)
        at += (size_t)snprintf(ret_text + at, IPS_RING_TEXT_BYTES - at, ", groups of %u",
                               lineup->group);
    if (lineup->uplink)
        snprintf(ret_text + at, IPS_RING_TEXT_BYTES - at, " behind %u %% of a link",
                 lineup->uplink);
}

void ips_lineup_find(const struct ips_record *const *records, int nranks,
                     enum ips_link link, struct ips_lineup *ret, char *ret_text)
{
    *ret = (struct ips_lineup){0};
    *ret_text = 0;
    for (int rank = 0; rank < nranks; rank++)
        ret->rank[rank] = (uint8_t)rank;
    struct places *places =
        order_matters(records, nranks) ? calloc(1, sizeof *places) : NULL;
    if (places && find_places(records, nranks, places)) {
        unsigned ring[IPS_MAX_RANKS];
        ips_ring_order(&places->topology, places->gpu_of, (unsigned)nranks, ring);
        for (int i = 0; i < nranks; i++)
            ret->rank[i] = (uint8_t)ring[i];
        const struct ips_ring_cost cost =
            ips_ring_cost(&places->topology, places->gpu_of, ring, (unsigned)nranks);
        find_groups(places, ring, (unsigned)nranks, &cost, link, ret);
        describe(ret, nranks, cost, ret_text);
    }
    free(places);
}
