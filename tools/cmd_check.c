/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim check: says which object answers a program's nccl names, and what to do where
 * it is not the shim. */
#include <getopt.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "tools/check.h"
#include "tools/place.h"
#include "tools/tool.h"

static const char help[] =
    "usage: ipcshim check [--json] -- PROGRAM [ARGUMENTS]\n"
    "       ipcshim check [--json] PID\n\n"
    "Says which object answers the nccl names in every process of PROGRAM, or in the "
    "running\n"
    "process PID: in the global scope, by the path variables and by dlsym; whether the "
    "engine\n"
    "took AllReduce calls; and what to do where something is not in order.\n\n"
    "PROGRAM runs to its end with the environment as it is, its output on stderr; only\n"
    "LD_AUDIT and IPCSHIM_TRACE are set for it. `ipcshim check -- ipcshim run -- "
    "PROGRAM` "
    "checks\n"
    "what ipcshim run sets up.\n\n"
    "  --json   one JSON object on stdout\n\n"
    "Exit status: 0 nothing to fix, 1 something to fix, 2 it could not look.\n";

static int finish(struct check_report *report, int json)
{
    int status = 0;
    check_judge(report);
    check_print(report, json);
    for (size_t i = 0; i < report->nfindings; i++)
        status |= report->findings[i].fix;
    return status ? TOOL_FAILED : 0;
}

static int check_program(struct check_report *report, char **program, int json)
{
    fflush(NULL);
    int status = check_watch(report, program);
    if (status < 0)
        return TOOL_USAGE;
    if (strverscmp(gnu_get_libc_version(), "2.35") < 0)
        check_add_finding(report, 0, "old-glibc", 0,
                          check_text("glibc %s does not tell of names that are bound at "
                                     "load (-z now, LD_BIND_NOW)",
                                     gnu_get_libc_version()),
                          check_text("look with IPCSHIM_SUMMARY=1 as well"));
    if (status)
        check_add_finding(report, 1, "program-failed", 0,
                          check_text("%s ended with status %d", program[0], status),
                          check_text("see what it printed"));
    return finish(report, json);
}

int cmd_check(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    struct check_report report = {.shim = place_shim()};
    int option, json = 0;
    while ((option = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (option != 'j')
            return TOOL_USAGE;
        json = 1;
    }
    uint64_t pid;
    if (optind >= argc)
        return tool_fail(
            "check: nothing to check: ipcshim check -- PROGRAM, or ipcshim check PID");
    if (optind + 1 == argc && strcmp(argv[optind - 1], "--") != 0 &&
        !tool_parse_number(argv[optind], 1, INT_MAX, &pid))
        return check_pid(&report, (int)pid) ? TOOL_USAGE : finish(&report, json);
    return check_program(&report, argv + optind, json);
}
