/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the table of NCCL functions. */
#include "tools/nccl.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core/load.h"

const char *nccl_api_load(void *handle, struct nccl_api *api)
{
    const struct {
        void *slot;
        const char *name;
    } symbols[] = {
#define X(name, parameters) {&api->name, "nccl" #name},
        IPS_NCCL_CALLS(X) X(GetErrorString, (int error))
#undef X
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *found = dlsym(handle, symbols[i].name);
        if (!found)
            return symbols[i].name;
        memcpy(symbols[i].slot, &found, sizeof found);
    }
    return NULL;
}

void *nccl_real_open(const char **ret_error)
{
    const char *path = getenv("IPCSHIM_NCCL_LIB");
    void *handle = NULL;
    ips_load(path && *path ? path : "libnccl.so.2", &handle, ret_error);
    return handle;
}
