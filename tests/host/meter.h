/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what one thread does in a call of the unmodified shim: driver calls,
 * allocations, locks and system calls, less those that the driver and the real NCCL make
 * themselves.
 *
 * meter.c stands before of dlsym, malloc and the locks of the whole process: it must be
 * in the executable, which exports all it defines. Linux on a 64-bit machine. */
#ifndef TESTS_HOST_METER_H
#define TESTS_HOST_METER_H

#include <sys/types.h>

#define METER_API __attribute__((visibility("default"))) /* for front.c */

enum meter_count {
    METER_CONTEXT, /* looks at the current context */
    METER_QUERY,   /* questions after a stream's capture */
    METER_WAIT,    /* waits of a stream for an event, or of a capture for a node */
    METER_RECORD,  /* records of an event, or nodes that do */
    METER_LAUNCH,
    METER_OTHER, /* every other call of the driver */
    METER_ALLOCATION,
    METER_LOCK,
    METER_SYSTEM_CALL, /* but clock_gettime, which is none where there is a vDSO */
    METER_NCCL,        /* calls forwarded to the real NCCL */
    METER_COUNTS
};

/* In memory that the tracer shares. */
struct meter {
    int armed;
    int inside; /* the driver or the real NCCL */
    unsigned count[METER_COUNTS];
    char other[64];    /* name of the last driver call of METER_OTHER */
    long last_syscall; /* number of the last system call that was counted */
};

/* The calling thread counts into it from now on, while it is armed. */
void meter_attach(struct meter *meter);
void meter_start(struct meter *meter);
void meter_stop(struct meter *meter);

/* Around a call that the shim makes: counts it, and leaves out all that it does. */
METER_API void meter_enter(enum meter_count what, const char *name);
METER_API void meter_leave(void);

/* dlsym without the counting. */
METER_API void *meter_dlsym(void *handle, const char *name);

/* Follows a child that has called PTRACE_TRACEME and stopped itself, until it ends, and
 * counts its first thread's system calls. Its wait status, or -1. */
int meter_follow(pid_t child, struct meter *meter);

#endif
