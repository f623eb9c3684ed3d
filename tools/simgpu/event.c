/* SPDX-License-Identifier: Apache-2.0 */
/* Events. An event points to the marker of its last record, or to a capture's nodes. */
#include "tools/simgpu/sim.h"

#include <stdlib.h>

static struct CUevent_st *events;

struct CUevent_st *sim_event_find_locked(gpu_event handle)
{
    for (struct CUevent_st *e = events; e; e = e->next)
        if (e == handle)
            return e;
    return NULL;
}

struct CUevent_st *sim_event_ref(struct CUevent_st *event)
{
    event->refs++;
    return event;
}

void sim_event_unref(struct CUevent_st *event)
{
    if (!event || --event->refs)
        return;
    sim_marker_unref(event->marker);
    free(event->captured.item);
    free(event);
}

int cuEventCreate(gpu_event *event, unsigned flags)
{
    SIM_ENTER();
    struct CUctx_st *context = sim_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!event || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUevent_st *e = calloc(1, sizeof *e);
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->refs = 1;
    e->flags = flags;
    e->context = context;
    pthread_mutex_lock(&sim_lock);
    e->next = events;
    events = e;
    pthread_mutex_unlock(&sim_lock);
    *event = e;
    return CUDA_SUCCESS;
}

int cuEventDestroy_v2(gpu_event handle)
{
    SIM_ENTER();
    pthread_mutex_lock(&sim_lock);
    struct CUevent_st *event = sim_event_find_locked(handle);
    if (event) {
        struct CUevent_st **link = &events;
        while (*link != event)
            link = &(*link)->next;
        *link = event->next;
        sim_event_unref(event);
    }
    pthread_mutex_unlock(&sim_lock);
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static int record_captured(struct CUevent_st *event, struct CUstream_st *stream,
                           int external)
{
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (external) {
        struct sim_work work = {.kind = SIM_RECORD, .event = sim_event_ref(event)};
        return sim_capture_add(stream, &work);
    }
    event->capture_id = stream->capture->id;
    return sim_nodes_set(&event->captured, stream->frontier.item, stream->frontier.count);
}

static int record(struct CUevent_st *event, struct CUstream_st *stream, int external)
{
    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture)
        return record_captured(event, stream, external);
    if (external)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct sim_marker *marker = sim_marker_create();
    struct sim_work work = {.kind = SIM_RECORD, .marker = sim_marker_ref(marker)};
    int error = sim_submit_locked(stream, &work);
    if (error) {
        sim_marker_unref(marker);
        return error;
    }
    sim_marker_unref(event->marker);
    event->marker = marker;
    event->capture_id = 0;
    return CUDA_SUCCESS;
}

static int record_locked(gpu_event handle, gpu_stream stream_handle, unsigned flags)
{
    int error;
    if (flags & ~(unsigned)GPU_EVENT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    struct CUevent_st *event = sim_event_find_locked(handle);
    struct CUstream_st *stream = sim_stream_find_locked(stream_handle, &error);
    if (!event)
        error = CUDA_ERROR_INVALID_HANDLE;
    if (!error)
        error = record(event, stream, flags != 0);
    pthread_mutex_unlock(&sim_lock);
    return error;
}

int cuEventRecord(gpu_event event, gpu_stream stream)
{
    SIM_ENTER();
    return record_locked(event, stream, 0);
}

int cuEventRecordWithFlags(gpu_event event, gpu_stream stream, unsigned flags)
{
    SIM_ENTER();
    return record_locked(event, stream, flags);
}

static int wait_event(struct CUstream_st *stream, struct CUevent_st *event, int external)
{
    if (stream->capture || event->capture_id)
        return sim_capture_wait(stream, event, external);
    if (external)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (!event->marker || event->marker->done)
        return CUDA_SUCCESS;
    struct sim_work work = {.kind = SIM_WAIT, .marker = sim_marker_ref(event->marker)};
    return sim_submit_locked(stream, &work);
}

int cuStreamWaitEvent(gpu_stream stream_handle, gpu_event handle, unsigned flags)
{
    int error;
    SIM_ENTER();
    if (flags & ~(unsigned)GPU_EVENT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    struct CUevent_st *event = sim_event_find_locked(handle);
    struct CUstream_st *stream = sim_stream_find_locked(stream_handle, &error);
    if (!event)
        error = CUDA_ERROR_INVALID_HANDLE;
    if (!error)
        error = wait_event(stream, event, flags != 0);
    pthread_mutex_unlock(&sim_lock);
    return error;
}

/* Checks common to query and synchronize; the event is NULL on an error. */
static struct CUevent_st *settle_locked(gpu_event handle, int *ret_error)
{
    struct CUevent_st *event = sim_event_find_locked(handle);
    *ret_error = event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    if (event && event->capture_id) {
        struct sim_capture *capture = sim_capture_find(event->capture_id);
        *ret_error = capture ? CUDA_ERROR_CAPTURED_EVENT : CUDA_ERROR_INVALID_VALUE;
        if (capture)
            capture->invalid = 1;
    }
    if (!*ret_error)
        *ret_error = sim_unsafe_locked();
    return *ret_error ? NULL : event;
}

int cuEventQuery(gpu_event handle)
{
    int error;
    SIM_ENTER();
    pthread_mutex_lock(&sim_lock);
    struct CUevent_st *event = settle_locked(handle, &error);
    if (event && event->marker && !event->marker->done)
        error = CUDA_ERROR_NOT_READY;
    pthread_mutex_unlock(&sim_lock);
    return error;
}

int cuEventSynchronize(gpu_event handle)
{
    int error;
    SIM_ENTER();
    pthread_mutex_lock(&sim_lock);
    struct CUevent_st *event = settle_locked(handle, &error);
    if (event && event->marker) {
        struct sim_marker *marker = sim_marker_ref(event->marker);
        while (!marker->done)
            pthread_cond_wait(&sim_done, &sim_lock);
        sim_marker_unref(marker);
    }
    pthread_mutex_unlock(&sim_lock);
    return error;
}

static int elapsed(float *milliseconds, gpu_event start_handle, gpu_event end_handle)
{
    int error = CUDA_SUCCESS;
    pthread_mutex_lock(&sim_lock);
    struct CUevent_st *start = sim_event_find_locked(start_handle);
    struct CUevent_st *end = sim_event_find_locked(end_handle);
    if (!milliseconds)
        error = CUDA_ERROR_INVALID_VALUE;
    else if (!start || !end || !start->marker || !end->marker ||
             ((start->flags | end->flags) & GPU_EVENT_DISABLE_TIMING))
        error = CUDA_ERROR_INVALID_HANDLE;
    else if (!start->marker->done || !end->marker->done)
        error = CUDA_ERROR_NOT_READY;
    else
        *milliseconds =
            (float)((double)(int64_t)(end->marker->time_ns - start->marker->time_ns) *
                    1e-6);
    pthread_mutex_unlock(&sim_lock);
    return error;
}

int cuEventElapsedTime(float *milliseconds, gpu_event start, gpu_event end)
{
    SIM_ENTER();
    return elapsed(milliseconds, start, end);
}

int cuEventElapsedTime_v2(float *milliseconds, gpu_event start, gpu_event end)
{
    SIM_ENTER();
    return elapsed(milliseconds, start, end);
}
