/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the file of `ipcshim doctor --probe`, and the machine that it must be of. What
 * only root may see, the ACS control of bridges, is compared where it can be seen: so a
 * file that root wrote serves everybody. */
#include "shim/verdict_file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/pci_config.h"
#include "core/topology.h"
#include "shim/kept_file.h"
#include "shim/settings.h"

/* What there is of a file of /proc or /sys, of at most room bytes. */
static size_t slurp(const char *path, void *ret, size_t room)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    size_t used = 0;
    ssize_t more = fd < 0 ? 0 : 1;
    while (more > 0 && used < room) {
        more = read(fd, (char *)ret + used, room - used);
        used += more > 0 ? (size_t)more : 0;
    }
    if (fd >= 0)
        close(fd);
    return used;
}

void ips_verdict_machine(int cuda_version, struct ips_verdicts_machine *ret)
{
    char driver[512], boot[64], cmdline[8192];
    driver[slurp("/proc/driver/nvidia/version", driver, sizeof driver - 1)] = 0;
    boot[slurp("/proc/sys/kernel/random/boot_id", boot, sizeof boot - 1)] = 0;
    cmdline[slurp("/proc/cmdline", cmdline, sizeof cmdline - 1)] = 0;
    ips_verdicts_describe(driver, cuda_version, boot, cmdline, ret);
}

static int acs_now(const char *address)
{
    unsigned char config[IPS_PCI_CONFIG_BYTES];
    char name[IPS_ADDRESS_BYTES], path[96];
    ips_address parsed;
    if (ips_address_parse(address, &parsed))
        return -1;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/config",
             ips_address_text(parsed, name));
    return ips_pci_acs(config, slurp(path, config, sizeof config));
}

static int acs_differs(const struct ips_verdicts *verdicts)
{
    for (unsigned i = 0; i < verdicts->bridges; i++) {
        const int then = verdicts->bridge[i].acs;
        const int now = then < 0 ? -1 : acs_now(verdicts->bridge[i].address);
        if (now >= 0 && now != then)
            return 1;
    }
    return 0;
}

int ips_verdict_file_read(const char *path, int cuda_version, struct ips_verdicts *ret,
                          char *ret_reason)
{
    struct ips_verdicts_machine now;
    size_t bytes = 0;
    int absent = 0;
    char *text = ips_kept_file_load(path, IPS_VERDICTS_BYTES, &bytes, &absent, ret_reason,
                                    IPS_VERDICTS_REASON_BYTES);
    if (!text) {
        if (absent)
            ret_reason[0] = 0;
        return -1;
    }
    const int error = ips_verdicts_parse(text, bytes, ret, ret_reason);
    free(text);
    if (error)
        return -1;
    ips_verdict_machine(cuda_version, &now);
    const char *stale = ips_verdicts_stale(ret, &now);
    if (!stale && acs_differs(ret))
        stale = "the ACS control of a bridge was changed since";
    if (stale)
        snprintf(ret_reason, IPS_VERDICTS_REASON_BYTES, "%s", stale);
    return stale ? -1 : 0;
}

int ips_verdict_file_newest(int cuda_version, struct ips_verdicts *ret,
                            void (*ignored)(const char *path, const char *reason))
{
    char path[PATH_MAX], reason[IPS_VERDICTS_REASON_BYTES];
    struct ips_verdicts *one = malloc(sizeof *one);
    int found = 0;
    for (int turn = 0; one && turn < IPS_VERDICT_PLACES; turn++) {
        if (ips_settings_verdict_file(ips_settings()->verdict_file, turn, path,
                                      sizeof path))
            continue;
        if (ips_verdict_file_read(path, cuda_version, one, reason)) {
            if (*reason && ignored)
                ignored(path, reason);
        } else if (!found || strcmp(one->made, ret->made) > 0) {
            *ret = *one;
            found = 1;
        }
    }
    free(one);
    return found ? 0 : -1;
}
