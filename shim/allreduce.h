/* SPDX-License-Identifier: Apache-2.0 */
/* An AllReduce that the engine takes, ready to launch. */
#ifndef IPS_SHIM_ALLREDUCE_H
#define IPS_SHIM_ALLREDUCE_H

#include "core/engine.h"
#include "shim/comm.h"
#include "shim/request.h"
#include "shim/trace.h"

struct ips_taken {
    struct ips_comm *comm; /* referenced by whoever holds this */
    enum ips_slot name;    /* by which the program called it */
    struct ips_allreduce call;
    uint64_t bytes;
    uint64_t verify;  /* not 0: its result is compared with NCCL's, see shim/verify.h */
    uint64_t time_ns; /* of the program's call, for the trace */
    const char *reason;
};

/* Launches it and traces it; never waits. */
ncclResult_t ips_taken_launch(const struct ips_taken *taken);

#endif
