/* SPDX-License-Identifier: Apache-2.0 */
/* The check's report, as text for people or as one JSON object. */
#include <stdio.h>
#include <string.h>

#include "shim/text.h"
#include "tools/check.h"

static void quoted(const char *text)
{
    struct ips_text json = {0};
    ips_text_json(&json, text);
    fputs(json.failed ? "null" : json.data, stdout);
    ips_text_free(&json);
}

/* As JSON escapes it, without the quotes: paths and variables of a foreign process must
 * not reach a terminal raw. */
static const char *shown(const char *text)
{
    struct ips_text json = {0};
    ips_text_json(&json, text);
    if (json.failed || !json.data || json.data[0] != '"')
        return "?";
    json.data[json.used - 1] = '\0';
    return json.data + 1;
}

static void key(const char *name, const char *value, int first)
{
    printf("%s\"%s\":", first ? "" : ",", name);
    quoted(value);
}

static const char *global_path(const struct check_process *process)
{
    const struct check_object *first = check_global(process);
    return first ? first->path : NULL;
}

static const char *kind_of(const struct check_process *process, const char *path)
{
    const struct check_elf *elf = check_elf_of(process->root, path);
    return elf->is_shim ? " (the shim)" : elf->exports_nccl ? " (NCCL)" : "";
}

static void print_json_process(const struct check_process *process, int first)
{
    printf("%s{\"pid\":%d", first ? "" : ",", process->pid);
    key("program", process->program, 0);
    key("global_scope", global_path(process), 0);
    printf(",\"path_variables\":{");
    for (size_t i = 0, n = 0; check_path_variables[i]; i++)
        if (check_variable(process, check_path_variables[i]))
            key(check_path_variables[i], check_variable(process, check_path_variables[i]),
                !n++);
    printf("},\"nccl\":[");
    for (size_t i = 0, n = 0; i < process->nobjects; i++)
        if (process->objects[i].elf->exports_nccl) {
            printf("%s{\"shim\":%s", n++ ? "," : "",
                   process->objects[i].elf->is_shim ? "true" : "false");
            key("path", process->objects[i].path, 0);
            printf(",\"namespace\":%ld}", process->objects[i].space);
        }
    const struct check_calls *calls = &process->calls;
    if (calls->known)
        printf("],\"allreduce\":{\"engine\":%llu,\"nccl\":%llu},\"communicators\":"
               "{\"all\":%llu,\"served\":%llu}}",
               (unsigned long long)calls->engine, (unsigned long long)calls->nccl,
               (unsigned long long)calls->comms, (unsigned long long)calls->comms_served);
    else
        printf("],\"allreduce\":null,\"communicators\":null}");
}

static void print_json(const struct check_report *report, unsigned fixes)
{
    printf("{\"good\":%s,\"findings\":[", fixes ? "false" : "true");
    for (size_t i = 0; i < report->nfindings; i++) {
        const struct check_finding *finding = &report->findings[i];
        printf("%s{\"fix\":%s", i ? "," : "", finding->fix ? "true" : "false");
        key("id", finding->id, 0);
        printf(",\"pid\":%d", finding->pid);
        key("text", finding->text, 0);
        key("remedy", finding->remedy, 0);
        putchar('}');
    }
    printf("],\"processes\":[");
    for (size_t i = 0, n = 0; i < report->nprocesses; i++)
        if (check_uses_nccl(&report->processes[i]))
            print_json_process(&report->processes[i], !n++);
    printf("]}\n");
}

static void print_process(const struct check_process *process)
{
    const char *global = global_path(process);
    printf("process %d, %s\n", process->pid, shown(process->program));
    printf("  global scope: %s%s\n",
           global ? shown(global) : "nobody answers the nccl names",
           global ? kind_of(process, global) : "");
    for (size_t i = 0; check_path_variables[i]; i++) {
        const char *path = check_variable(process, check_path_variables[i]);
        if (path)
            printf("  %s: %s%s\n", check_path_variables[i], shown(path),
                   kind_of(process, path));
    }
    for (size_t i = 0; i < process->nobjects; i++)
        if (process->objects[i].elf->exports_nccl)
            printf("  loaded: %s%s\n", shown(process->objects[i].path),
                   kind_of(process, process->objects[i].path));
    const struct check_calls *calls = &process->calls;
    if (calls->known)
        printf("  ncclAllReduce: %llu on the engine, %llu on NCCL; %llu of %llu "
               "communicators served\n",
               (unsigned long long)calls->engine, (unsigned long long)calls->nccl,
               (unsigned long long)calls->comms_served, (unsigned long long)calls->comms);
}

void check_print(const struct check_report *report, int json)
{
    unsigned fixes = 0;
    for (size_t i = 0; i < report->nfindings; i++)
        fixes += report->findings[i].fix != 0;
    if (json) {
        print_json(report, fixes);
        return;
    }
    for (size_t i = 0; i < report->nprocesses; i++)
        if (check_uses_nccl(&report->processes[i]))
            print_process(&report->processes[i]);
    for (size_t i = 0; i < report->nfindings; i++)
        printf("%s %s: %s\n    %s\n", report->findings[i].fix ? "fix " : "note",
               report->findings[i].id, shown(report->findings[i].text),
               shown(report->findings[i].remedy));
    if (fixes)
        printf("%u to fix\n", fixes);
    else
        printf("all good: nothing to fix\n");
}
