/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim devices (hidden): what this machine has to run on, for tools/demo. Never counts
 * the CPU stand-in. */
#include <stdio.h>

#include "tools/device.h"
#include "tools/nccl.h"
#include "tools/tool.h"

int cmd_devices(int argc, char **argv)
{
    int simulated, gpus = device_count(&simulated), version = 0;
    const char *error = NULL;
    struct nccl_api api;
    if (argc > 1)
        return tool_fail("devices: \"%s\" is not an option", argv[1]);
    void *nccl = nccl_real_open(&error);
    if (nccl && !nccl_api_load(nccl, &api) && api.GetVersion(&version))
        version = 0;
    printf("gpus=%d\nnccl=%d\n", simulated ? 0 : gpus, version);
    return 0;
}
