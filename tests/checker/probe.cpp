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

/* What a link does to the words that one rank writes into another. */
enum fault {
    SOUND,
    TWICE,  /* stores every word twice, which is no harm */
    ABSENT, /* its writer's kernel never runs */
    DROPS,
    FLIPS,    /* a bit */
    HOLDS,    /* until the writer's kernel has ended, which is then late itself */
    MIRRORS,  /* into the writer's memory */
    SHUFFLES, /* words of the line */
    CROSSES,  /* with what another rank writes there */
    STRAYS,   /* and what is meant for others, or comes from others, arrives in its place */
    FAULTS,
};

#define DEADLINE 150000 /* in ticks, for each rank: none is left out for so long */
#define HELD_MAX 64

struct held {
    uint64_t *address, value;
};

struct run {
    uint32_t ranks;
    uint64_t seed;
    enum fault fault;
    uint32_t victim, writer; /* the faulty link leads from the writer to the victim */
    uint32_t other;          /* CROSSES: the other rank; STRAYS: its link, from this rank */
    uint32_t other_to;       /* to that one, also ends at the victim */
    uint32_t first_round;          /* in which it is faulty */
    unsigned char *slabs;
    struct ips_control *control;
    struct ips_probe_args args[CHECK_RANKS];
    struct held held[HELD_MAX];
    uint32_t holds;
    bool again; /* an earlier probe, of sound links, has left its words */
};

static struct run run;
static const size_t slab_bytes = IPS_HEAD_BYTES + sizeof(struct ips_mailbox);
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

static struct ips_mailbox *mailbox_of(uint32_t rank)
{
    return (struct ips_mailbox *)(run.slabs + rank * slab_bytes + IPS_HEAD_BYTES);
}

/* Where `from` writes in the memory of `to`. */
static uint64_t *box_of(uint32_t from, uint32_t to)
{
    return &mailbox_of(to)->probe[from].word[0][0];
}

static bool in_box(const uint64_t *address, uint32_t from, uint32_t to)
{
    return (uintptr_t)address - (uintptr_t)box_of(from, to) < sizeof(struct ips_probe_box);
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
    const size_t word = (size_t)(address - box_of(run.writer, run.victim));
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
    case MIRRORS: /* as if it were its own, or the victim's */
        return box_of(run.first_round % 2 ? run.writer : run.victim, run.writer) + word;
    case SHUFFLES:
        return box_of(run.writer, run.victim) + (word ^ 1);
    case CROSSES:
        return box_of(run.other, run.victim) + word;
    default:
        return NULL;
    }
}

/* The plan's fault, where this store of the current lane meets it. */
static uint64_t *meets_fault(uint64_t *address, uint64_t *value)
{
    uint32_t *stores = &stores_of[world.current->index];
    if (in_box(address, run.writer, run.victim))
        return (*stores)++ < run.first_round ? address : faulty(address, value);
    if (run.fault == CROSSES && in_box(address, run.other, run.victim))
        return (*stores)++ < run.first_round
                   ? address
                   : box_of(run.writer, run.victim) + (address - box_of(run.other, run.victim));
    if (run.fault == STRAYS && in_box(address, run.other, run.other_to) &&
        (*stores)++ >= run.first_round)
        check_store(box_of(run.writer, run.victim) +
                        (address - box_of(run.other, run.other_to)),
                    *value, 1);
    return address;
}

uint64_t *driver_store(uint64_t *address, uint64_t *value)
{
    static bool again;
    if (again || run.fault == SOUND || world.current->index == world.lanes)
        return address;
    again = true;
    address = meets_fault(address, value);
    again = false;
    return address;
}

/* A rank that is none of these two. */
static uint32_t any_but(uint32_t a, uint32_t b)
{
    for (;;) {
        const uint32_t rank = (uint32_t)(chance() % run.ranks);
        if (rank != a && rank != b)
            return rank;
    }
}

/* Of the links with something in common with the faulty one: the receiver, the sender, or
 * both the other way round. */
static void plan_stray(void)
{
    const uint64_t kind = chance() % 3;
    run.other = kind == 0 ? any_but(run.writer, run.victim)
              : kind == 1 ? run.writer : run.victim;
    run.other_to = kind == 0 ? run.victim
                 : kind == 1 ? any_but(run.writer, run.victim) : run.writer;
}

static void plan(void)
{
    chance_temper();
    world.temper.atom = 8;
    run.fault = chance() % 3 ? (enum fault)(chance() % FAULTS) : SOUND;
    if ((run.fault == STRAYS || run.fault == CROSSES) && run.ranks < 3)
        run.fault = DROPS;
    run.victim = (uint32_t)(chance() % run.ranks);
    run.writer = any_but(run.victim, run.victim);
    if (run.fault == CROSSES)
        run.other = any_but(run.victim, run.writer);
    if (run.fault == STRAYS)
        plan_stray();
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
    for (uint32_t r = 0; r < run.ranks; r++)
        args->mailbox[r] = mailbox_of(r);
    args->control = &run.control[rank];
    args->seed = 2 * run.seed + run.again;
    args->deadline_ns = run.fault > TWICE ? DEADLINE * run.ranks : ~0ull;
    args->rank = rank;
    args->nranks = run.ranks;
    lanes_launch(rank, checked_probe, args, 1, IPS_PROBE_THREADS);
}

static void done(uint32_t rank)
{
    if (run.fault != HOLDS || rank != run.writer)
        return;
    lanes_be_host();
    for (uint32_t i = 0; i < run.holds; i++)
        memory_set(run.held[i].address, run.held[i].value);
}

/* What the rank's host reads: a bit for each rank whose words did not come. */
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
            failed("rank %u finds fault with sound links: %x", r, bad);
        any |= bad;
        if (run.fault > TWICE && run.fault != HOLDS && r == run.victim &&
            !(bad >> run.writer & 1))
            failed("rank %u does not name the link to it: %x", r, bad);
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
    lanes_reset(run.ranks, 1, IPS_PROBE_THREADS);
    plan();
    memset(run.slabs, 0, run.ranks * all_bytes);
    world.slabs_bytes = run.ranks * slab_bytes;
    world.slab_bytes = slab_bytes;
    memory_reset(run.slabs, run.ranks * all_bytes);
    races_reset(run.slabs, slab_bytes, IPS_HEAD_BYTES);
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
