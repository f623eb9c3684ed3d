/* SPDX-License-Identifier: Apache-2.0 */
/* What surrounds every forwarded call that enqueues work on a communicator: it is kept in
 * order with the engine's calls, and traced. */
#ifndef IPS_SHIM_FORWARDED_H
#define IPS_SHIM_FORWARDED_H

#include <stddef.h>
#include <stdint.h>

#include "shim/process.h"
#include "shim/slots.h"
#include "shim/trace.h"

struct ips_comm;
struct ips_engine;

struct ips_forwarded {
    struct ips_comm *comm;     /* referenced, or NULL: not known */
    struct ips_engine *engine; /* whose order the call is kept in, or NULL */
    void *stream;
    uint64_t time_ns;
    int captured;
};

/* Before the call; handle and stream are NCCL's. NCCL's result number: when it is not 0
 * the call must not be forwarded, and there is no end. */
int ips_forwarded_begin(struct ips_forwarded *forwarded, void *handle, void *stream);

/* After it: `result` is NCCL's answer; gives what to return. reason: why NCCL serves it,
 * or NULL for the communicator's reason. */
int ips_forwarded_end(struct ips_forwarded *forwarded, int result, enum ips_slot call,
                      uint64_t count, int type, int op, const char *reason);

/* The rest of a function that forwards its call, which has no result yet. */
#define IPS_FORWARD_TRACED(result_type, name, arguments, count, type, op, reason)  \
    do {                                                                           \
        struct ips_forwarded forwarded;                                            \
        int forward_result = ips_forwarded_begin(&forwarded, comm, stream);        \
        if (forward_result)                                                        \
            return (result_type)forward_result;                                    \
        IPS_CALL(forward_result, (int)real arguments);                             \
        return (result_type)ips_forwarded_end(&forwarded, forward_result,          \
                                              IPS_SLOT_##name, count, (int)(type), \
                                              (int)(op), reason);                  \
    } while (0)

/* The body of a traced forwarder. */
#define IPS_TRACED_BODY(result_type, name, parameters, arguments, count, type, op) \
    {                                                                              \
        result_type(*real) parameters = IPS_REAL(name);                            \
        if (!real)                                                                 \
            return (result_type)ips_real_missing(IPS_SLOT_##name);                 \
        if (ips_pass())                                                            \
            return real arguments;                                                 \
        IPS_FORWARD_TRACED(result_type, name, arguments, count, type, op, NULL);   \
    }

#endif
