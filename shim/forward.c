/* SPDX-License-Identifier: Apache-2.0 */
/* The plain forwarders: one function for each PLAIN line of api.def, with no logic but
 * the depth guard and the group's error. */
#include "shim/group.h"
#include "shim/nccl_api.h"
#include "shim/process.h"

/* The one among them whose failure NCCL counts as the group's. */
static ncclResult_t answer(enum ips_slot slot, ncclResult_t result)
{
    if (slot == IPS_SLOT_ncclCommWindowRegister && !ips_pass())
        return ips_group_answer(result);
    return result;
}

#define PLAIN(name, parameters, arguments)                          \
    IPS_EXPORT ncclResult_t name parameters                         \
    {                                                               \
        ncclResult_t result;                                        \
        ncclResult_t(*real) parameters = IPS_REAL(name);            \
        if (!real)                                                  \
            return (ncclResult_t)ips_real_missing(IPS_SLOT_##name); \
        IPS_CALL(result, real arguments);                           \
        return answer(IPS_SLOT_##name, result);                     \
    }

#define TEXT(name, parameters, arguments, without)      \
    IPS_EXPORT const char *name parameters              \
    {                                                   \
        const char *text;                               \
        const char *(*real)parameters = IPS_REAL(name); \
        if (!real) {                                    \
            ips_real_missing(IPS_SLOT_##name);          \
            return without;                             \
        }                                               \
        IPS_CALL(text, real arguments);                 \
        return text;                                    \
    }

#include "shim/api.def"
