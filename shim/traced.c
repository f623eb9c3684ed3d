/* SPDX-License-Identifier: Apache-2.0 */
/* The traced forwarders: one function for each TRACED line of api.def. */
#include "shim/forwarded.h"
#include "shim/nccl_api.h"

#define TRACED(name, parameters, arguments, count, type, op) \
    IPS_EXPORT ncclResult_t name parameters IPS_TRACED_BODY( \
        ncclResult_t, name, parameters, arguments, count, type, op)

#include "shim/api.def"
