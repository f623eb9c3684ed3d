/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes `ipcshim check`: what /proc says of a process (environment, maps) or what the
 * auditor noted, through the judgement to the report. The report must be JSON with
 * --json, and must not carry control characters to a terminal without.
 *
 * Input: a letter (n: notes, p: /proc), then for p the environment and the maps, with a
 * form feed between them; the environment's entries are lines here. */
#include <dirent.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

#include "tests/fuzz/keep.h"
#include "shim/text.c"
#include "tools/check.h"
#include "tools/fleet.h"
#include "tools/tool.h"

/* The files of /proc/PID, and nothing else that is there. */
static struct {
    const char *data;
    size_t size;
} section[2];

static FILE *open_section(const char *path)
{
    size_t which = strstr(path, "maps") != NULL;
    return section[which].size ? fmemopen((void *)(uintptr_t)section[which].data,
                                          section[which].size, "r")
                               : fmemopen((void *)(uintptr_t) "\n", 1, "r");
}

static int no_files(const char *pattern, glob_t *ret)
{
    ret->gl_pathc = 0;
    return strlen(pattern) < PATH_MAX ? GLOB_NOMATCH : GLOB_NOSPACE;
}

static FILE *output;
#define fopen(path, mode) open_section(path)
#define glob(pattern, flags, error, ret) no_files(pattern, ret)
#define globfree(found) ((void)(found))
#define printf(...) fprintf(output, __VA_ARGS__)
#define putchar(byte) putc(byte, output)
#undef stdout
#define stdout output
#include "tools/check_judge.c"
#undef ADD
#define own_shim own_shim_of_environment
#include "tools/check_preload.c"
#include "tools/check_pid.c"
#include "tools/check_print.c"
#include "tools/check_store.c"
#undef printf
#undef stdout
#include "tools/check_watch.c"

int tool_fail(const char *format, ...)
{
    return format ? TOOL_USAGE : -1;
}

int tool_parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *ret)
{
    *ret = strtoull(text, NULL, 10);
    return *ret < least || *ret > most ? -1 : 0;
}

int fleet_start(struct fleet *fleet, unsigned nranks, char *const *program,
                void (*prepare_rank)(unsigned rank, void *arg), void *arg)
{
    (void)fleet, (void)nranks, (void)program, (void)prepare_rank, (void)arg;
    return -1;
}

int fleet_wait(struct fleet *fleet, void (*tick)(void *arg), void *arg, int *ret_rank)
{
    (void)fleet, (void)tick, (void)arg, (void)ret_rank;
    return -1;
}

void check_trace(struct check_calls *calls, const char *path, int pid)
{
    calls->known = path && pid & 1;
}

/* Objects by their name: no file is opened at a path that the input chose. */
const struct check_elf *check_elf_of(const char *root, const char *path)
{
    static char first[] = "libmpi.so.40", second[] = "libnccl.so.2",
                all[] = "ncclAllReduce";
    static char *needed[] = {first, second, NULL}, *names[] = {all, NULL};
    static const struct check_elf nothing,
        shim = {.readable = 1, .is_shim = 1, .exports_nccl = 1, .names = names},
        nccl = {.readable = 1, .exports_nccl = 1, .soname = second, .names = names},
        user = {.readable = 1, .imports_nccl = 1, .needed = needed},
        other = {.readable = 1};
    return !root                     ? &nothing
           : strstr(path, "ipcshim") ? &shim
           : strstr(path, "nccl")    ? &nccl
           : strstr(path, "torch")   ? &user
           : strstr(path, ".so")     ? &other
                                     : &nothing;
}

int check_elf_holds_nccl(const char *root, const char *path)
{
    return root && strstr(path, "hidden") != NULL;
}

int check_elf_defines(const struct check_elf *elf, const char *name)
{
    return elf->names && !strcmp(name, elf->names[0]);
}

int check_same_file(const char *root, const char *a, const char *b)
{
    return root && !strcmp(a, b);
}

/* As JSON: quotes pair, no raw control character, valid UTF-8 (said by the writer of
 * traces, which has a target of its own). As text: lines of printable characters. */
static void check_output(const char *text, int json)
{
    int inside = 0;
    for (const char *at = text; *at; at++) {
        unsigned char byte = (unsigned char)*at;
        MUST(byte >= 0x20 || (byte == '\n' && !inside));
        MUST(byte != 0x7f && !(byte == 0xc2 && (unsigned char)at[1] < 0xa0));
        if (!json || byte != '\\')
            inside ^= json && byte == '"';
        else
            at++;
    }
    MUST(!inside);
    struct ips_text again = {0};
    ips_text_json(&again, text);
    MUST(!strstr(again.data, "\\ufffd") || strstr(text, "\\ufffd"));
    ips_text_free(&again);
}

static void report_as(const struct check_report *report, int json)
{
    char *text = NULL;
    size_t size = 0;
    output = open_memstream(&text, &size);
    if (!output)
        return;
    check_print(report, json);
    fclose(output);
    check_output(text, json);
    free(text);
}

static void take_notes(struct check_report *report, const uint8_t *data, size_t size)
{
    struct fuzz_texts lines;
    int started = 0;
    struct check_process *process = check_add_process(report, 4711);
    fuzz_cut(&lines, data, size, '\n');
    for (size_t i = 0; i < lines.count; i++)
        read_line(process, lines.text[i], &started);
    fuzz_free(&lines);
    check_add_process(report, 4712)->forked_from = 4711;
    for (size_t i = 0; i < report->nprocesses; i++)
        if (report->processes[i].forked_from)
            inherit(report, &report->processes[i]);
}

static void take_proc(struct check_report *report, uint8_t *data, size_t size)
{
    char exe[] = "/usr/bin/python3", root[] = "/proc/4711/root";
    struct check_process *process = check_add_process(report, 4711);
    uint8_t *end = memchr(data, '\f', size), *stop = data + size;
    section[0].data = (char *)data;
    section[0].size = (size_t)((end ? end : stop) - data);
    section[1].data = (char *)(end ? end + 1 : stop);
    section[1].size = (size_t)(end ? stop - end - 1 : 0);
    for (size_t i = 0; i < section[0].size; i++)
        data[i] = data[i] == '\n' ? 0 : data[i];
    process->program = strdup(exe);
    process->root = strdup(root);
    if (read_environment(process) || read_maps(process))
        return;
    order(process);
    read_trace(process);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct check_report report = {.shim = "/opt/libipcshim.so"};
    uint8_t *copy = size ? calloc(1, size) : NULL;
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    if (copy[0] == 'n')
        take_notes(&report, copy + 1, size - 1);
    else
        take_proc(&report, copy + 1, size - 1);
    check_judge(&report);
    report_as(&report, 1);
    report_as(&report, 0);
    keep_nothing();
    return 0;
}
