/* SPDX-License-Identifier: Apache-2.0 */
/* Stream capture: which streams are in it, what each one's next operation depends on, and
 * the calls that CUDA refuses meanwhile. A refused call invalidates the capture. */
#include "tools/simgpu/sim.h"

#include <stdlib.h>
#include <string.h>

enum mode { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };

static struct sim_capture *captures;
static uint64_t ids;
static __thread int thread_mode;

int sim_nodes_set(struct sim_nodes *nodes, const gpu_node *item, size_t count)
{
    gpu_node *copy = malloc((count + 1) * sizeof *copy);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (count)
        memcpy(copy, item, count * sizeof *copy);
    free(nodes->item);
    nodes->item = copy;
    nodes->count = count;
    return CUDA_SUCCESS;
}

int sim_nodes_join(struct sim_nodes *nodes, const gpu_node *item, size_t count)
{
    gpu_node *grown = realloc(nodes->item, (nodes->count + count + 1) * sizeof *grown);
    if (!grown)
        return CUDA_ERROR_OUT_OF_MEMORY;
    nodes->item = grown;
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (at < nodes->count && nodes->item[at] != item[i])
            at++;
        if (at == nodes->count)
            nodes->item[nodes->count++] = item[i];
    }
    return CUDA_SUCCESS;
}

struct sim_capture *sim_capture_find(uint64_t id)
{
    for (struct sim_capture *c = captures; c; c = c->next)
        if (c->id == id)
            return c;
    return NULL;
}

int sim_unsafe_locked(void)
{
    int error = CUDA_SUCCESS;
    if (thread_mode == MODE_RELAXED)
        return CUDA_SUCCESS;
    for (struct sim_capture *c = captures; c; c = c->next) {
        int mine = pthread_equal(c->thread, pthread_self());
        if (mine ? c->mode != MODE_RELAXED
                 : c->mode == MODE_GLOBAL && thread_mode == MODE_GLOBAL) {
            c->invalid = 1;
            error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return error;
}

int sim_unsafe(void)
{
    pthread_mutex_lock(&sim_lock);
    int error = sim_unsafe_locked();
    pthread_mutex_unlock(&sim_lock);
    return error;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    SIM_ENTER();
    if (!mode || *mode < MODE_GLOBAL || *mode > MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

int sim_capture_add(struct CUstream_st *stream, struct sim_work *work)
{
    if (stream->capture->invalid) {
        sim_work_drop(work);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    gpu_node node = sim_graph_add(stream->capture->graph, stream->frontier.item,
                                  stream->frontier.count, work);
    return node ? sim_nodes_set(&stream->frontier, &node, 1) : CUDA_ERROR_OUT_OF_MEMORY;
}

static int invalidate(struct sim_capture *capture, int error)
{
    if (capture)
        capture->invalid = 1;
    return error;
}

int sim_capture_refuse(struct CUstream_st *stream)
{
    return invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

/* A wait for an event of a capture: joins the stream's dependencies, or the stream joins.
 */
static int join(struct CUstream_st *stream, const struct CUevent_st *event)
{
    struct sim_capture *capture = sim_capture_find(event->capture_id);
    if (!capture)
        return invalidate(stream->capture, CUDA_ERROR_INVALID_VALUE); /* it has ended */
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream == stream->context->legacy)
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (stream->capture && stream->capture != capture) {
        stream->capture->invalid = 1;
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    if (!stream->capture)
        stream->frontier.count = 0;
    stream->capture = capture;
    return sim_nodes_join(&stream->frontier, event->captured.item, event->captured.count);
}

int sim_capture_wait(struct CUstream_st *stream, struct CUevent_st *event, int external)
{
    if (stream->capture && stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (external) {
        if (!stream->capture)
            return CUDA_ERROR_ILLEGAL_STATE;
        struct sim_work work = {.kind = SIM_WAIT, .event = sim_event_ref(event)};
        return sim_capture_add(stream, &work);
    }
    if (event->capture_id)
        return join(stream, event);
    if (!event->marker) /* never recorded */
        return CUDA_SUCCESS;
    return invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
}

static struct sim_capture *capture_create(struct CUstream_st *stream, int mode)
{
    struct sim_capture *capture = calloc(1, sizeof *capture);
    if (!capture)
        abort();
    capture->id = ++ids;
    capture->mode = mode;
    capture->thread = pthread_self();
    capture->origin = stream;
    capture->graph = sim_graph_create();
    capture->next = captures;
    captures = capture;
    return capture;
}

/* The graph now belongs to the caller. */
static struct CUgraph_st *capture_end(struct sim_capture *capture)
{
    struct CUgraph_st *graph = capture->graph;
    struct sim_capture **link = &captures;
    for (struct CUstream_st *s = sim_streams; s; s = s->next) {
        if (s->capture == capture) {
            s->capture = NULL;
            s->frontier.count = 0;
        }
    }
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    free(capture);
    return graph;
}

void sim_capture_forget(struct CUstream_st *stream)
{
    if (!stream->capture)
        return;
    if (stream->capture->origin == stream) {
        sim_graph_destroy(capture_end(stream->capture));
    } else {
        stream->capture->invalid = 1;
        stream->capture = NULL;
    }
}

int cuStreamBeginCapture_v2(gpu_stream handle, int mode)
{
    int error;
    SIM_ENTER();
    if (mode < MODE_GLOBAL || mode > MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    struct CUstream_st *stream = sim_stream_find_locked(handle, &error);
    if (stream && stream == stream->context->legacy)
        error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    else if (stream && stream->capture)
        error = CUDA_ERROR_ILLEGAL_STATE;
    if (!error) {
        stream->capture = capture_create(stream, mode);
        error = sim_nodes_set(&stream->frontier, NULL, 0);
    }
    pthread_mutex_unlock(&sim_lock);
    return error;
}

/* Whether all forked streams' work flows into the origin. */
static int joined(const struct sim_capture *capture)
{
    for (struct CUstream_st *s = sim_streams; s; s = s->next)
        if (s->capture == capture && s != capture->origin &&
            !sim_graph_reaches(capture->graph, &capture->origin->frontier, &s->frontier))
            return 0;
    return 1;
}

int cuStreamEndCapture(gpu_stream handle, gpu_graph *graph)
{
    int error;
    SIM_ENTER();
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = NULL;
    pthread_mutex_lock(&sim_lock);
    struct CUstream_st *stream = sim_stream_find_locked(handle, &error);
    struct sim_capture *capture = stream ? stream->capture : NULL;
    if (stream && !capture)
        error = CUDA_ERROR_ILLEGAL_STATE;
    else if (stream && capture->origin != stream)
        error = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    else if (stream && capture->mode != MODE_RELAXED &&
             !pthread_equal(capture->thread, pthread_self()))
        error = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    if (!error) {
        if (capture->invalid)
            error = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        else if (!joined(capture))
            error = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        struct CUgraph_st *made = capture_end(capture);
        if (error)
            sim_graph_destroy(made);
        else
            *graph = made;
    }
    pthread_mutex_unlock(&sim_lock);
    return error;
}

static int status_of(const struct CUstream_st *stream)
{
    if (!stream->capture)
        return GPU_CAPTURE_NONE;
    return stream->capture->invalid ? GPU_CAPTURE_INVALIDATED : GPU_CAPTURE_ACTIVE;
}

int cuStreamIsCapturing(gpu_stream handle, int *status)
{
    int error;
    SIM_ENTER();
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    struct CUstream_st *stream = sim_stream_find_locked(handle, &error);
    if (stream)
        error = sim_implicit_locked(stream, 0);
    if (!error)
        *status = status_of(stream);
    pthread_mutex_unlock(&sim_lock);
    return error;
}

int cuStreamGetCaptureInfo_v2(gpu_stream handle, int *status, uint64_t *id,
                              gpu_graph *graph, const gpu_node **dependencies,
                              size_t *count)
{
    int error;
    SIM_ENTER();
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    struct CUstream_st *stream = sim_stream_find_locked(handle, &error);
    if (stream)
        error = sim_implicit_locked(stream, 0);
    if (!error) {
        *status = status_of(stream);
        if (*status == GPU_CAPTURE_ACTIVE) {
            if (id)
                *id = stream->capture->id;
            if (graph)
                *graph = stream->capture->graph;
            if (dependencies)
                *dependencies = stream->frontier.item;
            if (count)
                *count = stream->frontier.count;
        }
    }
    pthread_mutex_unlock(&sim_lock);
    return error;
}

/* Nodes that leave a stream's dependencies this way need not be joined at the end. */
int cuStreamUpdateCaptureDependencies(gpu_stream handle, gpu_node *dependencies,
                                      size_t count, unsigned flags)
{
    int error;
    SIM_ENTER();
    if (flags > 1 || (count && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    struct CUstream_st *stream = sim_stream_find_locked(handle, &error);
    if (stream && !stream->capture)
        error = CUDA_ERROR_ILLEGAL_STATE;
    else if (stream && stream->capture->invalid)
        error = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!error && flags == GPU_ADD_CAPTURE_DEPENDENCIES)
        error = sim_nodes_join(&stream->frontier, dependencies, count);
    else if (!error)
        error = sim_nodes_set(&stream->frontier, dependencies, count);
    pthread_mutex_unlock(&sim_lock);
    return error;
}
