/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the ranks of a test:
 *   ips-worker [--threads] [--keep-going] --ranks N [--env R:NAME=VALUE]... SCRIPT
 * R is a rank or "*". NAME= alone removes the variable. The exit status is the first
 * failed rank's. Every rank prints "rank R: C checks, F failed" on stdout at its end. */
#include <getopt.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/process/worker.h"

#define MOST_CHANGES 128

struct plan {
    const char *changes[MOST_CHANGES];
    unsigned nchanges;
};

static void prepare(unsigned rank, void *arg)
{
    const struct plan *plan = arg;
    char number[16];
    snprintf(number, sizeof number, "%u", rank);
    setenv("RANK", number, 1);
    for (unsigned i = 0; i < plan->nchanges; i++) {
        const char *change = plan->changes[i], *colon = strchr(change, ':');
        if (!colon || (change[0] != '*' && (unsigned)atoi(change) != rank))
            continue;
        char *name = strdup(colon + 1), *value = strchr(name, '=');
        if (!value)
            continue;
        *value++ = '\0';
        if (*value)
            setenv(name, value, 1);
        else
            unsetenv(name);
        free(name);
    }
}

static int be_rank(struct worker_page *page, unsigned rank, const char *script,
                   int threads)
{
    struct worker worker = {
        .page = page, .rank = rank, .nranks = page->sync.nranks, .timeout_s = 30};
    return worker_run(&worker, script, threads);
}

struct thread {
    pthread_t id;
    struct worker_page *page;
    unsigned rank;
    const char *script;
    int status;
};

static void *thread_main(void *arg)
{
    struct thread *thread = arg;
    thread->status = be_rank(thread->page, thread->rank, thread->script, 1);
    if (thread->status)
        __atomic_store_n(&thread->page->sync.failed, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* All ranks in this process, which the driver started under the preload. */
static int run_threads(struct worker_page *page, unsigned nranks, const char *script)
{
    struct thread threads[IPS_MAX_RANKS];
    int status = 0;
    page->sync.nranks = nranks;
    for (unsigned r = 0; r < nranks; r++) {
        threads[r] = (struct thread){.page = page, .rank = r, .script = script};
        if (pthread_create(&threads[r].id, NULL, thread_main, &threads[r]))
            return 2;
    }
    for (unsigned r = 0; r < nranks; r++) {
        pthread_join(threads[r].id, NULL);
        if (!status)
            status = threads[r].status;
    }
    return status;
}

static int run_processes(struct fleet *fleet, int fd, unsigned nranks, const char *script,
                         struct plan *plan)
{
    char fd_text[16];
    snprintf(fd_text, sizeof fd_text, "%d", fd);
    char *argv[] = {"/proc/self/exe", "--rank-of", fd_text, (char *)script, NULL};
    if (fleet_start(fleet, nranks, argv, prepare, plan))
        return 2;
    return fleet_wait(fleet, NULL, NULL, NULL);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"ranks", required_argument, NULL, 'n'},   {"env", required_argument, NULL, 'e'},
        {"threads", no_argument, NULL, 't'},       {"keep-going", no_argument, NULL, 'k'},
        {"rank-of", required_argument, NULL, 'f'}, {0}};
    struct plan plan = {0};
    struct fleet fleet = {0};
    int option, threads = 0, fd = -1;
    unsigned nranks = 2;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'n')
            nranks = (unsigned)atoi(optarg);
        else if (option == 'e' && plan.nchanges < MOST_CHANGES)
            plan.changes[plan.nchanges++] = optarg;
        else if (option == 't')
            threads = 1;
        else if (option == 'k')
            fleet.keep_going = 1;
        else if (option == 'f')
            fd = atoi(optarg);
        else
            return 2;
    }
    if (optind + 1 != argc || nranks < 1 || nranks > IPS_MAX_RANKS)
        return 2;
    if (fd >= 0) {
        struct worker_page *page = fleet_attach(fd, sizeof *page);
        return page ? be_rank(page, (unsigned)atoi(getenv("RANK")), argv[optind], 0) : 2;
    }
    struct worker_page *page = fleet_share(sizeof *page, &fd);
    if (!page)
        return 2;
    fleet.sync = &page->sync;
    return threads ? run_threads(page, nranks, argv[optind])
                   : run_processes(&fleet, fd, nranks, argv[optind], &plan);
}
