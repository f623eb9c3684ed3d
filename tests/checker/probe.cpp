/* SPDX-License-Identifier: Apache-2.0 */
/* The probe in the checker: over sound links, however slow, it finds nothing, and a link
 * that does not do what it should is named by the rank that it leads to.
 *
 * usage: checker-probe RANKS FIRST_SEED SEEDS */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mem_check.h"
#include "tests/checker/kernels.h"

/* What the link does to the words that one rank writes into one of its neighbours. */
enum fault {
    SOUND,
    TWICE,  /* stores every word twice, which is no harm */
    ABSENT, /* its writer's kernel never runs */
    DROPS,
    FLIPS,    /* a bit */
    HOLDS,    /* until the writer's kernel has ended, which is then late itself */
    MIRRORS,  /* into the writer's memory */
    SHUFFLES, /* words of the line */
    CROSSES,  /* what the predecessor and the successor write */
    STRANGER, /* and another rank writes there, as if it were the predecessor */
    FAULTS,
};

#define DEADLINE 300000 /* in ticks: no rank is left out for so long */
#define HELD_MAX 64

struct held {
    uint64_t *address, value;
};

struct run {
    uint32_t ranks;
    uint64_t seed;
    enum fault fault;
    uint32_t victim, side, writer; /* the faulty link leads to this box of this rank */
    uint32_t first_round;          /* in which it is faulty */
    unsigned char *slabs;
    struct ips_control *control;
    struct ips_probe_args args[CHECK_RANKS];
    struct held held[HELD_MAX];
    uint32_t holds;
    bool again; /* an earlier probe, of sound links, has left its words */
};

static struct run run;
static const size_t slab_bytes = IPS_SLAB_BYTES(CHECK_BLOCKS);
static const size_t all_bytes = slab_bytes + sizeof(struct ips_control);

void failed(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "FAILED: ");
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n  fault %d of what rank %u writes to rank %u, from round %u on",
            run.fault, run.writer, run.victim, run.first_round);
    fprintf(stderr, "\n  again: checker-probe %u %llu 1\n", run.ranks,
            (unsigned long long)run.seed);
    exit(1);
}

static struct ips_slab_head *head_of(uint32_t rank)
{
    return (struct ips_slab_head *)(run.slabs + rank * slab_bytes);
}

void driver_poll(void)
{
}

bool driver_stuck(void)
{
    return false;
}

void driver_store16(size_t, uint64_t *, uint64_t *)
{
}

/* Which round a lane is in is not told: a box is written to once a round by each lane. */
static uint32_t stores_of[CHECK_LANES];

static uint64_t *faulty(uint64_t *address, uint64_t *value)
{
    struct ips_probe_box *boxes = head_of(run.victim)->probe;
    const size_t in_box = (size_t)(address - &boxes[run.side].word[0][0]);
    switch (run.fault) {
    case TWICE:
        check_store(address, *value, 1);
        return address;
    case FLIPS:
        *value ^= 1ull << chance() % 64;
        return address;
    case HOLDS:
        run.held[run.holds++] = {address, *value};
        return NULL;
    case MIRRORS:
        return &head_of(run.writer)->probe[run.side].word[0][0] + in_box;
    case SHUFFLES:
        return &boxes[run.side].word[0][0] + (in_box ^ 1);
    case CROSSES:
        return &boxes[1 - run.side].word[0][0] + in_box;
    default:
        return NULL;
    }
}

static uint32_t stranger(void)
{
    return (run.victim + 1) % run.ranks;
}

/* Whether the stranger means this for its own successor, and where in the box. */
static bool to_successor(const uint64_t *address)
{
    const struct ips_probe_box *box = head_of((stranger() + 1) % run.ranks)->probe;
    return (const unsigned char *)address >= (const unsigned char *)box &&
           (const unsigned char *)address < (const unsigned char *)(box + 1);
}

static size_t in_successor(const uint64_t *address)
{
    return (size_t)(address -
                    &head_of((stranger() + 1) % run.ranks)->probe[0].word[0][0]);
}

uint64_t *driver_store(uint64_t *address, uint64_t *value)
{
    static bool again;
    struct ips_probe_box *box = &head_of(run.victim)->probe[run.side];
    struct ips_probe_box *other = &head_of(run.victim)->probe[1 - run.side];
    const uint32_t lane = world.current->index;
    const bool there = (unsigned char *)address >= (unsigned char *)box &&
                       (unsigned char *)address < (unsigned char *)(box + 1);
    if (again || run.fault == SOUND || lane == world.lanes)
        return address;
    if (run.fault == CROSSES && (unsigned char *)address >= (unsigned char *)other &&
        (unsigned char *)address < (unsigned char *)(other + 1))
        return stores_of[lane]++ < run.first_round
                   ? address
                   : &box->word[0][0] + (address - &other->word[0][0]);
    if (run.fault == STRANGER && world.current->rank == stranger() &&
        to_successor(address) && stores_of[lane]++ >= run.first_round) {
        again = true;
        check_store(&box->word[0][0] + in_successor(address), *value, 1);
        again = false;
        return address;
    }
    if (!there || world.current->rank != run.writer ||
        stores_of[lane]++ < run.first_round)
        return address;
    again = true;
    address = faulty(address, value);
    again = false;
    return address;
}

static void plan(void)
{
    chance_temper();
    world.temper.atom = 8;
    run.fault = chance() % 3 ? (enum fault)(chance() % FAULTS) : SOUND;
    if (run.fault == STRANGER && run.ranks < 3)
        run.fault = DROPS;
    run.victim = (uint32_t)(chance() % run.ranks);
    run.side = run.fault == STRANGER ? 0 : (uint32_t)(chance() % 2);
    run.writer = (run.victim + (run.side ? 1 : run.ranks - 1)) % run.ranks;
    run.first_round = run.fault == ABSENT ? 0 : (uint32_t)(chance() % IPS_PROBE_ROUNDS);
    if (run.fault == HOLDS) /* the last round's words would only be late */
        run.first_round %= IPS_PROBE_ROUNDS - 1;
    run.holds = 0;
    world.faulty = run.fault > TWICE;
    if (run.fault > TWICE)
        world.patience = UINT32_MAX / CHECK_LANES; /* the deadline ends it */
    memset(stores_of, 0, sizeof stores_of);
}

static void launch(uint32_t rank)
{
    struct ips_probe_args *args = &run.args[rank];
    *args = {};
    args->slab = head_of(rank);
    args->next = head_of((rank + 1) % run.ranks);
    args->prev = head_of((rank + run.ranks - 1) % run.ranks);
    args->control = &run.control[rank];
    args->seed = 2 * run.seed + run.again;
    args->deadline_ns = run.fault > TWICE ? DEADLINE : ~0ull;
    args->rank = rank;
    args->nranks = run.ranks;
    lanes_launch(rank, checked_probe, args, 1, WARP);
}

static void done(uint32_t rank)
{
    if (run.fault != HOLDS || rank != run.writer)
        return;
    lanes_be_host();
    for (uint32_t i = 0; i < run.holds; i++)
        memory_set(run.held[i].address, run.held[i].value);
}

/* What the rank's host reads: bit 0 for the predecessor's link, bit 1 for the
 * successor's. */
static uint32_t verdict_of(uint32_t rank)
{
    const struct ips_control *control = &run.control[rank];
    while (!check_load(&control->probe_done, 1))
        if (!memory_newest(&control->probe_done))
            failed("rank %u never tells that its probe has ended", rank);
    return check_load_word(&control->probe_bad);
}

static void judge(void)
{
    uint32_t any = 0;
    lanes_be_host();
    for (uint32_t r = 0; r < run.ranks; r++) {
        if (run.fault == ABSENT && r == run.writer)
            continue;
        const uint32_t bad = verdict_of(r);
        if (run.fault <= TWICE && bad)
            failed("rank %u finds fault with sound links: %u", r, bad);
        any |= bad;
        if (run.fault > TWICE && run.fault != HOLDS && r == run.victim &&
            !(bad >> run.side & 1))
            failed("rank %u does not name the link to it: %u", r, bad);
    }
    if (run.fault > TWICE && !any)
        failed("nobody finds fault");
}

static void probe(void)
{
    for (uint32_t r = 0; r < run.ranks; r++) {
        memory_set(&run.control[r].probe_done, 0);
        if (run.fault != ABSENT || r != run.writer)
            launch(r);
    }
    lanes_run(done);
    judge();
}

static void check_seed(uint64_t seed)
{
    run.seed = seed;
    chance_seed(seed * CHECK_RANKS + run.ranks);
    lanes_reset(run.ranks, WARP);
    plan();
    memset(run.slabs, 0, run.ranks * all_bytes);
    world.slabs_bytes = run.ranks * slab_bytes;
    world.slab_bytes = slab_bytes;
    memory_reset(run.slabs, run.ranks * all_bytes);
    races_reset(run.slabs, slab_bytes, offsetof(struct ips_slab_head, probe));
    run.again = false;
    if (chance() % 2) {
        const enum fault fault = run.fault;
        run.fault = SOUND;
        probe();
        run.fault = fault;
        run.again = true;
    }
    probe();
}

int main(int argc, char **argv)
{
    run.ranks = argc == 4 ? (uint32_t)atoi(argv[1]) : 0;
    if (run.ranks < IPS_MIN_RANKS || run.ranks > CHECK_RANKS) {
        fprintf(stderr, "usage: checker-probe RANKS FIRST_SEED SEEDS\n");
        return 2;
    }
    run.slabs = (unsigned char *)aligned_alloc(128, run.ranks * all_bytes);
    run.control = (struct ips_control *)(run.slabs + run.ranks * slab_bytes);
    const uint64_t first = strtoull(argv[2], NULL, 10),
                   seeds = strtoull(argv[3], NULL, 10);
    for (uint64_t i = 0; i < seeds; i++)
        check_seed(first + i);
    printf("probe, %u ranks: %llu seeds passed\n", run.ranks, (unsigned long long)seeds);
    free(run.slabs);
    return 0;
}
