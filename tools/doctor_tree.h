/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files of a machine's /sys and /proc, its own or a copy, that may hold anything:
 * no link is followed, nothing waits, every length is bounded. Paths are relative to the
 * root, as "sys/class/iommu". */
#ifndef IPS_TOOLS_DOCTOR_TREE_H
#define IPS_TOOLS_DOCTOR_TREE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/topology.h"

/* The directory, as a descriptor for the functions below (the caller closes it). -1. */
int doctor_tree_open(int root, const char *path);

/* The first room bytes of a regular file. How many, or -1. */
ssize_t doctor_tree_bytes(int root, const char *path, void *bytes, size_t room);
/* Likewise as a text; the list of a process's environment keeps its NULs. Length, or -1:
 * there is no such file, or it is empty. */
ssize_t doctor_tree_text(int root, const char *path, char *text, size_t room);
/* One line, without its newline, cut to the room. 0, or -1. */
int doctor_tree_line(int root, const char *path, char *text, size_t room);

/* What a link says, unfollowed. 0, or -1. */
int doctor_tree_link(int root, const char *path, char *text, size_t room);
/* Whether there is anything by that name. */
int doctor_tree_exists(int root, const char *path);
/* Entries of a directory whose names begin so, "." and ".." left out; -1: there is no
 * such directory. */
int doctor_tree_count(int root, const char *path, const char *begins);

/* The directory of a PCI device below sys/, as the link in its list says. 0, or -1. */
int doctor_tree_device(int root, ips_address address, char *path, size_t room);

#endif
