/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said of a process's environment before anything runs: LD_PRELOAD, the path
 * variables, and IPCSHIM_NCCL_LIB. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/settings.h"
#include "tools/check.h"

#define ADD(fix, id, text, remedy) \
    check_add_finding(report, fix, id, process->pid, text, remedy)

static int exists(const struct check_process *process, const char *path)
{
    char *full = check_text("%s%s", *path == '/' ? process->root : "", path);
    int found = !access(full, R_OK);
    free(full);
    return found;
}

static const char *absolute(const char *path)
{
    char full[PATH_MAX];
    return realpath(path, full) ? strdup(full) : path;
}

static const char *own_shim(const struct check_report *report)
{
    return report->shim ? report->shim : "/path/to/libipcshim.so";
}

/* One entry of LD_PRELOAD. Returns whether it is the shim; *before: the first NCCL seen.
 */
static int judge_entry(struct check_report *report, const struct check_process *process,
                       const char *entry, const char **before)
{
    if (!strchr(entry, '/')) { /* a name, looked up in the library path */
        if (!strncmp(entry, "libnccl", 7) && !*before)
            *before = entry;
        return !strcmp(entry, "libipcshim.so");
    }
    if (!exists(process, entry)) {
        ADD(1, "preload-missing",
            check_text("LD_PRELOAD names %s, which is not there: the loader ignores it",
                       entry),
            check_text("LD_PRELOAD=%s", own_shim(report)));
        return strstr(entry, "ipcshim") != NULL;
    }
    const struct check_elf *elf = check_elf_of(process->root, entry);
    if (elf->is_shim && *entry != '/')
        ADD(1, "preload-relative",
            check_text(
                "LD_PRELOAD names %s, a relative path: a process that is started in "
                "another directory does not find it",
                entry),
            check_text("LD_PRELOAD=%s", absolute(entry)));
    if (!elf->is_shim && elf->exports_nccl && !*before)
        *before = entry;
    return elf->is_shim;
}

static void judge_preload(struct check_report *report,
                          const struct check_process *process)
{
    const char *preload = check_variable(process, "LD_PRELOAD"), *before = NULL;
    char *copy = strdup(preload ? preload : ""), *rest = copy, *entry;
    while (copy && (entry = strsep(&rest, ": "))) {
        if (!*entry || !judge_entry(report, process, entry, &before))
            continue;
        if (before)
            ADD(1, "preload-order",
                check_text("in LD_PRELOAD, %s comes before the shim and answers the nccl "
                           "names",
                           before),
                check_text("put the shim first: LD_PRELOAD=%s:%s", entry, before));
        break;
    }
}

static void judge_path_variable(struct check_report *report,
                                const struct check_process *process, const char *name)
{
    const char *path = check_variable(process, name);
    if (!path)
        return;
    char *remedy = check_text("%s=%s", name, own_shim(report));
    if (strchr(path, '/') && !exists(process, path)) {
        ADD(1, "path-missing", check_text("%s names %s, which is not there", name, path),
            remedy);
        return;
    }
    if (!check_elf_of(process->root, path)->is_shim) {
        ADD(1, "path-not-shim",
            check_text("%s names %s, which is not the shim", name, path),
            check_text("%s IPCSHIM_NCCL_LIB=%s", remedy, path));
        return;
    }
    if (*path != '/')
        ADD(1, "path-relative", check_text("%s names %s, a relative path", name, path),
            check_text("%s=%s", name, absolute(path)));
}

static void judge_nccl_lib(struct check_report *report,
                           const struct check_process *process)
{
    const char *path = check_variable(process, "IPCSHIM_NCCL_LIB");
    if (!path || !strchr(path, '/'))
        return;
    if (*path != '/') {
        ADD(1, "nccl-lib",
            check_text("IPCSHIM_NCCL_LIB names %s, a relative path, and the shim loads "
                       "nothing from one",
                       path),
            check_text("IPCSHIM_NCCL_LIB=%s", absolute(path)));
        return;
    }
    const struct check_elf *elf = check_elf_of(process->root, path);
    if (!elf->exports_nccl || elf->is_shim)
        ADD(1, "nccl-lib",
            check_text("IPCSHIM_NCCL_LIB names %s, which is %s", path,
                       elf->is_shim            ? "the shim itself"
                       : exists(process, path) ? "no NCCL"
                                               : "not there"),
            strdup("give it the path of the real libnccl.so.2, or unset it"));
}

static void judge_settings(struct check_report *report,
                           const struct check_process *process)
{
    struct ips_settings settings;
    struct ips_settings_problems problems;
    ips_settings_parse(process->environment, &settings, &problems);
    for (unsigned i = 0; i < problems.count; i++)
        ADD(1, "setting", strdup(problems.text[i]),
            strdup("`ipcshim env` shows every variable and its values"));
    if (!settings.enable)
        ADD(1, "disabled", strdup("IPCSHIM_ENABLE=0 gives every call to NCCL"),
            strdup("unset IPCSHIM_ENABLE"));
}

void check_preload(struct check_report *report, const struct check_process *process)
{
    judge_preload(report, process);
    for (size_t i = 0; check_path_variables[i]; i++)
        judge_path_variable(report, process, check_path_variables[i]);
    judge_nccl_lib(report, process);
    judge_settings(report, process);
}
