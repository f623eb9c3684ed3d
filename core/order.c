/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a communicator's calls in issue order.
 *
 * Eager calls wait for the event and record it, each time: that the stream's handle is
 * the one of the last call does not make it the same stream (the per-thread default
 * stream, or a handle used again). A capture begins with one external wait, so that a
 * replay comes after what was issued before it; after each captured call a record node
 * hangs off the stream's frontier without joining it, so that the user's later kernels do
 * not wait for it, and later eager calls wait for the replay. */
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

/* The record node comes after the frontier and after the record node of the call before:
 * the last one to run is that of the last call. */
static int record_captured(struct ips_order *order, const struct ips_gpu_api *gpu,
                           gpu_stream stream, const struct state *state)
{
    enum { MOST = 64 };
    gpu_node after[MOST + 1];
    size_t count = state->count;
    struct ips_order_capture *capture = find_capture(order, state->id);
    if (state->status != GPU_CAPTURE_ACTIVE || count > MOST || !capture)
        return GPU_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    for (size_t i = 0; i < count; i++)
        after[i] = state->frontier[i];
    if (capture->node)
        after[count++] = capture->node;
    capture->stream = stream;
    return IPS_GPU(gpu, cuGraphAddEventRecordNode(&capture->node, state->graph, after,
                                                  count, order->event));
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
