/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of pair classes, groups and ring order, over random machines: symmetric,
 * independent of how GPUs and ranks are numbered, and no random ring costs less. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/random_machine.h"
#include "tests/unit/check.h"

#define MACHINES 400
#define RANDOM_RINGS 1000

static void check_pairs(const struct ips_topology *t, const struct ips_topology *other,
                        const unsigned *at)
{
    for (unsigned a = 0; a < t->gpus; a++)
        for (unsigned b = 0; b < t->gpus; b++) {
            enum ips_pair_class pair = ips_topology_class(t, a, b);
            CHECK(pair == ips_topology_class(t, b, a), "%u and %u", a, b);
            CHECK((pair == IPS_PAIR_LOC) == (a == b), "%u and %u", a, b);
            CHECK(pair == ips_topology_class(other, at[a], at[b]), "%u and %u", a, b);
        }
}

static void check_groups(const struct ips_topology *t)
{
    static struct ips_topo_group groups[IPS_TOPO_GROUPS];
    unsigned count = ips_topology_groups(t, groups);
    uint64_t all = (UINT64_C(1) << t->gpus) - 1, by_kind[4] = {0};
    for (unsigned i = 0; i < count; i++) {
        CHECK(groups[i].members && !(groups[i].members & ~all), "group %u", i);
        CHECK(groups[i].kind == IPS_GROUP_SWITCH ||
                  !(by_kind[groups[i].kind] & groups[i].members),
              "a GPU in two groups of kind %d", groups[i].kind);
        by_kind[groups[i].kind] |= groups[i].members;
    }
    CHECK(by_kind[IPS_GROUP_NUMA] == all, "a GPU in no node");
}

static int worse(struct ips_ring_cost a, struct ips_ring_cost b)
{
    return a.socket > b.socket || a.numa > b.numa || a.cpu > b.cpu;
}

static void check_cost(const struct ips_topology *t, const int *gpu_of,
                       const unsigned *ring, unsigned ranks)
{
    struct ips_ring_cost least = ips_ring_cost(t, gpu_of, ring, ranks);
    unsigned other[IPS_RING_RANKS], better = 0;
    for (unsigned i = 0; i < ranks; i++)
        other[i] = i;
    for (unsigned i = 0; i < RANDOM_RINGS; i++) {
        better += worse(least, ips_ring_cost(t, gpu_of, other, ranks));
        shuffle(other, ranks); /* the first was device order */
    }
    CHECK(!better, "%u of %u rings are better in a count than %u %u %u", better,
          RANDOM_RINGS, least.socket, least.numa, least.cpu);
}

/* Where each rank of the ring sits. */
static void trace(const struct ips_topology *t, const int *gpu_of, const unsigned *ring,
                  unsigned ranks, ips_address *ret)
{
    for (unsigned i = 0; i < ranks; i++)
        ret[i] = gpu_of[ring[i]] < 0 ? -1 : t->device[gpu_of[ring[i]]].address;
}

static void check_ring(const struct ips_topology *t, const struct ips_topology *other,
                       const unsigned *at)
{
    int gpu_of[IPS_RING_RANKS], other_of[IPS_RING_RANKS];
    unsigned ring[IPS_RING_RANKS], again[IPS_RING_RANKS], rank_at[IPS_RING_RANKS];
    ips_address one[IPS_RING_RANKS], two[IPS_RING_RANKS];
    unsigned ranks = 1 + pick(MOST_GPUS);
    uint64_t met = 0;
    for (unsigned i = 0; i < ranks; i++) {
        gpu_of[i] = pick(12) ? (int)pick(t->gpus) : -1;
        rank_at[i] = i;
    }
    shuffle(rank_at, ranks);
    for (unsigned i = 0; i < ranks; i++)
        other_of[rank_at[i]] = gpu_of[i] < 0 ? -1 : (int)at[gpu_of[i]];
    ips_ring_order(t, gpu_of, ranks, ring);
    ips_ring_order(other, other_of, ranks, again);
    for (unsigned i = 0; i < ranks; i++)
        met |= UINT64_C(1) << ring[i];
    CHECK(met == (UINT64_C(1) << ranks) - 1, "not every rank is in the ring");
    trace(t, gpu_of, ring, ranks, one);
    trace(other, other_of, again, ranks, two);
    CHECK(!memcmp(one, two, ranks * sizeof *one), "numbering changes the ring");
    check_cost(t, gpu_of, ring, ranks);
}

static void check_random(uint64_t seed)
{
    static struct ips_topology t, other;
    unsigned at[IPS_TOPO_GPUS];
    state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    make_machine(&t);
    for (unsigned i = 0; i < t.gpus; i++)
        at[i] = i;
    shuffle(at, t.gpus);
    renumber(&t, at, &other);
    unsigned before = check_failures;
    check_pairs(&t, &other, at);
    check_groups(&t);
    check_ring(&t, &other, at);
    if (check_failures > before)
        printf("machine %llu\n", (unsigned long long)seed);
}

static void check_words(void)
{
    static struct ips_topology t;
    char text[8];
    t = (struct ips_topology){.gpus = 2};
    for (unsigned i = 0; i < 2; i++)
        t.device[i] = (struct ips_topo_device){
            .address = i, .numa = 0, .socket = 0, .parent = -1, .upstream = -1};
    CHECK(!strcmp(ips_topology_word(&t, 0, 1, text), "PHB"), "%s", text);
    t.nvlinks[0][1] = t.nvlinks[1][0] = 12;
    CHECK(!strcmp(ips_topology_word(&t, 0, 1, text), "NV12"), "%s", text);
    CHECK(!strcmp(ips_topology_word(&t, 0, 0, text), "LOC"), "%s", text);
    t.nvlinks[0][1] = 0;
    t.device[0].host = -1;
    CHECK(!strcmp(ips_topology_word(&t, 0, 1, text), "?"), "%s", text);
    t.device[1].numa = 1; /* across nodes, wherever it sits */
    CHECK(!strcmp(ips_topology_word(&t, 0, 1, text), "SYS"), "%s", text);
}

/* A switch below a switch, and a card straight below the root port. */
static void check_switches(void)
{
    static struct ips_topology t;
    t = (struct ips_topology){.gpus = 4};
    int port = bridge(&t, -1, 0), outer = bridge(&t, port, 0);
    int inner = bridge(&t, bridge(&t, outer, 0), 0);
    int above[] = {bridge(&t, outer, 0), bridge(&t, inner, 0), bridge(&t, inner, 0),
                   port};
    for (int i = 0; i < 4; i++)
        t.device[i] = (struct ips_topo_device){
            .address = i, .numa = 0, .socket = 0, .parent = above[i], .upstream = -1};
    CHECK(ips_topology_class(&t, 0, 1) == IPS_PAIR_PXB, "outer and inner");
    CHECK(ips_topology_class(&t, 1, 2) == IPS_PAIR_PIX, "both inner");
    CHECK(ips_topology_class(&t, 1, 3) == IPS_PAIR_PHB, "only the root port is shared");
}

/* Each node counts as a socket where that is unknown. */
static void check_unknown_sockets(void)
{
    static struct ips_topology t;
    int gpu_of[] = {0, 1};
    unsigned ring[] = {0, 1};
    t = (struct ips_topology){.gpus = 2};
    for (int i = 0; i < 2; i++)
        t.device[i] = (struct ips_topo_device){
            .address = i, .numa = i, .socket = -1, .parent = -1, .upstream = -1};
    struct ips_ring_cost cost = ips_ring_cost(&t, gpu_of, ring, 2);
    CHECK(cost.socket == 2 && cost.numa == 2 && cost.cpu == 2, "%u", cost.socket);
}

static void check_rates(void)
{
    static const struct {
        struct ips_topo_link link;
        unsigned mbps;
    } rates[] = {{{2500, 16}, 4000},
                 {{5000, 8}, 4000},
                 {{16000, 16}, 31507},
                 {{0, 0}, 0},
                 {{64000, 16}, 121000}};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        CHECK(ips_link_rate(rates[i].link) == rates[i].mbps, "%u for row %zu",
              ips_link_rate(rates[i].link), i);
}

int main(void)
{
    check_words();
    check_switches();
    check_unknown_sockets();
    check_rates();
    for (uint64_t seed = 1; seed <= MACHINES; seed++)
        check_random(seed);
    return check_result();
}
