/* SPDX-License-Identifier: Apache-2.0 */
/* N rank processes on this machine: start them, forward signals, end the rest when one
 * fails, and a page of memory that they all share. */
#ifndef IPS_TOOLS_FLEET_H
#define IPS_TOOLS_FLEET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FLEET_MAX 64

/* Head of the shared page. Zero-initialized; all members are atomic by use. */
struct fleet_sync {
    uint32_t nranks;
    uint32_t arrived;
    uint32_t generation;
    uint32_t failed; /* a rank is gone: waiting for it is pointless */
};

struct fleet {
    unsigned nranks;
    pid_t pid[FLEET_MAX];
    int status[FLEET_MAX];   /* of waitpid; -1 while it runs */
    struct fleet_sync *sync; /* marked failed when a rank fails; may be NULL */
    int keep_going;          /* do not end the others when one fails */
};

/* Creates shared memory that survives exec. Mapped zeroed, *ret_fd is inherited. */
void *fleet_share(size_t bytes, int *ret_fd);
/* Maps it in the child. */
void *fleet_attach(int fd, size_t bytes);

/* Starts nranks processes; each calls prepare(rank, arg) (environment, descriptors) and
 * then executes argv. 0, or a negative errno with everything ended again. */
int fleet_start(struct fleet *fleet, unsigned nranks, char *const argv[],
                void (*prepare)(unsigned rank, void *arg), void *arg);

/* Waits for all, forwarding signals; calls tick(arg) about every 50 ms. The exit status
 * of the first rank that failed (128 + signal when killed), or 0. *ret_rank: which it
 * was. */
int fleet_wait(struct fleet *fleet, void (*tick)(void *arg), void *arg, int *ret_rank);

/* In a rank: waits until all ranks are here; -EPIPE when a rank has failed. */
int fleet_barrier(struct fleet_sync *sync);

#endif
