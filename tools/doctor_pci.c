/* SPDX-License-Identifier: Apache-2.0 */
/* What each GPU's and bridge's directory says beyond its place: error counters, ACS and
 * device control from the configuration space, the size of BAR 1, the IOMMU group. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/pci_config.h"
#include "tools/doctor_tree.h"
#include "tools/doctor_view.h"

#define CONFIG_HEADER 64 /* what a reader who is not root gets */
#define PATH_ROOM (PATH_MAX + 64)

static ssize_t attribute(const struct doctor_view *view, const char *directory,
                         const char *name, char *text, size_t room)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return doctor_tree_text(view->root, path, text, room);
}

/* One line "BadTLP 3". 0, or -1: it is something else. */
static int read_error(char *line, uint64_t *ret_count)
{
    char *space = strrchr(line, ' '), *end;
    if (!space || space == line || space[1] < '0' || space[1] > '9')
        return -1;
    errno = 0;
    *ret_count = strtoull(space + 1, &end, 10);
    *space = '\0';
    return *end || errno ? -1 : 0;
}

static void add_kind(struct doctor_aer *aer, const char *name, uint64_t count)
{
    size_t used = strlen(aer->kinds);
    if (count && used < sizeof aer->kinds)
        snprintf(aer->kinds + used, sizeof aer->kinds - used, "%s%.24s %" PRIu64,
                 used ? ", " : "", name, count);
}

/* Lines of kinds and one of their sum, "TOTAL_ERR_COR 3", which counts where it is. */
static struct doctor_aer read_aer(char *text)
{
    struct doctor_aer aer = {0};
    uint64_t sum = 0, total = 0, count;
    int has_total = 0;
    for (char *line; (line = strsep(&text, "\n"));) {
        if (!*line)
            continue;
        if (read_error(line, &count))
            return (struct doctor_aer){0};
        aer.known = 1;
        if (!strncmp(line, "TOTAL_", 6)) {
            has_total = 1;
            total = count;
        } else {
            sum += count;
            add_kind(&aer, line, count);
        }
    }
    aer.count = has_total ? total : sum;
    return aer;
}

static void look_aer(const struct doctor_view *view, const char *directory,
                     struct doctor_aer *ret)
{
    static const char *const names[] = {"aer_dev_correctable", "aer_dev_nonfatal",
                                        "aer_dev_fatal"};
    char text[4096];
    for (int kind = 0; kind < DOCTOR_AER_KINDS; kind++) {
        ret[kind] = (struct doctor_aer){0};
        if (attribute(view, directory, names[kind], text, sizeof text) > 0)
            ret[kind] = read_aer(text);
    }
}

static void look_config(const struct doctor_view *view, const char *directory,
                        struct doctor_pci *pci)
{
    unsigned char config[IPS_PCI_CONFIG_BYTES];
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/config", directory);
    ssize_t bytes = doctor_tree_bytes(view->root, path, config, sizeof config);
    pci->acs = pci->device_control = -1;
    /* All ones: the device does not answer. */
    if (bytes < CONFIG_HEADER || ips_pci_word(config, 0) == 0xffff)
        return;
    int express = ips_pci_express(config, (size_t)bytes);
    if (express > 0)
        pci->device_control = (int)ips_pci_word(config, (unsigned)express + 8);
    pci->acs = ips_pci_acs(config, (size_t)bytes);
}

/* "0x... 0x... 0x...": first and last address, and flags. 0: nothing is there. */
static uint64_t range_bytes(const char *line)
{
    char *end;
    uint64_t first = strtoull(line, &end, 16);
    if (end == line || *end != ' ')
        return 0;
    uint64_t last = strtoull(end, &end, 16);
    return *end == ' ' && last > first && last < UINT64_MAX ? last - first + 1 : 0;
}

/* What NVIDIA calls BAR 1, the window to the GPU's memory, is the second range, or from
 * Hopper on, whose first takes two registers, the third. */
static uint64_t read_bar1(const char *text)
{
    uint64_t bytes = 0;
    const char *line = text;
    for (int i = 0; i < 2 && !bytes && (line = strchr(line, '\n')); i++)
        bytes = range_bytes(++line);
    return bytes;
}

static void look_iommu(const struct doctor_view *view, const char *directory,
                       struct doctor_pci *pci)
{
    char path[PATH_ROOM], link[PATH_MAX], *number;
    snprintf(path, sizeof path, "%s/iommu_group", directory);
    if (doctor_tree_link(view->root, path, link, sizeof link))
        return;
    number = strrchr(link, '/');
    number = number ? number + 1 : link;
    size_t digits = strspn(number, "0123456789");
    if (!digits || digits > 9 || number[digits])
        return;
    snprintf(path, sizeof path, "sys/kernel/iommu_groups/%s/type", number);
    if (doctor_tree_line(view->root, path, pci->iommu_type, sizeof pci->iommu_type))
        pci->iommu_type[0] = '\0';
}

static void look_device(const struct doctor_view *view, ips_address address,
                        struct doctor_pci *pci)
{
    char directory[PATH_MAX], text[4096];
    pci->acs = pci->device_control = -1;
    if (doctor_tree_device(view->root, address, directory, sizeof directory))
        return;
    look_aer(view, directory, pci->aer);
    look_config(view, directory, pci);
    look_iommu(view, directory, pci);
    if (attribute(view, directory, "resource", text, sizeof text) > 0)
        pci->bar1_bytes = read_bar1(text);
}

void doctor_look_pci(struct doctor_view *view)
{
    const struct ips_topology *t = &view->topology;
    for (int at = -1; (at = doctor_next(t, at)) >= 0;)
        look_device(view, t->device[at].address, &view->pci[at]);
}

void doctor_look_grown(struct doctor_view *view)
{
    const struct ips_topology *t = &view->topology;
    for (int at = -1; (at = doctor_next(t, at)) >= 0;) {
        struct doctor_pci *pci = &view->pci[at];
        struct doctor_aer before[DOCTOR_AER_KINDS];
        char directory[PATH_MAX];
        memcpy(before, pci->aer, sizeof before);
        if (doctor_tree_device(view->root, t->device[at].address, directory,
                               sizeof directory))
            continue;
        look_aer(view, directory, pci->aer);
        for (int kind = 0; kind < DOCTOR_AER_KINDS; kind++)
            if (before[kind].known && pci->aer[kind].count > before[kind].count)
                pci->grown[kind] = pci->aer[kind].count - before[kind].count;
    }
}
