/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into one rank: kills the process at the nth time that the stand-in driver
 * opens a peer's memory (it reads the link of the peer's descriptor), in the middle of
 * the set-up. IPS_KILL_AT=n. */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((visibility("default"))) ssize_t readlink(const char *path, char *buffer,
                                                        size_t size)
{
    static int seen;
    ssize_t (*next)(const char *, char *, size_t) = NULL;
    void *found = dlsym(RTLD_NEXT, "readlink");
    const char *at = getenv("IPS_KILL_AT");
    memcpy(&next, &found, sizeof next);
    if (at && !strncmp(path, "/proc/", 6) && strstr(path, "/fd/") &&
        __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED) == atoi(at))
        raise(SIGKILL);
    return next(path, buffer, size);
}
