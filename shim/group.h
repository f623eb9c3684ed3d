/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL groups, as this thread sees them. Calls that the engine takes inside a group wait
 * in its queue and are launched at the outermost ncclGroupEnd, before NCCL's own end;
 * communicators made inside it are brought up after that end. */
#ifndef IPS_SHIM_GROUP_H
#define IPS_SHIM_GROUP_H

#include "core/engine.h"
#include "shim/allreduce.h"
#include "shim/init.h"

/* How many groups are open on this thread. */
int ips_group_depth(void);

/* In an open group: adds a call the engine takes; a communicator and stream that NCCL
 * will enqueue on; a communicator being made. Each is copied, and holds its own
 * reference. 0 or -ENOMEM. */
int ips_group_add_taken(const struct ips_taken *taken);
int ips_group_add_forwarded(struct ips_comm *comm, gpu_stream stream);
int ips_group_add_init(const struct ips_init *init);

/* A call inside the group failed: as with NCCL, none of the group's calls are launched,
 * and the end returns the first error. Ignored outside a group. */
void ips_group_failed(ncclResult_t result);
/* The same with whatever such a call gave, which is given back. */
ncclResult_t ips_group_answer(ncclResult_t result);

#endif
