/* SPDX-License-Identifier: Apache-2.0 */
/* IPCSHIM_VERIFY: which calls also run on NCCL, and NCCL's part of it. Nothing here
 * waits, but NCCL when it first connects; the device compares, and a difference fails the
 * engine. */
#ifndef IPS_SHIM_VERIFY_H
#define IPS_SHIM_VERIFY_H

#include "core/verify.h"
#include "shim/allreduce.h"

/* Counts a call that the engine takes. If it is to be verified, its number among those.
 */
uint64_t ips_verify_due(struct ips_comm *comm, const struct ips_allreduce *call);

/* Around the engine's launch, whose result goes through the second. What NCCL refuses is
 * not to be launched either. A failure between the two fails the engine. */
ncclResult_t ips_verify_begin(const struct ips_taken *taken,
                              struct ips_verify_plan *ret_plan);
ncclResult_t ips_verify_end(const struct ips_taken *taken,
                            const struct ips_verify_plan *plan, ncclResult_t launched);

#endif
