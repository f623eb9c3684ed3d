/* SPDX-License-Identifier: Apache-2.0 */
/* A soak's works as kernels; any grid of any size. */
#include "tests/soak/works.h"

__device__ static uint64_t first_of(void)
{
    return blockIdx.x * (uint64_t)blockDim.x + threadIdx.x;
}

__device__ static uint64_t stride_of(void)
{
    return gridDim.x * (uint64_t)blockDim.x;
}

__device__ static uint64_t clock_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

extern "C" __global__ void soak_fill_kernel(const struct soak_call call)
{
    soak_fill(&call, first_of(), stride_of());
    if (first_of())
        return;
    const uint64_t delay = soak_delay_ns(&call, soak_number(&call)), start = clock_ns();
    while (clock_ns() - start < delay) {
    }
}

extern "C" __global__ void soak_check_kernel(const struct soak_call call)
{
    soak_check(&call, first_of(), stride_of());
}

extern "C" __global__ void soak_advance_kernel(const struct soak_call call)
{
    ++*call.replay;
}
