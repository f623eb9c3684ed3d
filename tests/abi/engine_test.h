/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of engine_program share: the cases, and ways to write them. */
#ifndef ENGINE_TEST_H
#define ENGINE_TEST_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "shim/nccl_api.h"
#include "tests/abi/fake_nccl.h"

#define ENGINE_CASES(X)                              \
    X("init", test_init)                             \
    X("init-config", test_init_config)               \
    X("init-fails", test_init_fails)                 \
    X("init-group", test_init_group)                 \
    X("decline", test_decline)                       \
    X("none", test_none)                             \
    X("disabled", test_disabled)                     \
    X("allreduce", test_allreduce)                   \
    X("verify", test_verify)                         \
    X("group", test_group)                           \
    X("group-refuses", test_group_refuses)           \
    X("group-fails", test_group_fails)               \
    X("simulate", test_simulate)                     \
    X("end", test_end)                               \
    X("async-error", test_async_error)               \
    X("makers-many", test_makers_many)               \
    X("makers", test_makers)                         \
    X("trace", test_trace)                           \
    X("stale", test_stale)                           \
    X("threads", test_threads)                       \
    X("destroy-stuck", test_destroy_stuck)           \
    X("destroy-watched", test_destroy_watched)       \
    X("abort-race", test_abort_race)                 \
    X("makers-group", test_makers_group)             \
    X("keys", test_keys)                             \
    X("children", test_children)                     \
    X("background", test_background)                 \
    X("background-call", test_background_call)       \
    X("background-group", test_background_group)     \
    X("background-fails", test_background_fails)     \
    X("background-end", test_background_end)         \
    X("background-suspend", test_background_suspend) \
    X("background-race", test_background_race)       \
    X("background-order", test_background_order)     \
    X("background-streams", test_background_streams) \
    X("background-many", test_background_many)       \
    X("late-stale", test_late_stale)                 \
    X("late", test_late)                             \
    X("late-end", test_late_end)                     \
    X("late-fails", test_late_fails)                 \
    X("group-forced", test_group_forced)             \
    X("group-streams", test_group_streams)           \
    X("group-threads", test_group_threads)           \
    X("group-ranks", test_group_ranks)               \
    X("rest", test_rest)                             \
    X("finalizing", test_finalizing)                 \
    X("ended", test_ended)                           \
    X("config", test_config)                         \
    X("fork", test_fork)

#define X(name, function) void function(void);
ENGINE_CASES(X)
#undef X

/* The head of an ncclConfig_t, and one that asks for a non-blocking communicator. */
struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
};
extern struct config background_config;

#define STREAM(n) ((cudaStream_t)(uintptr_t)(n))
extern char test_buffer[64];
extern int failures;

/* The calls since the last look were these; the number is that. */
void expect_log(int line, const char *expected);
void expect_number(int line, const char *what, long got, long expected);
#define LOG(expected) expect_log(__LINE__, expected)
#define IS(call, expected) expect_number(__LINE__, #call, (long)(call), (long)(expected))

size_t count_of(const char *text, const char *piece);

/* An AllReduce of `count` floats; a communicator of two ranks, also without noting it. */
ncclResult_t reduce(ncclComm_t comm, size_t count, uintptr_t stream);
ncclComm_t make(int rank);
ncclComm_t quiet_make(int rank);

#endif
