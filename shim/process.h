/* SPDX-License-Identifier: Apache-2.0 */
/* What happens once in a process: nothing before the first communicator is made, then the
 * settings, the trace, and the handlers for fork and exit. */
#ifndef IPS_SHIM_PROCESS_H
#define IPS_SHIM_PROCESS_H

#include "shim/real.h"

/* Called before every communicator is made; rank: of it, or -1. Does its work once. */
void ips_process_begin(int rank);

/* Called after NCCL made a communicator, so that CUDA is up: the exit handler then runs
 * before CUDA's own. Does its work once. */
void ips_process_ready(void);

/* In a child after fork the engine is gone: everything goes to NCCL, silently. */
extern int ips_passive;

/* Whether a call is only to be forwarded, unseen. */
static inline int ips_pass(void)
{
    return ips_inside > 0 || __atomic_load_n(&ips_passive, __ATOMIC_RELAXED);
}

/* comm.c: makes the summary count the replays of all communicators. */
void ips_comm_trace_replays(void);

#endif
