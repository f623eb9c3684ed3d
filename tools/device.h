/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU as a program uses it: a context, buffers, copies, streams and graphs, on the
 * driver API. For the bench and the tests; what fails has been printed, with the call. */
#ifndef IPS_TOOLS_DEVICE_H
#define IPS_TOOLS_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "core/gpu.h"

typedef struct CUgraphExec_st *gpu_graph_exec;

struct device {
    const struct ips_gpu_api *gpu;
    gpu_context context; /* primary, current on the thread that opened it */
    gpu_device id;
    int ordinal;
    int (*cuStreamBeginCapture)(gpu_stream stream, int mode);
    int (*cuStreamEndCapture)(gpu_stream stream, gpu_graph *graph);
    int (*cuGraphInstantiate)(gpu_graph_exec *exec, gpu_graph graph,
                              unsigned long long flags);
    int (*cuGraphLaunch)(gpu_graph_exec exec, gpu_stream stream);
    int (*cuGraphExecDestroy)(gpu_graph_exec exec);
    int (*cuGraphDestroy)(gpu_graph graph);
    int (*cuMemcpyAsync)(gpu_ptr to, gpu_ptr from, size_t bytes, gpu_stream stream);
    int (*cuDeviceGetName)(char *text, int length, gpu_device id);
};

/* Devices that libcuda.so.1 shows; 0 when there is none. *ret_simulated: it is the
 * stand-in. Initializes the driver: call it in a process that may be thrown away. */
int device_count(int *ret_simulated);

/* Makes the primary context of device `rank` modulo their number current on this thread.
 */
int device_open(struct device *device, unsigned rank);
void device_close(struct device *device);

/* 0, or -EIO after printing. Copies and fills are complete on return. */
int device_alloc(struct device *device, size_t bytes, gpu_ptr *ret);
void device_free(struct device *device, gpu_ptr address);
int device_upload(struct device *device, gpu_ptr to, const void *from, size_t bytes,
                  gpu_stream stream);
int device_download(struct device *device, void *to, gpu_ptr from, size_t bytes,
                    gpu_stream stream);
int device_fill(struct device *device, gpu_ptr to, unsigned char value, size_t bytes,
                gpu_stream stream);
int device_stream(struct device *device, gpu_stream *ret);

/* Waits until the stream is idle, or gives -ETIMEDOUT after the seconds: an AllReduce
 * whose peer died must not hang its tester. */
int device_wait(struct device *device, gpu_stream stream, double seconds);

/* Captures what `enqueue` puts on the stream into an executable graph. */
int device_capture(struct device *device, gpu_stream stream, int (*enqueue)(void *arg),
                   void *arg, gpu_graph_exec *ret);

#endif
