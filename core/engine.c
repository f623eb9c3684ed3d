/* SPDX-License-Identifier: Apache-2.0 */
/* Placeholder while the engine is written: declines every communicator. */
#include "core/engine.h"
#include <errno.h>
#include <stdio.h>
struct ips_bringup *ips_bringup_create(const struct ips_bringup_config *c, char *r)
{
    (void)c;
    snprintf(r, IPS_REASON_BYTES, "engine not built yet");
    return NULL;
}
void ips_bringup_start(struct ips_bringup *b, int d) { (void)b; (void)d; }
enum ips_bringup_state ips_bringup_poll(struct ips_bringup *b) { (void)b; return IPS_BRINGUP_DECLINED; }
void ips_bringup_wait(struct ips_bringup **b, size_t n) { (void)b; (void)n; }
const char *ips_bringup_reason(const struct ips_bringup *b) { (void)b; return ""; }
struct ips_engine *ips_bringup_take(struct ips_bringup *b, void *s) { (void)b; (void)s; return NULL; }
void ips_bringup_destroy(struct ips_bringup *b) { (void)b; }
int ips_engine_allreduce(struct ips_engine *e, const struct ips_allreduce *c, int *r) { (void)e; (void)c; (void)r; return -EIO; }
int ips_engine_forward_begin(struct ips_engine *e, gpu_stream s) { (void)e; (void)s; return 0; }
int ips_engine_forward_end(struct ips_engine *e, gpu_stream s) { (void)e; (void)s; return 0; }
void ips_engine_abort(struct ips_engine *e) { (void)e; }
int ips_engine_error(const struct ips_engine *e) { (void)e; return 0; }
void ips_engine_counts(const struct ips_engine *e, uint64_t *r) { (void)e; (void)r; }
void ips_engine_destroy(struct ips_engine *e) { (void)e; }
int ips_stream_captured(gpu_stream s) { (void)s; return 0; }
void ips_core_child(void) {}
