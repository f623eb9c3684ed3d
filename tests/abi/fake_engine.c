/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for core/engine.c, which notes what it was asked in the fake NCCL's log, so
 * that a test sees the order of the shim's calls to both. FAKE_ENGINE chooses what it
 * does: "agree" (the default), "decline", "none" (no bringup at all), "meet" (agree once
 * all ranks with one key have started, in this process), "never" (always pending).
 * FAKE_ENGINE_STUCK: calls end by an abort only. FAKE_ENGINE_BUSY: they still run.
 * FAKE_ENGINE_ERROR_US, FAKE_ENGINE_DESTROY_US: those take this long. FAKE_ENGINE_KEYS
 * notes the keys as well, by number. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/engine.h"
#include "core/join.h"
#include "core/verify.h"

struct ips_bringup {
    int rank, nranks, key;
    struct ips_policy_settings_bytes {
        unsigned char bytes[IPS_SETTINGS_BYTES];
    } settings;
    size_t settings_bytes;
    struct ips_planner planner;
};

struct ips_engine {
    int rank, error;
    uint64_t replayed;
};

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    char text[128];
    va_list args;
    void (*fake_note)(const char *) =
        (void (*)(const char *))dlsym(RTLD_DEFAULT, "fake_note");
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (fake_note)
        fake_note(text);
}

static int does(const char *what)
{
    const char *choice = getenv("FAKE_ENGINE");
    return strcmp(choice ? choice : "agree", what) == 0;
}

static long number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 0) : 0;
}

/* The keys seen so far, and how many bringups with each have started. */
#define KEYS 1024
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    unsigned char bytes[IPS_KEY_BYTES];
    int started, dropped;
} keys[KEYS];
static int key_count;

static int key_number(const struct ips_bringup_config *config)
{
    unsigned char bytes[IPS_KEY_BYTES] = {0};
    int i;
    memcpy(bytes, config->key, config->key_bytes);
    pthread_mutex_lock(&lock);
    for (i = 0; i < key_count && memcmp(keys[i].bytes, bytes, sizeof bytes); i++)
        ;
    if (i == key_count)
        memcpy(keys[key_count++].bytes, bytes, sizeof bytes);
    pthread_mutex_unlock(&lock);
    return i;
}

struct ips_bringup *ips_bringup_create(const struct ips_bringup_config *config,
                                       char *ret_reason)
{
    int key = getenv("FAKE_ENGINE_KEYS") || does("meet") ? key_number(config) : -1;
    if (getenv("FAKE_ENGINE_KEYS"))
        note("create(%d, key %d)", config->rank, key);
    else
        note("create(%d)", config->rank);
    if (does("none")) {
        snprintf(ret_reason, IPS_REASON_BYTES, "fake: none");
        return NULL;
    }
    struct ips_bringup *bringup = calloc(1, sizeof *bringup);
    bringup->rank = config->rank;
    bringup->key = key;
    bringup->settings_bytes = config->settings_bytes;
    memcpy(&bringup->settings, config->settings, config->settings_bytes);
    bringup->planner = config->planner;
    return bringup;
}

void ips_bringup_start(struct ips_bringup *bringup, int nranks, int rank, int device)
{
    bringup->rank = rank;
    bringup->nranks = nranks;
    note("start(%d/%d, %d)", rank, nranks, device);
    if (bringup->key >= 0)
        __atomic_fetch_add(&keys[bringup->key].started, 1, __ATOMIC_SEQ_CST);
}

enum ips_bringup_state ips_bringup_poll(struct ips_bringup *bringup)
{
    if (does("never"))
        return IPS_BRINGUP_PENDING;
    if (does("decline"))
        return IPS_BRINGUP_DECLINED;
    if (!does("meet"))
        return IPS_BRINGUP_AGREED;
    if (__atomic_load_n(&keys[bringup->key].dropped, __ATOMIC_SEQ_CST))
        return IPS_BRINGUP_DECLINED;
    int started = __atomic_load_n(&keys[bringup->key].started, __ATOMIC_SEQ_CST);
    return started < bringup->nranks ? IPS_BRINGUP_PENDING : IPS_BRINGUP_AGREED;
}

const char *ips_bringup_reason(const struct ips_bringup *bringup)
{
    (void)bringup;
    return "fake: declined";
}

struct ips_engine *ips_bringup_take(struct ips_bringup *bringup,
                                    struct ips_agreed *ret_agreed)
{
    note("take");
    *ret_agreed = (struct ips_agreed){.link = IPS_LINK_PCIE};
    memcpy(ret_agreed->settings, &bringup->settings, bringup->settings_bytes);
    const struct ips_planner *planner = &bringup->planner;
    ret_agreed->plan_bytes = planner->make(planner->context, bringup->nranks,
                                           ret_agreed->link, &ret_agreed->lineup,
                                           ret_agreed->plan);
    const int32_t other = (int32_t)number("FAKE_ENGINE_ALGO");
    if (other) /* rank 0 had another IPCSHIM_ALGO: the first member */
        memcpy(ret_agreed->settings, &other, sizeof other);
    struct ips_engine *engine = calloc(1, sizeof *engine);
    engine->rank = bringup->rank;
    engine->replayed = (uint64_t)number("FAKE_ENGINE_REPLAYS");
    bringup->nranks = -1; /* taken: its end is not a decline */
    return engine;
}

void ips_bringup_destroy(struct ips_bringup *bringup)
{
    if (bringup)
        note("drop");
    if (bringup && bringup->nranks >= 0 && bringup->key >= 0)
        __atomic_store_n(&keys[bringup->key].dropped, 1, __ATOMIC_SEQ_CST);
    free(bringup);
}

int ips_engine_allreduce(struct ips_engine *engine, const struct ips_allreduce *call,
                         int *ret_captured)
{
    note("allreduce(%d,%llu)", engine->rank, (unsigned long long)call->count);
    *ret_captured = (uintptr_t)call->stream == 0xca;
    if (__atomic_load_n(&engine->error, __ATOMIC_ACQUIRE))
        return -EIO;
    if (call->count == 666)
        return -ENOMEM;
    return 0;
}

int ips_engine_verifies(const struct ips_engine *engine)
{
    (void)engine;
    return 1;
}

void ips_engine_verify_broken(struct ips_engine *engine)
{
    note("broken(%d)", engine->rank);
}

int ips_engine_verify_begin(struct ips_engine *engine, const struct ips_allreduce *call,
                            uint64_t number, struct ips_verify_plan *ret_plan)
{
    (void)number;
    note("weigh(%d,%llu)", engine->rank, (unsigned long long)call->count);
    *ret_plan = (struct ips_verify_plan){
        .count = call->count,
        .expected = ret_plan,
        .weights = call->op == IPS_MAX ? NULL : ret_plan,
        .weights_type = IPS_FLOAT32,
    };
    return engine->error;
}

int ips_engine_verify_end(struct ips_engine *engine, const struct ips_allreduce *call,
                          const struct ips_verify_plan *plan)
{
    (void)call;
    note("compare(%d,%llu)", engine->rank, (unsigned long long)plan->count);
    return 0;
}

int ips_engine_forward_begin(struct ips_engine *engine, gpu_stream stream)
{
    note("begin(%d,%llx)", engine->rank, (unsigned long long)(uintptr_t)stream);
    return engine->error;
}

int ips_engine_forward_end(struct ips_engine *engine, gpu_stream stream)
{
    note("end(%d,%llx)", engine->rank, (unsigned long long)(uintptr_t)stream);
    return 0;
}

int ips_engine_join(struct ips_engine *engine, gpu_stream from, gpu_stream to)
{
    note("join(%d,%llx>%llx)", engine->rank, (unsigned long long)(uintptr_t)from,
         (unsigned long long)(uintptr_t)to);
    return engine->error;
}

int ips_engine_drain(struct ips_engine *engine)
{
    note("drain(%d)", engine->rank);
    while (getenv("FAKE_ENGINE_STUCK") &&
           !__atomic_load_n(&engine->error, __ATOMIC_ACQUIRE))
        usleep(100);
    return engine->error;
}

int ips_engine_idle(const struct ips_engine *engine)
{
    return !getenv("FAKE_ENGINE_BUSY") || engine->error;
}

void ips_engine_abort(struct ips_engine *engine)
{
    note("abort");
    __atomic_store_n(&engine->error, -ECANCELED, __ATOMIC_RELEASE);
}

int ips_engine_error(const struct ips_engine *engine)
{
    usleep((useconds_t)number("FAKE_ENGINE_ERROR_US"));
    return number("FAKE_ENGINE_ERROR") ? -(int)number("FAKE_ENGINE_ERROR")
                                       : engine->error;
}

unsigned ips_engine_channels(const struct ips_engine *engine)
{
    (void)engine;
    return IPS_MAX_CHANNELS;
}

int ips_engine_set_group(struct ips_engine *engine, unsigned group)
{
    (void)engine, (void)group;
    return 0;
}

enum ips_link ips_engine_link(const struct ips_engine *engine)
{
    (void)engine;
    return IPS_LINK_PCIE;
}

void ips_engine_counts(const struct ips_engine *engine, uint64_t *ret_counts)
{
    memset(ret_counts, 0, IPS_COUNTERS * sizeof *ret_counts);
    /* All launches of the tests are LL calls of 4 bytes: class 2. */
    ret_counts[IPS_LL * IPS_SIZE_CLASSES + 2] = engine->replayed;
}

void ips_engine_destroy(struct ips_engine *engine)
{
    if (!engine)
        return;
    if (number("FAKE_ENGINE_DESTROY_US"))
        note("destroying(%d)", engine->rank);
    usleep((useconds_t)number("FAKE_ENGINE_DESTROY_US"));
    note("destroy(%d)", engine->rank);
    memset(engine, 0xee, sizeof *engine); /* a use after this will show */
    free(engine);
}

const struct ips_gpu_api *ips_gpu(void)
{
    static const struct ips_gpu_api none;
    return &none;
}

int ips_stream_captured(gpu_stream stream)
{
    return (uintptr_t)stream == 0xca;
}

void ips_core_child(void)
{
}

void ips_core_exit(void)
{
}
