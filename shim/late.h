/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators whose handle NCCL writes later, from another thread: those split from a
 * non-blocking parent. They enter the table when the handle is seen. */
#ifndef IPS_SHIM_LATE_H
#define IPS_SHIM_LATE_H

#include "shim/init.h"

/* Keeps the init, which owns its bringup until then. */
void ips_late_add(const struct ips_init *init);

/* Enters those whose handle is there by now. Cheap where there is none. A communicator
 * that a thread has the handle of is in the table when this returns. */
void ips_late_adopt(void);

/* Their parent goes away: gives up those whose handle has not come. */
void ips_late_end(ncclComm_t parent);

/* NCCL, asked after `asked` was taken, said `state` of the parent. When it is at nothing
 * any more, a handle that has not come never will, and the program may free the place for
 * it: gives those up that were added before. */
uint64_t ips_late_count(void);
void ips_late_settled(ncclComm_t parent, ncclResult_t state, uint64_t asked);

#endif
