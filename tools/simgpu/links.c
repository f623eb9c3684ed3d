/* SPDX-License-Identifier: Apache-2.0 */
/* Bad links between different devices: SIMGPU_LINK is KIND or KIND:A>B, or several of
 * them with commas between. What a kernel, a copy or a fill of device A does to memory of
 * device B, by peer access or by IPC, then goes through here, in this process. */
#include "tools/simgpu/sim.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define RULES_MAX 64
#define ANY -1
#define DELAY_NS 700000000u /* more than a probe's deadline, less than its patience */
#define CORRUPT_EVERY 4096  /* bytes: the 16 at CORRUPT_AT of each arrive changed */
#define CORRUPT_AT 2048

struct rule {
    char kind; /* 'd' drop, 'm' mirror, 'c' corrupt, 'l' delay, 'h' hold, 'b' blind,
                  's' stray */
    int from, to;
};

/* A write that has not arrived yet. */
struct late {
    struct late *next;
    uint64_t due_ns, value[2];
    unsigned char *to;
    unsigned bytes;
};

int simgpu_links; /* there are rules at all */
__thread int sim_device_here = ANY;
static struct rule rules[RULES_MAX];
static int rule_count;
static struct late *late_first, **late_last = &late_first;
static pthread_cond_t late_more = PTHREAD_COND_INITIALIZER;

static void read_rule(const char *text)
{
    static const struct {
        const char *word;
        char kind;
    } kinds[] = {{"drop", 'd'},  {"mirror", 'm'}, {"corrupt", 'c'},
                 {"delay", 'l'}, {"hold", 'h'},   {"blind", 'b'},
                 {"stray", 's'}};
    struct rule rule = {0, ANY, ANY};
    const size_t length = strcspn(text, ":");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strlen(kinds[i].word) == length && !strncmp(text, kinds[i].word, length))
            rule.kind = kinds[i].kind;
    if (!rule.kind || rule_count == RULES_MAX ||
        (text[length] && sscanf(text + length, ":%d>%d", &rule.from, &rule.to) != 2)) {
        fprintf(stderr, "simgpu: can't read the link %s\n", text);
        return;
    }
    rules[rule_count++] = rule;
    simgpu_links = 1;
}

void sim_links_read(const char *text)
{
    char *copy = text ? strdup(text) : NULL, *rest = copy, *word;
    while (rest && (word = strsep(&rest, ",")))
        if (*word)
            read_rule(word);
    free(copy);
}

/* 0: it is sound. */
static char kind_of(int accessor, int owner)
{
    for (int i = 0; i < rule_count && accessor != owner; i++)
        if ((rules[i].from == ANY || rules[i].from == accessor) &&
            (rules[i].to == ANY || rules[i].to == owner))
            return rules[i].kind;
    return 0;
}

/* The other device's memory at the address, and what is wrong with the way there. */
static struct sim_memory *find_locked(const void *address, char *ret_kind)
{
    struct sim_memory *m =
        sim_device_here < 0 ? NULL : sim_memory_find_locked(address, 1);
    *ret_kind = m && (m->kind == SIM_DEVICE || m->kind == SIM_IMPORTED)
                    ? kind_of(sim_device_here, m->owner)
                    : 0;
    return m;
}

static void put(unsigned char *to, const uint64_t *value, unsigned bytes)
{
    if (bytes % 8 || (uintptr_t)to % 8) {
        memcpy(to, value, bytes);
        return;
    }
    for (unsigned i = 0; i < bytes / 8; i++)
        __atomic_store_n((uint64_t *)(void *)to + i, value[i], __ATOMIC_RELEASE);
}

/* Writes arrive in the order in which they were made. */
static void *deliver(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&sim_lock);
    for (;;) {
        struct late *write = late_first;
        const uint64_t now = sim_now_ns();
        if (!write) {
            pthread_cond_wait(&late_more, &sim_lock);
        } else if (write->due_ns > now) {
            const uint64_t left = write->due_ns - now;
            const struct timespec pause = {(time_t)(left / 1000000000u),
                                           (long)(left % 1000000000u)};
            pthread_mutex_unlock(&sim_lock);
            nanosleep(&pause, NULL);
            pthread_mutex_lock(&sim_lock);
        } else {
            put(write->to, write->value, write->bytes);
            late_first = write->next;
            if (!late_first)
                late_last = &late_first;
            free(write);
        }
    }
    return NULL;
}

static void start_locked(void)
{
    static int started;
    pthread_t thread;
    sigset_t all, before;
    if (started++)
        return;
    sigfillset(&all); /* the program's signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, deliver, NULL))
        abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_detach(thread);
}

static void delay_locked(unsigned char *to, const uint64_t *value, unsigned bytes)
{
    struct late *write = malloc(sizeof *write);
    if (!write)
        abort();
    *write =
        (struct late){NULL, sim_now_ns() + DELAY_NS, {value[0], value[1]}, to, bytes};
    *late_last = write;
    late_last = &write->next;
    start_locked();
    pthread_cond_signal(&late_more);
}

/* Until the kernel, or the copy, has ended that this thread runs. */
static __thread struct late *held_first;
static __thread struct late **held_last;

static void hold(unsigned char *to, const uint64_t *value, unsigned bytes)
{
    struct late *write = malloc(sizeof *write);
    if (!write)
        abort();
    *write = (struct late){NULL, 0, {value[0], value[1]}, to, bytes};
    *(held_first ? held_last : &held_first) = write;
    held_last = &write->next;
}

void sim_links_settle(void)
{
    while (held_first) {
        struct late *write = held_first;
        put(write->to, write->value, write->bytes);
        held_first = write->next;
        free(write);
    }
}

/* Memory of the same size of a third device, for what goes astray; NULL: none is in this
 * process. */
static struct sim_memory *find_third(const struct sim_memory *m)
{
    struct sim_memory *other = sim_memories;
    while (other && (other->kind != SIM_DEVICE || other->bytes != m->bytes ||
                     other->owner == m->owner || other->owner == sim_device_here))
        other = other->next;
    return other;
}

int simgpu_store(void *address, uint64_t low, uint64_t high, unsigned bytes)
{
    uint64_t value[2] = {low, high};
    char kind;
    pthread_mutex_lock(&sim_lock);
    struct sim_memory *m = find_locked(address, &kind);
    const size_t at = m ? (size_t)((unsigned char *)address - m->base) : 0;
    if (kind == 'm')
        put(m->shadow[sim_device_here] + at, value, bytes);
    struct sim_memory *third = kind == 's' ? find_third(m) : NULL;
    if (third)
        put(third->base + at, value, bytes);
    if (kind == 'l')
        delay_locked(address, value, bytes);
    if (kind == 'h')
        hold(address, value, bytes);
    if (kind == 'c') {
        value[0] ^= at % CORRUPT_EVERY / 16 == CORRUPT_AT / 16;
        put(address, value, bytes);
    }
    pthread_mutex_unlock(&sim_lock);
    return kind && kind != 'b';
}

const void *simgpu_load(const void *address)
{
    static const uint64_t ones[2] = {UINT64_MAX,
                                     UINT64_MAX}; /* as a bus answers that fails */
    char kind;
    pthread_mutex_lock(&sim_lock);
    struct sim_memory *m = find_locked(address, &kind);
    if (kind == 'm')
        address = m->shadow[sim_device_here] + ((const unsigned char *)address - m->base);
    pthread_mutex_unlock(&sim_lock);
    return kind == 'b' ? ones : address;
}

/* In pieces that do not leave 16 aligned bytes, neither there nor here. */
static unsigned piece_of(const unsigned char *to, const unsigned char *from, size_t bytes)
{
    const unsigned there = 16 - (unsigned)((uintptr_t)to % 16);
    const unsigned here = 16 - (unsigned)((uintptr_t)from % 16);
    const unsigned most = there < here ? there : here;
    return bytes < most ? (unsigned)bytes : most;
}

void sim_links_copy(void *to, const void *from, size_t bytes)
{
    unsigned char *at = to;
    for (const unsigned char *next = from; bytes;) {
        const unsigned piece = piece_of(at, next, bytes);
        uint64_t value[2] = {0, 0};
        memcpy(value, simgpu_load(next), piece);
        if (!simgpu_store(at, value[0], value[1], piece))
            memcpy(at, value, piece);
        at += piece;
        next += piece;
        bytes -= piece;
    }
}

void sim_links_set(void *to, unsigned char value, size_t bytes)
{
    unsigned char *copy = malloc(bytes ? bytes : 1);
    if (!copy)
        abort();
    memset(copy, value, bytes);
    sim_links_copy(to, copy, bytes);
    free(copy);
}

int sim_links_map(struct sim_memory *m, int fd)
{
    for (int device = 0; device < SIM_MAX_DEVICES; device++) {
        if (kind_of(device, m->owner) != 'm')
            continue;
        void *shadow = mmap(NULL, m->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        if (shadow == MAP_FAILED)
            return -1;
        m->shadow[device] = shadow;
    }
    return 0;
}

void sim_links_unmap_locked(struct sim_memory *m)
{
    struct late **link = &late_first;
    for (int device = 0; device < SIM_MAX_DEVICES; device++)
        if (m->shadow[device])
            munmap(m->shadow[device], m->mapped);
    while (*link) {
        struct late *write = *link;
        if (write->to < m->base || write->to >= m->base + m->mapped) {
            link = &write->next;
            continue;
        }
        *link = write->next;
        free(write);
    }
    late_last = link;
}
