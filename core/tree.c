/* SPDX-License-Identifier: Apache-2.0 */
/* Walks a path part by part: the kernel follows links in all but the last. */
#include "core/tree.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY (O_PATH | O_DIRECTORY | O_CLOEXEC)

/* One part further; -1: it is none, leads up, or is not a directory. */
static int enter(int at, const char *name, size_t length)
{
    char part[NAME_MAX + 1];
    if (!length || length > NAME_MAX || (length == 2 && !memcmp(name, "..", 2)))
        return -1;
    memcpy(part, name, length);
    part[length] = '\0';
    return openat(at, part, DIRECTORY | O_NOFOLLOW);
}

int ips_tree_open(int root, const char *path, size_t length)
{
    const char *end = path + length;
    int at = length ? root : openat(root, ".", DIRECTORY);
    while (at >= 0 && path < end) {
        const char *slash = memchr(path, '/', (size_t)(end - path));
        const char *stop = slash ? slash : end;
        int next = enter(at, path, (size_t)(stop - path));
        if (at != root)
            close(at);
        at = next;
        path = stop + (slash != NULL);
    }
    return at;
}

int ips_tree_open_file(int directory, const char *name)
{
    struct stat status;
    /* A device or FIFO is not even opened: that may wait, or do something. */
    if (directory < 0 || fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) ||
        !S_ISREG(status.st_mode))
        return -1;
    int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0 && (fstat(file, &status) || !S_ISREG(status.st_mode))) {
        close(file);
        return -1;
    }
    return file;
}
