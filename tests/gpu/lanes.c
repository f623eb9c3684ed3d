/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the stand-in's fiber scheduler: barriers, warp meetings with lanes that arrive
 * at different times, lanes that leave early, and grids of two processes that poll each
 * other's memory. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/tap.h"
#include "tools/simgpu/lanes.h"

TAP_DEFINE;

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

#define BLOCKS 4
#define THREADS 128
#define ROUNDS 50

struct job {
    unsigned *bad;
    volatile uint64_t *mine, *peer;
    uint64_t rounds;
};

static unsigned index_of_lane(void)
{
    return simgpu_block() * simgpu_threads() + simgpu_thread();
}

/* Every round each thread counts in shared memory; between barriers all see all. */
static void barrier_kernel(const void *parameters)
{
    const struct job *job = parameters;
    unsigned *sum = simgpu_shared();
    if (simgpu_thread() == 0)
        *sum = 0;
    simgpu_barrier();
    for (unsigned round = 1; round <= ROUNDS; round++) {
        for (unsigned i = 0; i < (simgpu_thread() * 7 + round) % 5; i++)
            simgpu_spin();
        ++*sum;
        simgpu_barrier();
        *job->bad += *sum != round * simgpu_threads();
        simgpu_barrier();
    }
}

static void warp_kernel(const void *parameters)
{
    const struct job *job = parameters;
    unsigned lane = simgpu_thread() % 32;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < (lane * 13 + round * 5) % 11; i++)
            simgpu_spin();
        unsigned mask = 1u << round % 5;
        uint64_t value = (uint64_t)index_of_lane() << 32 | round;
        uint64_t other = simgpu_shfl_xor(value, mask);
        *job->bad += other != ((uint64_t)(index_of_lane() ^ mask) << 32 | round);
        *job->bad += simgpu_ballot(lane % 5 == round % 5) !=
                     simgpu_ballot((lane + 5) % 5 == round % 5);
        uint32_t ballot = simgpu_ballot(lane == round % 32);
        *job->bad += ballot != 1u << round % 32;
    }
}

/* The upper half of each block leaves; the rest goes on meeting at barriers. */
static void leave_kernel(const void *parameters)
{
    const struct job *job = parameters;
    unsigned *sum = simgpu_shared();
    if (simgpu_thread() == 0)
        *sum = 0;
    simgpu_barrier();
    if (simgpu_thread() >= simgpu_threads() / 2)
        return;
    simgpu_barrier();
    ++*sum;
    simgpu_barrier();
    *job->bad += *sum != simgpu_threads() / 2;
}

/* Every lane plays ping-pong with its twin in the other process. */
static void pong_kernel(const void *parameters)
{
    const struct job *job = parameters;
    unsigned at = index_of_lane();
    for (uint64_t round = 1; round <= job->rounds; round++) {
        __atomic_store_n(&job->peer[at], round, __ATOMIC_RELEASE);
        while (__atomic_load_n(&job->mine[at], __ATOMIC_ACQUIRE) < round)
            simgpu_spin();
    }
}

static void spin_kernel(const void *parameters)
{
    const struct job *job = parameters;
    for (uint64_t i = 0; i < job->rounds; i++) {
        simgpu_spin();
        if (i % 64 == 63)
            simgpu_barrier();
    }
}

static unsigned run(struct sim_lanes *lanes, sim_lane_fn *fn)
{
    unsigned bad = 0;
    struct job job = {.bad = &bad};
    sim_lanes_run(lanes, fn, &job, BLOCKS, THREADS);
    return bad;
}

static int two_processes(void)
{
    enum { WORDS = 8 * 256 };
    uint64_t *shared = mmap(NULL, 2 * WORDS * sizeof *shared, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct job job = {.mine = shared, .peer = shared + WORDS, .rounds = 100};
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        job = (struct job){.mine = shared + WORDS, .peer = shared, .rounds = 100};
        struct sim_lanes *lanes = sim_lanes_create();
        sim_lanes_run(lanes, pong_kernel, &job, 8, 256);
        _exit(0);
    }
    struct sim_lanes *lanes = sim_lanes_create();
    uint64_t start = simgpu_clock_ns();
    sim_lanes_run(lanes, pong_kernel, &job, 8, 256);
    printf("# two processes: %.2f ms for 100 rounds of 2048 lanes (not performance)\n",
           (double)(simgpu_clock_ns() - start) * 1e-6);
    sim_lanes_destroy(lanes);
    waitpid(child, &status, 0);
    return child > 0 && status == 0;
}

static void switch_cost(struct sim_lanes *lanes, unsigned blocks)
{
    struct job job = {.rounds = 2000};
    uint64_t start = simgpu_clock_ns();
    sim_lanes_run(lanes, spin_kernel, &job, blocks, 256);
    printf("# %u lanes: %.1f ns a switch (not performance)\n", blocks * 256,
           (double)(simgpu_clock_ns() - start) / (double)(job.rounds * blocks * 256));
}

int main(void)
{
    struct sim_lanes *lanes = sim_lanes_create();
    tap_is(run(lanes, barrier_kernel), 0, "barrier: all of a block see all");
    tap_is(run(lanes, warp_kernel), 0, "shuffle and ballot with lanes that come late");
    tap_is(run(lanes, leave_kernel), 0, "barrier after half of the block has left");
    tap(two_processes(), "lanes of two processes poll each other");
    switch_cost(lanes, 1);
    switch_cost(lanes, 8);
    sim_lanes_destroy(lanes);
    return tap_end();
}
