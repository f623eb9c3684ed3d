/* SPDX-License-Identifier: Apache-2.0 */
/* Middle, spread and confidence of timings. */
#include "tools/bench_stats.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* At a fraction of the way from the least to the most of sorted samples. */
static double at_fraction(const double *sorted, unsigned n, double fraction)
{
    double place = fraction * (n - 1);
    unsigned below = (unsigned)place;
    unsigned above = below + 1 < n ? below + 1 : below;
    return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}

struct bench_spread bench_spread_of(double *samples, unsigned n)
{
    if (!n)
        return (struct bench_spread){0};
    qsort(samples, n, sizeof *samples, ascending);
    return (struct bench_spread){.n = n,
                                 .median = at_fraction(samples, n, 0.5),
                                 .least = samples[0],
                                 .most = samples[n - 1],
                                 .quarter = at_fraction(samples, n, 0.25),
                                 .three_quarters = at_fraction(samples, n, 0.75)};
}

/* The greatest k with 2 P(B(n, 1/2) < k) <= 5 %; 0 when there is none. */
static unsigned rank_of_bound(unsigned n)
{
    double term = ldexp(1, -(int)n); /* P(B = k), from k = 0 on */
    double below = 0;
    unsigned k = 0;
    while (k <= n / 2 && 2 * (below + term) <= 0.05) {
        below += term;
        term *= (double)(n - k) / (k + 1);
        k++;
    }
    return k;
}

int bench_median_bounds(double *samples, unsigned n, double *ret_low, double *ret_high)
{
    unsigned k = rank_of_bound(n);
    if (!k)
        return 0;
    qsort(samples, n, sizeof *samples, ascending);
    *ret_low = samples[k - 1];
    *ret_high = samples[n - k];
    return 1;
}
