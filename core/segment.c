/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting place of a communicator's ranks: one file in /dev/shm, a page for the
 * outcome, and per rank one for its record and one that its device writes; behind them
 * the mailboxes, where those lie in host memory.
 *
 * Byte 0 of the file is locked, shared, by all who have mapped it, and byte 1 + slot by
 * who took the slot. The kernel gives up the locks of a process that ends, however it
 * ends: a name whose byte 0 nobody holds is stale. A lock lasts as long as the mapping,
 * which a forked child does not get; the descriptor may be closed before. */
#include "core/segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* The first page: the outcome, how many slots were taken, and 1 + the slot that failed.
 */
#define CONTROLS ((size_t)(1 + IPS_SEGMENT_SLOTS) * IPS_RECORD_BYTES)
#define SEGMENT_BYTES (CONTROLS + (size_t)IPS_SEGMENT_SLOTS * IPS_CONTROL_BYTES)
#define MORE ((SEGMENT_BYTES + IPS_SEGMENT_PAGE - 1) / IPS_SEGMENT_PAGE * IPS_SEGMENT_PAGE)
#define TAKEN 64
#define FAILED 128
#define FOREIGN 65536 /* more ranks than a host can have */

#define DIRECTORY "/dev/shm"
#define PREFIX "ipcshim-"
#define NAME_DIGITS 32

/* An open-file-description lock on one byte: 0, -EAGAIN if it is another's, or a negative
 * errno. Never waits. */
static int lock_byte(int fd, short type, off_t at)
{
    struct flock wanted = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    int error;
    do
        error = fcntl(fd, F_OFD_SETLK, &wanted) ? errno : 0;
    while (error == EINTR);
    return -error;
}

/* Whether a lock is held, or there are none here, as in some sandboxes: then only pids tell
 * who has ended, and stale names stay. */
static int is_held(int error)
{
    return !error || error == -EINVAL || error == -ENOSYS;
}

/* Whether the name still leads to what was opened. */
static int is_named(int fd, const char *name)
{
    struct stat here, there;
    return !fstat(fd, &here) && !lstat(name, &there) && here.st_ino == there.st_ino &&
           here.st_dev == there.st_dev;
}

/* FNV-1a, 64 bits. Only a name: the full key is checked in the records. */
static uint64_t hash(const void *bytes, size_t count, uint64_t seed)
{
    const unsigned char *at = bytes;
    uint64_t h = 0xcbf29ce484222325ull ^ seed;
    for (size_t i = 0; i < count; i++)
        h = (h ^ at[i]) * 0x100000001b3ull;
    return h;
}

static int refuse(char *ret_reason, int error, const char *what, const char *name)
{
    if (error == EEXIST)
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "%s is not this communicator's: %s; remove it", name, what);
    else
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "%s: %s: %s; make room in /dev/shm (docker: --shm-size=1g)", what, name,
                 strerror(error));
    return -error;
}

static int reserve(int fd, size_t at, size_t bytes)
{
    int error;
    do
        error = posix_fallocate(fd, (off_t)at, (off_t)bytes);
    while (error == EINTR);
    return error;
}

/* The file, checked to be ours and to have its memory reserved: a full /dev/shm is an
 * error here, not a SIGBUS later. */
static int open_file(const char *name, size_t bytes, char *ret_reason)
{
    int fd = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return refuse(ret_reason, errno, "cannot open", name);
    struct stat status;
    int error = 0;
    if (fstat(fd, &status))
        error = refuse(ret_reason, errno, "cannot stat", name);
    else if (!S_ISREG(status.st_mode))
        error = refuse(ret_reason, EEXIST, "not a regular file", name);
    else if (status.st_uid != geteuid())
        error = refuse(ret_reason, EEXIST, "it belongs to another user", name);
    else if (status.st_size && (size_t)status.st_size != bytes)
        error = refuse(ret_reason, EEXIST, "it has another size", name);
    else if ((error = reserve(fd, 0, bytes)))
        error = refuse(ret_reason, error, "cannot reserve shared memory", name);
    if (!error)
        return fd;
    if (error == -ENOSPC)
        unlink(name); /* what was made here holds no record yet */
    close(fd);
    return error;
}

static uint64_t inode_of(int fd)
{
    struct stat status;
    return fd < 0 || fstat(fd, &status) ? 0 : (uint64_t)status.st_ino;
}

/* Some programs close descriptors that are not theirs, which then lead to something else.
 */
static int has_file(const struct ips_segment *segment)
{
    return segment->fd >= 0 && inode_of(segment->fd) == segment->inode;
}

static void close_file(struct ips_segment *segment)
{
    if (has_file(segment))
        close(segment->fd);
    segment->fd = -1;
}

/* The locks are the mapping's from now on: a child that inherits a descriptor does not
 * hold them on. */
static void change_file(struct ips_segment *segment)
{
    const int locks = segment->fd;
    segment->fd = open(segment->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (segment->fd >= 0 && !has_file(segment)) {
        close(segment->fd);
        segment->fd = -1;
    }
    close(locks);
}

/* The file, held: not one that another process was just removing as stale. */
static int hold_file(const char *name, char *ret_reason)
{
    for (int i = 0; i < 100; i++) {
        int fd = open_file(name, SEGMENT_BYTES, ret_reason);
        if (fd < 0)
            return fd;
        int error = lock_byte(fd, F_RDLCK, 0);
        if (is_held(error) && is_named(fd, name))
            return fd;
        close(fd);
        if (!is_held(error) && error != -EAGAIN)
            return refuse(ret_reason, -error, "cannot lock", name);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return refuse(ret_reason, EAGAIN, "locked, or removed again and again", name);
}

/* Segments of this process that have a name. Their addresses stay as long. */
static pthread_mutex_t named_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ips_segment *named;

static void remember(struct ips_segment *segment)
{
    pthread_mutex_lock(&named_lock);
    segment->next_named = named;
    named = segment;
    pthread_mutex_unlock(&named_lock);
}

static void forget(const struct ips_segment *segment)
{
    pthread_mutex_lock(&named_lock);
    for (struct ips_segment **at = &named; *at; at = &(*at)->next_named)
        if (*at == segment) {
            *at = segment->next_named;
            break;
        }
    pthread_mutex_unlock(&named_lock);
}

int ips_segment_open(struct ips_segment *segment, const void *key, size_t key_bytes,
                     char *ret_reason)
{
    memset(segment, 0, sizeof *segment);
    snprintf(segment->name, sizeof segment->name, DIRECTORY "/" PREFIX "%016llx%016llx",
             (unsigned long long)hash(key, key_bytes, 0),
             (unsigned long long)hash(key, key_bytes, ~0ull));
    segment->fd = hold_file(segment->name, ret_reason);
    if (segment->fd < 0)
        return segment->fd;
    void *base =
        mmap(NULL, SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    int error = errno;
    if (base == MAP_FAILED) {
        close(segment->fd);
        return refuse(ret_reason, error, "cannot map", segment->name);
    }
    segment->base = base;
    segment->inode = inode_of(segment->fd);
    madvise(base, SEGMENT_BYTES, MADV_DONTFORK);
    uint32_t slot =
        __atomic_fetch_add((uint32_t *)(segment->base + TAKEN), 1, __ATOMIC_ACQ_REL);
    if (slot < IPS_SEGMENT_SLOTS) {
        segment->slot = (int)slot;
        error = lock_byte(segment->fd, F_WRLCK, 1 + segment->slot);
        if (is_held(error)) {
            change_file(segment);
            remember(segment);
            return 0;
        }
        ips_segment_close(segment);
        if (error == -EAGAIN)
            return refuse(ret_reason, EEXIST, "another process has its place",
                          segment->name);
        return refuse(ret_reason, -error, "cannot lock", segment->name);
    }
    ips_segment_close(segment);
    if (slot >= FOREIGN)
        return refuse(ret_reason, EEXIST, "it holds foreign content", segment->name);
    snprintf(ret_reason, IPS_REASON_BYTES, "more than %d ranks here", IPS_MAX_RANKS);
    return -EUSERS;
}

void ips_segment_unlink(struct ips_segment *segment)
{
    if (!segment->name[0])
        return;
    forget(segment);
    unlink(segment->name);
    segment->name[0] = 0;
}

void ips_segment_unlink_all(void)
{
    pthread_mutex_lock(&named_lock);
    for (; named; named = named->next_named)
        unlink(named->name);
    pthread_mutex_unlock(&named_lock);
}

static int is_segment_name(const char *name)
{
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0 &&
           strspn(name + strlen(PREFIX), "0123456789abcdef") == NAME_DIGITS &&
           strlen(name) == strlen(PREFIX) + NAME_DIGITS;
}

static void remove_stale(const char *file)
{
    char name[sizeof((struct ips_segment *)0)->name];
    struct stat status;
    snprintf(name, sizeof name, DIRECTORY "/%.40s", file);
    int fd = open(name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    if (!fstat(fd, &status) && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
        !lock_byte(fd, F_WRLCK, 0) && is_named(fd, name))
        unlink(name);
    close(fd);
}

void ips_segment_sweep_names(void)
{
    DIR *directory = opendir(DIRECTORY);
    if (!directory)
        return;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (is_segment_name(entry->d_name))
            remove_stale(entry->d_name);
    closedir(directory);
}

void ips_segment_close(struct ips_segment *segment)
{
    if (!segment->base)
        return;
    if (segment->name[0])
        forget(segment);
    munmap(segment->base, SEGMENT_BYTES);
    close_file(segment);
    segment->base = NULL;
}

int ips_segment_map_more(const struct ips_segment *segment, size_t bytes, char **ret_base,
                         char *ret_reason)
{
    void *base = MAP_FAILED;
    int error = EBADF;
    if (has_file(segment)) {
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd,
                    (off_t)MORE);
        error = errno;
    }
    if (base == MAP_FAILED) {
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "cannot map %zu bytes of shared memory: %s", bytes,
                 error == EBADF ? "the program has closed a descriptor that is not its own"
                                : strerror(error));
        return -error;
    }
    madvise(base, bytes, MADV_DONTFORK);
    *ret_base = base;
    return 0;
}

/* NCCL takes memory there too, also when a later communicator is made, and fails without:
 * half of it stays for others. A file system without a limit has room. */
static int leaves_room(int fd, size_t bytes)
{
    struct statvfs there;
    if (fstatvfs(fd, &there) || !there.f_blocks)
        return 1;
    return there.f_bavail >= there.f_blocks / 2 + bytes / there.f_frsize;
}

int ips_segment_reserve_more(const struct ips_segment *segment, size_t at, size_t bytes,
                             char *ret_reason)
{
    int error = has_file(segment) ? 0 : EBADF, room = 1;
    if (!error)
        room = leaves_room(segment->fd, bytes);
    if (!error && room)
        error = reserve(segment->fd, MORE + at, bytes);
    if (!error && room)
        room = leaves_room(segment->fd, 0); /* others have reserved meanwhile */
    const char *why = room ? NULL : "less than half of /dev/shm would be left for others";
    if (!room)
        error = ENOSPC;
    if (error)
        snprintf(ret_reason, IPS_REASON_BYTES,
                 "cannot reserve %zu bytes of shared memory: %s; make room in /dev/shm "
                 "(docker: --shm-size=1g)",
                 bytes, why ? why : strerror(error));
    return -error;
}

struct ips_record *ips_segment_slot(const struct ips_segment *segment, int slot)
{
    return (struct ips_record *)(segment->base + (size_t)(1 + slot) * IPS_RECORD_BYTES);
}

struct ips_record *ips_segment_record(const struct ips_segment *segment, int rank)
{
    return ips_segment_slot(segment, segment->slot_of[rank]);
}

struct ips_control *ips_segment_control(const struct ips_segment *segment, int slot)
{
    return (struct ips_control *)(segment->base + CONTROLS +
                                  (size_t)slot * IPS_CONTROL_BYTES);
}

int ips_segment_failed(const struct ips_segment *segment)
{
    uint32_t failed =
        __atomic_load_n((const uint32_t *)(segment->base + FAILED), __ATOMIC_ACQUIRE);
    return failed && failed <= IPS_SEGMENT_SLOTS ? (int)failed - 1 : -1;
}

int ips_segment_fail(const struct ips_segment *segment)
{
    uint32_t none = 0;
    return __atomic_compare_exchange_n((uint32_t *)(segment->base + FAILED), &none,
                                       1 + (uint32_t)segment->slot, 0, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

uint32_t ips_record_state(const struct ips_record *record)
{
    return __atomic_load_n(&record->state, __ATOMIC_ACQUIRE);
}

void ips_record_set_state(struct ips_record *record, enum ips_record_state state)
{
    __atomic_store_n(&record->state, (uint32_t)state, __ATOMIC_RELEASE);
}

uint32_t ips_segment_outcome(const struct ips_segment *segment)
{
    return __atomic_load_n((const uint32_t *)segment->base, __ATOMIC_ACQUIRE);
}

uint32_t ips_segment_decide(const struct ips_segment *segment, uint32_t outcome)
{
    uint32_t standing = IPS_OUTCOME_OPEN;
    if (__atomic_compare_exchange_n((uint32_t *)segment->base, &standing, outcome, 0,
                                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return outcome;
    return standing;
}

#define THREADS_FIELD 20

/* Field 22 of /proc/PID/stat: the start time tells a process from a later one of its pid.
 * 0 or a negative errno; -ESRCH: the process has ended. */
static int start_time_of(int pid, uint64_t *ret_time)
{
    char path[64], text[1024] = ""; /* two bytes follow the last that is read */
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT && kill(pid, 0) && errno == ESRCH ? -ESRCH : -EACCES;
    ssize_t got = read(fd, text, sizeof text - 2);
    int error = errno;
    close(fd);
    if (got <= 0)
        return got < 0 ? -error : -ESRCH;
    text[got] = 0;
    char *at = strrchr(text, ')'); /* the name before may hold anything */
    const int ended = at && (at[2] == 'Z' || at[2] == 'X'); /* of its first thread */
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at + 1, ' ');
        if (at && field + 1 == THREADS_FIELD && ended && strtol(at, NULL, 10) <= 1)
            return -ESRCH; /* waits for its parent */
    }
    if (!at)
        return -EPROTO;
    *ret_time = strtoull(at + 1, NULL, 10);
    return 0;
}

/* 0 where /proc is of another namespace than the pids. */
static uint64_t pid_namespace(void)
{
    struct stat status;
    char self[32] = "";
    if (readlink("/proc/self", self, sizeof self - 1) < 0 || atoi(self) != (int)getpid())
        return 0;
    return stat("/proc/self/ns/pid", &status) ? 0 : (uint64_t)status.st_ino;
}

/* Random, and made anew after a fork: a child is another process. */
static void process_token(unsigned char *ret_token)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static unsigned char token[16];
    static pid_t owner;
    pthread_mutex_lock(&lock);
    if (owner != getpid()) {
        if (getentropy(token, sizeof token))
            memset(token, 0, sizeof token);
        owner = getpid();
    }
    memcpy(ret_token, token, sizeof token);
    pthread_mutex_unlock(&lock);
}

void ips_record_identify(struct ips_record *record)
{
    record->pid = (int32_t)getpid();
    record->pid_namespace = pid_namespace();
    if (start_time_of(getpid(), &record->start_time))
        record->pid_namespace = record->start_time = 0;
    process_token(record->process);
}

int ips_record_own_process(const struct ips_record *record)
{
    unsigned char token[16];
    process_token(token);
    return record->pid == (int32_t)getpid() &&
           !memcmp(token, record->process, sizeof token);
}

static void copy_printable(const char *text, char *ret_reason)
{
    memcpy(ret_reason, text, IPS_REASON_BYTES);
    ret_reason[IPS_REASON_BYTES - 1] = 0;
    for (char *at = ret_reason; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
}

void ips_record_reason(const struct ips_record *record, char *ret_reason)
{
    copy_printable(record->reason, ret_reason);
}

void ips_record_refusal(const struct ips_record *record, char *ret_reason)
{
    copy_printable(record->refusal, ret_reason);
}

/* Its lock tells where its pid does not: in another pid namespace, or of a process that
 * became another program. */
static int lock_is_gone(const struct ips_segment *segment, int slot)
{
    struct flock wanted = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + slot, .l_len = 1};
    return slot != segment->slot && has_file(segment) &&
           !fcntl(segment->fd, F_OFD_GETLK, &wanted) && wanted.l_type == F_UNLCK;
}

static int pid_is_gone(const struct ips_record *record)
{
    uint64_t now = 0;
    if (!record->pid_namespace || record->pid_namespace != pid_namespace() ||
        record->pid <= 0)
        return 0; /* its pid means nothing here */
    int error = start_time_of(record->pid, &now);
    if (error)
        return error == -ESRCH; /* what can't be told is alive */
    return record->start_time && now != record->start_time;
}

int ips_segment_dead(const struct ips_segment *segment, int slot)
{
    const struct ips_record *record = ips_segment_slot(segment, slot);
    return pid_is_gone(record) ||
           (ips_record_state(record) != IPS_RECORD_CLOSED && lock_is_gone(segment, slot));
}
