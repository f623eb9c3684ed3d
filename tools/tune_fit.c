/* SPDX-License-Identifier: Apache-2.0 */
/* Fits the model's constants to measurements: one constant after the other is made a
 * little larger or smaller as long as that helps, in ever smaller steps. What counts is
 * by which factor a time is off, so that short and long times weigh alike. A constant
 * that no measurement depends on keeps its value. */
#include "tools/tune_fit.h"

#include <math.h>

#define MOST_SWEEPS 100
#define BOUND 30.0 /* of a constant, times or part of the built-in one */

struct fit {
    const struct ips_tuned *const *tuned;
    unsigned count;
    enum ips_link link;
};

/* The mean of |log(model / measured)|; negative when there are no measurements. */
static double deviation(const struct fit *fit, const struct ips_link_model *model)
{
    double sum = 0;
    unsigned times = 0;
    for (unsigned t = 0; t < fit->count; t++) {
        const struct ips_tuned *tuned = fit->tuned[t];
        const struct ips_policy_place place = {.ranks = tuned->ranks,
                                               .link = tuned->link};
        for (unsigned i = 0; tuned->link == fit->link && i < tuned->count; i++) {
            const struct ips_tuned_row *row = &tuned->row[i];
            if (row->nccl ||
                ips_variant_algo((int)row->candidate.variant) == IPS_HIERARCHICAL)
                continue; /* the groups are not in the table */
            const struct ips_times at =
                ips_model_times(model, &place, row->bytes, &row->candidate);
            for (int mode = 0; mode < IPS_MODES; mode++)
                sum += fabs(log(at.us[mode] / row->times.us[mode]));
            times += IPS_MODES;
        }
    }
    return times ? sum / times : -1;
}

/* Tries a constant that much larger; whether it helped. */
static int try_step(const struct fit *fit, struct ips_link_model *model, double *constant,
                    double built_in, double factor, double *best)
{
    const double before = *constant, after = before * factor;
    if (after > BOUND * built_in || after < built_in / BOUND)
        return 0;
    *constant = after;
    const double now = deviation(fit, model);
    if (now < *best - 1e-9) {
        *best = now;
        return 1;
    }
    *constant = before;
    return 0;
}

double tune_fit(const struct ips_tuned *const *tuned, unsigned count, enum ips_link link,
                struct ips_link_model *ret)
{
    static const double steps[] = {1.5, 1.2, 1.05, 1.01};
    const struct fit fit = {tuned, count, link};
    const struct ips_link_model built_in = *ips_model_link(link);
    const unsigned constants = sizeof built_in / sizeof(double); /* it has no others */
    *ret = built_in;
    double best = deviation(&fit, ret);
    if (best < 0)
        return 0;
    for (unsigned s = 0; s < sizeof steps / sizeof steps[0]; s++) {
        int helped = 1;
        for (unsigned sweep = 0; sweep < MOST_SWEEPS && helped; sweep++) {
            helped = 0;
            for (unsigned i = 0; i < constants; i++) {
                double *constant = (double *)ret + i;
                const double first = ((const double *)&built_in)[i];
                helped |= try_step(&fit, ret, constant, first, steps[s], &best);
                helped |= try_step(&fit, ret, constant, first, 1 / steps[s], &best);
            }
        }
    }
    return exp(best);
}
