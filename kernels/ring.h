/* SPDX-License-Identifier: Apache-2.0 */
/* The ring AllReduce of one channel, whatever the protocol: which part of the message moves
 * in which stage, and the step, credit and abort rules that all protocols keep.
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

#include "kernels/reduce.h"
#include "kernels/user.h"
#include "kernels/wire.h"

/* Polls between two looks at the abort word, which lies behind the PCIe link. */
#ifndef IPS_POLLS_PER_LOOK
#define IPS_POLLS_PER_LOOK 512
#endif

struct ips_ring {
    const struct ips_allreduce_args *args;
    struct ips_slab_head *head;
    struct ips_channel *mine, *next, *prev; /* this channel in the three slabs */
    struct ips_buffer in, out;
    uint32_t proto;
    uint64_t step;   /* completed steps; the same in all threads of the block */
    uint64_t credit; /* last credit known, likewise */
    bool dead;       /* this thread saw the abort word: it moves no more data */
};

/* What the block shares: thread 0 polls words and hands them to the others. */
struct ips_ring_shared {
    uint64_t step, credit;
    uint64_t dead; /* thread 0 saw the abort word */
    uint64_t call; /* number, of block 0 */
};

/* One stage: a chunk, and what happens to it. */
struct ips_stage {
    uint64_t offset; /* bytes into the message */
    uint32_t bytes;  /* may be 0: the step is taken all the same */
    bool recv, reduce, send, copy;
    bool last_reduce;             /* the sum is complete here */
    uint64_t recv_step, send_step;
};

struct ips_wait {
    uint32_t polls;
    bool told; /* this thread has written the record of its wait */
    uint64_t since;
};

/* The call as all ranks know it. */
IPS_DEVICE struct ips_v4 ips_describe(const struct ips_allreduce_args *args, uint32_t proto,
                                      uint64_t number)
{
    struct ips_v4 v = {(uint32_t)args->count, (uint32_t)(args->count >> 32),
                       (uint32_t)number,
                       args->type | args->op << 8 | proto << 16 | ips_blocks() << 24};
    return v;
}

/* Writes down who waits for whom, unless another thread's wait stands there. Whether it did.
 * Takes no pointer to the ring, which would force that into local memory. */
IPS_DEVICE_CALL bool ips_report(const struct ips_allreduce_args *args, uint32_t proto,
                                uint32_t kind, uint64_t step, uint64_t seen)
{
    struct ips_slab_head *head = (struct ips_slab_head *)args->slab;
    if (ips_ld_relaxed(&head->stuck_taken) || ips_exchange(&head->stuck_taken, 1))
        return false;
    struct ips_stuck *stuck = &args->control->stuck;
    ips_st_word(&stuck->channel, ips_block());
    ips_st_word(&stuck->peer, kind == IPS_WAIT_DATA ? args->prev_peer : args->next_peer);
    ips_st_relaxed(&stuck->step, step);
    ips_st_relaxed(&stuck->seen, seen);
    ips_st16(&stuck->call, ips_describe(args, proto, ips_ld_relaxed(&head->call)));
    ips_st_release(&stuck->state, ++head->stuck_seq << 8 | kind);
    return true;
}

/* Takes the record back. */
IPS_DEVICE_CALL void ips_report_over(const struct ips_allreduce_args *args)
{
    struct ips_slab_head *head = (struct ips_slab_head *)args->slab;
    ips_st_relaxed(&args->control->stuck.state, head->stuck_seq << 8 | IPS_WAIT_NONE);
    ips_st_release(&head->stuck_taken, 0);
}

/* After a poll that failed: lets others run, and now and then looks at the abort word and
 * the clock. Sets ring->dead when the wait is over without its object. */
IPS_DEVICE void ips_poll_failed(struct ips_ring *ring, struct ips_wait *wait, uint32_t kind,
                                uint64_t step, uint64_t seen)
{
    ips_spin();
    if (++wait->polls % IPS_POLLS_PER_LOOK)
        return;
    if (ips_ld_word(&ring->args->control->abort)) {
        ring->dead = true;
        return;
    }
    const uint64_t now = ips_clock_ns();
    if (!wait->since)
        wait->since = now;
    else if (!wait->told && now - wait->since > IPS_NOTICE_NS)
        wait->told = ips_report(ring->args, ring->proto, kind, step, seen);
}

/* Every wait ends with it. */
IPS_DEVICE void ips_wait_over(const struct ips_ring *ring, const struct ips_wait *wait)
{
    if (wait->told)
        ips_report_over(ring->args);
}

/* Thread 0: waits until the word has reached `step`. Acquires. */
IPS_DEVICE uint64_t ips_wait_word(struct ips_ring *ring, const uint64_t *word, uint32_t kind,
                                  uint64_t step)
{
    struct ips_wait wait = {0, false, 0};
    uint64_t seen = ips_ld_acquire(word);
    while (seen < step && !ring->dead) {
        ips_poll_failed(ring, &wait, kind, step, seen);
        seen = ips_ld_acquire(word);
    }
    ips_wait_over(ring, &wait);
    if (ring->dead)
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
    ring->dead |= shared->dead != 0;
}

/* Tells the predecessor that all slots up to `step` were read. All threads call it. */
IPS_DEVICE void ips_post_credit(struct ips_ring *ring, uint64_t step)
{
    ips_barrier();
    if (ips_thread() == 0 && !ring->dead)
        ips_st_release(&ring->prev->credit[ring->proto].value, step);
}

/* The input as it enters the sum. */
IPS_DEVICE struct ips_v4 ips_input(const struct ips_ring *ring, uint64_t offset,
                                   uint32_t bytes)
{
    struct ips_v4 v = ips_load(ring->in, offset, bytes);
    if (ring->args->op == IPS_AVG && ips_is_float(ring->args->type))
        v = ips_scale(v, ring->args->type, ring->args->nranks);
    return v;
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
    struct ips_v4 v = ips_reduce(received, own, ring->args->type, ring->args->op);
    if (stage->last_reduce && ring->args->op == IPS_AVG && !ips_is_float(ring->args->type))
        v = ips_divide_by(v, ring->args->type, ring->args->nranks);
    return v;
}

/* Stage j of a piece: chunk (rank - 1 - j) of the ring, so that a rank passes on in each
 * stage what it received in the one before. */
IPS_DEVICE struct ips_stage ips_stage_of(const struct ips_ring *ring, uint32_t j,
                                         uint64_t piece, uint64_t piece_elements,
                                         uint64_t chunk_elements)
{
    const uint32_t n = ring->args->nranks;
    uint64_t begin = (ring->args->rank + 2 * n - 1 - j) % n * chunk_elements;
    if (begin > piece_elements)
        begin = piece_elements;
    uint64_t left = piece_elements - begin;
    struct ips_stage stage;
    stage.offset = (piece + begin) * ring->in.element;
    stage.bytes = (uint32_t)((left < chunk_elements ? left : chunk_elements) *
                             ring->in.element);
    stage.recv = j > 0;
    stage.reduce = j > 0 && j < n;
    stage.send = j < 2 * n - 2;
    stage.copy = j >= n - 1;
    stage.last_reduce = j == n - 1;
    stage.recv_step = ring->step + j;
    stage.send_step = ring->step + j + 1;
    return stage;
}

IPS_DEVICE uint64_t ips_round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

IPS_DEVICE void ips_ring_open(struct ips_ring *ring, const struct ips_allreduce_args *args,
                              uint32_t proto)
{
    const uint64_t channel =
        IPS_SLAB_HEAD_BYTES + (uint64_t)ips_block() * sizeof(struct ips_channel);
    ring->args = args;
    ring->head = (struct ips_slab_head *)args->slab;
    ring->mine = (struct ips_channel *)((char *)args->slab + channel);
    ring->next = (struct ips_channel *)((char *)args->next + channel);
    ring->prev = (struct ips_channel *)((char *)args->prev + channel);
    ring->in = ips_buffer_of(args->in, args->element);
    ring->out = ips_buffer_of(args->out, args->element);
    ring->proto = proto;
    ring->dead = false;
    struct ips_ring_shared *shared = (struct ips_ring_shared *)ips_shared();
    if (ips_thread() == 0) {
        /* All loads first: a use waits, and so does what follows an acquire. */
        const uint64_t call = ips_ld_relaxed(&ring->head->call);
        const uint64_t step = ring->head->step[proto][ips_block()];
        shared->credit = ips_ld_acquire(&ring->mine->credit[proto].value);
        shared->step = step;
        shared->call = call + 1;
        shared->dead = 0;
        if (ips_block() == 0) /* which starts no later than the others, as far as matters */
            ips_st_relaxed(&ring->head->call, shared->call);
    }
    ips_barrier();
    ring->step = shared->step;
    ring->credit = shared->credit;
}

/* Stores the step count for the next call, of this kernel or a replay, and counts this one.
 * The stage of the last step has ended in all threads. The host needs no order here. */
IPS_DEVICE void ips_ring_close(struct ips_ring *ring)
{
    if (ips_thread() != 0 || ring->dead)
        return;
    ring->head->step[ring->proto][ips_block()] = ring->step;
    if (ips_block() != 0)
        return;
    const uint64_t number = ((struct ips_ring_shared *)ips_shared())->call;
    ips_st16(&ring->args->control->history[number % IPS_CALL_HISTORY],
             ips_describe(ring->args, ring->proto, number));
    const uint32_t counter = ring->args->counter;
    uint64_t count = ++ring->head->count[counter];
    ips_st_relaxed(&ring->args->control->count[counter], count);
}

/* Runs this block's channel with protocol P, which provides:
 *   id           enum ips_proto
 *   slot_bytes   data bytes of a slot
 *   unit_bytes   chunks begin at multiples of it
 *   credit_every steps between two credits, a divisor of its slots
 *   stage(protocol, ring, stage)  moves one chunk; all threads of the block call it */
template <class P>
IPS_DEVICE void ips_ring_run(const struct ips_allreduce_args *args, const P *protocol)
{
    struct ips_ring ring;
    ips_ring_open(&ring, args, P::id);
    const uint32_t n = args->nranks;
    const uint64_t unit = P::unit_bytes / args->element;
    const uint64_t most = (uint64_t)(P::slot_bytes / P::unit_bytes) * unit * n;
    const uint64_t part =
        ips_round_up((args->count + ips_blocks() - 1) / ips_blocks(), unit);
    uint64_t piece = part * ips_block();
    uint64_t end = piece + part;
    if (end > args->count)
        end = args->count;
    for (; piece < end; piece += most) {
        const uint64_t elements = end - piece < most ? end - piece : most;
        const uint64_t chunk = ips_round_up((elements + n - 1) / n, unit);
        for (uint32_t j = 0; j < 2 * n - 1; j++) {
            const struct ips_stage stage = ips_stage_of(&ring, j, piece, elements, chunk);
            P::stage(protocol, &ring, &stage);
            if (stage.recv && stage.recv_step % P::credit_every == 0)
                ips_post_credit(&ring, stage.recv_step);
        }
        ring.step += 2 * n - 2;
    }
    if (ring.step % P::credit_every)
        ips_post_credit(&ring, ring.step);
    ips_ring_close(&ring);
}

#endif
