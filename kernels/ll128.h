/* SPDX-License-Identifier: Apache-2.0 */
/* LL128: 128-byte lines of 120 data bytes and a guard. Eight threads move a line, each 16
 * bytes; the last one's upper half is the guard. A line may arrive torn and in any order: it
 * counts only when the guard, which covers data and step, fits the very registers that were
 * read. So no store of more than 8 bytes has to be atomic. */
#ifndef IPS_KERNELS_LL128_H
#define IPS_KERNELS_LL128_H

#include "kernels/direct.h"
#include "kernels/ring.h"

/* Makes the guards of the same data in different steps differ: any odd number. */
#define IPS_GUARD_STEP 0x9e3779b97f4a7c15ull

struct ips_ll128 {
    static const uint32_t id = IPS_LL128;
    static const uint32_t lanes = 8; /* threads that move a line */
    static const uint32_t line_bytes = 128;
    static const uint32_t unit_bytes = IPS_LL128_LINE_DATA;
    static const uint32_t credit_every = IPS_LL128_SLOTS / 2;
    static const bool joins = false;

    uint64_t key[2][4]; /* of this thread's four words; 0 for the guard's own words */
    uint64_t constant[2];
    uint32_t part; /* 0 to 7: which 16 bytes of a line this thread moves */

    IPS_DEVICE uint32_t slot_data(uint32_t)
    {
        return IPS_LL128_SLOT_LINES * IPS_LL128_LINE_DATA;
    }

    IPS_DEVICE void open(struct ips_ll128 *self, const struct ips_guard_keys *keys)
    {
        self->part = ips_thread() % 8;
        IPS_UNROLL
        for (int h = 0; h < 2; h++) {
            self->constant[h] = keys->key[h][0];
            IPS_UNROLL
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t word = 4 * self->part + i;
                self->key[h][i] = word < IPS_GUARD_WORDS ? keys->key[h][1 + word] : 0;
            }
        }
    }

    /* The guard of the line that this group of eight threads holds, in all eight of them.
     * After the first exchange even threads sum the first hash and odd ones the second. */
    IPS_DEVICE uint64_t guard(const struct ips_ll128 *self, struct ips_v4 v, uint64_t step)
    {
        uint64_t sum[2];
        IPS_UNROLL
        for (int h = 0; h < 2; h++)
            sum[h] = self->key[h][0] * v.x + self->key[h][1] * v.y +
                     self->key[h][2] * v.z + self->key[h][3] * v.w;
        const bool odd = self->part & 1;
        uint64_t mine = (odd ? sum[1] : sum[0]) + ips_shfl_xor(odd ? sum[0] : sum[1], 1);
        mine += ips_shfl_xor(mine, 2);
        mine += ips_shfl_xor(mine, 4);
        mine = (mine + (odd ? self->constant[1] : self->constant[0])) >> 32;
        const uint64_t other = ips_shfl_xor(mine, 1);
        return (odd ? other | mine << 32 : mine | other << 32) + step * IPS_GUARD_STEP;
    }

    /* This thread's 16 bytes of a line, once the line is whole. All lanes of the warp call
     * it; `active` is false in groups that have no line. */
    IPS_DEVICE struct ips_v4 read(const struct ips_ll128 *self, struct ips_ring *ring,
                                  const unsigned char *line, uint64_t step, bool active)
    {
        const uint32_t last = 1u << (ips_thread() % 32 | 7); /* lane that holds the guard */
        struct ips_wait wait = {0, 0, 0};
        struct ips_v4 v = {0, 0, 0, 0};
        bool whole = !active;
        for (;;) {
            if (!whole)
                v = ips_ld16(line + 16 * self->part);
            const uint64_t expected = guard(self, v, step);
            const bool fits = self->part == 7 && expected == ips_high(v);
            whole = (ips_ballot(fits) & last) != 0 || !active;
            if (!ips_ballot(!whole && !ring->run.dead))
                break;
            const uint64_t seen = self->part == 7 ? ips_high(v) : 0; /* never user's data */
            ips_poll_failed(&ring->run, &wait, IPS_WAIT_DATA, ring->prev_position, step,
                            seen);
        }
        ips_wait_over(&ring->run, &wait);
        return v;
    }

    IPS_DEVICE void stage_both(const struct ips_ll128 *, struct ips_ring *,
                               const struct ips_rest *, const struct ips_stage *)
    {
    }

    IPS_DEVICE void stage(const struct ips_ll128 *self, struct ips_ring *ring,
                          const struct ips_stage *stage)
    {
        if (stage->send)
            ips_wait_credit(ring, stage->send_step, IPS_LL128_SLOTS);
        const unsigned char *from = ring->mine->ll128[stage->recv_step % IPS_LL128_SLOTS];
        unsigned char *to = ring->next->ll128[stage->send_step % IPS_LL128_SLOTS];
        const uint32_t lines = (stage->bytes + IPS_LL128_LINE_DATA - 1) / IPS_LL128_LINE_DATA;
        const uint32_t room = self->part == 7 ? 8 : 16; /* data bytes of this thread */
        /* Four lines a warp; a warp stays together, since it votes. */
        for (uint32_t first = ips_thread() / 32 * 4; first < lines;
             first += ips_threads() / 32 * 4) {
            const uint32_t i = first + ips_thread() % 32 / 8;
            const bool active = i < lines;
            const uint32_t at = i * IPS_LL128_LINE_DATA + 16 * self->part;
            uint32_t bytes = active && at < stage->bytes ? stage->bytes - at : 0;
            if (bytes > room)
                bytes = room;
            struct ips_v4 own = {0, 0, 0, 0}, received = {0, 0, 0, 0};
            if (bytes && (stage->reduce || !stage->recv))
                own = ips_input(&ring->run, stage->offset + at, bytes);
            if (stage->recv)
                received = read(self, ring, from + 128 * i, stage->recv_step, active);
            struct ips_v4 v = ips_combine(ring, stage, received, own);
            if (stage->copy && bytes && !ring->run.dead)
                ips_store(ring->run.out, stage->offset + at, v, bytes);
            if (stage->send) {
                const uint64_t word = guard(self, v, stage->send_step);
                if (self->part == 7)
                    v = ips_pair(ips_low(v), word);
                if (active && !ring->run.dead)
                    ips_st16(to + 128 * i + 16 * self->part, v);
            }
        }
    }

    /* One-shot and two-shot, see direct.h. All lanes of the warp call seal, fits and any. */
    IPS_DEVICE struct ips_v4 seal(const struct ips_ll128 *self, struct ips_v4 v, uint64_t step)
    {
        const uint64_t word = guard(self, v, step);
        return self->part == 7 ? ips_pair(ips_low(v), word) : v;
    }

    IPS_DEVICE bool fits(const struct ips_ll128 *self, struct ips_v4 line, uint64_t step)
    {
        const uint32_t last = 1u << (ips_thread() % 32 | 7); /* lane that holds the guard */
        const uint64_t expected = guard(self, line, step);
        return (ips_ballot(self->part == 7 && expected == ips_high(line)) & last) != 0;
    }

    IPS_DEVICE struct ips_v4 data(struct ips_v4 line)
    {
        return line; /* the guard is in nobody's data */
    }

    IPS_DEVICE uint64_t seen(struct ips_v4 line)
    {
        return ips_thread() % 8 == 7 ? ips_high(line) : 0; /* never user's data */
    }

    IPS_DEVICE bool any(bool predicate)
    {
        return ips_ballot(predicate) != 0;
    }

    IPS_DEVICE bool cleans_inbox(uint64_t) /* no two steps have the same guard */
    {
        return false;
    }

    IPS_DEVICE struct ips_v4 blank(uint64_t)
    {
        const struct ips_v4 line = {0, 0, 0, 0};
        return line;
    }
};

#endif
