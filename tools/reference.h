/* SPDX-License-Identifier: Apache-2.0 */
/* What an AllReduce must give: deterministic inputs of every rank, and a check of one
 * rank's output, element by element, against a reference computed from all ranks' inputs.
 * Knows no GPU and no NCCL. Shared by the bench and the tests. */
#ifndef IPS_TOOLS_REFERENCE_H
#define IPS_TOOLS_REFERENCE_H

#include <stdint.h>

#include "kernels/types.h"

enum ips_values {
    IPS_VALUES_RANDOM,  /* any mantissa; magnitudes that no operation can overflow */
    IPS_VALUES_EXACT,   /* floats for which sum and prod are exact: no error is allowed */
    IPS_VALUES_SPECIAL, /* NaN, infinities, both zeros, one and minus one */
    IPS_VALUES_KINDS,
};

/* One AllReduce's data: a pure function of these, so that every rank knows every rank's.
 */
struct ips_payload {
    uint64_t seed; /* another one for every AllReduce, so that stale data is wrong data */
    unsigned nranks;
    enum ips_type type;
    enum ips_op op;
    enum ips_values values;
};

struct ips_mismatch {
    uint64_t index;     /* element */
    double got, wanted; /* as numbers */
    double bound;
    uint64_t got_bits;
};

/* Writes `count` elements of `rank`'s input. */
void ips_payload_fill(const struct ips_payload *payload, unsigned rank, uint64_t count,
                      void *out);

/* Number of wrong elements in an output that holds elements `first` to `first + count -
 * 1` of the result; the first wrong one is described in *ret_first when there is any.
 * Floats may differ from the exact result by the bound that is derived in reference.c;
 * integers and exact cases may not differ at all. */
uint64_t ips_payload_check(const struct ips_payload *payload, uint64_t first,
                           uint64_t count, const void *output,
                           struct ips_mismatch *ret_first);

/* 64-bit hash of a buffer, to compare outputs between ranks. */
uint64_t ips_hash(const void *data, uint64_t bytes);

/* A well mixed 64-bit value (splitmix64). */
uint64_t ips_mix(uint64_t x);

#endif
