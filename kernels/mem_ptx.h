/* SPDX-License-Identifier: Apache-2.0 */
/* GPU back-end of mem.h. The memory clobbers keep the compiler from moving plain accesses
 * across; volatile keeps the order among these. */
#ifndef IPS_KERNELS_MEM_PTX_H
#define IPS_KERNELS_MEM_PTX_H

#define IPS_DEVICE static __device__ __forceinline__
#define IPS_DEVICE_CALL static __device__ __noinline__
#define IPS_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
#define IPS_PARAMETER const __grid_constant__
#define IPS_GLOBAL __device__
#define IPS_UNROLL _Pragma("unroll")

IPS_DEVICE unsigned ips_thread(void)
{
    return threadIdx.x;
}

IPS_DEVICE unsigned ips_threads(void)
{
    return blockDim.x;
}

IPS_DEVICE unsigned ips_block(void)
{
    return blockIdx.x;
}

IPS_DEVICE unsigned ips_blocks(void)
{
    return gridDim.x;
}

IPS_DEVICE void ips_barrier(void)
{
    __syncthreads();
}

IPS_DEVICE bool ips_barrier_any(bool predicate)
{
    return __syncthreads_or(predicate);
}

IPS_DEVICE uint64_t ips_shfl_xor(uint64_t value, unsigned lane_mask)
{
    return __shfl_xor_sync(0xffffffffu, (unsigned long long)value, lane_mask);
}

IPS_DEVICE uint32_t ips_ballot(bool predicate)
{
    return __ballot_sync(0xffffffffu, predicate);
}

IPS_DEVICE void ips_spin(void)
{
}

IPS_DEVICE uint64_t ips_clock_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

IPS_DEVICE void *ips_shared(void)
{
    __shared__ __align__(16) unsigned char bytes[IPS_SHARED_BYTES];
    return bytes;
}

IPS_DEVICE struct ips_v4 ips_ld16(const void *address)
{
    struct ips_v4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

IPS_DEVICE void ips_st16(void *address, struct ips_v4 v)
{
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

IPS_DEVICE uint64_t ips_ld_relaxed(const uint64_t *address)
{
    uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];"
                 : "=l"(value)
                 : "l"(address)
                 : "memory");
    return value;
}

IPS_DEVICE uint64_t ips_ld_acquire(const uint64_t *address)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
                 : "=l"(value)
                 : "l"(address)
                 : "memory");
    return value;
}

IPS_DEVICE void ips_st_relaxed(uint64_t *address, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

IPS_DEVICE void ips_st_release(uint64_t *address, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

IPS_DEVICE uint32_t ips_ld_word(const uint32_t *address)
{
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"(address)
                 : "memory");
    return value;
}

IPS_DEVICE void ips_st_word(uint32_t *address, uint32_t value)
{
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/* Own device memory only: sets the word and tells what was there. Acquires and releases,
 * among the threads of this GPU. */
IPS_DEVICE uint64_t ips_exchange(uint64_t *address, uint64_t value)
{
    uint64_t before;
    asm volatile("atom.acq_rel.gpu.global.exch.b64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(address), "l"(value)
                 : "memory");
    return before;
}

#endif
