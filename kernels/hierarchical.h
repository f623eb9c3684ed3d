/* SPDX-License-Identifier: Apache-2.0 */
/* The hierarchical AllReduce: ranks that stand behind one uplink are a group, neighbours by
 * position. Each group reduce-scatters its ring's g parts, one to each of its ranks; those
 * who hold the same part in the k groups AllReduce it among themselves, in a ring of k; each
 * group all-gathers. So an uplink carries 2 (k - 1) / k of the message each way, where in
 * one ring of n ranks it carries 2 (n - 1) / n.
 *
 * A part is k chunks, since the rings between the groups cut it once more. What the group has
 * summed waits in the output, which so holds partial sums for a while. The protocols, slots,
 * steps and credits are the ring's. */
#ifndef IPS_KERNELS_HIERARCHICAL_H
#define IPS_KERNELS_HIERARCHICAL_H

#include "kernels/ring.h"

/* Stages of a piece: g within the group, 2k - 1 between groups, g within again. Of the ring
 * within, the first g are its stages 0 to g - 1 and the others its stages g - 1 to 2g - 2: its
 * middle stage is taken twice, once to receive and once to send. */
struct ips_hierarchy {
    static const int first = IPS_RING_INSIDE;

    IPS_DEVICE int variant(int proto)
    {
        return ips_variant_of(IPS_HIERARCHICAL, proto);
    }

    IPS_DEVICE uint32_t split(const struct ips_allreduce_args *args)
    {
        return args->nranks / args->group;
    }

    IPS_DEVICE uint32_t stages(const struct ips_allreduce_args *args)
    {
        return 2 * args->group + 2 * split(args) - 1;
    }

    IPS_DEVICE uint32_t steps(const struct ips_allreduce_args *args)
    {
        return 2 * args->group + 2 * split(args) - 4;
    }

    /* Other neighbours, whose credits are not known. What the stage before has copied may be
     * read: the block has met to post the credit. */
    IPS_DEVICE void turn(struct ips_ring *ring, int which)
    {
        ips_ring_turn(ring, which);
        ring->credit = 0;
    }

    IPS_DEVICE struct ips_stage within(const struct ips_ring *ring,
                                       const struct ips_piece *piece, uint32_t j,
                                       uint64_t first_step)
    {
        const struct ips_allreduce_args *args = ring->run.args;
        return ips_stage_of(ring, piece, args->group, args->rank % args->group, j, 0,
                            split(args) * piece->chunk, first_step);
    }

    IPS_DEVICE struct ips_stage stage(struct ips_ring *ring, const struct ips_piece *piece,
                                      uint32_t j)
    {
        const struct ips_allreduce_args *args = ring->run.args;
        const uint32_t g = args->group, k = split(args);
        if (j == g)
            turn(ring, IPS_RING_BETWEEN);
        if (j == g + 2 * k - 1)
            turn(ring, IPS_RING_INSIDE);
        struct ips_stage stage;
        if (j < g) {
            stage = within(ring, piece, j, ring->step);
            stage.stays = j == g - 1;
            stage.send = !stage.stays;
            stage.last_reduce = false;
        } else if (j < g + 2 * k - 1) {
            stage = ips_stage_of(ring, piece, k, args->rank / g, j - g,
                                 args->rank % g * k * piece->chunk, piece->chunk,
                                 ring->step + g - 1);
            stage.own_out = true;
        } else {
            const bool turned = j == g + 2 * k - 1;
            stage = within(ring, piece, j - 2 * k, ring->step + 2 * k - 2);
            stage.recv = stage.copy = !turned;
            stage.reduce = stage.last_reduce = false;
            stage.own_out = turned;
        }
        return stage;
    }
};

/* args->group is valid, see ips_groups_valid(). */
template <class P>
IPS_DEVICE void ips_hierarchical_run(const struct ips_allreduce_args *args, const P *protocol)
{
    static_assert(P::credit_every == 1, "every stage that receives ends with a barrier");
    ips_pieces_run<ips_hierarchy>(args, protocol);
}

#endif
