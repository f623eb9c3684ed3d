/* SPDX-License-Identifier: Apache-2.0 */
/* One measurement: the owners of the memory prepare it and wait, then each actor stores
 * to, loads from or copies to its peer's memory; all pairs of the set at once. Twice,
 * since the first time warms up; the second is timed. */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "tools/links.h"

#define DEADLINE_NS 500000000u
#define CLEAR 0x11 /* what memory holds before: no data is like it */
enum { ON_IN, ON_OUT };

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int links_enter(struct links_machine *m, unsigned gpu)
{
    gpu_context ignored;
    if (m->entered == (int)gpu)
        return 0;
    if (m->entered >= 0)
        LINKS_TRY(m->gpu->cuCtxPopCurrent(&ignored));
    m->entered = -1;
    LINKS_TRY(m->gpu->cuCtxPushCurrent(m->at[gpu].context));
    m->entered = (int)gpu;
    return 0;
}

/* Polls: on the stand-in, a stream is a thread that needs the core. */
int links_wait(struct links_machine *m, unsigned gpu, gpu_stream stream)
{
    int error;
    LINKS_TRY(links_enter(m, gpu));
    while ((error = m->gpu->cuStreamQuery(stream)) == GPU_ERROR_NOT_READY)
        sched_yield();
    return error;
}

static int launch(struct links_machine *m, unsigned gpu, int stream,
                  gpu_function function, gpu_ptr data, gpu_ptr flag, uint64_t seed,
                  unsigned passes)
{
    const struct links_gpu *at = &m->at[gpu];
    struct ips_link_args args = {
        .data = (void *)(uintptr_t)data,
        .flag = (struct ips_word *)(uintptr_t)flag,
        .result = (struct ips_link_result *)(uintptr_t)at->result[stream],
        .seed = seed,
        .units = m->units,
        .deadline_ns = DEADLINE_NS,
        .passes = passes,
    };
    void *parameters[] = {&args};
    LINKS_TRY(links_enter(m, gpu));
    return m->gpu->cuLaunchKernel(function, m->blocks, 1, 1, m->threads, 1, 1, 0,
                                  stream == ON_IN ? at->in : at->out, parameters, NULL);
}

/* Waits for the kernel. */
static int read_seen(struct links_machine *m, unsigned gpu, int stream,
                     struct links_seen *ret)
{
    static struct ips_link_result result[IPS_LINK_MAX_BLOCKS * IPS_LINK_MAX_THREADS / 32];
    const struct links_gpu *at = &m->at[gpu];
    const gpu_stream on = stream == ON_IN ? at->in : at->out;
    const unsigned warps = m->blocks * m->threads / 32;
    uint64_t start = UINT64_MAX, end = 0;
    LINKS_TRY(links_wait(m, gpu, on));
    LINKS_TRY(m->gpu->cuMemcpyDtoHAsync(result, at->result[stream],
                                        warps * sizeof *result, on));
    LINKS_TRY(m->gpu->cuStreamSynchronize(on));
    *ret = (struct links_seen){.first = UINT64_MAX};
    for (unsigned i = 0; i < warps; i++) {
        ret->late += result[i].late;
        ret->wrong += result[i].wrong;
        ret->blank += result[i].blank;
        ret->first = result[i].first < ret->first ? result[i].first : ret->first;
        start = result[i].start_ns < start ? result[i].start_ns : start;
        end = result[i].end_ns > end ? result[i].end_ns : end;
    }
    ret->seconds = end > start ? (double)(end - start) * 1e-9 : 0;
    return 0;
}

int links_check(struct links_machine *m, unsigned gpu, gpu_ptr data, uint64_t seed,
                struct links_seen *ret)
{
    LINKS_TRY(launch(m, gpu, ON_OUT, m->at[gpu].check, data, 0, seed, 1));
    return read_seen(m, gpu, ON_OUT, ret);
}

/* --- the host as the owner --- */

static void host_fill(struct links_machine *m, uint64_t seed)
{
    uint64_t *half = (uint64_t *)(void *)(m->host + LINKS_DATA);
    for (uint64_t i = 0; i < 2 * m->units; i++)
        __atomic_store_n(&half[i], ips_link_word(seed, i), __ATOMIC_RELEASE);
}

static int host_awaits(struct links_machine *m, uint64_t seed)
{
    const struct ips_word *flag = (const struct ips_word *)(void *)m->host;
    const double end = now_s() + DEADLINE_NS * 1e-9;
    for (unsigned block = 0; block < m->blocks; block++)
        while (__atomic_load_n(&flag[block].value, __ATOMIC_ACQUIRE) != seed) {
            if (now_s() > end)
                return 0;
            sched_yield();
        }
    return 1;
}

static void host_check(struct links_machine *m, int flagged, struct links_pair *pair)
{
    const uint64_t *half = (const uint64_t *)(void *)(m->host + LINKS_DATA);
    pair->owner = (struct links_seen){.first = UINT64_MAX};
    if (flagged && !host_awaits(m, pair->seed)) {
        pair->owner.late = 1;
        return;
    }
    for (uint64_t i = 0; i < m->units; i++)
        if (half[2 * i] != ips_link_word(pair->seed, 2 * i) ||
            half[2 * i + 1] != ips_link_word(pair->seed, 2 * i + 1)) {
            pair->owner.wrong++;
            pair->owner.first = i < pair->owner.first ? i : pair->owner.first;
        }
}

/* --- the steps --- */

static int clear(struct links_machine *m, unsigned to)
{
    if (to == IPS_VERDICTS_HOST) {
        memset(m->host, CLEAR, LINKS_DATA + m->bytes);
        return 0;
    }
    LINKS_TRY(links_enter(m, to));
    LINKS_TRY(m->gpu->cuMemsetD8Async(m->at[to].inbox, CLEAR, LINKS_DATA + m->bytes,
                                      m->at[to].in));
    return m->gpu->cuStreamSynchronize(m->at[to].in);
}

static int fill(struct links_machine *m, unsigned owner, uint64_t seed)
{
    if (owner == IPS_VERDICTS_HOST) {
        host_fill(m, seed);
        return 0;
    }
    LINKS_TRY(
        launch(m, owner, ON_IN, m->at[owner].store, m->at[owner].outbox, 0, seed, 1));
    return links_wait(m, owner, m->at[owner].in);
}

static int prepare(struct links_machine *m, enum ips_link_method method,
                   struct links_pair *pair)
{
    /* Odd, so never 0, and another each time: what was there before does not pass. */
    pair->seed = ++m->turns * 0xd1b54a32d192ed03ull | 1;
    memset(&pair->actor, 0, sizeof pair->actor);
    memset(&pair->owner, 0, sizeof pair->owner);
    pair->kind = IPS_LINK_OK;
    pair->detail[0] = 0;
    if (method == IPS_LINK_LOADS)
        return fill(m, pair->to, pair->seed);
    LINKS_TRY(clear(m, pair->to));
    return method == IPS_LINK_COPIES ? fill(m, pair->from, pair->seed) : 0;
}

static gpu_ptr inbox_of(const struct links_machine *m, const struct links_pair *pair)
{
    return pair->to == IPS_VERDICTS_HOST ? m->at[pair->from].host : m->at[pair->to].inbox;
}

/* The owner's kernel waits for the flags before there are any. */
static int start_owner(struct links_machine *m, enum ips_link_method method,
                       const struct links_pair *pair)
{
    if (method != IPS_LINK_STORES || pair->to == IPS_VERDICTS_HOST)
        return 0;
    const struct links_gpu *to = &m->at[pair->to];
    return launch(m, pair->to, ON_IN, to->check, to->inbox + LINKS_DATA, to->inbox,
                  pair->seed, 1);
}

static int start_actor(struct links_machine *m, enum ips_link_method method,
                       const struct links_pair *pair)
{
    const struct links_gpu *from = &m->at[pair->from];
    const gpu_ptr inbox = inbox_of(m, pair);
    if (method == IPS_LINK_STORES)
        return launch(m, pair->from, ON_OUT, from->store, inbox + LINKS_DATA, inbox,
                      pair->seed, m->passes[method]);
    if (method == IPS_LINK_LOADS)
        return launch(m, pair->from, ON_OUT, from->check,
                      pair->to == IPS_VERDICTS_HOST ? inbox + LINKS_DATA
                                                    : m->at[pair->to].outbox,
                      0, pair->seed, m->passes[method]);
    LINKS_TRY(links_enter(m, pair->from));
    for (unsigned pass = 0; pass < m->passes[method]; pass++)
        LINKS_TRY(m->copy(inbox + LINKS_DATA, from->outbox, m->bytes, from->out));
    return 0;
}

/* Notes when each actor has done. */
static int wait_actors(struct links_machine *m, struct links_set *set, double start)
{
    uint32_t left = (1u << set->count) - 1;
    for (; left; sched_yield())
        for (unsigned i = 0; i < set->count; i++) {
            if (!(left >> i & 1))
                continue;
            LINKS_TRY(links_enter(m, set->pair[i].from));
            const int error = m->gpu->cuStreamQuery(m->at[set->pair[i].from].out);
            if (error == GPU_ERROR_NOT_READY)
                continue;
            LINKS_TRY(error);
            set->pair[i].seconds = now_s() - start;
            left &= ~(1u << i);
        }
    return 0;
}

static int finish(struct links_machine *m, enum ips_link_method method,
                  struct links_pair *pair)
{
    const int host = pair->to == IPS_VERDICTS_HOST;
    if (method != IPS_LINK_COPIES) {
        LINKS_TRY(read_seen(m, pair->from, ON_OUT, &pair->actor));
        pair->seconds = pair->actor.seconds;
    }
    if (method != IPS_LINK_LOADS && host)
        host_check(m, method == IPS_LINK_STORES, pair);
    if (method == IPS_LINK_LOADS || host)
        return 0;
    if (method == IPS_LINK_COPIES)
        LINKS_TRY(launch(m, pair->to, ON_IN, m->at[pair->to].check,
                         m->at[pair->to].inbox + LINKS_DATA, 0, pair->seed, 1));
    return read_seen(m, pair->to, ON_IN, &pair->owner);
}

static int once(struct links_machine *m, struct links_set *set, int *ret_bad)
{
    *ret_bad = 0;
    for (unsigned i = 0; i < set->count; i++)
        LINKS_TRY(prepare(m, set->method, &set->pair[i]));
    for (unsigned i = 0; i < set->count; i++)
        LINKS_TRY(start_owner(m, set->method, &set->pair[i]));
    const double start = now_s();
    for (unsigned i = 0; i < set->count; i++)
        LINKS_TRY(start_actor(m, set->method, &set->pair[i]));
    LINKS_TRY(wait_actors(m, set, start));
    for (unsigned i = 0; i < set->count; i++)
        LINKS_TRY(finish(m, set->method, &set->pair[i]));
    for (unsigned i = 0; i < set->count; i++) {
        LINKS_TRY(links_judge(m, set->method, &set->pair[i]));
        *ret_bad |= set->pair[i].kind != IPS_LINK_OK;
    }
    return 0;
}

static int any_late(const struct links_set *set)
{
    for (unsigned i = 0; i < set->count; i++)
        if (set->pair[i].kind == IPS_LINK_LATE)
            return 1;
    return 0;
}

/* Late may be a GPU that was busy with something else: that passes. Anything else stays.
 */
static int once_more(struct links_machine *m, struct links_set *set)
{
    const struct links_set before = *set;
    int bad;
    LINKS_TRY(once(m, set, &bad));
    for (unsigned i = 0; i < set->count; i++)
        if (before.pair[i].kind != IPS_LINK_OK && before.pair[i].kind != IPS_LINK_LATE)
            set->pair[i] = before.pair[i];
    return 0;
}

int links_measure(struct links_machine *m, struct links_set *set)
{
    int bad = 0;
    for (unsigned turn = 0; turn < 2 && !bad; turn++)
        LINKS_TRY(once(m, set, &bad));
    return any_late(set) ? once_more(m, set) : 0;
}
