/* SPDX-License-Identifier: Apache-2.0 */
/* Mailboxes in host memory as two ranks of one process see them, before any GPU does: one
 * memory behind two mappings, all zero, reserved, on the wanted NUMA node, and gone with the
 * last mapping. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/host_memory.h"
#include "tests/unit/check.h"

#define RANKS 2
#define CHANNELS 2
#define PREFERRED 1     /* MPOL_PREFERRED */
#define OF_ADDRESS 2    /* MPOL_F_ADDR */
#define MOST_NODES 1024

static struct ips_segment segments[RANKS];
static struct ips_host_memory memories[RANKS];
static char reason[IPS_REASON_BYTES];

static void open_segments(void)
{
    char key[32];
    CHECK(!getentropy(key, sizeof key));
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK(!ips_segment_open(&segments[rank], key, sizeof key, reason), "%s", reason);
        segments[rank].nranks = RANKS;
        segments[rank].rank = rank;
    }
    for (int rank = 0; rank < RANKS; rank++)
        ips_segment_unlink(&segments[rank]);
}

static void close_segments(void)
{
    for (int rank = 0; rank < RANKS; rank++)
        ips_segment_close(&segments[rank]);
}

static int create(int rank, int node)
{
    return ips_host_memory_create(&memories[rank], &segments[rank], CHANNELS, node, reason);
}

static char *range(int rank, int of)
{
    return memories[rank].base + memories[rank].stride * (size_t)segments[of].slot;
}

static int is_zero(const char *at, size_t bytes)
{
    while (bytes && !*at)
        at++, bytes--;
    return !bytes;
}

static off_t blocks(void)
{
    struct stat status;
    return fstat(segments[0].fd, &status) ? -1 : status.st_blocks;
}

static void test_shared(void)
{
    const struct ips_gpu_api none = {0};
    open_segments();
    const off_t before = blocks();
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(!create(rank, -1), "%s", reason);
    const size_t stride = memories[0].stride;
    CHECK(stride >= IPS_MAILBOX_BYTES(CHANNELS) && stride % IPS_SEGMENT_PAGE == 0);
    CHECK(memories[0].bytes == RANKS * stride);
    CHECK(blocks() >= before + (off_t)(RANKS * stride / 512), "not reserved");
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(is_zero(range(rank, rank), stride));
    strcpy(range(0, 1), "from 0 to 1");
    CHECK(!strcmp(range(1, 1), "from 0 to 1") && !*range(1, 0));
    /* Records and control pages are elsewhere. */
    memset(memories[0].base, 0xff, memories[0].bytes);
    for (int slot = 0; slot < IPS_SEGMENT_SLOTS; slot++) {
        CHECK(is_zero((char *)ips_segment_slot(&segments[1], slot), IPS_RECORD_BYTES));
        CHECK(is_zero((char *)ips_segment_control(&segments[1], slot), IPS_CONTROL_BYTES));
    }
    /* One goes, with its segment: the other keeps both ranges. */
    ips_host_memory_destroy(&memories[0], &none);
    ips_segment_close(&segments[0]);
    CHECK(!memories[0].base && *range(1, 0) == (char)0xff);
    ips_host_memory_destroy(&memories[1], &none);
    ips_host_memory_destroy(&memories[1], &none);
    close_segments();
}

/* What the kernel says of the policy at an address; -1 where it says nothing. */
static int policy_of(const void *at, unsigned long *nodes)
{
    int policy = -1;
    return syscall(SYS_get_mempolicy, &policy, nodes, MOST_NODES + 1, at, OF_ADDRESS)
               ? -1
               : policy;
}

static void test_bound(void)
{
    const struct ips_gpu_api none = {0};
    unsigned long nodes[MOST_NODES / (8 * sizeof(unsigned long))] = {0};
    open_segments();
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(!create(rank, rank ? -1 : 0), "%s", reason);
    const int policy = policy_of(range(0, 0), nodes);
    if (policy < 0)
        printf("no get_mempolicy here: %s\n", strerror(errno));
    else
        CHECK(policy == PREFERRED && nodes[0] == 1, "policy %d", policy);
    if (policy >= 0)
        CHECK(policy_of(range(1, 1), nodes) == 0, "the other's range is bound, too");
    for (int rank = 0; rank < RANKS; rank++)
        ips_host_memory_destroy(&memories[rank], &none);
    close_segments();
}

/* A node that is not there is no error. */
static void test_no_node(void)
{
    const struct ips_gpu_api none = {0};
    open_segments();
    CHECK(!create(0, MOST_NODES - 1), "%s", reason);
    ips_host_memory_destroy(&memories[0], &none);
    CHECK(!create(0, MOST_NODES), "%s", reason);
    ips_host_memory_destroy(&memories[0], &none);
    close_segments();
}

/* Some programs close descriptors that they did not open, and open others. */
static void test_file_taken(void)
{
    open_segments();
    const int fd = segments[0].fd;
    CHECK(fd >= 0 && dup2(STDERR_FILENO, fd) == fd);
    CHECK(create(0, -1) == -EBADF && strstr(reason, "closed a descriptor"), "%s", reason);
    CHECK(!memories[0].base);
    CHECK(!create(1, -1), "%s", reason);
    close(fd);
    ips_host_memory_destroy(&memories[1], &(struct ips_gpu_api){0});
    close_segments();
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && !fclose(file));
}

static void test_node(void)
{
    char root[] = "/tmp/ips-sys-XXXXXX", path[128];
    static const struct {
        const char *text;
        int node;
    } cases[] = {{"0\n", 0}, {"3\n", 3},     {"-1\n", -1},         {"", -1},
                 {"7", 7},   {"1023\n", 1023}, {"1024\n", -1}, {"99999999999999999999", -1}};
    CHECK(mkdtemp(root));
    for (const char *part = "/bus/pci/devices/0000:ab:00.0", *end = part; *end;) {
        end += 1 + strcspn(end + 1, "/");
        snprintf(path, sizeof path, "%s%.*s", root, (int)(end - part), part);
        CHECK(!mkdir(path, 0700), "%s", path);
    }
    CHECK(ips_host_node(root, "0000:AB:00.0") == -1);
    strcat(path, "/numa_node");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_text(path, cases[i].text);
        CHECK(ips_host_node(root, "0000:AB:00.0") == cases[i].node, "%s", cases[i].text);
    }
    CHECK(ips_host_node(root, "0000:AC:00.0") == -1 && ips_host_node(root, "") == -1);
    CHECK(ips_host_node(root, "../devices/0000:ab:00.0") == -1);
    for (char *slash; (slash = strrchr(path, '/')) && slash > path + strlen("/tmp");
         *slash = '\0')
        CHECK(!remove(path), "%s", path);
}

int main(void)
{
    test_shared();
    test_bound();
    test_no_node();
    test_file_taken();
    test_node();
    return check_result();
}
