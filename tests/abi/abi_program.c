/* SPDX-License-Identifier: Apache-2.0 */
/* An ordinary NCCL program, linked with the stand-in NCCL and run under the preload: what
 * it passes must arrive unchanged. Argument: the case. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "shim/nccl_api.h"
#include "tests/abi/fake_nccl.h"

static int failures;

static void check(int line, int good, const char *what)
{
    if (!good) {
        printf("line %d: not so: %s\n", line, what);
        failures++;
    }
}
#define CHECK(what) check(__LINE__, !!(what), #what)

static ncclUniqueId random_id(void)
{
    ncclUniqueId id;
    for (size_t i = 0; i < sizeof id; i++)
        id.internal[i] = (char)(rand() >> 7);
    return id;
}

/* That the shim stands before the stand-in at all. */
static void test_preloaded(void)
{
    Dl_info info;
    void *found = dlsym(RTLD_DEFAULT, "ncclAllReduce");
    CHECK(found && dladdr(found, &info) && strstr(info.dli_fname, "libipcshim"));
    CHECK(dlsym(RTLD_DEFAULT, "ipcshimGetInfo") != NULL);
}

static void test_arguments(void)
{
    ncclComm_t comm = NULL;
    ncclUniqueId ids[3] = {random_id(), random_id(), random_id()};
    unsigned char config[256], before[256];
    memset(config, 0x5a, sizeof config);
    memcpy(before, config, sizeof before);

    CHECK(ncclCommInitRank(&comm, 1, ids[0], 0) == ncclSuccess);
    CHECK(memcmp(fake_last_id(), &ids[0], sizeof ids[0]) == 0);
    CHECK(ncclCommInitRankConfig(&comm, 1, ids[1], 0, (ncclConfig_t *)config) ==
          ncclSuccess);
    CHECK(memcmp(fake_last_id(), &ids[1], sizeof ids[1]) == 0);
    CHECK(fake_last_config() == config && memcmp(config, before, sizeof config) == 0);
    CHECK(ncclCommInitRankConfig(&comm, 1, ids[1], 0, NULL) == ncclSuccess);
    CHECK(fake_last_config() == NULL);
    CHECK(ncclCommInitRankScalable(&comm, 1, 0, 3, ids, NULL) == ncclSuccess);
    CHECK(memcmp(fake_last_id(), &ids[2], sizeof ids[2]) == 0);

    int version = 0, count = 0;
    CHECK(ncclGetVersion(&version) == ncclSuccess && version == 22809);
    CHECK(ncclCommCount(comm, &count) == ncclSuccess && count == 1);
    CHECK(strcmp(ncclGetErrorString(ncclSuccess), "the fake's error string") == 0);
    CHECK(ncclAllReduce(NULL, NULL, 0, ncclInt8, ncclSum, NULL, NULL) ==
          ncclInvalidArgument);
    fake_reset();
    ncclBcast(NULL, 0, ncclInt8, 0, comm, NULL);
    CHECK(strcmp(fake_log(), "ncclBcast;ncclBroadcast;") == 0);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

/* Every name reaches the function of the same name. Integer arguments in excess do no
 * harm; a call with none of them valid is fine for functions that only note their name.
 */
static void test_every_name(void)
{
    static const char *const names[] = {
#define TRACED(name, parameters, arguments, count, type, op) #name,
#define LATE_OWN(name, parameters, arguments) #name,
#define LATE_TRACED(name, parameters, arguments, count, type, op) #name,
#define LATE_PLAIN(name, parameters, arguments) #name,
#define LATE_VOID(name, parameters, arguments) #name,
#include "shim/api.def"
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        typedef int any(void *, void *, void *, void *, void *, void *, void *, void *,
                        void *, void *, void *, void *);
        any *function = (any *)dlsym(RTLD_DEFAULT, names[i]);
        char expected[64];
        fake_reset();
        function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        snprintf(expected, sizeof expected, "%s;", names[i]);
        if (strcmp(names[i], "ncclBcast") == 0)
            strcat(expected, "ncclBroadcast;");
        if (strcmp(fake_log(), expected) != 0)
            printf("%s: reached %s\n", names[i], fake_log());
        CHECK(strcmp(fake_log(), expected) == 0);
    }
}

/* With a real library that is too old (the runner chooses it). */
static void test_old(void)
{
    ncclComm_t comm = NULL, child = NULL;
    int (*suspend)(void *, int) =
        (int (*)(void *, int))dlsym(RTLD_DEFAULT, "ncclCommSuspend");
    CHECK(ncclCommInitRank(&comm, 1, random_id(), 0) == ncclSuccess);
    CHECK(ncclCommShrink(comm, NULL, 0, &child, NULL, 0) == ncclInvalidUsage);
    CHECK(ncclCommShrink(comm, NULL, 0, &child, NULL, 0) == ncclInvalidUsage);
    CHECK(suspend(comm, 0) == ncclInvalidUsage);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

/* A second NCCL under another path: the runner looks for the warning. */
static void test_second(const char *path)
{
    ncclComm_t comm = NULL;
    CHECK(dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL);
    CHECK(ncclCommInitRank(&comm, 1, random_id(), 0) == ncclSuccess);
    CHECK(ncclCommInitRank(&comm, 1, random_id(), 0) == ncclSuccess);
}

/* Declined communicators of two ranks and all calls: the real engine finds no peer. */
static void test_alone(void)
{
    ncclComm_t comm = NULL;
    CHECK(ncclCommInitRank(&comm, 2, random_id(), 1) == ncclSuccess);
    fake_reset();
    CHECK(ncclAllReduce(&comm, &comm, 1, ncclInt8, ncclSum, comm, NULL) == ncclSuccess);
    CHECK(strcmp(fake_log(), "ncclAllReduce;") == 0);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

/* As a setuid program, without the preload: it loads NCCL and the shim itself. The runner
 * has set variables that would be seen. */
static int test_setuid(const char *shim, const char *nccl)
{
    if (!getauxval(AT_SECURE))
        return 77; /* a file system without setuid */
    CHECK(dlsym(RTLD_DEFAULT, "ipcshimGetInfo") == NULL);
    CHECK(dlopen(nccl, RTLD_NOW | RTLD_LOCAL) != NULL);
    void *library = dlopen(shim, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    if (!library)
        return 1;
    __typeof__(&ncclCommInitRank) init =
        (__typeof__(&ncclCommInitRank))dlsym(library, "ncclCommInitRank");
    const char *(*info)(void) = (const char *(*)(void))dlsym(library, "ipcshimGetInfo");
    ncclComm_t comm = NULL;
    CHECK(init(&comm, 1, random_id(), 0) == ncclSuccess);
    CHECK(strstr(info(), "IPCSHIM_NCCL_LIB") == NULL);
    return failures != 0;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "setuid") == 0 && argc == 4)
        return test_setuid(argv[2], argv[3]);
    test_preloaded();
    if (strcmp(name, "arguments") == 0)
        test_arguments();
    else if (strcmp(name, "every-name") == 0)
        test_every_name();
    else if (strcmp(name, "old") == 0)
        test_old();
    else if (strcmp(name, "second") == 0 && argc == 3)
        test_second(argv[2]);
    else if (strcmp(name, "alone") == 0)
        test_alone();
    else
        CHECK(!"a case of that name");
    return failures != 0;
}
