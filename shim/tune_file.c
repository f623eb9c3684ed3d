/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the file of `ipcshim tune`. It says how calls are made, so it is believed only if
 * nobody but this user, or root, could have written it. */
#include "shim/tune_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is wrong with an open file, or NULL. */
static const char *flaw_of(const struct stat *status)
{
    if (!S_ISREG(status->st_mode))
        return "it is not a regular file";
    if (status->st_uid != geteuid() && status->st_uid != 0)
        return "it belongs to another user";
    if (status->st_mode & (S_IWOTH | S_IWGRP))
        return "everybody may write to it";
    if (status->st_size > IPS_TUNED_BYTES)
        return "it is larger than 1 MB";
    return NULL;
}

/* The file's text, to be freed, or NULL. */
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

static char *load(const char *path, size_t *ret_bytes,
                  enum ips_tuned_verdict *ret_verdict, char *ret_reason)
{
    struct stat status;
    char *text = NULL;
    const char *flaw = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *ret_verdict = fd < 0 && errno == ENOENT ? IPS_TUNED_NO_FILE : IPS_TUNED_DAMAGED;
    if (fd < 0 || fstat(fd, &status))
        flaw = strerror(errno);
    else
        flaw = flaw_of(&status);
    if (!flaw && !(text = read_text(fd, (size_t)status.st_size, ret_bytes)))
        flaw = "no memory";
    if (flaw)
        snprintf(ret_reason, IPS_TUNED_REASON_BYTES, "%s", flaw);
    if (fd >= 0)
        close(fd);
    return text;
}

int ips_tune_file_read(const char *path, const struct ips_tuned_machine *machine,
                       unsigned ranks, enum ips_link link, struct ips_tuned *ret,
                       enum ips_tuned_verdict *ret_verdict, char *ret_reason)
{
    size_t bytes = 0;
    char *text = load(path, &bytes, ret_verdict, ret_reason);
    if (!text)
        return -1;
    *ret_verdict = ips_tuned_parse(text, bytes, machine, ranks, link, ret, ret_reason);
    free(text);
    return *ret_verdict == IPS_TUNED_OK ? 0 : -1;
}
