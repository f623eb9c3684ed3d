/* SPDX-License-Identifier: Apache-2.0 */
/* How events look as JSON lines. */
#ifndef IPS_SHIM_TRACE_FORMAT_H
#define IPS_SHIM_TRACE_FORMAT_H

#include "shim/text.h"
#include "shim/trace.h"

/* {"event":"...","time":...,"pid":...  -- no closing brace. */
void ips_format_head(struct ips_text *text, const char *event, uint64_t time_ns, int pid);
void ips_format_start(struct ips_text *text, const struct ips_trace_config *config,
                      int pid);
void ips_format_event(struct ips_text *text, const struct ips_event *event, int pid);
void ips_format_dropped(struct ips_text *text, uint64_t now, uint64_t total, int pid);

#endif
