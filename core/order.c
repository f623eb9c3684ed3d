/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a communicator's calls in issue order.
 *
 * Eager calls record the event and wait for it when the stream changed. A capture begins
 * with one external wait, so that a replay comes after what was issued before it; after each
 * captured call a record node hangs off the stream's frontier without joining it, so that
 * the user's later kernels do not wait for it, and later eager calls wait for the replay. */
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

static int begin_captured(struct ips_order *order, const struct ips_gpu_api *gpu,
                          gpu_stream stream, uint64_t id)
{
    order->captured = 1;
    if (order->capture != id) {
        order->capture = id;
        order->capture_stream = stream;
        order->capture_node = NULL;
        return IPS_GPU(gpu, cuStreamWaitEvent(stream, order->event, GPU_EVENT_EXTERNAL));
    }
    if (!order->capture_node || order->capture_stream == stream)
        return GPU_SUCCESS;
    return IPS_GPU(gpu, cuStreamUpdateCaptureDependencies(stream, &order->capture_node, 1,
                                                          GPU_ADD_CAPTURE_DEPENDENCIES));
}

int ips_order_begin(struct ips_order *order, const struct ips_gpu_api *gpu, gpu_stream stream,
                    int *ret_captured)
{
    int status = GPU_CAPTURE_NONE;
    uint64_t id = 0;
    int error = IPS_GPU(gpu, cuStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL));
    if (error)
        return error;
    *ret_captured = status != GPU_CAPTURE_NONE;
    if (*ret_captured)
        return begin_captured(order, gpu, stream, id);
    if ((order->used && order->stream != stream) || order->captured)
        return IPS_GPU(gpu, cuStreamWaitEvent(stream, order->event, 0));
    return GPU_SUCCESS;
}

static int end_captured(struct ips_order *order, const struct ips_gpu_api *gpu,
                        gpu_stream stream)
{
    int status = GPU_CAPTURE_NONE;
    uint64_t id = 0;
    gpu_graph graph = NULL;
    const gpu_node *frontier = NULL;
    size_t count = 0;
    int error = IPS_GPU(
        gpu, cuStreamGetCaptureInfo(stream, &status, &id, &graph, &frontier, &count));
    if (!error)
        error = IPS_GPU(gpu, cuGraphAddEventRecordNode(&order->capture_node, graph, frontier,
                                                       count, order->event));
    order->capture_stream = stream;
    return error;
}

int ips_order_end(struct ips_order *order, const struct ips_gpu_api *gpu, gpu_stream stream,
                  int captured)
{
    if (captured)
        return end_captured(order, gpu, stream);
    order->used = 1;
    order->stream = stream;
    return IPS_GPU(gpu, cuEventRecord(order->event, stream));
}
