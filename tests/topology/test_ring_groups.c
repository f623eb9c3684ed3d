/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of a ring: as computed by hand for machines that are alike all over, none
 * once a rank is missing, and on random machines what the header promises of them,
 * however GPUs and ranks are numbered. */
#include "tests/topology/random_machine.h"
#include "tests/unit/check.h"

#define MACHINES 2000

static const struct ips_topo_link links[] = {
    {0, 0}, {16000, 8}, {16000, 16}, {32000, 16}};

/* Sockets of switches of GPUs, all alike. */
struct even {
    unsigned sockets, switches, gpus; /* gpus: of a switch */
    struct ips_topo_link uplink, own;
    int unknown_sockets;
};

static void fill_switch(struct ips_topology *t, const struct even *e, int socket)
{
    const ips_address host = IPS_ADDRESS(socket, t->bridges & 255, 0, 0);
    int upstream = bridge(t, bridge(t, -1, host), host);
    t->device[upstream].most = e->uplink;
    for (unsigned i = 0; i < e->gpus; i++) {
        struct ips_topo_device *gpu = &t->device[t->gpus];
        *gpu = (struct ips_topo_device){.address = t->gpus++,
                                        .host = host,
                                        .numa = socket,
                                        .socket = e->unknown_sockets ? -1 : socket,
                                        .parent = bridge(t, upstream, host),
                                        .upstream = -1,
                                        .most = e->own};
    }
}

static void make_even(struct ips_topology *t, const struct even *e)
{
    memset(t, 0, sizeof *t);
    for (unsigned s = 0; s < e->sockets; s++)
        for (unsigned i = 0; i < e->switches; i++)
            fill_switch(t, e, (int)s);
}

/* The groups by the words of the header. */
static unsigned expect_even(const struct even *e, struct ips_ring_uplink *ret)
{
    const unsigned up = ips_link_rate(e->uplink), own = ips_link_rate(e->own);
    const int narrow = e->gpus > 1 && up && up < e->gpus * own;
    const unsigned on_socket = e->switches * e->gpus;
    *ret = (struct ips_ring_uplink){0};
    if (narrow && (e->switches == 1 ? e->sockets > 1 : e->sockets == 1)) {
        *ret = (struct ips_ring_uplink){IPS_GROUP_SWITCH, up, own};
        return e->gpus;
    }
    if (e->sockets == 1 || on_socket == 1)
        return 0;
    ret->kind = e->unknown_sockets ? IPS_GROUP_NUMA : IPS_GROUP_SOCKET;
    ret->inside = !up || (own && own < up) ? own : up;
    return on_socket;
}

static int same_uplink(const struct ips_ring_uplink *a, const struct ips_ring_uplink *b)
{
    return a->kind == b->kind && a->uplink == b->uplink && a->inside == b->inside;
}

static unsigned groups_of(const struct ips_topology *t, const int *gpu_of, unsigned ranks,
                          struct ips_ring_uplink *ret)
{
    unsigned ring[IPS_RING_RANKS];
    ips_ring_order(t, gpu_of, ranks, ring);
    return ips_ring_groups(t, gpu_of, ring, ranks, ret);
}

static void check_one_even(const struct even *e)
{
    static struct ips_topology t;
    struct ips_ring_uplink expected, found;
    unsigned order[IPS_RING_RANKS];
    int gpu_of[IPS_RING_RANKS];
    make_even(&t, e);
    for (unsigned i = 0; i < t.gpus; i++)
        order[i] = i;
    shuffle(order, t.gpus);
    for (unsigned i = 0; i < t.gpus; i++)
        gpu_of[i] = (int)order[i];
    unsigned size = expect_even(e, &expected),
             got = groups_of(&t, gpu_of, t.gpus, &found);
    CHECK(got == size && same_uplink(&found, &expected),
          "%u not %u of %u x %u x %u, kind %d uplink %u inside %u", got, size, e->sockets,
          e->switches, e->gpus, found.kind, found.uplink, found.inside);
    got = groups_of(&t, gpu_of, t.gpus - 1, &found);
    CHECK(!got && !found.uplink && !found.inside, "%u with a rank missing", got);
    gpu_of[pick(t.gpus)] = -1;
    got = groups_of(&t, gpu_of, t.gpus, &found);
    CHECK(!got, "%u with a GPU that is not known", got);
}

static void check_even(void)
{
    struct even e;
    for (e.sockets = 1; e.sockets <= 3; e.sockets++)
        for (e.switches = 1; e.switches <= 3; e.switches++)
            for (e.gpus = 1; e.gpus <= 4; e.gpus++)
                for (unsigned i = 0; i < 32; i++) {
                    e.uplink = links[i % 4];
                    e.own = links[i / 4 % 4];
                    e.unknown_sockets = i >= 16;
                    check_one_even(&e);
                }
}

/* A ring that visits a socket twice has no groups in one piece. */
static void check_split_ring(void)
{
    static struct ips_topology t;
    const struct even e = {2, 1, 4, links[2], links[2], 0};
    const unsigned split[] = {0, 1, 4, 5, 2, 3, 6, 7}, whole[] = {6, 4, 5, 7, 1, 3, 0, 2};
    int gpu_of[] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct ips_ring_uplink found;
    make_even(&t, &e);
    CHECK(!ips_ring_groups(&t, gpu_of, split, 8, &found), "found some");
    CHECK(ips_ring_groups(&t, gpu_of, whole, 8, &found) == 4, "found none");
    for (unsigned i = 0; i < t.gpus; i++)
        t.device[i].socket = t.device[i].numa = -1;
    t.device[IPS_TOPO_GPUS + 1].most = links[0];
    CHECK(!ips_ring_groups(&t, gpu_of, whole, 8, &found), "found some by nothing known");
}

static int share_switch(const struct ips_topology *t, int a, int b)
{
    for (int at = t->device[a].parent; at >= 0; at = t->device[at].parent)
        for (int up = t->device[b].parent; up >= 0; up = t->device[up].parent)
            if (at == up && t->device[at].upstream >= 0)
                return 1;
    return 0;
}

static int share_socket(const struct ips_topology *t, int a, int b)
{
    const struct ips_topo_device *x = &t->device[a], *y = &t->device[b];
    return x->socket == y->socket && (x->socket >= 0 || x->numa == y->numa);
}

static void check_promises(const struct ips_topology *t, const int *gpu_of,
                           unsigned ranks, unsigned size,
                           const struct ips_ring_uplink *found)
{
    unsigned ring[IPS_RING_RANKS], wrong = 0;
    ips_ring_order(t, gpu_of, ranks, ring);
    CHECK(size > 1 && size < ranks && ranks % size == 0, "%u of %u", size, ranks);
    for (unsigned i = 0; i < ranks; i++)
        for (unsigned j = 0; j < i; j++) {
            const int a = gpu_of[ring[i]], b = gpu_of[ring[j]],
                      one = i / size == j / size;
            wrong += a < 0 || b < 0;
            if (found->kind != IPS_GROUP_SWITCH)
                wrong += share_socket(t, a, b) != one;
            else if (one)
                wrong += a != b && !share_switch(t, a, b);
        }
    CHECK(!wrong, "%u pairs are in the wrong groups", wrong);
    CHECK(found->kind != IPS_GROUP_SWITCH ||
              (found->uplink && found->uplink < size * found->inside),
          "an uplink of %u for %u times %u", found->uplink, size, found->inside);
}

/* Returns whether there were groups. */
static int check_random(uint64_t seed)
{
    static struct ips_topology t, other;
    struct ips_ring_uplink one, two;
    unsigned at[IPS_TOPO_GPUS], rank_at[IPS_RING_RANKS], before = check_failures;
    int gpu_of[IPS_RING_RANKS], other_of[IPS_RING_RANKS];
    state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    make_machine(&t);
    for (unsigned i = 0; i < IPS_TOPO_GPUS + t.bridges; i++)
        t.device[i].most = links[pick(8) ? 1 + pick(3) : 0];
    for (unsigned i = 0; i < t.gpus; i++)
        rank_at[i] = at[i] = i;
    shuffle(at, t.gpus);
    shuffle(rank_at, t.gpus);
    renumber(&t, at, &other);
    const unsigned ranks = 1 + pick(t.gpus);
    for (unsigned i = 0; i < t.gpus; i++)
        gpu_of[i] = (int)at[i];
    for (unsigned i = 0, next = 0; i < t.gpus; i++)
        if (rank_at[i] < ranks)
            other_of[next++] = (int)at[gpu_of[rank_at[i]]];
    const unsigned size = groups_of(&t, gpu_of, ranks, &one);
    CHECK(size == groups_of(&other, other_of, ranks, &two) && same_uplink(&one, &two),
          "numbering changes the groups of %u", size);
    if (size)
        check_promises(&t, gpu_of, ranks, size, &one);
    if (check_failures > before)
        printf("machine %llu\n", (unsigned long long)seed);
    return size != 0;
}

int main(void)
{
    unsigned with_groups = 0;
    check_even();
    check_split_ring();
    for (uint64_t seed = 1; seed <= MACHINES; seed++)
        with_groups += check_random(seed);
    CHECK(with_groups > MACHINES / 50, "only %u machines had groups", with_groups);
    return check_result();
}
