/* SPDX-License-Identifier: Apache-2.0 */
/* The checker's scheduler: all lanes of all ranks are fibers, and a seeded adversary decides
 * at every primitive which one goes on: at random, in long bursts, or with ranks and lanes
 * left out for a while. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/mem_check.h"
#include "tests/checker/checker.h"

extern "C" {
/* Boost.Context's C interface. */
struct transfer {
    void *context; /* of the side that jumped here */
    void *data;
};
struct transfer jump_fcontext(void *to, void *data);
void *make_fcontext(void *stack_top, size_t bytes, void (*fn)(struct transfer));
}

#define STACK_BYTES (32 * 1024 + 5 * 64)

/* Where the lanes of a warp meet; two sets, since a lane may be one meeting ahead. */
struct warp {
    uint32_t arrived, meeting;
    uint32_t votes[2];
    uint64_t value[2][WARP];
};

struct grid {
    lane_fn *fn;
    const void *parameters;
    uint32_t blocks, threads, live, ready;
    uint32_t vain; /* polls since anything changed for this rank */
    struct lane *list[CHECK_LANES]; /* the first `ready` can run */
};

struct world world;
static struct grid grids[CHECK_RANKS];
static struct warp warps[CHECK_LANES / WARP];
static struct lane host; /* the thread itself */
static unsigned char *stacks;
alignas(16) unsigned char lanes_shared[CHECK_RANKS * CHECK_BLOCKS][CHECK_SHARED_BYTES];
static uint32_t burst, phase, left_out; /* left_out: a bit per rank */
static uint32_t slow;                   /* this thread of every warp is seldom chosen */
static uint64_t random_state;

uint64_t chance(void)
{
    uint64_t x = random_state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

void chance_seed(uint64_t seed)
{
    random_state = seed * 0xd1342543de82ef95ull + 1;
}

void chance_temper(void)
{
    static const uint32_t bursts[4] = {1, 4, 40, 600}, stales[4] = {0, 32, 128, 200};
    world.temper.burst = bursts[chance() % 4];
    world.temper.stale = stales[chance() % 4];
    world.temper.starve = (uint32_t)(chance() % 256);
}

static void make_ready(struct lane *lane)
{
    struct grid *grid = &grids[lane->rank];
    lane->ready_at = grid->ready;
    grid->list[grid->ready++] = lane;
}

static void make_wait(struct lane *lane)
{
    struct grid *grid = &grids[lane->rank];
    struct lane *last = grid->list[--grid->ready];
    grid->list[lane->ready_at] = last;
    last->ready_at = lane->ready_at;
}

void lanes_changed(uint32_t rank)
{
    world.quiet = 0;
    world.fresh = false;
    grids[rank].vain = 0;
}

static void new_phase(void)
{
    phase = 1 + (uint32_t)(chance() % 4096);
    slow = (uint32_t)(chance() % (2 * WARP));
    left_out = 0;
    if (chance() % 256 < world.temper.starve)
        left_out = (uint32_t)(chance() & chance());
}

static uint32_t live_lanes(void)
{
    uint32_t live = 0;
    for (uint32_t r = 0; r < world.ranks; r++)
        live += grids[r].live;
    return live;
}

static struct lane *pick_of(struct grid *grid, uint32_t random)
{
    struct lane *lane = grid->list[random % grid->ready];
    if (lane->thread % WARP == slow && chance() % 8)
        lane = grid->list[chance() % grid->ready];
    return lane;
}

/* All of the rank's lanes have polled since it had news: that costs time and shows little. */
static bool idles(const struct grid *grid)
{
    return grid->vain > 2 * grid->live && chance() % 16;
}

/* The lane that goes on; the host when none can. */
static struct lane *pick(void)
{
    if (!phase-- || world.fresh)
        new_phase();
    if (world.fresh)
        left_out = 0;
    const uint64_t random = chance();
    const uint32_t first = (uint32_t)(random & 0xffff) % world.ranks;
    for (int pass = 0; pass < 2; pass++, left_out = 0)
        for (uint32_t i = 0; i < world.ranks; i++) {
            uint32_t r = (first + i) % world.ranks;
            if (grids[r].ready && !(left_out >> r & 1) && (pass || !idles(&grids[r])))
                return pick_of(&grids[r], (uint32_t)(random >> 32));
        }
    return &host;
}

static void jump(struct lane *to)
{
    struct lane *from = world.current;
    if (to == from)
        return;
    world.current = to;
    struct transfer back = jump_fcontext(to->context, from);
    ((struct lane *)back.data)->context = back.context;
}

static void go_on(void)
{
    world.ticks++;
    burst = 1 + (uint32_t)(chance() % world.temper.burst);
    jump(pick());
}

void lanes_be_host(void)
{
    world.current = &world.lane[world.lanes];
    world.current->index = world.lanes;
    world.current->block = CHECK_RANKS * CHECK_BLOCKS;
}

void lanes_pause(void)
{
    if (world.current->index == world.lanes)
        return;
    if (!--burst)
        go_on();
}

static void sleep_lane(void)
{
    make_wait(world.current);
    go_on();
}

static void barrier_complete(struct block *block)
{
    const struct grid *grid = &grids[world.lane[block->first].rank];
    const bool dead = block->tells && world.lane[block->first].dead;
    clock_barrier(block, grid->threads);
    block->arrived = 0;
    lanes_changed(world.lane[block->first].rank);
    for (uint32_t i = 0; i < grid->threads; i++) {
        struct lane *lane = &world.lane[block->first + i];
        lane->dead |= dead;
        if (lane != world.current)
            make_ready(lane);
    }
}

extern "C" void simgpu_barrier(void)
{
    memory_settle();
    struct block *block = &world.block[world.current->block];
    if (block->live != grids[world.current->rank].threads)
        failed("a lane left while others of its block wait for it");
    if (++block->arrived == block->live) {
        barrier_complete(block);
        lanes_pause();
    } else {
        sleep_lane();
    }
}

/* Returns when all lanes of the warp have come: no memory is ordered by it. */
static void meet(struct warp *warp)
{
    struct lane *self = world.current;
    warp->arrived |= 1u << self->thread % WARP;
    if (warp->arrived != UINT32_MAX) {
        sleep_lane();
        return;
    }
    warp->arrived = 0;
    warp->meeting++;
    warp->votes[warp->meeting & 1] = 0;
    for (uint32_t i = self->index / WARP * WARP, end = i + WARP; i < end; i++)
        if (i != self->index)
            make_ready(&world.lane[i]);
    lanes_pause();
}

extern "C" uint64_t simgpu_shfl_xor(uint64_t value, unsigned lane_mask)
{
    struct warp *warp = &warps[world.current->index / WARP];
    uint64_t *values = warp->value[warp->meeting & 1];
    const uint32_t self = world.current->thread % WARP;
    values[self] = value;
    meet(warp);
    return values[(self ^ lane_mask) % WARP];
}

extern "C" uint32_t simgpu_ballot(int predicate)
{
    struct warp *warp = &warps[world.current->index / WARP];
    uint32_t *votes = &warp->votes[warp->meeting & 1];
    *votes |= (uint32_t)(predicate != 0) << world.current->thread % WARP;
    meet(warp);
    return *votes;
}

static void say_where(void)
{
    for (uint32_t r = 0; r < world.ranks; r++)
        fprintf(stderr, "  rank %u: %u lanes live, %u polling\n", r, grids[r].live,
                grids[r].ready);
}

extern "C" void simgpu_spin(void)
{
    driver_poll();
    grids[world.current->rank].vain++;
    const uint32_t live = live_lanes();
    if (++world.quiet > 6 * live)
        world.fresh = true;
    if (world.quiet > world.patience * live && !driver_stuck()) {
        say_where();
        failed("deadlock: nothing is under way and every lane polls or waits");
    }
    go_on();
}

extern "C" unsigned simgpu_thread(void)
{
    return world.current->thread;
}

extern "C" unsigned simgpu_threads(void)
{
    return grids[world.current->rank].threads;
}

extern "C" unsigned simgpu_block(void)
{
    return world.current->block % CHECK_BLOCKS;
}

extern "C" unsigned simgpu_blocks(void)
{
    return grids[world.current->rank].blocks;
}

extern "C" uint64_t simgpu_clock_ns(void)
{
    return ++world.ticks;
}

extern "C" void *simgpu_shared(void)
{
    return lanes_shared[world.current->block];
}

static void leave(void)
{
    struct lane *self = world.current;
    struct block *block = &world.block[self->block];
    memory_settle();
    make_wait(self);
    grids[self->rank].live--;
    block->live--;
    lanes_changed(self->rank);
    if (block->arrived)
        failed("a lane left while others of its block wait for it");
    jump(grids[self->rank].live ? pick() : &host);
}

static void enter(struct transfer from)
{
    ((struct lane *)from.data)->context = from.context;
    const struct grid *grid = &grids[world.current->rank];
    grid->fn(grid->parameters);
    leave();
    abort();
}

uint32_t lanes_first(uint32_t block)
{
    return (block / CHECK_BLOCKS * world.blocks_max + block % CHECK_BLOCKS) *
           world.threads_max;
}

void lanes_reset(uint32_t ranks, uint32_t blocks_max, uint32_t threads_max)
{
    if (!stacks)
        stacks = (unsigned char *)mmap(NULL, (size_t)CHECK_LANES * STACK_BYTES,
                                       PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        failed("no memory for stacks");
    memory_forget_lanes();
    memset(&world, 0, offsetof(struct world, lane));
    memset(world.block, 0, sizeof world.block);
    memset(grids, 0, sizeof grids);
    world.ranks = ranks;
    world.blocks_max = blocks_max;
    world.threads_max = threads_max;
    world.lanes = ranks * blocks_max * threads_max;
    if (world.lanes > CHECK_LANES)
        failed("too many lanes");
    world.patience = 150;
    world.current = &host;
    burst = phase = 1;
    memset(&world.lane[world.lanes], 0, offsetof(struct lane, load));
    for (uint32_t i = 0; i < world.lanes; i++) {
        struct lane *lane = &world.lane[i];
        memset(lane, 0, offsetof(struct lane, load));
        lane->index = i;
        lane->rank = i / threads_max / blocks_max;
        lane->block = lane->rank * CHECK_BLOCKS + i / threads_max % blocks_max;
        lane->thread = i % threads_max;
        lane->epoch = 1;
    }
}

void lanes_launch(uint32_t rank, lane_fn *fn, const void *parameters, uint32_t blocks,
                  uint32_t threads)
{
    struct grid *grid = &grids[rank];
    grid->fn = fn;
    grid->parameters = parameters;
    grid->blocks = blocks;
    grid->threads = threads;
    grid->live = blocks * threads;
    for (uint32_t b = 0; b < blocks; b++) {
        const uint32_t at = rank * CHECK_BLOCKS + b;
        struct block *block = &world.block[at];
        block->live = threads;
        block->arrived = 0;
        block->first = lanes_first(at);
        memset(lanes_shared[at], 0xa5, sizeof lanes_shared[at]);
        for (uint32_t t = 0; t < threads; t++) {
            struct lane *lane = &world.lane[block->first + t];
            unsigned char *top = stacks + (size_t)(lane->index + 1) * STACK_BYTES;
            lane->context = make_fcontext(top, STACK_BYTES, enter);
            warps[lane->index / WARP].arrived = 0;
            warps[lane->index / WARP].votes[0] = warps[lane->index / WARP].votes[1] = 0;
            make_ready(lane);
        }
    }
    lanes_changed(rank);
}

void lanes_run(void (*done)(uint32_t rank))
{
    bool was_live[CHECK_RANKS];
    for (;;) {
        for (uint32_t r = 0; r < world.ranks; r++)
            was_live[r] = grids[r].live != 0;
        struct lane *lane = pick();
        if (lane == &host) {
            if (!live_lanes())
                return;
            say_where();
            failed("deadlock: every lane waits for another lane");
        }
        jump(lane);
        for (uint32_t r = 0; r < world.ranks; r++)
            if (was_live[r] && !grids[r].live) {
                clock_kernel_end(r);
                done(r);
            }
    }
}
