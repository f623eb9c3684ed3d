/* SPDX-License-Identifier: Apache-2.0 */
/* Which pairs of GPUs the engine may use, before anything is mapped: what the user, NVML
 * and the driver say. What they say is not enough (the probe decides), but a no is final.
 */
#ifndef IPS_CORE_LINKS_H
#define IPS_CORE_LINKS_H

#include "core/device.h"
#include "core/engine.h"
#include "core/segment.h"

enum ips_verdict {
    IPS_VERDICT_USABLE,
    IPS_VERDICT_UNWANTED,  /* NVLink, or NVML can't tell: left to NCCL */
    IPS_VERDICT_FORBIDDEN, /* the user wants no peer-to-peer */
    IPS_VERDICT_BROKEN,    /* a fault: peer access is missing */
};

/* The link from `device` to the GPU of `peer`. The reason for a no goes to
 * ret_reason[IPS_REASON_BYTES]. Two ranks on one GPU are always usable. */
enum ips_verdict ips_link_judge(const struct ips_device *device,
                                     const struct ips_record *peer,
                                     const struct ips_bringup_config *config,
                                     char *ret_reason);

/* What data between these ranks crosses, at its slowest. Unknown is PCIe. */
enum ips_link ips_link_classify(const struct ips_record *const *records, int nranks);

#endif
