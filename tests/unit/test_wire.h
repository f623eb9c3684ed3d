/* SPDX-License-Identifier: Apache-2.0 */
/* The wire contract's layout in bytes, asserted in C and in C++ alike: whoever changes a
 * number here also bumps IPS_WIRE_VERSION. */
#ifndef IPS_TESTS_WIRE_H
#define IPS_TESTS_WIRE_H

#include "kernels/wire.h"

#define AT(type, member, offset)                                                           \
    IPS_STATIC_ASSERT(offsetof(struct type, member) == (offset), #type "." #member)
#define SIZE(type, bytes) IPS_STATIC_ASSERT(sizeof(struct type) == (bytes), #type)

/* The kernels' parameter, as the host fills it and the device reads it. */
AT(ips_allreduce_args, in, 0);
AT(ips_allreduce_args, out, 8);
AT(ips_allreduce_args, count, 16);
AT(ips_allreduce_args, head, 24);
AT(ips_allreduce_args, mailbox, 32);
AT(ips_allreduce_args, control, 96);
AT(ips_allreduce_args, rank, 104);
AT(ips_allreduce_args, nranks, 108);
AT(ips_allreduce_args, type, 112);
AT(ips_allreduce_args, op, 116);
AT(ips_allreduce_args, counter, 120);
AT(ips_allreduce_args, element, 124);
AT(ips_allreduce_args, peer, 128);
AT(ips_allreduce_args, captured, 136);
SIZE(ips_allreduce_args, 144);
AT(ips_probe_args, mailbox, 0);
AT(ips_probe_args, control, 64);
AT(ips_probe_args, seed, 72);
AT(ips_probe_args, deadline_ns, 80);
AT(ips_probe_args, rank, 88);
SIZE(ips_probe_args, 96);
AT(ips_verify_args, data, 0);
AT(ips_verify_args, weights, 16);
AT(ips_verify_args, count, 24);
AT(ips_verify_args, head, 48);
AT(ips_verify_args, type, 64);
AT(ips_verify_args, nranks, 84);
SIZE(ips_verify_args, 88);

/* Polled words are alone on their lines; slots start on lines, so that a 128-byte line of
 * LL128 and a 16-byte unit of LL never cross one. */
SIZE(ips_word, 128);
AT(ips_channel, credit, 0);
AT(ips_channel, flag, 128 * IPS_MAX_RANKS * IPS_PROTOS);
AT(ips_channel, ll, 128 * IPS_MAX_RANKS * (IPS_PROTOS + 1));
IPS_STATIC_ASSERT(offsetof(struct ips_channel, ll128) % 128 == 0, "lines");
IPS_STATIC_ASSERT(offsetof(struct ips_channel, simple) % 128 == 0, "lines");
IPS_STATIC_ASSERT(offsetof(struct ips_channel, inbox) % 128 == 0, "lines");
IPS_STATIC_ASSERT((IPS_HEAD_BYTES + sizeof(struct ips_mailbox)) % 128 == 0, "lines");
IPS_STATIC_ASSERT(IPS_LL_SLOT_BYTES % 128 == 0, "lines");
IPS_STATIC_ASSERT(IPS_LL128_SLOT_BYTES % 128 == 0, "lines");
IPS_STATIC_ASSERT(IPS_SIMPLE_BYTES / IPS_SIMPLE_SLOTS_MOST % 128 == 0, "lines");

/* A line's payload: LL 8 of 16 bytes; LL128 120 of 128, which the guard's keys cover. */
IPS_STATIC_ASSERT(IPS_LL_LINE_DATA == 8 && IPS_LL_SLOT_LINES * 16 == IPS_LL_SLOT_BYTES, "LL");
IPS_STATIC_ASSERT(IPS_LL128_LINE_DATA + 8 == 128, "LL128");
IPS_STATIC_ASSERT(IPS_GUARD_WORDS * 4 == IPS_LL128_LINE_DATA, "every word has a key");
SIZE(ips_guard_keys, 2 * 8 * (IPS_GUARD_WORDS + 2));

/* What the host writes and what the device writes are on different lines. */
AT(ips_control, abort, 0);
AT(ips_control, stuck, 128);
AT(ips_control, looks, 176);
IPS_STATIC_ASSERT(offsetof(struct ips_control, count) % 8 == 0, "64-bit counters");
IPS_STATIC_ASSERT(sizeof(struct ips_control) <= IPS_CONTROL_BYTES, "a page");
AT(ips_stuck, state, 0);
AT(ips_stuck, call, 32);
AT(ips_wrong, there, 0);
AT(ips_wrong, expected, 24);
AT(ips_wrong, call, 32);
AT(ips_call, number, 8);
AT(ips_call, type, 12);
AT(ips_call, channels, 15);
AT(ips_note, number, 8);
AT(ips_note, channels, 15);
AT(ips_mailbox, history, 2048);
SIZE(ips_mailbox, 4096);
IPS_STATIC_ASSERT(IPS_COUNTERS == IPS_VARIANTS * IPS_SIZE_CLASSES, "counters");
IPS_STATIC_ASSERT(offsetof(struct ips_head, count) % 8 == 0, "64-bit counters");
IPS_STATIC_ASSERT(offsetof(struct ips_head, keys) % 8 == 0, "64-bit keys");

/* NCCL's numbers. */
IPS_STATIC_ASSERT(IPS_INT8 == 0 && IPS_UINT8 == 1 && IPS_INT32 == 2 && IPS_UINT32 == 3 &&
                      IPS_INT64 == 4 && IPS_UINT64 == 5 && IPS_FLOAT16 == 6 &&
                      IPS_FLOAT32 == 7 && IPS_FLOAT64 == 8 && IPS_BFLOAT16 == 9,
                  "ncclDataType_t");
IPS_STATIC_ASSERT(IPS_SUM == 0 && IPS_PROD == 1 && IPS_MAX == 2 && IPS_MIN == 3 &&
                      IPS_AVG == 4,
                  "ncclRedOp_t");

#endif
