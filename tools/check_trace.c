/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the AllReduce calls of one process in the JSON lines that the shim wrote; only
 * flat objects of this project's own writing. Replays of graphs come from the summary. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/check.h"

/* A string's value into text[size]; "" when it is missing or null. */
static void text_of(const char *line, const char *key, char *text, size_t size)
{
    char quoted[40];
    size_t used = 0;
    snprintf(quoted, sizeof quoted, "\"%s\":\"", key);
    const char *at = strstr(line, quoted);
    for (at = at ? at + strlen(quoted) : ""; *at && *at != '"' && used + 1 < size; at++) {
        if (*at == '\\' && at[1])
            at++;
        text[used++] = *at;
    }
    text[used] = '\0';
}

static uint64_t number_of(const char *line, const char *key)
{
    char quoted[40];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(line, quoted);
    return at ? strtoull(at + strlen(quoted), NULL, 10) : 0;
}

static void take_call(struct check_calls *calls, const char *line)
{
    char name[64], route[16];
    text_of(line, "name", name, sizeof name);
    text_of(line, "route", route, sizeof route);
    if (strcmp(name, "ncclAllReduce") != 0) {
        calls->others++;
    } else if (!strcmp(route, "engine")) {
        calls->engine++;
    } else {
        calls->nccl++;
        text_of(line, "reason", calls->call_reason, sizeof calls->call_reason);
    }
}

static void take_comm(struct check_calls *calls, const char *line)
{
    char route[16];
    text_of(line, "route", route, sizeof route);
    calls->comms++;
    if (!strcmp(route, "engine"))
        calls->comms_served++;
    else
        text_of(line, "reason", calls->comm_reason, sizeof calls->comm_reason);
}

/* The rows of replays, in the last summary. */
static uint64_t replays(const char *line)
{
    uint64_t sum = 0;
    for (const char *at = line; (at = strstr(at, "\"engine (replayed)\"")); at++)
        sum += number_of(at, "calls");
    return sum;
}

/* A foreign process's environment named it: a FIFO would hold this one up, and a device
 * would have no end. */
static FILE *open_regular(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return NULL;
    FILE *file = !fstat(fd, &status) && S_ISREG(status.st_mode) ? fdopen(fd, "r") : NULL;
    if (!file)
        close(fd);
    return file;
}

void check_trace(struct check_calls *calls, const char *path, int pid)
{
    char *line = NULL, event[16];
    size_t room = 0;
    uint64_t replayed = 0;
    FILE *file = open_regular(path);
    if (!file)
        return;
    while (getline(&line, &room, file) > 0) {
        if (number_of(line, "pid") != (uint64_t)pid)
            continue;
        calls->known = 1;
        text_of(line, "event", event, sizeof event);
        if (!strcmp(event, "start"))
            text_of(line, "nccl", calls->nccl_path, sizeof calls->nccl_path);
        else if (!strcmp(event, "call"))
            take_call(calls, line);
        else if (!strcmp(event, "comm"))
            take_comm(calls, line);
        else if (!strcmp(event, "summary"))
            replayed = replays(line);
    }
    calls->engine += replayed;
    free(line);
    fclose(file);
}
