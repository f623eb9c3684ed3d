/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a communicator as the engine's set-up asks for it: rank 0 makes it from its
 * settings and from what was measured on this machine, every rank judges it. */
#ifndef IPS_SHIM_PLAN_H
#define IPS_SHIM_PLAN_H

#include "core/engine.h"
#include "policy/policy.h"

/* For ips_bringup_config.planner. The settings live as long as the process. */
struct ips_planner ips_plan_planner(const struct ips_policy_settings *settings);

/* Takes the plan that the ranks agreed on. Whether it has a use for the engine. */
int ips_plan_take(const struct ips_agreed *agreed, struct ips_policy_plan *ret);

#endif
