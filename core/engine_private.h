/* SPDX-License-Identifier: Apache-2.0 */
/* The engine as bringup.c makes it and engine.c runs it. */
#ifndef IPS_CORE_ENGINE_PRIVATE_H
#define IPS_CORE_ENGINE_PRIVATE_H

#include "core/engine.h"
#include "core/order.h"
#include "core/segment.h"
#include "core/slab.h"
#include "core/watch.h"

struct ips_engine {
    struct ips_device *device;
    struct ips_slab slab;
    struct ips_segment segment; /* kept, to tell and to learn who has closed */
    struct ips_order order;
    unsigned channels;
    enum ips_link link;
    unsigned group; /* see ips_engine_set_group */
    struct ips_lineup lineup;
    int position; /* of this rank in it */
    struct ips_watch watch;
    gpu_ptr verify;    /* memory of verify.c, or 0 */
    uint64_t verified; /* calls that were compared */
    int captured;      /* graphs hold calls of the engine */
    int error;         /* negative errno; atomic, set once */
};

/* Fails the engine, once: its kernels end, its calls fail from now on, and the peers are
 * told, who fail too. The text says why, and is logged by the first rank
 * that fails. Any thread. Gives the error that holds. */
int ips_engine_fail(struct ips_engine *engine, int error, const char *reason);

/* Memory for ips_engine_verify_*, on the current context. Status of the driver. */
int ips_verify_alloc(struct ips_engine *engine);
void ips_verify_free(struct ips_engine *engine);
/* Fails the engine if a call was found to be wrong. Whether it did. Calls no driver. */
int ips_verify_failed(struct ips_engine *engine);

#endif
