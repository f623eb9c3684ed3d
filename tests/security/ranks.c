/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks in one process, with everything loaded by absolute path, as a privileged
 * program does it:
 *   security-ranks MODE SHIM [LIBRARY...]
 * loads the libraries, then the shim, and makes a communicator. Modes:
 *   meet    only that; for tests of what the shim loads by itself
 *   poison  first puts `environ` where reading is a fault, then also runs an AllReduce on
 *           the engine; exit status 3 when the environment was read, 77 when the process
 *           is not AT_SECURE
 *   open    likewise in a process that is not: shows that reading is noticed
 *   run     likewise without poison */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/types.h"
#include "tools/device.h"
#include "tools/nccl.h"

#define RANKS 2
#define COUNT 1000
#define POISON_BYTES 4096

static char *poison;
static int failures;

#define CHECK(what)                                           \
    do {                                                      \
        if (!(what)) {                                        \
            printf("line %d: not so: %s\n", __LINE__, #what); \
            failures++;                                       \
        }                                                     \
    } while (0)

static void on_fault(int number, siginfo_t *info, void *context)
{
    char *at = info->si_addr;
    (void)number, (void)context;
    _exit(at >= poison && at < poison + POISON_BYTES ? 3 : 4);
}

static void poison_environment(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    void *page = mmap(NULL, POISON_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    poison = page;
    sigaction(SIGSEGV, &action, NULL);
    environ = page;
}

static size_t free_bytes(void)
{
    int (*info)(size_t *, size_t *) = NULL;
    size_t left = 0, all = 0;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *found = cuda ? dlsym(cuda, "cuMemGetInfo_v2") : NULL;
    memcpy(&info, &found, sizeof info);
    CHECK(info && info(&left, &all) == 0);
    return left;
}

/* One thread is both ranks: NCCL takes the device that is current at each init. */
static void meet(const struct nccl_api *nccl, struct device *devices, nccl_comm *comms)
{
    struct nccl_id id;
    memset(&id, 0, sizeof id);
    CHECK(nccl->GetUniqueId(&id) == NCCL_SUCCESS);
    CHECK(nccl->GroupStart() == NCCL_SUCCESS);
    for (int rank = 0; rank < RANKS; rank++) {
        if (devices)
            CHECK(device_open(&devices[rank], (unsigned)rank) == 0);
        CHECK(nccl->CommInitRank(&comms[rank], RANKS, id, rank) == NCCL_SUCCESS);
    }
    CHECK(nccl->GroupEnd() == NCCL_SUCCESS);
}

static void reduce(const struct nccl_api *nccl, struct device *devices, nccl_comm *comms)
{
    float values[COUNT];
    gpu_ptr data[RANKS];
    gpu_stream stream[RANKS];
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK(devices[rank].gpu->cuCtxPushCurrent(devices[rank].context) == 0);
        CHECK(device_stream(&devices[rank], &stream[rank]) == 0);
        CHECK(device_alloc(&devices[rank], sizeof values, &data[rank]) == 0);
        CHECK(!device_upload(&devices[rank], data[rank], values, sizeof values,
                             stream[rank]));
    }
    CHECK(nccl->GroupStart() == NCCL_SUCCESS);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(nccl->AllReduce((void *)(uintptr_t)data[rank],
                              (void *)(uintptr_t)data[rank], COUNT, IPS_FLOAT32, IPS_SUM,
                              comms[rank], stream[rank]) == NCCL_SUCCESS);
    CHECK(nccl->GroupEnd() == NCCL_SUCCESS);
    for (int rank = 0; rank < RANKS; rank++) {
        CHECK(device_wait(&devices[rank], stream[rank], 30) == 0);
        CHECK(!device_download(&devices[rank], values, data[rank], sizeof values,
                               stream[rank]));
        CHECK(values[1] == RANKS && values[COUNT - 1] == RANKS * (COUNT - 1));
    }
}

static void run_all(const struct nccl_api *nccl)
{
    struct device devices[RANKS] = {0}, probe = {0};
    nccl_comm comms[RANKS] = {0};
    CHECK(device_open(&probe, 0) == 0);
    size_t before = free_bytes();
    meet(nccl, devices, comms);
    CHECK(devices[0].gpu->cuCtxPushCurrent(probe.context) == 0);
    CHECK(before >= free_bytes() + (2 << 20)); /* the engine's slab: it was set up */
    reduce(nccl, devices, comms);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK(nccl->CommDestroy(comms[rank]) == NCCL_SUCCESS);
}

int main(int argc, char **argv)
{
    struct nccl_api nccl;
    void *shim = NULL;
    if (argc < 3)
        return 2;
    const int poisoned = !strcmp(argv[1], "poison") || !strcmp(argv[1], "open");
    if (!strcmp(argv[1], "poison") && !getauxval(AT_SECURE))
        return 77;
    for (int i = 3; i < argc; i++)
        if (!dlopen(argv[i], RTLD_NOW | RTLD_LOCAL))
            return printf("%s\n", dlerror()), 2;
    if (!(shim = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL)) || nccl_api_load(shim, &nccl))
        return printf("no shim: %s\n", dlerror()), 2;
    if (poisoned)
        poison_environment();
    if (strcmp(argv[1], "meet") != 0) {
        run_all(&nccl);
    } else {
        nccl_comm comms[RANKS] = {0};
        meet(&nccl, NULL, comms);
    }
    return failures != 0;
}
