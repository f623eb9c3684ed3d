/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at the engines of the process ten times a second. An engine that waits for nobody
 * costs a few loads; only where a wait goes on are the peers looked at. */
#include "core/watch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/engine_private.h"
#include "core/log.h"
#include "core/report.h"

#define TICK_NS 100000000
/* A peer that has left, gracefully or not, may have done its part before: only a wait
 * that goes on for this long after that is hopeless. */
#define HOPELESS_NS 300000000ull
/* The device tells whether it had, every IPS_NOTICE_NS; if it does not, so be it. */
#define UNSEEN_NS 2000000000ull
#define COMPARE_NS 1000000000ull
#define SECOND_NS 1000000000ull

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ips_engine *engines;

static void beat(struct ips_engine *engine, uint64_t now)
{
    const struct ips_segment *segment = &engine->segment;
    __atomic_fetch_add(&ips_segment_slot(segment, segment->slot)->beats, 1,
                       __ATOMIC_RELAXED);
    for (int r = 0; r < segment->nranks; r++) {
        struct ips_pulse *pulse = &engine->watch.pulse[r];
        const uint32_t beats =
            __atomic_load_n(&ips_segment_record(segment, r)->beats, __ATOMIC_RELAXED);
        if (beats != pulse->beats || !pulse->at_ns)
            *pulse = (struct ips_pulse){beats, now};
    }
}

/* One rank has failed the communicator: all do. */
static int follow_failure(struct ips_engine *engine)
{
    char reason[IPS_REASON_BYTES];
    const int slot = ips_segment_failed(&engine->segment);
    if (slot < 0)
        return 0;
    const int error = ips_report_failure(&engine->segment, slot, reason);
    ips_engine_fail(engine, error, reason);
    return 1;
}

/* Whether the engine waits, and has for how long. */
static int follow_wait(struct ips_engine *engine, uint64_t now,
                       struct ips_stuck *ret_stuck, uint64_t *ret_age_ns)
{
    struct ips_watch *watch = &engine->watch;
    if (!ips_report_read(engine->slab.control, ret_stuck)) {
        watch->record = 0;
        return 0;
    }
    if (ret_stuck->state != watch->record) {
        watch->record = ret_stuck->state;
        watch->since_ns = now - IPS_NOTICE_NS;
        watch->gone_ns = 0;
        watch->reported = 0;
    }
    *ret_age_ns = now - watch->since_ns;
    return 1;
}

/* Fails the engine, if it still waits now that the cause is known: that it had waited
 * when the looking began is not enough. */
static int give_up(struct ips_engine *engine, const struct ips_stuck *stuck, int error,
                   const char *reason)
{
    struct ips_stuck again;
    if (!ips_report_read(engine->slab.control, &again) || again.state != stuck->state)
        return 0;
    ips_engine_fail(engine, error, reason);
    return error;
}

static int find_gone(struct ips_engine *engine, const struct ips_stuck *stuck,
                     uint64_t now, char *ret_reason)
{
    struct ips_watch *watch = &engine->watch;
    if (!ips_report_gone(&engine->segment, stuck, UINT64_MAX, ret_reason)) {
        watch->gone_ns = 0;
        return 0;
    }
    const uint64_t looks =
        __atomic_load_n(&engine->slab.control->looks, __ATOMIC_ACQUIRE);
    if (!watch->gone_ns) {
        watch->gone_ns = now;
        watch->gone_looks = looks;
    }
    const uint64_t gone_ns = now - watch->gone_ns;
    const int seen = looks - watch->gone_looks >= 2; /* one may have begun before */
    if (gone_ns < HOPELESS_NS || (!seen && gone_ns < UNSEEN_NS))
        return 0;
    return ips_report_gone(&engine->segment, stuck, gone_ns, ret_reason);
}

/* A wait that can't end, for a reason that is known. */
static int find_cause(struct ips_engine *engine, const struct ips_stuck *stuck,
                      uint64_t now, uint64_t age_ns)
{
    char reason[IPS_REASON_BYTES];
    int error = find_gone(engine, stuck, now, reason);
    if (!error && age_ns >= COMPARE_NS)
        error = ips_report_mismatch(&engine->segment, stuck, reason);
    return error ? give_up(engine, stuck, error, reason) : 0;
}

/* Calls that differ need not wait for each other, and their results are garbage. Seen at
 * two looks in a row it is not a record in the making. */
static int compare_done(struct ips_engine *engine)
{
    char reason[IPS_REASON_BYTES];
    struct ips_stuck last;
    const int before = engine->watch.differed;
    engine->watch.differed = 0;
    if (!ips_report_last(&engine->segment, &last) ||
        !ips_report_mismatch(&engine->segment, &last, reason))
        return 0;
    engine->watch.differed = 1;
    if (before)
        ips_engine_fail(engine, -EPROTO, reason);
    return before;
}

static void look(struct ips_engine *engine, uint64_t now)
{
    struct ips_watch *watch = &engine->watch;
    struct ips_stuck stuck;
    uint64_t age_ns;
    beat(engine, now);
    if (ips_engine_error(engine) || follow_failure(engine) || ips_verify_failed(engine) ||
        compare_done(engine) || !follow_wait(engine, now, &stuck, &age_ns) ||
        find_cause(engine, &stuck, now, age_ns))
        return;
    if (!watch->reported && age_ns >= watch->report_s * SECOND_NS) {
        watch->reported = 1;
        ips_report_wait(&engine->segment, &stuck, age_ns, now, watch->pulse);
    }
    if (watch->timeout_s && age_ns >= watch->timeout_s * SECOND_NS) {
        char reason[IPS_REASON_BYTES];
        ips_report_timeout(&engine->segment, &stuck, watch->timeout_s, now, watch->pulse,
                           reason);
        give_up(engine, &stuck, -ETIMEDOUT, reason);
    }
}

static void *run(void *nothing)
{
    const struct timespec tick = {0, TICK_NS};
    for (uint64_t last = ips_now_ns(), now;; last = now) {
        nanosleep(&tick, NULL);
        pthread_mutex_lock(&lock);
        now = ips_now_ns();
        /* This process did not run; others may have been stopped with it. */
        const int slept = now - last > SECOND_NS;
        for (struct ips_engine *engine = engines; engine; engine = engine->watch.next) {
            if (slept)
                engine->watch.since_ns = now - IPS_NOTICE_NS;
            look(engine, now);
        }
        pthread_mutex_unlock(&lock);
    }
    return nothing;
}

/* With all signals blocked: they are for the program's own threads. */
static int start(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int error = pthread_attr_init(&attributes);
    if (error)
        return -error;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attributes, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error)
        ips_log(IPS_LOG_WARN, "cannot start a thread: %s", strerror(error));
    else
        pthread_setname_np(thread, "ipcshim-watch");
    return -error;
}

int ips_watch_start(void)
{
    static int started;
    pthread_mutex_lock(&lock);
    int error = started ? 0 : start();
    started = !error;
    pthread_mutex_unlock(&lock);
    return error;
}

void ips_watch_add(struct ips_engine *engine)
{
    pthread_mutex_lock(&lock);
    engine->watch.next = engines;
    engines = engine;
    pthread_mutex_unlock(&lock);
}

void ips_watch_remove(struct ips_engine *engine)
{
    pthread_mutex_lock(&lock);
    for (struct ips_engine **at = &engines; *at; at = &(*at)->watch.next)
        if (*at == engine) {
            *at = engine->watch.next;
            break;
        }
    pthread_mutex_unlock(&lock);
}
