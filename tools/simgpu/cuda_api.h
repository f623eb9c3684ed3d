/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that the stand-in libcuda.so.1 exports, under the driver's own names.
 * Types come from core/gpu.h, so that the engine's table and this file can't disagree on
 * them. */
#ifndef SIM_CUDA_API_H
#define SIM_CUDA_API_H

#include "core/gpu.h"
#include "tools/simgpu/fault.h"

typedef struct CUgraphExec_st *gpu_exec;

/* Errors: number, name, text. */
#define SIM_ERRORS(X)                                                                   \
    X(0, CUDA_SUCCESS, "no error")                                                      \
    X(1, CUDA_ERROR_INVALID_VALUE, "invalid argument")                                  \
    X(2, CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                     \
    X(3, CUDA_ERROR_NOT_INITIALIZED, "initialization error")                            \
    X(100, CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")                  \
    X(101, CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                         \
    X(200, CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                  \
    X(201, CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                        \
    X(205, CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed")                    \
    X(209, CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for the device") \
    X(217, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported")          \
    X(304, CUDA_ERROR_OPERATING_SYSTEM, "OS call failed")                               \
    X(400, CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                        \
    X(401, CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in this state") \
    X(500, CUDA_ERROR_NOT_FOUND, "named symbol not found")                              \
    X(600, CUDA_ERROR_NOT_READY, "device not ready")                                    \
    X(700, CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")      \
    X(704, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")    \
    X(705, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled")      \
    X(712, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "memory is registered already")   \
    X(713, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "memory is not registered")           \
    X(719, CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                      \
    X(800, CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                         \
    X(801, CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                         \
    X(900, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not permitted while capturing")      \
    X(901, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "capture failed before")              \
    X(902, CUDA_ERROR_STREAM_CAPTURE_MERGE, "two captures would merge")                 \
    X(903, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not begun in this stream") \
    X(904, CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work")    \
    X(905, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency on uncaptured work")        \
    X(906, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,                                          \
      "implicit dependency on the legacy stream")                                       \
    X(907, CUDA_ERROR_CAPTURED_EVENT, "event was last recorded in a capture")           \
    X(908, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,                                      \
      "capture was begun by another thread")                                            \
    X(999, CUDA_ERROR_UNKNOWN, "unknown error")

enum sim_error {
#define X(number, name, text) name = number,
    SIM_ERRORS(X)
#undef X
};

/* device.c */
SIM_API int cuInit(unsigned flags);
SIM_API int cuDriverGetVersion(int *version);
SIM_API int cuDeviceGetCount(int *count);
SIM_API int cuDeviceGet(gpu_device *device, int ordinal);
SIM_API int cuDeviceGetName(char *text, int length, gpu_device device);
SIM_API int cuDeviceGetAttribute(int *value, int attribute, gpu_device device);
SIM_API int cuDeviceGetUuid(struct gpu_uuid *uuid, gpu_device device);
SIM_API int cuDeviceGetUuid_v2(struct gpu_uuid *uuid, gpu_device device);
SIM_API int cuDeviceGetPCIBusId(char *text, int length, gpu_device device);
SIM_API int cuDeviceGetByPCIBusId(gpu_device *device, const char *text);
SIM_API int cuDeviceTotalMem_v2(size_t *bytes, gpu_device device);
SIM_API int cuDeviceCanAccessPeer(int *can, gpu_device device, gpu_device peer);

/* context.c */
SIM_API int cuDevicePrimaryCtxRetain(gpu_context *context, gpu_device device);
SIM_API int cuDevicePrimaryCtxRelease_v2(gpu_device device);
SIM_API int cuDevicePrimaryCtxGetState(gpu_device device, unsigned *flags, int *active);
SIM_API int cuCtxGetCurrent(gpu_context *context);
SIM_API int cuCtxSetCurrent(gpu_context context);
SIM_API int cuCtxPushCurrent_v2(gpu_context context);
SIM_API int cuCtxPopCurrent_v2(gpu_context *context);
SIM_API int cuCtxGetDevice(gpu_device *device);
SIM_API int cuCtxSynchronize(void);
SIM_API int cuCtxEnablePeerAccess(gpu_context peer, unsigned flags);
SIM_API int cuCtxDisablePeerAccess(gpu_context peer);

/* memory.c, ipc.c, copy.c */
SIM_API int cuMemAlloc_v2(gpu_ptr *address, size_t bytes);
SIM_API int cuMemFree_v2(gpu_ptr address);
SIM_API int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
SIM_API int cuMemGetAddressRange_v2(gpu_ptr *base, size_t *bytes, gpu_ptr address);
SIM_API int cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags);
SIM_API int cuMemHostUnregister(void *address);
SIM_API int cuMemHostGetDevicePointer_v2(gpu_ptr *device, void *host, unsigned flags);
SIM_API int cuIpcGetMemHandle(struct gpu_ipc_handle *handle, gpu_ptr address);
SIM_API int cuIpcOpenMemHandle_v2(gpu_ptr *address, struct gpu_ipc_handle handle,
                                  unsigned flags);
SIM_API int cuIpcCloseMemHandle(gpu_ptr address);
SIM_API int cuMemcpyHtoD_v2(gpu_ptr to, const void *from, size_t bytes);
SIM_API int cuMemcpyDtoH_v2(void *to, gpu_ptr from, size_t bytes);
SIM_API int cuMemcpyDtoD_v2(gpu_ptr to, gpu_ptr from, size_t bytes);
SIM_API int cuMemcpyHtoDAsync_v2(gpu_ptr to, const void *from, size_t bytes,
                                 gpu_stream stream);
SIM_API int cuMemcpyDtoHAsync_v2(void *to, gpu_ptr from, size_t bytes, gpu_stream stream);
SIM_API int cuMemcpyDtoDAsync_v2(gpu_ptr to, gpu_ptr from, size_t bytes,
                                 gpu_stream stream);
SIM_API int cuMemcpyAsync(gpu_ptr to, gpu_ptr from, size_t bytes, gpu_stream stream);
SIM_API int cuMemsetD8_v2(gpu_ptr address, unsigned char value, size_t bytes);
SIM_API int cuMemsetD8Async(gpu_ptr address, unsigned char value, size_t bytes,
                            gpu_stream stream);

/* module.c */
SIM_API int cuModuleLoadData(gpu_module *module, const void *image);
SIM_API int cuModuleUnload(gpu_module module);
SIM_API int cuModuleGetFunction(gpu_function *function, gpu_module module,
                                const char *name);
SIM_API int cuFuncGetAttribute(int *value, int attribute, gpu_function function);
SIM_API int cuModuleGetGlobal_v2(gpu_ptr *address, size_t *bytes, gpu_module module,
                                 const char *name);
SIM_API int cuLaunchKernel(gpu_function function, unsigned grid_x, unsigned grid_y,
                           unsigned grid_z, unsigned block_x, unsigned block_y,
                           unsigned block_z, unsigned shared_bytes, gpu_stream stream,
                           void **parameters, void **extra);
SIM_API int cuLaunchHostFunc(gpu_stream stream, void (*function)(void *), void *data);

/* stream.c, event.c */
SIM_API int cuStreamCreate(gpu_stream *stream, unsigned flags);
SIM_API int cuStreamCreateWithPriority(gpu_stream *stream, unsigned flags, int priority);
SIM_API int cuStreamDestroy_v2(gpu_stream stream);
SIM_API int cuStreamQuery(gpu_stream stream);
SIM_API int cuStreamSynchronize(gpu_stream stream);
SIM_API int cuStreamGetCtx(gpu_stream stream, gpu_context *context);
SIM_API int cuStreamWaitEvent(gpu_stream stream, gpu_event event, unsigned flags);
SIM_API int cuEventCreate(gpu_event *event, unsigned flags);
SIM_API int cuEventDestroy_v2(gpu_event event);
SIM_API int cuEventRecord(gpu_event event, gpu_stream stream);
SIM_API int cuEventRecordWithFlags(gpu_event event, gpu_stream stream, unsigned flags);
SIM_API int cuEventQuery(gpu_event event);
SIM_API int cuEventSynchronize(gpu_event event);
SIM_API int cuEventElapsedTime(float *milliseconds, gpu_event start, gpu_event end);
SIM_API int cuEventElapsedTime_v2(float *milliseconds, gpu_event start, gpu_event end);

/* capture.c, graph.c */
SIM_API int cuStreamBeginCapture_v2(gpu_stream stream, int mode);
SIM_API int cuStreamEndCapture(gpu_stream stream, gpu_graph *graph);
SIM_API int cuStreamIsCapturing(gpu_stream stream, int *status);
SIM_API int cuStreamGetCaptureInfo_v2(gpu_stream stream, int *status, uint64_t *id,
                                      gpu_graph *graph, const gpu_node **dependencies,
                                      size_t *count);
SIM_API int cuStreamUpdateCaptureDependencies(gpu_stream stream, gpu_node *dependencies,
                                              size_t count, unsigned flags);
SIM_API int cuThreadExchangeStreamCaptureMode(int *mode);
SIM_API int cuGraphAddEventRecordNode(gpu_node *node, gpu_graph graph,
                                      const gpu_node *dependencies, size_t count,
                                      gpu_event event);
SIM_API int cuGraphAddDependencies(gpu_graph graph, const gpu_node *from, const gpu_node *to,
                                   size_t count);
SIM_API int cuGraphRemoveDependencies(gpu_graph graph, const gpu_node *from,
                                      const gpu_node *to, size_t count);
SIM_API int cuGraphCreate(gpu_graph *graph, unsigned flags);
SIM_API int cuGraphAddChildGraphNode(gpu_node *node, gpu_graph graph,
                                     const gpu_node *dependencies, size_t count,
                                     gpu_graph child);
SIM_API int cuGraphGetNodes(gpu_graph graph, gpu_node *nodes, size_t *count);
SIM_API int cuGraphInstantiateWithFlags(gpu_exec *exec, gpu_graph graph,
                                        unsigned long long flags);
SIM_API int cuGraphInstantiate_v2(gpu_exec *exec, gpu_graph graph, gpu_node *error_node,
                                  char *text, size_t length);
SIM_API int cuGraphLaunch(gpu_exec exec, gpu_stream stream);
SIM_API int cuGraphDestroy(gpu_graph graph);
SIM_API int cuGraphExecDestroy(gpu_exec exec);

/* names.c */
SIM_API int cuGetErrorName(int error, const char **name);
SIM_API int cuGetErrorString(int error, const char **text);
SIM_API int cuGetProcAddress(const char *symbol, void **function, int version,
                             uint64_t flags);
SIM_API int cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                uint64_t flags, int *status);

/* Not CUDA: the stand-in NCCL brackets its own driver calls with +1 and -1, so that they
 * are neither logged nor counted for SIMGPU_FAIL. Per thread. */
SIM_API void simgpu_quiet(int change);

#endif
