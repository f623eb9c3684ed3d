/* SPDX-License-Identifier: Apache-2.0 */
/* What the stand-in NCCL of these tests tells about the calls that reached it. */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include <stddef.h>

/* The names of all calls since the last reset, in order, each followed by ';'. The fake
 * engine adds its own. */
const char *fake_log(void);
void fake_note(const char *text);
void fake_reset(void);

/* What the last init call received. */
const void *fake_last_id(void);
const void *fake_last_config(void);
/* NCCL's own group depth on this thread. */
int fake_depth(void);
/* Destroyed handles are kept from now on; the next two communicators get these handles.
 */
void fake_keep(void);
void fake_reuse(void *first, void *second);
/* Non-blocking communicators made from now on are in progress, and a non-blocking one
 * that is split gets its child's handle written by another thread, until fake_finish says
 * how they end. */
void fake_slow(void);
void fake_finish(int result);
/* Communicators split from now on have this many ranks; 0: as many as their parent. */
void fake_child_ranks(int nranks);
/* How many loaded objects were shown to those who looked through them. */
int fake_objects_shown(void);
/* The next call of any kind returns this instead of success, once. */
void fake_fail_next(int result);

#endif
