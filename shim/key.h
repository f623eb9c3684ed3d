/* SPDX-License-Identifier: Apache-2.0 */
/* The key of a communicator: what its ranks know alike and no other communicator has. The
 * ranks meet under it, and its children's keys come from it. */
#ifndef IPS_SHIM_KEY_H
#define IPS_SHIM_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "core/engine.h"
#include "shim/nccl_api.h"

struct ips_key {
    unsigned char bytes[IPS_KEY_BYTES];
    size_t count;        /* 0: there is no key, */
    const char *why_not; /* for this reason, which lives as long as the process */
};

/* None: neither it nor its children can meet. */
void ips_key_none(struct ips_key *ret_key, const char *why_not);

/* From the unique ids that all ranks were given. None where NCCL_COMM_ID makes all ids
 * the same. */
void ips_key_of_ids(struct ips_key *ret_key, const ncclUniqueId *ids, int count,
                    int nranks);

/* For the communicators of one ncclCommInitAll, whose ranks are all here. */
void ips_key_random(struct ips_key *ret_key);

/* Of the child with that color in the parent's split of that number; none, for the same
 * reason, when the parent has none. */
void ips_key_of_child(struct ips_key *ret_key, const struct ips_key *parent,
                      unsigned split, int color);

#endif
