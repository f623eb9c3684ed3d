/* SPDX-License-Identifier: Apache-2.0 */
/* The traced forwarders of the youngest functions. Must not see nccl.h, like
 * forward_late.c. */
#include "shim/forwarded.h"

#define LATE_TRACED(name, parameters, arguments, count, type, op)                    \
    int name parameters;                                                             \
    IPS_EXPORT int name parameters IPS_TRACED_BODY(int, name, parameters, arguments, \
                                                   count, type, op)

#include "shim/api.def"
