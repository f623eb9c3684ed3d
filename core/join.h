/* SPDX-License-Identifier: Apache-2.0 */
/* Where the streams of a communicator meet: part of the door of core/, for groups and for
 * the end. Errors and threads as in core/engine.h. */
#ifndef IPS_CORE_JOIN_H
#define IPS_CORE_JOIN_H

#include "core/engine.h"

/* What is enqueued on `to` from now on waits for what is on `from` now; in a capture, in
 * the graph. The streams are of the engine's device. Never waits on the host. */
int ips_engine_join(struct ips_engine *engine, gpu_stream from, gpu_stream to);

/* Waits until this rank's enqueued calls have ended, or the engine has failed or was
 * aborted: then the negative errno. */
int ips_engine_drain(struct ips_engine *engine);

/* Whether that wait would be over. Any thread before ips_engine_destroy. */
int ips_engine_idle(const struct ips_engine *engine);

#endif
