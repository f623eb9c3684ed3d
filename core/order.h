/* SPDX-License-Identifier: Apache-2.0 */
/* Issue order of one communicator's calls across streams, eager and captured, without a
 * host wait: one event, recorded after every call and waited on where the stream gives no
 * order. */
#ifndef IPS_CORE_ORDER_H
#define IPS_CORE_ORDER_H

#include "core/gpu.h"

/* Captures that a communicator's calls may go into by turns. */
#define IPS_ORDER_CAPTURES 8
#define IPS_ORDER_AFTER 4

struct ips_order {
    gpu_event event;
    int used;       /* some call was made, eager or captured */
    unsigned begun; /* captures */
    struct ips_order_capture {
        uint64_t id;
        gpu_stream stream; /* of its latest call */
        gpu_node node;     /* records the event after that call */
        int kept;          /* other work comes after the node: it stays where it is */
        gpu_node after[IPS_ORDER_AFTER]; /* what the node comes after, if it may move */
        unsigned count;                  /* of these; 0: it may not */
    } capture[IPS_ORDER_CAPTURES];
};

/* Create on the current context. Status of the driver. */
int ips_order_init(struct ips_order *order, const struct ips_gpu_api *gpu);
void ips_order_finish(struct ips_order *order, const struct ips_gpu_api *gpu);

/* Around the work of one call on `stream`. Status of the driver. */
int ips_order_begin(struct ips_order *order, const struct ips_gpu_api *gpu,
                    gpu_stream stream, int *ret_captured);
int ips_order_end(struct ips_order *order, const struct ips_gpu_api *gpu,
                  gpu_stream stream, int captured);
/* The end of a call that NCCL enqueued, perhaps in the background: asks the stream itself
 * whether it is captured, once. */
int ips_order_end_forwarded(struct ips_order *order, const struct ips_gpu_api *gpu,
                            gpu_stream stream);

#endif
