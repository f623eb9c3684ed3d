/* SPDX-License-Identifier: Apache-2.0 */
/* Primary contexts and each thread's stack of current ones. */
#include "tools/simgpu/sim.h"

#define STACK_MAX 64

struct CUctx_st sim_contexts[SIM_MAX_DEVICES];

static __thread struct CUctx_st *stack[STACK_MAX];
static __thread int depth;

struct CUctx_st *sim_current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

static int valid(gpu_context context)
{
    return context >= sim_contexts && context < sim_contexts + sim_settings.devices &&
           context->retained > 0;
}

int cuDevicePrimaryCtxRetain(gpu_context *context, gpu_device device)
{
    SIM_ENTER();
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= sim_settings.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&sim_lock);
    sim_contexts[device].retained++;
    pthread_mutex_unlock(&sim_lock);
    *context = &sim_contexts[device];
    return CUDA_SUCCESS;
}

/* The last release makes the context unusable; its memory and streams stay, unlike
 * CUDA's. */
int cuDevicePrimaryCtxRelease_v2(gpu_device device)
{
    SIM_ENTER();
    if (device < 0 || device >= sim_settings.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&sim_lock);
    int held = sim_contexts[device].retained > 0;
    sim_contexts[device].retained -= held;
    pthread_mutex_unlock(&sim_lock);
    return held ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

int cuDevicePrimaryCtxGetState(gpu_device device, unsigned *flags, int *active)
{
    SIM_ENTER();
    if (device < 0 || device >= sim_settings.devices)
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags)
        *flags = 0;
    if (active)
        *active = sim_contexts[device].retained > 0;
    return CUDA_SUCCESS;
}

int cuCtxGetCurrent(gpu_context *context)
{
    SIM_ENTER();
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = sim_current();
    return CUDA_SUCCESS;
}

int cuCtxSetCurrent(gpu_context context)
{
    SIM_ENTER();
    if (context && !valid(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context)
        depth -= depth > 0;
    else if (depth)
        stack[depth - 1] = context;
    else
        stack[depth++] = context;
    return CUDA_SUCCESS;
}

int cuCtxPushCurrent_v2(gpu_context context)
{
    SIM_ENTER();
    if (!valid(context))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (depth == STACK_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

int cuCtxPopCurrent_v2(gpu_context *context)
{
    SIM_ENTER();
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context)
        *context = stack[depth];
    return CUDA_SUCCESS;
}

int cuCtxGetDevice(gpu_device *device)
{
    SIM_ENTER();
    struct CUctx_st *context = sim_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = context->device;
    return CUDA_SUCCESS;
}

void sim_context_wait_locked(struct CUctx_st *context)
{
    for (struct CUstream_st *s = sim_streams; s; s = s->next) {
        if (s->context == context && s->completed < s->submitted) {
            sim_stream_wait_locked(s);
            s = sim_streams; /* the list may have changed */
            if (!s)
                break;
        }
    }
}

int cuCtxSynchronize(void)
{
    SIM_ENTER();
    struct CUctx_st *context = sim_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&sim_lock);
    int error = sim_unsafe_locked();
    if (!error)
        sim_context_wait_locked(context);
    pthread_mutex_unlock(&sim_lock);
    return error;
}

int cuCtxEnablePeerAccess(gpu_context peer, unsigned flags)
{
    SIM_ENTER();
    struct CUctx_st *context = sim_current();
    if (!context || !valid(peer))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (peer == context || sim_settings.no_peer)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    uint32_t bit = 1u << peer->device;
    pthread_mutex_lock(&sim_lock);
    int enabled = (context->peers & bit) != 0;
    context->peers |= bit;
    pthread_mutex_unlock(&sim_lock);
    return enabled ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

int cuCtxDisablePeerAccess(gpu_context peer)
{
    SIM_ENTER();
    struct CUctx_st *context = sim_current();
    if (!context || !valid(peer))
        return CUDA_ERROR_INVALID_CONTEXT;
    uint32_t bit = 1u << peer->device;
    pthread_mutex_lock(&sim_lock);
    int enabled = (context->peers & bit) != 0;
    context->peers &= ~bit;
    pthread_mutex_unlock(&sim_lock);
    return enabled ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
