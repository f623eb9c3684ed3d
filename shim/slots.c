/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the slots, in the order of their numbers. */
#include "shim/slots.h"

const char *const ips_slot_names[IPS_SLOTS] = {
#define OWN(result, name, parameters, arguments) #name,
#define TRACED(name, parameters, arguments, count, type, op) #name,
#define PLAIN(name, parameters, arguments) #name,
#define TEXT(name, parameters, arguments, without) #name,
#define LATE_OWN(name, parameters, arguments) #name,
#define LATE_TRACED(name, parameters, arguments, count, type, op) #name,
#define LATE_PLAIN(name, parameters, arguments) #name,
#define LATE_VOID(name, parameters, arguments) #name,
#include "shim/api.def"
};
