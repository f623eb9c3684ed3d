/* SPDX-License-Identifier: Apache-2.0 */
/* The trace: JSON escaping, the path's %p and %r, the ring's bound and its count of what
 * it dropped, with many threads. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/ring.h"
#include "shim/summary.h"
#include "shim/text.h"
#include "shim/trace.h"
#include "shim/trace_format.h"

static int failures;
static void check(int line, int good, const char *what)
{
    if (!good) {
        printf("line %d: not so: %s\n", line, what);
        failures++;
    }
}
#define CHECK(what) check(__LINE__, !!(what), #what)

static void test_escaping(void)
{
    static const char *const cases[][2] = {
        {"plain", "\"plain\""},
        {"a\"b\\c", "\"a\\\"b\\\\c\""},
        {"tab\tline\n\x01\x7f", "\"tab\\u0009line\\u000a\\u0001\\u007f\""},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
         "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\""},
        {"\xff\xc3", "\"\\ufffd\\ufffd\""},
        {"\xc0\x80|\xed\xa0\x80", "\"\\ufffd\\ufffd|\\ufffd\\ufffd\\ufffd\""},
        {"", "\"\""},
        {NULL, "null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ips_text text = {0};
        ips_text_json(&text, cases[i][0]);
        if (strcmp(text.data, cases[i][1]) != 0)
            printf("got %s\n", text.data);
        CHECK(strcmp(text.data, cases[i][1]) == 0);
        ips_text_free(&text);
    }
}

static void test_expand(void)
{
    char path[32];
    CHECK(ips_trace_expand("/t/%r-%p%%%x%", 12, 3, path, sizeof path) == 0);
    CHECK(strcmp(path, "/t/3-12%%x%") == 0);
    CHECK(ips_trace_expand("", 1, 1, path, sizeof path) < 0);
    CHECK(ips_trace_expand("/0123456789/0123456789/0123456789", 1, 1, path, sizeof path) <
          0);
    CHECK(ips_trace_expand("/0123456789/0123456789/01234567", 1, 1, path, sizeof path) ==
          0);
}

static void test_ring(void)
{
    struct ips_ring *ring = ips_ring_create(8);
    struct ips_event event = {0};
    CHECK(!ips_ring_pop(ring, &event));
    for (int turn = 0; turn < 5; turn++) {
        for (uint64_t i = 0; i < 11; i++) {
            event.count = i;
            CHECK(ips_ring_push(ring, &event) == (i < 8));
        }
        for (uint64_t i = 0; i < 8; i++)
            CHECK(ips_ring_pop(ring, &event) && event.count == i);
        CHECK(!ips_ring_pop(ring, &event));
    }
    CHECK(ips_ring_dropped(ring, 0) == 15);
    ips_ring_destroy(ring);
}

#define THREADS 4
#define EACH 200000
static struct ips_ring *shared;
static void *push(void *number)
{
    struct ips_event event = {.comm = (int)(intptr_t)number};
    for (uint64_t i = 0; i < EACH; i++) {
        event.count = i;
        event.bytes = i * 3 + (uint64_t)event.comm;
        ips_ring_push(shared, &event);
    }
    return NULL;
}

/* Nothing torn, nothing twice, each thread's in order, and what is missing is counted. */
static void test_ring_threads(void)
{
    pthread_t threads[THREADS];
    uint64_t next[THREADS] = {0}, popped = 0;
    struct ips_event event;
    shared = ips_ring_create(64);
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, push, (void *)i);
    while (popped + ips_ring_dropped(shared, 0) < (uint64_t)THREADS * EACH) {
        if (!ips_ring_pop(shared, &event))
            continue;
        popped++;
        CHECK(event.comm >= 0 && event.comm < THREADS);
        CHECK(event.bytes == event.count * 3 + (uint64_t)event.comm);
        CHECK(event.count >= next[event.comm]);
        next[event.comm] = event.count + 1;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(!ips_ring_pop(shared, &event));
    CHECK(popped + ips_ring_dropped(shared, 0) == (uint64_t)THREADS * EACH);
    ips_ring_destroy(shared);
}

static void test_event(void)
{
    struct ips_text text = {0};
    struct ips_event event = {.time_ns = 1700000000000000123u,
                              .count = 3,
                              .bytes = 12,
                              .rank = 1,
                              .comm = 2,
                              .type = IPS_FLOAT32,
                              .op = IPS_MAX,
                              .call = IPS_SLOT_ncclAllReduce,
                              .stream = (void *)0x1234,
                              .route = IPS_ROUTE_ENGINE,
                              .variant = IPS_TWOSHOT_LL128,
                              .channels = 5,
                              .reason = "say \"why\"",
                              .captured = 1};
    ips_format_event(&text, &event, 77);
    CHECK(
        strcmp(text.data,
               "{\"event\":\"call\",\"time\":1700000000.000000123,\"pid\":77,\"rank\":1,"
               "\"comm\":2,\"name\":\"ncclAllReduce\",\"bytes\":12,\"count\":3,"
               "\"type\":\"float32\",\"op\":\"max\",\"stream\":\"0x1234\","
               "\"captured\":true,\"route\":\"engine\",\"algorithm\":\"twoshot\",\"protocol\":\"LL128\","
               "\"channels\":5,"
               "\"reason\":\"say \\\"why\\\"\"}\n") == 0);
    ips_text_free(&text);
}

/* The whole: more events than the ring holds while nobody drains it can't be forced from
 * outside, so what is in the file and what was dropped must add up. */
static void test_file(void)
{
    enum { EVENTS = 5 * IPS_TRACE_EVENTS };
    char path[] = "/tmp/ipcshim-trace-XXXXXX", line[4096];
    int calls = 0, dropped = 0, summaries = 0, torn = 0;
    close(mkstemp(path));
    struct ips_trace_config config = {.path = path, .rank = 4};
    CHECK(ips_trace_start(&config) == 0 && ips_trace_file_on());
    struct ips_event event = {.call = IPS_SLOT_ncclSend,
                              .route = IPS_ROUTE_NCCL,
                              .reason = ips_trace_intern("x"),
                              .bytes = 100,
                              .captured = -1};
    for (int i = 0; i < EVENTS; i++)
        ips_trace_add(&event);
    ips_trace_stop();
    CHECK(!ips_trace_on());
    ips_trace_add(&event); /* ignored */
    FILE *file = fopen(path, "r");
    while (fgets(line, sizeof line, file)) {
        int n;
        calls += strstr(line, "\"event\":\"call\"") != NULL;
        summaries += strstr(line, "\"event\":\"summary\"") != NULL;
        torn += line[0] != '{' || !strstr(line, "}\n");
        if (strstr(line, "\"event\":\"dropped\"") &&
            sscanf(strstr(line, "\"count\":"), "\"count\":%d", &n) == 1)
            dropped += n;
    }
    fclose(file);
    unlink(path);
    printf("%d written, %d dropped\n", calls, dropped);
    CHECK(calls + dropped == EVENTS && calls > 0);
    CHECK(summaries == 1 && torn == 0);
    char total[64];
    snprintf(total, sizeof total, "\"calls\":%d,\"bytes\":%d", EVENTS, 100 * EVENTS);
    struct ips_text text = {0};
    ips_summary_json(&text, "test", 0, 0);
    CHECK(strstr(text.data, total) != NULL);
    ips_text_free(&text);
}

static void test_intern(void)
{
    char text[32] = "reason";
    const char *first = ips_trace_intern(text);
    strcpy(text, "other");
    CHECK(strcmp(first, "reason") == 0 && ips_trace_intern("reason") == first);
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof text, "reason %d", i);
        CHECK(ips_trace_intern(text) != NULL);
    }
    CHECK(ips_trace_intern("reason") == first);
}

int main(void)
{
    test_escaping();
    test_expand();
    test_ring();
    test_ring_threads();
    test_event();
    test_intern();
    test_file();
    return failures != 0;
}
