/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a program. Of several random works the one is taken whose order rests most on
 * NCCL's promise; what neither CUDA nor NCCL promises gets the program's own events. */
#include <string.h>

#include "tests/order/model.h"
#include "tests/order/random.h"
#include "tests/order/works.h"

#define TRIES 10
#define GROUP_CALLS 4

struct maker {
    struct program *program;
    const struct program_options *options;
    uint64_t random;
    unsigned nevents;
    struct model outer, inner; /* inner: of the capture */
    int capturing;
    int fork[PROGRAM_STREAMS]; /* streams of the capture, the first is its origin */
    unsigned nfork;
    struct model_graph graph[PROGRAM_GRAPHS];
};

static struct step *add_step(struct maker *m, enum step_kind kind, int stream,
                             int captured)
{
    struct step *step = &m->program->step[m->program->nsteps++];
    *step = (struct step){.kind = kind, .stream = stream, .captured = captured};
    return step;
}

static int in_capture(const struct maker *m, int stream)
{
    for (unsigned i = 0; m->capturing && i < m->nfork; i++)
        if (m->fork[i] == stream)
            return 1;
    return 0;
}

/* A stream of the capture, or one outside of it that does not disturb it. */
static int random_stream(struct maker *m, int captured)
{
    if (captured)
        return m->fork[random_below(&m->random, m->nfork)];
    for (;;) {
        int stream = (int)random_below(&m->random, PROGRAM_STREAMS);
        if (!in_capture(m, stream) && !(m->capturing && stream == STREAM_LEGACY))
            return stream;
    }
}

static struct model *model_of(struct maker *m, int captured)
{
    return captured ? &m->inner : &m->outer;
}

/* Makes `to` wait for what `from` has. */
static void tie(struct maker *m, int from, int to, int captured)
{
    struct model *model = model_of(m, captured);
    int event = (int)m->nevents++;
    add_step(m, STEP_RECORD, from, captured)->event = event;
    add_step(m, STEP_WAIT, to, captured)->event = event;
    clock_join(&model->event[event], &model->stream[from]);
    clock_join(&model->stream[to], &model->event[event]);
}

/* Streams whose works are missing, as a mask; -1 when one of them can't be tied to. */
static int missing_streams(const struct maker *m, const struct set *missing, int captured)
{
    const struct model *model = captured ? &m->inner : &m->outer;
    int mask = 0;
    for (unsigned n = 0; n < model->nodes; n++) {
        if (!(missing->word[n / 64] >> n % 64 & 1))
            continue;
        int stream = model->node_stream[n];
        if (!captured && m->capturing &&
            (in_capture(m, stream) || stream == STREAM_LEGACY))
            return -1;
        mask |= 1 << stream;
    }
    return mask;
}

static void tie_all(struct maker *m, int mask, int to, int captured)
{
    for (int s = 0; s < PROGRAM_STREAMS; s++)
        if (mask >> s & 1 && s != to)
            tie(m, s, to, captured);
}

/* Room for one more step of any kind with all the ties it may need. */
static int full(const struct maker *m)
{
    return m->program->nsteps > PROGRAM_STEPS - 64 || m->nevents > PROGRAM_EVENTS - 32 ||
           m->outer.nodes > PROGRAM_NODES - PROGRAM_GRAPH_WORKS - GROUP_CALLS;
}

static int graph_full(const struct maker *m, unsigned works)
{
    return m->graph[m->program->ngraphs].nworks + works > PROGRAM_GRAPH_WORKS;
}

static void note_captured(struct maker *m, const struct work *work,
                          const struct clock *before)
{
    struct model_graph *graph = &m->graph[m->program->ngraphs];
    graph->before[graph->nworks] = *before;
    graph->work[graph->nworks++] = *work;
}

static void make_work(struct maker *m, int captured)
{
    struct model *model = model_of(m, captured);
    struct work best = {0};
    int best_stream = 0, best_mask = -1;
    unsigned best_score = 0;
    for (int i = 0; i < TRIES || best_mask < 0; i++) {
        struct work work = work_random(&m->random, m->program->nranks, 0);
        int stream = random_stream(m, captured);
        unsigned score = 0;
        struct clock before = model_before(model, &work, stream);
        struct set missing = model_missing(model, &work, &before, &score);
        int mask = missing_streams(m, &missing, captured);
        unsigned points = 1 + 2 * score + !mask;
        if (i > 500) /* can't happen: a work that needs nothing is found before */
            return;
        if (mask < 0 || points <= best_score)
            continue;
        best = work;
        best_stream = stream;
        best_mask = mask;
        best_score = points;
    }
    tie_all(m, best_mask, best_stream, captured);
    if (captured) {
        struct clock before = model_before(model, &best, best_stream);
        note_captured(m, &best, &before);
    }
    add_step(m, STEP_WORK, best_stream, captured)->work = best;
    model_work(model, &best, best_stream);
}

static int clash(const struct work *a, const struct work *b)
{
    return a->out == b->out || a->in == b->out || a->out == b->in;
}

/* Calls that have nothing to do with each other: NCCL may run them in any order. */
static unsigned random_calls(struct maker *m, struct model_call *calls, int captured)
{
    unsigned wanted = 1 + random_below(&m->random, GROUP_CALLS), count = 0;
    int one = random_stream(m, captured);
    for (int i = 0; i < 40 && count < wanted; i++) {
        struct work work = work_random(&m->random, m->program->nranks, 1);
        unsigned k = 0;
        while (k < count && !clash(&work, &calls[k].work))
            k++;
        if (k < count)
            continue;
        calls[count].work = work;
        calls[count++].stream = m->options->joins && random_chance(&m->random, 60)
                                    ? random_stream(m, captured)
                                    : one;
    }
    return count;
}

static void make_group(struct maker *m, int captured)
{
    struct model *model = model_of(m, captured);
    struct model_call calls[GROUP_CALLS];
    unsigned count = random_calls(m, calls, captured), score = 0;
    int mask[GROUP_CALLS];
    if (captured && graph_full(m, count))
        return;
    for (unsigned i = 0; i < count; i++) {
        struct clock before = model_group_before(model, calls, count, calls[i].work.comm);
        struct set missing = model_missing(model, &calls[i].work, &before, &score);
        mask[i] = missing_streams(m, &missing, captured);
        if (mask[i] < 0)
            return;
    }
    for (unsigned i = 0; i < count; i++)
        tie_all(m, mask[i], calls[i].stream, captured);
    add_step(m, STEP_GROUP, 0, captured);
    for (unsigned i = 0; i < count; i++) {
        struct clock before = model_group_before(model, calls, count, calls[i].work.comm);
        add_step(m, STEP_WORK, calls[i].stream, captured)->work = calls[i].work;
        if (captured)
            note_captured(m, &calls[i].work, &before);
    }
    add_step(m, STEP_GROUP_END, 0, captured);
    model_group(model, calls, count);
}

static void make_launch(struct maker *m, int index)
{
    struct step launch = {.kind = STEP_LAUNCH, .graph = index};
    int best_mask = -1;
    unsigned best_score = 0;
    for (int i = 0; i < TRIES; i++) {
        struct model model = m->outer;
        struct model_graph graph = m->graph[index];
        int stream = random_stream(m, 0);
        unsigned score = 0;
        struct set missing = model_launch(&model, &graph, stream, &score);
        int mask = missing_streams(m, &missing, 0);
        if (mask < 0 || 1 + score <= best_score)
            continue;
        launch.stream = stream;
        best_mask = mask;
        best_score = 1 + score;
    }
    if (best_mask < 0)
        return;
    unsigned score = 0;
    tie_all(m, best_mask, launch.stream, 0);
    *add_step(m, STEP_LAUNCH, launch.stream, 0) = launch;
    model_launch(&m->outer, &m->graph[index], launch.stream, &score);
}

static void make_tie(struct maker *m, int captured)
{
    int from = random_stream(m, captured), to = random_stream(m, captured);
    if (from != to)
        tie(m, from, to, captured);
}

static void fork_stream(struct maker *m)
{
    int stream = random_stream(m, 0), origin = m->fork[0];
    if (m->nfork == 3 || stream == STREAM_LEGACY)
        return;
    m->fork[m->nfork++] = stream;
    tie(m, origin, stream, 1);
}

static void make_captured(struct maker *m)
{
    unsigned at = random_below(&m->random, 100);
    if (at < 15)
        fork_stream(m);
    else if (at < 35)
        make_work(m, 0); /* meanwhile, elsewhere */
    else if (at < 45)
        make_group(m, 1);
    else if (at < 50)
        make_tie(m, 1);
    else if (!graph_full(m, 1))
        make_work(m, 1);
}

static void make_capture(struct maker *m)
{
    int index = (int)m->program->ngraphs;
    unsigned length = 2 + random_below(&m->random, 7);
    m->fork[0] = random_stream(m, 0);
    if (m->fork[0] == STREAM_LEGACY)
        return;
    memset(&m->inner, 0, sizeof m->inner);
    m->nfork = 1;
    m->capturing = 1;
    struct step *begin = add_step(m, STEP_CAPTURE, m->fork[0], 1);
    begin->graph = index;
    begin->mode = m->options->threads ? 1 + (int)random_below(&m->random, 2)
                                      : (int)random_below(&m->random, 3);
    for (unsigned i = 0; i < length && !full(m); i++)
        make_captured(m);
    for (unsigned i = 1; i < m->nfork; i++)
        tie(m, m->fork[i], m->fork[0], 1);
    add_step(m, STEP_GRAPH, m->fork[0], 1)->graph = index;
    m->capturing = 0;
    m->program->ngraphs++;
    if (random_chance(&m->random, 70))
        make_launch(m, index);
}

static void make_step(struct maker *m)
{
    unsigned at = random_below(&m->random, 100);
    unsigned ngraphs = m->program->ngraphs;
    if (at < 8) {
        make_tie(m, 0);
    } else if (at < 20) {
        make_group(m, 0);
    } else if (at < 32 && ngraphs < PROGRAM_GRAPHS) {
        make_capture(m);
    } else if (at < 57 && ngraphs) {
        make_launch(m, (int)random_below(&m->random, ngraphs));
    } else if (at >= 57 && at < 60) {
        int stream = random_stream(m, 0);
        add_step(m, STEP_SYNC, stream, 0);
        clock_join(&m->outer.host, &m->outer.stream[stream]);
    } else {
        make_work(m, 0);
    }
}

void program_generate(struct program *program, const struct program_options *options,
                      uint64_t seed)
{
    static _Thread_local struct maker maker;
    memset(&maker, 0, sizeof maker);
    maker.program = program;
    maker.options = options;
    maker.random = seed;
    *program = (struct program){.seed = seed, .nranks = options->nranks};
    unsigned length = 6 + random_below(&maker.random, 26);
    for (unsigned i = 0; i < length && !full(&maker); i++)
        make_step(&maker);
}
