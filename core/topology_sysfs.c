/* SPDX-License-Identifier: Apache-2.0 */
/* Reads where the GPUs sit from a tree like /sys. The tree may be anyone's: what is opened
 * is opened by tree.h (a link is read as text, never followed), reads and loops have a
 * limit, and a contradiction leaves the place unknown. */
#include "core/topology.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/tree.h"

#define PCI_DEVICES "bus/pci/devices"
#define MOST_ENTRIES 65536 /* PCI functions looked at */
#define MOST_CPUS 8192
#define ATTRIBUTE_BYTES 4096

static int open_below(int root, const char *path)
{
    return ips_tree_open(root, path, strlen(path));
}

/* A small regular file as one text without its newline. 0, or -1: there is none, or it
 * holds what no attribute does. */
static int read_text(int directory, const char *name, char *text, size_t room)
{
    int file = ips_tree_open_file(directory, name);
    if (file < 0)
        return -1;
    ssize_t length = read(file, text, room);
    close(file);
    if (length <= 0 || (size_t)length == room || memchr(text, '\0', (size_t)length))
        return -1;
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return 0;
}

static long read_number(int directory, const char *name, int base, long most)
{
    char text[64], *end;
    if (read_text(directory, name, text, sizeof text))
        return IPS_TOPO_UNKNOWN;
    errno = 0;
    long value = strtol(text, &end, base);
    return end == text || *end || errno || value < 0 || value > most ? IPS_TOPO_UNKNOWN
                                                                     : value;
}

/* "16.0 GT/s PCIe", "8 GT/s"; 0: unknown. By hand, since strtod's comma is the locale's.
 */
static unsigned read_speed(int directory, const char *name)
{
    char text[64], *end;
    if (read_text(directory, name, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return 0;
    unsigned long whole = strtoul(text, &end, 10), tenths = 0;
    if (*end == '.' && end[1] >= '0' && end[1] <= '9') {
        tenths = (unsigned long)(end[1] - '0');
        end += 2;
    }
    if (whole > 1000 || strncmp(end, " GT/s", 5))
        return 0;
    return (unsigned)(whole * 1000 + tenths * 100);
}

static struct ips_topo_link read_link(int directory, const char *speed, const char *width)
{
    long lanes = read_number(directory, width, 10, 32);
    struct ips_topo_link link = {read_speed(directory, speed),
                            lanes > 0 ? (unsigned)lanes : 0};
    return link.mtps && link.width ? link : (struct ips_topo_link){0};
}

static void read_device(int directory, struct ips_topo_device *ret)
{
    long vendor = read_number(directory, "vendor", 16, 0xffff);
    long id = read_number(directory, "device", 16, 0xffff);
    ret->vendor = vendor > 0 ? (unsigned)vendor : 0;
    ret->id = id > 0 ? (unsigned)id : 0;
    ret->now = read_link(directory, "current_link_speed", "current_link_width");
    ret->most = read_link(directory, "max_link_speed", "max_link_width");
    ret->numa = (int)read_number(directory, "numa_node", 10, INT_MAX);
    ret->socket = ret->parent = ret->upstream = -1;
    ret->host = IPS_TOPO_UNKNOWN;
}

/* NVIDIA's display and 3D controllers, AMD's without a display. A display controller of
 * another maker is the screen of the server or the processor's own. */
static int is_gpu(int directory)
{
    struct stat status;
    long class = read_number(directory, "class", 16, 0xffffff);
    long vendor = read_number(directory, "vendor", 16, 0xffff);
    if (class < 0 || !fstatat(directory, "physfn", &status, AT_SYMLINK_NOFOLLOW))
        return 0; /* a part of another GPU, lent to virtual machines */
    if (vendor == 0x10de)
        return class >> 8 == 0x0300 || class >> 8 == 0x0302;
    return vendor == 0x1002 &&
           (class >> 8 == 0x0380 || class >> 8 == 0x0302 || class >> 8 == 0x1200);
}

/* Where the device's directory is, below the root: what its link says, or the entry
 * itself if that is a directory (then the place is unknown). Returns its length; 0:
 * neither. */
static size_t device_path(int list, const char *name, char *path)
{
    ssize_t length = readlinkat(list, name, path, PATH_MAX - 1);
    if (length < 0)
        return (size_t)snprintf(path, PATH_MAX, PCI_DEVICES "/%s", name);
    path[length] = '\0';
    size_t up = 0;
    while (!strncmp(path + up, "../", 3))
        up += 3;
    memmove(path, path + up, (size_t)length - up + 1);
    return up == 9 ? (size_t)length - up : 0; /* as deep as bus/pci/devices */
}

/* Keeps the lowest addresses, in order, so that the order of the directory is all one. */
static void keep_gpu(struct ips_topology *t, ips_address address)
{
    unsigned at = t->gpus;
    if (t->gpus == IPS_TOPO_GPUS) {
        t->left_out++;
        if (address > t->device[--at].address)
            return;
    } else {
        t->gpus++;
    }
    for (; at && t->device[at - 1].address > address; at--)
        t->device[at].address = t->device[at - 1].address;
    t->device[at].address = address;
}

static void find_gpus(int root, int list, DIR *entries, struct ips_topology *t)
{
    struct dirent *entry;
    for (unsigned seen = 0; seen < MOST_ENTRIES && (entry = readdir(entries)); seen++) {
        char path[PATH_MAX], name[IPS_ADDRESS_BYTES];
        ips_address address;
        /* Spelled otherwise, it would be the same GPU twice. */
        if (ips_address_parse(entry->d_name, &address) ||
            strcmp(entry->d_name, ips_address_text(address, name)) ||
            !device_path(list, name, path))
            continue;
        int directory = open_below(root, path);
        if (directory < 0)
            continue;
        if (is_gpu(directory))
            keep_gpu(t, address);
        close(directory);
    }
}

/* The bridge at `path`, found or entered. Index, or -1: another path had it elsewhere, or
 * there are too many. */
static int enter_bridge(struct ips_topology *t, int root, const char *path,
                        ips_address address, ips_address host, int parent)
{
    int end = IPS_TOPO_GPUS + (int)t->bridges, at = IPS_TOPO_GPUS;
    while (at < end && t->device[at].address != address)
        at++;
    if (at < end)
        return t->device[at].parent == parent && t->device[at].host == host ? at : -1;
    if (t->bridges == IPS_TOPO_BRIDGES)
        return -1;
    struct ips_topo_device *bridge = &t->device[at];
    int directory = open_below(root, path);
    read_device(directory, bridge);
    if (directory >= 0)
        close(directory);
    bridge->address = address;
    bridge->host = host;
    bridge->parent = parent;
    /* Below a root port, upstream and downstream ports of switches take turns. */
    if (parent >= 0) {
        int owner = t->device[parent].upstream;
        bridge->upstream = owner == parent ? parent : at;
    }
    t->bridges++;
    return at;
}

/* Enters what is above the GPU, from its path's text. -1: the place stays unknown. */
static int place_gpu(struct ips_topology *t, int root, char *path,
                     struct ips_topo_device *gpu)
{
    ips_address address, host = IPS_TOPO_UNKNOWN;
    int parent = -1, depth = 0;
    for (char *part = path, *end; *part; part = end + (*end == '/')) {
        end = part + strcspn(part, "/");
        char kept = *end;
        *end = '\0';
        if (!ips_host_parse(part, &host)) {
            parent = -1; /* a host bridge below a device (VMD): the inner one counts */
            depth = 0;
        } else if (host >= 0 && ips_address_parse(part, &address)) {
            return -1;
        } else if (host >= 0 && !kept) {
            if (address != gpu->address)
                return -1;
            gpu->host = host;
            gpu->parent = parent;
            return 0;
        } else if (host >= 0) {
            parent = ++depth > IPS_TOPO_DEPTH
                         ? -1
                         : enter_bridge(t, root, path, address, host, parent);
            if (parent < 0)
                return -1;
        }
        *end = kept;
    }
    return -1;
}

/* The kernel gives a device the node of the bridge above it. */
static int inherited_numa(const struct ips_topology *t, const struct ips_topo_device *gpu)
{
    int numa = gpu->numa;
    for (int at = gpu->parent; numa < 0 && at >= 0; at = t->device[at].parent)
        numa = t->device[at].numa;
    return numa;
}

static void read_gpu(int root, int list, struct ips_topology *t, unsigned index)
{
    struct ips_topo_device *gpu = &t->device[index];
    ips_address address = gpu->address;
    char name[IPS_ADDRESS_BYTES], path[PATH_MAX];
    if (!device_path(list, ips_address_text(address, name), path))
        return;
    int directory = open_below(root, path);
    read_device(directory, gpu);
    gpu->address = address;
    if (directory >= 0)
        close(directory);
    place_gpu(t, root, path, gpu);
    gpu->numa = inherited_numa(t, gpu);
}

static long cpu_socket(int cpus, unsigned cpu)
{
    char name[48];
    snprintf(name, sizeof name, "cpu%u/topology", cpu);
    int directory = open_below(cpus, name);
    long socket = read_number(directory, "physical_package_id", 10, INT_MAX);
    if (directory >= 0)
        close(directory);
    return socket;
}

/* The socket that all CPUs of the list say that they are of. A CPU that is off says
 * nothing. */
static int list_socket(int cpus, const char *list)
{
    long socket = IPS_TOPO_UNKNOWN;
    unsigned long next = 0; /* lists ascend: no CPU is asked twice */
    for (unsigned long first, last; *list; list += *list == ',') {
        char *end;
        if (*list < '0' || *list > '9')
            return IPS_TOPO_UNKNOWN;
        first = last = strtoul(list, &end, 10);
        if (*end == '-' && end[1] >= '0' && end[1] <= '9')
            last = strtoul(end + 1, &end, 10);
        if ((*end && *end != ',') || first < next || last < first || last >= MOST_CPUS)
            return IPS_TOPO_UNKNOWN;
        next = last + 1;
        for (; first <= last; first++) {
            long its = cpu_socket(cpus, (unsigned)first);
            if (its >= 0 && socket >= 0 && its != socket)
                return IPS_TOPO_UNKNOWN;
            socket = its >= 0 ? its : socket;
        }
        list = end;
    }
    return (int)socket;
}

static int node_socket(int root, int node)
{
    char name[64], list[ATTRIBUTE_BYTES];
    snprintf(name, sizeof name, "devices/system/node/node%d", node);
    int directory = open_below(root, name), socket = IPS_TOPO_UNKNOWN;
    int cpus = open_below(root, "devices/system/cpu");
    if (!read_text(directory, "cpulist", list, sizeof list) && cpus >= 0)
        socket = list_socket(cpus, list);
    if (directory >= 0)
        close(directory);
    if (cpus >= 0)
        close(cpus);
    return socket;
}

static void find_sockets(int root, struct ips_topology *t)
{
    for (unsigned i = 0; i < t->gpus; i++) {
        unsigned before = 0;
        while (t->device[before].numa != t->device[i].numa)
            before++;
        if (before < i)
            t->device[i].socket = t->device[before].socket;
        else if (t->device[i].numa >= 0)
            t->device[i].socket = node_socket(root, t->device[i].numa);
    }
}

/* The list of devices, or -1. */
static int open_list(int root)
{
    int below = open_below(root, PCI_DEVICES);
    int list = below < 0 ? -1 : openat(below, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (below >= 0)
        close(below);
    return list;
}

static void read_places(int root, int list, struct ips_topology *t)
{
    t->listed = 1;
    for (unsigned i = 0; i < t->gpus; i++)
        read_gpu(root, list, t, i);
    find_sockets(root, t);
}

void ips_topology_read(int root, struct ips_topology *ret)
{
    memset(ret, 0, sizeof *ret);
    int list = open_list(root);
    DIR *entries = list < 0 ? NULL : fdopendir(list);
    if (entries) {
        find_gpus(root, list, entries, ret);
        read_places(root, list, ret);
        closedir(entries);
    } else if (list >= 0) {
        close(list);
    }
}

static int is_listed(int root, int list, ips_address address)
{
    char name[IPS_ADDRESS_BYTES], path[PATH_MAX];
    if (!device_path(list, ips_address_text(address, name), path))
        return 0;
    int directory = open_below(root, path);
    if (directory >= 0)
        close(directory);
    return directory >= 0;
}

void ips_topology_read_gpus(int root, const ips_address *gpus, unsigned count,
                            struct ips_topology *ret)
{
    memset(ret, 0, sizeof *ret);
    int list = open_list(root);
    if (list < 0)
        return;
    for (unsigned i = 0; i < count; i++) {
        unsigned before = 0;
        while (before < i && gpus[before] != gpus[i])
            before++;
        if (before == i && gpus[i] >= 0 && is_listed(root, list, gpus[i]))
            keep_gpu(ret, gpus[i]);
    }
    read_places(root, list, ret);
    close(list);
}
