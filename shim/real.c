/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the one real NCCL of the process. Every candidate is checked not to be this
 * library, nor another copy of it, and the first that passes is published with one
 * compare-and-swap; no lock is held, since dlopen runs foreign constructors. */
#include "shim/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/load.h"
#include "core/log.h"
#include "shim/settings.h"

_Thread_local int ips_inside;
void *ips_real_slots[IPS_SLOTS];

struct library {
    void *handle;
    const struct link_map *map;
    const char *how;
    char path[PATH_MAX];
};
static struct library *library;

#define MAX_OBJECTS 1024
struct objects {
    size_t count;
    char *path[MAX_OBJECTS];
};

enum { RESULT_SYSTEM_ERROR = 2, RESULT_INVALID_USAGE = 5 };

static const struct link_map *object_of(const void *address)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (!address || !dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP))
        return NULL;
    return map;
}

/* A handle of an object that is loaded already. */
static void *loaded(const char *path)
{
    return path[0] ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : dlopen(NULL, RTLD_NOW);
}

/* Whether the object is this library, or a copy of it loaded from another path: it
 * exports the shim's own name. */
static int is_shim(const struct link_map *map)
{
    void *handle = loaded(map->l_name);
    if (!handle)
        return 0;
    int copy = object_of(dlsym(handle, "ipcshimGetInfo")) == map;
    dlclose(handle);
    return copy;
}

/* The object that `handle` (or what it depends on) takes AllReduce from, unless it is the
 * shim; the pncclX name can't be the shim's. Keeps the object loaded. */
static int accept(void *handle, const char *how, struct library *found)
{
    static const char *const names[] = {"ncclAllReduce", "pncclAllReduce"};
    for (size_t i = 0; i < 2; i++) {
        const struct link_map *map = object_of(dlsym(handle, names[i]));
        if (!map || is_shim(map))
            continue;
        found->handle = loaded(map->l_name);
        if (!found->handle)
            continue;
        found->map = map;
        found->how = how;
        snprintf(found->path, sizeof found->path, "%s",
                 map->l_name[0] ? map->l_name : "the program itself");
        return 1;
    }
    return 0;
}

static int accept_handle(void *handle, const char *how, struct library *found)
{
    int good = accept(handle, how, found);
    if (!good)
        dlclose(handle);
    return good;
}

static int accept_loaded(const char *path, const char *how, struct library *found)
{
    void *handle = loaded(path);
    return handle && accept_handle(handle, how, found);
}

static int from_setting(struct library *found)
{
    static int warned;
    const char *path = ips_settings_nccl_lib();
    const char *cause = "it exports no ncclAllReduce of its own";
    void *handle;
    if (!path)
        return 0;
    if (!ips_load(path, &handle, &cause) &&
        accept_handle(handle, "IPCSHIM_NCCL_LIB", found))
        return 1;
    if (!__atomic_exchange_n(&warned, 1, __ATOMIC_RELAXED))
        ips_log(IPS_LOG_WARN, "IPCSHIM_NCCL_LIB=%s is no NCCL (%s); looking elsewhere",
                path, cause);
    return 0;
}

static int from_library_path(struct library *found)
{
    static int warned;
    void *handle;
    const char *cause;
    int error = ips_load("libnccl.so.2", &handle, &cause);
    if (error == -EPERM && !__atomic_exchange_n(&warned, 1, __ATOMIC_RELAXED))
        ips_log(IPS_LOG_WARN, "libnccl.so.2 is not loaded: %s", cause);
    return !error && accept_handle(handle, "the library path", found);
}

static int from_caller(const void *caller, struct library *found)
{
    const struct link_map *map = object_of(caller);
    if (!map || is_shim(map))
        return 0;
    void *handle = loaded(map->l_name);
    if (!handle)
        return 0;
    int good = accept(handle, "the caller's libraries", found);
    dlclose(handle);
    return good;
}

/* Only copies names: nothing may be opened while the loader walks its list. */
static int collect(struct dl_phdr_info *info, size_t size, void *data)
{
    struct objects *objects = data;
    (void)size;
    if (info->dlpi_name && info->dlpi_name[0] && objects->count < MAX_OBJECTS) {
        char *copy = strdup(info->dlpi_name);
        if (copy)
            objects->path[objects->count++] = copy;
    }
    return 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Wheels keep NCCL beside PyTorch: .../torch/lib/libtorch_cuda.so and
 * .../nvidia/nccl/lib/libnccl.so.2. */
static int from_wheel(const struct objects *objects, struct library *found)
{
    for (size_t i = 0; i < objects->count; i++) {
        const char *path = objects->path[i];
        char beside[PATH_MAX];
        const char *cause;
        void *handle;
        if (strncmp(base_name(path), "libtorch", 8) != 0)
            continue;
        int length =
            snprintf(beside, sizeof beside, "%.*s../../nvidia/nccl/lib/libnccl.so.2",
                     (int)(base_name(path) - path), path);
        if (length < (int)sizeof beside && !ips_load(beside, &handle, &cause) &&
            accept_handle(handle, "the wheel beside PyTorch", found))
            return 1;
    }
    return 0;
}

static int from_loaded(const struct objects *objects, struct library *found)
{
    for (size_t i = 0; i < objects->count; i++)
        if (accept_loaded(objects->path[i], "the loaded objects", found))
            return 1;
    return 0;
}

static int look(const void *caller, struct library *found)
{
    if (from_setting(found) || accept(RTLD_NEXT, "the preload order", found) ||
        from_caller(caller, found) ||
        accept_loaded("libnccl.so.2", "the loaded libnccl.so.2", found) ||
        accept_loaded("libnccl.so", "the loaded libnccl.so", found))
        return 1;
    struct objects *objects = calloc(1, sizeof *objects);
    if (!objects)
        return 0;
    dl_iterate_phdr(collect, objects);
    int good = from_loaded(objects, found) || from_wheel(objects, found) ||
               from_library_path(found);
    for (size_t i = 0; i < objects->count; i++)
        free(objects->path[i]);
    free(objects);
    return good;
}

static struct library *get_library(const void *caller)
{
    struct library *current = __atomic_load_n(&library, __ATOMIC_ACQUIRE);
    if (current)
        return current;
    struct library *found = calloc(1, sizeof *found);
    if (!found)
        return NULL;
    if (!look(caller, found)) {
        free(found);
        return __atomic_load_n(&library, __ATOMIC_ACQUIRE);
    }
    if (__atomic_compare_exchange_n(&library, &current, found, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return found;
    free(found);
    return current;
}

/* The function in the library; when the handle's scope is the whole program, the plain
 * name may lead back here, and the pncclX name does not. */
static void *find_function(const struct library *real, const char *name)
{
    char strong[64];
    void *found = dlsym(real->handle, name);
    if (found && object_of(found) == real->map)
        return found;
    snprintf(strong, sizeof strong, "p%s", name);
    found = dlsym(real->handle, strong);
    return found && object_of(found) == real->map ? found : NULL;
}

void *ips_real_find(enum ips_slot slot, const void *caller)
{
    int saved = errno;
    const struct library *real = get_library(caller);
    void *found = real ? find_function(real, ips_slot_names[slot]) : NULL;
    if (found)
        __atomic_store_n(&ips_real_slots[slot], found, __ATOMIC_RELEASE);
    errno = saved;
    return found;
}

int ips_real_missing(enum ips_slot slot)
{
    static int said_library;
    static unsigned char said[IPS_SLOTS];
    const struct library *real = __atomic_load_n(&library, __ATOMIC_ACQUIRE);
    if (!real) {
        if (!__atomic_exchange_n(&said_library, 1, __ATOMIC_RELAXED)) {
            const char *setting = ips_settings_nccl_lib();
            ips_log(
                IPS_LOG_ERROR,
                "%s: no NCCL found. Looked at IPCSHIM_NCCL_LIB (%s), what follows in "
                "the preload order, the caller's libraries, all loaded objects, "
                "nvidia/nccl/lib beside PyTorch, and libnccl.so.2 in the library path. "
                "Set IPCSHIM_NCCL_LIB to the path of libnccl.so.2.",
                ips_slot_names[slot], setting ? setting : "not set");
        }
        return RESULT_SYSTEM_ERROR;
    }
    if (!__atomic_exchange_n(&said[slot], 1, __ATOMIC_RELAXED))
        ips_log(IPS_LOG_WARN, "%s: the real NCCL (%s) has no such function",
                ips_slot_names[slot], real->path);
    return RESULT_INVALID_USAGE;
}

const char *ips_real_path(void)
{
    const struct library *real = __atomic_load_n(&library, __ATOMIC_ACQUIRE);
    return real ? real->path : NULL;
}

const char *ips_real_how(void)
{
    const struct library *real = __atomic_load_n(&library, __ATOMIC_ACQUIRE);
    return real ? real->how : NULL;
}

static int same_file(const char *a, const char *b)
{
    char real_a[PATH_MAX], real_b[PATH_MAX];
    return realpath(a, real_a) && realpath(b, real_b) && strcmp(real_a, real_b) == 0;
}

/* How many objects were ever loaded, told by the first of them. */
static int get_added(struct dl_phdr_info *info, size_t size, void *ret)
{
    if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof info->dlpi_adds)
        *(unsigned long long *)ret = info->dlpi_adds;
    return 1;
}

void ips_real_warn_of_second(void)
{
    static int warned;
    static unsigned long long seen; /* at the last look */
    const struct library *real = __atomic_load_n(&library, __ATOMIC_ACQUIRE);
    if (!real || __atomic_load_n(&warned, __ATOMIC_RELAXED) || ips_settings_nccl_lib())
        return; /* IPCSHIM_NCCL_LIB has chosen between them */
    int saved = errno;
    unsigned long long added = 0;
    dl_iterate_phdr(get_added, &added);
    if (added && __atomic_exchange_n(&seen, added, __ATOMIC_RELAXED) == added)
        return;
    struct objects *objects = calloc(1, sizeof *objects);
    if (!objects)
        return;
    dl_iterate_phdr(collect, objects);
    for (size_t i = 0; i < objects->count; i++) {
        const char *path = objects->path[i];
        if (strncmp(base_name(path), "libnccl.so", 10) == 0 &&
            !same_file(path, real->path) &&
            !__atomic_exchange_n(&warned, 1, __ATOMIC_RELAXED))
            ips_log(IPS_LOG_WARN,
                    "two NCCLs are loaded, and all calls go to %s, not to %s; "
                    "IPCSHIM_NCCL_LIB chooses",
                    real->path, path);
        free(objects->path[i]);
    }
    free(objects);
    errno = saved;
}
