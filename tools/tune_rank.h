/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank of `ipcshim tune` holds while it works. */
#ifndef IPS_TOOLS_TUNE_RANK_H
#define IPS_TOOLS_TUNE_RANK_H

#include "core/engine.h"
#include "policy/policy.h"
#include "tools/device.h"
#include "tools/tune.h"

struct tune_rank {
    struct tune_page *page;
    unsigned rank;
    struct device device;
    gpu_stream stream;
    gpu_ptr in, out;
    unsigned char *host, *right; /* as large as one of them; right: the result, of as */
    uint64_t right_bytes;        /* many bytes, or 0 while it is not known */
    struct ips_engine *engine;
    struct ips_policy_place place; /* most_channels: as many as the engine takes */
    struct nccl_api nccl;
    nccl_comm comm; /* NULL: no NCCL beside */
};

/* Tells all ranks a number of each mode and a flag; *ret is the largest of each that any
 * of them told. 0, or -1 when a rank has failed. */
int tune_agree(struct tune_rank *rank, const struct tune_slot *own,
               struct tune_slot *ret);

/* Writes this rank's input of so many bytes. What is right is then not known. */
int tune_upload(struct tune_rank *rank, uint64_t bytes);
/* Puts into the output what no result is. */
int tune_poison(struct tune_rank *rank, uint64_t bytes);
/* Compares all of the output: the first right one with the reference, others with it. All
 * sums are exact, so that all kernels and NCCL give the same bits. */
int tune_compare(struct tune_rank *rank, uint64_t bytes, int *ret_wrong);

#endif
