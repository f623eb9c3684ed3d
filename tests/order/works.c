/* SPDX-License-Identifier: Apache-2.0 */
/* One random work: what it does, not when. */
#include "tests/order/works.h"

#include "kernels/types.h"
#include "tests/order/random.h"

#define WORDS PROGRAM_WORDS

static enum work_kind random_kind(uint64_t *state, int only_nccl)
{
    static const struct {
        enum work_kind kind;
        unsigned weight;
    } table[] = {
        {WORK_ALL_REDUCE, 50},    {WORK_PRE_MUL, 4},
        {WORK_ALL_GATHER, 5},     {WORK_BROADCAST, 4},
        {WORK_REDUCE_SCATTER, 4}, {WORK_KERNEL, 22},
        {WORK_COPY, 7},           {WORK_SET, 4},
    };
    unsigned at = random_below(state, only_nccl ? 67 : 100), i = 0;
    while (at >= table[i].weight)
        at -= table[i++].weight;
    return table[i].kind;
}

/* Mostly sums: repeated maxima and products lose what tells one order from another. */
static int random_op(uint64_t *state)
{
    unsigned at = random_below(state, 100);
    return at < 72   ? IPS_SUM
           : at < 82 ? IPS_MAX
           : at < 92 ? IPS_MIN
           : at < 96 ? IPS_AVG
                     : IPS_PROD;
}

/* Bytes: for each of the engine's protocols, and larger, for NCCL. */
static unsigned random_bytes(uint64_t *state)
{
    unsigned at = random_below(state, 100);
    unsigned most = at < 35   ? 1024
                    : at < 50 ? 2048
                    : at < 70 ? PROGRAM_ENGINE_BYTES
                              : WORDS * 4;
    unsigned least = at < 70 ? 8 : PROGRAM_ENGINE_BYTES + 8;
    return least + random_below(state, most - least + 1);
}

static void size_work(struct work *work, uint64_t *state, unsigned nranks)
{
    static const int types[] = {IPS_UINT8, IPS_UINT32, IPS_UINT64};
    work->type = types[random_below(state, 3)];
    if (work->kind == WORK_ALL_GATHER || work->kind == WORK_REDUCE_SCATTER)
        work->count = 1 + random_below(state, WORDS / nranks - 1);
    else if (work->kind == WORK_COPY || work->kind == WORK_SET)
        work->count = 4 * (1 + random_below(state, WORDS));
    else
        work->count = random_bytes(state) / work_type_bytes(work);
    if (work->kind == WORK_ALL_GATHER || work->kind == WORK_REDUCE_SCATTER ||
        work->kind == WORK_PRE_MUL)
        work->type = IPS_UINT32;
    if (work->kind == WORK_PRE_MUL)
        work->count = work->count > WORDS ? WORDS : work->count;
}

struct work work_random(uint64_t *state, unsigned nranks, int only_nccl)
{
    struct work work = {.kind = random_kind(state, only_nccl)};
    int in_place = work.kind == WORK_ALL_REDUCE || work.kind == WORK_PRE_MUL ||
                   work.kind == WORK_BROADCAST || work.kind == WORK_KERNEL;
    work.comm = (int)random_below(state, PROGRAM_COMMS);
    work.in = (int)random_below(state, PROGRAM_BUFFERS);
    work.out = work.in;
    while (work.out == work.in && !(in_place && random_chance(state, 40)))
        work.out = (int)random_below(state, PROGRAM_BUFFERS);
    work.op = work.kind == WORK_ALL_REDUCE || work.kind == WORK_REDUCE_SCATTER
                  ? random_op(state)
                  : IPS_SUM;
    work.root = work.kind == WORK_BROADCAST ? (int)random_below(state, nranks) : 0;
    work.value = random_below(state, 256);
    work.delay_us = random_chance(state, 50) ? 0 : 100 + random_below(state, 900);
    size_work(&work, state, nranks);
    return work;
}
