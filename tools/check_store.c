/* SPDX-License-Identifier: Apache-2.0 */
/* The check's growing lists. Nothing is freed: the command ends soon. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check.h"
#include "tools/tool.h"

const char *const check_path_variables[] = {"VLLM_NCCL_SO_PATH", "SGLANG_NCCL_SO_PATH",
                                            "SGLANG_DIFFUSION_NCCL_SO_PATH",
                                            "FASTVIDEO_NCCL_SO_PATH", NULL};

/* Room for one more. */
static void *grown(void *list, size_t count, size_t bytes)
{
    if (count & (count - 1)) /* full only at powers of two */
        return list;
    list = realloc(list, (count ? 2 * count : 1) * bytes);
    if (!list) {
        tool_fail("check: out of memory");
        exit(TOOL_USAGE);
    }
    return list;
}

struct check_process *check_add_process(struct check_report *report, int pid)
{
    report->processes =
        grown(report->processes, report->nprocesses, sizeof *report->processes);
    struct check_process *process = &report->processes[report->nprocesses++];
    *process = (struct check_process){.pid = pid, .program = "?", .root = ""};
    return process;
}

void check_add_object(struct check_process *process, const char *path, long space,
                      int global)
{
    for (size_t i = 0; i < process->nobjects; i++)
        if (process->objects[i].space == space && !strcmp(process->objects[i].path, path))
            return;
    process->objects =
        grown(process->objects, process->nobjects, sizeof *process->objects);
    process->objects[process->nobjects++] = (struct check_object){
        strdup(path), space, global, check_elf_of(process->root, path)};
}

void check_add_bind(struct check_process *process, struct check_bind bind)
{
    process->binds = grown(process->binds, process->nbinds, sizeof *process->binds);
    process->binds[process->nbinds++] = bind;
}

void check_add_finding(struct check_report *report, int fix, const char *id, int pid,
                       char *text, char *remedy)
{
    for (size_t i = 0; i < report->nfindings; i++)
        if (!strcmp(report->findings[i].text, text))
            return;
    report->findings =
        grown(report->findings, report->nfindings, sizeof *report->findings);
    report->findings[report->nfindings++] =
        (struct check_finding){id, fix, pid, text, remedy};
}

char *check_text(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&text, format, args);
    va_end(args);
    if (length < 0) {
        tool_fail("check: out of memory");
        exit(TOOL_USAGE);
    }
    return text;
}

const char *check_variable(const struct check_process *process, const char *name)
{
    size_t length = strlen(name);
    for (char **entry = process->environment; entry && *entry; entry++)
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
            return (*entry)[length + 1] ? *entry + length + 1 : NULL;
    return NULL;
}

int check_uses_nccl(const struct check_process *process)
{
    if (process->nbinds || process->calls.known)
        return 1;
    for (size_t i = 0; i < process->nobjects; i++) {
        const struct check_elf *elf = process->objects[i].elf;
        if (!elf->is_shim && (elf->exports_nccl || elf->imports_nccl))
            return 1;
    }
    return 0;
}

const struct check_object *check_global(const struct check_process *process)
{
    for (size_t i = 0; i < process->nobjects; i++)
        if (process->objects[i].global && process->objects[i].elf->exports_nccl)
            return &process->objects[i];
    return NULL;
}
