/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks' buffers on the host, and the program on them, one work after the other. */
#include <string.h>

#include "kernels/types.h"
#include "tests/order/program.h"
#include "tests/order/random.h"

struct graph {
    unsigned nworks;
    struct work work[PROGRAM_GRAPH_WORKS];
};

void program_fill(const struct program *program, program_memory memory)
{
    uint64_t state = program->seed;
    uint32_t *word = &memory[0][0][0];
    for (size_t i = 0; i < sizeof(program_memory) / sizeof *word; i++)
        word[i] = (uint32_t)random_next(&state);
}

void work_kernel(const struct work *work, unsigned rank, uint32_t *out,
                 const uint32_t *in)
{
    for (unsigned i = 0; i < PROGRAM_WORDS; i++)
        out[i] = out[i] * 3 + in[i] + work->value + rank * 0x9e3779b9u;
}

static uint64_t load(const void *base, unsigned bytes, unsigned index)
{
    uint64_t value = 0;
    memcpy(&value, (const char *)base + (size_t)index * bytes, bytes);
    return value;
}

static uint64_t combine(uint64_t a, uint64_t b, int op)
{
    switch (op) {
    case IPS_PROD:
        return a * b;
    case IPS_MAX:
        return a > b ? a : b;
    case IPS_MIN:
        return a < b ? a : b;
    default:
        return a + b;
    }
}

/* Process of a communicator's rank; and the other way round. */
static unsigned place(const struct work *work, unsigned nranks, unsigned rank)
{
    return work->comm == PROGRAM_COMMS - 1 ? nranks - 1 - rank : rank;
}

static uint64_t reduced(const struct work *work, unsigned nranks, program_memory memory,
                        unsigned index)
{
    unsigned bytes = work_type_bytes(work);
    uint64_t factor = work->kind == WORK_PRE_MUL ? 3 : 1, value = 0;
    for (unsigned r = 0; r < nranks; r++) {
        uint64_t own = factor * load(memory[r][work->in], bytes, index);
        value = r ? combine(value, own, work->op) : own;
    }
    if (bytes < 8)
        value &= (1ull << 8 * bytes) - 1;
    return work->op == IPS_AVG ? value / nranks : value;
}

static void reduce(const struct work *work, unsigned nranks, program_memory memory)
{
    unsigned bytes = work_type_bytes(work);
    for (unsigned i = 0; i < work->count; i++) {
        uint64_t value = reduced(work, nranks, memory, i);
        for (unsigned r = 0; r < nranks; r++)
            memcpy((char *)memory[r][work->out] + (size_t)i * bytes, &value, bytes);
    }
}

static void reduce_scatter(const struct work *work, unsigned nranks,
                           program_memory memory)
{
    for (unsigned r = 0; r < nranks; r++)
        for (unsigned i = 0; i < work->count; i++)
            memory[place(work, nranks, r)][work->out][i] =
                (uint32_t)reduced(work, nranks, memory, r * work->count + i);
}

static void all_gather(const struct work *work, unsigned nranks, program_memory memory)
{
    for (unsigned r = 0; r < nranks; r++)
        for (unsigned from = 0; from < nranks; from++)
            memcpy(&memory[r][work->out][from * work->count],
                   memory[place(work, nranks, from)][work->in], work->count * 4);
}

static void broadcast(const struct work *work, unsigned nranks, program_memory memory)
{
    unsigned root = place(work, nranks, (unsigned)work->root);
    for (unsigned r = 0; r < nranks; r++)
        memmove(memory[r][work->out], memory[root][work->in],
                (size_t)work->count * work_type_bytes(work));
}

static void run_local(const struct work *work, unsigned rank,
                      uint32_t memory[][PROGRAM_WORDS])
{
    if (work->kind == WORK_KERNEL)
        work_kernel(work, rank, memory[work->out], memory[work->in]);
    else if (work->kind == WORK_COPY)
        memcpy(memory[work->out], memory[work->in], work->count);
    else
        memset(memory[work->out], (int)work->value, work->count);
}

static void run(const struct work *work, unsigned nranks, program_memory memory)
{
    for (unsigned r = 0; !work_is_nccl(work) && r < nranks; r++)
        run_local(work, r, memory[r]);
    if (work->kind == WORK_ALL_REDUCE || work->kind == WORK_PRE_MUL)
        reduce(work, nranks, memory);
    else if (work->kind == WORK_REDUCE_SCATTER)
        reduce_scatter(work, nranks, memory);
    else if (work->kind == WORK_ALL_GATHER)
        all_gather(work, nranks, memory);
    else if (work->kind == WORK_BROADCAST)
        broadcast(work, nranks, memory);
}

void program_reference(const struct program *program, program_memory memory)
{
    static _Thread_local struct graph graph[PROGRAM_GRAPHS];
    memset(graph, 0, sizeof graph);
    for (unsigned i = 0; i < program->nsteps; i++) {
        const struct step *step = &program->step[i];
        struct graph *captured = step->captured ? &graph[step->captured - 1] : NULL;
        if (step->kind == STEP_WORK && captured)
            captured->work[captured->nworks++] = step->work;
        else if (step->kind == STEP_WORK)
            run(&step->work, program->nranks, memory);
        for (unsigned k = 0; step->kind == STEP_LAUNCH && k < graph[step->graph].nworks;
             k++)
            run(&graph[step->graph].work[k], program->nranks, memory);
    }
}
