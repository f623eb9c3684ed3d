/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory: one memfd mapping per allocation, at the same address for host and
 * device. New memory holds garbage, as CUDA's does. */
#include "tools/simgpu/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define GARBAGE 0xa5
#define PAGE ((size_t)4096)

struct sim_memory *sim_memories;
static size_t allocated; /* device memory of this process, in bytes */

struct sim_memory *sim_memory_find_locked(const void *address, size_t bytes)
{
    const unsigned char *at = address;
    for (struct sim_memory *m = sim_memories; m; m = m->next) {
        if (at >= m->base && at < m->base + m->bytes)
            return bytes <= (size_t)(m->base + m->bytes - at) ? m : NULL;
    }
    return NULL;
}

void sim_memory_add_locked(struct sim_memory *memory)
{
    memory->next = sim_memories;
    sim_memories = memory;
}

void sim_memory_remove_locked(struct sim_memory *memory)
{
    struct sim_memory **link = &sim_memories;
    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
}

static int map_device(struct sim_memory *m)
{
    char name[64];
    if (getrandom(&m->nonce, sizeof m->nonce, 0) != sizeof m->nonce)
        return CUDA_ERROR_OPERATING_SYSTEM;
    snprintf(name, sizeof name, "simgpu-%016llx", (unsigned long long)m->nonce);
    m->fd = memfd_create(name, MFD_CLOEXEC);
    if (m->fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *base = MAP_FAILED;
    if (ftruncate(m->fd, (off_t)m->mapped) == 0)
        base = mmap(NULL, m->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (base == MAP_FAILED) {
        close(m->fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    m->base = base;
    return CUDA_SUCCESS;
}

static struct sim_memory *memory_create(enum sim_memory_kind kind, size_t bytes)
{
    struct sim_memory *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->kind = kind;
    m->bytes = bytes;
    m->mapped = (bytes + PAGE - 1) / PAGE * PAGE;
    m->fd = -1;
    return m;
}

static int reserve(size_t bytes)
{
    pthread_mutex_lock(&sim_lock);
    int fits =
        bytes <= sim_settings.mem_bytes && allocated <= sim_settings.mem_bytes - bytes;
    allocated += fits ? bytes : 0;
    pthread_mutex_unlock(&sim_lock);
    return fits;
}

static void unreserve(size_t bytes)
{
    pthread_mutex_lock(&sim_lock);
    allocated -= bytes;
    pthread_mutex_unlock(&sim_lock);
}

int cuMemAlloc_v2(gpu_ptr *address, size_t bytes)
{
    SIM_ENTER();
    struct CUctx_st *context = sim_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!address || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    int error = sim_unsafe();
    if (error)
        return error;
    if (!reserve(bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct sim_memory *m = memory_create(SIM_DEVICE, bytes);
    error = m ? map_device(m) : CUDA_ERROR_OUT_OF_MEMORY;
    if (error) {
        free(m);
        unreserve(bytes);
        return error;
    }
    m->device = m->owner = context->device;
    memset(m->base, GARBAGE, m->mapped);
    if (sim_links_map(m, m->fd))
        abort();
    pthread_mutex_lock(&sim_lock);
    sim_memory_add_locked(m);
    pthread_mutex_unlock(&sim_lock);
    *address = (gpu_ptr)(uintptr_t)m->base;
    return CUDA_SUCCESS;
}

static void memory_free(struct sim_memory *m)
{
    munmap(m->base, m->mapped);
    if (m->fd >= 0) {
        /* Whoever still has it open by IPC gets a bus error at the next access: on a GPU,
         * freeing memory under a peer's feet is undefined, here it is loud. */
        if (m->exported && ftruncate(m->fd, 0) != 0)
            perror("simgpu: ftruncate");
        close(m->fd);
    }
    free(m);
}

/* Takes the allocation that begins here out of the list; waits for its device first, as
 * CUDA does, since running work may use it. */
static int take(struct sim_memory **ret_memory, void *address, enum sim_memory_kind kind)
{
    int error = CUDA_SUCCESS;
    pthread_mutex_lock(&sim_lock);
    struct sim_memory *m = sim_memory_find_locked(address, 1);
    if (!m || m->base != address || m->kind != kind)
        error = CUDA_ERROR_INVALID_VALUE;
    if (!error)
        error = sim_unsafe_locked();
    if (!error) {
        sim_context_wait_locked(&sim_contexts[m->device]);
        sim_memory_remove_locked(m);
        sim_links_unmap_locked(m);
        if (kind == SIM_DEVICE)
            allocated -= m->bytes;
        *ret_memory = m;
    }
    pthread_mutex_unlock(&sim_lock);
    return error;
}

int cuMemFree_v2(gpu_ptr address)
{
    SIM_ENTER();
    struct sim_memory *m;
    if (!address)
        return CUDA_SUCCESS;
    int error = take(&m, (void *)(uintptr_t)address, SIM_DEVICE);
    if (!error)
        memory_free(m);
    return error;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    SIM_ENTER();
    if (!sim_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!free_bytes || !total_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    *total_bytes = sim_settings.mem_bytes;
    *free_bytes = sim_settings.mem_bytes - allocated;
    pthread_mutex_unlock(&sim_lock);
    return CUDA_SUCCESS;
}

int cuMemGetAddressRange_v2(gpu_ptr *base, size_t *bytes, gpu_ptr address)
{
    SIM_ENTER();
    pthread_mutex_lock(&sim_lock);
    struct sim_memory *m = sim_memory_find_locked((void *)(uintptr_t)address, 1);
    if (m && base)
        *base = (gpu_ptr)(uintptr_t)m->base;
    if (m && bytes)
        *bytes = m->bytes;
    pthread_mutex_unlock(&sim_lock);
    return m ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* Whether part of it is known already. */
static int overlaps_locked(const unsigned char *at, size_t bytes)
{
    for (const struct sim_memory *m = sim_memories; m; m = m->next)
        if (at < m->base + m->bytes && m->base < at + bytes)
            return 1;
    return 0;
}

/* Makes its pages present, as a driver does that pins them. Not 0 where there are none, as
 * behind the end of a file. An old kernel can't tell. */
static int pin(void *address, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    const size_t before = (size_t)address % PAGE;
    return madvise((char *)address - before, before + bytes, MADV_POPULATE_WRITE) &&
           errno == EFAULT;
#else
    (void)address, (void)bytes;
    return 0;
#endif
}

/* The memory stays the caller's: only noted as known to the device. */
int cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags)
{
    SIM_ENTER();
    struct CUctx_st *context = sim_current();
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!address || !bytes || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    int error = sim_unsafe();
    if (error)
        return error;
    pthread_mutex_lock(&sim_lock);
    const int known = overlaps_locked(address, bytes);
    pthread_mutex_unlock(&sim_lock);
    if (known)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (pin(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_memory *m = memory_create(SIM_PINNED, bytes);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->base = address;
    m->device = context->device;
    pthread_mutex_lock(&sim_lock);
    sim_memory_add_locked(m);
    pthread_mutex_unlock(&sim_lock);
    return CUDA_SUCCESS;
}

int cuMemHostUnregister(void *address)
{
    SIM_ENTER();
    struct sim_memory *m;
    if (!sim_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    int error = take(&m, address, SIM_PINNED);
    if (error)
        return error == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
                                                 : error;
    free(m);
    return CUDA_SUCCESS;
}

int cuMemHostGetDevicePointer_v2(gpu_ptr *device, void *host, unsigned flags)
{
    SIM_ENTER();
    if (!device || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    struct sim_memory *m = sim_memory_find_locked(host, 1);
    int error = m && m->kind == SIM_PINNED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&sim_lock);
    if (!error)
        *device = (gpu_ptr)(uintptr_t)host;
    return error;
}
