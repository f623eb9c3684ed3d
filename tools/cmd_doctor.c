/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim doctor: what on this machine, or a copy of its /sys and /proc, makes AllReduce
 * slow or wrong, and the fix for each. Reads only, and needs no GPU and no root, but for
 * --probe. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/settings.h"
#include "tools/doctor.h"
#include "tools/doctor_tree.h"
#include "tools/links.h"
#include "tools/place.h"
#include "tools/tool.h"

static const char help[] =
    "usage: ipcshim doctor [--watch SECONDS] [--root DIR] [--json]\n"
    "       ipcshim doctor --probe [--output FILE] [--device gpu|sim] [--json]\n\n"
    "Looks for what makes AllReduce slow or wrong: narrow links and uplinks, errors of\n"
    "links, ACS and IOMMU, driver settings, shared memory, limits, the environment. It\n"
    "names the bus id and the fix of each finding, and what it could not see (root sees\n"
    "more). It only reads, but with --probe. docs/doctor.md lists the findings.\n\n"
    "  --watch SECONDS  read the error counters twice, and say what grew\n"
    "  --root DIR       look at DIR/sys and DIR/proc, a copy of another machine's\n"
    "  --json           one JSON object on stdout\n"
    "  --probe          first measure what each GPU does to the memory of each other one,\n"
    "                   and of the host: stores, loads, copies, each pair alone and all of\n"
    "                   the ring at once, with the data checked. Takes seconds, in which\n"
    "                   nothing else should run on the GPUs. A communicator does not use\n"
    "                   links that failed, nor probe again those that passed\n"
    "  --output FILE    where that is kept (default: IPCSHIM_VERDICT_FILE, else for root\n"
    "                   " IPS_VERDICT_PLACE ", which serves all users, and for others\n"
    "                   ipcshim/links in $XDG_CACHE_HOME or ~/.cache)\n"
    "  --device D       gpu (default), or sim: the CPU stand-in, and no file by default\n\n"
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
    {"links", "--probe", doctor_check_verdicts},
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
    const char *output;
    uint64_t watch_s;
    int json, help, probe;
    int device; /* enum place_device */
};

/* 0, or the exit status. */
static int read_options(int argc, char **argv, struct options *ret)
{
    static const struct option known[] = {{"root", required_argument, NULL, 'r'},
                                          {"watch", required_argument, NULL, 'w'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"probe", no_argument, NULL, 'p'},
                                          {"output", required_argument, NULL, 'o'},
                                          {"device", required_argument, NULL, 'd'},
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
        else if (option == 'p')
            ret->probe = 1;
        else if (option == 'o')
            ret->output = optarg;
        else if (option == 'd' && (ret->device = place_parse_device(optarg)) > PLACE_AUTO)
            continue;
        else if (option == 'd')
            return tool_fail("doctor: --device takes gpu or sim, not \"%s\"", optarg);
        else if (option != 'w')
            return tool_fail("doctor: \"%s\" is not an option, or lacks its value",
                             argv[optind - 1]);
        else if (tool_parse_number(optarg, 1, 86400, &ret->watch_s))
            return tool_fail("doctor: --watch takes 1 to 86400 seconds, not \"%s\"",
                             optarg);
    }
    if (optind < argc)
        return tool_fail("doctor: \"%s\" is not an option", argv[optind]);
    if (ret->probe && ret->root)
        return tool_fail("doctor: --probe measures this machine, not a copy of another");
    if (!ret->probe && (ret->output || ret->device))
        return tool_fail("doctor: --output and --device go with --probe");
    return 0;
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
    for (unsigned second = 0; second < watch_s; second++) {
        sleep(1);
        doctor_look_loaded(view);
    }
    view->watched_s = watch_s;
    doctor_look_grown(view);
}

/* Where the file goes. 0; -1: nowhere, as it was asked for, or was told. */
static int choose_path(const struct options *options, int simulated, char *ret_path)
{
    const char *named = options->output ? options->output : ips_settings()->verdict_file;
    if (simulated && !options->output) /* what was measured is no machine's */
        return -1;
    if (named && !strcmp(named, "none"))
        return -1;
    if (!named && !geteuid())
        named = IPS_VERDICT_PLACE;
    if (!ips_settings_verdict_file(named, 0, ret_path, PATH_MAX))
        return 0;
    tool_fail("doctor: no place for what was measured: give --output");
    return -1;
}

/* The file is of use only where it can be told apart from that of another start. 0; -1: it
 * cannot be kept, and what may be there from before is not left to be believed. */
static int keep(const struct options *options, const struct links_page *page,
                 const struct ips_verdicts *verdicts)
{
    char path[PATH_MAX];
    if (choose_path(options, (int)page->simulated, path))
        return 0;
    if (*verdicts->machine.boot && !links_write(path, verdicts, page)) {
        if (!options->json)
            printf("written to %s\n\n", path);
        return 0;
    }
    if (!*verdicts->machine.boot)
        tool_fail("doctor: nothing is written: this system shows no boot id "
                  "(/proc/sys/kernel/random/boot_id)");
    unlink(path);
    return -1;
}

static void look_loaded(void *view)
{
    doctor_look_loaded(view);
}

static void note_loaded(struct doctor_view *view, const struct links_page *page)
{
    char address[IPS_ADDRESS_BYTES];
    for (unsigned at = 0; at < view->topology.gpus; at++) {
        ips_address_text(view->topology.device[at].address, address);
        for (unsigned gpu = 0; gpu < page->gpus; gpu++)
            view->loaded |= (uint64_t)!strcmp(page->gpu[gpu][0], address) << at;
    }
}

/* The links' error counters are read before and after, and their speed meanwhile: this is
 * load. */
static int probe(struct doctor_view *view, const struct options *options, int *ret_kept)
{
    static struct ips_verdicts verdicts;
    struct links_page *page;
    const time_t start = time(NULL);
    const struct links_tick tick = {look_loaded, view};
    if (place_choose_device(options->device ? options->device : PLACE_GPU, 8) < 0 ||
        links_probe(&tick, &page))
        return -1;
    note_loaded(view, page);
    if (!view->watched_s)
        doctor_look_grown(view);
    view->watched_s += (unsigned)(time(NULL) - start) + 1;
    links_collect(page, &verdicts);
    doctor_describe(view, page->cuda, &verdicts.machine);
    doctor_note_acs(view, &verdicts);
    if (!options->json)
        links_print(page, &verdicts);
    view->probed = &verdicts;
    *ret_kept = !keep(options, page, &verdicts);
    return 0;
}

static int examine(struct doctor_view *view, const struct options *options)
{
    static const int status[] = {0, 0, 1, 2}; /* by severity */
    struct doctor_report report = {0};
    int kept = 1;
    look(view, (unsigned)options->watch_s);
    if (options->probe && probe(view, options, &kept))
        return TOOL_USAGE;
    for (size_t i = 0; i < doctor_nchecks; i++) {
        report.check = &doctor_checks[i];
        report.check->judge(&report, view);
    }
    doctor_print(&report, view, options->json);
    return kept ? status[doctor_worst(&report, NULL)] : TOOL_USAGE;
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
