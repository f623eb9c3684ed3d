/* SPDX-License-Identifier: Apache-2.0 */
/* Where things are. A build tree has tools/ipcshim beside shim/ and tools/simgpu/; an
 * installation has bin/ipcshim and LIBDIR/libipcshim.so. */
#include "tools/place.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/device.h"

#ifndef IPCSHIM_LIBDIR
#define IPCSHIM_LIBDIR "/usr/local/lib"
#endif

/* Directory of this executable, without a trailing slash. */
static const char *own_directory(void)
{
    static char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0)
        return "";
    path[length] = '\0';
    *strrchr(path, '/') = '\0';
    return path;
}

static int try_path(char *found, const char *format, const char *directory)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, format, directory);
    return length > 0 && (size_t)length < sizeof path && realpath(path, found) != NULL;
}

const char *place_shim(void)
{
    static char found[PATH_MAX];
    const char *own = own_directory();
    if (try_path(found, "%s/../shim/libipcshim.so", own) ||
        try_path(found, "%s/libipcshim.so", IPCSHIM_LIBDIR) ||
        try_path(found, "%s/../lib/libipcshim.so", own) ||
        try_path(found, "%s/../lib64/libipcshim.so", own))
        return found;
    fprintf(
        stderr,
        "ipcshim: no libipcshim.so in %s/../shim, %s, %s/../lib or %s/../lib64: build "
        "or install it\n",
        own, IPCSHIM_LIBDIR, own, own);
    return NULL;
}

const char *place_simgpu(void)
{
    static char found[PATH_MAX];
    const char *own = own_directory();
    if (try_path(found, "%s/simgpu/libcuda.so.1", own) ||
        try_path(found, "%s/ipcshim/simgpu/libcuda.so.1", IPCSHIM_LIBDIR)) {
        *strrchr(found, '/') = '\0';
        return found;
    }
    fprintf(
        stderr,
        "ipcshim: the CPU stand-in is not in %s/simgpu: build with -Dsimgpu=enabled, or "
        "use a machine with a GPU\n",
        own);
    return NULL;
}

const char *place_plot(void)
{
    static char found[PATH_MAX];
    const char *own = own_directory();
    if (try_path(found, "%s/ipcshim-plot", own))
        return found;
    fprintf(stderr, "ipcshim: no ipcshim-plot in %s: build or install it\n", own);
    return NULL;
}

int place_parse_device(const char *text)
{
    if (!strcmp(text, "auto"))
        return PLACE_AUTO;
    if (!strcmp(text, "gpu"))
        return PLACE_GPU;
    if (!strcmp(text, "sim"))
        return PLACE_SIM;
    return -1;
}

/* Looks from a child, so that this process never initializes the driver. */
static int real_gpu_present(void)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int simulated = 0;
        int count = device_count(&simulated);
        _exit(count > 0 && !simulated ? 0 : 1);
    }
    int status;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static int prepend(const char *name, const char *value)
{
    const char *old = getenv(name);
    size_t length = strlen(value);
    if (old && !strncmp(old, value, length) && (old[length] == ':' || !old[length]))
        return 0;
    char *text = NULL;
    if (asprintf(&text, "%s%s%s", value, old && *old ? ":" : "", old ? old : "") < 0)
        return -1;
    int error = setenv(name, text, 1);
    free(text);
    return error;
}

static int use_simgpu(unsigned devices)
{
    char text[16];
    const char *directory = place_simgpu();
    if (!directory)
        return -1;
    snprintf(text, sizeof text, "%u", devices);
    setenv("SIMGPU_DEVICES", text, 0);
    return prepend("LD_LIBRARY_PATH", directory);
}

int place_choose_device(int wanted, unsigned devices)
{
    int real = wanted != PLACE_SIM && real_gpu_present();
    if (real)
        return PLACE_GPU;
    if (wanted == PLACE_GPU) {
        fprintf(stderr,
                "ipcshim: libcuda.so.1 shows no GPU here: --device sim runs on the "
                "CPU stand-in\n");
        return -1;
    }
    if (wanted == PLACE_AUTO)
        fprintf(stderr, "ipcshim: no GPU here: using the CPU stand-in (simgpu)\n");
    return use_simgpu(devices) ? -1 : PLACE_SIM;
}

int place_preload(void)
{
    static const char *const path_variables[] = {
        "VLLM_NCCL_SO_PATH", "SGLANG_NCCL_SO_PATH", "SGLANG_DIFFUSION_NCCL_SO_PATH",
        "FASTVIDEO_NCCL_SO_PATH"};
    const char *shim = place_shim();
    if (!shim || prepend("LD_PRELOAD", shim))
        return -1;
    for (unsigned i = 0; i < 2; i++) {
        const char *old = getenv(path_variables[i]);
        char full[PATH_MAX];
        /* Whoever named a NCCL there still wants that one behind the shim, which takes no
         * relative path. */
        if (old && *old && strcmp(old, shim))
            setenv("IPCSHIM_NCCL_LIB",
                   strchr(old, '/') && realpath(old, full) ? full : old, 0);
        setenv(path_variables[i], shim, 1);
    }
    return 0;
}
