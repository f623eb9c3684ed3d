/* SPDX-License-Identifier: Apache-2.0 */
/* The plain forwarders: one function for each PLAIN line of api.def, with no logic but
 * the depth guard. */
#include "shim/nccl_api.h"
#include "shim/real.h"

#define PLAIN(name, parameters, arguments)                          \
    IPS_EXPORT ncclResult_t name parameters                         \
    {                                                               \
        ncclResult_t result;                                        \
        ncclResult_t(*real) parameters = IPS_REAL(name);            \
        if (!real)                                                  \
            return (ncclResult_t)ips_real_missing(IPS_SLOT_##name); \
        IPS_CALL(result, real arguments);                           \
        return result;                                              \
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
