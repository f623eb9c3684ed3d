/* SPDX-License-Identifier: Apache-2.0 */
/* One rank on the stand-in driver: what lives as long as the run, and a program's run. */
#ifndef IPS_TESTS_EXECUTE_H
#define IPS_TESTS_EXECUTE_H

#include "tests/order/program.h"
#include "tools/fleet.h"
#include "tools/nccl.h"
#include "tools/simgpu/cuda_api.h"

struct order_page {
    struct fleet_sync sync;
    struct nccl_id id[PROGRAM_COMMS];
};

/* A kernel as it was issued; a graph runs it any number of times. */
struct kernel {
    struct work work;
    unsigned rank;
    uint32_t *out, *in;
};

struct rank {
    struct order_page *page;
    unsigned rank, nranks;
    struct nccl_api nccl;
    gpu_context context;
    gpu_stream stream[PROGRAM_STREAMS];
    gpu_event event[PROGRAM_EVENTS];
    nccl_comm comm[PROGRAM_COMMS];
    int pre_mul[PROGRAM_COMMS]; /* the user's operation: times 3 */
    gpu_ptr memory;             /* the buffers, one after the other */
    struct kernel kernel[PROGRAM_STEPS];
    gpu_exec exec[PROGRAM_GRAPHS];
    program_memory wanted;
};

/* 0, or not 0 after printing what failed; then the rank is of no more use. */
int rank_open(struct rank *rank);
int rank_make_comms(struct rank *rank);
int rank_end_comms(struct rank *rank);
int rank_run(struct rank *rank, const struct program *program);

/* shuffle.c. The stand-in runs a graph's nodes one after another: puts them into another
 * order that their dependencies allow, the same on all ranks. */
void graph_shuffle(gpu_graph graph, uint64_t seed);

#endif
