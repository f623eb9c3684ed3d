/* SPDX-License-Identifier: Apache-2.0 */
/* Simple: plain data in large slots. The block stores a slot, meets, and one thread makes it
 * visible with one fence and one flag. All of a slot is payload. The sums that training
 * makes keep eight loads of a thread in flight, all else one. */
#ifndef IPS_KERNELS_SIMPLE_H
#define IPS_KERNELS_SIMPLE_H

#include "kernels/ring.h"

struct ips_simple {
    static const uint32_t id = IPS_SIMPLE;
    static const uint32_t unit_bytes = 128;
    static const uint32_t credit_every = 1;
    static const bool joins = true;

    IPS_DEVICE uint32_t slot_data(uint32_t nranks)
    {
        return IPS_SIMPLE_BYTES / ips_simple_slots(nranks);
    }

    /* All threads return once the slot of `step` has arrived. */
    IPS_DEVICE void wait_flag(struct ips_ring *ring, uint64_t step)
    {
        if (ips_thread() == 0)
            ips_wait_word(ring, &ring->mine->flag[ring->prev_position].value, IPS_WAIT_DATA,
                          step);
        ips_barrier();
        ring->run.dead |= ((struct ips_ring_shared *)ips_shared())->dead != 0;
    }

    /* The own part as it enters the sum. */
    IPS_DEVICE struct ips_v4 load_own(const struct ips_ring *ring,
                                      const struct ips_stage *stage, uint64_t offset,
                                      uint32_t bytes)
    {
        return stage->own_out ? ips_load(ring->run.out, offset, bytes)
                              : ips_input(&ring->run, offset, bytes);
    }

    /* Unit i of a stage, of up to 16 bytes. */
    IPS_DEVICE void move_unit(struct ips_ring *ring, const struct ips_stage *stage,
                              const unsigned char *from, unsigned char *to, uint32_t i)
    {
        const uint32_t left = stage->bytes - 16 * i, bytes = left < 16 ? left : 16;
        const uint64_t offset = stage->offset + 16ull * i;
        struct ips_v4 received = {0, 0, 0, 0}, own = {0, 0, 0, 0};
        if (stage->recv)
            received = ips_ld16(from + 16 * i);
        if (stage->reduce || !stage->recv)
            own = load_own(ring, stage, offset, bytes);
        const struct ips_v4 v = ips_combine(ring, stage, received, own);
        if (stage->send)
            ips_st16(to + 16 * i, v);
        if (stage->copy)
            ips_store(ring->run.out, offset, v, bytes);
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
        const struct ips_v4 *in = (const struct ips_v4 *)(
            (stage->own_out ? ring->run.out.base : ring->run.in.base) + stage->offset);
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
                             const unsigned char *from, unsigned char *to, uint32_t begin)
    {
        const uint32_t each = reduce ? 4 : 8;
        const uint32_t most =
            rounds<recv, reduce, send, copy, A, each>(ring, stage, from, to, begin);
        return rounds<recv, reduce, send, copy, A, each / 4>(ring, stage, from, to, most);
    }

    template <bool send, bool copy>
    IPS_DEVICE uint32_t fast_sum(struct ips_ring *ring, const struct ips_stage *stage,
                                 const unsigned char *from, unsigned char *to)
    {
        switch (ring->run.args->type) {
        case IPS_FLOAT32:
            return fast<true, true, send, copy, ips_as_float32>(ring, stage, from, to, 0);
        case IPS_BFLOAT16:
            return fast<true, true, send, copy, ips_as_bfloat16>(ring, stage, from, to, 0);
        case IPS_FLOAT16:
            return fast<true, true, send, copy, ips_as_float16>(ring, stage, from, to, 0);
        default:
            return 0;
        }
    }

    IPS_DEVICE bool is_fast(const struct ips_ring *ring)
    {
        return ring->run.in.align == 16 && ring->run.out.align == 16 &&
               ring->run.args->op == IPS_SUM;
    }

    /* From unit `begin` on; the first unit that the fast way leaves. */
    IPS_DEVICE uint32_t move_fast(struct ips_ring *ring, const struct ips_stage *stage,
                                  const unsigned char *from, unsigned char *to,
                                  uint32_t begin)
    {
        typedef struct ips_as_float32 none;
        if (!is_fast(ring))
            return begin;
        if (!stage->recv)
            return fast<false, false, true, false, none>(ring, stage, from, to, begin);
        if (!stage->reduce)
            return stage->send
                       ? fast<true, false, true, true, none>(ring, stage, from, to, begin)
                       : fast<true, false, false, true, none>(ring, stage, from, to, begin);
        return stage->stays  ? fast_sum<false, true>(ring, stage, from, to)
               : stage->copy ? fast_sum<true, true>(ring, stage, from, to)
                             : fast_sum<true, false>(ring, stage, from, to);
    }

    /* Moves a stage's units from `begin` on. */
    IPS_DEVICE void move_all(struct ips_ring *ring, const struct ips_stage *stage,
                             const unsigned char *from, unsigned char *to, uint32_t begin)
    {
        for (uint32_t i = move_fast(ring, stage, from, to, begin) + ips_thread();
             16 * i < stage->bytes; i += ips_threads())
            move_unit(ring, stage, from, to, i);
    }

    /* Of the units that `last` and `first` both have, whole rounds of both at once, from unit
     * `begin` on. Returns the first unit that is left. */
    template <uint32_t each>
    IPS_DEVICE uint32_t rounds_both(struct ips_ring *ring, const struct ips_rest *last,
                                    const struct ips_stage *first, const unsigned char *from,
                                    unsigned char *to, uint32_t begin)
    {
        const uint32_t stride = ips_threads(), round = stride * each;
        const uint32_t less = last->bytes < first->bytes ? last->bytes : first->bytes;
        const uint32_t end = begin + (less / 16 - begin) / round * round;
        const struct ips_v4 *in =
            (const struct ips_v4 *)(ring->run.in.base + first->offset);
        struct ips_v4 *out = (struct ips_v4 *)(ring->run.out.base + last->offset);
        for (uint32_t i = begin + ips_thread(); i < end; i += round) {
            struct ips_v4 received[each], own[each];
            IPS_UNROLL
            for (uint32_t u = 0; u < each; u++)
                received[u] = ips_ld16(from + 16 * (i + u * stride));
            IPS_UNROLL
            for (uint32_t u = 0; u < each; u++)
                own[u] = in[i + u * stride];
            IPS_UNROLL
            for (uint32_t u = 0; u < each; u++) {
                ips_st16(to + 16 * (i + u * stride), own[u]);
                out[i + u * stride] = received[u];
            }
        }
        return end;
    }

    IPS_DEVICE uint32_t move_both(struct ips_ring *ring, const struct ips_rest *last,
                                  const struct ips_stage *first, const unsigned char *from,
                                  unsigned char *to)
    {
        if (!is_fast(ring))
            return 0;
        const uint32_t most = rounds_both<4>(ring, last, first, from, to, 0);
        return rounds_both<1>(ring, last, first, from, to, most);
    }

    /* Makes what the block has stored in the slot of `step` visible. */
    IPS_DEVICE void post_flag(struct ips_ring *ring, uint64_t step)
    {
        ips_barrier();
        if (ips_thread() == 0 && !ring->run.dead)
            ips_st_release(&ring->next->flag[ring->run.args->rank].value, step);
    }

    /* The last stage of a piece and the first one of the next at once, so that a link that
     * carries both directions is not idle in one of them. */
    IPS_DEVICE void stage_both(const struct ips_simple *, struct ips_ring *ring,
                               const struct ips_rest *last, const struct ips_stage *first)
    {
        const uint32_t slots = ips_simple_slots(ring->run.args->nranks);
        const uint32_t bytes = slot_data(ring->run.args->nranks);
        ips_wait_credit(ring, first->send_step, slots);
        wait_flag(ring, first->recv_step);
        const unsigned char *from = ring->mine->simple + first->recv_step % slots * bytes;
        unsigned char *to = ring->next->simple + first->send_step % slots * bytes;
        if (!ring->run.dead) {
            struct ips_stage received = *first;
            received.offset = last->offset;
            received.bytes = last->bytes;
            received.recv = received.copy = true;
            received.send = false;
            const uint32_t units = move_both(ring, last, first, from, to);
            move_all(ring, &received, from, to, units);
            move_all(ring, first, from, to, units);
        }
        post_flag(ring, first->send_step);
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
            move_all(ring, stage, from, to, 0);
        if (stage->send)
            post_flag(ring, stage->send_step);
    }
};

#endif
