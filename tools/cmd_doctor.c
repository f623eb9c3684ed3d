/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim doctor: what on this machine, or a copy of its /sys and /proc, makes AllReduce
 * slow or wrong, and the fix for each. Reads only; needs no GPU and no root. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor.h"
#include "tools/doctor_tree.h"
#include "tools/tool.h"

static const char help[] =
    "usage: ipcshim doctor [--watch SECONDS] [--root DIR] [--json]\n\n"
    "Looks for what makes AllReduce slow or wrong: narrow links and uplinks, errors of\n"
    "links, ACS and IOMMU, driver settings, shared memory, limits, the environment. It\n"
    "names the bus id and the fix of each finding, and what it could not see (root sees\n"
    "more). It only reads. docs/doctor.md lists the findings.\n\n"
    "  --watch SECONDS  read the error counters twice, and say what grew\n"
    "  --root DIR       look at DIR/sys and DIR/proc, a copy of another machine's\n"
    "  --json           one JSON object on stdout\n\n"
    "Exit status: 0 healthy, or notes only; 1 warnings; 2 faults, or asked wrongly.\n";

const struct doctor_check doctor_checks[] = {
    {"gpus", "/sys/bus/pci/devices", doctor_check_gpus},
    {"width", "max_link_width and current_link_width in sysfs", doctor_check_width},
    {"speed", "max_link_speed and current_link_speed in sysfs", doctor_check_speed},
    {"uplink", "max_link_speed and max_link_width in sysfs", doctor_check_uplink},
    {"aer", "aer_dev_* in sysfs: bare metal, a kernel with CONFIG_PCIEAER",
     doctor_check_aer},
    {"aer-growth", "--watch", doctor_check_growth},
    {"acs", "root, who reads the whole PCI configuration space", doctor_check_acs},
    {"iommu", "the device's iommu_group and its type, or /sys/class/iommu",
     doctor_check_iommu},
    {"ordering", "/proc/driver/nvidia/params", doctor_check_ordering},
    {"bar1", "resource in sysfs", doctor_check_bar1},
    {"numa", "/sys/devices/system", doctor_check_numa},
    {"virtual", "/proc/cpuinfo", doctor_check_virtual},
    {"driver", "/proc", doctor_check_driver},
    {"params", "/proc/driver/nvidia/params", doctor_check_params},
    {"shm", "a tmpfs at /dev/shm in /proc/self/mounts", doctor_check_shm},
    {"memlock", "/proc/self/limits", doctor_check_memlock},
    {"mps", "/tmp/nvidia-mps", doctor_check_mps},
    {"environment", "/proc/self/environ", doctor_check_environment},
};
const size_t doctor_nchecks = sizeof doctor_checks / sizeof doctor_checks[0];

struct options {
    const char *root; /* NULL: this machine */
    uint64_t watch_s;
    int json, help;
};

/* 0, or the exit status. */
static int read_options(int argc, char **argv, struct options *ret)
{
    static const struct option known[] = {{"root", required_argument, NULL, 'r'},
                                          {"watch", required_argument, NULL, 'w'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    int option;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "+h", known, NULL)) != -1) {
        if (option == 'r')
            ret->root = optarg;
        else if (option == 'j')
            ret->json = 1;
        else if (option == 'h')
            ret->help = 1;
        else if (option != 'w')
            return tool_fail("doctor: \"%s\" is not an option, or lacks its value",
                             argv[optind - 1]);
        else if (tool_parse_number(optarg, 1, 86400, &ret->watch_s))
            return tool_fail("doctor: --watch takes 1 to 86400 seconds, not \"%s\"",
                             optarg);
    }
    return optind == argc ? 0
                          : tool_fail("doctor: \"%s\" is not an option", argv[optind]);
}

static void look(struct doctor_view *view, unsigned watch_s)
{
    int sys = doctor_tree_open(view->root, "sys");
    if (sys >= 0) {
        ips_topology_read(sys, &view->topology);
        close(sys);
    }
    doctor_look_pci(view);
    doctor_look_host(view);
    if (!watch_s)
        return;
    for (unsigned left = watch_s; left;)
        left = sleep(left);
    view->watched_s = watch_s;
    doctor_look_grown(view);
}

static int examine(struct doctor_view *view, const struct options *options)
{
    static const int status[] = {0, 0, 1, 2}; /* by severity */
    struct doctor_report report = {0};
    look(view, (unsigned)options->watch_s);
    for (size_t i = 0; i < doctor_nchecks; i++) {
        report.check = &doctor_checks[i];
        report.check->judge(&report, view);
    }
    doctor_print(&report, view, options->json);
    return status[doctor_worst(&report, NULL)];
}

int cmd_doctor(int argc, char **argv)
{
    struct options options = {0};
    int failed = read_options(argc, argv, &options);
    if (failed)
        return failed;
    if (options.help) {
        fputs(help, stdout);
        return 0;
    }
    struct doctor_view *view = calloc(1, sizeof *view);
    if (!view)
        return tool_fail("doctor: no memory");
    view->live = !options.root;
    view->root_path = options.root ? options.root : "";
    const char *root = options.root ? options.root : "/";
    view->root = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (view->root < 0) {
        free(view);
        return tool_fail("doctor: %s: %s", root, strerror(errno));
    }
    int status = examine(view, &options);
    close(view->root);
    free(view);
    return status;
}
