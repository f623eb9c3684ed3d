/* SPDX-License-Identifier: Apache-2.0 */
/* The real NCCL: one per process, found at the first call that needs it. A failure is not
 * remembered: the library may be loaded later. Thread-safe; no lock is ever held. */
#ifndef IPS_SHIM_REAL_H
#define IPS_SHIM_REAL_H

#include "shim/slots.h"

#define IPS_EXPORT __attribute__((visibility("default")))

/* More than 0 while this thread is inside a real NCCL call: NCCL calls its own public
 * functions, and what it calls is forwarded uncounted. */
extern _Thread_local int ips_inside __attribute__((tls_model("initial-exec")));

/* The real functions found so far; read with acquire. */
extern void *ips_real_slots[IPS_SLOTS];

/* Finds the library if need be, and the function in it; NULL when either is missing.
 * caller: an address in the object that made the call. errno is preserved. */
void *ips_real_find(enum ips_slot slot, const void *caller);

/* What to answer for a NULL: logs it once, and gives ncclSystemError (no library) or
 * ncclInvalidUsage (the library lacks the function). */
int ips_real_missing(enum ips_slot slot);

/* Path of the library and how it was found, or NULL as long as there is none. */
const char *ips_real_path(void);
const char *ips_real_how(void);

/* Logs, once, when another NCCL than the one in use is mapped into the process. */
void ips_real_warn_of_second(void);

static inline void *ips_real(enum ips_slot slot, const void *caller)
{
    void *found = __atomic_load_n(&ips_real_slots[slot], __ATOMIC_ACQUIRE);
    return found ? found : ips_real_find(slot, caller);
}

/* The real function of that name, with its type. Only for exported functions themselves:
 * the return address tells who called. */
#define IPS_REAL(name) \
    ((__typeof__(&name))ips_real(IPS_SLOT_##name, __builtin_return_address(0)))

/* Calls the real function with the depth guard up. */
#define IPS_CALL(result, call) \
    do {                       \
        ips_inside++;          \
        result = call;         \
        ips_inside--;          \
    } while (0)

#endif
