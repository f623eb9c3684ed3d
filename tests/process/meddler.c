/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into ranks to bring about what can't be had otherwise:
 *   IPS_KILL_AT=n     kills the process at the nth time that the stand-in driver opens a
 *                     peer's memory (it reads the link of the peer's descriptor), amid the
 *                     set-up
 *   IPS_SHM_AWAY=DIR  puts what the stand-in NCCL keeps in /dev/shm into DIR, so that a
 *                     full or read-only /dev/shm meets the shim alone
 *   IPS_HIDE=NAME     dlsym does not find NAME for the shim, as in an older driver
 *   IPS_RESERVE=n:ERRNO  the nth reservation of memory in a file fails so; ERRNO 0: the
 *                     process is killed in it
 *   IPS_NO_LOCKS=1    no open-file-description locks, as in some sandboxes
 * Once ips_meddler_clock is "real" or "device", the time of day, or the device's clock, jumps
 * by hours, to and fro, with every look at it. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/process/real_dlsym.h"

#define EXPORT __attribute__((visibility("default")))

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

EXPORT int fcntl64(int fd, int command, ...)
{
    int (*next)(int, int, ...) = NULL;
    void *found = real_dlsym()(RTLD_NEXT, "fcntl64");
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    memcpy(&next, &found, sizeof next);
    if (getenv("IPS_NO_LOCKS") && (command == F_OFD_SETLK || command == F_OFD_GETLK)) {
        errno = EINVAL;
        return -1;
    }
    return next(fd, command, argument);
}

EXPORT int posix_fallocate64(int fd, off_t at, off_t bytes)
{
    static int seen;
    int (*next)(int, off_t, off_t) = NULL;
    void *found = real_dlsym()(RTLD_NEXT, "posix_fallocate64");
    const char *rule = getenv("IPS_RESERVE");
    int nth, error;
    memcpy(&next, &found, sizeof next);
    if (rule && sscanf(rule, "%d:%d", &nth, &error) == 2 &&
        __atomic_add_fetch(&seen, 1, __ATOMIC_RELAXED) == nth) {
        if (!error)
            raise(SIGKILL);
        return error;
    }
    return next(fd, at, bytes);
}

#define JUMP_S (5 * 3600)

static long jump(void)
{
    static unsigned looks;
    return __atomic_fetch_add(&looks, 1, __ATOMIC_RELAXED) % 3 * JUMP_S - JUMP_S;
}

EXPORT const char *ips_meddler_clock;

static int wants(const char *clock)
{
    const char *asked = __atomic_load_n(&ips_meddler_clock, __ATOMIC_RELAXED);
    return asked && !strcmp(asked, clock);
}

/* Only the stand-in driver asks for the device's time. */
static int from_driver(const void *caller)
{
    Dl_info info = {0};
    return dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libcuda");
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *time)
{
    int error = (int)syscall(SYS_clock_gettime, clock, time);
    if (!error && ((clock == CLOCK_REALTIME && wants("real")) ||
                   (clock == CLOCK_MONOTONIC && wants("device") &&
                    from_driver(__builtin_return_address(0)))))
        time->tv_sec += jump();
    return error;
}

EXPORT int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    int error = (int)syscall(SYS_gettimeofday, time, zone);
    if (!error && wants("real"))
        time->tv_sec += jump();
    return error;
}

EXPORT time_t time(time_t *ret_time)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (ret_time)
        *ret_time = now.tv_sec;
    return now.tv_sec;
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
