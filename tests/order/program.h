/* SPDX-License-Identifier: Apache-2.0 */
/* A random program of NCCL calls and a user's own work, the same on all ranks: a list of
 * steps in the order in which the host issues them. Its result is determined by what CUDA
 * and NCCL promise and by nothing else, and depends on NCCL's promise: calls on one
 * communicator run in issue order, whatever their stream. */
#ifndef IPS_TESTS_PROGRAM_H
#define IPS_TESTS_PROGRAM_H

#include <stdint.h>

#define PROGRAM_RANKS 4
#define PROGRAM_COMMS 3 /* the last one counts the ranks backwards */
#define PROGRAM_BUFFERS 5
#define PROGRAM_WORDS 1536 /* of a buffer */
#define PROGRAM_STEPS 512
#define PROGRAM_EVENTS 192
#define PROGRAM_GRAPHS 4
#define PROGRAM_GRAPH_WORKS 16
#define PROGRAM_NODES 512 /* works that run, replays included */

/* Sizes up to this the engine takes (IPCSHIM_MAX_BYTES of the run). */
#define PROGRAM_ENGINE_BYTES 4096

/* Three streams that know nothing of the legacy stream, and three that do. */
enum program_stream {
    STREAM_FREE,
    STREAM_BLOCKING = 3,
    STREAM_LEGACY,
    STREAM_PER_THREAD,
    PROGRAM_STREAMS,
};

enum work_kind {
    WORK_KERNEL, /* out = out * scale + in + value + a number of the rank */
    WORK_COPY,
    WORK_SET,
    WORK_ALL_REDUCE,
    WORK_PRE_MUL, /* AllReduce with a user's operation, which the engine never takes */
    WORK_ALL_GATHER,
    WORK_REDUCE_SCATTER,
    WORK_BROADCAST,
};

struct work {
    enum work_kind kind;
    int comm;    /* of NCCL's */
    int in, out; /* buffers */
    int type, op, root;
    unsigned count;    /* elements, as NCCL takes it; bytes of the others */
    unsigned value;    /* of a kernel and a set */
    unsigned delay_us; /* of a kernel: how long it takes */
};

enum step_kind {
    STEP_WORK,
    STEP_RECORD,
    STEP_WAIT,
    STEP_SYNC,    /* the host waits for the stream */
    STEP_CAPTURE, /* the stream's capture begins */
    STEP_GRAPH,   /* and ends: the graph can be launched from here on */
    STEP_LAUNCH,
    STEP_GROUP,
    STEP_GROUP_END,
};

struct step {
    enum step_kind kind;
    int stream, event, graph;
    int captured; /* into this graph, counted from 1; 0: not */
    int mode;     /* of the capture */
    struct work work;
};

struct program {
    uint64_t seed;
    unsigned nranks, nsteps;
    unsigned ngraphs;
    struct step step[PROGRAM_STEPS];
};

/* What may occur in a program. */
struct program_options {
    unsigned nranks;
    int threads; /* ranks are threads: no captures in global mode */
};

/* generate.c. Depends on the seed and the options only. */
void program_generate(struct program *program, const struct program_options *options,
                      uint64_t seed);
/* Keeps the first `steps`, less what would be cut in the middle of a capture or group. */
void program_cut(struct program *program, unsigned steps);
void program_print(const struct program *program);

/* reference.c: what the buffers hold at first, and after the program. */
typedef uint32_t program_memory[PROGRAM_RANKS][PROGRAM_BUFFERS][PROGRAM_WORDS];
void program_fill(const struct program *program, program_memory memory);
void program_reference(const struct program *program, program_memory memory);
/* What a kernel does to its output. */
void work_kernel(const struct work *work, unsigned rank, uint32_t *out,
                 const uint32_t *in);

static inline int work_is_nccl(const struct work *work)
{
    return work->kind >= WORK_ALL_REDUCE;
}

/* Size of an element: types are uint8, uint32 and uint64. */
static inline unsigned work_type_bytes(const struct work *work)
{
    return work->type == 1 ? 1 : work->type == 3 ? 4 : 8;
}

#endif
