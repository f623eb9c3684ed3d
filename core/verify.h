/* SPDX-License-Identifier: Apache-2.0 */
/* Holds the engine's results against another library's: part of the door of core/. Around
 * the engine's call the caller lets that library reduce the same input; the device
 * compares (kernels/verify.h), and a difference fails the engine on all ranks (-EBADMSG).
 * Never waits on the host, though that library may, when it first connects. Errors and
 * threads as in core/engine.h. */
#ifndef IPS_CORE_VERIFY_H
#define IPS_CORE_VERIFY_H

#include "core/engine.h"

/* Of a larger call a part of this size is compared, in no regular order. */
#define IPS_VERIFY_PART_BYTES ((uint64_t)4 << 20)

/* What the other library is to do on the call's stream before the engine's launch. The
 * same on all ranks, but for the addresses. */
struct ips_verify_plan {
    uint64_t first, count; /* elements of the call: the part that is compared */
    void *expected;        /* they are to be reduced from the call's input into this */
    void *weights; /* `count` elements, to be summed over the ranks in place; or NULL */
    enum ips_type weights_type;
};

/* Whether calls can be verified: all ranks have agreed on it. */
int ips_engine_verifies(const struct ips_engine *engine);

/* Enqueues what comes before that, in issue order. For calls that are not captured, with
 * at least one element, on an engine that verifies. number: of the verified call, alike
 * on all ranks. */
int ips_engine_verify_begin(struct ips_engine *engine, const struct ips_allreduce *call,
                            uint64_t number, struct ips_verify_plan *ret_plan);

/* After the engine's launch: compares. */
int ips_engine_verify_end(struct ips_engine *engine, const struct ips_allreduce *call,
                          const struct ips_verify_plan *plan);

/* Instead of the end: the launch, or the other library's part, was refused after the
 * begin. Work may be enqueued that peers wait in, or that uses the memory: fails the
 * engine. */
void ips_engine_verify_broken(struct ips_engine *engine);

#endif
