/* SPDX-License-Identifier: Apache-2.0 */
/* What the conformance cases share. The same program runs on the stand-in and on a GPU:
 * it knows libcuda.so.1 by its symbols only. Every case leaves the driver as it found it.
 */
#ifndef TEST_CONFORMANCE_H
#define TEST_CONFORMANCE_H

#include "core/gpu.h"
#include "tests/gpu/tap.h"

typedef struct CUgraphExec_st *gpu_exec;

/* What the cases call beyond the engine's own table. */
#define EXTRA_CALLS(X)                                                                  \
    X(cuDeviceGetName, "cuDeviceGetName", (char *text, int length, gpu_device device))  \
    X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t * bytes, gpu_device device))     \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", (gpu_context context))                        \
    X(cuCtxSynchronize, "cuCtxSynchronize", (void))                                     \
    X(cuMemcpyHtoD, "cuMemcpyHtoD_v2", (gpu_ptr to, const void *from, size_t bytes))    \
    X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *to, gpu_ptr from, size_t bytes))          \
    X(cuMemcpyDtoD, "cuMemcpyDtoD_v2", (gpu_ptr to, gpu_ptr from, size_t bytes))        \
    X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2",                                        \
      (gpu_ptr to, gpu_ptr from, size_t bytes, gpu_stream stream))                      \
    X(cuMemsetD8, "cuMemsetD8_v2", (gpu_ptr to, unsigned char value, size_t bytes))     \
    X(cuLaunchHostFunc, "cuLaunchHostFunc",                                             \
      (gpu_stream stream, void (*function)(void *), void *data))                        \
    X(cuEventRecordWithFlags, "cuEventRecordWithFlags",                                 \
      (gpu_event event, gpu_stream stream, unsigned flags))                             \
    X(cuEventSynchronize, "cuEventSynchronize", (gpu_event event))                      \
    X(cuEventElapsedTime, "cuEventElapsedTime",                                         \
      (float *milliseconds, gpu_event start, gpu_event end))                            \
    X(cuStreamBeginCapture, "cuStreamBeginCapture_v2", (gpu_stream stream, int mode))   \
    X(cuStreamEndCapture, "cuStreamEndCapture", (gpu_stream stream, gpu_graph * graph)) \
    X(cuStreamIsCapturing, "cuStreamIsCapturing", (gpu_stream stream, int *status))     \
    X(cuGraphCreate, "cuGraphCreate", (gpu_graph * graph, unsigned flags))              \
    X(cuGraphAddChildGraphNode, "cuGraphAddChildGraphNode",                             \
      (gpu_node * node, gpu_graph graph, const gpu_node *dependencies, size_t count,    \
       gpu_graph child))                                                                \
    X(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags",                       \
      (gpu_exec * exec, gpu_graph graph, unsigned long long flags))                     \
    X(cuGraphLaunch, "cuGraphLaunch", (gpu_exec exec, gpu_stream stream))               \
    X(cuGraphDestroy, "cuGraphDestroy", (gpu_graph graph))                              \
    X(cuGraphExecDestroy, "cuGraphExecDestroy", (gpu_exec exec))                        \
    X(cuGetProcAddress, "cuGetProcAddress_v2",                                          \
      (const char *symbol, void **function, int version, uint64_t flags, int *status))

struct extra_api {
#define X(name, symbol, parameters) int(*name) parameters;
    EXTRA_CALLS(X)
#undef X
};

extern struct ips_gpu_api gpu;
extern struct extra_api more;
extern gpu_context context; /* device 0's primary context, current on the main thread */
extern int simulated;
extern const char *program; /* this one's path */

enum {
    INVALID_VALUE = 1,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    CAPTURE_GLOBAL = 0,
    CAPTURE_THREAD_LOCAL = 1,
    CAPTURE_RELAXED = 2,
};

/* The call must succeed, or the section of the test ends here as failed. */
#define OK(call) must((call), #call, __FILE__, __LINE__)
void must(int error, const char *call, const char *file, int line);

/* A host function that holds a stream until the gate is opened. */
struct gate {
    int open, reached; /* reached: the stream has come to it */
};
void gate_close(struct gate *gate, gpu_stream stream);
void gate_open(struct gate *gate);

gpu_ptr alloc_filled(size_t bytes, unsigned char value);
/* Whether all bytes have the value, read with a synchronous copy. */
int all_are(gpu_ptr address, size_t bytes, unsigned char value);
gpu_stream stream_new(void); /* non-blocking */
gpu_event event_new(void);

/* Runs fn(data) on a thread with the context current and waits for it. */
void on_thread(void (*fn)(void *data), void *data);

void test_context(void);
void test_memory(void);
void test_streams(void);
void test_ipc(void);
int ipc_child(int count, char **arguments);
void test_capture(void);
void test_unsafe_calls(void);
void test_capture_refusals(void);
void test_record_node(void);
void test_moved_record_node(void);
void test_external_events(void);
void test_update_dependencies(void);
void test_child_graphs(void);
void test_kernels(void);

#endif
