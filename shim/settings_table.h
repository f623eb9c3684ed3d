/* SPDX-License-Identifier: Apache-2.0 */
/* The table behind settings.h, shared by the file that parses and the file that prints.
 */
#ifndef IPS_SHIM_SETTINGS_TABLE_H
#define IPS_SHIM_SETTINGS_TABLE_H

#include "shim/settings.h"

enum ips_setting_kind { SWITCH, CHOICE, NUMBER, SIZE, TEXT };

struct ips_setting {
    const char *name;
    enum ips_setting_kind kind;
    size_t offset;       /* in struct ips_settings */
    unsigned bytes;      /* of the member */
    uint64_t low, high;  /* of NUMBER and SIZE */
    const char *choices; /* of CHOICE: "A|B|C", with values first, first + 1, ...; of SIZE:
                            a word for UINT64_MAX, or NULL */
    int first;
    const char *doc;
};

extern const struct ips_setting ips_settings_table[];
extern const size_t ips_settings_count;

struct ips_settings ips_settings_defaults(void);

/* A value of the setting as a user would write it, and the values it may have. */
void ips_setting_format(const struct ips_setting *setting,
                        const struct ips_settings *settings, char *ret, size_t room);
void ips_setting_format_range(const struct ips_setting *setting, char *ret, size_t room);

#endif
