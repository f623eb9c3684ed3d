/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong in a process, and what those do who are left. RANKS are digits: 023.
 *
 *   gather RANKS          those meet, whoever else has ended
 *   remake L RANKS [how=late] [delay=MS]    they make a communicator of their own; late:
 *                         without blocking, and without waiting for it
 *   die [after=MS] [amid=1]    by SIGKILL; `leave` counts from then. amid: when the first of
 *                         the posted calls has written its first element
 *   signal R NAME         STOP, CONT or KILL, to the process of rank R
 *   fault                 only the time that `leave` counts from
 *   await N               until so many of these four have happened
 *   awaitstop R           until the process of rank R is stopped
 *   abortlater L MS       another thread aborts L
 *   pause MS              all ranks are stopped together, and go on together
 *   clock NAME            from now on that clock jumps, see meddler.c
 *   shm empty|unmount     of this mount namespace
 *   names N               so many communicators have a name there
 *   quit                  exits as a program does that destroys nothing */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/process/worker_parts.h"

uint64_t worker_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static char state_of(int pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    const char *at = file && fgets(text, sizeof text, file) ? strrchr(text, ')') : NULL;
    if (file)
        fclose(file);
    return at && at[1] ? at[2] : '?';
}

static int await_stop(struct worker *worker, unsigned rank)
{
    for (int waited = 0; waited < 20000; waited++) {
        if (state_of(worker->page->pid[rank % IPS_MAX_RANKS]) == 'T')
            return 0;
        usleep(1000);
    }
    return !worker_check(worker, 0, "rank %u does not stop", rank);
}

static unsigned ranks_of(const char *digits)
{
    unsigned ranks = 0;
    for (; *digits >= '0' && *digits <= '9'; digits++)
        ranks |= 1u << (*digits - '0');
    return ranks;
}

/* Each rank counts the meetings of those ranks that it has come to. */
static int gather(struct worker *worker, unsigned ranks)
{
    uint32_t *met = worker->page->met[ranks];
    if (!(ranks >> worker->rank & 1))
        return 0;
    const uint32_t turn = __atomic_add_fetch(&met[worker->rank], 1, __ATOMIC_ACQ_REL);
    const uint64_t begin = worker_now_ns();
    for (unsigned r = 0; r < worker->nranks; r++)
        while (ranks >> r & 1 && __atomic_load_n(&met[r], __ATOMIC_ACQUIRE) < turn) {
            if (worker_now_ns() - begin > (uint64_t)(worker->timeout_s * 1e9)) {
                worker_check(worker, 0, "rank %u does not come", r);
                return -1;
            }
            usleep(1000);
        }
    return 0;
}

/* The lowest of them has the unique id. */
static int remake(struct worker *worker, const struct words *words)
{
    const unsigned slot = worker_slot(words->word[1]), ranks = ranks_of(words->word[2]);
    const int n = __builtin_popcount(ranks);
    const int rank = __builtin_popcount(ranks & ((1u << worker->rank) - 1));
    const int late = !strcmp(words_text(words, "how", ""), "late");
    int code = 0, expected = late ? NCCL_IN_PROGRESS : 0;
    worker->members[slot] = ranks;
    if (gather(worker, ranks))
        return -1;
    if (!(ranks >> worker->rank & 1))
        return 0;
    if (!rank)
        code = worker->nccl.GetUniqueId(&worker->page->id);
    if (code || gather(worker, ranks))
        return -1;
    usleep((useconds_t)words_number(words, "delay", 0) * 1000);
    if (late)
        code = worker_init_late(worker, &worker->comm[slot], n, rank);
    else
        code = worker->nccl.CommInitRank(&worker->comm[slot], n, worker->page->id, rank);
    return !worker_check(worker, code == expected, "made again by %d: code %d", n, code);
}

static void mark_fault(struct worker *worker)
{
    __atomic_store_n(&worker->page->fault_ns, worker_now_ns(), __ATOMIC_RELEASE);
    __atomic_fetch_add(&worker->page->faults, 1, __ATOMIC_RELEASE);
}

static int await_faults(struct worker *worker, unsigned count)
{
    while (__atomic_load_n(&worker->page->faults, __ATOMIC_ACQUIRE) < count)
        usleep(1000);
    return usleep(20000); /* a signal takes its time */
}

/* The stand-in's device memory is this process's. */
static void await_output(const struct part *part)
{
    const uint32_t *out = (const uint32_t *)(uintptr_t)part->out;
    while (__atomic_load_n(out, __ATOMIC_RELAXED) == PART_POISON)
        sched_yield();
}

static int die(struct worker *worker, const struct words *words)
{
    usleep((useconds_t)words_number(words, "after", 0) * 1000);
    if (words_number(words, "amid", 0) && worker->posted.count)
        await_output(&worker->posted.part[0]);
    printf("rank %u: pid %d dies\n", worker->rank, (int)getpid());
    fflush(stdout);
    mark_fault(worker);
    return raise(SIGKILL);
}

static int send_signal(struct worker *worker, const struct words *words)
{
    const char *name = words->word[2];
    const int number = !strcmp(name, "STOP")   ? SIGSTOP
                       : !strcmp(name, "CONT") ? SIGCONT
                                               : SIGKILL;
    const unsigned to = (unsigned)atoi(words->word[1]) % IPS_MAX_RANKS;
    mark_fault(worker);
    return kill(worker->page->pid[to], number);
}

/* A child continues them. */
static int pause_all(struct worker *worker, unsigned ms)
{
    const int32_t *pid = worker->page->pid;
    const pid_t child = fork();
    if (child == 0) {
        for (unsigned r = 0; r < worker->nranks; r++)
            kill(pid[r], SIGSTOP);
        usleep(ms * 1000);
        for (unsigned r = 0; r < worker->nranks; r++)
            kill(pid[r], SIGCONT);
        _exit(0);
    }
    return child < 0 ? -1 : waitpid(child, NULL, 0) != child;
}

struct later {
    struct worker *worker;
    nccl_comm comm;
    unsigned ms;
};

static void *abort_later(void *arg)
{
    struct later *later = arg;
    usleep(later->ms * 1000);
    mark_fault(later->worker);
    const int code = later->worker->nccl.CommAbort(later->comm);
    if (code)
        printf("FAIL abort: code %d\n", code);
    free(later);
    return NULL;
}

static int start_abort(struct worker *worker, const struct words *words)
{
    const unsigned slot = worker_slot(words->word[1]);
    struct later *later = malloc(sizeof *later);
    pthread_t thread;
    if (!later)
        return -1;
    *later = (struct later){worker, worker->comm[slot], (unsigned)atoi(words->word[2])};
    worker->comm[slot] = NULL;
    if (pthread_create(&thread, NULL, abort_later, later))
        return -1;
    return pthread_detach(thread);
}

static int start_jumps(const char *clock)
{
    const char **jumps = dlsym(RTLD_DEFAULT, "ips_meddler_clock");
    if (jumps)
        *jumps = !strcmp(clock, "device") ? "device" : "real";
    return !jumps;
}

static int names(struct worker *worker, unsigned wanted)
{
    DIR *directory = opendir("/dev/shm");
    unsigned found = 0;
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        found += !strncmp(entry->d_name, "ipcshim-", 8);
    worker_check(worker, found == wanted, "%u names in /dev/shm, not %u", found, wanted);
    return directory ? closedir(directory) : -1;
}

static int empty_shm(void)
{
    DIR *directory = opendir("/dev/shm");
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        unlinkat(dirfd(directory), entry->d_name, 0);
    return directory ? closedir(directory) : -1;
}

int worker_fault(struct worker *worker, const struct words *words)
{
    const char *name = words->word[0];
    const char *first = words->count > 1 ? words->word[1] : "";
    if (!strcmp(name, "die"))
        return die(worker, words);
    if (!strcmp(name, "gather"))
        return gather(worker, ranks_of(first));
    if (!strcmp(name, "clock"))
        return start_jumps(first);
    if (!strcmp(name, "pause"))
        return pause_all(worker, (unsigned)atoi(first));
    if (!strcmp(name, "names"))
        return names(worker, (unsigned)atoi(first));
    if (!strcmp(name, "quit"))
        exit(worker->failures != 0);
    if (!strcmp(name, "shm"))
        return strcmp(first, "unmount") ? empty_shm() : umount2("/dev/shm", MNT_DETACH);
    if (!strcmp(name, "awaitstop"))
        return await_stop(worker, (unsigned)atoi(first));
    if (!strcmp(name, "await"))
        return await_faults(worker, (unsigned)atoi(first));
    if (!strcmp(name, "fault")) {
        mark_fault(worker);
        return 0;
    }
    if (words->count < 3)
        return -1;
    if (!strcmp(name, "remake"))
        return remake(worker, words);
    if (!strcmp(name, "abortlater"))
        return start_abort(worker, words);
    return send_signal(worker, words);
}
