/* SPDX-License-Identifier: Apache-2.0 */
/* The parent of the probe: starts a child, watches that it makes steps, and charges what
 * it was at to the link when it dies or stands still. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/fleet.h"
#include "tools/links.h"
#include "tools/tool.h"

#define STILL_S \
    60 /* without a step: loading may compile; a measurement takes two seconds */
#define KILL_S 5 /* for a killed child to go: a driver that hangs may hold it */
#define CHILDREN 32

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static _Noreturn void become_child(int fd, pid_t parent)
{
    char text[16];
    snprintf(text, sizeof text, "%d", fd);
    char *argv[] = {"/proc/self/exe", "links-child", text, NULL};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsetenv("CUDA_LAUNCH_BLOCKING"); /* who waits is launched before what it waits for */
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (getppid() == parent)
        execv(argv[0], argv);
    _exit(TOOL_FAILED);
}

static unsigned still_limit(void)
{
    const char *text = getenv("IPS_LINKS_STILL_S"); /* for tests */
    return text ? (unsigned)atoi(text) : STILL_S;
}

/* Whether the child has ended; kills it when it makes no step. *ret_why: what ended it,
 * or NULL for itself. */
static int wait_child(struct links_page *page, pid_t pid, const struct links_tick *tick,
                      const char **ret_why)
{
    const unsigned still = still_limit();
    const struct timespec pause = {0, 10000000};
    uint32_t seen = 0;
    double since = now_s();
    int status = 0, killed = 0;
    *ret_why = NULL;
    for (unsigned turn = 0; waitpid(pid, &status, WNOHANG) != pid; turn++) {
        const uint32_t steps = __atomic_load_n(&page->steps, __ATOMIC_ACQUIRE);
        if (steps != seen) {
            seen = steps;
            since = now_s();
        }
        if (killed && now_s() - since > KILL_S)
            return 0;
        if (!killed && now_s() - since > still) {
            killed = 1;
            since = now_s();
            kill(pid, SIGKILL);
        }
        if (turn % 10 == 9)
            tick->run(tick->context);
        nanosleep(&pause, NULL);
    }
    if (killed)
        *ret_why = "the measurement did not end";
    else if (WIFSIGNALED(status))
        *ret_why = strsignal(WTERMSIG(status));
    return 1;
}

/* Of all cells; charges those that were running. */
static unsigned count_left(struct links_page *page, const char *why)
{
    struct links_cell *cell = &page->cell[0][0][0][0];
    unsigned left = 0;
    for (size_t i = 0; i < sizeof page->cell / sizeof *cell; i++) {
        if (cell[i].state == LINKS_RUNS) {
            cell[i].kind = IPS_LINK_FAILS;
            snprintf(cell[i].detail, sizeof cell[i].detail, "%s",
                     why ? why : "the process ended");
            cell[i].state = LINKS_DONE;
        }
        left += cell[i].state == LINKS_TODO;
    }
    return left;
}

static int any_done(const struct links_page *page)
{
    const struct links_cell *cell = &page->cell[0][0][0][0];
    for (size_t i = 0; i < sizeof page->cell / sizeof *cell; i++)
        if (cell[i].state == LINKS_DONE)
            return 1;
    return 0;
}

static int run_child(struct links_page *page, int fd, const struct links_tick *tick,
                     const char **ret_why)
{
    const pid_t parent = getpid();
    signal(SIGCHLD, SIG_DFL); /* or, where it is ignored, there is nothing to wait for */
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        become_child(fd, parent);
    if (pid < 0)
        return tool_fail("doctor: cannot start a process: %s", strerror(errno));
    if (!wait_child(page, pid, tick, ret_why))
        return tool_fail(
            "doctor: process %d, which probes the links, cannot be ended: the "
            "driver hangs; reset the GPU or restart the machine",
            (int)pid);
    return 0;
}

/* A child that ends before its time leaves the rest to another, as long as each gets on.
 */
static int run_children(struct links_page *page, int fd, const struct links_tick *tick)
{
    const char *why = NULL;
    unsigned left = UINT32_MAX;
    for (unsigned i = 0; i < CHILDREN && left; i++) {
        if (run_child(page, fd, tick, &why)) {
            count_left(page, "the driver hangs");
            return any_done(page) ? 0 : -1;
        }
        if (!page->described || (page->error[0] && !i)) {
            tool_fail("doctor: the links cannot be probed: %s",
                      page->error[0] ? page->error
                      : why          ? why
                                     : "the process ended");
            return -1;
        }
        const unsigned now = count_left(page, why);
        if (now == left || page->error[0])
            break;
        left = now;
    }
    if (left)
        tool_fail("doctor: %u measurements were left out, since %s", left,
                  page->error[0] ? page->error
                                 : "the process that makes them keeps ending");
    if (left && why)
        tool_fail("doctor: the last one: %s", why);
    return left && !any_done(page) ? -1 : 0;
}

int links_probe(const struct links_tick *tick, struct links_page **ret_page)
{
    int fd;
    struct links_page *page = fleet_share(sizeof *page, &fd);
    if (!page) {
        tool_fail("doctor: no shared memory: %s", strerror(errno));
        return -1;
    }
    const int error = run_children(page, fd, tick);
    close(fd);
    *ret_page = page;
    return error;
}
