/* SPDX-License-Identifier: Apache-2.0 */
/* Enqueues the two kernels that verify a call, and reads what they found. Their memory is
 * allocated before the ranks vote: a rank without it would leave the others waiting in
 * the other library's call. It is in nobody's way between two verified calls, since the
 * order of a communicator's calls includes the comparison. */
#include "core/verify.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/engine_private.h"
#include "core/log.h"
#include "kernels/names.h"

#define GOLDEN 0x9e3779b97f4a7c15ull /* of 2^64: its multiples fall evenly, at any stride */
#define MOST_BLOCKS 16
#define THREADS 128
#define BLOCK_ELEMENTS 1024
/* Weights take 4 bytes for elements of 2: see kernels/verify.h. */
#define WEIGHTS_BYTES (2 * IPS_VERIFY_PART_BYTES)

int ips_verify_alloc(struct ips_engine *engine)
{
    return IPS_GPU(engine->device->gpu,
                   cuMemAlloc(&engine->verify, IPS_VERIFY_PART_BYTES + WEIGHTS_BYTES));
}

void ips_verify_free(struct ips_engine *engine)
{
    if (engine->verify)
        ips_log(IPS_LOG_INFO, "rank %d: IPCSHIM_VERIFY has compared %llu calls",
                engine->segment.rank, (unsigned long long)engine->verified);
    if (engine->verify)
        IPS_GPU_AT(IPS_LOG_INFO, engine->device->gpu, cuMemFree(engine->verify));
    engine->verify = 0;
}

static int has_weights(const struct ips_allreduce *call)
{
    return call->type >= IPS_FLOAT16 && call->op != IPS_MAX && call->op != IPS_MIN;
}

/* Programs repeat their calls, so that parts in turn could leave some out for ever. At most
 * 2^32 parts: a call has fewer than 2^54 bytes. */
static void make_plan(struct ips_engine *engine, const struct ips_allreduce *call,
                      uint64_t number, struct ips_verify_plan *ret_plan)
{
    const uint64_t most = IPS_VERIFY_PART_BYTES / ips_element_bytes(call->type);
    const uint64_t parts = (call->count + most - 1) / most;
    const uint64_t first = ((number * GOLDEN >> 32) * parts >> 32) * most;
    const gpu_ptr weights = engine->verify + IPS_VERIFY_PART_BYTES;
    *ret_plan = (struct ips_verify_plan){
        .first = first,
        .count = call->count - first < most ? call->count - first : most,
        .expected = (void *)(uintptr_t)engine->verify,
        .weights = has_weights(call) ? (void *)(uintptr_t)weights : NULL,
        .weights_type = call->type == IPS_FLOAT64 ? IPS_FLOAT64 : IPS_FLOAT32,
    };
}

static int launch(struct ips_engine *engine, gpu_function kernel, const void *data,
                  const struct ips_allreduce *call, const struct ips_verify_plan *plan)
{
    const unsigned element = ips_element_bytes(call->type);
    const uint64_t blocks = (plan->count + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS;
    struct ips_verify_args args = {
        .data = (const char *)data + plan->first * element,
        .expected = plan->expected,
        .weights = plan->weights,
        .count = plan->count,
        .first = plan->first,
        .message = call->count,
        .head = (struct ips_head *)(uintptr_t)engine->slab.head,
        .control = (struct ips_control *)(uintptr_t)engine->slab.control_device,
        .type = call->type,
        .op = call->op,
        .variant = call->variant,
        .channels = call->channels,
        .element = element,
        .nranks = (uint32_t)engine->segment.nranks,
    };
    void *parameters[] = {&args};
    return IPS_GPU(
        engine->device->gpu,
        cuLaunchKernel(kernel, blocks < MOST_BLOCKS ? (unsigned)blocks : MOST_BLOCKS, 1,
                       1, THREADS, 1, 1, 0, call->stream, parameters, NULL));
}

int ips_engine_verifies(const struct ips_engine *engine)
{
    return engine->verify != 0;
}

void ips_engine_verify_broken(struct ips_engine *engine)
{
    ips_engine_fail(engine, -EIO, "a call failed amid its verification");
}

int ips_engine_verify_begin(struct ips_engine *engine, const struct ips_allreduce *call,
                            uint64_t number, struct ips_verify_plan *ret_plan)
{
    const struct ips_gpu_api *gpu = engine->device->gpu;
    int pushed = 0, captured = 0;
    if (ips_engine_error(engine))
        return -EIO;
    if (!engine->verify || !call->count || !ips_element_bytes(call->type))
        return -EINVAL;
    if (ips_gpu_enter(gpu, engine->device->context, &pushed))
        return -EIO;
    make_plan(engine, call, number, ret_plan);
    int error = ips_order_begin(&engine->order, gpu, call->stream, &captured);
    if (!error && ret_plan->weights)
        error = launch(engine, engine->device->weigh, call->in, call, ret_plan);
    ips_gpu_leave(gpu, pushed);
    return error ? -EINVAL : 0;
}

int ips_engine_verify_end(struct ips_engine *engine, const struct ips_allreduce *call,
                          const struct ips_verify_plan *plan)
{
    const struct ips_gpu_api *gpu = engine->device->gpu;
    int pushed = 0;
    if (ips_gpu_enter(gpu, engine->device->context, &pushed))
        return -EIO;
    int error = launch(engine, engine->device->compare, call->out, call, plan);
    if (!error)
        error = ips_order_end(&engine->order, gpu, call->stream, 0);
    engine->verified++;
    ips_gpu_leave(gpu, pushed);
    if (error)
        return ips_engine_fail(engine, -EIO, "a driver call failed after a launch");
    return 0;
}

static double float16_number(uint32_t bits)
{
    const double sign = bits & 0x8000 ? -1 : 1;
    const uint32_t exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
    if (exponent == 0x1f)
        return mantissa ? __builtin_nan("") : sign * __builtin_inf();
    if (!exponent)
        return sign * mantissa * 0x1p-24;
    return sign * (1024 + mantissa) * (double)(1u << exponent) * 0x1p-25;
}

static double float32_number(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* The element as a number, and its bits. */
static void format(uint64_t bits, unsigned type, char *ret, size_t room)
{
    double number;
    const unsigned shift = 64 - 8 * ips_element_bytes((int)type);
    if (type < IPS_FLOAT16 && type % 2 == 0) { /* the signed ones */
        snprintf(ret, room, "%lld", (long long)((int64_t)(bits << shift) >> shift));
        return;
    }
    if (type < IPS_FLOAT16) {
        snprintf(ret, room, "%llu", (unsigned long long)bits);
        return;
    }
    memcpy(&number, &bits, sizeof number);
    if (type == IPS_FLOAT16)
        number = float16_number((uint32_t)bits);
    else if (type == IPS_BFLOAT16)
        number = float32_number((uint32_t)bits << 16);
    else if (type == IPS_FLOAT32)
        number = float32_number((uint32_t)bits);
    snprintf(ret, room, "%.9g (0x%llx)", number, (unsigned long long)bits);
}

int ips_verify_failed(struct ips_engine *engine)
{
    struct ips_wrong wrong;
    char reason[IPS_REASON_BYTES], got[64], expected[64];
    const struct ips_wrong *at = &engine->slab.control->wrong;
    if (!__atomic_load_n(&at->there, __ATOMIC_ACQUIRE))
        return 0;
    memcpy(&wrong, at, sizeof wrong);
    const char *type = ips_type_name(wrong.call.type), *op = ips_op_name(wrong.call.op);
    const char *variant = ips_variant_name(wrong.call.variant);
    if (!type || !op || !variant)
        return 0; /* the engine never wrote that */
    format(wrong.got, wrong.call.type, got, sizeof got);
    format(wrong.expected, wrong.call.type, expected, sizeof expected);
    snprintf(
        reason, sizeof reason,
        "verification: on rank %d element %llu of call %u (%s %s of %llu, %s) is %s, "
        "NCCL's result is %s",
        engine->segment.rank, (unsigned long long)wrong.element, wrong.call.number, type,
        op, (unsigned long long)wrong.call.count, variant, got, expected);
    ips_engine_fail(engine, -EBADMSG, reason);
    return 1;
}
