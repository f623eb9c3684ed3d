/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `ipcshim tune` share: the parent (cmd_tune.c) starts one process per
 * rank (tune_rank.c), which bring an engine up among themselves, and work through sizes
 * and candidates in step (tune_size.c); tune_file.c writes what came out. */
#ifndef IPS_TOOLS_TUNE_H
#define IPS_TOOLS_TUNE_H

#include <stdint.h>

#include "policy/tuned.h"
#include "tools/fleet.h"
#include "tools/nccl.h"

#define TUNE_KEEP 8 /* candidates of a size that are told in the file */
#define TUNE_CANDIDATES 256
#define TUNE_GPU_BYTES 160 /* bus id, UUID and name */

struct tune_options {
    uint64_t size[IPS_TUNED_SIZES];
    uint32_t nsizes, ranks, rounds;
    int32_t transport;             /* enum ips_transport */
    uint32_t beside;               /* NCCL too, where there is one */
    uint32_t batch_us, most_calls; /* of one timing: as long, and as many calls at most */
    uint32_t wait_s;               /* for one batch, before the tuning gives up */
};

/* Where one rank tells the others a number of each mode. */
struct tune_slot {
    double us[IPS_MODES];
    uint32_t flag;
};

/* Shared by the ranks and the parent. */
struct tune_page {
    struct fleet_sync sync;
    struct tune_options options;
    unsigned char key[64]; /* of the engine's communicator */
    struct nccl_id id;
    struct tune_slot slot[IPS_MAX_RANKS];
    /* What came out; written by rank 0. */
    struct ips_policy_place place;
    uint32_t has_nccl, done_sizes, ngpus;
    int32_t driver;
    uint64_t measured, wrong; /* candidates */
    char gpu[IPS_TUNED_GPUS][TUNE_GPU_BYTES];
    struct ips_tuned tuned;
};

/* What one rank holds; tune_rank.c makes it. */
struct tune_rank;

/* Finds the best candidates of a size, and what NCCL takes. 0, or -1 after printing. Rank
 * 0 adds the rows to the page. */
int tune_size(struct tune_rank *rank, uint64_t bytes);

/* Writes the file, with the tables that were there already and are still of this machine.
 * tuned[count]: new ones. 0, or -1 after printing. */
int tune_file_write(const char *path, const struct tune_page *page,
                    const struct ips_tuned *const *tuned, unsigned count, int simulated);

#endif
