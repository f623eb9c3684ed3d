/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded queue: any thread may push without waiting, one at a time may pop. Vyukov's
 * bounded MPMC queue: each cell carries the number of the turn it is ready for. */
#ifndef IPS_SHIM_RING_H
#define IPS_SHIM_RING_H

#include <stddef.h>
#include <stdint.h>

#include "shim/trace.h"

struct ips_ring;

/* events: a power of two. NULL without memory. */
struct ips_ring *ips_ring_create(size_t events);
void ips_ring_destroy(struct ips_ring *ring);

/* 1, or 0 when it is full: then the event is counted as dropped. */
int ips_ring_push(struct ips_ring *ring, const struct ips_event *event);
/* 1, or 0 when it is empty. */
int ips_ring_pop(struct ips_ring *ring, struct ips_event *ret);
/* Events dropped so far; `more` are added, for those lost elsewhere. */
uint64_t ips_ring_dropped(struct ips_ring *ring, uint64_t more);

#endif
