/* SPDX-License-Identifier: Apache-2.0 */
/* The door of policy/: a pure function from what all ranks know alike to what happens with
 * one AllReduce. No I/O, no environment, no state; any thread may call it. */
#ifndef IPS_POLICY_POLICY_H
#define IPS_POLICY_POLICY_H

#include <stdint.h>

#include "kernels/names.h"
#include "kernels/types.h"

#define IPS_ALGO_AUTO (-1)
#define IPS_PROTO_AUTO (-1)
#define IPS_MAX_BYTES_AUTO UINT64_MAX

/* Agreed between the ranks at set-up: rank 0's are used by all. Plain data, no pointers. */
struct ips_policy_settings {
    int32_t algo;             /* enum ips_algo, or IPS_ALGO_AUTO */
    int32_t proto;            /* enum ips_proto, or IPS_PROTO_AUTO */
    uint32_t max_channels;    /* 1 to IPS_MAX_CHANNELS */
    uint64_t ll_max_bytes;    /* LL up to this size */
    uint64_t ll128_max_bytes; /* LL128 up to this size, Simple beyond */
    uint64_t max_bytes;       /* larger calls stay with NCCL; or IPS_MAX_BYTES_AUTO */
    uint64_t verify;          /* every so many eager calls one also runs on NCCL; 0: none */
};

enum ips_route { IPS_ROUTE_ENGINE, IPS_ROUTE_NCCL };

struct ips_decision {
    enum ips_route route;
    enum ips_variant variant; /* algorithm and protocol of the engine; like the next two
                                 meaningless for NCCL */
    unsigned channels;        /* blocks */
    unsigned threads;         /* per block */
    const char *reason;       /* static text: why this route and variant */
};

/* The built-in settings. */
extern const struct ips_policy_settings ips_policy_defaults;

/* ranks: of the communicator. count: elements. type, op: the numbers of NCCL, also ones the
 * engine does not know. */
struct ips_decision ips_policy_decide(const struct ips_policy_settings *settings,
                                      unsigned ranks, uint64_t count, int type, int op);

/* Whether any call with data in it can be taken: if not, there is no use in an engine. */
int ips_policy_takes_some(const struct ips_policy_settings *settings, unsigned ranks);

/* Size of an element, or 0 for a type the engine does not know. */
unsigned ips_type_bytes(int type);

#endif
