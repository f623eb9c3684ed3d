/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of one engine: its head, its control page, its own mailbox and the peers' as
 * they are mapped here. Mailboxes lie in device memory that is exported by CUDA IPC, or in
 * host memory (host_memory.h). An exported one is freed only when no peer maps it any
 * more. */
#ifndef IPS_CORE_SLAB_H
#define IPS_CORE_SLAB_H

#include "core/device.h"
#include "core/host_memory.h"
#include "core/segment.h"

struct ips_slab {
    struct ips_device *device;
    gpu_ptr head;                /* private: IPS_HEAD_BYTES */
    struct ips_control *control; /* host address, in the segment; NULL: not registered */
    gpu_ptr control_device;
    gpu_ptr exported; /* the own mailbox, if it is in device memory; or 0 */
    size_t exported_bytes;
    gpu_ptr opened[IPS_MAX_RANKS];  /* mailboxes opened by IPC, to be closed; or 0 */
    struct ips_host_memory host;    /* the mailboxes, if they are in host memory */
    gpu_ptr mailbox[IPS_MAX_RANKS]; /* by rank; the own one too */
};

/* In all of these, unless said otherwise: the device's context is current; 0 or a negative
 * errno, with the cause in ret_reason[IPS_REASON_BYTES]. `mem_max` bounds the device memory
 * that all slabs of this process hold (-EDQUOT). */

/* Allocates and clears the head, and maps the control page (IPS_CONTROL_BYTES, zero) for
 * the device. On failure nothing is left. */
int ips_slab_create(struct ips_slab *slab, struct ips_device *device,
                    struct ips_control *control, uint64_t mem_max, gpu_stream stream,
                    char *ret_reason);

/* Allocates and clears the own mailbox in device memory, and exports it: fills in that part
 * of the own record. -EIO: it can't be exported. */
int ips_slab_export(struct ips_slab *slab, unsigned channels, struct ips_record *record,
                    uint64_t mem_max, gpu_stream stream, char *ret_reason);

/* Maps the exported mailboxes of all peers. */
int ips_slab_open_peers(struct ips_slab *slab, const struct ips_segment *segment,
                        char *ret_reason);
void ips_slab_close_peers(struct ips_slab *slab);

/* Allocates the own mailbox in host memory. Calls no driver. */
int ips_slab_host_create(struct ips_slab *slab, const struct ips_segment *segment,
                         unsigned channels, char *ret_reason);
/* Maps those of all peers, which have allocated them, and frees the one that this rank had
 * exported, which no peer maps any more. */
int ips_slab_host_open(struct ips_slab *slab, const struct ips_segment *segment,
                       char *ret_reason);

/* Unmaps the control page and the host memory and hands the rest over: freed at once if
 * every peer has closed, else later, when ips_slab_sweep finds that they have. No kernel of
 * this rank uses it any more. Takes the segment. */
void ips_slab_retire(struct ips_slab *slab, struct ips_segment *segment);
/* Call where freeing device memory is allowed although some thread may be capturing. */
void ips_slab_sweep(void);

#endif
