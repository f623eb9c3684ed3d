/* SPDX-License-Identifier: Apache-2.0 */
/* Words for waits that do not end: who waits, for whom, in which call, and who is behind.
 */
#include "core/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "kernels/names.h"

#define SILENT_NS 1000000000ull
#define SECOND_NS 1000000000ull
/* A peer that has ended may have done less of its last call than its first channel tells.
 */
#define LEFTOVER_NS 2000000000ull

/* A text of bounded length that grows. */
struct text {
    char *at;
    size_t left;
};

static void add(struct text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int wrote = vsnprintf(text->at, text->left, format, args);
    va_end(args);
    size_t more = wrote < 0 ? 0 : (size_t)wrote;
    if (more >= text->left)
        more = text->left ? text->left - 1 : 0;
    text->at += more;
    text->left -= more;
}

int ips_report_read(const struct ips_control *control, struct ips_stuck *ret_stuck)
{
    const struct ips_stuck *stuck = &control->stuck;
    uint64_t state = __atomic_load_n(&stuck->state, __ATOMIC_ACQUIRE);
    if ((state & 255) != IPS_WAIT_DATA && (state & 255) != IPS_WAIT_CREDIT)
        return 0;
    *ret_stuck = *stuck;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    ret_stuck->state = state;
    return state == __atomic_load_n(&stuck->state, __ATOMIC_RELAXED);
}

static const struct ips_control *control_of(const struct ips_segment *segment, int rank)
{
    return ips_segment_control(segment, segment->slot_of[rank]);
}

/* Whether there is a note, whole: the device writes it in two halves of 8 bytes, neither of
 * which is 0 in a note. */
static int read_note(const struct ips_note *note, struct ips_call *ret_call)
{
    uint64_t half[2];
    for (int i = 0; i < 2; i++)
        half[i] = __atomic_load_n((const uint64_t *)note + i, __ATOMIC_ACQUIRE);
    memcpy(ret_call, half, sizeof *ret_call);
    ret_call->count &= (1ull << IPS_NOTE_COUNT_BITS) - 1;
    return ret_call->number && ret_call->count &&
           half[0] >> IPS_NOTE_COUNT_BITS == (ret_call->number & 0xffff);
}

/* Calls that the rank has done, as far as this one knows: those that it shows all hosts,
 * and what this rank's device has seen of it, which is as old as its last wait, so that
 * only counts while it waits. At ret_calls[2 * IPS_CALL_HISTORY], in no order; how many. */
static int notes_of(const struct ips_segment *segment, int rank,
                    struct ips_call *ret_calls)
{
    const struct ips_control *mine = control_of(segment, segment->rank);
    const struct ips_control *theirs = control_of(segment, rank);
    struct ips_stuck stuck;
    const int waits = ips_report_read(mine, &stuck);
    int count = 0;
    for (int i = 0; i < IPS_CALL_HISTORY; i++) {
        count += read_note(&theirs->history[i], &ret_calls[count]);
        count += waits && read_note(&mine->seen[rank][i], &ret_calls[count]);
    }
    return count;
}

/* The rank's call of that number, if it is known that it is in it or has done it lately. */
static int find_call(const struct ips_segment *segment, int rank, uint32_t number,
                     struct ips_call *ret_call)
{
    struct ips_stuck stuck;
    if (ips_report_read(control_of(segment, rank), &stuck) &&
        stuck.call.number == number) {
        *ret_call = stuck.call;
        return 1;
    }
    struct ips_call calls[2 * IPS_CALL_HISTORY];
    for (int i = notes_of(segment, rank, calls); i-- > 0;)
        if (calls[i].number == number) {
            *ret_call = calls[i];
            return 1;
        }
    return 0;
}

/* Number of the last call that the rank's first channel is known to have done. */
static uint32_t done_by(const struct ips_segment *segment, int rank)
{
    struct ips_call calls[2 * IPS_CALL_HISTORY];
    const int count = notes_of(segment, rank, calls);
    uint32_t last = count ? calls[0].number : 0;
    for (int i = 1; i < count; i++)
        if ((int32_t)(calls[i].number - last) > 0)
            last = calls[i].number;
    return last;
}

int ips_report_last(const struct ips_segment *segment, struct ips_stuck *ret_stuck)
{
    const uint32_t number = done_by(segment, segment->rank);
    *ret_stuck = (struct ips_stuck){0};
    return number && find_call(segment, segment->rank, number, &ret_stuck->call);
}

static void add_call(struct text *text, const struct ips_call *call)
{
    const char *op = ips_op_name(call->op), *type = ips_type_name(call->type);
    add(text, "%s of %llu %s", op ? op : "?", (unsigned long long)call->count,
        type ? type : "?");
}

/* Whose part is waited for; a rank in any case. */
static int peer_of(const struct ips_segment *segment, const struct ips_stuck *stuck)
{
    return (int)(stuck->peer % (uint32_t)segment->nranks);
}

static void add_wait(struct text *text, const struct ips_segment *segment,
                     const struct ips_stuck *stuck)
{
    const char *variant = ips_variant_name(stuck->call.variant);
    add(text, "waits in call %u (", stuck->call.number);
    add_call(text, &stuck->call);
    add(text, ", %s) for %s rank %d, channel %u, step %llu, seen %#llx",
        variant ? variant : "?",
        (stuck->state & 255) == IPS_WAIT_CREDIT ? "a credit of" : "data of",
        peer_of(segment, stuck), stuck->channel, (unsigned long long)stuck->step,
        (unsigned long long)stuck->seen);
}

static int has_closed(const struct ips_record *record)
{
    return ips_record_state(record) == IPS_RECORD_CLOSED;
}

static int has_aborted(const struct ips_record *record)
{
    return __atomic_load_n(&record->aborted, __ATOMIC_ACQUIRE) != 0;
}

int ips_report_failure(const struct ips_segment *segment, int slot, char *ret_reason)
{
    const struct ips_record *record = ips_segment_slot(segment, slot);
    const int error = record->error;
    char reason[IPS_REASON_BYTES];
    ips_record_reason(record, reason);
    snprintf(ret_reason, IPS_REASON_BYTES, "rank %d has failed: %.200s", record->rank,
             reason);
    switch (error) {
    case -EOWNERDEAD:
    case -ETIMEDOUT:
    case -EPROTO:
    case -EBADMSG:
        return error;
    default:
        return -ECONNRESET;
    }
}

/* How a rank has left: 0 or the error that the others get for it. */
static int departure(const struct ips_segment *segment, int rank, const char **ret_what)
{
    const struct ips_record *record = ips_segment_record(segment, rank);
    if (has_aborted(record)) {
        *ret_what = "has aborted the communicator";
        return -ECONNRESET;
    }
    if (has_closed(record)) {
        *ret_what = "has destroyed the communicator";
        return -ECONNRESET;
    }
    *ret_what = "has ended";
    return ips_segment_dead(segment, segment->slot_of[rank]) ? -EOWNERDEAD : 0;
}

int ips_report_gone(const struct ips_segment *segment, const struct ips_stuck *stuck,
                    uint64_t age_ns, char *ret_reason)
{
    for (int rank = 0; rank < segment->nranks; rank++) {
        const struct ips_record *record = ips_segment_record(segment, rank);
        const char *what;
        const int error = rank == segment->rank ? 0 : departure(segment, rank, &what);
        if (!error)
            continue;
        const int did = (int32_t)(done_by(segment, rank) - stuck->call.number) >= 0;
        if (did && (age_ns < LEFTOVER_NS || (has_closed(record) && !has_aborted(record))))
            continue; /* whoever is waited for, it is another one */
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "rank %d (pid %d) %s while rank %d is in "
                 "call %u",
                 rank, record->pid, what, segment->rank, stuck->call.number);
        return error;
    }
    return 0;
}

/* Signed and unsigned integers of one size have the same sums, bit by bit: NCCL bears it.
 */
static int sums_alike(const struct ips_call *a, const struct ips_call *b)
{
    return (a->op == IPS_SUM || a->op == IPS_PROD) && a->type < IPS_FLOAT16 &&
           b->type < IPS_FLOAT16 &&
           ips_element_bytes(a->type) == ips_element_bytes(b->type);
}

static int same_call(const struct ips_call *a, const struct ips_call *b)
{
    return a->count == b->count && a->op == b->op &&
           (a->type == b->type || sums_alike(a, b));
}

int ips_report_mismatch(const struct ips_segment *segment, const struct ips_stuck *stuck,
                        char *ret_reason)
{
    for (int rank = 0; rank < segment->nranks; rank++) {
        struct ips_call other;
        if (rank == segment->rank ||
            !find_call(segment, rank, stuck->call.number, &other) ||
            same_call(&stuck->call, &other))
            continue;
        struct text text = {ret_reason, IPS_REASON_BYTES};
        add(&text, "the ranks' calls differ: call %u is ", stuck->call.number);
        add_call(&text, &stuck->call);
        add(&text, " on rank %d, but ", segment->rank);
        add_call(&text, &other);
        add(&text, " on rank %d; mend the program", rank);
        return -EPROTO;
    }
    return 0;
}

/* How a rank stands that does not wait, or NULL if its process is well. */
static const char *ailment(const struct ips_segment *segment, int rank, uint64_t now_ns,
                           const struct ips_pulse *pulse)
{
    const int slot = segment->slot_of[rank];
    if (ips_segment_dead(segment, slot))
        return "has ended";
    if (rank != segment->rank && now_ns - pulse[rank].at_ns > SILENT_NS)
        return "does not run: stopped by a signal or a debugger?";
    return NULL;
}

/* The rank that the others wait for: one that does not wait itself, the least far first;
 * else one whose process is not well, since it may have stopped in a wait; or -1. */
static int behind(const struct ips_segment *segment, uint64_t now_ns,
                  const struct ips_pulse *pulse)
{
    int found = -1;
    for (int rank = 0; rank < segment->nranks; rank++) {
        struct ips_stuck stuck;
        if (ips_report_read(control_of(segment, rank), &stuck))
            continue;
        if (found < 0 || (int32_t)(done_by(segment, rank) - done_by(segment, found)) < 0)
            found = rank;
    }
    for (int rank = 0; found < 0 && rank < segment->nranks; rank++)
        if (ailment(segment, rank, now_ns, pulse))
            return rank;
    return found;
}

static void add_behind(struct text *text, const struct ips_segment *segment,
                       uint64_t now_ns, const struct ips_pulse *pulse)
{
    const int rank = behind(segment, now_ns, pulse);
    if (rank < 0) {
        add(text, "all ranks wait for each other: does a link lose writes?");
        return;
    }
    const char *how = ailment(segment, rank, now_ns, pulse);
    add(text, "rank %d (pid %d) is behind, after call %u: %s", rank,
        ips_segment_record(segment, rank)->pid, done_by(segment, rank),
        how ? how : "its process runs, but has not come to this call");
}

/* One of the waiting ranks speaks: the lowest whose process runs. */
static int is_speaker(const struct ips_segment *segment, uint64_t now_ns,
                      const struct ips_pulse *pulse)
{
    for (int rank = 0; rank < segment->rank; rank++) {
        struct ips_stuck stuck;
        if (ips_report_read(control_of(segment, rank), &stuck) &&
            !ailment(segment, rank, now_ns, pulse))
            return 0;
    }
    return 1;
}

void ips_report_wait(const struct ips_segment *segment, const struct ips_stuck *stuck,
                     uint64_t age_ns, uint64_t now_ns, const struct ips_pulse *pulse)
{
    char line[900];
    struct text text = {line, sizeof line};
    add(&text, "rank %d of %d ", segment->rank, segment->nranks);
    add_wait(&text, segment, stuck);
    add(&text, ", for %llu s; ", (unsigned long long)(age_ns / SECOND_NS));
    add_behind(&text, segment, now_ns, pulse);
    add(&text, "; calls done by rank:");
    for (int rank = 0; rank < segment->nranks; rank++) {
        struct ips_stuck other;
        const int waits = ips_report_read(control_of(segment, rank), &other);
        add(&text, " %d:%u", rank, done_by(segment, rank));
        if (waits)
            add(&text, "(waits for %d)", peer_of(segment, &other));
    }
    ips_log(is_speaker(segment, now_ns, pulse) ? IPS_LOG_WARN : IPS_LOG_INFO, "%s", line);
}

void ips_report_timeout(const struct ips_segment *segment, const struct ips_stuck *stuck,
                        uint32_t timeout_s, uint64_t now_ns,
                        const struct ips_pulse *pulse, char *ret_reason)
{
    struct text text = {ret_reason, IPS_REASON_BYTES};
    add(&text, "call %u has waited for %u s (IPCSHIM_TIMEOUT_S); ", stuck->call.number,
        timeout_s);
    add_behind(&text, segment, now_ns, pulse);
}
