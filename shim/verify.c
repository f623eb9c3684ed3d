/* SPDX-License-Identifier: Apache-2.0 */
/* Lets NCCL make the same AllReduce into the engine's scratch memory, before the engine's
 * launch, which may destroy the input. NCCL's calls are in the communicator's issue
 * order, between those of the engine before and after, and show in no trace.
 *
 * Every rank must come to the same decision, or NCCL's call waits for ever: it rests on
 * what was agreed, and on a count of calls. Calls in a group can't be verified, since
 * NCCL would hold its part back to the group's end; those that are captured, since a
 * graph must not get nodes that the program did not ask for; those of a non-blocking
 * communicator, since NCCL may enqueue its part after the engine's. */
#include "shim/verify.h"

#include "shim/errors.h"
#include "shim/group.h"
#include "shim/real.h"

uint64_t ips_verify_due(struct ips_comm *comm, const struct ips_allreduce *call)
{
    const uint64_t every = comm->settings.verify;
    if (!every || !call->count || !ips_engine_verifies(comm->engine) ||
        ips_group_depth() > 0 || ips_stream_captured(call->stream))
        return 0;
    const uint64_t counted = __atomic_add_fetch(&comm->counted, 1, __ATOMIC_RELAXED);
    return counted % every ? 0 : counted / every;
}

static ncclResult_t nccl(const struct ips_taken *taken, const void *in, void *out,
                         uint64_t count, enum ips_type type, enum ips_op op)
{
    __typeof__(&ncclAllReduce) real =
        (__typeof__(&ncclAllReduce))ips_real(IPS_SLOT_ncclAllReduce, NULL);
    ncclResult_t result;
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclAllReduce);
    IPS_CALL(result, real(in, out, count, (ncclDataType_t)type, (ncclRedOp_t)op,
                          taken->comm->handle, taken->call.stream));
    return result;
}

ncclResult_t ips_verify_begin(const struct ips_taken *taken,
                              struct ips_verify_plan *ret_plan)
{
    const struct ips_allreduce *call = &taken->call;
    struct ips_engine *engine = taken->comm->engine;
    int error = ips_engine_verify_begin(engine, call, taken->verify, ret_plan);
    if (error)
        return ips_engine_result(error, ips_engine_error(engine));
    const char *in =
        (const char *)call->in + ret_plan->first * ips_type_bytes(call->type);
    ncclResult_t result =
        nccl(taken, in, ret_plan->expected, ret_plan->count, call->type, call->op);
    if (!result && ret_plan->weights &&
        !ips_engine_error(engine)) /* else it may be gone */
        result = nccl(taken, ret_plan->weights, ret_plan->weights, ret_plan->count,
                      ret_plan->weights_type, IPS_SUM);
    if (result)
        ips_engine_verify_broken(engine);
    return result;
}

ncclResult_t ips_verify_end(const struct ips_taken *taken,
                            const struct ips_verify_plan *plan, ncclResult_t launched)
{
    struct ips_engine *engine = taken->comm->engine;
    if (launched) {
        ips_engine_verify_broken(engine);
        return launched;
    }
    int error = ips_engine_verify_end(engine, &taken->call, plan);
    return error ? ips_engine_result(error, ips_engine_error(engine)) : ncclSuccess;
}
