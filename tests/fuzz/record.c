/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the rendezvous: one rank, whose peers, outcome and control pages are the input.
 * Whatever stands in the segment, also while the rank works with it: nothing crashes, the
 * set-up ends within its 30 s, and "agreed" comes only after this rank's own vote, with
 * records that were sound.
 *
 * Input: two bytes (ranks, rank and what fails on it), then commands of 4 bytes, A B C D;
 * what they do is in `act`. The same bytes stand in for a /proc/PID/stat. */
#include "tests/fuzz/fuzz.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Time passes when the input says so, and random numbers are the same in each run. */
static uint64_t fuzz_now_ns;
static int fuzz_clock(clockid_t clock, struct timespec *ret)
{
    (void)clock;
    ret->tv_sec = (time_t)(fuzz_now_ns / 1000000000u);
    ret->tv_nsec = (long)(fuzz_now_ns % 1000000000u);
    return 0;
}
static int fuzz_random(void *bytes, size_t count)
{
    memset(bytes, 0x5a, count);
    return 0;
}
/* /proc/PID/stat, where the input stands in for it. */
static const uint8_t *fuzz_stat;
static size_t fuzz_stat_bytes;
static ssize_t fuzz_read(int fd, void *into, size_t room)
{
    if (!fuzz_stat)
        return read(fd, into, room);
    size_t bytes = fuzz_stat_bytes < room ? fuzz_stat_bytes : room;
    memcpy(into, fuzz_stat, bytes);
    return (ssize_t)bytes;
}
#define read fuzz_read
#define clock_gettime fuzz_clock
#define getentropy fuzz_random
#include "core/segment.c"
#include "core/rendezvous.c"
#define now_ns report_now_ns
#include "core/report.c"

/* A line that is logged is text, and is not printed here. */

void ips_log(enum ips_log_level level, const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    MUST((int)level >= 0 && length >= 0 && length < (int)sizeof line);
    for (const char *at = line; *at; at++)
        MUST((unsigned char)*at >= ' ' && *at != 0x7f);
}

#define SETTINGS 24
static const char key[40] = "fuzz-record";
static const char settings[SETTINGS];

struct run {
    struct ips_rendezvous r;
    enum { COMPLETE, NUMBER, LOAD, EXPORT, OPEN, CHOOSE, HOST, HOST_CHOOSE, VOTE } phase;
    int fails;  /* what fails on this rank: 1 to export, 2 to open */
    int voted;  /* this rank */
    int sound;  /* all records, when they were looked at */
    int voters; /* ranks, at this step */
    int locks;  /* a descriptor that holds the locks of living peers */
};

/* What a peer of this version would write into the slot. */
static void write_honest(struct run *run, int slot, int rank, uint32_t state)
{
    struct ips_record *record = ips_segment_slot(&run->r.segment, slot);
    *record = (struct ips_record){
        .magic = IPS_RECORD_MAGIC,
        .layout = IPS_RECORD_VERSION,
        .wire_version = IPS_WIRE_VERSION,
        .version = IPCSHIM_VERSION,
        .state = state & 15,
        .transport = (int)(state >> 4) % 4 - 1,
        .rank = rank,
        .nranks = run->r.segment.nranks,
        .key_bytes = sizeof key,
        .settings_bytes = SETTINGS,
        .pid = 1,
        .channels = 8,
    };
    memcpy(record->key, key, sizeof key);
    record->link =
        record->transport == IPS_TRANSPORT_HOST ? IPS_LINK_HOST : IPS_LINK_PCIE;
    record->plan_bytes = (uint32_t)record->nranks;
    memset(record->plan, (int)record->link, (size_t)record->nranks);
    for (int i = 0; i < record->nranks; i++)
        record->lineup.rank[i] = (uint8_t)((i + 1) % record->nranks);
    record->lineup.group = record->nranks == 4 ? 2 : 0;
}

static int is_sound(const struct ips_record *record)
{
    return record->magic == IPS_RECORD_MAGIC && record->layout == IPS_RECORD_VERSION &&
           record->wire_version == IPS_WIRE_VERSION &&
           !strncmp(record->version, IPCSHIM_VERSION, sizeof record->version) &&
           record->key_bytes == sizeof key && !memcmp(record->key, key, sizeof key) &&
           record->settings_bytes == SETTINGS && record->channels >= 1 &&
           record->channels <= IPS_MAX_CHANNELS &&
           record->transport >= IPS_TRANSPORT_AUTO &&
           record->transport <= IPS_TRANSPORT_HOST;
}

static void advance(struct run *run, enum ips_record_state state, int phase)
{
    ips_rendezvous_advance(&run->r, state);
    run->phase = phase;
}

static size_t make_plan(const void *context, int nranks, enum ips_link link,
                        const struct ips_lineup *lineup, void *ret_plan)
{
    (void)context, (void)lineup;
    memset(ret_plan, (int)link, (size_t)nranks);
    return (size_t)nranks;
}

/* It is judged where nobody else writes any more. */
static int is_plan_sound(const void *context, int nranks, enum ips_link link,
                         const void *plan, size_t plan_bytes)
{
    const unsigned char *at = plan;
    const struct run *run = context;
    MUST(nranks == run->r.segment.nranks && plan_bytes <= IPS_PLAN_BYTES);
    MUST((int)link >= 0 && link < IPS_LINKS && at == run->r.agreed.plan);
    MUST((link == IPS_LINK_HOST) == (run->phase == HOST_CHOOSE));
    return plan_bytes == (size_t)nranks && at[0] == link;
}

static const struct ips_lineup by_number = {{0, 1, 2, 3, 4, 5, 6, 7}, 0, 0};
static struct ips_planner planner = {make_plan, is_plan_sound, NULL};

static void accept_offer(struct run *run, int host)
{
    if (!ips_rendezvous_accept(&run->r, host, &planner))
        return;
    run->voted = 1;
    advance(run, IPS_RECORD_VOTED, VOTE);
}

static void choose(struct run *run)
{
    char reason[IPS_REASON_BYTES] = "";
    struct ips_rendezvous *r = &run->r;
    const enum ips_refusal refused = ips_rendezvous_refused(r, reason);
    MUST(strnlen(reason, sizeof reason) < sizeof reason);
    if (refused == IPS_REFUSES_NOT)
        accept_offer(run, 0);
    else if (r->first.transport == IPS_TRANSPORT_IPC)
        ips_rendezvous_decline_as(r, refused == IPS_REFUSES_BY_FAULT, reason);
    else
        advance(run, IPS_RECORD_HOST_READY, HOST);
}

/* As bringup.c does it, with a device that does what the input says. */
static void step(struct run *run)
{
    struct ips_rendezvous *r = &run->r;
    if (r->outcome != IPS_BRINGUP_PENDING || ips_rendezvous_declined(r))
        return;
    switch (run->phase) {
    case COMPLETE:
        if (!ips_rendezvous_complete(r))
            return;
        run->sound = 1;
        for (int slot = 0; slot < r->segment.nranks; slot++)
            run->sound &= is_sound(ips_segment_slot(&r->segment, slot));
        run->phase = NUMBER;
        return;
    case NUMBER:
        if (ips_rendezvous_numbered(r))
            run->phase = LOAD;
        return;
    case LOAD:
        if (r->first.transport == IPS_TRANSPORT_HOST)
            advance(run, IPS_RECORD_HOST_READY, HOST);
        else
            advance(run, IPS_RECORD_LOADED, EXPORT);
        return;
    case EXPORT:
        if (!ips_rendezvous_reached(r, IPS_RECORD_LOADED))
            return;
        if (run->fails == 1)
            ips_rendezvous_refuse(r, IPS_REFUSES_BY_CHOICE, "by choice");
        advance(run, IPS_RECORD_EXPORTED, OPEN);
        return;
    case OPEN:
        if (!ips_rendezvous_reached(r, IPS_RECORD_EXPORTED))
            return;
        if (run->fails == 2)
            ips_rendezvous_refuse(r, IPS_REFUSES_AFTER_OTHERS, "by fault");
        if (r->segment.rank == 0)
            ips_rendezvous_offer(r, IPS_LINK_PCIE, &by_number, &planner);
        advance(run, IPS_RECORD_PROBED, CHOOSE);
        return;
    case CHOOSE:
        if (ips_rendezvous_reached(r, IPS_RECORD_PROBED))
            choose(run);
        return;
    case HOST:
        if (!ips_rendezvous_reached(r, IPS_RECORD_HOST_READY))
            return;
        if (r->segment.rank == 0)
            ips_rendezvous_offer(r, IPS_LINK_HOST, &by_number, &planner);
        advance(run, IPS_RECORD_HOST_PROBED, HOST_CHOOSE);
        return;
    case HOST_CHOOSE:
        if (ips_rendezvous_reached(r, IPS_RECORD_HOST_PROBED))
            accept_offer(run, 1);
        return;
    case VOTE:
        for (int slot = 0; slot < r->segment.nranks; slot++)
            run->voters +=
                ips_record_state(ips_segment_slot(&r->segment, slot)) >= IPS_RECORD_VOTED;
        if (ips_rendezvous_reached(r, IPS_RECORD_VOTED))
            ips_rendezvous_agree(r);
        if (r->outcome == IPS_BRINGUP_AGREED)
            MUST(run->voters == r->segment.nranks);
        run->voters = 0;
    }
}

/* The kernels and the reports index by it. */
static void check_lineup(const struct ips_rendezvous *r)
{
    const struct ips_lineup *lineup = &r->agreed.lineup;
    const uint32_t ranks = (uint32_t)r->segment.nranks;
    unsigned met = 0;
    for (uint32_t i = 0; i < ranks; i++)
        met |= 1u << lineup->rank[i];
    MUST(met == (1u << ranks) - 1);
    MUST(!lineup->group ||
         (lineup->group > 1 && lineup->group < ranks && ranks % lineup->group == 0));
}

/* What is believed of rank 0, and of who is who. */
static void check_numbers(const struct run *run)
{
    const struct ips_segment *segment = &run->r.segment;
    unsigned slots = 0;
    if (run->phase < LOAD)
        return;
    for (int rank = 0; rank < segment->nranks; rank++)
        slots |= 1u << segment->slot_of[rank];
    MUST(slots == (1u << segment->nranks) - 1);
    MUST(segment->slot_of[segment->rank] == segment->slot);
    MUST(is_sound(&run->r.first) && run->r.first.rank == 0);
}

static void check_outcome(const struct run *run)
{
    const struct ips_rendezvous *r = &run->r;
    size_t length = strnlen(r->reason, sizeof r->reason);
    MUST(length < sizeof r->reason);
    if (r->outcome == IPS_BRINGUP_AGREED)
        MUST(run->voted && run->sound && run->phase == VOTE);
    if (run->voted)
        check_lineup(r);
    if (r->outcome == IPS_BRINGUP_DECLINED)
        MUST(r->segment.base != NULL);
    check_numbers(run);
}

/* What the watching thread asks of the control pages. */
static void watch(struct run *run, int slot)
{
    const struct ips_segment *segment = &run->r.segment;
    struct ips_pulse pulse[IPS_MAX_RANKS] = {{0}};
    struct ips_stuck stuck;
    char reason[IPS_REASON_BYTES];
    int failed = ips_segment_failed(segment);
    if (run->phase < LOAD)
        return;
    MUST(failed >= -1 && failed < IPS_SEGMENT_SLOTS);
    if (failed >= 0) {
        MUST(ips_report_failure(segment, failed, reason) < 0);
        MUST(strnlen(reason, sizeof reason) < sizeof reason);
    }
    reason[0] = '\0';
    if (ips_report_last(segment, &stuck))
        MUST(ips_report_mismatch(segment, &stuck, reason) <= 0);
    MUST(strnlen(reason, sizeof reason) < sizeof reason);
    if (!ips_report_read(ips_segment_control(segment, slot), &stuck))
        return;
    int error = ips_report_gone(segment, &stuck, stuck.seen, reason);
    MUST(error <= 0 && strnlen(reason, sizeof reason) < sizeof reason);
    error = ips_report_mismatch(segment, &stuck, reason);
    MUST(error <= 0 && strnlen(reason, sizeof reason) < sizeof reason);
    ips_report_wait(segment, &stuck, 1, fuzz_now_ns, pulse);
    ips_report_timeout(segment, &stuck, 5, fuzz_now_ns, pulse, reason);
    MUST(strnlen(reason, sizeof reason) < sizeof reason);
}

static void act(struct run *run, const uint8_t *a)
{
    struct ips_rendezvous *r = &run->r;
    const int slot = a[1] % IPS_SEGMENT_SLOTS;
    size_t at = ((size_t)a[1] << 16 | (size_t)a[2] << 8 | a[3]) % SEGMENT_BYTES;
    switch (a[0] % 8) {
    case 0: /* honest record: slot, rank, state and transport */
        if (slot != r->segment.slot)
            write_honest(run, slot, a[2], a[3]);
        break;
    case 1: /* a byte anywhere: offset, value from the command itself */
        r->segment.base[at] = (char)(a[0] >> 3);
        break;
    case 2: /* a byte of a record or control page: slot, field */
        at = (a[0] & 8 ? CONTROLS : IPS_RECORD_BYTES) + (size_t)slot * IPS_RECORD_BYTES +
             a[2] * 4u;
        r->segment.base[at] = (char)a[3];
        break;
    case 3: /* 0xff bytes from there on */
        at = IPS_RECORD_BYTES + (size_t)slot * IPS_RECORD_BYTES + a[2] * 8u;
        memset(r->segment.base + at, 0xff, a[3] * 8u);
        break;
    case 4: /* a peer ends, or the outcome, and who failed */
        if (a[1] & 2)
            lock_byte(run->locks, F_UNLCK, 1 + a[2] % IPS_SEGMENT_SLOTS);
        else
            memcpy(r->segment.base + (a[1] & 1 ? FAILED : 0), a + 2, 2);
        break;
    case 5:
        fuzz_now_ns += (a[1] + 1u) * 100000000ull;
        break;
    case 6:
        watch(run, slot);
        break;
    default:
        for (int i = 0; i <= a[1] % 8; i++)
            step(run);
    }
    check_outcome(run);
}

/* Ends a set-up that others keep alive by going back and forth. */
static void finish(struct run *run)
{
    struct ips_rendezvous *r = &run->r;
    for (int i = 0; i < 80 && r->outcome == IPS_BRINGUP_PENDING; i++) {
        fuzz_now_ns += 1000000000ull;
        ips_segment_slot(&r->segment, 1)->state ^= 1;
        step(run);
        check_outcome(run);
    }
    MUST(r->outcome != IPS_BRINGUP_PENDING);
}

static void read_stat(const uint8_t *data, size_t size)
{
    uint64_t start = 0;
    fuzz_stat = data;
    fuzz_stat_bytes = size;
    int error = start_time_of(getpid(), &start);
    MUST(error <= 0 && (!error || !start));
    fuzz_stat = NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct run run;
    char reason[IPS_REASON_BYTES];
    struct ips_bringup_config config = {.key = key,
                                        .key_bytes = sizeof key,
                                        .rank = -1,
                                        .settings = settings,
                                        .settings_bytes = SETTINGS,
                                        .channels = 8,
                                        .transport = IPS_TRANSPORT_AUTO};
    if (size < 2)
        return 0;
    read_stat(data, size);
    memset(&run, 0, sizeof run);
    fuzz_now_ns = 1000000000000ull;
    struct stat status;
    umask(0);
    MUST(!ips_rendezvous_join(&run.r, &config, reason));
    MUST(!fstat(run.r.segment.fd, &status) && (status.st_mode & 07777) == 0600);
    run.locks = open(run.r.segment.name, O_RDWR | O_CLOEXEC);
    for (int slot = 0; slot < IPS_SEGMENT_SLOTS; slot++)
        if (slot != run.r.segment.slot)
            MUST(!lock_byte(run.locks, F_WRLCK, 1 + slot));
    const int nranks = 2 + data[0] % (IPS_MAX_RANKS - 1);
    run.fails = data[1] / 64;
    planner.context = &run;
    ips_rendezvous_begin(&run.r, nranks, data[1] % nranks);
    for (size_t at = 2; at + 4 <= size; at += 4)
        act(&run, data + at);
    finish(&run);
    ips_segment_close(&run.r.segment);
    close(run.locks);
    return 0;
}
