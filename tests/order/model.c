/* SPDX-License-Identifier: Apache-2.0 */
/* Where a promise is not certain, the model does not count on it: a program then has more
 * waits than it needs, never fewer. */
#include "tests/order/model.h"

#include <string.h>

#define WORDS (PROGRAM_NODES / 64)

void set_join(struct set *set, const struct set *more)
{
    for (unsigned i = 0; i < WORDS; i++)
        set->word[i] |= more->word[i];
}

int set_empty(const struct set *set)
{
    uint64_t any = 0;
    for (unsigned i = 0; i < WORDS; i++)
        any |= set->word[i];
    return !any;
}

static void set_add(struct set *set, unsigned node)
{
    set->word[node / 64] |= 1ull << node % 64;
}

static int set_has(const struct set *set, unsigned node)
{
    return set->word[node / 64] >> node % 64 & 1;
}

static struct set set_less(const struct set *set, const struct set *other)
{
    struct set left = *set;
    for (unsigned i = 0; i < WORDS; i++)
        left.word[i] &= ~other->word[i];
    return left;
}

void clock_join(struct clock *clock, const struct clock *more)
{
    set_join(&clock->full, &more->full);
    set_join(&clock->bare, &more->bare);
}

static void clock_add(struct clock *clock, unsigned node)
{
    set_add(&clock->full, node);
    set_add(&clock->bare, node);
}

static int blocking(int stream)
{
    return stream == STREAM_BLOCKING || stream == STREAM_PER_THREAD;
}

/* The stream's own order, the legacy stream's, and the host's waits. */
static struct clock stream_before(const struct model *model, int stream)
{
    struct clock before = model->stream[stream];
    clock_join(&before, &model->host);
    if (blocking(stream))
        clock_join(&before, &model->stream[STREAM_LEGACY]);
    for (int s = 0; stream == STREAM_LEGACY && s < PROGRAM_STREAMS; s++)
        if (blocking(s))
            clock_join(&before, &model->stream[s]);
    return before;
}

struct clock model_before(const struct model *model, const struct work *work, int stream)
{
    struct clock before = stream_before(model, stream);
    if (work_is_nccl(work))
        set_join(&before.full, &model->comm[work->comm].full);
    return before;
}

struct set model_missing(const struct model *model, const struct work *work,
                         const struct clock *before, unsigned *score)
{
    struct set needed = model->buffer[work->out].writer;
    set_join(&needed, &model->buffer[work->out].readers);
    if (work->kind != WORK_SET)
        set_join(&needed, &model->buffer[work->in].writer);
    struct set bare = set_less(&needed, &before->bare);
    struct set missing = set_less(&needed, &before->full);
    *score += !set_empty(&bare) && set_empty(&missing);
    return missing;
}

struct clock model_run(struct model *model, const struct work *work, int stream,
                       const struct clock *before)
{
    unsigned node = model->nodes++;
    struct clock after = *before;
    clock_add(&after, node);
    model->node_stream[node] = stream;
    if (work->kind != WORK_SET && work->in != work->out)
        set_add(&model->buffer[work->in].readers, node);
    memset(&model->buffer[work->out], 0, sizeof model->buffer[work->out]);
    set_add(&model->buffer[work->out].writer, node);
    return after;
}

void model_work(struct model *model, const struct work *work, int stream)
{
    struct clock before = model_before(model, work, stream);
    struct clock after = model_run(model, work, stream, &before);
    model->stream[stream] = after;
    if (work_is_nccl(work))
        model->comm[work->comm] = after;
}

struct clock model_group_before(const struct model *model, const struct model_call *calls,
                                unsigned count, int comm)
{
    struct clock before = {.full = model->comm[comm].full};
    for (unsigned i = 0; i < count; i++) {
        if (calls[i].work.comm != comm)
            continue;
        struct clock own = stream_before(model, calls[i].stream);
        clock_join(&before, &own);
    }
    return before;
}

void model_group(struct model *model, const struct model_call *calls, unsigned count)
{
    struct clock before[PROGRAM_COMMS], after[PROGRAM_COMMS];
    for (int c = 0; c < PROGRAM_COMMS; c++)
        after[c] = before[c] = model_group_before(model, calls, count, c);
    for (unsigned i = 0; i < count; i++) {
        int c = calls[i].work.comm;
        struct clock own = model_run(model, &calls[i].work, calls[i].stream, &before[c]);
        clock_join(&after[c], &own);
    }
    for (unsigned i = 0; i < count; i++) {
        int c = calls[i].work.comm;
        clock_join(&model->stream[calls[i].stream], &after[c]);
        model->comm[c] = after[c];
    }
}

/* The clock of a graph's work in terms of this launch's nodes. */
static struct clock moved(const struct clock *inner, const struct clock *after)
{
    struct clock clock = {0};
    for (unsigned k = 0; k < PROGRAM_GRAPH_WORKS; k++) {
        if (set_has(&inner->full, k))
            set_join(&clock.full, &after[k].full);
        if (set_has(&inner->bare, k))
            set_join(&clock.bare, &after[k].bare);
    }
    return clock;
}

struct set model_launch(struct model *model, struct model_graph *graph, int stream,
                        unsigned *score)
{
    struct clock after[PROGRAM_GRAPH_WORKS] = {0}, comm[PROGRAM_COMMS];
    struct clock start = stream_before(model, stream), end = start;
    struct set missing = {0};
    memcpy(comm, model->comm, sizeof comm);
    clock_join(&start, &graph->launched);
    for (unsigned k = 0; k < graph->nworks; k++) {
        const struct work *work = &graph->work[k];
        struct clock before = moved(&graph->before[k], after);
        clock_join(&before, &start);
        if (work_is_nccl(work))
            set_join(&before.full, &comm[work->comm].full);
        struct set lacking = model_missing(model, work, &before, score);
        set_join(&missing, &lacking);
        after[k] = model_run(model, work, stream, &before);
        clock_join(&end, &after[k]);
        if (work_is_nccl(work))
            clock_join(&model->comm[work->comm], &after[k]);
    }
    model->stream[stream] = end;
    graph->launched = end;
    return missing;
}
