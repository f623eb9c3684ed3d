/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the lists of capabilities, which may be cut, or never end. */
#include "core/pci_config.h"

#define CONFIG_HEADER 64    /* what a reader who is not root gets */
#define CONFIG_EXTENDED 256 /* where the extended capabilities begin */
#define CAPABILITY_EXPRESS 0x10
#define EXTENDED_ACS 0x0d

unsigned ips_pci_word(const unsigned char *config, unsigned at)
{
    return config[at] | (unsigned)config[at + 1] << 8;
}

int ips_pci_express(const unsigned char *config, size_t bytes)
{
    if (!(ips_pci_word(config, 0x06) & 0x10)) /* status: there is no list */
        return 0;
    unsigned at = config[0x34] & 0xfcu;
    for (unsigned steps = 0; at >= CONFIG_HEADER && steps < 48; steps++) {
        if (at + 12 > bytes || at + 12 > CONFIG_EXTENDED)
            return -1;
        if (config[at] == CAPABILITY_EXPRESS)
            return (int)at;
        at = config[at + 1] & 0xfcu;
    }
    return at ? -1 : 0; /* a list that has no end */
}

static int find_acs(const unsigned char *config, size_t bytes)
{
    unsigned at = CONFIG_EXTENDED;
    for (unsigned steps = 0; at >= CONFIG_EXTENDED && steps < 1024; steps++) {
        if (at + 8 > bytes)
            return -1;
        unsigned id = ips_pci_word(config, at), rest = ips_pci_word(config, at + 2);
        if (id == EXTENDED_ACS)
            return (int)ips_pci_word(config, at + 6);
        at = rest >> 4 & 0xffcu;
    }
    return at ? -1 : 0;
}

int ips_pci_acs(const unsigned char *config, size_t bytes)
{
    /* All ones: the device does not answer. */
    if (bytes < CONFIG_HEADER || ips_pci_word(config, 0) == 0xffff)
        return -1;
    return ips_pci_express(config, bytes) ? find_acs(config, bytes) : 0;
}
