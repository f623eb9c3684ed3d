/* SPDX-License-Identifier: Apache-2.0 */
/* The model's formulas and constants. A time is
 *
 *     base + blocks + hops * hop + wire bytes / rate
 *
 * where the wire bytes are what each rank sends, and the rate is what the blocks move or what
 * the link carries, whichever is less:
 *
 *     ring      2(n - 1) hops,  2(n - 1)/n * M bytes
 *     one-shot  1 hop,          (n - 1)    * M
 *     two-shot  2 hops,         2(n - 1)/n * M
 *
 * times 2 with LL and 16/15 with LL128. One-shot and two-shot meet again for every piece that
 * fills their inboxes, which are further hops; a ring's pieces overlap. */
#include "policy/model.h"

#include <stddef.h>

/* Bytes of a channel's inbox, for all ranks together: IPS_INBOX_BYTES of wire.h. */
#define INBOX_BYTES (64 << 10)

/* The engine over one kind of link; GB are 10^9 bytes. */
struct link_model {
    double base[IPS_MODES];     /* us: launch, order event and end of a call, for no ranks */
    double per_rank[IPS_MODES]; /* us more for each rank: polls, and on one GPU launches that
                                   wait for each other */
    double hop;                 /* us from a store to its sight, with the threads' barrier */
    double block[IPS_PROTOS];   /* GB/s of wire bytes that a block of 512 threads moves */
    double link;                /* GB/s that a rank sends while it receives as much, */
    double total;               /* and that all send together where they share it; or 0 */
    double spread;              /* part of `link` that is left when it sends to all at once */
};

/* What a hop takes longer than LL's: the guards; two barriers, a fence and the filling of a
 * pipeline (docs/results.md: LL128 at 128 KB, Simple at 2 MB of 2, 4 and 8 ranks). */
static const double hop_more[IPS_PROTOS] = {[IPS_LL128] = 0.3, [IPS_SIMPLE] = 1.5};

/* us more for each block, which may begin later than the others, and for 512 threads' barrier:
 * small, but of two that take as long the one that needs less of the GPU is better. */
#define BLOCK_US 0.03
#define THREADS_US 0.2

static const struct link_model links[IPS_LINKS] = {
    /* docs/results.md, one H200 under MPS: LL of 2, 4 and 8 ranks (hop and base), LL128 and
     * Simple on 8 blocks (block rates). What all send together is what NCCL's ranks do: more
     * was not shown. */
    [IPS_LINK_SAME_GPU] = {{2.5, 1.0}, {1.25, 0.45}, 1.2, {13.0, 9.0, 12.0}, 230, 920, 1},
    /* Hop: 0.65 to 1.3 us are published for one write and its sight over PCIe switches and
     * root ports. Link: a Gen4 x16 slot with stores, 21 GB/s. Spread: writes to peers below
     * several root ports have been seen to fall to 7 to 60 % (Gen5, Broadcom and Microchip
     * switches): what is not known to be spared is taken for the worst. */
    [IPS_LINK_PCIE] = {{4.0, 1.3}, {0.3, 0.2}, 1.3, {12.0, 8.0, 12.0}, 21, 0, 0.12},
    /* docs/results.md, four H200: LL of 2 and 4 ranks; Simple on 8 blocks: 85 GB/s. */
    [IPS_LINK_NVLINK] = {{5.0, 4.5}, {0.2, 0.2}, 1.2, {12.0, 8.0, 10.6}, 150, 0, 1},
    /* One-shot LL through mapped host memory, two H200 with a Gen5 x16 link each: 4.8 us at
     * 1 KB eager, 3.3 replayed, 26 at 256 KB. Stores and loads cross the link both. */
    [IPS_LINK_HOST] = {{3.0, 1.5}, {0.3, 0.3}, 1.6, {8.0, 6.0, 10.0}, 22, 0, 0.8},
};

/* NCCL 2.30.7 as measured, us; between two sizes the time is taken to be linear. */
struct nccl_point {
    uint64_t bytes;
    double us[IPS_MODES];
};
#define POINTS 8
struct nccl_model {
    unsigned ranks;
    int measured; /* else the least that is published, or follows from fewer ranks */
    struct nccl_point point[POINTS];
};
#define KB *1024ull
#define MB *1048576ull

#define RANK_STEPS 3
static const struct nccl_model nccl[IPS_LINKS][RANK_STEPS] = {
    /* One H200, MPS, at most 16 CTAs. */
    [IPS_LINK_SAME_GPU] =
        {{2, 1, {{1 KB, {12.5, 5.5}}, {16 KB, {12.5, 6.4}}, {64 KB, {13.5, 6.6}},
                 {256 KB, {14.8, 7.5}}, {1 MB, {18, 12.8}}, {4 MB, {37, 33}},
                 {16 MB, {88, 84}}, {64 MB, {249, 245}}}},
         {4, 1, {{1 KB, {13, 10.5}}, {16 KB, {14.4, 11.5}}, {64 KB, {14.4, 13}},
                 {256 KB, {15.6, 14.5}}, {1 MB, {28, 25}}, {4 MB, {68, 64}},
                 {16 MB, {172, 168}}, {64 MB, {430, 425}}}},
         {8, 1, {{1 KB, {20, 19}}, {16 KB, {25, 20}}, {64 KB, {26, 22}},
                 {256 KB, {31, 23.7}}, {1 MB, {65, 55}}, {4 MB, {167, 160}},
                 {16 MB, {406, 400}}, {64 MB, {973, 965}}}}},
    /* The least that is published, on boxes with switches: 8.3 us with 2 ranks, 13 with 4, 24
     * with 8. Rates: what a Gen4 link carries. */
    [IPS_LINK_PCIE] =
        {{2, 0, {{1 KB, {8.5, 6.0}}, {16 KB, {9, 7.0}}, {64 KB, {12, 11}},
                 {256 KB, {24, 23}}, {1 MB, {60, 59}}, {4 MB, {200, 198}},
                 {16 MB, {750, 745}}, {64 MB, {2900, 2890}}}},
         {4, 0, {{1 KB, {13, 9}}, {16 KB, {14, 11}}, {64 KB, {20, 18}},
                 {256 KB, {37, 35}}, {1 MB, {80, 78}}, {4 MB, {290, 285}},
                 {16 MB, {1100, 1090}}, {64 MB, {4300, 4280}}}},
         {8, 0, {{1 KB, {21, 18}}, {16 KB, {23, 20}}, {64 KB, {25, 22}},
                 {256 KB, {45, 43}}, {1 MB, {95, 92}}, {4 MB, {340, 330}},
                 {16 MB, {1300, 1280}}, {64 MB, {5000, 4950}}}}},
    /* Four H200. */
    [IPS_LINK_NVLINK] =
        {{2, 1, {{1 KB, {7.4, 5.8}}, {16 KB, {7.4, 6.2}}, {64 KB, {8, 7.2}},
                 {256 KB, {11, 10}}, {1 MB, {19, 18}}, {4 MB, {42, 41}},
                 {16 MB, {95, 94}}, {64 MB, {288, 286}}}},
         {4, 1, {{1 KB, {8.3, 8.0}}, {16 KB, {9.5, 9}}, {64 KB, {11, 10.5}},
                 {256 KB, {14, 13}}, {1 MB, {22, 21}}, {4 MB, {45, 44}},
                 {16 MB, {110, 109}}, {64 MB, {356, 354}}}},
         {8, 0, {{1 KB, {9, 8.5}}, {16 KB, {10, 9.5}}, {64 KB, {11, 10.5}},
                 {256 KB, {14, 13}}, {1 MB, {22, 21}}, {4 MB, {45, 44}},
                 {16 MB, {110, 109}}, {64 MB, {356, 354}}}}},
    /* Two H200, each its own link; more ranks: not less than twice and three times the hops'
     * part, and no less of the rest. */
    [IPS_LINK_HOST] =
        {{2, 1, {{1 KB, {12.3, 9.6}}, {16 KB, {12.3, 10.7}}, {64 KB, {16.4, 15.5}},
                 {256 KB, {38, 34.5}}, {1 MB, {66, 64}}, {4 MB, {176, 172}},
                 {16 MB, {641, 635}}, {64 MB, {2493, 2480}}}},
         {4, 0, {{1 KB, {18, 15}}, {16 KB, {20, 17}}, {64 KB, {28, 25}},
                 {256 KB, {55, 50}}, {1 MB, {95, 92}}, {4 MB, {260, 255}},
                 {16 MB, {950, 940}}, {64 MB, {3700, 3680}}}},
         {8, 0, {{1 KB, {26, 22}}, {16 KB, {28, 25}}, {64 KB, {40, 37}},
                 {256 KB, {70, 65}}, {1 MB, {120, 115}}, {4 MB, {310, 300}},
                 {16 MB, {1100, 1090}}, {64 MB, {4300, 4280}}}}},
};

static double least(double a, double b)
{
    return a < b ? a : b;
}

int ips_candidate_at(unsigned i, struct ips_candidate *ret)
{
    static const unsigned char channels[] = {1, 2, 4, 8, 12, 16};
    static const unsigned few_threads[] = {128, 256};
    for (int variant = 0; variant < IPS_VARIANTS; variant++) {
        const unsigned most = ips_variant_max_threads(variant);
        const unsigned of_threads = most > 256 ? 3 : 2; /* the last one: as many as it takes */
        if (i >= sizeof channels * of_threads) {
            i -= sizeof channels * of_threads;
            continue;
        }
        ret->variant = (enum ips_variant)variant;
        ret->channels = channels[i / of_threads];
        ret->threads = i % of_threads == of_threads - 1 ? most : few_threads[i % of_threads];
        return 1;
    }
    return 0;
}

/* Bytes that a rank sends for one byte of the message. */
static double wire_part(enum ips_variant variant, unsigned ranks)
{
    const int proto = ips_variant_proto(variant);
    const double n = ranks, overhead = proto == IPS_LL      ? 2
                                       : proto == IPS_LL128 ? 16.0 / 15
                                                            : 1;
    if (ips_variant_algo(variant) == IPS_ONESHOT)
        return overhead * (n - 1);
    return overhead * 2 * (n - 1) / n;
}

static unsigned hops_of(enum ips_variant variant, unsigned ranks)
{
    const int algo = ips_variant_algo(variant);
    return algo == IPS_RING ? 2 * (ranks - 1) : algo == IPS_ONESHOT ? 1 : 2;
}

/* Times that the ranks meet beyond the first: once per piece that fills the inboxes. */
static double further_pieces(uint64_t bytes, unsigned ranks,
                             const struct ips_candidate *candidate)
{
    const int algo = ips_variant_algo(candidate->variant);
    if (algo == IPS_RING)
        return 0;
    double piece = (double)INBOX_BYTES / ranks * candidate->channels;
    piece *= ips_variant_proto(candidate->variant) == IPS_LL ? 0.5 : 15.0 / 16;
    if (algo == IPS_TWOSHOT)
        piece *= ranks;
    const double pieces = (double)bytes / piece;
    return pieces > 1 ? pieces - 1 : 0;
}

struct ips_times ips_model_engine(enum ips_link link, unsigned ranks, uint64_t bytes,
                                  const struct ips_candidate *candidate)
{
    const struct link_model *m = &links[link];
    const enum ips_variant variant = candidate->variant;
    const int direct = ips_variant_algo(variant) != IPS_RING;
    const double blocks = m->block[ips_variant_proto(variant)] * candidate->channels *
                          candidate->threads / 512.0;
    const double share = m->total > 0 ? least(m->link, m->total / ranks) : m->link;
    const double carried = share * (direct && ranks > 2 ? m->spread : 1);
    const double rate = 1e3 * least(blocks, carried); /* bytes per us */
    const double hops = hops_of(variant, ranks) + further_pieces(bytes, ranks, candidate) *
                                                      hops_of(variant, ranks);
    const double moved = hops * (m->hop + hop_more[ips_variant_proto(variant)]) +
                         candidate->channels * BLOCK_US +
                         candidate->threads / 512.0 * THREADS_US +
                         wire_part(variant, ranks) * (double)bytes / rate;
    struct ips_times times;
    for (int mode = 0; mode < IPS_MODES; mode++)
        times.us[mode] = m->base[mode] + m->per_rank[mode] * ranks + moved;
    return times;
}

static double nccl_at(const struct nccl_model *m, uint64_t bytes, int mode)
{
    const struct nccl_point *p = m->point;
    if (bytes <= p[0].bytes)
        return p[0].us[mode];
    unsigned i = 1;
    while (i < POINTS - 1 && bytes > p[i].bytes)
        i++;
    const double slope = (p[i].us[mode] - p[i - 1].us[mode]) /
                         (double)(p[i].bytes - p[i - 1].bytes);
    return p[i].us[mode] + slope * ((double)bytes - (double)p[i].bytes);
}

/* The one whose ranks are not more: fewer ranks take NCCL no longer. */
static const struct nccl_model *nccl_of(enum ips_link link, unsigned ranks)
{
    unsigned i = RANK_STEPS - 1;
    while (i && nccl[link][i].ranks > ranks)
        i--;
    return &nccl[link][i];
}

struct ips_times ips_model_nccl(enum ips_link link, unsigned ranks, uint64_t bytes)
{
    struct ips_times times;
    for (int mode = 0; mode < IPS_MODES; mode++)
        times.us[mode] = nccl_at(nccl_of(link, ranks), bytes, mode);
    return times;
}

double ips_model_margin(enum ips_link link, unsigned ranks)
{
    const struct nccl_model *m = nccl_of(link, ranks);
    return m->measured && m->ranks == ranks ? 0.85 : 0.75;
}
