/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: a first-in-first-out queue each, worked off by one OS thread, which is started
 * at the first operation. */
#include "tools/simgpu/sim.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_op {
    struct sim_op *next;
    struct sim_work work;
};

struct CUstream_st *sim_streams;
static uint64_t serials;

struct sim_marker *sim_marker_create(void)
{
    struct sim_marker *marker = calloc(1, sizeof *marker);
    if (!marker)
        abort();
    marker->refs = 1;
    return marker;
}

struct sim_marker *sim_marker_ref(struct sim_marker *marker)
{
    marker->refs++;
    return marker;
}

void sim_marker_unref(struct sim_marker *marker)
{
    if (marker && --marker->refs == 0)
        free(marker);
}

void sim_work_drop(struct sim_work *work)
{
    free(work->staged);
    sim_marker_unref(work->marker);
    sim_event_unref(work->event);
    sim_list_unref(work->child);
}

static void execute(const struct sim_work *work, struct sim_lanes **lanes)
{
    switch (work->kind) {
    case SIM_KERNEL:
        if (!*lanes)
            *lanes = sim_lanes_create();
        sim_lanes_run(*lanes, work->kernel->fn, work->parameters, work->blocks,
                      work->threads);
        break;
    case SIM_COPY:
        if (simgpu_links)
            sim_links_copy(work->to, work->from, work->bytes);
        else
            memmove(work->to, work->from, work->bytes);
        break;
    case SIM_SET:
        if (simgpu_links)
            sim_links_set(work->to, work->value, work->bytes);
        else
            memset(work->to, work->value, work->bytes);
        break;
    case SIM_HOST:
        sim_in_host_function = 1;
        work->host(work->data);
        sim_in_host_function = 0;
        break;
    case SIM_RECORD:
    case SIM_WAIT:
    case SIM_CHILD: /* in graphs only */
        break;
    }
}

static void run_locked(const struct sim_work *work, struct sim_lanes **lanes)
{
    if (work->kind == SIM_WAIT) {
        while (!work->marker->done)
            pthread_cond_wait(&sim_done, &sim_lock);
    } else if (work->kind == SIM_RECORD) {
        work->marker->time_ns = sim_now_ns();
        work->marker->done = 1;
    } else {
        pthread_mutex_unlock(&sim_lock);
        execute(work, lanes);
        pthread_mutex_lock(&sim_lock);
    }
}

static void stream_free_locked(struct CUstream_st *stream)
{
    struct CUstream_st **link = &sim_streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    pthread_cond_destroy(&stream->wake);
    free(stream->frontier.item);
    free(stream);
}

static void *stream_main(void *argument)
{
    struct CUstream_st *stream = argument;
    struct sim_lanes *lanes = NULL;
    sim_device_here = stream->context->device;
    pthread_mutex_lock(&sim_lock);
    for (;;) {
        while (!stream->head && !stream->dying)
            pthread_cond_wait(&stream->wake, &sim_lock);
        struct sim_op *op = stream->head;
        if (!op)
            break;
        run_locked(&op->work, &lanes);
        sim_links_settle();
        stream->head = op->next;
        if (!stream->head)
            stream->tail = &stream->head;
        stream->completed++;
        sim_work_drop(&op->work);
        free(op);
        pthread_cond_broadcast(&sim_done);
    }
    stream_free_locked(stream);
    pthread_cond_broadcast(&sim_done);
    pthread_mutex_unlock(&sim_lock);
    sim_lanes_destroy(lanes);
    return NULL;
}

static void start(struct CUstream_st *stream)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all); /* the program's signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, stream_main, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        fprintf(stderr, "simgpu: no thread for a stream: %s\n", strerror(error));
        abort();
    }
    pthread_detach(thread);
    stream->started = 1;
}

void sim_stream_push_locked(struct CUstream_st *stream, const struct sim_work *work)
{
    struct sim_op *op = malloc(sizeof *op);
    if (!op)
        abort();
    op->next = NULL;
    op->work = *work;
    *stream->tail = op;
    stream->tail = &op->next;
    stream->submitted++;
    if (!stream->started)
        start(stream);
    pthread_cond_signal(&stream->wake);
}

static int busy(const struct CUstream_st *stream)
{
    return stream->completed < stream->submitted;
}

/* Makes what `later` gets from now on wait for what `earlier` has now. */
static void chain(struct CUstream_st *earlier, struct CUstream_st *later)
{
    struct sim_marker *marker = sim_marker_create();
    struct sim_work record = {.kind = SIM_RECORD, .marker = marker};
    struct sim_work wait = {.kind = SIM_WAIT, .marker = sim_marker_ref(marker)};
    sim_stream_push_locked(earlier, &record);
    sim_stream_push_locked(later, &wait);
}

void sim_stream_order_locked(struct CUstream_st *stream)
{
    struct CUstream_st *legacy = stream->context->legacy;
    if (stream != legacy) {
        if (stream->blocking && legacy && busy(legacy))
            chain(legacy, stream);
        return;
    }
    for (struct CUstream_st *s = sim_streams; s; s = s->next)
        if (s != legacy && s->blocking && s->context == stream->context && busy(s))
            chain(s, legacy);
}

int sim_implicit_locked(const struct CUstream_st *stream, int invalidate)
{
    int error = CUDA_SUCCESS;
    if (stream != stream->context->legacy)
        return CUDA_SUCCESS;
    for (struct CUstream_st *s = sim_streams; s; s = s->next) {
        if (s->blocking && s->context == stream->context && s->capture) {
            error = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            if (invalidate)
                s->capture->invalid = 1;
        }
    }
    return error;
}

int sim_submit_locked(struct CUstream_st *stream, struct sim_work *work)
{
    if (stream->capture)
        return sim_capture_add(stream, work);
    int error = sim_implicit_locked(stream, 1);
    if (error) {
        sim_work_drop(work);
        return error;
    }
    sim_stream_order_locked(stream);
    sim_stream_push_locked(stream, work);
    return CUDA_SUCCESS;
}

int sim_submit(gpu_stream handle, struct sim_work *work)
{
    int error;
    pthread_mutex_lock(&sim_lock);
    struct CUstream_st *stream = sim_stream_find_locked(handle, &error);
    if (stream)
        error = sim_submit_locked(stream, work);
    else
        sim_work_drop(work);
    pthread_mutex_unlock(&sim_lock);
    return error;
}

static int waiting(uint64_t serial, uint64_t target)
{
    for (struct CUstream_st *s = sim_streams; s; s = s->next)
        if (s->serial == serial)
            return s->completed < target;
    return 0;
}

void sim_stream_wait_locked(struct CUstream_st *stream)
{
    sim_stream_order_locked(stream);
    uint64_t serial = stream->serial, target = stream->submitted;
    while (waiting(serial, target))
        pthread_cond_wait(&sim_done, &sim_lock);
}

static struct CUstream_st *stream_create_locked(struct CUctx_st *context, int blocking)
{
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    if (!stream)
        abort();
    stream->context = context;
    stream->serial = ++serials;
    stream->blocking = blocking;
    stream->tail = &stream->head;
    pthread_cond_init(&stream->wake, NULL);
    stream->next = sim_streams;
    sim_streams = stream;
    return stream;
}

/* A thread's own default stream; it is kept when the thread ends. */
static struct CUstream_st *thread_stream(struct CUctx_st *context)
{
    for (struct CUstream_st *s = sim_streams; s; s = s->next)
        if (s->per_thread && s->context == context &&
            pthread_equal(s->owner, pthread_self()))
            return s;
    struct CUstream_st *stream = stream_create_locked(context, 1);
    stream->per_thread = 1;
    stream->owner = pthread_self();
    return stream;
}

struct CUstream_st *sim_stream_find_locked(gpu_stream handle, int *ret_error)
{
    uintptr_t value = (uintptr_t)handle;
    struct CUctx_st *context = sim_current();
    *ret_error = CUDA_SUCCESS;
    if (value <= 2 && !context) {
        *ret_error = CUDA_ERROR_INVALID_CONTEXT;
        return NULL;
    }
    if (value == 2)
        return thread_stream(context);
    if (value <= 1) {
        if (!context->legacy)
            context->legacy = stream_create_locked(context, 0);
        return context->legacy;
    }
    for (struct CUstream_st *s = sim_streams; s; s = s->next)
        if (s == handle && !s->dying)
            return s;
    *ret_error = CUDA_ERROR_INVALID_HANDLE;
    return NULL;
}

int cuStreamCreate(gpu_stream *stream, unsigned flags)
{
    SIM_ENTER();
    struct CUctx_st *context = sim_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!stream || flags > GPU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    *stream = stream_create_locked(context, !(flags & GPU_STREAM_NON_BLOCKING));
    pthread_mutex_unlock(&sim_lock);
    return CUDA_SUCCESS;
}

int cuStreamCreateWithPriority(gpu_stream *stream, unsigned flags, int priority)
{
    (void)priority;
    return cuStreamCreate(stream, flags);
}

int cuStreamDestroy_v2(gpu_stream handle)
{
    int error;
    SIM_ENTER();
    if ((uintptr_t)handle <= 2)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&sim_lock);
    struct CUstream_st *stream = sim_stream_find_locked(handle, &error);
    if (stream) {
        sim_capture_forget(stream);
        stream->dying = 1; /* its thread finishes the queue first */
        if (stream->started)
            pthread_cond_signal(&stream->wake);
        else
            stream_free_locked(stream);
    }
    pthread_mutex_unlock(&sim_lock);
    return error;
}

/* Checks common to query and synchronize. */
static struct CUstream_st *settle_locked(gpu_stream handle, int *ret_error)
{
    struct CUstream_st *stream = sim_stream_find_locked(handle, ret_error);
    if (!stream)
        return NULL;
    if (stream->capture) {
        stream->capture->invalid = 1;
        *ret_error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (!*ret_error)
        *ret_error = sim_implicit_locked(stream, 1);
    if (!*ret_error)
        *ret_error = sim_unsafe_locked();
    return *ret_error ? NULL : stream;
}

int cuStreamQuery(gpu_stream handle)
{
    int error;
    SIM_ENTER();
    pthread_mutex_lock(&sim_lock);
    struct CUstream_st *stream = settle_locked(handle, &error);
    int legacy = stream && stream == stream->context->legacy;
    int pending = stream && busy(stream);
    for (struct CUstream_st *s = sim_streams; legacy && s; s = s->next)
        pending |= s->blocking && s->context == stream->context && busy(s);
    pthread_mutex_unlock(&sim_lock);
    return pending ? CUDA_ERROR_NOT_READY : error;
}

int cuStreamSynchronize(gpu_stream handle)
{
    int error;
    SIM_ENTER();
    pthread_mutex_lock(&sim_lock);
    struct CUstream_st *stream = settle_locked(handle, &error);
    if (stream)
        sim_stream_wait_locked(stream);
    pthread_mutex_unlock(&sim_lock);
    return error;
}

int cuStreamGetCtx(gpu_stream handle, gpu_context *context)
{
    int error;
    SIM_ENTER();
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    struct CUstream_st *stream = sim_stream_find_locked(handle, &error);
    if (stream)
        *context = stream->context;
    pthread_mutex_unlock(&sim_lock);
    return error;
}
