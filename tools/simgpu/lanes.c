/* SPDX-License-Identifier: Apache-2.0 */
/* The fiber scheduler: round-robin over the lanes that can run, warp by warp. A lane that
 * waits at a barrier or for its warp is not in the warp's mask of ready lanes and costs
 * nothing; a lane that polls memory yields in simgpu_spin(), and when all lanes that
 * could run have polled in vain, the OS thread gives its core away.
 *
 * A lane never moves to another OS thread, so thread-local addresses may be cached. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "tools/simgpu/lanes.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* kernels/mem_host.h is C++; these are its functions. */
unsigned simgpu_thread(void);
unsigned simgpu_threads(void);
unsigned simgpu_block(void);
unsigned simgpu_blocks(void);
void simgpu_barrier(void);
uint64_t simgpu_shfl_xor(uint64_t value, unsigned lane_mask);
uint32_t simgpu_ballot(int predicate);
void simgpu_spin(void);
uint64_t simgpu_clock_ns(void);
void *simgpu_shared(void);

/* Boost.Context's C interface (boost/context/detail/fcontext.hpp is C++). */
struct transfer {
    void *context; /* of the side that jumped here */
    void *data;
};
struct transfer jump_fcontext(void *to, void *data);
void *make_fcontext(void *stack_top, size_t bytes, void (*fn)(struct transfer));

/* The odd multiple of a cache line spreads the tops of the stacks over the cache's sets.
 */
#define STACK_BYTES (64 * 1024 + 5 * 64)
#define WARP 32
#define MAX_WARPS (SIM_MAX_BLOCKS * SIM_MAX_THREADS / WARP)

struct lane {
    void *context;
    unsigned thread, block, warp, bit;
};

/* Where the lanes of a warp meet. A lane may be one meeting ahead of the slowest reader,
 * not two: hence two sets of values and votes. */
struct warp {
    uint32_t arrived;
    uint32_t at_barrier;
    unsigned meeting;
    uint32_t votes[2];
    uint64_t value[2][WARP];
};

struct block {
    unsigned live, arrived;
};

struct sim_lanes {
    struct lane *current;
    unsigned awake; /* live lanes that don't wait at a barrier */
    unsigned vain;  /* polls since the core was last given away */
    unsigned live, warps, warps_per_block, blocks, threads;
    sim_lane_fn *fn;
    const void *parameters;
    uint32_t ready[MAX_WARPS];
    struct warp warp[MAX_WARPS];
    struct block block[SIM_MAX_BLOCKS];
    _Alignas(16) unsigned char shared[SIM_MAX_BLOCKS][SIM_SHARED_BYTES];
    struct lane host; /* the OS thread itself */
    struct lane *lane;
    unsigned char *stacks;
    size_t lanes_max;
};

static __thread struct sim_lanes *here __attribute__((tls_model("initial-exec")));

static void die(const char *why)
{
    fprintf(stderr, "simgpu: %s (block %u thread %u)\n", why, here->current->block,
            here->current->thread);
    abort();
}

/* The next lane that can run, in round-robin order; the current one comes last. */
static struct lane *next_ready(struct sim_lanes *s)
{
    unsigned w = s->current->warp;
    uint32_t mask = s->ready[w] & (uint32_t)(~1ull << s->current->bit);
    for (unsigned i = 0; !mask; i++) {
        if (i == s->warps)
            return NULL;
        w = w + 1 == s->warps ? 0 : w + 1;
        mask = s->ready[w];
    }
    return &s->lane[w * WARP + (unsigned)__builtin_ctz(mask)];
}

static void jump(struct sim_lanes *s, struct lane *to)
{
    struct lane *from = s->current;
    if (to == from)
        return;
    s->current = to;
    struct transfer back = jump_fcontext(to->context, from);
    ((struct lane *)back.data)->context = back.context;
}

/* Takes the current lane out of the turn; someone else's arrival puts it back. */
static void sleep_lane(struct sim_lanes *s)
{
    s->ready[s->current->warp] &= ~(1u << s->current->bit);
    struct lane *next = next_ready(s);
    if (!next)
        die("deadlock: every lane of the grid waits for another one");
    jump(s, next);
}

static void barrier_release(struct sim_lanes *s, unsigned block)
{
    unsigned first = block * s->warps_per_block;
    for (unsigned w = first; w < first + s->warps_per_block; w++) {
        s->ready[w] |= s->warp[w].at_barrier;
        s->awake += (unsigned)__builtin_popcount(s->warp[w].at_barrier);
        s->warp[w].at_barrier = 0;
    }
    s->block[block].arrived = 0;
    s->vain = 0;
}

void simgpu_barrier(void)
{
    struct sim_lanes *s = here;
    struct lane *self = s->current;
    struct block *block = &s->block[self->block];
    if (block->arrived + 1 == block->live) {
        barrier_release(s, self->block);
        return;
    }
    block->arrived++;
    s->warp[self->warp].at_barrier |= 1u << self->bit;
    s->awake--;
    sleep_lane(s);
}

/* Returns when all 32 lanes have come. What they left for this meeting can be read until
 * the second next one. */
static void meet(struct sim_lanes *s, struct lane *self, struct warp *warp)
{
    warp->arrived |= 1u << self->bit;
    if (warp->arrived != UINT32_MAX) {
        sleep_lane(s);
        return;
    }
    warp->arrived = 0;
    warp->meeting++;
    warp->votes[warp->meeting & 1] = 0;
    s->ready[self->warp] = UINT32_MAX;
}

uint64_t simgpu_shfl_xor(uint64_t value, unsigned lane_mask)
{
    struct sim_lanes *s = here;
    struct lane *self = s->current;
    struct warp *warp = &s->warp[self->warp];
    uint64_t *values = warp->value[warp->meeting & 1];
    values[self->bit] = value;
    meet(s, self, warp);
    return values[(self->bit ^ lane_mask) & (WARP - 1)];
}

uint32_t simgpu_ballot(int predicate)
{
    struct sim_lanes *s = here;
    struct lane *self = s->current;
    struct warp *warp = &s->warp[self->warp];
    uint32_t *votes = &warp->votes[warp->meeting & 1];
    *votes |= (uint32_t)(predicate != 0) << self->bit;
    meet(s, self, warp);
    return *votes;
}

void simgpu_spin(void)
{
    struct sim_lanes *s = here;
    if (++s->vain >= s->awake) {
        s->vain = 0;
        sched_yield();
    }
    jump(s, next_ready(s));
}

unsigned simgpu_thread(void)
{
    return here->current->thread;
}

unsigned simgpu_threads(void)
{
    return here->threads;
}

unsigned simgpu_block(void)
{
    return here->current->block;
}

unsigned simgpu_blocks(void)
{
    return here->blocks;
}

void *simgpu_shared(void)
{
    return here->shared[here->current->block];
}

/* SIMGPU_CLOCK: the devices' clock is so many times slower than the host's. */
static unsigned clock_divisor(void)
{
    static unsigned divisor;
    unsigned known = __atomic_load_n(&divisor, __ATOMIC_RELAXED);
    if (!known) {
        const char *text = secure_getenv("SIMGPU_CLOCK");
        const int wanted = text ? atoi(text) : 1;
        known = wanted > 1 ? (unsigned)wanted : 1;
        __atomic_store_n(&divisor, known, __ATOMIC_RELAXED);
    }
    return known;
}

uint64_t simgpu_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) / clock_divisor();
}

/* The lane's end: whoever waits at the block's barrier may now be complete. */
static void leave(struct sim_lanes *s)
{
    struct lane *self = s->current;
    struct block *block = &s->block[self->block];
    s->ready[self->warp] &= ~(1u << self->bit);
    s->awake--;
    s->live--;
    block->live--;
    s->vain = 0;
    if (block->arrived && block->arrived == block->live)
        barrier_release(s, self->block);
    if (!s->live)
        jump(s, &s->host);
    struct lane *next = next_ready(s);
    if (!next)
        die("deadlock: the last lane left while others wait for it");
    jump(s, next);
}

static void enter(struct transfer from)
{
    ((struct lane *)from.data)->context = from.context;
    here->fn(here->parameters);
    leave(here);
    die("a finished lane ran again");
}

/* A lane ends in the middle of its frames, which are never left. ASan must not take what
 * comes to stand there for them: the next lanes, or other memory. */
static void forget_frames(struct sim_lanes *s, size_t count)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(s->stacks, count * STACK_BYTES);
#else
    (void)s, (void)count;
#endif
}

static void reserve(struct sim_lanes *s, size_t count)
{
    if (count <= s->lanes_max)
        return;
    if (s->stacks)
        munmap(s->stacks, s->lanes_max * STACK_BYTES);
    free(s->lane);
    s->lane = calloc(count, sizeof *s->lane);
    s->stacks = mmap(NULL, count * STACK_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (!s->lane || s->stacks == MAP_FAILED) {
        fprintf(stderr, "simgpu: no memory for the stacks of %zu lanes\n", count);
        abort();
    }
    s->lanes_max = count;
}

static void prepare(struct sim_lanes *s, unsigned blocks, unsigned threads)
{
    reserve(s, (size_t)blocks * threads);
    s->blocks = blocks;
    s->threads = threads;
    s->warps_per_block = threads / WARP;
    s->warps = blocks * s->warps_per_block;
    s->live = s->awake = blocks * threads;
    s->vain = 0;
    memset(s->shared, 0xa5, (size_t)blocks * SIM_SHARED_BYTES);
    for (unsigned b = 0; b < blocks; b++)
        s->block[b] = (struct block){.live = threads};
    for (unsigned w = 0; w < s->warps; w++) {
        s->ready[w] = UINT32_MAX;
        s->warp[w].arrived = s->warp[w].at_barrier = 0;
        s->warp[w].votes[0] = s->warp[w].votes[1] = 0;
    }
    for (unsigned i = 0; i < s->live; i++) {
        void *top = s->stacks + (size_t)(i + 1) * STACK_BYTES;
        s->lane[i] = (struct lane){make_fcontext(top, STACK_BYTES, enter), i % threads,
                                   i / threads, i / WARP, i % WARP};
    }
}

void sim_lanes_run(struct sim_lanes *s, sim_lane_fn *fn, const void *parameters,
                   unsigned blocks, unsigned threads)
{
    prepare(s, blocks, threads);
    s->fn = fn;
    s->parameters = parameters;
    s->current = &s->host;
    here = s;
    jump(s, &s->lane[0]);
    here = NULL;
    forget_frames(s, (size_t)blocks * threads);
}

struct sim_lanes *sim_lanes_create(void)
{
    struct sim_lanes *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    return s;
}

void sim_lanes_destroy(struct sim_lanes *s)
{
    if (!s)
        return;
    if (s->stacks)
        munmap(s->stacks, s->lanes_max * STACK_BYTES);
    free(s->lane);
    free(s);
}
