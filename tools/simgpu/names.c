/* SPDX-License-Identifier: Apache-2.0 */
/* Names of errors and of functions. */
#include "tools/simgpu/sim.h"

#include <dlfcn.h>
#include <stdio.h>

static int lookup(int error, const char **name, const char **text)
{
    static const struct {
        int number;
        const char *name, *text;
    } table[] = {
#define X(number, name, text) {number, #name, text},
        SIM_ERRORS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].number == error) {
            *name = table[i].name;
            *text = table[i].text;
            return CUDA_SUCCESS;
        }
    }
    *name = *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

int cuGetErrorName(int error, const char **name)
{
    const char *text;
    return name ? lookup(error, name, &text) : CUDA_ERROR_INVALID_VALUE;
}

int cuGetErrorString(int error, const char **text)
{
    const char *name;
    return text ? lookup(error, &name, text) : CUDA_ERROR_INVALID_VALUE;
}

/* The handle of this library, also when it was opened with RTLD_LOCAL. */
static void *self(void)
{
    static int anchor;
    Dl_info info;
    if (!dladdr(&anchor, &info) || !info.dli_fname)
        return NULL;
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

/* Callers name the plain function and a CUDA version; here each has one form only, the
 * one whose symbol the engine asks for. */
int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                        int *status)
{
    char name[128];
    (void)version, (void)flags;
    int error = sim_enter_early(__func__);
    if (error)
        return error;
    void *handle = self();
    if (!symbol || !function || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, sizeof name, "%s_v2", symbol);
    *function = dlsym(handle, name);
    if (!*function)
        *function = dlsym(handle, symbol);
    dlclose(handle);
    if (status)
        *status = *function ? 0 : 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
