/* SPDX-License-Identifier: Apache-2.0 */
/* Once per process: settings, trace, fork and exit. The constructor does nothing; there
 * is none. */
#include "shim/process.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/engine.h"
#include "core/log.h"
#include "shim/settings.h"
#include "shim/summary.h"
#include "shim/trace.h"

int ips_passive;

static pthread_once_t begin_once = PTHREAD_ONCE_INIT;
static pthread_once_t ready_once = PTHREAD_ONCE_INIT;
static int first_rank = -1;

static void child_after_fork(void)
{
    ips_passive = 1;
    ips_trace_child();
    ips_core_child();
}

static void begin(void)
{
    const struct ips_settings *settings = ips_settings();
    const struct ips_settings_problems *problems = ips_settings_problems();
    ips_log_set_level((enum ips_log_level)settings->log_level);
    for (unsigned i = 0; i < problems->count; i++)
        ips_log(IPS_LOG_WARN, "%s", problems->text[i]);
    pthread_atfork(NULL, NULL, child_after_fork);
    if (ips_real_path())
        ips_log(IPS_LOG_INFO, "NCCL is %s (found by %s)", ips_real_path(),
                ips_real_how());
    struct ips_trace_config config = {
        .path = settings->trace,
        .summary = settings->summary,
        .rank = __atomic_load_n(&first_rank, __ATOMIC_RELAXED),
        .nccl = ips_real_path(),
        .enabled = settings->enable,
    };
    ips_comm_trace_replays();
    ips_trace_start(&config);
}

void ips_process_begin(int rank)
{
    int saved = errno, none = -1;
    __atomic_compare_exchange_n(&first_rank, &none, rank < 0 ? 0 : rank, 0,
                                __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    pthread_once(&begin_once, begin);
    ips_real_warn_of_second();
    errno = saved;
}

static void at_exit(void)
{
    if (ips_passive)
        return;
    ips_trace_stop();
    /* What other exit handlers still destroy is not to be counted any more. */
    ips_summary_set_source(NULL);
}

static void ready(void)
{
    if (ips_trace_on())
        atexit(at_exit);
}

void ips_process_ready(void)
{
    pthread_once(&ready_once, ready);
}

/* A process that never got as far as a communicator has no exit handler; the trace, if
 * there is one, ends here. */
__attribute__((destructor)) static void unload(void)
{
    if (ips_passive)
        return;
    ips_core_exit();
    if (!ips_trace_on())
        return;
    ips_summary_set_source(NULL);
    ips_trace_stop();
}
