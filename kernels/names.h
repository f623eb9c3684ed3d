/* SPDX-License-Identifier: Apache-2.0 */
/* What types, operations, algorithms, protocols and links are called in texts. NULL when out
 * of range. */
#ifndef IPS_KERNELS_NAMES_H
#define IPS_KERNELS_NAMES_H

#include <stddef.h>

#include "kernels/types.h"

static inline const char *ips_type_name(int type)
{
    static const char *const names[IPS_TYPES] = {
        [IPS_INT8] = "int8",       [IPS_UINT8] = "uint8",     [IPS_INT32] = "int32",
        [IPS_UINT32] = "uint32",   [IPS_INT64] = "int64",     [IPS_UINT64] = "uint64",
        [IPS_FLOAT16] = "float16", [IPS_FLOAT32] = "float32", [IPS_FLOAT64] = "float64",
        [IPS_BFLOAT16] = "bfloat16",
    };
    return type >= 0 && type < IPS_TYPES ? names[type] : NULL;
}

static inline const char *ips_op_name(int op)
{
    static const char *const names[IPS_OPS] = {"sum", "prod", "max", "min", "avg"};
    return op >= 0 && op < IPS_OPS ? names[op] : NULL;
}

static inline const char *ips_proto_name(int proto)
{
    static const char *const names[IPS_PROTOS] = {"LL", "LL128", "Simple"};
    return proto >= 0 && proto < IPS_PROTOS ? names[proto] : NULL;
}

static inline const char *ips_link_name(int link)
{
    static const char *const names[IPS_LINKS] = {"same-gpu", "pcie", "nvlink", "host"};
    return link >= 0 && link < IPS_LINKS ? names[link] : NULL;
}

static inline const char *ips_algo_name(int algo)
{
    static const char *const names[IPS_ALGOS] = {"ring", "oneshot", "twoshot",
                                                 "hierarchical"};
    return algo >= 0 && algo < IPS_ALGOS ? names[algo] : NULL;
}

/* Both in one text. */
static inline const char *ips_variant_name(int variant)
{
    static const char *const names[IPS_VARIANTS] = {
        "ring LL",       "ring LL128",    "ring Simple",        "oneshot LL",
        "oneshot LL128", "twoshot LL",    "twoshot LL128",      "hierarchical Simple"};
    return variant >= 0 && variant < IPS_VARIANTS ? names[variant] : NULL;
}

#endif
