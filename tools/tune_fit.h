/* SPDX-License-Identifier: Apache-2.0 */
/* Which constants the model of policy/model.h would have to have on this machine. */
#ifndef IPS_TOOLS_TUNE_FIT_H
#define IPS_TOOLS_TUNE_FIT_H

#include "policy/tuned.h"

/* Adjusts the built-in constants to the engine's measurements over `link` in
 * tuned[count]. Gives the factor by which the model's times are off on average
 * afterwards, or 0 when there is nothing to adjust to. Pure. */
double tune_fit(const struct ips_tuned *const *tuned, unsigned count, enum ips_link link,
                struct ips_link_model *ret);

#endif
