/* SPDX-License-Identifier: Apache-2.0 */
/* What the control pages and records of a communicator's ranks say about a wait: pure
 * functions of them, of /proc and of the time. What a rank has done, its own page tells of
 * few calls; the rest is what the device of a rank that waits has seen. All of it was
 * written by other processes: ranks, kinds and texts are checked before they are used.
 * ret_reason has IPS_REASON_BYTES, and is written where a function says so. */
#ifndef IPS_CORE_REPORT_H
#define IPS_CORE_REPORT_H

#include "core/segment.h"
#include "core/watch.h"

/* The record of the rank's wait that is going on. Whether there is one. */
int ips_report_read(const struct ips_control *control, struct ips_stuck *ret_stuck);

/* The error that a rank fails with because the one in the slot has failed: the same, but
 * that what is that rank's own matter (-EIO) is a lost peer here. The reason names it. */
int ips_report_failure(const struct ips_segment *segment, int slot, char *ret_reason);

/* A peer that will do nothing more for this wait: -EOWNERDEAD (its process has ended) or
 * -ECONNRESET (its program has aborted or destroyed the communicator) with the reason, or
 * 0. One that had done the call before it left is not to blame. */
int ips_report_gone(const struct ips_segment *segment, const struct ips_stuck *stuck,
                    uint64_t age_ns, char *ret_reason);

/* A peer whose call of the same number is another one: -EPROTO with the reason, or 0. */
int ips_report_mismatch(const struct ips_segment *segment, const struct ips_stuck *stuck,
                        char *ret_reason);

/* This rank's last call that is done and shown to the hosts, as if it waited in it. Whether
 * there is one. */
int ips_report_last(const struct ips_segment *segment, struct ips_stuck *ret_stuck);

/* One line on who waits for whom, who is behind and how far all are; from one of the
 * waiting ranks. pulse: of all ranks, when they were last seen alive. */
void ips_report_wait(const struct ips_segment *segment, const struct ips_stuck *stuck,
                     uint64_t age_ns, uint64_t now_ns, const struct ips_pulse *pulse);

/* The same, shorter, as the reason for giving up. */
void ips_report_timeout(const struct ips_segment *segment, const struct ips_stuck *stuck,
                        uint32_t timeout_s, uint64_t now_ns,
                        const struct ips_pulse *pulse, char *ret_reason);

#endif
