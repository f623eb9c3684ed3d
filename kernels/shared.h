/* SPDX-License-Identifier: Apache-2.0 */
/* What the threads of a block share: see ips_shared() in mem.h. */
#ifndef IPS_KERNELS_SHARED_H
#define IPS_KERNELS_SHARED_H

#define IPS_SHARED_BYTES 192
#define IPS_SHARED_ANY 32 /* from here on are ips_barrier_any's: */
#define IPS_SHARED_ANY_BYTES 128

#endif
