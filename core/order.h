/* SPDX-License-Identifier: Apache-2.0 */
/* Issue order of one communicator's calls across streams, eager and captured, without a
 * host wait: one event, recorded after every call and waited on where the stream gives no
 * order. */
#ifndef IPS_CORE_ORDER_H
#define IPS_CORE_ORDER_H

#include "core/gpu.h"

struct ips_order {
    gpu_event event;
    int used;         /* some call was made, eager or captured */
    uint64_t capture; /* id of the capture that the next two belong to */
    gpu_stream capture_stream;
    gpu_node capture_node; /* records the event after the latest call of that capture */
};

/* Create on the current context. Status of the driver. */
int ips_order_init(struct ips_order *order, const struct ips_gpu_api *gpu);
void ips_order_finish(struct ips_order *order, const struct ips_gpu_api *gpu);

/* Around the work of one call on `stream`. Status of the driver. */
int ips_order_begin(struct ips_order *order, const struct ips_gpu_api *gpu,
                    gpu_stream stream, int *ret_captured);
int ips_order_end(struct ips_order *order, const struct ips_gpu_api *gpu,
                  gpu_stream stream, int captured);

#endif
