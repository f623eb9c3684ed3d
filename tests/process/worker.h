/* SPDX-License-Identifier: Apache-2.0 */
/* The worker: rank processes (or threads) that work through one script, so that one start
 * covers hundreds of cases. worker.c starts the ranks, worker_rank.c reads the script,
 * worker_allreduce.c and worker_calls.c do what it says. Everything is checked in the
 * rank; a failed check is printed on stdout as "rank R line L: FAIL ...". */
#ifndef IPS_TESTS_WORKER_H
#define IPS_TESTS_WORKER_H

#include <stdio.h>

#include "tools/device.h"
#include "tools/fleet.h"
#include "tools/nccl.h"
#include "tools/reference.h"

#define WORKER_COMMS 8
#define WORKER_STREAMS 3
#define WORKER_WORDS 16

struct worker_page {
    struct fleet_sync sync;
    struct nccl_id id;
    uint64_t hash[2][IPS_MAX_RANKS]; /* of a checked output, by turns */
    int32_t pid[IPS_MAX_RANKS];
    uint32_t met[1 << IPS_MAX_RANKS][IPS_MAX_RANKS]; /* see worker_faults.c */
    uint64_t fault_ns; /* when something last went wrong on purpose */
    uint32_t faults;   /* how often it has */
};

/* Calls that were enqueued and not yet looked at (worker_posted.c). */
struct worker_posted {
    struct part *part;
    unsigned count;
    uint64_t at_ns; /* the last one */
};

struct worker {
    struct worker_page *page;
    unsigned rank, nranks;
    struct device device;
    struct nccl_api nccl;
    gpu_stream stream[WORKER_STREAMS];
    nccl_comm comm[WORKER_COMMS];   /* by letter: A, B, ... */
    unsigned members[WORKER_COMMS]; /* of each, a bit for each rank of the run */
    unsigned line;                  /* of the script */
    unsigned serial;                /* checked AllReduces so far: seeds the data */
    unsigned checks, failures;
    double timeout_s;
    struct worker_posted posted;
};

/* One line of the script. */
struct words {
    unsigned count;
    char *word[WORKER_WORDS];
};

/* The value of key=value, or the default. */
const char *words_text(const struct words *words, const char *key, const char *standard);
long words_number(const struct words *words, const char *key, long standard);
int words_type(const struct words *words); /* type=, default float32 */
int words_op(const struct words *words);   /* op=, default sum */
nccl_comm words_comm(const struct words *words,
                     struct worker *worker); /* comm=, default A */

unsigned worker_slot(const char *letter); /* of a communicator */
/* The communicator's unique id, made by rank 0, on all ranks. */
int worker_new_id(struct worker *worker);

/* Counts a check; a failed one is printed with its text. Returns whether it held. */
int worker_check(struct worker *worker, int holds, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Commands: 0, or not 0 when the script can't go on. */
int worker_allreduce(struct worker *worker, const struct words *words);
int worker_collective(struct worker *worker, const struct words *words);
int worker_chain(struct worker *worker, const struct words *words);
int worker_invalid(struct worker *worker, const struct words *words);
int worker_group(struct worker *worker, const struct words *words);  /* worker_groups.c */
int worker_nested(struct worker *worker, const struct words *words); /* worker_nested.c */
int worker_sum(struct worker *worker, const struct words *words);    /* worker_comms.c */
int worker_split(struct worker *worker, const struct words *words);  /* likewise */
int worker_make(struct worker *worker, const struct words *words);   /* likewise */
int worker_renew(struct worker *worker, const struct words *words);  /* likewise */
int worker_init_all(struct worker *worker, const struct words *words); /* worker_ends.c */
int worker_outlive(struct worker *worker, const struct words *words);  /* likewise */
int worker_fork(struct worker *worker, const struct words *words);     /* likewise */
int worker_threads(struct worker *worker, const struct words *words);  /* likewise */
int worker_fault(struct worker *worker, const struct words *words);  /* worker_faults.c */
int worker_post(struct worker *worker, const struct words *words);   /* worker_posted.c */
int worker_finish(struct worker *worker, const struct words *words); /* likewise */
int worker_leave(struct worker *worker, const struct words *words);  /* likewise */

uint64_t worker_now_ns(void);
/* A non-blocking init that is not waited for; NCCL's answer. */
int worker_init_late(struct worker *worker, nccl_comm *comm, int nranks, int rank);

/* Puts something foreign where the next communicator's ranks will meet (worker_plant.c).
 */
int worker_plant(struct worker *worker, const char *kind);

/* Works through the script; the process's exit status. Ends the process when the script
 * can't go on, unless other ranks are threads of it. */
int worker_run(struct worker *worker, const char *script, int threads);

#endif
