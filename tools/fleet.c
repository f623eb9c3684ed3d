/* SPDX-License-Identifier: Apache-2.0 */
/* N rank processes. Signals are taken with sigtimedwait, so that no handler runs;
 * children get the original mask back. */
#include "tools/fleet.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE_SECONDS 5.0

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void *fleet_share(size_t bytes, int *ret_fd)
{
    int fd = memfd_create("ipcshim-fleet", 0);
    if (fd < 0)
        return NULL;
    void *page = ftruncate(fd, (off_t)bytes) ? NULL : fleet_attach(fd, bytes);
    if (!page) {
        close(fd);
        return NULL;
    }
    *ret_fd = fd;
    return page;
}

void *fleet_attach(int fd, size_t bytes)
{
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? NULL : page;
}

static void signal_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (size_t i = 0; i < sizeof forwarded / sizeof forwarded[0]; i++)
        sigaddset(set, forwarded[i]);
}

static void kill_all(const struct fleet *fleet, int signal_number)
{
    for (unsigned r = 0; r < fleet->nranks; r++)
        if (fleet->pid[r] > 0 && fleet->status[r] == -1)
            kill(fleet->pid[r], signal_number);
}

static _Noreturn void become_rank(unsigned rank, pid_t parent, char *const argv[],
                                  void (*prepare)(unsigned rank, void *arg), void *arg)
{
    sigset_t set;
    signal_set(&set);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives us */
    if (getppid() != parent)
        _exit(1);
    if (prepare)
        prepare(rank, arg);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    execvp(argv[0], argv);
    fprintf(stderr, "ipcshim: cannot execute %s: %s\n", argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

int fleet_start(struct fleet *fleet, unsigned nranks, char *const argv[],
                void (*prepare)(unsigned rank, void *arg), void *arg)
{
    sigset_t set;
    signal_set(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fleet->nranks = nranks;
    if (fleet->sync)
        fleet->sync->nranks = nranks;
    for (unsigned r = 0; r < nranks; r++) {
        fleet->pid[r] = 0;
        fleet->status[r] = -1;
    }
    pid_t parent = getpid();
    for (unsigned r = 0; r < nranks; r++) {
        pid_t pid = fork();
        if (pid == 0)
            become_rank(r, parent, argv, prepare, arg);
        if (pid < 0) {
            int error = -errno;
            kill_all(fleet, SIGKILL);
            fleet->nranks = r;
            fleet_wait(fleet, NULL, NULL, NULL);
            return error;
        }
        fleet->pid[r] = pid;
    }
    return 0;
}

static int exit_code(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Collects ranks that have ended; returns how many still run. */
static unsigned reap(struct fleet *fleet, int *first_code, int *first_rank)
{
    unsigned running = 0;
    for (unsigned r = 0; r < fleet->nranks; r++) {
        if (fleet->status[r] != -1)
            continue;
        int status;
        if (waitpid(fleet->pid[r], &status, WNOHANG) != fleet->pid[r]) {
            running++;
            continue;
        }
        fleet->status[r] = status;
        if (exit_code(status) && !*first_code) {
            *first_code = exit_code(status);
            *first_rank = (int)r;
            if (fleet->sync)
                __atomic_store_n(&fleet->sync->failed, 1, __ATOMIC_RELEASE);
        }
    }
    return running;
}

/* A terminal has already sent its signals to the whole foreground group. */
static void forward(const struct fleet *fleet, const siginfo_t *info)
{
    if (info->si_signo != SIGCHLD && info->si_code != SI_KERNEL)
        kill_all(fleet, info->si_signo);
}

int fleet_wait(struct fleet *fleet, void (*tick)(void *arg), void *arg, int *ret_rank)
{
    int code = 0, rank = -1, ending = 0;
    double deadline = 0;
    sigset_t set;
    signal_set(&set);
    while (reap(fleet, &code, &rank)) {
        siginfo_t info;
        const struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
        if (code && !ending && !fleet->keep_going) {
            ending = 1;
            deadline = now_seconds() + GRACE_SECONDS;
            kill_all(fleet, SIGTERM);
        }
        if (ending == 1 && now_seconds() > deadline) {
            ending = 2;
            kill_all(fleet, SIGKILL);
        }
        if (sigtimedwait(&set, &info, &pause) > 0)
            forward(fleet, &info);
        if (tick)
            tick(arg);
    }
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    if (ret_rank)
        *ret_rank = rank;
    return code;
}

int fleet_barrier(struct fleet_sync *sync)
{
    uint32_t generation = __atomic_load_n(&sync->generation, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&sync->arrived, 1, __ATOMIC_ACQ_REL) == sync->nranks) {
        __atomic_store_n(&sync->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&sync->generation, generation + 1, __ATOMIC_RELEASE);
        return 0;
    }
    while (__atomic_load_n(&sync->generation, __ATOMIC_ACQUIRE) == generation) {
        if (__atomic_load_n(&sync->failed, __ATOMIC_ACQUIRE))
            return -EPIPE;
        sched_yield();
    }
    return 0;
}
