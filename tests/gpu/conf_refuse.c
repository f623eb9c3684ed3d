/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: calls that a capture forbids, and how a forbidden one ends it. */
#include "tests/gpu/conformance.h"

#define BYTES 4096

static int broken(gpu_stream stream)
{
    gpu_graph graph = NULL;
    int error = more.cuStreamEndCapture(stream, &graph);
    if (!error)
        more.cuGraphDestroy(graph);
    return error;
}

static void try_alloc(void *data)
{
    gpu_ptr address = 0;
    *(int *)data = gpu.cuMemAlloc(&address, BYTES);
    if (!*(int *)data)
        OK(gpu.cuMemFree(address));
}

static void try_alloc_relaxed(void *data)
{
    int mode = CAPTURE_RELAXED;
    OK(gpu.cuThreadExchangeStreamCaptureMode(&mode));
    try_alloc(data);
    OK(gpu.cuThreadExchangeStreamCaptureMode(&mode));
    if (mode != CAPTURE_RELAXED)
        *(int *)data = -1;
}

static void try_query(void *data)
{
    gpu_event event = event_new();
    *(int *)data = gpu.cuEventQuery(event);
    OK(gpu.cuEventDestroy(event));
}

/* What a driver lets pass on other streams, and a stream that does not block. */
static void try_safe(void *data)
{
    unsigned char bytes[64] = {0};
    gpu_ptr a = *(gpu_ptr *)data;
    gpu_event event;
    gpu_stream other = stream_new();
    struct gpu_ipc_handle handle;
    OK(gpu.cuEventCreate(&event, GPU_EVENT_DISABLE_TIMING));
    OK(gpu.cuMemsetD8Async(a, 1, sizeof bytes, other));
    OK(gpu.cuEventRecord(event, other));
    OK(more.cuMemcpyHtoD(a, bytes, sizeof bytes));
    OK(more.cuMemcpyDtoH(bytes, a, sizeof bytes));
    OK(more.cuMemsetD8(a, 2, sizeof bytes));
    OK(gpu.cuIpcGetMemHandle(&handle, a));
    OK(gpu.cuStreamDestroy(other));
    OK(gpu.cuEventDestroy(event));
}

static void test_safe_calls(void)
{
    gpu_ptr a = alloc_filled(BYTES, 0);
    gpu_stream stream = stream_new();
    OK(more.cuStreamBeginCapture(stream, CAPTURE_GLOBAL));
    try_safe(&a);
    tap_is(broken(stream), 0, "work on other streams does not disturb a global capture");
    OK(gpu.cuStreamDestroy(stream));
    OK(gpu.cuMemFree(a));
}

static void unsafe(void (*fn)(void *), int mode, int other_thread, int want,
                   const char *what)
{
    int got = -1;
    gpu_stream stream = stream_new();
    OK(more.cuStreamBeginCapture(stream, mode));
    if (other_thread)
        on_thread(fn, &got);
    else
        fn(&got);
    tap_is(got, want, what);
    tap_is(broken(stream), want ? CAPTURE_INVALIDATED : 0,
           want ? "  and ends the capture" : "  and the capture goes on");
    OK(gpu.cuStreamDestroy(stream));
}

void test_unsafe_calls(void)
{
    const int no = CAPTURE_UNSUPPORTED;
    unsafe(try_alloc, CAPTURE_GLOBAL, 0, no, "cuMemAlloc in a global capture is refused");
    unsafe(try_alloc, CAPTURE_GLOBAL, 1, no, "also on another thread");
    unsafe(try_alloc_relaxed, CAPTURE_GLOBAL, 0, 0, "a relaxed thread may");
    unsafe(try_alloc_relaxed, CAPTURE_GLOBAL, 1, 0, "so may another relaxed thread");
    unsafe(try_alloc, CAPTURE_THREAD_LOCAL, 0, no, "in a thread-local one it is refused");
    unsafe(try_alloc, CAPTURE_THREAD_LOCAL, 1, 0, "but another thread may");
    unsafe(try_alloc, CAPTURE_RELAXED, 0, 0, "in a relaxed capture all may");
    unsafe(try_query, CAPTURE_GLOBAL, 1, no, "cuEventQuery on another thread is refused");
    test_safe_calls();
}

static void test_capturing_stream(void)
{
    gpu_stream stream = stream_new();
    gpu_event event = event_new(), eager = event_new();
    OK(more.cuStreamBeginCapture(stream, CAPTURE_RELAXED));
    tap_is(gpu.cuStreamQuery(stream), CAPTURE_UNSUPPORTED,
           "no query of a capturing stream");
    tap_is(broken(stream), CAPTURE_INVALIDATED, "  it ends the capture");
    OK(more.cuStreamBeginCapture(stream, CAPTURE_RELAXED));
    tap_is(gpu.cuStreamSynchronize(stream), CAPTURE_UNSUPPORTED, "nor waiting for it");
    tap_is(broken(stream), CAPTURE_INVALIDATED, "  it ends the capture");
    OK(more.cuStreamBeginCapture(stream, CAPTURE_RELAXED));
    OK(gpu.cuEventRecord(event, stream));
    tap_is(gpu.cuEventQuery(event), CAPTURED_EVENT, "no query of a captured event");
    printf("# the capture then ends with %d\n", broken(stream));
    OK(gpu.cuEventRecord(eager, stream));
    OK(more.cuStreamBeginCapture(stream, CAPTURE_RELAXED));
    tap_is(gpu.cuStreamWaitEvent(stream, eager, 0), CAPTURE_ISOLATION,
           "no wait for an eager event");
    tap_is(broken(stream), CAPTURE_INVALIDATED, "  it ends the capture");
    OK(gpu.cuEventDestroy(event));
    OK(gpu.cuEventDestroy(eager));
    OK(gpu.cuStreamDestroy(stream));
}

/* Events that were never recorded, or in a capture that is over. */
static void test_old_events(void)
{
    gpu_stream stream = stream_new(), other = stream_new();
    gpu_event event = event_new();
    OK(more.cuStreamBeginCapture(stream, CAPTURE_RELAXED));
    tap_is(gpu.cuStreamWaitEvent(stream, event, 0), 0,
           "an unrecorded event is no dependency");
    tap_is(more.cuStreamBeginCapture(stream, CAPTURE_RELAXED), ILLEGAL_STATE,
           "a capture can't begin twice");
    OK(gpu.cuEventRecord(event, stream));
    tap_is(broken(stream), 0, "  and it goes on");
    tap_is(gpu.cuEventQuery(event), INVALID_VALUE,
           "no query of an event of an ended capture");
    tap_is(gpu.cuStreamWaitEvent(other, event, 0), INVALID_VALUE, "nor waiting for it");
    OK(gpu.cuEventRecord(event, other));
    OK(more.cuEventSynchronize(event));
    tap_is(gpu.cuEventQuery(event), 0, "until it is recorded again");
    OK(gpu.cuEventDestroy(event));
    OK(gpu.cuStreamDestroy(stream));
    OK(gpu.cuStreamDestroy(other));
}

static void test_two_captures(gpu_ptr a)
{
    gpu_stream one = stream_new(), two = stream_new();
    gpu_event event = event_new();
    OK(more.cuStreamBeginCapture(one, CAPTURE_RELAXED));
    OK(more.cuStreamBeginCapture(two, CAPTURE_RELAXED));
    OK(gpu.cuMemsetD8Async(a, 1, BYTES, one));
    OK(gpu.cuEventRecord(event, one));
    tap_is(gpu.cuStreamWaitEvent(two, event, 0), CAPTURE_MERGE,
           "two captures can't merge");
    tap_is(broken(one), CAPTURE_INVALIDATED, "  it ends one");
    tap_is(broken(two), CAPTURE_INVALIDATED, "  and the other");
    OK(more.cuStreamBeginCapture(one, CAPTURE_RELAXED));
    OK(gpu.cuEventRecord(event, one));
    OK(gpu.cuStreamWaitEvent(two, event, 0));
    tap_is(broken(two), CAPTURE_UNMATCHED, "a forked stream can't end the capture");
    printf("# the capture then ends with %d\n", broken(one));
    OK(gpu.cuEventDestroy(event));
    OK(gpu.cuStreamDestroy(one));
    OK(gpu.cuStreamDestroy(two));
}

static void test_legacy_stream(gpu_ptr a)
{
    int status;
    gpu_stream blocking;
    OK(gpu.cuStreamCreate(&blocking, 0));
    OK(more.cuStreamBeginCapture(blocking, CAPTURE_RELAXED));
    tap_is(more.cuStreamIsCapturing(NULL, &status), CAPTURE_IMPLICIT,
           "the legacy stream can't say whether it captures");
    tap_is(broken(blocking), 0, "  and the capture goes on");
    OK(more.cuStreamBeginCapture(blocking, CAPTURE_RELAXED));
    tap_is(gpu.cuMemsetD8Async(a, 1, BYTES, NULL), CAPTURE_IMPLICIT,
           "no work on the legacy stream while a blocking one captures");
    tap_is(broken(blocking), CAPTURE_INVALIDATED, "  it ends the capture");
    tap_is(more.cuStreamBeginCapture(NULL, CAPTURE_RELAXED), CAPTURE_UNSUPPORTED,
           "the legacy stream can't be captured");
    OK(gpu.cuStreamDestroy(blocking));
}

void test_capture_refusals(void)
{
    gpu_ptr a = alloc_filled(BYTES, 0);
    test_capturing_stream();
    test_old_events();
    test_two_captures(a);
    test_legacy_stream(a);
    OK(gpu.cuMemFree(a));
}
