/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim topo for people: the matrix, the tree, groups, the ring, and what was not seen.
 */
#include <stdio.h>

#include "tools/topo.h"

#define NVIDIA 0x10de

static const char *known_text(int value, char *text)
{
    snprintf(text, 16, value < 0 ? "?" : "%d", value);
    return text;
}

static void print_matrix(const struct ips_topology *t, const char *no_nvlink)
{
    char text[IPS_ADDRESS_BYTES];
    printf("%-6s", "");
    for (unsigned i = 0; i < t->gpus; i++)
        printf("GPU%-3u", i);
    printf("bus id        NUMA  socket\n");
    for (unsigned i = 0; i < t->gpus; i++) {
        const struct ips_topo_device *d = &t->device[i];
        printf("GPU%-3u", i);
        for (unsigned j = 0; j < t->gpus; j++)
            printf("%-6s", ips_topology_word(t, i, j, text));
        printf("%-14s", ips_address_text(d->address, text));
        printf("%-6s", known_text(d->numa, text));
        printf("%s\n", known_text(d->socket, text));
    }
    printf("\nPIX one switch, PXB several, PHB one host bridge, NODE one NUMA node, SYS "
           "across\n"
           "NUMA nodes, NV# so many NVLinks.%s%s%s\n",
           no_nvlink ? " NVLink is not looked at: " : "", no_nvlink ? no_nvlink : "",
           no_nvlink ? "." : "");
}

static void print_link(const char *what, struct ips_topo_link link)
{
    if (link.mtps)
        printf("%s%u.%u GT/s x%u", what, link.mtps / 1000, link.mtps % 1000 / 100,
               link.width);
    else
        printf("%sunknown", what);
}

static const char *role(const struct ips_topology *t, int at, char *text)
{
    const struct ips_topo_device *d = &t->device[at];
    if (at < IPS_TOPO_GPUS)
        snprintf(text, 16, "GPU%d", at);
    else
        snprintf(text, 16, "%s",
                 d->upstream < 0     ? "root port"
                 : d->upstream == at ? "switch"
                                     : "switch port");
    return text;
}

static void print_device(const struct ips_topology *t, int at, unsigned depth)
{
    const struct ips_topo_device *d = &t->device[at];
    char text[IPS_ADDRESS_BYTES];
    printf("%*s%s ", (int)(2 * depth), "", ips_address_text(d->address, text));
    printf("%s", role(t, at, text));
    if (d->vendor && d->id)
        printf(" %04x:%04x", d->vendor, d->id);
    print_link(": link ", d->now);
    print_link(", at most ", d->most);
    printf("\n");
}

static int has_above(const struct ips_topology *t, unsigned gpu, int bridge)
{
    int at = t->device[gpu].parent;
    while (at >= 0 && at != bridge)
        at = t->device[at].parent;
    return at >= 0;
}

/* The GPU with what is above it, except what the one before it has above it too. */
static void print_branch(const struct ips_topology *t, unsigned gpu, int before)
{
    int path[IPS_TOPO_DEPTH + 1];
    unsigned depth = 0;
    char text[IPS_ADDRESS_BYTES];
    for (int at = (int)gpu; at >= 0; at = t->device[at].parent)
        path[depth++] = at;
    ips_address host = t->device[gpu].host;
    if (before < 0 || t->device[before].host != host)
        printf("%s\n", host < 0 ? "in an unknown place" : ips_host_text(host, text));
    for (unsigned level = 1; level <= depth; level++)
        if (level == depth || before < 0 ||
            !has_above(t, (unsigned)before, path[depth - level]))
            print_device(t, path[depth - level], level);
}

static void print_tree(const struct topo_view *view)
{
    printf("\nTree, with each link as it is now and at most (an idle GPU slows its "
           "link):\n");
    for (unsigned i = 0; i < view->topology.gpus; i++)
        print_branch(&view->topology, view->ring[i], i ? (int)view->ring[i - 1] : -1);
}

static void print_groups(const struct topo_view *view)
{
    char text[IPS_ADDRESS_BYTES];
    printf("\nGroups:\n");
    for (unsigned i = 0; i < view->groups; i++) {
        const struct ips_topo_group *group = &view->group[i];
        printf("  %-10s %-13s GPU", topo_group_kind(group->kind),
               topo_group_key(group, text));
        for (unsigned gpu = 0; gpu < IPS_TOPO_GPUS; gpu++)
            if (group->members >> gpu & 1)
                printf(" %u", gpu);
        printf("\n");
    }
}

static void print_cost(const char *what, struct ips_ring_cost cost)
{
    printf("%s%u between sockets, %u between NUMA nodes, %u through a CPU\n", what,
           cost.socket, cost.numa, cost.cpu);
}

static void print_ring(const struct topo_view *view)
{
    printf("\nRing with the fewest crossings, which the engine uses:");
    for (unsigned i = 0; i < view->topology.gpus; i++)
        printf(" %u", view->ring[i]);
    print_cost("\n  its hops:                 ", view->cost);
    print_cost("  those of order 0, 1, ...: ", view->in_order);
}

static void print_ring_groups(const struct topo_view *view)
{
    const struct ips_ring_uplink *up = &view->uplink;
    if (!view->group_size) {
        printf("  equal groups that share a slower way out: none is known\n");
        return;
    }
    printf("  groups of %u share the way out of their %s: ", view->group_size,
           up->kind == IPS_GROUP_NUMA ? "NUMA node" : topo_group_kind(up->kind));
    if (up->uplink)
        printf("%u.%u GB/s", up->uplink / 1000, up->uplink % 1000 / 100);
    else
        printf("unknown");
    if (up->inside)
        printf(", a GPU's own is %u.%u GB/s", up->inside / 1000, up->inside % 1000 / 100);
    printf("\n");
}

/* Another maker's GPU has none. */
static int lacks_nvlinks(const struct topo_view *view, unsigned gpu)
{
    const unsigned vendor = view->topology.device[gpu].vendor;
    return !view->no_nvlink && !(view->nvlink_told >> gpu & 1) &&
           (!vendor || vendor == NVIDIA);
}

static void print_unknown(const struct topo_view *view)
{
    const struct ips_topology *t = &view->topology;
    char text[IPS_ADDRESS_BYTES];
    for (unsigned i = 0; i < t->gpus; i++) {
        const struct ips_topo_device *d = &t->device[i];
        const char *what = d->host < 0     ? "which bridges are above it"
                           : d->numa < 0   ? "its NUMA node, and so its socket"
                           : d->socket < 0 ? "its socket"
                                           : NULL;
        ips_address_text(d->address, text);
        if (what)
            printf("not seen: GPU%u (%s): %s\n", i, text, what);
        if (!d->now.mtps || !d->most.mtps)
            printf("not seen: GPU%u (%s): its link %s\n", i, text,
                   d->now.mtps || d->most.mtps ? "in part" : "at all");
    }
    for (unsigned i = 0; i < t->gpus; i++)
        if (lacks_nvlinks(view, i))
            printf("not seen: GPU%u (%s): its NVLinks (NVML does not know it)\n", i,
                   ips_address_text(t->device[i].address, text));
    if (t->left_out)
        printf("not shown: %u more GPUs\n", t->left_out);
}

void topo_print_text(const struct topo_view *view, const char *root)
{
    const struct ips_topology *t = &view->topology;
    if (!t->listed) {
        printf("not seen: any PCI device (%s/bus/pci/devices cannot be read)\n", root);
        return;
    }
    if (!t->gpus) {
        printf("not seen: any GPU among the PCI devices of %s\n", root);
        return;
    }
    print_matrix(t, view->no_nvlink);
    print_tree(view);
    print_groups(view);
    print_ring(view);
    print_ring_groups(view);
    print_unknown(view);
}
