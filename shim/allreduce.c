/* SPDX-License-Identifier: Apache-2.0 */
/* AllReduce, in the order it happens: look the communicator up, decide, launch or
 * forward, trace. The decision rests only on what all ranks know alike. */
#include "shim/allreduce.h"

#include <errno.h>

#include "shim/errors.h"
#include "shim/forwarded.h"
#include "shim/group.h"
#include "shim/nccl_api.h"
#include "shim/process.h"
#include "shim/settle.h"
#include "shim/verify.h"

/* A pointer that is not aligned to its element is taken like any other: it is a property
 * of one rank, NCCL needs the alignment as well. */
static struct ips_decision decide(const struct ips_comm *comm,
                                  const struct ips_request *request)
{
    struct ips_decision nccl = {.route = IPS_ROUTE_NCCL};
    if (!ips_comm_engine(comm)) {
        nccl.reason = ips_comm_reason(comm);
        return nccl;
    }
    if (request->count && (!request->in || !request->out)) {
        nccl.reason = "NULL buffer";
        return nccl;
    }
    return ips_policy_decide(&comm->plan, request->count, request->type, request->op);
}

static void trace(const struct ips_taken *taken, int captured, ncclResult_t result)
{
    struct ips_event event = {
        .time_ns = taken->time_ns,
        .kind = IPS_EVENT_CALL,
        .call = (uint16_t)taken->name,
        .count = taken->call.count,
        .bytes = taken->bytes,
        .type = taken->call.type,
        .op = taken->call.op,
        .stream = taken->call.stream,
        .captured = (int8_t)captured,
        .comm = taken->comm->number,
        .rank = taken->comm->rank,
        .route = IPS_ROUTE_ENGINE,
        .variant = (uint8_t)taken->call.variant,
        .channels = (uint8_t)taken->call.channels,
        .reason = taken->reason,
        .result = result,
    };
    ips_trace_add(&event);
}

static ncclResult_t launch(const struct ips_taken *taken, int *ret_captured)
{
    struct ips_engine *engine = taken->comm->engine;
    int error = ips_engine_allreduce(engine, &taken->call, ret_captured);
    return error ? ips_engine_result(error, ips_engine_error(engine)) : ncclSuccess;
}

ncclResult_t ips_taken_launch(const struct ips_taken *taken)
{
    struct ips_verify_plan plan;
    int captured = 0;
    ncclResult_t result = taken->verify ? ips_verify_begin(taken, &plan) : ncclSuccess;
    if (!result) {
        result = launch(taken, &captured);
        if (taken->verify)
            result = ips_verify_end(taken, &plan, result);
    }
    if (!ips_trace_on())
        return result;
    trace(taken, captured, result);
    return result;
}

static ncclResult_t take(const struct ips_taken *taken)
{
    if (ips_group_depth() == 0)
        return ips_taken_launch(taken);
    ncclResult_t result = ips_result_of(ips_group_add_taken(taken));
    ips_group_failed(result);
    return result;
}

/* What the plan says, as far as the engine goes. */
static unsigned channels_of(const struct ips_comm *comm, const struct ips_decision *decision)
{
    const unsigned most = ips_engine_channels(comm->engine);
    return decision->channels < most ? decision->channels : most;
}

int ips_allreduce_take(const struct ips_request *request, int *ret_result,
                       const char **ret_reason)
{
    struct ips_comm *comm = ips_comm_ready(request->comm);
    struct ips_decision decision = decide(comm, request);
    *ret_reason = decision.reason;
    if (decision.route == IPS_ROUTE_ENGINE) {
        struct ips_taken taken = {
            .comm = comm,
            .name = request->name,
            .call = {.in = request->in,
                     .out = request->out,
                     .count = request->count,
                     .type = (enum ips_type)request->type,
                     .op = (enum ips_op)request->op,
                     .variant = decision.variant,
                     .channels = channels_of(comm, &decision),
                     .threads = decision.threads,
                     .stream = request->stream},
            .bytes = request->count * ips_type_bytes(request->type),
            .time_ns = ips_trace_on() ? ips_trace_now() : 0,
            .reason = decision.reason,
        };
        taken.verify = ips_verify_due(comm, &taken.call);
        *ret_result = (int)take(&taken);
    }
    ips_comm_put(comm);
    return decision.route == IPS_ROUTE_ENGINE;
}

IPS_EXPORT ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                      ncclDataType_t datatype, ncclRedOp_t op,
                                      ncclComm_t comm, cudaStream_t stream)
{
    __typeof__(&ncclAllReduce) real = IPS_REAL(ncclAllReduce);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclAllReduce);
    if (ips_pass())
        return real(sendbuff, recvbuff, count, datatype, op, comm, stream);
    const struct ips_request request = {
        sendbuff, recvbuff, count,  (int)datatype,
        (int)op,  comm,     stream, IPS_SLOT_ncclAllReduce};
    const char *reason;
    int result;
    if (ips_allreduce_take(&request, &result, &reason))
        return (ncclResult_t)result;
    IPS_FORWARD_TRACED(ncclResult_t, ncclAllReduce,
                       (sendbuff, recvbuff, count, datatype, op, comm, stream), count,
                       datatype, op, reason);
}
