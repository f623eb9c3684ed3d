/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank of `ipcshim tune` holds while it works. */
#ifndef IPS_TOOLS_TUNE_RANK_H
#define IPS_TOOLS_TUNE_RANK_H

#include "core/engine.h"
#include "tools/device.h"
#include "tools/tune.h"

struct tune_rank {
    struct tune_page *page;
    unsigned rank;
    struct device device;
    gpu_stream stream;
    gpu_ptr in, out;
    unsigned char *host; /* as large as one of them */
    struct ips_engine *engine;
    enum ips_link link;
    unsigned channels; /* that the engine takes */
    struct nccl_api nccl;
    nccl_comm comm; /* NULL: no NCCL beside */
};

/* Tells all ranks a number of each mode and a flag; *ret is the largest of each that any
 * of them told. 0, or -1 when a rank has failed. */
int tune_agree(struct tune_rank *rank, const struct tune_slot *own,
               struct tune_slot *ret);

#endif
