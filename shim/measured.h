/* SPDX-License-Identifier: Apache-2.0 */
/* What `ipcshim doctor --probe` has measured of this machine's links, as the engine's
 * set-up asks for it. */
#ifndef IPS_SHIM_MEASURED_H
#define IPS_SHIM_MEASURED_H

#include "core/engine.h"

/* For ips_bringup_config.recall. */
enum ips_recalled ips_measured_recall(const struct ips_gpu_name *gpus, unsigned count,
                                      char *ret_reason);

#endif
