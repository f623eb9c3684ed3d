/* SPDX-License-Identifier: Apache-2.0 */
/* Simple: plain data in large slots. The block stores a slot, meets, and one thread makes it
 * visible with one fence and one flag. All of a slot is payload. */
#ifndef IPS_KERNELS_SIMPLE_H
#define IPS_KERNELS_SIMPLE_H

#include "kernels/ring.h"

struct ips_simple {
    static const uint32_t id = IPS_SIMPLE;
    static const uint32_t slot_bytes = IPS_SIMPLE_SLOT_BYTES;
    static const uint32_t unit_bytes = 128;
    static const uint32_t credit_every = 1;
    static const uint32_t unroll = 4; /* 16-byte accesses in flight per thread */

    /* All threads return once the slot of `step` has arrived. */
    IPS_DEVICE void wait_flag(struct ips_ring *ring, uint64_t step)
    {
        if (ips_thread() == 0)
            ips_wait_word(ring, &ring->mine->flag.value, IPS_WAIT_DATA, step);
        ips_barrier();
        ring->run.dead |= ((struct ips_ring_shared *)ips_shared())->dead != 0;
    }

    /* `unroll` units of 16 bytes, `stride` units apart, from unit `i` on. */
    IPS_DEVICE void move(struct ips_ring *ring, const struct ips_stage *stage,
                         const unsigned char *from, unsigned char *to, uint32_t i,
                         uint32_t stride)
    {
        struct ips_v4 received[unroll], own[unroll];
        uint32_t bytes[unroll];
        IPS_UNROLL
        for (uint32_t u = 0; u < unroll; u++) {
            const uint32_t at = 16 * (i + u * stride);
            bytes[u] = at >= stage->bytes ? 0 : stage->bytes - at < 16 ? stage->bytes - at : 16;
            if (stage->recv && bytes[u])
                received[u] = ips_ld16(from + at);
        }
        IPS_UNROLL
        for (uint32_t u = 0; u < unroll; u++)
            if ((stage->reduce || !stage->recv) && bytes[u])
                own[u] = ips_input(&ring->run, stage->offset + 16ull * (i + u * stride), bytes[u]);
        IPS_UNROLL
        for (uint32_t u = 0; u < unroll; u++) {
            if (!bytes[u])
                continue;
            const struct ips_v4 v = ips_combine(ring, stage, received[u], own[u]);
            if (stage->send)
                ips_st16(to + 16 * (i + u * stride), v);
            if (stage->copy)
                ips_store(ring->run.out, stage->offset + 16ull * (i + u * stride), v, bytes[u]);
        }
    }

    IPS_DEVICE void stage(const struct ips_simple *, struct ips_ring *ring,
                          const struct ips_stage *stage)
    {
        if (stage->send)
            ips_wait_credit(ring, stage->send_step, IPS_SIMPLE_SLOTS);
        if (stage->recv)
            wait_flag(ring, stage->recv_step);
        if (!ring->run.dead)
            for (uint32_t i = ips_thread(); 16 * i < stage->bytes; i += ips_threads() * unroll)
                move(ring, stage, ring->mine->simple[stage->recv_step % IPS_SIMPLE_SLOTS],
                     ring->next->simple[stage->send_step % IPS_SIMPLE_SLOTS], i,
                     ips_threads());
        if (!stage->send)
            return;
        ips_barrier();
        if (ips_thread() == 0 && !ring->run.dead)
            ips_st_release(&ring->next->flag.value, stage->send_step);
    }
};

#endif
