/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA IPC: a handle names the exporter's memfd, which another process opens through
 * /proc. */
#include "tools/simgpu/sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x637069757067696dull

struct handle {
    uint64_t magic, nonce, bytes, mapped;
    int32_t pid, fd, device;
};

int cuIpcGetMemHandle(struct gpu_ipc_handle *handle, gpu_ptr address)
{
    SIM_ENTER();
    struct handle h = {.magic = MAGIC, .pid = (int32_t)getpid()};
    if (!sim_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    struct sim_memory *m = sim_memory_find_locked((void *)(uintptr_t)address, 1);
    int good = m && m->kind == SIM_DEVICE;
    if (good) {
        h.nonce = m->nonce;
        h.bytes = m->bytes;
        h.mapped = m->mapped;
        h.fd = m->fd;
        h.device = m->device;
        m->exported = 1;
    }
    pthread_mutex_unlock(&sim_lock);
    if (!good)
        return CUDA_ERROR_INVALID_VALUE;
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &h, sizeof h);
    return CUDA_SUCCESS;
}

/* The exporter's memory as a descriptor of ours, or -1 when it is gone. */
static int open_exported(const struct handle *h)
{
    char path[64], want[64], target[96];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)h->pid, (int)h->fd);
    snprintf(want, sizeof want, "/memfd:simgpu-%016llx ", (unsigned long long)h->nonce);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0)
        return -1;
    target[length] = 0;
    if (strncmp(target, want, strlen(want)) != 0)
        return -1; /* freed, and the number is in use again */
    return open(path, O_RDWR | O_CLOEXEC);
}

static int import(struct sim_memory **ret_memory, const struct handle *h, int device)
{
    int fd = open_exported(h);
    if (fd < 0)
        return CUDA_ERROR_MAP_FAILED;
    struct sim_memory *m = calloc(1, sizeof *m);
    void *base =
        m ? mmap(NULL, h->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (base == MAP_FAILED) {
        close(fd);
        free(m);
        return CUDA_ERROR_MAP_FAILED;
    }
    *m = (struct sim_memory){.kind = SIM_IMPORTED,
                             .base = base,
                             .bytes = h->bytes,
                             .mapped = h->mapped,
                             .device = device,
                             .owner = h->device,
                             .fd = -1,
                             .opened = 1,
                             .nonce = h->nonce};
    const int failed = sim_links_map(m, fd);
    close(fd);
    if (failed) {
        munmap(base, m->mapped);
        free(m);
        return CUDA_ERROR_MAP_FAILED;
    }
    *ret_memory = m;
    return CUDA_SUCCESS;
}

static struct sim_memory *find_open(uint64_t nonce, int device)
{
    for (struct sim_memory *m = sim_memories; m; m = m->next)
        if (m->kind == SIM_IMPORTED && m->nonce == nonce && m->device == device)
            return m;
    return NULL;
}

int cuIpcOpenMemHandle_v2(gpu_ptr *address, struct gpu_ipc_handle handle, unsigned flags)
{
    SIM_ENTER();
    struct handle h;
    struct CUctx_st *context = sim_current();
    memcpy(&h, &handle, sizeof h);
    if (!address || flags != GPU_IPC_LAZY_PEER_ACCESS || h.magic != MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (!context || h.pid == (int32_t)getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (h.device != context->device && sim_settings.no_peer)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    pthread_mutex_lock(&sim_lock);
    int error = sim_unsafe_locked();
    struct sim_memory *m = error ? NULL : find_open(h.nonce, context->device);
    if (m) {
        m->opened++;
    } else if (!error) {
        error = import(&m, &h, context->device);
        if (!error)
            sim_memory_add_locked(m);
    }
    if (!error)
        *address = (gpu_ptr)(uintptr_t)m->base;
    pthread_mutex_unlock(&sim_lock);
    return error;
}

int cuIpcCloseMemHandle(gpu_ptr address)
{
    SIM_ENTER();
    struct sim_memory *m;
    int last = 0;
    pthread_mutex_lock(&sim_lock);
    int error = sim_unsafe_locked();
    m = sim_memory_find_locked((void *)(uintptr_t)address, 1);
    if (!error && (!m || m->kind != SIM_IMPORTED))
        error = CUDA_ERROR_INVALID_VALUE;
    if (!error && --m->opened == 0) {
        last = 1;
        sim_context_wait_locked(&sim_contexts[m->device]);
        sim_memory_remove_locked(m);
        sim_links_unmap_locked(m);
    }
    pthread_mutex_unlock(&sim_lock);
    if (last) {
        munmap(m->base, m->mapped);
        free(m);
    }
    return error;
}
