/* SPDX-License-Identifier: Apache-2.0 */
/* What a soak prints. */
#ifndef IPS_TESTS_SOAK_REPORT_H
#define IPS_TESTS_SOAK_REPORT_H

#include "tests/soak/plan.h"
#include "tests/soak/works.h"

/* Eager calls are numbered from 0 on; a graph's have numbers of their own. */
static inline uint64_t soak_graph_number(uint64_t serial)
{
    return (serial + 1) << 40;
}

void soak_report_wrong(const struct soak_options *options, unsigned rank, uint64_t round,
                       const struct soak_tally *tally);
void soak_report_stuck(const struct soak_options *options, unsigned rank, uint64_t round);

#endif
