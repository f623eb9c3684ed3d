/* SPDX-License-Identifier: Apache-2.0 */
/* The file of `ipcshim doctor --probe` on disk, and whether it is true of this machine
 * now. Stands alone, like settings.h: the tools link it without the shim. Thread-safe. */
#ifndef IPS_SHIM_VERDICT_FILE_H
#define IPS_SHIM_VERDICT_FILE_H

#include "policy/verdicts.h"

/* The file at `path` that is true of this machine. cuda_version: as cuDriverGetVersion
 * says; 0: not known here. 0 and *ret, or -1 with the cause in
 * ret_reason[IPS_VERDICTS_REASON_BYTES], "" where there is no file. Never waits. */
int ips_verdict_file_read(const char *path, int cuda_version, struct ips_verdicts *ret,
                          char *ret_reason);

/* Of the files where IPCSHIM_VERDICT_FILE or the usual places have them, the newest one
 * that is true of this machine. `ignored`, which may be NULL, is told of those that are not.
 * 0 and *ret, or -1. */
int ips_verdict_file_newest(int cuda_version, struct ips_verdicts *ret,
                            void (*ignored)(const char *path, const char *reason));

/* This machine, as a file that is written now is to say it. */
void ips_verdict_machine(int cuda_version, struct ips_verdicts_machine *ret);

#endif
