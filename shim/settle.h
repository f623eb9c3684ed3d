/* SPDX-License-Identifier: Apache-2.0 */
/* What is still open on a communicator in the table: the engine's verdict, and the mark
 * in the engine's order of a call that NCCL enqueues in the background. Both are settled
 * a step at a time, by whoever comes along: a call on the communicator, a question after
 * its health, or another communicator's set-up that waits. */
#ifndef IPS_SHIM_SETTLE_H
#define IPS_SHIM_SETTLE_H

#include "shim/comm.h"

/* The entry, referenced, and ready for a call: waits for the verdict once NCCL's init is
 * complete, so that the route is the same on all ranks. While NCCL itself is still at it,
 * the engine is held back and the call is NCCL's to answer. NULL when not known. */
struct ips_comm *ips_comm_ready(ncclComm_t handle);
/* The same without waiting. */
struct ips_comm *ips_comm_known(ncclComm_t handle);

/* NCCL's init is complete: some steps. Gives whether the verdict is still out. */
int ips_settle_step(struct ips_comm *comm);
/* Between such steps: moves all other set-ups of the process on, and naps. Processes with
 * communicators in a circle would wait for each other otherwise. */
void ips_settle_others(void);

/* NCCL says `state` of it: some steps, unless another thread is at them. Gives what to
 * tell the program. Never waits. */
ncclResult_t ips_settle_poll(struct ips_comm *comm, ncclResult_t state);

/* Gives a pending verdict up: the peers decline as well. When it returns no thread asks
 * NCCL after this communicator any more. */
void ips_settle_cancel(struct ips_comm *comm, const char *reason);
/* The same, and ends every wait of an engine that is there already. */
void ips_settle_abort(struct ips_comm *comm);
/* The same before a call that ends what runs on the communicator, for this reason (a
 * static text): NCCL gives the answers from now on. Then, after that call gave `result`:
 * if NCCL refused it, the engine is lost all the same, and calls and questions say so. */
struct ips_stop ips_settle_end(struct ips_comm *comm, const char *reason);
void ips_settle_ended(struct ips_comm *comm, const char *reason, struct ips_stop before,
                      ncclResult_t result);

/* NCCL has enqueued: the marks, then the joins. 0 or the engine's error. */
int ips_settle_pay(struct ips_engine *engine, const struct ips_owed *owed, size_t count);
/* NCCL enqueues forwarded calls in the background: this is paid when it has, before the
 * engine takes another call. 0 or -ENOMEM. */
int ips_settle_owe(struct ips_comm *comm, const struct ips_owed *owed, size_t count);

#endif
