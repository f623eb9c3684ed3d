/* SPDX-License-Identifier: Apache-2.0 */
/* A row of `ipcshim bench --vs-nccl`, from timings that are given: slowest rank, pairs,
 * medians, bounds, bandwidth and percent of the limit, and nothing of that when the times
 * are simulated. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/check.h"
#include "tools/bench_vs.h"
#include "tools/tool.h"

#define COUNT (1 << 20) /* float32: 4 MB */

static char *text;
static size_t text_bytes;

/* The command's, which is not linked here. */
int tool_fail(const char *format, ...)
{
    (void)format;
    return TOOL_USAGE;
}

static struct bench_page *make_page(unsigned ranks, int simulated)
{
    struct bench_page *page = calloc(1, bench_page_bytes(1, ranks));
    page->sync.nranks = ranks;
    page->ncases = 1;
    page->options.simulated = (uint32_t)simulated;
    page->cases[0] = (struct bench_case){COUNT, IPS_FLOAT32, IPS_SUM, 0};
    page->cuda_version = 13000;
    page->nccl_version = 23007;
    strcpy(page->gpus[0], "a \"GPU\"");
    strcpy(page->gpus[1], "another");
    for (unsigned r = 0; r < ranks; r++) {
        page->places[r].hop = BENCH_HOP_SAME_GPU;
        page->places[r].copy_gb_s = 1000 + r;
    }
    return page;
}

/* Of 6 pairs; rank 1 is the slower one of the engine, rank 0 of NCCL. Ratios: 0.5, 2, 1,
 * 1.5, 0.25, 3. */
static void give_times(struct bench_page *page)
{
    static const double engine[] = {100, 400, 150, 300, 50, 900};
    static const double nccl[] = {200, 200, 150, 200, 200, 300};
    for (unsigned r = 0; r < page->sync.nranks; r++) {
        struct bench_result *result = bench_result(page, 0, r);
        result->pace = (struct bench_pace){7, 6};
        result->calls = 3;
        for (unsigned s = 0; s < 6; s++) {
            result->engine_us[s] = engine[s] - (r == 1 ? 0 : 10);
            result->nccl_us[s] = nccl[s] - (r == 0 ? 0 : 10);
        }
    }
}

static void write_row(struct bench_page *page)
{
    struct bench_took took = {.calls = 3, .route = IPS_ROUTE_NCCL, .variant = -1};
    struct bench_trace traces[IPS_MAX_RANKS] = {0};
    struct bench_report report = {
        .vs_nccl = 1, .simulated = (int)page->options.simulated, .transport = "ipc"};
    for (unsigned r = 0; r < page->sync.nranks; r++)
        traces[r] = (struct bench_trace){.page = page, .rank = r, .took = &took};
    free(text);
    report.json = open_memstream(&text, &text_bytes);
    CHECK(bench_join_row(page, 0, traces, &report), "the row is fine");
    bench_report_end(&report);
    fclose(report.json);
}

static void expect(const char *words)
{
    CHECK(strstr(text, words), "%s is missing in %s", words, text);
}

static void test_row(void)
{
    struct bench_page *page = make_page(2, 0);
    give_times(page);
    write_row(page);
    expect("\"us\": {\"median\": 225.000, \"quartiles\": [112.500, 375.000], "
           "\"min\": 50.000, \"max\": 900.000, \"samples\": [100.000, 400.000, ");
    expect("\"nccl_us\": {\"median\": 200.000, ");
    /* The median of the ratios, 1.25; that of the times would give 1.125. With 6 pairs
     * the bound is from the least to the greatest. */
    expect("\"ratio\": 1.2500, \"ratio_bound\": [0.2500, 3.0000], ");
    expect("\"algbw_gb_s\": 18.6414, \"nccl_algbw_gb_s\": 20.9715, ");
    /* Both send the 4 MB once, through one memory: 8 MB in 225 us are 37.28 GB/s. */
    expect("\"limit_gb_s\": 1000.0000, \"limit_percent\": 3.7283, ");
    expect(
        "\"transport\": null, \"ranks\": 2, \"mode\": \"eager\", \"bytes\": 4194304, ");
    expect("\"iters\": 7");
    expect("\"nccl\": \"2.30.7\"");
    expect("\"cuda\": \"13.0\"");
    expect("\"gpus\": [\"a \\\"GPU\\\"\", \"another\"]");
    CHECK(!strstr(text, "simulated, not performance"), "%s", text);
    free(page);
}

static void test_few_pairs(void)
{
    struct bench_page *page = make_page(2, 0);
    give_times(page);
    bench_result(page, 0, 0)->pace.samples = bench_result(page, 0, 1)->pace.samples = 5;
    write_row(page);
    expect("\"ratio\": 1.0000, \"ratio_bound\": null, ");
    free(page);
}

static void test_simulated(void)
{
    struct bench_page *page = make_page(2, 1);
    give_times(page);
    write_row(page);
    expect("\"simulated\": true,\n\"note\": \"times are simulated, not performance\"");
    expect("\"ratio\": null, \"ratio_bound\": null, \"algbw_gb_s\": null, "
           "\"nccl_algbw_gb_s\": null, \"limit_gb_s\": null, \"limit_percent\": null, "
           "\"nccl_limit_percent\": null, ");
    free(page);
}

static void test_limit(void)
{
    struct bench_page *page = make_page(4, 0);
    struct bench_limit limit = bench_limit_of(page);
    CHECK(limit.gb_s == 1000 && limit.ranks_share == 4, "%u", limit.ranks_share);
    for (unsigned r = 0; r < 4; r++) {
        page->places[r].hop = BENCH_HOP_PEER;
        page->places[r].ordinal = (int)r;
        page->places[r].copy_gb_s = r == 2 ? 25 : 50;
    }
    limit = bench_limit_of(page);
    CHECK(limit.gb_s == 25 && limit.ranks_share == 1, "%g", limit.gb_s);
    /* 2 * 3/4 of 100 MB in 6000 us are 25 GB/s. */
    double percent = bench_limit_percent(&limit, 4, 100000000, 6000);
    CHECK(percent > 99.999 && percent < 100.001, "%g", percent);
    page->places[2].ordinal = 0;
    page->places[3].ordinal = 1;
    CHECK(bench_limit_of(page).ranks_share == 2, "two on each GPU");
    page->places[3].hop = BENCH_HOP_SAME_GPU;
    limit = bench_limit_of(page);
    CHECK(limit.gb_s == 0 && strstr(limit.kind, "several kinds"), "%s", limit.kind);
    CHECK(bench_limit_percent(&limit, 4, 1, 1) == 0, "unknown");
    page->places[3].hop = BENCH_HOP_UNKNOWN;
    CHECK(strstr(bench_limit_of(page).kind, "a copy failed"), "unknown hop");
    free(page);
}

int main(void)
{
    test_row();
    test_few_pairs();
    test_simulated();
    test_limit();
    free(text);
    return check_result();
}
