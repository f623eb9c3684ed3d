/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim env: the table of variables, as the shim reads them. */
#include <stdio.h>
#include <string.h>

#include "shim/settings.h"
#include "tools/tool.h"

int cmd_env(int argc, char **argv)
{
    enum ips_settings_format format = IPS_SETTINGS_TEXT;
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        puts(
            "usage: ipcshim env [--markdown]\n\n"
            "Prints every IPCSHIM_* variable: its values, its default and what it does.");
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "--markdown"))
        format = IPS_SETTINGS_MARKDOWN;
    else if (argc > 1)
        return tool_fail("env: \"%s\" is not an option: ipcshim env [--markdown]",
                         argv[1]);
    ips_settings_print(stdout, format);
    return 0;
}
