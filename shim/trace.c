/* SPDX-License-Identifier: Apache-2.0 */
/* The trace's life: open, one writing thread, flushes, end. Only the process that started
 * it writes, whole lines only, and nobody who adds an event ever waits for the file. */
#include "shim/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "shim/ring.h"
#include "shim/summary.h"
#include "shim/trace_format.h"

#define DRAIN_MS 100
#define SUMMARY_NS 5000000000ull
#define WRITE_BYTES (64 * 1024)

int ips_trace_state; /* 0: off, 1: summary only, 2: file */

static struct ips_ring *ring;
static int file = -1;
static int owner, rank, table_wanted;

/* Everything below is used with `writing` held. */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake;
static pthread_t writer;
static int running, stopping, stopped;
static int torn; /* the last write ended within a line */
static int write_failed;
static uint64_t dropped_told, summary_told, summary_time;

uint64_t ips_trace_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void ips_trace_add(const struct ips_event *event)
{
    int state = __atomic_load_n(&ips_trace_state, __ATOMIC_ACQUIRE);
    if (state > 0 && event->kind == IPS_EVENT_CALL)
        ips_summary_count(event);
    if (state > 1)
        ips_ring_push(ring, event);
}

static uint64_t count_lines(const char *data, size_t bytes)
{
    uint64_t lines = 0;
    for (size_t i = 0; i < bytes; i++)
        lines += data[i] == '\n';
    return lines;
}

/* Writes the text and empties it. What can't be written is dropped, and counted by lines.
 */
static void write_out(struct ips_text *text)
{
    size_t at = 0;
    if (torn && text->used && write(file, "\n", 1) == 1)
        torn = 0;
    while (at < text->used) {
        errno = EPIPE;
        ssize_t wrote = ips_log_writable(file)
                            ? write(file, text->data + at, text->used - at)
                            : -1;
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            if (!write_failed)
                ips_log(IPS_LOG_WARN,
                        "IPCSHIM_TRACE: events are lost, the file can't be "
                        "written: %s",
                        strerror(errno));
            write_failed = 1;
            ips_ring_dropped(ring, count_lines(text->data + at, text->used - at));
            torn = at && text->data[at - 1] != '\n';
            break;
        }
        at += (size_t)wrote;
    }
    text->used = 0;
}

static void drain(void)
{
    struct ips_text text = {0};
    struct ips_event event;
    for (int i = 0; i < IPS_TRACE_EVENTS && ips_ring_pop(ring, &event); i++) {
        ips_format_event(&text, &event, owner);
        if (text.used > WRITE_BYTES)
            write_out(&text);
    }
    uint64_t dropped = ips_ring_dropped(ring, 0);
    if (dropped != dropped_told)
        ips_format_dropped(&text, dropped - dropped_told, dropped, owner);
    dropped_told = dropped;
    write_out(&text);
    ips_text_free(&text);
}

static void write_summary(const char *occasion)
{
    struct ips_text text = {0};
    ips_summary_json(&text, occasion, rank, owner);
    if (!text.failed)
        write_out(&text);
    ips_text_free(&text);
    summary_told = ips_summary_version();
    summary_time = ips_trace_now();
}

static void *write_often(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&writing);
    while (!stopping) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += DRAIN_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&wake, &writing, &until);
        drain();
        if (ips_trace_now() - summary_time > SUMMARY_NS &&
            ips_summary_version() != summary_told)
            write_summary("interval");
    }
    pthread_mutex_unlock(&writing);
    return NULL;
}

/* The thread takes none of the program's signals. */
static int start_writer(void)
{
    sigset_t all, before;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&wake, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&writer, NULL, write_often, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    running = !error;
    return -error;
}

/* What is wrong with a file that was there before, or NULL. In a directory that others
 * write to, it may be a trap: a link to a file of this user's, or their own to read. */
static const char *trap(int fd)
{
    struct stat status;
    if (fstat(fd, &status))
        return strerror(errno);
    if (S_ISCHR(status.st_mode)) /* only root makes devices */
        return NULL;
    if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode))
        return "it is no file";
    if (status.st_uid != geteuid())
        return "it belongs to another user";
    return status.st_nlink > 1 ? "it has a second name (a hard link)" : NULL;
}

/* Makes the file, or takes one that is there; a link is not followed, and a FIFO must
 * have its reader already and is never waited for. Gives a descriptor, or -1 with the
 * cause. */
static int open_safely(const char *path, const char **ret_cause)
{
    const int flags =
        O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = open(path, flags | O_CREAT | O_EXCL, 0600);
    if (fd >= 0)
        return fd;
    *ret_cause = strerror(errno);
    if (errno != EEXIST)
        return -1;
    fd = open(path, flags);
    *ret_cause = fd < 0 ? strerror(errno) : trap(fd);
    if (fd >= 0 && *ret_cause) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static int open_file(const struct ips_trace_config *config)
{
    char path[PATH_MAX];
    const char *cause;
    int error = ips_trace_expand(config->path, owner, config->rank, path, sizeof path);
    if (error) {
        ips_log(IPS_LOG_WARN, "IPCSHIM_TRACE: no trace, the path is too long or empty");
        return error;
    }
    file = open_safely(path, &cause);
    if (file >= 0)
        return 0;
    ips_log(IPS_LOG_WARN, "IPCSHIM_TRACE: no trace, can't open %s: %s", path, cause);
    return -EACCES;
}

static int start_file(const struct ips_trace_config *config)
{
    int error = open_file(config);
    if (error)
        return error;
    ring = ips_ring_create(IPS_TRACE_EVENTS);
    if (!ring) {
        ips_log(IPS_LOG_WARN, "IPCSHIM_TRACE: no trace, out of memory");
        return -ENOMEM;
    }
    struct ips_text text = {0};
    ips_format_start(&text, config, owner);
    write_out(&text);
    ips_text_free(&text);
    summary_time = ips_trace_now();
    error = start_writer();
    if (error)
        ips_log(IPS_LOG_WARN, "IPCSHIM_TRACE: no trace, no thread: %s", strerror(-error));
    return error;
}

int ips_trace_start(const struct ips_trace_config *config)
{
    int saved = errno, error = 0, state = 0;
    if (!config->path && !config->summary)
        return 0;
    pthread_mutex_lock(&writing);
    if (!owner && ips_summary_start() == 0) {
        owner = (int)getpid();
        rank = config->rank;
        table_wanted = config->summary;
        error = config->path ? start_file(config) : 0;
        state = config->path && !error ? 2 : table_wanted ? 1 : 0;
        __atomic_store_n(&ips_trace_state, state, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&writing);
    errno = saved;
    return error;
}

void ips_trace_flush(const char *occasion)
{
    int saved = errno;
    if (!ips_trace_file_on())
        return;
    pthread_mutex_lock(&writing);
    if (!stopped) {
        drain();
        write_summary(occasion);
    }
    pthread_mutex_unlock(&writing);
    errno = saved;
}

static void print_table(void)
{
    struct ips_text text = {0};
    ips_summary_table(&text, rank, owner, ring ? ips_ring_dropped(ring, 0) : 0);
    /* One write, so that the tables of several ranks do not mix. */
    if (text.used && ips_log_writable(STDERR_FILENO)) {
        ssize_t ignored = write(STDERR_FILENO, text.data, text.used);
        (void)ignored;
    }
    ips_text_free(&text);
}

void ips_trace_stop(void)
{
    int saved = errno;
    if (!ips_trace_on() || getpid() != owner)
        return;
    pthread_mutex_lock(&writing);
    int join = running;
    running = 0;
    stopping = 1;
    if (join)
        pthread_cond_signal(&wake);
    pthread_mutex_unlock(&writing);
    if (join)
        pthread_join(writer, NULL);
    pthread_mutex_lock(&writing);
    if (!stopped) {
        stopped = 1;
        if (file >= 0) {
            drain();
            write_summary("exit");
        }
        if (table_wanted)
            print_table();
        __atomic_store_n(&ips_trace_state, 0, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&writing);
    errno = saved;
}

void ips_trace_child(void)
{
    __atomic_store_n(&ips_trace_state, 0, __ATOMIC_RELEASE);
}

#define INTERNED 256
const char *ips_trace_intern(const char *text)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const char *texts[INTERNED];
    static size_t count;
    const char *found = NULL;
    int saved = errno;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < count && !found; i++)
        if (strcmp(texts[i], text) == 0)
            found = texts[i];
    if (!found && count < INTERNED && (found = strdup(text)))
        texts[count++] = found;
    pthread_mutex_unlock(&lock);
    errno = saved;
    return found ? found : "declined, see the log";
}
