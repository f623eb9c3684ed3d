/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: order within and between streams, events, and what they say meanwhile. */
#include <unistd.h>

#include "tests/gpu/conformance.h"

#define BYTES 4096

static void test_order(gpu_ptr a, gpu_ptr b)
{
    gpu_stream stream = stream_new();
    for (unsigned char i = 1; i <= 40; i++) {
        OK(gpu.cuMemsetD8Async(a, i, BYTES, stream));
        if (i == 20)
            OK(more.cuMemcpyDtoDAsync(b, a, BYTES, stream));
    }
    OK(gpu.cuStreamSynchronize(stream));
    tap(all_are(a, BYTES, 40) && all_are(b, BYTES, 20), "a stream works in order");
    OK(gpu.cuStreamDestroy(stream));
}

static void test_not_ready(void)
{
    struct gate gate;
    gpu_stream stream = stream_new();
    gpu_event event = event_new();
    tap_is(gpu.cuStreamQuery(stream), 0, "an idle stream is ready");
    tap_is(gpu.cuEventQuery(event), 0, "an event that was never recorded is complete");
    tap_is(gpu.cuStreamWaitEvent(stream, event, 0), 0, "and can be waited for");
    gate_close(&gate, stream);
    OK(gpu.cuEventRecord(event, stream));
    tap_is(gpu.cuStreamQuery(stream), GPU_ERROR_NOT_READY, "a busy stream is not ready");
    tap_is(gpu.cuEventQuery(event), GPU_ERROR_NOT_READY, "nor is its event");
    gate_open(&gate);
    OK(more.cuEventSynchronize(event));
    tap_is(gpu.cuEventQuery(event), 0, "a synchronized event is complete");
    OK(gpu.cuStreamSynchronize(stream));
    tap_is(gpu.cuStreamQuery(stream), 0, "a synchronized stream is ready");
    OK(gpu.cuEventDestroy(event));
    OK(gpu.cuStreamDestroy(stream));
}

static void test_between(gpu_ptr a, gpu_ptr b)
{
    struct gate first, second;
    gpu_stream one = stream_new(), two = stream_new();
    gpu_event event = event_new();
    OK(more.cuMemsetD8(a, 0, BYTES));
    OK(more.cuCtxSynchronize());
    gate_close(&first, one);
    OK(gpu.cuMemsetD8Async(a, 7, BYTES, one));
    OK(gpu.cuEventRecord(event, one));
    OK(gpu.cuStreamWaitEvent(two, event, 0));
    OK(more.cuMemcpyDtoDAsync(b, a, BYTES, two));
    gate_close(&second, one);
    OK(gpu.cuEventRecord(event, one));
    tap_is(gpu.cuStreamQuery(two), GPU_ERROR_NOT_READY,
           "a stream waits for another's event");
    gate_open(&first);
    OK(gpu.cuStreamSynchronize(two));
    tap(1, "a wait binds to the record before it, not to a later one");
    tap_is(gpu.cuEventQuery(event), GPU_ERROR_NOT_READY,
           "an event follows its last record");
    gate_open(&second);
    OK(gpu.cuStreamSynchronize(one));
    tap(all_are(b, BYTES, 7), "the waiting stream saw the other's work");
    OK(gpu.cuEventDestroy(event));
    OK(gpu.cuStreamDestroy(one));
    OK(gpu.cuStreamDestroy(two));
}

static void test_legacy(gpu_ptr a)
{
    struct gate gate;
    gpu_stream blocking, apart = stream_new();
    gpu_event event = event_new();
    OK(gpu.cuStreamCreate(&blocking, 0));
    gate_close(&gate, blocking);
    OK(gpu.cuMemsetD8Async(a, 9, BYTES, NULL));
    OK(gpu.cuEventRecord(event, NULL));
    OK(gpu.cuMemsetD8Async(a + BYTES / 2, 8, BYTES / 2, apart));
    OK(gpu.cuStreamSynchronize(apart));
    tap(1, "a non-blocking stream does not wait for the legacy stream");
    tap_is(gpu.cuEventQuery(event), GPU_ERROR_NOT_READY,
           "the legacy stream waits for blocking streams");
    gate_open(&gate);
    OK(more.cuCtxSynchronize());
    tap(gpu.cuEventQuery(event) == 0 && all_are(a, BYTES, 9), "and then works");
    gate_close(&gate, NULL);
    OK(gpu.cuMemsetD8Async(a, 10, BYTES, blocking));
    tap_is(gpu.cuStreamQuery(blocking), GPU_ERROR_NOT_READY,
           "blocking streams wait for the legacy stream");
    gate_open(&gate);
    OK(gpu.cuStreamSynchronize(blocking));
    tap(all_are(a, BYTES, 10), "and then work");
    OK(gpu.cuEventDestroy(event));
    OK(gpu.cuStreamDestroy(blocking));
    OK(gpu.cuStreamDestroy(apart));
}

static void test_timing(void)
{
    gpu_event start, end, untimed = event_new();
    gpu_stream stream = stream_new();
    struct gate gate;
    float ms = -1;
    OK(gpu.cuEventCreate(&start, 0));
    OK(gpu.cuEventCreate(&end, 0));
    OK(gpu.cuEventRecord(start, stream));
    gate_close(&gate, stream);
    OK(gpu.cuEventRecord(end, stream));
    OK(gpu.cuEventRecord(untimed, stream));
    while (!__atomic_load_n(&gate.reached, __ATOMIC_ACQUIRE))
        usleep(100);
    usleep(3000);
    gate_open(&gate);
    OK(gpu.cuStreamSynchronize(stream));
    OK(more.cuEventElapsedTime(&ms, start, end));
    tap(ms > 0.5f && ms < 60000, "events measure time: %.2f ms", (double)ms);
    tap_is(more.cuEventElapsedTime(&ms, start, untimed), INVALID_HANDLE,
           "but not without timing");
    OK(gpu.cuEventDestroy(start));
    OK(gpu.cuEventDestroy(end));
    OK(gpu.cuEventDestroy(untimed));
    OK(gpu.cuStreamDestroy(stream));
}

static void test_gone(gpu_ptr a)
{
    struct gate gate;
    gpu_stream stream = stream_new();
    gpu_event event = event_new();
    gate_close(&gate, stream);
    OK(gpu.cuMemsetD8Async(a, 77, BYTES, stream));
    OK(gpu.cuEventRecord(event, stream));
    OK(gpu.cuStreamDestroy(stream));
    tap_is(gpu.cuEventQuery(event), GPU_ERROR_NOT_READY,
           "a destroyed stream does not stop");
    gate_open(&gate);
    OK(more.cuEventSynchronize(event));
    tap(all_are(a, BYTES, 77), "and finishes its work");
    OK(gpu.cuEventDestroy(event));
}

void test_streams(void)
{
    gpu_ptr a = alloc_filled(BYTES, 0), b = alloc_filled(BYTES, 0);
    test_order(a, b);
    test_not_ready();
    test_between(a, b);
    test_legacy(a);
    test_timing();
    test_gone(a);
    OK(gpu.cuMemFree(a));
    OK(gpu.cuMemFree(b));
}
