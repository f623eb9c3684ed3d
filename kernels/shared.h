/* SPDX-License-Identifier: Apache-2.0 */
/* What the threads of a block share: see ips_shared() in mem.h. */
#ifndef IPS_KERNELS_SHARED_H
#define IPS_KERNELS_SHARED_H

#define IPS_SHARED_BYTES 192
#define IPS_SHARED_ANY 32 /* from here on 128 bytes are ips_barrier_any's */

#endif
