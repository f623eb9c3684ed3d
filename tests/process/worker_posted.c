/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are enqueued and left alone, so that something can happen to them.
 *
 *   post L [count=N] [type=T] [op=O] [calls=C] [busy=MS] [or=CODE]    enqueues, waits for
 *     nothing; busy: the stream does something else first; or: the fault may come first
 *   finish L [still=MS]           what was posted ends well: the sums of all members, and no
 *     error of the communicator; still: and not before that time
 *   leave L expect=CODE within=MS    what was posted ends because of a fault, at most that
 *     long after the fault and the posting; from then on the communicator says so, and so
 *     does every call. L is "-": only the time is looked at */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/process/worker_parts.h"

/* Buffers of one call more. May wait for what was enqueued before. */
static struct part *next_part(struct worker *worker, size_t count)
{
    struct worker_posted *posted = &worker->posted;
    void *grown = realloc(posted->part, (posted->count + 1) * sizeof *posted->part);
    if (!grown)
        return NULL;
    posted->part = grown;
    struct part *part = &posted->part[posted->count];
    return part_make_salted(worker, part, count, posted->count++) ? NULL : part;
}

static void forget(struct worker *worker)
{
    struct worker_posted *posted = &worker->posted;
    for (unsigned i = 0; i < posted->count; i++)
        part_free(worker, &posted->part[i]);
    free(posted->part);
    *posted = (struct worker_posted){0};
}

static int enqueue(struct worker *worker, nccl_comm comm, const struct part *part, int type,
                   int op)
{
    return worker->nccl.AllReduce((const void *)(uintptr_t)part->in,
                                  (void *)(uintptr_t)part->out, part->count, type, op, comm,
                                  worker->stream[0]);
}

static void be_busy(void *ms)
{
    usleep((useconds_t)(uintptr_t)ms * 1000);
}

static int busy(struct worker *worker, long ms)
{
    int (*launch)(gpu_stream stream, void (*function)(void *), void *data);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    *(void **)&launch = driver ? dlsym(driver, "cuLaunchHostFunc") : NULL;
    return launch ? launch(worker->stream[0], be_busy, (void *)(uintptr_t)ms) : -1;
}

int worker_post(struct worker *worker, const struct words *words)
{
    const char *letter = words->count > 1 ? words->word[1] : "A";
    const unsigned slot = worker_slot(letter);
    const unsigned calls = (unsigned)words_number(words, "calls", 1);
    const int type = words_text(words, "type", NULL) ? words_type(words) : IPS_INT32;
    const unsigned before = worker->posted.count;
    if (!(worker->members[slot] >> worker->rank & 1))
        return 0;
    for (unsigned i = 0; i < calls; i++)
        if (!next_part(worker, (size_t)words_number(words, "count", 200)))
            return -1;
    if (words_number(words, "busy", 0) && busy(worker, words_number(words, "busy", 0)))
        return -1;
    for (unsigned i = before; i < worker->posted.count; i++) {
        const int code = enqueue(worker, worker->comm[slot], &worker->posted.part[i], type,
                                 words_op(words));
        worker_check(worker, !code || code == words_number(words, "or", 0), "post: code %d",
                     code);
    }
    worker->posted.at_ns = worker_now_ns();
    return 0;
}

int worker_finish(struct worker *worker, const struct words *words)
{
    const unsigned slot = worker_slot(words->count > 1 ? words->word[1] : "A");
    struct worker_posted *posted = &worker->posted;
    int error = -1;
    if (!(worker->members[slot] >> worker->rank & 1))
        return 0;
    if (!worker_check(worker, posted->count, "nothing was posted") || worker_wait(worker))
        return -1;
    const uint64_t took_ms = (worker_now_ns() - posted->at_ns) / 1000000;
    worker_check(worker, took_ms >= (uint64_t)words_number(words, "still", 0),
                 "ended after %llu ms already", (unsigned long long)took_ms);
    for (unsigned i = 0; i < posted->count; i++)
        part_check(worker, &posted->part[i], worker->members[slot], "finish");
    worker->nccl.CommGetAsyncError(worker->comm[slot], &error);
    worker_check(worker, !error, "finish: asynchronous error %d", error);
    forget(worker);
    return 0;
}

/* The communicator fails for good; where this rank's call was done, somewhat later. */
static void check_failed(struct worker *worker, nccl_comm comm, int expected)
{
    int error = -1;
    int code = worker->nccl.CommGetAsyncError(comm, &error);
    for (int waited = 0; !code && !error && waited < 5000; waited++) {
        usleep(1000);
        code = worker->nccl.CommGetAsyncError(comm, &error);
    }
    worker_check(worker, !code && error == expected,
                 "asynchronous error %d, expected %d (code %d)", error, expected, code);
    struct part *part = next_part(worker, 100);
    if (worker_check(worker, part != NULL, "no buffers")) {
        code = enqueue(worker, comm, part, IPS_INT32, IPS_SUM);
        worker_check(worker, code == expected, "a later call: code %d, expected %d", code,
                     expected);
    }
}

int worker_leave(struct worker *worker, const struct words *words)
{
    const char *letter = words->count > 1 ? words->word[1] : "A";
    const uint64_t within_ms = (uint64_t)words_number(words, "within", 5000);
    uint64_t since = worker->posted.at_ns;
    if (worker_wait(worker))
        return -1;
    const uint64_t now = worker_now_ns(), fault = worker->page->fault_ns;
    if (fault > since && fault < now)
        since = fault;
    const uint64_t took_ms = (now - since) / 1000000;
    printf("rank %u line %u: left after %llu ms\n", worker->rank, worker->line,
           (unsigned long long)took_ms);
    worker_check(worker, took_ms <= within_ms, "left after %llu ms, not within %llu",
                 (unsigned long long)took_ms, (unsigned long long)within_ms);
    if (strcmp(letter, "-"))
        check_failed(worker, worker->comm[worker_slot(letter)],
                     (int)words_number(words, "expect", 0));
    forget(worker);
    return 0;
}
