/* SPDX-License-Identifier: Apache-2.0 */
/* How often a case is timed so that it ends within its share of the bench's time. */
#ifndef IPS_TOOLS_BENCH_PACE_H
#define IPS_TOOLS_BENCH_PACE_H

#include <stdint.h>

#include "tools/bench_stats.h"

struct bench_pace {
    uint32_t iters;   /* calls in one sample */
    uint32_t samples; /* of each side */
};

/* At most `most`; fewer calls, and then fewer samples (never too few for a bound), where
 * the two sides would take longer than case_us in all. One call of the slower side takes
 * call_us. case_us 0: `most` it is. Pure, so that all ranks come to the same. */
static inline struct bench_pace bench_pace_of(double case_us, double call_us,
                                              struct bench_pace most)
{
    struct bench_pace pace = most;
    if (case_us <= 0 || call_us <= 0)
        return most;
    double calls = case_us / (2 * call_us); /* that there is time for, of each side */
    if (calls < (double)most.iters * most.samples)
        pace.iters = calls > most.samples ? (uint32_t)(calls / most.samples) : 1;
    if (calls < most.samples) {
        pace.samples = calls > BENCH_STATS_LEAST ? (uint32_t)calls : BENCH_STATS_LEAST;
        if (pace.samples > most.samples)
            pace.samples = most.samples;
    }
    return pace;
}

#endif
