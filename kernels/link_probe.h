/* SPDX-License-Identifier: Apache-2.0 */
/* The two kernels with which `ipcshim doctor --probe` measures a link. One stores data,
 * then raises a flag per block; the other waits for the flags if there are some, then
 * reads the data and compares each unit. Either end of a link runs either: who stores to a
 * peer has the owner check its own memory, who loads from a peer checks what the owner has
 * stored in its own. Both give up at a deadline. */
#ifndef IPS_KERNELS_LINK_PROBE_H
#define IPS_KERNELS_LINK_PROBE_H

#include "kernels/link_wire.h"
#include "kernels/mem.h"

IPS_DEVICE struct ips_v4 ips_link_unit(uint64_t seed, uint64_t unit)
{
    const uint64_t low = ips_link_word(seed, 2 * unit);
    const uint64_t high = ips_link_word(seed, 2 * unit + 1);
    struct ips_v4 v = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
                       (uint32_t)(high >> 32)};
    return v;
}

IPS_DEVICE bool ips_link_same(struct ips_v4 a, struct ips_v4 b)
{
    return ((a.x ^ b.x) | (a.y ^ b.y) | (a.z ^ b.z) | (a.w ^ b.w)) == 0;
}

IPS_DEVICE bool ips_link_blank(struct ips_v4 v)
{
    return (v.x | v.y | v.z | v.w) == 0 || (v.x & v.y & v.z & v.w) == 0xffffffffu;
}

IPS_DEVICE uint64_t ips_link_sum(uint64_t value)
{
    for (unsigned lanes = 16; lanes; lanes /= 2)
        value += ips_shfl_xor(value, lanes);
    return value;
}

IPS_DEVICE uint64_t ips_link_least(uint64_t value)
{
    for (unsigned lanes = 16; lanes; lanes /= 2) {
        const uint64_t other = ips_shfl_xor(value, lanes);
        value = other < value ? other : value;
    }
    return value;
}

/* All lanes of a warp come with what they have; lane 0 writes it. */
IPS_DEVICE void ips_link_report(const struct ips_link_args *args, uint64_t start, bool late,
                                uint64_t wrong, uint64_t blank, uint64_t first)
{
    const struct ips_link_result result = {
        start,
        ips_clock_ns(),
        ips_link_sum(late),
        ips_link_sum(wrong),
        ips_link_sum(blank),
        ips_link_least(first),
    };
    const unsigned warp = (ips_block() * ips_threads() + ips_thread()) / 32;
    if (ips_thread() % 32 == 0)
        args->result[warp] = result;
}

IPS_DEVICE void ips_link_store_run(const struct ips_link_args *args)
{
    const uint64_t start = ips_clock_ns();
    const uint64_t step = (uint64_t)ips_blocks() * ips_threads();
    const uint64_t first = (uint64_t)ips_block() * ips_threads() + ips_thread();
    bool late = false;
    for (uint32_t pass = 0; pass < args->passes; pass++)
        for (uint64_t unit = first; unit < args->units && !late;
             unit += IPS_LINK_BATCH * step) {
            IPS_UNROLL
            for (unsigned i = 0; i < IPS_LINK_BATCH; i++)
                ips_st16((struct ips_v4 *)args->data + unit + i * step,
                         ips_link_unit(args->seed, unit + i * step));
            late = ips_clock_ns() - start > args->deadline_ns;
        }
    const bool any = ips_barrier_any(late);
    if (args->flag && !any && ips_thread() == 0)
        ips_st_release(&args->flag[ips_block()].value, args->seed);
    ips_barrier(); /* the time counts until all has left */
    ips_link_report(args, start, late, 0, 0, UINT64_MAX);
}

IPS_DEVICE bool ips_link_await(const struct ips_link_args *args, uint64_t start)
{
    bool late = false;
    if (args->flag && ips_thread() == 0)
        while (ips_ld_acquire(&args->flag[ips_block()].value) != args->seed && !late) {
            ips_spin();
            late = ips_clock_ns() - start > args->deadline_ns;
        }
    return ips_barrier_any(late);
}

IPS_DEVICE void ips_link_check_run(const struct ips_link_args *args)
{
    const uint64_t begin = ips_clock_ns();
    bool late = ips_link_await(args, begin);
    const uint64_t start = ips_clock_ns();
    const uint64_t step = (uint64_t)ips_blocks() * ips_threads();
    const uint64_t mine = (uint64_t)ips_block() * ips_threads() + ips_thread();
    uint64_t wrong = 0, blank = 0, first = UINT64_MAX;
    for (uint32_t pass = 0; pass < args->passes; pass++)
        for (uint64_t unit = mine; unit < args->units && !late;
             unit += IPS_LINK_BATCH * step) {
            struct ips_v4 got[IPS_LINK_BATCH];
            IPS_UNROLL
            for (unsigned i = 0; i < IPS_LINK_BATCH; i++)
                got[i] = ips_ld16((const struct ips_v4 *)args->data + unit + i * step);
            IPS_UNROLL
            for (unsigned i = 0; i < IPS_LINK_BATCH; i++) {
                const uint64_t at = unit + i * step;
                if (ips_link_same(got[i], ips_link_unit(args->seed, at)))
                    continue;
                wrong++;
                blank += ips_link_blank(got[i]);
                first = at < first ? at : first;
            }
            late = ips_clock_ns() - begin > args->deadline_ns;
        }
    ips_link_report(args, start, late, wrong, blank, first);
}

#endif
