/* SPDX-License-Identifier: Apache-2.0 */
/* Runs random programs on ranks that are processes or threads:
 *   ips-order [--threads] --ranks N --seed S [--first I] [--count C]
 *             [--steps L] [--print]
 * Programs I to I + C - 1 of the seed, each cut after L steps. The first that fails ends
 * the run with status 1 and is named on stdout: "failed: program I, L steps". */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/order/execute.h"
#include "tests/order/random.h"

#define PROGRAMS_PER_COMM 16

struct run {
    struct program_options options;
    uint64_t seed;
    unsigned first, count, steps;
    int print;
    struct order_page *page;
    int fd;
};

static struct program *program_of(const struct run *run, unsigned index)
{
    static _Thread_local struct program program;
    uint64_t state = run->seed + index;
    program_generate(&program, &run->options, random_next(&state));
    program_cut(&program, run->steps);
    return &program;
}

static int fail(struct run *run, unsigned index, const struct program *program)
{
    if (!__atomic_exchange_n(&run->page->sync.failed, 1, __ATOMIC_ACQ_REL)) {
        printf("failed: program %u, %u steps\n", index, program->nsteps);
        program_print(program);
    }
    fflush(stdout);
    return 1;
}

/* New communicators: a program's calls are then the first ones. */
static int renew(struct run *run, struct rank *rank, unsigned index)
{
    int error = index == run->first ? 0 : rank_end_comms(rank);
    if (!error)
        error = rank_make_comms(rank);
    if (error)
        __atomic_store_n(&run->page->sync.failed, 1, __ATOMIC_RELEASE);
    return error;
}

static int be_rank(struct run *run, unsigned number)
{
    struct rank *rank = calloc(1, sizeof *rank);
    if (!rank)
        return 1;
    rank->page = run->page;
    rank->rank = number;
    rank->nranks = run->options.nranks;
    if (rank_open(rank)) {
        __atomic_store_n(&run->page->sync.failed, 1, __ATOMIC_RELEASE);
        return 1;
    }
    for (unsigned i = run->first; i < run->first + run->count; i++) {
        if ((i - run->first) % PROGRAMS_PER_COMM == 0 && renew(run, rank, i))
            return 1;
        struct program *program = program_of(run, i);
        if (rank_run(rank, program))
            return fail(run, i, program);
        if (fleet_barrier(&run->page->sync))
            return 1;
    }
    int error = rank_end_comms(rank);
    free(rank);
    return error != 0;
}

struct thread {
    pthread_t id;
    struct run *run;
    unsigned rank;
    int status;
};

static void *thread_main(void *arg)
{
    struct thread *thread = arg;
    thread->status = be_rank(thread->run, thread->rank);
    return NULL;
}

static int run_threads(struct run *run)
{
    struct thread thread[PROGRAM_RANKS];
    int status = 0;
    run->page->sync.nranks = run->options.nranks;
    for (unsigned r = 0; r < run->options.nranks; r++) {
        thread[r] = (struct thread){.run = run, .rank = r};
        if (pthread_create(&thread[r].id, NULL, thread_main, &thread[r]))
            return 2;
    }
    for (unsigned r = 0; r < run->options.nranks; r++) {
        pthread_join(thread[r].id, NULL);
        status |= thread[r].status;
    }
    return status;
}

static void name_rank(unsigned rank, void *arg)
{
    char text[16];
    (void)arg;
    snprintf(text, sizeof text, "%u", rank);
    setenv("RANK", text, 1);
    setenv("LD_PRELOAD", getenv("IPS_SHIM"), 1);
}

static int run_processes(struct run *run, char **argv, int argc)
{
    struct fleet fleet = {.sync = &run->page->sync};
    char fd[32], **copy = calloc((size_t)argc + 2, sizeof *copy);
    if (!copy)
        return 2;
    snprintf(fd, sizeof fd, "--page=%d", run->fd);
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    copy[0] = "/proc/self/exe";
    copy[argc] = fd;
    int error = fleet_start(&fleet, run->options.nranks, copy, name_rank, NULL);
    free(copy);
    return error ? 2 : fleet_wait(&fleet, NULL, NULL, NULL);
}

static int read_options(struct run *run, int argc, char **argv)
{
    static const struct option options[] = {
        {"ranks", 1, NULL, 'n'}, {"seed", 1, NULL, 's'},    {"first", 1, NULL, 'f'},
        {"count", 1, NULL, 'c'}, {"steps", 1, NULL, 'l'},   {"print", 0, NULL, 'p'},
        {"page", 1, NULL, 'd'},  {"threads", 0, NULL, 't'}, {0}};
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        unsigned long long number = optarg ? strtoull(optarg, NULL, 0) : 0;
        switch (option) {
        case 'n':
            run->options.nranks = (unsigned)number;
            break;
        case 's':
            run->seed = number;
            break;
        case 'f':
            run->first = (unsigned)number;
            break;
        case 'c':
            run->count = (unsigned)number;
            break;
        case 'l':
            run->steps = (unsigned)number;
            break;
        case 'd':
            run->fd = (int)number;
            break;
        case 'p':
            run->print = 1;
            break;
        case 't':
            run->options.threads = 1;
            break;
        default:
            return -1;
        }
    }
    return run->options.nranks < 2 || run->options.nranks > PROGRAM_RANKS ? -1 : 0;
}

int main(int argc, char **argv)
{
    struct run run = {
        .options = {.nranks = 2}, .count = 1, .steps = PROGRAM_STEPS, .fd = -1};
    if (read_options(&run, argc, argv)) {
        fprintf(stderr, "ips-order: bad options\n");
        return 2;
    }
    for (unsigned i = run.first; run.print && i < run.first + run.count; i++)
        program_print(program_of(&run, i));
    if (run.print)
        return 0;
    int inherited = run.fd >= 0;
    run.page = inherited ? fleet_attach(run.fd, sizeof *run.page)
                         : fleet_share(sizeof *run.page, &run.fd);
    if (!run.page)
        return 2;
    if (!inherited)
        return run.options.threads ? run_threads(&run) : run_processes(&run, argv, argc);
    int status = be_rank(&run, (unsigned)atoi(getenv("RANK")));
    fflush(stdout);
    if (status)
        _exit(status); /* a stream may be stuck */
    return 0;
}
