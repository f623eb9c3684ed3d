/* SPDX-License-Identifier: Apache-2.0 */
/* Loads a file that nobody but this user, or root, could have written. */
#include "shim/kept_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is wrong with an open file, or NULL. */
static const char *flaw_of(const struct stat *status, size_t most)
{
    if (!S_ISREG(status->st_mode))
        return "it is not a regular file";
    if (status->st_uid != geteuid() && status->st_uid != 0)
        return "it belongs to another user";
    if (status->st_mode & (S_IWOTH | S_IWGRP))
        return "everybody may write to it";
    if (status->st_size < 0 || (size_t)status->st_size > most)
        return "it is larger than 1 MB";
    return NULL;
}

/* As much of the file as there is, to be freed, or NULL. */
static char *read_text(int fd, size_t bytes, size_t *ret_bytes)
{
    char *text = malloc(bytes + 1);
    size_t done = 0;
    while (text && done < bytes) {
        const ssize_t got = read(fd, text + done, bytes - done);
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    *ret_bytes = done;
    return text;
}

char *ips_kept_file_load(const char *path, size_t most, size_t *ret_bytes,
                         int *ret_absent, char *ret_reason, size_t room)
{
    struct stat status;
    char *text = NULL;
    const char *flaw = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *ret_absent = fd < 0 && errno == ENOENT;
    if (fd < 0 || fstat(fd, &status))
        flaw = strerror(errno);
    else
        flaw = flaw_of(&status, most);
    if (!flaw && !(text = read_text(fd, (size_t)status.st_size, ret_bytes)))
        flaw = "no memory";
    if (flaw)
        snprintf(ret_reason, room, "%s", flaw);
    if (fd >= 0)
        close(fd);
    return text;
}
