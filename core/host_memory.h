/* SPDX-License-Identifier: Apache-2.0 */
/* Mailboxes in host memory: ranges of the communicator's shared segment, one a slot, which
 * every rank maps and registers with its own GPU. They live for as long as any rank maps
 * them, so that nobody's end takes memory from under another's kernel. */
#ifndef IPS_CORE_HOST_MEMORY_H
#define IPS_CORE_HOST_MEMORY_H

#include "core/gpu.h"
#include "core/segment.h"

struct ips_host_memory {
    char *base;           /* of all ranges, as this rank maps them; NULL: none */
    size_t stride, bytes; /* of one range, in whole pages, and of all */
    int registered;
};

/* Maps the ranges of all ranks and allocates the own one, which is all zero, on the NUMA
 * node of the GPU that alone reads there (-1: anywhere). Calls no driver. 0 or a negative
 * errno, with the cause in ret_reason[IPS_REASON_BYTES]; then nothing is left. */
int ips_host_memory_create(struct ips_host_memory *memory,
                           const struct ips_segment *segment, unsigned channels, int node,
                           char *ret_reason);

/* Registers the ranges, which all ranks have allocated by now, for the current context.
 * *ret_base: the device's address of base. Status of the driver. */
int ips_host_memory_register(struct ips_host_memory *memory,
                             const struct ips_gpu_api *gpu, gpu_ptr *ret_base);

/* No kernel of this rank uses them any more. Harmless when there are none. */
void ips_host_memory_destroy(struct ips_host_memory *memory,
                             const struct ips_gpu_api *gpu);

/* The NUMA node of the PCI device, from the tree `root`, which is "/sys"; -1 where that does
 * not tell. */
int ips_host_node(const char *root, const char *bus_id);

#endif
