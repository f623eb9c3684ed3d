/* SPDX-License-Identifier: Apache-2.0 */
/* The ring AllReduce of one channel, whatever the protocol: which part of the message moves
 * in which stage, and the step and credit rules that all protocols keep.
 *
 * The message is cut into one part per channel, a part into pieces of at most nranks slots,
 * a piece into nranks chunks. A piece takes 2 * nranks - 1 stages: reduce-scatter, in which
 * every chunk travels once around and collects the sum, then all-gather, in which it travels
 * once more. Pieces are the outermost loop and a stage sends at most one slot, so a rank is
 * never more than one slot ahead of what it has received and cannot fill the ring.
 * hierarchical.h makes other stages of the same piece.
 *
 * Nothing here depends on pointers or data: every rank takes the same steps. */
#ifndef IPS_KERNELS_RING_H
#define IPS_KERNELS_RING_H

#include "kernels/run.h"

struct ips_ring {
    struct ips_run run;
    struct ips_channel *mine, *next; /* this channel in the two mailboxes */
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
    bool last_reduce; /* the sum is complete here */
    bool stays;       /* reduces, and sends nothing: only in hierarchical.h */
    bool own_out;     /* the own part is what such a stage has copied to the output */
    uint64_t recv_step, send_step;
};

/* Part of the message that takes one turn of stages. In elements. */
struct ips_piece {
    uint64_t begin, elements, chunk;
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
        shared->credit = ips_wait_word(
            ring, &ring->mine->credit[ring->proto][ring->next_position].value,
            IPS_WAIT_CREDIT, step - slots);
    ips_barrier();
    ring->credit = shared->credit;
    ring->run.dead |= shared->dead != 0;
}

/* Tells the predecessors that all slots up to `step` were read. All threads call it. */
IPS_DEVICE void ips_post_credit(struct ips_ring *ring, uint64_t step)
{
    const struct ips_allreduce_args *args = ring->run.args;
    ips_barrier();
    if (ips_thread() >= ips_rings((int)ring->proto, args->group) || ring->run.dead)
        return;
    if (ips_thread() == IPS_RING_INSIDE && args->rank % args->group)
        return; /* the same as in the ring of all */
    const uint32_t writer =
        ips_ring_next((int)ips_thread(), args->rank, -1, args->nranks, args->group);
    ips_st_release(&ips_channel_of(args, writer)->credit[ring->proto][args->rank].value, step);
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

/* Stage j of a ring of `n` ranks in which this one is at `place`: chunk (place - 1 - j), so
 * that a rank passes on in each stage what it received in the one before. The ring has n
 * chunks of `chunk` elements, from `begin` on in the piece; it receives step `first` + j. */
IPS_DEVICE struct ips_stage ips_stage_of(const struct ips_ring *ring,
                                         const struct ips_piece *piece, uint32_t n,
                                         uint32_t place, uint32_t j, uint64_t begin,
                                         uint64_t chunk, uint64_t first)
{
    const uint32_t element = ring->run.in.element;
    begin += (place + 2 * n - 1 - j) % n * chunk;
    if (begin > piece->elements)
        begin = piece->elements;
    const uint64_t left = piece->elements - begin;
    struct ips_stage stage;
    stage.offset = (piece->begin + begin) * element;
    stage.bytes = (uint32_t)((left < chunk ? left : chunk) * element);
    stage.recv = j > 0;
    stage.reduce = j > 0 && j < n;
    stage.send = j < 2 * n - 2;
    stage.copy = j >= n - 1;
    stage.last_reduce = j == n - 1;
    stage.stays = stage.own_out = false;
    stage.recv_step = first + j;
    stage.send_step = first + j + 1;
    return stage;
}

/* From now on this rank has the neighbours that it has in `which` ring. */
IPS_DEVICE void ips_ring_turn(struct ips_ring *ring, int which)
{
    const struct ips_allreduce_args *args = ring->run.args;
    ring->next_position =
        ips_ring_next(which, args->rank, 1, args->nranks, args->group);
    ring->prev_position =
        ips_ring_next(which, args->rank, -1, args->nranks, args->group);
    ring->next = ips_channel_of(args, ring->next_position);
}

IPS_DEVICE void ips_ring_open(struct ips_ring *ring, const struct ips_allreduce_args *args,
                              uint32_t proto, uint32_t variant, int which)
{
    ips_run_open(&ring->run, args, variant);
    ring->mine = ips_channel_of(args, args->rank);
    ring->proto = proto;
    ips_ring_turn(ring, which);
    struct ips_ring_shared *shared = (struct ips_ring_shared *)ips_shared();
    if (ips_thread() == 0) {
        const uint64_t step = *ips_step_of(args, variant);
        shared->credit =
            ips_ld_acquire(&ring->mine->credit[proto][ring->next_position].value);
        shared->step = step;
        shared->dead = 0;
    }
    ips_run_begin(&ring->run);
    ips_barrier();
    ring->step = shared->step;
    ring->run.dead = ring->step == IPS_STEP_DEAD;
    ring->credit = shared->credit;
}

/* Runs this block's channel by shape S with protocol P. The shape provides:
 *   variant(proto)
 *   first        the ring of the first stage
 *   split(args)  chunks of which all must fit into a slot
 *   stages(args), steps(args)  of a piece
 *   stage(ring, piece, j)      all threads of the block call it, in order
 * The protocol:
 *   id           enum ips_proto
 *   slot_data(nranks)  bytes of data that a slot holds
 *   unit_bytes   chunks begin at multiples of it
 *   credit_every steps between two credits, a divisor of its slots
 *   stage(protocol, ring, stage)  moves one chunk; all threads of the block call it
 *   joins        whether the last stage of a piece waits for the first one of the next:
 *   stage_both(protocol, ring, rest, stage)  moves them together */
template <class S, class P>
IPS_DEVICE void ips_pieces_run(const struct ips_allreduce_args *args, const P *protocol)
{
    struct ips_ring ring;
    ips_ring_open(&ring, args, P::id, (uint32_t)S::variant(P::id), S::first);
    const uint32_t n = args->nranks, stages = S::stages(args);
    const uint64_t unit = P::unit_bytes / args->element;
    const uint64_t most = (uint64_t)(P::slot_data(n) / P::unit_bytes / S::split(args)) * unit * n;
    struct ips_piece piece;
    uint64_t end;
    ips_part_of(args, unit, &piece.begin, &end);
    struct ips_rest rest = {0, 0, false};
    for (; piece.begin < end; piece.begin += most) {
        const bool last = end - piece.begin <= most;
        piece.elements = last ? end - piece.begin : most;
        piece.chunk = ips_round_up((piece.elements + n - 1) / n, unit);
        for (uint32_t j = 0; j < stages; j++) {
            const struct ips_stage stage = S::stage(&ring, &piece, j);
            if (P::joins && j + 1 == stages && !last) {
                rest = {stage.offset, stage.bytes, true};
                continue;
            }
            if (P::joins && rest.there && j == 0) {
                P::stage_both(protocol, &ring, &rest, &stage);
                ips_post_credit(&ring, stage.recv_step);
                continue;
            }
            P::stage(protocol, &ring, &stage);
            if (stage.recv && stage.recv_step % P::credit_every == 0)
                ips_post_credit(&ring, stage.recv_step);
        }
        ring.step += S::steps(args);
    }
    if (ring.step % P::credit_every)
        ips_post_credit(&ring, ring.step);
    ips_run_close(&ring.run, ring.step);
}

/* One ring of all ranks. */
struct ips_one_ring {
    static const int first = IPS_RING_OF_ALL;

    IPS_DEVICE int variant(int proto)
    {
        return ips_variant_of(IPS_RING, proto);
    }

    IPS_DEVICE uint32_t split(const struct ips_allreduce_args *)
    {
        return 1;
    }

    IPS_DEVICE uint32_t stages(const struct ips_allreduce_args *args)
    {
        return 2 * args->nranks - 1;
    }

    IPS_DEVICE uint32_t steps(const struct ips_allreduce_args *args)
    {
        return 2 * args->nranks - 2;
    }

    IPS_DEVICE struct ips_stage stage(struct ips_ring *ring, const struct ips_piece *piece,
                                      uint32_t j)
    {
        const struct ips_allreduce_args *args = ring->run.args;
        return ips_stage_of(ring, piece, args->nranks, args->rank, j, 0, piece->chunk,
                            ring->step);
    }
};

template <class P>
IPS_DEVICE void ips_ring_run(const struct ips_allreduce_args *args, const P *protocol)
{
    ips_pieces_run<ips_one_ring>(args, protocol);
}

#endif
