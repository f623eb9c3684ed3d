/* SPDX-License-Identifier: Apache-2.0 */
/* Joins what is known of one case of a bench: what the ranks measured and checked, what
 * the settings ask for, and what the shim's own traces say it did. The three must agree. */
#include <string.h>

#include "shim/settings.h"
#include "tools/bench.h"
#include "tools/bench_stats.h"
#include "tools/bench_vs.h"
#include "tools/tool.h"

/* The slowest rank of each sample; the median of the samples, and of the pairs' ratios.
 */
static void join_times(struct bench_page *page, unsigned index, struct bench_row *row)
{
    const struct bench_pace *pace = &bench_result(page, index, 0)->pace;
    double ratio[BENCH_MAX_SAMPLES] = {0}, sorted[BENCH_MAX_SAMPLES];
    for (unsigned s = 0; s < pace->samples; s++) {
        for (unsigned r = 0; r < page->sync.nranks; r++) {
            const struct bench_result *result = bench_result(page, index, r);
            if (result->engine_us[s] > row->engine_us[s])
                row->engine_us[s] = result->engine_us[s];
            if (result->nccl_us[s] > row->nccl_us[s])
                row->nccl_us[s] = result->nccl_us[s];
        }
        ratio[s] = row->nccl_us[s] > 0 ? row->engine_us[s] / row->nccl_us[s] : 0;
    }
    memcpy(sorted, row->engine_us, sizeof sorted);
    row->engine = bench_spread_of(sorted, pace->samples);
    memcpy(sorted, row->nccl_us, sizeof sorted);
    row->nccl = bench_spread_of(sorted, pace->samples);
    row->ratio = bench_spread_of(ratio, pace->samples).median;
    row->bounded =
        bench_median_bounds(ratio, pace->samples, &row->ratio_low, &row->ratio_high);
    row->iters = pace->iters;
}

static void join_checks(struct bench_page *page, unsigned index, struct bench_row *row)
{
    const struct bench_result *zero = bench_result(page, index, 0);
    for (unsigned r = 0; r < page->sync.nranks; r++) {
        const struct bench_result *result = bench_result(page, index, r);
        row->wrong += result->wrong;
        for (unsigned check = 0; check < BENCH_CHECKS; check++)
            row->differ |= result->hash[check] != zero->hash[check];
    }
}

static void explain_wrong(struct bench_page *page, unsigned index)
{
    for (unsigned r = 0; r < page->sync.nranks; r++) {
        const struct bench_result *result = bench_result(page, index, r);
        const struct ips_mismatch *first = &result->first;
        if (result->wrong)
            tool_fail("rank %u: %llu wrong; first in check %u, element %llu: got %.17g "
                      "(0x%llx), expected %.17g within %.3g",
                      r, (unsigned long long)result->wrong, result->wrong_check,
                      (unsigned long long)first->index, first->got,
                      (unsigned long long)first->got_bits, first->wanted, first->bound);
    }
}

static int took_same(const struct bench_took *a, const struct bench_took *b)
{
    return a->route == b->route && a->variant == b->variant && a->channels == b->channels &&
           !strcmp(a->reason, b->reason);
}

/* Whether one rank's trace has all calls of the case, and says what rank 0's says. */
static int trace_agrees(const struct bench_trace *trace, unsigned index,
                        const struct bench_took *zero)
{
    const struct bench_took *took = &trace->took[index];
    unsigned calls = bench_calls(trace->page, index, trace->rank);
    if (trace->dropped) {
        tool_fail("rank %u had to drop %llu events of its trace: ask for fewer --iters",
                  trace->rank, (unsigned long long)trace->dropped);
        return 0;
    }
    if (took->calls == calls && !took->disagree && took_same(took, zero))
        return 1;
    tool_fail(
        "rank %u: of %u calls its trace has %llu, %llu of them of another kind%s: %s",
        trace->rank, calls, (unsigned long long)took->calls,
        (unsigned long long)took->disagree,
        took_same(took, zero) ? "" : ", on another route than rank 0's", trace->path);
    return 0;
}

/* What was asked for with a variable comes true, if the engine has the communicator. What
 * the plan chooses where nothing was asked for only the ranks know. */
static int settings_agree(const struct bench_took *took, int served,
                          const struct bench_case *c)
{
    const struct ips_policy_settings *s = &ips_settings()->policy;
    const int engine = took->route == IPS_ROUTE_ENGINE;
    const int algo = engine ? ips_variant_algo(took->variant) : -1;
    const int proto = engine ? ips_variant_proto(took->variant) : -1;
    const int asked = s->max_bytes != IPS_MAX_BYTES_AUTO;
    const int within = c->count * ips_type_bytes(c->type) <= s->max_bytes;
    const char *flaw = NULL;
    if (engine && !within)
        flaw = "larger than IPCSHIM_MAX_BYTES, and on the engine";
    else if (!engine && served && asked && within)
        flaw = "within IPCSHIM_MAX_BYTES, and on NCCL";
    else if (engine && s->algo >= 0 && algo != s->algo)
        flaw = "not by IPCSHIM_ALGO";
    else if (engine && s->proto >= 0 && proto != s->proto && algo == IPS_RING)
        flaw = "not by IPCSHIM_PROTO";
    else if (engine && took->channels > s->max_channels)
        flaw = "on more than IPCSHIM_MAX_CHANNELS channels";
    if (flaw)
        tool_fail("the trace has a call that was made %s", flaw);
    return !flaw;
}

int bench_join_row(struct bench_page *page, unsigned index, struct bench_trace *traces,
                   struct bench_report *report)
{
    const struct bench_case *c = &page->cases[index];
    unsigned nranks = page->sync.nranks;
    struct bench_row row = {.c = c,
                            .ranks = nranks,
                            .took = traces[0].took[index],
                            .page = page,
                            .transport = traces[0].transport};
    int fine = 1;
    join_times(page, index, &row);
    join_checks(page, index, &row);
    if (report->vs_nccl)
        bench_vs_row(report, &row);
    else
        bench_report_row(report, &row);
    explain_wrong(page, index);
    for (unsigned r = 0; r < nranks; r++)
        fine &= trace_agrees(&traces[r], index, &row.took);
    fine = fine && settings_agree(&row.took, traces[0].served > 0, c);
    return fine && !row.wrong && !row.differ;
}
