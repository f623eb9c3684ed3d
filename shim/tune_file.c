/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the file of `ipcshim tune`. */
#include "shim/tune_file.h"

#include <stdlib.h>

#include "shim/kept_file.h"

int ips_tune_file_read(const char *path, const struct ips_tuned_machine *machine,
                       unsigned ranks, enum ips_link link, struct ips_tuned *ret,
                       enum ips_tuned_verdict *ret_verdict, char *ret_reason)
{
    size_t bytes = 0;
    int absent = 0;
    char *text = ips_kept_file_load(path, IPS_TUNED_BYTES, &bytes, &absent, ret_reason,
                                    IPS_TUNED_REASON_BYTES);
    if (!text) {
        *ret_verdict = absent ? IPS_TUNED_NO_FILE : IPS_TUNED_DAMAGED;
        return -1;
    }
    *ret_verdict = ips_tuned_parse(text, bytes, machine, ranks, link, ret, ret_reason);
    free(text);
    return *ret_verdict == IPS_TUNED_OK ? 0 : -1;
}
