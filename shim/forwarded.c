/* SPDX-License-Identifier: Apache-2.0 */
/* Order and trace around forwarded calls. At group depth 0 the engine is told before and
 * after the call; in a group NCCL enqueues nothing before the outermost end, so the group
 * tells it then. */
#include "shim/forwarded.h"

#include <errno.h>

#include "shim/errors.h"
#include "shim/group.h"
#include "shim/settle.h"

static int keep_order(struct ips_forwarded *forwarded)
{
    if (!forwarded->engine)
        return 0;
    if (ips_group_depth() > 0)
        return ips_group_add_forwarded(forwarded->comm, forwarded->stream);
    return ips_engine_forward_begin(forwarded->engine, forwarded->stream);
}

/* For the trace: 1, 0, or -1 where there is no usable driver, which is asked for once. */
static int is_captured(gpu_stream stream)
{
    static int no_driver;
    if (__atomic_load_n(&no_driver, __ATOMIC_RELAXED))
        return -1;
    if (ips_gpu())
        return ips_stream_captured(stream);
    __atomic_store_n(&no_driver, 1, __ATOMIC_RELAXED);
    return -1;
}

int ips_forwarded_begin(struct ips_forwarded *forwarded, void *handle, void *stream)
{
    *forwarded = (struct ips_forwarded){
        .comm = ips_comm_ready(handle),
        .stream = stream,
        .captured = -1,
    };
    forwarded->engine = ips_comm_engine(forwarded->comm);
    if (ips_trace_on())
        forwarded->time_ns = ips_trace_now();
    if (ips_trace_file_on() && forwarded->comm)
        forwarded->captured = is_captured(stream);
    int error = keep_order(forwarded);
    if (!error)
        return ncclSuccess;
    ncclResult_t result = ips_engine_result(error, ips_engine_error(forwarded->engine));
    ips_group_failed(result);
    ips_comm_put(forwarded->comm);
    return (int)result;
}

/* NCCL counts elements of the type given, whatever the call: for a gathering or
 * scattering call these are the elements of one rank's part (its count, sendcount or
 * recvcount). */
static uint64_t bytes_of(uint64_t count, int type)
{
    if (type == IPS_TRACE_NO_TYPE)
        return 0;
    uint64_t size = ips_trace_type_bytes(type);
    return size && count <= (UINT64_MAX - 1) / size ? count * size : IPS_TRACE_UNKNOWN;
}

static void trace(const struct ips_forwarded *forwarded, int result, enum ips_slot call,
                  uint64_t count, int type, int op, const char *reason)
{
    const struct ips_comm *comm = forwarded->comm;
    if (!reason)
        reason = forwarded->engine ? "not an AllReduce" : ips_comm_reason(comm);
    struct ips_event event = {
        .time_ns = forwarded->time_ns,
        .kind = IPS_EVENT_CALL,
        .call = (uint16_t)call,
        .count = count,
        .bytes = bytes_of(count, type),
        .type = type,
        .op = op,
        .stream = forwarded->stream,
        .captured = (int8_t)forwarded->captured,
        .comm = comm ? comm->number : -1,
        .rank = comm ? comm->rank : -1,
        .route = IPS_ROUTE_NCCL,
        .reason = reason,
        .result = result,
    };
    ips_trace_add(&event);
}

int ips_forwarded_end(struct ips_forwarded *forwarded, int result, enum ips_slot call,
                      uint64_t count, int type, int op, const char *reason)
{
    struct ips_engine *engine = forwarded->engine;
    if (engine && ips_group_depth() == 0) {
        const struct ips_owed mark = {.stream = forwarded->stream};
        int error = result == ncclInProgress ? ips_settle_owe(forwarded->comm, &mark, 1)
                                             : ips_settle_pay(engine, &mark, 1);
        if (error && (!result || result == ncclInProgress))
            result = (int)ips_engine_result(error, ips_engine_error(engine));
    }
    if (result != ncclSuccess && result != ncclInProgress)
        ips_group_failed((ncclResult_t)result);
    if (ips_trace_on())
        trace(forwarded, result, call, count, type, op, reason);
    ips_comm_put(forwarded->comm);
    return result;
}
