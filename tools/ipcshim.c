/* SPDX-License-Identifier: Apache-2.0 */
/* The ipcshim command: finds the subcommand and leaves the rest to it. */
#include <stdio.h>
#include <string.h>

#include "tools/tool.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help; /* NULL: hidden */
} commands[] = {
    {"run", cmd_run, "run a program with the shim in front of NCCL"},
    {"bench", cmd_bench, "check and time AllReduce, the engine beside NCCL"},
    {"check", cmd_check, "say whether a program's NCCL calls reach the shim, and the fix"},
    {"policy", cmd_policy, "show which size takes which route and protocol, and why"},
    {"tune", cmd_tune, "measure which kernels are the fastest here, for the policy"},
    {"topo", cmd_topo, "show where the GPUs sit, and the order of a ring over them"},
    {"doctor", cmd_doctor, "find what on this machine is slow or wrong, and the fix"},
    {"env", cmd_env, "show every IPCSHIM_* variable"},
    {"bench-rank", cmd_bench_rank, NULL},
    {"tune-rank", cmd_tune_rank, NULL},
    {"bench-host-rank", cmd_bench_host_rank, NULL},
    {"devices", cmd_devices, NULL},
    {"links-child", cmd_links_child, NULL},
    {"links-veto", cmd_links_veto, NULL},
};
#define COMMANDS (sizeof commands / sizeof commands[0])

static int usage(FILE *to)
{
    fprintf(to, "usage: ipcshim COMMAND [OPTIONS]\n\n");
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands[i].help)
            fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].help);
    fprintf(
        to,
        "\nipcshim COMMAND --help tells more; ipcshim --version names the version.\n");
    return to == stdout ? 0 : TOOL_USAGE;
}

static int unknown(const char *name)
{
    const char *names[COMMANDS];
    size_t count = 0;
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands[i].help)
            names[count++] = commands[i].name;
    const char *nearest = tool_nearest(name, names, count);
    return nearest ? tool_fail("no command \"%s\": did you mean \"%s\"?", name, nearest)
                   : tool_fail("no command \"%s\": see ipcshim --help", name);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return usage(stderr);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return usage(stdout);
    if (!strcmp(argv[1], "--version")) {
        puts("ipcshim " IPCSHIM_VERSION);
        return 0;
    }
    for (size_t i = 0; i < COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    return unknown(argv[1]);
}
