/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a communicator's calls in issue order.
 *
 * Eager calls wait for the event and record it, each time: that the stream's handle is
 * the one of the last call does not make it the same stream (the per-thread default
 * stream, or a handle used again). A capture begins with one external wait, so that a
 * replay comes after what was issued before it; a record node hangs off the stream's
 * frontier after the last captured call without joining it, so that the user's later
 * kernels do not wait for it, and later eager calls wait for the replay. Which call is the
 * last is not known, so the node moves on from call to call: one for each would part the
 * graph into branches, at up to a microsecond a call. */
#include "core/order.h"

#include "core/log.h"

int ips_order_init(struct ips_order *order, const struct ips_gpu_api *gpu)
{
    *order = (struct ips_order){0};
    return IPS_GPU(gpu, cuEventCreate(&order->event, GPU_EVENT_DISABLE_TIMING));
}

void ips_order_finish(struct ips_order *order, const struct ips_gpu_api *gpu)
{
    if (order->event)
        gpu->cuEventDestroy(order->event);
    order->event = NULL;
}

static struct ips_order_capture *find_capture(struct ips_order *order, uint64_t id)
{
    for (unsigned i = 0; i < IPS_ORDER_CAPTURES; i++)
        if (order->capture[i].id == id)
            return &order->capture[i];
    return NULL;
}

static int begin_captured(struct ips_order *order, const struct ips_gpu_api *gpu,
                          gpu_stream stream, uint64_t id)
{
    struct ips_order_capture *capture = find_capture(order, id);
    if (!capture) {
        capture = &order->capture[order->begun++ % IPS_ORDER_CAPTURES];
        *capture = (struct ips_order_capture){.id = id, .stream = stream};
        return IPS_GPU(gpu, cuStreamWaitEvent(stream, order->event, GPU_EVENT_EXTERNAL));
    }
    if (!capture->node || (capture->stream == stream && stream != GPU_STREAM_PER_THREAD))
        return GPU_SUCCESS;
    capture->kept = 1;
    return IPS_GPU(gpu, cuStreamUpdateCaptureDependencies(stream, &capture->node, 1,
                                                          GPU_ADD_CAPTURE_DEPENDENCIES));
}

int ips_order_begin(struct ips_order *order, const struct ips_gpu_api *gpu,
                    gpu_stream stream, int *ret_captured)
{
    int status = GPU_CAPTURE_NONE;
    uint64_t id = 0;
    int error =
        IPS_GPU(gpu, cuStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL));
    if (error)
        return error;
    *ret_captured = status != GPU_CAPTURE_NONE;
    if (*ret_captured)
        return begin_captured(order, gpu, stream, id);
    if (order->used)
        return IPS_GPU(gpu, cuStreamWaitEvent(stream, order->event, 0));
    return GPU_SUCCESS;
}

/* What is known of a stream that is captured: which capture, and its latest work. */
struct state {
    int status;
    uint64_t id;
    gpu_graph graph;
    const gpu_node *frontier;
    size_t count;
};

static int ask(const struct ips_gpu_api *gpu, gpu_stream stream, struct state *ret)
{
    *ret = (struct state){.status = GPU_CAPTURE_NONE};
    return IPS_GPU(gpu, cuStreamGetCaptureInfo(stream, &ret->status, &ret->id,
                                               &ret->graph, &ret->frontier, &ret->count));
}

/* The record node leaves the place after the call before, which is among what the frontier
 * comes after, for the one after the frontier. Meanwhile it hangs nowhere. */
static int move_node(struct ips_order_capture *capture, const struct ips_gpu_api *gpu,
                     const struct state *state)
{
    gpu_node to[IPS_ORDER_AFTER];
    for (unsigned i = 0; i < IPS_ORDER_AFTER; i++)
        to[i] = capture->node;
    int error = IPS_GPU(gpu, cuGraphRemoveDependencies(state->graph, capture->after, to,
                                                       capture->count));
    if (!error)
        error = IPS_GPU(gpu, cuGraphAddDependencies(state->graph, state->frontier, to,
                                                    state->count));
    return error;
}

static void note_place(struct ips_order_capture *capture, const struct state *state)
{
    capture->kept = 0;
    capture->count = 0;
    if (state->count > IPS_ORDER_AFTER)
        return;
    for (size_t i = 0; i < state->count; i++)
        capture->after[i] = state->frontier[i];
    capture->count = (unsigned)state->count;
}

static int is_among(const gpu_node *nodes, size_t count, gpu_node node)
{
    for (size_t i = 0; i < count; i++)
        if (nodes[i] == node)
            return 1;
    return 0;
}

/* Where it cannot move, a new record node comes after the frontier and after the one of the
 * call before: the last one to run is that of the last call. */
static int record_captured(struct ips_order *order, const struct ips_gpu_api *gpu,
                           gpu_stream stream, const struct state *state)
{
    enum { MOST = 64 };
    gpu_node after[MOST + 1];
    size_t count = state->count;
    struct ips_order_capture *capture = find_capture(order, state->id);
    if (state->status != GPU_CAPTURE_ACTIVE || count > MOST || !capture)
        return GPU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const int moves = capture->node && !capture->kept && capture->count && count &&
                      count <= IPS_ORDER_AFTER;
    int error;
    if (moves) {
        error = move_node(capture, gpu, state);
    } else {
        for (size_t i = 0; i < count; i++)
            after[i] = state->frontier[i];
        if (capture->node && !is_among(after, count, capture->node))
            after[count++] = capture->node;
        error = IPS_GPU(gpu, cuGraphAddEventRecordNode(&capture->node, state->graph, after,
                                                       count, order->event));
    }
    capture->stream = stream;
    note_place(capture, state);
    return error;
}

static int record(struct ips_order *order, const struct ips_gpu_api *gpu,
                  gpu_stream stream)
{
    return IPS_GPU(gpu, cuEventRecord(order->event, stream));
}

int ips_order_end(struct ips_order *order, const struct ips_gpu_api *gpu,
                  gpu_stream stream, int captured)
{
    struct state state;
    order->used = 1;
    if (!captured)
        return record(order, gpu, stream);
    int error = ask(gpu, stream, &state);
    return error ? error : record_captured(order, gpu, stream, &state);
}

int ips_order_end_forwarded(struct ips_order *order, const struct ips_gpu_api *gpu,
                            gpu_stream stream)
{
    struct state state;
    order->used = 1;
    int error = ask(gpu, stream, &state);
    if (error)
        return error;
    return state.status == GPU_CAPTURE_NONE ? record(order, gpu, stream)
                                            : record_captured(order, gpu, stream, &state);
}
