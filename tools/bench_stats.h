/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of a handful of timings: middle, spread, and how sure the middle is. Pure
 * functions; nothing is assumed of how the timings are distributed. */
#ifndef IPS_TOOLS_BENCH_STATS_H
#define IPS_TOOLS_BENCH_STATS_H

#define BENCH_STATS_LEAST \
    6 /* samples for a 95 % interval of the median: 2 * 2^-6 < 5 % */

/* Of n samples; the members are 0 when n is. */
struct bench_spread {
    unsigned n;
    double median, least, most;
    double quarter, three_quarters; /* between neighbours in proportion, as numpy does */
};

/* Sorts the samples. */
struct bench_spread bench_spread_of(double *samples, unsigned n);

/* Confidence interval of the median of what the samples are drawn from: the k-th smallest
 * and k-th largest, with the greatest k for which at least 95 % is kept. Drawn
 * independently, each falls below the true median with probability 1/2, so the interval
 * misses it with probability 2 P(B(n, 1/2) < k), whatever the distribution (the interval
 * of the sign test: Hollander, Wolfe, Chicken, "Nonparametric Statistical Methods", 3.6;
 * Le Boudec, "Performance Evaluation of Computer and Communication Systems", 2.2).
 *
 * Sorts the samples. 0 when there are fewer than BENCH_STATS_LEAST, and none is given. */
int bench_median_bounds(double *samples, unsigned n, double *ret_low, double *ret_high);

#endif
