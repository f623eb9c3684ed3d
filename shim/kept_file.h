/* SPDX-License-Identifier: Apache-2.0 */
/* Files that `ipcshim` keeps for the shim. They say how calls are made, so one is
 * believed only if nobody but this user, or root, could have written it. Stands alone,
 * like settings.h. */
#ifndef IPS_SHIM_KEPT_FILE_H
#define IPS_SHIM_KEPT_FILE_H

#include <stddef.h>

/* The file's text, to be freed, not terminated. NULL, with the cause in ret_reason[room],
 * and in *ret_absent whether there is none. `most`: bytes, 1 MB. Never waits, whatever
 * the path names. Thread-safe. */
char *ips_kept_file_load(const char *path, size_t most, size_t *ret_bytes,
                         int *ret_absent, char *ret_reason, size_t room);

#endif
