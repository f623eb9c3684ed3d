/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the stand-in NCCL that only note that they were called: weak, so that
 * fake_nccl.c's own come first, and without types, which the ABI does not need here. */
#include <stdint.h>

#include "tests/abi/fake_nccl.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define NOTED(name)                                              \
    __attribute__((visibility("default"), weak)) int name(void); \
    int name(void)                                               \
    {                                                            \
        fake_note(#name);                                        \
        return 0;                                                \
    }

#define TRACED(name, parameters, arguments, count, type, op) NOTED(name)
#define PLAIN(name, parameters, arguments) NOTED(name)
#ifndef FAKE_OLD
#define LATE_OWN(name, parameters, arguments) NOTED(name)
#define LATE_TRACED(name, parameters, arguments, count, type, op) NOTED(name)
#define LATE_PLAIN(name, parameters, arguments) NOTED(name)
#define LATE_VOID(name, parameters, arguments) NOTED(name)
#endif
#include "shim/api.def"
