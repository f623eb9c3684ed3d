/* SPDX-License-Identifier: Apache-2.0 */
/* What the shim looks up with dlsym it gets with a counter in front. A counter does not
 * know the parameters of its function: it hands on as many words as the largest call has,
 * in registers and on the stack, as the calling conventions of x86-64 and Arm pass them.
 */
#include "tests/host/meter.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "core/gpu.h"

#define EXPORT __attribute__((visibility("default")))

static _Thread_local struct meter *current;

void meter_attach(struct meter *meter)
{
    current = meter;
}

void meter_start(struct meter *meter)
{
    memset(meter->count, 0, sizeof meter->count);
    meter->inside = 0;
    __atomic_store_n(&meter->armed, 1, __ATOMIC_SEQ_CST);
}

void meter_stop(struct meter *meter)
{
    __atomic_store_n(&meter->armed, 0, __ATOMIC_SEQ_CST);
}

static void count(enum meter_count what)
{
    if (current && current->armed && !current->inside)
        current->count[what]++;
}

/* --- calls of the driver --- */

typedef long words(long, long, long, long, long, long, long, long, long, long, long, long,
                   long, long);
#define DECLARED                                                                    \
    long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, \
        long k, long l, long m, long n
#define HANDED a, b, c, d, e, f, g, h, i, j, k, l, m, n

void meter_enter(enum meter_count what, const char *name)
{
    count(what);
    if (!current)
        return;
    if (what == METER_OTHER && current->armed && !current->inside)
        strncpy(current->other, name, sizeof current->other - 1);
    current->inside++;
}

void meter_leave(void)
{
    if (current)
        current->inside--;
}

static enum meter_count kind_of(const char *name)
{
    static const struct {
        const char *name;
        enum meter_count kind;
    } kinds[] = {
        {"cuCtxGetCurrent", METER_CONTEXT},
        {"cuStreamGetCaptureInfo", METER_QUERY},
        {"cuStreamWaitEvent", METER_WAIT},
        {"cuStreamUpdateCaptureDependencies", METER_WAIT},
        {"cuEventRecord", METER_RECORD},
        {"cuGraphAddEventRecordNode", METER_RECORD},
        {"cuGraphAddDependencies", METER_RECORD},
        {"cuGraphRemoveDependencies", METER_RECORD},
        {"cuLaunchKernel", METER_LAUNCH},
    };
    for (size_t at = 0; at < sizeof kinds / sizeof kinds[0]; at++)
        if (!strcmp(kinds[at].name, name))
            return kinds[at].kind;
    return METER_OTHER;
}

#define X(name, symbol, parameters)         \
    static words *real_##name;              \
    static long counted_##name(DECLARED)    \
    {                                       \
        meter_enter(kind_of(#name), #name); \
        long result = real_##name(HANDED);  \
        meter_leave();                      \
        return result;                      \
    }
IPS_GPU_CALLS(X)
#undef X

static const struct {
    const char *symbol;
    words **real, *counted;
} counters[] = {
#define X(name, symbol, parameters) {symbol, &real_##name, counted_##name},
    IPS_GPU_CALLS(X)
#undef X
};

void *meter_dlsym(void *handle, const char *name)
{
    static void *(*next)(void *handle, const char *name);
    if (!next) {
        void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
        if (!found)
            found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
        if (!found)
            found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.17");
        memcpy(&next, &found, sizeof next);
    }
    return next(handle, name);
}

EXPORT void *dlsym(void *restrict handle, const char *restrict name)
{
    void *found = meter_dlsym(handle, name);
    for (size_t at = 0; found && at < sizeof counters / sizeof counters[0]; at++)
        if (!strcmp(counters[at].symbol, name)) {
            memcpy(counters[at].real, &found, sizeof found);
            memcpy(&found, &counters[at].counted, sizeof found);
        }
    return found;
}

/* --- allocations and locks --- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t number, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

EXPORT void *malloc(size_t bytes)
{
    count(METER_ALLOCATION);
    return __libc_malloc(bytes);
}

EXPORT void *calloc(size_t number, size_t bytes)
{
    count(METER_ALLOCATION);
    return __libc_calloc(number, bytes);
}

EXPORT void *realloc(void *memory, size_t bytes)
{
    count(METER_ALLOCATION);
    return __libc_realloc(memory, bytes);
}

EXPORT void *aligned_alloc(size_t alignment, size_t bytes)
{
    count(METER_ALLOCATION);
    return __libc_memalign(alignment, bytes);
}

static int lock_with(int (**real)(pthread_mutex_t *), const char *name,
                     pthread_mutex_t *mutex)
{
    if (!*real) {
        void *found = meter_dlsym(RTLD_NEXT, name);
        memcpy(real, &found, sizeof found);
    }
    count(METER_LOCK);
    return (*real)(mutex);
}

EXPORT int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*real)(pthread_mutex_t *);
    return lock_with(&real, "pthread_mutex_lock", mutex);
}

EXPORT int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    static int (*real)(pthread_mutex_t *);
    return lock_with(&real, "pthread_mutex_trylock", mutex);
}

/* --- system calls --- */

static void note_syscall(pid_t child, struct meter *meter)
{
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof info, &info) <= 0 ||
        info.op != PTRACE_SYSCALL_INFO_ENTRY || info.entry.nr == SYS_clock_gettime ||
        !__atomic_load_n(&meter->armed, __ATOMIC_SEQ_CST) || meter->inside)
        return;
    meter->count[METER_SYSTEM_CALL]++;
    meter->last_syscall = (long)info.entry.nr;
}

int meter_follow(pid_t child, struct meter *meter)
{
    int status, options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(long)options))
        return -1;
    long hand_on = 0;
    while (!ptrace(PTRACE_SYSCALL, child, NULL, (void *)hand_on)) {
        if (waitpid(child, &status, 0) != child)
            return -1;
        if (!WIFSTOPPED(status))
            return status;
        const int is_syscall = WSTOPSIG(status) == (SIGTRAP | 0x80);
        hand_on = is_syscall ? 0 : WSTOPSIG(status);
        if (is_syscall)
            note_syscall(child, meter);
    }
    return -1;
}
