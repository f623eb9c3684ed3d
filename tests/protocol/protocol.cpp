/* SPDX-License-Identifier: Apache-2.0 */
/* The device code with narrow flags, so that LL lives in the wrap of its flag: many calls of
 * changing size, algorithm, protocol and channels, every element checked; and lines of LL128
 * that are not whole, none of which may be taken. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "kernels/allreduce.cu"

extern "C" {
#include "tools/simgpu/lanes.h"
}
#include "tests/unit/no_links.h"

static_assert(IPS_LL_FLAG_BITS == 8, "built with narrow flags");

typedef void kernel(struct ips_allreduce_args args);
static kernel *const kernels[IPS_VARIANTS] = {
    ips_ring_ll,       ips_ring_ll128, ips_ring_simple,  ips_oneshot_ll,
    ips_oneshot_ll128, ips_twoshot_ll, ips_twoshot_ll128,
    ips_hierarchical_simple};

struct launch {
    kernel *run;
    struct ips_allreduce_args args;
};

static void lane(const void *parameters)
{
    const struct launch *launch = (const struct launch *)parameters;
    launch->run(launch->args);
}

static int failures;

static void check(bool good, const char *what, long detail)
{
    if (good)
        return;
    if (failures++ < 10)
        fprintf(stderr, "not so: %s (%ld)\n", what, detail);
}

static void *new_slab(void)
{
    void *slab = aligned_alloc(128, IPS_HEAD_BYTES + IPS_MAILBOX_BYTES(2));
    memset(slab, 0, IPS_HEAD_BYTES + IPS_MAILBOX_BYTES(2));
    struct ips_head *head = (struct ips_head *)slab;
    std::mt19937_64 random(7); /* the same keys on all ranks */
    for (uint64_t *key = &head->keys.key[0][0]; key <= &head->keys.key[1][31]; key++)
        *key = random();
    return slab;
}

/* A pause for all ranks between two calls, so that inputs can be made anew. */
struct meeting {
    std::atomic<unsigned> arrived{0};
    void wait(unsigned ranks)
    {
        const unsigned turn = arrived.fetch_add(1) / ranks;
        while (arrived.load() / ranks == turn)
            sched_yield();
    }
};

/* Elements of LL in the long calls of check_stale, which come once a wrap of the flag. */
#define STALE_COUNT 600

struct job {
    unsigned ranks, calls;
    uint64_t seed;
    unsigned wrap_calls; /* not 0: one long call among so many of one element */
    uint32_t wrap_variant; /* and all of them are of this one */
    std::vector<void *> slabs;
    std::vector<struct ips_control> controls;
    std::vector<std::vector<uint32_t>> in, out;
    meeting before, after;
};

/* Mostly LL, of any algorithm. */
static uint32_t plan_variant(const struct job *job, std::mt19937_64 *plan)
{
    static const uint32_t usual[4] = {IPS_RING_LL, IPS_RING_LL, IPS_ONESHOT_LL, IPS_TWOSHOT_LL};
    const uint32_t variants = job->ranks == 4 ? IPS_VARIANTS : IPS_HIERARCHICAL_SIMPLE;
    const uint32_t any = (uint32_t)((*plan)() % variants), which = (uint32_t)((*plan)() % 8);
    return job->wrap_calls ? job->wrap_variant : which < 2 ? any : usual[which % 4];
}

static void run_rank(struct job *job, unsigned rank)
{
    const unsigned n = job->ranks;
    struct sim_lanes *lanes = sim_lanes_create();
    std::mt19937_64 plan(job->seed), data(job->seed * 64 + rank);
    for (unsigned call = 0; call < job->calls; call++) {
        /* Mostly short messages, now and then one that fills slots: its lines stay behind. */
        const uint64_t most = plan() % 8 ? 64 : 9000;
        const bool stale = job->wrap_calls && call % job->wrap_calls == 0;
        const uint64_t count = stale ? STALE_COUNT : job->wrap_calls ? 1 : 1 + plan() % most;
        const uint32_t variant = plan_variant(job, &plan);
        const unsigned channels = job->wrap_calls ? 1 : 1 + plan() % 2;
        job->in[rank].resize(count);
        job->out[rank].assign(count, 0xdeadbeef);
        for (uint32_t &value : job->in[rank])
            value = (uint32_t)data();
        job->before.wait(n);
        struct launch launch = {kernels[variant], {}};
        launch.args.in = job->in[rank].data();
        launch.args.out = job->out[rank].data();
        launch.args.count = count;
        launch.args.head = (struct ips_head *)job->slabs[rank];
        for (unsigned peer = 0; peer < n; peer++)
            launch.args.mailbox[peer] = (char *)job->slabs[peer] + IPS_HEAD_BYTES;
        launch.args.control = &job->controls[rank];
        launch.args.rank = rank;
        launch.args.nranks = n;
        launch.args.group = n == 4 ? 2 : 0;
        launch.args.type = IPS_UINT32;
        launch.args.element = 4;
        launch.args.op = IPS_SUM;
        if (stale && rank == 1)
            usleep(3000); /* its successor looks at what a wrap ago left behind */
        sim_lanes_run(lanes, lane, &launch, channels, 32);
        job->after.wait(n);
        for (uint64_t i = 0; i < count; i++) {
            uint32_t sum = 0;
            for (unsigned peer = 0; peer < n; peer++)
                sum += job->in[peer][i];
            if (rank == 0) /* failures is one thread's */
                check(job->out[0][i] == sum, "the sum is right", (long)call);
            if (rank == 0)
                for (unsigned peer = 1; peer < n; peer++)
                    check(job->out[peer][i] == sum, "on every rank", (long)call);
        }
        job->before.wait(n);
    }
    sim_lanes_destroy(lanes);
}

static void check_calls(unsigned ranks, unsigned calls, unsigned wrap_calls,
                        uint32_t wrap_variant)
{
    struct job job;
    job.ranks = ranks;
    job.calls = calls;
    job.wrap_calls = wrap_calls;
    job.wrap_variant = wrap_variant;
    job.seed = 20261129 + ranks;
    job.controls.resize(ranks);
    job.in.resize(ranks);
    job.out.resize(ranks);
    for (unsigned rank = 0; rank < ranks; rank++)
        job.slabs.push_back(new_slab());
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < ranks; rank++)
        threads.emplace_back(run_rank, &job, rank);
    for (std::thread &thread : threads)
        thread.join();
    const struct ips_head *head = (const struct ips_head *)job.slabs[0];
    for (int variant : {IPS_RING_LL, IPS_ONESHOT_LL}) {
        const uint64_t steps = head->step[ips_sequence_of(variant)][0];
        if (!wrap_calls)
            check(steps > 256, "the flag wrapped", (long)steps);
    }
    for (void *slab : job.slabs)
        free(slab);
}

/* The guard, written down once more, word by word. */
static uint64_t guard_of(const struct ips_guard_keys *keys, const uint32_t *words,
                         uint64_t step)
{
    uint64_t guard = 0;
    for (int h = 0; h < 2; h++) {
        uint64_t sum = keys->key[h][0];
        for (int i = 0; i < IPS_GUARD_WORDS; i++)
            sum += keys->key[h][1 + i] * words[i];
        guard |= sum >> 32 << 32 * h;
    }
    return guard + step * IPS_GUARD_STEP;
}

static void make_line(const struct ips_guard_keys *keys, uint32_t *line, uint32_t first,
                      uint64_t step)
{
    for (uint32_t i = 0; i < IPS_GUARD_WORDS; i++)
        line[i] = first + i * 3;
    const uint64_t guard = guard_of(keys, line, step);
    memcpy(line + IPS_GUARD_WORDS, &guard, sizeof guard);
}

/* Rank 0 of two, alone: both lines its predecessor would send it are laid into its slab, the
 * second with one 8-byte unit of an older step. Returns whether the call ended as if the
 * line were whole; if not, the abort word ends it. */
static bool accepted(int stale_unit, bool stale_step, uint32_t *ret_out)
{
    const uint32_t count = 2 * IPS_GUARD_WORDS;
    void *slab = new_slab(), *peer = new_slab();
    struct ips_head *head = (struct ips_head *)slab;
    struct ips_channel *channel =
        (struct ips_channel *)((char *)slab + IPS_HEAD_BYTES + sizeof(struct ips_mailbox));
    static struct ips_control control;
    memset(&control, 0, sizeof control);
    uint32_t in[count], line[32], old[32];
    for (uint32_t i = 0; i < count; i++) {
        in[i] = i;
        ret_out[i] = 0xdeadbeef;
    }
    make_line(&head->keys, line, 1000, 1);
    memcpy(channel->ll128[1], line, sizeof line);
    make_line(&head->keys, line, 2000, stale_step ? 1 : 2);
    make_line(&head->keys, old, 7777, 2 - IPS_LL128_SLOTS);
    if (stale_unit >= 0)
        memcpy(line + 2 * stale_unit, old + 2 * stale_unit, 8);
    memcpy(channel->ll128[2], line, sizeof line);
    struct launch launch = {ips_ring_ll128, {}};
    launch.args.in = in;
    launch.args.out = ret_out;
    launch.args.count = count;
    launch.args.head = head;
    launch.args.mailbox[0] = (char *)slab + IPS_HEAD_BYTES;
    launch.args.mailbox[1] = (char *)peer + IPS_HEAD_BYTES;
    launch.args.control = &control;
    launch.args.nranks = 2;
    launch.args.type = IPS_UINT32;
    launch.args.element = 4;
    struct sim_lanes *lanes = sim_lanes_create();
    std::atomic<bool> ended{false};
    std::thread watch([&] {
        for (int ms = 0; ms < 20 && !ended.load(); ms++)
            usleep(1000);
        __atomic_store_n(&control.abort, 1, __ATOMIC_RELEASE);
    });
    sim_lanes_run(lanes, lane, &launch, 1, 32);
    ended.store(true);
    watch.join();
    sim_lanes_destroy(lanes);
    const bool completed = head->step[IPS_LL128][0] == 2;
    free(slab);
    free(peer);
    return completed;
}

static void check_guard(void)
{
    uint32_t out[2 * IPS_GUARD_WORDS];
    check(accepted(-1, false, out), "whole lines are taken", -1);
    for (uint32_t i = 0; i < IPS_GUARD_WORDS; i++) {
        check(out[i] == i + 1000 + i * 3, "the sum of this rank's chunk", i);
        check(out[IPS_GUARD_WORDS + i] == 2000 + i * 3, "the peer's chunk as it came", i);
    }
    for (int unit = 0; unit < 16; unit++) {
        check(!accepted(unit, false, out), "a torn line is not taken", unit);
        check(out[IPS_GUARD_WORDS] == 0xdeadbeef, "nothing of it reaches the output", unit);
    }
    check(!accepted(-1, true, out), "a whole line of another step is not taken", 0);
}

int main()
{
    check_guard();
    check_calls(2, 1500, 0, 0);
    check_calls(4, 600, 0, 0);
    /* A call of two ranks takes two steps: the same slots and flags after 128. One of one-shot
     * takes one. */
    check_calls(2, 128 * 4 + 1, 128, IPS_RING_LL);
    check_calls(2, 256 * 4 + 1, 256, IPS_ONESHOT_LL);
    check_calls(3, 128 * 4 + 1, 128, IPS_TWOSHOT_LL);
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
