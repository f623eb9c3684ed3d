/* SPDX-License-Identifier: Apache-2.0 */
/* The ring AllReduce of one channel, whatever the protocol: which part of the message moves
 * in which stage, and the step and credit rules that all protocols keep.
 *
 * The message is cut into one part per channel, a part into pieces of at most nranks slots,
 * a piece into nranks chunks. A piece takes 2 * nranks - 1 stages: reduce-scatter, in which
 * every chunk travels once around and collects the sum, then all-gather, in which it travels
 * once more. Pieces are the outermost loop and a stage sends at most one slot, so a rank is
 * never more than one slot ahead of what it has received and cannot fill the ring.
 *
 * Nothing here depends on pointers or data: every rank takes the same steps. */
#ifndef IPS_KERNELS_RING_H
#define IPS_KERNELS_RING_H

#include "kernels/run.h"

struct ips_ring {
    struct ips_run run;
    struct ips_channel *mine, *next, *prev; /* this channel in the three mailboxes */
    uint32_t proto, next_position, prev_position;
    uint64_t step;   /* completed steps; the same in all threads of the block */
    uint64_t credit; /* last credit known, likewise */
};

/* What the block shares: thread 0 polls words and hands them to the others. */
struct ips_ring_shared {
    uint64_t step, credit;
    uint64_t dead; /* thread 0 saw the abort word */
};

static_assert(sizeof(struct ips_ring_shared) <= IPS_SHARED_ANY, "apart");
static_assert(IPS_SHARED_ANY + IPS_SHARED_ANY_BYTES + sizeof(struct ips_run_numbers) <=
                  IPS_SHARED_BYTES, "all fit");

/* One stage: a chunk, and what happens to it. */
struct ips_stage {
    uint64_t offset; /* bytes into the message */
    uint32_t bytes;  /* may be 0: the step is taken all the same */
    bool recv, reduce, send, copy;
    bool last_reduce;             /* the sum is complete here */
    uint64_t recv_step, send_step;
};

/* The last stage of a piece, which waits for the first one of the next: receives into out. */
struct ips_rest {
    uint64_t offset;
    uint32_t bytes;
    bool there;
};

/* Thread 0: waits until the word has reached `step`. Acquires. */
IPS_DEVICE uint64_t ips_wait_word(struct ips_ring *ring, const uint64_t *word, uint32_t kind,
                                  uint64_t step)
{
    const uint32_t peer = kind == IPS_WAIT_DATA ? ring->prev_position : ring->next_position;
    struct ips_wait wait = {0, 0, 0};
    uint64_t seen = ips_ld_acquire(word);
    while (seen < step && !ring->run.dead) {
        ips_poll_failed(&ring->run, &wait, kind, peer, step, seen);
        seen = ips_ld_acquire(word);
    }
    ips_wait_over(&ring->run, &wait);
    if (ring->run.dead)
        ((struct ips_ring_shared *)ips_shared())->dead = 1;
    return seen;
}

/* Returns once the successor has read the slot that `step` will overwrite. All threads of the
 * block call it with the same step. */
IPS_DEVICE void ips_wait_credit(struct ips_ring *ring, uint64_t step, uint32_t slots)
{
    if (ring->credit + slots >= step)
        return;
    struct ips_ring_shared *shared = (struct ips_ring_shared *)ips_shared();
    ips_barrier();
    if (ips_thread() == 0)
        shared->credit = ips_wait_word(ring, &ring->mine->credit[ring->proto].value,
                                       IPS_WAIT_CREDIT, step - slots);
    ips_barrier();
    ring->credit = shared->credit;
    ring->run.dead |= shared->dead != 0;
}

/* Tells the predecessor that all slots up to `step` were read. All threads call it. */
IPS_DEVICE void ips_post_credit(struct ips_ring *ring, uint64_t step)
{
    ips_barrier();
    if (ips_thread() == 0 && !ring->run.dead)
        ips_st_release(&ring->prev->credit[ring->proto].value, step);
}

/* What a stage makes of one unit of up to 16 bytes: `received` is the predecessor's, the
 * result goes to the successor and, in the second half, to the output. */
IPS_DEVICE struct ips_v4 ips_combine(const struct ips_ring *ring,
                                     const struct ips_stage *stage, struct ips_v4 received,
                                     struct ips_v4 own)
{
    if (!stage->recv)
        return own;
    if (!stage->reduce)
        return received;
    const struct ips_v4 v =
        ips_reduce(received, own, ring->run.args->type, ring->run.args->op);
    return stage->last_reduce ? ips_output(&ring->run, v) : v;
}

/* Stage j of a piece: chunk (rank - 1 - j) of the ring, so that a rank passes on in each
 * stage what it received in the one before. */
IPS_DEVICE struct ips_stage ips_stage_of(const struct ips_ring *ring, uint32_t j,
                                         uint64_t piece, uint64_t piece_elements,
                                         uint64_t chunk_elements)
{
    const uint32_t n = ring->run.args->nranks;
    uint64_t begin = (ring->run.args->rank + 2 * n - 1 - j) % n * chunk_elements;
    if (begin > piece_elements)
        begin = piece_elements;
    uint64_t left = piece_elements - begin;
    struct ips_stage stage;
    stage.offset = (piece + begin) * ring->run.in.element;
    stage.bytes = (uint32_t)((left < chunk_elements ? left : chunk_elements) *
                             ring->run.in.element);
    stage.recv = j > 0;
    stage.reduce = j > 0 && j < n;
    stage.send = j < 2 * n - 2;
    stage.copy = j >= n - 1;
    stage.last_reduce = j == n - 1;
    stage.recv_step = ring->step + j;
    stage.send_step = ring->step + j + 1;
    return stage;
}

IPS_DEVICE void ips_ring_open(struct ips_ring *ring, const struct ips_allreduce_args *args,
                              uint32_t proto)
{
    const uint32_t n = args->nranks;
    ips_run_open(&ring->run, args, (uint32_t)ips_variant_of(IPS_RING, (int)proto));
    ring->next_position = (args->rank + 1) % n;
    ring->prev_position = (args->rank + n - 1) % n;
    ring->mine = ips_channel_of(args, args->rank);
    ring->next = ips_channel_of(args, ring->next_position);
    ring->prev = ips_channel_of(args, ring->prev_position);
    ring->proto = proto;
    struct ips_ring_shared *shared = (struct ips_ring_shared *)ips_shared();
    if (ips_thread() == 0) {
        const uint64_t step = *ips_step_of(args, ring->run.variant);
        shared->credit = ips_ld_acquire(&ring->mine->credit[proto].value);
        shared->step = step;
        shared->dead = 0;
    }
    ips_run_begin(&ring->run);
    ips_barrier();
    ring->step = shared->step;
    ring->run.dead = ring->step == IPS_STEP_DEAD;
    ring->credit = shared->credit;
}

/* Runs this block's channel with protocol P, which provides:
 *   id           enum ips_proto
 *   slot_data(nranks)  bytes of data that a slot holds
 *   unit_bytes   chunks begin at multiples of it
 *   credit_every steps between two credits, a divisor of its slots
 *   stage(protocol, ring, stage)  moves one chunk; all threads of the block call it
 *   joins        whether the last stage of a piece waits for the first one of the next:
 *   stage_both(protocol, ring, rest, stage)  moves them together */
template <class P>
IPS_DEVICE void ips_ring_run(const struct ips_allreduce_args *args, const P *protocol)
{
    struct ips_ring ring;
    ips_ring_open(&ring, args, P::id);
    const uint32_t n = args->nranks;
    const uint64_t unit = P::unit_bytes / args->element;
    const uint64_t most = (uint64_t)(P::slot_data(n) / P::unit_bytes) * unit * n;
    uint64_t piece, end;
    ips_part_of(args, unit, &piece, &end);
    struct ips_rest rest = {0, 0, false};
    for (; piece < end; piece += most) {
        const uint64_t elements = end - piece < most ? end - piece : most;
        const uint64_t chunk = ips_round_up((elements + n - 1) / n, unit);
        for (uint32_t j = 0; j < 2 * n - 1; j++) {
            const struct ips_stage stage = ips_stage_of(&ring, j, piece, elements, chunk);
            if (P::joins && !stage.send && end - piece > most) {
                rest = {stage.offset, stage.bytes, true};
                continue;
            }
            if (P::joins && rest.there && !stage.recv) {
                P::stage_both(protocol, &ring, &rest, &stage);
                ips_post_credit(&ring, stage.recv_step);
                continue;
            }
            P::stage(protocol, &ring, &stage);
            if (stage.recv && stage.recv_step % P::credit_every == 0)
                ips_post_credit(&ring, stage.recv_step);
        }
        ring.step += 2 * n - 2;
    }
    if (ring.step % P::credit_every)
        ips_post_credit(&ring, ring.step);
    ips_run_close(&ring.run, ring.step);
}

#endif
