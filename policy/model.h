/* SPDX-License-Identifier: Apache-2.0 */
/* What an AllReduce is expected to take, on the engine and on NCCL: a latency per launch
 * and hop, and a rate per block and link. Stands in where nothing was measured on the
 * machine itself (see tuned.h), so it errs on NCCL's side. Pure functions. */
#ifndef IPS_POLICY_MODEL_H
#define IPS_POLICY_MODEL_H

#include <stdint.h>

#include "policy/policy.h"

/* How a call is made: launched by the host, or replayed from a graph. */
enum ips_mode { IPS_MODE_EAGER, IPS_MODE_GRAPH, IPS_MODES };

/* What the engine can do with a size. */
struct ips_candidate {
    enum ips_variant variant;
    unsigned channels, threads;
};

/* Every candidate that is worth a look: candidate `i`, or 0 from their number on. */
int ips_candidate_at(unsigned i, struct ips_candidate *ret);

/* The engine over one kind of link; GB are 10^9 bytes. */
struct ips_link_model {
    double base[IPS_MODES]; /* us: launch, order event and end of a call, for no ranks */
    double per_rank[IPS_MODES]; /* us more for each rank: polls, and on one GPU launches
                                   that wait for each other */
    double hop[IPS_PROTOS]; /* us from a store to its sight: LL with the threads' barrier;
                               LL128 with the guards; Simple with two barriers, a fence
                               and the filling of a pipeline */
    double block[IPS_PROTOS]; /* GB/s of wire bytes that a block of 512 threads moves */
    double link;              /* GB/s that a rank sends while it receives as much, */
    double total;             /* and that all send together where they share it; or 0 */
    double spread; /* part of `link` that is left when it sends to all at once */
};
/* The built-in constants. */
const struct ips_link_model *ips_model_link(enum ips_link link);

/* us per AllReduce of `bytes` bytes over 2 to 8 ranks; us[mode]. The slowest rank's. */
struct ips_times {
    double us[IPS_MODES];
};
struct ips_times ips_model_engine(const struct ips_policy_place *place, uint64_t bytes,
                                  const struct ips_candidate *candidate);
/* The same with other constants. */
struct ips_times ips_model_times(const struct ips_link_model *model,
                                 const struct ips_policy_place *place, uint64_t bytes,
                                 const struct ips_candidate *candidate);
struct ips_times ips_model_nccl(enum ips_link link, unsigned ranks, uint64_t bytes);

/* The engine is taken where its expected time is at most this part of NCCL's: the more of
 * the two was measured, the nearer to 1. */
double ips_model_margin(enum ips_link link, unsigned ranks);

#endif
