/* SPDX-License-Identifier: Apache-2.0 */
/* A program that loads what uses NCCL: opener HOW LIBRARY [ANOTHER]. HOW is local,
 * deepbind or dlmopen. ANOTHER is an NCCL at a path of its own, where a name is looked up
 * too. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *load(const char *how, const char *path)
{
    void *handle = NULL;
    if (!strcmp(how, "dlmopen"))
        handle = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
    else if (!strcmp(how, "deepbind"))
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    else
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        printf("%s\n", dlerror());
    return handle;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 64;
    void *handle = load(argv[1], argv[2]);
    int (*run)(void) = handle ? (int (*)(void))dlsym(handle, "user_run") : NULL;
    if (!run)
        return 65;
    int status = run();
    if (argc > 3) {
        void *other = load("local", argv[3]);
        int version = 0;
        int (*get)(int *) = other ? (int (*)(int *))dlsym(other, "ncclGetVersion") : NULL;
        if (!get || get(&version) || version != 22809)
            return 66;
    }
    return status;
}
