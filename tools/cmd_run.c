/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim run: runs a program with the shim in front of NCCL, once or as N ranks. */
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/fleet.h"
#include "tools/links.h"
#include "tools/place.h"
#include "tools/tool.h"

static const char help[] =
    "usage: ipcshim run [--ranks N] [--device auto|gpu|sim] -- PROGRAM [ARGUMENTS]\n\n"
    "Runs PROGRAM with libipcshim.so in front of NCCL: sets LD_PRELOAD, and the variables\n"
    "with which vLLM, SGLang and FastVideo find NCCL by path. Where there is no GPU, the\n"
    "CPU stand-in is put in place of CUDA and NCCL. Where `ipcshim doctor --probe` has\n"
    "found a pair of the GPUs broken, NCCL_P2P_DISABLE=1 is set, unless the variable is.\n\n"
    "  --ranks N    start N copies, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE "
    "and,\n"
    "               unless set, MASTER_ADDR and MASTER_PORT; when one fails the others "
    "are\n"
    "               ended, and its status is the command's\n"
    "  --device D   auto (default), gpu or sim\n";

struct launch {
    unsigned ranks;
};

static void set_number(const char *name, unsigned value)
{
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    setenv(name, text, 1);
}

static void prepare(unsigned rank, void *arg)
{
    const struct launch *launch = arg;
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", launch->ranks);
    set_number("LOCAL_WORLD_SIZE", launch->ranks);
}

/* A port that is free now, for programs that meet over TCP. */
static void choose_master(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (!bind(fd, (struct sockaddr *)&address, length) &&
        !getsockname(fd, (struct sockaddr *)&address, &length)) {
        char text[16];
        snprintf(text, sizeof text, "%u", ntohs(address.sin_port));
        setenv("MASTER_ADDR", "127.0.0.1", 0);
        setenv("MASTER_PORT", text, 0);
    }
    close(fd);
}

static int run_ranks(unsigned ranks, char **program)
{
    struct fleet fleet = {0};
    struct launch launch = {ranks};
    int rank;
    choose_master();
    int error = fleet_start(&fleet, ranks, program, prepare, &launch);
    if (error) {
        tool_fail("cannot start %u processes: %s", ranks, strerror(-error));
        return TOOL_FAILED;
    }
    int status = fleet_wait(&fleet, NULL, NULL, &rank);
    if (status)
        tool_fail("rank %d failed with status %d", rank, status);
    return status;
}

int cmd_run(int argc, char **argv)
{
    static const struct option options[] = {{"ranks", required_argument, NULL, 'n'},
                                            {"device", required_argument, NULL, 'd'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    uint64_t ranks = 0;
    int option, device = PLACE_AUTO;
    while ((option = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(help, stdout);
            return 0;
        } else if (option == 'n' && !tool_parse_number(optarg, 1, FLEET_MAX, &ranks)) {
            continue;
        } else if (option == 'd' && (device = place_parse_device(optarg)) >= 0) {
            continue;
        } else if (option == 'n') {
            return tool_fail("--ranks %s: expected 1 to %d", optarg, FLEET_MAX);
        } else if (option == 'd') {
            return tool_fail("--device %s: expected auto, gpu or sim", optarg);
        }
        return TOOL_USAGE;
    }
    if (optind >= argc)
        return tool_fail("run: no program given: ipcshim run [OPTIONS] -- PROGRAM");
    if (place_choose_device(device, ranks ? (unsigned)ranks : 8) < 0)
        return TOOL_USAGE;
    links_veto();
    if (place_preload())
        return TOOL_USAGE;
    if (ranks)
        return run_ranks((unsigned)ranks, argv + optind);
    execvp(argv[optind], argv + optind);
    int missing = errno == ENOENT;
    tool_fail("cannot execute %s: %s", argv[optind], strerror(errno));
    return missing ? 127 : 126;
}
