/* SPDX-License-Identifier: Apache-2.0 */
/* The plain forwarders of the youngest functions. Must not see nccl.h: a newer header may
 * spell their types otherwise; the ABI is the same. */
#include <stdint.h>

#include "shim/real.h"

#define LATE_PLAIN(name, parameters, arguments)       \
    int name parameters;                              \
    IPS_EXPORT int name parameters                    \
    {                                                 \
        int result;                                   \
        int(*real) parameters = IPS_REAL(name);       \
        if (!real)                                    \
            return ips_real_missing(IPS_SLOT_##name); \
        IPS_CALL(result, real arguments);             \
        return result;                                \
    }

#define LATE_VOID(name, parameters, arguments)   \
    void name parameters;                        \
    IPS_EXPORT void name parameters              \
    {                                            \
        void(*real) parameters = IPS_REAL(name); \
        if (!real) {                             \
            ips_real_missing(IPS_SLOT_##name);   \
            return;                              \
        }                                        \
        ips_inside++;                            \
        real arguments;                          \
        ips_inside--;                            \
    }

#include "shim/api.def"
