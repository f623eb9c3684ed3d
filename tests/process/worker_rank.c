/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the script in one rank. A line is a command and key=value words; "@R" in front of
 * it restricts it to rank R, "@RST" to those three. Commands that all ranks must reach together say so.
 *
 *   comm L [expect=CODE] [config=1] [plant=KIND]   all: make communicator L (a letter)
 *   ar ...                            all: AllReduce and check, see worker_allreduce.c
 *   call NAME ...                     all: another collective, see worker_calls.c
 *   chain ...                         all: dependent calls on several streams, likewise
 *   make ... | split ... | sum ... | renew ...     see worker_comms.c
 *   group ...                         all: groups, see worker_groups.c
 *   nested ...                        all: graphs in graphs, see worker_nested.c
 *   initall ... | outlive ... | fork | threads ... see worker_ends.c
 *   post ... | finish ... | leave ...  see worker_posted.c
 *   gather ... | remake ... | die ... | signal ... | fault | await ... | abortlater ... |
 *   awaitstop ... | pause ... | clock ... | shm ... | names ... | quit
 *                                     see worker_faults.c
 *   flood N                           N calls of nothing, as fast as possible
 *   invalid                           bad arguments must get NCCL's own answers
 *   error L expect=CODE               ncclCommGetAsyncError
 *   finalize L | destroy L | abort L [within=MS]
 *   barrier | sleep MS | kill | exec | exit CODE | timeout SECONDS */
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/policy.h"
#include "tests/process/worker.h"

const char *words_text(const struct words *words, const char *key, const char *standard)
{
    size_t length = strlen(key);
    for (unsigned i = 1; i < words->count; i++)
        if (!strncmp(words->word[i], key, length) && words->word[i][length] == '=')
            return words->word[i] + length + 1;
    return standard;
}

long words_number(const struct words *words, const char *key, long standard)
{
    const char *text = words_text(words, key, NULL);
    return text ? strtol(text, NULL, 0) : standard;
}

/* A name, or a number for what has no name. */
static int find(const struct words *words, const char *key, const char *standard,
                const char *(*name)(int))
{
    const char *text = words_text(words, key, standard);
    for (int i = 0; name(i); i++)
        if (!strcmp(name(i), text))
            return i;
    return atoi(text);
}

int words_type(const struct words *words)
{
    return find(words, "type", "float32", ips_type_name);
}

int words_op(const struct words *words)
{
    return find(words, "op", "sum", ips_op_name);
}

unsigned worker_slot(const char *letter)
{
    unsigned index = (unsigned)(letter[0] - 'A');
    return index < WORKER_COMMS ? index : 0;
}

static nccl_comm *comm_slot(struct worker *worker, const char *letter)
{
    return &worker->comm[worker_slot(letter)];
}

nccl_comm words_comm(const struct words *words, struct worker *worker)
{
    return *comm_slot(worker, words_text(words, "comm", "A"));
}

int worker_check(struct worker *worker, int holds, const char *format, ...)
{
    char text[400];
    va_list args;
    worker->checks++;
    if (holds)
        return 1;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (++worker->failures <= 10)
        printf("rank %u line %u: FAIL %s\n", worker->rank, worker->line, text);
    return 0;
}

int worker_new_id(struct worker *worker)
{
    int code = 0;
    if (fleet_barrier(&worker->page->sync))
        return -1;
    if (worker->rank == 0)
        code = worker->nccl.GetUniqueId(&worker->page->id);
    return fleet_barrier(&worker->page->sync) ? -1 : code;
}

static int make_comm(struct worker *worker, const struct words *words)
{
    struct worker_page *page = worker->page;
    nccl_comm *comm = comm_slot(worker, words->count > 1 ? words->word[1] : "A");
    int code = 0, expected = (int)words_number(words, "expect", 0);
    if (fleet_barrier(&page->sync))
        return -1;
    if (worker->rank == 0)
        code = worker->nccl.GetUniqueId(&page->id);
    if (!code && worker->rank == 0 && words_text(words, "plant", NULL))
        code = worker_plant(worker, words_text(words, "plant", NULL));
    if (fleet_barrier(&page->sync))
        return -1;
    int nranks = (int)worker->nranks, rank = (int)worker->rank;
    if (!code && words_number(words, "config", 0))
        code = worker->nccl.CommInitRankConfig(comm, nranks, page->id, rank, NULL);
    else if (!code)
        code = worker->nccl.CommInitRank(comm, nranks, page->id, rank);
    worker->members[comm - worker->comm] = (1u << nranks) - 1;
    worker_check(worker, code == expected || (expected && rank && !code),
                 "communicator: code %d (%s), expected %d", code,
                 worker->nccl.GetErrorString(code), expected);
    return code != 0 && code != expected;
}

static int end_comm(struct worker *worker, const struct words *words,
                    int (*function)(nccl_comm comm))
{
    nccl_comm *comm = comm_slot(worker, words->count > 1 ? words->word[1] : "A");
    const uint64_t begin = worker_now_ns();
    int code = function(*comm);
    const long took_ms = (long)((worker_now_ns() - begin) / 1000000);
    worker_check(worker, code == words_number(words, "expect", 0), "%s: code %d",
                 words->word[0], code);
    worker_check(worker, took_ms <= words_number(words, "within", 60000), "%s took %ld ms",
                 words->word[0], took_ms);
    if (function != worker->nccl.CommFinalize)
        *comm = NULL;
    return 0;
}

static int async_error(struct worker *worker, const struct words *words)
{
    int error = -1;
    int code = worker->nccl.CommGetAsyncError(words_comm(words, worker), &error);
    worker_check(worker, !code && error == words_number(words, "expect", 0),
                 "asynchronous error %d, code %d", error, code);
    return 0;
}

static int flood(struct worker *worker, unsigned calls)
{
    unsigned failed = 0;
    for (unsigned i = 0; i < calls; i++)
        failed +=
            worker->nccl.AllReduce((void *)256, (void *)256, 0, IPS_FLOAT32, IPS_SUM,
                                   worker->comm[0], worker->stream[0]) != 0;
    worker_check(worker, !failed, "%u of %u calls failed", failed, calls);
    return 0;
}

static int execute(struct worker *worker, const struct words *words)
{
    static const char *const faults[] = {"gather", "remake", "die",   "signal",
                                         "fault",  "await",  "pause", "clock",
                                         "shm",    "names",  "quit",  "abortlater",
                                         "awaitstop"};
    const char *name = words->word[0];
    int number = words->count > 1 ? atoi(words->word[1]) : 0;
    if (!strcmp(name, "comm"))
        return make_comm(worker, words);
    if (!strcmp(name, "ar"))
        return worker_allreduce(worker, words);
    if (!strcmp(name, "call"))
        return worker_collective(worker, words);
    if (!strcmp(name, "chain"))
        return worker_chain(worker, words);
    if (!strcmp(name, "group"))
        return worker_group(worker, words);
    if (!strcmp(name, "nested"))
        return worker_nested(worker, words);
    if (!strcmp(name, "sum"))
        return worker_sum(worker, words);
    if (!strcmp(name, "split"))
        return worker_split(worker, words);
    if (!strcmp(name, "make"))
        return worker_make(worker, words);
    if (!strcmp(name, "renew"))
        return worker_renew(worker, words);
    if (!strcmp(name, "initall"))
        return worker_init_all(worker, words);
    if (!strcmp(name, "outlive"))
        return worker_outlive(worker, words);
    if (!strcmp(name, "fork"))
        return worker_fork(worker, words);
    if (!strcmp(name, "threads"))
        return worker_threads(worker, words);
    if (!strcmp(name, "post"))
        return worker_post(worker, words);
    if (!strcmp(name, "finish"))
        return worker_finish(worker, words);
    if (!strcmp(name, "leave"))
        return worker_leave(worker, words);
    for (unsigned i = 0; i < sizeof faults / sizeof faults[0]; i++)
        if (!strcmp(name, faults[i]))
            return worker_fault(worker, words);
    if (!strcmp(name, "invalid"))
        return worker_invalid(worker, words);
    if (!strcmp(name, "error"))
        return async_error(worker, words);
    if (!strcmp(name, "finalize"))
        return end_comm(worker, words, worker->nccl.CommFinalize);
    if (!strcmp(name, "destroy"))
        return end_comm(worker, words, worker->nccl.CommDestroy);
    if (!strcmp(name, "abort"))
        return end_comm(worker, words, worker->nccl.CommAbort);
    if (!strcmp(name, "barrier"))
        return fleet_barrier(&worker->page->sync);
    if (!strcmp(name, "flood"))
        return flood(worker, (unsigned)number);
    if (!strcmp(name, "sleep"))
        return usleep((useconds_t)number * 1000);
    if (!strcmp(name, "kill"))
        return raise(SIGKILL);
    if (!strcmp(name, "exec")) /* the process lives on as another program */
        return execlp("sleep", "sleep", "20", (char *)NULL);
    if (!strcmp(name, "timeout"))
        return (worker->timeout_s = number) <= 0;
    if (!strcmp(name, "exit")) {
        fflush(stdout);
        _exit(number);
    }
    printf("line %u: no command %s\n", worker->line, name);
    return -1;
}

static int read_line(struct worker *worker, char *line)
{
    struct words words = {0};
    char *rest;
    for (char *word = strtok_r(line, " \n", &rest); word && words.count < WORKER_WORDS;
         word = strtok_r(NULL, " \n", &rest))
        words.word[words.count++] = word;
    if (!words.count || words.word[0][0] == '#')
        return 0;
    if (words.word[0][0] == '@') {
        if (!strchr(words.word[0] + 1, '0' + (int)worker->rank))
            return 0;
        words.count--;
        memmove(words.word, words.word + 1, words.count * sizeof words.word[0]);
    }
    return words.count ? execute(worker, &words) : 0;
}

static int open_all(struct worker *worker)
{
    const char *missing = nccl_api_load(RTLD_DEFAULT, &worker->nccl);
    if (missing) {
        printf("not preloaded: no %s\n", missing);
        return -1;
    }
    worker->page->pid[worker->rank] = (int32_t)getpid();
    if (device_open(&worker->device, worker->rank))
        return -1;
    for (unsigned i = 0; i < WORKER_STREAMS; i++)
        if (device_stream(&worker->device, &worker->stream[i]))
            return -1;
    return 0;
}

int worker_run(struct worker *worker, const char *script, int threads)
{
    FILE *file = fopen(script, "re");
    char *line = NULL;
    size_t room = 0;
    int error = file ? open_all(worker) : -1;
    while (!error && getline(&line, &room, file) > 0) {
        worker->line++;
        error = read_line(worker, line);
    }
    if (error) {
        worker->failures++;
        printf("rank %u line %u: FAIL the script could not go on\n", worker->rank,
               worker->line);
        fflush(stdout);
        if (!threads) /* a kernel may hang: no call that would wait for it */
            _exit(1);
    }
    for (unsigned i = 0; i < WORKER_COMMS && !error; i++)
        if (worker->comm[i])
            worker_check(worker, !worker->nccl.CommDestroy(worker->comm[i]), "destroy");
    free(line);
    if (file)
        fclose(file);
    printf("rank %u: %u checks, %u failed\n", worker->rank, worker->checks,
           worker->failures);
    fflush(stdout);
    return worker->failures ? 1 : 0;
}
