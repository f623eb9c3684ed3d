/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills. As on a GPU, an asynchronous copy from pageable memory has read its
 * source when the call returns, and one to pageable memory has finished. */
#include "tools/simgpu/sim.h"

#include <stdlib.h>
#include <string.h>

static void *host(gpu_ptr address)
{
    return (void *)(uintptr_t)address;
}

enum side { HOST, DEVICE, EITHER };

/* Whether [address, +bytes) may be that side of a copy; *ret_pageable: it is plain
 * memory. */
static int check(const void *address, size_t bytes, enum side side, int *ret_pageable)
{
    pthread_mutex_lock(&sim_lock);
    struct sim_memory *m = sim_memory_find_locked(address, bytes ? bytes : 1);
    pthread_mutex_unlock(&sim_lock);
    *ret_pageable = m == NULL;
    return address && (m || side != DEVICE);
}

static int captured(gpu_stream handle)
{
    int error;
    pthread_mutex_lock(&sim_lock);
    struct CUstream_st *stream = sim_stream_find_locked(handle, &error);
    int is = stream && stream->capture;
    pthread_mutex_unlock(&sim_lock);
    return is;
}

static int wait_for(gpu_stream handle)
{
    int error;
    pthread_mutex_lock(&sim_lock);
    struct CUstream_st *stream = sim_stream_find_locked(handle, &error);
    if (stream)
        sim_stream_wait_locked(stream);
    pthread_mutex_unlock(&sim_lock);
    return error;
}

static int copy_async(void *to, enum side to_side, const void *from, enum side from_side,
                      size_t bytes, gpu_stream stream)
{
    int to_pageable, from_pageable;
    if (!sim_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!check(to, bytes, to_side, &to_pageable) ||
        !check(from, bytes, from_side, &from_pageable))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_COPY, .to = to, .from = from, .bytes = bytes};
    int eager = !captured(stream);
    if (from_pageable && eager && bytes) {
        work.staged = malloc(bytes);
        if (!work.staged)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(work.staged, from, bytes);
        work.from = work.staged;
    }
    int error = sim_submit(stream, &work);
    if (!error && to_pageable && eager)
        error = wait_for(stream);
    return error;
}

/* Synchronous copies run on the legacy stream; a capture of other streams does not mind.
 */
static int copy_now(void *to, enum side to_side, const void *from, enum side from_side,
                    size_t bytes)
{
    int error = copy_async(to, to_side, from, from_side, bytes, NULL);
    return error ? error : wait_for(NULL);
}

int cuMemcpyHtoD_v2(gpu_ptr to, const void *from, size_t bytes)
{
    SIM_ENTER();
    return copy_now(host(to), DEVICE, from, HOST, bytes);
}

int cuMemcpyDtoH_v2(void *to, gpu_ptr from, size_t bytes)
{
    SIM_ENTER();
    return copy_now(to, HOST, host(from), DEVICE, bytes);
}

int cuMemcpyDtoD_v2(gpu_ptr to, gpu_ptr from, size_t bytes)
{
    SIM_ENTER();
    return copy_now(host(to), DEVICE, host(from), DEVICE, bytes);
}

int cuMemcpyHtoDAsync_v2(gpu_ptr to, const void *from, size_t bytes, gpu_stream stream)
{
    SIM_ENTER();
    return copy_async(host(to), DEVICE, from, HOST, bytes, stream);
}

int cuMemcpyDtoHAsync_v2(void *to, gpu_ptr from, size_t bytes, gpu_stream stream)
{
    SIM_ENTER();
    return copy_async(to, HOST, host(from), DEVICE, bytes, stream);
}

int cuMemcpyDtoDAsync_v2(gpu_ptr to, gpu_ptr from, size_t bytes, gpu_stream stream)
{
    SIM_ENTER();
    return copy_async(host(to), DEVICE, host(from), DEVICE, bytes, stream);
}

int cuMemcpyAsync(gpu_ptr to, gpu_ptr from, size_t bytes, gpu_stream stream)
{
    SIM_ENTER();
    return copy_async(host(to), EITHER, host(from), EITHER, bytes, stream);
}

static int set_async(gpu_ptr address, unsigned char value, size_t bytes,
                     gpu_stream stream)
{
    int pageable;
    if (!check(host(address), bytes, DEVICE, &pageable))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {
        .kind = SIM_SET, .to = host(address), .value = value, .bytes = bytes};
    return sim_submit(stream, &work);
}

int cuMemsetD8_v2(gpu_ptr address, unsigned char value, size_t bytes)
{
    SIM_ENTER();
    int error = set_async(address, value, bytes, NULL);
    return error ? error : wait_for(NULL);
}

int cuMemsetD8Async(gpu_ptr address, unsigned char value, size_t bytes, gpu_stream stream)
{
    SIM_ENTER();
    return set_async(address, value, bytes, stream);
}
