/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim topo --json. Unknown is null; nothing is printed but numbers and our own words,
 * so no text needs escaping. */
#include <stdio.h>

#include "tools/topo.h"

static void put_known(const char *name, int value)
{
    if (value < 0)
        printf("\"%s\": null, ", name);
    else
        printf("\"%s\": %d, ", name, value);
}

static void put_link(const char *name, struct ips_topo_link link)
{
    if (link.mtps)
        printf("\"%s\": {\"gtps\": %u.%u, \"width\": %u, \"mbps\": %u}", name,
               link.mtps / 1000, link.mtps % 1000 / 100, link.width, ips_link_rate(link));
    else
        printf("\"%s\": null", name);
}

static void put_device(const struct ips_topo_device *d)
{
    char text[IPS_ADDRESS_BYTES];
    printf("{\"address\": \"%s\", ", ips_address_text(d->address, text));
    if (d->vendor && d->id)
        printf("\"id\": \"%04x:%04x\", ", d->vendor, d->id);
    else
        printf("\"id\": null, ");
    put_link("link", d->now);
    printf(", ");
    put_link("max", d->most);
}

static void put_slowest(const struct ips_topology *t, unsigned gpu, const char *name,
                        int most)
{
    char text[IPS_ADDRESS_BYTES];
    int slowest = ips_topology_slowest(t, gpu, most);
    if (slowest < 0)
        printf(", \"%s\": null", name);
    else
        printf(", \"%s\": \"%s\"", name,
               ips_address_text(t->device[slowest].address, text));
}

/* The bridges are listed upwards. */
static void put_gpu(const struct ips_topology *t, unsigned gpu)
{
    const struct ips_topo_device *d = &t->device[gpu];
    char text[IPS_ADDRESS_BYTES];
    put_device(d);
    printf(", ");
    put_known("numa", d->numa);
    put_known("socket", d->socket);
    if (d->host < 0)
        printf("\"hostbridge\": null");
    else
        printf("\"hostbridge\": \"%s\"", ips_host_text(d->host, text));
    put_slowest(t, gpu, "slowest", 0);
    put_slowest(t, gpu, "slowest_max", 1);
    printf(", \"bridges\": [");
    for (int at = d->parent; at >= 0; at = t->device[at].parent) {
        put_device(&t->device[at]);
        printf("}%s", t->device[at].parent < 0 ? "" : ", ");
    }
    printf("]}");
}

static void put_row(const struct ips_topology *t, unsigned gpu)
{
    char text[8];
    printf("[");
    for (unsigned i = 0; i < t->gpus; i++)
        printf("%s\"%s\"", i ? ", " : "", ips_topology_word(t, gpu, i, text));
    printf("]");
}

/* How many between each two GPUs; null: not known. */
static void put_nvlinks(const struct topo_view *view)
{
    const struct ips_topology *t = &view->topology;
    if (view->no_nvlink) {
        printf("null");
        return;
    }
    printf("[");
    for (unsigned a = 0; a < t->gpus; a++) {
        printf("%s", a ? ", " : "");
        if (!(view->nvlink_told >> a & 1)) {
            printf("null");
            continue;
        }
        printf("[");
        for (unsigned b = 0; b < t->gpus; b++)
            printf("%s%u", b ? ", " : "", t->nvlinks[a][b]);
        printf("]");
    }
    printf("]");
}

static void put_group(const struct ips_topo_group *group)
{
    char text[IPS_ADDRESS_BYTES];
    const char *comma = "";
    printf("{\"kind\": \"%s\", \"key\": \"%s\", \"gpus\": [",
           topo_group_kind(group->kind), topo_group_key(group, text));
    for (unsigned i = 0; i < IPS_TOPO_GPUS; i++)
        if (group->members >> i & 1) {
            printf("%s%u", comma, i);
            comma = ", ";
        }
    printf("]}");
}

static void put_cost(const char *name, struct ips_ring_cost cost)
{
    printf("\"%s\": {\"socket\": %u, \"numa\": %u, \"cpu\": %u}", name, cost.socket,
           cost.numa, cost.cpu);
}

static void put_rate(const char *name, unsigned mbps)
{
    if (mbps)
        printf(", \"%s\": %u", name, mbps);
    else
        printf(", \"%s\": null", name);
}

static void put_ring_groups(const struct topo_view *view)
{
    if (!view->group_size) {
        printf("\"ring_groups\": null");
        return;
    }
    printf("\"ring_groups\": {\"size\": %u, \"kind\": \"%s\"", view->group_size,
           topo_group_kind(view->uplink.kind));
    put_rate("uplink_mbps", view->uplink.uplink);
    put_rate("inside_mbps", view->uplink.inside);
    printf("}");
}

void topo_print_json(const struct topo_view *view)
{
    const struct ips_topology *t = &view->topology;
    printf("{\"pci\": %s, \"left_out\": %u, \"nvlink\": ", t->listed ? "true" : "false",
           t->left_out);
    put_nvlinks(view);
    printf(",\n \"gpus\": [");
    for (unsigned i = 0; i < t->gpus; i++) {
        printf("%s", i ? ",\n  " : "\n  ");
        put_gpu(t, i);
    }
    printf("],\n \"matrix\": [");
    for (unsigned i = 0; i < t->gpus; i++) {
        printf("%s", i ? ",\n  " : "\n  ");
        put_row(t, i);
    }
    printf("],\n \"groups\": [");
    for (unsigned i = 0; i < view->groups; i++) {
        printf("%s", i ? ",\n  " : "\n  ");
        put_group(&view->group[i]);
    }
    printf("],\n \"ring\": [");
    for (unsigned i = 0; i < t->gpus; i++)
        printf("%s%u", i ? ", " : "", view->ring[i]);
    printf("], ");
    put_cost("cost", view->cost);
    printf(", ");
    put_cost("cost_in_order", view->in_order);
    printf(", ");
    put_ring_groups(view);
    printf("}\n");
}
