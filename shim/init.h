/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator on its way from NCCL's init call into the table. All ways of making one
 * lead through here: prepare before the call is forwarded, `forwarded` after it; the
 * engine is brought up when NCCL's init is complete. */
#ifndef IPS_SHIM_INIT_H
#define IPS_SHIM_INIT_H

#include <stddef.h>

#include "core/engine.h"
#include "shim/nccl_api.h"

struct ips_init {
    ncclComm_t *where;           /* NCCL writes the handle here, perhaps later */
    int rank, nranks;            /* -1: NCCL is asked when it is complete */
    struct ips_bringup *bringup; /* NULL: NCCL serves it */
    const char *reason;          /* why; lives as long as the process */
};

/* A communicator that the engine may serve: writes this rank's record, unless something
 * that is known already speaks against it. id: the unique id, 128 bytes. */
void ips_init_prepare(struct ips_init *init, ncclComm_t *where, int nranks, int rank,
                      const ncclUniqueId *id, int blocking);

/* One that NCCL serves, for this reason (a static text). */
void ips_init_adopt(struct ips_init *init, ncclComm_t *where, int nranks, int rank,
                    const char *reason);

/* After the real call gave `result`: in a group the inits wait for its end, otherwise
 * they are completed. Gives what to return. */
ncclResult_t ips_init_forwarded(struct ips_init *inits, size_t count,
                                ncclResult_t result);

/* NCCL's init of all of them is complete, with that result: brings the engines up,
 * together, and enters the communicators into the table. Blocks; no lock is held. */
void ips_init_complete(struct ips_init *inits, size_t count, ncclResult_t result);

/* Gives them up. */
void ips_init_drop(struct ips_init *inits, size_t count);

/* Whether this config makes a blocking communicator. NULL is allowed. */
int ips_init_blocking(const void *config);

#endif
