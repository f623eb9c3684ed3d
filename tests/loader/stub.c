/* SPDX-License-Identifier: Apache-2.0 */
/* A program that loads NCCL as JAX's stub and Rust's libloading do: dlopen, a table of
 * names by dlsym, dlerror to tell what is absent. Whatever stands behind dlsym, it must
 * answer as dlsym does. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int wrong;
static void check(int good, int line, const char *what)
{
    if (!good) {
        printf("line %d: not so: %s\n", line, what);
        wrong = 1;
    }
}
#define CHECK(what) check((what), __LINE__, #what)

typedef struct {
    char internal[128];
} unique_id;

static void *get(void *library, const char *name)
{
    dlerror();
    void *found = dlsym(library, name);
    CHECK(found && !dlerror());
    return found;
}

static void test_absent(void *library)
{
    dlerror();
    CHECK(!dlsym(library, "ncclNoSuchFunction"));
    const char *error = dlerror();
    CHECK(error && strstr(error, "ncclNoSuchFunction"));
    CHECK(!dlsym(library, "ncc") && !dlsym(library, "n") && !dlsym(library, ""));
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    CHECK(libc && dlsym(libc, "getpid") && !dlsym(libc, "ncclAllReduce"));
    /* Found in the library itself, and no name of the shim: its own. */
    CHECK(dlsym(library, "fake_log") != NULL);
}

static void test_calls(void *library)
{
    int (*version)(int *) = (int (*)(int *))get(library, "ncclGetVersion");
    int (*id_of)(unique_id *) = (int (*)(unique_id *))get(library, "ncclGetUniqueId");
    int (*init)(void **, int, unique_id, int) =
        (int (*)(void **, int, unique_id, int))get(library, "ncclCommInitRank");
    int (*reduce)(const void *, void *, size_t, int, int, void *, void *) =
        (int (*)(const void *, void *, size_t, int, int, void *, void *))get(
            library, "ncclAllReduce");
    int (*destroy)(void *) = (int (*)(void *))get(library, "ncclCommDestroy");
    unique_id id;
    void *comm = NULL;
    int number = 0;
    CHECK(!version(&number) && number == 22809);
    CHECK(!id_of(&id) && !init(&comm, 1, id, 0));
    CHECK(!reduce(&id, &id, 1, 0, 0, comm, NULL));
    CHECK(!destroy(comm));
}

int main(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_LAZY);
    CHECK(library != NULL);
    if (!library)
        return 1;
    test_absent(library);
    test_calls(library);
    CHECK(getpid() > 0); /* next.c may stand in front of it */
    return wrong;
}
