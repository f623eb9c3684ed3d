/* SPDX-License-Identifier: Apache-2.0 */
/* One-shot and two-shot AllReduce of one channel: every rank writes to every other, and each
 * sum is made in one place, in the order of the ranks.
 *
 * One-shot: a step per piece. Every rank sends its whole piece to every other and sums what
 * it has received. Two-shot: two steps. In the first, every rank sends to every other that
 * one's chunk of the piece, and sums its own; in the second it sends the sum to every other.
 * In both, a rank begins with its successor and goes around, so that at any time about one
 * rank writes to each.
 *
 * Why nobody waits for credits (see wire.h for the inboxes): in every step each rank sends
 * every other at least one line. Whoever has begun step s has received all lines of step
 * s - 1, each of which its sender sent after it had read all that it was to read in step
 * s - 2 (one-shot: the block has met since; two-shot, second step: the sender of a line has
 * read that same line of the first). So the inbox of step s - 2, which step s writes to, is
 * free everywhere.
 *
 * Line i of a chunk is moved by the same thread wherever it is read or written, so that out
 * may be in, and a thread reads back what it has written to out. */
#ifndef IPS_KERNELS_DIRECT_H
#define IPS_KERNELS_DIRECT_H

#include "kernels/run.h"

/* A protocol P for these algorithms provides, beside its id, unit_bytes (data of a line),
 * line_bytes and lanes (threads that move a line together):
 *   seal(protocol, data, step)  the line as it is sent
 *   fits(protocol, line, step)  whether it has arrived
 *   data(line)                  the data in it
 *   seen(line)                  for reports: what was there instead
 *   any(predicate)              whether it holds in a thread that must stay with this one
 *   cleans_inbox(step), blank(step)  whether step rewrites all lines, and what with */
template <class P> struct ips_direct {
    struct ips_run run;
    const P *protocol;
    uint64_t step;   /* under way */
    uint32_t stride; /* lines of one rank's part of an inbox */
    uint32_t part;   /* which 16 bytes of its lines this thread moves */
};

/* Where this thread works in its k-th line of a chunk. */
struct ips_place {
    uint32_t line;
    uint32_t at, bytes; /* into the chunk */
    bool active;        /* there is such a line */
};

/* An empty chunk has a line too: see above. */
template <class P> IPS_DEVICE uint32_t ips_lines_of(uint32_t bytes)
{
    return bytes ? (bytes + P::unit_bytes - 1) / P::unit_bytes : 1;
}

/* How often the threads go through a chunk; the same in all threads. */
template <class P> IPS_DEVICE uint32_t ips_trips_of(uint32_t bytes)
{
    const uint32_t at_once = ips_threads() / P::lanes;
    return (ips_lines_of<P>(bytes) + at_once - 1) / at_once;
}

template <class P>
IPS_DEVICE struct ips_place ips_place_of(const struct ips_direct<P> *direct, uint32_t k,
                                         uint32_t bytes)
{
    struct ips_place place;
    place.line = (k * ips_threads() + ips_thread()) / P::lanes;
    place.active = place.line < ips_lines_of<P>(bytes);
    place.at = place.line * P::unit_bytes + 16 * direct->part;
    const uint32_t most = P::unit_bytes - 16 * direct->part;
    const uint32_t room = most < 16 ? most : 16;
    place.bytes = place.at >= bytes ? 0 : bytes - place.at;
    if (place.bytes > room)
        place.bytes = room;
    return place;
}

/* The rank at `from` writes its lines of the step under way here, in the mailbox of `of`. */
template <class P>
IPS_DEVICE unsigned char *ips_inbox(const struct ips_direct<P> *direct, uint32_t of,
                                    uint32_t from)
{
    return ips_channel_of(direct->run.args, of)->inbox[P::id][direct->step % 2] +
           (uint64_t)from * direct->stride * P::line_bytes + 16 * direct->part;
}

/* The s-th rank after this one. */
template <class P>
IPS_DEVICE uint32_t ips_after(const struct ips_direct<P> *direct, uint32_t s)
{
    const uint32_t position = direct->run.args->rank + s, n = direct->run.args->nranks;
    return position < n ? position : position - n;
}

template <class P>
IPS_DEVICE void ips_send_line(const struct ips_direct<P> *direct, uint32_t to,
                              const struct ips_place *place, struct ips_v4 line)
{
    if (place->active && !direct->run.dead)
        ips_st16(ips_inbox(direct, to, direct->run.args->rank) +
                     (uint64_t)place->line * P::line_bytes,
                 line);
}

/* Where a protocol needs it: the lines of an inbox that a chunk does not reach. */
template <class P>
IPS_DEVICE void ips_clean_inbox(const struct ips_direct<P> *direct, uint32_t to,
                                uint32_t bytes)
{
    if (!P::cleans_inbox(direct->step) || direct->run.dead)
        return;
    unsigned char *inbox = ips_inbox(direct, to, direct->run.args->rank);
    for (uint32_t i = ips_lines_of<P>(bytes) + ips_thread(); i < direct->stride;
         i += ips_threads())
        ips_st16(inbox + (uint64_t)i * P::line_bytes, P::blank(direct->step));
}

/* Waits until the ranks in `missing` (bits) have sent this line; v[position] is its data. */
template <class P>
IPS_DEVICE void ips_receive(struct ips_direct<P> *direct, const struct ips_place *place,
                            uint32_t missing, struct ips_v4 *v)
{
    const unsigned char *from = ips_inbox(direct, direct->run.args->rank, 0) +
                                (uint64_t)place->line * P::line_bytes;
    const uint64_t part = (uint64_t)direct->stride * P::line_bytes;
    struct ips_wait wait = {0, false, 0};
    if (!place->active)
        missing = 0;
    for (;;) {
        uint32_t peer = 0;
        uint64_t seen = 0;
        IPS_UNROLL
        for (uint32_t p = 0; p < IPS_MAX_RANKS; p++)
            if (missing >> p & 1)
                v[p] = ips_ld16(from + p * part);
        IPS_UNROLL
        for (uint32_t p = 0; p < IPS_MAX_RANKS; p++) {
            if (!P::any(missing >> p & 1))
                continue;
            if (P::fits(direct->protocol, v[p], direct->step)) {
                missing &= ~(1u << p);
            } else if (missing >> p & 1) {
                peer = p;
                seen = P::seen(v[p]);
            }
        }
        if (!P::any(missing && !direct->run.dead))
            break;
        if (missing)
            ips_poll_failed(&direct->run, &wait, IPS_WAIT_DATA, peer, direct->step, seen);
    }
    ips_wait_over(&direct->run, &wait);
    IPS_UNROLL
    for (uint32_t p = 0; p < IPS_MAX_RANKS; p++)
        v[p] = P::data(v[p]);
}

/* The same of one rank alone. */
template <class P>
IPS_DEVICE struct ips_v4 ips_receive_from(struct ips_direct<P> *direct,
                                          const struct ips_place *place, uint32_t from)
{
    const unsigned char *line = ips_inbox(direct, direct->run.args->rank, from) +
                                (uint64_t)place->line * P::line_bytes;
    struct ips_wait wait = {0, false, 0};
    struct ips_v4 v = {0, 0, 0, 0};
    bool missing = place->active;
    for (;;) {
        if (missing)
            v = ips_ld16(line);
        if (P::fits(direct->protocol, v, direct->step))
            missing = false;
        if (!P::any(missing && !direct->run.dead))
            break;
        if (missing)
            ips_poll_failed(&direct->run, &wait, IPS_WAIT_DATA, from, direct->step,
                            P::seen(v));
    }
    ips_wait_over(&direct->run, &wait);
    return P::data(v);
}

/* This rank's input at a place of the chunk that begins at `offset`. */
template <class P>
IPS_DEVICE struct ips_v4 ips_own(const struct ips_direct<P> *direct,
                                 const struct ips_place *place, uint64_t offset)
{
    const struct ips_v4 zero = {0, 0, 0, 0};
    return place->bytes ? ips_input(&direct->run, offset + place->at, place->bytes) : zero;
}

/* Sums the line of all ranks and writes it to out; the sum. */
template <class P>
IPS_DEVICE struct ips_v4 ips_sum_line(struct ips_direct<P> *direct,
                                      const struct ips_place *place, uint64_t offset)
{
    const struct ips_allreduce_args *args = direct->run.args;
    struct ips_v4 v[IPS_MAX_RANKS] = {};
    const struct ips_v4 own = ips_own(direct, place, offset);
    ips_receive(direct, place, ((1u << args->nranks) - 1) & ~(1u << args->rank), v);
    const struct ips_v4 sum = ips_output(
        &direct->run, ips_reduce_ranks<P::lanes == 1 ? 2 : 4>(v, own, args->rank, args->nranks,
                                                              args->type, args->op));
    if (place->bytes && !direct->run.dead)
        ips_store(direct->run.out, offset + place->at, sum, place->bytes);
    return sum;
}

/* A piece of one-shot; `bytes` of it at `offset`. */
template <class P>
IPS_DEVICE void ips_oneshot_piece(struct ips_direct<P> *direct, uint64_t offset,
                                  uint32_t bytes)
{
    const uint32_t n = direct->run.args->nranks, trips = ips_trips_of<P>(bytes);
    direct->step++;
    for (uint32_t k = 0; k < trips; k++) {
        const struct ips_place place = ips_place_of(direct, k, bytes);
        const struct ips_v4 line =
            P::seal(direct->protocol, ips_own(direct, &place, offset), direct->step);
        for (uint32_t s = 1; s < n; s++)
            ips_send_line(direct, ips_after(direct, s), &place, line);
    }
    for (uint32_t s = 1; s < n; s++)
        ips_clean_inbox(direct, ips_after(direct, s), bytes);
    for (uint32_t k = 0; k < trips; k++) {
        const struct ips_place place = ips_place_of(direct, k, bytes);
        ips_sum_line(direct, &place, offset);
    }
}

/* A chunk of a piece of two-shot: that of the rank at `position`. */
struct ips_chunk {
    uint64_t offset; /* into the message */
    uint32_t bytes;  /* may be 0 */
};

IPS_DEVICE struct ips_chunk ips_chunk_of(uint32_t position, uint64_t offset, uint32_t bytes,
                                         uint32_t chunk_bytes)
{
    const uint64_t at = (uint64_t)position * chunk_bytes;
    const uint64_t left = at < bytes ? bytes - at : 0;
    const struct ips_chunk chunk = {offset + (at < bytes ? at : bytes),
                                    (uint32_t)(left < chunk_bytes ? left : chunk_bytes)};
    return chunk;
}

/* First step: every rank's chunk of the input, to that rank. */
template <class P>
IPS_DEVICE void ips_scatter(struct ips_direct<P> *direct, uint64_t offset, uint32_t bytes,
                            uint32_t chunk_bytes)
{
    for (uint32_t s = 1; s < direct->run.args->nranks; s++) {
        const uint32_t to = ips_after(direct, s);
        const struct ips_chunk chunk = ips_chunk_of(to, offset, bytes, chunk_bytes);
        for (uint32_t k = 0; k < ips_trips_of<P>(chunk.bytes); k++) {
            const struct ips_place place = ips_place_of(direct, k, chunk.bytes);
            const struct ips_v4 own = ips_own(direct, &place, chunk.offset);
            ips_send_line(direct, to, &place, P::seal(direct->protocol, own, direct->step));
        }
        ips_clean_inbox(direct, to, chunk.bytes);
    }
}

/* The sum of the own chunk, to the successor as it is made, then to the others. */
template <class P>
IPS_DEVICE void ips_sum_and_gather(struct ips_direct<P> *direct, const struct ips_chunk *chunk)
{
    const uint32_t n = direct->run.args->nranks, trips = ips_trips_of<P>(chunk->bytes);
    for (uint32_t k = 0; k < trips; k++) {
        const struct ips_place place = ips_place_of(direct, k, chunk->bytes);
        const struct ips_v4 sum = ips_sum_line(direct, &place, chunk->offset);
        direct->step++;
        const struct ips_v4 line = P::seal(direct->protocol, sum, direct->step);
        for (uint32_t s = 1; s < (trips == 1 ? n : 2); s++)
            ips_send_line(direct, ips_after(direct, s), &place, line);
        direct->step--;
    }
    direct->step++;
    for (uint32_t s = 2; trips > 1 && s < n; s++)
        for (uint32_t k = 0; k < trips; k++) {
            const struct ips_place place = ips_place_of(direct, k, chunk->bytes);
            struct ips_v4 sum = {0, 0, 0, 0};
            if (place.bytes)
                sum = ips_load(direct->run.out, chunk->offset + place.at, place.bytes);
            ips_send_line(direct, ips_after(direct, s), &place,
                          P::seal(direct->protocol, sum, direct->step));
        }
    if (!P::cleans_inbox(direct->step))
        return;
    ips_barrier(); /* also a thread without a line must know that all have begun this piece */
    for (uint32_t s = 1; s < n; s++)
        ips_clean_inbox(direct, ips_after(direct, s), chunk->bytes);
}

/* Second step: the sums of all others. */
template <class P>
IPS_DEVICE void ips_collect(struct ips_direct<P> *direct, uint64_t offset, uint32_t bytes,
                            uint32_t chunk_bytes)
{
    const uint32_t n = direct->run.args->nranks;
    for (uint32_t s = 1; s < n; s++) {
        const uint32_t from = ips_after(direct, n - s);
        const struct ips_chunk chunk = ips_chunk_of(from, offset, bytes, chunk_bytes);
        for (uint32_t k = 0; k < ips_trips_of<P>(chunk.bytes); k++) {
            const struct ips_place place = ips_place_of(direct, k, chunk.bytes);
            const struct ips_v4 v = ips_receive_from(direct, &place, from);
            if (place.bytes && !direct->run.dead)
                ips_store(direct->run.out, chunk.offset + place.at, v, place.bytes);
        }
    }
}

template <class P>
IPS_DEVICE void ips_twoshot_piece(struct ips_direct<P> *direct, uint64_t offset,
                                  uint32_t bytes)
{
    const struct ips_allreduce_args *args = direct->run.args;
    const uint32_t chunk_bytes = (uint32_t)ips_round_up(
        (bytes + args->nranks - 1) / args->nranks, P::unit_bytes);
    const struct ips_chunk own = ips_chunk_of(args->rank, offset, bytes, chunk_bytes);
    direct->step++;
    ips_scatter(direct, offset, bytes, chunk_bytes);
    ips_sum_and_gather(direct, &own);
    ips_collect(direct, offset, bytes, chunk_bytes);
}

/* Runs this block's channel with the algorithm and protocol P. */
template <class P>
IPS_DEVICE void ips_direct_run(const struct ips_allreduce_args *args, const P *protocol,
                               enum ips_algo algo)
{
    struct ips_direct<P> direct;
    ips_run_open(&direct.run, args, (uint32_t)ips_variant_of(algo, P::id));
    direct.protocol = protocol;
    direct.step = *ips_step_of(args, direct.run.variant);
    direct.stride = ips_inbox_lines(P::line_bytes, args->nranks);
    direct.part = ips_thread() % P::lanes;
    const uint64_t unit = P::unit_bytes / args->element;
    const uint64_t most =
        direct.stride * unit * (algo == IPS_TWOSHOT ? args->nranks : 1);
    uint64_t begin, end;
    ips_part_of(args, unit, &begin, &end);
    ips_run_begin(&direct.run);
    for (uint64_t piece = begin; piece < end; piece += most) {
        const uint64_t elements = end - piece < most ? end - piece : most;
        if (piece != begin)
            ips_barrier(); /* all of the last step was read */
        if (algo == IPS_TWOSHOT)
            ips_twoshot_piece(&direct, piece * args->element,
                              (uint32_t)(elements * args->element));
        else
            ips_oneshot_piece(&direct, piece * args->element,
                              (uint32_t)(elements * args->element));
    }
    ips_barrier();
    ips_run_close(&direct.run, direct.step);
}

#endif
