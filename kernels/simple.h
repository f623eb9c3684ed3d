/* SPDX-License-Identifier: Apache-2.0 */
/* Simple: plain data in large slots. The block stores a slot, meets, and one thread makes it
 * visible with one fence and one flag. All of a slot is payload. */
#ifndef IPS_KERNELS_SIMPLE_H
#define IPS_KERNELS_SIMPLE_H

#include "kernels/ring.h"

struct ips_simple {
    static const uint32_t id = IPS_SIMPLE;
    static const uint32_t unit_bytes = 128;
    static const uint32_t credit_every = 1;
    static const uint32_t unroll = 2; /* 16-byte accesses in flight per thread and source */

    IPS_DEVICE uint32_t slot_data(uint32_t nranks)
    {
        return IPS_SIMPLE_BYTES / ips_simple_slots(nranks);
    }

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

    /* Sums of float32 and halves in aligned buffers, with what the stage does known at compile
     * time: whole rounds of `each` units per thread, from unit `begin` on. Returns the first
     * unit that is left. */
    template <bool recv, bool reduce, bool send, bool copy, class A, uint32_t each>
    IPS_DEVICE uint32_t rounds(struct ips_ring *ring, const struct ips_stage *stage,
                               const unsigned char *from, unsigned char *to, uint32_t begin)
    {
        const uint32_t stride = ips_threads(), round = stride * each;
        const uint32_t end = begin + (stage->bytes / 16 - begin) / round * round;
        const struct ips_v4 *in =
            (const struct ips_v4 *)(ring->run.in.base + stage->offset);
        struct ips_v4 *out = (struct ips_v4 *)(ring->run.out.base + stage->offset);
        for (uint32_t i = begin + ips_thread(); i < end; i += round) {
            struct ips_v4 received[each], own[each];
            IPS_UNROLL
            for (uint32_t u = 0; recv && u < each; u++)
                received[u] = ips_ld16(from + 16 * (i + u * stride));
            IPS_UNROLL
            for (uint32_t u = 0; (reduce || !recv) && u < each; u++)
                own[u] = in[i + u * stride];
            IPS_UNROLL
            for (uint32_t u = 0; u < each; u++) {
                const struct ips_v4 v = reduce ? ips_map<ips_sum, A>(received[u], own[u])
                                        : recv ? received[u]
                                               : own[u];
                if (send)
                    ips_st16(to + 16 * (i + u * stride), v);
                if (copy)
                    out[i + u * stride] = v;
            }
        }
        return end;
    }

    /* Eight loads in flight per thread, then as many as are left. */
    template <bool recv, bool reduce, bool send, bool copy, class A>
    IPS_DEVICE uint32_t fast(struct ips_ring *ring, const struct ips_stage *stage,
                             const unsigned char *from, unsigned char *to)
    {
        const uint32_t each = reduce ? 4 : 8;
        const uint32_t most =
            rounds<recv, reduce, send, copy, A, each>(ring, stage, from, to, 0);
        return rounds<recv, reduce, send, copy, A, each / 4>(ring, stage, from, to, most);
    }

    template <bool send, bool copy>
    IPS_DEVICE uint32_t fast_sum(struct ips_ring *ring, const struct ips_stage *stage,
                                 const unsigned char *from, unsigned char *to)
    {
        switch (ring->run.args->type) {
        case IPS_FLOAT32:
            return fast<true, true, send, copy, ips_as_float32>(ring, stage, from, to);
        case IPS_BFLOAT16:
            return fast<true, true, send, copy, ips_as_bfloat16>(ring, stage, from, to);
        case IPS_FLOAT16:
            return fast<true, true, send, copy, ips_as_float16>(ring, stage, from, to);
        default:
            return 0;
        }
    }

    /* The units of a stage that the fast way has moved. */
    IPS_DEVICE uint32_t move_fast(struct ips_ring *ring, const struct ips_stage *stage,
                                  const unsigned char *from, unsigned char *to)
    {
        typedef struct ips_as_float32 none;
        if (ring->run.in.align < 16 || ring->run.out.align < 16 ||
            ring->run.args->op != IPS_SUM)
            return 0;
        if (!stage->recv)
            return fast<false, false, true, false, none>(ring, stage, from, to);
        if (!stage->reduce)
            return stage->send ? fast<true, false, true, true, none>(ring, stage, from, to)
                               : fast<true, false, false, true, none>(ring, stage, from, to);
        return stage->copy ? fast_sum<true, true>(ring, stage, from, to)
                           : fast_sum<true, false>(ring, stage, from, to);
    }

    IPS_DEVICE void stage(const struct ips_simple *, struct ips_ring *ring,
                          const struct ips_stage *stage)
    {
        const uint32_t slots = ips_simple_slots(ring->run.args->nranks);
        const uint32_t bytes = slot_data(ring->run.args->nranks);
        if (stage->send)
            ips_wait_credit(ring, stage->send_step, slots);
        if (stage->recv)
            wait_flag(ring, stage->recv_step);
        const unsigned char *from = ring->mine->simple + stage->recv_step % slots * bytes;
        unsigned char *to = ring->next->simple + stage->send_step % slots * bytes;
        if (!ring->run.dead)
            for (uint32_t i = move_fast(ring, stage, from, to) + ips_thread();
                 16 * i < stage->bytes; i += ips_threads() * unroll)
                move(ring, stage, from, to, i, ips_threads());
        if (!stage->send)
            return;
        ips_barrier();
        if (ips_thread() == 0 && !ring->run.dead)
            ips_st_release(&ring->next->flag.value, stage->send_step);
    }
};

#endif
