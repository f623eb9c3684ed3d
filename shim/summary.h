/* SPDX-License-Identifier: Apache-2.0 */
/* The summary: how often each call was made, by size class and route, with its bytes.
 * Counting never waits. A size class holds the sizes from a power of two up to the next.
 */
#ifndef IPS_SHIM_SUMMARY_H
#define IPS_SHIM_SUMMARY_H

#include "kernels/wire.h"
#include "shim/text.h"
#include "shim/trace.h"

/* Reserves the counters; 0 or -ENOMEM. */
int ips_summary_start(void);
void ips_summary_count(const struct ips_event *event);

/* Where the executions come from that the host did not launch (replays of graphs): a
 * function that adds those of all living communicators, and those of ended ones. Indexed
 * like ips_engine_counts. */
typedef void ips_summary_source(uint64_t *counts);
void ips_summary_set_source(ips_summary_source *source); /* NULL: none any more */
void ips_summary_retire(const uint64_t *counts);

/* Changes with every counted call and every replay. */
uint64_t ips_summary_version(void);

/* One JSON line, {"event":"summary",...,"rows":[...]}; bytes of replays are null. */
void ips_summary_json(struct ips_text *text, const char *occasion, int rank, int pid);
/* A table for people. */
void ips_summary_table(struct ips_text *text, int rank, int pid, uint64_t dropped);

#endif
