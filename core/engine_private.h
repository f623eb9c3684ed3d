/* SPDX-License-Identifier: Apache-2.0 */
/* The engine as bringup.c makes it and engine.c runs it. */
#ifndef IPS_CORE_ENGINE_PRIVATE_H
#define IPS_CORE_ENGINE_PRIVATE_H

#include "core/engine.h"
#include "core/order.h"
#include "core/segment.h"
#include "core/slab.h"

struct ips_engine {
    struct ips_device *device;
    struct ips_slab slab;
    struct ips_segment segment; /* kept, to tell and to learn who has closed */
    struct ips_order order;
    unsigned channels;
    uint64_t report_ns;
    int captured; /* graphs hold calls of the engine */
    int error;    /* negative errno; atomic, set once */
};

#endif
