/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up kernels and globals: those of kernels.cpp, and those that tests register. */
#include "tools/simgpu/sim.h"

#include <string.h>

#include "kernels/wire.h"

#define REGISTERED_MAX 16

extern const struct sim_kernel sim_kernels[];
extern const size_t sim_kernel_count;
extern void *const sim_module_version;

static const struct sim_kernel *registered[REGISTERED_MAX];
static size_t registered_count;

void sim_kernel_register(const struct sim_kernel *kernel)
{
    if (registered_count < REGISTERED_MAX)
        registered[registered_count++] = kernel;
}

const struct sim_kernel *sim_kernel_find(const char *name)
{
    for (size_t i = 0; i < sim_kernel_count; i++)
        if (strcmp(sim_kernels[i].name, name) == 0)
            return &sim_kernels[i];
    for (size_t i = 0; i < registered_count; i++)
        if (strcmp(registered[i]->name, name) == 0)
            return registered[i];
    return NULL;
}

void *sim_kernel_global(const char *name, size_t *ret_bytes)
{
    if (strcmp(name, IPS_MODULE_VERSION) != 0)
        return NULL;
    *ret_bytes = sizeof(uint32_t);
    return sim_module_version;
}
