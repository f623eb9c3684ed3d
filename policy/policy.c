/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan says about a call, and whether bytes are a plan. */
#include "policy/policy.h"

#include <string.h>

const struct ips_policy_settings ips_policy_defaults = {
    .algo = IPS_ALGO_AUTO,
    .proto = IPS_PROTO_AUTO,
    .max_channels = IPS_MAX_CHANNELS,
    .max_bytes = IPS_MAX_BYTES_AUTO,
    .verify = 0,
};

unsigned ips_type_bytes(int type)
{
    return ips_element_bytes(type);
}

const char *ips_plan_why_text(int why)
{
    static const char *const texts[IPS_WHYS] = {
        [IPS_WHY_MODEL] = "faster by the model",
        [IPS_WHY_TUNED] = "measured to be faster here",
        [IPS_WHY_ASKED] = "IPCSHIM_MAX_BYTES",
        [IPS_WHY_ALGO] = "IPCSHIM_ALGO",
        [IPS_WHY_PROTO] = "IPCSHIM_PROTO",
        [IPS_WHY_NOT_MODEL] = "not shown to be faster here; `ipcshim tune` measures, "
                              "IPCSHIM_MAX_BYTES takes it",
        [IPS_WHY_NOT_TUNED] =
            "measured not to be faster here; IPCSHIM_MAX_BYTES takes it",
        [IPS_WHY_MAX_BYTES] = "larger than IPCSHIM_MAX_BYTES",
        [IPS_WHY_FEW_RANKS] = "a single rank",
        [IPS_WHY_MANY_RANKS] = "more than 8 ranks",
    };
    return why >= 0 && why < IPS_WHYS ? texts[why] : NULL;
}

static int row_valid(const struct ips_policy_plan *plan, const struct ips_plan_row *row,
                     unsigned most_channels)
{
    if (row->why >= IPS_WHYS)
        return 0;
    if (row->variant == IPS_PLAN_NCCL)
        return row->channels == 0 && row->threads == 0;
    return row->variant < IPS_VARIANTS && row->channels >= 1 &&
           (plan->group || ips_variant_algo(row->variant) != IPS_HIERARCHICAL) &&
           row->channels <= most_channels && row->threads >= 32 &&
           row->threads % 32 == 0 &&
           row->threads <= ips_variant_max_threads(row->variant);
}

int ips_policy_plan_valid(const void *bytes, size_t count, unsigned ranks,
                          unsigned most_channels)
{
    struct ips_policy_plan plan;
    if (count != sizeof plan)
        return 0;
    memcpy(&plan, bytes, sizeof plan);
    if (plan.magic != IPS_PLAN_MAGIC || plan.ranks != ranks || plan.link >= IPS_LINKS ||
        (plan.group && !ips_groups_valid(plan.group, ranks)) || plan.count < 1 ||
        plan.count > IPS_PLAN_ROWS || plan.row[plan.count - 1].up_to_bytes != UINT64_MAX)
        return 0;
    for (unsigned i = 0; i < plan.count; i++)
        if (!row_valid(&plan, &plan.row[i], most_channels) ||
            (i && plan.row[i].up_to_bytes <= plan.row[i - 1].up_to_bytes))
            return 0;
    return 1;
}

int ips_policy_plan_takes_some(const struct ips_policy_plan *plan)
{
    for (unsigned i = 0; i < plan->count; i++)
        if (plan->row[i].variant != IPS_PLAN_NCCL && plan->row[i].up_to_bytes)
            return 1;
    return 0;
}

static struct ips_decision nccl(const char *reason)
{
    return (struct ips_decision){.route = IPS_ROUTE_NCCL, .reason = reason};
}

/* What the times of a plan were measured with, or is as fast: Simple has a fast way for
 * the sums of these, and takes up to twice as long for all else. */
static int is_common(int type, int op)
{
    return op == IPS_SUM &&
           (type == IPS_FLOAT32 || type == IPS_FLOAT16 || type == IPS_BFLOAT16);
}

struct ips_decision ips_policy_decide(const struct ips_policy_plan *plan, uint64_t count,
                                      int type, int op)
{
    const unsigned size = ips_type_bytes(type);
    if (!size)
        return nccl("type not taken by the engine");
    if (op < 0 || op >= IPS_OPS)
        return nccl("operation not taken by the engine");
    if (count > UINT64_MAX / 2 / size)
        return nccl("count out of range");
    const struct ips_plan_row *row = plan->row;
    while (row->up_to_bytes < count * size)
        row++; /* the last one reaches to the end */
    if (row->variant == IPS_PLAN_NCCL)
        return nccl(ips_plan_why_text(row->why));
    const int by_time = row->why == IPS_WHY_MODEL || row->why == IPS_WHY_TUNED;
    if (by_time && ips_variant_proto(row->variant) == IPS_SIMPLE && !is_common(type, op))
        return nccl("not shown to be faster for this type and operation");
    return (struct ips_decision){.route = IPS_ROUTE_ENGINE,
                                 .variant = (enum ips_variant)row->variant,
                                 .channels = row->channels,
                                 .threads = row->threads,
                                 .reason = ips_plan_why_text(row->why)};
}
