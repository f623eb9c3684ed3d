/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine and the process's own /proc say: sockets, IOMMU, virtualisation,
 * shared memory, limits, the NVIDIA driver and the environment. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tools/doctor_tree.h"
#include "tools/doctor_view.h"

#define TEXT_BYTES ((size_t)1 << 20)
#define MOST_CPUS 8192
#define MOST_SOCKETS 64
#define MOST_VARIABLES 65536

static void own_path(const struct doctor_view *view, const char *name, char *path,
                     size_t room)
{
    if (view->live) /* /proc/self is a link, which nothing here follows */
        snprintf(path, room, "proc/%ld/%s", (long)getpid(), name);
    else
        snprintf(path, room, "proc/self/%s", name);
}

/* What follows the name at the start of a line, up to the line's end. NULL: no such. */
static char *after(char *text, const char *name)
{
    size_t length = strlen(name);
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, name, length)) {
            line += length;
            line += strspn(line, " \t:");
            line[strcspn(line, "\n")] = '\0';
            return line;
        }
    }
    return NULL;
}

/* Distinct packages of the CPUs that are on; -1: none is known. */
static int count_sockets(int root)
{
    long seen[MOST_SOCKETS];
    int count = 0;
    for (int cpu = 0, gone = 0; cpu < MOST_CPUS && gone < 1024; cpu++) {
        char path[96], text[32], *end;
        snprintf(path, sizeof path,
                 "sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
        if (doctor_tree_line(root, path, text, sizeof text)) {
            gone++; /* off; numbers have holes */
            continue;
        }
        long socket = strtol(text, &end, 10);
        int i = 0;
        while (i < count && seen[i] != socket)
            i++;
        if (i == count && end != text && !*end && socket >= 0 && count < MOST_SOCKETS)
            seen[count++] = socket;
    }
    return count ? count : -1;
}

static void look_places(struct doctor_view *view)
{
    struct doctor_host *host = &view->host;
    host->nodes = doctor_tree_count(view->root, "sys/devices/system/node", "node");
    host->sockets = count_sockets(view->root);
    host->iommus = doctor_tree_count(view->root, "sys/class/iommu", "");
    if (host->iommus < 0 && doctor_tree_exists(view->root, "sys/class"))
        host->iommus = 0; /* a kernel that knows of none */
}

static void look_options(struct doctor_view *view, char *text)
{
    static const char *const begins[] = {
        "iommu=", "intel_iommu=", "amd_iommu=", "iommu.passthrough="};
    char *ret = view->host.iommu_option, *word;
    if (doctor_tree_line(view->root, "proc/cmdline", text, TEXT_BYTES))
        return;
    while ((word = strsep(&text, " ")))
        for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++) {
            size_t used = strlen(ret), room = sizeof view->host.iommu_option - used;
            if (!strncmp(word, begins[i], strlen(begins[i])) && strlen(word) + 2 < room)
                snprintf(ret + used, room, "%s%s", used ? " " : "", word);
        }
}

static void look_virtual(struct doctor_view *view, char *text)
{
    struct doctor_host *host = &view->host;
    char vendor[48] = "", product[64] = "";
    host->hypervisor = -1;
    if (doctor_tree_text(view->root, "proc/cpuinfo", text, TEXT_BYTES) > 0) {
        char *flags = after(text, "flags"), *word;
        if (flags)
            host->hypervisor = 0;
        while (flags && (word = strsep(&flags, " ")))
            host->hypervisor |= !strcmp(word, "hypervisor");
    }
    doctor_tree_line(view->root, "sys/devices/virtual/dmi/id/sys_vendor", vendor,
                     sizeof vendor);
    doctor_tree_line(view->root, "sys/devices/virtual/dmi/id/product_name", product,
                     sizeof product);
    snprintf(host->product, sizeof host->product, "%s%s%s", vendor,
             *vendor && *product ? " " : "", product);
    if (host->hypervisor < 0 && !strcmp(vendor, "QEMU")) /* Arm has no such flag */
        host->hypervisor = 1;
}

/* "8K" or bytes, as tmpfs writes its size; -1: neither. */
static int64_t size_of(const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    unsigned shift = *end == 'k' ? 10 : *end == 'm' ? 20 : *end == 'g' ? 30 : 0;
    if (end == text || value < 0 || errno || value > INT64_MAX >> 31)
        return -1;
    return (int64_t)value << shift;
}

/* A tmpfs that names no size holds half of the memory. */
static int64_t half_of_memory(const struct doctor_view *view)
{
    char text[4096];
    if (doctor_tree_text(view->root, "proc/meminfo", text, sizeof text) < 0)
        return -1;
    char *total = after(text, "MemTotal");
    long long kilobytes = total ? strtoll(total, NULL, 10) : 0;
    return kilobytes > 0 && kilobytes < INT64_MAX >> 10 ? (int64_t)kilobytes << 9 : -1;
}

/* The last mount there is the one that is seen. */
static void look_shm(struct doctor_view *view, char *text)
{
    struct doctor_host *host = &view->host;
    char path[64], *line;
    struct statvfs status;
    host->shm_bytes = host->shm_free_bytes = -1;
    own_path(view, "mounts", path, sizeof path);
    if (doctor_tree_text(view->root, path, text, TEXT_BYTES) < 0)
        return;
    while ((line = strsep(&text, "\n"))) {
        strsep(&line, " ");
        char *at = strsep(&line, " "), *type = strsep(&line, " ");
        if (!line || strcmp(at, "/dev/shm") || strcmp(type, "tmpfs"))
            continue;
        char *size = strstr(line, "size=");
        host->shm_bytes = size ? size_of(size + 5) : half_of_memory(view);
    }
    int directory = view->live ? doctor_tree_open(view->root, "dev/shm") : -1;
    if (directory >= 0 && !fstatvfs(directory, &status))
        host->shm_free_bytes = (int64_t)(status.f_bavail * status.f_frsize);
    if (directory >= 0)
        close(directory);
}

static void look_memlock(struct doctor_view *view, char *text)
{
    char path[64];
    own_path(view, "limits", path, sizeof path);
    view->host.memlock_bytes = -1;
    if (doctor_tree_text(view->root, path, text, TEXT_BYTES) < 0)
        return;
    const char *limit = after(text, "Max locked memory");
    if (limit)
        view->host.memlock_bytes =
            strncmp(limit, "unlimited", 9) ? size_of(limit) : INT64_MAX;
}

static void look_driver(struct doctor_view *view, char *text)
{
    struct doctor_host *host = &view->host;
    char *word, *value;
    host->relaxed_ordering = -1;
    if (!doctor_tree_line(view->root, "proc/driver/nvidia/version", text, TEXT_BYTES))
        for (char *rest = text; (word = strsep(&rest, " "));)
            if (!host->driver[0] && *word >= '0' && *word <= '9' && strchr(word, '.'))
                snprintf(host->driver, sizeof host->driver, "%s", word);
    if (doctor_tree_text(view->root, "proc/driver/nvidia/params", text, TEXT_BYTES) < 0)
        return;
    host->params = 1;
    char *copy = strdup(text);
    if ((value = after(text, "EnablePCIERelaxedOrderingMode")))
        host->relaxed_ordering = *value == '0' ? 0 : *value == '1' ? 1 : -1;
    if (copy && (value = after(copy, "RegistryDwords")) && !strncmp(value, "\"", 1)) {
        snprintf(host->registry, sizeof host->registry, "%s", value + 1);
        host->registry[strcspn(host->registry, "\"")] = '\0';
    }
    free(copy);
}

/* The list points into a copy that stays. */
static void look_environment(struct doctor_view *view, char *text)
{
    char path[64];
    own_path(view, "environ", path, sizeof path);
    ssize_t length = doctor_tree_text(view->root, path, text, TEXT_BYTES);
    char *copy = length < 0 ? NULL : malloc((size_t)length + 1);
    char **list = copy ? calloc(MOST_VARIABLES + 1, sizeof *list) : NULL;
    if (!list) {
        free(copy);
        return;
    }
    memcpy(copy, text, (size_t)length + 1);
    for (size_t at = 0, count = 0; at < (size_t)length && count < MOST_VARIABLES;
         at += strlen(copy + at) + 1)
        if (copy[at])
            list[count++] = copy + at;
    view->host.environment = list;
}

static void look_mps(struct doctor_view *view)
{
    const char *folder = "/tmp/nvidia-mps";
    char path[4096];
    for (char **entry = view->host.environment; entry && *entry; entry++)
        if (!strncmp(*entry, "CUDA_MPS_PIPE_DIRECTORY=/", 25))
            folder = *entry + 24;
    snprintf(path, sizeof path, "%s/control", folder + 1);
    view->host.mps = doctor_tree_exists(view->root, path);
}

void doctor_look_host(struct doctor_view *view)
{
    char *text = malloc(TEXT_BYTES);
    if (!text)
        return;
    view->host.proc = doctor_tree_exists(view->root, "proc/cpuinfo");
    look_places(view);
    look_options(view, text);
    look_virtual(view, text);
    look_shm(view, text);
    look_memlock(view, text);
    look_driver(view, text);
    look_environment(view, text);
    look_mps(view);
    free(text);
}
