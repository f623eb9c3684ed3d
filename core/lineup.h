/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's choice of the order in which the ranks stand in the ring, by where this
 * machine's GPUs sit. */
#ifndef IPS_CORE_LINEUP_H
#define IPS_CORE_LINEUP_H

#include "core/segment.h"

#define IPS_RING_TEXT_BYTES 160

/* records: of all ranks, by rank, which say on which GPUs they are; `link` is what their
 * data crosses. Reads /sys where the order matters: some milliseconds at most. Where it
 * says nothing the ranks stand by number. ret_text[IPS_RING_TEXT_BYTES]: one line for
 * people, or "" where nothing was found out. */
void ips_lineup_find(const struct ips_record *const *records, int nranks,
                     enum ips_link link, struct ips_lineup *ret, char *ret_text);

#endif
