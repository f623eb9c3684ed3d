/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program with the auditor in every process of it, and reads the auditor's notes:
 * one file per process, lines as check_audit.c writes them. */
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/check.h"
#include "tools/fleet.h"
#include "tools/tool.h"

struct watch {
    const char *directory, *audit;
};

/* The auditor beside the file, or NULL. */
static const char *beside(const char *file)
{
    const char *slash = file ? strrchr(file, '/') : NULL;
    char *path = check_text("%.*s/libipcshim-audit.so", slash ? (int)(slash - file) : 0,
                            slash ? file : "");
    return slash && !access(path, R_OK) ? path : NULL;
}

/* A build tree has it beside the command, an installation beside the shim. */
static const char *auditor(const char *shim)
{
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length > 0 ? length : 0] = '\0';
    const char *found = beside(own);
    return found ? found : beside(shim);
}

static void prepare(unsigned rank, void *arg)
{
    const struct watch *watch = arg;
    const char *old = getenv("LD_AUDIT");
    (void)rank;
    setenv("LD_AUDIT", old ? check_text("%s:%s", watch->audit, old) : watch->audit, 1);
    setenv("IPS_CHECK_DIR", watch->directory, 1);
    setenv("IPCSHIM_TRACE", check_text("%s/trace.%%p", watch->directory), 1);
    dup2(STDERR_FILENO, STDOUT_FILENO);
}

/* Cuts the next field off; "" at the end. */
static char *field(char **line)
{
    char *start = *line, *tab = strchr(start, '\t');
    *line = tab ? tab + 1 : start + strlen(start);
    if (tab)
        *tab = '\0';
    return start;
}

static void add_variable(struct check_process *process, const char *entry)
{
    size_t count = 0;
    while (process->environment && process->environment[count])
        count++;
    process->environment =
        realloc(process->environment, (count + 2) * sizeof *process->environment);
    if (!process->environment)
        exit(tool_fail("check: out of memory"));
    process->environment[count] = strdup(entry);
    process->environment[count + 1] = NULL;
}

static void read_line(struct check_process *process, char *line, int *started)
{
    char *kind = field(&line);
    if (*kind == 'P') { /* executed: what was before is gone */
        *process = (struct check_process){
            .pid = process->pid, .program = "?", .root = "", .watched = 1};
        *started = 0;
    } else if (*kind == 'F') {
        process->forked_from = atoi(field(&line));
    } else if (*kind == 'I') {
        *started = 1;
    } else if (*kind == 'E') {
        add_variable(process, line);
    } else if (*kind == 'O') {
        long space = atol(field(&line));
        check_add_object(process, line, space, space == 0 && !*started);
        if (!process->forked_from && process->nobjects == 1)
            process->program = process->objects[0].path;
    } else if (*kind == 'B') {
        int by_dlsym = atoi(field(&line));
        const char *name = strdup(field(&line)), *from = strdup(field(&line));
        check_add_bind(process, (struct check_bind){name, from, strdup(line), by_dlsym});
    }
}

static void read_notes(struct check_report *report, const char *directory, int pid)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int started = 0;
    FILE *file = fopen(check_text("%s/%d", directory, pid), "re");
    if (!file)
        return;
    struct check_process *process = check_add_process(report, pid);
    process->watched = 1;
    while ((length = getline(&line, &room, file)) > 0) {
        if (line[length - 1] == '\n')
            line[length - 1] = '\0';
        read_line(process, line, &started);
    }
    free(line);
    fclose(file);
    check_trace(&process->calls, check_text("%s/trace.%d", directory, pid), pid);
}

/* A forked child has what its parent has. */
static void inherit(struct check_report *report, struct check_process *child)
{
    for (size_t i = 0; i < report->nprocesses; i++) {
        const struct check_process *parent = &report->processes[i];
        if (parent->pid != child->forked_from)
            continue;
        for (size_t j = 0; j < parent->nobjects; j++)
            check_add_object(child, parent->objects[j].path, parent->objects[j].space,
                             parent->objects[j].global);
        child->environment = parent->environment;
        child->program = parent->program;
    }
}

static void collect(struct check_report *report, const char *directory)
{
    struct dirent **entries;
    int count = scandir(directory, &entries, NULL, versionsort);
    for (int i = 0; i < count; i++) {
        uint64_t pid;
        if (!tool_parse_number(entries[i]->d_name, 1, INT_MAX, &pid))
            read_notes(report, directory, (int)pid);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    for (size_t i = 0; i < report->nprocesses; i++)
        if (report->processes[i].forked_from)
            inherit(report, &report->processes[i]);
}

static int delete_one(const char *path, const struct stat *status, int kind,
                      struct FTW *place)
{
    (void)status, (void)kind, (void)place;
    return remove(path);
}

int check_watch(struct check_report *report, char **program)
{
    char directory[] = "/tmp/ipcshim-check-XXXXXX";
    struct fleet fleet = {0};
    struct watch watch = {directory, auditor(report->shim)};
    if (!watch.audit)
        return tool_fail("no libipcshim-audit.so beside this command or beside "
                         "libipcshim.so: build or install it"),
               -1;
    if (!mkdtemp(directory))
        return tool_fail("cannot make %s: %s", directory, strerror(errno)), -1;
    int status = -1, error = fleet_start(&fleet, 1, program, prepare, &watch);
    if (error)
        tool_fail("cannot start %s: %s", program[0], strerror(-error));
    else
        status = fleet_wait(&fleet, NULL, NULL, NULL);
    collect(report, directory);
    nftw(directory, delete_one, 8, FTW_DEPTH | FTW_PHYS);
    return status;
}
