/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a driver behaves as the engine needs it: on the CPU stand-in, so that what
 * the tests show there means something, and on a GPU, so that the stand-in is held to the
 * truth. Exits 77 where there is no driver or no device. */
#include "tests/gpu/conformance.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TAP_DEFINE;

struct ips_gpu_api gpu;
struct extra_api more;
gpu_context context;
int simulated;
const char *program;

static __thread jmp_buf *next_section;

void must(int error, const char *call, const char *file, int line)
{
    const char *name = "?";
    if (!error)
        return;
    gpu.cuGetErrorName(error, &name);
    tap(0, "%s:%d: %s: %s; the rest of this section is left out", file, line, call,
        name ? name : "?");
    if (!next_section)
        exit(1);
    longjmp(*next_section, 1);
}

static void section(void (*fn)(void))
{
    jmp_buf here;
    next_section = &here;
    if (setjmp(here) == 0)
        fn();
    next_section = NULL;
}

static void hold(void *data)
{
    struct gate *gate = data;
    __atomic_store_n(&gate->reached, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&gate->open, __ATOMIC_ACQUIRE))
        usleep(200);
}

void gate_close(struct gate *gate, gpu_stream stream)
{
    gate->open = gate->reached = 0;
    OK(more.cuLaunchHostFunc(stream, hold, gate));
}

void gate_open(struct gate *gate)
{
    __atomic_store_n(&gate->open, 1, __ATOMIC_RELEASE);
}

gpu_ptr alloc_filled(size_t bytes, unsigned char value)
{
    gpu_ptr address;
    OK(gpu.cuMemAlloc(&address, bytes));
    OK(more.cuMemsetD8(address, value, bytes));
    OK(more.cuCtxSynchronize());
    return address;
}

int all_are(gpu_ptr address, size_t bytes, unsigned char value)
{
    unsigned char *copy = malloc(bytes);
    size_t same = 0;
    OK(more.cuMemcpyDtoH(copy, address, bytes));
    while (same < bytes && copy[same] == value)
        same++;
    if (same < bytes)
        printf("# byte %zu is %d, not %d\n", same, copy[same], value);
    free(copy);
    return same == bytes;
}

gpu_stream stream_new(void)
{
    gpu_stream stream;
    OK(gpu.cuStreamCreate(&stream, GPU_STREAM_NON_BLOCKING));
    return stream;
}

gpu_event event_new(void)
{
    gpu_event event;
    OK(gpu.cuEventCreate(&event, GPU_EVENT_DISABLE_TIMING));
    return event;
}

struct task {
    void (*fn)(void *data);
    void *data;
};

static void *thread_main(void *argument)
{
    struct task *task = argument;
    OK(more.cuCtxSetCurrent(context));
    task->fn(task->data);
    return NULL;
}

void on_thread(void (*fn)(void *data), void *data)
{
    struct task task = {fn, data};
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_main, &task) == 0)
        pthread_join(thread, NULL);
}

struct symbol {
    void *slot;
    const char *name;
};

static const char *fill(void *handle)
{
    const struct symbol symbols[] = {
#define X(name, symbol, parameters) {&gpu.name, symbol},
        IPS_GPU_CALLS(X)
#undef X
#define X(name, symbol, parameters) {&more.name, symbol},
            EXTRA_CALLS(X)
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

static int skip(const char *why)
{
    printf("1..0 # SKIP %s\n", why);
    return 77;
}

int main(int count, char **arguments)
{
    int devices = 0;
    char name[100] = "";
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (!handle)
        return skip("no libcuda.so.1");
    const char *missing = fill(handle);
    if (missing) {
        tap(0, "the driver has %s", missing);
        return tap_end();
    }
    if (gpu.cuInit(0) || gpu.cuDeviceGetCount(&devices) || devices < 1)
        return skip("no CUDA device");
    OK(more.cuDeviceGetName(name, sizeof name, 0));
    simulated = strncmp(name, "simgpu", 6) == 0;
    if (count > 1)
        return ipc_child(count - 1, arguments + 1);
    printf("# %d x %s\n", devices, name);
    program = arguments[0];
    section(test_context);
    section(test_memory);
    section(test_streams);
    section(test_ipc);
    section(test_capture);
    section(test_unsafe_calls);
    section(test_capture_refusals);
    section(test_record_node);
    section(test_moved_record_node);
    section(test_external_events);
    section(test_update_dependencies);
    section(test_child_graphs);
    section(test_kernels);
    return tap_end();
}
