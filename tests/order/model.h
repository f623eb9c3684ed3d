/* SPDX-License-Identifier: Apache-2.0 */
/* Which work has surely ended before which other begins, by what CUDA and NCCL promise.
 * Every stream, event and communicator has a clock: the works that have ended before
 * whatever comes next there. */
#ifndef IPS_TESTS_MODEL_H
#define IPS_TESTS_MODEL_H

#include "tests/order/program.h"

struct set {
    uint64_t word[PROGRAM_NODES / 64];
};

/* bare: as far as NCCL's own order is not needed for it. */
struct clock {
    struct set full, bare;
};

struct model {
    unsigned nodes;
    struct clock stream[PROGRAM_STREAMS], event[PROGRAM_EVENTS], comm[PROGRAM_COMMS],
        host;
    int node_stream[PROGRAM_NODES];
    struct {
        struct set writer, readers; /* the last writer, and who read since */
    } buffer[PROGRAM_BUFFERS];
};

/* A captured piece: its works and for each the ones before it. */
struct model_graph {
    unsigned nworks;
    struct work work[PROGRAM_GRAPH_WORKS];
    struct clock before[PROGRAM_GRAPH_WORKS];
    struct clock launched; /* launches of one graph don't overlap */
};

void set_join(struct set *set, const struct set *more);
int set_empty(const struct set *set);
void clock_join(struct clock *clock, const struct clock *more);

/* What has ended when a work on the stream begins. */
struct clock model_before(const struct model *model, const struct work *work, int stream);
/* The works that should have ended by then, and have not. score: grows by those that only
 * NCCL's order makes end. */
struct set model_missing(const struct model *model, const struct work *work,
                         const struct clock *before, unsigned *score);
/* The work runs; gives what has ended after it. */
struct clock model_run(struct model *model, const struct work *work, int stream,
                       const struct clock *before);
/* As outside of groups: both, and the clocks move on. */
void model_work(struct model *model, const struct work *work, int stream);

/* All at once: NCCL joins the streams of each communicator before and after a group. */
struct model_call {
    struct work work;
    int stream;
};
struct clock model_group_before(const struct model *model, const struct model_call *calls,
                                unsigned count, int comm);
void model_group(struct model *model, const struct model_call *calls, unsigned count);

/* Launches the graph; gives what was missing for it (then the model is of no use). */
struct set model_launch(struct model *model, struct model_graph *graph, int stream,
                        unsigned *score);

#endif
