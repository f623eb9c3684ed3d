/* SPDX-License-Identifier: Apache-2.0 */
/* One number for every public name of NCCL: the slot of the real function, and the
 * identity of a call in traces. Knows no type of NCCL. */
#ifndef IPS_SHIM_SLOTS_H
#define IPS_SHIM_SLOTS_H

enum ips_slot {
#define OWN(result, name, parameters, arguments) IPS_SLOT_##name,
#define TRACED(name, parameters, arguments, count, type, op) IPS_SLOT_##name,
#define PLAIN(name, parameters, arguments) IPS_SLOT_##name,
#define TEXT(name, parameters, arguments, without) IPS_SLOT_##name,
#define LATE_OWN(name, parameters, arguments) IPS_SLOT_##name,
#define LATE_TRACED(name, parameters, arguments, count, type, op) IPS_SLOT_##name,
#define LATE_PLAIN(name, parameters, arguments) IPS_SLOT_##name,
#define LATE_VOID(name, parameters, arguments) IPS_SLOT_##name,
#include "shim/api.def"
    IPS_SLOTS
};

extern const char *const ips_slot_names[IPS_SLOTS];

#endif
