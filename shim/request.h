/* SPDX-License-Identifier: Apache-2.0 */
/* An AllReduce as the program asks for it, by whichever name; NCCL's types are numbers
 * here, so that files which must not see nccl.h can use it. */
#ifndef IPS_SHIM_REQUEST_H
#define IPS_SHIM_REQUEST_H

#include <stdint.h>

#include "shim/slots.h"

struct ips_request {
    const void *in;
    void *out;
    uint64_t count;
    int type, op; /* NCCL's numbers */
    void *comm, *stream;
    enum ips_slot name;
};

/* 1: the engine takes it, and *ret_result is NCCL's number to return. 0: it is to be
 * forwarded. *ret_reason says why, either way; it lives as long as the process. */
int ips_allreduce_take(const struct ips_request *request, int *ret_result,
                       const char **ret_reason);

#endif
