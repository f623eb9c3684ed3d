/* SPDX-License-Identifier: Apache-2.0 */
/* The seam to the GPU: every driver and NVML call the engine makes goes through these two
 * tables. They are filled once, from libcuda.so.1 and libnvidia-ml.so.1, when the first
 * communicator is made; nothing here runs before that.
 *
 * The types are declared here, so that no CUDA header is needed and none can clash; names
 * of members and structs are the driver's own. Every call returns 0 on success. */
#ifndef IPS_CORE_GPU_H
#define IPS_CORE_GPU_H

#include <stddef.h>
#include <stdint.h>

typedef int gpu_device;
typedef unsigned long long gpu_ptr;
typedef struct CUctx_st *gpu_context;
typedef struct CUmod_st *gpu_module;
typedef struct CUfunc_st *gpu_function;
typedef struct CUstream_st *gpu_stream; /* = cudaStream_t */
typedef struct CUevent_st *gpu_event;
typedef struct CUgraph_st *gpu_graph;
typedef struct CUgraphNode_st *gpu_node;
/* One handle, another stream in each thread (CU_STREAM_PER_THREAD). */
#define GPU_STREAM_PER_THREAD ((gpu_stream)2)
struct gpu_uuid {
    unsigned char bytes[16];
};
struct gpu_ipc_handle {
    unsigned char reserved[64];
};

enum {
    GPU_SUCCESS = 0,
    GPU_ERROR_OUT_OF_MEMORY = 2,
    GPU_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    GPU_ERROR_NOT_READY = 600,
    GPU_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    GPU_STREAM_NON_BLOCKING = 1,
    GPU_EVENT_DISABLE_TIMING = 2,
    GPU_EVENT_EXTERNAL = 1, /* CU_EVENT_RECORD_EXTERNAL and CU_EVENT_WAIT_EXTERNAL */
    GPU_HOST_PORTABLE = 1,
    GPU_HOST_DEVICEMAP = 2,
    GPU_IPC_LAZY_PEER_ACCESS = 1,
    GPU_CAPTURE_NONE = 0,
    GPU_CAPTURE_ACTIVE = 1,
    GPU_CAPTURE_INVALIDATED = 2,
    GPU_CAPTURE_MODE_RELAXED = 2,
    GPU_ADD_CAPTURE_DEPENDENCIES = 0,
    GPU_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    GPU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    GPU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    GPU_FUNCTION_REGISTERS = 4, /* CU_FUNC_ATTRIBUTE_NUM_REGS */
};

/* X(return-less prototype): name, parameters. The symbol of libcuda is SYMBOL. */
#define IPS_GPU_CALLS(X)                                                                \
    X(cuInit, "cuInit", (unsigned flags))                                               \
    X(cuDriverGetVersion, "cuDriverGetVersion", (int *version))                         \
    X(cuGetErrorName, "cuGetErrorName", (int error, const char **name))                 \
    X(cuDeviceGetCount, "cuDeviceGetCount", (int *count))                               \
    X(cuDeviceGet, "cuDeviceGet", (gpu_device * device, int ordinal))                   \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute",                                     \
      (int *value, int attribute, gpu_device device))                                   \
    X(cuDeviceGetUuid, "cuDeviceGetUuid", (struct gpu_uuid * uuid, gpu_device device))  \
    X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId",                                       \
      (char *text, int length, gpu_device device))                                      \
    X(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer",                                   \
      (int *can, gpu_device device, gpu_device peer))                                   \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                             \
      (gpu_context * context, gpu_device device))                                       \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (gpu_device device))   \
    X(cuCtxGetCurrent, "cuCtxGetCurrent", (gpu_context * context))                      \
    X(cuCtxGetDevice, "cuCtxGetDevice", (gpu_device * device))                          \
    X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (gpu_context context))                   \
    X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (gpu_context * context))                   \
    X(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess",                                   \
      (gpu_context peer, unsigned flags))                                               \
    X(cuMemAlloc, "cuMemAlloc_v2", (gpu_ptr * address, size_t bytes))                   \
    X(cuMemFree, "cuMemFree_v2", (gpu_ptr address))                                     \
    X(cuMemHostRegister, "cuMemHostRegister_v2",                                        \
      (void *address, size_t bytes, unsigned flags))                                    \
    X(cuMemHostUnregister, "cuMemHostUnregister", (void *address))                      \
    X(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2",                        \
      (gpu_ptr * device, void *host, unsigned flags))                                   \
    X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                        \
      (gpu_ptr to, const void *from, size_t bytes, gpu_stream stream))                  \
    X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                        \
      (void *to, gpu_ptr from, size_t bytes, gpu_stream stream))                        \
    X(cuMemsetD8Async, "cuMemsetD8Async",                                               \
      (gpu_ptr address, unsigned char value, size_t bytes, gpu_stream stream))          \
    X(cuIpcGetMemHandle, "cuIpcGetMemHandle",                                           \
      (struct gpu_ipc_handle * handle, gpu_ptr address))                                \
    X(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2",                                      \
      (gpu_ptr * address, struct gpu_ipc_handle handle, unsigned flags))                \
    X(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", (gpu_ptr address))                    \
    X(cuModuleLoadData, "cuModuleLoadData", (gpu_module * module, const void *image))   \
    X(cuModuleUnload, "cuModuleUnload", (gpu_module module))                            \
    X(cuModuleGetFunction, "cuModuleGetFunction",                                       \
      (gpu_function * function, gpu_module module, const char *name))                   \
    X(cuModuleGetGlobal, "cuModuleGetGlobal_v2",                                        \
      (gpu_ptr * address, size_t * bytes, gpu_module module, const char *name))         \
    X(cuFuncGetAttribute, "cuFuncGetAttribute",                                         \
      (int *value, int attribute, gpu_function function))                               \
    X(cuLaunchKernel, "cuLaunchKernel",                                                 \
      (gpu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,        \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,     \
       gpu_stream stream, void **parameters, void **extra))                             \
    X(cuStreamCreate, "cuStreamCreate", (gpu_stream * stream, unsigned flags))          \
    X(cuStreamDestroy, "cuStreamDestroy_v2", (gpu_stream stream))                       \
    X(cuStreamQuery, "cuStreamQuery", (gpu_stream stream))                              \
    X(cuStreamSynchronize, "cuStreamSynchronize", (gpu_stream stream))                  \
    X(cuStreamWaitEvent, "cuStreamWaitEvent",                                           \
      (gpu_stream stream, gpu_event event, unsigned flags))                             \
    X(cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2",                              \
      (gpu_stream stream, int *status, uint64_t *id, gpu_graph *graph,                  \
       const gpu_node **dependencies, size_t *count))                                   \
    X(cuStreamUpdateCaptureDependencies, "cuStreamUpdateCaptureDependencies",           \
      (gpu_stream stream, gpu_node * dependencies, size_t count, unsigned flags))       \
    X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode",           \
      (int *mode))                                                                      \
    X(cuGraphAddEventRecordNode, "cuGraphAddEventRecordNode",                           \
      (gpu_node * node, gpu_graph graph, const gpu_node *dependencies, size_t count,    \
       gpu_event event))                                                                \
    X(cuGraphAddDependencies, "cuGraphAddDependencies",                                 \
      (gpu_graph graph, const gpu_node *from, const gpu_node *to, size_t count))        \
    X(cuGraphRemoveDependencies, "cuGraphRemoveDependencies",                           \
      (gpu_graph graph, const gpu_node *from, const gpu_node *to, size_t count))        \
    X(cuEventCreate, "cuEventCreate", (gpu_event * event, unsigned flags))              \
    X(cuEventDestroy, "cuEventDestroy_v2", (gpu_event event))                           \
    X(cuEventRecord, "cuEventRecord", (gpu_event event, gpu_stream stream))             \
    X(cuEventQuery, "cuEventQuery", (gpu_event event))

struct ips_gpu_api {
#define X(name, symbol, parameters) int(*name) parameters;
    IPS_GPU_CALLS(X)
#undef X
};

/* NVML, for what the driver API does not tell about links. Optional: a NULL member means
 * unknown. P2P caps index: 0 read, 1 write, 2 NVLink; status 0 is OK. */
typedef struct nvmlDevice_st *nvml_device;
struct ips_nvml_api {
    int (*nvmlInit)(void);
    int (*nvmlDeviceGetHandleByPciBusId)(const char *bus_id, nvml_device *device);
    int (*nvmlDeviceGetP2PStatus)(nvml_device a, nvml_device b, int index, int *status);
};

/* The driver's table, or NULL when libcuda.so.1 is missing, does not initialize, or lacks
 * a call (logged once; a failure is not cached, a later communicator tries again).
 * Thread-safe. */
const struct ips_gpu_api *ips_gpu(void);

/* NVML's table, or NULL when it can't be had. Thread-safe. */
const struct ips_nvml_api *ips_nvml(void);

/* The driver's name of an error, "CUDA_ERROR_..."; static storage. */
const char *ips_gpu_error(int error);

/* Calls through the table, logs a failure once with the text of the call at the given
 * level, and yields the driver's status. */
#define IPS_GPU_AT(level, gpu, call) ips_gpu_check((gpu)->call, #call, (level))
#define IPS_GPU(gpu, call) IPS_GPU_AT(IPS_LOG_WARN, gpu, call)
int ips_gpu_check(int error, const char *call, int level);

/* Makes `context` current if it is not; *ret_pushed says whether ips_gpu_leave must pop.
 */
int ips_gpu_enter(const struct ips_gpu_api *gpu, gpu_context context, int *ret_pushed);
void ips_gpu_leave(const struct ips_gpu_api *gpu, int pushed);

#endif
