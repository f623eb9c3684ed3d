/* SPDX-License-Identifier: Apache-2.0 */
/* libc's dlsym, for libraries that replace it. */
#ifndef IPS_TESTS_REAL_DLSYM_H
#define IPS_TESTS_REAL_DLSYM_H

#include <dlfcn.h>
#include <string.h>

typedef void *dlsym_function(void *handle, const char *name);

static inline dlsym_function *real_dlsym(void)
{
    static dlsym_function *found;
    if (!found) {
        void *symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!symbol)
            symbol = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        memcpy(&found, &symbol, sizeof found);
    }
    return found;
}

#endif
