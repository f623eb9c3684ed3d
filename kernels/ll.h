/* SPDX-License-Identifier: Apache-2.0 */
/* LL: 16-byte lines that carry their own flags, so that data needs no fence and no second
 * trip. Half of the bytes are flags; needs only 8-byte store atomicity. */
#ifndef IPS_KERNELS_LL_H
#define IPS_KERNELS_LL_H

#include "kernels/direct.h"
#include "kernels/ring.h"

struct ips_ll {
    static const uint32_t id = IPS_LL;
    static const uint32_t lanes = 1; /* threads that move a line */
    static const uint32_t line_bytes = 16;
    static const uint32_t unit_bytes = IPS_LL_LINE_DATA;
    static const uint32_t credit_every = IPS_LL_SLOTS / 2;
    static const bool joins = false;

    IPS_DEVICE uint32_t slot_data(uint32_t)
    {
        return IPS_LL_SLOT_LINES * IPS_LL_LINE_DATA;
    }

    IPS_DEVICE uint32_t flag_of(uint64_t step)
    {
        return (uint32_t)step & IPS_LL_FLAG_MASK;
    }

    /* Every line of a slot is rewritten at least once in half a wrap of the flag: otherwise
     * a line left by a longer message a whole wrap ago would look new. Those beyond the
     * message get the slot's last flag, not the new one: a reader that expects more than was
     * sent then waits, and is reported, instead of taking them for data. */
    IPS_DEVICE bool cleans(uint64_t step)
    {
        return (step & (IPS_LL_FLAG_MASK >> 1)) < IPS_LL_SLOTS;
    }

    /* The data of one line, once both of its halves carry the flag. */
    IPS_DEVICE uint64_t read(struct ips_ring *ring, const void *line, uint64_t step)
    {
        const uint32_t flag = flag_of(step);
        struct ips_wait wait = {0, 0, 0};
        struct ips_v4 v = ips_ld16(line);
        while ((v.y != flag || v.w != flag) && !ring->run.dead) {
            ips_poll_failed(&ring->run, &wait, IPS_WAIT_DATA, ring->prev_position, step,
                            v.y);
            v = ips_ld16(line);
        }
        ips_wait_over(&ring->run, &wait);
        return v.x | (uint64_t)v.z << 32;
    }

    IPS_DEVICE void stage_both(const struct ips_ll *, struct ips_ring *,
                               const struct ips_rest *, const struct ips_stage *)
    {
    }

    IPS_DEVICE void stage(const struct ips_ll *, struct ips_ring *ring,
                          const struct ips_stage *stage)
    {
        if (stage->send)
            ips_wait_credit(ring, stage->send_step, IPS_LL_SLOTS);
        const unsigned char *from = ring->mine->ll[stage->recv_step % IPS_LL_SLOTS];
        unsigned char *to = ring->next->ll[stage->send_step % IPS_LL_SLOTS];
        const uint32_t flag = flag_of(stage->send_step);
        const uint32_t lines = (stage->bytes + 7) / 8;
        uint32_t i = ips_thread();
        for (; i < lines; i += ips_threads()) {
            const uint32_t bytes = stage->bytes - 8 * i < 8 ? stage->bytes - 8 * i : 8;
            const uint64_t offset = stage->offset + 8ull * i;
            struct ips_v4 own = {0, 0, 0, 0}, received = {0, 0, 0, 0};
            if (stage->reduce || !stage->recv)
                own = ips_input(&ring->run, offset, bytes);
            if (stage->recv)
                received = ips_pair(read(ring, from + 16 * i, stage->recv_step), 0);
            if (ring->run.dead)
                continue;
            const struct ips_v4 v = ips_combine(ring, stage, received, own);
            const struct ips_v4 line = {v.x, flag, v.y, flag};
            if (stage->send)
                ips_st16(to + 16 * i, line);
            if (stage->copy)
                ips_store(ring->run.out, offset, v, bytes);
        }
        if (stage->send && cleans(stage->send_step) && !ring->run.dead) {
            const uint32_t last = flag_of(stage->send_step - IPS_LL_SLOTS);
            const struct ips_v4 line = {0, last, 0, last};
            for (; i < IPS_LL_SLOT_LINES; i += ips_threads())
                ips_st16(to + 16 * i, line);
        }
    }

    /* One-shot and two-shot, see direct.h. */
    IPS_DEVICE struct ips_v4 seal(const struct ips_ll *, struct ips_v4 v, uint64_t step)
    {
        const uint32_t flag = flag_of(step);
        const struct ips_v4 line = {v.x, flag, v.y, flag};
        return line;
    }

    IPS_DEVICE bool fits(const struct ips_ll *, struct ips_v4 line, uint64_t step)
    {
        const uint32_t flag = flag_of(step);
        return line.y == flag && line.w == flag;
    }

    IPS_DEVICE struct ips_v4 data(struct ips_v4 line)
    {
        const struct ips_v4 v = {line.x, line.z, 0, 0};
        return v;
    }

    IPS_DEVICE uint64_t seen(struct ips_v4 line)
    {
        return line.y;
    }

    IPS_DEVICE bool any(bool predicate) /* threads need not stay together */
    {
        return predicate;
    }

    /* As in the ring, with two inboxes instead of the slots. */
    IPS_DEVICE bool cleans_inbox(uint64_t step)
    {
        return (step & (IPS_LL_FLAG_MASK >> 1)) < 2;
    }

    IPS_DEVICE struct ips_v4 blank(uint64_t step)
    {
        const uint32_t last = flag_of(step - 2);
        const struct ips_v4 line = {0, last, 0, last};
        return line;
    }
};

#endif
