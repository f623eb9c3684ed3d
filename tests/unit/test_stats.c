/* SPDX-License-Identifier: Apache-2.0 */
/* Medians, quartiles and bounds of known samples, and how often the bound of a ratio
 * holds the true median, for distributions as timings have them: skewed, with outliers,
 * with ties. */
#include <math.h>
#include <stdint.h>

#include "tests/unit/check.h"
#include "tools/bench_pace.h"
#include "tools/bench_stats.h"

#define MOST 31
#define TRIALS 20000

static uint64_t state = 1;

/* Uniform in (0, 1): xorshift64*. */
static double uniform(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return ((double)(state * 0x2545f4914f6cdd1du >> 11) + 0.5) * 0x1p-53;
}

static double lognormal(void)
{
    double u = uniform(), v = uniform();
    return exp(0.2 * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

/* A ratio of two times that are drawn alike has the median 1. */
static double skewed(void)
{
    return lognormal() / lognormal();
}

static double with_outliers(void)
{
    double ours = lognormal() * (uniform() < 0.1 ? 20 : 1);
    double theirs = lognormal() * (uniform() < 0.1 ? 20 : 1);
    return ours / theirs;
}

static double uniform_around_one(void)
{
    return 0.5 + uniform();
}

/* Share of trials whose interval holds the median, 1. */
static double coverage(double (*draw)(void), unsigned n)
{
    unsigned held = 0;
    for (unsigned trial = 0; trial < TRIALS; trial++) {
        double samples[MOST], low, high;
        for (unsigned i = 0; i < n; i++)
            samples[i] = draw();
        held += bench_median_bounds(samples, n, &low, &high) && low <= 1 && 1 <= high;
    }
    return (double)held / TRIALS;
}

/* 2 P(B(n, 1/2) < k) by hand: what the interval from the k-th to the (n+1-k)-th misses.
 */
static const struct {
    unsigned n, k;
    double misses;
} table[] = {{6, 1, 0.03125},    {7, 1, 0.015625},  {9, 2, 0.0390625},
             {15, 4, 0.0351563}, {20, 6, 0.041389}, {25, 8, 0.0432855},
             {31, 10, 0.0294182}};

static void test_ranks(void)
{
    for (unsigned i = 0; i < sizeof table / sizeof table[0]; i++) {
        double samples[MOST], low = 0, high = 0;
        unsigned n = table[i].n, k = table[i].k;
        for (unsigned s = 0; s < n; s++)
            samples[s] = n - s; /* n, ..., 1: they are not sorted yet */
        CHECK(bench_median_bounds(samples, n, &low, &high) == 1, "n %u", n);
        CHECK(low == k && high == n + 1 - k, "n %u: %g to %g", n, low, high);
    }
}

static void test_too_few(void)
{
    double samples[MOST] = {3, 1, 2, 5, 4}, low = -1, high = -1;
    for (unsigned n = 0; n < BENCH_STATS_LEAST; n++)
        CHECK(bench_median_bounds(samples, n, &low, &high) == 0, "n %u", n);
    CHECK(low == -1 && high == -1, "no bound is given");
}

/* As wide as it must be, and no wider: the share is the binomial one, within five
 * standard deviations of TRIALS draws. */
static void test_coverage(void)
{
    double (*const draws[])(void) = {skewed, with_outliers, uniform_around_one};
    for (unsigned d = 0; d < 3; d++)
        for (unsigned i = 0; i < sizeof table / sizeof table[0]; i++) {
            double wanted = 1 - table[i].misses, got = coverage(draws[d], table[i].n);
            double deviation = sqrt(wanted * (1 - wanted) / TRIALS);
            CHECK(fabs(got - wanted) < 5 * deviation, "draw %u, n %u: %.4f for %.4f", d,
                  table[i].n, got, wanted);
            CHECK(wanted >= 0.95, "n %u", table[i].n);
        }
}

static void test_spread(void)
{
    double odd[] = {5, 1, 4, 2, 3}, even[] = {40, 10, 30, 20}, same[] = {7, 7, 7};
    struct bench_spread s = bench_spread_of(odd, 5);
    CHECK(s.n == 5 && s.median == 3 && s.least == 1 && s.most == 5, "%g", s.median);
    CHECK(s.quarter == 2 && s.three_quarters == 4, "%g %g", s.quarter, s.three_quarters);
    s = bench_spread_of(even, 4);
    CHECK(s.median == 25 && s.least == 10 && s.most == 40, "%g", s.median);
    CHECK(s.quarter == 17.5 && s.three_quarters == 32.5, "%g", s.quarter);
    s = bench_spread_of(same, 3);
    CHECK(s.median == 7 && s.quarter == 7 && s.three_quarters == 7, "%g", s.median);
    s = bench_spread_of(odd, 1);
    CHECK(s.median == 1 && s.quarter == 1 && s.most == 1, "%g", s.median);
    s = bench_spread_of(odd, 0);
    CHECK(s.n == 0 && s.median == 0, "%g", s.median);
}

static void expect_pace(double case_us, double call_us, unsigned iters, unsigned samples)
{
    struct bench_pace got = bench_pace_of(case_us, call_us, (struct bench_pace){20, 25});
    CHECK(got.iters == iters && got.samples == samples, "%g us of %g: %u x %u", call_us,
          case_us, got.iters, got.samples);
    CHECK(samples == BENCH_STATS_LEAST || iters == 20 || !case_us ||
              2 * call_us * got.iters * got.samples <= case_us,
          "%g us is too long", call_us);
}

/* Within its time as long as that leaves enough samples for a bound. */
static void test_pace(void)
{
    expect_pace(0, 1e9, 20, 25); /* no limit */
    expect_pace(1e6, 10, 20, 25);
    expect_pace(1e6, 1000, 20, 25);
    expect_pace(1e6, 2000, 10, 25);
    expect_pace(1e6, 20000, 1, 25);
    expect_pace(1e6, 50000, 1, 10);
    expect_pace(1e6, 1e6, 1, BENCH_STATS_LEAST);
    struct bench_pace few = bench_pace_of(1, 1e6, (struct bench_pace){20, 2});
    CHECK(few.iters == 1 && few.samples == 2, "%u x %u", few.iters, few.samples);
}

int main(void)
{
    test_pace();
    test_spread();
    test_ranks();
    test_too_few();
    test_coverage();
    return check_result();
}
