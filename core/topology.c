/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from where the GPUs sit: the class of each pair, groups, and the slowest
 * link. Every walk goes from a device to one before it, so it ends. */
#include "core/topology.h"

#include <stdio.h>
#include <string.h>

static const struct ips_topo_device *above(const struct ips_topology *t,
                                           const struct ips_topo_device *d)
{
    return d->parent < 0 ? NULL : &t->device[d->parent];
}

static int is_above(const struct ips_topology *t, int bridge, unsigned gpu)
{
    int at = t->device[gpu].parent;
    while (at > bridge)
        at = t->device[at].parent;
    return at == bridge;
}

/* The lowest bridge above both that belongs to a switch, or -1. */
static int common_bridge(const struct ips_topology *t, unsigned a, unsigned b)
{
    for (int at = t->device[a].parent; at >= 0; at = t->device[at].parent)
        if (is_above(t, at, b))
            return t->device[at].upstream < 0 ? -1 : at;
    return -1;
}

/* Switches from the GPU up to the common bridge that are not the common one. */
static unsigned switches_below(const struct ips_topology *t, unsigned gpu, int common)
{
    unsigned count = 0;
    int last = t->device[common].upstream;
    for (int at = t->device[gpu].parent; at >= 0 && at != common;
         at = t->device[at].parent) {
        int upstream = t->device[at].upstream;
        count += upstream == at && upstream != last;
    }
    return count;
}

int64_t ips_topology_socket(const struct ips_topo_device *device)
{
    return device->socket >= 0 ? device->socket : IPS_NO_SOCKET + device->numa;
}

enum ips_pair_class ips_topology_class(const struct ips_topology *t, unsigned a,
                                       unsigned b)
{
    const struct ips_topo_device *x = &t->device[a], *y = &t->device[b];
    if (a == b)
        return IPS_PAIR_LOC;
    int common = common_bridge(t, a, b), known = x->numa >= 0 && y->numa >= 0;
    if (common >= 0)
        return switches_below(t, a, common) + switches_below(t, b, common) ? IPS_PAIR_PXB
                                                                           : IPS_PAIR_PIX;
    if (known && x->numa != y->numa)
        return IPS_PAIR_SYS;
    if (x->host < 0 || y->host < 0)
        return IPS_PAIR_UNKNOWN;
    if (x->host == y->host)
        return IPS_PAIR_PHB;
    return known ? IPS_PAIR_NODE : IPS_PAIR_SYS;
}

const char *ips_pair_class_name(enum ips_pair_class pair)
{
    static const char *const names[] = {"LOC", "PIX", "PXB", "PHB", "NODE", "SYS", "?"};
    return names[pair];
}

const char *ips_topology_word(const struct ips_topology *t, unsigned a, unsigned b,
                              char *text)
{
    if (a != b && t->nvlinks[a][b])
        snprintf(text, 8, "NV%u", t->nvlinks[a][b]);
    else
        snprintf(text, 8, "%s", ips_pair_class_name(ips_topology_class(t, a, b)));
    return text;
}

static unsigned enter(struct ips_topo_group *groups, unsigned count,
                      enum ips_group_kind kind, ips_address key, unsigned gpu)
{
    unsigned i = 0;
    while (i < count && (groups[i].kind != kind || groups[i].key != key))
        i++;
    if (i == count)
        groups[count++] = (struct ips_topo_group){kind, key, 0};
    groups[i].members |= UINT64_C(1) << gpu;
    return count;
}

static unsigned enter_switches(const struct ips_topology *t,
                               struct ips_topo_group *groups, unsigned count,
                               unsigned gpu)
{
    for (const struct ips_topo_device *d = above(t, &t->device[gpu]); d; d = above(t, d))
        if (d->upstream >= 0)
            count = enter(groups, count, IPS_GROUP_SWITCH, t->device[d->upstream].address,
                          gpu);
    return count;
}

unsigned ips_topology_groups(const struct ips_topology *t, struct ips_topo_group *ret)
{
    unsigned count = 0;
    for (unsigned i = 0; i < t->gpus; i++)
        if (t->device[i].socket >= 0)
            count = enter(ret, count, IPS_GROUP_SOCKET, t->device[i].socket, i);
    for (unsigned i = 0; i < t->gpus; i++)
        count = enter(ret, count, IPS_GROUP_NUMA, t->device[i].numa, i);
    for (unsigned i = 0; i < t->gpus; i++)
        if (t->device[i].host >= 0)
            count = enter(ret, count, IPS_GROUP_HOST, t->device[i].host, i);
    for (unsigned i = 0; i < t->gpus; i++)
        count = enter_switches(t, ret, count, i);
    return count;
}

unsigned ips_link_rate(struct ips_topo_link link)
{
    /* 8 of 10 bits are data up to 5 GT/s, 128 of 130 from 8 GT/s on, 242 of 256 bytes of
     * a flit at 64 GT/s (PCI Express Base 6.0, 4.2). */
    uint64_t bits = (uint64_t)link.mtps * link.width;
    if (link.mtps < 8000)
        return (unsigned)(bits / 10);
    return (unsigned)(link.mtps < 64000 ? bits * 128 / 130 / 8 : bits * 242 / 256 / 8);
}

int ips_topology_slowest(const struct ips_topology *t, unsigned gpu, int most)
{
    int slowest = -1;
    unsigned least = 0;
    for (int at = (int)gpu; at >= 0; at = t->device[at].parent) {
        const struct ips_topo_device *d = &t->device[at];
        unsigned rate = ips_link_rate(most ? d->most : d->now);
        if (rate && (slowest < 0 || rate < least)) {
            slowest = at;
            least = rate;
        }
    }
    return slowest;
}

const char *ips_address_text(ips_address address, char *text)
{
    snprintf(text, IPS_ADDRESS_BYTES, "%04x:%02x:%02x.%x",
             (unsigned)((uint64_t)address >> 16), (unsigned)(address >> 8 & 0xff),
             (unsigned)(address >> 3 & 0x1f), (unsigned)(address & 7));
    return text;
}

const char *ips_host_text(ips_address host, char *text)
{
    snprintf(text, IPS_ADDRESS_BYTES, "pci%04x:%02x", (unsigned)((uint64_t)host >> 16),
             (unsigned)(host >> 8 & 0xff));
    return text;
}

/* `least` to `most` lowercase hexadecimal digits at *text, moved past. -1: not so. */
static int64_t take_hex(const char **text, unsigned least, unsigned most)
{
    static const char digits[] = "0123456789abcdef";
    int64_t value = 0;
    unsigned count = 0;
    const char *digit;
    while (count < most && **text && (digit = strchr(digits, **text))) {
        value = value << 4 | (digit - digits);
        (*text)++;
        count++;
    }
    return count < least ? -1 : value;
}

static int take(const char **text, char c)
{
    return **text == c ? ((*text)++, 1) : 0;
}

int ips_address_parse(const char *text, ips_address *ret)
{
    int64_t domain = take_hex(&text, 4, 8), bus, device, function;
    if (domain < 0 || !take(&text, ':') || (bus = take_hex(&text, 2, 2)) < 0 ||
        !take(&text, ':') || (device = take_hex(&text, 2, 2)) < 0 || device > 31 ||
        !take(&text, '.') || (function = take_hex(&text, 1, 1)) < 0 || function > 7 ||
        *text)
        return -1;
    *ret = IPS_ADDRESS(domain, bus, device, function);
    return 0;
}

int ips_host_parse(const char *text, ips_address *ret)
{
    if (strncmp(text, "pci", 3))
        return -1;
    text += 3;
    int64_t domain = take_hex(&text, 4, 8), bus;
    if (domain < 0 || !take(&text, ':') || (bus = take_hex(&text, 2, 2)) < 0 || *text)
        return -1;
    *ret = IPS_ADDRESS(domain, bus, 0, 0);
    return 0;
}
