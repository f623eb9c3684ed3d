/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates, places and registers the mailboxes in host memory. Where a page lies is
 * decided when it is allocated, so the order is: map, bind, allocate; and no rank touches
 * another's range before that rank has done so. */
#include "core/host_memory.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/log.h"

#define PAGE IPS_SEGMENT_PAGE
#define MOST_NODES 1024
#define PREFERRED 1 /* MPOL_PREFERRED: another node where this one is full */

int ips_host_node(const char *root, const char *bus_id)
{
    char path[256], name[32] = "", text[16] = "";
    for (size_t i = 0; bus_id[i] && i < sizeof name - 1; i++)
        name[i] = (char)tolower((unsigned char)bus_id[i]); /* as the kernel writes it */
    if (strchr(name, '/'))
        return -1;
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/numa_node", root, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    const long node = got > 0 ? strtol(text, NULL, 10) : -1;
    return node >= 0 && node < MOST_NODES ? (int)node : -1;
}

/* A hint: where it is not taken, as in a container that forbids it, the pages come from
 * anywhere. */
static void bind_to(void *at, size_t bytes, int node)
{
    unsigned long nodes[MOST_NODES / (8 * sizeof(unsigned long))] = {0};
    const size_t bits = 8 * sizeof nodes[0];
    nodes[(size_t)node / bits] = 1ul << (size_t)node % bits;
    const long error = syscall(SYS_mbind, at, bytes, PREFERRED, nodes, MOST_NODES + 1, 0);
    ips_log(IPS_LOG_TRACE, "mailbox on NUMA node %d: %s", node,
            error ? strerror(errno) : "bound");
}

int ips_host_memory_create(struct ips_host_memory *memory,
                           const struct ips_segment *segment, unsigned channels, int node,
                           char *ret_reason)
{
    const size_t stride = (IPS_MAILBOX_BYTES(channels) + PAGE - 1) / PAGE * PAGE;
    const size_t bytes = stride * (size_t)segment->nranks;
    const size_t at = stride * (size_t)segment->slot;
    char *base;
    int error = ips_segment_map_more(segment, bytes, &base, ret_reason);
    if (error)
        return error;
    if (node >= 0 && node < MOST_NODES)
        bind_to(base + at, stride, node);
    error = ips_segment_reserve_more(segment, at, stride, ret_reason);
    if (error) {
        munmap(base, bytes);
        return error;
    }
    *memory = (struct ips_host_memory){base, stride, bytes, 0};
    return 0;
}

int ips_host_memory_register(struct ips_host_memory *memory,
                             const struct ips_gpu_api *gpu, gpu_ptr *ret_base)
{
    int error = gpu->cuMemHostRegister(memory->base, memory->bytes,
                                       GPU_HOST_PORTABLE | GPU_HOST_DEVICEMAP);
    if (error)
        return error;
    memory->registered = 1;
    return gpu->cuMemHostGetDevicePointer(ret_base, memory->base, 0);
}

void ips_host_memory_destroy(struct ips_host_memory *memory,
                             const struct ips_gpu_api *gpu)
{
    if (!memory->base)
        return;
    if (memory->registered)
        IPS_GPU_AT(IPS_LOG_INFO, gpu, cuMemHostUnregister(memory->base));
    munmap(memory->base, memory->bytes);
    *memory = (struct ips_host_memory){0};
}
