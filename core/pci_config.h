/* SPDX-License-Identifier: Apache-2.0 */
/* What the PCI configuration space of a device says, as far as the kernel shows it: 64
 * bytes to everybody, all 4096 to root. Pure functions. */
#ifndef IPS_CORE_PCI_CONFIG_H
#define IPS_CORE_PCI_CONFIG_H

#include <stddef.h>

#define IPS_PCI_CONFIG_BYTES 4096

/* Where the PCI Express capability is; 0: nowhere, -1: not seen. */
int ips_pci_express(const unsigned char *config, size_t bytes);

/* The control register of Access Control Services; 0 where the device has none, -1: not
 * seen. */
int ips_pci_acs(const unsigned char *config, size_t bytes);

/* The 16 bits at `at`, which must be there. */
unsigned ips_pci_word(const unsigned char *config, unsigned at);

#endif
