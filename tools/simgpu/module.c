/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and launches. The image is ignored: the kernels are those linked in. */
#include "tools/simgpu/sim.h"

#include <stdlib.h>
#include <string.h>

struct CUfunc_st {
    struct CUfunc_st *next;
    struct CUmod_st *module;
    const struct sim_kernel *kernel;
};

struct CUmod_st {
    struct CUmod_st *next;
    struct CUctx_st *context;
    struct CUfunc_st *functions;
};

static struct CUmod_st *modules;

static struct CUmod_st *find(gpu_module module)
{
    for (struct CUmod_st *m = modules; m; m = m->next)
        if (m == module)
            return m;
    return NULL;
}

int cuModuleLoadData(gpu_module *module, const void *image)
{
    SIM_ENTER();
    struct CUctx_st *context = sim_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUmod_st *m = calloc(1, sizeof *m);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->context = context;
    pthread_mutex_lock(&sim_lock);
    m->next = modules;
    modules = m;
    pthread_mutex_unlock(&sim_lock);
    *module = m;
    return CUDA_SUCCESS;
}

int cuModuleUnload(gpu_module handle)
{
    SIM_ENTER();
    pthread_mutex_lock(&sim_lock);
    struct CUmod_st *module = find(handle);
    int error = module ? sim_unsafe_locked() : CUDA_ERROR_INVALID_HANDLE;
    if (!error) {
        struct CUmod_st **link = &modules;
        while (*link != module)
            link = &(*link)->next;
        *link = module->next;
        while (module->functions) {
            struct CUfunc_st *function = module->functions;
            module->functions = function->next;
            free(function);
        }
        free(module);
    }
    pthread_mutex_unlock(&sim_lock);
    return error;
}

int cuModuleGetFunction(gpu_function *function, gpu_module handle, const char *name)
{
    SIM_ENTER();
    if (!function || !name)
        return CUDA_ERROR_INVALID_VALUE;
    const struct sim_kernel *kernel = sim_kernel_find(name);
    struct CUfunc_st *made = kernel ? calloc(1, sizeof *made) : NULL;
    if (!made)
        return CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&sim_lock);
    struct CUmod_st *module = find(handle);
    if (module) {
        *made = (struct CUfunc_st){module->functions, module, kernel};
        module->functions = made;
        *function = made;
    } else {
        free(made);
    }
    pthread_mutex_unlock(&sim_lock);
    return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Asking for any attribute makes a function resident; there are no registers to count. */
int cuFuncGetAttribute(int *value, int attribute, gpu_function function)
{
    (void)attribute;
    SIM_ENTER();
    if (!value || !function)
        return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    return CUDA_SUCCESS;
}

/* A global is device memory too: copies must accept it. */
static void add_global_locked(void *global, size_t bytes)
{
    if (sim_memory_find_locked(global, 1))
        return;
    struct sim_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        abort();
    *memory =
        (struct sim_memory){.kind = SIM_GLOBAL, .base = global, .bytes = bytes, .fd = -1};
    sim_memory_add_locked(memory);
}

int cuModuleGetGlobal_v2(gpu_ptr *address, size_t *bytes, gpu_module handle,
                         const char *name)
{
    size_t size;
    SIM_ENTER();
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    void *global = sim_kernel_global(name, &size);
    pthread_mutex_lock(&sim_lock);
    struct CUmod_st *module = find(handle);
    if (module && global)
        add_global_locked(global, size);
    pthread_mutex_unlock(&sim_lock);
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!global)
        return CUDA_ERROR_NOT_FOUND;
    if (address)
        *address = (gpu_ptr)(uintptr_t)global;
    if (bytes)
        *bytes = size;
    return CUDA_SUCCESS;
}

static struct CUfunc_st *find_function(gpu_function handle)
{
    for (struct CUmod_st *m = modules; m; m = m->next)
        for (struct CUfunc_st *f = m->functions; f; f = f->next)
            if (f == handle)
                return f;
    return NULL;
}

/* One dimension; a block is a multiple of 32 threads. */
int cuLaunchKernel(gpu_function handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z,
                   unsigned shared_bytes, gpu_stream stream_handle, void **parameters,
                   void **extra)
{
    int error;
    SIM_ENTER();
    if (!sim_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || shared_bytes ||
        extra || !parameters || !grid_x || grid_x > SIM_MAX_BLOCKS || !block_x ||
        block_x > SIM_MAX_THREADS || block_x % 32)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_KERNEL, .blocks = grid_x, .threads = block_x};
    pthread_mutex_lock(&sim_lock);
    struct CUfunc_st *function = find_function(handle);
    struct CUstream_st *stream = sim_stream_find_locked(stream_handle, &error);
    if (!function || (stream && stream->context != function->module->context))
        error = CUDA_ERROR_INVALID_HANDLE;
    if (!error) {
        work.kernel = function->kernel;
        memcpy(work.parameters, parameters[0], function->kernel->bytes);
        error = sim_submit_locked(stream, &work);
    }
    pthread_mutex_unlock(&sim_lock);
    return error;
}

int cuLaunchHostFunc(gpu_stream stream, void (*function)(void *), void *data)
{
    SIM_ENTER();
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_work work = {.kind = SIM_HOST, .host = function, .data = data};
    return sim_submit(stream, &work);
}
