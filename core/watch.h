/* SPDX-License-Identifier: Apache-2.0 */
/* The one thread of a process that has engines: sees waits that do not end, learns why,
 * reports them, and fails the communicator where a peer is gone, where the ranks' calls
 * differ, or where the user has set a limit. Reads mapped memory and /proc; never calls
 * the driver, so that it disturbs no capture. */
#ifndef IPS_CORE_WATCH_H
#define IPS_CORE_WATCH_H

#include <stdint.h>

#include "kernels/wire.h"

struct ips_engine;

/* What the thread knows of an engine; touched by nobody else once it is added. */
struct ips_watch {
    uint32_t report_s, timeout_s; /* timeout 0: none */
    uint64_t record;   /* state of the record of the wait that is followed, or 0 */
    uint64_t since_ns; /* that wait began */
    int reported;
    uint64_t gone_ns; /* a peer was first seen to have left, in that wait; or 0 */
    uint64_t gone_looks; /* of the device at the peers, until then */
    int differed;     /* done calls seemed to differ at the last look */
    struct ips_pulse {
        uint32_t beats;
        uint64_t at_ns; /* when they last grew */
    } pulse[IPS_MAX_RANKS];
    struct ips_engine *next;
};

/* Starts the thread, once in a process. 0 or a negative errno. */
int ips_watch_start(void);

/* From add until remove has returned the thread looks at the engine, at least five times
 * a second. Removing what was not added is harmless. */
void ips_watch_add(struct ips_engine *engine);
void ips_watch_remove(struct ips_engine *engine);

#endif
