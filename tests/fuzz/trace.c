/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the two readers of traces: `ipcshim check` counts calls in the file of a foreign
 * process, `ipcshim bench` gives its cases what happened to them. */
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tools/bench.h"
#include "tools/check.h"

#define CASES 3

static int file_of(const uint8_t *data, size_t size, char *ret_path, size_t room)
{
    int fd = memfd_create("trace", MFD_CLOEXEC);
    MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(ret_path, room, "/proc/self/fd/%d", fd);
    return fd;
}

static void ended(const char *text, size_t room)
{
    MUST(strnlen(text, room) < room);
}

static void read_as_check(const char *path)
{
    struct check_calls calls = {0};
    check_trace(&calls, path, 77);
    ended(calls.nccl_path, sizeof calls.nccl_path);
    ended(calls.comm_reason, sizeof calls.comm_reason);
    ended(calls.call_reason, sizeof calls.call_reason);
    MUST(calls.comms_served <= calls.comms);
    MUST(calls.known || (!calls.nccl && !calls.engine && !calls.comms));
}

static void read_as_bench(const char *path)
{
    struct bench_page *page = calloc(1, bench_page_bytes(CASES, 1));
    struct bench_trace trace;
    MUST(page != NULL);
    page->ncases = CASES;
    page->sync.nranks = 1;
    for (unsigned i = 0; i < CASES; i++) {
        page->cases[i] = (struct bench_case){4u << i, IPS_FLOAT32, IPS_SUM, 0};
        bench_result(page, i, 0)->calls = 5 - i;
    }
    MUST(!bench_trace_open(&trace, page, 0, path));
    bench_trace_advance(&trace);
    bench_trace_advance(&trace); /* an unfinished line is not taken twice */
    for (unsigned i = 0; i < CASES; i++) {
        MUST(trace.took[i].calls <= bench_calls(page, i, 0));
        MUST(trace.took[i].variant >= -1 && trace.took[i].variant < IPS_VARIANTS);
        ended(trace.took[i].reason, sizeof trace.took[i].reason);
    }
    bench_trace_close(&trace);
    free(page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    int fd = file_of(data, size, path, sizeof path);
    read_as_check(path);
    read_as_bench(path);
    close(fd);
    return 0;
}
