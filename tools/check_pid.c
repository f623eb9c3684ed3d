/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc tells of a running process: its objects, its environment, its program. Paths
 * are looked at through the process's own root, so a container is no obstacle. */
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/check.h"
#include "tools/tool.h"

static FILE *open_of(const struct check_process *process, const char *name)
{
    FILE *file = fopen(check_text("/proc/%d/%s", process->pid, name), "re");
    if (!file)
        tool_fail("cannot read /proc/%d/%s: %s", process->pid, name,
                  errno == ENOENT ? "there is no such process" : strerror(errno));
    return file;
}

static int read_environment(struct check_process *process)
{
    char *entry = NULL;
    size_t room = 0, count = 0;
    FILE *file = open_of(process, "environ");
    if (!file)
        return -1;
    process->environment = calloc(1, sizeof(char *));
    while (process->environment && getdelim(&entry, &room, '\0', file) > 0) {
        process->environment =
            realloc(process->environment, (count + 2) * sizeof(char *));
        if (!process->environment)
            break;
        process->environment[count++] = strdup(entry);
        process->environment[count] = NULL;
    }
    free(entry);
    fclose(file);
    return 0;
}

static int read_maps(struct check_process *process)
{
    char *line = NULL;
    size_t room = 0;
    FILE *file = open_of(process, "maps");
    if (!file)
        return -1;
    check_add_object(process, process->program, 0, 1);
    while (getline(&line, &room, file) > 0) {
        char *path = strchr(line, '/');
        if (!path)
            continue;
        path[strcspn(path, "\n")] = '\0';
        if (check_elf_of(process->root, path)->readable)
            check_add_object(process, path, 0, 0);
    }
    free(line);
    fclose(file);
    return 0;
}

static int answers_to(const struct check_process *process,
                      const struct check_object *object, const char *name)
{
    const char *slash = strrchr(object->path, '/');
    if (strchr(name, '/'))
        return check_same_file(process->root, object->path, name);
    return !strcmp(slash ? slash + 1 : object->path, name) ||
           (object->elf->soname && !strcmp(object->elf->soname, name));
}

static struct check_object *find(struct check_process *process, const char *name)
{
    for (size_t i = 0; i < process->nobjects; i++)
        if (answers_to(process, &process->objects[i], name))
            return &process->objects[i];
    return NULL;
}

/* Puts the object that has the name at position *front, unless it stands before it. */
static void bring_forward(struct check_process *process, const char *name, size_t *front)
{
    struct check_object *found = find(process, name);
    if (!found || found < process->objects + *front)
        return;
    struct check_object moved = *found;
    moved.global = 1;
    memmove(process->objects + *front + 1, process->objects + *front,
            (size_t)(found - process->objects - *front) * sizeof moved);
    process->objects[(*front)++] = moved;
}

/* The order in which the loader searches: the program, what is preloaded, and what these
 * need, breadth first. */
static void order(struct check_process *process)
{
    size_t front = 1;
    const char *preload = check_variable(process, "LD_PRELOAD");
    char *copy = strdup(preload ? preload : ""), *rest = copy, *name;
    while (copy && (name = strsep(&rest, ": ")))
        if (*name)
            bring_forward(process, name, &front);
    for (size_t i = 0; i < front; i++)
        for (char **needed = process->objects[i].elf->needed; needed && *needed; needed++)
            bring_forward(process, *needed, &front);
    free(copy);
}

/* The trace that the process writes, if it does: %p is its id, %r any rank. */
static void read_trace(struct check_process *process)
{
    char pattern[PATH_MAX];
    size_t used = 0;
    glob_t found;
    const char *path = check_variable(process, "IPCSHIM_TRACE");
    if (!path)
        return;
    used = (size_t)snprintf(pattern, sizeof pattern, "%s",
                            *path == '/' ? process->root : "");
    if (*path != '/')
        used = (size_t)snprintf(pattern, sizeof pattern, "/proc/%d/cwd/", process->pid);
    for (; *path && used + 16 < sizeof pattern; path++) {
        if (path[0] == '%' && path[1] == 'p')
            used += (size_t)sprintf(pattern + used, "%d", process->pid);
        else if (path[0] == '%' && path[1] == 'r')
            pattern[used++] = '*';
        else
            pattern[used++] = *path;
        path += path[0] == '%' && path[1] && strchr("pr%", path[1]);
    }
    pattern[used] = '\0';
    if (glob(pattern, 0, NULL, &found))
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        check_trace(&process->calls, found.gl_pathv[i], process->pid);
    globfree(&found);
}

int check_pid(struct check_report *report, int pid)
{
    struct check_process *process = check_add_process(report, pid);
    char program[PATH_MAX];
    ssize_t length =
        readlink(check_text("/proc/%d/exe", pid), program, sizeof program - 1);
    if (length < 0) {
        tool_fail("cannot look at process %d: %s", pid,
                  errno == ENOENT ? "there is none" : strerror(errno));
        return -1;
    }
    program[length] = '\0';
    process->program = strdup(program);
    process->root = check_text("/proc/%d/root", pid);
    if (read_environment(process) || read_maps(process))
        return -1;
    order(process);
    read_trace(process);
    return 0;
}
