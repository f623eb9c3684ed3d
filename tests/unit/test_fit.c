/* SPDX-License-Identifier: Apache-2.0 */
/* Constants are found again from times that a model with others has made. */
#include "tools/tune_fit.h"

#include <string.h>

#include "tests/unit/check.h"

static struct ips_tuned table[3];
static const struct ips_tuned *const tables[] = {&table[0], &table[1], &table[2]};

/* What a machine with these constants would be measured to take; every so many
 * candidates. */
static void measure(struct ips_tuned *tuned, unsigned ranks,
                    const struct ips_link_model *truth)
{
    const struct ips_policy_place place = {.ranks = ranks, .link = IPS_LINK_PCIE};
    struct ips_candidate candidate;
    *tuned = (struct ips_tuned){.ranks = ranks, .link = IPS_LINK_PCIE};
    for (uint64_t bytes = 1024; bytes <= 64u << 20; bytes *= 8) {
        tuned->row[tuned->count++] = (struct ips_tuned_row){
            .bytes = bytes, .nccl = 1, .times = {{1e6, 1e6}}}; /* is left out */
        for (unsigned i = 0; ips_candidate_at(i, &candidate); i += 5)
            tuned->row[tuned->count++] = (struct ips_tuned_row){
                .bytes = bytes,
                .candidate = candidate,
                .times = ips_model_times(truth, &place, bytes, &candidate)};
    }
}

static int near(double a, double b)
{
    return a < 1.15 * b && b < 1.15 * a;
}

int main(void)
{
    struct ips_link_model truth = *ips_model_link(IPS_LINK_PCIE), found;
    CHECK(tune_fit(tables, 0, IPS_LINK_PCIE, &found) == 0);
    CHECK(!memcmp(&found, &truth, sizeof truth), "nothing to adjust to");
    truth.base[IPS_MODE_EAGER] *= 1.8;
    truth.base[IPS_MODE_GRAPH] *= 0.6;
    for (int proto = 0; proto < IPS_PROTOS; proto++)
        truth.hop[proto] *= 0.5;
    truth.block[IPS_LL] *= 2;
    truth.block[IPS_SIMPLE] *= 0.7;
    truth.link *= 2.1;
    truth.spread *= 4;
    for (unsigned i = 0; i < 3; i++)
        measure(&table[i], 2u << i, &truth);
    const double off = tune_fit(tables, 3, IPS_LINK_PCIE, &found);
    CHECK(off >= 1 && off < 1.05, "%g", off);
    CHECK(near(found.hop[0], truth.hop[0]), "%g", found.hop[0]);
    CHECK(near(found.link, truth.link), "%g", found.link);
    CHECK(near(found.spread, truth.spread), "%g", found.spread);
    CHECK(near(found.block[IPS_LL], truth.block[IPS_LL]), "%g", found.block[IPS_LL]);
    CHECK(near(found.block[IPS_SIMPLE], truth.block[IPS_SIMPLE]));
    for (int mode = 0; mode < IPS_MODES; mode++)
        CHECK(near(found.base[mode] + 4 * found.per_rank[mode],
                   truth.base[mode] + 4 * truth.per_rank[mode]));
    CHECK(tune_fit(tables, 3, IPS_LINK_HOST, &found) == 0, "of another link");
    return check_result();
}
