/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the grid of one host-compiled kernel: every lane is a fiber, all of them take
 * turns on the calling OS thread. The kernel's own calls are declared in
 * kernels/mem_host.h. */
#ifndef SIM_LANES_H
#define SIM_LANES_H

#define SIM_MAX_BLOCKS 16
#define SIM_MAX_THREADS 1024
#define SIM_SHARED_BYTES 1024 /* per block */

/* A kernel's body for one lane; it gets the launch's parameters. */
typedef void sim_lane_fn(const void *parameters);

/* Stacks and tables, kept from one launch to the next by one OS thread. */
struct sim_lanes;

struct sim_lanes *sim_lanes_create(void);
void sim_lanes_destroy(struct sim_lanes *lanes);

/* Runs blocks x threads lanes of fn until all have returned. threads is a multiple of 32.
 * A grid in which all lanes wait for each other ends the process with a message. */
void sim_lanes_run(struct sim_lanes *lanes, sim_lane_fn *fn, const void *parameters,
                   unsigned blocks, unsigned threads);

#endif
