/* SPDX-License-Identifier: Apache-2.0 */
/* A foreign segment in the way: makes the file that the next communicator's ranks will
 * meet in, as somebody else would have left it, and holds it, so that it is not stale:
 *   garbage  random bytes in a file of the right size
 *   outcome  a decision that no rank can have made
 *   record   records that look right but are another communicator's
 *   size     a file of another size
 *   owner    another user's file
 *   link     a symbolic link
 *   stale    garbage that nobody holds: removed by the next process that looks */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/segment.h"
#include "tests/process/worker.h"

/* As shim/init.c makes it. */
struct key {
    struct nccl_id id;
    int32_t nranks;
};

static void fill(struct ips_segment *segment, const char *kind)
{
    memset(segment->base, 0, IPS_RECORD_BYTES); /* as if no rank had been here */
    if (!strcmp(kind, "outcome"))
        *(uint32_t *)segment->base = 77777;
    if (!strcmp(kind, "garbage") || !strcmp(kind, "stale"))
        for (size_t i = 0; i < (1 + IPS_SEGMENT_SLOTS) * IPS_RECORD_BYTES; i += 8) {
            uint64_t random = ips_mix(i);
            memcpy(segment->base + i, &random, 8);
        }
    for (int slot = 0; slot < 2 && !strcmp(kind, "record"); slot++) {
        struct ips_record *record = ips_segment_slot(segment, slot);
        memset(record, 0, sizeof *record);
        record->magic = IPS_RECORD_MAGIC;
        record->layout = IPS_RECORD_VERSION;
        record->wire_version = IPS_WIRE_VERSION;
        memcpy(record->version, IPCSHIM_VERSION, sizeof IPCSHIM_VERSION);
        record->rank = slot;
        record->key_bytes = sizeof(struct key); /* of zeros: another key */
        ips_record_set_state(record, IPS_RECORD_PRESENT);
    }
}

/* The file, held by nobody's place, only as a whole: ips_segment_open has made it. */
static char *hold(const char *name)
{
    const size_t bytes = (1 + IPS_SEGMENT_SLOTS) * (size_t)IPS_RECORD_BYTES;
    struct flock all = {.l_type = F_RDLCK, .l_len = 1};
    int fd = open(name, O_RDWR);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return fd < 0 || base == MAP_FAILED || fcntl(fd, F_OFD_SETLK, &all) ? NULL : base;
}

int worker_plant(struct worker *worker, const char *kind)
{
    struct key key;
    struct ips_segment segment;
    char name[64], reason[IPS_REASON_BYTES];
    memset(&key, 0, sizeof key);
    key.id = worker->page->id;
    key.nranks = (int32_t)worker->nranks;
    if (ips_segment_open(&segment, &key, sizeof key, reason))
        return -1;
    memcpy(name, segment.name, sizeof name);
    const int stale = !strcmp(kind, "stale");
    char *held = stale ? NULL : hold(name);
    int error = !stale && !held;
    if (!strcmp(kind, "garbage") || !strcmp(kind, "record") || !strcmp(kind, "outcome") ||
        stale)
        fill(&segment, kind);
    else if (!strcmp(kind, "size"))
        error |= truncate(name, 12345);
    else if (!strcmp(kind, "owner"))
        error |= chown(name, 12345, 12345) || chmod(name, 0666);
    else if (!strcmp(kind, "link"))
        error |= unlink(name) || symlink("/dev/shm/elsewhere", name);
    ips_segment_close(&segment);
    return worker_check(worker, !error, "plant %s: %s", kind, strerror(errno)) ? 0 : -1;
}
