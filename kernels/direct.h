/* SPDX-License-Identifier: Apache-2.0 */
/* One-shot and two-shot AllReduce of one channel: every rank writes to every other, and each
 * sum is made in one place, in the order of the ranks.
 *
 * One-shot: a step per piece. Every rank sends its whole piece to every other and sums what
 * it has received. Two-shot: two steps. In the first, every rank sends to every other that
 * one's chunk of the piece, and sums its own; in the second it sends the sum to every other.
 * In both, a rank begins with its successor and goes around, a line of each thread at a time,
 * so that at any time about one rank writes to each.
 *
 * Why nobody waits for credits (see wire.h for the inboxes): in every step each rank sends
 * every other at least one line. Whoever has begun step s has received all lines of step
 * s - 1, each of which its sender sent after it had read all that it was to read in step
 * s - 2 (one-shot: the block has met since; two-shot, second step: the sender of a line has
 * read that same line of the first). So the inbox of step s - 2, which step s writes to, is
 * free everywhere.
 *
 * Line i of a chunk is moved by the same thread wherever it is read or written, so that out
 * may be in. */
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
 *   cleans_inbox(step), blank(step)  whether step rewrites all lines, and what with
 *
 * A thread has a line of every rank in flight at once, in registers: all loops over
 * IPS_MAX_RANKS are unrolled. */
template <class P> struct ips_direct {
    struct ips_run run;
    const P *protocol;
    uint64_t step;   /* under way */
    uint32_t stride; /* lines of one rank's part of an inbox */
    uint32_t part;   /* which 16 bytes of its lines this thread moves */
};

/* A run of bytes of the message, of at most one rank's part of an inbox. */
struct ips_chunk {
    uint64_t offset;
    uint32_t bytes; /* may be 0 */
};

/* Where this thread works in its k-th line of a chunk. Threads that stay together leave a loop
 * over k when none of them has a line any more. */
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

/* How many lines of a chunk a thread moves at most; the same in all threads. */
template <class P> IPS_DEVICE uint32_t ips_trips_of(uint32_t bytes)
{
    const uint32_t at_once = ips_threads() / P::lanes;
    return (ips_lines_of<P>(bytes) + at_once - 1) / at_once;
}

template <class P>
IPS_DEVICE struct ips_place ips_place_of(const struct ips_direct<P> *direct, uint32_t k,
                                         uint32_t bytes)
{
    const uint32_t most = P::unit_bytes - 16 * direct->part;
    const uint32_t room = most < 16 ? most : 16;
    struct ips_place place;
    place.line = (k * ips_threads() + ips_thread()) / P::lanes;
    place.active = place.line < ips_lines_of<P>(bytes);
    place.at = place.line * P::unit_bytes + 16 * direct->part;
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
IPS_DEVICE void ips_receive(struct ips_direct<P> *direct, uint32_t line, uint32_t missing,
                            struct ips_v4 *v)
{
    const unsigned char *from =
        ips_inbox(direct, direct->run.args->rank, 0) + (uint64_t)line * P::line_bytes;
    const uint32_t part = direct->stride * P::line_bytes;
    struct ips_wait wait = {0, 0, 0};
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

/* This rank's input at a place of the chunk. */
template <class P>
IPS_DEVICE struct ips_v4 ips_own(const struct ips_direct<P> *direct,
                                 const struct ips_chunk *chunk, const struct ips_place *place)
{
    const struct ips_v4 zero = {0, 0, 0, 0};
    return place->bytes ? ips_input(&direct->run, chunk->offset + place->at, place->bytes)
                        : zero;
}

template <class P>
IPS_DEVICE void ips_write(const struct ips_direct<P> *direct, const struct ips_chunk *chunk,
                          const struct ips_place *place, struct ips_v4 v)
{
    if (place->bytes && !direct->run.dead)
        ips_store(direct->run.out, chunk->offset + place->at, v, place->bytes);
}

/* Receives a line of all others and sums it with the own one into out; the sum. */
template <class P>
IPS_DEVICE struct ips_v4 ips_sum_line(struct ips_direct<P> *direct,
                                      const struct ips_chunk *chunk,
                                      const struct ips_place *place)
{
    const struct ips_allreduce_args *args = direct->run.args;
    const uint32_t others = ((1u << args->nranks) - 1) & ~(1u << args->rank);
    struct ips_v4 v[IPS_MAX_RANKS] = {};
    const struct ips_v4 own = ips_own(direct, chunk, place);
    ips_receive(direct, place->line, place->active ? others : 0, v);
    const struct ips_v4 sum = ips_output(
        &direct->run, ips_reduce_ranks<P::lanes == 1 ? 2 : 4>(v, own, args->rank, args->nranks,
                                                              args->type, args->op));
    ips_write(direct, chunk, place, sum);
    return sum;
}

/* The same line to every other rank. */
template <class P>
IPS_DEVICE void ips_send_all(const struct ips_direct<P> *direct, const struct ips_place *place,
                             struct ips_v4 line)
{
    for (uint32_t s = 1; s < direct->run.args->nranks; s++)
        ips_send_line(direct, ips_after(direct, s), place, line);
}

template <class P>
IPS_DEVICE void ips_clean_all(const struct ips_direct<P> *direct, uint32_t bytes)
{
    for (uint32_t s = 1; s < direct->run.args->nranks; s++)
        ips_clean_inbox(direct, ips_after(direct, s), bytes);
}

/* A step of one-shot. */
template <class P>
IPS_DEVICE void ips_oneshot(struct ips_direct<P> *direct, const struct ips_chunk *piece,
                            bool first)
{
    const uint32_t trips = ips_trips_of<P>(piece->bytes);
    direct->step++;
    for (uint32_t k = 0; k < trips; k++) {
        const struct ips_place place = ips_place_of(direct, k, piece->bytes);
        if (!P::any(place.active))
            break;
        const struct ips_v4 own = ips_own(direct, piece, &place);
        ips_send_all(direct, &place, P::seal(direct->protocol, own, direct->step));
    }
    ips_clean_all(direct, piece->bytes);
    if (first)
        ips_run_begin(&direct->run);
    for (uint32_t k = 0; k < trips; k++) {
        const struct ips_place place = ips_place_of(direct, k, piece->bytes);
        if (!P::any(place.active))
            break;
        ips_sum_line(direct, piece, &place);
    }
}

/* The part of a piece that the rank at `position` sums. */
IPS_DEVICE struct ips_chunk ips_chunk_of(const struct ips_chunk *piece, uint32_t position,
                                         uint32_t chunk_bytes)
{
    const uint32_t at = position * chunk_bytes;
    const uint32_t begin = at < piece->bytes ? at : piece->bytes;
    const uint32_t left = piece->bytes - begin;
    const struct ips_chunk chunk = {piece->offset + begin,
                                    left < chunk_bytes ? left : chunk_bytes};
    return chunk;
}

/* First step of two-shot: every rank's chunk of the input, to that rank. */
template <class P>
IPS_DEVICE void ips_scatter(struct ips_direct<P> *direct, const struct ips_chunk *piece,
                            uint32_t chunk_bytes)
{
    const uint32_t n = direct->run.args->nranks, trips = ips_trips_of<P>(chunk_bytes);
    for (uint32_t k = 0; k < trips; k++) {
        if (!P::any(ips_place_of(direct, k, chunk_bytes).active))
            break;
        struct ips_v4 own[IPS_MAX_RANKS]; /* [s]: for the s-th rank after this one */
        IPS_UNROLL
        for (uint32_t s = 1; s < IPS_MAX_RANKS; s++) {
            if (s >= n)
                continue;
            const struct ips_chunk chunk =
                ips_chunk_of(piece, ips_after(direct, s), chunk_bytes);
            const struct ips_place place = ips_place_of(direct, k, chunk.bytes);
            own[s] = ips_own(direct, &chunk, &place);
        }
        IPS_UNROLL
        for (uint32_t s = 1; s < IPS_MAX_RANKS; s++) {
            if (s >= n)
                continue;
            const uint32_t to = ips_after(direct, s);
            const struct ips_chunk chunk = ips_chunk_of(piece, to, chunk_bytes);
            const struct ips_place place = ips_place_of(direct, k, chunk.bytes);
            ips_send_line(direct, to, &place,
                          P::seal(direct->protocol, own[s], direct->step));
        }
    }
    for (uint32_t s = 1; P::cleans_inbox(direct->step) && s < n; s++) {
        const uint32_t to = ips_after(direct, s);
        ips_clean_inbox(direct, to, ips_chunk_of(piece, to, chunk_bytes).bytes);
    }
}

/* Sums the own chunk, and begins the second step: the sum, to every other. */
template <class P>
IPS_DEVICE void ips_gather(struct ips_direct<P> *direct, const struct ips_chunk *chunk)
{
    const uint32_t trips = ips_trips_of<P>(chunk->bytes);
    for (uint32_t k = 0; k < trips; k++) {
        const struct ips_place place = ips_place_of(direct, k, chunk->bytes);
        if (!P::any(place.active))
            break;
        const struct ips_v4 sum = ips_sum_line(direct, chunk, &place);
        direct->step++;
        ips_send_all(direct, &place, P::seal(direct->protocol, sum, direct->step));
        direct->step--;
    }
    direct->step++;
    if (!P::cleans_inbox(direct->step))
        return;
    /* Also a thread without a line must know that all have begun this piece; nobody knows it of
     * a thread that has given up. */
    direct->run.dead = ips_barrier_any(direct->run.dead);
    ips_clean_all(direct, chunk->bytes);
}

/* Ends the second step: the sums of all others. */
template <class P>
IPS_DEVICE void ips_collect(struct ips_direct<P> *direct, const struct ips_chunk *piece,
                            uint32_t chunk_bytes)
{
    const uint32_t n = direct->run.args->nranks, rank = direct->run.args->rank;
    const uint32_t trips = ips_trips_of<P>(chunk_bytes);
    for (uint32_t k = 0; k < trips; k++) {
        const uint32_t line = ips_place_of(direct, k, chunk_bytes).line;
        if (!P::any(line < ips_lines_of<P>(chunk_bytes)))
            break;
        struct ips_v4 v[IPS_MAX_RANKS] = {};
        uint32_t missing = 0;
        IPS_UNROLL
        for (uint32_t p = 0; p < IPS_MAX_RANKS; p++) {
            if (p >= n || p == rank)
                continue;
            const struct ips_chunk chunk = ips_chunk_of(piece, p, chunk_bytes);
            missing |= line < ips_lines_of<P>(chunk.bytes) ? 1u << p : 0;
        }
        ips_receive(direct, line, missing, v);
        IPS_UNROLL
        for (uint32_t p = 0; p < IPS_MAX_RANKS; p++) {
            if (p >= n || p == rank)
                continue;
            const struct ips_chunk chunk = ips_chunk_of(piece, p, chunk_bytes);
            const struct ips_place place = ips_place_of(direct, k, chunk.bytes);
            ips_write(direct, &chunk, &place, v[p]);
        }
    }
}

/* Both steps of two-shot. */
template <class P>
IPS_DEVICE void ips_twoshot(struct ips_direct<P> *direct, const struct ips_chunk *piece,
                            bool first)
{
    const struct ips_allreduce_args *args = direct->run.args;
    const uint32_t chunk_bytes = (uint32_t)ips_round_up(
        (piece->bytes + args->nranks - 1) / args->nranks, P::unit_bytes);
    const struct ips_chunk own = ips_chunk_of(piece, args->rank, chunk_bytes);
    direct->step++;
    ips_scatter(direct, piece, chunk_bytes);
    if (first)
        ips_run_begin(&direct->run);
    ips_gather(direct, &own);
    ips_collect(direct, piece, chunk_bytes);
}

/* Runs this block's channel with the algorithm and protocol P. The loads at the start are on
 * their way together. */
template <class P>
IPS_DEVICE void ips_direct_run(const struct ips_allreduce_args *args, const P *protocol,
                               enum ips_algo algo)
{
    struct ips_direct<P> direct;
    ips_run_open(&direct.run, args, (uint32_t)ips_variant_of(algo, P::id));
    direct.protocol = protocol;
    direct.step = *ips_step_of(args, direct.run.variant);
    direct.run.dead = direct.step == IPS_STEP_DEAD;
    direct.stride = ips_inbox_lines(P::line_bytes, args->nranks);
    direct.part = ips_thread() % P::lanes;
    const uint64_t unit = P::unit_bytes / args->element;
    const uint64_t most = direct.stride * unit * (algo == IPS_TWOSHOT ? args->nranks : 1);
    uint64_t begin, end;
    ips_part_of(args, unit, &begin, &end);
    for (uint64_t at = begin; at < end; at += most) {
        const uint64_t elements = end - at < most ? end - at : most;
        const struct ips_chunk piece = {at * args->element,
                                        (uint32_t)(elements * args->element)};
        if (at != begin)
            direct.run.dead = ips_barrier_any(direct.run.dead); /* the last step was read */
        if (algo == IPS_TWOSHOT)
            ips_twoshot(&direct, &piece, at == begin);
        else
            ips_oneshot(&direct, &piece, at == begin);
    }
    ips_run_close(&direct.run, direct.step);
}

#endif
