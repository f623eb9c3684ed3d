/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim doctor --probe: measures what each GPU does to the memory of each other one,
 * and of the host. A child does (links_child.c, links_cell.c, links_judge.c), since a bad
 * link can hang or crash who uses it; the parent (links_probe.c) ends it when it makes no
 * step, and starts another for what is left. links_file.c keeps what came out. */
#ifndef IPS_TOOLS_LINKS_H
#define IPS_TOOLS_LINKS_H

#include <stdint.h>

#include "core/gpu.h"
#include "kernels/link_wire.h"
#include "policy/verdicts.h"

#define LINKS_DETAIL_BYTES 112

enum links_state { LINKS_NONE, LINKS_TODO, LINKS_RUNS, LINKS_DONE };

struct links_cell {
    uint32_t state;                  /* enum links_state; atomic */
    uint32_t kind;                   /* enum ips_link_kind, if it is done */
    double gbps;                     /* 0: none */
    char detail[LINKS_DETAIL_BYTES]; /* of a bad one; "": none */
};

/* Shared by the parent and its children, one after the other. */
struct links_page {
    uint32_t described; /* atomic: all but `steps` and the cells is there, and stays */
    uint32_t gpus, left_out;
    int32_t cuda; /* as cuDriverGetVersion says */
    uint32_t simulated;
    char gpu[IPS_VERDICTS_GPUS][2][48]; /* bus id, UUID */
    uint32_t ring[IPS_VERDICTS_GPUS];   /* GPUs in the order of the ring */
    uint64_t bytes;                     /* of one measurement */
    uint32_t steps;                     /* atomic: grows while the child works */
    char error[192];                    /* why the child could not begin */
    struct links_cell cell[IPS_LINK_TURNS][IPS_LINK_METHODS][IPS_VERDICTS_GPUS]
                          [IPS_VERDICTS_GPUS + 1]; /* [..][from][to] */
};

/* --- the child's --- */

/* Gives the driver's error to the caller. */
#define LINKS_TRY(call)    \
    do {                   \
        int try_ = (call); \
        if (try_)          \
            return try_;   \
    } while (0)

/* Memory that is written to: a flag of each block, then the data. */
#define LINKS_DATA 4096

struct links_gpu {
    gpu_device id;
    gpu_context context;
    gpu_function store, check, probe;
    gpu_stream in, out;    /* work of the owner of memory, and of who uses another's */
    gpu_ptr inbox, outbox; /* LINKS_DATA + bytes; bytes */
    gpu_ptr result[2];     /* of kernels on `in` and on `out` */
    gpu_ptr host;          /* the host's inbox, as this GPU maps it; 0: it does not */
    uint32_t peers;        /* bits: of GPUs whose memory it can use */
};

struct links_machine {
    const struct ips_gpu_api *gpu;
    int (*copy)(gpu_ptr to, gpu_ptr from, size_t bytes, gpu_stream stream);
    struct links_page *page;
    struct links_gpu at[IPS_VERDICTS_GPUS];
    int entered; /* the GPU whose context is current; -1: none */
    unsigned blocks, threads;
    unsigned passes[IPS_LINK_METHODS]; /* over the data, in one measurement */
    uint64_t units, bytes, turns;
    unsigned char *host; /* the host's inbox */
    unsigned char *look; /* room for a copy of an inbox */
};

/* What the warps of one kernel saw together. */
struct links_seen {
    uint64_t late, wrong, blank, first;
    double seconds;
};

/* One pair of a set that is measured at the same time. */
struct links_pair {
    unsigned from, to;
    uint64_t seed;
    struct links_seen actor, owner; /* all zero where it has no kernel */
    double seconds;
    enum ips_link_kind kind;
    char detail[LINKS_DETAIL_BYTES];
};

struct links_set {
    enum ips_link_method method;
    unsigned count;
    struct links_pair pair[IPS_VERDICTS_GPUS];
};

/* These give the driver's status. Measures all pairs of the set; each has a kind and a
 * time. */
int links_measure(struct links_machine *m, struct links_set *set);
/* Gives the pair its kind, by what its kernels saw and what is in memory. */
int links_judge(struct links_machine *m, enum ips_link_method method,
                struct links_pair *pair);

/* Whether kernels that stay on both GPUs do not hear of each other in time:
 * links_resident.c.
 */
int links_resident(struct links_machine *m, unsigned a, unsigned b, int *ret_bad);

/* Makes the GPU's context current. */
int links_enter(struct links_machine *m, unsigned gpu);
/* Waits for all of the stream's work. */
int links_wait(struct links_machine *m, unsigned gpu, gpu_stream stream);
/* Checks the data against the seed on a GPU's `out` stream, once and without a flag. */
int links_check(struct links_machine *m, unsigned gpu, gpu_ptr data, uint64_t seed,
                struct links_seen *ret);

/* --- the parent's --- */

/* What is to be done about ten times a second meanwhile. */
struct links_tick {
    void (*run)(void *context);
    void *context;
};

/* Runs the probe on what libcuda.so.1 shows; *ret_page is to stay. 0, or -1 after
 * printing. */
int links_probe(const struct links_tick *tick, struct links_page **ret_page);

/* What it found, and a table of it with what else there is to say on stdout. The
 * verdicts' machine and bridges are the caller's to fill in. */
void links_collect(const struct links_page *page, struct ips_verdicts *ret);
void links_print(const struct links_page *page, const struct ips_verdicts *verdicts);

/* Writes the file, whole or not at all. 0, or -1 after printing. */
int links_write(const char *path, const struct ips_verdicts *verdicts,
                const struct links_page *page);

/* Exports NCCL_P2P_DISABLE=1, and says so, if the file of this machine has a pair that
 * failed among the GPUs that a program would see, and the user has not set the variable.
 */
void links_veto(void);

#endif
