/* SPDX-License-Identifier: Apache-2.0 */
/* The wire contract: every byte that two ranks, or host and device, share. Included by host
 * C, by nvcc and by the CPU stand-in; the static asserts hold on all three.
 *
 * A rank owns one mailbox, in memory that the others write: it alone polls and reads there.
 * A step is a 64-bit count per channel and sequence, from 1 on.
 *
 * Ring: the predecessor writes data, the successor credits. The slot of step s is s % slots.
 * A sender may write step s once the reader's credit has reached s - slots. Where ranks form
 * groups, three rings share the slots of Simple: of all ranks, within a group, and between
 * groups. Which one a step takes is the same everywhere, so every step has one writer; but
 * writers do not wait for each other, so each has its own flag, and a reader credits all who
 * may write its slot next. LL and LL128 keep to one ring: without a flag, nothing tells that
 * all of a writer's stores have landed before another writer's.
 *
 * One-shot and two-shot: in each step every rank writes at least one line to every other,
 * into the inbox of the step's parity. Nobody waits for credits: a rank that has received a
 * peer's lines of step s - 1 knows that the peer has read all lines of step s - 2. */
#ifndef IPS_KERNELS_WIRE_H
#define IPS_KERNELS_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/types.h"

#ifdef __cplusplus
#define IPS_STATIC_ASSERT static_assert
#else
#define IPS_STATIC_ASSERT _Static_assert
#endif

/* Bumped with every change of this file: checked against the loaded module and between the
 * ranks' records. */
#define IPS_WIRE_VERSION 5

/* LL: 16-byte lines, 8 data bytes, each 4 of them followed by the low bits of the step. A
 * build may narrow the flag, and all slots, so that tests live in their wrap. */
#ifndef IPS_LL_FLAG_BITS
#define IPS_LL_FLAG_BITS 32
#endif
#define IPS_LL_FLAG_MASK (0xffffffffu >> (32 - IPS_LL_FLAG_BITS))
#ifndef IPS_LL_SLOTS
#define IPS_LL_SLOTS 8
#endif
#ifndef IPS_LL_SLOT_BYTES
#define IPS_LL_SLOT_BYTES (8 * 1024)
#endif
#define IPS_LL_LINE_DATA 8
#define IPS_LL_SLOT_LINES (IPS_LL_SLOT_BYTES / 16)

/* LL128: 128-byte lines, 120 data bytes and an 8-byte guard over data and step. */
#ifndef IPS_LL128_SLOTS
#define IPS_LL128_SLOTS 8
#endif
#ifndef IPS_LL128_SLOT_BYTES
#define IPS_LL128_SLOT_BYTES (16 * 1024)
#endif
#define IPS_LL128_LINE_DATA 120
#define IPS_LL128_SLOT_LINES (IPS_LL128_SLOT_BYTES / 128)

/* Simple: plain data, one flag per slot, which holds the step. All slots together: */
#ifndef IPS_SIMPLE_BYTES
#define IPS_SIMPLE_BYTES (512 * 1024)
#endif
#define IPS_SIMPLE_SLOTS_MOST 4

/* Few ranks do better with few large slots: a wait costs as much for a small one, and there
 * are few hops to fill. Two at least, or the ring waits for itself. */
IPS_BOTH uint32_t ips_simple_slots(uint32_t nranks)
{
    return nranks <= 4 ? 2 : IPS_SIMPLE_SLOTS_MOST;
}

/* One-shot and two-shot: what a channel receives in one step from all ranks together. Each
 * has an equal part of it, see ips_inbox_lines(). */
#ifndef IPS_INBOX_BYTES
#define IPS_INBOX_BYTES (64 * 1024)
#endif

/* Lines of one rank's part of an inbox; a multiple of 8, so that parts begin on 128 bytes. */
IPS_BOTH uint32_t ips_inbox_lines(uint32_t line_bytes, uint32_t nranks)
{
    return IPS_INBOX_BYTES / 128 / nranks * 128 / line_bytes;
}

/* A 64-bit word that one peer writes, alone on its 128-byte line. */
struct ips_word {
    uint64_t value;
    uint64_t pad[15];
};

/* One channel's part of a mailbox. */
struct ips_channel {
    struct ips_word credit[IPS_PROTOS][IPS_MAX_RANKS]; /* by the reader's position, who
                                                          writes it: last step it read */
    struct ips_word flag[IPS_MAX_RANKS]; /* likewise by the sender's: last Simple step */
    unsigned char ll[IPS_LL_SLOTS][IPS_LL_SLOT_BYTES];
    unsigned char ll128[IPS_LL128_SLOTS][IPS_LL128_SLOT_BYTES];
    unsigned char simple[IPS_SIMPLE_BYTES];
    unsigned char inbox[2][2][IPS_INBOX_BYTES]; /* by protocol (LL, LL128) and parity */
};

/* LL128's guard: two independent multilinear hashes, (k[0] + sum k[i+1] * word[i] mod 2^64)
 * >> 32, strongly universal for random keys (Lemire and Kaser, "Strongly universal string
 * hashing is fast", 2014). 30 words of data a line. */
#define IPS_GUARD_WORDS 30
struct ips_guard_keys {
    uint64_t key[2][IPS_GUARD_WORDS + 2]; /* [..][0] is the constant; the last is unused */
};

/* Executions of captured calls are counted by variant and by size class (floor of log2 of the
 * bytes), so that replays are seen without the host's help. */
#define IPS_SIZE_CLASSES 48
#define IPS_COUNTERS (IPS_VARIANTS * IPS_SIZE_CLASSES)
static inline unsigned ips_size_class(uint64_t bytes)
{
    unsigned log = bytes ? 63 - (unsigned)__builtin_clzll(bytes) : 0;
    return log < IPS_SIZE_CLASSES ? log : IPS_SIZE_CLASSES - 1;
}
static inline unsigned ips_counter_of(unsigned variant, uint64_t bytes)
{
    return variant * IPS_SIZE_CLASSES + ips_size_class(bytes);
}

/* What the probe of the links writes into each peer: one line per parity of the round, so
 * that a peer one round ahead does not overwrite what was not yet read. */
#define IPS_PROBE_ROUNDS 4
#define IPS_PROBE_WORDS 16
struct ips_probe_box {
    uint64_t word[2][IPS_PROBE_WORDS];
};

/* Instead of a step, after a call that was aborted amid it: a later one, which may be enqueued
 * already, would send other data as the same step. It moves none. */
#define IPS_STEP_DEAD UINT64_MAX

/* A rank's own state between calls, in its device's memory. */
struct ips_head {
    uint64_t step[IPS_SEQUENCES][IPS_MAX_CHANNELS]; /* last completed, or IPS_STEP_DEAD */
    uint64_t call; /* number of the last call that has begun, from 1 on */
    uint64_t count[IPS_COUNTERS]; /* executions of captured calls */
    uint64_t stuck_taken; /* a thread that waits has written control->stuck */
    uint64_t stuck_seq;   /* records written there */
    uint64_t looks;       /* that who waits has had at the others' histories */
    uint64_t wrong_taken; /* a thread has written control->wrong */
    struct ips_guard_keys keys;
};
#define IPS_HEAD_BYTES 8192

/* What a call is: in a sound program the same on all ranks for the same number. */
struct ips_call {
    uint64_t count; /* elements */
    uint32_t number; /* low bits */
    uint8_t type, op, variant, channels;
};

/* A call that channel 0 of a rank has done, as others read it while it may be stored over, in
 * halves of 8 bytes. Both have low bits of the number, so that those of two calls do not pass
 * for one; count and number are not 0. */
struct ips_note {
    uint64_t count; /* elements, IPS_NOTE_COUNT_BITS of it, and above them the number's */
    uint32_t number;
    uint8_t type, op, variant, channels;
};
#define IPS_NOTE_COUNT_BITS 48
#define IPS_CALL_HISTORY 4 /* the last calls, by number % IPS_CALL_HISTORY */

/* The start of a mailbox; the channels follow. */
struct ips_mailbox {
    struct ips_probe_box probe[IPS_MAX_RANKS]; /* by position of the writer */
    struct ips_note history[IPS_CALL_HISTORY]; /* written by the owner; others may look */
    uint64_t pad[256 - 2 * IPS_CALL_HISTORY];
};
#define IPS_MAILBOX_BYTES(channels)                                                        \
    (sizeof(struct ips_mailbox) + (size_t)(channels) * sizeof(struct ips_channel))

/* The end of a kernel waits for its stores to host memory, so most calls make none. Shown to
 * the hosts are all captured calls, and of the others the first, and then one in so many: a
 * prime, so that every place in a loop of calls has its turn. The same ones on all ranks. */
#define IPS_SHOWN_FIRST 16
#define IPS_SHOWN_EVERY 61
IPS_BOTH int ips_call_shown(uint32_t number, uint32_t captured)
{
    return captured || number < IPS_SHOWN_FIRST || number % IPS_SHOWN_EVERY == 0;
}
/* Where in the history that is shown; also those shown seldom fill all of it. */
IPS_BOTH uint32_t ips_shown_at(uint32_t number)
{
    const uint32_t turn = number % IPS_SHOWN_EVERY ? number : number / IPS_SHOWN_EVERY;
    return turn % IPS_CALL_HISTORY;
}

/* What a thread waits for. */
enum ips_wait_kind {
    IPS_WAIT_NONE = 0,
    IPS_WAIT_DATA = 1,   /* data from the peer */
    IPS_WAIT_CREDIT = 2, /* a credit: that the peer has read data */
};

/* A wait that has lasted IPS_NOTICE_NS is written down for the host, one at a time, and the
 * record is taken back when it ends: what stands there is going on. While it does, all ranks'
 * histories are copied for the host every IPS_NOTICE_NS. */
#ifndef IPS_NOTICE_NS
#define IPS_NOTICE_NS 100000000ull
#endif
struct ips_stuck {
    uint64_t state; /* number of the record << 8 | kind; to be read before and after the rest */
    uint32_t channel, peer;
    uint64_t step; /* waited for */
    uint64_t seen; /* flag, guard or credit read then */
    struct ips_call call;
};

/* The first element that was found to differ from NCCL's result: see verify.h. */
struct ips_wrong {
    uint64_t there; /* 1: the rest is valid, and stays */
    uint64_t element;
    uint64_t got, expected; /* bits, the engine's and NCCL's */
    struct ips_call call;
};

/* One page of mapped host memory per rank and communicator, which the other ranks' hosts see
 * too: the host writes `abort`, the device everything else. */
struct ips_control {
    uint32_t abort; /* not 0: every wait ends and no more data is moved */
    uint32_t pad0[31];
    struct ips_stuck stuck;
    uint64_t looks; /* times that all of `seen` was brought up to date */
    uint64_t pad1[9];
    uint64_t probe_done; /* 1 after the probe has ended */
    uint32_t probe_bad;  /* bit p: the words of the rank at position p wrong or late */
    uint32_t pad2[29];
    uint64_t count[IPS_COUNTERS]; /* mirror of ips_head.count */
    struct ips_note history[IPS_CALL_HISTORY]; /* calls that are shown, by ips_shown_at() */
    struct ips_note seen[IPS_MAX_RANKS][IPS_CALL_HISTORY]; /* all ranks' histories, by rank */
    struct ips_wrong wrong;
};
#define IPS_CONTROL_BYTES 4096

/* The one parameter of the AllReduce kernels. Pointers are device addresses; a position is a
 * rank's place in the ring. Grid: one block per channel; block: any multiple of 32 threads up
 * to IPS_MAX_THREADS. */
struct ips_allreduce_args {
    const void *in;
    void *out; /* may equal in */
    uint64_t count; /* elements */
    struct ips_head *head;
    void *mailbox[IPS_MAX_RANKS]; /* by position, as mapped here; the own one too */
    struct ips_control *control;
    uint32_t rank; /* own position */
    uint32_t nranks;
    uint32_t type;    /* enum ips_type */
    uint32_t op;      /* enum ips_op */
    uint32_t counter; /* index into ips_head.count */
    uint32_t element; /* bytes */
    uint8_t peer[IPS_MAX_RANKS]; /* communicator ranks by position, for reports */
    uint32_t captured; /* 1: a graph launches it, so only the device can count it */
    uint32_t group; /* ranks of each group of neighbouring positions, see ips_groups_valid();
                       0: there are none */
};

/* The rings that a rank is in. Without groups only the first. */
enum ips_ring_of {
    IPS_RING_OF_ALL = 0,
    IPS_RING_INSIDE = 1,  /* of its group */
    IPS_RING_BETWEEN = 2, /* of those who have its place in the other groups */
    IPS_RINGS = 3,
};

/* The position that is next to `position` in a ring: the one after it (direction 1) or
 * before (-1). */
IPS_BOTH uint32_t ips_ring_next(int ring, uint32_t position, int direction, uint32_t nranks,
                                uint32_t group)
{
    if (ring == IPS_RING_INSIDE)
        return position - position % group +
               (position + group + (uint32_t)direction) % group;
    const uint32_t stride = ring == IPS_RING_BETWEEN ? group : 1;
    return (position + nranks + (uint32_t)direction * stride) % nranks;
}

/* In how many of them a protocol's slots are written. */
IPS_BOTH uint32_t ips_rings(int proto, uint32_t group)
{
    return proto == IPS_SIMPLE && group ? IPS_RINGS : 1;
}

/* The one parameter of the probe kernel (one block of IPS_PROBE_THREADS threads). */
#define IPS_PROBE_THREADS (IPS_MAX_RANKS * IPS_PROBE_WORDS)
struct ips_probe_args {
    void *mailbox[IPS_MAX_RANKS];
    struct ips_control *control;
    uint64_t seed;        /* alike on all ranks; payloads derive from it, round and sender */
    uint64_t deadline_ns; /* from the kernel's start */
    uint32_t rank, nranks;
};

/* The one parameter of the two kernels that verify a call: `count` elements of it, from
 * `first` on. Any grid. */
struct ips_verify_args {
    const void *data;     /* weigh: the input; compare: the engine's result */
    const void *expected; /* NCCL's result */
    void *weights;        /* float64 for float64, else float32; NULL: there are none */
    uint64_t count, first;
    uint64_t message; /* elements of the whole call */
    struct ips_head *head;
    struct ips_control *control;
    uint32_t type, op, variant, channels;
    uint32_t element; /* bytes */
    uint32_t nranks;
};

/* Entry points of the module, and the global that guards against a module of another build. */
#define IPS_KERNEL_RING_LL "ips_ring_ll"
#define IPS_KERNEL_RING_LL128 "ips_ring_ll128"
#define IPS_KERNEL_RING_SIMPLE "ips_ring_simple"
#define IPS_KERNEL_ONESHOT_LL "ips_oneshot_ll"
#define IPS_KERNEL_ONESHOT_LL128 "ips_oneshot_ll128"
#define IPS_KERNEL_TWOSHOT_LL "ips_twoshot_ll"
#define IPS_KERNEL_TWOSHOT_LL128 "ips_twoshot_ll128"
#define IPS_KERNEL_HIERARCHICAL_SIMPLE "ips_hierarchical_simple"
/* X(function without ips_, the same in capitals): of each enum ips_variant, in its order. */
#define IPS_ALLREDUCE_KERNELS(X)                                                           \
    X(ring_ll, RING_LL)                                                                    \
    X(ring_ll128, RING_LL128)                                                              \
    X(ring_simple, RING_SIMPLE)                                                            \
    X(oneshot_ll, ONESHOT_LL)                                                              \
    X(oneshot_ll128, ONESHOT_LL128)                                                        \
    X(twoshot_ll, TWOSHOT_LL)                                                              \
    X(twoshot_ll128, TWOSHOT_LL128)                                                        \
    X(hierarchical_simple, HIERARCHICAL_SIMPLE)
#define IPS_KERNEL_PROBE "ips_probe"
#define IPS_KERNEL_WEIGH "ips_verify_weigh"
#define IPS_KERNEL_COMPARE "ips_verify_compare"
#define IPS_MODULE_VERSION "ips_module_version" /* uint32_t, IPS_WIRE_VERSION */

IPS_STATIC_ASSERT(sizeof(struct ips_word) == 128, "a polled word has its own line");
IPS_STATIC_ASSERT(offsetof(struct ips_channel, ll) % 128 == 0, "slots are line-aligned");
IPS_STATIC_ASSERT(sizeof(struct ips_channel) % 128 == 0, "channels are line-aligned");
IPS_STATIC_ASSERT(sizeof(struct ips_head) <= IPS_HEAD_BYTES, "head fits");
IPS_STATIC_ASSERT(sizeof(struct ips_mailbox) % 128 == 0, "channels are line-aligned");
IPS_STATIC_ASSERT(offsetof(struct ips_channel, inbox) % 128 == 0, "inboxes are line-aligned");
IPS_STATIC_ASSERT(sizeof(struct ips_call) == 16, "one store");
IPS_STATIC_ASSERT(sizeof(struct ips_note) == 16, "one store");
IPS_STATIC_ASSERT(offsetof(struct ips_mailbox, history) % 16 == 0, "entries are aligned");
IPS_STATIC_ASSERT(sizeof(struct ips_control) <= IPS_CONTROL_BYTES, "a page");
IPS_STATIC_ASSERT(offsetof(struct ips_control, history) % 16 == 0, "entries are aligned");
IPS_STATIC_ASSERT(offsetof(struct ips_control, seen) % 16 == 0, "entries are aligned");
IPS_STATIC_ASSERT((offsetof(struct ips_control, wrong) + offsetof(struct ips_wrong, call)) % 16
                      == 0, "one store");
IPS_STATIC_ASSERT(offsetof(struct ips_control, probe_done) % 128 == 0, "lines of their own");
IPS_STATIC_ASSERT(sizeof(struct ips_allreduce_args) == 144, "same layout everywhere");
IPS_STATIC_ASSERT(sizeof(struct ips_probe_args) == 96, "same layout everywhere");
IPS_STATIC_ASSERT(sizeof(struct ips_verify_args) == 88, "same layout everywhere");
IPS_STATIC_ASSERT(IPS_HEAD_BYTES + IPS_MAILBOX_BYTES(IPS_MAX_CHANNELS) <= 16u << 20,
                  "a slab is at most 16 MiB");
IPS_STATIC_ASSERT(IPS_INBOX_BYTES / IPS_MAX_RANKS >= 128, "every rank has a line");
/* The slot of a step is found with a mask, also across the flag's wrap. */
IPS_STATIC_ASSERT((IPS_LL_SLOTS & (IPS_LL_SLOTS - 1)) == 0, "power of two");
IPS_STATIC_ASSERT((IPS_LL128_SLOTS & (IPS_LL128_SLOTS - 1)) == 0, "power of two");
IPS_STATIC_ASSERT(IPS_SIMPLE_BYTES / IPS_SIMPLE_SLOTS_MOST % 128 == 0, "whole units");
IPS_STATIC_ASSERT(IPS_SIMPLE_BYTES / IPS_SIMPLE_SLOTS_MOST / 128 >= IPS_MAX_RANKS / 2,
                  "a slot has a unit for each group");
IPS_STATIC_ASSERT(IPS_LL_SLOTS * 4 < (1u << (IPS_LL_FLAG_BITS - 1)), "wrap outlives slots");

#endif
