/* SPDX-License-Identifier: Apache-2.0 */
/* One thread's part in one call, whatever the algorithm: what it knows, how it waits, and
 * how a call begins and ends. */
#ifndef IPS_KERNELS_RUN_H
#define IPS_KERNELS_RUN_H

#include "kernels/reduce.h"
#include "kernels/user.h"
#include "kernels/wire.h"

/* Polls between two looks at the abort word, which lies behind the PCIe link. */
#ifndef IPS_POLLS_PER_LOOK
#define IPS_POLLS_PER_LOOK 512
#endif

struct ips_run_numbers {
    uint64_t call;  /* the call's */
    uint64_t count; /* block 0, of a captured call: executions like it before */
};

struct ips_run {
    const struct ips_allreduce_args *args;
    struct ips_buffer in, out;
    uint32_t variant;
    bool dead; /* this thread saw the abort word: it moves no more data */
    struct ips_run_numbers numbers; /* of thread 0, until the call has begun */
};

struct ips_wait {
    uint32_t polls;
    uint32_t told; /* 1 + the peer in the record that this thread has written, or 0 */
    uint64_t since; /* the first look, or the last word to the host */
};

/* The mailbox of the rank at a position. */
IPS_DEVICE struct ips_mailbox *ips_mailbox_of(const struct ips_allreduce_args *args,
                                              uint32_t position)
{
    return (struct ips_mailbox *)args->mailbox[position];
}

/* This block's channel in it. */
IPS_DEVICE struct ips_channel *ips_channel_of(const struct ips_allreduce_args *args,
                                              uint32_t position)
{
    return (struct ips_channel *)(ips_mailbox_of(args, position) + 1) + ips_block();
}

/* The number of completed steps of this block's channel. */
IPS_DEVICE uint64_t *ips_step_of(const struct ips_allreduce_args *args, uint32_t variant)
{
    return &args->head->step[ips_sequence_of((int)variant)][ips_block()];
}

/* The call as all ranks know it. */
IPS_DEVICE struct ips_v4 ips_describe(const struct ips_allreduce_args *args,
                                      uint32_t variant, uint64_t number)
{
    struct ips_v4 v = {(uint32_t)args->count, (uint32_t)(args->count >> 32),
                       (uint32_t)number,
                       args->type | args->op << 8 | variant << 16 | ips_blocks() << 24};
    return v;
}

/* The same for a history: see struct ips_note. */
IPS_DEVICE struct ips_v4 ips_note(const struct ips_allreduce_args *args, uint32_t variant,
                                  uint64_t number)
{
    struct ips_v4 v = ips_describe(args, variant, number);
    v.y = (v.y & 0xffff) | (uint32_t)number << 16;
    return v;
}

/* Writes down who waits for whom, unless another thread's wait stands there. Whether it did.
 * `peer` is a position. Takes no pointer to the run, which would force that into local
 * memory. */
IPS_DEVICE_CALL bool ips_report(const struct ips_allreduce_args *args, uint32_t variant,
                                uint32_t kind, uint32_t peer, uint64_t step, uint64_t seen)
{
    struct ips_head *head = args->head;
    if (ips_ld_relaxed(&head->stuck_taken) || ips_exchange(&head->stuck_taken, 1))
        return false;
    struct ips_stuck *stuck = &args->control->stuck;
    ips_st_word(&stuck->channel, ips_block());
    ips_st_word(&stuck->peer, args->peer[peer]);
    ips_st_relaxed(&stuck->step, step);
    ips_st_relaxed(&stuck->seen, seen);
    ips_st16(&stuck->call, ips_describe(args, variant, ips_ld_relaxed(&head->call)));
    ips_st_release(&stuck->state, ++head->stuck_seq << 8 | kind);
    return true;
}

/* Takes the record back. */
IPS_DEVICE_CALL void ips_report_over(const struct ips_allreduce_args *args)
{
    ips_st_relaxed(&args->control->stuck.state, args->head->stuck_seq << 8 | IPS_WAIT_NONE);
    ips_st_release(&args->head->stuck_taken, 0);
}

/* Shows the host what all ranks have done last, as far as their histories tell by now. Reads
 * over the links; only the thread whose record stands does it. The host tells halves of two
 * calls apart. */
IPS_DEVICE_CALL void ips_look_around(const struct ips_allreduce_args *args)
{
    for (uint32_t p = 0; p < args->nranks; p++) {
        IPS_UNROLL
        for (uint32_t i = 0; i < IPS_CALL_HISTORY; i++) {
            const uint64_t *half = (const uint64_t *)&ips_mailbox_of(args, p)->history[i];
            const uint64_t low = ips_ld_relaxed(half), high = ips_ld_relaxed(half + 1);
            const struct ips_v4 v = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
                                     (uint32_t)(high >> 32)};
            ips_st16(&args->control->seen[args->peer[p]][i], v);
        }
    }
    ips_st_release(&args->control->looks, ++args->head->looks);
}

/* Every wait ends with it. */
IPS_DEVICE void ips_wait_over(const struct ips_run *run, const struct ips_wait *wait)
{
    if (wait->told)
        ips_report_over(run->args);
}

/* After a poll that failed: lets others run, and now and then looks at the abort word and
 * the clock. Sets run->dead when the wait is over without its object. A wait for several
 * peers that goes on after the one in the record has come names another. */
IPS_DEVICE void ips_poll_failed(struct ips_run *run, struct ips_wait *wait, uint32_t kind,
                                uint32_t peer, uint64_t step, uint64_t seen)
{
    ips_spin();
    if (++wait->polls % IPS_POLLS_PER_LOOK)
        return;
    if (ips_ld_word(&run->args->control->abort)) {
        run->dead = true;
        return;
    }
    const uint64_t now = ips_clock_ns();
    if (!wait->since)
        wait->since = now;
    else if (now - wait->since > IPS_NOTICE_NS) {
        wait->since = now;
        if (wait->told != peer + 1) {
            ips_wait_over(run, wait);
            wait->told =
                ips_report(run->args, run->variant, kind, peer, step, seen) ? peer + 1 : 0;
        }
        if (wait->told)
            ips_look_around(run->args);
    }
}

/* The input as it enters the sum. */
IPS_DEVICE struct ips_v4 ips_input(const struct ips_run *run, uint64_t offset,
                                   uint32_t bytes)
{
    struct ips_v4 v = ips_load(run->in, offset, bytes);
    if (run->args->op == IPS_AVG && ips_is_float(run->args->type))
        v = ips_scale(v, run->args->type, run->args->nranks);
    return v;
}

/* The complete sum as it leaves. */
IPS_DEVICE struct ips_v4 ips_output(const struct ips_run *run, struct ips_v4 v)
{
    if (run->args->op == IPS_AVG && !ips_is_float(run->args->type))
        v = ips_divide_by(v, run->args->type, run->args->nranks);
    return v;
}

IPS_DEVICE uint64_t ips_round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* The elements of the message that this block's channel moves: [*ret_begin, *ret_end). */
IPS_DEVICE void ips_part_of(const struct ips_allreduce_args *args, uint64_t unit,
                            uint64_t *ret_begin, uint64_t *ret_end)
{
    const uint64_t part =
        ips_round_up((args->count + ips_blocks() - 1) / ips_blocks(), unit);
    const uint64_t begin = part * ips_block(), end = begin + part;
    *ret_begin = begin;
    *ret_end = end < args->count ? end : args->count;
}

/* Loads only, and uses none of them: they are on their way while the caller goes on. */
IPS_DEVICE void ips_run_open(struct ips_run *run, const struct ips_allreduce_args *args,
                             uint32_t variant)
{
    run->args = args;
    run->in = ips_buffer_of(args->in, args->element);
    run->out = ips_buffer_of(args->out, args->element);
    run->variant = variant;
    run->dead = false;
    run->numbers.call = run->numbers.count = 0;
    if (ips_thread() != 0)
        return;
    run->numbers.call = ips_ld_relaxed(&args->head->call) + 1;
    if (ips_block() == 0 && args->captured)
        run->numbers.count = args->head->count[args->counter];
}

/* What the block shares ends with it. Between begin and close, registers are for others. */
IPS_DEVICE struct ips_run_numbers *ips_run_kept(void)
{
    return (struct ips_run_numbers *)((char *)ips_shared() + IPS_SHARED_BYTES) - 1;
}

/* The call has its number, for reports. Block 0 starts no later than the others, as far as
 * matters. */
IPS_DEVICE void ips_run_begin(const struct ips_run *run)
{
    if (ips_thread() != 0 || ips_block() != 0)
        return;
    *ips_run_kept() = run->numbers;
    ips_st_relaxed(&run->args->head->call, run->numbers.call);
}

/* The call is done. Host memory is stored to only where the host can't do without. It needs
 * no order here. */
IPS_DEVICE void ips_run_note(const struct ips_run *run)
{
    const struct ips_allreduce_args *args = run->args;
    const struct ips_run_numbers numbers = *ips_run_kept();
    const uint32_t number = (uint32_t)numbers.call;
    const struct ips_v4 note = ips_note(args, run->variant, numbers.call);
    ips_st16(&ips_mailbox_of(args, args->rank)->history[number % IPS_CALL_HISTORY], note);
    if (ips_call_shown(number, args->captured))
        ips_st16(&args->control->history[ips_shown_at(number)], note);
    if (!args->captured)
        return;
    args->head->count[args->counter] = numbers.count + 1;
    ips_st_relaxed(&args->control->count[args->counter], numbers.count + 1);
}

/* Stores the step count for the next call, of this kernel or a replay. The last step has ended
 * in all threads of the block, or one of them has given up: then no later call goes on. */
IPS_DEVICE void ips_run_close(struct ips_run *run, uint64_t step)
{
    const bool dead = ips_barrier_any(run->dead);
    if (ips_thread() != 0)
        return;
    *ips_step_of(run->args, run->variant) = dead ? IPS_STEP_DEAD : step;
    if (ips_block() == 0 && !dead)
        ips_run_note(run);
}

#endif
