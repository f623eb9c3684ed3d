/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: stream capture as the engine uses it, and what it refuses. */
#include <unistd.h>

#include "tests/gpu/conformance.h"

#define BYTES 4096

struct info {
    int status;
    uint64_t id;
    gpu_graph graph;
    const gpu_node *nodes;
    size_t count;
};

static struct info info_of(gpu_stream stream)
{
    struct info info = {.status = -1};
    OK(gpu.cuStreamGetCaptureInfo(stream, &info.status, &info.id, &info.graph,
                                  &info.nodes, &info.count));
    return info;
}

static void count_up(void *data)
{
    __atomic_add_fetch((int *)data, 1, __ATOMIC_RELAXED);
}

static gpu_exec end(gpu_stream stream)
{
    gpu_graph graph;
    gpu_exec exec;
    OK(more.cuStreamEndCapture(stream, &graph));
    OK(more.cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(more.cuGraphDestroy(graph));
    return exec;
}

static void test_info(gpu_ptr a)
{
    int status = -1, runs = 0;
    gpu_stream stream = stream_new();
    struct info info = info_of(stream);
    tap_is(info.status, GPU_CAPTURE_NONE, "no capture");
    OK(more.cuStreamBeginCapture(stream, CAPTURE_GLOBAL));
    info = info_of(stream);
    tap(info.status == GPU_CAPTURE_ACTIVE && info.graph && info.count == 0,
        "a capture starts without dependencies");
    uint64_t id = info.id;
    OK(more.cuStreamIsCapturing(stream, &status));
    tap_is(status, GPU_CAPTURE_ACTIVE, "the stream is capturing");
    OK(gpu.cuMemsetD8Async(a, 5, BYTES, stream));
    OK(more.cuLaunchHostFunc(stream, count_up, &runs));
    info = info_of(stream);
    tap(info.count == 1 && info.nodes && info.id == id,
        "the next call depends on the last");
    gpu_exec exec = end(stream);
    tap(runs == 0 && all_are(a, BYTES, 0), "capturing runs nothing");
    for (int i = 0; i < 3; i++)
        OK(more.cuGraphLaunch(exec, stream));
    OK(gpu.cuStreamSynchronize(stream));
    tap(runs == 3 && all_are(a, BYTES, 5), "every replay runs it once");
    OK(more.cuStreamBeginCapture(stream, CAPTURE_GLOBAL));
    info = info_of(stream);
    tap(info.id != id, "the next capture has another id");
    OK(more.cuGraphExecDestroy(end(stream)));
    OK(more.cuGraphExecDestroy(exec));
    OK(gpu.cuStreamDestroy(stream));
}

static void test_fork(gpu_ptr a)
{
    gpu_graph graph = (gpu_graph)1;
    gpu_stream one = stream_new(), two = stream_new();
    gpu_event there = event_new(), back = event_new();
    OK(more.cuStreamBeginCapture(one, CAPTURE_GLOBAL));
    OK(gpu.cuMemsetD8Async(a, 1, BYTES, one));
    OK(gpu.cuEventRecord(there, one));
    OK(gpu.cuStreamWaitEvent(two, there, 0));
    tap_is(info_of(two).status, GPU_CAPTURE_ACTIVE, "a stream joins through an event");
    tap(info_of(one).id == info_of(two).id, "it is the same capture");
    OK(gpu.cuMemsetD8Async(a, 2, BYTES / 2, two));
    OK(gpu.cuEventRecord(back, two));
    OK(gpu.cuStreamWaitEvent(one, back, 0));
    tap(info_of(one).count >= 1, "and flows back");
    OK(gpu.cuMemsetD8Async(a, 3, BYTES / 4, one));
    gpu_exec exec = end(one);
    tap_is(info_of(two).status, GPU_CAPTURE_NONE, "the end frees all streams");
    OK(more.cuGraphLaunch(exec, one));
    OK(gpu.cuStreamSynchronize(one));
    tap(all_are(a, BYTES / 4, 3) && all_are(a + BYTES / 4, BYTES / 4, 2) &&
            all_are(a + BYTES / 2, BYTES / 2, 1),
        "a forked graph keeps the order");
    OK(more.cuGraphExecDestroy(exec));
    OK(more.cuStreamBeginCapture(one, CAPTURE_GLOBAL));
    OK(gpu.cuEventRecord(there, one));
    OK(gpu.cuStreamWaitEvent(two, there, 0));
    OK(gpu.cuMemsetD8Async(a, 2, BYTES, two));
    tap_is(more.cuStreamEndCapture(one, &graph), CAPTURE_UNJOINED,
           "a fork must be joined");
    OK(gpu.cuEventDestroy(there));
    OK(gpu.cuEventDestroy(back));
    OK(gpu.cuStreamDestroy(one));
    OK(gpu.cuStreamDestroy(two));
}

void test_capture(void)
{
    gpu_ptr a = alloc_filled(BYTES, 0);
    test_info(a);
    test_fork(a);
    OK(gpu.cuMemFree(a));
}

static void count_up_late(void *data)
{
    usleep(50000);
    count_up(data);
}

struct look {
    int *at, seen;
};

static void look(void *data)
{
    struct look *look = data;
    look->seen = __atomic_load_n(look->at, __ATOMIC_RELAXED);
}

/* The engine's own order: the record node moves on to the latest call of the capture. */
void test_moved_record_node(void)
{
    int runs = 0;
    struct look looked = {&runs, 0};
    gpu_ptr a = alloc_filled(BYTES, 0);
    gpu_node node, first;
    gpu_stream stream = stream_new(), other = stream_new();
    gpu_event event = event_new();
    OK(more.cuStreamBeginCapture(stream, CAPTURE_GLOBAL));
    OK(gpu.cuMemsetD8Async(a, 1, BYTES, stream));
    struct info info = info_of(stream);
    first = info.count ? info.nodes[0] : NULL;
    OK(gpu.cuGraphAddEventRecordNode(&node, info.graph, info.nodes, info.count, event));
    OK(more.cuLaunchHostFunc(stream, count_up_late, &runs));
    info = info_of(stream);
    gpu_node next = info.count ? info.nodes[0] : NULL;
    OK(gpu.cuGraphRemoveDependencies(info.graph, &first, &node, 1));
    OK(gpu.cuGraphAddDependencies(info.graph, &next, &node, 1));
    info = info_of(stream);
    tap(info.count == 1 && info.nodes[0] == next, "a moved node stays off the frontier");
    gpu_exec exec = end(stream);
    OK(more.cuGraphLaunch(exec, stream));
    OK(gpu.cuStreamWaitEvent(other, event, 0));
    OK(more.cuLaunchHostFunc(other, look, &looked));
    OK(gpu.cuStreamSynchronize(other));
    tap_is(looked.seen, 1, "a moved node records after what it was moved to");
    OK(gpu.cuStreamSynchronize(stream));
    OK(more.cuGraphExecDestroy(exec));
    OK(gpu.cuEventDestroy(event));
    OK(gpu.cuStreamDestroy(stream));
    OK(gpu.cuStreamDestroy(other));
    OK(gpu.cuMemFree(a));
}

/* The engine's own order: a record node that hangs off a call, replayed behind a gate. */
void test_record_node(void)
{
    struct gate gate;
    gpu_ptr a = alloc_filled(BYTES, 0);
    gpu_node node;
    gpu_stream stream = stream_new(), other = stream_new();
    gpu_event event = event_new();
    OK(more.cuStreamBeginCapture(stream, CAPTURE_GLOBAL));
    OK(gpu.cuMemsetD8Async(a, 1, BYTES, stream));
    struct info info = info_of(stream);
    gpu_node last = info.count ? info.nodes[0] : NULL;
    OK(gpu.cuGraphAddEventRecordNode(&node, info.graph, info.nodes, info.count, event));
    info = info_of(stream);
    tap(info.count == 1 && info.nodes[0] == last, "a record node stays off the frontier");
    OK(gpu.cuMemsetD8Async(a, 2, BYTES / 2, stream));
    gpu_exec exec = end(stream);
    for (int i = 0; i < 3; i++) {
        gate_close(&gate, stream);
        OK(more.cuGraphLaunch(exec, stream));
        OK(gpu.cuStreamWaitEvent(other, event, 0));
        OK(gpu.cuMemsetD8Async(a, 4, BYTES, other));
        tap_is(gpu.cuEventQuery(event), GPU_ERROR_NOT_READY,
               "a replay records from its launch");
        tap_is(gpu.cuStreamQuery(other), GPU_ERROR_NOT_READY, "and is waited for");
        gate_open(&gate);
        OK(gpu.cuStreamSynchronize(stream));
        OK(gpu.cuStreamSynchronize(other));
        tap_is(gpu.cuEventQuery(event), 0, "the replay completes the event");
    }
    OK(more.cuGraphExecDestroy(exec));
    OK(gpu.cuEventDestroy(event));
    OK(gpu.cuStreamDestroy(stream));
    OK(gpu.cuStreamDestroy(other));
    OK(gpu.cuMemFree(a));
}

void test_external_events(void)
{
    struct gate gate;
    gpu_ptr a = alloc_filled(BYTES, 0);
    gpu_stream stream = stream_new(), other = stream_new();
    gpu_event before = event_new(), after = event_new();
    tap_is(gpu.cuStreamWaitEvent(stream, before, GPU_EVENT_EXTERNAL), ILLEGAL_STATE,
           "no external wait outside a capture");
    tap_is(more.cuEventRecordWithFlags(before, stream, GPU_EVENT_EXTERNAL), ILLEGAL_STATE,
           "no external record outside a capture");
    gate_close(&gate, other);
    OK(gpu.cuEventRecord(before, other));
    OK(more.cuStreamBeginCapture(stream, CAPTURE_GLOBAL));
    OK(gpu.cuStreamWaitEvent(stream, before, GPU_EVENT_EXTERNAL));
    tap_is((long long)info_of(stream).count, 1, "an external wait is a node");
    OK(gpu.cuMemsetD8Async(a, 6, BYTES, stream));
    OK(more.cuEventRecordWithFlags(after, stream, GPU_EVENT_EXTERNAL));
    gpu_exec exec = end(stream);
    tap_is(gpu.cuEventQuery(after), 0, "an external record does nothing yet");
    OK(more.cuGraphLaunch(exec, stream));
    tap_is(gpu.cuStreamQuery(stream), GPU_ERROR_NOT_READY,
           "the graph waits for the event");
    tap_is(gpu.cuEventQuery(after), GPU_ERROR_NOT_READY, "its own event is recorded");
    gate_open(&gate);
    OK(more.cuEventSynchronize(after));
    tap(all_are(a, BYTES, 6), "and complete after the work before it");
    OK(gpu.cuStreamSynchronize(stream));
    OK(more.cuGraphExecDestroy(exec));
    OK(gpu.cuEventDestroy(before));
    OK(gpu.cuEventDestroy(after));
    OK(gpu.cuStreamDestroy(stream));
    OK(gpu.cuStreamDestroy(other));
    OK(gpu.cuMemFree(a));
}

void test_update_dependencies(void)
{
    gpu_ptr a = alloc_filled(BYTES, 0);
    gpu_node first, record;
    gpu_stream stream = stream_new();
    gpu_event event = event_new();
    OK(more.cuStreamBeginCapture(stream, CAPTURE_GLOBAL));
    OK(gpu.cuMemsetD8Async(a, 1, BYTES, stream));
    struct info info = info_of(stream);
    first = info.nodes[0];
    OK(gpu.cuGraphAddEventRecordNode(&record, info.graph, &first, 1, event));
    OK(gpu.cuStreamUpdateCaptureDependencies(stream, &record, 1, 0));
    tap_is((long long)info_of(stream).count, 2, "dependencies can be added");
    OK(gpu.cuStreamUpdateCaptureDependencies(stream, &first, 1, 1));
    info = info_of(stream);
    tap(info.count == 1 && info.nodes[0] == first, "and set");
    gpu_exec exec = end(stream);
    OK(more.cuGraphLaunch(exec, stream));
    OK(gpu.cuStreamSynchronize(stream));
    tap(1, "nodes dropped that way need not be joined");
    OK(more.cuGraphExecDestroy(exec));
    OK(gpu.cuEventDestroy(event));
    OK(gpu.cuStreamDestroy(stream));
    OK(gpu.cuMemFree(a));
}

/* A graph inside another one: it copies a to b, then sets a; the outer graph sets a
 * before it, and copies a to c after it. */
struct nest {
    gpu_ptr a, b, c, d;
    gpu_stream stream, other;
    gpu_event before, event, late; /* the last one gets into the inner graph too late */
    int runs;
};

/* As the engine has it: an external wait first, a record node that nothing waits for. */
static gpu_graph inner_graph(struct nest *n)
{
    gpu_node node;
    gpu_graph graph;
    OK(more.cuStreamBeginCapture(n->stream, CAPTURE_GLOBAL));
    OK(gpu.cuStreamWaitEvent(n->stream, n->before, GPU_EVENT_EXTERNAL));
    OK(more.cuMemcpyDtoDAsync(n->b, n->a, BYTES, n->stream));
    OK(gpu.cuMemsetD8Async(n->a, 2, BYTES, n->stream));
    OK(more.cuLaunchHostFunc(n->stream, count_up, &n->runs));
    struct info info = info_of(n->stream);
    OK(gpu.cuGraphAddEventRecordNode(&node, info.graph, info.nodes, info.count,
                                     n->event));
    OK(more.cuStreamEndCapture(n->stream, &graph));
    return graph;
}

static void replay_nested(struct nest *n, gpu_exec exec, const char *how)
{
    struct gate gate;
    OK(more.cuMemsetD8(n->a, 9, BYTES));
    OK(more.cuMemsetD8(n->b, 9, BYTES));
    OK(more.cuMemsetD8(n->c, 9, BYTES));
    OK(more.cuMemsetD8(n->d, 9, BYTES));
    OK(more.cuCtxSynchronize());
    n->runs = 0;
    gate_close(&gate, n->other);
    OK(gpu.cuEventRecord(n->before, n->other));
    OK(more.cuGraphLaunch(exec, n->stream));
    OK(gpu.cuStreamWaitEvent(n->other, n->event, 0));
    OK(more.cuMemcpyDtoDAsync(n->d, n->b, BYTES, n->other));
    int recorded = gpu.cuEventQuery(n->event), waiting = gpu.cuStreamQuery(n->stream);
    int late = gpu.cuEventQuery(n->late);
    gate_open(&gate);
    OK(gpu.cuStreamSynchronize(n->other));
    OK(gpu.cuStreamSynchronize(n->stream));
    tap(waiting == GPU_ERROR_NOT_READY, "%s: the inner graph's wait is waited", how);
    tap(recorded == GPU_ERROR_NOT_READY && !gpu.cuEventQuery(n->event),
        "%s: its record node records", how);
    tap(late == 0 && n->runs == 1, "%s: it runs once, as it was when added", how);
    tap(all_are(n->b, BYTES, 1), "%s: it comes after the nodes before it", how);
    tap(all_are(n->d, BYTES, 1), "%s: what waits for its event comes after it", how);
    tap(all_are(n->c, BYTES, 2), "%s: it comes before the nodes after it", how);
}

/* Added to a graph that is being captured; then that graph to an empty one. */
static void test_added(struct nest *n)
{
    gpu_node child, node, twice[2];
    gpu_graph inner = inner_graph(n), outer, top;
    gpu_exec exec;
    OK(more.cuStreamBeginCapture(n->stream, CAPTURE_GLOBAL));
    OK(gpu.cuMemsetD8Async(n->a, 1, BYTES, n->stream));
    struct info info = info_of(n->stream);
    OK(more.cuGraphAddChildGraphNode(&child, info.graph, info.nodes, info.count, inner));
    OK(gpu.cuStreamUpdateCaptureDependencies(n->stream, &child, 1, 1));
    OK(more.cuMemcpyDtoDAsync(n->c, n->a, BYTES, n->stream));
    OK(more.cuStreamEndCapture(n->stream, &outer));
    OK(gpu.cuGraphAddEventRecordNode(&node, inner, NULL, 0, n->late));
    OK(more.cuGraphDestroy(inner));
    OK(more.cuGraphInstantiateWithFlags(&exec, outer, 0));
    replay_nested(n, exec, "added");
    replay_nested(n, exec, "added, again");
    OK(more.cuGraphExecDestroy(exec));
    OK(more.cuGraphCreate(&top, 0));
    OK(more.cuGraphAddChildGraphNode(&twice[0], top, NULL, 0, outer));
    OK(more.cuGraphDestroy(outer));
    tap_is(more.cuGraphAddChildGraphNode(&twice[1], top, &twice[0], 1, NULL),
           INVALID_VALUE, "no child graph that is none");
    OK(more.cuGraphInstantiateWithFlags(&exec, top, 0));
    OK(more.cuGraphDestroy(top));
    replay_nested(n, exec, "two levels");
    OK(more.cuGraphExecDestroy(exec));
}

static void test_launched(struct nest *n)
{
    gpu_graph graph = inner_graph(n);
    gpu_exec inner;
    OK(more.cuGraphInstantiateWithFlags(&inner, graph, 0));
    OK(more.cuGraphDestroy(graph));
    n->runs = 0;
    OK(more.cuStreamBeginCapture(n->stream, CAPTURE_GLOBAL));
    OK(gpu.cuMemsetD8Async(n->a, 1, BYTES, n->stream));
    tap_is(more.cuGraphLaunch(inner, n->stream), CAPTURE_UNSUPPORTED,
           "no graph is launched into a capture");
    tap_is(more.cuStreamEndCapture(n->stream, &graph), CAPTURE_INVALIDATED,
           "which is then lost");
    tap_is(n->runs, 0, "and nothing has run");
    OK(more.cuGraphLaunch(inner, n->stream));
    OK(gpu.cuStreamSynchronize(n->stream));
    tap_is(n->runs, 1, "the graph still runs by itself");
    OK(more.cuGraphExecDestroy(inner));
}

void test_child_graphs(void)
{
    struct nest n = {.a = alloc_filled(BYTES, 0),
                     .b = alloc_filled(BYTES, 0),
                     .c = alloc_filled(BYTES, 0),
                     .d = alloc_filled(BYTES, 0),
                     .stream = stream_new(),
                     .other = stream_new(),
                     .before = event_new(),
                     .event = event_new(),
                     .late = event_new()};
    test_added(&n);
    test_launched(&n);
    OK(gpu.cuEventDestroy(n.before));
    OK(gpu.cuEventDestroy(n.event));
    OK(gpu.cuEventDestroy(n.late));
    OK(gpu.cuStreamDestroy(n.stream));
    OK(gpu.cuStreamDestroy(n.other));
    OK(gpu.cuMemFree(n.a));
    OK(gpu.cuMemFree(n.b));
    OK(gpu.cuMemFree(n.c));
    OK(gpu.cuMemFree(n.d));
}
