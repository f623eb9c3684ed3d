/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs and outputs of calls on communicators with any members: int32, and sums. */
#ifndef IPS_TESTS_WORKER_PARTS_H
#define IPS_TESTS_WORKER_PARTS_H

#include "tests/process/worker.h"

#define PART_POISON 0xa5a5a5a5u

struct part {
    size_t count;
    gpu_ptr in, out; /* room for count times all ranks */
    unsigned salt;   /* another one for every call */
};

/* A new part with its input; the output is poisoned. number: among those of this line of
 * the script, the same on all members. */
int part_make(struct worker *worker, struct part *part, size_t count, unsigned number);
/* The same where the members stand on different lines. */
int part_make_salted(struct worker *worker, struct part *part, size_t count,
                     unsigned salt);
void part_free(struct worker *worker, struct part *part);
/* What rank r's input holds at i. */
uint32_t part_value(const struct part *part, unsigned rank, size_t i);

/* Enqueues the AllReduce; NCCL's answer. */
int part_sum(struct worker *worker, const struct part *part, nccl_comm comm,
             gpu_stream stream);
/* After the stream is idle: the output is the members' sum; or was never written. */
void part_check(struct worker *worker, const struct part *part, unsigned members,
                const char *what);
void part_check_untouched(struct worker *worker, const struct part *part,
                          const char *what);
int part_download(struct worker *worker, const struct part *part, uint32_t *host);

/* Waits for all streams. */
int worker_wait(struct worker *worker);

#endif
