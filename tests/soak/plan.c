/* SPDX-License-Identifier: Apache-2.0 */
/* Random calls. Most are short, because many calls find more than much data; lengths are
 * spread evenly over their logarithm, and some sit at the edges of what the wire knows.
 */
#include "tests/soak/plan.h"

#include "kernels/wire.h"
#include "tests/order/random.h"
#include "tests/soak/payload.h"

#define SMALL_BYTES 4096

/* Up to `most`, or that over a power of two of at most `octaves`. */
static uint64_t log_uniform(uint64_t *state, uint64_t most, unsigned octaves)
{
    uint64_t limit = most >> random_below(state, octaves + 1);
    return 1 + random_next(state) % (limit ? limit : 1);
}

/* Around a few whole lines, units, slots or slots of all ranks. */
static uint64_t at_edge(uint64_t *state, uint32_t nranks, uint64_t most)
{
    static const uint32_t units[] = {8,
                                     16,
                                     120,
                                     128,
                                     IPS_LL_SLOT_BYTES / 2,
                                     120 * IPS_LL128_SLOT_LINES,
                                     IPS_SIMPLE_BYTES / IPS_SIMPLE_SLOTS_MOST};
    uint64_t bytes = units[random_below(state, sizeof units / sizeof units[0])];
    if (random_chance(state, 50))
        bytes *= nranks;
    bytes *= 1 + random_below(state, 3);
    return bytes < most ? bytes : most;
}

static struct soak_shape random_shape(const struct soak_options *o, uint64_t *state,
                                      uint64_t room)
{
    struct soak_shape shape = {.type = random_below(state, IPS_TYPES),
                               .op = random_below(state, IPS_OPS)};
    unsigned bytes = soak_bytes(shape.type), kind = random_below(state, 10);
    int large = random_below(state, 1000) < o->large;
    uint64_t most = large || room < SMALL_BYTES ? room : SMALL_BYTES;
    int edge = random_chance(state, 20);
    uint64_t length =
        edge ? at_edge(state, o->nranks, most) : log_uniform(state, most, large ? 7 : 12);
    shape.count = (length + bytes - 1) / bytes;
    if (edge)
        shape.count += random_below(state, 3); /* one less, right, one more */
    if (edge && shape.count)
        shape.count--;
    if (shape.count * bytes > room)
        shape.count = room / bytes;
    if (!shape.count)
        shape.count = 1;
    shape.values = kind < 6 ? SOAK_RANDOM : kind < 9 ? SOAK_EXACT : SOAK_SPECIAL;
    return shape;
}

static void random_calls(const struct soak_options *o, uint64_t *state, unsigned most,
                         struct soak_batch *batch)
{
    batch->ncalls = 1 + random_below(state, most);
    uint64_t room = o->max_bytes;
    for (unsigned i = 0; i < batch->ncalls; i++) {
        batch->call[i] = random_shape(o, state, room);
        room -= batch->call[i].count * soak_bytes(batch->call[i].type);
        if (room < 8) {
            batch->ncalls = i + 1;
            return;
        }
    }
}

void soak_plan_round(const struct soak_options *options, uint64_t index,
                     struct soak_round *ret)
{
    uint64_t state = soak_mix(options->seed) ^ soak_mix(index);
    uint64_t turn = options->remake && index ? index % options->remake : 1;
    ret->remake = turn ? -1 : (int)(index / options->remake % SOAK_COMMS);
    ret->nbatches = SOAK_ROUND_BATCHES;
    for (unsigned i = 0; i < ret->nbatches; i++) {
        struct soak_batch *batch = &ret->batch[i];
        unsigned kind = random_below(&state, 10);
        *batch = (struct soak_batch){.kind = kind < 5   ? SOAK_EAGER
                                             : kind < 6 ? SOAK_GROUP
                                                        : SOAK_REPLAY,
                                     .comm = random_below(&state, SOAK_COMMS),
                                     .graph = random_below(&state, SOAK_GRAPHS)};
        if (batch->kind != SOAK_REPLAY)
            random_calls(options, &state,
                         random_chance(&state, 50) ? 1 : SOAK_BATCH_CALLS, batch);
    }
}

void soak_plan_graph(const struct soak_options *options, uint64_t serial,
                     struct soak_batch *ret)
{
    uint64_t state = soak_mix(options->seed + 1) ^ soak_mix(serial);
    *ret = (struct soak_batch){.kind = SOAK_EAGER};
    random_calls(options, &state, SOAK_BATCH_CALLS, ret);
}
