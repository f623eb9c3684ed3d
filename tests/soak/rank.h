/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a soak. */
#ifndef IPS_TESTS_SOAK_RANK_H
#define IPS_TESTS_SOAK_RANK_H

#include "tests/soak/device.h"
#include "tests/soak/plan.h"
#include "tools/fleet.h"
#include "tools/nccl.h"

/* Kept for the parent, by rank. */
struct soak_count {
    uint64_t eager[IPS_VARIANTS],
        replayed[IPS_VARIANTS]; /* calls that the engine is to take */
    uint64_t captured, nccl;  /* calls: captured, not counting replays; left to NCCL */
    uint64_t calls, elements, wrong; /* as the checks have counted them */
    uint64_t comms, rounds;
};

struct soak_page {
    struct fleet_sync sync;
    struct soak_options options;
    struct nccl_id id[SOAK_COMMS];
    uint64_t last_round; /* that is run; UINT64_MAX until the time is up */
    struct soak_count count[IPS_MAX_RANKS];
};

/* Runs to the end; the process's exit status. */
int soak_rank_run(struct soak_page *page, unsigned rank);

#endif
