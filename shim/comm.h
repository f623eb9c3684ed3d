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
#include "shim/key.h"
#include "shim/nccl_api.h"

/* Why the engine must not be used now; 0 when it may. */
enum {
    IPS_HOLD_PENDING = 1, /* its verdict is still out */
    IPS_HOLD_OWED = 2, /* a call that NCCL enqueues in the background has no mark yet */
    IPS_HOLD_STOPPED = 4, /* suspended, finalized or ended */
    IPS_HOLD_ENDED = 8,   /* with it: by the program, the engine's error says nothing */
};

/* What the engine is to be told when NCCL has enqueued a call: its mark on a stream, or
 * that the streams with `join` meet. */
struct ips_owed {
    gpu_stream stream;
    int join;
};

struct ips_comm {
    /* The verdict; not valid while it is pending. */
    struct ips_engine *engine; /* NULL: NCCL serves it. Mostly read by ips_comm_engine */
    const char *reason;        /* why, or "agreed"; lives as long as the process */
    struct ips_policy_settings settings; /* agreed; meaningful with an engine */
    struct ips_policy_plan plan;         /* likewise */
    /* Known from the beginning. */
    int rank, nranks; /* -1: NCCL is asked when its init is complete */
    int blocking;
    struct ips_key key;
    /* Changes; all atomic. */
    unsigned hold;                /* IPS_HOLD_* */
    const char *stopped;          /* why, with IPS_HOLD_STOPPED */
    unsigned splits;              /* how many of it there were */
    uint64_t counted;             /* calls, for IPCSHIM_VERIFY */
    /* For settle.c, which says who may use them. */
    struct ips_bringup *bringup;
    struct ips_owed *owed;
    size_t owed_count;
    int busy, started, cancelled;
    /* Set by ips_comm_add. */
    ncclComm_t handle;
    int number; /* in this process, from 0 */
    /* For comm.c only. */
    unsigned references;
    int ending, aborted;
    struct ips_comm *next;
};

/* Enters a communicator, which then owns the description's bringup. Gives the entry,
 * referenced, or NULL when there is no memory. An entry that had the handle is put before
 * *stale, for ips_comm_put_all, which may take its time. */
struct ips_comm *ips_comm_add(ncclComm_t handle, const struct ips_comm *description,
                              struct ips_comm **stale);
void ips_comm_put_all(struct ips_comm *stale); /* NULL is allowed */

/* The entry, referenced, or NULL for a handle that is not known. */
struct ips_comm *ips_comm_get(ncclComm_t handle);
void ips_comm_hold(struct ips_comm *comm);
void ips_comm_put(struct ips_comm *comm); /* NULL is allowed */

/* Takes the entry out of the table: later lookups don't find it. The caller gets the
 * table's reference and puts it. NULL for a handle that is not known. */
struct ips_comm *ips_comm_remove(ncclComm_t handle);

/* The same for a destroy, which waits for the engine's calls: only an abort finds the
 * entry, until it is over. */
struct ips_comm *ips_comm_remove_ending(ncclComm_t handle);
/* Nobody else uses the entry. */
int ips_comm_alone(const struct ips_comm *comm);
/* It is over; gives whether an abort came meanwhile, which ends NCCL's part as well. */
int ips_comm_ended(struct ips_comm *comm);
/* The abort of a handle that is not in the table. */
void ips_comm_abort_ending(ncclComm_t handle);

/* Up to `room` communicators whose verdict is out, each referenced; gives how many. When
 * there are more they take turns. */
size_t ips_comm_pending(struct ips_comm **ret_comms, size_t room);

/* Keeps the engine unused for this reason (a static text), and gives what held before.
 * resume: if the engine is unused for that reason, what was `before` holds again. */
struct ips_stop {
    const char *reason; /* NULL: not stopped */
    unsigned hold;      /* IPS_HOLD_STOPPED, IPS_HOLD_ENDED */
};
struct ips_stop ips_comm_stop(struct ips_comm *comm, struct ips_stop stop);
void ips_comm_resume(struct ips_comm *comm, const char *reason, struct ips_stop before);

static inline unsigned ips_comm_held(const struct ips_comm *comm)
{
    return __atomic_load_n(&comm->hold, __ATOMIC_ACQUIRE);
}

/* The engine if it may be used now; NULL is allowed. */
static inline struct ips_engine *ips_comm_engine(const struct ips_comm *comm)
{
    return comm && !ips_comm_held(comm) ? comm->engine : NULL;
}

/* The engine's error, 0 while the engine is not there or was ended by the program. */
int ips_comm_error(const struct ips_comm *comm);

/* Why NCCL serves a call that the engine can't take; NULL is allowed. */
const char *ips_comm_reason(const struct ips_comm *comm);

#endif
