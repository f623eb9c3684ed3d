/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into ranks to bring about what can't be had otherwise:
 *   IPS_KILL_AT=n     kills the process at the nth time that the stand-in driver opens a
 * peer's memory (it reads the link of the peer's descriptor), amid the set-up
 *   IPS_SHM_AWAY=DIR  puts what the stand-in NCCL keeps in /dev/shm into DIR, so that a
 * full or read-only /dev/shm meets the shim alone IPS_HIDE=NAME     dlsym does not find
 * NAME for the shim, as in an older driver */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef void *dlsym_function(void *handle, const char *name);

/* dlsym itself is replaced below. */
static dlsym_function *real_dlsym(void)
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

EXPORT void *dlsym(void *handle, const char *name)
{
    const char *hidden = getenv("IPS_HIDE");
    Dl_info caller = {0};
    if (hidden && !strcmp(hidden, name) && dladdr(__builtin_return_address(0), &caller) &&
        caller.dli_fname && strstr(caller.dli_fname, "libipcshim"))
        return NULL;
    return real_dlsym()(handle, name);
}

EXPORT ssize_t readlink(const char *path, char *buffer, size_t size)
{
    static int seen;
    ssize_t (*next)(const char *, char *, size_t) = NULL;
    void *found = real_dlsym()(RTLD_NEXT, "readlink");
    const char *at = getenv("IPS_KILL_AT");
    memcpy(&next, &found, sizeof next);
    if (at && !strncmp(path, "/proc/", 6) && strstr(path, "/fd/") &&
        __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED) == atoi(at))
        raise(SIGKILL);
    return next(path, buffer, size);
}

static const char *away(const char *name, char *path, size_t room)
{
    const char *directory = getenv("IPS_SHM_AWAY");
    snprintf(path, room, "%s%s", directory ? directory : "/dev/shm", name);
    return path;
}

EXPORT int shm_open(const char *name, int flags, mode_t mode)
{
    char path[256];
    return open(away(name, path, sizeof path), flags, mode);
}

EXPORT int shm_unlink(const char *name)
{
    char path[256];
    return unlink(away(name, path, sizeof path));
}
