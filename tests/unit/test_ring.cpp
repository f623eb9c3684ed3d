/* SPDX-License-Identifier: Apache-2.0 */
/* The ring's plan, without running it: over all ranks and stages every element of a message
 * is reduced once by every rank and copied out once, and what a rank sends in a step is what
 * its successor receives in it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "kernels/wire.h"

#include "kernels/mem.h"

#include "kernels/ll.h"
#include "kernels/ll128.h"
#include "kernels/simple.h"

#include "tests/unit/no_lanes.h"

/* Takes part in ips_ring_run as a protocol of P's geometry that only writes down stages. */
template <class P> struct recorder {
    static const uint32_t id = P::id;
    static const bool joins = P::joins;
    IPS_DEVICE void stage_both(const recorder *self, struct ips_ring *,
                               const struct ips_rest *last, const struct ips_stage *first)
    {
        struct ips_stage received = *first;
        received.offset = last->offset;
        received.bytes = last->bytes;
        received.recv = received.copy = true;
        received.send = false;
        self->stages->push_back(received);
        self->stages->push_back(*first);
    }
    IPS_DEVICE uint32_t slot_data(uint32_t nranks)
    {
        return P::slot_data(nranks);
    }
    static const uint32_t unit_bytes = P::unit_bytes;
    static const uint32_t credit_every = P::credit_every;
    std::vector<struct ips_stage> *stages;

    static void stage(const recorder *self, struct ips_ring *, const struct ips_stage *stage)
    {
        self->stages->push_back(*stage);
    }
};

static int failures;

static void check(bool good, const char *what, unsigned ranks, uint64_t count)
{
    if (good)
        return;
    failures++;
    fprintf(stderr, "not so: %s (%u ranks, %llu elements)\n", what, ranks,
            (unsigned long long)count);
}

template <class P>
static std::vector<struct ips_stage> plan(unsigned ranks, unsigned rank, uint64_t count,
                                          uint32_t element)
{
    static struct ips_control control;
    static struct ips_head head;
    static void *const mailbox = calloc(1, IPS_MAILBOX_BYTES(IPS_MAX_CHANNELS));
    head = {};
    std::vector<struct ips_stage> stages;
    struct ips_allreduce_args args = {};
    args.count = count;
    args.head = &head;
    for (void *&one : args.mailbox)
        one = mailbox;
    args.control = &control;
    args.rank = rank;
    args.nranks = ranks;
    recorder<P> protocol = {&stages};
    args.element = element;
    ips_ring_run(&args, &protocol);
    return stages;
}

template <class P>
static void check_plan(unsigned ranks, unsigned channels, uint64_t count, uint32_t element)
{
    std::vector<unsigned> reduced(count), copied(count);
    blocks = channels;
    for (block = 0; block < blocks; block++) {
        std::vector<std::vector<struct ips_stage>> all;
        for (unsigned rank = 0; rank < ranks; rank++) {
            all.push_back(plan<P>(ranks, rank, count, element));
            for (const struct ips_stage &stage : all[rank]) {
                check(stage.bytes <= P::slot_data(ranks), "a chunk fits its slot", ranks, count);
                check(stage.bytes == 0 || stage.offset % 8 == 0 || element < 8,
                      "chunks begin at whole words", ranks, count);
                for (uint64_t at = stage.offset / element;
                     at < (stage.offset + stage.bytes) / element; at++) {
                    reduced[at] += !stage.recv || stage.reduce;
                    copied[at] += stage.copy;
                }
            }
        }
        for (unsigned rank = 0; rank < ranks; rank++) {
            const std::vector<struct ips_stage> &mine = all[rank];
            const std::vector<struct ips_stage> &next = all[(rank + 1) % ranks];
            check(mine.size() == next.size(), "all ranks take the same stages", ranks, count);
            for (size_t i = 0; i + 1 < mine.size() && i + 1 < next.size(); i++) {
                check(mine[i].send == next[i + 1].recv, "who sends is heard", ranks, count);
                if (!mine[i].send)
                    continue;
                check(mine[i].offset == next[i + 1].offset &&
                          mine[i].bytes == next[i + 1].bytes &&
                          mine[i].send_step == next[i + 1].recv_step,
                      "the chunk sent is the chunk received", ranks, count);
            }
        }
    }
    for (uint64_t at = 0; at < count; at++) {
        check(reduced[at] == ranks, "every rank's element enters the sum once", ranks, count);
        check(copied[at] == ranks, "every rank's output is written once", ranks, count);
    }
}

template <class P> static void check_protocol(void)
{
    static const uint64_t counts[] = {1, 2, 15, 16, 17, 1000, 7680, 7681, 65537};
    for (unsigned ranks = IPS_MIN_RANKS; ranks <= IPS_MAX_RANKS; ranks++)
        for (unsigned channels = 1; channels <= IPS_MAX_CHANNELS; channels += 5)
            for (uint64_t count : counts)
                for (uint32_t element = 1; element <= 8; element *= 2)
                    check_plan<P>(ranks, channels, count, element);
}

int main()
{
    check_protocol<struct ips_ll>();
    check_protocol<struct ips_ll128>();
    check_protocol<struct ips_simple>();
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
