/* SPDX-License-Identifier: Apache-2.0 */
/* Loads libraries from absolute places only. An empty entry of LD_LIBRARY_PATH, as in
 * "$LD_LIBRARY_PATH:/opt/lib", is the current directory: whoever can write there would
 * choose the driver. */
#include "core/load.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int has(const char *directory, const char *name)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", directory, name);
    return length > 0 && length < (int)sizeof path && access(path, F_OK) == 0;
}

/* The loader also looks into subdirectories for special processors; which, it does not
 * say. One of those names counts as the library: better refused once too often. */
static int may_hold(const char *directory, const char *name)
{
    static const char *const special[] = {"glibc-hwcaps", "tls",    "haswell",
                                          "avx512_1",     "x86_64", "atomics"};
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
        if (has(directory, special[i]))
            return 1;
    return has(directory, name);
}

/* The directories that the loader searches for this library, in order; to be freed. */
static Dl_serinfo *search_path(void)
{
    Dl_info info;
    struct link_map *own = NULL;
    Dl_serinfo size, *list = NULL;
    if (!dladdr1((void *)search_path, &info, (void **)&own, RTLD_DL_LINKMAP) || !own)
        return NULL;
    void *handle = dlopen(own->l_name[0] ? own->l_name : NULL, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return NULL;
    if (!dlinfo(handle, RTLD_DI_SERINFOSIZE, &size))
        list = malloc(size.dls_size);
    if (list)
        *list = size;
    if (list && dlinfo(handle, RTLD_DI_SERINFO, list)) {
        free(list);
        list = NULL;
    }
    dlclose(handle);
    return list;
}

/* Whether the first directory that has the library is a relative one. */
static int is_relative(const char *name)
{
    int relative = 0;
    Dl_serinfo *list = search_path();
    for (unsigned i = 0; list && !relative && i < list->dls_cnt; i++) {
        const char *directory = list->dls_serpath[i].dls_name;
        if (*directory != '/')
            relative = may_hold(directory, name);
        else if (has(directory, name))
            break;
    }
    free(list);
    return relative;
}

static int refuse(const char **ret_cause, const char *cause)
{
    *ret_cause = cause;
    return -EPERM;
}

int ips_load(const char *name, void **ret_handle, const char **ret_cause)
{
    const int bare = !strchr(name, '/');
    void *handle = bare ? dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) : NULL;
    if (!bare && *name != '/')
        return refuse(ret_cause, "nothing is loaded from a relative path");
    if (!handle && bare && is_relative(name))
        return refuse(ret_cause, "LD_LIBRARY_PATH leads to it by an empty or relative "
                                 "entry; nothing is loaded from a relative path");
    if (!handle)
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *cause = dlerror();
        *ret_cause = cause ? cause : "it can't be loaded";
        return -ENOENT;
    }
    *ret_handle = handle;
    return 0;
}
