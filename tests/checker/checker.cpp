/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol checker: for each seed a row of calls of changing size, protocol, channels and
 * threads on all ranks, in the order and over the memory of a seeded adversary; every
 * element of every result is compared.
 *
 * usage: checker PROTOCOL RANKS FIRST_SEED SEEDS */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mem_check.h"
#include "tests/checker/kernels.h"

#define CALLS_MAX 80
#define CALLS_USUAL 24
#define FLAG_WRAP (IPS_LL_FLAG_MASK + 1)
#define MARGIN 64

struct call {
    uint32_t proto, channels, threads, element, shift_in, shift_out;
    bool in_place;
    uint64_t count;
};

struct run {
    uint32_t proto, ranks;
    uint64_t seed;
    uint32_t calls, at[CHECK_RANKS]; /* the call each rank is in */
    struct call call[CALLS_MAX];
    uint64_t first_step[IPS_PROTOS];
    uint32_t absent; /* this rank never makes the last call, which is aborted; or ranks */
    uint32_t victim; /* the host aborts this rank alone at abort_tick; or ranks */
    uint64_t abort_tick;
    bool report; /* of absent: and that only after the others have reported their waits */
    unsigned char *slabs;
    struct ips_control *control; /* of all ranks, behind the slabs */
    struct ips_allreduce_args args[CHECK_RANKS];
};

static struct run run;
static const char *const names[IPS_PROTOS] = {"ll", "ll128", "simple"};
static const size_t slab_bytes = IPS_SLAB_BYTES(CHECK_BLOCKS);
static const size_t all_bytes = slab_bytes + sizeof(struct ips_control); /* of a rank */

void failed(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "FAILED: ");
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n  calls under way:");
    for (uint32_t r = 0; r < run.ranks; r++)
        fprintf(stderr, " %u(%s)", run.at[r],
                run.at[r] < run.calls ? names[run.call[run.at[r]].proto] : "ended");
    if (world.aborted)
        fprintf(stderr, "\n  the last one is aborted");
    fprintf(stderr, "\n  again: checker %s %u %llu 1\n", names[run.proto], run.ranks,
            (unsigned long long)run.seed);
    exit(1);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

static uint64_t input(uint32_t call, uint32_t rank, uint64_t i)
{
    return mix(((run.seed * CALLS_MAX + call) * CHECK_RANKS + rank) * 65536 + i + 1);
}

static void put(unsigned char *to, uint64_t value, uint32_t element)
{
    memcpy(to, &value, element); /* little-endian */
}

static struct ips_slab_head *head_of(uint32_t rank)
{
    return (struct ips_slab_head *)(run.slabs + rank * slab_bytes);
}

static struct ips_channel *channel_of(uint32_t rank, uint32_t channel)
{
    return (struct ips_channel *)(run.slabs + rank * slab_bytes + IPS_SLAB_HEAD_BYTES) +
           channel;
}

/* Most calls are short, some need several pieces. */
static uint64_t plan_bytes(uint32_t proto)
{
    static const uint32_t slot[IPS_PROTOS] = {IPS_LL_SLOT_LINES * IPS_LL_LINE_DATA,
                                              IPS_LL128_SLOT_LINES * IPS_LL128_LINE_DATA,
                                              IPS_SIMPLE_SLOT_BYTES};
    const uint64_t piece = (uint64_t)slot[proto] * run.ranks;
    switch (chance() % 8) {
    case 0:
        return 1 + chance() % 16;
    case 1:
        return 1 + chance() % (2 * piece);
    case 2:
        return 1 + chance() % (run.ranks <= 4 ? 5 * piece : piece);
    default:
        return 1 + chance() % (piece / 4);
    }
}

static void plan_call(struct call *call)
{
    static const uint32_t elements[4] = {4, 4, 1, 8};
    call->proto = chance() % 4 ? run.proto : (uint32_t)(chance() % IPS_PROTOS);
    call->channels = 1 + (uint32_t)(chance() % CHECK_BLOCKS);
    call->threads = chance() % 4 ? WARP : world.threads_max;
    call->element = elements[chance() % 4];
    call->in_place = chance() % 4 == 0;
    call->shift_in = chance() % 4 ? 0 : (uint32_t)(chance() % 4);
    call->shift_out = chance() % 4 ? 0 : (uint32_t)(chance() % 4);
    uint64_t bytes = plan_bytes(call->proto);
    if (bytes > CHECK_USER_BYTES - 2 * MARGIN)
        bytes = CHECK_USER_BYTES - 2 * MARGIN;
    call->count = (bytes + call->element - 1) / call->element;
}

/* Calls of LL that fill all lines of all slots, a whole wrap of the flag apart, and short
 * ones in between: what a wrap ago left behind must not be taken for new. */
static void plan_wrap(void)
{
    const uint32_t steps = 2 * run.ranks - 2, pieces = run.ranks == 8 ? 1 : 12 / steps + 1;
    run.calls = (FLAG_WRAP - pieces * steps) / steps + 3;
    const uint64_t full = (uint64_t)IPS_LL_SLOT_LINES * IPS_LL_LINE_DATA * run.ranks * pieces;
    for (uint32_t i = 0; i < run.calls; i++) {
        const bool is_long = i == 0 || i + 2 >= run.calls;
        run.call[i] = {};
        run.call[i].proto = IPS_LL;
        run.call[i].channels = 1;
        run.call[i].threads = WARP;
        run.call[i].element = 4;
        run.call[i].count = is_long ? full / 4 : 1;
    }
    run.absent = run.victim = run.ranks;
    if (chance() % 2) /* begin where lines are cleaned */
        run.first_step[IPS_LL] = FLAG_WRAP * (1 + chance() % 4) - 1;
}

static void plan(void)
{
    static const uint32_t bursts[4] = {1, 4, 40, 600}, stales[4] = {0, 32, 128, 200};
    world.temper.burst = bursts[chance() % 4];
    world.temper.stale = stales[chance() % 4];
    world.temper.starve = (uint32_t)(chance() % 256);
    world.temper.wide = chance() % 4 == 0;
    const uint32_t few = run.ranks <= 3 ? CALLS_USUAL - 5 : run.ranks == 4 ? 10 : 4;
    run.calls = 5 + (uint32_t)(chance() % few);
    for (uint32_t i = 0; i < run.calls; i++)
        plan_call(&run.call[i]);
    run.absent = run.victim = run.ranks;
    if (chance() % 16 == 0) {
        run.victim = (uint32_t)(chance() % run.ranks);
        run.abort_tick = chance() % (1000 << chance() % 9);
        world.patience = 1400;
    } else if (chance() % 16 == 0) {
        run.absent = (uint32_t)(chance() % run.ranks);
        run.report = chance() % 4 == 0;
        world.patience = 1400; /* the abort word is looked at now and then */
    }
    for (uint64_t &step : run.first_step) /* below a wrap of LL's flag, or of 32 bits */
        step = chance() % 300 + (chance() % 2 ? 0 : (1ull << 32) - 200);
    if (run.proto == IPS_LL && chance() % 8 == 0)
        plan_wrap();
}

/* A channel as calls up to first_step have left it. */
static void prepare_channel(uint32_t rank, uint32_t c)
{
    struct ips_channel *channel = channel_of(rank, c);
    for (uint32_t p = 0; p < IPS_PROTOS; p++) {
        head_of(rank)->step[p][c] = run.first_step[p];
        memory_set(&channel->credit[p].value, run.first_step[p]);
    }
    memory_set(&channel->flag.value, run.first_step[IPS_SIMPLE]);
    for (uint32_t s = 0; s < IPS_LL_SLOTS; s++) {
        const uint64_t last = run.first_step[IPS_LL];
        const uint64_t ago = (last - s) % IPS_LL_SLOTS;
        const uint64_t flag = (ago > last ? 0 : last - ago) & IPS_LL_FLAG_MASK;
        for (uint32_t i = 0; i < IPS_LL_SLOT_BYTES; i += 8)
            memory_set(&channel->ll[s][i], flag << 32 | 0xbad);
    }
}

static void prepare(void)
{
    memset(run.slabs, 0, run.ranks * all_bytes);
    world.slabs_bytes = run.ranks * slab_bytes;
    world.slab_bytes = slab_bytes;
    memory_reset(run.slabs, run.ranks * all_bytes);
    races_reset(run.slabs, slab_bytes, offsetof(struct ips_slab_head, probe));
    for (uint32_t r = 0; r < run.ranks; r++) {
        for (uint32_t h = 0; h < 2; h++)
            for (uint32_t i = 0; i < IPS_GUARD_WORDS + 2; i++)
                head_of(r)->keys.key[h][i] = mix(run.seed * 1000 + h * 100 + i + 1);
        for (uint32_t c = 0; c < CHECK_BLOCKS; c++)
            prepare_channel(r, c);
        run.at[r] = 0;
    }
}

static bool aborting(uint32_t rank)
{
    return run.absent < run.ranks && run.at[rank] + 1 == run.calls;
}

static void launch(uint32_t rank)
{
    const struct call *call = &run.call[run.at[rank]];
    const size_t bytes = call->count * call->element;
    unsigned char *out =
        races_user(rank, 1, MARGIN + call->shift_out * call->element, bytes);
    unsigned char *in =
        call->in_place ? out
                       : races_user(rank, 0, MARGIN + call->shift_in * call->element, bytes);
    memset(out, 0xee, bytes);
    for (uint64_t i = 0; i < call->count; i++)
        put(in + i * call->element, input(run.at[rank], rank, i), call->element);
    struct ips_allreduce_args *args = &run.args[rank];
    *args = {};
    args->in = in;
    args->out = out;
    args->count = call->count;
    args->slab = head_of(rank);
    args->next = head_of((rank + 1) % run.ranks);
    args->prev = head_of((rank + run.ranks - 1) % run.ranks);
    args->control = &run.control[rank];
    args->rank = rank;
    args->nranks = run.ranks;
    args->type = call->element == 1 ? IPS_UINT8 : call->element == 4 ? IPS_UINT32 : IPS_UINT64;
    args->element = call->element;
    args->op = IPS_SUM;
    world.abort_word[rank] = &run.control[rank].abort;
    for (uint32_t c = 0; c < CHECK_BLOCKS; c++)
        world.block[rank * CHECK_BLOCKS + c].tells = call->proto == IPS_SIMPLE;
    lanes_launch(rank, checked_kernels[call->proto], args, call->channels, call->threads);
}

static void judge(uint32_t rank)
{
    const struct call *call = &run.call[run.at[rank]];
    const unsigned char *out = (const unsigned char *)run.args[rank].out;
    for (uint64_t i = 0; i < call->count; i++) {
        uint64_t sum = 0, got = 0;
        for (uint32_t r = 0; r < run.ranks; r++)
            sum += input(run.at[rank], r, i);
        put((unsigned char *)&sum + call->element, 0, 8 - call->element);
        memcpy(&got, out + i * call->element, call->element);
        if (got != sum)
            failed("rank %u call %u element %llu of %llu is %llx, not %llx", rank,
                   run.at[rank], (unsigned long long)i, (unsigned long long)call->count,
                   (unsigned long long)got, (unsigned long long)sum);
    }
}

static uint64_t steps_of(uint32_t rank)
{
    uint64_t sum = 0;
    for (uint32_t p = 0; p < IPS_PROTOS; p++)
        for (uint32_t c = 0; c < CHECK_BLOCKS; c++)
            sum += head_of(rank)->step[p][c];
    return sum;
}

static void abort_all(void)
{
    world.aborted = true;
    world.quiet = 0;
    for (uint32_t r = 0; r < run.ranks; r++)
        memory_set(&run.control[r].abort, 1);
}

void driver_poll(void)
{
    if (run.victim == run.ranks || world.aborted || world.ticks < run.abort_tick)
        return;
    world.aborted = true;
    memory_set(&run.control[run.victim].abort, 1);
}

/* What the host makes of the records of those who wait for the absent rank. */
static void judge_reports(void)
{
    struct lane *before = world.current;
    uint64_t reports = 0;
    lanes_be_host();
    for (uint32_t r = 0; r < run.ranks; r++) {
        const struct ips_stuck *stuck = &run.control[r].stuck;
        if (r == run.absent)
            continue;
        reports += (memory_newest(&stuck->state) & 255) != IPS_WAIT_NONE;
        const uint64_t kind = check_load(&stuck->state, 1) & 255;
        if (kind == IPS_WAIT_NONE)
            continue; /* not visible yet */
        if (kind != IPS_WAIT_DATA && kind != IPS_WAIT_CREDIT)
            failed("the host sees a record without a kind");
        if (!check_load(&stuck->step, 0))
            failed("the host sees a record without a step");
    }
    if (!reports)
        failed("no rank has reported its wait");
    world.current = before;
}

/* No wait goes on, so no record of one is left. */
static void judge_reports_over(void)
{
    for (uint32_t r = 0; r < run.ranks; r++)
        if (memory_newest(&run.control[r].stuck.state) & 255)
            failed("rank %u has left the record of a wait that is over", r);
}

bool driver_stuck(void)
{
    if (run.victim != run.ranks && world.aborted) {
        run.victim = run.ranks;
        abort_all();
        return true;
    }
    if (!run.report || run.absent == run.ranks || world.aborted)
        return false;
    judge_reports();
    abort_all();
    return true;
}

static bool saw_abort(uint32_t rank)
{
    bool dead = false;
    for (uint32_t i = 0; i < world.lanes; i++)
        dead |= world.lane[i].rank == rank && world.lane[i].dead;
    return dead;
}

/* A rank's kernel has ended. */
static void done(uint32_t rank)
{
    static uint64_t before[CHECK_RANKS];
    if (!saw_abort(rank) && !aborting(rank))
        judge(rank);
    else if (aborting(rank) && steps_of(rank) != before[rank])
        failed("rank %u counts an aborted call as done", rank);
    if (++run.at[rank] == run.calls || world.aborted)
        return;
    before[rank] = steps_of(rank);
    if (!aborting(rank) || rank != run.absent) {
        launch(rank);
        return;
    }
    if (!run.report)
        abort_all();
}

/* All calls are through: the ranks agree on the steps, and no credit runs ahead of them. */
static void judge_end(void)
{
    for (uint32_t r = 0; r < run.ranks; r++)
        for (uint32_t p = 0; p < IPS_PROTOS; p++)
            for (uint32_t c = 0; c < CHECK_BLOCKS; c++) {
                const uint64_t step = head_of(r)->step[p][c];
                if (step != head_of(0)->step[p][c])
                    failed("ranks 0 and %u differ in the step of %s", r, names[p]);
                if (memory_newest(&channel_of(r, c)->credit[p].value) > step)
                    failed("rank %u has credit beyond what was sent", r);
            }
    for (uint32_t r = 0; r < run.ranks; r++)
        if (head_of(r)->count[0] != run.calls ||
            memory_newest(&run.control[r].count[0]) != run.calls)
            failed("rank %u has not counted %u calls", r, run.calls);
}

static void check_seed(uint64_t seed)
{
    run.seed = seed;
    chance_seed((seed * CHECK_RANKS + run.ranks) * IPS_PROTOS + run.proto);
    lanes_reset(run.ranks, run.ranks <= 4 ? 2 * WARP : WARP);
    plan();
    prepare();
    for (uint32_t r = 0; r < run.ranks; r++)
        launch(r);
    lanes_run(done);
    judge_reports_over();
    if (!world.aborted)
        judge_end();
}

int main(int argc, char **argv)
{
    run.proto = IPS_PROTOS;
    for (uint32_t p = 0; argc == 5 && p < IPS_PROTOS; p++)
        if (!strcmp(argv[1], names[p]))
            run.proto = p;
    run.ranks = argc == 5 ? (uint32_t)atoi(argv[2]) : 0;
    if (run.proto == IPS_PROTOS || run.ranks < IPS_MIN_RANKS || run.ranks > CHECK_RANKS) {
        fprintf(stderr, "usage: checker ll|ll128|simple RANKS FIRST_SEED SEEDS\n");
        return 2;
    }
    run.slabs = (unsigned char *)aligned_alloc(128, run.ranks * all_bytes);
    run.control = (struct ips_control *)(run.slabs + run.ranks * slab_bytes);
    const uint64_t first = strtoull(argv[3], NULL, 10), seeds = strtoull(argv[4], NULL, 10);
    for (uint64_t i = 0; i < seeds; i++)
        check_seed(first + i);
    printf("%s, %u ranks: %llu seeds passed\n", names[run.proto], run.ranks,
           (unsigned long long)seeds);
    free(run.slabs);
    return 0;
}
