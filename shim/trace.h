/* SPDX-License-Identifier: Apache-2.0 */
/* The trace: a bounded ring of events that any thread fills without waiting, and one
 * thread that writes them as JSON lines. Events that do not fit are dropped and counted.
 * The process that started it is the only one that ever writes.
 *
 * Thread-safe; errno is preserved. Nothing here calls CUDA. */
#ifndef IPS_SHIM_TRACE_H
#define IPS_SHIM_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"
#include "shim/slots.h"

#define IPS_TRACE_EVENTS 16384 /* a power of two */
#define IPS_TRACE_NO_TYPE (-1)
#define IPS_TRACE_UNKNOWN UINT64_MAX /* bytes of a type of unknown size */

enum ips_event_kind { IPS_EVENT_CALL, IPS_EVENT_COMM, IPS_EVENT_COMM_END };

/* One event; texts must live as long as the process (static or ips_trace_intern). */
struct ips_event {
    uint64_t time_ns; /* ips_trace_now() at the call */
    uint64_t count;   /* elements; of IPS_EVENT_COMM: ranks */
    uint64_t bytes;   /* count times the size of an element, or IPS_TRACE_UNKNOWN */
    const void *stream;
    const char *reason;
    const char *transport; /* of IPS_EVENT_COMM with an engine; else NULL */
    int32_t comm;     /* number of the communicator in this process, -1: not known */
    int32_t rank;     /* in it, -1: not known */
    int32_t type, op; /* NCCL's numbers; -1: the call has none */
    uint16_t call;    /* enum ips_slot */
    uint8_t kind;     /* enum ips_event_kind */
    uint8_t route;    /* enum ips_route */
    uint8_t variant;  /* enum ips_variant, of the engine's; */
    uint8_t channels; /* likewise */
    int8_t captured;  /* 1, 0, or -1: not asked */
    int32_t result;   /* NCCL's answer */
};

struct ips_trace_config {
    const char *path; /* NULL: no file, only the summary; may hold %p and %r */
    int summary;      /* print the table on stderr at the end */
    int rank;         /* of the first communicator */
    const char *nccl; /* path of the real library, or NULL */
    int enabled;      /* the engine is */
};

/* Starts it, once per process; does nothing when neither file nor summary is wanted. 0 or
 * a negative errno, whose cause has been logged: then there is no file. */
int ips_trace_start(const struct ips_trace_config *config);

/* Whether events are wanted at all, and whether by the file. */
extern int ips_trace_state;
static inline int ips_trace_on(void)
{
    return __atomic_load_n(&ips_trace_state, __ATOMIC_ACQUIRE) > 0;
}
static inline int ips_trace_file_on(void)
{
    return __atomic_load_n(&ips_trace_state, __ATOMIC_ACQUIRE) > 1;
}

/* Adds an event to the ring and, if it is a call, to the summary. Never waits. */
void ips_trace_add(const struct ips_event *event);

/* Writes what is in the ring now, and the summary with this text as its occasion. */
void ips_trace_flush(const char *occasion);

/* Flush, table on stderr, end of the thread; later events are ignored. Idempotent. */
void ips_trace_stop(void);

/* In a child after fork: never write again. */
void ips_trace_child(void);

/* CLOCK_REALTIME in ns. */
uint64_t ips_trace_now(void);

/* Size of an element of NCCL's type, also of those the engine does not know; 0: unknown.
 */
unsigned ips_trace_type_bytes(int type);

/* A permanent copy of the text, the same for equal texts; at most 256 different ones,
 * then a static text. */
const char *ips_trace_intern(const char *text);

/* PATH with %p and %r replaced and %% as %; 0 or -ENAMETOOLONG. */
int ips_trace_expand(const char *path, int pid, int rank, char *ret, size_t room);

#endif
