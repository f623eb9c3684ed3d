/* SPDX-License-Identifier: Apache-2.0 */
/* What became of data that did not arrive as it should: looks where it could be, a second
 * later. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tools/links.h"

/* What an inbox holds. */
struct found {
    uint64_t right, changed, first; /* units: as sent; neither that nor as before */
    unsigned flags;
};

static void find(struct links_pair *pair, enum ips_link_kind kind, const char *format,
                 ...) __attribute__((format(printf, 3, 4)));
static void find(struct links_pair *pair, enum ips_link_kind kind, const char *format,
                 ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(pair->detail, sizeof pair->detail, format, args);
    va_end(args);
    pair->kind = kind;
}

static void wait_a_second(void)
{
    const struct timespec second = {1, 0};
    nanosleep(&second, NULL);
}

static int look_into(struct links_machine *m, unsigned owner, uint64_t seed,
                     struct found *ret)
{
    const unsigned char *inbox = m->look;
    const struct ips_word *flag = (const void *)m->look;
    *ret = (struct found){.first = UINT64_MAX};
    if (owner == IPS_VERDICTS_HOST) {
        memcpy(m->look, m->host, LINKS_DATA + m->bytes);
    } else {
        LINKS_TRY(links_enter(m, owner));
        LINKS_TRY(m->gpu->cuMemcpyDtoHAsync(m->look, m->at[owner].inbox,
                                            LINKS_DATA + m->bytes, m->at[owner].in));
        LINKS_TRY(m->gpu->cuStreamSynchronize(m->at[owner].in));
    }
    const uint64_t *half = (const void *)(inbox + LINKS_DATA);
    /* What comes behind the last flag stays as it was cleared. */
    const uint64_t *before = (const void *)(inbox + LINKS_DATA - 16);
    for (uint64_t i = 0; i < m->units; i++) {
        const int right = half[2 * i] == ips_link_word(seed, 2 * i) &&
                          half[2 * i + 1] == ips_link_word(seed, 2 * i + 1);
        const int same = half[2 * i] == before[0] && half[2 * i + 1] == before[1];
        ret->right += (uint64_t)right;
        ret->changed += !right && !same;
        if (!right && !same && i < ret->first)
            ret->first = i;
    }
    for (unsigned block = 0; block < m->blocks; block++)
        ret->flags += flag[block].value == seed;
    return 0;
}

/* Nothing has arrived: where else is it? */
static int search(struct links_machine *m, struct links_pair *pair)
{
    struct links_seen seen;
    struct found found;
    for (unsigned gpu = 0; gpu < m->page->gpus; gpu++) {
        if (gpu == pair->to)
            continue;
        LINKS_TRY(look_into(m, gpu, pair->seed, &found));
        if (found.right) {
            find(pair, IPS_LINK_MIRRORS, "it is in the memory of GPU %s",
                 m->page->gpu[gpu][0]);
            return 0;
        }
    }
    if (pair->to != IPS_VERDICTS_HOST) {
        LINKS_TRY(links_check(m, pair->from, m->at[pair->to].inbox + LINKS_DATA,
                              pair->seed, &seen));
        if (seen.wrong < m->units && !seen.late) {
            find(pair, IPS_LINK_MIRRORS,
                 "who wrote reads it back, the owner does not see it");
            return 0;
        }
    }
    find(pair, IPS_LINK_DROPS, "nothing of %" PRIu64 " KB arrived", m->bytes >> 10);
    return 0;
}

static int judge_written(struct links_machine *m, int flagged, struct links_pair *pair)
{
    struct found found;
    if (!pair->owner.late && !pair->owner.wrong)
        return 0;
    if (pair->actor.late) {
        find(pair, IPS_LINK_LATE, "%" PRIu64 " MB take more than 0.5 s",
             m->passes[IPS_LINK_STORES] * m->bytes >> 20);
        return 0;
    }
    wait_a_second();
    LINKS_TRY(look_into(m, pair->to, pair->seed, &found));
    const int all_flags = !flagged || found.flags == m->blocks;
    if (found.changed)
        find(pair, IPS_LINK_CORRUPTS,
             "%" PRIu64 " of %" PRIu64 " units of 16 bytes, the first at byte %" PRIu64,
             found.changed, m->units, 16 * found.first);
    else if (found.right == m->units && all_flags && pair->owner.late)
        find(pair, IPS_LINK_LATE, "it arrives, but not within 0.5 s");
    else if (found.right == m->units && all_flags)
        find(pair, IPS_LINK_LATE, "a flag, or the copy's end, comes before the data");
    else if (found.right)
        find(pair, IPS_LINK_DROPS,
             "%" PRIu64 " of %" PRIu64 " units of 16 bytes and %u of %u "
             "flags arrived",
             found.right, m->units, found.flags, flagged ? m->blocks : 0);
    else
        return search(m, pair);
    return 0;
}

static int judge_read(struct links_machine *m, struct links_pair *pair)
{
    const uint64_t all = m->passes[IPS_LINK_LOADS] * m->units, wrong = pair->actor.wrong;
    const uint64_t blank = pair->actor.blank, first = pair->actor.first;
    struct links_seen again;
    if (!pair->actor.late && !wrong)
        return 0;
    if (pair->actor.late && !wrong) {
        find(pair, IPS_LINK_LATE, "%" PRIu64 " MB take more than 0.5 s",
             m->passes[IPS_LINK_LOADS] * m->bytes >> 20);
        return 0;
    }
    wait_a_second();
    LINKS_TRY(links_check(m, pair->from,
                          pair->to == IPS_VERDICTS_HOST
                              ? m->at[pair->from].host + LINKS_DATA
                              : m->at[pair->to].outbox,
                          pair->seed, &again));
    if (!again.wrong && !again.late)
        find(pair, IPS_LINK_LATE, "old data at first: %" PRIu64 " of %" PRIu64 " units",
             wrong, all);
    else if (blank == wrong)
        find(pair, IPS_LINK_DROPS,
             "%" PRIu64 " of %" PRIu64 " reads give only zeros or ones", wrong, all);
    else
        find(pair, IPS_LINK_CORRUPTS,
             "%" PRIu64 " of %" PRIu64 " units of 16 bytes, the first at byte %" PRIu64,
             wrong, all, 16 * first);
    return 0;
}

int links_judge(struct links_machine *m, enum ips_link_method method,
                struct links_pair *pair)
{
    return method == IPS_LINK_LOADS ? judge_read(m, pair)
                                    : judge_written(m, method == IPS_LINK_STORES, pair);
}
