/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator on its way from the call that makes it into the table. All ways of
 * making one lead through here: prepare before the call is forwarded, `forwarded` after
 * it; the engine is brought up when NCCL's init is complete. */
#ifndef IPS_SHIM_INIT_H
#define IPS_SHIM_INIT_H

#include <stddef.h>

#include "shim/comm.h"

struct ips_init {
    ncclComm_t
        *where; /* NCCL writes the handle here, perhaps later; NULL: there is none */
    ncclComm_t parent; /* or NULL */
    int rank, nranks;  /* -1: NCCL is asked when its init is complete */
    int blocking;
    struct ips_key key;
    struct ips_bringup *bringup; /* NULL: NCCL serves it */
    const char *reason;          /* why; lives as long as the process */
    struct ips_comm *comm;       /* init.c only: its entry while it is waited for */
};

/* Writes this rank's record, unless something that is known already speaks against it: no
 * key, for one. */
void ips_init_prepare(struct ips_init *init, ncclComm_t *where, int nranks, int rank,
                      int blocking, const struct ips_key *key);

/* One that is split from `parent` (whose entry is `known`, NULL when it has none); a
 * negative color makes none. */
void ips_init_prepare_split(struct ips_init *init, ncclComm_t *where, ncclComm_t parent,
                            struct ips_comm *known, int color, const void *config);

/* One that NCCL serves, like all its children, for this reason (a static text). */
void ips_init_prepare_other(struct ips_init *init, ncclComm_t *where, ncclComm_t parent,
                            const char *reason);

/* After the real call gave `result`: in a group the inits wait for its end, otherwise
 * they are completed. Gives what to return. */
ncclResult_t ips_init_forwarded(struct ips_init *inits, size_t count,
                                ncclResult_t result);

/* NCCL has come to the end of all of them, with that result. Enters the communicators
 * into the table and brings up the engines of those whose init is complete, together;
 * the others' verdict is settled later. Blocks; no lock is held. */
void ips_init_complete(struct ips_init *inits, size_t count, ncclResult_t result);

/* Gives them up. */
void ips_init_drop(struct ips_init *inits, size_t count);

/* The handle as far as NCCL has written it. */
ncclComm_t ips_init_handle(const struct ips_init *init);
/* Enters it with its verdict out; the entry owns the bringup. The entry is referenced;
 * NULL without memory. stale: as with ips_comm_add. */
struct ips_comm *ips_init_enter(struct ips_init *init, struct ips_comm **stale);

/* Why there is no engine for this many ranks (-1: not known yet), or NULL. */
const char *ips_init_why_not(int nranks);

/* Whether this config makes a blocking communicator; `standard` when it says nothing or
 * is NULL. */
int ips_init_blocking(const void *config, int standard);

#endif
