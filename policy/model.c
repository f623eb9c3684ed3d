/* SPDX-License-Identifier: Apache-2.0 */
/* The model's formulas and constants. A time is
 *
 *     base + blocks + hops * hop + wire bytes / rate
 *
 * where the wire bytes are what each rank sends, and the rate is what the blocks move or
 * what the link carries, whichever is less:
 *
 *     ring      2(n - 1) hops,  2(n - 1)/n * M bytes
 *     one-shot  1 hop,          (n - 1)    * M
 *     two-shot  2 hops,         2(n - 1)/n * M
 *     k groups  2(g - 1) + 2(k - 1) hops, 2(g - 1)/g * M within each group of g, and
 *               then 2(k - 1)/k * M/g between them
 *
 * times 2 with LL and 16/15 with LL128. Where a group's ranks share an uplink, what
 * leaves the group takes no less than that needs: of the ring, one rank's bytes; of the
 * others, those of all g ranks, at one-shot and two-shot (n - g)/(n - 1) of them.
 * One-shot and two-shot meet again for every piece that fills their inboxes, which are
 * further hops; a ring's pieces overlap. */
#include "policy/model.h"

#include <stddef.h>

/* Bytes of a channel's inbox, for all ranks together: IPS_INBOX_BYTES of wire.h. */
#define INBOX_BYTES (64 << 10)

/* us more for each block, which may begin later than the others, and for 512 threads'
 * barrier: small, but of two that take as long the one that needs less of the GPU is
 * better. */
#define BLOCK_US 0.03
#define THREADS_US 0.2

/* clang-format off */
static const struct ips_link_model links[IPS_LINKS] = {
    /* One H200 under MPS, 2, 4 and 8 ranks (docs/performance.md): base and hop as `ipcshim
     * tune` fitted them; a block: LL and LL128 up to 256 KB of 2 ranks, Simple on 8; the
     * rest from 64 MB on 16 blocks. */
    [IPS_LINK_SAME_GPU] =
        {{0.5, 1.1}, {1.5, 0.27}, {1.4, 1.7, 2.9}, {9.0, 4.5, 18.0}, 293, 1300, 1},
    /* Hop: 0.65 to 1.3 us are published for one write and its sight over PCIe switches
     * and root ports. Link: a Gen4 x16 slot with stores, 21 GB/s. Spread: writes to peers
     * below several root ports have been seen to fall to 7 to 60 % (Gen5, Broadcom and
     * Microchip switches): what is not known to be spared is taken for the worst. */
    [IPS_LINK_PCIE] =
        {{4.0, 1.3}, {0.3, 0.2}, {1.3, 1.6, 4.0}, {9.0, 4.5, 12.0}, 21, 0, 0.12},
    /* Two H200 (docs/performance.md): as on one, Simple on 16 blocks. */
    [IPS_LINK_NVLINK] =
        {{1.9, 1.7}, {1.1, 0.3}, {1.4, 1.7, 2.9}, {9.0, 4.5, 15.3}, 245, 0, 1},
    /* Two H200, each with a Gen5 x16 link (docs/performance.md): base and LL's hop as
     * `ipcshim tune` fitted them; a block: LL and LL128 from 16 to 128 KB, Simple at 256 KB,
     * each on 4 blocks, as Simple's hop; the link from 64 MB. Stores and loads cross it both. */
    [IPS_LINK_HOST] =
        {{2.8, 1.5}, {0.7, 0.32}, {1.6, 1.9, 6.1}, {3.5, 2.5, 12.3}, 31, 0, 0.8},
};
/* clang-format on */

/* NCCL 2.30.7, us by size; between two sizes the time is taken to be linear. A size that
 * was not measured itself lies between its neighbours, on the low side. */
#define POINTS 8
static const uint64_t nccl_bytes[POINTS] = {1 << 10, 16 << 10, 64 << 10, 256 << 10,
                                            1 << 20, 4 << 20,  16 << 20, 64 << 20};
struct nccl_model {
    unsigned ranks;
    int measured; /* else an estimate that is meant to be too low: see the margins */
    double us[IPS_MODES][POINTS];
};

/* clang-format off */
#define RANK_STEPS 3
static const struct nccl_model nccl[IPS_LINKS][RANK_STEPS] = {
    /* One H200, MPS, at most 16 CTAs: the least of several runs (docs/performance.md). */
    [IPS_LINK_SAME_GPU] =
        {
            {2, 1, {{6.5, 6.9, 9.2, 9.8, 13.6, 35, 86, 246},
                    {5.2, 6.3, 6.5, 7.4, 12.7, 33.8, 86, 245}}},
            {4, 1, {{11.5, 12.6, 13.3, 13.6, 22.8, 62, 173, 428},
                    {9.7, 11.8, 11.8, 12.4, 21.7, 61, 165, 420}}},
            {8, 1, {{19.2, 23.7, 26, 27, 60.7, 163, 394, 960},
                    {18.9, 19.4, 21.5, 22, 53.7, 157, 386, 951}}},
        },
    /* Estimated from the least that is published, on boxes with switches: 8.3 us with 2
     * ranks, 13 with 4, 24 with 8 for small messages; rates: what a Gen4 link carries. */
    [IPS_LINK_PCIE] =
        {
            {2, 0, {{8.5, 9, 12, 24, 60, 200, 750, 2900},
                    {6, 7, 11, 23, 59, 198, 745, 2890}}},
            {4, 0, {{13, 14, 20, 37, 80, 290, 1100, 4300},
                    {9, 11, 18, 35, 78, 285, 1090, 4280}}},
            {8, 0, {{21, 23, 25, 45, 95, 340, 1300, 5000},
                    {18, 20, 22, 43, 92, 330, 1280, 4950}}},
        },
    /* Two and four H200 (2026-11-29); eight: estimated to take no less than four. */
    [IPS_LINK_NVLINK] =
        {
            {2, 1, {{7.4, 7.4, 8, 11, 19, 42, 95, 288},
                    {5.8, 6.2, 7.2, 10, 18, 41, 94, 286}}},
            {4, 1, {{8.3, 9.5, 11, 14, 22, 45, 110, 356},
                    {8, 9, 10.5, 13, 21, 44, 109, 354}}},
            {8, 0, {{9, 10, 11, 14, 22, 45, 110, 356},
                    {8.5, 9.5, 10.5, 13, 21, 44, 109, 354}}},
        },
    /* NCCL's SHM transport, two H200 with a Gen5 x16 link each; 4 and 8 ranks: estimated,
     * one and a half times and twice as long for small messages, 2 (n - 1) / n as many bytes
     * for large ones. */
    [IPS_LINK_HOST] =
        {
            {2, 1, {{10.1, 11.5, 16.2, 35.6, 64, 173, 636, 2485},
                    {9.6, 10.7, 15.3, 34.4, 62.7, 172, 635, 2462}}},
            {4, 0, {{18, 20, 28, 55, 95, 260, 950, 3700},
                    {15, 17, 25, 50, 92, 255, 940, 3680}}},
            {8, 0, {{26, 28, 40, 70, 120, 310, 1100, 4300},
                    {22, 25, 37, 65, 115, 300, 1090, 4280}}},
        },
};
/* clang-format on */

int ips_candidate_at(unsigned i, struct ips_candidate *ret)
{
    static const unsigned char channels[] = {1, 2, 4, 8, 12, 16};
    static const unsigned few_threads[] = {128, 256};
    for (int variant = 0; variant < IPS_VARIANTS; variant++) {
        const unsigned most = ips_variant_max_threads(variant);
        const unsigned of_threads =
            most > 256 ? 3 : 2; /* the last one: as many as it takes */
        if (i >= sizeof channels * of_threads) {
            i -= sizeof channels * of_threads;
            continue;
        }
        ret->variant = (enum ips_variant)variant;
        ret->channels = channels[i / of_threads];
        ret->threads =
            i % of_threads == of_threads - 1 ? most : few_threads[i % of_threads];
        return 1;
    }
    return 0;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

/* Bytes on the wire for one byte of data. */
static double overhead(enum ips_variant variant)
{
    const int proto = ips_variant_proto((int)variant);
    return proto == IPS_LL ? 2 : proto == IPS_LL128 ? 16.0 / 15 : 1;
}

/* Bytes that each of n ranks sends for one byte of the message, in a ring or two-shot. */
static double ring_part(double n)
{
    return 2 * (n - 1) / n;
}

static unsigned hops_of(enum ips_variant variant, const struct ips_policy_place *place)
{
    const unsigned n = place->ranks, g = place->group ? place->group : n;
    switch (ips_variant_algo((int)variant)) {
    case IPS_RING:
        return 2 * (n - 1);
    case IPS_HIERARCHICAL:
        return 2 * (g - 1) + 2 * (n / g - 1);
    case IPS_ONESHOT:
        return 1;
    default:
        return 2;
    }
}

/* Times that the ranks meet beyond the first: once per piece that fills the inboxes. */
static double further_pieces(uint64_t bytes, unsigned ranks,
                             const struct ips_candidate *candidate)
{
    const int algo = ips_variant_algo((int)candidate->variant);
    if (ips_is_ring((int)candidate->variant))
        return 0;
    double piece = (double)INBOX_BYTES / ranks * candidate->channels;
    piece *= ips_variant_proto(candidate->variant) == IPS_LL ? 0.5 : 15.0 / 16;
    if (algo == IPS_TWOSHOT)
        piece *= ranks;
    const double pieces = (double)bytes / piece;
    return pieces > 1 ? pieces - 1 : 0;
}

/* us that the wire takes for one byte of the message when a rank sends `rate` bytes per
 * us over its own link and `up` over the uplink, if no other uses that. */
static double wire_time(enum ips_variant variant, const struct ips_policy_place *place,
                        double rate, double up)
{
    const double n = place->ranks, g = place->group ? place->group : n;
    const double sent =
        ips_variant_algo((int)variant) == IPS_ONESHOT ? n - 1 : ring_part(n);
    switch (ips_variant_algo((int)variant)) {
    case IPS_RING:
        return sent / (g < n ? least(rate, up) : rate);
    case IPS_HIERARCHICAL:
        return ring_part(g) / rate + ring_part(n / g) / g / least(rate, up / g);
    default:
        return most(sent / rate, g < n ? sent * (n - g) / (n - 1) * g / up : 0);
    }
}

struct ips_times ips_model_times(const struct ips_link_model *m,
                                 const struct ips_policy_place *place, uint64_t bytes,
                                 const struct ips_candidate *candidate)
{
    const enum ips_variant variant = candidate->variant;
    const unsigned ranks = place->ranks;
    const double blocks = m->block[ips_variant_proto((int)variant)] *
                          candidate->channels * candidate->threads / 512.0;
    const double share = m->total > 0 ? least(m->link, m->total / ranks) : m->link;
    const int spreads = !ips_is_ring((int)variant) && ranks > 2;
    const double carried = share * (spreads ? m->spread : 1);
    const double rate = 1e3 * least(blocks, carried); /* bytes per us */
    const double up = 1e3 * share * (place->uplink > 0 ? place->uplink : 1);
    const double hops =
        hops_of(variant, place) * (1 + further_pieces(bytes, ranks, candidate));
    const double moved =
        hops * m->hop[ips_variant_proto((int)variant)] + candidate->channels * BLOCK_US +
        candidate->threads / 512.0 * THREADS_US +
        overhead(variant) * (double)bytes * wire_time(variant, place, rate, up);
    struct ips_times times;
    for (int mode = 0; mode < IPS_MODES; mode++)
        times.us[mode] = m->base[mode] + m->per_rank[mode] * ranks + moved;
    return times;
}

const struct ips_link_model *ips_model_link(enum ips_link link)
{
    return &links[link];
}

struct ips_times ips_model_engine(const struct ips_policy_place *place, uint64_t bytes,
                                  const struct ips_candidate *candidate)
{
    return ips_model_times(&links[place->link], place, bytes, candidate);
}

static double nccl_at(const double *us, uint64_t bytes)
{
    unsigned i = 1;
    if (bytes <= nccl_bytes[0])
        return us[0];
    while (i < POINTS - 1 && bytes > nccl_bytes[i])
        i++;
    const double slope =
        (us[i] - us[i - 1]) / (double)(nccl_bytes[i] - nccl_bytes[i - 1]);
    return us[i] + slope * ((double)bytes - (double)nccl_bytes[i]);
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
        times.us[mode] = nccl_at(nccl_of(link, ranks)->us[mode], bytes);
    return times;
}

double ips_model_margin(enum ips_link link, unsigned ranks)
{
    const struct nccl_model *m = nccl_of(link, ranks);
    return m->measured && m->ranks == ranks ? 0.85 : 0.75;
}
