/* SPDX-License-Identifier: Apache-2.0 */
/* The communicators of the process: NCCL's handle to what the shim knows about it. The
 * handle is never looked into, and its address may be reused once it was removed.
 *
 * Looking up takes no lock in the usual case. Whoever holds an entry holds a reference,
 * so that an abort by another thread can't free an engine in use; the last one to let go
 * destroys the engine. */
#ifndef IPS_SHIM_COMM_H
#define IPS_SHIM_COMM_H

#include "core/engine.h"
#include "policy/policy.h"
#include "shim/nccl_api.h"

struct ips_comm {
    struct ips_engine *engine; /* NULL: NCCL serves it */
    const char *reason;        /* why, or "agreed"; lives as long as the process */
    int rank, nranks;          /* -1: not known */
    int number;                /* in this process, from 0 */
    struct ips_policy_settings settings; /* agreed; meaningful with an engine */
    uint64_t eager[IPS_COUNTERS]; /* launched, not captured; like ips_engine_counts */
    /* For comm.c only. */
    ncclComm_t handle;
    unsigned references;
    struct ips_comm *next;
};

/* Enters a communicator. The entry owns the engine from now on. 0 or -ENOMEM (the engine
 * is then destroyed). */
int ips_comm_add(ncclComm_t handle, const struct ips_comm *description);

/* The entry, referenced, or NULL for a handle that is not known. */
struct ips_comm *ips_comm_get(ncclComm_t handle);
void ips_comm_hold(struct ips_comm *comm);
void ips_comm_put(struct ips_comm *comm); /* NULL is allowed */

/* Takes the entry out of the table: later lookups don't find it. The caller gets the
 * table's reference and puts it. NULL for a handle that is not known. */
struct ips_comm *ips_comm_remove(ncclComm_t handle);

#endif
