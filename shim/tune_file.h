/* SPDX-License-Identifier: Apache-2.0 */
/* The file of `ipcshim tune` on disk: where it is looked for, and whether it may be
 * believed. Stands alone, like settings.h: the tools link it without the shim. */
#ifndef IPS_SHIM_TUNE_FILE_H
#define IPS_SHIM_TUNE_FILE_H

#include "policy/tuned.h"

/* Reads the table of `ranks` ranks over `link` from the file, for this machine (NULL: for
 * any). 0 and *ret, or -1 with the cause in ret_reason[IPS_TUNED_REASON_BYTES], and in
 * *ret_verdict what kind it is: IPS_TUNED_NO_FILE, or, for a file that others could have
 * written or that can't be read, IPS_TUNED_DAMAGED. Never waits, whatever the path names.
 * Thread-safe. */
int ips_tune_file_read(const char *path, const struct ips_tuned_machine *machine,
                       unsigned ranks, enum ips_link link, struct ips_tuned *ret,
                       enum ips_tuned_verdict *ret_verdict, char *ret_reason);

#endif
