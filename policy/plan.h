/* SPDX-License-Identifier: Apache-2.0 */
/* How a plan is made, for plan.c and for those who show it: the best that the engine can
 * do with one size, and whether that beats NCCL. */
#ifndef IPS_POLICY_PLAN_H
#define IPS_POLICY_PLAN_H

#include "policy/policy.h"
#include "policy/tuned.h"

/* What a plan is made from. */
struct ips_plan_input {
    const struct ips_policy_settings *settings;
    struct ips_policy_place place; /* IPS_MIN_RANKS to IPS_MAX_RANKS ranks */
    const struct ips_tuned *tuned; /* or NULL */
};

struct ips_choice {
    struct ips_candidate best;
    struct ips_times engine, nccl;
    int engine_measured, nccl_measured; /* else the model says so */
    double
        margin[IPS_MODES]; /* the engine wins if its times are at most these parts of */
    int wins;              /* NCCL's, launched and replayed */
};

/* A measured part of NCCL's time that counts as faster: less is noise. NCCL's launch
 * takes the host more or less time from process to process (7 to 11 us were seen), and so
 * do short calls that are launched. */
#define IPS_TUNED_MARGIN 0.97
#define IPS_TUNED_LAUNCHED_MARGIN 0.93
#define IPS_TUNED_LAUNCHED_BYTES (1u << 20) /* from here on the launch is hidden */

/* The place with the groups that the engine is to have there: halves where the
 * hierarchical algorithm is asked for and there are none, and none where they would not
 * be valid. */
struct ips_policy_place ips_plan_place(const struct ips_policy_settings *settings,
                                       const struct ips_policy_place *place);

struct ips_choice ips_plan_choose(const struct ips_plan_input *input, uint64_t bytes);

/* Whether the settings leave the engine this candidate; its channels may be cut to what
 * they allow. */
int ips_plan_permits(const struct ips_plan_input *input, struct ips_candidate *candidate);

/* The i-th size at which a plan may change, or 0 from their number on. */
uint64_t ips_plan_size(const struct ips_plan_input *input, unsigned i);

#endif
