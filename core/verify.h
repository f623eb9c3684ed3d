/* SPDX-License-Identifier: Apache-2.0 */
/* Holds the engine's results against another library's: part of the door of core/. Around
 * the engine's call the caller lets that library reduce the same input; the device
 * compares (kernels/verify.h), and a difference fails the engine on all ranks (-EBADMSG).
 * Never waits on the host. Errors and threads as in core/engine.h. */
#ifndef IPS_CORE_VERIFY_H
#define IPS_CORE_VERIFY_H

#include "core/engine.h"

/* Of a larger call a part of this size is compared, in turn. */
#define IPS_VERIFY_PART_BYTES ((uint64_t)4 << 20)

/* What the other library is to do on the call's stream before the engine's launch. The
 * same on all ranks, but for the addresses. */
struct ips_verify_plan {
    uint64_t first, count; /* elements of the call: the part that is compared */
    void *expected;        /* they are to be reduced from the call's input into this */
    void *weights; /* `count` elements, to be summed over the ranks in place; or NULL */
    enum ips_type weights_type;
};

/* Enqueues what comes before that, in issue order. For calls that are not captured, with
 * at least one element, on an engine that was brought up with `verify`. */
int ips_engine_verify_begin(struct ips_engine *engine, const struct ips_allreduce *call,
                            struct ips_verify_plan *ret_plan);

/* After the engine's launch: compares. */
int ips_engine_verify_end(struct ips_engine *engine, const struct ips_allreduce *call,
                          const struct ips_verify_plan *plan);

#endif
