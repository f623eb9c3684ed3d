/* SPDX-License-Identifier: Apache-2.0 */
/* Who is to blame for a wait that does not end, and what is said of it, from control pages
 * and records that are made up here. What hostile ones do: tests/fuzz/record.c. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/report.h"
#include "tests/unit/check.h"

#define RANKS 3
#define SECOND 1000000000ull
#define NOW (100 * SECOND)
#define PAGES (1 + 2 * IPS_SEGMENT_SLOTS)

static struct ips_segment segment;
static struct ips_pulse pulse[IPS_MAX_RANKS];
static char reason[IPS_REASON_BYTES];
static pid_t ended; /* a process that was */

static struct ips_control *control_of(int rank)
{
    return ips_segment_control(&segment, segment.slot_of[rank]);
}

static struct ips_note note_of(uint32_t number, uint64_t count)
{
    return (struct ips_note){.count = count | (uint64_t)number << IPS_NOTE_COUNT_BITS,
                             .number = number,
                             .type = IPS_FLOAT32};
}

/* The rank has done a call, and shown it to the hosts. */
static void show_call(int rank, uint32_t number)
{
    control_of(rank)->history[ips_shown_at(number)] = note_of(number, 100);
}

/* The rank has done a call, and the others' devices have seen it. */
static void do_call(int rank, uint32_t number)
{
    for (int other = 0; other < RANKS; other++)
        control_of(other)->seen[rank][number % IPS_CALL_HISTORY] = note_of(number, 100);
}

/* All ranks run, in this process, and have done three calls; seen from rank 0. */
static void start(void)
{
    memset(segment.base, 0, PAGES * IPS_RECORD_BYTES);
    segment.rank = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        struct ips_record *record = ips_segment_record(&segment, rank);
        ips_record_identify(record);
        record->rank = rank;
        ips_record_set_state(record, IPS_RECORD_VOTED);
        pulse[rank] = (struct ips_pulse){7, NOW - SECOND / 10};
        for (uint32_t number = 1; number <= 3; number++) {
            do_call(rank, number);
            if (number < 3)
                show_call(rank, number);
        }
    }
}

static void end_process(int rank)
{
    ips_segment_record(&segment, rank)->pid = ended;
}

static void wait_in(int rank, uint32_t number, uint64_t count, int peer)
{
    struct ips_stuck *stuck = &control_of(rank)->stuck;
    stuck->call = (struct ips_call){.count = count, .number = number, .type = IPS_FLOAT32};
    stuck->peer = (uint32_t)peer;
    stuck->state = 1 << 8 | IPS_WAIT_DATA;
}

static int gone(uint64_t age_ns)
{
    struct ips_stuck stuck;
    reason[0] = 0;
    CHECK(ips_report_read(control_of(segment.rank), &stuck));
    return ips_report_gone(&segment, &stuck, age_ns, reason);
}

static void test_gone(void)
{
    char wanted[100];
    start();
    wait_in(0, 4, 100, 2);
    CHECK(gone(50 * SECOND) == 0);
    end_process(1);
    snprintf(wanted, sizeof wanted, "rank 1 (pid %d) has ended while rank 0 is in call 4",
             (int)ended);
    CHECK(gone(SECOND / 2) == -EOWNERDEAD && !strcmp(reason, wanted), "%s", reason);
    ips_segment_record(&segment, 1)->aborted = 1;
    CHECK(gone(SECOND / 2) == -ECONNRESET && strstr(reason, "has aborted"), "%s", reason);
    start();
    wait_in(0, 4, 100, 2);
    ips_record_set_state(ips_segment_record(&segment, 2), IPS_RECORD_CLOSED);
    CHECK(gone(SECOND / 2) == -ECONNRESET && strstr(reason, "rank 2 (pid"), "%s", reason);
    CHECK(strstr(reason, "has destroyed"), "%s", reason);
}

/* It is another one that is waited for, who may only be slow. */
static void test_gone_after_call(void)
{
    start();
    wait_in(0, 4, 100, 2);
    do_call(1, 4);
    end_process(1);
    CHECK(gone(SECOND) == 0, "%s", reason);
    CHECK(gone(3 * SECOND) == -EOWNERDEAD); /* its other channels may not have come as far */
    ips_record_set_state(ips_segment_record(&segment, 1), IPS_RECORD_CLOSED);
    CHECK(gone(50 * SECOND) == 0, "%s", reason);
}

static void test_wrap(void)
{
    start();
    memset(control_of(1)->history, 0, sizeof control_of(1)->history); /* long stored over */
    for (uint32_t number = 0xfffffffe; number != 2; number++)
        do_call(1, number);
    wait_in(0, 1, 100, 2);
    end_process(1);
    CHECK(gone(SECOND) == 0, "%s", reason);
    wait_in(0, 2, 100, 2);
    CHECK(gone(SECOND) == -EOWNERDEAD);
}

static const char *behind(void)
{
    struct ips_stuck stuck;
    CHECK(ips_report_read(control_of(segment.rank), &stuck));
    ips_report_timeout(&segment, &stuck, 5, NOW, pulse, reason);
    return reason;
}

static void test_behind(void)
{
    start();
    wait_in(0, 4, 100, 2);
    wait_in(2, 4, 100, 1);
    CHECK(strstr(behind(), "rank 1 (pid"), "%s", reason);
    CHECK(strstr(reason, "is behind, after call 3: its process runs"), "%s", reason);
    pulse[1].at_ns = NOW - 2 * SECOND;
    CHECK(strstr(behind(), "after call 3: does not run"), "%s", reason);
    end_process(1);
    CHECK(strstr(behind(), "after call 3: has ended"), "%s", reason);
    start();
    for (int rank = 0; rank < RANKS; rank++)
        wait_in(rank, 4, 100, (rank + 2) % RANKS);
    CHECK(strstr(behind(), "does a link lose writes"), "%s", reason);
    pulse[1].at_ns = NOW - 2 * SECOND; /* stopped within its wait */
    CHECK(strstr(behind(), "rank 1 (pid") && strstr(reason, "does not run"), "%s", reason);
}

static void test_mismatch(void)
{
    struct ips_stuck stuck;
    start();
    wait_in(0, 4, 100, 2);
    wait_in(1, 4, 100, 0);
    CHECK(ips_report_read(control_of(0), &stuck));
    CHECK(ips_report_mismatch(&segment, &stuck, reason) == 0);
    wait_in(2, 4, 120, 1);
    CHECK(ips_report_mismatch(&segment, &stuck, reason) == -EPROTO);
    CHECK(strstr(reason, "call 4 is sum of 100 float32 on rank 0, but sum of 120 float32 on "
                         "rank 2"), "%s", reason);
    start();
    wait_in(0, 4, 100, 2);
    CHECK(ips_report_read(control_of(0), &stuck));
    control_of(0)->seen[1][0] = note_of(4, 140); /* that one does not wait any more */
    CHECK(ips_report_mismatch(&segment, &stuck, reason) == -EPROTO);
    CHECK(strstr(reason, "but sum of 140 float32 on rank 1"), "%s", reason);
    control_of(0)->seen[1][0].count = note_of(8, 140).count; /* half of another note */
    CHECK(ips_report_mismatch(&segment, &stuck, reason) == 0, "%s", reason);
}

/* Nobody waits: what is shown is compared, and nothing else. */
static void test_mismatch_of_done(void)
{
    struct ips_stuck stuck;
    start();
    CHECK(ips_report_last(&segment, &stuck) && stuck.call.number == 2);
    CHECK(ips_report_mismatch(&segment, &stuck, reason) == 0);
    control_of(0)->seen[1][2].op = IPS_MIN; /* of some earlier wait */
    CHECK(ips_report_mismatch(&segment, &stuck, reason) == 0, "%s", reason);
    control_of(1)->history[2].op = IPS_MAX;
    CHECK(ips_report_mismatch(&segment, &stuck, reason) == -EPROTO);
    CHECK(strstr(reason, "call 2 is sum of 100 float32 on rank 0, but max of 100 float32 on "
                         "rank 1"), "%s", reason);
    memset(control_of(0)->history, 0, sizeof control_of(0)->history);
    CHECK(!ips_report_last(&segment, &stuck));
}

/* Every call of a graph, and of the others some, which fill the history as well. */
static void test_shown(void)
{
    unsigned shown = 0, places = 0;
    CHECK(ips_call_shown(1, 0) && ips_call_shown(100, 1) && !ips_call_shown(100, 0));
    for (uint32_t number = 1000; number < 1000 + 4 * IPS_SHOWN_EVERY; number++)
        if (ips_call_shown(number, 0)) {
            shown++;
            places |= 1u << ips_shown_at(number);
        }
    CHECK(shown == 4 && places == 15, "%u calls, places %#x", shown, places);
}

/* What a report of this rank writes on stderr. */
static const char *said(int rank)
{
    static char text[2000];
    struct ips_stuck stuck;
    const int fd = memfd_create("stderr", 0), before = dup(STDERR_FILENO);
    segment.rank = rank;
    CHECK(ips_report_read(control_of(rank), &stuck));
    dup2(fd, STDERR_FILENO);
    ips_report_wait(&segment, &stuck, 31 * SECOND, NOW, pulse);
    dup2(before, STDERR_FILENO);
    const ssize_t got = pread(fd, text, sizeof text - 1, 0);
    text[got < 0 ? 0 : got] = 0;
    close(fd);
    close(before);
    return text;
}

static void test_speaker(void)
{
    start();
    wait_in(0, 4, 100, 2);
    wait_in(1, 4, 100, 0);
    CHECK(!said(1)[0]);
    CHECK(strstr(said(0), "rank 0 of 3 waits in call 4 (sum of 100 float32, ring LL) for data of "
                          "rank 2"), "%s", said(0));
    CHECK(strstr(said(0), "for 31 s; rank 2 (pid"), "%s", said(0));
    CHECK(strstr(said(0), "calls done by rank: 0:3(waits for 2) 1:3(waits for 0) 2:3\n"), "%s",
          said(0));
    pulse[0].at_ns = NOW - 2 * SECOND; /* who does not run says nothing */
    CHECK(said(1)[0]);
}

static void test_failure(void)
{
    start();
    struct ips_record *record = ips_segment_slot(&segment, 1);
    memset(record->reason, 'x', sizeof record->reason);
    record->reason[3] = '\n';
    record->error = -ETIMEDOUT;
    CHECK(ips_report_failure(&segment, 1, reason) == -ETIMEDOUT);
    CHECK(strstr(reason, "rank 1 has failed: xxx?xxx") && !strchr(reason, '\n'));
    CHECK(strlen(reason) < IPS_REASON_BYTES);
    record->error = -EIO; /* a matter of that rank: here it is a lost peer */
    CHECK(ips_report_failure(&segment, 1, reason) == -ECONNRESET);
    record->error = 0;
    CHECK(ips_report_failure(&segment, 1, reason) == -ECONNRESET);
}

static void *outlive(void *nothing)
{
    pause();
    return nothing;
}

/* A program's first thread may end before the others; a killed process may wait for long
 * until its parent asks after it. */
static void test_dead(void)
{
    struct ips_record *record = ips_segment_record(&segment, 1);
    const int slot = segment.slot_of[1];
    pthread_t thread;
    start();
    record->start_time = 0;
    record->pid = fork();
    if (record->pid == 0) {
        pthread_create(&thread, NULL, outlive, NULL);
        pthread_exit(NULL);
    }
    usleep(200000);
    CHECK(!ips_segment_dead(&segment, slot));
    kill(record->pid, SIGKILL);
    usleep(200000);
    CHECK(ips_segment_dead(&segment, slot));
    waitpid(record->pid, NULL, 0);
    CHECK(ips_segment_dead(&segment, slot));
    record->pid = getpid();
    CHECK(!ips_segment_dead(&segment, slot));
    record->start_time = 1; /* that was another process */
    CHECK(ips_segment_dead(&segment, slot));
}

/* Where pids mean nothing, as between containers, the lock of the slot tells. */
static void test_dead_elsewhere(void)
{
    struct ips_segment mine, theirs;
    const pid_t key = getpid();
    int begun[2];
    char byte;
    CHECK(!ips_segment_open(&mine, &key, sizeof key, reason), "%s", reason);
    if (!mine.base || pipe(begun))
        return;
    const pid_t child = fork();
    if (child == 0) {
        close(mine.fd); /* of the same open file, whose locks would go on */
        if (!ips_segment_open(&theirs, &key, sizeof key, reason) && write(begun[1], "", 1))
            pause();
        _exit(1);
    }
    CHECK(read(begun[0], &byte, 1) == 1);
    CHECK(!ips_segment_dead(&mine, 1 - mine.slot)); /* no record says what its pid is */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK(ips_segment_dead(&mine, 1 - mine.slot));
    CHECK(!ips_segment_dead(&mine, mine.slot));
    ips_segment_unlink(&mine);
    ips_segment_close(&mine);
}

int main(void)
{
    segment.base = aligned_alloc(4096, PAGES * IPS_RECORD_BYTES);
    segment.nranks = RANKS;
    segment.fd = -1;
    segment.slot = 2;
    for (int rank = 0; rank < RANKS; rank++)
        segment.slot_of[rank] = RANKS - 1 - rank;
    ended = fork();
    if (ended == 0)
        _exit(0);
    if (!segment.base || ended < 0 || waitpid(ended, NULL, 0) != ended)
        return 1;
    test_gone();
    test_gone_after_call();
    test_wrap();
    test_behind();
    test_mismatch();
    test_mismatch_of_done();
    test_shown();
    test_speaker();
    test_failure();
    test_dead();
    test_dead_elsewhere();
    return check_result();
}
