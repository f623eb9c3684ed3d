/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files below a root that may be anyone's, as core/tree.h opens them. */
#include "tools/doctor_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/tree.h"

#define MOST_ENTRIES 65536

/* The directory that holds the path's last part, and that part. -1: there is none. */
static int open_parent(int root, const char *path, const char **ret_name)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!*name || !strcmp(name, ".."))
        return -1;
    *ret_name = name;
    return ips_tree_open(root, path, slash ? (size_t)(slash - path) : 0);
}

int doctor_tree_open(int root, const char *path)
{
    const char *name;
    int parent = open_parent(root, path, &name);
    if (parent < 0)
        return -1;
    int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    close(parent);
    return directory;
}

static int open_regular(int root, const char *path)
{
    const char *name;
    int parent = open_parent(root, path, &name);
    if (parent < 0)
        return -1;
    int file = ips_tree_open_file(parent, name);
    close(parent);
    return file;
}

ssize_t doctor_tree_bytes(int root, const char *path, void *bytes, size_t room)
{
    int file = open_regular(root, path);
    size_t used = 0;
    ssize_t more = file < 0 ? -1 : 1;
    while (more > 0 && used < room) { /* /proc gives a page at a time */
        more = read(file, (char *)bytes + used, room - used);
        used += more > 0 ? (size_t)more : 0;
    }
    if (file >= 0)
        close(file);
    return more < 0 && !used ? -1 : (ssize_t)used;
}

ssize_t doctor_tree_text(int root, const char *path, char *text, size_t room)
{
    ssize_t length = doctor_tree_bytes(root, path, text, room - 1);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    return length;
}

int doctor_tree_line(int root, const char *path, char *text, size_t room)
{
    if (doctor_tree_text(root, path, text, room) < 0)
        return -1;
    text[strcspn(text, "\n")] = '\0';
    return 0;
}

int doctor_tree_link(int root, const char *path, char *text, size_t room)
{
    const char *name;
    int parent = open_parent(root, path, &name);
    if (parent < 0)
        return -1;
    ssize_t length = readlinkat(parent, name, text, room - 1);
    close(parent);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    return 0;
}

int doctor_tree_exists(int root, const char *path)
{
    struct stat status;
    const char *name;
    int parent = open_parent(root, path, &name);
    if (parent < 0)
        return 0;
    int found = !fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW);
    close(parent);
    return found;
}

int doctor_tree_count(int root, const char *path, const char *begins)
{
    int directory = doctor_tree_open(root, path), count = 0;
    DIR *entries = directory < 0 ? NULL : fdopendir(directory);
    struct dirent *entry;
    if (!entries) {
        if (directory >= 0)
            close(directory);
        return -1;
    }
    while (count < MOST_ENTRIES && (entry = readdir(entries)))
        count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
                 !strncmp(entry->d_name, begins, strlen(begins));
    closedir(entries);
    return count;
}

int doctor_tree_device(int root, ips_address address, char *path, size_t room)
{
    char name[IPS_ADDRESS_BYTES], entry[64], text[PATH_MAX];
    const char *below = text;
    int length;
    snprintf(entry, sizeof entry, "sys/bus/pci/devices/%s",
             ips_address_text(address, name));
    if (doctor_tree_link(root, entry, text, sizeof text)) {
        length = snprintf(path, room, "%s", entry); /* then it may be a directory */
    } else {
        while (!strncmp(below, "../", 3))
            below += 3;
        if (below - text != 9) /* as deep as bus/pci/devices */
            return -1;
        length = snprintf(path, room, "sys/%s", below);
    }
    return length < 0 || (size_t)length >= room ? -1 : 0;
}
