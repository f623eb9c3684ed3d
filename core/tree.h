/* SPDX-License-Identifier: Apache-2.0 */
/* Opens what lies below a directory that may be anyone's, as a copy of another machine's
 * /sys: through no link, so that nothing outside of it is reached, and nothing that may
 * wait. Both give a descriptor, which the caller closes, or -1. */
#ifndef IPS_CORE_TREE_H
#define IPS_CORE_TREE_H

#include <stddef.h>

/* The directory at the first `length` bytes of `path`, each part of which is a real
 * directory; 0: `root` itself. Only for the functions that take a directory and a name
 * (O_PATH). */
int ips_tree_open(int root, const char *path, size_t length);

/* The regular file of that name in the directory, to be read. */
int ips_tree_open_file(int directory, const char *name);

#endif
