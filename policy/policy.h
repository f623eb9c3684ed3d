/* SPDX-License-Identifier: Apache-2.0 */
/* The door of policy/: which AllReduce the engine takes, and how. A plan is made once per
 * communicator, on rank 0, and travels to all ranks; what happens with a call is then
 * looked up in it by the call's bytes, type and operation alone, so that all ranks do the
 * same. No I/O, no environment, no state; any thread may call it. */
#ifndef IPS_POLICY_POLICY_H
#define IPS_POLICY_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/names.h"
#include "kernels/types.h"

#define IPS_ALGO_AUTO (-1)
#define IPS_PROTO_AUTO (-1)
#define IPS_MAX_BYTES_AUTO UINT64_MAX

/* Agreed between the ranks at set-up: rank 0's are used by all. Plain data, no pointers.
 */
struct ips_policy_settings {
    int32_t algo;          /* enum ips_algo, or IPS_ALGO_AUTO */
    int32_t proto;         /* enum ips_proto, or IPS_PROTO_AUTO */
    uint32_t max_channels; /* 1 to IPS_MAX_CHANNELS */
    uint64_t max_bytes;    /* larger calls stay with NCCL; or IPS_MAX_BYTES_AUTO */
    uint64_t verify;       /* every so many eager calls one also runs on NCCL; 0: none */
};

/* The built-in settings. */
extern const struct ips_policy_settings ips_policy_defaults;

/* Why a row of a plan is as it is. */
enum ips_plan_why {
    IPS_WHY_MODEL,     /* the model finds the engine faster, by its margin */
    IPS_WHY_TUNED,     /* it was measured to be faster here */
    IPS_WHY_ASKED,     /* an explicit IPCSHIM_MAX_BYTES takes it */
    IPS_WHY_ALGO,      /* IPCSHIM_ALGO is set */
    IPS_WHY_PROTO,     /* IPCSHIM_PROTO is set */
    IPS_WHY_NOT_MODEL, /* these stay with NCCL: not shown to be faster */
    IPS_WHY_NOT_TUNED, /* measured not to be faster here */
    IPS_WHY_MAX_BYTES, /* beyond an explicit IPCSHIM_MAX_BYTES */
    IPS_WHY_FEW_RANKS,
    IPS_WHY_MANY_RANKS,
    IPS_WHYS,
};

/* A static text for traces and people. NULL when out of range. */
const char *ips_plan_why_text(int why);

/* What happens with calls that are larger than the row before says, up to up_to_bytes. */
#define IPS_PLAN_NCCL 0xff
struct ips_plan_row {
    uint64_t up_to_bytes;
    uint16_t threads; /* per channel; 0 for NCCL */
    uint8_t variant;  /* enum ips_variant, or IPS_PLAN_NCCL */
    uint8_t channels; /* 0 for NCCL */
    uint8_t why;      /* enum ips_plan_why */
    uint8_t pad[3];
};

#define IPS_PLAN_ROWS 24
#define IPS_PLAN_MAGIC 0x6c505049u
struct ips_policy_plan {
    uint32_t magic;
    uint8_t ranks, link; /* that it was made for; link: enum ips_link */
    uint8_t count; /* of rows, at least 1; the last one's up_to_bytes is UINT64_MAX */
    uint8_t group; /* as of struct ips_policy_place: the engine is to have it */
    struct ips_plan_row row[IPS_PLAN_ROWS];
};

/* Where a communicator is. */
struct ips_policy_place {
    unsigned ranks;
    enum ips_link link;
    unsigned most_channels; /* of the engine there */
    unsigned group;         /* ranks behind one uplink, neighbours in the ring: see
                               ips_groups_valid(); 0: there are no such groups */
    double uplink; /* what the uplink carries, as part of what a rank's own link does; 0:
                      not known, taken for 1 */
};

struct ips_tuned; /* policy/tuned.h */

/* Makes the plan of a communicator at `place`. `tuned`: what was measured on this machine
 * with as many ranks over such a link, or NULL: then the model of policy/model.h decides.
 * Whatever the settings hold, the plan is valid. */
void ips_policy_plan_make(const struct ips_policy_settings *settings,
                          const struct ips_policy_place *place,
                          const struct ips_tuned *tuned, struct ips_policy_plan *ret);

/* Whether `bytes` bytes from another process are a plan for as many ranks and channels.
 */
int ips_policy_plan_valid(const void *plan, size_t bytes, unsigned ranks,
                          unsigned most_channels);

/* Whether any call is taken: if not, there is no use in an engine. */
int ips_policy_plan_takes_some(const struct ips_policy_plan *plan);

enum ips_route { IPS_ROUTE_ENGINE, IPS_ROUTE_NCCL };

struct ips_decision {
    enum ips_route route;
    enum ips_variant variant; /* algorithm and protocol of the engine; like the next two
                                 meaningless for NCCL */
    unsigned channels;        /* blocks */
    unsigned threads;         /* per block */
    const char *reason;       /* static text: why this route and variant */
};

/* count: elements. type, op: the numbers of NCCL, also ones the engine does not know. The
 * plan is valid. */
struct ips_decision ips_policy_decide(const struct ips_policy_plan *plan, uint64_t count,
                                      int type, int op);

/* Size of an element, or 0 for a type the engine does not know. */
unsigned ips_type_bytes(int type);

#endif
