/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim topo: where the GPUs sit, how each pair reaches each other, and in which order
 * a ring visits them, from sysfs and, of this machine's NVLinks, from NVML. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/tool.h"
#include "tools/topo.h"

#define SYS "/sys"

static const char help[] =
    "usage: ipcshim topo [--root DIR] [--json] [--svg FILE]\n\n"
    "Shows how each pair of GPUs is connected (in the words of nvidia-smi topo -m), the\n"
    "tree of PCI bridges with the speed of each link, which GPUs share a switch, host\n"
    "bridge, NUMA node or socket, and the order of a ring that crosses these least: the\n"
    "one in which the engine lets four ranks or more stand, one on each GPU.\n\n"
    "  --root DIR  read a copy of another machine's /sys\n"
    "  --json      for programs\n"
    "  --svg FILE  draw it as well\n";

struct options {
    const char *root, *svg;
    int json, help;
};

/* 0, or the exit status. */
static int read_options(int argc, char **argv, struct options *ret)
{
    static const struct option known[] = {{"root", required_argument, NULL, 'r'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"svg", required_argument, NULL, 's'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "+h", known, NULL)) != -1) {
        if (option == 'r')
            ret->root = optarg;
        else if (option == 's')
            ret->svg = optarg;
        else if (option == 'j')
            ret->json = 1;
        else if (option == 'h')
            ret->help = 1;
        else
            return tool_fail("topo: \"%s\" is not an option, or lacks its value",
                             argv[optind - 1]);
    }
    return optind == argc ? 0 : tool_fail("topo: \"%s\" is not an option", argv[optind]);
}

const char *topo_group_kind(enum ips_group_kind kind)
{
    static const char *const names[] = {"socket", "numa", "hostbridge", "switch"};
    return names[kind];
}

const char *topo_group_key(const struct ips_topo_group *group, char *text)
{
    if (group->kind == IPS_GROUP_HOST)
        return ips_host_text(group->key, text);
    if (group->kind == IPS_GROUP_SWITCH)
        return ips_address_text(group->key, text);
    snprintf(text, IPS_ADDRESS_BYTES, "%d", (int)group->key);
    return text;
}

static void look(int root, int is_here, struct topo_view *view)
{
    struct ips_topology *t = &view->topology;
    unsigned in_order[IPS_TOPO_GPUS];
    ips_topology_read(root, t);
    if (!is_here)
        view->no_nvlink = "sysfs does not tell";
    else if (!(view->nvlink_told = topo_read_nvlinks(t)))
        view->no_nvlink = "NVML (libnvidia-ml.so.1) is not there, or knows no GPU";
    view->groups = ips_topology_groups(t, view->group);
    for (unsigned i = 0; i < t->gpus; i++) {
        view->gpu_of[i] = (int)i;
        in_order[i] = i;
    }
    ips_ring_order(t, view->gpu_of, t->gpus, view->ring);
    view->cost = ips_ring_cost(t, view->gpu_of, view->ring, t->gpus);
    view->in_order = ips_ring_cost(t, view->gpu_of, in_order, t->gpus);
    view->group_size =
        ips_ring_groups(t, view->gpu_of, view->ring, t->gpus, &view->uplink);
}

/* 0, or the exit status. */
static int draw(const struct topo_view *view, const struct options *options)
{
    FILE *out = fopen(options->svg, "w");
    if (out)
        topo_print_svg(out, view, options->root);
    const int failed = !out || ferror(out);
    if ((out && fclose(out)) || failed)
        return tool_fail("topo: cannot write %s: %s", options->svg, strerror(errno));
    return 0;
}

int cmd_topo(int argc, char **argv)
{
    struct options options = {.root = SYS};
    int failed = read_options(argc, argv, &options);
    if (failed)
        return failed;
    if (options.help) {
        fputs(help, stdout);
        return 0;
    }
    int root = open(options.root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return tool_fail("topo: %s: %s", options.root, strerror(errno));
    struct topo_view *view = calloc(1, sizeof *view);
    if (!view) {
        close(root);
        return tool_fail("topo: no memory");
    }
    look(root, !strcmp(options.root, SYS), view);
    close(root);
    if (options.json)
        topo_print_json(view);
    else
        topo_print_text(view, options.root);
    failed = options.svg ? draw(view, &options) : 0;
    free(view);
    return failed;
}
