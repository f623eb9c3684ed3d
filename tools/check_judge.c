/* SPDX-License-Identifier: Apache-2.0 */
/* What happened in each process: who answered its nccl names, what stands behind the
 * shim, and whether the engine took calls. */
#include <stdlib.h>
#include <string.h>

#include "tools/check.h"

#define ADD(fix, id, text, remedy) \
    check_add_finding(report, fix, id, process->pid, text, remedy)

static const struct check_object *object_at(const struct check_process *process,
                                            const char *path)
{
    for (size_t i = 0; i < process->nobjects; i++)
        if (!strcmp(process->objects[i].path, path))
            return &process->objects[i];
    return NULL;
}

static const char *base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A library that is NCCL and nothing else: what it binds for itself is no program's call.
 */
static int is_nccl_itself(const struct check_process *process, const char *path)
{
    const struct check_elf *elf = check_elf_of(process->root, path);
    if (!strcmp(base(path), "libipcshim-dlsym.so")) /* asks for others */
        return 1;
    return elf->is_shim ||
           (elf->exports_nccl && (!strncmp(base(path), "libnccl", 7) ||
                                  (elf->soname && !strncmp(elf->soname, "libnccl", 7))));
}

static const struct check_object *shim_of(const struct check_process *process)
{
    for (size_t i = 0; i < process->nobjects; i++)
        if (process->objects[i].elf->is_shim)
            return &process->objects[i];
    return NULL;
}

static const struct check_object *nccl_of(const struct check_process *process)
{
    for (size_t i = 0; i < process->nobjects; i++)
        if (process->objects[i].elf->exports_nccl && !process->objects[i].elf->is_shim)
            return &process->objects[i];
    return NULL;
}

static const char *own_shim(const struct check_report *report)
{
    return report->shim ? report->shim : "/path/to/libipcshim.so";
}

static char *preload_remedy(const struct check_report *report)
{
    return check_text("LD_PRELOAD=%s, or `ipcshim run -- PROGRAM`", own_shim(report));
}

static char *path_remedy(const struct check_report *report)
{
    return check_text(
        "vLLM: VLLM_NCCL_SO_PATH=%s; SGLang: SGLANG_NCCL_SO_PATH; others: a "
        "drop-in directory (docs/compatibility.md)",
        own_shim(report));
}

/* Why a name went past the shim. */
static void explain_miss(struct check_report *report, const struct check_process *process,
                         const struct check_bind *bind)
{
    const struct check_object *to = object_at(process, bind->to);
    const struct check_object *first = check_global(process);
    if (to && to->space) {
        ADD(1, "dlmopen",
            check_text(
                "%s was loaded by dlmopen, in a namespace of its own, where no preload "
                "is seen",
                bind->to),
            strdup("load it with dlopen, or link it"));
    } else if (bind->by_dlsym && (!first || to != first)) {
        ADD(1, "dlsym",
            check_text("%s looks NCCL up in %s with dlsym, where a preload is not asked",
                       base(bind->from), bind->to),
            path_remedy(report));
    } else if (!first || !shim_of(process)) {
        ADD(1, "not-preloaded",
            check_text("%s takes NCCL from %s: the shim is not loaded in the process",
                       base(bind->from), bind->to),
            preload_remedy(report));
    } else if (to && to->global && to < shim_of(process)) {
        ADD(1, "not-first",
            check_text("%s answers nccl names before the shim does", bind->to),
            check_text("put the shim first: LD_PRELOAD=%s", own_shim(report)));
    } else {
        ADD(1, "own-scope",
            check_text(
                "%s takes NCCL from %s although the shim stands first: it was loaded "
                "with RTLD_DEEPBIND, or linked with -Bsymbolic",
                base(bind->from), bind->to),
            strdup("load it without RTLD_DEEPBIND, or let it load libnccl.so.2 from a "
                   "drop-in directory (docs/compatibility.md)"));
    }
}

/* Whether a name is one that the shim would take; NCCL's device API is not. */
static int is_shims(const struct check_report *report,
                    const struct check_process *process, const char *name)
{
    const struct check_object *shim = shim_of(process);
    if (!shim && !report->shim)
        return 1;
    return check_elf_defines(shim ? shim->elf : check_elf_of("", report->shim), name);
}

/* Counts the names that the program got from the shim; explains the others. */
static size_t judge_binds(struct check_report *report,
                          const struct check_process *process)
{
    size_t hits = 0;
    for (size_t i = 0; i < process->nbinds; i++) {
        const struct check_bind *bind = &process->binds[i];
        if (is_nccl_itself(process, bind->from))
            continue;
        if (check_elf_of(process->root, bind->to)->is_shim)
            hits++;
        else if (is_shims(report, process, bind->name))
            explain_miss(report, process, bind);
    }
    return hits;
}

/* Without binds: who would be asked. */
static void judge_scope(struct check_report *report, const struct check_process *process)
{
    const struct check_object *first = check_global(process), *shim = shim_of(process);
    const struct check_object *nccl = nccl_of(process);
    if (!nccl)
        return;
    if (!shim)
        ADD(1, "not-preloaded",
            check_text("NCCL is %s, and the shim is not loaded in the process",
                       nccl->path),
            preload_remedy(report));
    else if (first && !first->elf->is_shim)
        ADD(1, "not-first",
            check_text("%s answers the nccl names before the shim does", first->path),
            check_text("put the shim first: LD_PRELOAD=%s", shim->path));
    int imported = 0, by_path = 0;
    for (size_t i = 0; i < process->nobjects; i++)
        imported |= process->objects[i].elf->imports_nccl &&
                    !is_nccl_itself(process, process->objects[i].path);
    for (size_t i = 0; check_path_variables[i]; i++)
        by_path |= check_variable(process, check_path_variables[i]) != NULL;
    if (!imported && !by_path && shim)
        ADD(1, "dlsym",
            check_text(
                "no object of the process is linked with NCCL, yet %s is loaded: it is "
                "looked up with dlsym, where a preload is not asked",
                nccl->path),
            path_remedy(report));
}

/* Several files of one kind: two NCCLs, or two shims. */
static void judge_copies(struct check_report *report, const struct check_process *process)
{
    const struct check_object *first[2] = {NULL, NULL};
    for (size_t i = 0; i < process->nobjects; i++) {
        const struct check_object *object = &process->objects[i];
        int shim = object->elf->is_shim;
        if (!object->elf->exports_nccl || object->space)
            continue;
        if (!first[shim])
            first[shim] = object;
        else if (check_same_file(process->root, first[shim]->path, object->path))
            continue;
        else if (shim)
            ADD(1, "two-shims",
                check_text("two copies of the shim are loaded: %s and %s",
                           first[shim]->path, object->path),
                strdup("name one file in LD_PRELOAD and in the path variables"));
        else /* whoever names one has chosen */
            ADD(check_variable(process, "IPCSHIM_NCCL_LIB") == NULL, "two-nccls",
                check_text(
                    "two NCCLs are loaded: %s and %s; the shim gives all calls to one "
                    "of them",
                    first[shim]->path, object->path),
                strdup("IPCSHIM_NCCL_LIB=the one to use, or load only one"));
    }
}

static int is_system(const char *path)
{
    return !strncmp(path, "/lib", 4) || !strncmp(path, "/usr/lib/", 9) || path[0] != '/';
}

/* NCCL linked into another object, with its names hidden. */
static int judge_hidden(struct check_report *report, const struct check_process *process)
{
    if (nccl_of(process))
        return 0;
    for (size_t i = 0; i < process->nobjects; i++) {
        const struct check_object *object = &process->objects[i];
        if (object->elf->is_shim || (i && is_system(object->path)) ||
            !check_elf_holds_nccl(process->root, object->path))
            continue;
        ADD(1, "hidden-nccl",
            check_text(
                "%s has an NCCL of its own inside, with hidden names: nothing can stand "
                "in front of it",
                object->path),
            strdup("use a build that links libnccl.so.2 (PyTorch: the pip wheels do; "
                   "Horovod: HOROVOD_NCCL_LINK=SHARED)"));
        return 1;
    }
    return 0;
}

static void judge_calls(struct check_report *report, const struct check_process *process)
{
    static const struct {
        const char *reason, *remedy;
    } remedies[] = {
        {"IPCSHIM_ENABLE=0", "unset IPCSHIM_ENABLE on every rank"},
        {"NCCL_COMM_ID", "unset NCCL_COMM_ID"},
        {"non-blocking", "unset TORCH_NCCL_USE_COMM_NONBLOCKING and NCCL_COMM_BLOCKING"},
        {"another version of the shim", "give all ranks the same libipcshim.so"},
        {"P2P_DISABLE", "unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL"},
    };
    const struct check_calls *calls = &process->calls;
    if (!calls->known || calls->engine || !calls->nccl)
        return;
    int served = calls->comms_served > 0;
    const char *reason =
        served || !calls->comm_reason[0] ? calls->call_reason : calls->comm_reason;
    if (!strcmp(reason, "IPCSHIM_ENABLE=0")) /* its own: told already */
        return;
    for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++)
        if (strstr(reason, remedies[i].reason)) {
            ADD(1, "engine-idle",
                check_text("the engine took no ncclAllReduce: %s", reason),
                strdup(remedies[i].remedy));
            return;
        }
    ADD(0, "engine-idle", check_text("the engine took no ncclAllReduce: %s", reason),
        strdup(
            "`ipcshim policy` shows what it takes; `ipcshim tune` measures what is faster "
            "here, and IPCSHIM_MAX_BYTES=16M takes all up to there"));
}

static void judge_process(struct check_report *report,
                          const struct check_process *process)
{
    size_t hits = judge_binds(report, process);
    if (!process->watched)
        judge_scope(report, process);
    judge_copies(report, process);
    if (hits && !nccl_of(process) && !process->forked_from)
        ADD(1, "nothing-behind",
            strdup("the shim answers the nccl names, but no NCCL is loaded behind it"),
            strdup("IPCSHIM_NCCL_LIB=/path/to/libnccl.so.2"));
    judge_calls(report, process);
    if (process->calls.known == 0 && !process->watched && shim_of(process))
        ADD(0, "no-trace",
            strdup("whether the engine takes calls can't be seen: the process writes no "
                   "trace"),
            strdup(
                "start it with IPCSHIM_TRACE=/tmp/trace-%p.json, or IPCSHIM_SUMMARY=1"));
}

void check_judge(struct check_report *report)
{
    int used = 0, hidden = 0;
    for (size_t i = 0; i < report->nprocesses; i++) {
        const struct check_process *process = &report->processes[i];
        check_preload(report, process);
        if (check_uses_nccl(process)) {
            used = 1;
            judge_process(report, process);
        }
        hidden |= judge_hidden(report, process);
    }
    if (used || hidden)
        return;
    int dynamic = report->nprocesses > 0;
    check_add_finding(
        report, 1, dynamic ? "no-nccl" : "not-loaded", 0,
        strdup(dynamic
                   ? "no process that was seen loaded NCCL"
                   : "nothing of the program was seen: it is static, 32-bit or setuid, "
                     "where the loader takes no preload"),
        strdup(dynamic
                   ? "check the part of the program that communicates; a launcher that "
                     "clears the environment (env -i, sudo, ssh) must pass it on"
                   : "use a dynamic 64-bit build, started without setuid"));
}
