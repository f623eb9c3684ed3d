/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of one engine: its own slab (head and mailbox), its control page, and the
 * peers' mailboxes as mapped here. An exported slab is freed only when no peer maps it any
 * more. */
#ifndef IPS_CORE_SLAB_H
#define IPS_CORE_SLAB_H

#include "core/device.h"
#include "core/segment.h"

struct ips_slab {
    struct ips_device *device;
    gpu_ptr own;
    size_t bytes;
    gpu_ptr mailbox[IPS_MAX_RANKS]; /* by rank; the own one too */
    gpu_ptr opened[IPS_MAX_RANKS];  /* slabs opened by IPC, to be closed; or 0 */
    struct ips_control *control; /* host address, in the segment; NULL: not registered */
    gpu_ptr control_device;
};

/* Allocates and clears the own slab, and maps the control page (IPS_CONTROL_BYTES, zero)
 * for the device. `mem_max` bounds what all slabs of this process hold (-EDQUOT). The
 * context of `device` is current. On failure nothing is left, and
 * ret_reason[IPS_REASON_BYTES] says why. */
int ips_slab_create(struct ips_slab *slab, struct ips_device *device, unsigned channels,
                    struct ips_control *control, uint64_t mem_max, gpu_stream stream,
                    char *ret_reason);

/* Fills in the exported part of the own record. */
int ips_slab_export(const struct ips_slab *slab, struct ips_record *record,
                    char *ret_reason);

/* Maps the mailboxes of all peers. */
int ips_slab_open_peers(struct ips_slab *slab, const struct ips_segment *segment,
                        char *ret_reason);
void ips_slab_close_peers(struct ips_slab *slab);

/* Unmaps the control page and hands the slab over: freed at once if every peer has
 * closed, else later, when ips_slab_sweep finds that they have. Takes the segment. */
void ips_slab_retire(struct ips_slab *slab, struct ips_segment *segment);
/* Call where freeing device memory is allowed although some thread may be capturing. */
void ips_slab_sweep(void);

#endif
