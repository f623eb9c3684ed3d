/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a soak, the same on all ranks: a pure function of the options. Rounds
 * follow each other without a barrier, each a list of batches; a batch is one or several
 * calls one after the other on one stream, or the replay of a graph that holds a batch.
 */
#ifndef IPS_TESTS_SOAK_PLAN_H
#define IPS_TESTS_SOAK_PLAN_H

#include <stdint.h>

#define SOAK_COMMS 2  /* the second one counts the ranks backwards */
#define SOAK_GRAPHS 2 /* of each communicator */
#define SOAK_STREAMS 3
#define SOAK_BATCH_CALLS 6
#define SOAK_ROUND_BATCHES 24

struct soak_options {
    uint64_t seed;
    uint64_t calls;     /* end after as many, or */
    double seconds;     /* after this time */
    uint64_t max_bytes; /* of one batch, at least 4096 */
    uint32_t nranks;
    uint32_t large;  /* of 1000 calls so many are up to max_bytes long, the rest short */
    uint32_t remake; /* rounds between two makings of a communicator */
    uint32_t delay;  /* one fill in so many takes its time, and one batch on the host */
};

struct soak_shape {
    uint32_t type, op, values;
    uint64_t count;
};

enum soak_kind { SOAK_EAGER, SOAK_GROUP, SOAK_REPLAY };

struct soak_batch {
    enum soak_kind kind;
    unsigned comm, graph;
    unsigned ncalls; /* of a replay: see its graph */
    struct soak_shape call[SOAK_BATCH_CALLS];
};

struct soak_round {
    int remake; /* first: this communicator ends, and its successor begins; or -1 */
    unsigned nbatches;
    struct soak_batch batch[SOAK_ROUND_BATCHES];
};

void soak_plan_round(const struct soak_options *options, uint64_t index,
                     struct soak_round *ret);

/* What the graph holds; serial: of all graphs ever made. */
void soak_plan_graph(const struct soak_options *options, uint64_t serial,
                     struct soak_batch *ret);

#endif
