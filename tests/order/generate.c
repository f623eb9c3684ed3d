/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a program. Of several random works the one is taken whose order rests most on
 * NCCL's promise; what neither CUDA nor NCCL promises gets the program's own events. */
#include <string.h>

#include "tests/order/model.h"
#include "tests/order/random.h"
#include "tests/order/works.h"

#define TRIES 10
#define GROUP_CALLS 4

#define CAPTURES 2 /* at a time */

struct capture {
    int open, graph;
    struct model model;
    int fork[PROGRAM_STREAMS]; /* its streams, the first is its origin */
    unsigned nfork;
};

struct maker {
    struct program *program;
    const struct program_options *options;
    uint64_t random;
    unsigned nevents;
    struct model outer;
    struct capture capture[CAPTURES];
    struct model_graph graph[PROGRAM_GRAPHS];
    int finished[PROGRAM_GRAPHS];
};

/* In the capture, or outside of any with NULL: as in what follows. */
static struct step *add_step(struct maker *m, const struct capture *capture,
                             enum step_kind kind, int stream)
{
    struct step *step = &m->program->step[m->program->nsteps++];
    *step = (struct step){
        .kind = kind, .stream = stream, .captured = capture ? capture->graph + 1 : 0};
    return step;
}

static int capturing(const struct maker *m)
{
    return m->capture[0].open + m->capture[1].open;
}

static int in_capture(const struct maker *m, int stream)
{
    for (unsigned c = 0; c < CAPTURES; c++)
        for (unsigned i = 0; m->capture[c].open && i < m->capture[c].nfork; i++)
            if (m->capture[c].fork[i] == stream)
                return 1;
    return 0;
}

/* A stream of the capture, or one outside that disturbs none. */
static int random_stream(struct maker *m, const struct capture *capture)
{
    if (capture)
        return capture->fork[random_below(&m->random, capture->nfork)];
    for (;;) {
        int stream = (int)random_below(&m->random, PROGRAM_STREAMS);
        if (!in_capture(m, stream) && !(capturing(m) && stream == STREAM_LEGACY))
            return stream;
    }
}

static struct model *model_of(struct maker *m, struct capture *capture)
{
    return capture ? &capture->model : &m->outer;
}

/* Makes `to` wait for what `from` has. */
static void tie(struct maker *m, int from, int to, struct capture *capture)
{
    struct model *model = model_of(m, capture);
    int event = (int)m->nevents++;
    add_step(m, capture, STEP_RECORD, from)->event = event;
    add_step(m, capture, STEP_WAIT, to)->event = event;
    clock_join(&model->event[event], &model->stream[from]);
    clock_join(&model->stream[to], &model->event[event]);
}

/* Streams whose works are missing, as a mask; -1 when one of them can't be tied to. */
static int missing_streams(struct maker *m, const struct set *missing,
                           struct capture *capture)
{
    const struct model *model = model_of(m, capture);
    int mask = 0;
    for (unsigned n = 0; n < model->nodes; n++) {
        if (!(missing->word[n / 64] >> n % 64 & 1))
            continue;
        int stream = model->node_stream[n];
        if (!capture && capturing(m) &&
            (in_capture(m, stream) || stream == STREAM_LEGACY))
            return -1;
        mask |= 1 << stream;
    }
    return mask;
}

static void tie_all(struct maker *m, int mask, int to, struct capture *capture)
{
    for (int s = 0; s < PROGRAM_STREAMS; s++)
        if (mask >> s & 1 && s != to)
            tie(m, s, to, capture);
}

/* Room for one more step of any kind with all the ties it may need. */
static int full(const struct maker *m)
{
    return m->program->nsteps > PROGRAM_STEPS - 120 || m->nevents > PROGRAM_EVENTS - 60 ||
           m->outer.nodes > PROGRAM_NODES - PROGRAM_GRAPH_WORKS - GROUP_CALLS;
}

static int graph_full(const struct maker *m, const struct capture *capture,
                      unsigned works)
{
    return m->graph[capture->graph].nworks + works > PROGRAM_GRAPH_WORKS;
}

static void note_captured(struct maker *m, const struct capture *capture,
                          const struct work *work, const struct clock *before)
{
    struct model_graph *graph = &m->graph[capture->graph];
    graph->before[graph->nworks] = *before;
    graph->work[graph->nworks++] = *work;
}

static void make_work(struct maker *m, struct capture *capture)
{
    struct model *model = model_of(m, capture);
    struct work best = {0};
    int best_stream = 0, best_mask = -1;
    unsigned best_score = 0;
    for (int i = 0; i < TRIES || best_mask < 0; i++) {
        struct work work = work_random(&m->random, m->program->nranks, 0);
        int stream = random_stream(m, capture);
        unsigned score = 0;
        struct clock before = model_before(model, &work, stream);
        struct set missing = model_missing(model, &work, &before, &score);
        int mask = missing_streams(m, &missing, capture);
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
    tie_all(m, best_mask, best_stream, capture);
    if (capture) {
        struct clock before = model_before(model, &best, best_stream);
        note_captured(m, capture, &best, &before);
    }
    add_step(m, capture, STEP_WORK, best_stream)->work = best;
    model_work(model, &best, best_stream);
}

static int clash(const struct work *a, const struct work *b)
{
    return a->out == b->out || a->in == b->out || a->out == b->in;
}

/* Calls that have nothing to do with each other: NCCL may run them in any order. */
static unsigned random_calls(struct maker *m, struct model_call *calls,
                             struct capture *capture)
{
    unsigned wanted = 1 + random_below(&m->random, GROUP_CALLS), count = 0;
    int one = random_stream(m, capture);
    for (int i = 0; i < 40 && count < wanted; i++) {
        struct work work = work_random(&m->random, m->program->nranks, 1);
        unsigned k = 0;
        while (k < count && !clash(&work, &calls[k].work))
            k++;
        if (k < count)
            continue;
        calls[count].work = work;
        calls[count++].stream =
            random_chance(&m->random, 60) ? random_stream(m, capture) : one;
    }
    return count;
}

static void make_group(struct maker *m, struct capture *capture)
{
    struct model *model = model_of(m, capture);
    struct model_call calls[GROUP_CALLS];
    unsigned count = random_calls(m, calls, capture), score = 0;
    int mask[GROUP_CALLS];
    if (capture && graph_full(m, capture, count))
        return;
    for (unsigned i = 0; i < count; i++) {
        struct clock before = model_group_before(model, calls, count, calls[i].work.comm);
        struct set missing = model_missing(model, &calls[i].work, &before, &score);
        mask[i] = missing_streams(m, &missing, capture);
        if (mask[i] < 0)
            return;
    }
    for (unsigned i = 0; i < count; i++)
        tie_all(m, mask[i], calls[i].stream, capture);
    add_step(m, capture, STEP_GROUP, 0);
    for (unsigned i = 0; i < count; i++) {
        struct clock before = model_group_before(model, calls, count, calls[i].work.comm);
        add_step(m, capture, STEP_WORK, calls[i].stream)->work = calls[i].work;
        if (capture)
            note_captured(m, capture, &calls[i].work, &before);
    }
    add_step(m, capture, STEP_GROUP_END, 0);
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
        int stream = random_stream(m, NULL);
        unsigned score = 0;
        struct set missing = model_launch(&model, &graph, stream, &score);
        int mask = missing_streams(m, &missing, NULL);
        if (mask < 0 || 1 + score <= best_score)
            continue;
        launch.stream = stream;
        best_mask = mask;
        best_score = 1 + score;
    }
    if (best_mask < 0)
        return;
    unsigned score = 0;
    tie_all(m, best_mask, launch.stream, NULL);
    *add_step(m, NULL, STEP_LAUNCH, launch.stream) = launch;
    model_launch(&m->outer, &m->graph[index], launch.stream, &score);
}

static void make_tie(struct maker *m, struct capture *capture)
{
    int from = random_stream(m, capture), to = random_stream(m, capture);
    if (from != to)
        tie(m, from, to, capture);
}

static void fork_stream(struct maker *m, struct capture *capture)
{
    int stream = random_stream(m, NULL), origin = capture->fork[0];
    if (capture->nfork == 3 || stream == STREAM_LEGACY || capturing(m) > 1)
        return;
    capture->fork[capture->nfork++] = stream;
    tie(m, origin, stream, capture);
}

static void make_capture(struct maker *m);

/* Meanwhile, outside of this capture. */
static void make_elsewhere(struct maker *m, struct capture *capture)
{
    struct capture *other = &m->capture[capture == m->capture];
    if (other->open && !graph_full(m, other, 1) && random_chance(&m->random, 70))
        make_work(m, other);
    else if (!other->open && m->program->ngraphs < PROGRAM_GRAPHS &&
             random_chance(&m->random, 40))
        make_capture(m);
    else
        make_work(m, NULL);
}

static void make_captured(struct maker *m, struct capture *capture)
{
    unsigned at = random_below(&m->random, 100);
    if (at < 12)
        fork_stream(m, capture);
    else if (at < 42)
        make_elsewhere(m, capture);
    else if (at < 50)
        make_group(m, capture);
    else if (at < 55)
        make_tie(m, capture);
    else if (!graph_full(m, capture, 1))
        make_work(m, capture);
}

static void begin_capture(struct maker *m, struct capture *capture, int stream)
{
    memset(capture, 0, sizeof *capture);
    capture->graph = (int)m->program->ngraphs++;
    capture->fork[0] = stream;
    capture->nfork = 1;
    capture->open = 1;
    struct step *begin = add_step(m, capture, STEP_CAPTURE, stream);
    begin->graph = capture->graph;
    begin->mode = m->options->threads ? 1 + (int)random_below(&m->random, 2)
                                      : (int)random_below(&m->random, 3);
}

static void make_capture(struct maker *m)
{
    struct capture *capture = &m->capture[m->capture[0].open];
    unsigned length = 2 + random_below(&m->random, 7);
    int stream = random_stream(m, NULL);
    if (stream == STREAM_LEGACY)
        return;
    begin_capture(m, capture, stream);
    if (random_chance(&m->random, 50))
        fork_stream(m, capture);
    for (unsigned i = 0; i < length && !full(m); i++)
        make_captured(m, capture);
    for (unsigned i = 1; i < capture->nfork; i++)
        tie(m, capture->fork[i], stream, capture);
    add_step(m, capture, STEP_GRAPH, stream)->graph = capture->graph;
    capture->open = 0;
    m->finished[capture->graph] = 1;
    if (random_chance(&m->random, 70))
        make_launch(m, capture->graph);
}

static void make_step(struct maker *m)
{
    unsigned at = random_below(&m->random, 100);
    unsigned ngraphs = m->program->ngraphs;
    if (at < 8) {
        make_tie(m, NULL);
    } else if (at < 20) {
        make_group(m, NULL);
    } else if (at < 32 && ngraphs < PROGRAM_GRAPHS) {
        make_capture(m);
    } else if (at < 57 && ngraphs) {
        make_launch(m, (int)random_below(&m->random, ngraphs));
    } else if (at >= 57 && at < 60) {
        int stream = random_stream(m, NULL);
        add_step(m, NULL, STEP_SYNC, stream);
        clock_join(&m->outer.host, &m->outer.stream[stream]);
    } else {
        make_work(m, NULL);
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
