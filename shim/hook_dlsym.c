/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which names libipcshim-dlsym.so's dlsym gives to the shim. What it leaves alone
 * is answered as if the library were not there. */
#include "shim/hook_dlsym.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stddef.h>

#include "shim/settings.h"

ips_hook_dlsym *ips_hook_real;

ips_hook_dlsym *ips_hook_resolve(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        void *found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
        if (!found)
            continue;
        __atomic_store_n(&ips_hook_real, (ips_hook_dlsym *)found, __ATOMIC_RELAXED);
        return (ips_hook_dlsym *)found;
    }
    return NULL;
}

static const struct link_map *object_of(const void *address)
{
    Dl_info info;
    struct link_map *map = NULL;
    return address && dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) ? map
                                                                              : NULL;
}

/* Libraries of another dlmopen namespace have an NCCL of their own. */
static int in_base_namespace(void *handle)
{
    Lmid_t space;
    return !dlinfo(handle, RTLD_DI_LMID, &space) && space == LM_ID_BASE;
}

/* The shim's function of that name, if the shim is in the global scope. */
static void *replacement(ips_hook_dlsym *real, const char *name, const void *caller)
{
    const struct link_map *shim = object_of(real(RTLD_DEFAULT, "ipcshimGetInfo"));
    if (!shim || object_of(caller) == shim) /* the shim looks for the real ones */
        return NULL;
    void *handle = dlopen(shim->l_name, RTLD_LAZY | RTLD_NOLOAD);
    void *found = handle ? real(handle, name) : NULL;
    if (handle)
        dlclose(handle); /* a preloaded library stays */
    return object_of(found) == shim ? found : NULL;
}

void *ips_hook_find(void *handle, const char *name, const void *caller)
{
    int saved = errno;
    ips_hook_dlsym *real = __atomic_load_n(&ips_hook_real, __ATOMIC_RELAXED);
    void *found = NULL;
    if (!real)
        real = ips_hook_resolve();
    /* RTLD_DEFAULT finds the shim by itself, RTLD_NEXT must pass it. */
    if (real && handle != RTLD_DEFAULT && handle != RTLD_NEXT &&
        ips_settings_hook_dlsym() && in_base_namespace(handle) && real(handle, name))
        found = replacement(real, name, caller);
    errno = saved;
    return found;
}
